/*
 * kernels.cu -- reductions, conversions and updates of device memory, each with
 * the bits of its twin on the host (reduce_plain.c and coded_plain.c in
 * collectives/reduce/; optimizer.c in trainer/rules/).
 *
 * The elements between the first and the last 16-byte boundary go as vectors of
 * 16 bytes, all operands' loads before the first use; the few before and behind
 * them, and everything where the addresses differ modulo 16, one by one.
 * Written without fused multiply-adds: nvcc is told so. Compiled by a C++
 * compiler, too, for tests on the host (tests/cuda/emulated.cpp).
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
	/* Toward zero, by magnitudes: the count may be more than a signed type holds.
   */
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
	/* To nearest, ties to even; a carry out of the fraction is the next exponent.
   */
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

/* ---- Flat vectors: several at once, of types of one or two sizes, four
 * elements at a time ---- */

template <class T, int N> struct batch {
	typename T::value value[N];
};

template <int bytes> struct words;
template <> struct words<16> {
	typedef uint4 type;
};
template <> struct words<8> {
	typedef uint2 type;
};

/* Four elements. */
template <class T> union quad {
	typename words<4 * sizeof(typename T::stored)>::type all;
	typename T::stored element[4];
};

template <class T, int N>
__device__ __forceinline__ batch<T, N> load_batch(const void *base, uint64_t at, bool aligned)
{
	batch<T, N> out;

	if constexpr (N == 1) {
		out.value[0] = load_one<T>(base, at, aligned);
	} else {
		const quad<T> in = *(const quad<T> *)((const typename T::stored *)base + at);

#pragma unroll
		for (int e = 0; e < N; e++)
			out.value[e] = T::widen(in.element[e]);
	}
	return out;
}

template <class T, int N>
__device__ __forceinline__ void store_batch(void *base, uint64_t at, const batch<T, N> &in,
					    bool aligned)
{
	if constexpr (N == 1) {
		store_one<T>(base, at, in.value[0], aligned);
	} else {
		quad<T> out;

#pragma unroll
		for (int e = 0; e < N; e++)
			out.element[e] = T::narrow(in.value[e]);
		*(quad<T> *)((typename T::stored *)base + at) = out;
	}
}

/* A vector of a call; NULL: it has none. */
struct flat {
	const void *base;
	uint32_t size;
};

/*
 * Body::run<4>(i, true) for elements i to i + 3 that all vectors have at
 * multiples of four, and run<1>(i, aligned) for the others.
 */
template <class Body, int N>
__device__ __forceinline__ void each(const Body &body, const flat (&vectors)[N], uint64_t count)
{
	const uint64_t before = -((uintptr_t)vectors[0].base / vectors[0].size) & 3;
	bool aligned = true, agree = true;
	uint64_t quads = 0;

#pragma unroll
	for (int v = 0; v < N; v++) {
		const uintptr_t at = (uintptr_t)vectors[v].base;

		aligned &= (at & (vectors[v].size - 1)) == 0;
		agree &= at == 0 ||
			 ((at + before * vectors[v].size) & (4 * vectors[v].size - 1)) == 0;
	}
	if (aligned && agree && before < count)
		quads = (count - before) / 4;
	for (uint64_t i = thread_first(); i < quads; i += thread_step())
		body.template run<4>(before + 4 * i, true);
	for (uint64_t i = thread_first(); i < count - 4 * quads; i += thread_step())
		body.template run<1>(i < before || quads == 0 ? i : i + 4 * quads, aligned);
}

template <class From, class To> struct conversion {
	const struct rb_cuda_convert &call;

	template <int N> __device__ __forceinline__ void run(uint64_t i, bool aligned) const
	{
		const batch<From, N> in = load_batch<From, N>(call.from, i, aligned);
		batch<To, N> out;

#pragma unroll
		for (int e = 0; e < N; e++)
			out.value[e] = in.value[e];
		store_batch<To, N>(call.to, i, out, aligned);
	}
};

template <class From, class To>
__device__ __forceinline__ void convert(const struct rb_cuda_convert &call)
{
	const flat vectors[] = { { call.to, sizeof(typename To::stored) },
				 { call.from, sizeof(typename From::stored) } };

	each(conversion<From, To> { call }, vectors, call.count);
}

/* ---- The coded wire ---- */

template <class Call> __device__ __forceinline__ float factor_of(const Call &call)
{
	return call.final_count > 1 ? 1.0f / (float)call.final_count : 1.0f;
}

/* What rounding has lost, where that is a number. */
__device__ __forceinline__ float lost(float value, float kept)
{
	const float difference = value - kept;

	return (as_bits<uint32_t>(difference) & 0x7f800000) != 0x7f800000 ? difference : 0.0f;
}

