/*
 * bootstrap.h -- what start-up needs from outside: one allgather of small blobs among the job's
 * ranks. Behind it stand the socket rendezvous (rendezvous.c), the simulator, or a caller's own
 * function.
 */
#ifndef RB_RUNTIME_BOOTSTRAP_H
#define RB_RUNTIME_BOOTSTRAP_H

#include "base/status.h"
#include "runtime/startup/store.h"

#define RB_BLOB_BYTES_MAX 16384 /* One rank's contribution. */

struct rb_bootstrap {
	uint32_t rank, rank_count;
	uint8_t job[16]; /* A nonce that all ranks of this job share and no other job has. */
	/* What transports prove their connections by: of the job's secret, where it has one. */
	uint8_t key[32];
	bool elsewhere; /* They may serve other machines over TCP. */
	/* After an error: the rank over which, + 1 (0: not known); before end(!good): over whom
	 * this one gives up. */
	uint32_t blames;
	/* out[r], out_bytes[r]: rank r's blob. The memory is the bootstrap's and stays until close,
	 * whatever is exchanged later. Collective; every call is a new exchange. Errors as
	 * rubato_init's. */
	rubato_status (*allgather)(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				   const void *const **out, const size_t **out_bytes,
				   uint64_t deadline_ns);
	/* Start-up has failed on this rank: tells, at once, who can pass the last error's text and
	 * `blames` on, and waits for nobody; `blames` may be what others have said by now.
	 * end(!good) follows. NULL: nobody hears while they wait for this rank's endpoints. */
	void (*leave)(struct rb_bootstrap *b);
	/* Collective, once, when start-up is over on this rank: OK when it is good on all. After
	 * !good, with everything else closed, it tells the others where it can, and leaves the text
	 * of the last error. NULL: others find out in their own ways. */
	rubato_status (*end)(struct rb_bootstrap *b, bool good);
	/* One copy of `bytes` for all ranks of this process that have equal ones; it stays as long
	 * as any of them has a communicator. NULL: no memory. The function is NULL where each rank
	 * has a process, or a communicator, of its own. */
	void *(*keep)(struct rb_bootstrap *b, const void *bytes, size_t size_bytes);
	/* When start-up is over, well or not. NULL-safe is the caller's duty. */
	void (*close)(struct rb_bootstrap *b);
};

/* What the environment or an id says about this process's place in a job. */
struct rb_job {
	uint32_t rank, rank_count;
	/* host:port, several of them separated by ',', or host:first-last: tried in turn. Rank 0
	 * listens at the first free port. */
	char root[256];
	bool searches; /* Others' jobs may be at some of these ports: look on until the deadline. */
	bool listens;  /* Rank 0 does so already: where all addresses refuse, it is gone. */
	uint8_t secret[64];
	size_t secret_bytes;      /* 0: none. */
	enum rb_store_kind store; /* Without a root: where ranks learn it. */
	bool insecure;            /* RUBATO_INSECURE=1: serve non-loopback without a secret. */
	const char *source;       /* Which variables said so: for people; NULL: none. */
	int listener;      /* Rank 0: a socket that listens already (rubato_id_create), or -1. */
	uint8_t nonce[16]; /* Of the id; all zero: the root draws one. */
};

/* Joins the rendezvous at job->root; rank 0 serves it. Blocks until all ranks are there. Takes
 * job->listener over, also when it fails. */
RB_NODISCARD rubato_status rb_rendezvous_open(const struct rb_job *job, uint64_t deadline_ns,
					      struct rb_bootstrap **out);

/* Of one rank. */
RB_NODISCARD rubato_status rb_bootstrap_alone(struct rb_bootstrap **out);

/* Start-up over the caller's allgather; see rubato_init_oob. */
RB_NODISCARD rubato_status rb_callback_open(rubato_allgather_function function, void *arg,
					    uint32_t rank, uint32_t rank_count,
					    uint64_t deadline_ns, struct rb_bootstrap **out);
/* In place of that, on a rank that has no memory for it: the others learn in their first call that
 * it has failed. */
void rb_callback_refuse(rubato_allgather_function function, void *arg, uint32_t rank_count);

/* Fills `job` from RUBATO_RANK, RUBATO_SIZE, RUBATO_ROOT, else from a launcher's variables; then
 * RUBATO_SECRET_FILE, RUBATO_INSECURE. *found is false (and the job one of one rank) when nobody
 * says anything. */
struct rb_config;
RB_NODISCARD rubato_status rb_job_from_environment(const struct rb_config *config,
						   struct rb_job *job, bool *found);
/* Rank, size, root and nonce from the first launcher whose variables are complete; `own_root`
 * (RUBATO_ROOT, or "") goes before its address. *name is NULL: none is. Errors: ARGUMENT. */
RB_NODISCARD rubato_status rb_job_from_launcher(const char *own_root, struct rb_job *job,
						const char **name);
/* From options: overrides RUBATO_SECRET_FILE. Errors: ARGUMENT unless 16 to 64 bytes. */
RB_NODISCARD rubato_status rb_job_set_secret(struct rb_job *job, const void *secret,
					     size_t secret_bytes);
/* The opaque id: its bytes hold magic, version, nonce, secret, addresses, and the maker's listener.
 * `interfaces` as RUBATO_INTERFACE. */
RB_NODISCARD rubato_status rb_job_make_id(rubato_id *id, const char *interfaces);
/* Of a job whose launcher has a store: rank 0 makes an id, all get it. Fills in the rest of `job`.
 * Collective. */
RB_NODISCARD rubato_status rb_job_from_store(struct rb_store *store, const char *interfaces,
					     uint64_t deadline_ns, struct rb_job *job);
RB_NODISCARD rubato_status rb_job_from_id(const rubato_id *id, uint32_t rank, uint32_t rank_count,
					  struct rb_job *job);

#endif
