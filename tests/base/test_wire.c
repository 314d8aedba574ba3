/* test_wire.c -- bytes that cross between ranks, against golden ones: a change of format shows. */
#include <string.h>

#include "base/wire.h"
#include "tests/check_main.h"

START_TEST(fields_are_little_endian)
{
	static const uint8_t golden[] = { 0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f, 0x0e,
					  0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08, 0xaa, 0xbb };
	uint8_t bytes[sizeof(golden)], two[2];
	struct rb_wire w = rb_wire_over(bytes, sizeof(bytes));

	rb_wire_put_u8(&w, 0x01);
	rb_wire_put_u16(&w, 0x0203);
	rb_wire_put_u32(&w, 0x04050607);
	rb_wire_put_u64(&w, UINT64_C(0x08090a0b0c0d0e0f));
	rb_wire_put_bytes(&w, "\xaa\xbb", 2);
	ck_assert(!w.bad && w.at == w.end);
	ck_assert_mem_eq(bytes, golden, sizeof(golden));

	w = rb_wire_over(bytes, sizeof(bytes));
	ck_assert_uint_eq(rb_wire_get_u8(&w), 0x01);
	ck_assert_uint_eq(rb_wire_get_u16(&w), 0x0203);
	ck_assert_uint_eq(rb_wire_get_u32(&w), 0x04050607);
	ck_assert_uint_eq(rb_wire_get_u64(&w), UINT64_C(0x08090a0b0c0d0e0f));
	rb_wire_get_bytes(&w, two, 2);
	ck_assert_mem_eq(two, "\xaa\xbb", 2);
	ck_assert(!w.bad && w.at == w.end);
}
END_TEST

START_TEST(nothing_runs_past_the_end)
{
	uint8_t bytes[6] = { 1, 2, 3, 4, 5, 0x77 };
	struct rb_wire w = rb_wire_over(bytes, 5);

	ck_assert_uint_eq(rb_wire_get_u32(&w), 0x04030201);
	ck_assert_uint_eq(rb_wire_get_u16(&w), 0);
	ck_assert(w.bad);
	ck_assert_uint_eq(rb_wire_get_u64(&w), 0);

	w = rb_wire_over(bytes, 5);
	rb_wire_put_u32(&w, 0);
	rb_wire_put_u16(&w, 0xffff);
	ck_assert(w.bad);
	ck_assert_uint_eq(bytes[4], 5);
	ck_assert_uint_eq(bytes[5], 0x77);
}
END_TEST

START_TEST(signatures_are_sixteen_bytes)
{
	static const uint8_t golden[16] = { 4, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 4 };
	struct rb_signature s = {
		RB_KIND_ALLREDUCE, RUBATO_FLOAT32, RUBATO_SUM, 2, UINT32_MAX, 1024
	};
	struct rb_signature other = s;
	char text[64];

	ck_assert_mem_eq(&s, golden, sizeof(golden));
	ck_assert_str_eq(rb_signature_text(&s, text, sizeof(text)), "allreduce float32 x 1024 sum");
	ck_assert(rb_signature_same(&s, &other));
	other.count++;
	ck_assert(!rb_signature_same(&s, &other));
	s = (struct rb_signature) { RB_KIND_BROADCAST, RUBATO_INT64, 0xff, 0, 3, 5 };
	ck_assert_str_eq(rb_signature_text(&s, text, sizeof(text)), "broadcast int64 x 5 root 3");
	ck_assert_uint_eq(strlen(rb_signature_text(&s, text, 10)), 9);
}
END_TEST

START_TEST(tags_keep_their_fields_apart)
{
	struct rb_tag tag = rb_tag(0x12, RB_TAG_PERSISTENT, UINT64_C(0xfffffffffffff), 0x654321);
	struct rb_tag next = rb_tag(0x112, RB_TAG_PERSISTENT, UINT64_C(0x1fffffffffffff), 1u << 24);

	tag = rb_tag_step(tag, 0xabc, 0xdef0123);
	ck_assert_uint_eq(tag.call, UINT64_C(0x122fffffffffffff));
	ck_assert_uint_eq(tag.step, UINT64_C(0x654321abcdef0123));
	ck_assert_int_eq(rb_tag_class_of(tag), RB_TAG_PERSISTENT);
	ck_assert_uint_eq(rb_tag_number_of(tag), UINT64_C(0xfffffffffffff));
	ck_assert_uint_eq(next.step, 0); /* Instances wrap. */
	ck_assert_int_eq(rb_tag_lead(tag, 0x654320), 1);
	ck_assert_int_eq(rb_tag_lead(tag, 0x7654323), -2);
	ck_assert_int_eq(rb_tag_lead(next, 0xffffff), 1);
	ck_assert_int_eq(rb_tag_lead(next, 5), -5);
	ck_assert_uint_eq(next.call, tag.call); /* Epoch and number keep to their fields. */
	ck_assert(!rb_tag_same(next, tag));
	tag = rb_tag_message(0x12, RB_TAG_P2P, UINT32_MAX, UINT64_MAX);
	ck_assert_uint_eq(tag.call, UINT64_C(0x12500000ffffffff));
	ck_assert_uint_eq(tag.step, UINT64_MAX);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("wire");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, fields_are_little_endian);
	tcase_add_test(tc, nothing_runs_past_the_end);
	tcase_add_test(tc, signatures_are_sixteen_bytes);
	tcase_add_test(tc, tags_keep_their_fields_apart);
	return check_main("base", tc);
}
