/* rule.c -- the rules of this version, by name. */
#include "trainer/rule.h"

#include <string.h>

static const struct tr_rule *const rules[] = {
	&tr_rule_sync,     &tr_rule_laga,   &tr_rule_kavg,  &tr_rule_hier,
	&tr_rule_periodic, &tr_rule_adpsgd, &tr_rule_local, &tr_rule_eager,
};

const struct tr_rule *tr_rule_find(const char *name)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (strcmp(rules[i]->name, name) == 0)
			return rules[i];
	return NULL;
}
