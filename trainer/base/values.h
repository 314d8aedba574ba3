/* values.h -- the values of options. `name`: the option, for the text; every refusal is a mistake
 * of the command line. */
#ifndef TR_VALUES_H
#define TR_VALUES_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/base/error.h"

#define TR_CHOICES_MAX 16 /* Of an option, with the NULL. */
#define TR_CHOICES_BYTES 256

/* A whole number from least to most; a number from least to most. */
rubato_status tr_parse_count(const char *name, const char *text, uint64_t least, uint64_t most,
			     uint64_t *out, struct tr_error *error);
rubato_status tr_parse_number(const char *name, const char *text, double least, double most,
			      double *out, struct tr_error *error);
/*
 * Which of `choices` (NULL-terminated; --help shows the same) the text is. "quorum:K" takes quorum:
 * and a value, "each[:D]" may stand alone. *value: that, or NULL.
 */
rubato_status tr_parse_choice(const char *name, const char *text, const char *const *choices,
			      unsigned *index, const char **value, struct tr_error *error);
/* "a, b, c"; returns text. */
char *tr_choices_join(const char *const *choices, char *text, size_t text_bytes);
/* 4096, 256K, 1M, 2G (binary); 250us, 1.5ms, 30s (above 0); 800Mbit, 10Gbit, 12.5GB/s, in bytes a
 * second. */
rubato_status tr_parse_bytes(const char *name, const char *text, uint64_t *out,
			     struct tr_error *error);
rubato_status tr_parse_time(const char *name, const char *text, uint64_t *out_ns,
			    struct tr_error *error);
rubato_status tr_parse_bandwidth(const char *name, const char *text, double *out,
				 struct tr_error *error);

#endif
