/* compute.c -- what an instruction makes of values. Nothing here knows of threads or memory. */
#include <math.h>
#include <string.h>

#include "collectives/reduce/half.h"
#include "tests/cuda/ptx/inside.h"

/* NaNs that the device may make. That of float32 is what PTX says; a float64's payload is free. */
#define NAN_16 0x7fffu
#define NAN_32 0x7fffffffu
#define NAN_64 0xfff8deadbeef0001u

static uint64_t cut(uint64_t value, uint32_t bits)
{
	return bits == 64 ? value : value & ((1ull << bits) - 1);
}

static int64_t extended(uint64_t value, uint32_t bits)
{
	const uint64_t sign = 1ull << (bits - 1);

	return (int64_t)((cut(value, bits) ^ sign) - sign);
}

static double double_of(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* ---- Floats ---- */

static float float_in(const struct ptx_instruction *in, uint64_t value)
{
	uint32_t bits = (uint32_t)value;

	if (in->flush && (bits & 0x7f800000) == 0)
		bits &= 0x80000000;
	return rb_bits_float(bits);
}

static uint64_t float_out(const struct ptx_instruction *in, float value)
{
	uint32_t bits = rb_float_bits(value);

	if (value != value)
		return NAN_32;
	return in->flush && (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
}

static float float_compute(const struct ptx_instruction *in, float a, float b, float c)
{
	switch (in->op) {
	case PTX_ADD:
		return a + b;
	case PTX_SUB:
		return a - b;
	case PTX_MUL:
		return a * b;
	case PTX_DIV:
		return a / b;
	case PTX_RCP:
		return 1.0f / a;
	case PTX_SQRT:
		return sqrtf(a);
	case PTX_MIN: /* One NaN is left out; -0 is below +0. */
		return a == b ? (signbit(a) ? a : b) : a < b || b != b ? a : b;
	case PTX_MAX:
		return a == b ? (signbit(a) ? b : a) : a > b || b != b ? a : b;
	default:
		return fmaf(a, b, c);
	}
}

static double double_compute(const struct ptx_instruction *in, double a, double b, double c)
{
	switch (in->op) {
	case PTX_ADD:
		return a + b;
	case PTX_SUB:
		return a - b;
	case PTX_MUL:
		return a * b;
	case PTX_DIV:
		return a / b;
	case PTX_RCP:
		return 1.0 / a;
	case PTX_SQRT:
		return sqrt(a);
	default:
		return fma(a, b, c);
	}
}

static uint64_t real(const struct ptx_instruction *in, const uint64_t from[PTX_OPERANDS])
{
	if (in->type.bits == 32)
		return float_out(in, float_compute(in, float_in(in, from[0]), float_in(in, from[1]),
						   float_in(in, from[2])));
	double value =
		double_compute(in, double_of(from[0]), double_of(from[1]), double_of(from[2]));
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return value != value ? NAN_64 : bits;
}

/* Changes of a sign are no arithmetic: NaNs stay. */
static uint64_t sign_only(const struct ptx_instruction *in, uint64_t value)
{
	const uint64_t sign = 1ull << (in->type.bits - 1);

	return in->op == PTX_NEG ? value ^ sign : value & ~sign;
}

/* ---- Conversions ---- */

static uint64_t to_integer(const struct ptx_instruction *in, float value)
{
	float whole = in->toward_0 ? truncf(value) : nearbyintf(value);

	if (whole != whole)
		return 0;
	if (whole >= 0x1p31f)
		return 0x7fffffff;
	return (uint32_t)(whole < -0x1p31f ? INT32_MIN : (int32_t)whole);
}

static uint64_t converted(const struct ptx_instruction *in, uint64_t value)
{
	const struct ptx_type to = in->type, from = in->from_type;
	double wide;
	uint64_t bits;

	if (to.kind == PTX_FLOAT && from.kind == PTX_FLOAT) {
		if (to.bits == 32 && from.bits == 64)
			return float_out(in, (float)double_of(value));
		if (to.bits == 64) {
			wide = (double)float_in(in, value);
			memcpy(&bits, &wide, sizeof(bits));
			return wide != wide ? NAN_64 : bits;
		}
		if (to.bits == 16)
			return float_in(in, value) != float_in(in, value)
				       ? NAN_16
				       : rb_f16_narrow(float_in(in, value));
		return float_out(in, rb_f16_widen((uint16_t)value));
	}
	if (from.kind == PTX_FLOAT)
		return to_integer(in, float_in(in, value));
	value = from.kind == PTX_SIGNED ? (uint64_t)extended(value, from.bits)
					: cut(value, from.bits);
	if (to.kind != PTX_FLOAT)
		return to.kind == PTX_SIGNED ? (uint64_t)extended(value, to.bits)
					     : cut(value, to.bits);
	if (to.bits == 32)
		return rb_float_bits(from.kind == PTX_SIGNED ? (float)(int64_t)value
							     : (float)value);
	wide = from.kind == PTX_SIGNED ? (double)(int64_t)value : (double)value;
	memcpy(&bits, &wide, sizeof(bits));
	return bits;
}

/* ---- Integers ---- */

static uint64_t product(const struct ptx_instruction *in, uint64_t a, uint64_t b)
{
	const uint32_t bits = in->type.bits;
	__extension__ typedef unsigned __int128 wide;
	wide whole = in->type.kind == PTX_SIGNED ? (wide)extended(a, bits) * (wide)extended(b, bits)
						 : (wide)cut(a, bits) * cut(b, bits);

	return (uint64_t)(in->part == PTX_HIGH ? whole >> bits : whole);
}

static uint64_t divided(const struct ptx_instruction *in, uint64_t a, uint64_t b)
{
	const uint32_t bits = in->type.bits;

	if (cut(b, bits) == 0) /* What the device gives is not said: something. */
		return 0x5a5a5a5a5a5a5a5a;
	if (in->type.kind != PTX_SIGNED)
		return in->op == PTX_DIV ? cut(a, bits) / cut(b, bits)
					 : cut(a, bits) % cut(b, bits);
	if (extended(b, bits) == -1) /* The least by -1 wraps. */
		return in->op == PTX_DIV ? 0 - a : 0;
	return (uint64_t)(in->op == PTX_DIV ? extended(a, bits) / extended(b, bits)
					    : extended(a, bits) % extended(b, bits));
}

static bool less(const struct ptx_instruction *in, uint64_t a, uint64_t b)
{
	return in->type.kind == PTX_SIGNED ? extended(a, in->type.bits) < extended(b, in->type.bits)
					   : cut(a, in->type.bits) < cut(b, in->type.bits);
}

static uint64_t shifted_right(const struct ptx_instruction *in, uint64_t a, uint64_t by)
{
	const uint32_t bits = in->type.bits;
	const bool is_signed = in->type.kind == PTX_SIGNED;

	by = cut(by, 32);
	if (by >= bits)
		return is_signed && extended(a, bits) < 0 ? UINT64_MAX : 0;
	return is_signed ? (uint64_t)(extended(a, bits) >> by) : cut(a, bits) >> by;
}

/* `length` bits of a into b at `at`. */
static uint64_t inserted(uint64_t a, uint64_t b, uint64_t at, uint64_t length, uint32_t bits)
{
	at &= 0xff;
	length &= 0xff;
	if (length == 0 || at >= bits)
		return b;
	uint64_t mask = cut(length >= 64 ? UINT64_MAX : (1ull << length) - 1, bits) << at;

	return (b & ~mask) | (a << at & mask);
}

static uint64_t extracted(const struct ptx_instruction *in, uint64_t a, uint64_t at,
			  uint64_t length)
{
	const uint32_t bits = in->type.bits;

	at &= 0xff;
	length &= 0xff;
	if (length == 0)
		return 0;
	if (in->type.kind == PTX_SIGNED) {
		uint64_t last = at + length - 1 < bits ? at + length - 1 : bits - 1;
		uint64_t value = at < bits ? cut(a, bits) >> at : 0;
		bool negative = (cut(a, bits) >> last & 1) != 0;

		if (length < bits)
			value = value & ((1ull << length) - 1);
		return length < bits && negative ? value | ~((1ull << length) - 1) : value;
	}
	a = at < bits ? cut(a, bits) >> at : 0;
	return length >= 64 ? a : a & ((1ull << length) - 1);
}

/* Four bytes out of the eight of a and b. */
static uint64_t permuted(uint64_t a, uint64_t b, uint64_t choice)
{
	const uint64_t bytes = cut(a, 32) | b << 32;
	uint64_t value = 0;

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t nibble = choice >> (4 * i) & 15, byte = bytes >> (8 * (nibble & 7)) & 0xff;

		if ((nibble & 8) != 0) /* Its sign, eight times. */
			byte = (byte & 0x80) != 0 ? 0xff : 0;
		value |= byte << (8 * i);
	}
	return value;
}

static uint64_t compared(const struct ptx_instruction *in, uint64_t a, uint64_t b)
{
	bool below, above, equal, unordered = false;

	if (in->type.kind == PTX_FLOAT) {
		double x = in->type.bits == 32 ? (double)float_in(in, a) : double_of(a);
		double y = in->type.bits == 32 ? (double)float_in(in, b) : double_of(b);

		below = x<y, above = x> y, equal = x == y, unordered = x != x || y != y;
	} else {
		below = less(in, a, b), above = less(in, b, a), equal = !below && !above;
	}
	if (in->unordered && unordered)
		return 1;
	switch (in->compare) {
	case PTX_EQ:
		return equal;
	case PTX_NE:
		return below || above;
	case PTX_LT:
		return below;
	case PTX_LE:
		return below || equal;
	case PTX_GT:
		return above;
	case PTX_GE:
		return above || equal;
	case PTX_NAN:
		return unordered;
	default:
		return !unordered;
	}
}

static uint64_t whole(const struct ptx_instruction *in, const uint64_t from[PTX_OPERANDS])
{
	const uint64_t a = from[0], b = from[1];

	switch (in->op) {
	case PTX_ADD:
		return a + b;
	case PTX_SUB:
		return a - b;
	case PTX_MUL:
		return product(in, a, b);
	case PTX_MAD:
		return product(in, a, b) + from[2];
	case PTX_DIV:
	case PTX_REM:
		return divided(in, a, b);
	case PTX_MIN:
		return less(in, a, b) ? a : b;
	case PTX_MAX:
		return less(in, a, b) ? b : a;
	case PTX_NEG:
		return 0 - a;
	case PTX_ABS:
		return extended(a, in->type.bits) < 0 ? 0 - a : a;
	case PTX_NOT:
		return ~a;
	case PTX_AND:
		return a & b;
	case PTX_OR:
		return a | b;
	case PTX_XOR:
		return a ^ b;
	case PTX_SHL:
		return cut(b, 32) < in->type.bits ? a << cut(b, 32) : 0;
	case PTX_SHR:
		return shifted_right(in, a, b);
	case PTX_PRMT:
		return permuted(a, b, from[2]);
	case PTX_BFI:
		return inserted(a, b, from[2], from[3], in->type.bits);
	default:
		return extracted(in, a, b, from[2]);
	}
}

uint64_t ptx_compute(const struct ptx_instruction *in, const uint64_t from[PTX_OPERANDS])
{
	const uint32_t bits = in->op == PTX_MUL || in->op == PTX_MAD
				      ? in->type.bits * (in->part == PTX_WIDE ? 2u : 1u)
				      : in->type.bits;

	switch (in->op) {
	case PTX_MOV:
		return cut(from[0], bits);
	case PTX_SELP:
		return cut((from[2] & 1) != 0 ? from[0] : from[1], bits);
	case PTX_SETP:
		return compared(in, from[0], from[1]);
	case PTX_CVT:
		return converted(in, from[0]);
	default:
		break;
	}
	if (in->type.kind != PTX_FLOAT)
		return cut(whole(in, from), bits);
	return in->op == PTX_NEG || in->op == PTX_ABS ? sign_only(in, from[0]) : real(in, from);
}
