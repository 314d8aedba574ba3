/* test_ptx.c -- what the interpreter of PTX refuses, and what it says of kernels that are wrong. */
#include <stdio.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/cuda/ptx/ptx.h"

#define HEAD                                                                                       \
	".version 9.0\n.target sm_80\n.address_size 64\n"                                          \
	".visible .entry rb_k(\n\t.param .u64 rb_k_param_0[16]\n)\n{\n"                            \
	"\t.reg .pred %p<4>;\n\t.reg .b32 %r<8>;\n\t.reg .f32 %f<4>;\n\t.reg .b64 %rd<8>;\n"       \
	"\tld.param.u64 \t%rd1, [rb_k_param_0];\n\tmov.u32 \t%r1, %tid.x;\n"
#define TAIL "\tret;\n}\n"

/* Two arrays of 256 words: the first may be written. Blocks of 64 threads. */
static const struct {
	const char *body, *error; /* NULL: none. */
} cases[] = {
	{ "\tst.global.u32 \t[%rd1], 7;\n", "a race" },
	{ "\tmul.wide.u32 \t%rd2, %r1, 4;\n\tadd.s64 \t%rd3, %rd1, %rd2;\n"
	  "\tst.global.u32 \t[%rd3], %r1;\n",
	  NULL },
	{ "\tmul.wide.u32 \t%rd2, %r1, 4;\n\tadd.s64 \t%rd3, %rd1, %rd2;\n"
	  "\tst.global.u32 \t[%rd3+8192], %r1;\n",
	  "memory beyond" },
	{ "\tmul.wide.u32 \t%rd2, %r1, 4;\n\tadd.s64 \t%rd3, %rd1, %rd2;\n"
	  "\tst.global.u32 \t[%rd3+2], %r1;\n",
	  "not aligned" },
	{ "\tld.param.u64 \t%rd3, [rb_k_param_0+8];\n\tst.global.u32 \t[%rd3], %r1;\n",
	  "only read" },
	{ "\tld.param.u64 \t%rd3, [rb_k_param_0+16];\n", "a parameter" },
	{ "\tadd.s32 \t%r2, %r1, %r3;\n", NULL },
	{ "\tadd.s32 \t%r2, %r1, %r3;\n\tst.global.u32 \t[%rd1], %r2;\n", "nothing wrote" },
	{ "\tld.global.u32 \t%r2, [%rd5];\n", "nothing wrote" },
	{ "\tsetp.eq.s32 \t%p1, %r1, %r3;\n\t@%p1 bra \t$L__BB0_1;\n\n$L__BB0_1:\n",
	  "nothing wrote" },
	{ "\tsetp.eq.s32 \t%p1, %r1, %r1;\n\tselp.b32 \t%r2, %r1, %r3, %p1;\n"
	  "\tmul.wide.u32 \t%rd2, %r2, 4;\n\tadd.s64 \t%rd3, %rd1, %rd2;\n"
	  "\tst.global.u32 \t[%rd3], %r2;\n",
	  NULL },
	{ "\tsetp.eq.s32 \t%p1, %r1, %r3;\n\tsetp.ne.s32 \t%p2, %r1, %r1;\n"
	  "\tand.pred \t%p3, %p1, %p2;\n\t@%p3 bra \t$L__BB0_1;\n\n$L__BB0_1:\n",
	  NULL },
	{ "\n$L__BB0_1:\n\tbra.uni \t$L__BB0_1;\n", "no end" },
	{ "\tbar.warp.sync \t-1;\n", NULL },
	{ "\tbar.warp.sync \t255;\n", "a part of a warp" },
	{ "\tsetp.eq.s32 \t%p1, %r1, 5;\n\t@%p1 bra \t$L__BB0_1;\n\tbar.warp.sync \t-1;\n"
	  "\n$L__BB0_1:\n",
	  "not all meet" },
	{ "\tshfl.sync.bfly.b32 \t%r2|%p1, %r1, 16, 31, -1;\n\txor.b32 \t%r3, %r1, 16;\n"
	  "\tsetp.eq.s32 \t%p2, %r2, %r3;\n\t@%p2 bra \t$L__BB0_1;\n"
	  "\tst.global.u32 \t[%rd1+8192], %r1;\n\n$L__BB0_1:\n",
	  NULL },
	{ "\tshfl.sync.bfly.b32 \t%r2|%p1, %r1, 32, 31, -1;\n", "a lane that is not there" },
	{ "\tshfl.sync.bfly.b32 \t%r2|%p1, %r1, 1, 31, 255;\n", "a part of a warp" },
	{ "\tshfl.sync.bfly.b32 \t%r2|%p1, %r3, 1, 31, -1;\n", "nothing wrote" },
	/* Read by another of the warp: after a barrier, and without. */
	{ "\tand.b32 \t%r4, %r1, 31;\n\tmul.wide.u32 \t%rd2, %r1, 4;\n"
	  "\tadd.s64 \t%rd3, %rd1, %rd2;\n\tst.global.u32 \t[%rd3], %r1;\n"
	  "\tbar.warp.sync \t-1;\n\txor.b32 \t%r5, %r1, 1;\n\tmul.wide.u32 \t%rd2, %r5, 4;\n"
	  "\tadd.s64 \t%rd3, %rd1, %rd2;\n\tld.global.u32 \t%r6, [%rd3];\n",
	  NULL },
	{ "\tmul.wide.u32 \t%rd2, %r1, 4;\n\tadd.s64 \t%rd3, %rd1, %rd2;\n"
	  "\tst.global.u32 \t[%rd3], %r1;\n\txor.b32 \t%r5, %r1, 1;\n"
	  "\tmul.wide.u32 \t%rd2, %r5, 4;\n\tadd.s64 \t%rd3, %rd1, %rd2;\n"
	  "\tld.global.u32 \t%r6, [%rd3];\n",
	  "a race" },
	/* Read by all of the first warp, written by one of it: after a barrier, and without. */
	{ "\tsetp.gt.u32 \t%p1, %r1, 31;\n\t@%p1 bra \t$L__BB0_1;\n"
	  "\tld.global.u32 \t%r2, [%rd1];\n\tbar.warp.sync \t-1;\n"
	  "\tsetp.ne.s32 \t%p1, %r1, 7;\n\t@%p1 bra \t$L__BB0_1;\n"
	  "\tst.global.u32 \t[%rd1], %r2;\n\n$L__BB0_1:\n",
	  NULL },
	{ "\tld.global.u32 \t%r2, [%rd1];\n\tsetp.ne.s32 \t%p1, %r1, 63;\n"
	  "\t@%p1 bra \t$L__BB0_1;\n\tst.global.u32 \t[%rd1], %r2;\n\n$L__BB0_1:\n",
	  "a race" },
	/* And what is read when the text is. */
	{ "\tadd.sat.s32 \t%r2, %r1, %r1;\n", "unknown opcode add.sat.s32" },
	{ "\tshfl.sync.up.b32 \t%r2|%p1, %r1, 1, 0, -1;\n", "unknown opcode shfl.sync.up.b32" },
	{ "\tadd.rz.f32 \t%f1, %f1, %f1;\n", "unknown opcode add.rz.f32" },
	{ "\tex2.approx.f32 \t%f1, %f1;\n", "unknown opcode ex2.approx.f32" },
	{ "\trcp.approx.f32 \t%f1, %f1;\n", "unknown opcode rcp.approx.f32" },
	{ "\tatom.global.add.u32 \t%r2, [%rd1], %r1;\n", "unknown opcode atom.global.add.u32" },
	{ "\tld.volatile.global.u32 \t%r2, [%rd1];\n", "unknown opcode ld.volatile.global.u32" },
	{ "\tld.shared.u32 \t%r2, [%rd1];\n", "unknown opcode ld.shared.u32" },
	{ "\tcvt.rm.f32.u32 \t%f1, %r1;\n", "unknown opcode cvt.rm.f32.u32" },
	{ "\tmov.u32 \t%r9, %r1;\n", "register %r9" },
	{ "\tmov.u32 \t%r2, %laneid;\n", "operand %laneid" },
	{ "\tbra.uni \t$L__BB0_7;\n", "label" },
	{ "\tadd.s32 \t%r2, %r1;\n", "operands" },
};

