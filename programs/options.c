/* options.c -- see options.h. */
#include "programs/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <popt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato.h"

#define ROWS_MAX 32
#define NAMES_BYTES 512 /* Of all names of an option. */
#define ALGORITHMS_MAX 32
#define COLUMNS 79

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

/* ---- Values ---- */

/* Digits only (no sign, no blanks), below 2^64; *end is set to what follows. */
static bool digits(const char *text, uint64_t *number, char **end)
{
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*number = strtoull(text, end, 10);
	return errno == 0;
}

uint64_t option_number(const char *program, const char *option, const char *text, uint64_t min,
		       uint64_t max)
{
	uint64_t number = 0;
	char *end = NULL;

	if (!digits(text, &number, &end) || *end != '\0' || number < min || number > max)
		option_fail(program, "%s takes a number from %llu to %llu, not '%s'", option,
			    (unsigned long long)min, (unsigned long long)max, text);
	return number;
}

static uint64_t bytes_read(const char *program, const char *option, const char *text)
{
	static const char units[] = "KMG";
	uint64_t number = 0;
	unsigned shift = 0;
	char *end = NULL;
	bool good = digits(text, &number, &end);

	if (good && *end != '\0') {
		const char *unit = strchr(units, toupper((unsigned char)*end));

		good = unit != NULL && end[1] == '\0';
		shift = good ? 10 * (unsigned)(unit - units + 1) : 0;
	}
	if (!good || number > UINT64_MAX >> shift)
		option_fail(program, "%s takes a size such as 8, 64K, 1M or 2G, not '%s'", option,
			    text);
	return number << shift;
}

struct unit {
	const char *name;
	double factor;
};

/* A number and one of three units; negative: it is something else. */
static double measure(const char *text, const struct unit units[3])
{
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;

	for (int i = 0; number >= 0 && i < 3; i++)
		if (strcmp(end, units[i].name) == 0)
			return number * units[i].factor;
	return -1;
}

uint64_t option_time_ns(const char *program, const char *option, const char *text)
{
	static const struct unit units[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	double ns = measure(text, units);

	if (!(ns >= 0 && ns < 1e18))
		option_fail(program, "%s takes a time such as 250us, 1.5ms or 30s, not '%s'",
			    option, text);
	return (uint64_t)ns;
}

static double bandwidth_read(const char *program, const char *option, const char *text)
{
	static const struct unit units[] = { { "Mbit", 1e6 / 8 },
					     { "Gbit", 1e9 / 8 },
					     { "GB/s", 1e9 } };
	double bandwidth = measure(text, units);

	if (!(bandwidth > 0 && bandwidth < 1e18))
		option_fail(program, "%s takes one such as 800Mbit, 10Gbit or 12.5GB/s, not '%s'",
			    option, text);
	return bandwidth;
}

static void text_read(const char *program, const char *option, const char *text, char *to,
		      uint64_t room)
{
	size_t length = strlen(text);

	if (length == 0 || length >= room)
		option_fail(program, "%s takes a text of 1 to %llu bytes, not '%.100s'", option,
			    (unsigned long long)room - 1, text);
	memcpy(to, text, length + 1);
}

static void names_join(const char *const *names, char *text, size_t text_bytes)
{
	text[0] = '\0';
	for (uint32_t i = 0; names[i] != NULL; i++) {
		size_t used = strlen(text);

		(void)snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ",
			       names[i]);
	}
}

uint32_t option_word(const char *program, const char *option, const char *text,
		     const char *const *names, const char **rest)
{
	char all[NAMES_BYTES];

	for (uint32_t i = 0; names[i] != NULL; i++) {
		size_t length = strcspn(names[i], ":[");
		char after = names[i][length];

		if (strncmp(text, names[i], length) != 0)
			continue;
		if (text[length] == '\0' && after != ':') {
			*rest = NULL;
			return i;
		}
		if (text[length] == ':' && after != '\0') {
			*rest = text + length + 1;
			return i;
		}
	}
	names_join(names, all, sizeof(all));
	option_fail(program, "%s takes one of %s, not '%s'", option, all, text);
}

