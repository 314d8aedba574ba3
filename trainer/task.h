/* task.h -- what is learnt: the samples and the model that the options ask for. */
#ifndef TR_TASK_H
#define TR_TASK_H

#include "trainer/data/data.h"
#include "trainer/options.h"

rubato_status tr_task_data(const struct tr_options *options, struct tr_data *data,
			   struct tr_error *error);
rubato_status tr_task_model(const struct tr_options *options, const struct tr_data *data,
			    struct tr_model *model, struct tr_error *error);

#endif
