/*
 * compute_dnnl.c -- the layers by oneDNN 2.x (operation descriptors), one thread.
 *
 * A program is a list of primitives with their arguments, recorded once at open for one number of
 * rows and only executed later. Each layer's output has the memory layout that its primitive chose
 * (blocked by channels, usually); where a neighbour wants another, a reorder is recorded between.
 * Parameters and gradient stay flat: dense layers read and write them in place, convolutions
 * through recorded reorders. The rectifier runs in place and goes backward from its output. A
 * shortcut is a reorder that adds: in place to the value, and backward to the slope of the earlier
 * one, which waits for it; where it takes every second pixel of some of the channels, the reorder
 * is between views.
 */
#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>

#include "trainer/models/compute.h"

#define ARGS_MAX 7
#define ITEMS_MAX 512 /* Primitives, or memories, of one program: resnet20 needs about 350. */

struct item {
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[ARGS_MAX];
	int arg_count;
	bool completes; /* The gradient, from float `first` on. */
	size_t first;
};

/* A tensor: its layout and the memory. */
struct tensor {
	dnnl_memory_desc_t layout;
	dnnl_memory_t memory;
};

struct program {
	struct tr_compute *c;
	struct tr_error *error; /* While it is recorded. */
	uint32_t rows;
	dnnl_prop_kind_t prop;                  /* Of the forward pass. */
	struct tensor input;                    /* Its bytes are set before each run. */
	struct tensor value[TR_LAYERS_MAX + 1]; /* Output of layer i - 1; [0]: the input. */
	struct tensor taken[TR_LAYERS_MAX];     /* Input of layer i in the layout it wanted. */
	struct tensor winners[TR_LAYERS_MAX];   /* Pooling's workspace. */
	struct tensor mean[TR_LAYERS_MAX], variance[TR_LAYERS_MAX];
	dnnl_primitive_desc_t hint[TR_LAYERS_MAX]; /* Forward descriptions, for backward. */
	struct tensor slope;                       /* At the outputs: filled by the loss. */
	struct tensor second[TR_LAYERS_MAX];       /* Slopes that shortcuts will add to value i; */
	uint32_t second_of[TR_LAYERS_MAX];         /* their layers; 0: none. */
	struct item items[ITEMS_MAX];
	uint32_t item_count,
		forward_count; /* The first forward_count items are the forward pass. */
	dnnl_memory_t memories[ITEMS_MAX];
	uint32_t memory_count;
};

struct tr_compute {
	struct tr_model model;
	float *parameters,
		*gradient;           /* oneDNN's handles are not const; parameters are only read. */
	float *statistics, *moments; /* The running ones; those of the last batch. */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct program training, scoring;
};

/* One argument of a primitive, as the recorder takes it. */
struct arg {
	int name;
	const struct tensor *tensor;
};

static rubato_status check(struct tr_error *error, dnnl_status_t status, const char *what)
{
	if (status == dnnl_success)
		return RUBATO_OK;
	return tr_fail(error, status == dnnl_out_of_memory ? RUBATO_ERR_MEMORY : RUBATO_ERR_SYSTEM,
		       "oneDNN: %s gave status %d", what, (int)status);
}

static dnnl_memory_desc_t layout_any(int rank, const dnnl_dim_t *dims, dnnl_format_tag_t tag)
{
	dnnl_memory_desc_t layout;
	dnnl_status_t status = dnnl_memory_desc_init_by_tag(&layout, rank, dims, dnnl_f32, tag);

	if (status != dnnl_success) /* Impossible sizes: every later call refuses an empty one. */
		layout = (dnnl_memory_desc_t) { 0 };
	return layout;
}

static dnnl_memory_desc_t layout_image(uint32_t rows, struct tr_shape s, dnnl_format_tag_t tag)
{
	return layout_any(4, (dnnl_dims_t) { rows, s.channels, s.height, s.width }, tag);
}

static dnnl_memory_desc_t layout_matrix(dnnl_dim_t rows, dnnl_dim_t columns)
{
	return layout_any(2, (dnnl_dims_t) { rows, columns }, dnnl_ab);
}

static dnnl_memory_desc_t layout_vector(dnnl_dim_t count)
{
	return layout_any(1, (dnnl_dims_t) { count }, dnnl_a);
}

static dnnl_memory_desc_t layout_asked(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
	const dnnl_memory_desc_t *layout = dnnl_primitive_desc_query_md(pd, what, 0);

	return layout == NULL ? (dnnl_memory_desc_t) { 0 } : *layout;
}

/* A tensor over `bytes`, or over memory of its own where that is DNNL_MEMORY_ALLOCATE. */
static rubato_status make_tensor(struct program *p, dnnl_memory_desc_t layout, void *bytes,
				 struct tensor *out)
{
	dnnl_memory_t memory;

