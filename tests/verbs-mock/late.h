/*
 * late.h -- the mock's own functions, for a program that links no libibverbs: the transport loads
 * the mock in its place, and these are looked up there by name.
 */
#ifndef RB_VERBS_MOCK_LATE_H
#define RB_VERBS_MOCK_LATE_H

#include <dlfcn.h>
#include <stddef.h>

#include "tests/check_main.h"

struct mock_symbol {
	const char *name;
	void **at;
};

static inline void mock_symbols_find(const struct mock_symbol *symbols, size_t count)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);

	for (size_t i = 0; i < count; i++) {
		*symbols[i].at = library != NULL ? dlsym(library, symbols[i].name) : NULL;
		if (*symbols[i].at == NULL)
			ck_abort_msg("the mock of libibverbs is not what is found");
	}
}

#endif
