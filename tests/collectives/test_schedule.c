/* test_schedule.c -- geometry up to 2^60 elements, the writer, and a step as text. */
#include <string.h>

#include "collectives/algorithms.h"
#include "tests/check_main.h"

START_TEST(even_blocks_cover_everything)
{
	static const uint64_t counts[] = { 0,          1,
					   5,          63,
					   64,         65,
					   1000003,    (1ull << 31) + 5,
					   1ull << 33, (1ull << 60) - 1,
					   1ull << 60 };
	static const uint32_t blocks[] = { 1, 2, 3, 7, 64, 4096 }, aligns[] = { 1, 16, 64 };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (size_t b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++)
			for (size_t a = 0; a < 3; a++) {
				struct rb_layout l = { .count = counts[i],
						       .chunk = 1,
						       .block_count = blocks[b],
						       .align = aligns[a] };
				uint64_t total = 0, least = UINT64_MAX, most = 0;

				for (uint32_t k = 0; k < l.block_count; k++) {
					uint64_t length = rb_layout_length(&l, k, 1);

					ck_assert_uint_eq(rb_layout_offset(&l, k), total);
					ck_assert(total % l.align == 0 || total == l.count);
					total += length;
					least = length < least ? length : least;
					most = length > most ? length : most;
				}
				ck_assert_uint_eq(total, l.count);
				ck_assert_uint_le(most - least, 2 * l.align - (l.align == 1));
			}
}
END_TEST

START_TEST(chunks_of_uneven_blocks)
{
	static const uint64_t starts[] = { 0, 0, 10, 25 }, lengths[] = { 0, 10, 15, 0 };
	struct rb_layout l = { .count = 25,
			       .chunk = 4,
			       .block_count = 4,
			       .align = 1,
			       .starts = starts,
			       .lengths = lengths };
	struct rb_step step = { .kind = RB_STEP_COPY, .block = 1, .blocks = 1 };
	struct rb_span out = rb_span_out(RB_SELF), slot = rb_span_scratch(RB_SELF, 5, 3);

	ck_assert_uint_eq(rb_step_iterations(&l, &step), 3);
	ck_assert_uint_eq(rb_step_length(&l, &step, 1), 4);
	ck_assert_uint_eq(rb_step_length(&l, &step, 2), 2);
	step.block = 2;
	ck_assert_uint_eq(rb_step_iterations(&l, &step), 4);
	ck_assert_uint_eq(rb_step_length(&l, &step, 3), 3);
	ck_assert_uint_eq(rb_span_offset(&l, &step, &out, 3), 22);
	out = rb_span_part(out);
	ck_assert_uint_eq(rb_span_offset(&l, &step, &out, 3), 12);
	ck_assert_uint_eq(rb_span_offset(&l, &step, &slot, 2), 28);
	ck_assert_uint_eq(rb_span_offset(&l, &step, &slot, 3), 20);
	step.blocks = 2;
	ck_assert_uint_eq(rb_step_iterations(&l, &step), 4);
	step.block = 3, step.blocks = 1;
	ck_assert_uint_eq(rb_step_iterations(&l, &step), 0);
	step.flags = RB_STEP_ONCE;
	ck_assert_uint_eq(rb_step_iterations(&l, &step), 1);
	ck_assert_uint_eq(rb_step_length(&l, &step, 0), 0);
}
END_TEST

START_TEST(large_chunks_do_not_wrap)
{
	struct rb_layout l = {
		.count = 1ull << 60, .chunk = (1ull << 40) + 16, .block_count = 3, .align = 16
	};
	struct rb_step step = { .kind = RB_STEP_COPY, .block = 2, .blocks = 1 };
	uint32_t last = rb_step_iterations(&l, &step) - 1;
	struct rb_span out = rb_span_out(RB_SELF);

	ck_assert_uint_gt(last, 300000);
	ck_assert_uint_eq(rb_span_offset(&l, &step, &out, last) + rb_step_length(&l, &step, last),
			  1ull << 60);
}
END_TEST

/* A builder without room says what it needs, and with exactly that it fits. */
START_TEST(writer_counts_beyond_its_room)
{
	struct rb_step steps[64];
	struct rb_span spans[64];
	struct rb_dep deps[64];
	struct rb_schedule s = { .steps = steps, .spans = spans, .deps = deps };
	struct rb_writer w = { .schedule = &s };
	struct rb_build build = { .rank = 1, .rank_count = 4 };
	int ring = rb_algorithm_find(RB_KIND_ALLREDUCE, "ring");

	ck_assert_int_ge(ring, 0);
	rb_algorithms[ring].build(&w, &build);
	ck_assert(!rb_writer_fits(&w));
	ck_assert_uint_eq(s.step_count, 5 * 3);
	w.step_capacity = s.step_count;
	w.span_capacity = s.span_count;
	w.dep_capacity = s.dep_count;
	memset(steps, 0x5a, sizeof(steps));
	rb_algorithms[ring].build(&w, &build);
	ck_assert(rb_writer_fits(&w));
	ck_assert_uint_eq(steps[s.step_count].kind, 0x5a);
	w.dep_capacity--;
	rb_algorithms[ring].build(&w, &build);
	ck_assert(!rb_writer_fits(&w));
}
END_TEST

/* Labels before their step, one of them at several, and a row of every second step; first as a
 * builder that only counts, then with too little room, then whole. */