	if (p->memory_count == ITEMS_MAX)
		return tr_fail(p->error, RUBATO_ERR_INTERNAL, "oneDNN: more than %d tensors",
			       ITEMS_MAX);
	TR_TRY(check(p->error, dnnl_memory_create(&memory, &layout, p->c->engine, bytes),
		     "memory_create"));
	p->memories[p->memory_count++] = memory;
	*out = (struct tensor) { layout, memory };
	return RUBATO_OK;
}

/* Another layout, or another view, of the same bytes. */
static rubato_status view_tensor(struct program *p, dnnl_memory_desc_t layout,
				 const struct tensor *of, struct tensor *out)
{
	void *bytes;

	TR_TRY(check(p->error, dnnl_memory_get_data_handle(of->memory, &bytes), "get_data_handle"));
	return make_tensor(p, layout, bytes, out);
}

/* Records a primitive and takes over its description. */
static rubato_status record(struct program *p, dnnl_primitive_desc_t pd, const struct arg *args,
			    int arg_count)
{
	struct item *item = &p->items[p->item_count];
	dnnl_status_t status;

	if (p->item_count == ITEMS_MAX)
		return tr_fail(p->error, RUBATO_ERR_INTERNAL, "oneDNN: more than %d steps",
			       ITEMS_MAX);
	status = dnnl_primitive_create(&item->primitive, pd);
	dnnl_primitive_desc_destroy(pd);
	TR_TRY(check(p->error, status, "primitive_create"));
	for (int i = 0; i < arg_count; i++)
		item->args[i] = (dnnl_exec_arg_t) { args[i].name, args[i].tensor->memory };
	item->arg_count = arg_count;
	p->item_count++;
	return RUBATO_OK;
}

/* What was recorded last completes the gradient of a layer. */
static void record_ready(struct program *p, const struct tr_layer *layer)
{
	p->items[p->item_count - 1].completes = true;
	p->items[p->item_count - 1].first = layer->weight_offset;
}

static rubato_status record_reorder(struct program *p, const struct tensor *from,
				    const struct tensor *to)
{
	dnnl_primitive_desc_t pd;
	struct arg args[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };

	TR_TRY(check(p->error,
		     dnnl_reorder_primitive_desc_create(&pd, &from->layout, p->c->engine,
							&to->layout, p->c->engine, NULL),
		     "reorder"));
	return record(p, pd, args, 2);
}

/* *out is `from` in the wanted layout: itself where it has that already, else a recorded copy. */
static rubato_status take(struct program *p, const struct tensor *from, dnnl_memory_desc_t wanted,
			  struct tensor *out)
{
	if (dnnl_memory_desc_equal(&from->layout, &wanted)) {
		*out = *from;
		return RUBATO_OK;
	}
	TR_TRY(make_tensor(p, wanted, DNNL_MEMORY_ALLOCATE, out));
	return record_reorder(p, from, out);
}

/* A part of an image tensor: its first channels, or every stride-th pixel of it. */
static rubato_status view_part(struct program *p, const struct tensor *of, struct tr_shape part,
			       uint32_t stride, struct tensor *out)
{
	const dnnl_memory_desc_t *whole = &of->layout;
	dnnl_dims_t dims = { p->rows, part.channels, whole->dims[2], whole->dims[3] };
	dnnl_dims_t origin = { 0 };
	dnnl_memory_desc_t view;

	TR_TRY(check(p->error, dnnl_memory_desc_init_submemory(&view, whole, dims, origin),
		     "memory_desc_init_submemory"));
	for (int i = 0; i < view.format_desc.blocking.inner_nblks; i++)
		if (view.format_desc.blocking.inner_idxs[i] > 1 && stride > 1)
			return tr_fail(p->error, RUBATO_ERR_INTERNAL,
				       "oneDNN: a layout with blocks of pixels");
	if (stride > 1) {
		view.dims[2] = view.padded_dims[2] = part.height;
		view.dims[3] = view.padded_dims[3] = part.width;
		view.format_desc.blocking.strides[2] *= stride;
		view.format_desc.blocking.strides[3] *= stride;
	}
	return view_tensor(p, view, of, out);
}

