/*
 * ptx.h -- an interpreter of PTX, as nvcc writes it: each thread's instructions one by one.
 *
 * What it knows of the language, it knows exactly: any other opcode, modifier or type is an error
 * when the text is read. What a run reports is an error of the kernel: a branch, an address or a
 * store that depends on a register which nothing wrote, memory beyond what was given or only given
 * for reading, an address that is not aligned to the access, bytes that two threads touch without
 * an order, one of them writing, a warp of which not all meet, or no end.
 *
 * The device's freedom is used to the full: a NaN that an instruction makes is not the canonical
 * one.
 */
#ifndef RB_TESTS_PTX_H
#define RB_TESTS_PTX_H

#include "tests/cuda/launcher.h"

struct ptx;

/* NULL: `error` says why. The text may go. */
struct ptx *ptx_read(const char *text, char *error, size_t error_bytes);
void ptx_free(struct ptx *ptx);
bool ptx_has(const struct ptx *ptx, const char *kernel);
/* NULL, or what went wrong: the text is `ptx`'s, until the next run. */
const char *ptx_run(struct ptx *ptx, const char *kernel, unsigned grid, unsigned block,
		    const void *parameters, size_t parameter_bytes,
		    const struct launcher_span *spans, uint32_t span_count);

#endif
