/*
 * test_pairs.c -- an alltoallv of ranks that map each other's memory: who tells whom where its
 * buffers lie, by the bytes that each rank sends, and where two ranks work in each other's memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

#define RANKS 4u
#define SHORT 3u     /* Elements. */
#define LONG 120000u /* Likewise: nobody sends so much. */
#define CALLS 5u
#define RECORD_BYTES 16u

struct form {
	const char *name;
	/* Ranks 0 and 1 have so much for each other; all other pairs have little. */
	uint64_t to_1, to_0;
	bool plain[RANKS]; /* Buffers that nobody maps. */
	bool in_place[RANKS];
	bool persistent, records, messages; /* What ranks 0 and 1 send each other. */
};

static const struct form forms[] = {
	{ .name = "short", .to_1 = SHORT, .to_0 = SHORT },
	{ .name = "nothing", .to_1 = 0, .to_0 = 0 },
	{ .name = "long", .to_1 = LONG, .to_0 = LONG, .records = true },
	{ .name = "long and short", .to_1 = LONG, .to_0 = SHORT, .records = true },
	{ .name = "nothing and long", .to_1 = 0, .to_0 = LONG, .records = true },
	{ .name = "long, in place",
	  .to_1 = LONG,
	  .to_0 = LONG,
	  .in_place = { true, false, true, false },
	  .records = true },
	{ .name = "long, plain",
	  .to_1 = LONG,
	  .to_0 = LONG,
	  .plain = { true, false, false, true },
	  .records = true,
	  .messages = true },
	{ .name = "long, plain and in place",
	  .to_1 = LONG,
	  .to_0 = LONG,
	  .plain = { false, true, false, false },
	  .in_place = { true, true, true, true },
	  .records = true,
	  .messages = true },
	{ .name = "others plain",
	  .to_1 = LONG,
	  .to_0 = LONG,
	  .plain = { false, false, true, true },
	  .records = true },
	{ .name = "short, persistent", .to_1 = SHORT, .to_0 = SHORT, .persistent = true },
	{ .name = "long, persistent", .to_1 = LONG, .to_0 = LONG, .persistent = true },
	{ .name = "long, plain, persistent",
	  .to_1 = LONG,
	  .to_0 = LONG,
	  .plain = { false, true, false, false },
	  .persistent = true,
	  .messages = true },
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

static uint64_t length(const struct form *form, uint32_t from, uint32_t to)
{
	if (from == 0 && to == 1)
		return form->to_1;
	return from == 1 && to == 0 ? form->to_0 : SHORT;
}

static float element(uint32_t call, uint32_t from, uint32_t to, uint64_t i)
{
	return (float)(call * 100 + from * 10 + to) + (float)(i % 1000) / 1024;
}

struct side {
	const struct form *form;
	uint32_t rank;
	bool in_place;
	uint64_t to[RANKS], from[RANKS], from_at[RANKS];
	float *in, *out;
};

static rubato_status side_make(rubato_comm *comm, const struct form *form, struct side *s)
{
	size_t bytes = (LONG + RANKS * SHORT) * sizeof(float);
	uint64_t at = 0;

	*s = (struct side) { .form = form, .rank = rubato_rank(comm) };
	s->in_place = form->in_place[s->rank];
	for (uint32_t r = 0; r < RANKS; r++) {
		s->to[r] = length(form, s->rank, r);
		s->from[r] = length(form, r, s->rank);
		s->from_at[r] = at;
		at += s->from[r];
	}
	if (!form->plain[s->rank]) {
		RB_TRY(rubato_alloc(comm, bytes, (void **)&s->in));
		RB_TRY(rubato_alloc(comm, bytes, (void **)&s->out));
		return RUBATO_OK;
	}
	s->in = malloc(bytes);
	s->out = malloc(bytes);
	EXPECT(s->in != NULL && s->out != NULL);
	return RUBATO_OK;
}

static void side_free(rubato_comm *comm, struct side *s)
{
	if (s->form->plain[s->rank]) {
		free(s->in);
		free(s->out);
	} else {
		(void)rubato_free(comm, s->in);
		(void)rubato_free(comm, s->out);
	}
}

static rubato_status call(rubato_comm *comm, struct side *s, rubato_op *op, uint32_t number)
{
	float *in = s->in_place ? s->out : s->in, *at = in;

	for (uint32_t r = 0; r < RANKS; r++)
		for (uint64_t i = 0; i < s->to[r]; i++)
			*at++ = element(number, s->rank, r, i);
	if (op != NULL) {
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	} else {
		RB_TRY(rubato_alltoallv(comm, in, s->to, NULL, s->out, s->from, s->from_at,
					RUBATO_FLOAT32));
	}
	for (uint32_t r = 0; r < RANKS; r++)
		for (uint64_t i = 0; i < s->from[r]; i++)
			EXPECT(s->out[s->from_at[r] + i] == element(number, r, s->rank, i));
	return RUBATO_OK;
}

/* A rank of few and short blocks sends these and nothing else; a long one is sent only where one of
 * the two has memory that is not mapped. */
static uint64_t bytes_wanted(const struct side *s)
{
	uint64_t bytes = 0;

	for (uint32_t r = 0; r < RANKS; r++) {
		bool other = r != s->rank, pair = r + s->rank == 1;

		if (other && pair && s->form->records)
			bytes += RECORD_BYTES;
		if (other && (!pair || s->form->messages || s->form->to_1 + s->form->to_0 < LONG))
			bytes += s->to[r] * sizeof(float);
	}
	return bytes;
}

static rubato_status pairs_main(rubato_comm *comm, void *arg)
{
	const struct form *form = arg;
	rubato_stats before = { .size_bytes = sizeof(before) }, after = before;
	rubato_op *op = NULL;
	struct side s;

	RB_TRY(side_make(comm, form, &s));
	RB_TRY(rubato_set_algorithm(comm, "alltoallv", "direct"));
	if (form->persistent)
		RB_TRY(rubato_op_alltoallv(comm, s.in_place ? s.out : s.in, s.to, NULL, s.out,
					   s.from, s.from_at, RUBATO_FLOAT32, &op));
	RB_TRY(call(comm, &s, op, 0));
	RB_TRY(rubato_get_stats(comm, &before));
	for (uint32_t i = 1; i <= CALLS; i++)
		RB_TRY(call(comm, &s, op, i));
	RB_TRY(rubato_get_stats(comm, &after));
	if (after.bytes_sent - before.bytes_sent != CALLS * bytes_wanted(&s))
		return RB_FAIL(RUBATO_ERR_INTERNAL,
			       "%s: rank %u sent %llu bytes, not %u times %llu", form->name, s.rank,
			       (unsigned long long)(after.bytes_sent - before.bytes_sent), CALLS,
			       (unsigned long long)bytes_wanted(&s));
	if (op != NULL)
		rubato_op_free(op);
	side_free(comm, &s);
	return RUBATO_OK;
}

START_TEST(pairs_that_have_little_tell_each_other_nothing)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
	struct form form = forms[_i];

	ck_assert_msg(local_run(RANKS, shm, pairs_main, &form, NULL) == RUBATO_OK, "%s: %s",
		      form.name, rubato_error_text());
}
END_TEST

