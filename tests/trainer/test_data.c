/* test_data.c -- the two data formats with hostile files, the order of rows, the learning rate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/trainer/support.h"
#include "trainer/data.h"
#include "trainer/order.h"
#include "trainer/rate.h"

static char folder[PATH_BYTES];

static void setup(void)
{
	folder_make(folder);
}

static void teardown(void)
{
	folder_remove(folder);
}

static const char *in_folder(const char *name)
{
	static char path[PATH_BYTES];

	return path_join(path, folder, name);
}

static void expect_refusal(const char *kind, const char *word)
{
	char source[PATH_BYTES + 16];
	struct tr_data data;
	struct tr_note note = { 0 };

	snprintf(source, sizeof(source), "%s:%s", kind, folder);
	ck_assert_msg(tr_data_open(&data, source, 5, &note) != RUBATO_OK, "accepted: expected '%s'",
		      word);
	ck_assert_msg(strstr(note.text, word) != NULL, "'%s' lacks '%s'", note.text, word);
	ck_assert_ptr_null(strchr(note.text, '\n'));
}

/* ---- IDX ---- */

#define IMAGES 3
#define SIDE 4

static void write_idx(const char *name, const uint8_t *head, size_t head_bytes, uint8_t first,
		      size_t count)
{
	uint8_t bytes[256];

	ck_assert_uint_le(head_bytes + count, sizeof(bytes));
	memcpy(bytes, head, head_bytes);
	for (size_t i = 0; i < count; i++)
		bytes[head_bytes + i] = (uint8_t)(first + i);
	file_write_gz(in_folder(name), bytes, head_bytes + count);
}

static const uint8_t image_head[16] = { 0, 0, 8, 3, 0, 0, 0, IMAGES, 0, 0, 0, SIDE, 0, 0, 0, SIDE };
static const uint8_t label_head[8] = { 0, 0, 8, 1, 0, 0, 0, IMAGES };

static void write_good_idx(void)
{
	write_idx("train-images-idx3-ubyte.gz", image_head, 16, 0, IMAGES * SIDE * SIDE);
	write_idx("train-labels-idx1-ubyte.gz", label_head, 8, 0, IMAGES);
	write_idx("t10k-images-idx3-ubyte.gz", image_head, 16, 100, IMAGES * SIDE * SIDE);
	write_idx("t10k-labels-idx1-ubyte.gz", label_head, 8, 4, IMAGES);
}

START_TEST(idx_is_read_and_scaled)
{
	char source[PATH_BYTES + 16];
	struct tr_data data;
	struct tr_note note = { 0 };
	float x[SIDE * SIDE];
	int32_t label;
	const uint32_t order[] = { 2 };

	write_good_idx();
	snprintf(source, sizeof(source), "fashion-mnist:%s", folder);
	ck_assert_msg(tr_data_open(&data, source, 5, &note) == RUBATO_OK, "%s", note.text);
	ck_assert_uint_eq(data.train.rows, IMAGES);
	ck_assert_uint_eq(data.output_count, 7); /* Largest label, of the test set: 6. */
	ck_assert_int_eq(data.loss, TR_CROSS_ENTROPY);
	tr_data_gather(&data, &data.train, order, 0, 1, x, &label, NULL);
	ck_assert_int_eq(label, 2);
	ck_assert_float_eq_tol(x[5], ((2 * SIDE * SIDE + 5) / 255.0f - 0.286f) / 0.353f, 1e-6f);
	tr_data_gather(&data, &data.test, NULL, 1, 1, x, &label, NULL);
	ck_assert_int_eq(label, 5);
	tr_data_close(&data);
}
END_TEST

START_TEST(idx_lies_are_refused)
{
	uint8_t head[16];
	size_t size_bytes;
	uint8_t *gz;

	expect_refusal("fashion-mnist", "No such file");

	write_good_idx();
	memcpy(head, image_head, 16);
	head[3] = 1;
	write_idx("train-images-idx3-ubyte.gz", head, 16, 0, IMAGES * SIDE * SIDE);
	expect_refusal("fashion-mnist", "magic");

	write_good_idx();
	write_idx("train-images-idx3-ubyte.gz", image_head, 16, 0, IMAGES * SIDE * SIDE - 1);
	expect_refusal("fashion-mnist", "truncated");

	write_idx("train-images-idx3-ubyte.gz", image_head, 16, 0, IMAGES * SIDE * SIDE + 1);
	expect_refusal("fashion-mnist", "too long");

	write_idx("train-images-idx3-ubyte.gz", image_head, 7, 0, 0);
	expect_refusal("fashion-mnist", "truncated");

	memcpy(head, image_head, 16);
	memset(head + 4, 0xff, 12); /* 2^96 bytes are promised. */
	write_idx("train-images-idx3-ubyte.gz", head, 16, 0, 10);
	expect_refusal("fashion-mnist", "side");

	memcpy(head, image_head, 16);
	memset(head + 4, 0xff, 4);
	write_idx("train-images-idx3-ubyte.gz", head, 16, 0, 10);
	expect_refusal("fashion-mnist", "too many");

	write_good_idx();
	memcpy(head, label_head, 8);
	head[7] = IMAGES - 1;
	write_idx("train-labels-idx1-ubyte.gz", head, 8, 0, IMAGES - 1);
	expect_refusal("fashion-mnist", "labels for");

	write_good_idx();
	memcpy(head, image_head, 16);
	head[11] = 2;
	write_idx("t10k-images-idx3-ubyte.gz", head, 16, 0, IMAGES * SIDE * 2);
	expect_refusal("fashion-mnist", "test images");

	write_good_idx();
	gz = file_read(in_folder("train-images-idx3-ubyte.gz"), &size_bytes);
	file_write(in_folder("train-images-idx3-ubyte.gz"), gz, size_bytes - 10);
	expect_refusal("fashion-mnist", "truncated");
	gz[size_bytes - 6] ^= 0x55; /* In the checksum. */
	file_write(in_folder("train-images-idx3-ubyte.gz"), gz, size_bytes);
	expect_refusal("fashion-mnist", "damaged");
	free(gz);
}
END_TEST

