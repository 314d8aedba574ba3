/* task.c -- see task.h. */
#include "trainer/task.h"

#include <string.h>

rubato_status tr_task_data(const struct tr_options *options, struct tr_data *data,
			   struct tr_error *error)
{
	if (!tr_model_reads_text(options->model))
		return tr_data_open(data, options->data, options->seed, error);
	return tr_text_open(data, strchr(options->data, ':') + 1,
			    options->model == TR_LSTM ? TR_TEXT_LINES : TR_TEXT_BLOCKS,
			    options->sequence.length, error);
}

rubato_status tr_task_model(const struct tr_options *options, const struct tr_data *data,
			    struct tr_model *model, struct tr_error *error)
{
	struct tr_sequence sequence = options->sequence;

	if (!tr_model_reads_text(options->model))
		return tr_model_build(model, options->model, data->loss, data->shape,
				      data->output_count, options->hidden_count, error);
	sequence.length = data->shape.width - 1; /* Lines may be shorter. */
	sequence.vocabulary = data->output_count;
	return tr_model_build_text(model, options->model, &sequence, error);
}
