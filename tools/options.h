/*
 * options.h -- what the tools have in common on the command line.
 *
 * Long options take their value as the next word or after '='. A bad option or value is one line on
 * standard error and exit status 2, always by way of option_fail().
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#define EXIT_USAGE 2 /* A bad option or value. */

/* Prints "program: sentence" and exits with EXIT_USAGE. */
_Noreturn void option_fail(const char *program, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* getopt_long with our own words for its two errors; -1 at the end. `shorts` must begin with "+:"
 * or
 * ":". */
int option_next(const char *program, int argc, char **argv, const char *shorts,
		const struct option *longs);

/* Values; each fails with the option's name, the text and what it takes. */
uint64_t option_number(const char *program, const char *option, const char *text, uint64_t min,
		       uint64_t max);
uint64_t option_bytes(const char *program, const char *option, const char *text);   /* K, M, G. */
uint64_t option_time_ns(const char *program, const char *option, const char *text); /* us, ms, s. */
/* Index of `text` in the NULL-terminated `names`. */
uint32_t option_choice(const char *program, const char *option, const char *text,
		       const char *const *names);

#endif
