/* reduce_avx2.c -- vectors of 32 bytes. */
#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_X86
#define KERNEL rb_reduce_avx2
#define CONVERSION rb_convert_avx2
#define CODERS rb_coders_avx2
#define TARGET __attribute__((target("avx2,f16c")))
#define VECTOR_BYTES 32
#define MM(x) _mm256_##x
#define INT __m256i
#define FLT __m256
#define DBL __m256d

#define unordered_f32(value, a, b)                                                                 \
	((v_f32)_mm256_or_ps((__m256)(value),                                                      \
			     _mm256_cmp_ps((__m256)(a), (__m256)(b), _CMP_UNORD_Q)))
#define unordered_f64(value, a, b)                                                                 \
	((v_f64)_mm256_or_pd((__m256d)(value),                                                     \
			     _mm256_cmp_pd((__m256d)(a), (__m256d)(b), _CMP_UNORD_Q)))

#include "collectives/reduce/vector_x86.h"

#define HALF __m128i
#define half_load(at) _mm_loadu_si128((const __m128i *)(const void *)(at))
#define half_store(at, value) _mm_storeu_si128((__m128i *)(void *)(at), value)
#define half_stream(at, value) _mm_stream_si128((__m128i *)(void *)(at), value)
#define int_stream(at, value) _mm256_stream_si256((__m256i *)(void *)(at), (__m256i)(value))
#define halves_widen(half) _mm256_cvtepu16_epi32(half)
#define halves_narrow(value)                                                                       \
	_mm_packus_epi32(_mm256_castsi256_si128((__m256i)(value)),                                 \
			 _mm256_extracti128_si256((__m256i)(value), 1))
#define f16_widen(half) _mm256_cvtph_ps(half)
#define f16_narrow(value) _mm256_cvtps_ph((__m256)(value), _MM_FROUND_TO_NEAREST_INT)
#include "collectives/reduce/vector.h"

INLINE __m256i signed_load(const void *at)
{
	return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));
}

/* Saturated they are as they were. */
INLINE void signed_store(void *at, v_i32 value)
{
	__m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128((__m256i)value),
					_mm256_extracti128_si256((__m256i)value, 1));

	_mm_storel_epi64((__m128i *)at, _mm_packs_epi16(pairs, pairs));
}
#include "collectives/reduce/vector_coded.h"
#endif
