/*
 * fake_cublas.c -- a libcublas.so.13 of the few functions that the trainer calls, as documented:
 * matrices are column-major, alpha and beta the host's, what beta = 0 multiplies is not read.
 */
#include <cublas_v2.h>

#include "tests/cuda/fake/fake_library.h"

#define TAG 0xb1a5

struct cublasContext {
	unsigned tag;
	CUstream stream;
	cublasMath_t math;
};

#define ASKED()                                                                                    \
	do {                                                                                       \
		CUresult asked_ = fake_cuda_asked(__func__);                                       \
		if (asked_ == CUDA_ERROR_OUT_OF_MEMORY)                                            \
			return CUBLAS_STATUS_ALLOC_FAILED;                                         \
		if (asked_ != CUDA_SUCCESS)                                                        \
			return CUBLAS_STATUS_EXECUTION_FAILED;                                     \
	} while (0)
#define ASKED_HANDLE()                                                                             \
	do {                                                                                       \
		ASKED();                                                                           \
		if (handle == NULL || handle->tag != TAG)                                          \
			return CUBLAS_STATUS_NOT_INITIALIZED;                                      \
	} while (0)

EXPORT const char *cublasGetStatusName(cublasStatus_t status)
{
	switch (status) {
	case CUBLAS_STATUS_NOT_INITIALIZED:
		return "CUBLAS_STATUS_NOT_INITIALIZED";
	case CUBLAS_STATUS_ALLOC_FAILED:
		return "CUBLAS_STATUS_ALLOC_FAILED";
	case CUBLAS_STATUS_INVALID_VALUE:
		return "CUBLAS_STATUS_INVALID_VALUE";
	case CUBLAS_STATUS_EXECUTION_FAILED:
		return "CUBLAS_STATUS_EXECUTION_FAILED";
	default:
		return "another status";
	}
}

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
	ASKED();
	MAKE(out, TAG);
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
	ASKED_HANDLE();
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
	ASKED_HANDLE();
	handle->stream = stream;
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math)
{
	ASKED_HANDLE();
	handle->math = math;
	return CUBLAS_STATUS_SUCCESS;
}

/* c = alpha a b + beta c, element by element; steps to the next row, column and product. */
struct product {
	int m, n, k, batch;
	float alpha, beta;
	const float *a, *b;
	float *c;
	size_t a_row, a_column, b_row, b_column, c_row, c_column;
	size_t a_next, b_next, c_next;
	cublasComputeType_t how;
};

/* As tensor cores take it. */
static float taken(float value, cublasComputeType_t how)
{
	return how == CUBLAS_COMPUTE_32F_FAST_TF32   ? fake_rounded(value, 10)
	       : how == CUBLAS_COMPUTE_32F_FAST_16BF ? fake_rounded(value, 7)
						     : value;
}

static void product_one(const struct product *p, size_t number)
{
	for (int j = 0; j < p->n; j++)
		for (int i = 0; i < p->m; i++) {
			const float *a = p->a + number * p->a_next + (size_t)i * p->a_row;
			const float *b = p->b + number * p->b_next + (size_t)j * p->b_column;
			float *c = p->c + number * p->c_next + (size_t)i * p->c_row +
				   (size_t)j * p->c_column;
			float sum = 0.0f;

			for (int k = 0; k < p->k; k++)
				sum += taken(a[(size_t)k * p->a_column], p->how) *
				       taken(b[(size_t)k * p->b_row], p->how);
			*c = p->alpha * sum + (p->beta == 0.0f ? 0.0f : p->beta * *c);
		}
}

static void product_run(void *arg)
{
	const struct product *p = arg;

	for (int i = 0; i < p->batch; i++)
		product_one(p, (size_t)i);
}

static size_t matrix_bytes(int rows, int columns, int step)
{
	return ((size_t)(columns - 1) * (size_t)step + (size_t)rows) * sizeof(float);
}

