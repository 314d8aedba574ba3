/* test_npy.c -- the .npy reader and writer, mostly against files that lie. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "tests/seeds.h"
#include "tests/trainer/support.h"
#include "trainer/base/npy.h"

static void expect_refusal(const char *path, const char *word)
{
	struct tr_npy array = { .rank = 77 };
	struct tr_error error = { 0 };

	ck_assert_msg(tr_npy_read(path, &array, &error) != RUBATO_OK, "accepted: expected '%s'",
		      word);
	ck_assert_msg(strstr(error.text, word) != NULL, "'%s' lacks '%s'", error.text, word);
	ck_assert_ptr_nonnull(strstr(error.text, path));
	ck_assert_ptr_null(strchr(error.text, '\n'));
	ck_assert_uint_eq(array.rank, 77); /* Outputs are left alone. */
}

START_TEST(reads_versions_and_shapes)
{
	static const struct {
		unsigned version;
		const char *dictionary;
		uint32_t rank;
		uint64_t count;
	} good[] = {
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 2, 6 },
		{ 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }   ", 1, 6 },
		{ 1, "{'shape':(1,2,3),'fortran_order':False,'descr':'<f4'}", 3, 6 },
		{ 1, "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": ()}", 0, 1 },
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }", 2, 0 },
	};
	const float data[6] = { 1, 2, 3, 4, 5, 6 };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct tr_npy array;
		struct tr_error error = { 0 };

		npy_write("a.npy", good[i].version, good[i].dictionary, data,
			  good[i].count * sizeof(float));
		ck_assert_msg(tr_npy_read("a.npy", &array, &error) == RUBATO_OK, "%s", error.text);
		ck_assert_uint_eq(array.rank, good[i].rank);
		ck_assert_uint_eq(array.count, good[i].count);
		ck_assert_int_eq(memcmp(array.bytes, data, array.count * sizeof(float)), 0);
		free(array.bytes);
	}
}
END_TEST

START_TEST(reads_every_width_of_integers)
{
	static const struct {
		const char *descr;
		uint8_t bytes[8];
		size_t item_bytes;
		int64_t want;
	} items[] = {
		{ "|i1", { 0xfe }, 1, -2 },
		{ "|u1", { 0xfe }, 1, 254 },
		{ "<i2", { 0xfe, 0xff }, 2, -2 },
		{ "<u2", { 0xfe, 0xff }, 2, 65534 },
		{ "<i4", { 0xfe, 0xff, 0xff, 0xff }, 4, -2 },
		{ "<u4", { 0xfe, 0xff, 0xff, 0xff }, 4, 4294967294 },
		{ "<i8", { 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, 8, -2 },
		{ "<u8", { 7, 1 }, 8, 263 },
	};

	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		char dictionary[128];
		struct tr_npy array;
		struct tr_error error = { 0 };

		snprintf(dictionary, sizeof(dictionary),
			 "{'descr': '%s', 'fortran_order': False, 'shape': (1,), }",
			 items[i].descr);
		npy_write("a.npy", 1, dictionary, items[i].bytes, items[i].item_bytes);
		ck_assert_msg(tr_npy_read("a.npy", &array, &error) == RUBATO_OK, "%s", error.text);
		ck_assert_int_eq(tr_npy_integer(&array, 0), items[i].want);
		free(array.bytes);
	}
}
END_TEST

static const struct {
	const char *dictionary, *word;
} hostile[] = {
	{ "", "malformed" },
	{ "{", "malformed" },
	{ "{}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -1)}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", "malformed" },
	{ "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} and more", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
	  "malformed" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
	  "too large" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,)}",
	  "too large" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "truncated" },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "too long" },
	{ "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", "big-endian" },
	{ "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects" },
	{ "{'descr': '|b1', 'fortran_order': False, 'shape': (8,)}", "dtype '|b1' is no integer" },
	{ "{'descr': '', 'fortran_order': False, 'shape': (8,)}", "dtype '' is no integer" },
	{ "{'descr': '<c8', 'fortran_order': True, 'shape': (1,)}", "dtype" },
	{ "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "records" },
};
#define HOSTILE_COUNT ((int)(sizeof(hostile) / sizeof(hostile[0])))

