/* options.c -- see options.h; popt reads the words. options_help.c prints. */
#include "programs/options.h"

#include <assert.h>
#include <popt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options_inside.h"
#include "programs/standard.h"
#include "rubato.h"

#define ALGORITHMS_MAX 32

/* ---- Rows ---- */

size_t options_size(const struct option *row)
{
	switch (row->kind) {
	case OPTION_FLAG:
		return sizeof(bool);
	case OPTION_TEXT:
		return row->max;
	case OPTION_STRING:
		return sizeof(char *);
	case OPTION_U32:
	case OPTION_CHOICE:
		return sizeof(uint32_t);
	case OPTION_REAL:
	case OPTION_BANDWIDTH:
		return sizeof(double);
	case OPTION_U64:
	case OPTION_BYTES:
	case OPTION_TIME:
		return sizeof(uint64_t);
	case OPTION_OTHER:
		return row->size;
	}
	return 0;
}

const char *const *options_forms(const struct option *row)
{
	return row->forms_of != NULL ? row->forms_of() : row->forms;
}

static bool text_read(const char *option, const char *text, char *to, uint64_t room,
		      struct option_error *error)
{
	size_t length = strlen(text);

	if (length == 0 || length >= room)
		return option_refuse(error, "%s takes a text of 1 to %llu bytes, not '%.100s'",
				     option, (unsigned long long)room - 1, text);
	memcpy(to, text, length + 1);
	return true;
}

static bool bytes_read(const char *option, const char *text, uint64_t least, uint64_t *to,
		       struct option_error *error)
{
	uint64_t number;

	if (!value_bytes(option, text, &number, error))
		return false;
	if (number < least)
		return option_refuse(error, "%s takes a size above 0", option);
	*to = number;
	return true;
}

static bool time_read(const char *option, const char *text, const struct option *row, uint64_t *to,
		      struct option_error *error)
{
	if (!value_time(option, text, row->min, to, error))
		return false;
	return row->max == 0 || *to <= row->max
		       ? true
		       : option_refuse(error, "%s takes at most %llu s, not '%s'", option,
				       (unsigned long long)(row->max / 1000000000u), text);
}

static bool choice_read(const char *option, const char *text, const struct option *row,
			uint32_t *to, struct option_error *error)
{
	const char *value;

	return value_choice(option, text, options_forms(row), to, &value, error);
}

bool option_read(const struct option *row, const char *text, void *to, struct option_error *error)
{
	char option[64];

	if (row->letter != 0)
		(void)snprintf(option, sizeof(option), "-%c", row->letter);
	else
		(void)snprintf(option, sizeof(option), "--%s", row->name);
	if (row->word != NULL && strcmp(text, row->word) == 0) {
		if (row->kind == OPTION_U32)
			*(uint32_t *)to = (uint32_t)row->word_is;
		else
			*(uint64_t *)to = row->word_is;
		return true;
	}
	switch (row->kind) {
	case OPTION_FLAG:
		*(bool *)to = true;
		return true;
	case OPTION_TEXT:
		return text_read(option, text, to, row->max, error);
	case OPTION_STRING:
		*(const char **)to = text;
		return true;
	case OPTION_U32:
		return value_count32(option, text, (uint32_t)row->min, (uint32_t)row->max, to,
				     error);
	case OPTION_U64:
		return value_count(option, text, row->min, row->max, to, error);
	case OPTION_REAL:
		return value_real(option, text, row->least, row->most, to, error);
	case OPTION_BYTES:
		return bytes_read(option, text, row->min, to, error);
	case OPTION_TIME:
		return time_read(option, text, row, to, error);
	case OPTION_BANDWIDTH:
		return value_bandwidth(option, text, to, error);
	case OPTION_CHOICE:
		return choice_read(option, text, row, to, error);
	case OPTION_OTHER:
		return row->read(option, text, to, error);
	}
	return false;
}

bool options_default(const struct option *rows, void *to, struct option_error *error)
{
	for (const struct option *row = rows; row->name != NULL; row++)
		if (row->preset != NULL &&
		    !option_read(row, row->preset, (char *)to + row->at, error))
			return false;
	return true;
}

bool options_apply(const struct option_words *words, const struct option *rows, void *to,
		   struct option_error *error)
{
	for (uint32_t i = 0; i < words->count; i++) {
		const struct option_word *word = &words->list[i];

		for (const struct option *row = rows; row->name != NULL; row++)
			if (strcmp(row->name, word->row->name) == 0 &&
			    !option_read(row, word->text, (char *)to + row->at, error))
				return false;
	}
	return true;
}

