/* sim_relaxed.c -- rubato-sim partial and lagged: relaxed.h's measurement in virtual time. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/relaxed/relaxed.h"
#include "tools/sim/sim.h"

struct job {
	const struct relaxed_options *options;
	struct relaxed_form forms[RELAXED_FORMS_MAX];
	int form_count;
};

static rubato_status job_rank(rubato_comm *comm, void *arg)
{
	struct job *job = arg;
	struct relaxed_form forms[RELAXED_FORMS_MAX];
	int count = relaxed_measure(comm, job->options, false, forms);

	if (count < 0)
		return (rubato_status)count;
	if (rubato_rank(comm) == 0) {
		memcpy(job->forms, forms, sizeof(forms));
		job->form_count = count;
	}
	return RUBATO_OK;
}

static json_t *whole_json(const struct sim_options *options, json_t *rows,
			  const rubato_sim_result *result)
{
	char hash[24];

	(void)snprintf(hash, sizeof(hash), "%016" PRIx64, result->trace_hash);
	return json_pack("{s:s,s:o,s:i,s:o,s:o,s:I,s:I,s:I,s:s}", "version", rubato_version(),
			 "args", sim_args_json(options->argc, options->argv), "ranks",
			 (int)options->cluster.rank_count, "network",
			 options_json(network_rows, &options->cluster), "results", rows, "messages",
			 (json_int_t)result->messages, "events", (json_int_t)result->events,
			 "faults_fired", (json_int_t)result->faults_fired, "trace_hash", hash);
}

/* The exit status. */
static int job_run(const struct sim_options *o, const struct relaxed_options *relaxed)
{
	struct job job = { .options = relaxed };
	rubato_sim_result result;
	rubato_status err;
	uint64_t wrong = 0;
	bool written = true;
	char where[64];

	err = rubato_sim_run(&o->cluster, job_rank, &job, &result);
	if (err != RUBATO_OK) {
		(void)fprintf(stderr, "%s: seed %" PRIu64 ": %s: %s\n", SIM, o->cluster.seed,
			      rubato_status_name(err), rubato_error_text());
		return EXIT_FAILURE;
	}
	sim_faults_tell(o, relaxed->lagged ? "lagged" : "partial", &result);
	if (o->cluster.node_count > 1)
		(void)snprintf(where, sizeof(where), "uneven nodes, times are virtual");
	else
		(void)snprintf(where, sizeof(where), "%u a node, times are virtual",
			       o->cluster.node_count == 1 ? o->node_ranks[0] : 1);
	if (strcmp(o->json, "-") != 0)
		relaxed_text(stdout, relaxed, where, o->cluster.rank_count, job.forms,
			     job.form_count);
	if (o->json[0] != '\0')
		written = sim_json_write(o->json,
					 whole_json(o,
						    relaxed_json(relaxed, o->cluster.rank_count,
								 job.forms, job.form_count),
						    &result));
	for (int i = 0; i < job.form_count; i++)
		wrong += job.forms[i].wrong;
	return wrong == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}

int sim_relaxed_command(int argc, char **argv, bool lagged)
{
	static struct relaxed_options relaxed; /* Large. */
	struct sim_options o;
	const struct option_table tables[] = {
		{ .rows = sim_cluster_rows, .to = &o },
		{ .rows = network_rows, .to = &o.cluster },
		{ .rows = relaxed_rows, .to = &relaxed },
		{ .rows = lagged ? relaxed_rows_lagged : relaxed_rows_partial, .to = &relaxed },
		{ .rows = sim_json_rows, .to = &o },
		{ 0 },
	};
	const struct options options = {
		.program = SIM,
		.usage = lagged ? "lagged [options]" : "partial [options]",
		.about = lagged ? "Times lagged allreduces beside blocking ones in virtual time.\n"
				: "Times partial allreduces beside the synchronous one on a "
				  "simulated cluster, in virtual\ntime, and checks every result.\n",
		.notes = "",
		.tables = tables,
	};

	sim_options_init(&o, argc, argv);
	relaxed_init(&relaxed, SIM, lagged);
	(void)options_read(&options, argc, argv);
	o.cluster.reorder = o.reorder;
	o.cluster.seed = relaxed.seed;
	relaxed_fit(&relaxed, o.cluster.rank_count);
	sim_cluster_fit(&o);
	results_check(SIM, "--json", o.json);
	return job_run(&o, &relaxed);
}
