/*
 * exchanges.h -- collectives on buffers of a device or of the host, whose values say from whom they
 * are: for transports that take a device's memory.
 */
#ifndef TESTS_CUDA_FAKE_EXCHANGES_H
#define TESTS_CUDA_FAKE_EXCHANGES_H

#include "tests/cuda/app.h"

#define EXCHANGE_AWAY 52u /* Bytes: no page begins where a buffer does. */

struct exchange_buffers { /* Each for `words` of every rank. */
	struct cuda_app *app;
	bool device;
	uint32_t words;
	uint8_t *in_room, *out_room;
	uint32_t *host, *in, *out; /* host: to write and read what is on the device. */
};

/* What rank `rank` has in place i. */
static inline uint32_t exchange_word(uint32_t rank, uint32_t i, uint32_t round)
{
	return i * (rank + 3) + round * 1000003 + rank;
}

rubato_status exchange_buffers_make(struct cuda_app *app, bool device, uint32_t ranks,
				    uint32_t words, struct exchange_buffers *out);
void exchange_buffers_free(struct exchange_buffers *b);
/* Between `host` and its buffers. */
void exchange_move(const struct exchange_buffers *b, void *to, const void *from, size_t bytes);

rubato_status exchange_allreduce(rubato_comm *comm, const struct exchange_buffers *b,
				 uint32_t count, uint32_t round);
rubato_status exchange_allgather(rubato_comm *comm, const struct exchange_buffers *b,
				 uint32_t count, uint32_t round);
/* By messages and by puts, long and short. */
rubato_status exchange_all(rubato_comm *comm, const struct exchange_buffers *b, uint32_t times);
/* What the next rank's path says. */
rubato_status exchange_path_has(rubato_comm *comm, const char *words);

#endif
