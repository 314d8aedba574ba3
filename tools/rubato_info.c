/* rubato_info.c -- rubato-info: what this library is, and what it finds on this machine. */
#include <stdlib.h>
#include <string.h>

#include "rubato.h"
#include "tools/info.h"
#include "tools/options.h"

static const char help[] =
	"usage: rubato-info [options]\n"
	"\n"
	"Says which version this is and which transports work here, and on demand:\n"
	"\n"
	"  --devices     network interfaces and RDMA devices\n"
	"  --topology    packages, NUMA nodes, cores, caches; where ranks would be placed\n"
	"  -n, --ranks N how many ranks --topology places (as many as there are cores)\n"
	"  --config      every setting, its value, and where that comes from\n"
	"  --doctor      checks of this machine: ok or warn, and what to do\n"
	"  --json FILE   the same for programs; - is standard output, then without the text\n"
	"  --help, --version\n";

enum {
	OPTION_DEVICES = 256,
	OPTION_TOPOLOGY,
	OPTION_CONFIG,
	OPTION_DOCTOR,
	OPTION_JSON,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option longs[] = {
	{ "devices", no_argument, NULL, OPTION_DEVICES },
	{ "topology", no_argument, NULL, OPTION_TOPOLOGY },
	{ "config", no_argument, NULL, OPTION_CONFIG },
	{ "doctor", no_argument, NULL, OPTION_DOCTOR },
	{ "ranks", required_argument, NULL, 'n' },
	{ "json", required_argument, NULL, OPTION_JSON },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ 0 },
};

struct wanted {
	bool devices, topology, config, doctor;
	uint32_t rank_count;
	const char *json;
};

static void options_read(int argc, char **argv, struct wanted *wanted)
{
	int found;

	while ((found = option_next(INFO, argc, argv, ":n:", longs)) != -1) {
		switch (found) {
		case OPTION_DEVICES:
			wanted->devices = true;
			break;
		case OPTION_TOPOLOGY:
			wanted->topology = true;
			break;
		case OPTION_CONFIG:
			wanted->config = true;
			break;
		case OPTION_DOCTOR:
			wanted->doctor = true;
			break;
		case OPTION_JSON:
			wanted->json = optarg;
			break;
		case 'n':
			wanted->rank_count =
				(uint32_t)option_number(INFO, "-n", optarg, 1, 1u << 20);
			break;
		case OPTION_VERSION:
			(void)printf("rubato-info %s\n", rubato_version());
			exit(EXIT_SUCCESS);
		default:
			(void)fputs(help, stdout);
			exit(EXIT_SUCCESS);
		}
	}
	if (optind < argc)
		option_fail(INFO, "what is '%s'? --help lists the options", argv[optind]);
}

void info_version(struct info *info, const struct info_probe probes[INFO_TRANSPORTS])
{
	if (info->text != NULL)
		(void)fprintf(info->text, "rubato %s\ntransports\n", rubato_version());
	if (info->json != NULL) {
		json_text(info->json, "version", rubato_version());
		json_begin(info->json, "transports", '[');
	}
	for (uint32_t i = 0; i < INFO_TRANSPORTS; i++) {
		if (info->text != NULL)
			(void)fprintf(info->text, "  %-5s %s\n", probes[i].transport,
				      probes[i].works ? "works" : probes[i].text);
		if (info->json == NULL)
			continue;
		json_begin(info->json, NULL, '{');
		json_text(info->json, "transport", probes[i].transport);
		json_bool(info->json, "works", probes[i].works);
		json_text(info->json, "text", probes[i].text);
		json_end(info->json, '}');
	}
	if (info->json != NULL)
		json_end(info->json, ']');
}

static void config_row(void *arg, const char *variable, const char *value, const char *source,
		       const char *text)
{
	struct info *info = arg;

	if (info->text != NULL)
		(void)fprintf(info->text, "  %-20s %-16s %-12s %s\n", variable,
			      value[0] != '\0' ? value : "-", source, text);
	if (info->json == NULL)
		return;
	json_begin(info->json, NULL, '{');
	json_text(info->json, "variable", variable);
	json_text(info->json, "value", value);
	json_text(info->json, "source", source);
	json_text(info->json, "help", text);
	json_end(info->json, '}');
}

bool info_config(struct info *info)
{
	if (info->text != NULL)
		(void)fprintf(info->text, "settings\n");
	if (info->json != NULL)
		json_begin(info->json, "config", '[');
	rubato_status status = rubato_config_each(config_row, info);

	if (info->json != NULL)
		json_end(info->json, ']');
	if (status != RUBATO_OK)
		(void)fprintf(stderr, "%s: %s\n", INFO, rubato_error_text());
	return status == RUBATO_OK;
}

int main(int argc, char **argv)
{
	struct wanted wanted = { 0 };
	struct info_probe probes[INFO_TRANSPORTS];
	struct info info = { .text = stdout };
	struct json json;
	bool good = true;

	options_read(argc, argv, &wanted);
	info.rank_count = wanted.rank_count;
	if (wanted.json != NULL) {
		if (!json_open(&json, wanted.json))
			option_fail(INFO, "--json: cannot write %s", wanted.json);
		info.json = &json;
		if (json.file == stdout)
			info.text = NULL;
		json_begin(&json, NULL, '{');
	}
	info_probe(probes);
	info_version(&info, probes);
	if (wanted.devices)
		info_devices(&info);
	if (wanted.topology)
		good = info_topology(&info) && good;
	if (wanted.config)
		good = info_config(&info) && good;
	if (wanted.doctor)
		info_doctor(&info, probes);
	if (wanted.json != NULL) {
		json_end(&json, '}');
		good = json_close(&json) && good;
	}
	return good && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
