/*
 * npy.c -- the header of a .npy file is a Python dictionary with three keys; this reads that much
 * of Python and nothing more:  {'descr': '<f4', 'fortran_order': False, 'shape': (60, 784), }
 */
#include "trainer/base/npy.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/replace.h"

#define HEADER_BYTES_MAX 65536 /* NumPy itself writes 128 or little more. */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are read as they lie");

struct reader {
	const char *path;
	FILE *file;
	uint64_t file_bytes;
	bool fortran; /* The first index moves fastest. */
	struct tr_error *error;
};

/* A cursor over the header's text; `bad` once something else stood there. */
struct text {
	const char *at, *end;
	bool bad;
};

static void skip_blanks(struct text *t)
{
	while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t'))
		t->at++;
}

static bool take_char(struct text *t, char c)
{
	skip_blanks(t);
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static void want_char(struct text *t, char c)
{
	if (!take_char(t, c))
		t->bad = true;
}

static bool take_word(struct text *t, const char *word)
{
	size_t count = strlen(word);

	skip_blanks(t);
	if ((size_t)(t->end - t->at) < count || memcmp(t->at, word, count) != 0)
		return false;
	t->at += count;
	return true;
}

/* A quoted string without escapes, into `out`. */
static void want_string(struct text *t, char *out, size_t out_bytes)
{
	size_t count = 0;
	char quote;

	out[0] = '\0';
	skip_blanks(t);
	if (t->at == t->end || (*t->at != '\'' && *t->at != '"')) {
		t->bad = true;
		return;
	}
	quote = *t->at++;
	while (t->at < t->end && *t->at != quote && *t->at != '\\' && count + 1 < out_bytes)
		out[count++] = *t->at++;
	out[count] = '\0';
	want_char(t, quote);
}

static void want_number(struct text *t, uint64_t *out)
{
	uint64_t value = 0;
	const char *first;

	skip_blanks(t);
	first = t->at;
	while (t->at < t->end && *t->at >= '0' && *t->at <= '9') {
		if (value > (UINT64_MAX - 9) / 10)
			t->bad = true;
		else
			value = value * 10 + (uint64_t)(*t->at - '0');
		t->at++;
	}
	if (t->at == first)
		t->bad = true;
	*out = value;
}

static void want_shape(struct text *t, struct tr_npy *array)
{
	want_char(t, '(');
	array->rank = 0;
	while (!t->bad && !take_char(t, ')')) {
		if (array->rank == TR_NPY_RANK_MAX) {
			t->bad = true;
			return;
		}
		want_number(t, &array->shape[array->rank++]);
		if (take_char(t, ','))
			continue;
		/* A one-element tuple has its comma: (60) is a number. */
		if (array->rank == 1)
			t->bad = true;
		want_char(t, ')');
		return;
	}
}

static rubato_status set_type(struct reader *r, const char *descr, struct tr_npy *array)
{
	static const struct {
		const char *descr;
		enum tr_npy_kind kind;
		uint32_t item_bytes;
	} types[] = {
		{ "<f2", TR_NPY_FLOAT, 2 },    { "<f4", TR_NPY_FLOAT, 4 },
		{ "<f8", TR_NPY_FLOAT, 8 },    { "|i1", TR_NPY_SIGNED, 1 },
		{ "<i2", TR_NPY_SIGNED, 2 },   { "<i4", TR_NPY_SIGNED, 4 },
		{ "<i8", TR_NPY_SIGNED, 8 },   { "|u1", TR_NPY_UNSIGNED, 1 },
		{ "<u2", TR_NPY_UNSIGNED, 2 }, { "<u4", TR_NPY_UNSIGNED, 4 },
		{ "<u8", TR_NPY_UNSIGNED, 8 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].descr, descr) == 0) {
			array->kind = types[i].kind;
			array->item_bytes = types[i].item_bytes;
			return RUBATO_OK;
		}
	if (descr[0] == '>')
		return tr_fail(r->error, RUBATO_ERR_UNSUPPORTED,
			       "%s: dtype '%s' is big-endian; save it with little-endian numbers",
			       r->path, descr);
	if (descr[1] == 'O')
		return tr_fail(r->error, RUBATO_ERR_UNSUPPORTED,
			       "%s: dtype '%s': Python objects are not read", r->path, descr);
	return tr_fail(r->error, RUBATO_ERR_UNSUPPORTED,
		       "%s: dtype '%s' is no integer and no float of 2, 4 or 8 bytes", r->path,
		       descr);
}

static rubato_status parse_header(struct reader *r, const char *bytes, size_t count,
				  struct tr_npy *array)
{
	struct text t = { bytes, bytes + count, false };
	unsigned seen = 0; /* Bits: descr, fortran_order, shape. */
	char descr[16] = "", key[16];

