/*
 * float_mode.h -- puts aside how a thread rounds. The library computes in threads of the
 * application: one that flushes subnormals to zero or rounds otherwise must not come to other bits,
 * or to another choice, than its peers.
 */
#ifndef RB_BASE_FLOAT_MODE_H
#define RB_BASE_FLOAT_MODE_H

#include <stdint.h>

static inline uint32_t rb_float_mode_enter(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	uint32_t was = __builtin_ia32_stmxcsr();

	if ((was & 0xffc0) != 0x1f80)
		__builtin_ia32_ldmxcsr(0x1f80);
	return was;
#elif defined(__aarch64__) && defined(__GNUC__)
	uint64_t was;

	__asm__ volatile("mrs %0, fpcr" : "=r"(was)); /* Its upper half is reserved. */
	if (was != 0)
		__asm__ volatile("msr fpcr, xzr" ::: "memory");
	return (uint32_t)was;
#else
	return 0;
#endif
}

static inline void rb_float_mode_leave(uint32_t was)
{
#if defined(__x86_64__) && defined(__GNUC__)
	if ((was & 0xffc0) != 0x1f80)
		__builtin_ia32_ldmxcsr(was);
#elif defined(__aarch64__) && defined(__GNUC__)
	if (was != 0)
		__asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)was) : "memory");
#else
	(void)was;
#endif
}

#endif
