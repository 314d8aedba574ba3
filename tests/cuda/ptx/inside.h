/* inside.h -- a kernel as it was read: what reading makes and running uses. */
#ifndef RB_TESTS_PTX_INSIDE_H
#define RB_TESTS_PTX_INSIDE_H

#include "tests/cuda/ptx/ptx.h"

enum ptx_op {
	PTX_MOV,
	PTX_PACK,   /* Several registers into one. */
	PTX_UNPACK, /* One into several. */
	PTX_CVT,
	PTX_LD_PARAM,
	PTX_LD,
	PTX_ST,
	PTX_ADD,
	PTX_SUB,
	PTX_MUL,
	PTX_MAD,
	PTX_DIV,
	PTX_REM,
	PTX_MIN,
	PTX_MAX,
	PTX_NEG,
	PTX_ABS,
	PTX_NOT,
	PTX_AND,
	PTX_OR,
	PTX_XOR,
	PTX_SHL,
	PTX_SHR,
	PTX_SETP,
	PTX_SELP,
	PTX_PRMT,
	PTX_BFI,
	PTX_BFE,
	PTX_RCP,
	PTX_SQRT,
	PTX_FMA,
	PTX_BRA,
	PTX_RET,
	PTX_WARP,      /* A barrier of the warp. */
	PTX_REDUX_MAX, /* The warp's greatest. */
	PTX_SLEEP,     /* Of a thread, for no matter how long. */
	PTX_SHFL,      /* What another lane has, whose number differs in given bits. */
};

enum ptx_class { PTX_PRED, PTX_BITS, PTX_UNSIGNED, PTX_SIGNED, PTX_FLOAT };
struct ptx_type {
	uint8_t kind, bits;
};

enum ptx_compare { PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_NAN, PTX_NUM };
enum ptx_part { PTX_LOW, PTX_HIGH, PTX_WIDE };

#define PTX_OPERANDS 4
#define PTX_NO_GUARD UINT32_MAX

/* Registers, constants and special registers are numbered together: slots. */
struct ptx_instruction {
	enum ptx_op op;
	struct ptx_type type, from_type;
	enum ptx_compare compare;
	enum ptx_part part;
	bool flush;     /* .ftz */
	bool toward_0;  /* Conversions to integers; else to nearest, ties to even. */
	bool unordered; /* A comparison holds where one side is a NaN. */
	bool guard_not;
	uint32_t guard;
	uint32_t to_count, from_count;
	uint32_t to[PTX_OPERANDS], from[PTX_OPERANDS];
	int64_t offset;  /* Of an address: from[0] + offset. */
	uint32_t target; /* Of a branch. */
	const char *text;
};

#define PTX_SPECIALS 4 /* %tid.x, %ntid.x, %ctaid.x, %nctaid.x: slots 0 to 3. */

struct ptx_bank {
	char prefix[8];
	uint32_t first, count;
};

struct ptx_label {
	char *name;
	uint32_t at;
};

struct ptx_kernel {
	char *name, *parameter;
	uint32_t parameter_bytes;
	struct ptx_bank banks[8];
	uint32_t bank_count;
	uint32_t registers; /* Slots of specials and registers; then constants. */
	uint64_t *constants;
	uint32_t constant_count;
	struct ptx_instruction *instructions;
	uint32_t instruction_count;
	struct ptx_label *labels;
	uint32_t label_count;
	bool meets; /* Has instructions at which a warp meets. */
};

struct ptx {
	char *text;
	struct ptx_kernel *kernels;
	uint32_t kernel_count;
	char error[512];
};

/* One instruction whose operands are values: what goes to to[0]. */
uint64_t ptx_compute(const struct ptx_instruction *instruction, const uint64_t from[PTX_OPERANDS]);

#endif
