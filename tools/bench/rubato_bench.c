/*
 * rubato_bench.c -- rubato-bench: walks the grid of algorithms, types, operators and sizes.
 *
 * With -n it starts N ranks, forks of itself, and waits. Every rank walks the same grid; rank 0
 * speaks.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/options.h"
#include "tools/bench/bench.h"

#define EXPLAIN_BYTES 512

struct walk {
	struct bench bench;
	struct bench_output output;
};

/* The first algorithm that `text` names as a word of its own, or NULL. */
static const char *algorithm_in(const char *op, const char *text)
{
	const char *name, *at, *best = NULL, *best_at = NULL;

	for (uint32_t i = 0; (name = rubato_algorithm_name(op, i)) != NULL; i++) {
		size_t length = strlen(name);

		for (at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
			bool begins =
				at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
			bool ends = !(isalnum((unsigned char)at[length]) || at[length] == '_');

			if (begins && ends && (best_at == NULL || at < best_at)) {
				best = name;
				best_at = at;
			}
		}
	}
	return best;
}

/* The algorithm that a call with our kind of buffers runs, and why; `why` may stay empty. */
static rubato_status algorithm_used(const struct bench *bench, const struct bench_case *what,
				    char *why, const char **used)
{
	const char *op = operation_names[bench->options->op];

	*used = what->algorithm;
	if (bench->options->op == OP_SENDRECV)
		return RUBATO_OK;
	rubato_status status = rubato_explain(
		bench->comm, op,
		operation_uneven(bench->options->op)
			? operation_whole(bench->options->op, what->count, bench->rank_count)
			: what->count,
		what->type, why, EXPLAIN_BYTES);

	if (status != RUBATO_OK)
		return status;
	/* "A (...); B where a buffer is plain; else C 1.5 us, D 2.5 us". */
	const char *end = strstr(why, " where a buffer is plain"), *plain = end;

	while (plain != NULL && *plain != ';')
		plain--;
	const char *found =
		algorithm_in(op, plain != NULL && !bench->options->registered ? plain : why);

	*used = found != NULL ? found : what->algorithm;
	return RUBATO_OK;
}

static rubato_status one_size(struct walk *walk, struct bench_case *what)
{
	const struct bench_options *options = walk->bench.options;
	struct bench_result places[2] = { 0 }, theirs[2][PEERS_MAX] = { 0 };
	const struct bench_peers *peers = &walk->bench.peers;
	char why[EXPLAIN_BYTES] = "";
	const char *used = NULL;
	rubato_status status = algorithm_used(&walk->bench, what, why, &used);

	for (int i = 0; i < 2 && status == RUBATO_OK; i++) {
		what->in_place = i == 1;
		if (options->places[i])
			status = bench_measure(&walk->bench, what, &places[i], theirs[i]);
	}
	if (status == RUBATO_OK)
		bench_output_row(&walk->output, what, used,
				 options->explain && why[0] != '\0' ? why : NULL, places);
	for (uint32_t p = 0; p < peers->count && peers->leading && status == RUBATO_OK; p++)
		bench_output_peer(&walk->output, what, &peers->list[p],
				  (struct bench_result[2]) { theirs[0][p], theirs[1][p] });
	return status;
}

static uint64_t next_size(const struct bench_options *options, uint64_t size_bytes)
{
	uint64_t next = options->step_bytes > 0 ? size_bytes + options->step_bytes
						: size_bytes * options->factor;

	if (size_bytes == 0 && options->step_bytes == 0)
		next = 8;
	return next > size_bytes ? next : UINT64_MAX; /* It wrapped: beyond every end. */
}

static rubato_status all_sizes(struct walk *walk, struct bench_case *what)
{
	const struct bench_options *options = walk->bench.options;
	uint64_t element = rubato_type_bytes(what->type);
	uint64_t share = element * (operation_scattered(options->op) ? walk->bench.rank_count : 1);
	uint64_t last = UINT64_MAX;

	for (uint64_t size = options->sizes.begin_bytes; size <= options->sizes.end_bytes;
	     size = next_size(options, size)) {
		what->count = size / share;
		if (size > 0 && what->count == 0)
			what->count = 1;
		what->size_bytes =
			operation_whole(options->op, what->count, walk->bench.rank_count) * element;
		if (what->count == last) /* Rounded to what we had already. */
			continue;
		last = what->count;
		rubato_status status = one_size(walk, what);

		if (status != RUBATO_OK || options->op == OP_BARRIER)
			return status;
	}
	return RUBATO_OK;
}

