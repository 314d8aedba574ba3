/* partial_forms.h -- the words of rubato_partial_options, each list in the order of its enum; the
 * policies' are rubato_policy_forms(). */
#ifndef PROGRAMS_PARTIAL_FORMS_H
#define PROGRAMS_PARTIAL_FORMS_H

#include "rubato.h"

/* NULL-terminated, for value_choice(). */
extern const char *const partial_rounds[], *const partial_lates[], *const partial_normalises[];
extern const char *const partial_collections[]; /* Behind the colon: how many results are kept. */

#endif
