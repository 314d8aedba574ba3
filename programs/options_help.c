/* options_help.c -- what --help prints: popt's list of the options, between the program's words. */
#include "programs/options_inside.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato.h"

#define COLUMNS 79

/* ---- Rows ---- */

/* A row's help with its forms in place of %s, and its default behind. The caller frees it. */
static char *help_make(const struct option *row)
{
	const char *at = strstr(row->help, "%s");
	const char *const *forms = options_forms(row);
	char all[VALUE_FORMS_BYTES] = "", preset[64] = "", *text;

	assert((at != NULL) == (forms != NULL)); /* What parses is what is shown. */
	if (forms != NULL)
		value_forms_join(forms, all, sizeof(all));
	if (row->preset != NULL)
		(void)snprintf(preset, sizeof(preset), " (%s)", row->preset);
	if (asprintf(&text, "%.*s%s%s%s",
		     at == NULL ? (int)strlen(row->help) : (int)(at - row->help), row->help, all,
		     at == NULL ? "" : at + 2, preset) < 0)
		return NULL;
	return text;
}

static void ours_add(struct poptOption *to)
{
	to[0] = (struct poptOption) {
		.longName = "help", .shortName = '?', .val = POPT_HELP, .descrip = "print this"
	};
	to[1] = (struct poptOption) { .longName = "version",
				      .val = POPT_VERSION,
				      .descrip = "print the version" };
}

/* Fills `to` from a table; returns how many rows. */
static uint32_t table_add(struct popt_rows *rows, const struct option_table *table,
			  struct poptOption *to)
{
	uint32_t count = 0;

	for (const struct option *row = table->rows; row->name != NULL; row++, count++) {
		char *help = row->help == NULL ? NULL : help_make(row);

		to[count] = (struct poptOption) {
			.longName = row->name,
			.shortName = row->letter,
			.argInfo = (row->kind == OPTION_FLAG ? POPT_ARG_NONE : POPT_ARG_STRING) |
				   (row->help == NULL ? POPT_ARGFLAG_DOC_HIDDEN : 0),
			.val = (int)rows->count + 1,
			.descrip = help,
			.argDescrip = row->value,
		};
		rows->rows[rows->count] = row;
		rows->helps[rows->count++] = help;
	}
	return count;
}

bool popt_rows_make(struct popt_rows *rows, const struct options *options)
{
	uint32_t row_count = 0, table_count = 0;
	struct poptOption *at, *nested;
	bool titled = false;

	for (const struct option_table *t = options->tables; t->rows != NULL; t++, table_count++)
		for (const struct option *row = t->rows; row->name != NULL; row++)
			row_count++;
	*rows = (struct popt_rows) {
		.table = calloc(row_count + table_count + 4, sizeof(*rows->table)),
		.nested = calloc(row_count + table_count + 4, sizeof(*rows->nested)),
		.rows = calloc(row_count + 1, sizeof(*rows->rows)),
		.helps = calloc(row_count + 1, sizeof(*rows->helps)),
	};
	if (rows->table == NULL || rows->nested == NULL || rows->rows == NULL ||
	    rows->helps == NULL) {
		popt_rows_free(rows);
		return false;
	}
	at = rows->table;
	nested = rows->nested;
	for (const struct option_table *t = options->tables; t->rows != NULL; t++) {
		if (t->title == NULL) {
			at += table_add(rows, t, at);
			continue;
		}
		titled = true;
		*at++ = (struct poptOption) { .argInfo = POPT_ARG_INCLUDE_TABLE,
					      .arg = nested,
					      .descrip = t->title };
		nested += table_add(rows, t, nested) + 1;
	}
	if (titled)
		*at++ = (struct poptOption) { .argInfo = POPT_ARG_INCLUDE_TABLE,
					      .arg = nested,
					      .descrip = "Help:" };
	ours_add(titled ? nested : at);
	return true;
}

void popt_rows_free(struct popt_rows *rows)
{
	for (uint32_t i = 0; i < rows->count; i++)
		free(rows->helps[i]);
	free(rows->table);
	free(rows->nested);
	free(rows->rows);
	free(rows->helps);
	*rows = (struct popt_rows) { 0 };
}

/* ---- --help ---- */

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

bool options_algorithms(const char *operation, const char *names[OPTIONS_ALGORITHMS_MAX + 1])
{
	uint32_t i = 0;

	while (i < OPTIONS_ALGORITHMS_MAX && (names[i] = rubato_algorithm_name(operation, i)))
		i++;
	names[i] = NULL;
	return i > 1;
}

static void algorithms_print(const char *operation)
{
	const char *names[OPTIONS_ALGORITHMS_MAX + 1];
	char title[64];

	(void)snprintf(title, sizeof(title), "Algorithms of %s", operation);
	if (options_algorithms(operation, names))
		names_print(title, names);
}

/* popt's text. The caller frees it; NULL: no memory. */
static char *list_make(const struct options *options)
{
	const char *argv[] = { options->program, NULL };
	struct popt_rows rows;
	size_t list_bytes;
	char *list = NULL;
	FILE *file;

	if (!popt_rows_make(&rows, options))
		return NULL;
	file = open_memstream(&list, &list_bytes);
	if (file != NULL) {
		poptContext popt = poptGetContext(options->program, 1, argv, rows.table, 0);

		poptPrintHelp(popt, file, 0);
		poptFreeContext(popt);
		if (fclose(file) != 0) {
			free(list);
			list = NULL;
		}
	}
	popt_rows_free(&rows);
	return list;
}

void options_help(const struct options *options, const char *form)
{
	char *list;

	if (form != NULL) {
		if (!options_manual(options, form))
			option_fail(options->program, "out of memory");
		return;
	}
	list = list_make(options);
	if (list == NULL)
		option_fail(options->program, "out of memory");
	(void)printf("usage: %s %s\n\n%s", options->program, options->usage, options->about);
	if (options->operations != NULL)
		names_print("OP", options->operations);
	if (options->others != NULL)
		names_print("Commands of their own (COMMAND --help)", options->others);
	for (uint32_t i = 0; options->algorithms && options->operations[i] != NULL; i++)
		algorithms_print(options->operations[i]);
	(void)printf("\n%s%s", strchr(list, '\n') + 1,
		     options->notes != NULL ? options->notes : ""); /* Without popt's own usage. */
	free(list);
}
