/*
 * test_callback.c -- start-up over the caller's allgather; here one between threads. What counts:
 * all ranks or none, and every rank makes the same number of calls, whatever goes wrong.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/check_main.h"
#include "tests/runtime/exercise.h"

#define RANKS_MAX 5

struct group {
	pthread_barrier_t barrier;
	uint32_t rank_count;
	const void *in[RANKS_MAX];
	size_t bytes[RANKS_MAX];
};

struct member {
	struct group *group;
	rubato_options options;
	uint32_t rank, said_rank, said_size;
	uint32_t calls, fail_call; /* Counted from 1; 0: never. */
	rubato_status status;
	char text[256];
	pthread_t thread;
};

static int gather(void *arg, const void *in, void *out, size_t size_bytes)
{
	struct member *me = arg;
	struct group *group = me->group;
	bool equal = true;

	me->calls++;
	group->in[me->rank] = in;
	group->bytes[me->rank] = size_bytes;
	(void)pthread_barrier_wait(&group->barrier);
	for (uint32_t r = 0; r < group->rank_count; r++) {
		equal &= group->bytes[r] == size_bytes;
		memcpy((uint8_t *)out + r * size_bytes, group->in[r], size_bytes);
	}
	(void)pthread_barrier_wait(&group->barrier);
	ck_assert_msg(equal, "ranks called with different sizes");
	return me->fail_call == me->calls ? 7 : 0;
}

static void *member_main(void *arg)
{
	static const struct exercise allreduce = { .kind = "allreduce",
						   .algorithm = "auto",
						   .count = 1000,
						   .type = RUBATO_INT64,
						   .op = RUBATO_SUM,
						   .times = 3 };
	struct member *me = arg;
	rubato_comm *comm = NULL;

	me->status = rubato_init_oob(&comm, gather, me, me->said_rank, me->said_size, &me->options);
	if (me->status == RUBATO_OK)
		me->status = exercise_run(comm, &allreduce, NULL);
	(void)snprintf(me->text, sizeof(me->text), "%s", rubato_error_text());
	(void)rubato_finalize(comm);
	return NULL;
}

static void group_make(struct group *group, struct member *members, uint32_t rank_count)
{
	*group = (struct group) { .rank_count = rank_count };
	ck_assert_int_eq(pthread_barrier_init(&group->barrier, NULL, rank_count), 0);
	for (uint32_t r = 0; r < rank_count; r++) {
		rubato_options options = RUBATO_OPTIONS_INIT;

		options.timeout_ns = 30000000000u;
		members[r] = (struct member) { .group = group,
					       .options = options,
					       .rank = r,
					       .said_rank = r,
					       .said_size = rank_count };
	}
}

static void group_run(struct group *group, struct member *members)
{
	for (uint32_t r = 0; r < group->rank_count; r++)
		ck_assert_int_eq(pthread_create(&members[r].thread, NULL, member_main, &members[r]),
				 0);
	for (uint32_t r = 0; r < group->rank_count; r++)
		ck_assert_int_eq(pthread_join(members[r].thread, NULL), 0);
	for (uint32_t r = 1; r < group->rank_count; r++)
		ck_assert_uint_eq(members[r].calls, members[0].calls);
	(void)pthread_barrier_destroy(&group->barrier);
}

START_TEST(any_number_of_ranks_meets_and_computes)
{
	struct member members[RANKS_MAX];
	struct group group;

	group_make(&group, members, (uint32_t)_i);
	group_run(&group, members);
	for (int r = 0; r < _i; r++)
		ck_assert_msg(members[r].status == RUBATO_OK, "rank %d: %s", r, members[r].text);
	if (_i > 1)
		ck_assert_uint_gt(members[0].calls, 1);
}
END_TEST

