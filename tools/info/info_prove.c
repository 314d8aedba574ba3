/* info_prove.c -- proofs of the library's algorithms, and their sentences, wrapped. */
#include <string.h>

#include "programs/options.h"
#include "rubato.h"
#include "tools/info/info.h"

#define NAMES_MAX 32
#define COLUMNS 100

const char *const *info_operations(void)
{
	static const char *names[NAMES_MAX + 1];

	for (uint32_t i = 0; i < NAMES_MAX; i++)
		if ((names[i] = rubato_operation_name(i)) == NULL)
			break;
	return names;
}

static void print_wrapped(FILE *file, const char *text)
{
	size_t column = 0;

	while (*text != '\0') {
		size_t length = strcspn(text, " ");

		if (column > 0 && column + 1 + length > COLUMNS) {
			(void)fputc('\n', file);
			column = 0;
		}
		(void)fprintf(file, "%s%.*s", column == 0 ? "    " : " ", (int)length, text);
		column += length + (column == 0 ? 4 : 1);
		text += length + (text[length] == ' ');
	}
	(void)fputc('\n', file);
}

static void nodes_fill(const struct info_proof *wanted, uint32_t rank_count, uint32_t *node_of)
{
	for (uint32_t r = 0, node = 0, left = 0; r < rank_count && wanted->node_count > 0; r++) {
		if (left == 0)
			left = wanted->node_ranks[node++ % wanted->node_count];
		node_of[r] = node - 1;
		left--;
	}
}

static rubato_status prove_one(struct info *info, const char *algorithm, json_t *list)
{
	const struct info_proof *wanted = info->proof;
	uint32_t node_of[RUBATO_PROVE_RANKS_MAX];
	char text[1024] = "";

	nodes_fill(wanted, info->rank_count, node_of);
	rubato_status status = rubato_prove(wanted->operation, algorithm, info->rank_count,
					    wanted->node_count > 0 ? node_of : NULL, wanted->root,
					    wanted->count, wanted->timeout_ns, text, sizeof(text));

	if (status != RUBATO_OK && text[0] == '\0')
		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (info->text != NULL) {
		(void)fprintf(info->text, "  %-26s %s\n", algorithm,
			      status == RUBATO_OK             ? "proved"
			      : status == RUBATO_ERR_INTERNAL ? "WRONG"
			      : status == RUBATO_ERR_ARGUMENT ? "not for these"
							      : "not known");
		print_wrapped(info->text, text);
		(void)fflush(info->text); /* The next one may take its time. */
	}
	json_array_append_new(list,
			      json_pack("{s:s,s:b,s:s,s:o}", "algorithm", algorithm, "proved",
					status == RUBATO_OK, "status", rubato_status_name(status),
					"text", results_text(text)));
	return status;
}

bool info_prove(struct info *info)
{
	const struct info_proof *wanted = info->proof;
	json_t *list = json_array();
	bool all = wanted->algorithm == NULL || strcmp(wanted->algorithm, "all") == 0;
	bool good = true;
	const char *name;

	if (info->text != NULL)
		(void)fprintf(info->text, "proofs of %s on %u rank%s\n", wanted->operation,
			      info->rank_count, info->rank_count == 1 ? "" : "s");
	for (uint32_t i = 0; (name = rubato_algorithm_name(wanted->operation, i)) != NULL; i++) {
		rubato_status status;

		if (!all && strcmp(wanted->algorithm, name) != 0)
			continue;
		status = prove_one(info, name, list);
		/* Of all, those that there can be. */
		good &= status == RUBATO_OK || (all && status == RUBATO_ERR_ARGUMENT);
	}
	json_object_set_new(info->json, "proofs",
			    json_pack("{s:s,s:I,s:o}", "operation", wanted->operation, "ranks",
				      (json_int_t)info->rank_count, "algorithms", list));
	return good;
}

void info_proof_check(const struct info_proof *wanted, uint32_t rank_count)
{
	const char *names[NAMES_MAX + 2] = { "all" }, *value;
	struct option_error error;
	uint32_t index;

	if (wanted->operation == NULL) {
		if (wanted->algorithm != NULL)
			option_fail(INFO, "what is '%s'? --help lists the options",
				    wanted->algorithm);
		if (wanted->root != RUBATO_PROVE_ROOTS_ALL || wanted->count != 0 ||
		    wanted->timeout_ns != RUBATO_TIMEOUT_DEFAULT || wanted->node_count != 0)
			option_fail(INFO,
				    "--nodes, --root, --count and --timeout work with --prove "
				    "only");
		return;
	}
	for (uint32_t i = 1; i <= NAMES_MAX; i++)
		if ((names[i] = rubato_algorithm_name(wanted->operation, i - 1)) == NULL)
			break;
	if (wanted->algorithm != NULL &&
	    !value_choice(wanted->operation, wanted->algorithm, names, &index, &value, &error))
		option_fail(INFO, "%s", error.text);
	if (rank_count == 0)
		option_fail(INFO, "--prove: of how many ranks? -n N");
	if (rank_count > RUBATO_PROVE_RANKS_MAX)
		option_fail(INFO, "--prove takes 1 to %d ranks, not %u", RUBATO_PROVE_RANKS_MAX,
			    rank_count);
	if (wanted->root != RUBATO_PROVE_ROOTS_ALL && wanted->root >= rank_count)
		option_fail(INFO, "--root: %u of %u ranks", wanted->root, rank_count);
}
