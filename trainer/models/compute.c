/* compute.c -- which backend computes a model. */
#include "trainer/models/compute.h"

#ifdef TR_HAVE_DNNL
#define FASTEST(name) name##_dnnl
#else
#define FASTEST(name) name##_plain
#endif

const char *const tr_precision_names[] = { "float32", "tf32", "bfloat16", NULL };

const struct tr_compute_ops *tr_compute_host(enum tr_model_kind kind)
{
	if (kind == TR_LSTM)
		return &FASTEST(tr_compute_lstm);
	if (kind == TR_GPT)
		return &FASTEST(tr_compute_gpt);
	return &FASTEST(tr_compute);
}

#ifdef TR_HAVE_CUDA
const struct tr_compute_ops *tr_compute_device(enum tr_model_kind kind)
{
	if (kind == TR_LSTM)
		return &tr_compute_lstm_cuda;
	return kind == TR_GPT ? &tr_compute_gpt_cuda : &tr_compute_cuda;
}
#endif
