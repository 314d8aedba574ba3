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

rubato_status tr_blas_open(struct tr_blas *blas, struct tr_cuda *cuda, struct tr_error *error)
{
	static const char *const libraries[] = { "libcublas.so.13", "libcublas.so.12", NULL };
	const struct tr_cuda_symbol symbols[] = {
#define SYMBOL(name) { TR_CUDA_NAME(name), (void **)(void *)&blas->p_##name },
		TR_BLAS_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};

	TR_TRY(tr_cuda_load(libraries, symbols, sizeof(symbols) / sizeof(symbols[0]), error));
	TR_BLAS_TRY(blas, error, cublasCreate, &blas->handle);
	TR_BLAS_TRY(blas, error, cublasSetStream, blas->handle, cuda->stream);
	TR_BLAS_TRY(blas, error, cublasSetMathMode, blas->handle, CUBLAS_PEDANTIC_MATH);
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
