/* fake_rubato.c -- a job of one rank, until the library is there. */
#include "rubato.h"
#include <stdlib.h>
#include <string.h>
struct rubato_comm {
	int x;
};
struct rubato_op {
	int x;
};
rubato_status rubato_init(rubato_comm **c, const rubato_options *o)
{
	(void)o;
	*c = calloc(1, sizeof(**c));
	return RUBATO_OK;
}
rubato_status rubato_finalize(rubato_comm *c)
{
	free(c);
	return RUBATO_OK;
}
uint32_t rubato_rank(const rubato_comm *c)
{
	(void)c;
	return 0;
}
uint32_t rubato_size(const rubato_comm *c)
{
	(void)c;
	return 1;
}
rubato_status rubato_alloc(rubato_comm *c, size_t n, void **m)
{
	(void)c;
	*m = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	memset(*m, 0, n);
	return RUBATO_OK;
}
rubato_status rubato_free(rubato_comm *c, void *m)
{
	(void)c;
	free(m);
	return RUBATO_OK;
}
rubato_status rubato_allreduce(rubato_comm *c, const void *in, void *out, uint64_t n, rubato_type t,
			       rubato_operator op)
{
	(void)c;
	(void)in;
	(void)out;
	(void)n;
	(void)t;
	(void)op;
	return RUBATO_OK;
}
rubato_status rubato_broadcast(rubato_comm *c, void *b, uint64_t n, rubato_type t, uint32_t r)
{
	(void)c;
	(void)b;
	(void)n;
	(void)t;
	(void)r;
	return RUBATO_OK;
}
rubato_status rubato_barrier(rubato_comm *c)
{
	(void)c;
	return RUBATO_OK;
}
rubato_status rubato_op_allreduce(rubato_comm *c, const void *in, void *out, uint64_t n,
				  rubato_type t, rubato_operator op, rubato_op **o)
{
	(void)c;
	(void)in;
	(void)out;
	(void)n;
	(void)t;
	(void)op;
	*o = calloc(1, sizeof(**o));
	return RUBATO_OK;
}
rubato_status rubato_start(rubato_op *o)
{
	(void)o;
	return RUBATO_OK;
}
rubato_status rubato_wait(rubato_op *o, uint64_t t)
{
	(void)o;
	(void)t;
	return RUBATO_OK;
}
void rubato_op_free(rubato_op *o)
{
	free(o);
}
rubato_status rubato_get_stats(rubato_comm *c, rubato_stats *s)
{
	(void)c;
	(void)s;
	return RUBATO_OK;
}
const char *rubato_error_text(void)
{
	return "";
}