/* ---- npy ---- */

static const char x_float[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}";
static const char x_double[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1)}";
static const char x_vector[] = "{'descr': '<f4', 'fortran_order': False, 'shape': ()}";
static const char y_int[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}";
static const char y_short[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}";
static const char y_matrix[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 1)}";
static const char y_float[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}";
static const char y_double[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}";
static const float x_data[6] = { 1, 2, 3, 4, 5, 6 };
static const int64_t y_data[3] = { 0, 2, 1 };

static void write_good_npy(void)
{
	npy_write(in_folder("x.npy"), 1, x_float, x_data, sizeof(x_data));
	npy_write(in_folder("y.npy"), 1, y_int, y_data, sizeof(y_data));
	npy_write(in_folder("x_test.npy"), 1, x_float, x_data, sizeof(x_data));
	npy_write(in_folder("y_test.npy"), 1, y_int, y_data, sizeof(y_data));
}

START_TEST(npy_lies_are_refused)
{
	const float nan_data[6] = { 1, 2, 3, NAN, 5, 6 },
		    inf_data[6] = { 1, 2, 3, 4, -INFINITY, 6 };
	const int64_t negative[3] = { 0, -1, 1 }, large[3] = { 0, INT64_C(1) << 40, 1 };
	const int64_t many[3] = { 0, 1 << 20, 1 };

	expect_refusal("npy", "No such file");
	write_good_npy();
	npy_write(in_folder("x.npy"), 1, x_double, x_data, sizeof(x_data));
	expect_refusal("npy", "float64");
	npy_write(in_folder("x.npy"), 1, x_vector, x_data, 4);
	expect_refusal("npy", "samples first");
	npy_write(in_folder("x.npy"), 1, x_float, nan_data, sizeof(nan_data));
	expect_refusal("npy", "row 1 holds NaN");
	npy_write(in_folder("x.npy"), 1, x_float, inf_data, sizeof(inf_data));
	expect_refusal("npy", "row 2 holds an infinity");

	write_good_npy();
	npy_write(in_folder("y.npy"), 1, y_int, negative, sizeof(negative));
	expect_refusal("npy", "negative label -1");
	npy_write(in_folder("y.npy"), 1, y_int, large, sizeof(large));
	expect_refusal("npy", "out of range");
	npy_write(in_folder("y.npy"), 1, y_int, many, sizeof(many));
	expect_refusal("npy", "labels are 0 to");
	npy_write(in_folder("y.npy"), 1, y_short, y_data, 16);
	expect_refusal("npy", "do not match");
	npy_write(in_folder("y.npy"), 1, y_matrix, y_data, sizeof(y_data));
	expect_refusal("npy", "one dimension");
	npy_write(in_folder("y.npy"), 1, y_double, y_data, sizeof(y_data));
	expect_refusal("npy", "float64");
	npy_write(in_folder("y.npy"), 1, y_float, nan_data, sizeof(nan_data));
	expect_refusal("npy", "NaN");
	npy_write(in_folder("y.npy"), 1, y_float, x_data, sizeof(x_data));
	expect_refusal("npy", "not of the kind");

	write_good_npy();
	npy_write(in_folder("x_test.npy"), 1,
		  "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1)}", x_data, 12);
	expect_refusal("npy", "those of x.npy");
	ck_assert_int_eq(remove(in_folder("x_test.npy")), 0);
	expect_refusal("npy", "missing");
	ck_assert_int_eq(remove(in_folder("y_test.npy")), 0);
	npy_write(in_folder("x.npy"), 1,
		  "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2)}", x_data, 0);
	npy_write(in_folder("y.npy"), 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (0,)}",
		  y_data, 0);
	expect_refusal("npy", "empty");
}
END_TEST

