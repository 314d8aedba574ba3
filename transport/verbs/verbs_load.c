/*
 * verbs_load.c -- libibverbs as a guest: loaded when a job needs it, by the names of its functions.
 *
 * One build runs with and without it. It is not unloaded: its providers are not made for that. What
 * verbs.h has inline goes through a context's table, and needs nothing of it.
 */
#include <dlfcn.h>

#include "transport/verbs/verbs.h"

#define LIBRARY "libibverbs.so.1"
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

rubato_status rb_verbs_load(struct rb_verbs_api *api)
{
	void *library = dlopen(LIBRARY, FLAGS);
#define FUNCTION(name) { #name, (void **)(void *)&api->name },
	const struct {
		const char *name;
		void **at;
	} needed[] = { RB_VERBS_FUNCTIONS(FUNCTION) },
	  newer[] = { RB_VERBS_FUNCTIONS_NEWER(FUNCTION) };
#undef FUNCTION

	if (library == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "libibverbs cannot be loaded: %s",
			       dlerror());
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		*needed[i].at = dlsym(library, needed[i].name);
		if (*needed[i].at == NULL)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "libibverbs on this machine has no %s", needed[i].name);
	}
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		*newer[i].at = dlsym(library, newer[i].name);
	/* Else the pages of a process that forks are no more those that the device has. */
	if (api->ibv_fork_init != NULL)
		(void)api->ibv_fork_init();
	return RUBATO_OK;
}
