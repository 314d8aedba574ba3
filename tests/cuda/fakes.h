/* fakes.h -- the fake driver's control, for tests of the trainer. */
#ifndef RB_TESTS_FAKES_H
#define RB_TESTS_FAKES_H

#include <dlfcn.h>

#include "tests/check_main.h"
#include "tests/cuda/fake/fake_cuda.h"

static inline void *fake_symbol(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *symbol = library != NULL ? dlsym(library, name) : NULL;

	ck_assert_msg(symbol != NULL, "%s: the driver is not the fake one", name);
	return symbol;
}

static inline fake_cuda_control_function fake_control(void)
{
	return (fake_cuda_control_function)(uintptr_t)fake_symbol("fake_cuda_control");
}

static inline struct fake_cuda_counts fake_counts(void)
{
	return ((fake_cuda_counts_function)(uintptr_t)fake_symbol("fake_cuda_counts"))();
}

static inline void fake_all_given_back(void)
{
	const struct fake_cuda_counts counts = fake_counts();

	ck_assert_uint_eq(counts.memory_bytes, 0);
	ck_assert_uint_eq(counts.streams, 0);
	ck_assert_uint_eq(counts.events, 0);
	ck_assert_uint_eq(counts.contexts_retained, 0);
}

#endif
