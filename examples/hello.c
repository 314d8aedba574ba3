/*
 * hello.c -- every rank says its number, and all add one.
 *
 *	cc hello.c $(pkg-config --cflags --libs rubato) -o hello && rubato-run -n 4 ./hello
 */
#include <stdio.h>

#include <rubato.h>

int main(void)
{
	int32_t one = 1, ranks;
	rubato_comm *comm;

	if (rubato_init(&comm, NULL) != RUBATO_OK ||
	    rubato_allreduce(comm, &one, &ranks, 1, RUBATO_INT32, RUBATO_SUM) != RUBATO_OK) {
		(void)fprintf(stderr, "%s\n", rubato_error_text());
		return 1;
	}
	(void)printf("rank %u of %d\n", rubato_rank(comm), (int)ranks);
	return rubato_finalize(comm) != RUBATO_OK;
}