/* ---- Words ---- */

static bool known(const struct option_words *words, const char *name)
{
	for (const struct option_table *t = words->options->tables; t->rows != NULL; t++)
		for (const struct option *row = t->rows; row->name != NULL; row++)
			if (strcmp(row->name, name) == 0)
				return true;
	return false;
}

static const struct option_word *word_find(const struct option_words *words, const char *name)
{
	assert(known(words, name));
	(void)known; /* A build without assertions does not call it. */
	for (uint32_t i = words->count; i > 0; i--)
		if (strcmp(words->list[i - 1].row->name, name) == 0)
			return &words->list[i - 1];
	return NULL;
}

bool options_given(const struct option_words *words, const char *name)
{
	return word_find(words, name) != NULL;
}

const char *options_text(const struct option_words *words, const char *name)
{
	const struct option_word *word = word_find(words, name);

	return word == NULL ? NULL : word->text;
}

void options_free(struct option_words *words)
{
	for (uint32_t i = 0; i < words->count; i++)
		free(words->list[i].text);
	free(words->list);
	*words = (struct option_words) { 0 };
}

static bool word_bad(poptContext popt, int reason, struct option_error *error)
{
	const char *word = poptBadOption(popt, POPT_BADOPTION_NOALIAS);

	if (reason == POPT_ERROR_NOARG)
		return option_refuse(error, "%s needs a value", word);
	if (reason == POPT_ERROR_BADOPT)
		return option_refuse(error, "unknown option %s; --help lists them", word);
	return option_refuse(error, "%s: %s", word, poptStrerror(reason));
}

static bool words_left(const struct options *options, const char **left, uint32_t argc,
		       struct option_words *words, struct option_error *error)
{
	uint32_t count = 0;
	const char *value;

	while (left != NULL && left[count] != NULL)
		count++;
	words->operation = argc - count;
	if (options->command)
		return true;
	words->operation = 0;
	if (options->operations == NULL && options->word != NULL && count == 1)
		return (*options->word = strdup(left[0])) != NULL ||
		       option_refuse(error, "out of memory");
	if (options->operations == NULL)
		return count == 0 || option_refuse(error, "what is '%s'? --help lists the options",
						   left[options->word != NULL ? 1 : 0]);
	if (count == 0)
		return option_refuse(error, "OP is missing, such as %s; --help lists them",
				     options->operations[0]);
	if (count > 1)
		return option_refuse(error, "one OP only: what is '%s'?", left[1]);
	return value_choice("OP", left[0], options->operations, &words->operation, &value, error);
}

/* Takes the words until one asks for help or the version. */
static bool words_take(const struct popt_rows *rows, poptContext popt, uint32_t argc,
		       struct option_words *words, struct option_error *error)
{
	int found;

	while ((found = poptGetNextOpt(popt)) > 0) {
		words->help = found == POPT_HELP;
		words->version = found == POPT_VERSION;
		if (words->help || words->version)
			return true;
		words->list[words->count++] = (struct option_word) {
			.row = rows->rows[found - 1],
			.text = poptGetOptArg(popt),
		};
	}
	if (found < -1)
		return word_bad(popt, found, error);
	return words_left(words->options, poptGetArgs(popt), argc, words, error);
}

/* A word of one dash may hold an option a letter. */
static uint32_t words_most(int argc, char *const *argv)
{
	size_t most = 0;

	for (int i = 0; i < argc; i++)
		most += strlen(argv[i]) + 1;
	return (uint32_t)most;
}

bool options_scan(const struct options *options, int argc, char *const *argv,
		  struct option_words *words, struct option_error *error)
{
	struct popt_rows rows;
	bool good;

	standard_open(); /* Before anything else is opened. */
	*words = (struct option_words) { .options = options };
	if (argc == 2 &&
	    (strcmp(argv[1], "--help=man") == 0 || strcmp(argv[1], "--help=bash") == 0)) {
		words->help = true;
		words->form = argv[1] + strlen("--help=");
		return true;
	}
	words->list = calloc(words_most(argc, argv), sizeof(*words->list));
	if (words->list == NULL || !popt_rows_make(&rows, options)) {
		options_free(words);
		return option_refuse(error, "out of memory");
	}
	poptContext popt =
		poptGetContext(options->program, argc, (const char **)(uintptr_t)argv, rows.table,
			       options->command ? POPT_CONTEXT_POSIXMEHARDER : 0);

