/*
 * user.c -- a program of somebody else's, in C and in C++: test_package.py builds it against what
 * is installed. It has names that the library has, too, where nobody shall see them.
 */
#include <rubato.h>
#include <rubato_sim.h>
#include <stdio.h>

int rb_deadline(int hours);
int rb_comm_open(int door);

int rb_deadline(int hours)
{
	return hours + 1;
}

int rb_comm_open(int door)
{
	return door + 2;
}

static rubato_status sum(rubato_comm *comm, void *arg)
{
	int32_t rank = (int32_t)rubato_rank(comm), *total = (int32_t *)arg;

	return rubato_allreduce(comm, &rank, total + rank, 1, RUBATO_INT32, RUBATO_SUM);
}

static int failed(const char *what)
{
	(void)fprintf(stderr, "%s: %s\n", what, rubato_error_text());
	return 1;
}

int main(int argc, char **argv)
{
	rubato_sim_options cluster = RUBATO_SIM_OPTIONS_INIT;
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_partial_options relaxed = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *partial;
	rubato_sim_result result;
	rubato_status status;
	rubato_comm *comm;
	int32_t totals[64] = { 0 };

	options.transport = argc > 1 ? argv[1] : "auto";
	status = rubato_init(&comm, &options);
	if (status != RUBATO_OK)
		return failed(rubato_status_name(status));
	if (rubato_size(comm) > 32 || sum(comm, totals) != RUBATO_OK)
		return failed("allreduce");
	if (rubato_partial_create(comm, 100, RUBATO_FLOAT32, RUBATO_AVG, &relaxed, &partial) !=
	    RUBATO_OK)
		return failed("partial");
	if (rubato_partial_free(partial) != RUBATO_OK)
		return failed("partial free");
	(void)printf("%s: rank %u of %u: %d\n", rubato_version(), rubato_rank(comm),
		     rubato_size(comm), (int)totals[rubato_rank(comm)]);
	if (rubato_finalize(comm) != RUBATO_OK)
		return failed("finalize");
	cluster.rank_count = 16;
	if (rubato_sim_run(&cluster, sum, totals, &result) != RUBATO_OK)
		return failed("simulation");
	(void)printf("simulated: %d %d %d\n", (int)totals[15], rb_deadline(1), rb_comm_open(1));
	return 0;
}
