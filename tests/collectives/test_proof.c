/*
 * test_proof.c -- the sentences of a proof: of every algorithm, and of some with a planted fault,
 * where they must say which rank and which step are wrong.
 */
#include <limits.h>
#include <string.h>

#include "collectives/checker/joint.h"
#include "collectives/checker/proof.h"
#include "tests/check_main.h"
#include "tests/length.h"

static const struct rb_algorithm *algorithm(enum rb_kind kind, const char *name)
{
	int found = rb_algorithm_find(kind, name);

	ck_assert_int_ge(found, 0);
	return &rb_algorithms[found];
}

static rubato_status prove(const struct rb_algorithm *a, uint32_t rank_count, uint32_t root,
			   uint64_t count, const struct rb_check_limits *limits,
			   struct rb_proof *proof)
{
	struct rb_proof_case what = {
		.algorithm = a, .rank_count = rank_count, .root = root, .count = count
	};

	return rb_prove(&what, limits, proof);
}

START_TEST(every_algorithm_is_proved)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	uint32_t most = test_is_interpreted() ? 3 : 6;
	struct rb_proof proof;

	for (uint32_t n = 1; n <= most && n <= a->rank_max; n++) {
		uint32_t least = rb_algorithm_rooted(a) ? 8 * n : 8;

		ck_assert_int_eq(prove(a, n, RB_PROOF_ROOTS_ALL, 0, NULL, &proof), RUBATO_OK);
		ck_assert_msg(proof.proved, "%s", proof.text);
		ck_assert_uint_ge(proof.cases, a->kind == RB_KIND_BARRIER ? 2 : least);
		ck_assert_ptr_nonnull(strstr(proof.text, " is proved on "));
		ck_assert_uint_lt(strlen(proof.text), sizeof(proof.text) - 1);
		ck_assert_int_eq(prove(a, n, n - 1, 1000003 * n, NULL, &proof), RUBATO_OK);
		ck_assert_msg(proof.proved, "%s", proof.text);
	}
}
END_TEST

/* ---- Planted faults ---- */

/* The reduction of allreduce flat, once there is room for it; else NULL. */
static const struct rb_step *build_flat(struct rb_writer *w, const struct rb_build *build)
{
	algorithm(RB_KIND_ALLREDUCE, "flat")->build(w, build);
	return rb_writer_fits(w) ? &w->schedule->steps[w->schedule->step_count - 1] : NULL;
}

/* Rank 1 does not wait for what it reduces. */
static void build_hasty(struct rb_writer *w, const struct rb_build *build)
{
	const struct rb_step *reduce = build_flat(w, build);

	for (uint32_t d = 0; reduce && build->rank == 1 && d < reduce->dep_count; d++)
		w->schedule->deps[reduce->dep + d].lag = INT_MAX;
}

/* Rank 2 reduces one input twice and another not at all. */
static void build_other_operand(struct rb_writer *w, const struct rb_build *build)
{
	const struct rb_step *reduce = build_flat(w, build);

	if (reduce && build->rank == 2)
		w->schedule->spans[reduce->from] = w->schedule->spans[reduce->from + 1];
}

/* What comes at the root is called final, not what computes it: no average would be divided. */
static void build_final_at_receipt(struct rb_writer *w, const struct rb_build *build)
{
	algorithm(RB_KIND_REDUCE, "scatter_gather")->build(w, build);
	for (uint32_t i = 0; rb_writer_fits(w) && i < w->schedule->step_count; i++) {
		struct rb_step *step = &w->schedule->steps[i];

		step->flags &= (uint8_t)~RB_STEP_FINAL;
		if (step->kind == RB_STEP_RECV && build->rank == build->root)
			step->flags |= RB_STEP_FINAL;
	}
}

/* Each rank sends its part to the left, but only once it has received. */
static void build_stuck(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t n = build->rank_count, r = build->rank, right = (r + 1) % n;

	rb_writer_init(w, w->schedule, r, n, n);
	uint32_t recv = rb_write_recv(w, right, 0, rb_span_out(RB_SELF), right, 1);

	(void)rb_write_send(w, (r + n - 1) % n, 0, rb_span_part(rb_span_in(RB_SELF)), r, 1);
	rb_write_dep(w, recv, 0);
}

static uint64_t own_part(const struct rb_layout *layout, const struct rb_build *build,
			 uint32_t element_bytes)
{
	return rb_layout_length(layout, build->rank, 1) * element_bytes;
}

