/*
 * verbs_load.c -- libibverbs as a guest: loaded when a job needs it, by the names of its functions.
 *
 * One build runs with and without it. It is not unloaded: its providers are not made for that. What
 * verbs.h has inline goes through a context's table, and needs nothing of it.
 */
#include <dlfcn.h>

#include "transport/verbs/verbs_load.h"

#define LIBRARY "libibverbs.so.1"
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

rubato_status rb_verbs_library_load(const char *name, const struct rb_verbs_symbol *symbols,
				    size_t count)
{
	void *library = dlopen(name, FLAGS);

	if (library == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "%s cannot be loaded: %s", name, dlerror());
	for (size_t i = 0; i < count; i++) {
		*symbols[i].at = dlsym(library, symbols[i].name);
		if (*symbols[i].at == NULL)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "%s on this machine has no %s", name,
				       symbols[i].name);
	}
	return RUBATO_OK;
}

rubato_status rb_verbs_load(struct rb_verbs_api *api)
{
	void *library;
#define FUNCTION(name) { #name, (void **)(void *)&api->name },
	const struct rb_verbs_symbol needed[] = { RB_VERBS_FUNCTIONS(FUNCTION) },
				     newer[] = { RB_VERBS_FUNCTIONS_NEWER(FUNCTION) };
#undef FUNCTION

	RB_TRY(rb_verbs_library_load(LIBRARY, needed, sizeof(needed) / sizeof(needed[0])));
	library = dlopen(LIBRARY, FLAGS);
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		*newer[i].at = dlsym(library, newer[i].name);
	/* Else the pages of a process that forks are no more those that the device has. */
	if (api->ibv_fork_init != NULL)
		(void)api->ibv_fork_init();
	return RUBATO_OK;
}
