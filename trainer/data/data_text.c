/*
 * data_text.c -- a text as rows of tokens. Rows keep bytes; the table of data.h turns a byte into
 * its token: its place, from 1, among the bytes that occur.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/data.h"

#define TEXT_BYTES_MAX ((size_t)1 << 31)
#define ROW_BYTES_MAX ((uint64_t)1 << 33) /* Of all rows, padded to the longest. */
#define TEST_EVERY 10

struct text {
	const char *path;
	uint8_t *bytes;
	size_t count;
};

static rubato_status read_text(struct text *text, struct tr_error *error)
{
	FILE *file = fopen(text->path, "rbe");
	size_t room = 1u << 16;
	rubato_status err = RUBATO_OK;

	if (file == NULL)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", text->path, strerror(errno));
	while (err == RUBATO_OK && !feof(file)) {
		uint8_t *more = text->count == TEXT_BYTES_MAX ? NULL : realloc(text->bytes, room);

		if (more == NULL) {
			err = tr_fail(error, RUBATO_ERR_MEMORY, "%s: no memory, or above 2 GiB",
				      text->path);
			break;
		}
		text->bytes = more;
		text->count += fread(more + text->count, 1, room - text->count, file);
		if (ferror(file))
			err = tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", text->path,
				      strerror(errno));
		if (text->count == room)
			room *= 2;
	}
	fclose(file);
	return err;
}

static rubato_status make_table(struct tr_data *data, const struct text *text,
				struct tr_error *error)
{
	bool occurs[256] = { false };
	uint32_t tokens = 1;

	for (size_t i = 0; i < text->count; i++) {
		if (text->bytes[i] == 0)
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s: no text: byte %zu is 0, which stands for no byte",
				       text->path, i);
		occurs[text->bytes[i]] = true;
	}
	for (int b = 1; b < 256; b++)
		data->pixel[0][b] = occurs[b] ? (float)tokens++ : 0.0f;
	data->output_count = tokens;
	return RUBATO_OK;
}

/* The next line that is not empty, from *at on, which moves behind it; 0 bytes: there is none. */
static size_t next_line(const struct text *text, size_t *at, size_t *first)
{
	size_t count = 0;

	while (count == 0 && *at < text->count) {
		const uint8_t *end = memchr(text->bytes + *at, '\n', text->count - *at);

		*first = *at;
		*at = end == NULL ? text->count : (size_t)(end - text->bytes) + 1;
		count = *at - *first - (end == NULL ? 0 : 1);
	}
	return count;
}

static void measure_lines(const struct text *text, uint32_t context, size_t *rows, size_t *longest)
{
	size_t at = 0, first, count;

	*rows = *longest = 0;
	while ((count = next_line(text, &at, &first)) > 0) {
		++*rows;
		if (count > *longest)
			*longest = count;
	}
	*longest = *longest < context ? *longest + 1 : context; /* With its end. */
}

/* Room for rows of `width` bytes, all 0. */
static rubato_status make_parts(struct tr_data *data, const struct text *text, size_t rows,
				size_t width, struct tr_error *error)
{
	struct tr_part *parts[] = { &data->train, &data->test };

	if (rows == 0)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: too short for one row", text->path);
	if (rows > UINT32_MAX || (uint64_t)rows * width > ROW_BYTES_MAX)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: %zu rows of %zu bytes are too many",
			       text->path, rows, width);
	data->test.rows = rows / TEST_EVERY;
	data->train.rows = rows - data->test.rows;
	for (int i = 0; i < 2; i++) {
		parts[i]->samples_memory = calloc(parts[i]->rows + 1, width);
		parts[i]->pixels = parts[i]->samples_memory;
		if (parts[i]->pixels == NULL)
			return tr_fail(error, RUBATO_ERR_MEMORY, "%s: no memory for %zu rows",
				       text->path, rows);
	}
	data->shape = (struct tr_shape) { 1, 1, (uint32_t)width };
	return RUBATO_OK;
}

static uint8_t *row_at(struct tr_data *data, size_t row)
{
	bool test = row % TEST_EVERY == TEST_EVERY - 1;
	uint8_t *rows = test ? data->test.samples_memory : data->train.samples_memory;

	return rows + (test ? row / TEST_EVERY : row - row / TEST_EVERY) * data->shape.width;
}

static rubato_status cut_lines(struct tr_data *data, const struct text *text, uint32_t context,
			       struct tr_error *error)
{
	size_t rows, longest, at = 0, first, count;

	measure_lines(text, context, &rows, &longest);
	TR_TRY(make_parts(data, text, rows, longest + 1, error));
	for (size_t row = 0; (count = next_line(text, &at, &first)) > 0; row++)
		memcpy(row_at(data, row) + 1, text->bytes + first,
		       count < longest ? count : longest);
	return RUBATO_OK;
}

static rubato_status cut_blocks(struct tr_data *data, const struct text *text, uint32_t context,
				struct tr_error *error)
{
	size_t rows = text->count / context;

	TR_TRY(make_parts(data, text, rows, (size_t)context + 1, error));
	for (size_t row = 0; row < rows; row++) {
		uint8_t *to = row_at(data, row);

		if (row > 0)
			to[0] = text->bytes[row * context - 1];
		memcpy(to + 1, text->bytes + row * context, context);
	}
	return RUBATO_OK;
}

rubato_status tr_text_open(struct tr_data *data, const char *path, enum tr_text_rows kind,
			   uint32_t context, struct tr_error *error)
{
	struct text text = { .path = path };
	rubato_status err;

	*data = (struct tr_data) { .loss = TR_CROSS_ENTROPY };
	err = read_text(&text, error);
	if (err == RUBATO_OK)
		err = make_table(data, &text, error);
	if (err == RUBATO_OK)
		err = kind == TR_TEXT_LINES ? cut_lines(data, &text, context, error)
					    : cut_blocks(data, &text, context, error);
	free(text.bytes);
	if (err)
		tr_data_close(data);
	return err;
}
