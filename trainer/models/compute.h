/*
 * compute.h -- what a training step asks of the machine that computes it.
 *
 * A backend is one const table and one private struct. It is told once where the flat vectors of
 * parameters, gradient and statistics lie, so that it can record its whole step and only run it
 * later; it reads and writes nothing else of the caller's beyond a call. compute_plain.c says in
 * plain loops what every backend must give (up to rounding); tests/trainer/test_compute.c holds
 * them to it.
 *
 *   Threads      one thread calls; a backend uses no more threads of its own on the host
 *   Repeatable   equal inputs give equal bits, run to run
 */
#ifndef TR_COMPUTE_H
#define TR_COMPUTE_H

#include "trainer/models/model.h"
#include "trainer/models/product.h"

#define TR_EVAL_ROWS 64  /* Rows of one evaluate() call; any number would do. */
#define TR_ROOMS_MAX 256 /* gpt of 12 layers has 170. */

struct tr_answers {            /* What a batch should give: */
	const int32_t *labels; /* [rows], each below output_count (TR_CROSS_ENTROPY), */
	const float *targets;  /* or [rows][output_count] (TR_HALF_SQUARE). */
};

struct tr_score { /* Sums over rows; of a model of text: over the tokens that it predicts. */
	double loss;
	uint64_t correct; /* Those whose largest output (the first of equals) is the label's. */
	uint64_t rows;
};

struct tr_cuda; /* trainer/cuda/device.h */

/* What factors of products are rounded to on a device; sums and all that is kept are float32. */
enum tr_precision { TR_FLOAT32, TR_TF32, TR_BFLOAT16 };
extern const char *const tr_precision_names[]; /* NULL-terminated. */

struct tr_compute_setup {
	const struct tr_model *model; /* Copied. */
	uint32_t batch;               /* Rows of one train() call. */
	const float *parameters;      /* [parameter_count]; stays where it is until close(). */
	float *gradient;              /* The same. */
	float *statistics;      /* [statistics_count]: train() moves them, evaluate() uses them. */
	struct tr_cuda *device; /* NULL: the host's. Else the three vectors lie there. */
	enum tr_precision precision; /* Of a device. */
};

/* Told during train(), after each layer with parameters: the gradient is final from float `first`
 * on; on a device: when its stream has come so far. The last time that is 0. What it returns ends
 * train(), if it is an error. */
struct tr_ready {
	rubato_status (*call)(void *arg, size_t first);
	void *arg;
};

struct tr_compute; /* Private to the backend. */

struct tr_compute_ops {
	const char *name;
	size_t state_bytes;       /* Of its struct tr_compute. */
	tr_product_call *product; /* Of lstm and gpt. */
	/* `c` is all zeros. After an error close() follows, too. */
	rubato_status (*open)(struct tr_compute *c, const struct tr_compute_ops *ops,
			      const struct tr_compute_setup *setup, struct tr_error *error);
	/* Writes the gradient of the mean loss of `batch` rows x[batch][features], adds to *score.
	 * `ready` may be NULL. */
	rubato_status (*train)(struct tr_compute *c, const float *x, struct tr_answers answers,
			       const struct tr_ready *ready, struct tr_score *score,
			       struct tr_error *error);
	/* Adds the score of the first `rows` of x[TR_EVAL_ROWS][features], which is readable to its
	 * end. */
	rubato_status (*evaluate)(struct tr_compute *c, const float *x, struct tr_answers answers,
				  uint32_t rows, struct tr_score *score, struct tr_error *error);
	void (*close)(struct tr_compute *c);
};

/* Makes the struct and opens the backend on it; of an error nothing is left. */
rubato_status tr_compute_open(struct tr_compute **out, const struct tr_compute_ops *ops,
			      const struct tr_compute_setup *setup, struct tr_error *error);
void tr_compute_close(const struct tr_compute_ops *ops, struct tr_compute *c); /* NULL is fine. */

/* Models that are lists of layers; lstm; gpt. */
extern const struct tr_compute_ops tr_compute_plain;
extern const struct tr_compute_ops tr_compute_lstm_plain;
extern const struct tr_compute_ops tr_compute_gpt_plain;
/* Where there is oneDNN. Declared in each build: who includes this is then the same in all. */
extern const struct tr_compute_ops tr_compute_dnnl;
extern const struct tr_compute_ops tr_compute_lstm_dnnl;
extern const struct tr_compute_ops tr_compute_gpt_dnnl;
#ifdef TR_HAVE_CUDA
extern const struct tr_compute_ops tr_compute_cuda; /* Models that are lists of layers. */
extern const struct tr_compute_ops tr_compute_lstm_cuda;
extern const struct tr_compute_ops tr_compute_gpt_cuda;
const struct tr_compute_ops *tr_compute_device(enum tr_model_kind kind);
#endif
const struct tr_compute_ops *tr_compute_host(enum tr_model_kind kind); /* This build's fastest. */

/* A backend's arrays: made one by one, all zeros, and freed together. */
struct tr_rooms {
	void *rooms[TR_ROOMS_MAX];
	uint32_t count;
	bool lost; /* Memory has ended: from then on nothing is made. */
};

/* NULL: there is none, as `lost` says. */
void *tr_room(struct tr_rooms *rooms, size_t rows, size_t row_bytes);
void tr_rooms_free(struct tr_rooms *rooms);

/* Adds the score of rows of outputs; with `slope` also writes d(mean loss)/d(output) there. */
void tr_loss_score(const struct tr_model *model, const float *outputs, struct tr_answers answers,
		   uint32_t rows, float *slope, struct tr_score *score);

#endif