/* to += from, of one shape in any layouts. */
static rubato_status record_addition(struct program *p, const struct tensor *from,
				     const struct tensor *to)
{
	dnnl_primitive_desc_t pd;
	dnnl_primitive_attr_t attributes;
	dnnl_post_ops_t after;
	dnnl_status_t status;
	struct arg args[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };

	TR_TRY(check(p->error, dnnl_primitive_attr_create(&attributes), "primitive_attr_create"));
	status = dnnl_post_ops_create(&after);
	if (status == dnnl_success) {
		status = dnnl_post_ops_append_sum(after, 1.0f);
		if (status == dnnl_success)
			status = dnnl_primitive_attr_set_post_ops(attributes, after);
		if (status == dnnl_success)
			status = dnnl_reorder_primitive_desc_create(&pd, &from->layout,
								    p->c->engine, &to->layout,
								    p->c->engine, attributes);
		dnnl_post_ops_destroy(after);
	}
	dnnl_primitive_attr_destroy(attributes);
	TR_TRY(check(p->error, status, "reorder with a sum"));
	return record(p, pd, args, 2);
}

/* Images as rows of a matrix: the plain layout of one is the plain layout of the other. */
static rubato_status take_flat(struct program *p, const struct tensor *from, struct tr_shape shape,
			       struct tensor *out)
{
	struct tensor plain;
	dnnl_memory_desc_t flat = layout_matrix(p->rows, (dnnl_dim_t)tr_shape_count(shape));

	if (from->layout.ndims == 2)
		return take(p, from, flat, out);
	TR_TRY(take(p, from, layout_image(p->rows, shape, dnnl_nchw), &plain));
	return view_tensor(p, flat, &plain, out);
}

/* Of layer i's primitive, whose descriptor `desc` was made with this status. The forward one is
 * kept for the backward pass to consult; record() takes *pd. */
static rubato_status describe(struct program *p, uint32_t i, dnnl_status_t made, const char *what,
			      const void *desc, dnnl_primitive_desc_t *pd)
{
	dnnl_primitive_desc_t hint = p->hint[i];

	TR_TRY(check(p->error, made, what));
	TR_TRY(check(p->error, dnnl_primitive_desc_create(pd, desc, NULL, p->c->engine, hint),
		     "primitive_desc_create"));
	return hint != NULL ? RUBATO_OK
			    : check(p->error, dnnl_primitive_desc_clone(&p->hint[i], *pd),
				    "primitive_desc_clone");
}

static dnnl_memory_desc_t weights_of(const struct tr_layer *l)
{
	return layout_matrix(l->out.channels, (dnnl_dim_t)tr_shape_count(l->in));
}

/* ---- Forward ---- */

static rubato_status dense_forward(struct program *p, uint32_t i)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	dnnl_memory_desc_t weights = weights_of(l);
	dnnl_memory_desc_t biases = layout_vector(l->out.channels);
	dnnl_memory_desc_t out = layout_matrix(p->rows, l->out.channels);
	bool biased = l->bias_count > 0;
	struct tensor weight, bias;
	dnnl_inner_product_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(take_flat(p, &p->value[i], l->in, &p->taken[i]));
	TR_TRY(make_tensor(p, weights, p->c->parameters + l->weight_offset, &weight));
	TR_TRY(make_tensor(p, out, DNNL_MEMORY_ALLOCATE, &p->value[i + 1]));
	TR_TRY(describe(p, i,
			dnnl_inner_product_forward_desc_init(&desc, p->prop, &p->taken[i].layout,
							     &weights, biased ? &biases : NULL,
							     &out),
			"inner_product_forward", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_SRC, &p->taken[i] },
			      { DNNL_ARG_WEIGHTS, &weight },
			      { DNNL_ARG_DST, &p->value[i + 1] },
			      { DNNL_ARG_BIAS, &bias } };
	if (biased)
		TR_TRY(make_tensor(p, biases, p->c->parameters + l->bias_offset, &bias));
	return record(p, pd, args, biased ? 4 : 3);
}

struct conv_layouts { /* What a convolution may choose, and the fixed rest of its description. */
	dnnl_memory_desc_t in, out, weight, weight_plain, bias;
	dnnl_dims_t stride, pad, end; /* pad: before the first pixel; end: behind the last. */
	const dnnl_memory_desc_t *bias_or_null;
};

static dnnl_dim_t padding_behind(const struct tr_layer *l, uint32_t in, uint32_t out)
{
	return (dnnl_dim_t)(out - 1) * l->stride + l->kernel - l->kernel / 2 - in;
}

static void conv_layouts(const struct tr_layer *l, uint32_t rows, struct conv_layouts *v)
{
	dnnl_dims_t dims = { l->out.channels, l->in.channels, l->kernel, l->kernel };
	dnnl_dim_t half = l->kernel / 2;
	*v = (struct conv_layouts) {
		.in = layout_image(rows, l->in, dnnl_format_tag_any),
		.out = layout_image(rows, l->out, dnnl_format_tag_any),
		.weight = layout_any(4, dims, dnnl_format_tag_any),
		.weight_plain = layout_any(4, dims, dnnl_oihw),
		.bias = layout_vector(l->out.channels),
		.stride = { l->stride, l->stride },
		.pad = { half, half },
		.end = { padding_behind(l, l->in.height, l->out.height),
			 padding_behind(l, l->in.width, l->out.width) },
		.bias_or_null = l->bias_count > 0 ? &v->bias : NULL,
	};
}

