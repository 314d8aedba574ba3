/* main.c -- all groups of tests against this program's backend. */
#include "conformance.h"

#define TEST_SECONDS 120 /* Check's own net, above the suite's deadline. */

int main(void)
{
	TCase *cases[] = {
		conform_message_case(), conform_memory_case(),  conform_cancel_case(),
		conform_sleep_case(),   conform_failure_case(), conform_leaving_case(),
		conform_now_case(),
	};
	Suite *suite = suite_create(conform_backend.name);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tcase_set_timeout(cases[i], TEST_SECONDS);
		suite_add_tcase(suite, cases[i]);
	}
	return check_suite(suite);
}
