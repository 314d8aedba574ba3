/* agree.c -- one small allreduce each. */
#include "trainer/base/agree.h"

rubato_status tr_agree(rubato_comm *comm, rubato_status mine, struct tr_error *error)
{
	int32_t rank = (int32_t)rubato_rank(comm), first = INT32_MAX;

	if (mine != RUBATO_OK) /* The lowest rank wins; its exit code and status ride along. */
		first = rank << 10 | (-(int32_t)mine << 2) | error->exit_code;
	TR_TRY(tr_check(error, rubato_allreduce(comm, &first, &first, 1, RUBATO_INT32, RUBATO_MIN),
			"agree: allreduce"));
	if (first == INT32_MAX)
		return RUBATO_OK;
	error->shared = true;
	if (first >> 10 == rank)
		return mine;
	error->text[0] = '\0';
	error->exit_code = first & 3;
	return (rubato_status)(-(first >> 2 & 255));
}

rubato_status tr_agree_equal(rubato_comm *comm, uint64_t hash, const char *what,
			     struct tr_error *error)
{
	int64_t ends[2] = { (int64_t)hash, ~(int64_t)hash }; /* max(~h) is ~min(h). */

	TR_TRY(tr_check(error, rubato_allreduce(comm, ends, ends, 2, RUBATO_INT64, RUBATO_MAX),
			"agree: allreduce"));
	if (ends[0] == ~ends[1])
		return RUBATO_OK;
	tr_fail(error, RUBATO_ERR_MISMATCH, "%s", what);
	error->shared = true;
	if (rubato_rank(comm) != 0)
		error->text[0] = '\0';
	return RUBATO_ERR_MISMATCH;
}

uint64_t tr_hash(uint64_t hash, const void *bytes, size_t size_bytes)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size_bytes; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
	return hash;
}
