/*
 * conformance.h -- one set of behaviours for every transport: the contract of transport.h, run.
 *
 * A backend is one small file, backend_NAME.c, that defines `conform_backend`; meson builds one
 * program per such file. Ranks are threads, processes or fibers: the backend's run() decides. All
 * waiting goes through conform_poll and conform_pause, which use the transport's own wait() where
 * there is one, so that the same bodies run in virtual time.
 *
 * What ranks share besides the transport lives in struct conform_shared, in memory that forked
 * processes share too; conform_barrier works there, so that tests can order ranks without using
 * what they test.
 */
#ifndef RB_TESTS_CONFORMANCE_H
#define RB_TESTS_CONFORMANCE_H

#include "base/rng.h"
#include "base/sync.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "transport/transport.h"

#define CONFORM_RANKS_MAX 8
#define CONFORM_DEADLINE_NS 30000000000u /* Of every wait of the suite. */

/* As ck_assert_msg, but free when it holds: Check notes every assertion with a system call. */
#define CONFORM(expr, ...)                                                                         \
	do {                                                                                       \
		if (!(expr))                                                                       \
			ck_abort_msg(__VA_ARGS__);                                                 \
	} while (0)

struct conform_backend {
	const char *name;
	const struct rb_transport_ops *ops;
	bool tcp_only;           /* rb_transport_options.tcp_only. */
	enum rb_attach attach;   /* Likewise. */
	enum rb_connect connect; /* Likewise. */
	/* Likewise its interface, each rank's; NULL: any. */
	const char *(*interface)(uint32_t rank);
	bool no_map;   /* Peers of this set-up may be out of reach of mapping. */
	bool no_abort; /* A peer that vanishes without goodbye goes unnoticed: skip those tests. */
	/* The object behind rb_transport_options.backend, for one run; both NULL: none needed. */
	void *(*cluster_open)(uint32_t rank_count);
	void (*cluster_close)(void *cluster);
	/* Runs rank_main(arg, rank) as each of the ranks; returns when all have ended. False: one
	 * ended badly. conform_run_threads and conform_run_processes are ready to use. */
	bool (*run)(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		    void *arg);
};

extern const struct conform_backend conform_backend; /* Of this program: in backend_NAME.c. */

bool conform_run_threads(void *cluster, uint32_t rank_count,
			 void (*rank_main)(void *arg, uint32_t rank), void *arg);
bool conform_run_processes(void *cluster, uint32_t rank_count,
			   void (*rank_main)(void *arg, uint32_t rank), void *arg);

struct conform_rank;

struct conform_shared { /* Shared by the ranks of one run. */
	uint32_t rank_count;
	void *backend; /* cluster_open's. */
	void (*body)(struct conform_rank *r);
	uint64_t seed;
	_Atomic uint32_t arrived[CONFORM_RANKS_MAX]; /* Barriers passed: one writer each. */
	_Atomic uint64_t word[64];                   /* The test's own, zero at first. */
	struct {
		size_t size_bytes;
		uint8_t bytes[RB_ADDRESS_BYTES_MAX];
	} address[CONFORM_RANKS_MAX];
	struct {
		size_t size_bytes;
		uint8_t bytes[RB_KEY_BYTES_MAX];
	} key[CONFORM_RANKS_MAX];
};

struct conform_rank { /* One rank's view. */
	const struct rb_transport_ops *ops;
	struct rb_endpoint *ep;
	struct conform_shared *shared;
	uint32_t rank, rank_count;
	struct rb_rng rng;
	bool connected;
	bool closed; /* The body closed the endpoint itself. */
};

struct conform_request {
	struct rb_request request;
	uint32_t listed; /* How often poll returned it: at most once, never if DONE at the post. */
	bool done_at_post;
};

/* Runs `body` as each of `rank_count` connected ranks, then closes the endpoints in good order. */
void conform_run(uint32_t rank_count, void (*body)(struct conform_rank *r));

/* Lets other ranks and the network move on: call it in loops that found nothing. */
void conform_pause(struct conform_rank *r);
/* One poll; checks the rules of completion. True: something completed. */
bool conform_poll(struct conform_rank *r);
/* Until all ranks of the run are here; keeps polling. */
void conform_barrier(struct conform_rank *r, const char *what);

/* From now on, no barrier waits for this rank. */
void conform_leave(struct conform_rank *r);

void conform_recv(struct conform_rank *r, struct conform_request *c, uint32_t peer, uint64_t tag,
		  void *buffer, size_t size_bytes);
void conform_send(struct conform_rank *r, struct conform_request *c, uint32_t peer, uint64_t tag,
		  const void *buffer, size_t size_bytes);
void conform_put(struct conform_rank *r, struct conform_request *c, uint32_t peer, uint64_t tag,
		 const void *buffer, size_t size_bytes, struct rb_remote *remote, uint64_t offset);
/* Polls until the request is DONE; fails, with its description, at the deadline. */
void conform_finish(struct conform_rank *r, struct conform_request *c);
void conform_finish_ok(struct conform_rank *r, struct conform_request *c);
void conform_cancel(struct conform_rank *r, struct conform_request *c);
/* Polls until all that is complete has left: peers wait for nothing that needs our polls. */
void conform_let_leave(struct conform_rank *r);
/* A deadline that fails the test, with what was waited for. */
void conform_expire(struct conform_rank *r, uint64_t since_ns, const char *what);

struct rb_signature conform_signature(uint64_t count);
/* The byte pattern of a message: differs by key and place. */
void conform_fill(void *buffer, size_t size_bytes, uint64_t key);
void conform_verify(const void *buffer, size_t size_bytes, uint64_t key);

/* How often is done again what has to meet its moment by chance: of `rounds`, a third where each
 * step takes long, a tenth where it is interpreted. */
static inline uint32_t conform_rounds(uint32_t rounds)
{
	return test_is_interpreted()         ? rounds / 10
	       : test_length() == TEST_SHORT ? rounds / 3
					     : rounds;
}

/* The groups of tests, one file each. */
TCase *conform_message_case(void);
TCase *conform_memory_case(void);
TCase *conform_cancel_case(void);
TCase *conform_sleep_case(void);
TCase *conform_failure_case(void);
TCase *conform_leaving_case(void);
TCase *conform_now_case(void);

#endif
