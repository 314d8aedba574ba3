/* libraries.c -- see libraries.h. */
#include "trainer/cuda/libraries.h"

rubato_status tr_blas_check(const struct tr_blas *blas, cublasStatus_t status, const char *call,
			    struct tr_error *error)
{
	if (status == CUBLAS_STATUS_SUCCESS)
		return RUBATO_OK;
	return tr_fail(error,
		       status == CUBLAS_STATUS_ALLOC_FAILED ? RUBATO_ERR_MEMORY : RUBATO_ERR_SYSTEM,
		       "--device cuda: %s: %s", call, blas->p_cublasGetStatusName(status));
}

rubato_status tr_dnn_check(const struct tr_dnn *dnn, cudnnStatus_t status, const char *call,
			   struct tr_error *error)
{
	if (status == CUDNN_STATUS_SUCCESS)
		return RUBATO_OK;
	return tr_fail(error,
		       status == CUDNN_STATUS_ALLOC_FAILED ? RUBATO_ERR_MEMORY : RUBATO_ERR_SYSTEM,
		       "--device cuda: %s: %s", call, dnn->p_cudnnGetErrorString(status));
}

rubato_status tr_blas_open(struct tr_blas *blas, struct tr_cuda *cuda, enum tr_precision precision,
			   struct tr_error *error)
{
	static const cublasComputeType_t hows[] = {
		[TR_FLOAT32] = CUBLAS_COMPUTE_32F_PEDANTIC,
		[TR_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32,
		[TR_BFLOAT16] = CUBLAS_COMPUTE_32F_FAST_16BF,
	};
	static const char *const libraries[] = { "libcublas.so.13", "libcublas.so.12", NULL };
	const struct tr_cuda_symbol symbols[] = {
#define SYMBOL(name) { TR_CUDA_NAME(name), (void **)(void *)&blas->p_##name },
		TR_BLAS_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};

	blas->how = hows[precision];
	TR_TRY(tr_cuda_load(libraries, symbols, sizeof(symbols) / sizeof(symbols[0]), error));
	TR_BLAS_TRY(blas, error, cublasCreate, &blas->handle);
	TR_BLAS_TRY(blas, error, cublasSetStream, blas->handle, cuda->stream);
	TR_BLAS_TRY(blas, error, cublasSetMathMode, blas->handle, CUBLAS_PEDANTIC_MATH);
	return RUBATO_OK;
}

/* Rows are cuBLAS' columns: it is asked for c^T = b^T a^T. */
rubato_status tr_blas_product(const struct tr_blas *blas, size_t batch, size_t m, size_t n,
			      size_t k, float scale, struct tr_factor a, struct tr_factor b,
			      float keep, float *c, size_t c_stride, struct tr_error *error)
{
	const cublasOperation_t a_how = a.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasOperation_t b_how = b.turned ? CUBLAS_OP_T : CUBLAS_OP_N;

	if (batch == 1) {
		TR_BLAS_TRY(blas, error, cublasGemmEx, blas->handle, b_how, a_how, (int)n, (int)m,
			    (int)k, &scale, b.at, CUDA_R_32F, (int)b.stride, a.at, CUDA_R_32F,
			    (int)a.stride, &keep, c, CUDA_R_32F, (int)c_stride, blas->how,
			    CUBLAS_GEMM_DEFAULT);
		return RUBATO_OK;
	}
	TR_BLAS_TRY(blas, error, cublasGemmStridedBatchedEx, blas->handle, b_how, a_how, (int)n,
		    (int)m, (int)k, &scale, b.at, CUDA_R_32F, (int)b.stride,
		    (long long)(b.stride * (b.turned ? n : k)), a.at, CUDA_R_32F, (int)a.stride,
		    (long long)(a.stride * (a.turned ? k : m)), &keep, c, CUDA_R_32F, (int)c_stride,
		    (long long)(c_stride * m), (int)batch, blas->how, CUBLAS_GEMM_DEFAULT);
	return RUBATO_OK;
}

void tr_blas_close(struct tr_blas *blas)
{
	if (blas->handle != NULL)
		(void)blas->p_cublasDestroy(blas->handle);
	blas->handle = NULL;
}

rubato_status tr_dnn_open(struct tr_dnn *dnn, struct tr_cuda *cuda, struct tr_error *error)
{
	static const char *const libraries[] = { "libcudnn.so.9", NULL };
	const struct tr_cuda_symbol symbols[] = {
#define SYMBOL(name) { TR_CUDA_NAME(name), (void **)(void *)&dnn->p_##name },
		TR_DNN_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};

	TR_TRY(tr_cuda_load(libraries, symbols, sizeof(symbols) / sizeof(symbols[0]), error));
	TR_DNN_TRY(dnn, error, cudnnCreate, &dnn->handle);
	TR_DNN_TRY(dnn, error, cudnnSetStream, dnn->handle, cuda->stream);
	return RUBATO_OK;
}

void tr_dnn_close(struct tr_dnn *dnn)
{
	if (dnn->handle != NULL)
		(void)dnn->p_cudnnDestroy(dnn->handle);
	dnn->handle = NULL;
}
