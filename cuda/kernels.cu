/*
 * kernels.cu -- reductions of device memory, each with the bits of its twin on the host
 * (collectives/reduce/reduce_plain.c).
 *
 * The elements between the first and the last 16-byte boundary go as vectors of 16 bytes, all
 * operands' loads before the first use; the few before and behind them, and everything where the
 * addresses differ modulo 16, one by one. Written without fused multiply-adds: nvcc is told so.
 * Compiled by a C++ compiler, too, for tests on the host (tests/cuda/emulated.cpp).
 */
#include "cuda/kernels.h"
#include "rubato.h"

#if !defined(__CUDACC__)
#include "collectives/reduce/half.h"
#endif

namespace
{

/* ---- Bits ---- */

template <class To, class From> __device__ __forceinline__ To as_bits(From from)
{
	union {
		From from;
		To to;
	} both = { from };

	static_assert(sizeof(To) == sizeof(From), "bits");
	return both.to;
}

/* ---- Element types: how they are stored, what they are computed in ---- */

/* A floating type; Bits: an unsigned integer as wide. */
template <class Value, class Bits, Bits canonical_nan, Bits infinity> struct floating {
	typedef Value value;

	static const bool divides_late = false; /* A factor of 1 changes nothing. */
	static __device__ __forceinline__ Value of(Bits bits)
	{
		return as_bits<Value>(bits);
	}
	static __device__ __forceinline__ Value sum(Value a, Value b)
	{
		return a + b;
	}
	static __device__ __forceinline__ Value prod(Value a, Value b)
	{
		return a * b;
	}
	/* Equal ones differ in the sign of zero, if at all. */
	static __device__ __forceinline__ Value max(Value a, Value b)
	{
		Value greater = a > b ? a : b;

		greater = a == b ? of(as_bits<Bits>(a) & as_bits<Bits>(b)) : greater;
		return a != a || b != b ? of(canonical_nan) : greater;
	}
	static __device__ __forceinline__ Value min(Value a, Value b)
	{
		Value less = a < b ? a : b;

		less = a == b ? of(as_bits<Bits>(a) | as_bits<Bits>(b)) : less;
		return a != a || b != b ? of(canonical_nan) : less;
	}
	/* What leaves the other operand as it is, zeros of both signs, too. */
	static __device__ __forceinline__ Value identity(uint32_t op)
	{
		const Bits sign = ~(~(Bits)0 >> 1);

		return op == RUBATO_PROD  ? (Value)1
		       : op == RUBATO_MAX ? of(infinity | sign)
		       : op == RUBATO_MIN ? of(infinity)
					  : of(sign);
	}
	static __device__ __forceinline__ Value finish(Value value)
	{
		return value != value ? of(canonical_nan) : value;
	}
	/* What is done to a sum: all that depends on the count is computed once. */
	struct divisor {
		Value factor;

		__device__ __forceinline__ divisor(uint32_t op, uint32_t count)
		    : factor(op == RUBATO_AVG && count > 1 ? (Value)1 / (Value)count : (Value)1)
		{
		}
		__device__ __forceinline__ Value operator()(Value sum) const
		{
			return sum * factor;
		}
	};
};

/* An integer type, added up in the unsigned type `Wide`, which wraps. */
template <class Value, class Wide, Value least, Value greatest> struct integer {
	typedef Value value, stored;

	static const bool divides_late = true;
	static __device__ __forceinline__ Value sum(Value a, Value b)
	{
		return (Value)((Wide)a + (Wide)b);
	}
	static __device__ __forceinline__ Value prod(Value a, Value b)
	{
		return (Value)((Wide)a * (Wide)b);
	}
	static __device__ __forceinline__ Value max(Value a, Value b)
	{
		return a > b ? a : b;
	}
	static __device__ __forceinline__ Value min(Value a, Value b)
	{
		return a < b ? a : b;
	}
	static __device__ __forceinline__ Value identity(uint32_t op)
	{
		return op == RUBATO_PROD  ? (Value)1
		       : op == RUBATO_MAX ? least
		       : op == RUBATO_MIN ? greatest
					  : (Value)0;
	}
	static __device__ __forceinline__ Value widen(Value stored)
	{
		return stored;
	}
	static __device__ __forceinline__ Value narrow(Value value)
	{
		return value;
	}
	/* Toward zero, by magnitudes: the count may be more than a signed type holds. */
	struct divisor {
		uint32_t count;

		__device__ __forceinline__ divisor(uint32_t op, uint32_t by)
		    : count(op == RUBATO_AVG && by > 1 ? by : 1)
		{
		}
		__device__ __forceinline__ Value operator()(Value sum) const
		{
			const bool negative = least != 0 && sum >> (8 * sizeof(Value) - 1) != 0;
			Wide magnitude = (negative ? (Wide)0 - (Wide)sum : (Wide)sum) / count;

			return (Value)(negative ? (Wide)0 - magnitude : magnitude);
		}
	};
};

struct f32 : floating<float, uint32_t, 0x7fc00000, 0x7f800000> {
	typedef float stored;