static rubato_status conv_forward(struct program *p, uint32_t i)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	struct tensor plain, weight, bias;
	struct conv_layouts v;
	dnnl_convolution_desc_t desc;
	dnnl_primitive_desc_t pd;

	conv_layouts(l, p->rows, &v);
	TR_TRY(describe(p, i,
			dnnl_convolution_forward_desc_init(&desc, p->prop, dnnl_convolution_direct,
							   &v.in, &v.weight, v.bias_or_null, &v.out,
							   v.stride, v.pad, v.end),
			"convolution_forward", &desc, &pd));
	TR_TRY(take(p, &p->value[i], layout_asked(pd, dnnl_query_src_md), &p->taken[i]));
	TR_TRY(make_tensor(p, v.weight_plain, p->c->parameters + l->weight_offset, &plain));
	TR_TRY(take(p, &plain, layout_asked(pd, dnnl_query_weights_md), &weight));
	TR_TRY(make_tensor(p, layout_asked(pd, dnnl_query_dst_md), DNNL_MEMORY_ALLOCATE,
			   &p->value[i + 1]));
	struct arg args[] = { { DNNL_ARG_SRC, &p->taken[i] },
			      { DNNL_ARG_WEIGHTS, &weight },
			      { DNNL_ARG_DST, &p->value[i + 1] },
			      { DNNL_ARG_BIAS, &bias } };
	if (l->bias_count == 0)
		return record(p, pd, args, 3);
	TR_TRY(make_tensor(p, v.bias, p->c->parameters + l->bias_offset, &bias));
	return record(p, pd, args, 4);
}

static dnnl_alg_kind_t pooling_of(const struct tr_layer *l)
{
	return l->kind == TR_AVGPOOL ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_max;
}

static rubato_status pool_forward(struct program *p, uint32_t i)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	dnnl_memory_desc_t out = layout_image(p->rows, l->out, dnnl_format_tag_any);
	dnnl_dims_t kernel = { l->kernel, l->kernel }, pad = { 0, 0 };
	dnnl_alg_kind_t how = pooling_of(l);
	dnnl_pooling_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(describe(p, i,
			dnnl_pooling_forward_desc_init(&desc, p->prop, how, &p->value[i].layout,
						       &out, kernel, kernel, pad, pad),
			"pooling_forward", &desc, &pd));
	TR_TRY(make_tensor(p, layout_asked(pd, dnnl_query_dst_md), DNNL_MEMORY_ALLOCATE,
			   &p->value[i + 1]));
	struct arg args[] = { { DNNL_ARG_SRC, &p->value[i] },
			      { DNNL_ARG_DST, &p->value[i + 1] },
			      { DNNL_ARG_WORKSPACE, &p->winners[i] } };
	if (p->prop == dnnl_forward_inference || l->kind == TR_AVGPOOL)
		return record(p, pd, args, 2);
	TR_TRY(make_tensor(p, layout_asked(pd, dnnl_query_workspace_md), DNNL_MEMORY_ALLOCATE,
			   &p->winners[i]));
	return record(p, pd, args, 3);
}

static rubato_status relu_forward(struct program *p, uint32_t i)
{
	dnnl_eltwise_desc_t desc;
	dnnl_primitive_desc_t pd;

	p->value[i + 1] = p->value[i];
	TR_TRY(describe(p, i,
			dnnl_eltwise_forward_desc_init(&desc, p->prop,
						       dnnl_eltwise_relu_use_dst_for_bwd,
						       &p->value[i].layout, 0.0f, 0.0f),
			"eltwise_forward", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_SRC, &p->value[i] }, { DNNL_ARG_DST, &p->value[i + 1] } };
	return record(p, pd, args, 2);
}

