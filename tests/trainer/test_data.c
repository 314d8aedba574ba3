/*
 * test_data.c -- the data formats with hostile files, drawn rows, augmentation, the order of rows,
 * the learning rate.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/trainer/support.h"
#include "trainer/data/augment.h"
#include "trainer/data/data.h"
#include "trainer/data/shuffle.h"
#include "trainer/rules/rate.h"

static void expect_refusal(const char *kind, const char *word)
{
	char source[64];
	struct tr_data data;
	struct tr_error error = { 0 };

	snprintf(source, sizeof(source), "%s:.", kind);
	ck_assert_msg(tr_data_open(&data, source, 5, &error) != RUBATO_OK,
		      "accepted: expected '%s'", word);
	ck_assert_msg(strstr(error.text, word) != NULL, "'%s' lacks '%s'", error.text, word);
	ck_assert_ptr_null(strchr(error.text, '\n'));
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
	file_write_gz(name, bytes, head_bytes + count);
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
	struct tr_data data;
	struct tr_error error = { 0 };
	float x[SIDE * SIDE];
	int32_t label;
	const uint32_t order[] = { 2 };

	write_good_idx();
	ck_assert_msg(tr_data_open(&data, "fashion-mnist:.", 5, &error) == RUBATO_OK, "%s",
		      error.text);
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
	gz = file_read("train-images-idx3-ubyte.gz", &size_bytes);
	file_write("train-images-idx3-ubyte.gz", gz, size_bytes - 10);
	expect_refusal("fashion-mnist", "truncated");
	gz[size_bytes - 6] ^= 0x55; /* In the checksum. */
	file_write("train-images-idx3-ubyte.gz", gz, size_bytes);
	expect_refusal("fashion-mnist", "damaged");
	free(gz);
}
END_TEST

/* ---- CIFAR-10 ---- */

#define RECORD 3073
#define RECORDS 2

static const char *const cifar_names[] = { "data_batch_1.bin", "data_batch_2.bin",
					   "data_batch_3.bin", "data_batch_4.bin",
					   "data_batch_5.bin", "test_batch.bin" };

static uint8_t cifar_byte(int file, int record, int k)
{
	return (uint8_t)((file * 101 + record * 57 + k * 7) % 256);
}

/* `bytes` of a file of records whose labels are the file's number (and one that is too large). */
static void write_cifar(int file, size_t bytes, int bad_record)
{
	uint8_t *all = calloc(bytes + RECORD, 1);

	ck_assert_ptr_nonnull(all);
	for (int record = 0; record < (int)(bytes / RECORD) + 1; record++) {
		uint8_t *at = all + (size_t)record * RECORD;

		if ((size_t)record * RECORD + RECORD > bytes + RECORD)
			break;
		at[0] = record == bad_record ? 10 : (uint8_t)file;
		for (int k = 0; k < RECORD - 1; k++)
			at[1 + k] = cifar_byte(file, record, k);
	}
	file_write(cifar_names[file], all, bytes);
	free(all);
}

static void write_good_cifar(void)
{
	for (int file = 0; file < 6; file++)
		write_cifar(file, RECORDS * RECORD, -1);
}

START_TEST(cifar_is_read_and_scaled)
{
	static const double mean[] = { 0.4914, 0.4822, 0.4465 };
	static const double deviation[] = { 0.2470, 0.2435, 0.2616 };
	struct tr_data data;
	struct tr_error error = { 0 };
	float *x = calloc(RECORD, sizeof(float));
	const uint32_t order[] = { 5 };
	int32_t label;

	ck_assert_ptr_nonnull(x);
	write_good_cifar();
	ck_assert_msg(tr_data_open(&data, "cifar10:.", 0, &error) == RUBATO_OK, "%s", error.text);
	ck_assert_uint_eq(data.train.rows, 5 * RECORDS);
	ck_assert_uint_eq(data.test.rows, RECORDS);
	ck_assert_uint_eq(data.output_count, 6); /* Largest label, of the test set: 5. */
	ck_assert_uint_eq(data.shape.channels, 3);
	tr_data_gather(&data, &data.train, order, 0, 1, x, &label, NULL);
	ck_assert_int_eq(label, 2); /* The second record of the third file. */
	for (int k = 0; k < RECORD - 1; k += 11) {
		int c = k / 1024;

		ck_assert_double_eq_tol(
			(double)x[k], (cifar_byte(2, 1, k) / 255.0 - mean[c]) / deviation[c], 1e-5);
	}
	tr_data_gather(&data, &data.test, NULL, 1, 1, x, &label, NULL);
	ck_assert_int_eq(label, 5);
	tr_data_close(&data);
	free(x);
}
END_TEST

