/*
 * options_manual.c -- the tables as a manual page, and as what bash completes: `--help=man` and
 * `--help=bash`, which the build asks of each program. Nothing is said there that --help does not
 * say, and nothing has to be written twice.
 */
#include "programs/options_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato.h"

/* ---- roff ---- */

/* A line that begins with a dot or a quote would be a request, and a dash is no minus. */
static void roff_text(const char *text, bool line_begins)
{
	for (const char *at = text; *at != '\0'; at++) {
		if (line_begins && (*at == '.' || *at == '\''))
			(void)printf("\\&");
		line_begins = *at == '\n';
		if (*at == '\\')
			(void)printf("\\e");
		else if (*at == '-')
			(void)printf("\\-");
		else
			(void)putchar(*at);
	}
}

/* Paragraphs, and lines that are indented as they are. */
static void roff_paragraphs(const char *text)
{
	bool as_is = false;

	for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
		int length = (int)strcspn(at, "\n");
		char line[512];

		(void)snprintf(line, sizeof(line), "%.*s", length, at);
		if (length == 0 || (line[0] == ' ') != as_is)
			(void)printf("%s", as_is ? ".EE\n" : "");
		if (length == 0 || (line[0] != ' ' && as_is))
			as_is = false;
		if (length == 0) {
			(void)printf(".PP\n");
			continue;
		}
		if (line[0] == ' ' && !as_is) {
			(void)printf(".EX\n");
			as_is = true;
		}
		roff_text(line, true);
		(void)putchar('\n');
	}
	(void)printf("%s", as_is ? ".EE\n" : "");
}

static void roff_names(const char *title, const char *const *names)
{
	(void)printf(".PP\n");
	roff_text(title, true);
	(void)printf(":\n");
	for (; *names != NULL; names++) {
		roff_text(*names, true);
		(void)printf("%s\n", names[1] != NULL ? "," : "");
	}
}

static void roff_option(const struct option *row, const char *help)
{
	(void)printf(".TP\n");
	if (row->letter != 0)
		(void)printf("\\fB\\-%c\\fR, ", row->letter);
	(void)printf("\\fB\\-\\-");
	roff_text(row->name, false);
	(void)printf("\\fR");
	if (row->kind != OPTION_FLAG) {
		(void)printf("=\\fI");
		roff_text(row->value != NULL ? row->value : "VALUE", false);
		(void)printf("\\fR");
	}
	(void)putchar('\n');
	roff_text(help, true);
	(void)putchar('\n');
}

static void roff_algorithms(const char *operation)
{
	const char *names[OPTIONS_ALGORITHMS_MAX + 1];
	char title[64];

	if (!options_algorithms(operation, names))
		return;
	(void)snprintf(title, sizeof(title), "Algorithms of %s", operation);
	roff_names(title, names);
}

/* What it does, on the one line that whatis reads. */
static void roff_clause(const char *text)
{
	char line[256];

	(void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, ".:;"), text);
	for (char *at = line; *at != '\0'; at++)
		if (*at == '\n')
			*at = ' ';
	roff_text(line, false);
	(void)putchar('\n');
}

static void man_print(const struct options *options, const struct popt_rows *rows)
{
	uint32_t at = 0;

	(void)printf(".TH %s 1 \"\" \"rubato %s\" \"Rubato\"\n.SH NAME\n%s \\- ", options->program,
		     rubato_version(), options->program);
	roff_clause(options->about);
	(void)printf(".SH SYNOPSIS\n.B %s\n", options->program);
	roff_text(options->usage, true);
	(void)printf("\n.SH DESCRIPTION\n");
	roff_paragraphs(options->about);
	if (options->operations != NULL)
		roff_names("OP", options->operations);
	if (options->others != NULL)
		roff_names("Commands of their own, each with a --help", options->others);
	for (uint32_t i = 0; options->algorithms && options->operations[i] != NULL; i++)
		roff_algorithms(options->operations[i]);
	(void)printf(".SH OPTIONS\n");
	for (const struct option_table *t = options->tables; t->rows != NULL; t++) {
		if (t->title != NULL) {
			(void)printf(".SS ");
			roff_text(t->title, false);
			(void)putchar('\n');
		}
		for (const struct option *row = t->rows; row->name != NULL; row++, at++)
			if (rows->helps[at] != NULL)
				roff_option(row, rows->helps[at]);
	}
	if (options->notes[0] != '\0') {
		(void)printf(".SH NOTES\n");
		roff_paragraphs(options->notes);
	}
}

/* ---- bash ---- */

static void words_print(const char *const *words)
{
	for (; words != NULL && *words != NULL; words++)
		(void)printf(" %.*s", (int)strcspn(*words, ":["), *words);
}

/* After an option: its words, or a file. Elsewhere options, or what OP may be. */
static void bash_print(const struct options *options)
{
	(void)printf("# What bash completes after %s; made from its options.\n_%s()\n{\n"
		     "\tlocal now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
		     "\tif [[ $now == = ]]; then\n\t\tnow=\n"
		     "\telif [[ $before == = ]]; then\n"
		     "\t\tbefore=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n\tcase $before in\n",
		     options->program, options->program);
	for (const struct option_table *t = options->tables; t->rows != NULL; t++)
		for (const struct option *row = t->rows; row->name != NULL; row++) {
			if (row->help == NULL || options_forms(row) == NULL)
				continue;
			(void)printf("\t--%s", row->name);
			if (row->letter != 0)
				(void)printf(" | -%c", row->letter);
			(void)printf(") COMPREPLY=($(compgen -W '");
			words_print(options_forms(row));
			(void)printf("' -- \"$now\")) && return ;;\n");
		}
	(void)printf("\tesac\n\tcase $now in\n\t-*) COMPREPLY=($(compgen -W '");
	for (const struct option_table *t = options->tables; t->rows != NULL; t++)
		for (const struct option *row = t->rows; row->name != NULL; row++)
			if (row->help != NULL)
				(void)printf(" --%s", row->name);
	(void)printf(" --help --version' -- \"$now\")) ;;\n\t*) COMPREPLY=($(compgen -W '");
	words_print(options->operations);
	words_print(options->others);
	(void)printf("' -- \"$now\")) ;;\n\tesac\n}\n"
		     "complete -o default -F _%s %s\n",
		     options->program, options->program);
}

bool options_manual(const struct options *options, const char *form)
{
	struct popt_rows rows;

	if (strcmp(form, "bash") == 0) {
		bash_print(options);
		return true;
	}
	if (!popt_rows_make(&rows, options))
		return false;
	man_print(options, &rows);
	popt_rows_free(&rows);
	return true;
}
