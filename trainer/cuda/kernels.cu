/*
 * kernels.cu -- what a step needs besides matrix products, convolutions and
 * normalisations (kernels.h). A thread owns what it writes; written without
 * fused multiply-adds, of which nvcc is told. Compiled by a C++ compiler, too,
 * for tests on the host (tests/cuda/emulated.cpp).
 */
#include "trainer/cuda/kernels.h"

namespace trainer_kernels
{

__device__ __forceinline__ uint32_t first()
{
	return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ uint32_t step()
{
	return gridDim.x * blockDim.x;
}

__device__ __forceinline__ void put(float *to, float value, uint32_t add)
{
	*to = add != 0 ? *to + value : value;
}

/* ---- Layers ---- */

__device__ __forceinline__ void relu(const tr_cuda_relu &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] = c.from[i] > 0.0f ? c.from[i] : 0.0f;
}

__device__ __forceinline__ void relu_back(const tr_cuda_relu_back &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		put(&c.to[i], c.value[i] > 0.0f ? c.slope[i] : 0.0f, c.add);
}

__device__ __forceinline__ void bias(const tr_cuda_bias &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] += c.bias[(uint32_t)i / c.plane % c.channels];
}

/* Of a window that begins at `at` of its plane: where the largest, the first of
 * equals, is. */
__device__ __forceinline__ uint32_t winner(const float *plane, uint32_t at, uint32_t width,
					   uint32_t kernel)
{
	uint32_t best = at;

	for (uint32_t y = 0; y < kernel; y++)
		for (uint32_t x = 0; x < kernel; x++)
			if (plane[at + y * width + x] > plane[best])
				best = at + y * width + x;
	return best;
}

__device__ __forceinline__ void pool(const tr_cuda_pool &c)
{
	const uint32_t out_plane = c.out_height * c.out_width;

	for (uint64_t i = first(); i < (uint64_t)c.planes * out_plane; i += step()) {
		const uint32_t p = (uint32_t)i / out_plane, k = (uint32_t)i % out_plane;
		const uint32_t y = k / c.out_width, x = k % c.out_width;
		const float *plane = c.from + (uint64_t)p * c.in_height * c.in_width;

		c.to[i] =
			plane[winner(plane, (y * c.in_width + x) * c.kernel, c.in_width, c.kernel)];
	}
}

__device__ __forceinline__ void pool_back(const tr_cuda_pool_back &c)
{
	const uint32_t in_plane = c.in_height * c.in_width;

	for (uint64_t i = first(); i < (uint64_t)c.planes * in_plane; i += step()) {
		const uint32_t p = (uint32_t)i / in_plane, k = (uint32_t)i % in_plane;
		const uint32_t y = k / c.in_width / c.kernel, x = k % c.in_width / c.kernel;
		const float *plane = c.value + (uint64_t)p * in_plane;
		float slope = 0.0f;

		if (y < c.out_height && x < c.out_width &&
		    winner(plane, (y * c.in_width + x) * c.kernel, c.in_width, c.kernel) == k)
			slope = c.slope[((uint64_t)p * c.out_height + y) * c.out_width + x];
		put(&c.to[i], slope, c.add);
	}
}

__device__ __forceinline__ void average(const tr_cuda_average &c)
{
	for (uint64_t p = first(); p < c.planes; p += step()) {
		float sum = 0.0f;

		for (uint32_t k = 0; k < c.plane; k++)
			sum += c.from[p * c.plane + k];
		c.to[p] = sum / (float)c.plane;
	}
}

__device__ __forceinline__ void average_back(const tr_cuda_average_back &c)
{
	for (uint64_t i = first(); i < (uint64_t)c.planes * c.plane; i += step())
		put(&c.to[i], c.slope[(uint32_t)i / c.plane] / (float)c.plane, c.add);
}

__device__ __forceinline__ void add(const tr_cuda_add &c)
{
	const uint64_t count = (uint64_t)c.rows * c.channels * c.height * c.width;

	for (uint64_t i = first(); i < count; i += step()) {
		const uint32_t x = (uint32_t)i % c.width, line = (uint32_t)i / c.width;
		const uint32_t y = line % c.height, plane = line / c.height;
		const uint32_t channel = plane % c.channels, row = plane / c.channels;
		float value = c.from[i];

		if (channel < c.wide_channels)
			value += c.early[((uint64_t)(row * c.wide_channels + channel) *
						  c.wide_height +
					  y * c.stride) *
						 c.wide_width +
					 x * c.stride];
		c.to[i] = value;
	}
}

__device__ __forceinline__ void add_back(const tr_cuda_add_back &c)
{
	const uint64_t count = (uint64_t)c.rows * c.wide_channels * c.wide_height * c.wide_width;

	for (uint64_t i = first(); i < count; i += step()) {
		const uint32_t x = (uint32_t)i % c.wide_width, line = (uint32_t)i / c.wide_width;
		const uint32_t y = line % c.wide_height, plane = line / c.wide_height;
		const uint32_t channel = plane % c.wide_channels, row = plane / c.wide_channels;
		float slope = 0.0f;

		if (x % c.stride == 0 && y % c.stride == 0)
			slope = c.slope[((uint64_t)(row * c.channels + channel) * c.height +
					 y / c.stride) *
						c.width +
					x / c.stride];
		put(&c.to[i], slope, c.add);
	}
}

