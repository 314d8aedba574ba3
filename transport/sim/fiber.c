/*
 * fiber.c -- stack switching: twenty instructions on x86-64, ucontext elsewhere.
 *
 * Why not ucontext everywhere: it makes a system call per switch to save the signal mask, ten times
 * the cost of the switch itself, and a simulated campaign switches millions of times.
 */
#include "transport/sim/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define WITH_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define WITH_TSAN 1
#include <sanitizer/tsan_interface.h>
/* Enters on one shadow stack and returns on another: must not keep count of its own frames. */
#define NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define NO_TSAN
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#define WITH_VALGRIND 1
#include <valgrind/valgrind.h>
#endif
#endif

#if defined(__x86_64__) && !defined(__ILP32__)
#define WITH_SWAP 1
#else
#include <ucontext.h>
#endif

struct rb_fiber {
	void (*main)(void *);
	void *arg;
	uint8_t *mapping; /* Guard page, then the stack. */
	size_t mapping_bytes, guard_bytes;
	bool done;
#if defined(WITH_SWAP)
	void *sp, *host_sp; /* Of whichever side is not running. */
#else
	ucontext_t context, host_context;
#endif
#if defined(WITH_ASAN)
	void *fake, *host_fake;
	const void *host_bottom;
	size_t host_bytes;
#endif
#if defined(WITH_TSAN)
	void *tsan, *host_tsan;
#endif
#if defined(WITH_VALGRIND)
	unsigned valgrind;
#endif
};

static void *stack_of(const struct rb_fiber *f)
{
	return f->mapping + f->guard_bytes;
}

static size_t stack_bytes_of(const struct rb_fiber *f)
{
	return f->mapping_bytes - f->guard_bytes;
}

/* ---- What the sanitizers want to know: before and after each switch, on each side ---- */

NO_TSAN static void before_enter(struct rb_fiber *f)
{
	(void)f;
#if defined(WITH_ASAN)
	__sanitizer_start_switch_fiber(&f->host_fake, stack_of(f), stack_bytes_of(f));
#endif
#if defined(WITH_TSAN)
	f->host_tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(f->tsan, 0);
#endif
}

NO_TSAN static void after_enter(struct rb_fiber *f)
{
	(void)f;
#if defined(WITH_ASAN)
	__sanitizer_finish_switch_fiber(f->host_fake, NULL, NULL);
#endif
}

NO_TSAN static void before_leave(struct rb_fiber *f)
{
	(void)f;
#if defined(WITH_ASAN)
	/* NULL: the fiber is over, its fake stack goes. */
	__sanitizer_start_switch_fiber(f->done ? NULL : &f->fake, f->host_bottom, f->host_bytes);
#endif
#if defined(WITH_TSAN)
	__tsan_switch_to_fiber(f->host_tsan, 0);
#endif
}

NO_TSAN static void after_leave(struct rb_fiber *f)
{
	(void)f;
#if defined(WITH_ASAN)
	__sanitizer_finish_switch_fiber(f->fake, &f->host_bottom, &f->host_bytes);
#endif
}

/* ---- The switch ---- */

#if defined(WITH_SWAP)

/* Saves what the calling convention lets a callee destroy not: six registers, both control
 * words. */
void rb_fiber_swap(void **save_sp, void *load_sp);
void rb_fiber_first(void);
__asm__(".text\n"
	".p2align 4\n"
	".globl rb_fiber_swap\n"
	".hidden rb_fiber_swap\n"
	".type rb_fiber_swap, @function\n"
	"rb_fiber_swap:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	subq $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size rb_fiber_swap, .-rb_fiber_swap\n"
	".p2align 4\n"
	".globl rb_fiber_first\n"
	".hidden rb_fiber_first\n"
	".type rb_fiber_first, @function\n"
	"rb_fiber_first:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	endbr64\n"
	"	movq %r12, %rdi\n"
	"	callq *%r13\n"
	"	ud2\n"
	"	.cfi_endproc\n"
	".size rb_fiber_first, .-rb_fiber_first\n");

NO_TSAN static void switch_in(struct rb_fiber *f)
{
	rb_fiber_swap(&f->host_sp, f->sp);
}

NO_TSAN static void switch_out(struct rb_fiber *f)
{
	rb_fiber_swap(&f->sp, f->host_sp);
}

#else

NO_TSAN static void switch_in(struct rb_fiber *f)
{
	(void)swapcontext(&f->host_context, &f->context);
}

