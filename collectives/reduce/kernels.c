/* kernels.c -- see kernels.h. */
#include "collectives/reduce/kernels.h"

/* floor(high * 2^32 / count), by which the remainder is left in *rest; high < count. */
static uint64_t digit(uint64_t high, uint32_t count, uint64_t *rest)
{
	*rest = (high << 32) % count;
	return (high << 32) / count;
}

struct rb_divisor rb_divisor_make(uint32_t count, uint32_t bits)
{
	struct rb_divisor d = { .f32 = 1.0f / (float)count, .f64 = 1.0 / (double)count };
	uint64_t high, rest;
	uint32_t log = 0;

	if (count < 2)
		return d;
	while (log < 32 && (1ull << log) < count)
		log++;
	high = (1ull << log) - count; /* magic = floor(2^bits * high / count) + 1 */
	d.shift = (int)log - 1;
	if (bits <= 32) {
		d.magic = (high << bits) / count + 1;
	} else {
		d.magic = digit(high, count, &rest) << 32;
		d.magic += digit(rest, count, &rest) + 1;
	}
	return d;
}
