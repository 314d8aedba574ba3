/* product.c -- see product.h. */
#include "trainer/models/product.h"

#include <string.h>

#ifdef TR_HAVE_DNNL
#include <dnnl.h>
#include <omp.h>

rubato_status tr_product_dnnl(size_t m, size_t n, size_t k, float scale, struct tr_factor a,
			      struct tr_factor b, float keep, float *c, size_t c_stride,
			      struct tr_error *error)
{
	dnnl_status_t status;

	omp_set_num_threads(1); /* The ranks of a node share its cores: one each. */
	status = dnnl_sgemm(a.turned ? 'T' : 'N', b.turned ? 'T' : 'N', (dnnl_dim_t)m,
			    (dnnl_dim_t)n, (dnnl_dim_t)k, scale, a.at, (dnnl_dim_t)a.stride, b.at,
			    (dnnl_dim_t)b.stride, keep, c, (dnnl_dim_t)c_stride);
	if (status == dnnl_success)
		return RUBATO_OK;
	return tr_fail(error, status == dnnl_out_of_memory ? RUBATO_ERR_MEMORY : RUBATO_ERR_SYSTEM,
		       "oneDNN: sgemm gave status %d", (int)status);
}
#endif

static float entry(struct tr_factor f, size_t row, size_t column)
{
	return f.turned ? f.at[column * f.stride + row] : f.at[row * f.stride + column];
}

rubato_status tr_product_plain(size_t m, size_t n, size_t k, float scale, struct tr_factor a,
			       struct tr_factor b, float keep, float *c, size_t c_stride,
			       struct tr_error *error)
{
	(void)error; /* Loops do not fail. */
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++) {
			float *to = &c[i * c_stride + j], sum = 0.0f;

			for (size_t l = 0; l < k; l++)
				sum += entry(a, i, l) * entry(b, l, j);
			*to = keep == 0.0f ? scale * sum : scale * sum + keep * *to;
		}
	return RUBATO_OK;
}

void tr_rows_shift(float *rows, size_t row_count, size_t count, const float *bias)
{
	for (size_t i = 0; i < row_count; i++)
		for (size_t k = 0; k < count; k++)
			rows[i * count + k] += bias[k];
}

void tr_rows_sum(const float *rows, size_t row_count, size_t count, float *sum)
{
	memset(sum, 0, count * sizeof(*sum));
	for (size_t i = 0; i < row_count; i++)
		for (size_t k = 0; k < count; k++)
			sum[k] += rows[i * count + k];
}