/* ---- Losses ---- */

/* Of x that is not above 0: 2^n times a polynomial in what is left (Cephes). */
__device__ __forceinline__ float exponential(float x)
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

__device__ __forceinline__ void loss_labels(const tr_cuda_loss_labels &c)
{
	for (uint64_t row = first(); row < c.row_count; row += step()) {
		const float *o = c.outputs + row * c.count;
		const uint32_t label = (uint32_t)c.labels[row];
		uint32_t best = 0;
		double sum = 0.0;

		for (uint32_t k = 1; k < c.count; k++)
			best = o[k] > o[best] ? k : best;
		for (uint32_t k = 0; k < c.count; k++)
			sum += (double)exponential(o[k] - o[best]);
		c.rows[row].sum = sum;
		c.rows[row].gap = o[label] - o[best];
		c.rows[row].correct = best == label ? 1 : 0;
		if (c.slope == 0)
			continue;
		float *slope = c.slope + row * c.count;
		const float inverse = (float)(1.0 / sum);
		for (uint32_t k = 0; k < c.count; k++)
			slope[k] = c.scale * exponential(o[k] - o[best]) * inverse -
				   (k == label ? c.scale : 0.0f);
	}
}

__device__ __forceinline__ void loss_targets(const tr_cuda_loss_targets &c)
{
	for (uint64_t row = first(); row < c.row_count; row += step()) {
		double sum = 0.0;

		for (uint64_t k = row * c.count; k < (row + 1) * c.count; k++) {
			const float difference = c.outputs[k] - c.targets[k];

			sum += (double)difference * (double)difference;
			if (c.slope != 0)
				c.slope[k] = c.scale * difference;
		}
		c.rows[row].sum = sum;
		c.rows[row].gap = 0.0f;
		c.rows[row].correct = 0;
	}
}

/* ---- Flat vectors ---- */

__device__ __forceinline__ void vector_add(const tr_cuda_vector_add &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] += c.x[i];
}

__device__ __forceinline__ void vector_subtract(const tr_cuda_vector_subtract &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] = c.x[i] - c.y[i];
}

__device__ __forceinline__ void vector_scale(const tr_cuda_vector_scale &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] *= c.factor;
}

__device__ __forceinline__ void vector_divide(const tr_cuda_vector_divide &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] = c.x[i] / c.divisor;
}

__device__ __forceinline__ void vector_combine(const tr_cuda_vector_combine &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] = c.a * c.x[i] + c.b * c.y[i];
}

__device__ __forceinline__ void vector_approach(const tr_cuda_vector_approach &c)
{
	for (uint64_t i = first(); i < c.count; i += step())
		c.to[i] += c.a * (c.x[i] - c.to[i]);
}

__device__ __forceinline__ void vector_square(const tr_cuda_vector_square &c)
{
	for (uint64_t s = first(); s < c.sums; s += step()) {
		double sum = 0.0;

		for (uint64_t i = s; i < c.count; i += c.sums) {
			const float way = c.y != 0 ? c.x[i] - c.y[i] : c.x[i];

			sum += (double)way * (double)way;
		}
		c.sum[s] = sum;
	}
}

__device__ __forceinline__ void vector_fold(const tr_cuda_vector_fold &c)
{
	for (uint64_t i = first(); i < c.count; i += step()) {
		double sum = 0.0;

		for (uint64_t k = i * c.width; k < (i + 1) * c.width; k++)
			sum += c.from[k];
		c.to[i] = sum;
	}
}

__device__ __forceinline__ void vector_sgd(const tr_cuda_vector_sgd &c)
{
	for (uint64_t i = first(); i < c.count; i += step()) {
		float way = c.gradient[i] + c.weight_decay * c.parameters[i];

		if (c.velocity != 0) {
			way = c.momentum * c.velocity[i] + way;
			c.velocity[i] = way;
		}
		c.parameters[i] -= c.rate * way;
	}
}

__device__ __forceinline__ void vector_adam(const tr_cuda_vector_adam &c)
{
	for (uint64_t i = first(); i < c.count; i += step()) {
		float w = c.parameters[i];
		const float g = c.gradient[i] + c.coupled * w;
		const float m = c.beta1 * c.first[i] + (1.0f - c.beta1) * g;
		const float v = c.beta2 * c.second[i] + (1.0f - c.beta2) * g * g;

		c.first[i] = m;
		c.second[i] = v;
		w -= c.decoupled * w;
		w -= c.rate * (m * c.scale1) / (sqrtf(v * c.scale2) + c.epsilon);
		c.parameters[i] = w;
	}
}

} // namespace trainer_kernels

#define TR_CUDA_KERNEL(name)                                                                       \
	extern "C" __global__ void __launch_bounds__(TR_CUDA_BLOCK)                                \
		tr_##name(const struct tr_cuda_##name __grid_constant__ call)                      \
	{                                                                                          \
		trainer_kernels::name(call);                                                       \
	}
TR_CUDA_KERNELS(TR_CUDA_KERNEL)