static uint64_t one_byte_more(const struct rb_layout *layout, const struct rb_build *build,
			      uint32_t element_bytes)
{
	return algorithm(RB_KIND_ALLREDUCE, "flat")->bytes_sent(layout, build, element_bytes) + 1;
}

static void refuted(const struct rb_algorithm *a, const char *where, const char *what)
{
	struct rb_proof proof;

	ck_assert_int_eq(prove(a, 3, RB_PROOF_ROOTS_ALL, 0, NULL, &proof), RUBATO_OK);
	ck_assert(!proof.proved);
	ck_assert_msg(strncmp(proof.text, where, strlen(where)) == 0, "%s", proof.text);
	ck_assert_msg(strstr(proof.text, what) != NULL, "%s", proof.text);
}

/* An alternating span of alltoall staged, once there is room for it; else NULL. */
static struct rb_span *build_alternating(struct rb_writer *w, const struct rb_build *build)
{
	algorithm(RB_KIND_ALLTOALL, "staged")->build(w, build);
	for (uint32_t i = 0; rb_writer_fits(w) && i < w->schedule->span_count; i++)
		if (w->schedule->spans[i].alternates)
			return &w->schedule->spans[i];
	return NULL;
}

static void build_odd_side_beyond(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_span *span = build_alternating(w, build);

	if (span)
		span->odd_slot = w->schedule->scratch_slots;
}

static void build_laps_of_three(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_span *span = build_alternating(w, build);

	if (span)
		span->depth = 3;
}

static void build_alternating_input(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_span *span = build_alternating(w, build);

	if (span)
		span->buffer = RB_BUF_IN;
}

static void build_two_sets(struct rb_writer *w, const struct rb_build *build)
{
	(void)build_alternating(w, build);
	w->schedule->scratch_copies = 2;
}

static void build_beside_vector_slot(struct rb_writer *w, const struct rb_build *build)
{
	(void)build_alternating(w, build);
	w->schedule->scratch_vector_slots = 1;
}

/* Rank 0 reads its own scratch, not rank 1's: that this is a device's, odd sides alone show. */
static void build_odd_side_on_device(struct rb_writer *w, const struct rb_build *build)
{
	if (!build_alternating(w, build))
		return;
	if (build->rank == 1)
		w->schedule->kinds[RB_BUF_SCRATCH] = RB_MEMORY_DEVICE;
	for (uint32_t i = 0; build->rank == 0 && i < w->schedule->span_count; i++) {
		struct rb_span *span = &w->schedule->spans[i];

		if (span->alternates && span->odd_rank == RB_SELF)
			*span = rb_span_side(*span, true);
	}
}

/* Rank 1 does not count on. */
static void build_one_stays(struct rb_writer *w, const struct rb_build *build)
{
	if (!build_alternating(w, build) || build->rank != 1)
		return;
	for (uint32_t i = 0; i < w->schedule->span_count; i++)
		w->schedule->spans[i] = rb_span_side(w->schedule->spans[i], false);
}

START_TEST(slots_alternate_where_they_may)
{
	struct rb_algorithm wrong = *algorithm(RB_KIND_ALLTOALL, "staged");
	const char *where = "alltoall staged, 3 ranks root 0, count ";

	wrong.build = build_odd_side_beyond;
	refuted(&wrong, where, "slots 4+2 of 4");
	wrong.build = build_laps_of_three;
	refuted(&wrong, where, "counts laps of 3");
	wrong.build = build_alternating_input;
	refuted(&wrong, where, "alternates where there are no slots");
	wrong.build = build_two_sets;
	refuted(&wrong, where, "alternates in 2 sets, beside 0 vector slots");
	wrong.build = build_beside_vector_slot;
	refuted(&wrong, where, "alternates in 1 sets, beside 1 vector slots");
	wrong.build = build_odd_side_on_device;
	refuted(&wrong, where, "takes rank 1's memory for device memory");
	wrong.build = build_one_stays;
	refuted(&wrong, where, "the schedule's head is wrong");
	wrong = *algorithm(RB_KIND_REDUCE_SCATTERV, "staged");
	wrong.build = algorithm(RB_KIND_REDUCE_SCATTER, "staged")->build;
	refuted(&wrong, "reduce_scatterv staged, 3 ranks root 0, count ",
		"unordered with the write");
}
END_TEST

