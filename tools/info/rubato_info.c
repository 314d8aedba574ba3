/* rubato_info.c -- rubato-info: what this library is, and what it finds on this machine. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/standard.h"
#include "rubato.h"
#include "tools/info/info.h"

struct wanted {
	bool devices, topology, config, doctor;
	uint32_t rank_count, prove; /* Of info_operations(); NONE. */
	struct info_proof proof;
	char system[PATH_MAX]; /* Empty: this machine's. */
	char json[PATH_MAX];   /* Empty: none. */
};

#define NONE UINT32_MAX
#define AT(member) offsetof(struct wanted, member)

static bool nodes_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct wanted *wanted = to;

	return value_counts32(option, text, 1, RUBATO_PROVE_RANKS_MAX, wanted->proof.node_ranks,
			      RUBATO_PROVE_RANKS_MAX, &wanted->proof.node_count, error);
}

static const struct option wanted_rows[] = {
	{ "devices", 0, OPTION_FLAG, AT(devices), .help = "network interfaces and RDMA devices" },
	{ "topology", 0, OPTION_FLAG, AT(topology),
	  .help = "packages, NUMA nodes, cores, caches; where ranks would be placed; in a job "
		  "also where its ranks are" },
	{ "ranks", 'n', OPTION_U32, AT(rank_count), "N", .min = 1, .max = 1u << 20,
	  .help = "how many ranks --topology places (as many as there are cores), or --prove "
		  "takes" },
	{ "system", 0, OPTION_TEXT, AT(system), "DIR", .max = PATH_MAX,
	  .help = "--topology of another machine, of which DIR has /sys/devices/system" },
	{ "config", 0, OPTION_FLAG, AT(config),
	  .help = "every setting, its value, and where that comes from" },
	{ "doctor", 0, OPTION_FLAG, AT(doctor),
	  .help = "checks of this machine: ok, warn, or FAIL: ranks cannot run here; and what to "
		  "do" },
	{ "prove", 0, OPTION_CHOICE, AT(prove), "OP", .forms_of = info_operations,
	  .help = "proves an algorithm of an operation, or all, on -n ranks, and says what was "
		  "shown: "
		  "%s" },
	{ "nodes", 0, OPTION_OTHER, 0, "N[,N..]", .read = nodes_read,
	  .help = "--prove for ranks on several nodes, so many on each, and again from the first: "
		  "what is hierarchical (all on one)" },
	{ "root", 0, OPTION_U32, AT(proof.root), "R", .max = UINT32_MAX - 1, .word = "all",
	  .word_is = RUBATO_PROVE_ROOTS_ALL, .preset = "all",
	  .help = "--prove for this root, where there is one" },
	{ "count", 0, OPTION_U64, AT(proof.count), "K", .min = 1, .max = UINT64_C(1) << 60,
	  .help = "--prove for a vector of so many elements (several counts)" },
	{ "timeout", 0, OPTION_TIME, AT(proof.timeout_ns), "T", .min = 1,
	  .help = "how long one proof of --prove may take (60s)" },
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "the same for programs; - is standard output, then without the text" },
	{ 0 },
};

static void wanted_read(int argc, char **argv, struct wanted *wanted)
{
	const struct option_table tables[] = { { .rows = wanted_rows, .to = wanted }, { 0 } };
	const struct options options = {
		.program = INFO,
		.usage = "[options] [--prove OP [ALGORITHM] -n N]",
		.about = "Says which version this is and which transports work here; on demand "
			 "also:\n",
		.notes = "\nExit status 1: --doctor said FAIL, a proof failed or did not end in "
			 "time, or "
			 "something could not\nbe read.\n",
		.tables = tables,
		.word = &wanted->proof.algorithm,
	};

	(void)options_read(&options, argc, argv);
	if (wanted->prove != NONE)
		wanted->proof.operation = info_operations()[wanted->prove];
	info_proof_check(&wanted->proof, wanted->rank_count);
	if (wanted->system[0] != '\0' && !wanted->topology)
		option_fail(INFO, "--system works with --topology only");
	results_check(INFO, "--json", wanted->json);
}