/* Scales and shifts lie one behind the other, as oneDNN wants them. */
static rubato_status norm_forward(struct program *p, uint32_t i)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	bool training = p->prop == dnnl_forward_training;
	float *moments = (training ? p->c->moments : p->c->statistics) + l->statistics_offset;
	unsigned flags = dnnl_use_scaleshift;
	dnnl_memory_desc_t vector = layout_vector(l->in.channels);
	struct tensor factors;
	dnnl_batch_normalization_desc_t desc;
	dnnl_primitive_desc_t pd;

	if (!training)
		flags |= dnnl_use_global_stats;
	TR_TRY(make_tensor(p, layout_matrix(2, l->in.channels), p->c->parameters + l->weight_offset,
			   &factors));
	TR_TRY(make_tensor(p, vector, moments, &p->mean[i]));
	TR_TRY(make_tensor(p, vector, moments + l->in.channels, &p->variance[i]));
	TR_TRY(describe(p, i,
			dnnl_batch_normalization_forward_desc_init(
				&desc, p->prop, &p->value[i].layout, (float)TR_NORM_EPSILON, flags),
			"batch_normalization_forward", &desc, &pd));
	if (training) /* The backward pass wants the input as it was. */
		TR_TRY(make_tensor(p, p->value[i].layout, DNNL_MEMORY_ALLOCATE, &p->value[i + 1]));
	else
		p->value[i + 1] = p->value[i];
	struct arg args[] = { { DNNL_ARG_SRC, &p->value[i] },
			      { DNNL_ARG_MEAN, &p->mean[i] },
			      { DNNL_ARG_VARIANCE, &p->variance[i] },
			      { DNNL_ARG_SCALE_SHIFT, &factors },
			      { DNNL_ARG_DST, &p->value[i + 1] } };
	return record(p, pd, args, 5);
}

/* The places of the shortcut of layer i: in the earlier value (or its slope) `wide`, and in the
 * later one. */
static rubato_status shortcut_ends(struct program *p, uint32_t i, const struct tensor *wide,
				   const struct tensor *narrow, struct tensor *early,
				   struct tensor *late)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	struct tr_shape part = { p->c->model.layers[l->from].in.channels, l->out.height,
				 l->out.width };

	TR_TRY(view_part(p, wide, part, l->stride, early));
	return view_part(p, narrow, part, 1, late);
}

/* Nobody reads the value before the sum. */
static rubato_status add_forward(struct program *p, uint32_t i)
{
	struct tensor early, late;

	p->value[i + 1] = p->value[i];
	TR_TRY(shortcut_ends(p, i, &p->value[p->c->model.layers[i].from], &p->value[i], &early,
			     &late));
	return record_addition(p, &early, &late);
}

/* ---- Backward: *slope is d loss / d output of layer i and becomes that of its input ---- */

static rubato_status dense_backward_data(struct program *p, uint32_t i, struct tensor *slope)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	dnnl_memory_desc_t weights = weights_of(l);
	struct tensor weight, flat, image;
	dnnl_inner_product_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(make_tensor(p, weights, p->c->parameters + l->weight_offset, &weight));
	TR_TRY(make_tensor(p, p->taken[i].layout, DNNL_MEMORY_ALLOCATE, &flat));
	TR_TRY(describe(p, i,
			dnnl_inner_product_backward_data_desc_init(&desc, &flat.layout, &weights,
								   &slope->layout),
			"inner_product_backward_data", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_DIFF_DST, slope },
			      { DNNL_ARG_WEIGHTS, &weight },
			      { DNNL_ARG_DIFF_SRC, &flat } };
	TR_TRY(record(p, pd, args, 3));
	*slope = flat;
	if (p->value[i].layout.ndims == 2)
		return RUBATO_OK;
	TR_TRY(view_tensor(p, layout_image(p->rows, l->in, dnnl_nchw), &flat, &image));
	return take(p, &image, p->value[i].layout, slope);
}

static rubato_status dense_backward(struct program *p, uint32_t i, struct tensor *slope)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	dnnl_memory_desc_t weights = weights_of(l);
	dnnl_memory_desc_t biases = layout_vector(l->out.channels);
	bool biased = l->bias_count > 0;
	struct tensor weight, bias;
	dnnl_inner_product_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(make_tensor(p, weights, p->c->gradient + l->weight_offset, &weight));
	if (biased)
		TR_TRY(make_tensor(p, biases, p->c->gradient + l->bias_offset, &bias));
	TR_TRY(describe(p, i,
			dnnl_inner_product_backward_weights_desc_init(
				&desc, &p->taken[i].layout, &weights, biased ? &biases : NULL,
				&slope->layout),
			"inner_product_backward_weights", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_SRC, &p->taken[i] },
			      { DNNL_ARG_DIFF_DST, slope },
			      { DNNL_ARG_DIFF_WEIGHTS, &weight },
			      { DNNL_ARG_DIFF_BIAS, &bias } };
	TR_TRY(record(p, pd, args, biased ? 4 : 3));
	record_ready(p, l);
	return i == 0 ? RUBATO_OK : dense_backward_data(p, i, slope);
}

