/*
 * store_pmix.c -- PMIx, whose library is loaded here.
 *
 * Its headers are not needed: of its standard's binary interface (which libpmix.so.2 keeps since
 * version 2) six functions and two structures are used. A process begins and ends it once: what
 * an earlier job left would be found by a later one, and 5.0 frees memory twice at the second end.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/sync.h"
#include "runtime/startup/store.h"

#define LIBRARY "libpmix.so.2"
#define KEY "rubato"
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) /* It has threads of its own. */
#define PMIX_OK 0
#define PMIX_NOT_FOUND (-46)
#define PMIX_STRING 3
#define PMIX_SCOPE_GLOBAL 3
#define AGAIN_NS UINT64_C(20000000) /* Guess: between two questions. */

struct pmix_proc {
	char nspace[256];
	uint32_t rank;
};

struct pmix_value {
	uint16_t type;
	union {
		char *string;
		void *room[3]; /* As the largest of its other members. */
	} data;
};

typedef void pmix_value_function(int status, struct pmix_value *value, void *arg);

struct pmix_api {
	int (*PMIx_Init)(struct pmix_proc *self, const void *info, size_t info_count);
	int (*PMIx_Finalize)(const void *info, size_t info_count);
	int (*PMIx_Put)(uint8_t scope, const char *key, struct pmix_value *value);
	int (*PMIx_Commit)(void);
	int (*PMIx_Get_nb)(const struct pmix_proc *whose, const char *key, const void *info,
			   size_t info_count, pmix_value_function *function, void *arg);
	const char *(*PMIx_Error_string)(int status);
};

static rubato_status functions_find(void *library, struct pmix_api *api)
{
#define FUNCTION(name)                                                                             \
	{                                                                                          \
#name, (void **)(void *)&api->name                                                 \
	}
	const struct {
		const char *name;
		void **at;
	} functions[] = { FUNCTION(PMIx_Init),   FUNCTION(PMIx_Finalize),
			  FUNCTION(PMIx_Put),    FUNCTION(PMIx_Commit),
			  FUNCTION(PMIx_Get_nb), FUNCTION(PMIx_Error_string) };
#undef FUNCTION

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		*functions[i].at = dlsym(library, functions[i].name);
		if (*functions[i].at == NULL)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "PMIx (%s) has no %s", LIBRARY,
				       functions[i].name);
	}
	return RUBATO_OK;
}

static rubato_status failed(const struct pmix_api *api, const char *what, int status)
{
	return RB_FAIL(RUBATO_ERR_SYSTEM, "PMIx: %s: %s (%d)", what, api->PMIx_Error_string(status),
		       status);
}

/* The launcher's own one lies where PMIX_PREFIX says, and need not be the system's. */
static void *library_open(void)
{
	static const char *const folders[] = { "lib/openmpi", "lib64", "lib" };
	const char *prefix = rb_config_foreign("PMIX_PREFIX");
	void *library = dlopen(LIBRARY, FLAGS | RTLD_NOLOAD);
	char path[512];

	for (size_t i = 0; library == NULL && prefix != NULL && i < 3; i++) {
		(void)snprintf(path, sizeof(path), "%.400s/%s/" LIBRARY, prefix, folders[i]);
		library = dlopen(path, FLAGS);
	}
	return library != NULL ? library : dlopen(LIBRARY, FLAGS);
}

rubato_status rb_store_pmix_open(struct rb_store *store)
{
	static atomic_flag begun = ATOMIC_FLAG_INIT; /* The process's, as its launcher is. */
	struct pmix_proc self;
	struct pmix_api api;

	store->library = library_open();
	if (store->library == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "the launcher has PMIx, which cannot be loaded here: %s. Set "
			       "RUBATO_ROOT to host:port of rank 0's machine on all ranks",
			       dlerror());
	RB_TRY(functions_find(store->library, &api));
	if (atomic_flag_test_and_set(&begun))
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "this process has met others by the launcher's PMIx already: it can "
			       "do so once");
	int status = api.PMIx_Init(&self, NULL, 0);

	if (status != PMIX_OK)
		return failed(&api, "the launcher cannot be reached", status);
	(void)snprintf(store->space, sizeof(store->space), "%.255s", self.nspace);
	return RUBATO_OK;
}

