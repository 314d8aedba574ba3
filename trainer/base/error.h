/*
 * error.h -- how the trainer's functions fail: who first knows which error it is writes the
 * sentence into it and returns a status; everyone above passes the status on. main() prints the one
 * line.
 */
#ifndef TR_ERROR_H
#define TR_ERROR_H

#include "programs/values.h"
#include "rubato.h"

#define TR_EXIT_FAILURE 1
#define TR_EXIT_USAGE 2 /* A bad option or value: the command-line contract. */

struct tr_error {
	char text[640]; /* One line without its end; empty: another rank says it. */
	int exit_code;
	bool shared; /* All ranks know of the failure, and leave together. */
};

/* A failure of the run: exit status 1. Control characters of the arguments become '?'. */
rubato_status tr_fail(struct tr_error *error, rubato_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A mistake of the command line: RUBATO_ERR_ARGUMENT, exit status 2. */
rubato_status tr_refuse(struct tr_error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same, in the words of what read an option; `good`: RUBATO_OK. */
rubato_status tr_take(struct tr_error *error, bool good, const struct option_error *said);
/* Writes the sentence to `fd`, once, in one piece, so that lines of several ranks do not mix. */
void tr_error_print(struct tr_error *error, int fd);
/* A file's name into `path`. Errors: ARGUMENT, when it is too long. */
#define TR_PATH_BYTES 4200
rubato_status tr_path(char path[TR_PATH_BYTES], struct tr_error *error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Passes on what the library said; `what` names the call. RUBATO_OK stays RUBATO_OK. */
rubato_status tr_check(struct tr_error *error, rubato_status status, const char *what);

#define TR_TRY(expr)                                                                               \
	do {                                                                                       \
		rubato_status try_err_ = (expr);                                                   \
		if (try_err_ != RUBATO_OK)                                                         \
			return try_err_;                                                           \
	} while (0)

#endif