	good = words_take(&rows, popt, (uint32_t)argc, words, error);
	poptFreeContext(popt);
	popt_rows_free(&rows);
	if (!good)
		options_free(words);
	return good;
}

/* ---- A program that takes all at once ---- */

_Noreturn void option_fail(const char *program, const char *format, ...)
{
	va_list args;

	(void)fprintf(stderr, "%s: ", program);
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fputc('\n', stderr);
	exit(EXIT_USAGE);
}

/* The same text where it lives as long as the program does: a value ends its word. */
static const char *text_in(int argc, char *const *argv, const char *text)
{
	size_t length = strlen(text);

	for (int i = 1; i < argc; i++) {
		size_t word = strlen(argv[i]);

		if (word >= length && strcmp(argv[i] + word - length, text) == 0)
			return argv[i] + word - length;
	}
	abort(); /* popt changes no value. */
}

/* Each word where it comes: of several that are wrong, the first is refused. */
static bool words_apply(const struct option_words *words, int argc, char *const *argv,
			struct option_error *error)
{
	for (uint32_t i = 0; i < words->count; i++) {
		const struct option_word *word = &words->list[i];
		const char *text = word->row->kind == OPTION_STRING
					   ? text_in(argc, argv, word->text)
					   : word->text;

		for (const struct option_table *t = words->options->tables; t->rows != NULL; t++)
			for (const struct option *row = t->rows; row->name != NULL; row++)
				if (row == word->row &&
				    !option_read(row, text, (char *)t->to + row->at, error))
					return false;
	}
	return true;
}

uint32_t options_read(const struct options *options, int argc, char **argv)
{
	struct option_words words;
	struct option_error error;
	uint32_t operation;

	for (const struct option_table *t = options->tables; t->rows != NULL; t++)
		if (!options_default(t->rows, t->to, &error))
			option_fail(options->program, "%s", error.text);
	if (!options_scan(options, argc, argv, &words, &error))
		option_fail(options->program, "%s", error.text);
	if (words.help)
		options_help(options, words.form);
	else if (words.version)
		(void)printf("%s %s\n", options->program, rubato_version());
	if (words.help || words.version) {
		options_free(&words);
		exit(standard_written(options->program) ? EXIT_SUCCESS : EXIT_FAILURE);
	}
	operation = words.operation;
	if (!words_apply(&words, argc, argv, &error))
		option_fail(options->program, "%s", error.text);
	options_free(&words);
	return operation;
}

/* ---- Names of the library's ---- */

const char *option_algorithm(const char *program, const char *operation, const char *text, bool all)
{
	const char *names[ALGORITHMS_MAX + 3] = { "auto", all ? "all" : NULL }, *value;
	uint32_t first = all ? 2 : 1, index = 0;
	struct option_error error;
	char option[64];

	for (uint32_t i = first; i < first + ALGORITHMS_MAX; i++)
		if ((names[i] = rubato_algorithm_name(operation, i - first)) == NULL)
			break;
	(void)snprintf(option, sizeof(option), "--algorithm of %s", operation);
	if (!value_choice(option, text, names, &index, &value, &error))
		option_fail(program, "%s", error.text);
	return names[index];
}

const char *const *option_types_or_all(void)
{
	static const char *names[RUBATO_TYPE_COUNT + 2];

	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++)
		names[i] = rubato_type_name((rubato_type)i);
	names[RUBATO_TYPE_COUNT] = "all";
	return names;
}

const char *const *option_types(void)
{
	static const char *names[RUBATO_TYPE_COUNT + 1];

	memcpy(names, option_types_or_all(), RUBATO_TYPE_COUNT * sizeof(*names));
	return names;
}

const char *const *option_operators_or_all(void)
{
	static const char *names[RUBATO_OPERATOR_COUNT + 2];

	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++)
		names[i] = rubato_operator_name((rubato_operator)i);
	names[RUBATO_OPERATOR_COUNT] = "all";
	return names;
}

const char *const *option_operators(void)
{
	static const char *names[RUBATO_OPERATOR_COUNT + 1];

	memcpy(names, option_operators_or_all(), RUBATO_OPERATOR_COUNT * sizeof(*names));
	return names;
}