	want_char(&t, '{');
	while (!t.bad && !take_char(&t, '}')) {
		unsigned bit = 0;

		want_string(&t, key, sizeof(key));
		want_char(&t, ':');
		if (strcmp(key, "descr") == 0) {
			bit = 1;
			if (take_char(&t, '['))
				return tr_fail(r->error, RUBATO_ERR_UNSUPPORTED,
					       "%s: dtype: an array of records; save each field as "
					       "an array of its own",
					       r->path);
			want_string(&t, descr, sizeof(descr));
		} else if (strcmp(key, "fortran_order") == 0) {
			bit = 2;
			r->fortran = take_word(&t, "True");
			t.bad |= !r->fortran && !take_word(&t, "False");
		} else if (strcmp(key, "shape") == 0) {
			bit = 4;
			want_shape(&t, array);
		}
		t.bad |= bit == 0 || (seen & bit) != 0;
		seen |= bit;
		if (!take_char(&t, ',')) {
			want_char(&t, '}');
			break;
		}
	}
	skip_blanks(&t);
	if (t.bad || seen != 7 || t.at != t.end)
		return tr_fail(r->error, RUBATO_ERR_ARGUMENT, "%s: the .npy header is malformed",
			       r->path);
	return set_type(r, descr, array);
}

static rubato_status truncated(struct reader *r, const char *what)
{
	return tr_fail(r->error, RUBATO_ERR_ARGUMENT, "%s: truncated: the file ends within its %s",
		       r->path, what);
}

/* Reads up to the first data byte; *data_at is its offset. */
static rubato_status read_header(struct reader *r, struct tr_npy *array, uint64_t *data_at)
{
	unsigned char head[12];
	size_t length_bytes, header_bytes = 0;
	char *text;
	rubato_status err;

	if (fread(head, 1, 8, r->file) != 8)
		return truncated(r, "magic");
	if (memcmp(head, "\x93NUMPY", 6) != 0)
		return tr_fail(r->error, RUBATO_ERR_ARGUMENT,
			       "%s: wrong magic: this is no .npy file", r->path);
	if ((head[6] != 1 && head[6] != 2) || head[7] != 0)
		return tr_fail(r->error, RUBATO_ERR_UNSUPPORTED,
			       "%s: .npy version %u.%u; only 1.0 and 2.0 are read", r->path,
			       head[6], head[7]);
	length_bytes = head[6] == 1 ? 2 : 4;
	if (fread(head + 8, 1, length_bytes, r->file) != length_bytes)
		return truncated(r, "header");
	for (size_t i = length_bytes; i-- > 0;)
		header_bytes = header_bytes << 8 | head[8 + i];
	if (header_bytes > HEADER_BYTES_MAX)
		return tr_fail(r->error, RUBATO_ERR_ARGUMENT, "%s: a header of %zu bytes", r->path,
			       header_bytes);
	text = malloc(header_bytes + 1);
	if (text == NULL)
		return tr_fail(r->error, RUBATO_ERR_MEMORY, "%s: out of memory", r->path);
	err = fread(text, 1, header_bytes, r->file) != header_bytes
		      ? truncated(r, "header")
		      : parse_header(r, text, header_bytes, array);
	free(text);
	*data_at = 8 + length_bytes + header_bytes;
	return err;
}

static rubato_status count_items(struct reader *r, struct tr_npy *array, uint64_t data_at)
{
	uint64_t count = 1, want, have = r->file_bytes - data_at;

	for (uint32_t i = 0; i < array->rank; i++)
		if (__builtin_mul_overflow(count, array->shape[i], &count))
			count = UINT64_MAX;
	if (__builtin_mul_overflow(count, array->item_bytes, &want) || want > TR_NPY_BYTES_MAX)
		return tr_fail(r->error, RUBATO_ERR_ARGUMENT,
			       "%s: the header promises an array that is too large", r->path);
	if (want != have)
		return tr_fail(r->error, RUBATO_ERR_ARGUMENT,
			       "%s: %s: the header promises %llu bytes of data, the file has %llu",
			       r->path, want > have ? "truncated" : "too long",
			       (unsigned long long)want, (unsigned long long)have);
	array->count = count;
	return RUBATO_OK;
}

/* Walks the items in C order, and with them where each lies in the file. */
static rubato_status order_turn(struct reader *r, struct tr_npy *array)
{
	uint64_t index[TR_NPY_RANK_MAX] = { 0 }, stride[TR_NPY_RANK_MAX], from = 0;
	const char *bytes = array->bytes;
	char *turned;

	if (!r->fortran || array->rank < 2 || array->count == 0)
		return RUBATO_OK;
	turned = malloc(array->count * array->item_bytes);
	if (turned == NULL)
		return tr_fail(r->error, RUBATO_ERR_MEMORY, "%s: out of memory", r->path);
	for (uint32_t i = 0; i < array->rank; i++)
		stride[i] = i == 0 ? 1 : stride[i - 1] * array->shape[i - 1];
	for (uint64_t k = 0; k < array->count; k++) {
		memcpy(turned + k * array->item_bytes, bytes + from * array->item_bytes,
		       array->item_bytes);
		for (uint32_t i = array->rank; i-- > 0;) {
			from += stride[i];
			if (++index[i] < array->shape[i])
				break;
			from -= stride[i] * array->shape[i];
			index[i] = 0;
		}
	}
	free(array->bytes);
	array->bytes = turned;
	return RUBATO_OK;
}

