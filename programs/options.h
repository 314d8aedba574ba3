/*
 * options.h -- the command line of a tool as a table; popt reads the words.
 *
 * Long options take their value as the next word or after '='. A bad option or value is one line on
 * standard error and exit status 2, always by way of option_fail(). --help and --version are there
 * without being in the table.
 */
#ifndef PROGRAMS_OPTIONS_H
#define PROGRAMS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define EXIT_USAGE 2 /* A bad option or value. */

enum option_kind {
	OPTION_FLAG,      /* bool; takes no value. */
	OPTION_TEXT,      /* char[max], not empty. */
	OPTION_U32,       /* uint32_t from min to max. */
	OPTION_U64,       /* uint64_t from min to max. */
	OPTION_BYTES,     /* uint64_t, at least min: K, M, G. */
	OPTION_TIME,      /* uint64_t in ns, at least min: us, ms, s. */
	OPTION_BANDWIDTH, /* double in bytes a second: Mbit, Gbit, GB/s. */
	OPTION_CHOICE,    /* uint32_t: which of names. */
	OPTION_OTHER,     /* What read() makes of it. */
};

struct option {
	const char *name;
	char letter; /* 0: none. */
	enum option_kind kind;
	void *to;
	const char *value; /* What --help calls it. */
	const char *help;  /* NULL: --help does not show this option. %s in it: the names. */
	uint64_t min, max;
	const char *const *names; /* NULL-terminated; what option_word() takes. */
	void (*read)(const char *text, void *to);
};

struct options {
	const char *program;
	const char *usage;             /* After the program's name. */
	const char *about, *notes;     /* Above and below the list of options. */
	const struct option *rows;     /* The last has no name. */
	const char *const *operations; /* What the one word may be; NULL: there is none, or */
	bool command;                  /* the first word begins a command and ends the options. */
	const char *const *others;     /* In place of OP: commands with a help of their own. */
	bool algorithms;               /* --help names those of each operation, too. */
};

/* Returns which operation it is, or where in argv the command begins (argc: nowhere). */
uint32_t options_read(const struct options *options, int argc, char **argv);

/* Prints "program: sentence" and exits with EXIT_USAGE. */
_Noreturn void option_fail(const char *program, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Values; each fails with the option's name, the text and what it takes. */
uint64_t option_number(const char *program, const char *option, const char *text, uint64_t min,
		       uint64_t max);
uint64_t option_time_ns(const char *program, const char *option, const char *text);

/*
 * Which of `names` (NULL-terminated) the text is, as one of them or as a list of values begins:
 * "linear:T" takes linear: and a value, "each[:D]" may stand alone. *rest: the value, or NULL.
 * Fails with all of them: --help shows the same.
 */
uint32_t option_word(const char *program, const char *option, const char *text,
		     const char *const *names, const char **rest);

/* "auto", "all" if that is allowed, or the library's own name of an algorithm of `operation`. */
const char *option_algorithm(const char *program, const char *operation, const char *text,
			     bool all);

#endif
