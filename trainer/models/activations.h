/*
 * activations.h -- tanh, the logistic function and GELU in single precision, without branches or
 * calls, so that compilers work on several values at a time; the C library's tanhf takes as long as
 * the products. Kernels of devices have the same ones (TR_ACTIVATION): their bits are equal.
 */
#ifndef TR_ACTIVATIONS_H
#define TR_ACTIVATIONS_H

#include <stdint.h>

#ifndef TR_ACTIVATION
#define TR_ACTIVATION static inline
#endif

/* A fraction of polynomials, as in Eigen: off by less than 4e-7 of the value. From 7.9 on tanh is 1
 * in this precision. A NaN stays one. */
TR_ACTIVATION float tr_tanh(float x)
{
	const float most = 7.90531110763549805f;
	float y = x > most ? most : x < -most ? -most : x;
	float s = y * y;
	float over = -2.76076847742355e-16f;
	float under = 1.19825839466702e-06f;

	over = over * s + 2.00018790482477e-13f;
	over = over * s - 8.60467152213735e-11f;
	over = over * s + 5.12229709037114e-08f;
	over = over * s + 1.48572235717979e-05f;
	over = over * s + 6.37261928875436e-04f;
	over = over * s + 4.89352455891786e-03f;
	under = under * s + 1.18534705686654e-04f;
	under = under * s + 2.26843463243900e-03f;
	under = under * s + 4.89352518554385e-03f;
	return y * over / under;
}

TR_ACTIVATION float tr_logistic(float x)
{
	return 0.5f * tr_tanh(0.5f * x) + 0.5f;
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); its slope. */
TR_ACTIVATION float tr_gelu(float x)
{
	return 0.5f * x * (1.0f + tr_tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

TR_ACTIVATION float tr_gelu_slope(float x)
{
	const float a = 0.7978845608f, b = 0.044715f;
	const float t = tr_tanh(a * (x + b * x * x * x));

	return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * a * (1.0f + 3.0f * b * x * x);
}

/* Of x that is not above 0: 2^n times a polynomial in what is left (Cephes). Off by less than 2e-7
 * of the value; below 2^-125 it is 0. */
TR_ACTIVATION float tr_exponential(float x)
{
	const float least = -86.0f, y = x > least ? x : least;
	const int32_t n = (int32_t)(y * 1.44269504f - 0.5f);
	const float r = y - (float)n * 0.693359375f - (float)n * -2.12194440e-4f;
	union {
		uint32_t bits;
		float value;
	} power = { (uint32_t)(n + 127) << 23 };
	float p = 1.9875691500e-4f;

	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = (p * r * r + r + 1.0f) * power.value;
	return x > least ? p : x <= least ? 0.0f : x;
}

#endif
