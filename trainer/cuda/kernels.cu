/*
 * kernels.cu -- what a step needs besides matrix products, convolutions and
 * normalisations (kernels.h). A thread owns what it writes; written without
 * fused multiply-adds, of which nvcc is told. Compiled by a C++ compiler, too,
 * for tests on the host (tests/cuda/emulated.cpp).
 */
#include "trainer/cuda/kernels.h"

#define TR_ACTIVATION __device__ __forceinline__
#include "trainer/models/activations.h"

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
			sum += (double)tr_exponential(o[k] - o[best]);
		c.rows[row].sum = sum;
		c.rows[row].gap = o[label] - o[best];
		c.rows[row].correct = best == label ? 1 : 0;
		if (c.slope == 0)
			continue;
		float *slope = c.slope + row * c.count;
		const float inverse = (float)(1.0 / sum);
		for (uint32_t k = 0; k < c.count; k++)
			slope[k] = c.scale * tr_exponential(o[k] - o[best]) * inverse -
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

/* ---- Models of text ---- */

const uint32_t WARP = 32, ALL_OF_WARP = 0xffffffff;

/* All lanes' sum, greatest: lanes that are 16 apart first. Each lane gets the same bits. */
__device__ __forceinline__ float lanes_sum(float value)
{
	for (int apart = WARP / 2; apart > 0; apart /= 2)
		value += __shfl_xor_sync(ALL_OF_WARP, value, apart);
	return value;
}

__device__ __forceinline__ float lanes_greatest(float value)
{
	for (int apart = WARP / 2; apart > 0; apart /= 2) {
		const float other = __shfl_xor_sync(ALL_OF_WARP, value, apart);

		value = other > value ? other : value;
	}
	return value;
}

/* A warp takes a row; a lane every 32nd of its columns. */
__device__ __forceinline__ uint32_t lane()
{
	return threadIdx.x % WARP;
}

__device__ __forceinline__ void embed(const tr_cuda_embed &c)
{
	for (uint64_t i = first(); i < (uint64_t)c.rows * c.count; i += step()) {
		const uint32_t row = (uint32_t)i / c.count, k = (uint32_t)i % c.count;

		c.to[i] = c.tokens[(uint64_t)(uint32_t)c.in[row] * c.count + k] +
			  c.positions[row % c.length * c.count + k];
	}
}

/* Where element i of [rows * length][parts][heads][size] lies in
 * [parts][rows][heads][length][size]. */
template <class Call> __device__ __forceinline__ uint64_t by_head(const Call &c, uint32_t i)
{
	const uint32_t k = i % c.size, head = i / c.size % c.heads;
	const uint32_t part = i / c.size / c.heads % c.parts;
	const uint32_t token = i / c.size / c.heads / c.parts;
	const uint32_t row = token / c.length, t = token % c.length;

	return ((((uint64_t)part * c.rows + row) * c.heads + head) * c.length + t) * c.size + k;
}

template <class Call> __device__ __forceinline__ uint64_t elements(const Call &c)
{
	return (uint64_t)c.rows * c.length * c.parts * c.heads * c.size;
}

__device__ __forceinline__ void split(const tr_cuda_split &c)
{
	const uint32_t width = c.parts * c.heads * c.size;

	for (uint64_t i = first(); i < elements(c); i += step())
		c.to[by_head(c, (uint32_t)i)] =
			c.bias != 0 ? c.from[i] + c.bias[(uint32_t)i % width] : c.from[i];
}

__device__ __forceinline__ void merge(const tr_cuda_merge &c)
{
	for (uint64_t i = first(); i < elements(c); i += step())
		c.to[i] = c.from[by_head(c, (uint32_t)i)];
}

__device__ __forceinline__ void gelu(const tr_cuda_gelu &c)
{
	for (uint64_t i = first(); i < (uint64_t)c.rows * c.count; i += step())
		c.to[i] = tr_gelu(c.from[i] + c.bias[(uint32_t)i % c.count]);
}

__device__ __forceinline__ void gelu_back(const tr_cuda_gelu_back &c)
{
	for (uint64_t i = first(); i < (uint64_t)c.rows * c.count; i += step())
		c.slope[i] *= tr_gelu_slope(c.from[i] + c.bias[(uint32_t)i % c.count]);
}

