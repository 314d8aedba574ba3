/*
 * simulate.c -- each rank is a fiber that trains as it would alone; the samples are read once and
 * shared. A rank runs until it waits, so nothing here needs a lock.
 */
#include "trainer/simulate.h"

#include "trainer/train.h"

/* oneDNN makes its code on the stack of whoever asks: 32 to 64 KiB in a release build, several
 * times that under sanitizers. Untouched pages cost nothing. */
#define STACK_BYTES (1u << 20)
#define NOWHERE (-1) /* Nobody looks after these ranks but tr_simulate. */

struct simulation {
	const struct tr_options *options;
	struct tr_data data;
	struct tr_error *error;
	bool failed;
};

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct simulation *s = arg;
	struct tr_error error = { .exit_code = TR_EXIT_FAILURE };
	rubato_status err = tr_train(comm, s->options, &s->data, NOWHERE, &error);

	if (err && !s->failed && error.text[0] != '\0') {
		*s->error = error;
		s->failed = true;
	}
	return err;
}

rubato_status tr_simulate(const struct tr_options *options, struct tr_error *error)
{
	struct simulation s = { .options = options, .error = error };
	rubato_sim_options world = options->world;
	rubato_sim_result result;
	rubato_status err;

	TR_TRY(tr_load_data(options, &s.data, error));
	world.stack_bytes = STACK_BYTES;
	err = rubato_sim_run(&world, rank_main, &s, &result);
	if (err == RUBATO_ERR_ARGUMENT && !s.failed) /* Before any rank: of the options. */
		err = tr_refuse(error, "--simulate: %s", rubato_error_text());
	else if (err && !s.failed)
		err = tr_check(error, err, "simulation");
	tr_data_close(&s.data);
	return err;
}