static rubato_status read_array(struct reader *r, struct tr_npy *array)
{
	uint64_t data_at = 0;
	size_t size_bytes;

	TR_TRY(read_header(r, array, &data_at));
	TR_TRY(count_items(r, array, data_at));
	size_bytes = array->count * array->item_bytes;
	array->bytes = malloc(size_bytes == 0 ? 1 : size_bytes);
	if (array->bytes == NULL)
		return tr_fail(r->error, RUBATO_ERR_MEMORY, "%s: no memory for %zu bytes", r->path,
			       size_bytes);
	if (fread(array->bytes, 1, size_bytes, r->file) != size_bytes)
		return truncated(r, "data");
	return order_turn(r, array);
}

rubato_status tr_npy_read(const char *path, struct tr_npy *out, struct tr_error *error)
{
	struct reader r = { .path = path, .error = error };
	struct tr_npy array = { 0 };
	struct stat st;
	rubato_status err;

	r.file = fopen(path, "rbe");
	if (r.file == NULL)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	if (fstat(fileno(r.file), &st) != 0 || !S_ISREG(st.st_mode)) {
		fclose(r.file);
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: not a regular file", path);
	}
	r.file_bytes = (uint64_t)st.st_size;
	err = read_array(&r, &array);
	fclose(r.file);
	if (err) {
		free(array.bytes);
		return err;
	}
	*out = array;
	return RUBATO_OK;
}

int64_t tr_npy_integer(const struct tr_npy *array, uint64_t k)
{
	bool is_signed = array->kind == TR_NPY_SIGNED;

	switch (array->item_bytes) {
	case 1:
		return is_signed ? ((const int8_t *)array->bytes)[k]
				 : ((const uint8_t *)array->bytes)[k];
	case 2:
		return is_signed ? ((const int16_t *)array->bytes)[k]
				 : ((const uint16_t *)array->bytes)[k];
	case 4:
		return is_signed ? ((const int32_t *)array->bytes)[k]
				 : (int64_t)((const uint32_t *)array->bytes)[k];
	default:
		return ((const int64_t *)array->bytes)[k];
	}
}

/* ---- Floats ---- */

static double half_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31, mantissa = bits & 1023;
	double value = exponent == 0   ? ldexp(mantissa, -24)
		       : exponent < 31 ? ldexp(mantissa + 1024, exponent - 25)
				       : (mantissa == 0 ? (double)INFINITY : (double)NAN);

	return bits >> 15 != 0 ? -value : value;
}

static double number(const struct tr_npy *array, uint64_t k)
{
	if (array->kind != TR_NPY_FLOAT)
		return (double)tr_npy_integer(array, k);
	if (array->item_bytes == 2)
		return half_value(((const uint16_t *)array->bytes)[k]);
	if (array->item_bytes == 4)
		return (double)((const float *)array->bytes)[k];
	return ((const double *)array->bytes)[k];
}

rubato_status tr_npy_float32(struct tr_npy *array, const char *path, struct tr_error *error)
{
	float *values;

	if (array->kind == TR_NPY_FLOAT && array->item_bytes == 4)
		return RUBATO_OK;
	values = malloc(array->count * sizeof(*values) + 1);
	if (values == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", path);
	for (uint64_t k = 0; k < array->count; k++) {
		double value = number(array, k);

		values[k] = (float)value;
		if (isfinite(value) && !isfinite(values[k])) {
			free(values);
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s: item %llu, %g, is too large for float32", path,
				       (unsigned long long)k, value);
		}
	}
	free(array->bytes);
	array->bytes = values;
	array->kind = TR_NPY_FLOAT;
	array->item_bytes = 4;
	return RUBATO_OK;
}

rubato_status tr_file_replace(const char *path, const void *head, size_t head_bytes,
			      const void *body, size_t body_bytes, struct tr_error *error)
{
	struct replacement to;
	int reason = 0, closing;

	if (!replacement_open(&to, path))
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	if (fwrite(head, 1, head_bytes, to.file) != head_bytes ||
	    fwrite(body, 1, body_bytes, to.file) != body_bytes)
		reason = errno;
	closing = replacement_close(&to, reason == 0);
	reason = reason == 0 ? closing : reason;
	return reason == 0 ? RUBATO_OK
			   : tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(reason));
}

rubato_status tr_npy_write(const char *path, const float *values, uint64_t count,
			   struct tr_error *error)
{
	char head[128]; /* A multiple of 64, as NumPy aligns its data. */
	int text;

	memset(head, ' ', sizeof(head));
	memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10); /* 0x76: 128 - 10 bytes of text. */
	text = snprintf(head + 10, sizeof(head) - 10,
			"{'descr': '<f4', 'fortran_order': False, 'shape': (%llu,), }",
			(unsigned long long)count);
	head[10 + text] = ' ';
	head[sizeof(head) - 1] = '\n';
	return tr_file_replace(path, head, sizeof(head), values, count * sizeof(*values), error);
}
