/*
 * test_trace.c -- trace.json of simulated ranks: every span of every rank, in order, with its times
 * counted from the start; of a ring that ran over the end; whole, or not there.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/trainer/support.h"
#include "trainer/records/trace.h"

#define RANKS 3
#define START 5000000 /* ns; */
#define PITCH 2000    /* from span to span. */

struct plan {
	uint64_t counts[RANKS]; /* Spans of each rank. */
	const char *folder;
	rubato_status expected;
	unsigned failed; /* Ranks that were told of it, */
	unsigned said;   /* and that have a sentence. */
};

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct tr_error error = { .exit_code = 1 };
	struct plan *plan = arg;
	uint32_t rank = rubato_rank(comm);
	struct tr_trace *trace;
	rubato_status err;

	ck_assert_int_eq(tr_trace_open(&trace, plan->folder != NULL, &error), RUBATO_OK);
	for (uint64_t i = 0; i < plan->counts[rank]; i++) {
		uint64_t begin = START + i * PITCH;

		tr_trace_span(trace, TR_SPAN_COMPUTE, begin, begin + PITCH / 2, i);
	}
	err = tr_trace_write(trace, comm, rank == 0 ? plan->folder : NULL, START, &error);
	ck_assert_int_eq(err, plan->expected);
	plan->failed += err != RUBATO_OK;
	plan->said += error.text[0] != '\0';
	tr_trace_close(trace);
	return RUBATO_OK;
}

static void write_traces(struct plan *plan)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = RANKS;
	ck_assert_msg(rubato_sim_run(&options, rank_main, plan, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}

/* Spans of `rank`: their number; each is half a pitch long, and one pitch after the other. */
static uint64_t check_rank(json_t *events, int rank, uint64_t first)
{
	uint64_t count = 0;
	json_t *event;
	size_t i;

	json_array_foreach(events, i, event)
	{
		if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0 ||
		    json_integer_value(json_object_get(event, "pid")) != rank)
			continue;
		double at = (double)(first + count) * PITCH * 1e-3;

		ck_assert_double_eq_tol(json_number_value(json_object_get(event, "ts")), at, 1e-6);
		ck_assert_double_eq_tol(json_real_value(json_object_get(event, "dur")),
					PITCH * 0.5e-3, 1e-6);
		ck_assert_str_eq(json_string_value(json_object_get(event, "name")), "compute");
		ck_assert_int_eq(
			json_integer_value(json_object_get(json_object_get(event, "args"), "step")),
			(json_int_t)(first + count));
		count++;
	}
	return count;
}

static unsigned labels_of(json_t *events)
{
	unsigned count = 0;
	json_t *event;
	size_t i;

	json_array_foreach(events, i, event) count +=
		strcmp(json_string_value(json_object_get(event, "name")), "process_labels") == 0;
	return count;
}

static void check_file(const struct plan *plan)
{
	json_error_t error;
	json_t *root = json_load_file("trace.json", 0, &error);
	json_t *events = json_object_get(root, "traceEvents");
	unsigned over = 0;

	ck_assert_msg(root != NULL, "%s, line %d", error.text, error.line);
	ck_assert_uint_eq(folder_count("."), 1);
	for (int rank = 0; rank < RANKS; rank++) {
		uint64_t count = plan->counts[rank];
		uint64_t kept = count < TR_TRACE_MAX ? count : TR_TRACE_MAX;

		over += count > kept;
		ck_assert_uint_eq(check_rank(events, rank, count - kept), kept);
	}
	ck_assert_uint_eq(labels_of(events), over);
	json_decref(root);
}

/* 256 spans make a piece: none, less than one, whole ones, and one more than that. */
static const uint64_t counts[][RANKS] = {
	{ 0, 0, 0 },
	{ 5, 0, 255 },
	{ 256, 512, 257 },
	{ 3, TR_TRACE_MAX + 77, TR_TRACE_MAX },
};
#define COUNTS_COUNT ((int)(sizeof(counts) / sizeof(counts[0])))

START_TEST(every_span_is_there)
{
	struct plan plan = { .folder = "." };

	memcpy(plan.counts, counts[_i], sizeof(plan.counts));
	write_traces(&plan);
	check_file(&plan);
}
END_TEST

START_TEST(nothing_is_written_where_nothing_is_wanted)
{
	struct plan plan = { .counts = { 4, 5, 6 } };

	write_traces(&plan);
	ck_assert_uint_eq(folder_count("."), 0);
}
END_TEST

START_TEST(a_failure_is_told_to_all_and_said_by_one)
{
	struct plan plan = { .folder = "none",
			     .counts = { 300, 300, 300 },
			     .expected = RUBATO_ERR_SYSTEM };

	write_traces(&plan);
	ck_assert_uint_eq(plan.failed, RANKS);
	ck_assert_uint_eq(plan.said, 1);
	ck_assert_uint_eq(folder_count("."), 0);
}
END_TEST

/* A name that a folder has taken: all is written beside it, and removed again. */
START_TEST(what_cannot_get_its_name_is_removed)
{
	struct plan plan = { .folder = ".", .counts = { 3, 3, 3 }, .expected = RUBATO_ERR_SYSTEM };

	ck_assert_int_eq(mkdir("trace.json", 0777), 0);
	file_write("trace.json/x", "x", 1);
	write_traces(&plan);
	ck_assert_uint_eq(plan.failed, RANKS);
	ck_assert_uint_eq(plan.said, 1);
	ck_assert_uint_eq(folder_count("."), 1);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("trace");

	tcase_set_timeout(tests, 60);
	tcase_add_checked_fixture(tests, folder_enter, folder_leave);
	tcase_add_loop_test(tests, every_span_is_there, 0, COUNTS_COUNT);
	tcase_add_test(tests, nothing_is_written_where_nothing_is_wanted);
	tcase_add_test(tests, a_failure_is_told_to_all_and_said_by_one);
	tcase_add_test(tests, what_cannot_get_its_name_is_removed);
	return check_main("trace", tests);
}
