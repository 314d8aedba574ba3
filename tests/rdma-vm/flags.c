/*
 * flags.c -- what a guest's processor leaves of the flags: cmpxchg16b changes ZF, and no other.
 *
 * QEMU 7.2 computes the others from a state that it has not stored yet, and gets bits of some
 * operand: trap, direction, nested task. An interrupt right behind it keeps them, and the kernel,
 * whose allocator lives by this instruction, ends. So `run` gives guests a processor without it.
 */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>

#define TIMES 1000u
#define STAYS (~UINT64_C(0x8d5))  /* All but those that arithmetic changes, of which */
#define MAY_BE UINT64_C(0x200202) /* these may be set: ID, IF, and what always is. */

/* A count down, a difference of `operand` and itself, and a comparison that fails. */
static uint64_t flags_behind(uint64_t operand)
{
	static _Alignas(16) uint64_t memory[2];
	uint64_t count = 2, flags;

	__asm__ volatile("decq %[count]\n\t"
			 "jz 1f\n"
			 "1:\n\t"
			 "movq %[operand], %%r8\n\t"
			 "subq %[operand], %%r8\n\t"
			 "movq $1, %%rax\n\t"
			 "movq $0, %%rdx\n\t"
			 "movq $0, %%rcx\n\t"
			 "movq %%rbx, %%r9\n\t"
			 "movq $0, %%rbx\n\t"
			 "cmpxchg16b %[memory]\n\t"
			 "pushfq\n\t"
			 "popq %[flags]\n\t"
			 "movq %%r9, %%rbx"
			 : [flags] "=&r"(flags), [memory] "+m"(memory), [count] "+r"(count)
			 : [operand] "r"(operand)
			 : "rax", "rcx", "rdx", "r8", "r9", "cc", "memory");
	return flags;
}

int main(void)
{
	unsigned eax, ebx, ecx = 0, edx, wrong = 0;
	uint64_t flags = 0;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_CMPXCHG16B) == 0) {
		(void)printf("no cmpxchg16b\n");
		return 0;
	}
	for (unsigned i = 0; i < TIMES && wrong == 0; i++) {
		flags = flags_behind(UINT64_C(0x1234567812345600) + ((uint64_t)i << 16));
		wrong += (flags & STAYS & ~MAY_BE) != 0;
	}
	(void)printf("%s flags behind cmpxchg16b: %llx\n", wrong ? "wrong" : "right",
		     (unsigned long long)flags);
	return wrong != 0;
}
