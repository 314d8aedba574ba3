/* standard.h -- the three standard descriptors: any of them may be closed, or lead to where nothing
 * can be written. */
#ifndef PROGRAMS_STANDARD_H
#define PROGRAMS_STANDARD_H

#include <stdbool.h>
#include <stddef.h>

/* Takes the place of those that are closed, so that no file or socket gets their numbers: what is
 * written to standard output then fails, what is written to standard error is lost. */
void standard_open(void);
/* At the end of a program: whether all that was printed to standard output has been written; else
 * `text` says that it was not. */
bool standard_flush(char *text, size_t text_bytes);
/* Likewise; says it in a line on standard error. */
bool standard_written(const char *program);

#endif