static uint64_t equally_long(const void *arg, uint32_t s, uint32_t d)
{
	(void)arg;
	(void)s;
	(void)d;
	return 6;
}

/* Who says where each block lies may make them of any length, though these are alike. */
START_TEST(slots_of_blocks_with_starts_do_not_alternate)
{
	struct rb_algorithm wrong = *algorithm(RB_KIND_REDUCE_SCATTERV, "staged");
	struct rb_joint joint = { .algorithm = &wrong, .rank_count = 3 };
	struct rb_joint_layouts layouts;
	struct rb_check_result result;

	wrong.build = algorithm(RB_KIND_REDUCE_SCATTER, "staged")->build;
	ck_assert_int_eq(rb_joint_build(&joint), RUBATO_OK);
	ck_assert_int_eq(rb_joint_uneven(&layouts, &joint, 2, RB_GAPS_SAME, equally_long, NULL),
			 RUBATO_OK);
	ck_assert_int_eq(rb_joint_check(&joint, &layouts, false, 3, NULL, &result), RUBATO_OK);
	ck_assert(!result.proved);
	ck_assert_msg(strstr(result.text, "slots of uneven blocks alternate") != NULL, "%s",
		      result.text);
	rb_joint_layouts_free(&layouts);
	rb_joint_free(&joint);
}
END_TEST

START_TEST(wrong_schedules_are_named)
{
	struct rb_algorithm wrong = *algorithm(RB_KIND_ALLREDUCE, "flat");

	wrong.build = build_hasty;
	refuted(&wrong, "allreduce flat, 3 ranks root 0, count ",
		"unordered with the read by rank 1 instance 0 iteration 0: 4 REDUCE");
	wrong.build = build_other_operand;
	refuted(&wrong, "allreduce flat, 3 ranks root 0, count ", "rank 2");
	wrong = *algorithm(RB_KIND_ALLREDUCE, "flat");
	wrong.bytes_sent = one_byte_more;
	refuted(&wrong, "allreduce flat, 3 ranks root 0, count ", "rank 0: sends ");
	wrong = *algorithm(RB_KIND_REDUCE, "scatter_gather");
	wrong.build = build_final_at_receipt;
	refuted(&wrong, "reduce scatter_gather, 3 ranks root 0, count ",
		"final, but nothing is computed");
	wrong = *algorithm(RB_KIND_ALLGATHER, "flat");
	wrong.build = build_stuck;
	wrong.bytes_sent = own_part;
	refuted(&wrong, "allgather flat, 3 ranks root 0, count ", "waits for itself in a cycle");
}
END_TEST

/* A count that leaves a rest is proved, or refused: nothing else is proved instead. */
START_TEST(the_count_that_was_asked_is_proved)
{
	uint32_t refusals = 0;

	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];
		bool even = a->even || a->kind == RB_KIND_ALLTOALL;
		struct rb_proof proof;
		rubato_status got;

		if (a->rank_max < 3)
			continue;
		got = prove(a, 3, 0, 100, NULL, &proof);
		ck_assert_msg(got == RUBATO_OK || got == RUBATO_ERR_ARGUMENT, "%s",
			      rubato_error_text());
		ck_assert_msg(!even || got != RUBATO_OK, "%s %s", rb_kind_name(a->kind), a->name);
		refusals += got != RUBATO_OK;
		if (got != RUBATO_OK)
			ck_assert_ptr_nonnull(strstr(rubato_error_text(),
						     "100 elements are no multiple of 3 ranks"));
		ck_assert_int_eq(prove(a, 3, 0, 99, NULL, &proof), RUBATO_OK);
		ck_assert_msg(proof.proved, "%s", proof.text);
	}
	ck_assert_uint_gt(refusals, 4);
	ck_assert_uint_lt(refusals, rb_algorithm_count / 2);
}
END_TEST

/* ---- Limits ---- */

static bool stop_at_third(void *arg)
{
	return ++*(uint32_t *)arg >= 3;
}

START_TEST(a_proof_ends_at_its_limits)
{
	const struct rb_algorithm *ring = algorithm(RB_KIND_ALLREDUCE, "ring");
	uint32_t asked = 0;
	struct rb_check_limits few = { .events = 1000 };
	struct rb_check_limits short_time = { .stop = stop_at_third, .arg = &asked };
	struct rb_proof proof;

	ck_assert_int_eq(prove(ring, 2, 0, 0, &few, &proof), RUBATO_OK);
	ck_assert(proof.proved);
	ck_assert_int_eq(prove(ring, 16, 0, 0, &few, &proof), RUBATO_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "too many to check"));
	ck_assert_int_eq(prove(ring, 16, 0, 0, &short_time, &proof), RUBATO_ERR_TIMEOUT);
	ck_assert_uint_eq(asked, 3);
}
END_TEST