/* ---- What calls came to ---- */

/* Some are nothing at all; the others differ in the middle, or in where they lie, and neither in
 * their first block nor in their last one. */
static uint64_t turn_length(uint32_t turn, uint32_t from, uint32_t to)
{
	if (turn % 4 == 3)
		return 0;
	return to == 0 || to == RANKS - 1 ? 2 : 1 + (from + to + turn / 4) % 3;
}

static rubato_status turn_alltoallv(rubato_comm *comm, uint32_t turn)
{
	uint32_t rank = rubato_rank(comm);
	uint64_t to[RANKS], from[RANKS], at[RANKS];
	float in[64], out[64], *next = in;

	for (uint32_t r = 0; r < RANKS; r++) {
		to[r] = turn_length(turn, rank, r);
		from[r] = turn_length(turn, r, rank);
		at[r] = r * (8 + turn % 2);
		for (uint64_t i = 0; i < to[r]; i++)
			*next++ = element(turn, rank, r, i);
	}
	memset(out, 0xff, sizeof(out));
	RB_TRY(rubato_alltoallv(comm, in, to, NULL, out, from, at, RUBATO_FLOAT32));
	for (uint32_t r = 0; r < RANKS; r++)
		for (uint64_t i = 0; i < from[r]; i++)
			EXPECT(out[at[r] + i] == element(turn, r, rank, i));
	return RUBATO_OK;
}