START_TEST(bad_options_of_one_rank_end_it_for_all)
{
	struct member members[3];
	struct group group;

	group_make(&group, members, 3);
	members[1].options.flags = 1;
	group_run(&group, members);
	ck_assert_int_eq(members[1].status, RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(members[1].text, "RUBATO_OPTIONS_INIT"));
	for (int r = 0; r < 3; r += 2) {
		ck_assert_int_eq(members[r].status, RUBATO_ERR_PEER);
		ck_assert_ptr_nonnull(strstr(members[r].text, "start-up failed on rank 1"));
	}
}
END_TEST

#ifdef RB_HAVE_UCX
START_TEST(settings_that_differ_are_a_mismatch_everywhere)
{
	struct member members[3];
	struct group group;

	group_make(&group, members, 3);
	members[2].options.transport = "shm";
	group_run(&group, members);
	for (int r = 0; r < 3; r++) {
		ck_assert_int_eq(members[r].status, RUBATO_ERR_MISMATCH);
		ck_assert_ptr_nonnull(strstr(members[r].text, "RUBATO_TRANSPORT"));
	}
}
END_TEST
#endif

START_TEST(a_callback_in_another_order_is_found)
{
	struct member members[3];
	struct group group;

	group_make(&group, members, 3);
	members[0].said_rank = 1;
	members[1].said_rank = 0;
	group_run(&group, members);
	for (int r = 0; r < 3; r++) {
		ck_assert_int_eq(members[r].status, RUBATO_ERR_MISMATCH);
		ck_assert_ptr_nonnull(strstr(members[r].text, "calls itself rank 1 of 3"));
	}
}
END_TEST

/* As MPI does it: an error on all. Whichever call it is, nobody calls again. */
START_TEST(a_callback_that_fails_is_not_called_again)
{
	struct member members[2];
	struct group group;

	group_make(&group, members, 2);
	members[0].fail_call = members[1].fail_call = (uint32_t)_i;
	group_run(&group, members);
	for (int r = 0; r < 2; r++) {
		ck_assert_int_eq(members[r].status, RUBATO_ERR_SYSTEM);
		ck_assert_ptr_nonnull(strstr(members[r].text, "returned 7"));
		ck_assert_uint_eq(members[r].calls, (uint32_t)_i);
	}
}
END_TEST

START_TEST(the_deadline_counts_between_calls)
{
	struct member members[2];
	struct group group;

	group_make(&group, members, 2);
	members[0].options.timeout_ns = members[1].options.timeout_ns = 1;
	group_run(&group, members);
	for (int r = 0; r < 2; r++) {
		ck_assert_int_eq(members[r].status, RUBATO_ERR_TIMEOUT);
		ck_assert_ptr_nonnull(strstr(members[r].text, "after the deadline"));
	}
}
END_TEST

START_TEST(impossible_places_make_no_call)
{
	struct member me = { .calls = 0 };
	rubato_comm *comm;

	ck_assert_int_eq(rubato_init_oob(&comm, gather, &me, 2, 2, NULL), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rubato_init_oob(&comm, gather, &me, 0, 0, NULL), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rubato_init_oob(&comm, NULL, &me, 0, 2, NULL), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rubato_init_oob(NULL, gather, &me, 0, 2, NULL), RUBATO_ERR_ARGUMENT);
	ck_assert_uint_eq(me.calls, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("callback");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, any_number_of_ranks_meets_and_computes, 1, RANKS_MAX + 1);
	tcase_add_test(tc, bad_options_of_one_rank_end_it_for_all);
#ifdef RB_HAVE_UCX /* Else auto is shm. */
	tcase_add_test(tc, settings_that_differ_are_a_mismatch_everywhere);
#endif
	tcase_add_test(tc, a_callback_in_another_order_is_found);
	tcase_add_loop_test(tc, a_callback_that_fails_is_not_called_again, 1, 9);
	tcase_add_test(tc, the_deadline_counts_between_calls);
	tcase_add_test(tc, impossible_places_make_no_call);
	return check_main("runtime", tc);
}
