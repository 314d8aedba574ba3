/* info_ranks.c -- the job that this is a rank of: where its ranks are, as they have agreed. */
#include <stdlib.h>

#include "rubato.h"
#include "tools/info/info.h"

/* Some ranks of a job that has just begun may be late by as much. */
#define JOIN_TIMEOUT_NS UINT64_C(30000000000)

/* Each rank knows best where it is. */
static rubato_status processors_gather(rubato_comm *comm, struct info_ranks *ranks)
{
	uint32_t *all = calloc(ranks->count, sizeof(*all));
	rubato_status status = RUBATO_ERR_MEMORY;

	if (all != NULL)
		status = rubato_allgather(comm, &ranks->at[ranks->own].processor, all, 1,
					  RUBATO_UINT32);
	for (uint32_t r = 0; r < ranks->count && status == RUBATO_OK; r++)
		ranks->at[r].processor = all[r];
	free(all);
	return status;
}

bool info_ranks_gather(struct info_ranks *ranks)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	rubato_status status;

	options.timeout_ns = JOIN_TIMEOUT_NS;
	status = rubato_init(&comm, &options);
	if (status != RUBATO_OK) {
		(void)fprintf(stderr, "%s: %s\n", INFO, rubato_error_text());
		return false;
	}
	ranks->own = rubato_rank(comm);
	ranks->count = rubato_size(comm);
	ranks->at = calloc(ranks->count, sizeof(*ranks->at));
	if (ranks->at == NULL)
		status = RUBATO_ERR_MEMORY;
	for (uint32_t r = 0; r < ranks->count && status == RUBATO_OK; r++) {
		ranks->at[r].size_bytes = (uint32_t)sizeof(ranks->at[r]);
		status = rubato_get_peer(comm, r, &ranks->at[r]);
	}
	if (status == RUBATO_OK)
		status = processors_gather(comm, ranks);
	if (status == RUBATO_OK)
		status = rubato_finalize(comm);
	else
		(void)rubato_finalize(comm);
	if (status != RUBATO_OK)
		(void)fprintf(stderr, "%s: %s\n", INFO,
			      status == RUBATO_ERR_MEMORY ? "out of memory" : rubato_error_text());
	return status == RUBATO_OK;
}

static json_t *rank_json(uint32_t rank, const rubato_peer *is)
{
	json_t *domain = is->numa_domain != RUBATO_DOMAIN_UNKNOWN ? json_integer(is->numa_domain)
								  : json_null();

	json_t *processor = is->processor != RUBATO_PROCESSOR_UNKNOWN ? json_integer(is->processor)
								      : json_null();

	return json_pack("{s:I,s:I,s:I,s:I,s:o,s:s,s:I,s:o,s:o}", "rank", (json_int_t)rank, "node",
			 (json_int_t)is->node, "host", (json_int_t)is->host, "card",
			 (json_int_t)is->card, "numa_node", domain, "transport", is->transport,
			 "copies", (json_int_t)is->copies, "processor", processor, "path",
			 results_text(is->path));
}

static void rank_say(FILE *text, uint32_t rank, const rubato_peer *is)
{
	(void)fprintf(text, "  rank %-4u node %u, host %u, card %u, NUMA domain ", rank, is->node,
		      is->host, is->card);
	if (is->numa_domain != RUBATO_DOMAIN_UNKNOWN)
		(void)fprintf(text, "%u", is->numa_domain);
	else
		(void)fprintf(text, "-");
	(void)fprintf(text, ", by %s from rank 0", is->transport);
	if (is->path[0] != '\0')
		(void)fprintf(text, " (%s)", is->path);
	if (is->copies > 0)
		(void)fprintf(text, ", plain buffers copied %s",
			      is->copies == 1 ? "once" : "twice");
	if (is->processor != RUBATO_PROCESSOR_UNKNOWN)
		(void)fprintf(text, ", on processor %u", is->processor);
	(void)fprintf(text, "\n");
}

/* Whether a rank before it on its host was on the same processor. */
static bool shares(const struct info_ranks *ranks, uint32_t rank)
{
	const rubato_peer *is = &ranks->at[rank];
	bool found = false;

	for (uint32_t r = 0; r < rank && is->processor != RUBATO_PROCESSOR_UNKNOWN; r++)
		found |= ranks->at[r].host == is->host && ranks->at[r].processor == is->processor;
	return found;
}

static void near_say(struct info *info, json_t *json, const rubato_peer *near)
{
	if (info->text != NULL) {
		(void)fprintf(info->text, "  within nodes ");
		if (near->latency_us > 0)
			(void)fprintf(info->text, "%.2f us, ", near->latency_us);
		if (near->bandwidth > 0)
			(void)fprintf(info->text, "copies %.3g GB/s ", near->bandwidth / 1e9);
		(void)fprintf(info->text, "(%s)\n", near->source);
	}
	json_object_set_new(json, "memory",
			    json_pack("{s:f,s:f,s:s}", "latency_us", near->latency_us, "bandwidth",
				      near->bandwidth, "source", near->source));
}

void info_ranks(struct info *info, const struct info_ranks *ranks)
{
	const rubato_peer *far = NULL, *near = NULL;
	uint32_t sharers = 0;
	json_t *list = json_array(), *json = json_pack("{s:o}", "ranks", list);

	if (info->text != NULL)
		(void)fprintf(info->text, "ranks of this job\n");
	for (uint32_t r = 0; r < ranks->count; r++) {
		if (info->text != NULL)
			rank_say(info->text, r, &ranks->at[r]);
		json_array_append_new(list, rank_json(r, &ranks->at[r]));
		if (ranks->at[r].node != ranks->at[ranks->own].node) {
			far = ranks->at[r].latency_us > 0 ? &ranks->at[r] : far;
		} else if (r != ranks->own) {
			near = &ranks->at[r];
		}
		sharers += shares(ranks, r);
	}
	if (sharers > 0 && info->text != NULL)
		(void)fprintf(info->text, "  %u of them where another one was: they share cores\n",
			      sharers);
	json_object_set_new(json, "sharing_cores", json_integer(sharers));
	if (near != NULL)
		near_say(info, json, near);
	if (far != NULL) {
		if (info->text != NULL)
			(void)fprintf(info->text, "  between nodes %.1f us, %.3g GB/s\n",
				      far->latency_us, far->bandwidth / 1e9);
		json_object_set_new(json, "link",
				    json_pack("{s:f,s:f}", "latency_us", far->latency_us,
					      "bandwidth", far->bandwidth));
	}
	json_object_set_new(info->json, "ranks", json);
}
