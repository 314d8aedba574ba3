/*
 * fake_foreign.c -- see fake_cuda.h: what UCX's modules for CUDA call beyond what we do. They have
 * memory that is mapped by hand and pools looked at first, which this driver has not.
 */
#include <dlfcn.h>
#include <string.h>

#include "tests/cuda/fake/fake_inside.h"

/* ---- Devices and contexts ---- */

EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
	ENTER();
	context = context != NULL ? context : fake_current();
	if (context == NULL)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	*id = (unsigned long long)fake_device(context) + 1;
	return fake_leave(CUDA_SUCCESS);
}

/* UCX calls it by its first name, which cuda.h hides. */
#undef cuDeviceGetUuid
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	ENTER();
	memset(uuid, 0, sizeof(*uuid));
	uuid->bytes[0] = (char)(device + 1);
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	ENTER();
	if (device < 0 || device >= FAKE_CUDA_DEVICES)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*flags = 0;
	*active = fake.contexts[device].retained > 0;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	(void)device;
	ENTER();
	*bytes = DEVICE_BYTES;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
				    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	(void)version, (void)flags;
	*function = dlsym(RTLD_DEFAULT, symbol);
	if (*function == NULL) {
		void *own = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);

		*function = own != NULL ? dlsym(own, symbol) : NULL;
		if (own != NULL)
			(void)dlclose(own);
	}
	if (status != NULL)
		*status = *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
					    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- Memory ---- */

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr memory)
{
	const struct allocation *a;

	ENTER_CONTEXT();
	a = fake_find((void *)(uintptr_t)memory, 1);
	if (a == NULL)
		return fake_leave(CUDA_ERROR_NOT_FOUND);
	if (base != NULL)
		*base = (CUdeviceptr)(uintptr_t)a->base;
	if (bytes != NULL)
		*bytes = a->bytes;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	(void)flags;
	ENTER_CONTEXT();
	if (memory == NULL || bytes == 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (fake_find(memory, 1) != NULL)
		return fake_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	fake_allocation_add(memory, memory, bytes, REGISTERED);
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemHostUnregister(void *memory)
{
	struct allocation *a;

	ENTER();
	a = fake_find(memory, 1);
	if (a == NULL || a->base != memory || a->what != REGISTERED)
		return fake_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	fake_allocation_remove(a);
	return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr memory)
{
	CUresult result;

	ENTER();
	if (fake_find((void *)(uintptr_t)memory, 1) == NULL)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	result = fake_attribute(data, attribute, memory);
	return fake_leave(result);
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
				      CUdeviceptr memory)
{
	(void)value;
	ENTER();
	return fake_leave(fake_find((void *)(uintptr_t)memory, 1) != NULL &&
					  attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
				  ? CUDA_SUCCESS
				  : CUDA_ERROR_INVALID_VALUE);
}

/* ---- What there is not ---- */

/* Memory of pools, and that is mapped by hand: under names of their own, as they take nothing. */
#define ABSENT(name, result)                                                                       \
	EXPORT CUresult absent_##name(void) __asm__(#name);                                        \
	CUresult absent_##name(void)                                                               \
	{                                                                                          \
		ENTER();                                                                           \
		return fake_leave(result);                                                         \
	}
ABSENT(cuMemRetainAllocationHandle, CUDA_ERROR_INVALID_VALUE)
ABSENT(cuMemRangeGetAttribute, CUDA_ERROR_INVALID_VALUE)
ABSENT(cuMemGetAllocationGranularity, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemGetAllocationPropertiesFromHandle, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemAddressReserve, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemAddressFree, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemCreate, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemRelease, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemMap, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemUnmap, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemSetAccess, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemExportToShareableHandle, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemImportFromShareableHandle, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemPoolDestroy, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemPoolSetAccess, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemPoolExportPointer, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemPoolExportToShareableHandle, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemPoolImportPointer, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemPoolImportFromShareableHandle, CUDA_ERROR_NOT_SUPPORTED)
ABSENT(cuMemcpyHtoD_v2, CUDA_ERROR_NOT_SUPPORTED)
