/* rule.c -- the rules of this version. */
#include "trainer/rules/rule.h"

#include <stddef.h>

static const struct tr_rule *const rules[] = {
	&tr_rule_sync,     &tr_rule_laga,   &tr_rule_kavg,  &tr_rule_hier,
	&tr_rule_periodic, &tr_rule_adpsgd, &tr_rule_local, &tr_rule_eager,
};

const struct tr_rule *tr_rule_at(size_t index)
{
	return index < sizeof(rules) / sizeof(rules[0]) ? rules[index] : NULL;
}