__device__ __forceinline__ void columns(const tr_cuda_columns &c)
{
	const uint32_t each = (c.rows + c.chunks - 1) / c.chunks;

	for (uint64_t i = first(); i < (uint64_t)c.chunks * c.count; i += step()) {
		const uint32_t chunk = (uint32_t)i / c.count, k = (uint32_t)i % c.count;
		const uint32_t end = (chunk + 1) * each < c.rows ? (chunk + 1) * each : c.rows;
		float sum = 0.0f, along = 0.0f;

		for (uint32_t row = chunk * each; row < end; row++) {
			const uint64_t at = (uint64_t)row * c.count + k;
			const float slope = c.from[at];

			sum += slope;
			if (c.value != 0)
				along += slope * ((c.value[at] - c.mean[row]) * c.inverse[row]);
		}
		if (c.value == 0) {
			c.to[i] = sum;
			continue;
		}
		c.to[2 * (uint64_t)chunk * c.count + k] = along;
		c.to[(2 * (uint64_t)chunk + 1) * c.count + k] = sum;
	}
}

__device__ __forceinline__ void gather(const tr_cuda_gather &c)
{
	for (uint64_t i = first(); i < (uint64_t)c.groups * c.count; i += step()) {
		const uint32_t group = (uint32_t)i / c.count, k = (uint32_t)i % c.count;
		const int32_t end = c.first[group + 1];
		float sum = 0.0f;

		for (int32_t j = c.first[group]; j < end; j++)
			sum += c.from[(uint64_t)(uint32_t)(c.order != 0 ? c.order[j] : j) *
					      c.count +
				      k];
		c.to[i] = sum;
	}
}

__device__ __forceinline__ void cell(const tr_cuda_cell &c)
{
	const uint32_t h = c.hidden;

	for (uint64_t n = first(); n < (uint64_t)c.rows * h; n += step()) {
		const uint32_t row = (uint32_t)n / h, k = (uint32_t)n % h;
		const float *token = c.table + (uint64_t)(uint32_t)c.in[row] * 4 * h + k;
		float *gates = c.gates + (uint64_t)row * 4 * h + k;
		float sum[4];

		for (uint32_t gate = 0; gate < 4; gate++)
			sum[gate] = c.recurrent != 0 ? gates[gate * h] + token[gate * h]
						     : token[gate * h];
		const float i = tr_logistic(sum[0]), f = tr_logistic(sum[1]);
		const float g = tr_tanh(sum[2]), o = tr_logistic(sum[3]);
		const float value = f * (c.cell_before != 0 ? c.cell_before[n] : 0.0f) + i * g;
		const float squashed = tr_tanh(value), state = o * squashed;

		gates[0] = i;
		gates[h] = f;
		gates[2 * h] = g;
		gates[3 * h] = o;
		c.cell[n] = value;
		c.squashed[n] = squashed;
		c.state[n] = state;
		if (row < c.going_on)
			c.after[n] = state;
	}
}

__device__ __forceinline__ void cell_back(const tr_cuda_cell_back &c)
{
	const uint32_t h = c.hidden;

	for (uint64_t n = first(); n < (uint64_t)c.rows * h; n += step()) {
		const uint32_t row = (uint32_t)n / h, k = (uint32_t)n % h;
		float *gates = c.gates + (uint64_t)row * 4 * h + k;
		const float i = gates[0], f = gates[h], g = gates[2 * h], o = gates[3 * h];
		const bool back = row < c.going_on;
		const float squashed = c.squashed[n];
		const float ds = c.state_slope[n] + (back ? c.back_state[n] : 0.0f);
		const float dc =
			ds * o * (1.0f - squashed * squashed) + (back ? c.back_cell[n] : 0.0f);
		const float before = c.cell_before != 0 ? c.cell_before[n] : 0.0f;

		c.back_cell[n] = dc * f;
		gates[0] = dc * g * i * (1.0f - i);
		gates[h] = dc * before * f * (1.0f - f);
		gates[2 * h] = dc * i * (1.0f - g * g);
		gates[3 * h] = ds * squashed * o * (1.0f - o);
	}
}

__device__ __forceinline__ void norm(const tr_cuda_norm &c)
{
	for (uint32_t row = first() / WARP; row < c.rows; row += step() / WARP) {
		const uint64_t at = (uint64_t)row * c.count;
		const float *x = (c.sum != 0 ? c.sum : c.in) + at;
		float mean = 0.0f, square = 0.0f;

		for (uint32_t k = lane(); k < c.count; k += WARP) {
			float value = c.in[at + k];

			if (c.sum != 0) {
				value += c.part[at + k] + c.bias[k];
				c.sum[at + k] = value;
			}
			mean += value;
		}
		mean = lanes_sum(mean) / (float)c.count;
		for (uint32_t k = lane(); k < c.count; k += WARP)
			square += (x[k] - mean) * (x[k] - mean);
		const float inverse =
			1.0f / sqrtf(lanes_sum(square) / (float)c.count + TR_CUDA_NORM_EPSILON);
		for (uint32_t k = lane(); k < c.count; k += WARP)
			c.out[at + k] = (x[k] - mean) * inverse * c.gain[k] + c.shift[k];
		if (lane() == 0) {
			c.mean[row] = mean;
			c.inverse[row] = inverse;
		}
	}
}

