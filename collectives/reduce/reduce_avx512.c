/* reduce_avx512.c -- vectors of 64 bytes. */
#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_X86
#define KERNEL rb_reduce_avx512
#define CONVERSION rb_convert_avx512
#define CODERS rb_coders_avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw")))
#define VECTOR_BYTES 64
#define MM(x) _mm512_##x
#define INT __m512i
#define FLT __m512
#define DBL __m512d

#define unordered_f32(value, a, b)                                                                 \
	((v_f32)_mm512_mask_mov_epi32((__m512i)(value),                                            \
				      _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_UNORD_Q),  \
				      _mm512_set1_epi32(-1)))
#define unordered_f64(value, a, b)                                                                 \
	((v_f64)_mm512_mask_mov_epi64(                                                             \
		(__m512i)(value), _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_UNORD_Q),    \
		_mm512_set1_epi64(-1)))

#include "collectives/reduce/vector_x86.h"

#define HALF __m256i
#define half_load(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define half_store(at, value) _mm256_storeu_si256((__m256i *)(void *)(at), value)
#define half_stream(at, value) _mm256_stream_si256((__m256i *)(void *)(at), value)
#define int_stream(at, value) _mm512_stream_si512((__m512i *)(void *)(at), (__m512i)(value))
#define halves_widen(half) _mm512_cvtepu16_epi32(half)
#define halves_narrow(value) _mm512_cvtepi32_epi16((__m512i)(value))
#define f16_widen(half) _mm512_cvtph_ps(half)
/* All sixteen: without a mask gcc's own macro of -O0 converts a -1, which it then warns of. */
#define f16_narrow(value) _mm512_maskz_cvtps_ph(0xffff, (__m512)(value), _MM_FROUND_TO_NEAREST_INT)
#include "collectives/reduce/vector.h"

INLINE __m512i signed_load(const void *at)
{
	return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at));
}

INLINE void signed_store(void *at, v_i32 value)
{
	_mm_storeu_si128((__m128i *)at, _mm512_cvtepi32_epi8((__m512i)value));
}
#include "collectives/reduce/vector_coded.h"
#endif