START_TEST(cifar_lies_are_refused)
{
	uint8_t *large = calloc(10001, RECORD);

	ck_assert_ptr_nonnull(large);
	expect_refusal("cifar10", "data_batch_1.bin: No such file");
	write_good_cifar();
	ck_assert_int_eq(remove("test_batch.bin"), 0);
	expect_refusal("cifar10", "test_batch.bin: No such file");
	write_good_cifar();
	write_cifar(3, RECORDS * RECORD - 1, -1);
	expect_refusal("cifar10", "data_batch_4.bin: truncated");
	write_cifar(3, RECORD + 1, -1);
	expect_refusal("cifar10", "data_batch_4.bin: truncated");
	write_cifar(3, RECORD, -1);
	expect_refusal("cifar10", "data_batch_4.bin: 1 records, but data_batch_1.bin has 2");
	write_good_cifar();
	write_cifar(4, RECORDS * RECORD, 1);
	expect_refusal("cifar10", "record 9 has the label 10");
	write_good_cifar();
	write_cifar(5, 0, -1);
	expect_refusal("cifar10", "test_batch.bin: empty");
	write_good_cifar();
	file_write("test_batch.bin", large, (size_t)10001 * RECORD);
	expect_refusal("cifar10", "too long");
	free(large);
}
END_TEST

/* ---- Augmentation ---- */

/* An image whose pixels all differ: what moved where can be read off. */
START_TEST(augmented_images_are_moved_or_mirrored)
{
	static struct tr_data data = { .shape = { 2, 12, 12 } };
	static float x[200][2 * 144], again[200][2 * 144], spare[2 * 144];
	bool seen[9][9][2] = { 0 };
	int kinds = 0;

	data.pixel[0][0] = -1.0f; /* Black. */
	data.pixel[1][0] = -2.0f;
	for (int i = 0; i < 200; i++)
		for (int k = 0; k < 2 * 144; k++)
			x[i][k] = again[i][k] = (float)k;
	tr_augment(&data, 3, 1000, 200, x[0], spare);
	tr_augment(&data, 3, 1150, 50, again[150], spare); /* A place's fate is its own. */
	ck_assert_int_eq(memcmp(x[150], again[150], sizeof(x[0]) * 50), 0);
	for (int i = 0; i < 200; i++) {
		int centre = (int)x[i][6 * 12 + 6], left = (int)x[i][6 * 12 + 5];
		bool mirrored = left > centre;
		int down = 6 - centre / 12, right;

		right = 6 - (mirrored ? 11 - centre % 12 : centre % 12);
		ck_assert_int_le(abs(down), 4);
		ck_assert_int_le(abs(right), 4);
		kinds += !seen[down + 4][right + 4][mirrored];
		seen[down + 4][right + 4][mirrored] = true;
		for (int k = 0; k < 2 * 144; k++) {
			int row = k % 144 / 12 - down, column = k % 12 - right;
			bool outside = row < 0 || row > 11 || column < 0 || column > 11;
			int from = k / 144 * 144 + row * 12 + (mirrored ? 11 - column : column);

			ck_assert_float_eq(x[i][k],
					   outside ? (k < 144 ? -1.0f : -2.0f) : (float)from);
		}
	}
	ck_assert_int_gt(kinds, 100); /* Of 162. */
}
END_TEST

/* ---- Drawn rows ---- */

