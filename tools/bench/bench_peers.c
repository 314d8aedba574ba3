/* bench_peers.c -- which other libraries run beside: the words, and who came up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/place.h"
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

		up[i] = peer_open(peer, peers->names[i], &peers->place, rubato_size(comm),
				  PEER_TIMEOUT_NS);
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

const char *const bench_binds[] = { "auto", "core", "none", NULL };

bool bench_bind(struct bench_peers *peers, uint32_t rank_count)
{
	static struct places places; /* Large. */
	size_t used = 0;

	CPU_ZERO(&peers->place.allowed);
	(void)sched_getaffinity(0, sizeof(peers->place.allowed), &peers->place.allowed);
	places_find_here(&places);
	if (peers->bind == 1 && rank_count == 0)
		option_fail(BENCH, "--bind core is for ranks that -n starts");
	if (peers->bind == 2 || rank_count == 0 ||
	    (peers->bind == 0 && (peers->count == 0 || rank_count > places.core_count)))
		return false;
	for (uint32_t i = 0; i < rank_count && used < sizeof(peers->place.cpus) - 16; i++)
		used += (size_t)snprintf(peers->place.cpus + used, 16, "%s%u", i > 0 ? "," : "",
					 places.cpus[i % places.count]);
	return true;
}

json_t *bench_peers_json(const struct bench_peers *peers)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < peers->count && peers->leading; i++) {
		const struct peer *peer = &peers->list[i];

		json_array_append_new(
			list,
			json_pack("{s:s,s:o,s:I,s:o,s:o}", "name", peer->name, "library",
				  results_text(peer->library), "turns", (json_int_t)peer->turns,
				  "cpu_us_in_turns", results_real((double)peer->turn_ns * 1e-3),
				  "cpu_us_between", results_real((double)peer->between_ns * 1e-3)));
	}
	return list;
}