/* From vectors of floats, one of them, or of bfloat16. */
template <class From, class Call> struct to_bf16 {
	const Call &call;
	float factor;

	template <int N> __device__ __forceinline__ void run(uint64_t i, bool aligned) const
	{
		batch<From, N> sum = load_batch<From, N>(call.from[0], i, aligned);
		batch<f32, N> kept;
		batch<bf16, N> out;

#pragma unroll 1
		for (uint32_t k = 1; k < call.from_count; k++) {
			const batch<From, N> in = load_batch<From, N>(call.from[k], i, aligned);

#pragma unroll
			for (int e = 0; e < N; e++)
				sum.value[e] += in.value[e];
		}
		if (call.residual != 0)
			kept = load_batch<f32, N>(call.residual, i, aligned);
#pragma unroll
		for (int e = 0; e < N; e++) {
			float value = sum.value[e] * factor;

			if (call.residual != 0)
				value += kept.value[e];
			out.value[e] = f32::finish(value);
			kept.value[e] = lost(out.value[e], bf16::widen(bf16::narrow(out.value[e])));
		}
		store_batch<bf16, N>(call.to, i, out, aligned);
		if (call.residual != 0)
			store_batch<f32, N>(call.residual, i, kept, aligned);
	}
};

template <class From, class Call> __device__ __forceinline__ void code_bf16(const Call &call)
{
	const to_bf16<From, Call> body = { call, factor_of(call) };
	const uint32_t size = sizeof(typename From::stored);
	const uintptr_t first = (uintptr_t)call.from[0];
	uintptr_t differ = 0;

#pragma unroll 1
	for (uint32_t k = 1; k < call.from_count; k++)
		differ |= (uintptr_t)call.from[k] ^ first;
	/* The last stands for all operands but the first: it agrees with that where they do. */
	const flat vectors[] = { { call.to, 2 },
				 { call.residual, 4 },
				 { call.from[0], size },
				 { (const void *)(first ^ (differ & (4 * size - 1))), size } };

	each(body, vectors, call.count);
}

__device__ __forceinline__ void decode_bf16(const struct rb_cuda_coded &call)
{
	const struct rb_cuda_convert conversion = { call.to, call.from[0], call.count };

	convert<bf16, f32>(conversion);
}

/* As it is: what is stored is no reduction's result. */
struct raw32 : f32 {
	static __device__ __forceinline__ float narrow(float value)
	{
		return value;
	}
};

/* int8: a unit is a scale and 128 bytes, a warp's lane has four of them. */
const uint32_t WARP = 32, UNIT_VALUES = 128, UNIT_BYTES = 132;
const float MOST = 127.0f, TO_WHOLE = 12582912.0f; /* 1.5 * 2^23 leaves whole numbers. */

typedef batch<raw32, 4> lane_values;

/* A lane's four floats of a vector of `count`; behind its end are zeros. */
__device__ __forceinline__ lane_values load_lane(const void *base, uint64_t first, uint64_t count)
{
	const bool aligned = ((uintptr_t)base & 3) == 0;
	lane_values out;

	if (((uintptr_t)base & 15) == 0 && first + 4 <= count)
		return load_batch<raw32, 4>(base, first, true);
#pragma unroll
	for (int e = 0; e < 4; e++)
		out.value[e] = first + e < count ? load_one<f32>(base, first + e, aligned) : 0.0f;
	return out;
}

__device__ __forceinline__ void store_lane(void *base, uint64_t first, uint64_t count,
					   const lane_values &in)
{
	const bool aligned = ((uintptr_t)base & 3) == 0;

	if (((uintptr_t)base & 15) == 0 && first + 4 <= count) {
		store_batch<raw32, 4>(base, first, in, true);
		return;
	}
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (first + e < count)
			store_one<raw32>(base, first + e, in.value[e], aligned);
}

__device__ __forceinline__ lane_values decode_lane(const void *units, uint64_t unit, uint32_t lane,
						   bool aligned)
{
	const char *at = (const char *)units + unit * UNIT_BYTES;
	const float scale = load_one<f32>(at, 0, aligned);
	const uint32_t codes = load_one<u32>(at, 1 + lane, aligned);
	lane_values out;

#pragma unroll
	for (int e = 0; e < 4; e++)
		out.value[e] = scale * (float)(int32_t)(int8_t)(codes >> (8 * e));
	return out;
}

/* All lanes together: adds the residual, and rounds. What a lane reads of the
 * unit it has read. */