/* Computed by an independent program from the description in data_synthetic.c. */
START_TEST(drawn_rows_are_as_described)
{
	static const struct {
		uint32_t row;
		float first, second, last, target;
	} want[] = {
		{ 0, -0.01472479f, 0.04418708f, 0.75862360f, -0.53856790f },
		{ 3, -0.56326401f, -0.00490811f, -1.70049369f, -0.21909845f },
		{ 70, 0.19259349f, 1.30972004f, -0.68236268f, 0.42311895f },
	};
	struct tr_error error = { 0 };
	struct tr_data data;
	float x[10], target;

	ck_assert_int_eq(tr_data_open(&data, "synthetic:100x10", 5, &error), RUBATO_OK);
	ck_assert_uint_eq(data.train.rows, 100);
	ck_assert_uint_eq(data.test.rows, 7);
	ck_assert_int_eq(data.loss, TR_HALF_SQUARE);
	ck_assert_uint_eq(data.output_count, 1);
	for (int i = 0; i < 3; i++) {
		tr_data_gather(&data, &data.train, &want[i].row, 0, 1, x, NULL, &target);
		ck_assert_float_eq_tol(x[0], want[i].first, 1e-7f);
		ck_assert_float_eq_tol(x[1], want[i].second, 1e-7f);
		ck_assert_float_eq_tol(x[9], want[i].last, 1e-7f);
		ck_assert_float_eq_tol(target, want[i].target, 1e-6f);
	}
	tr_data_close(&data);
}
END_TEST

/* Independent of the number of rows, so also of ranks and batches; tests see rows of their own. */
START_TEST(drawn_rows_depend_on_their_number_alone)
{
	struct tr_error error = { 0 };
	struct tr_data small, large, other;
	float a[6][33], b[6][33], a_targets[6], b_targets[6];
	const uint32_t order[] = { 35, 32, 33, 34, 36, 37 }, swapped[] = { 36, 37 };

	ck_assert_int_eq(tr_data_open(&small, "synthetic:32x33", 5, &error), RUBATO_OK);
	ck_assert_int_eq(tr_data_open(&large, "synthetic:64x33", 5, &error), RUBATO_OK);
	ck_assert_int_eq(tr_data_open(&other, "synthetic:64x33", 6, &error), RUBATO_OK);
	tr_data_gather(&small, &small.test, NULL, 0, 2, a[0], NULL, a_targets);
	tr_data_gather(&large, &large.train, order + 1, 0, 2, b[0], NULL, b_targets);
	ck_assert_int_eq(memcmp(a, b, 2 * sizeof(a[0])), 0);
	ck_assert_int_eq(memcmp(a_targets, b_targets, 2 * sizeof(float)), 0);
	tr_data_gather(&large, &large.train, order, 0, 6, a[0], NULL, a_targets);
	tr_data_gather(&large, &large.train, swapped, 0, 2, b[0], NULL, b_targets);
	ck_assert_int_eq(memcmp(a[4], b, 2 * sizeof(a[0])), 0);
	ck_assert_int_ne(memcmp(a[0], a[1], sizeof(a[0])), 0);
	tr_data_gather(&other, &other.train, swapped, 0, 2, a[0], NULL, a_targets);
	ck_assert_int_ne(memcmp(a, b, 2 * sizeof(a[0])), 0);
	tr_data_close(&small);
	tr_data_close(&large);
	tr_data_close(&other);
}
END_TEST

/* Mean 0, variance 1, no correlation with the neighbour, and noise of a standard deviation of 1/8
 * around the plane; bounds are four standard errors of 6400 values, five of 200. */
