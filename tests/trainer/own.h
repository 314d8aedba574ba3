/* own.h -- the options of an update rule, set by a test that runs the rule alone. */
#ifndef TESTS_TRAINER_OWN_H
#define TESTS_TRAINER_OWN_H

#include "trainer/rules/rule.h"

/* Where the option lands, of this size; for one of other rules a place that nobody reads. */
void *own_place(const struct tr_rule *rule, struct tr_rule_options *own, const char *name,
		size_t size_bytes);
/* `of`: a struct with the members rule and own. */
#define OWN(of, type, name) (*(type *)own_place((of)->rule, (of)->own, name, sizeof(type)))

#endif
