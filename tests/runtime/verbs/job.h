/*
 * job.h -- a job of two ranks over the verbs transport on mock devices, in which a test lets things
 * go wrong at a call, and what must be true of it however it ends.
 *
 * The ranks are threads, each on a node of its own, and in one thread each (no progress thread, no
 * measurements but where asked for), so that calls of libibverbs by a rank can be counted. The job
 * starts, exchanges
 * small and large messages between plain and registered buffers, puts, runs rounds of a partial
 * allreduce, and leaves. Each rank either has all right results, or an error that names the other
 * rank or the device, in time.
 */
#ifndef TESTS_RUNTIME_VERBS_JOB_H
#define TESTS_RUNTIME_VERBS_JOB_H

#include "base/status.h"
#include "tests/verbs-mock/mock.h"

#define JOB_TIMEOUT_NS 4000000000u /* Of a wait: what is silent is noticed within two seconds. */
#define JOB_LIMIT_NS 20000000000u  /* Of a job: few waits follow each other. */
#define JOB_NONE UINT32_MAX        /* No rank. */
#define JOB_TEXT_BYTES 400

enum job_stage { JOB_STARTS, JOB_RUNS, JOB_LEAVES, JOB_STAGES };

struct job {
	/* Set by the test. */
	struct mock_config config;
	/* Sees the NTH call (from 1) of a function by a rank; the errno with which it fails, or
	 * 0. NULL: nobody does. */
	int (*at_call)(struct job *job, uint32_t rank, const char *function, uint64_t nth);
	void *arg;
	/* Once the world is made, before a rank starts. NULL: nothing is to be done. */
	void (*prepared)(struct job *job);
	uint64_t timeout_ns;  /* 0: JOB_TIMEOUT_NS. */
	bool abrupt;          /* What is left open is not the transport's fault. */
	bool sleepy;          /* Waits sleep at once. */
	bool measures;        /* Links are measured, while a second thread looks after them. */
	uint32_t rounds_more; /* The exchange is repeated. */
	/* What came of it. */
	_Atomic uint32_t fired; /* Counted by the test. */
	_Atomic enum job_stage stage[2];
	rubato_status status[2];
	char texts[2][JOB_TEXT_BYTES]; /* Empty: all went well. */
	uint64_t took_ns;
	uint64_t
		starved_ns; /* That ranks could have run, and had no processor: of the worse one. */
	struct mock_counters counters;
};

/* The mock's own functions, by name: the program is not linked to it. */
extern struct job_mock {
	int (*reset)(const struct mock_config *config);
	void (*config_default)(struct mock_config *config);
	void (*counters)(struct mock_counters *counters);
	void (*node)(uint32_t node);
	void (*set)(const char *name, uint64_t value);
	uint64_t (*call_count)(const char *function);
	const char *(*call_name)(uint32_t index);
	void (*watch_calls)(mock_watch *watch, void *arg);
	void (*loss)(uint32_t node, uint32_t device, uint32_t port, uint32_t permille);
	void (*device_event)(uint32_t node, uint32_t device, uint32_t port,
			     enum ibv_event_type type);
	int (*qp_event)(uint32_t qp_number, enum ibv_event_type type);
	int (*cq_error)(uint32_t qp_number);
	int (*fail_send)(uint64_t nth, enum ibv_wc_status status, bool delivered);
	uint64_t (*fired)(int fault);
	uint32_t (*qp_numbers)(uint32_t *numbers, uint32_t max);
	void (*set_node)(uint32_t node, const char *name, uint64_t value);
	void (*carry_datagrams)(mock_carry *carry, void *arg);
	void (*gid)(uint32_t node, uint32_t device, uint32_t port, uint32_t index,
		    const union ibv_gid *gid);
} job_mock;

/* Finds the mock; its default settings, for a job that is to be run. Fails the test. */
void job_init(struct job *job);
void job_run(struct job *job);
/* Whatever happened: in time, nothing outside of what is registered, no RNR, nothing left, right or
 * an error with a name in it; where nothing fired, right. Else false, and `text` says what. */
bool job_is_good(const struct job *job, char *text, size_t text_bytes);
/* Neither rank had an error. */
bool job_is_right(const struct job *job);

/*
 * A job for each k: 1, 1 + step, ... until one in which nothing fires. Each in its own process,
 * several at a time, as who waits for a loss to show sleeps. Fails the test with all that was not
 * good. A job that had no processor for longer than silence is borne, and that came to nothing
 * worse than a wait's end, has shown nothing: it is run again, alone.
 */
struct job_series {
	/* Sets the job up, and says in words what is to happen. */
	void (*prepare)(struct job *job, void *arg, uint64_t k, char *name, size_t name_bytes);
	/* More that must be so; NULL: nothing. False: `text` says what is not. */
	bool (*judge)(const struct job *job, void *arg, char *text, size_t text_bytes);
	void *arg;
	uint64_t step;
	uint64_t last; /* No k above; 0: none. */
	bool whole;    /* All up to `last`: in some of them nothing fires. */
	uint64_t wide; /* So many at a time; 0: as many as may be, as they mostly sleep. */
	/* So many jobs in which nothing fires do not end it: whether a rank sleeps is chance. */
	uint64_t misses;
};
/* How many fired. */
uint64_t job_series_run(const struct job_series *series);

#endif