START_TEST(drawn_rows_are_normal)
{
	static float x[200][32], targets[200];
	struct tr_error error = { 0 };
	struct tr_data data;
	double sum = 0.0, square = 0.0, product = 0.0, noise = 0.0, length = 0.0;

	ck_assert_int_eq(tr_data_open(&data, "synthetic:200x32", 5, &error), RUBATO_OK);
	tr_data_gather(&data, &data.train, NULL, 0, 200, x[0], NULL, targets);
	for (int i = 0; i < 200; i++) {
		double plane = 0.0;

		for (int k = 0; k < 32; k++) {
			sum += (double)x[i][k];
			square += pow((double)x[i][k], 2);
			product += k == 0 ? 0.0 : (double)x[i][k] * (double)x[i][k - 1];
			plane += (double)x[i][k] * (double)data.normal[k];
		}
		noise += pow((double)targets[i] - plane, 2) / 200;
	}
	for (int k = 0; k < 32; k++)
		length += pow((double)data.normal[k], 2);
	ck_assert_double_le(fabs(sum / 6400), 0.05);
	ck_assert_double_le(fabs(square / 6400 - 1.0), 0.07);
	ck_assert_double_le(fabs(product / 6200), 0.05);
	ck_assert_double_le(fabs(sqrt(noise) - 0.125), 0.03);
	ck_assert_double_le(fabs(length - 1.0), 0.8);
	tr_data_close(&data);
}
END_TEST

START_TEST(drawn_sizes_are_checked)
{
	static const char *const bad[] = { "synthetic:x",     "synthetic:0x5",  "synthetic:5x",
					   "synthetic:5x0",   "synthetic: 5x5", "synthetic:5x5 ",
					   "synthetic:5X5",   "synthetic:+5x5", "synthetic:5x-5",
					   "synthetic:3e3x5", "synthetic:5x 5", "synthetic:5x+5" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tr_error error = { 0 };
		struct tr_data data;

		ck_assert_msg(tr_data_open(&data, bad[i], 0, &error) == RUBATO_ERR_ARGUMENT, "%s",
			      bad[i]);
		ck_assert_int_eq(error.exit_code, TR_EXIT_USAGE);
		ck_assert_ptr_nonnull(strstr(error.text, "ROWSxDIMS"));
	}
}
END_TEST

/* ---- npy ---- */

static const char x_float[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}";
static const char x_wide[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 1)}";
static const char x_vector[] = "{'descr': '<f4', 'fortran_order': False, 'shape': ()}";
static const char y_int[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}";
static const char y_short[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}";
static const char y_matrix[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 1)}";
static const char y_float[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}";
static const float x_data[6] = { 1, 2, 3, 4, 5, 6 };
static const int64_t y_data[3] = { 0, 2, 1 };

static void write_good_npy(void)
{
	npy_write("x.npy", 1, x_float, x_data, sizeof(x_data));
	npy_write("y.npy", 1, y_int, y_data, sizeof(y_data));
	npy_write("x_test.npy", 1, x_float, x_data, sizeof(x_data));
	npy_write("y_test.npy", 1, y_int, y_data, sizeof(y_data));
}

START_TEST(npy_lies_are_refused)
{
	const float nan_data[6] = { 1, 2, 3, NAN, 5, 6 },
		    inf_data[6] = { 1, 2, 3, 4, -INFINITY, 6 };
	const int64_t negative[3] = { 0, -1, 1 }, large[3] = { 0, INT64_C(1) << 40, 1 };
	const int64_t many[3] = { 0, 1 << 20, 1 };

	expect_refusal("npy", "No such file");
	write_good_npy();
	npy_write("x.npy", 1, x_wide, x_data, sizeof(x_data));
	expect_refusal("npy", "or uint8, this is int64");
	npy_write("x.npy", 1, x_vector, x_data, 4);
	expect_refusal("npy", "samples first");
	npy_write("x.npy", 1, x_float, nan_data, sizeof(nan_data));
	expect_refusal("npy", "row 1 holds NaN");
	npy_write("x.npy", 1, x_float, inf_data, sizeof(inf_data));
	expect_refusal("npy", "row 2 holds an infinity");

	write_good_npy();
	npy_write("y.npy", 1, y_int, negative, sizeof(negative));
	expect_refusal("npy", "negative label -1");
	npy_write("y.npy", 1, y_int, large, sizeof(large));
	expect_refusal("npy", "out of range");
	npy_write("y.npy", 1, y_int, many, sizeof(many));
	expect_refusal("npy", "labels are 0 to");
	npy_write("y.npy", 1, y_short, y_data, 16);
	expect_refusal("npy", "do not match");
	npy_write("y.npy", 1, y_matrix, y_data, sizeof(y_data));
	expect_refusal("npy", "one dimension");
	npy_write("y.npy", 1, y_float, nan_data, sizeof(nan_data));
	expect_refusal("npy", "NaN");
	npy_write("y.npy", 1, y_float, x_data, sizeof(x_data));
	expect_refusal("npy", "not of the kind");

	write_good_npy();
	npy_write("x_test.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1)}",
		  x_data, 12);
	expect_refusal("npy", "those of x.npy");
	ck_assert_int_eq(remove("x_test.npy"), 0);
	expect_refusal("npy", "missing");
	ck_assert_int_eq(remove("y_test.npy"), 0);
	npy_write("x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2)}", x_data,
		  0);
	npy_write("y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (0,)}", y_data, 0);
	expect_refusal("npy", "empty");
}
END_TEST

