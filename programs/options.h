/*
 * options.h -- the command line of a program as tables of rows: what --help shows, what parses,
 * where it lands and what the files of a run say of it come from the same rows.
 *
 * A row's place is an offset into the program's own struct, so rows can be static and const. A
 * program with little to judge calls options_read(), which ends it where something is wrong. Others
 * (rubato-train, whose options depend on each other) take the words first and apply tables one by
 * one:
 *
 *   options_scan()      what was given, in the order of the command line: names are known, values
 *                       not yet looked at
 *   options_given()     whether one was; options_text(): its value as it was given
 *   options_default()   what a table's rows are where nothing is given
 *   options_apply()     the given values of a table's rows; perhaps not those that
 *                       were scanned, but of their names
 *
 * Long options take their value as the next word or after '='; --help and --version are there
 * without a row, and so are --help=man and --help=bash, of which the build makes files. Failures
 * are one sentence in struct option_error (values.h).
 */
#ifndef PROGRAMS_OPTIONS_H
#define PROGRAMS_OPTIONS_H

#include "programs/values.h"

#define EXIT_USAGE 2 /* A bad option or value. */

struct json_t; /* jansson's. */

enum option_kind {
	OPTION_FLAG,      /* bool; takes no value. */
	OPTION_TEXT,      /* char[max], not empty. */
	OPTION_STRING,    /* const char *, as given; lives as long as the words, or argv. */
	OPTION_U32,       /* uint32_t from min to max, or `word`. */
	OPTION_U64,       /* uint64_t from min to max, or `word`. */
	OPTION_REAL,      /* double from least to most. */
	OPTION_BYTES,     /* uint64_t, at least min: K, M, G. */
	OPTION_TIME,      /* uint64_t in ns, at least min, at most max (0: any): us, ms, s. */
	OPTION_BANDWIDTH, /* double in bytes a second: Mbit, Gbit, GB/s. */
	OPTION_CHOICE,    /* uint32_t, or an enum: which of the forms. */
	OPTION_OTHER,     /* What read() makes of it. */
};

struct option {
	const char *name;
	char letter; /* 0: none. */
	enum option_kind kind;
	size_t at;         /* Offset of its place. */
	const char *value; /* What --help calls it. */
	/* %s in it: the forms, joined. NULL: --help does not show this option. */
	const char *help;
	const char *preset; /* Its default, as one would give it; --help ends with it: "(8)". */
	uint64_t min, max;
	double least, most;
	const char *word; /* Taken in place of a number, */
	uint64_t word_is; /* and what number that is. */
	/* NULL-terminated, as value_choice() takes them. What is not there as such: forms_of. */
	const char *const *forms;
	const char *const *(*forms_of)(void);
	/* OTHER. `option`: its name, for the sentence. */
	bool (*read)(const char *option, const char *text, void *to, struct option_error *error);
	size_t size; /* OTHER: bytes of its place, for options_size(). */
	/* Key of options_json(); NULL: it is not there. OTHER: the value that json() returns; under
	 * the key "" that is an object, whose members are. */
	const char *key;
	struct json_t *(*json)(const void *from);
};

struct option_table {
	const char *title;         /* NULL: none. */
	const struct option *rows; /* The last has no name. NULL: the last table. */
	void *to;                  /* What offsets count from, for options_read(). */
};

struct options {
	const char *program;
	const char *usage;                 /* After the program's name. */
	const char *about, *notes;         /* Above and below the list of options. */
	const struct option_table *tables; /* The last has no rows. */
	const char *const *operations;     /* What the one word may be; NULL: there is none, or */
	bool command;                      /* the first word begins a command and ends options. */
	char **word; /* Where one word besides goes, for free(); NULL: there may be none. */
	const char *const *others; /* In place of OP: commands with a help of their own. */
	bool algorithms;           /* --help names those of each operation, too. */
};

struct option_word { /* One that was given. */
	const struct option *row;
	char *text; /* NULL: it takes none. */
};

struct option_words {
	const struct options *options;
	struct option_word *list; /* In the order of the command line. */
	uint32_t count;
	bool help, version; /* Asked for; what follows that word was not looked at. */
	const char *form;   /* Of help: "man", "bash"; NULL: as --help. */
	/* Which operation, or where in argv the command begins (argc: nowhere). */
	uint32_t operation;
};

/* options_free() follows where it returns true. */
bool options_scan(const struct options *options, int argc, char *const *argv,
		  struct option_words *words, struct option_error *error);
void options_free(struct option_words *words); /* Of zeros is fine. */
/* `name` is one of the tables'. */
bool options_given(const struct option_words *words, const char *name);
/* As it was given, the last time it was; NULL: it was not. */
const char *options_text(const struct option_words *words, const char *name);

/* Presets into their places; rows without one are left as they are. */
bool options_default(const struct option *rows, void *to, struct option_error *error);
/* Reads `text` as the row says into `to`, the row's own place. */
bool option_read(const struct option *row, const char *text, void *to, struct option_error *error);
/* Those of `rows` that were given, by their names. */
bool options_apply(const struct option_words *words, const struct option *rows, void *to,
		   struct option_error *error);

/* Of a row's place. */
size_t options_size(const struct option *row);
/* What a row's value may be; NULL: it is no choice among words. */
const char *const *options_forms(const struct option *row);
/* An object of those rows of `from` that have a key; NULL: no memory. Times are in ns. */
struct json_t *options_json(const struct option *rows, const void *from);

/* To standard output; `form` as in struct option_words. */
void options_help(const struct options *options, const char *form);

/* All of the above, with the presets and the `to` of each table. --help and --version print and end
 * the program, and so does what is wrong. Returns words.operation; strings stay. */
uint32_t options_read(const struct options *options, int argc, char **argv);
/* Prints "program: sentence" and exits with EXIT_USAGE. */
_Noreturn void option_fail(const char *program, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* "auto", "all" if that is allowed, or the library's own name of an algorithm of `operation`. */
const char *option_algorithm(const char *program, const char *operation, const char *text,
			     bool all);
/* For forms_of: the library's names, and then "all". */
const char *const *option_types(void);
const char *const *option_types_or_all(void);
const char *const *option_operators(void);
const char *const *option_operators_or_all(void);

/* What a simulated network and its nodes cost (docs/simulator.md), of a rubato_sim_options: for all
 * programs that simulate. By --profile, too, which knows all of these names (network.c). */
#define NETWORK_ROWS 29
extern const struct option network_rows[NETWORK_ROWS]; /* The last has no name. */

#endif
