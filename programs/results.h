/* results.h -- what jansson leaves to the writer of --json FILE and --csv FILE. "-" is standard
 * output. */
#ifndef PROGRAMS_RESULTS_H
#define PROGRAMS_RESULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Ends `program` with a sentence, and status 2, where both options name one file ("": none). */
void results_apart(const char *program, const char *json, const char *csv);

/* Ends `program` with a sentence, and status 2, where results_write() cannot be expected to work;
 * asked before the work is done. `option` has said `path`; empty: nothing is to be written. */
void results_check(const char *program, const char *option, const char *path);
/* Writes beside and renames, so that nobody sees half of it (devices, pipes and links are written
 * as they are), and lets go of `root`. false: not everything could be written; errno says why. */
bool results_write(const char *path, json_t *root);
/* An array of objects as lines of values with commas between, below a line of names. Names with a
 * dot are of members of members; what an object lacks stays empty. `rows` stays the caller's. */
bool results_csv(const char *path, json_t *rows, const char *const *names);

/* null where it is no UTF-8: what others have named need not be. */
json_t *results_text(const char *text);
/* jansson's integers have a sign: one beyond them is written as text. */
json_t *results_whole(uint64_t number);
json_t *results_real(double number); /* null unless finite. */

#endif
