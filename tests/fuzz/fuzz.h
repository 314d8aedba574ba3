/* fuzz.h -- what the targets share: bytes taken as a script, and a check that traps. */
#ifndef RB_TESTS_FUZZ_H
#define RB_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FUZZ_CHECK(expr)                                                                           \
	do {                                                                                       \
		if (!(expr))                                                                       \
			__builtin_trap();                                                          \
	} while (0)

struct fuzz_script {
	const uint8_t *at, *end;
};

static inline struct fuzz_script fuzz_script_over(const uint8_t *bytes, size_t size_bytes)
{
	return (struct fuzz_script) { bytes, bytes + size_bytes };
}

/* Behind the end come zeros. */
static inline void fuzz_take(struct fuzz_script *s, void *out, size_t size_bytes)
{
	size_t left = (size_t)(s->end - s->at), count = size_bytes < left ? size_bytes : left;

	memset(out, 0, size_bytes);
	if (count > 0)
		memcpy(out, s->at, count);
	s->at += count;
}

static inline uint8_t fuzz_take_u8(struct fuzz_script *s)
{
	uint8_t value;

	fuzz_take(s, &value, sizeof(value));
	return value;
}

static inline uint64_t fuzz_take_u64(struct fuzz_script *s)
{
	uint64_t value;

	fuzz_take(s, &value, sizeof(value));
	return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#endif
