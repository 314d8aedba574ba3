/*
 * values.h -- the values of options, from text: numbers, sizes, times, bandwidths, choices.
 *
 * `option` is what the sentence calls it ("--skew rank:"). Each returns false with one sentence
 * that says what the option takes and what it was given; *out is then as it was.
 */
#ifndef PROGRAMS_VALUES_H
#define PROGRAMS_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct option_error {
	char text[640]; /* One line without its end. */
};

/* Writes the sentence; false, for the caller to return. Control characters become '?'. */
bool option_refuse(struct option_error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Digits only: no sign, no blanks. */
bool value_count(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out,
		 struct option_error *error);
bool value_count32(const char *option, const char *text, uint32_t least, uint32_t most,
		   uint32_t *out, struct option_error *error);
/* Several of them, "4,4,2": at most `room`, the first into out[0]; *count: how many. */
bool value_counts32(const char *option, const char *text, uint32_t least, uint32_t most,
		    uint32_t *out, uint32_t room, uint32_t *count, struct option_error *error);
/* Any finite number, as strtod reads it. */
bool value_real(const char *option, const char *text, double least, double most, double *out,
		struct option_error *error);
/* 4096, 256K, 1M, 2G: binary. */
bool value_bytes(const char *option, const char *text, uint64_t *out, struct option_error *error);
/* 250us, 1.5ms, 30s, in ns; 0 where `least_ns` is. */
bool value_time(const char *option, const char *text, uint64_t least_ns, uint64_t *out_ns,
		struct option_error *error);
/* 800Mbit, 10Gbit, 12.5GB/s, in bytes a second; above 0. */
bool value_bandwidth(const char *option, const char *text, double *out, struct option_error *error);

/*
 * Which of `forms` (NULL-terminated; --help shows the same) the text is: "linear:T" takes linear:
 * and a value, "each[:D]" may stand alone. *value: what is behind the colon, or NULL.
 */
bool value_choice(const char *option, const char *text, const char *const *forms, uint32_t *index,
		  const char **value, struct option_error *error);
/* "a, b, c", cut where there is no room. Returns text. */
char *value_forms_join(const char *const *forms, char *text, size_t text_bytes);
#define VALUE_FORMS_BYTES 512 /* Of all of an option. */

#endif