START_TEST(steps_by_name)
{
	struct rb_step steps[8];
	struct rb_dep deps[8];
	struct rb_schedule s = { .steps = steps, .deps = deps };
	static const struct {
		uint32_t step;
		int32_t lag;
	} want[] = { { 4, 3 }, { 4, 0 }, { 1, 1 }, { 1, 5 }, { 3, 5 } };

	for (uint32_t room = 0; room <= 5; room++) {
		struct rb_writer w = { &s, 5, 0, room, 0 };
		struct rb_label end = { 0 }, second = { 0 };
		struct rb_row every_second = { 0 };

		rb_writer_init(&w, &s, 0, 2, 1);
		(void)rb_write_notify(&w, 1, 0, 0, 0);
		rb_write_dep_label(&w, &end, 3);
		rb_row_add(&every_second, rb_write_notify(&w, 1, 1, 0, 0));
		rb_write_dep_label(&w, &end, 0);
		rb_write_dep_label(&w, &second, 1);
		rb_write_label(&w, &second); /* A step may name itself. */
		(void)rb_write_notify(&w, 1, 2, 0, 0);
		rb_row_add(&every_second, rb_write_notify(&w, 1, 3, 0, 0));
		(void)rb_write_notify(&w, 1, 4, 0, 0);
		rb_write_dep_row(&w, &every_second, 5);
		rb_write_label(&w, &end);
		ck_assert_uint_eq(w.open, 0);
		ck_assert(rb_writer_fits(&w) == (room == 5));
		ck_assert_uint_eq(s.dep_count, 5);
		for (uint32_t i = 0; i < room; i++) {
			ck_assert_uint_eq(deps[i].step, want[i].step);
			ck_assert_int_eq(deps[i].lag, want[i].lag);
		}
	}
}
END_TEST

START_TEST(step_as_text)
{
	struct rb_step steps[4];
	struct rb_span spans[8];
	struct rb_dep deps[8];
	struct rb_schedule s = { .steps = steps, .spans = spans, .deps = deps };
	struct rb_writer w = { &s, 4, 8, 8, 0 };
	char text[200], narrow[8];

	rb_writer_init(&w, &s, 0, 4, 4);
	(void)rb_write_recv(&w, 3, 2, rb_span_scratch(RB_SELF, 4, 2), 1, 1);
	rb_write_dep(&w, 1, 2);
	(void)rb_write_reduce(&w, rb_span_part(rb_span_out(RB_SELF)), 1, 1);
	rb_write_operand(&w, rb_span_in(2));
	rb_write_operand(&w, rb_span_scratch(RB_SELF, 4, 2));
	rb_write_dep(&w, 0, 0);
	rb_write_dep(&w, 0, RB_DEP_ALL);
	rb_write_flags(&w, RB_STEP_FINAL);
	ck_assert(rb_writer_fits(&w));
	ck_assert_uint_eq(s.scratch_slots, 6);
	ck_assert_int_eq(rb_step_text(&s, 0, text, sizeof(text)), (int)strlen(text));
	ck_assert_str_eq(text, "0 RECV peer 3 channel 2 blocks 1+1 to scratch[4+2] after 1-2");
	(void)rb_step_text(&s, 1, text, sizeof(text));
	ck_assert_str_eq(text, "1 REDUCE blocks 1+1 final from in@2, scratch[4+2] to out.part "
			       "after 0,0:all");
	ck_assert_int_eq(rb_step_text(&s, 1, narrow, sizeof(narrow)), (int)strlen(text));
	ck_assert_str_eq(narrow, "1 REDUC");
	(void)rb_write_copy(
		&w, rb_span_in(RB_SELF),
		rb_span_alternating(rb_span_scratch(RB_SELF, 0, 2), rb_span_scratch(3, 6, 2)), 1,
		1);
	ck_assert_uint_eq(s.scratch_slots, 8); /* Those of its odd side, too. */
	(void)rb_write_copy(
		&w, rb_span_alternating(rb_span_scratch(3, 6, 2), rb_span_scratch(RB_SELF, 0, 2)),
		rb_span_out(RB_SELF), 1, 1);
	ck_assert(rb_writer_fits(&w));
	(void)rb_step_text(&s, 2, text, sizeof(text));
	ck_assert_str_eq(text, "2 COPY blocks 1+1 from in to scratch[0+2] or @3[6]");
	(void)rb_step_text(&s, 3, text, sizeof(text));
	ck_assert_str_eq(text, "3 COPY blocks 1+1 from scratch@3[6+2] or [0] to out");
}
END_TEST

START_TEST(names_are_unique_within_a_kind)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		ck_assert_int_eq(rb_algorithm_find(rb_algorithms[i].kind, rb_algorithms[i].name),
				 (int)i);
	ck_assert_int_eq(rb_algorithm_find(RB_KIND_BARRIER, "ring"), -1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("schedule");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, even_blocks_cover_everything);
	tcase_add_test(tc, chunks_of_uneven_blocks);
	tcase_add_test(tc, large_chunks_do_not_wrap);
	tcase_add_test(tc, writer_counts_beyond_its_room);
	tcase_add_test(tc, steps_by_name);
	tcase_add_test(tc, step_as_text);
	tcase_add_test(tc, names_are_unique_within_a_kind);
	return check_main("schedule", tc);
}
