/*
 * launched.c -- a program for test_hosts.py to launch: all add one. With a number behind, that rank
 * then says so and fails, while the others wait for it.
 */
#include <rubato.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int failed(void)
{
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	return 1;
}

int main(int argc, char **argv)
{
	int32_t one = 1, ranks;
	rubato_comm *comm;
	char host[64] = "";

	if (rubato_init(&comm, NULL) != RUBATO_OK ||
	    rubato_allreduce(comm, &one, &ranks, 1, RUBATO_INT32, RUBATO_SUM) != RUBATO_OK)
		return failed();
	(void)gethostname(host, sizeof(host) - 1);
	(void)printf("rank %u of %d on %s\n", rubato_rank(comm), (int)ranks, host);
	if (argc > 1 && rubato_rank(comm) == (uint32_t)atoi(argv[1])) {
		(void)fprintf(stderr, "rank %s has had enough\n", argv[1]);
		return 3;
	}
	if (argc > 1 && rubato_barrier(comm) != RUBATO_OK)
		return failed();
	return rubato_finalize(comm) == RUBATO_OK ? 0 : failed();
}