/* ---- Asking for a value, with an end to it ---- */

enum { ASKED, ANSWERED, LEFT };

struct question { /* Of the one who asks and of PMIx's thread: the last of them frees it. */
	_Atomic uint32_t state;
	int status;
	char text[2048];
};

static void answered(int status, struct pmix_value *value, void *arg)
{
	struct question *q = arg;
	uint32_t asked = ASKED;

	q->status = status;
	if (status == PMIX_OK &&
	    (value == NULL || value->type != PMIX_STRING || value->data.string == NULL))
		q->status = PMIX_NOT_FOUND;
	else if (status == PMIX_OK)
		(void)snprintf(q->text, sizeof(q->text), "%s", value->data.string);
	if (atomic_compare_exchange_strong(&q->state, &asked, ANSWERED))
		rb_futex_wake(&q->state, 1);
	else
		free(q);
}

static rubato_status ask(const struct pmix_api *api, const struct pmix_proc *whose, char *text,
			 size_t text_bytes, int *status, uint64_t deadline_ns)
{
	struct question *q = calloc(1, sizeof(*q));
	uint32_t asked = ASKED;

	if (q == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "PMIx: %zu bytes", sizeof(*q));
	*status = api->PMIx_Get_nb(whose, KEY, NULL, 0, answered, q);
	if (*status != PMIX_OK) { /* It will not call back. */
		free(q);
		return RUBATO_OK;
	}
	while (atomic_load(&q->state) == ASKED && rb_clock_ns() < deadline_ns)
		(void)rb_futex_wait(&q->state, ASKED, deadline_ns);
	if (atomic_compare_exchange_strong(&q->state, &asked, LEFT))
		return RB_FAIL(RUBATO_ERR_TIMEOUT,
			       "rank 0 has left no address with PMIx: has it not called "
			       "rubato_init?");
	*status = q->status;
	(void)snprintf(text, text_bytes, "%s", q->text);
	free(q);
	return RUBATO_OK;
}

rubato_status rb_store_pmix_pass(struct rb_store *store, uint32_t rank, char *text,
				 size_t text_bytes, uint64_t deadline_ns)
{
	struct pmix_value value = { .type = PMIX_STRING, .data = { .string = text } };
	struct pmix_proc root = { .rank = 0 };
	struct pmix_api api;
	int status;

	RB_TRY(functions_find(store->library, &api));
	if (rank == 0) {
		status = api.PMIx_Put(PMIX_SCOPE_GLOBAL, KEY, &value);
		if (status == PMIX_OK)
			status = api.PMIx_Commit();
		return status == PMIX_OK ? RUBATO_OK : failed(&api, "put", status);
	}
	(void)snprintf(root.nspace, sizeof(root.nspace), "%.255s", store->space);
	for (;;) { /* Some versions wait until the key is there, others say that it is not yet. */
		RB_TRY(ask(&api, &root, text, text_bytes, &status, deadline_ns));
		if (status == PMIX_OK)
			return RUBATO_OK;
		if (status != PMIX_NOT_FOUND)
			return failed(&api, "get", status);
		if (rb_clock_ns() >= deadline_ns)
			return RB_FAIL(RUBATO_ERR_TIMEOUT, "rank 0 has left no address with PMIx");
		rb_clock_sleep_until(rb_clock_ns() + AGAIN_NS);
	}
}

void rb_store_pmix_close(struct rb_store *store)
{
	struct pmix_api api;

	if (functions_find(store->library, &api) == RUBATO_OK)
		(void)api.PMIx_Finalize(NULL, 0);
}
