/* bench_peers.c -- which other libraries run beside: the words, and who came up. */
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/bench/bench.h"

#define PEER_TIMEOUT_NS 120000000000u /* Of a slice: MPICH is slow where ranks share cores. */

bool bench_peers_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct bench_peers *peers = to;
	char *copy = strdup(text), *rest = copy, *word;
	bool good = copy != NULL || option_refuse(error, "%s: out of memory", option);
	const char *value;
	uint32_t index;

	while (good && (word = strsep(&rest, ",")) != NULL) {
		good = value_choice(option, word, peer_names, &index, &value, error);
		if (good && peers->count == PEERS_MAX)
			good = option_refuse(error, "%s takes at most %d", option, PEERS_MAX);
		if (good)
			(void)snprintf(peers->names[peers->count++], PEER_NAME_BYTES, "%s", word);
	}
	free(copy);
	return good;
}

void bench_peers_open(struct bench_peers *peers, rubato_comm *comm)
{
	uint32_t asked = peers->count;
	int32_t up[PEERS_MAX] = { 0 };

	peers->leading = rubato_rank(comm) == 0;
	if (asked == 0)
		return;
	for (uint32_t i = 0; i < asked && peers->leading; i++) {
		struct peer *peer = &peers->list[i];

		up[i] = peer_open(peer, peers->names[i], rubato_size(comm), PEER_TIMEOUT_NS);
		if (!up[i])
			(void)fprintf(stderr, "%s: left out: %s\n", BENCH, peer->why_not);
	}
	if (rubato_broadcast(comm, up, PEERS_MAX, RUBATO_INT32, 0) != RUBATO_OK)
		option_fail(BENCH, "--peer: %s", rubato_error_text());
	peers->count = 0;
	for (uint32_t i = 0; i < asked; i++) {
		if (!up[i])
			continue;
		if (peers->count < i) {
			memcpy(peers->names[peers->count], peers->names[i], PEER_NAME_BYTES);
			peers->list[peers->count] = peers->list[i];
		}
		peers->count++;
	}
}

void bench_peers_close(struct bench_peers *peers)
{
	for (uint32_t i = 0; i < peers->count && peers->leading; i++)
		peer_close(&peers->list[i]);
	peers->count = 0;
}
