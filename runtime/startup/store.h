/*
 * store.h -- what a launcher keeps for its ranks while they run: values by key. Rank 0 leaves the
 * job's id there, the others fetch it; so ranks that a launcher started anywhere meet, with a
 * secret of their own and without a setting.
 *
 * PMI (version 1, which MPICH, Intel MPI and srun --mpi=pmi2 speak) is lines of text over a
 * descriptor; PMIx (Open MPI, srun --mpi=pmix) is a library, loaded here.
 */
#ifndef RB_RUNTIME_STORE_H
#define RB_RUNTIME_STORE_H

#include <stddef.h>

#include "base/status.h"

enum rb_store_kind { RB_STORE_NONE, RB_STORE_PMI, RB_STORE_PMIX };

struct rb_store {
	enum rb_store_kind kind;
	int fd;           /* PMI: the launcher's, which stays open. */
	char space[256];  /* The name under which it keeps this job's values. */
	size_t value_max; /* Bytes of a value. */
	void *library;    /* PMIx: of dlopen. */
};

/* Which one the variables tell of. */
enum rb_store_kind rb_store_find(void);
const char *rb_store_name(enum rb_store_kind kind);

/* Greets the launcher. Errors: UNSUPPORTED, SYSTEM, TIMEOUT, MISMATCH; nothing is left open then.
 */
RB_NODISCARD rubato_status rb_store_open(enum rb_store_kind kind, uint64_t deadline_ns,
					 struct rb_store *store);
/* Collective: rank 0's `text` (a word, without blanks) comes to all in `text`. */
RB_NODISCARD rubato_status rb_store_pass(struct rb_store *store, uint32_t rank, char *text,
					 size_t text_bytes, uint64_t deadline_ns);
/* Once all ranks have met, or have given up. A process can open one once. */
void rb_store_close(struct rb_store *store);

/* The two kinds, for store.c. */
RB_NODISCARD rubato_status rb_store_pmi_open(struct rb_store *store, uint64_t deadline_ns);
RB_NODISCARD rubato_status rb_store_pmi_pass(struct rb_store *store, uint32_t rank, char *text,
					     size_t text_bytes, uint64_t deadline_ns);
void rb_store_pmi_close(struct rb_store *store);
RB_NODISCARD rubato_status rb_store_pmix_open(struct rb_store *store);
RB_NODISCARD rubato_status rb_store_pmix_pass(struct rb_store *store, uint32_t rank, char *text,
					      size_t text_bytes, uint64_t deadline_ns);
void rb_store_pmix_close(struct rb_store *store);

#endif