START_TEST(npy_targets_and_images)
{
	struct tr_data data;
	struct tr_error error = { 0 };

	npy_write("x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2, 1)}",
		  x_data, 24);
	npy_write("y.npy", 1, y_float, x_data, sizeof(x_data));
	ck_assert_msg(tr_data_open(&data, "npy:.", 5, &error) == RUBATO_OK, "%s", error.text);
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
static void collect(uint32_t rows, uint32_t ranks, uint32_t batch, uint64_t steps, bool random,
		    uint32_t *out)
{
	struct tr_error error = { 0 };

	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct tr_shuffle shuffle;

		ck_assert_int_eq(
			tr_shuffle_open(&shuffle, rows, rank, ranks, batch, 5, random, &error),
			RUBATO_OK);
		for (uint64_t step = 0; step < steps; step++)
			memcpy(out + (step * ranks + rank) * batch,
			       tr_shuffle_batch(&shuffle, step), batch * sizeof(*out));
		tr_shuffle_close(&shuffle);
	}
}

START_TEST(shuffle_does_not_depend_on_the_ranks)
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

START_TEST(shuffle_refuses_too_few_rows)
{
	struct tr_shuffle shuffle;
	struct tr_error error = { 0 };

	ck_assert_int_eq(tr_shuffle_open(&shuffle, 11, 0, 4, 3, 0, true, &error),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(error.exit_code, TR_EXIT_USAGE);
	ck_assert_ptr_nonnull(strstr(error.text, "12 samples"));
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
		struct option_error error;

		ck_assert(tr_rate_parse("--lr-schedule", points[i].text, &rate, &error));
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
		struct option_error error;

		ck_assert_msg(!tr_rate_parse("--lr-schedule", bad[i], &rate, &error), "%s", bad[i]);
		ck_assert_ptr_nonnull(strstr(error.text, "--lr-schedule"));
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("data");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, folder_enter, folder_leave);
	tcase_add_test(tests, idx_is_read_and_scaled);
	tcase_add_test(tests, idx_lies_are_refused);
	tcase_add_test(tests, cifar_is_read_and_scaled);
	tcase_add_test(tests, cifar_lies_are_refused);
	tcase_add_test(tests, augmented_images_are_moved_or_mirrored);
	tcase_add_test(tests, drawn_rows_are_as_described);
	tcase_add_test(tests, drawn_rows_depend_on_their_number_alone);
	tcase_add_test(tests, drawn_rows_are_normal);
	tcase_add_test(tests, drawn_sizes_are_checked);
	tcase_add_test(tests, npy_lies_are_refused);
	tcase_add_test(tests, npy_targets_and_images);
	tcase_add_test(tests, shuffle_does_not_depend_on_the_ranks);
	tcase_add_test(tests, shuffle_refuses_too_few_rows);
	tcase_add_test(tests, rates_follow_their_formulas);
	tcase_add_test(tests, rates_that_make_no_sense_are_refused);
	return check_main("data", tests);
}