template <class Call>
__device__ __forceinline__ void encode_lane(const Call &call, uint64_t unit, uint32_t lane,
					    lane_values in, bool aligned)
{
	const uint64_t first = unit * UNIT_VALUES + 4 * lane, end = first + 4;
	char *to = (char *)call.to + unit * UNIT_BYTES;
	lane_values kept;
	uint32_t most = 0, codes = 0;

	if (call.residual != 0)
		kept = load_lane(call.residual, first, end);
#pragma unroll
	for (int e = 0; e < 4; e++) {
		if (call.residual != 0)
			in.value[e] += kept.value[e];
		const uint32_t magnitude = as_bits<uint32_t>(in.value[e]) & 0x7fffffff;

		most = magnitude > most ? magnitude : most;
	}
	most = __reduce_max_sync(0xffffffff, most);
	const bool finite = most < 0x7f800000;
	const float scale = finite ? as_bits<float>(most) / MOST : f32::of(0x7fc00000);
	const float divisor = scale > 0.0f ? scale : 1.0f;

#pragma unroll
	for (int e = 0; e < 4; e++) {
		const float value = finite ? in.value[e] : 0.0f;
		float code = value / divisor;

		code = code > MOST ? MOST : code;
		code = code < -MOST ? -MOST : code;
		code = code + TO_WHOLE - TO_WHOLE;
		codes |= (uint32_t)(uint8_t)(int32_t)code << (8 * e);
		kept.value[e] = finite ? value - scale * code : 0.0f;
	}
	if (call.residual != 0)
		store_lane(call.residual, first, end, kept);
	__syncwarp();
	if (lane == 0)
		store_one<f32>(to, 0, scale, aligned);
	store_one<u32>(to, 1 + lane, codes, aligned);
}

__device__ __forceinline__ void encode_int8(const struct rb_cuda_coded &call)
{
	const bool aligned = ((uintptr_t)call.to & 3) == 0;
	const uint32_t lane = threadIdx.x % WARP;
	const uint64_t units = (call.count + UNIT_VALUES - 1) / UNIT_VALUES;

	for (uint64_t u = thread_first() / WARP; u < units; u += thread_step() / WARP) {
		const uint64_t first = u * UNIT_VALUES + 4 * lane;

		encode_lane(call, u, lane, load_lane(call.from[0], first, call.count), aligned);
	}
}

__device__ __forceinline__ void decode_int8(const struct rb_cuda_coded &call)
{
	const bool aligned = ((uintptr_t)call.from[0] & 3) == 0;
	const uint32_t lane = threadIdx.x % WARP;
	const uint64_t units = (call.count + UNIT_VALUES - 1) / UNIT_VALUES;

	for (uint64_t u = thread_first() / WARP; u < units; u += thread_step() / WARP) {
		const uint64_t first = u * UNIT_VALUES + 4 * lane;
		lane_values out = decode_lane(call.from[0], u, lane, aligned);

#pragma unroll
		for (int e = 0; e < 4; e++)
			out.value[e] = f32::finish(out.value[e]);
		store_lane(call.to, first, call.count, out);
	}
}

template <class Call> __device__ __forceinline__ void reduce_int8(const Call &call)
{
	const uint32_t lane = threadIdx.x % WARP;
	const float factor = factor_of(call);
	uintptr_t all = (uintptr_t)call.to;

#pragma unroll 1
	for (uint32_t k = 0; k < call.from_count; k++)
		all |= (uintptr_t)call.from[k];
	const bool aligned = (all & 3) == 0;

	for (uint64_t u = thread_first() / WARP; u < call.count; u += thread_step() / WARP) {
		lane_values sum = decode_lane(call.from[0], u, lane, aligned);

#pragma unroll 2
		for (uint32_t k = 1; k < call.from_count; k++) {
			const lane_values in = decode_lane(call.from[k], u, lane, aligned);

#pragma unroll
			for (int e = 0; e < 4; e++)
				sum.value[e] += in.value[e];
		}
#pragma unroll
		for (int e = 0; e < 4; e++)
			sum.value[e] *= factor;
		encode_lane(call, u, lane, sum, aligned);
	}
}

/* ---- Updates of parameters ---- */

struct sgd_update {
	const struct rb_cuda_sgd &call;

	template <int N> __device__ __forceinline__ void run(uint64_t i, bool aligned) const
	{
		batch<raw32, N> w = load_batch<raw32, N>(call.parameters, i, aligned);
		batch<raw32, N> g = load_batch<raw32, N>(call.gradient, i, aligned), v;

#pragma unroll
		for (int e = 0; e < N; e++)
			g.value[e] = g.value[e] + call.weight_decay * w.value[e];
		if (call.velocity != 0) {
			v = load_batch<raw32, N>(call.velocity, i, aligned);
#pragma unroll
			for (int e = 0; e < N; e++)
				g.value[e] = call.momentum * v.value[e] + g.value[e];
			store_batch<raw32, N>(call.velocity, i, g, aligned);
		}
#pragma unroll
		for (int e = 0; e < N; e++)
			w.value[e] -= call.rate * g.value[e];
		store_batch<raw32, N>(call.parameters, i, w, aligned);
	}
};