EXPORT cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t a_how, int m, int n,
				     const float *alpha, const float *a, int lda, const float *x,
				     int x_step, const float *beta, float *y, int y_step)
{
	const bool t = a_how == CUBLAS_OP_T;
	struct product p = { .m = t ? n : m, .n = 1, .k = t ? m : n, .batch = 1 };

	ASKED_HANDLE();
	if (m <= 0 || n <= 0 || lda < m || x_step <= 0 || y_step <= 0 || alpha == NULL ||
	    beta == NULL || (!t && a_how != CUBLAS_OP_N))
		return CUBLAS_STATUS_INVALID_VALUE;
	p.alpha = *alpha;
	p.beta = *beta;
	p.a = fake_cuda_reach(a, matrix_bytes(m, n, lda));
	p.b = fake_cuda_reach(x, matrix_bytes(1, p.k, x_step));
	p.c = fake_cuda_reach(y, matrix_bytes(1, p.m, y_step));
	p.a_row = t ? (size_t)lda : 1;
	p.a_column = t ? 1 : (size_t)lda;
	p.b_row = (size_t)x_step;
	p.c_row = (size_t)y_step;
	if (p.a == NULL || p.b == NULL || p.c == NULL || handle->math != CUBLAS_PEDANTIC_MATH)
		return CUBLAS_STATUS_EXECUTION_FAILED;
	return fake_do(handle->stream, product_run, &p, sizeof(p)) == CUDA_SUCCESS
		       ? CUBLAS_STATUS_SUCCESS
		       : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* One behind the other in each matrix: products must not write what another reads or writes. */
static cublasStatus_t products(cublasHandle_t handle, bool ta, bool tb, struct product p, int lda,
			       int ldb, int ldc)
{
	const int many = p.batch - 1;

	if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.batch <= 0 || lda < (ta ? p.k : p.m) ||
	    ldb < (tb ? p.n : p.k) || ldc < p.m ||
	    (many > 0 && p.c_next < matrix_bytes(p.m, p.n, ldc) / sizeof(float)))
		return CUBLAS_STATUS_INVALID_VALUE;
	p.a = fake_cuda_reach(p.a, matrix_bytes(ta ? p.k : p.m, ta ? p.m : p.k, lda) +
					   (size_t)many * p.a_next * sizeof(float));
	p.b = fake_cuda_reach(p.b, matrix_bytes(tb ? p.n : p.k, tb ? p.k : p.n, ldb) +
					   (size_t)many * p.b_next * sizeof(float));
	p.c = fake_cuda_reach(p.c, matrix_bytes(p.m, p.n, ldc) +
					   (size_t)many * p.c_next * sizeof(float));
	p.a_row = ta ? (size_t)lda : 1;
	p.a_column = ta ? 1 : (size_t)lda;
	p.b_row = tb ? (size_t)ldb : 1;
	p.b_column = tb ? 1 : (size_t)ldb;
	p.c_row = 1;
	p.c_column = (size_t)ldc;
	if (p.a == NULL || p.b == NULL || p.c == NULL)
		return CUBLAS_STATUS_EXECUTION_FAILED;
	return fake_do(handle->stream, product_run, &p, sizeof(p)) == CUDA_SUCCESS
		       ? CUBLAS_STATUS_SUCCESS
		       : CUBLAS_STATUS_EXECUTION_FAILED;
}

static bool floats(cublasOperation_t a_how, cublasOperation_t b_how, cudaDataType a, cudaDataType b,
		   cudaDataType c, cublasComputeType_t how, cublasGemmAlgo_t algorithm)
{
	return (a_how == CUBLAS_OP_T || a_how == CUBLAS_OP_N) &&
	       (b_how == CUBLAS_OP_T || b_how == CUBLAS_OP_N) && a == CUDA_R_32F &&
	       b == CUDA_R_32F && c == CUDA_R_32F &&
	       (how == CUBLAS_COMPUTE_32F_PEDANTIC || how == CUBLAS_COMPUTE_32F_FAST_TF32 ||
		how == CUBLAS_COMPUTE_32F_FAST_16BF) &&
	       algorithm == CUBLAS_GEMM_DEFAULT;
}

EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_how,
				   cublasOperation_t b_how, int m, int n, int k, const void *alpha,
				   const void *a, cudaDataType a_type, int lda, const void *b,
				   cudaDataType b_type, int ldb, const void *beta, void *c,
				   cudaDataType c_type, int ldc, cublasComputeType_t how,
				   cublasGemmAlgo_t algorithm)
{
	struct product p = {
		.m = m, .n = n, .k = k, .batch = 1, .a = a, .b = b, .c = c, .how = how
	};

	ASKED_HANDLE();
	if (alpha == NULL || beta == NULL ||
	    !floats(a_how, b_how, a_type, b_type, c_type, how, algorithm))
		return CUBLAS_STATUS_INVALID_VALUE;
	p.alpha = *(const float *)alpha;
	p.beta = *(const float *)beta;
	return products(handle, a_how == CUBLAS_OP_T, b_how == CUBLAS_OP_T, p, lda, ldb, ldc);
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(
	cublasHandle_t handle, cublasOperation_t a_how, cublasOperation_t b_how, int m, int n,
	int k, const void *alpha, const void *a, cudaDataType a_type, int lda, long long a_next,
	const void *b, cudaDataType b_type, int ldb, long long b_next, const void *beta, void *c,
	cudaDataType c_type, int ldc, long long c_next, int batch, cublasComputeType_t how,
	cublasGemmAlgo_t algorithm)
{
	struct product p = {
		.m = m, .n = n, .k = k, .batch = batch, .a = a, .b = b, .c = c, .how = how
	};

	ASKED_HANDLE();
	if (alpha == NULL || beta == NULL || a_next < 0 || b_next < 0 || c_next < 0 ||
	    !floats(a_how, b_how, a_type, b_type, c_type, how, algorithm))
		return CUBLAS_STATUS_INVALID_VALUE;
	p.alpha = *(const float *)alpha;
	p.beta = *(const float *)beta;
	p.a_next = (size_t)a_next;
	p.b_next = (size_t)b_next;
	p.c_next = (size_t)c_next;
	return products(handle, a_how == CUBLAS_OP_T, b_how == CUBLAS_OP_T, p, lda, ldb, ldc);
}