void info_version(struct info *info, const struct info_probe probes[INFO_TRANSPORTS])
{
	json_t *transports = json_array();

	if (info->text != NULL)
		(void)fprintf(info->text, "rubato %s\ntransports\n", rubato_version());
	for (uint32_t i = 0; i < INFO_TRANSPORTS; i++) {
		if (info->text != NULL)
			(void)fprintf(info->text, "  %-5s %s\n", probes[i].transport,
				      probes[i].works ? "works" : probes[i].text);
		json_array_append_new(transports,
				      json_pack("{s:s,s:b,s:o}", "transport", probes[i].transport,
						"works", probes[i].works, "text",
						results_text(probes[i].text)));
	}
	if (info->text != NULL)
		(void)fprintf(info->text, "reductions\n  by the %s kernels\n",
			      rubato_reduction_kernel());
	json_object_set_new(info->json, "version", json_string(rubato_version()));
	json_object_set_new(info->json, "transports", transports);
	json_object_set_new(info->json, "reductions", json_string(rubato_reduction_kernel()));
}

static void info_job(struct info *info)
{
	char text[512];

	if (rubato_job_explain(text, sizeof(text)) != RUBATO_OK)
		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (info->text != NULL)
		(void)fprintf(info->text, "job\n  %s\n", text);
	json_object_set_new(info->json, "job", results_text(text));
}

struct config_rows {
	FILE *text;
	json_t *json;
};

static void config_row(void *arg, const char *variable, const char *value, const char *source,
		       const char *text)
{
	struct config_rows *rows = arg;

	if (rows->text != NULL)
		(void)fprintf(rows->text, "  %-20s %-16s %-12s %s\n", variable,
			      value[0] != '\0' ? value : "-", source, text);
	json_array_append_new(rows->json, json_pack("{s:s,s:o,s:o,s:s}", "variable", variable,
						    "value", results_text(value), "source",
						    results_text(source), "help", text));
}

bool info_config(struct info *info)
{
	struct config_rows rows = { info->text, json_array() };

	if (info->text != NULL)
		(void)fprintf(info->text, "settings\n");
	rubato_status status = rubato_config_each(config_row, &rows);

	json_object_set_new(info->json, "config", rows.json);
	if (status != RUBATO_OK)
		(void)fprintf(stderr, "%s: %s\n", INFO, rubato_error_text());
	return status == RUBATO_OK;
}

static bool sections(struct info *info, const struct wanted *wanted, const struct info_ranks *ranks)
{
	struct info_probe probes[INFO_TRANSPORTS];
	bool good = true;

	info_probe(probes);
	info_version(info, probes);
	info_job(info);
	if (wanted->devices)
		info_devices(info);
	if (wanted->topology)
		good = info_topology(info) && good;
	if (ranks->count > 1)
		info_ranks(info, ranks);
	if (wanted->config)
		good = info_config(info) && good;
	if (wanted->doctor)
		good = info_doctor(info, probes) && good;
	if (wanted->prove != NONE)
		good = info_prove(info) && good;
	return good;
}

int main(int argc, char **argv)
{
	struct wanted wanted = { .prove = NONE };
	struct info info = { .json = json_object() };
	struct info_ranks ranks = { 0 };
	bool good = true;

	wanted_read(argc, argv, &wanted);
	info.rank_count = wanted.rank_count;
	info.system = wanted.system[0] != '\0' ? wanted.system : NULL;
	info.text = strcmp(wanted.json, "-") == 0 ? NULL : stdout;
	info.proof = &wanted.proof;
	if (wanted.topology && info.system == NULL)
		good = info_ranks_gather(&ranks);
	if (ranks.own == 0) { /* One rank of a job speaks for all. */
		good = sections(&info, &wanted, &ranks) && good;
		if (wanted.json[0] != '\0' && !results_write(wanted.json, json_incref(info.json))) {
			if (info.text != NULL) /* Else it is said below. */
				(void)fprintf(stderr, "%s: %s could not be written\n", INFO,
					      wanted.json);
			good = false;
		}
	}
	json_decref(info.json);
	free(ranks.at);
	free(wanted.proof.algorithm);
	good = standard_written(INFO) && good;
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
