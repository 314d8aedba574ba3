/* options_inside.h -- rows as popt wants them, with their help in words; inside options*.c. */
#ifndef PROGRAMS_OPTIONS_INSIDE_H
#define PROGRAMS_OPTIONS_INSIDE_H

#include <popt.h>

#include "programs/options.h"

enum { POPT_HELP = 1 << 20, POPT_VERSION };

struct popt_rows {
	struct poptOption *table;   /* What poptGetContext() takes: tables with a title first. */
	struct poptOption *nested;  /* Rows of those. */
	const struct option **rows; /* By popt's value less 1. */
	char **helps;
	uint32_t count;
};

/* False: no memory. */
bool popt_rows_make(struct popt_rows *rows, const struct options *options);
void popt_rows_free(struct popt_rows *rows);

#define OPTIONS_ALGORITHMS_MAX 32
/* Their names, then NULL. False: there are no two to choose among. */
bool options_algorithms(const char *operation, const char *names[OPTIONS_ALGORITHMS_MAX + 1]);
/* Prints "man" or "bash". False: no memory. */
bool options_manual(const struct options *options, const char *form);

#endif
