/* driver.c -- see driver.h. */
#include "cuda/driver.h"

#include <dlfcn.h>

#define LIBRARY "libcuda.so.1"
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) /* It is not made for being unloaded. */

/* cuda.h's macros name the version of a function: that is the symbol. */
#define TEXT_OF(name) #name
#define SYMBOL(name) TEXT_OF(name)

rubato_status rb_cuda_failed(const struct rb_cuda_driver *cuda, const char *call, CUresult result)
{
	const char *name = NULL, *text = NULL;
	rubato_status status = RUBATO_ERR_SYSTEM;

	(void)cuda->p_cuGetErrorName(result, &name);
	(void)cuda->p_cuGetErrorString(result, &text);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		status = RUBATO_ERR_MEMORY;
	if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_NOT_SUPPORTED ||
	    result == CUDA_ERROR_NO_BINARY_FOR_GPU)
		status = RUBATO_ERR_UNSUPPORTED;
	return RB_FAIL(status, "%s: %s (%s)", call, name != NULL ? name : "unknown error",
		       text != NULL ? text : "the driver does not say more");
}

rubato_status rb_cuda_driver_open(bool load, struct rb_cuda_driver *functions, bool *open)
{
	const struct {
		const char *name;
		void **at;
		bool perhaps;
	} symbols[] = {
#define FUNCTION(name) { SYMBOL(name), (void **)(void *)&functions->p_##name, false },
#define PERHAPS(name) { SYMBOL(name), (void **)(void *)&functions->p_##name, true },
		RB_CUDA_FUNCTIONS(FUNCTION) RB_CUDA_FUNCTIONS_PERHAPS(PERHAPS)
#undef PERHAPS
#undef FUNCTION
	};
	void *library = dlopen(LIBRARY, load ? FLAGS : FLAGS | RTLD_NOLOAD);

	*open = false;
	if (library == NULL && !load)
		return RUBATO_OK;
	if (library == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "CUDA: %s cannot be loaded: %s", LIBRARY,
			       dlerror());
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].at = dlsym(library, symbols[i].name);
		if (*symbols[i].at == NULL && !symbols[i].perhaps)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "CUDA: the driver on this machine has no %s: it is too old",
				       symbols[i].name);
	}
	RB_CUDA_TRY(functions, cuInit, 0);
	*open = true;
	return RUBATO_OK;
}
