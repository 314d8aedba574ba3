/* half.c -- the conversions of half.h for programs. */
#include "collectives/reduce/half.h"

#include "rubato.h"

float rubato_float16_to_float32(uint16_t bits)
{
	return rb_f16_widen(bits);
}

uint16_t rubato_float32_to_float16(float value)
{
	return rb_f16_narrow(value);
}

float rubato_bfloat16_to_float32(uint16_t bits)
{
	return rb_bf16_widen(bits);
}

uint16_t rubato_float32_to_bfloat16(float value)
{
	return rb_bf16_narrow(value);
}
