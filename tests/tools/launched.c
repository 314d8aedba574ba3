/*
 * launched.c -- a program for test_launchers_hosts.py to launch: all add one. With a number behind,
 * that rank then says so and fails, while the others wait for it; with a second word, before it has
 * met them.
 */
#include <rubato.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(void)
{
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	return 1;
}

/* What the launcher says. */
static bool launched_as(const char *rank)
{
	static const char *const names[] = { "RUBATO_RANK", "RANK", "OMPI_COMM_WORLD_RANK",
					     "PMI_RANK", "SLURM_PROCID" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]) != NULL)
			return strcmp(getenv(names[i]), rank) == 0;
	return false;
}

static int enough(const char *rank)
{
	(void)fprintf(stderr, "rank %s has had enough\n", rank);
	return 3;
}

int main(int argc, char **argv)
{
	int32_t one = 1, ranks;
	rubato_comm *comm;
	char host[64] = "";

	if (argc > 2 && launched_as(argv[1]))
		return enough(argv[1]);
	if (rubato_init(&comm, NULL) != RUBATO_OK ||
	    rubato_allreduce(comm, &one, &ranks, 1, RUBATO_INT32, RUBATO_SUM) != RUBATO_OK)
		return failed();
	(void)gethostname(host, sizeof(host) - 1);
	(void)printf("rank %u of %d on %s\n", rubato_rank(comm), (int)ranks, host);
	if (argc > 1 && rubato_rank(comm) == (uint32_t)atoi(argv[1]))
		return enough(argv[1]);
	if (argc > 1 && rubato_barrier(comm) != RUBATO_OK)
		return failed();
	return rubato_finalize(comm) == RUBATO_OK ? 0 : failed();
}
