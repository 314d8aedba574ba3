/*
 * reduce_sse2.c -- vectors of 16 bytes: what every x86-64 has. No instruction converts float16, so
 * it is done on the bits, four at a time, as half.h does one.
 */
#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_X86
#define KERNEL rb_reduce_sse2
#define CONVERSION rb_convert_sse2
#define CODERS rb_coders_sse2
#define TARGET
#define VECTOR_BYTES 16
#define MM(x) _mm_##x
#define INT __m128i
#define FLT __m128
#define DBL __m128d

#define unordered_f32(value, a, b)                                                                 \
	((v_f32)_mm_or_ps((__m128)(value), _mm_cmpunord_ps((__m128)(a), (__m128)(b))))
#define unordered_f64(value, a, b)                                                                 \
	((v_f64)_mm_or_pd((__m128d)(value), _mm_cmpunord_pd((__m128d)(a), (__m128d)(b))))

#include "collectives/reduce/vector_x86.h"

#define HALF __m128i /* The lower half of it. */
#define half_load(at) _mm_loadl_epi64((const __m128i *)(const void *)(at))
#define half_store(at, value) _mm_storel_epi64((__m128i *)(void *)(at), value)
#define half_stream(at, value) _mm_stream_si64((long long *)(void *)(at), _mm_cvtsi128_si64(value))
#define int_stream(at, value) _mm_stream_si128((__m128i *)(void *)(at), (__m128i)(value))

typedef float four_floats __attribute__((vector_size(16)));
typedef uint32_t four_words __attribute__((vector_size(16)));

static inline four_words halves_widen(__m128i half)
{
	return (four_words)_mm_unpacklo_epi16(half, _mm_setzero_si128());
}

/* The only pack that SSE2 has saturates signed: from sign-extended values nothing is lost. */
static inline __m128i halves_narrow(four_words value)
{
	__m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)value, 16), 16);

	return _mm_packs_epi32(extended, extended);
}

static inline four_floats f16_widen(__m128i halves)
{
	four_words half = halves_widen(halves), sign = (half & 0x8000) << 16;
	four_words magnitude = (half & 0x7fff) << 13;
	four_words special = (four_words)(magnitude >= 0x0f800000) & 0x7f800000;
	/* 2^112 moves the exponent to its place, for subnormals too, exactly. */
	four_words value = (four_words)((four_floats)magnitude * 0x1p112f);

	return (four_floats)(sign | value | special);
}

/* No NaN but the canonical one comes here. */
static inline __m128i f16_narrow(four_floats value)
{
	four_words bits = (four_words)value, sign = bits >> 16 & 0x8000;
	four_words magnitude = bits & 0x7fffffff;
	four_words normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
	/* The last place of floats from 0.5 to 1 is 2^-24: the addition rounds as it must. */
	four_words tiny = (four_words)((four_floats)magnitude + 0.5f) - 0x3f000000;
	four_words is_tiny = (four_words)(magnitude < 0x38800000);
	four_words is_large = (four_words)(magnitude >= 0x477ff000);
	four_words is_nan = (four_words)(magnitude > 0x7f800000);
	four_words half = (tiny & is_tiny) | (normal & ~is_tiny);

	half = (half & ~is_large) | (is_large & 0x7c00) | (is_nan & 0x0200);
	return halves_narrow(half | sign);
}
#include "collectives/reduce/vector.h"

/* Four bytes; saturated they are as they were. */
static inline __m128i signed_load(const void *at)
{
	int word;

	memcpy(&word, at, sizeof(word));
	__m128i bytes = _mm_cvtsi32_si128(word), pairs = _mm_unpacklo_epi8(bytes, bytes);

	return _mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24);
}

static inline void signed_store(void *at, v_i32 value)
{
	__m128i pairs = _mm_packs_epi32((__m128i)value, (__m128i)value);
	int word = _mm_cvtsi128_si32(_mm_packs_epi16(pairs, pairs));

	memcpy(at, &word, sizeof(word));
}
#include "collectives/reduce/vector_coded.h"
#endif