/* ---- As users call it ---- */

static void refused(rubato_status status, rubato_status want, const char *sentence)
{
	ck_assert_int_eq(status, want);
	ck_assert_msg(strstr(rubato_error_text(), sentence) != NULL, "%s", rubato_error_text());
}

START_TEST(proofs_for_users)
{
	const uint32_t all = RUBATO_PROVE_ROOTS_ALL;
	const uint32_t in_turn[] = { 3, 1, 3, 1 }, nowhere[] = { 0, 0, 4, 1 };
	char text[1024] = "", narrow[8];

	ck_assert_int_eq(rubato_prove("broadcast", "chain", 5, NULL, all, 0, 0, text, sizeof(text)),
			 0);
	ck_assert_ptr_nonnull(strstr(text, "broadcast chain is proved on 5 ranks, 5 roots: "));
	ck_assert_int_eq(rubato_prove("broadcast", "chain", 5, NULL, 4, 7, 0, text, sizeof(text)),
			 0);
	ck_assert_ptr_nonnull(strstr(text, "on 5 ranks, 1 root: 4 cases"));
	ck_assert_int_eq(rubato_prove("barrier", "dissemination", 1, NULL, 0, 0, 0, narrow, 8), 0);
	ck_assert_str_eq(narrow, "barrier");
	ck_assert_int_eq(rubato_prove("alltoall", "bruck", 3, NULL, 0, 0, 0, NULL, 0), 0);
	ck_assert_int_eq(rubato_prove("allreduce", "hierarchical", 4, in_turn, all, 0, 0, text,
				      sizeof(text)),
			 0);
	ck_assert_ptr_nonnull(strstr(text, "on 4 ranks on 2 nodes: "));
	refused(rubato_prove("allreduce", "ring", 4, nowhere, all, 0, 0, NULL, 0),
		RUBATO_ERR_ARGUMENT, "rank 2 is on node 4 of 4");
	refused(rubato_prove("allreduce", NULL, 3, NULL, all, 0, 0, NULL, 0), RUBATO_ERR_ARGUMENT,
		"prove: NULL");
	refused(rubato_prove("sendrecv", "eager", 2, NULL, all, 0, 0, NULL, 0), RUBATO_ERR_ARGUMENT,
		"unknown operation 'sendrecv'");
	refused(rubato_prove("allreduce", "bruck", 2, NULL, all, 0, 0, NULL, 0),
		RUBATO_ERR_ARGUMENT, "allreduce has no algorithm 'bruck'");
	refused(rubato_prove("allreduce", "ring", 0, NULL, all, 0, 0, NULL, 0), RUBATO_ERR_ARGUMENT,
		"prove: 0 ranks: from 1 to 256");
	refused(rubato_prove("allreduce", "ring", 257, NULL, all, 0, 0, NULL, 0),
		RUBATO_ERR_ARGUMENT, "prove: 257 ranks: from 1 to 256");
	refused(rubato_prove("reduce", "chain", 3, NULL, 3, 0, 0, NULL, 0), RUBATO_ERR_ARGUMENT,
		"root 3 of 3 ranks");
	refused(rubato_prove("reduce", "chain", 3, NULL, 0, UINT64_MAX, 0, NULL, 0),
		RUBATO_ERR_ARGUMENT, "more than 2^60 elements");
	refused(rubato_prove("allreduce", "ring", 64, NULL, all, 0, 1, NULL, 0), RUBATO_ERR_TIMEOUT,
		"prove: allreduce ring on 64 ranks: 0 cases are proved, the time is over");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("proof");

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, every_algorithm_is_proved, 0, (int)rb_algorithm_count);
	tcase_add_test(tc, wrong_schedules_are_named);
	tcase_add_test(tc, slots_alternate_where_they_may);
	tcase_add_test(tc, slots_of_blocks_with_starts_do_not_alternate);
	tcase_add_test(tc, the_count_that_was_asked_is_proved);
	tcase_add_test(tc, a_proof_ends_at_its_limits);
	tcase_add_test(tc, proofs_for_users);
	return check_main("proof", tc);
}