NO_TSAN static void switch_out(struct rb_fiber *f)
{
	(void)swapcontext(&f->context, &f->host_context);
}

#endif

NO_TSAN static void body(struct rb_fiber *f)
{
#if defined(WITH_ASAN)
	__sanitizer_finish_switch_fiber(NULL, &f->host_bottom, &f->host_bytes);
#endif
	f->main(f->arg);
	f->done = true;
	before_leave(f);
	switch_out(f);
}

#if defined(WITH_SWAP)

static void prepare(struct rb_fiber *f)
{
	uintptr_t top = (uintptr_t)stack_of(f) + stack_bytes_of(f);
	uint64_t *sp = (uint64_t *)top - 10; /* Leaves %rsp 16-byte aligned at the first call. */
	uint32_t mxcsr;
	uint16_t control;

	__asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(control));
	sp[0] = (uint64_t)control << 32 | mxcsr;
	sp[1] = 0;                         /* r15 */
	sp[2] = 0;                         /* r14 */
	sp[3] = (uint64_t)(uintptr_t)body; /* r13 */
	sp[4] = (uint64_t)(uintptr_t)f;    /* r12 */
	sp[5] = 0;                         /* rbx */
	sp[6] = 0;                         /* rbp: ends a walk along frame pointers. */
	sp[7] = (uint64_t)(uintptr_t)rb_fiber_first;
	f->sp = sp;
}

#else

static void body_of_halves(unsigned high, unsigned low)
{
	body((struct rb_fiber *)((uintptr_t)high << 16 << 16 | low));
}

static void prepare(struct rb_fiber *f)
{
	uintptr_t address = (uintptr_t)f;

	(void)getcontext(&f->context);
	f->context.uc_stack.ss_sp = stack_of(f);
	f->context.uc_stack.ss_size = stack_bytes_of(f);
	f->context.uc_link = NULL;
	/* makecontext passes ints: the pointer goes in two. */
	makecontext(&f->context, (void (*)(void))body_of_halves, 2, (unsigned)(address >> 16 >> 16),
		    (unsigned)address);
}

#endif

rubato_status rb_fiber_open(size_t stack_bytes, void (*main)(void *), void *arg,
			    struct rb_fiber **out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct rb_fiber *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "fiber: %zu bytes", sizeof(*f));
	f->main = main;
	f->arg = arg;
	f->guard_bytes = page;
	f->mapping_bytes = page + (stack_bytes + page - 1) / page * page;
	f->mapping = mmap(NULL, f->mapping_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (f->mapping == MAP_FAILED) {
		free(f);
		return RB_FAIL(RUBATO_ERR_MEMORY, "fiber: a stack of %zu bytes", stack_bytes);
	}
	if (mprotect(f->mapping, page, PROT_NONE) != 0) {
		(void)munmap(f->mapping, f->mapping_bytes);
		free(f);
		return RB_FAIL(RUBATO_ERR_MEMORY, "fiber: no guard page (too many mappings?)");
	}
#if defined(WITH_TSAN)
	f->tsan = __tsan_create_fiber(0);
#endif
#if defined(WITH_VALGRIND)
	f->valgrind = VALGRIND_STACK_REGISTER(stack_of(f), f->mapping + f->mapping_bytes);
#endif
	prepare(f);
	*out = f;
	return RUBATO_OK;
}

NO_TSAN void rb_fiber_enter(struct rb_fiber *f)
{
	RB_ASSERT(!f->done);
	before_enter(f);
	switch_in(f);
	after_enter(f);
}

NO_TSAN void rb_fiber_leave(struct rb_fiber *f)
{
	before_leave(f);
	switch_out(f);
	after_leave(f);
}

bool rb_fiber_done(const struct rb_fiber *f)
{
	return f->done;
}

void rb_fiber_close(struct rb_fiber *f)
{
	if (f == NULL)
		return;
#if defined(WITH_ASAN)
	/* Frames that never returned leave their marks, and the address will be mapped again. */
	__asan_unpoison_memory_region(stack_of(f), stack_bytes_of(f));
#endif
#if defined(WITH_TSAN)
	__tsan_destroy_fiber(f->tsan);
#endif
#if defined(WITH_VALGRIND)
	VALGRIND_STACK_DEREGISTER(f->valgrind);
#endif
	(void)munmap(f->mapping, f->mapping_bytes);
	free(f);
}
