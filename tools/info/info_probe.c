/*
 * info_probe.c -- which transports work here: not what was built, but two ranks, as threads of this
 * process, that meet over each and make one sum.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "rubato_cuda.h"
#include "tools/info/info.h"

#define PROBE_TIMEOUT_NS                                                                           \
	10000000000u /* Guess: far more than a start takes, far less than patience. */

struct probe_rank {
	const char *transport;
	rubato_id id;
	uint32_t rank;
	bool device;
	rubato_status status;
	char text[256], way[256];
};

static void *rank_main(void *arg)
{
	struct probe_rank *me = arg;
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm = NULL;
	rubato_peer peer = { .size_bytes = sizeof(peer) };
	int32_t one = 1, sum = 0;

	options.transport = me->transport;
	options.timeout_ns = PROBE_TIMEOUT_NS;
	me->status = rubato_init_id(&comm, &me->id, me->rank, 2, &options);
	if (me->status == RUBATO_OK && me->device)
		me->status = rubato_cuda_use(comm, 0);
	if (me->status == RUBATO_OK)
		me->status = rubato_allreduce(comm, &one, &sum, 1, RUBATO_INT32, RUBATO_SUM);
	if (me->status == RUBATO_OK && rubato_get_peer(comm, 1 - me->rank, &peer) == RUBATO_OK)
		(void)snprintf(me->way, sizeof(me->way), "%s", peer.path);
	if (me->status != RUBATO_OK)
		(void)snprintf(me->text, sizeof(me->text), "%s%s", rubato_error_text(),
			       me->status == RUBATO_ERR_MEMORY ? " (no memory)" : "");
	else if (sum != 2)
		(void)snprintf(me->text, sizeof(me->text), "1 + 1 gave %d", sum);
	if (comm != NULL)
		(void)rubato_finalize(comm);
	return NULL;
}

static bool knows_why(const struct probe_rank *rank)
{
	return rank->text[0] != '\0' && rank->status != RUBATO_ERR_PEER &&
	       rank->status != RUBATO_ERR_TIMEOUT;
}

/* Rank 0, unless it has but heard or waited. */
static const struct probe_rank *speaker(const struct probe_rank ranks[2])
{
	return ranks[0].text[0] == '\0' || (!knows_why(&ranks[0]) && knows_why(&ranks[1]))
		       ? &ranks[1]
		       : &ranks[0];
}

void info_probe_one(struct info_probe *probe)
{
	struct probe_rank ranks[2] = { { .transport = probe->transport, .device = probe->device } };
	pthread_t other;

	if (rubato_id_create(&ranks[0].id) != RUBATO_OK) {
		(void)snprintf(probe->text, sizeof(probe->text), "%s", rubato_error_text());
		return;
	}
	ranks[1] = ranks[0];
	ranks[1].rank = 1;
	if (pthread_create(&other, NULL, rank_main, &ranks[1]) != 0) {
		(void)snprintf(probe->text, sizeof(probe->text), "no thread to try it with");
		return;
	}
	(void)rank_main(&ranks[0]);
	(void)pthread_join(other, NULL);
	(void)snprintf(probe->way, sizeof(probe->way), "%s", ranks[0].way);
	probe->works = ranks[0].text[0] == '\0' && ranks[1].text[0] == '\0';
	(void)snprintf(probe->text, sizeof(probe->text), "%s", speaker(ranks)->text);
}

void info_probe(struct info_probe probes[INFO_TRANSPORTS])
{
	static const char *const transports[INFO_TRANSPORTS] = { "shm", "ucx", "tcp", "verbs" };

	for (uint32_t i = 0; i < INFO_TRANSPORTS; i++) {
		probes[i] = (struct info_probe) { .transport = transports[i] };
		info_probe_one(&probes[i]);
	}
}