static uint32_t choice_read(const char *program, const char *option, const char *text,
			    const char *const *names)
{
	const char *rest;

	return option_word(program, option, text, names, &rest);
}

const char *option_algorithm(const char *program, const char *operation, const char *text, bool all)
{
	const char *names[ALGORITHMS_MAX + 3] = { "auto", all ? "all" : NULL };
	uint32_t first = all ? 2 : 1;
	char option[64];

	for (uint32_t i = first; i < first + ALGORITHMS_MAX; i++)
		if ((names[i] = rubato_algorithm_name(operation, i - first)) == NULL)
			break;
	(void)snprintf(option, sizeof(option), "--algorithm of %s", operation);
	return names[choice_read(program, option, text, names)];
}

static void value_read(const char *program, const struct option *row, const char *text)
{
	char option[32];

	if (row->letter != 0)
		(void)snprintf(option, sizeof(option), "-%c", row->letter);
	else
		(void)snprintf(option, sizeof(option), "--%s", row->name);
	switch (row->kind) {
	case OPTION_FLAG:
		*(bool *)row->to = true;
		break;
	case OPTION_TEXT:
		text_read(program, option, text, row->to, row->max);
		break;
	case OPTION_U32:
		*(uint32_t *)row->to =
			(uint32_t)option_number(program, option, text, row->min, row->max);
		break;
	case OPTION_U64:
		*(uint64_t *)row->to = option_number(program, option, text, row->min, row->max);
		break;
	case OPTION_BYTES:
		*(uint64_t *)row->to = bytes_read(program, option, text);
		if (*(uint64_t *)row->to < row->min)
			option_fail(program, "%s takes a size above 0", option);
		break;
	case OPTION_TIME:
		*(uint64_t *)row->to = option_time_ns(program, option, text);
		if (*(uint64_t *)row->to < row->min)
			option_fail(program, "%s takes a time above 0", option);
		break;
	case OPTION_BANDWIDTH:
		*(double *)row->to = bandwidth_read(program, option, text);
		break;
	case OPTION_CHOICE:
		*(uint32_t *)row->to = choice_read(program, option, text, row->names);
		break;
	case OPTION_OTHER:
		row->read(text, row->to);
		break;
	}
}

/* ---- Words ---- */

/* A row's help with its names in place of %s; NULL: it shows none. The caller frees it. */
static char *help_make(const char *program, const struct option *row)
{
	const char *at = row->help == NULL ? NULL : strstr(row->help, "%s");
	char names[NAMES_BYTES], *text = NULL;

	/* What parses is what is shown. */
	assert(row->help == NULL || (at != NULL) == (row->names != NULL));
	if (row->help == NULL)
		return NULL;
	if (at == NULL) {
		text = strdup(row->help);
	} else {
		names_join(row->names, names, sizeof(names));
		if (asprintf(&text, "%.*s%s%s", (int)(at - row->help), row->help, names, at + 2) <
		    0)
			text = NULL;
	}
	if (text == NULL)
		option_fail(program, "out of memory");
	return text;
}

/* "Title: a, b, c", in lines that fit. */
static void names_print(const char *title, const char *const *names)
{
	int indent = printf("%s: ", title), column = indent;

	for (uint32_t i = 0; names[i] != NULL; i++) {
		int length = (int)strlen(names[i]) + (names[i + 1] != NULL);

		if (column + 1 + length > COLUMNS) {
			(void)printf("\n%*s", indent, "");
			column = indent;
		} else if (i > 0) {
			column += printf(" ");
		}
		column += printf("%s%s", names[i], names[i + 1] != NULL ? "," : "");
	}
	(void)printf("\n");
}

static void algorithms_print(const char *operation)
{
	const char *names[ALGORITHMS_MAX + 1] = { NULL };
	char title[64];

	for (uint32_t i = 0; i < ALGORITHMS_MAX; i++)
		if ((names[i] = rubato_algorithm_name(operation, i)) == NULL)
			break;
	(void)snprintf(title, sizeof(title), "Algorithms of %s", operation);
	if (names[0] != NULL && names[1] != NULL)
		names_print(title, names);
}

