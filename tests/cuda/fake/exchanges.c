/* exchanges.c -- see exchanges.h. */
#include "tests/cuda/fake/exchanges.h"

#include <stdlib.h>
#include <string.h>

#include "tests/expect.h"

rubato_status exchange_buffers_make(struct cuda_app *app, bool device, uint32_t ranks,
				    uint32_t words, struct exchange_buffers *out)
{
	size_t bytes = (size_t)ranks * words * 4 + EXCHANGE_AWAY;

	*out = (struct exchange_buffers) {
		.app = app, .device = device, .words = words, .host = malloc(bytes)
	};
	EXPECT(out->host != NULL);
	out->in_room = device ? cuda_app_alloc(app, bytes) : malloc(bytes);
	out->out_room = device ? cuda_app_alloc(app, bytes) : malloc(bytes);
	out->in = (uint32_t *)(void *)(out->in_room + EXCHANGE_AWAY);
	out->out = (uint32_t *)(void *)(out->out_room + EXCHANGE_AWAY);
	return RUBATO_OK;
}

void exchange_buffers_free(struct exchange_buffers *b)
{
	free(b->host);
	if (!b->device) {
		free(b->in_room);
		free(b->out_room);
		return;
	}
	cuda_app_free(b->app, b->in_room);
	cuda_app_free(b->app, b->out_room);
}

void exchange_move(const struct exchange_buffers *b, void *to, const void *from, size_t bytes)
{
	if (b->device)
		cuda_app_copy(b->app, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

rubato_status exchange_allreduce(rubato_comm *comm, const struct exchange_buffers *b,
				 uint32_t count, uint32_t round)
{
	uint32_t rank = rubato_rank(comm), ranks = rubato_size(comm);

	for (uint32_t i = 0; i < count; i++)
		b->host[i] = exchange_word(rank, i, round);
	exchange_move(b, b->in, b->host, count * 4);
	RB_TRY(rubato_allreduce(comm, b->in, b->out, count, RUBATO_UINT32, RUBATO_SUM));
	exchange_move(b, b->host, b->out, count * 4);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t sum = 0;

		for (uint32_t r = 0; r < ranks; r++)
			sum += exchange_word(r, i, round);
		EXPECT(b->host[i] == sum);
	}
	return RUBATO_OK;
}

rubato_status exchange_allgather(rubato_comm *comm, const struct exchange_buffers *b,
				 uint32_t count, uint32_t round)
{
	for (uint32_t i = 0; i < count; i++)
		b->host[i] = exchange_word(rubato_rank(comm), i, round);
	exchange_move(b, b->in, b->host, count * 4);
	RB_TRY(rubato_allgather(comm, b->in, b->out, count, RUBATO_UINT32));
	exchange_move(b, b->host, b->out, rubato_size(comm) * count * 4);
	for (uint32_t r = 0; r < rubato_size(comm); r++)
		for (uint32_t i = 0; i < count; i++)
			EXPECT(b->host[r * count + i] == exchange_word(r, i, round));
	return RUBATO_OK;
}

rubato_status exchange_all(rubato_comm *comm, const struct exchange_buffers *b, uint32_t times)
{
	static const char *const algorithms[][2] = { { "ring", "ring" },
						     { "two_shot_put", "flat_put" },
						     { "two_shot", "ring_put" } };

	for (uint32_t round = 0; round < times; round++)
		for (uint32_t a = 0; a < 3; a++) {
			RB_TRY(rubato_set_algorithm(comm, "allreduce", algorithms[a][0]));
			RB_TRY(rubato_set_algorithm(comm, "allgather", algorithms[a][1]));
			RB_TRY(exchange_allreduce(comm, b, b->words, 10 * round + a));
			RB_TRY(exchange_allgather(comm, b, b->words, 10 * round + a + 3));
			RB_TRY(exchange_allreduce(comm, b, 1001, 10 * round + a));
		}
	return RUBATO_OK;
}

rubato_status exchange_path_has(rubato_comm *comm, const char *words)
{
	rubato_peer peer = { .size_bytes = sizeof(peer) };

	RB_TRY(rubato_get_peer(comm, (rubato_rank(comm) + 1) % rubato_size(comm), &peer));
	if (strstr(peer.path, words) == NULL)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "the path is '%s'", peer.path);
	return RUBATO_OK;
}