START_TEST(npy_targets_and_images)
{
	char source[PATH_BYTES + 8];
	struct tr_data data;
	struct tr_note note = { 0 };

	snprintf(source, sizeof(source), "npy:%s", folder);
	npy_write(in_folder("x.npy"), 1,
		  "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2, 1)}", x_data, 24);
	npy_write(in_folder("y.npy"), 1, y_float, x_data, sizeof(x_data));
	ck_assert_msg(tr_data_open(&data, source, 5, &note) == RUBATO_OK, "%s", note.text);
	ck_assert_int_eq(data.loss, TR_HALF_SQUARE);
	ck_assert_uint_eq(data.output_count, 2);
	ck_assert_uint_eq(data.shape.channels, 1);
	ck_assert_uint_eq(data.shape.height, 2);
	ck_assert_uint_eq(data.test.rows, 0);
	tr_data_close(&data);
}
END_TEST

/* ---- Order ---- */

/* The rows that all ranks read over `steps` steps, in the global order. */
static void collect(uint32_t rows, uint32_t ranks, uint32_t batch, uint64_t steps, bool shuffle,
		    uint32_t *out)
{
	struct tr_note note = { 0 };

	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct tr_order order;

		ck_assert_int_eq(tr_order_open(&order, rows, rank, ranks, batch, 5, shuffle, &note),
				 RUBATO_OK);
		for (uint64_t step = 0; step < steps; step++)
			memcpy(out + (step * ranks + rank) * batch, tr_order_batch(&order, step),
			       batch * sizeof(*out));
		tr_order_close(&order);
	}
}

START_TEST(order_does_not_depend_on_the_ranks)
{
	uint32_t one[4 * 24], four[4 * 24], plain[24];
	bool seen[26] = { false };

	collect(26, 1, 12, 8, true, one); /* 2 steps an epoch, 4 epochs. */
	collect(26, 4, 3, 8, true, four);
	ck_assert_int_eq(memcmp(one, four, sizeof(one)), 0);
	for (int i = 0; i < 24; i++) {
		ck_assert_uint_lt(one[i], 26);
		ck_assert(!seen[one[i]]); /* Once an epoch at most. */
		seen[one[i]] = true;
	}
	ck_assert_int_ne(memcmp(one, one + 24, 24 * sizeof(*one)), 0);
	collect(26, 2, 6, 2, false, plain);
	for (uint32_t i = 0; i < 24; i++)
		ck_assert_uint_eq(plain[i], i);
}
END_TEST

START_TEST(order_refuses_too_few_rows)
{
	struct tr_order order;
	struct tr_note note = { 0 };

	ck_assert_int_eq(tr_order_open(&order, 11, 0, 4, 3, 0, true, &note), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(note.exit_code, TR_EXIT_USAGE);
	ck_assert_ptr_nonnull(strstr(note.text, "12 samples"));
}
END_TEST

/* ---- Learning rate ---- */

START_TEST(rates_follow_their_formulas)
{
	static const struct {
		const char *text;
		uint64_t step;
		double want;
	} points[] = {
		{ "constant", 0, 2.0 },
		{ "constant", 99, 2.0 },
		{ "cosine", 0, 2.0 },
		{ "cosine", 50, 1.0 },
		{ "cosine", 100, 0.0 },
		{ "linear", 25, 1.5 },
		{ "step:10:0.5", 9, 2.0 },
		{ "step:10:0.5", 10, 1.0 },
		{ "step:10:0.5", 29, 0.5 },
		{ "warmup:20,constant", 0, 0.1 },
		{ "warmup:20,constant", 19, 2.0 },
		{ "warmup:20,linear", 20, 2.0 },
		{ "warmup:20,linear", 60, 1.0 },
		{ "warmup:20,cosine", 60, 1.0 },
		{ "warmup:200,cosine", 99, 1.0 },
	};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		struct tr_rate rate = { .base = 2.0, .step_count = 100 };
		struct tr_note note = { 0 };

		ck_assert_int_eq(tr_rate_parse(&rate, points[i].text, &note), RUBATO_OK);
		ck_assert_double_eq_tol(tr_rate_at(&rate, points[i].step), points[i].want, 1e-12);
	}
}
END_TEST

START_TEST(rates_that_make_no_sense_are_refused)
{
	static const char *const bad[] = {
		"",          "cosin",    "step",           "step:10",          "step:0:0.5",
		"step:10:x", "warmup:5", "warmup:,cosine", "warmup:-1,cosine", "step:10:0.5:1",
		"constant "
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tr_rate rate = { 0 };
		struct tr_note note = { 0 };

		ck_assert_msg(tr_rate_parse(&rate, bad[i], &note) == RUBATO_ERR_ARGUMENT, "%s",
			      bad[i]);
		ck_assert_int_eq(note.exit_code, TR_EXIT_USAGE);
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("data");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, idx_is_read_and_scaled);
	tcase_add_test(tests, idx_lies_are_refused);
	tcase_add_test(tests, npy_lies_are_refused);
	tcase_add_test(tests, npy_targets_and_images);
	tcase_add_test(tests, order_does_not_depend_on_the_ranks);
	tcase_add_test(tests, order_refuses_too_few_rows);
	tcase_add_test(tests, rates_follow_their_formulas);
	tcase_add_test(tests, rates_that_make_no_sense_are_refused);
	return check_main("data", tests);
}
