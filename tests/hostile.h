/* hostile.h -- elements on which arithmetic goes wrong, if it does. */
#ifndef RB_TESTS_HOSTILE_H
#define RB_TESTS_HOSTILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

/* NaNs of both kinds and signs, infinities, zeros, subnormals, the largest, ones, integers'
 * ends. */
static const uint16_t hostile16[] = {
	0x0000, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xfd55, 0x0001, 0x8001, 0x03ff,
	0x0400, 0x7bff, 0xfbff, 0x3c00, 0xbc00, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0xff95,
	0x7f7f, 0xff7f, 0x0080, 0x007f, 0x3f80, 0xbf80, 0x7fff, 0xffff, 0x00ff, 0x0100, 0x6800,
};
static const uint32_t hostile32[] = {
	0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
	0x7fc12345, 0xffc54321, 0x7f800001, 0xff812345, 0x00000001, 0x80000001,
	0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, 0x7fffffff, 0xffffffff,
	0x34000000, 0x4b800001, 0x00800000, 0x007fffff, 0x1fffffff, 0x80000001,
};
static const uint64_t hostile64[] = {
	0x0000000000000000, 0x8000000000000000, 0x7ff0000000000000, 0xfff0000000000000,
	0x7ff8000000000000, 0xfff8000000000000, 0x7ff8123456789abc, 0xfff8cba987654321,
	0x7ff0000000000001, 0xfff0123400000000, 0x0000000000000001, 0x7fefffffffffffff,
	0xffefffffffffffff, 0x3ff0000000000000, 0x7fffffffffffffff, 0xffffffffffffffff,
	0x0010000000000000, 0x000fffffffffffff, 0x8000000000000001, 0x00000000ffffffff,
};

/* A third of the elements from the lists above, a third small, a third random bits. */
static inline void scramble(unsigned char *bytes, uint64_t count, size_t size, struct rb_rng *rng)
{
#define DRAW(list) list[rb_rng_below(rng, sizeof(list) / sizeof(list[0]))]
	for (uint64_t i = 0; i < count; i++) {
		uint64_t draw = rb_rng_below(rng, 3), value = rb_rng_next(rng);

		if (draw == 0)
			value = size <= 2   ? DRAW(hostile16)
				: size == 4 ? DRAW(hostile32)
					    : DRAW(hostile64);
		else if (draw == 1)
			value = (value & 15) - 8;
		memcpy(bytes + i * size, &value, size);
	}
#undef DRAW
}

#endif
