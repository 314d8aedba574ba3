/* sim_program.h -- programs on the bare simulated transport: one body, run as every rank. */
#ifndef RB_TESTS_SIM_PROGRAM_H
#define RB_TESTS_SIM_PROGRAM_H

#include "tests/check_main.h"
#include "transport/sim/sim_cluster.h"
#include "transport/transport.h"

struct program_rank {
	struct rb_endpoint *ep;
	uint32_t rank, rank_count;
	bool closed; /* The body has closed the endpoint. */
	struct program *program;
};

struct program {
	rubato_sim_options options;
	rubato_status (*body)(struct program_rank *r);
	uint64_t word[2048];  /* The test's own. */
	void *pointer[16];    /* Likewise. */
	rubato_status status; /* Of the run. */
	rubato_sim_result result;
	struct program_rank *ranks;
};

/* All endpoints are open and connected before any body starts; those left open are closed. */
void program_run(struct program *program);

/* Posts; the request must outlive it. */
void program_send(struct program_rank *r, struct rb_request *q, uint32_t peer, uint64_t tag,
		  const void *buffer, size_t size_bytes);
void program_recv(struct program_rank *r, struct rb_request *q, uint32_t peer, uint64_t tag,
		  void *buffer, size_t size_bytes);
void program_put(struct program_rank *r, struct rb_request *q, struct rb_remote *remote,
		 uint64_t tag, const void *buffer, size_t size_bytes, uint64_t offset);
/* Waits until the request is done, at most a virtual minute; returns its status or TIMEOUT. */
rubato_status program_finish(struct program_rank *r, struct rb_request *q);
uint64_t program_now(struct program_rank *r);

#endif