static rubato_status all_kinds(struct walk *walk, const char *algorithm)
{
	const struct bench_options *options = walk->bench.options;
	bool reduces = operation_reduces(options->op);

	for (uint32_t type = 0; type < RUBATO_TYPE_COUNT; type++) {
		for (uint32_t op = 0; op < (reduces ? RUBATO_OPERATOR_COUNT : 1); op++) {
			struct bench_case what = { .type = (rubato_type)type,
						   .op = (rubato_operator)op,
						   .algorithm = algorithm };

			if (!options->types[type] || (reduces && !options->operators[op]))
				continue;
			rubato_status status = all_sizes(walk, &what);

			if (status != RUBATO_OK)
				return status;
		}
	}
	return RUBATO_OK;
}

/* Runs the grid with one algorithm; where that cannot run, `all` leaves it out. */
static void one_algorithm(struct walk *walk, const char *name)
{
	const struct bench_options *options = walk->bench.options;
	const char *op = operation_names[options->op];
	bool forced = strcmp(name, "auto") != 0;
	rubato_status status = RUBATO_OK;

	if (forced)
		status = rubato_set_algorithm(walk->bench.comm, op, name);
	if (status == RUBATO_OK)
		status = all_kinds(walk, name);
	if (status == RUBATO_ERR_UNSUPPORTED && strcmp(options->algorithm, "all") == 0) {
		char note[EXPLAIN_BYTES];

		(void)snprintf(note, sizeof(note), "%s left out: %.400s", name,
			       rubato_error_text());
		bench_output_note(&walk->output, note);
	} else {
		bench_check(&walk->bench, status, op);
	}
	if (forced)
		bench_check(&walk->bench, rubato_set_algorithm(walk->bench.comm, op, "auto"), op);
}

static int rank_main(void *arg, int line_fd)
{
	const struct bench_options *options = arg;
	struct walk walk;
	const char *op = operation_names[options->op], *name;

	(void)line_fd;
	bench_open(&walk.bench, options);
	if (operation_rooted(options->op) && options->root >= walk.bench.rank_count)
		option_fail(BENCH, "-r %u: there are %u ranks", options->root,
			    walk.bench.rank_count);
	bench_output_open(&walk.output, &walk.bench);
	if (strcmp(options->algorithm, "all") != 0)
		one_algorithm(&walk, options->algorithm);
	else
		for (uint32_t i = 0; (name = rubato_algorithm_name(op, i)) != NULL; i++)
			one_algorithm(&walk, name);

	/* The sum over ranks is known to all: all end alike. */
	int status = bench_output_close(&walk.output);

	bench_close(&walk.bench);
	return status;
}

/* Becomes rubato-suite, which runs this program for each cell. */
static int suite(int argc, char **argv)
{
	char **words = calloc((size_t)argc + 4, sizeof(*words));
	char path[1200], self[1024];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	uint32_t count = 0;

	if (words == NULL || length <= 0 || !bench_helper_find("rubato-suite", path, sizeof(path)))
		option_fail(BENCH, "--suite: rubato-suite is not installed");
	self[length] = '\0';
	words[count++] = "python3";
	words[count++] = path;
	words[count++] = "--bench";
	words[count++] = self;
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--suite=", 8) == 0)
			words[count++] = argv[i] + 8;
		else if (strcmp(argv[i], "--suite") != 0)
			words[count++] = argv[i];
	}
	(void)execvp(words[0], words);
	option_fail(BENCH, "--suite: python3 is not installed");
}

/* Whether this word is that option, with or without its value. */
static bool begins(const char *word, const char *option)
{
	size_t length = strlen(option);

	return strncmp(word, option, length) == 0 && (word[length] == '\0' || word[length] == '=');
}

int main(int argc, char **argv)
{
	struct bench_options options;

	for (int i = 1; i < argc && i < 3; i++) /* After an option, too. */
		for (int k = 0; bench_commands[k] != NULL; k++)
			if (strcmp(argv[i], bench_commands[k]) == 0)
				return bench_relaxed(argc, argv, k == 1);
	for (int i = 1; i < argc; i++) {
		if (begins(argv[i], "--tune"))
			return bench_tune(argc, argv);
		if (begins(argv[i], "--overlap"))
			return bench_overlap(argc, argv);
	}
	if (argc > 1 && (strcmp(argv[1], "--suite") == 0 || strncmp(argv[1], "--suite=", 8) == 0))
		return suite(argc, argv);
	bench_options_read(argc, argv, &options);
	return bench_start(options.rank_count, options.bound, rank_main, &options);
}
