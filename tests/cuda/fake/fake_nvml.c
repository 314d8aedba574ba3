/*
 * fake_nvml.c -- a libnvidia-ml.so.1 that knows of no links between devices: UCX needs one to load
 * its modules for CUDA, and asks it how devices are joined.
 */
#define EXPORT __attribute__((visibility("default")))
#define NOT_SUPPORTED 3 /* NVML_ERROR_NOT_SUPPORTED */

EXPORT const char *nvmlErrorString(int result);
EXPORT int nvmlInit_v2(void);

const char *nvmlErrorString(int result)
{
	return result == 0 ? "Success" : "Not Supported";
}

int nvmlInit_v2(void)
{
	return NOT_SUPPORTED;
}