	static __device__ __forceinline__ float widen(float stored)
	{
		return stored;
	}
	static __device__ __forceinline__ float narrow(float value)
	{
		return finish(value);
	}
};

struct f64 : floating<double, uint64_t, 0x7ff8000000000000, 0x7ff0000000000000> {
	typedef double stored;

	static __device__ __forceinline__ double widen(double stored)
	{
		return stored;
	}
	static __device__ __forceinline__ double narrow(double value)
	{
		return finish(value);
	}
};

struct bf16 : floating<float, uint32_t, 0x7fc00000, 0x7f800000> {
	typedef uint16_t stored;

	static __device__ __forceinline__ float widen(uint16_t stored)
	{
		return of((uint32_t)stored << 16);
	}
	/* To nearest, ties to even; a carry out of the fraction is the next exponent. */
	static __device__ __forceinline__ uint16_t narrow(float value)
	{
		uint32_t bits = as_bits<uint32_t>(finish(value));

		return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
	}
};

struct f16 : floating<float, uint32_t, 0x7fc00000, 0x7f800000> {
	typedef uint16_t stored;

	static __device__ __forceinline__ float widen(uint16_t stored)
	{
#if defined(__CUDACC__)
		float value;

		asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
		return value;
#else
		return rb_f16_widen(stored);
#endif
	}
	static __device__ __forceinline__ uint16_t narrow(float value)
	{
#if defined(__CUDACC__)
		uint16_t stored;

		asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
		return value != value ? (uint16_t)0x7e00 : stored;
#else
		return rb_f16_narrow(finish(value));
#endif
	}
};

typedef integer<int8_t, uint32_t, INT8_MIN, INT8_MAX> i8;
typedef integer<int16_t, uint32_t, INT16_MIN, INT16_MAX> i16;
typedef integer<int32_t, uint32_t, INT32_MIN, INT32_MAX> i32;
typedef integer<int64_t, uint64_t, INT64_MIN, INT64_MAX> i64;
typedef integer<uint8_t, uint32_t, 0, UINT8_MAX> u8;
typedef integer<uint16_t, uint32_t, 0, UINT16_MAX> u16;
typedef integer<uint32_t, uint32_t, 0, UINT32_MAX> u32;
typedef integer<uint64_t, uint64_t, 0, UINT64_MAX> u64;

/* AVG is a sum here; its division is the divisor's. */
template <class T>
__device__ __forceinline__ typename T::value apply(uint32_t op, typename T::value a,
						   typename T::value b)
{
	switch (op) {
	case RUBATO_PROD:
		return T::prod(a, b);
	case RUBATO_MAX:
		return T::max(a, b);
	case RUBATO_MIN:
		return T::min(a, b);
	default:
		return T::sum(a, b);
	}
}

/* ---- Which elements are a thread's ---- */

__device__ __forceinline__ uint64_t thread_first(void)
{
	return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ uint64_t thread_step(void)
{
	return (uint64_t)gridDim.x * blockDim.x;
}

/* ---- Vectors of 16 bytes ---- */

template <class T> struct vector {
	static const int elements = 16 / sizeof(typename T::stored);

	union {
		uint4 all;
		typename T::stored element[elements];
	};
	__device__ __forceinline__ void load(const void *base, uint64_t i)
	{
		all = ((const uint4 *)base)[i];
	}
	__device__ __forceinline__ void store(void *base, uint64_t i) const
	{
		((uint4 *)base)[i] = all;
	}
};

template <class T> struct accumulator {
	static const int elements = vector<T>::elements;

	typename T::value value[elements];

	__device__ __forceinline__ void begin(typename T::value with)
	{
#pragma unroll
		for (int e = 0; e < elements; e++)
			value[e] = with;
	}
	__device__ __forceinline__ void begin(const vector<T> &in)
	{
#pragma unroll
		for (int e = 0; e < elements; e++)
			value[e] = T::widen(in.element[e]);
	}
	__device__ __forceinline__ void add(uint32_t op, const vector<T> &in)
	{
#pragma unroll
		for (int e = 0; e < elements; e++)
			value[e] = apply<T>(op, value[e], T::widen(in.element[e]));
	}
	__device__ __forceinline__ void divide(const typename T::divisor &by)
	{
#pragma unroll
		for (int e = 0; e < elements; e++)
			value[e] = by(value[e]);
	}
	__device__ __forceinline__ vector<T> narrow(void) const
	{
		vector<T> out;

#pragma unroll
		for (int e = 0; e < elements; e++)
			out.element[e] = T::narrow(value[e]);
		return out;
	}
};

/* Where the vectors of a call begin, in bytes, and how many they are. */
struct span {
	uint64_t offset, vectors;
};

/* N operands, all loaded before the first is used. */
template <class T, uint32_t op, int N, class Call>
__device__ __forceinline__ void reduce_few(const Call &call, span part, typename T::divisor by)
{
	const uint64_t step = thread_step();

	for (uint64_t i = thread_first(); i < part.vectors; i += step) {
		vector<T> in[N];
		accumulator<T> sum;

#pragma unroll
		for (int k = 0; k < N; k++)
			in[k].load((const char *)call.from[k] + part.offset, i);
		sum.begin(in[0]);
#pragma unroll
		for (int k = 1; k < N; k++)
			sum.add(op, in[k]);
		if (op == RUBATO_AVG)
			sum.divide(by);
		sum.narrow().store((char *)call.to + part.offset, i);
	}
}

/* Any number of operands, four at a time. */
template <class T, uint32_t op, class Call>
__device__ __forceinline__ void reduce_any(const Call &call, span part, typename T::divisor by)
{
	const uint64_t step = thread_step();
	const uint32_t operands = call.from_count;

	for (uint64_t i = thread_first(); i < part.vectors; i += step) {
		accumulator<T> sum;

		sum.begin(T::identity(op));
#pragma unroll 1
		for (uint32_t first = 0; first < operands; first += 4) {
			vector<T> in[4];

#pragma unroll
			for (uint32_t k = 0; k < 4; k++)
				if (first + k < operands)
					in[k].load((const char *)call.from[first + k] + part.offset,
						   i);
#pragma unroll
			for (uint32_t k = 0; k < 4; k++)
				if (first + k < operands)
					sum.add(op, in[k]);
		}
		if (op == RUBATO_AVG)
			sum.divide(by);
		sum.narrow().store((char *)call.to + part.offset, i);
	}
}

/* Operands of sums are mostly few, and all that gradients need. */
template <class T, bool few, class Call>
__device__ __forceinline__ void reduce_vectors(const Call &call, span part, typename T::divisor by)
{
	/* Floats are multiplied by 1 where nothing is divided. */
	const uint32_t sum = T::divides_late ? RUBATO_SUM : RUBATO_AVG;

	switch (call.op) {
	case RUBATO_PROD:
		reduce_any<T, RUBATO_PROD>(call, part, by);
		return;
	case RUBATO_MAX:
		reduce_any<T, RUBATO_MAX>(call, part, by);
		return;
	case RUBATO_MIN:
		reduce_any<T, RUBATO_MIN>(call, part, by);
		return;
	default:
		break;
	}
	if (T::divides_late && call.op == RUBATO_AVG && call.final_count > 1)
		reduce_any<T, RUBATO_AVG>(call, part, by);
	else if (few && call.from_count == 2)
		reduce_few<T, sum, 2>(call, part, by);
	else if (few && call.from_count == 3)
		reduce_few<T, sum, 3>(call, part, by);
	else if (few && call.from_count == 4)
		reduce_few<T, sum, 4>(call, part, by);
	else
		reduce_any<T, sum>(call, part, by);
}

/* ---- Element by element ---- */

template <class T>
__device__ __forceinline__ typename T::value load_one(const void *base, uint64_t i, bool aligned)
{
	typedef typename T::stored stored;
	union {
		stored all;
		uint8_t byte[sizeof(stored)];
	} element;
	const uint8_t *bytes = (const uint8_t *)base + i * sizeof(stored);

	if (aligned)
		return T::widen(((const stored *)base)[i]);
#pragma unroll
	for (unsigned b = 0; b < sizeof(stored); b++)
		element.byte[b] = bytes[b];
	return T::widen(element.all);
}

template <class T>
__device__ __forceinline__ void store_one(void *base, uint64_t i, typename T::value value,
					  bool aligned)
{
	typedef typename T::stored stored;
	union {
		stored all;
		uint8_t byte[sizeof(stored)];
	} element = { T::narrow(value) };
	uint8_t *bytes = (uint8_t *)base + i * sizeof(stored);

	if (aligned) {
		((stored *)base)[i] = element.all;
		return;
	}
#pragma unroll
	for (unsigned b = 0; b < sizeof(stored); b++)
		bytes[b] = element.byte[b];
}

template <class T, class Call>
__device__ __forceinline__ void reduce_one(const Call &call, uint64_t i, bool aligned,
					   typename T::divisor by)
{
	typename T::value value = load_one<T>(call.from[0], i, aligned);

#pragma unroll 1
	for (uint32_t k = 1; k < call.from_count; k++)
		value = apply<T>(call.op, value, load_one<T>(call.from[k], i, aligned));
	if (call.op == RUBATO_AVG)
		value = by(value);
	store_one<T>(call.to, i, value, aligned);
}

template <class T, bool few, class Call> __device__ __forceinline__ void reduce(const Call &call)
{
	const uint32_t size = sizeof(typename T::stored);
	const uintptr_t to = (uintptr_t)call.to;
	const typename T::divisor by(call.op, call.final_count);
	uintptr_t differ = 0;
	uint64_t before = call.count; /* Elements before the vectors; without any, all. */
	span part = { 0, 0 };

#pragma unroll 1
	for (uint32_t k = 0; k < call.from_count; k++)
		differ |= (uintptr_t)call.from[k] ^ to;
	const bool aligned = ((differ | to) & (size - 1)) == 0;

	if (aligned && (differ & 15) == 0) {
		part.offset = -to & 15;
		if (part.offset / size < call.count) {
			before = part.offset / size;
			part.vectors = (call.count - before) / (16 / size);
		}
	}
	reduce_vectors<T, few>(call, part, by);
	const uint64_t within = part.vectors * (16 / size), alone = call.count - within;

	for (uint64_t i = thread_first(); i < alone; i += thread_step())
		reduce_one<T>(call, i < before ? i : i + within, aligned, by);
}

} /* namespace */

#define KERNELS(T)                                                                                 \
	extern "C" __global__ void __launch_bounds__(RB_CUDA_BLOCK)                                \
		rb_reduce_##T(const struct rb_cuda_reduce __grid_constant__ call)                  \
	{                                                                                          \
		reduce<T, true>(call);                                                             \
	}                                                                                          \
	extern "C" __global__ void __launch_bounds__(RB_CUDA_BLOCK)                                \
		rb_reduce_many_##T(const struct rb_cuda_reduce_many __grid_constant__ call)        \
	{                                                                                          \
		reduce<T, false>(call);                                                            \
	}

KERNELS(f32)
KERNELS(f64)
KERNELS(i32)
KERNELS(i64)
KERNELS(f16)
KERNELS(bf16)
KERNELS(i8)
KERNELS(i16)
KERNELS(u8)
KERNELS(u16)
KERNELS(u32)
KERNELS(u64)
