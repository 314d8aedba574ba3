/* own.c -- see own.h. */
#include "tests/trainer/own.h"

#include "tests/check_main.h"

void *own_place(const struct tr_rule *rule, struct tr_rule_options *own, const char *name,
		size_t size_bytes)
{
	static uint64_t nowhere[4];
	const struct option *row = NULL;
	void *place, *other;

	for (size_t i = 0; row == NULL && tr_rule_at(i) != NULL; i++)
		row = tr_rule_option(tr_rule_at(i), own, name, &other);
	ck_assert_msg(row != NULL, "no rule has --%s", name);
	ck_assert_uint_eq(options_size(row), size_bytes);
	return tr_rule_option(rule, own, name, &place) == NULL ? nowhere : place;
}