static rubato_status conv_backward_data(struct program *p, uint32_t i, struct tensor *slope)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	struct tensor plain, weight, out, in;
	struct conv_layouts v;
	dnnl_convolution_desc_t desc;
	dnnl_primitive_desc_t pd;

	conv_layouts(l, p->rows, &v);
	TR_TRY(describe(p, i,
			dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct,
								 &v.in, &v.weight, &v.out, v.stride,
								 v.pad, v.end),
			"convolution_backward_data", &desc, &pd));
	TR_TRY(take(p, slope, layout_asked(pd, dnnl_query_diff_dst_md), &out));
	TR_TRY(make_tensor(p, v.weight_plain, p->c->parameters + l->weight_offset, &plain));
	TR_TRY(take(p, &plain, layout_asked(pd, dnnl_query_weights_md), &weight));
	TR_TRY(make_tensor(p, layout_asked(pd, dnnl_query_diff_src_md), DNNL_MEMORY_ALLOCATE, &in));
	struct arg args[] = { { DNNL_ARG_DIFF_DST, &out },
			      { DNNL_ARG_WEIGHTS, &weight },
			      { DNNL_ARG_DIFF_SRC, &in } };
	TR_TRY(record(p, pd, args, 3));
	return take(p, &in, p->value[i].layout, slope);
}

static rubato_status conv_backward(struct program *p, uint32_t i, struct tensor *slope)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	struct tensor in, out, weight, plain, bias;
	struct conv_layouts v;
	dnnl_convolution_desc_t desc;
	dnnl_primitive_desc_t pd;

	conv_layouts(l, p->rows, &v);
	TR_TRY(describe(p, i,
			dnnl_convolution_backward_weights_desc_init(
				&desc, dnnl_convolution_direct, &v.in, &v.weight, v.bias_or_null,
				&v.out, v.stride, v.pad, v.end),
			"convolution_backward_weights", &desc, &pd));
	TR_TRY(take(p, &p->taken[i], layout_asked(pd, dnnl_query_src_md), &in));
	TR_TRY(take(p, slope, layout_asked(pd, dnnl_query_diff_dst_md), &out));
	TR_TRY(make_tensor(p, v.weight_plain, p->c->gradient + l->weight_offset, &plain));
	if (l->bias_count > 0)
		TR_TRY(make_tensor(p, v.bias, p->c->gradient + l->bias_offset, &bias));
	dnnl_memory_desc_t wanted = layout_asked(pd, dnnl_query_diff_weights_md);
	bool direct = dnnl_memory_desc_equal(&wanted, &v.weight_plain);
	if (direct)
		weight = plain;
	else
		TR_TRY(make_tensor(p, wanted, DNNL_MEMORY_ALLOCATE, &weight));
	struct arg args[] = { { DNNL_ARG_SRC, &in },
			      { DNNL_ARG_DIFF_DST, &out },
			      { DNNL_ARG_DIFF_WEIGHTS, &weight },
			      { DNNL_ARG_DIFF_BIAS, &bias } };
	TR_TRY(record(p, pd, args, l->bias_count > 0 ? 4 : 3));
	if (!direct)
		TR_TRY(record_reorder(p, &weight, &plain));
	record_ready(p, l);
	return i == 0 ? RUBATO_OK : conv_backward_data(p, i, slope);
}

static rubato_status pool_backward(struct program *p, uint32_t i, struct tensor *slope)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	dnnl_dims_t kernel = { l->kernel, l->kernel }, pad = { 0, 0 };
	struct tensor in;
	dnnl_pooling_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(make_tensor(p, p->value[i].layout, DNNL_MEMORY_ALLOCATE, &in));
	TR_TRY(describe(p, i,
			dnnl_pooling_backward_desc_init(&desc, pooling_of(l), &in.layout,
							&slope->layout, kernel, kernel, pad, pad),
			"pooling_backward", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_DIFF_DST, slope },
			      { DNNL_ARG_DIFF_SRC, &in },
			      { DNNL_ARG_WORKSPACE, &p->winners[i] } };
	TR_TRY(record(p, pd, args, l->kind == TR_AVGPOOL ? 2 : 3));
	*slope = in;
	return RUBATO_OK;
}

static rubato_status relu_backward(struct program *p, uint32_t i, struct tensor *slope)
{
	dnnl_eltwise_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(describe(p, i,
			dnnl_eltwise_backward_desc_init(&desc, dnnl_eltwise_relu_use_dst_for_bwd,
							&slope->layout, &p->value[i + 1].layout,
							0.0f, 0.0f),
			"eltwise_backward", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_DST, &p->value[i + 1] },
			      { DNNL_ARG_DIFF_DST, slope },
			      { DNNL_ARG_DIFF_SRC, slope } };
	return record(p, pd, args, 3);
}