START_TEST(refuses_hostile_headers)
{
	const float data[2] = { 1, 2 };

	npy_write("a.npy", 1, hostile[_i].dictionary, data, sizeof(data));
	expect_refusal("a.npy", hostile[_i].word);
}
END_TEST

/* Whatever is cut off, the reader says so and reads nothing beyond. */
START_TEST(refuses_every_truncation)
{
	const float data[2] = { 1, 2 };
	size_t size_bytes;
	uint8_t *bytes;

	npy_write("a.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", data,
		  sizeof(data));
	bytes = file_read("a.npy", &size_bytes);
	for (size_t cut = 0; cut < size_bytes; cut++) {
		file_write("cut.npy", bytes, cut);
		expect_refusal("cut.npy", "truncated");
	}
	free(bytes);
}
END_TEST

START_TEST(refuses_other_files)
{
	uint8_t future[64] = "\x93NUMPY\x03";
	uint8_t huge[64] = "\x93NUMPY\x02\x00\xff\xff\xff\xff";

	expect_refusal("none.npy", "No such file");
	ck_assert_int_eq(mkdir("taken", 0777), 0);
	expect_refusal("taken", "regular file");
	file_write("text.npy", "1 2 3 4 5 6 7 8 9\n", 18);
	expect_refusal("text.npy", "magic");
	file_write("future.npy", future, sizeof(future));
	expect_refusal("future.npy", "version");
	file_write("huge.npy", huge, sizeof(huge));
	expect_refusal("huge.npy", "header");
}
END_TEST

START_TEST(what_is_written_is_read_back)
{
	const float data[5] = { 1.5f, -2.0f, 0.0f, 1e-30f, 3e30f };
	struct tr_error error = { 0 };
	struct tr_npy array;

	for (int turn = 0; turn < 2; turn++) /* The second replaces the first. */
		ck_assert_int_eq(tr_npy_write("w.npy", data, 5, &error), RUBATO_OK);
	ck_assert_int_eq(tr_npy_read("w.npy", &array, &error), RUBATO_OK);
	ck_assert_uint_eq(array.rank, 1);
	ck_assert_uint_eq(array.count, 5);
	ck_assert_int_eq(memcmp(array.bytes, data, sizeof(data)), 0);
	free(array.bytes);
	ck_assert_uint_eq(folder_count("."), 1); /* Nothing is left beside it. */
	ck_assert_int_ne(tr_npy_write("none/w.npy", data, 5, &error), RUBATO_OK);
	ck_assert_ptr_nonnull(strstr(error.text, "No such file"));
}
END_TEST

/* Item (i, j, k) is 100 i + 10 j + k, whatever the order in the file. */
START_TEST(reads_fortran_order)
{
	uint16_t c[2][3][4], fortran[4][3][2];
	struct tr_error error = { 0 };
	struct tr_npy array;

	for (uint16_t i = 0; i < 2; i++)
		for (uint16_t j = 0; j < 3; j++)
			for (uint16_t k = 0; k < 4; k++)
				c[i][j][k] = fortran[k][j][i] = (uint16_t)(100 * i + 10 * j + k);
	npy_write("f.npy", 1, "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3, 4), }",
		  fortran, sizeof(fortran));
	ck_assert_msg(tr_npy_read("f.npy", &array, &error) == RUBATO_OK, "%s", error.text);
	ck_assert_uint_eq(array.shape[2], 4);
	ck_assert_int_eq(memcmp(array.bytes, c, sizeof(c)), 0);
	free(array.bytes);
}
END_TEST