/* popt's list of the options, between our words. */
static void help_print(const struct options *options, poptContext popt)
{
	char *list = NULL;
	size_t list_bytes = 0;
	FILE *file = open_memstream(&list, &list_bytes);

	if (file == NULL)
		option_fail(options->program, "out of memory");
	poptPrintHelp(popt, file, 0);
	if (fclose(file) != 0)
		option_fail(options->program, "out of memory");
	(void)printf("usage: %s %s\n\n%s", options->program, options->usage, options->about);
	if (options->operations != NULL)
		names_print("OP", options->operations);
	if (options->others != NULL)
		names_print("Commands of their own (COMMAND --help)", options->others);
	for (uint32_t i = 0; options->algorithms && options->operations[i] != NULL; i++)
		algorithms_print(options->operations[i]);
	(void)printf("\n%s%s", strchr(list, '\n') + 1,
		     options->notes); /* Without popt's own usage. */
	free(list);
}

static _Noreturn void word_fail(const char *program, poptContext popt, int error)
{
	const char *word = poptBadOption(popt, POPT_BADOPTION_NOALIAS);

	if (error == POPT_ERROR_NOARG)
		option_fail(program, "%s needs a value", word);
	if (error == POPT_ERROR_BADOPT)
		option_fail(program, "unknown option %s; --help lists them", word);
	option_fail(program, "%s: %s", word, poptStrerror(error));
}

static uint32_t words_left(const struct options *options, const char **words, uint32_t argc)
{
	uint32_t count = 0;

	while (words != NULL && words[count] != NULL)
		count++;
	if (options->command)
		return argc - count;
	if (options->operations != NULL && count == 0)
		option_fail(options->program, "OP is missing, such as %s; --help lists them",
			    options->operations[0]);
	if (options->operations == NULL && count > 0)
		option_fail(options->program, "what is '%s'? --help lists the options", words[0]);
	if (count > 1)
		option_fail(options->program, "one OP only: what is '%s'?", words[1]);
	return count == 0 ? 0 : choice_read(options->program, "OP", words[0], options->operations);
}

uint32_t options_read(const struct options *options, int argc, char **argv)
{
	struct poptOption table[ROWS_MAX + 3] = { 0 };
	char *helps[ROWS_MAX];
	int count = 0, found;

	for (const struct option *row = options->rows; row->name != NULL; row++) {
		assert(count < ROWS_MAX);
		helps[count] = help_make(options->program, row);
		table[count] = (struct poptOption) {
			.longName = row->name,
			.shortName = row->letter,
			.argInfo = (row->kind == OPTION_FLAG ? POPT_ARG_NONE : POPT_ARG_STRING) |
				   (row->help == NULL ? POPT_ARGFLAG_DOC_HIDDEN : 0),
			.val = count + 1,
			.descrip = helps[count],
			.argDescrip = row->value,
		};
		count++;
	}
	table[count] = (struct poptOption) { .longName = "help",
					     .val = ROWS_MAX + 1,
					     .descrip = "print this" };
	table[count + 1] = (struct poptOption) { .longName = "version",
						 .val = ROWS_MAX + 2,
						 .descrip = "print the version" };
	poptContext popt = poptGetContext(options->program, argc, (const char **)argv, table,
					  options->command ? POPT_CONTEXT_POSIXMEHARDER : 0);

	while ((found = poptGetNextOpt(popt)) > 0) {
		if (found > ROWS_MAX) {
			if (found == ROWS_MAX + 1)
				help_print(options, popt);
			else
				(void)printf("%s %s\n", options->program, rubato_version());
			poptFreeContext(popt);
			exit(fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
		}
		char *text = poptGetOptArg(popt);

		value_read(options->program, &options->rows[found - 1], text);
		free(text);
	}
	if (found < -1)
		word_fail(options->program, popt, found);
	uint32_t result = words_left(options, poptGetArgs(popt), (uint32_t)argc);

	poptFreeContext(popt);
	while (count > 0)
		free(helps[--count]);
	return result;
}