static rubato_status norm_backward(struct program *p, uint32_t i, struct tensor *slope)
{
	const struct tr_layer *l = &p->c->model.layers[i];
	dnnl_memory_desc_t pairs = layout_matrix(2, l->in.channels);
	struct tensor out, in, factors, factor_slopes;
	dnnl_batch_normalization_desc_t desc;
	dnnl_primitive_desc_t pd;

	TR_TRY(take(p, slope, p->value[i].layout, &out));
	TR_TRY(make_tensor(p, p->value[i].layout, DNNL_MEMORY_ALLOCATE, &in));
	TR_TRY(make_tensor(p, pairs, p->c->parameters + l->weight_offset, &factors));
	TR_TRY(make_tensor(p, pairs, p->c->gradient + l->weight_offset, &factor_slopes));
	TR_TRY(describe(p, i,
			dnnl_batch_normalization_backward_desc_init(
				&desc, dnnl_backward, &out.layout, &p->value[i].layout,
				(float)TR_NORM_EPSILON, dnnl_use_scaleshift),
			"batch_normalization_backward", &desc, &pd));
	struct arg args[] = { { DNNL_ARG_SRC, &p->value[i] },
			      { DNNL_ARG_MEAN, &p->mean[i] },
			      { DNNL_ARG_VARIANCE, &p->variance[i] },
			      { DNNL_ARG_DIFF_DST, &out },
			      { DNNL_ARG_SCALE_SHIFT, &factors },
			      { DNNL_ARG_DIFF_SRC, &in },
			      { DNNL_ARG_DIFF_SCALE_SHIFT, &factor_slopes } };
	TR_TRY(record(p, pd, args, 7));
	record_ready(p, l);
	*slope = in;
	return RUBATO_OK;
}

/* Both operands have the slope of the sum; nobody writes to it after the rectifier behind it. */
static rubato_status add_backward(struct program *p, uint32_t i, struct tensor *slope)
{
	uint32_t from = p->c->model.layers[i].from;

	p->second[from] = *slope;
	p->second_of[from] = i;
	return RUBATO_OK;
}

/* ---- Both, of all layers ---- */

static const struct {
	rubato_status (*forward)(struct program *p, uint32_t i);
	rubato_status (*backward)(struct program *p, uint32_t i, struct tensor *slope);
} kinds[] = {
	[TR_DENSE] = { dense_forward, dense_backward },
	[TR_CONV] = { conv_forward, conv_backward },
	[TR_RELU] = { relu_forward, relu_backward },
	[TR_MAXPOOL] = { pool_forward, pool_backward },
	[TR_AVGPOOL] = { pool_forward, pool_backward },
	[TR_NORM] = { norm_forward, norm_backward },
	[TR_ADD] = { add_forward, add_backward },
};

static rubato_status record_forward(struct program *p, struct tr_compute *c, uint32_t rows,
				    dnnl_prop_kind_t prop, struct tr_error *error)
{
	const struct tr_model *model = &c->model;
	bool image = model->layers[0].kind == TR_CONV;
	dnnl_memory_desc_t in = image ? layout_image(rows, model->in, dnnl_nchw)
				      : layout_matrix(rows, model->feature_count);

	p->c = c;
	p->error = error;
	p->rows = rows;
	p->prop = prop;
	TR_TRY(make_tensor(p, in, DNNL_MEMORY_NONE, &p->input));
	p->value[0] = p->input;
	for (uint32_t i = 0; i < model->layer_count; i++)
		TR_TRY(kinds[model->layers[i].kind].forward(p, i));
	p->forward_count = p->item_count;
	return RUBATO_OK;
}

static rubato_status record_backward(struct program *p)
{
	struct tensor slope, early, late;

	TR_TRY(make_tensor(p, layout_matrix(p->rows, p->c->model.output_count),
			   DNNL_MEMORY_ALLOCATE, &p->slope));
	slope = p->slope;
	for (uint32_t i = p->c->model.layer_count; i-- > 0;) {
		TR_TRY(kinds[p->c->model.layers[i].kind].backward(p, i, &slope));
		if (p->second_of[i] == 0)
			continue;
		TR_TRY(shortcut_ends(p, p->second_of[i], &slope, &p->second[i], &early, &late));
		TR_TRY(record_addition(p, &late, &early));
	}
	return RUBATO_OK;
}

/* ---- Running ---- */