START_TEST(floats_of_every_width_become_float32)
{
	static const struct {
		uint16_t bits;
		float value;
	} halves[] = {
		{ 0x0000, 0.0f },         { 0x3c00, 1.0f },       { 0xc000, -2.0f },
		{ 0x7bff, 65504.0f },     { 0x0400, 0x1p-14f },   { 0x0001, 0x1p-24f },
		{ 0x83ff, -0x3.ffp-16f }, { 0x3555, 0x5.55p-4f },
	};
	const double large[2] = { 1.0, 1e39 }, fits[2] = { 0.1, -1e38 };
	const float *values;
	uint16_t bits[8];
	struct tr_error error = { 0 };
	struct tr_npy array;

	for (int i = 0; i < 8; i++)
		bits[i] = halves[i].bits;
	npy_write("h.npy", 1, "{'descr': '<f2', 'fortran_order': True, 'shape': (8,), }", bits,
		  sizeof(bits));
	ck_assert_int_eq(tr_npy_read("h.npy", &array, &error), RUBATO_OK);
	ck_assert_int_eq(tr_npy_float32(&array, "h.npy", &error), RUBATO_OK);
	values = array.bytes;
	for (int i = 0; i < 8; i++)
		ck_assert_float_eq(values[i], halves[i].value);
	free(array.bytes);

	npy_write("d.npy", 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", fits,
		  sizeof(fits));
	ck_assert_int_eq(tr_npy_read("d.npy", &array, &error), RUBATO_OK);
	ck_assert_int_eq(tr_npy_float32(&array, "d.npy", &error), RUBATO_OK);
	values = array.bytes;
	ck_assert_float_eq(values[0], 0.1f);
	ck_assert_float_eq(values[1], -1e38f);
	free(array.bytes);

	npy_write("d.npy", 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", large,
		  sizeof(large));
	ck_assert_int_eq(tr_npy_read("d.npy", &array, &error), RUBATO_OK);
	ck_assert_int_ne(tr_npy_float32(&array, "d.npy", &error), RUBATO_OK);
	ck_assert_ptr_nonnull(strstr(error.text, "item 1, 1e+39, is too large"));
	free(array.bytes);
}
END_TEST

/* Whatever a few bytes of a file become, it is refused, or all of what it says can be read. */
START_TEST(changed_files_are_refused_or_read)
{
	static const char header[] =
		"{'descr': '<f2', 'fortran_order': True, 'shape': (3, 2, 4), }          ";
	const uint16_t data[24] = { 1, 2, 3 };
	static const char letters[] = "<>|fiuO[](){}',: 0123456789TrueFals";
	struct seeds seeds = seeds_from(__func__, 1, 2000);
	uint64_t read = 0, refused = 0;
	size_t size_bytes;
	uint8_t *good;

	npy_write("a.npy", 1, header, data, sizeof(data));
	good = file_read("a.npy", &size_bytes);
	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rng rng = rng_open(seed, 0, 0);
		struct tr_npy array = { 0 };
		struct tr_error error = { 0 };
		uint8_t *bytes = malloc(size_bytes);

		ck_assert_ptr_nonnull(bytes);
		memcpy(bytes, good, size_bytes);
		for (uint64_t changes = 1 + rng_below(&rng, 3); changes > 0; changes--)
			bytes[rng_below(&rng, size_bytes - sizeof(data))] =
				rng_below(&rng, 4) == 0
					? (uint8_t)rng_below(&rng, 256)
					: (uint8_t)letters[rng_below(&rng, sizeof(letters) - 1)];
		file_write("b.npy", bytes, size_bytes - (seed % 7 == 0 ? rng_below(&rng, 64) : 0));
		if (tr_npy_read("b.npy", &array, &error) == RUBATO_OK) {
			ck_assert_uint_le(array.count * array.item_bytes, size_bytes);
			(void)tr_npy_float32(&array, "b.npy", &error);
			read++;
		} else {
			ck_assert_ptr_nonnull(strstr(error.text, "b.npy"));
			refused++;
		}
		free(array.bytes);
		free(bytes);
	}
	ck_assert_msg(getenv("TEST_SEED") != NULL || (read > 5 && refused > 500),
		      "%llu read, %llu refused", (unsigned long long)read,
		      (unsigned long long)refused);
	free(good);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("npy");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, folder_enter, folder_leave);
	tcase_add_test(tests, reads_versions_and_shapes);
	tcase_add_test(tests, reads_every_width_of_integers);
	tcase_add_loop_test(tests, refuses_hostile_headers, 0, HOSTILE_COUNT);
	tcase_add_test(tests, refuses_every_truncation);
	tcase_add_test(tests, refuses_other_files);
	tcase_add_test(tests, what_is_written_is_read_back);
	tcase_add_test(tests, reads_fortran_order);
	tcase_add_test(tests, floats_of_every_width_become_float32);
	tcase_add_test(tests, changed_files_are_refused_or_read);
	return check_main("npy", tests);
}
