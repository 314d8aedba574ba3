/* driver.c -- see driver.h. */
#include "trainer/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) /* None is made for being unloaded. */

rubato_status tr_cuda_load(const char *const *libraries, const struct tr_cuda_symbol *symbols,
			   size_t symbol_count, struct tr_error *error)
{
	char why[256] = "";
	void *library = NULL;

	for (size_t i = 0; library == NULL && libraries[i] != NULL; i++) {
		library = dlopen(libraries[i], FLAGS);
		if (library == NULL && i == 0) /* The newest is the one to install. */
			(void)snprintf(why, sizeof(why), "%s", dlerror());
	}
	if (library == NULL)
		return tr_fail(error, RUBATO_ERR_UNSUPPORTED, "--device cuda: cannot load %s", why);
	for (size_t i = 0; i < symbol_count; i++) {
		*symbols[i].at = dlsym(library, symbols[i].name);
		if (*symbols[i].at == NULL)
			return tr_fail(error, RUBATO_ERR_UNSUPPORTED,
				       "--device cuda: this machine's %s has no %s", libraries[0],
				       symbols[i].name);
	}
	return RUBATO_OK;
}

rubato_status tr_cuda_failed(const struct tr_cuda_driver *driver, const char *call, CUresult result,
			     struct tr_error *error)
{
	const char *name = NULL, *text = NULL;

	(void)driver->p_cuGetErrorName(result, &name);
	(void)driver->p_cuGetErrorString(result, &text);
	return tr_fail(error,
		       result == CUDA_ERROR_OUT_OF_MEMORY ? RUBATO_ERR_MEMORY : RUBATO_ERR_SYSTEM,
		       "--device cuda: %s: %s (%s)", call, name != NULL ? name : "unknown error",
		       text != NULL ? text : "the driver does not say more");
}

rubato_status tr_cuda_driver_open(struct tr_cuda_driver *driver, struct tr_error *error)
{
	static const char *const libraries[] = { "libcuda.so.1", NULL };
	const struct tr_cuda_symbol symbols[] = {
#define SYMBOL(name) { TR_CUDA_NAME(name), (void **)(void *)&driver->p_##name },
		TR_CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};

	TR_TRY(tr_cuda_load(libraries, symbols, sizeof(symbols) / sizeof(symbols[0]), error));
	TR_CUDA_TRY(driver, error, cuInit, 0);
	return RUBATO_OK;
}