static rubato_status run_items(struct tr_compute *c, struct program *p, uint32_t from, uint32_t to,
			       const struct tr_ready *ready, struct tr_error *error)
{
	for (uint32_t i = from; i < to; i++) {
		const struct item *item = &p->items[i];

		TR_TRY(check(error,
			     dnnl_primitive_execute(item->primitive, c->stream, item->arg_count,
						    item->args),
			     "primitive_execute"));
		if (ready == NULL || !item->completes)
			continue;
		TR_TRY(check(error, dnnl_stream_wait(c->stream), "stream_wait"));
		TR_TRY(ready->call(ready->arg, item->first));
	}
	return check(error, dnnl_stream_wait(c->stream), "stream_wait");
}

static rubato_status run_forward(struct tr_compute *c, struct program *p, const float *x,
				 const float **outputs, struct tr_error *error)
{
	void *rows = (void *)(uintptr_t)x, *bytes; /* Only read. */
	const struct tensor *last = &p->value[c->model.layer_count];

	omp_set_num_threads(1); /* The ranks of a node share its cores: one each. */
	TR_TRY(check(error, dnnl_memory_set_data_handle(p->input.memory, rows), "set_data_handle"));
	TR_TRY(run_items(c, p, 0, p->forward_count, NULL, error));
	TR_TRY(check(error, dnnl_memory_get_data_handle(last->memory, &bytes), "get_data_handle"));
	*outputs = bytes;
	return RUBATO_OK;
}

static void follow_statistics(struct tr_compute *c, uint32_t rows)
{
	for (uint32_t i = 0; i < c->model.layer_count; i++) {
		const struct tr_layer *l = &c->model.layers[i];
		const float *mean = c->moments + l->statistics_offset;

		if (l->kind == TR_NORM)
			tr_statistics_follow(l, c->statistics, mean, mean + l->in.channels,
					     (uint64_t)rows * l->in.height * l->in.width);
	}
}

static rubato_status dnnl_train(struct tr_compute *c, const float *x, struct tr_answers answers,
				const struct tr_ready *ready, struct tr_score *score,
				struct tr_error *error)
{
	struct program *p = &c->training;
	const float *outputs;
	void *slope;

	TR_TRY(run_forward(c, p, x, &outputs, error));
	TR_TRY(check(error, dnnl_memory_get_data_handle(p->slope.memory, &slope),
		     "get_data_handle"));
	follow_statistics(c, p->rows);
	tr_loss_score(&c->model, outputs, answers, p->rows, slope, score);
	return run_items(c, p, p->forward_count, p->item_count, ready, error);
}

static rubato_status dnnl_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				   uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	const float *outputs;

	TR_TRY(run_forward(c, &c->scoring, x, &outputs, error));
	tr_loss_score(&c->model, outputs, answers, rows, NULL, score);
	return RUBATO_OK;
}

static void close_program(struct program *p)
{
	for (uint32_t i = 0; i < p->item_count; i++)
		dnnl_primitive_destroy(p->items[i].primitive);
	for (uint32_t i = 0; i < TR_LAYERS_MAX; i++)
		if (p->hint[i] != NULL)
			dnnl_primitive_desc_destroy(p->hint[i]);
	for (uint32_t i = 0; i < p->memory_count; i++)
		dnnl_memory_destroy(p->memories[i]);
}

static void dnnl_close(struct tr_compute *c)
{
	close_program(&c->training);
	close_program(&c->scoring);
	if (c->stream != NULL)
		dnnl_stream_destroy(c->stream);
	if (c->engine != NULL)
		dnnl_engine_destroy(c->engine);
	free(c->moments);
}

static rubato_status dnnl_open(struct tr_compute *c, const struct tr_compute_ops *ops,
			       const struct tr_compute_setup *setup, struct tr_error *error)
{
	(void)ops;
	c->model = *setup->model;
	c->parameters = (float *)(uintptr_t)setup->parameters;
	c->gradient = setup->gradient;
	c->statistics = setup->statistics;
	c->moments = calloc(c->model.statistics_count + 1, sizeof(float));
	if (c->moments == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "compute: out of memory");
	omp_set_num_threads(1); /* oneDNN plans its primitives for the threads it finds. */
	TR_TRY(check(error, dnnl_engine_create(&c->engine, dnnl_cpu, 0), "engine_create"));
	TR_TRY(check(error, dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags),
		     "stream_create"));
	TR_TRY(record_forward(&c->training, c, setup->batch, dnnl_forward_training, error));
	TR_TRY(record_backward(&c->training));
	return record_forward(&c->scoring, c, TR_EVAL_ROWS, dnnl_forward_inference, error);
}

const struct tr_compute_ops tr_compute_dnnl = {
	.name = "oneDNN",
	.state_bytes = sizeof(struct tr_compute),
	.open = dnnl_open,
	.train = dnnl_train,
	.evaluate = dnnl_evaluate,
	.close = dnnl_close,
};