START_TEST(errors_are_said)
{
	char text[2048], said[256];
	_Alignas(16) uint32_t first[256] = { 0 }, second[256] = { 0 };
	const void *parameters[] = { first, second };
	const struct launcher_span spans[] = { { first, sizeof(first), true },
					       { second, sizeof(second), false } };
	const char *error;
	struct ptx *ptx;

	(void)snprintf(text, sizeof(text), "%s%s%s", HEAD, cases[_i].body, TAIL);
	ptx = ptx_read(text, said, sizeof(said));
	error = ptx == NULL ? said
			    : ptx_run(ptx, "rb_k", 1, 64, parameters, sizeof(parameters), spans, 2);
	if (cases[_i].error == NULL)
		ck_assert_msg(error == NULL, "%s: %s", cases[_i].body, error);
	else
		ck_assert_msg(error != NULL && strstr(error, cases[_i].error) != NULL, "%s: %s",
			      cases[_i].body, error != NULL ? error : "nothing said");
	if (ptx != NULL) {
		ck_assert(ptx_has(ptx, "rb_k") && !ptx_has(ptx, "rb_l"));
		ck_assert_ptr_nonnull(ptx_run(ptx, "rb_l", 1, 1, parameters, 16, spans, 2));
		ck_assert_ptr_nonnull(ptx_run(ptx, "rb_k", 1, 1, parameters, 8, spans, 2));
		ptx_free(ptx);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ptx");

	tcase_add_loop_test(tc, errors_are_said, 0, (int)(sizeof(cases) / sizeof(*cases)));
	return check_main("cuda", tc);
}