struct adam_update {
	const struct rb_cuda_adam &call;

	template <int N> __device__ __forceinline__ void run(uint64_t i, bool aligned) const
	{
		batch<raw32, N> w = load_batch<raw32, N>(call.parameters, i, aligned);
		batch<raw32, N> m = load_batch<raw32, N>(call.first, i, aligned);
		batch<raw32, N> v = load_batch<raw32, N>(call.second, i, aligned);
		const batch<raw32, N> gradient = load_batch<raw32, N>(call.gradient, i, aligned);

#pragma unroll
		for (int e = 0; e < N; e++) {
			const float g = gradient.value[e] + call.coupled * w.value[e];

			m.value[e] = call.beta1 * m.value[e] + (1.0f - call.beta1) * g;
			v.value[e] = call.beta2 * v.value[e] + (1.0f - call.beta2) * g * g;
			w.value[e] -= call.decoupled * w.value[e];
			w.value[e] -= call.rate * (m.value[e] * call.scale1) /
				      (sqrtf(v.value[e] * call.scale2) + call.epsilon);
		}
		store_batch<raw32, N>(call.first, i, m, aligned);
		store_batch<raw32, N>(call.second, i, v, aligned);
		store_batch<raw32, N>(call.parameters, i, w, aligned);
	}
};

__device__ __forceinline__ void update_sgd(const struct rb_cuda_sgd &call)
{
	const flat vectors[] = { { call.parameters, 4 },
				 { call.gradient, 4 },
				 { call.velocity, 4 } };

	each(sgd_update { call }, vectors, call.count);
}

__device__ __forceinline__ void update_adam(const struct rb_cuda_adam &call)
{
	const flat vectors[] = {
		{ call.parameters, 4 }, { call.gradient, 4 }, { call.first, 4 }, { call.second, 4 }
	};

	each(adam_update { call }, vectors, call.count);
}

/* ---- Gates ---- */

#if defined(__CUDACC__)
__device__ __forceinline__ void word_write(uint32_t *word, uint32_t value)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t word_read(const uint32_t *word)
{
	uint32_t value;

	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
	return value;
}
#endif

/* Looks are far apart, for each is one over the bus. */
__device__ __forceinline__ void gate(const struct rb_cuda_gate &call)
{
	word_write(call.reached, call.value);
	while ((int32_t)(word_read(call.opened) - call.value) < 0)
		__nanosleep(200);
	word_write(call.passed, call.value);
}

} /* namespace */

/* A kernel: its name, its struct, what it does. */
#define KERNEL(name, call_of, ...)                                                                 \
	extern "C" __global__ void __launch_bounds__(RB_CUDA_BLOCK)                                \
		name(const struct call_of __grid_constant__ call)                                  \
	{                                                                                          \
		__VA_ARGS__(call);                                                                 \
	}
#define REDUCE(T)                                                                                  \
	KERNEL(rb_reduce_##T, rb_cuda_reduce, reduce<T, true>)                                     \
	KERNEL(rb_reduce_many_##T, rb_cuda_reduce_many, reduce<T, false>)

REDUCE(f32)
REDUCE(f64)
REDUCE(i32)
REDUCE(i64)
REDUCE(f16)
REDUCE(bf16)
REDUCE(i8)
REDUCE(i16)
REDUCE(u8)
REDUCE(u16)
REDUCE(u32)
REDUCE(u64)
KERNEL(rb_widen_f16, rb_cuda_convert, convert<f16, f32>)
KERNEL(rb_widen_bf16, rb_cuda_convert, convert<bf16, f32>)
KERNEL(rb_narrow_f16, rb_cuda_convert, convert<f32, f16>)
KERNEL(rb_narrow_bf16, rb_cuda_convert, convert<f32, bf16>)
KERNEL(rb_encode_bf16, rb_cuda_coded, code_bf16<f32>)
KERNEL(rb_decode_bf16, rb_cuda_coded, decode_bf16)
KERNEL(rb_reduce_coded_bf16, rb_cuda_coded, code_bf16<bf16>)
KERNEL(rb_reduce_coded_many_bf16, rb_cuda_coded_many, code_bf16<bf16>)
KERNEL(rb_encode_int8, rb_cuda_coded, encode_int8)
KERNEL(rb_decode_int8, rb_cuda_coded, decode_int8)
KERNEL(rb_reduce_coded_int8, rb_cuda_coded, reduce_int8)
KERNEL(rb_reduce_coded_many_int8, rb_cuda_coded_many, reduce_int8)
KERNEL(rb_sgd, rb_cuda_sgd, update_sgd)
KERNEL(rb_adam, rb_cuda_adam, update_adam)
KERNEL(rb_gate, rb_cuda_gate, gate)
