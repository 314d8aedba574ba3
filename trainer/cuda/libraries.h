/*
 * libraries.h -- cuBLAS and cuDNN, loaded by name where a model is computed with them; the few of
 * their functions that are used.
 */
#ifndef TR_CUDA_LIBRARIES_H
#define TR_CUDA_LIBRARIES_H

#include <cublas_v2.h>
#include <cudnn.h>

#include "trainer/cuda/device.h"
#include "trainer/models/compute.h"

#define TR_BLAS_FUNCTIONS(X)                                                                       \
	X(cublasCreate)                                                                            \
	X(cublasDestroy)                                                                           \
	X(cublasSetStream)                                                                         \
	X(cublasSetMathMode)                                                                       \
	X(cublasGetStatusName)                                                                     \
	X(cublasSgemv)                                                                             \
	X(cublasGemmEx)                                                                            \
	X(cublasGemmStridedBatchedEx)

#define TR_DNN_FUNCTIONS(X)                                                                        \
	X(cudnnCreate)                                                                             \
	X(cudnnDestroy)                                                                            \
	X(cudnnSetStream)                                                                          \
	X(cudnnGetErrorString)                                                                     \
	X(cudnnCreateTensorDescriptor)                                                             \
	X(cudnnSetTensor4dDescriptor)                                                              \
	X(cudnnDestroyTensorDescriptor)                                                            \
	X(cudnnCreateFilterDescriptor)                                                             \
	X(cudnnSetFilter4dDescriptor)                                                              \
	X(cudnnDestroyFilterDescriptor)                                                            \
	X(cudnnCreateConvolutionDescriptor)                                                        \
	X(cudnnSetConvolution2dDescriptor)                                                         \
	X(cudnnSetConvolutionMathType)                                                             \
	X(cudnnDestroyConvolutionDescriptor)                                                       \
	X(cudnnGetConvolutionForwardAlgorithm_v7)                                                  \
	X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                             \
	X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                           \
	X(cudnnConvolutionForward)                                                                 \
	X(cudnnConvolutionBackwardData)                                                            \
	X(cudnnConvolutionBackwardFilter)                                                          \
	X(cudnnConvolutionBackwardBias)                                                            \
	X(cudnnBatchNormalizationForwardTraining)                                                  \
	X(cudnnBatchNormalizationForwardInference)                                                 \
	X(cudnnBatchNormalizationBackward)

struct tr_blas {
	cublasHandle_t handle;
	cublasComputeType_t how; /* Products. */
#define TR_BLAS_MEMBER(name) __typeof__(&(name)) p_##name;
	TR_BLAS_FUNCTIONS(TR_BLAS_MEMBER)
#undef TR_BLAS_MEMBER
};

struct tr_dnn {
	cudnnHandle_t handle;
#define TR_DNN_MEMBER(name) __typeof__(&(name)) p_##name;
	TR_DNN_FUNCTIONS(TR_DNN_MEMBER)
#undef TR_DNN_MEMBER
};

/* A handle whose calls go to the device's stream. Products have this precision, and float32 is
 * computed as float32, not TF32.
 * Errors: UNSUPPORTED (the library is missing, or too old), MEMORY, SYSTEM. */
rubato_status tr_blas_open(struct tr_blas *blas, struct tr_cuda *cuda, enum tr_precision precision,
			   struct tr_error *error);
void tr_blas_close(struct tr_blas *blas);
/* c[m][n] = scale * a[m][k] b[k][n] + keep * c, row-major as in product.h: `batch` of them, one
 * behind the other in each of the three. */
rubato_status tr_blas_product(const struct tr_blas *blas, size_t batch, size_t m, size_t n,
			      size_t k, float scale, struct tr_factor a, struct tr_factor b,
			      float keep, float *c, size_t c_stride, struct tr_error *error);
rubato_status tr_dnn_open(struct tr_dnn *dnn, struct tr_cuda *cuda, struct tr_error *error);
void tr_dnn_close(struct tr_dnn *dnn);

rubato_status tr_blas_check(const struct tr_blas *blas, cublasStatus_t status, const char *call,
			    struct tr_error *error);
rubato_status tr_dnn_check(const struct tr_dnn *dnn, cudnnStatus_t status, const char *call,
			   struct tr_error *error);

#define TR_BLAS_TRY(blas, error, call, ...)                                                        \
	TR_TRY(tr_blas_check((blas), (blas)->p_##call(__VA_ARGS__), #call, (error)))
#define TR_DNN_TRY(dnn, error, call, ...)                                                          \
	TR_TRY(tr_dnn_check((dnn), (dnn)->p_##call(__VA_ARGS__), #call, (error)))

#endif