__device__ __forceinline__ void norm_back(const tr_cuda_norm_back &c)
{
	for (uint32_t row = first() / WARP; row < c.rows; row += step() / WARP) {
		const uint64_t at = (uint64_t)row * c.count;
		const float mean = c.mean[row], inverse = c.inverse[row];
		float level = 0.0f, along = 0.0f;

		for (uint32_t k = lane(); k < c.count; k += WARP) {
			const float slope = c.slope[at + k] * c.gain[k];

			level += slope;
			along += slope * ((c.value[at + k] - mean) * inverse);
		}
		level = lanes_sum(level) / (float)c.count;
		along = lanes_sum(along) / (float)c.count;
		for (uint32_t k = lane(); k < c.count; k += WARP) {
			const float even = (c.value[at + k] - mean) * inverse;

			put(&c.flow[at + k],
			    inverse * (c.slope[at + k] * c.gain[k] - level - even * along), c.add);
		}
	}
}

__device__ __forceinline__ void soften(const tr_cuda_soften &c)
{
	for (uint32_t row = first() / WARP; row < c.rows; row += step() / WARP) {
		float *p = c.scores + (uint64_t)row * c.length;
		const uint32_t seen = row % c.length + 1;
		float best = -3.4e38f, sum = 0.0f;

		for (uint32_t k = lane(); k < seen; k += WARP)
			best = p[k] > best ? p[k] : best;
		best = lanes_greatest(best);
		for (uint32_t k = lane(); k < seen; k += WARP) {
			p[k] = tr_exponential(p[k] - best);
			sum += p[k];
		}
		sum = lanes_sum(sum);
		for (uint32_t k = lane(); k < c.length; k += WARP)
			p[k] = k < seen ? p[k] / sum : 0.0f;
	}
}

__device__ __forceinline__ void soften_back(const tr_cuda_soften_back &c)
{
	for (uint32_t row = first() / WARP; row < c.rows; row += step() / WARP) {
		const float *p = c.chances + (uint64_t)row * c.length;
		float *s = c.slope + (uint64_t)row * c.length;
		const uint32_t seen = row % c.length + 1;
		float along = 0.0f;

		for (uint32_t k = lane(); k < seen; k += WARP)
			along += p[k] * s[k];
		along = lanes_sum(along);
		for (uint32_t k = lane(); k < c.length; k += WARP)
			s[k] = k < seen ? p[k] * (s[k] - along) : 0.0f;
	}
}

/* Of what the lanes found the greatest, of equals the first. */
__device__ __forceinline__ uint32_t lanes_winner(float value, uint32_t place)
{
	for (int apart = WARP / 2; apart > 0; apart /= 2) {
		const float other = __shfl_xor_sync(ALL_OF_WARP, value, apart);
		const uint32_t there = __shfl_xor_sync(ALL_OF_WARP, place, apart);

		if (other > value || (other == value && there < place)) {
			value = other;
			place = there;
		}
	}
	return place;
}

__device__ __forceinline__ void loss_tokens(const tr_cuda_loss_tokens &c)
{
	for (uint32_t row = first() / WARP; row < c.row_count; row += step() / WARP) {
		const float *o = c.outputs + (uint64_t)row * c.count;
		const uint32_t label = (uint32_t)c.labels[row];
		uint32_t best = lane() < c.count ? lane() : 0;
		float sum = 0.0f;

		for (uint32_t k = lane(); k < c.count; k += WARP)
			best = o[k] > o[best] ? k : best;
		best = lanes_winner(o[best], best);
		for (uint32_t k = lane(); k < c.count; k += WARP)
			sum += tr_exponential(o[k] - o[best]);
		sum = lanes_sum(sum);
		if (lane() == 0) {
			c.rows[row].sum = (double)sum;
			c.rows[row].gap = o[label] - o[best];
			c.rows[row].correct = best == label ? 1 : 0;
		}
		if (c.slope == 0)
			continue;
		for (uint32_t k = lane(); k < c.count; k += WARP)
			c.slope[(uint64_t)row * c.count + k] =
				c.scale * tr_exponential(o[k] - o[best]) / sum -
				(k == label ? c.scale : 0.0f);
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