static rubato_status turn_allgatherv(rubato_comm *comm, uint32_t turn)
{
	uint32_t rank = rubato_rank(comm);
	uint64_t counts[RANKS], at[RANKS];
	float in[8], out[64];

	for (uint32_t r = 0; r < RANKS; r++) {
		counts[r] = turn_length(turn, 0, r);
		at[r] = r * (8 + turn % 2);
	}
	for (uint64_t i = 0; i < counts[rank]; i++)
		in[i] = element(turn, rank, 0, i);
	RB_TRY(rubato_allgatherv(comm, in, out, counts, at, RUBATO_FLOAT32));
	for (uint32_t r = 0; r < RANKS; r++)
		for (uint64_t i = 0; i < counts[r]; i++)
			EXPECT(out[at[r] + i] == element(turn, r, 0, i));
	return RUBATO_OK;
}

static rubato_status turns_main(rubato_comm *comm, void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < 60; i++) { /* Each twice in a row. */
		RB_TRY(turn_alltoallv(comm, i / 2));
		RB_TRY(turn_allgatherv(comm, i / 2));
	}
	return RUBATO_OK;
}

START_TEST(blocks_that_are_not_those_before_are_found_out)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

	ck_assert_msg(local_run(RANKS, shm, turns_main, NULL, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

/* ---- Empty sides ---- */

/* Rank 0 sends only, rank 1 receives only, each with both buffers at one address; the others do
 * both. Of what is empty neither address nor offsets matter. */
static rubato_status empty_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	uint64_t to[RANKS] = { 0 }, from[RANKS] = { 0 }, to_at[RANKS], from_at[RANKS];
	float in[RANKS * 8], apart[RANKS * 8], *out = rank < 2 ? in : apart;

	RB_TRY(rubato_set_algorithm(comm, "alltoallv", arg));
	for (uint32_t r = 0; r < RANKS; r++) {
		to[r] = rank != 1 && r != 0 ? 1 + r : 0;
		from[r] = rank != 0 && r != 1 ? 1 + rank : 0;
		to_at[r] = r * 8;
		from_at[r] = (RANKS - 1 - r) * 8;
	}
	for (uint32_t call = 0; call < 2; call++) {
		for (uint32_t i = 0; i < RANKS * 8; i++)
			in[i] = element(call, rank, i / 8, i % 8);
		RB_TRY(rubato_alltoallv(comm, in, to, to_at, out, from, from_at, RUBATO_FLOAT32));
		for (uint32_t r = 0; r < RANKS; r++)
			for (uint64_t i = 0; i < from[r]; i++)
				EXPECT(out[from_at[r] + i] == element(call, r, rank, i));
	}
	return RUBATO_OK;
}

START_TEST(what_is_empty_lies_nowhere)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

	for (uint32_t i = 0;; i++) {
		void *name = (void *)(uintptr_t)rubato_algorithm_name("alltoallv", i);

		if (name == NULL)
			break;
		ck_assert_msg(local_run(RANKS, shm, empty_main, name, NULL) == RUBATO_OK, "%s: %s",
			      (char *)name, rubato_error_text());
	}
}
END_TEST

/* Only of those that work in mapped memory. */
static rubato_status explain_main(rubato_comm *comm, void *arg)
{
	char text[1024];

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "alltoallv", "direct"));
	RB_TRY(rubato_explain(comm, "alltoallv", 0, RUBATO_FLOAT32, text, sizeof(text)));
	EXPECT(strstr(text, "; messages between two ranks with at most ") != NULL);
	RB_TRY(rubato_set_algorithm(comm, "alltoallv", "pairwise"));
	RB_TRY(rubato_explain(comm, "alltoallv", 0, RUBATO_FLOAT32, text, sizeof(text)));
	EXPECT(strstr(text, "messages between") == NULL);
	return RUBATO_OK;
}

START_TEST(explain_says_how_much_is_little)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

	ck_assert_msg(local_run(2, shm, explain_main, NULL, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("pairs");

	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, pairs_that_have_little_tell_each_other_nothing, 0, (int)FORMS);
	tcase_add_test(tc, blocks_that_are_not_those_before_are_found_out);
	tcase_add_test(tc, what_is_empty_lies_nowhere);
	tcase_add_test(tc, explain_says_how_much_is_little);
	return check_main("pairs", tc);
}
