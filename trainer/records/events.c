/*
 * events.c -- see events.h. The file is a sequence of records:
 *
 *   length (8 bytes) | checksum of the length | event | checksum of the event
 *
 * A checksum is a CRC-32C, turned and shifted: see masked(). An event is a protocol buffer, of
 * which these fields are there (number, type):
 *
 *   Event     1 wall_time (double)   2 step (varint)   3 file_version (text)   5 summary
 *   Summary   1 value, repeated
 *   value     1 tag (text)   2 simple_value (float)
 */
#include "trainer/records/events.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define EVENT_BYTES 4096 /* Keys are ours: a line has less than 20 of some 20 bytes. */

enum wire { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 }; /* protobuf's names. */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie");

struct message {
	uint8_t bytes[EVENT_BYTES];
	size_t used;
};

static void bytes_add(struct message *m, const void *bytes, size_t count)
{
	assert(count <= sizeof(m->bytes) - m->used);
	memcpy(m->bytes + m->used, bytes, count);
	m->used += count;
}

static void varint_add(struct message *m, uint64_t number)
{
	uint8_t byte;

	do {
		byte = (uint8_t)((number & 127) | (number > 127 ? 128 : 0));
		bytes_add(m, &byte, 1);
		number >>= 7;
	} while (number > 0);
}

static void field_add(struct message *m, uint32_t number, enum wire wire)
{
	varint_add(m, number << 3 | wire);
}

static void text_add(struct message *m, uint32_t number, const void *text, size_t count)
{
	field_add(m, number, LENGTH);
	varint_add(m, count);
	bytes_add(m, text, count);
}

static void time_add(struct message *event, double seconds)
{
	field_add(event, 1, EIGHT_BYTES);
	bytes_add(event, &seconds, sizeof(seconds));
}

static void value_add(struct message *summary, const char *tag, float number)
{
	struct message value = { .used = 0 };

	text_add(&value, 1, tag, strlen(tag));
	field_add(&value, 2, FOUR_BYTES);
	bytes_add(&value, &number, sizeof(number));
	text_add(summary, 1, value.bytes, value.used);
}

static uint32_t masked(const void *bytes, size_t count)
{
	const uint8_t *at = bytes;
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < count; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
	}
	crc = ~crc;
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static bool record_write(int fd, const struct message *event)
{
	uint64_t count = event->used;
	uint32_t of_count = masked(&count, sizeof(count)), of_event = masked(event->bytes, count);
	struct message record = { .used = 0 };

	bytes_add(&record, &count, sizeof(count));
	bytes_add(&record, &of_count, sizeof(of_count));
	bytes_add(&record, event->bytes, count);
	bytes_add(&record, &of_event, sizeof(of_event));

	ssize_t wrote = write(fd, record.bytes, record.used);

	if (wrote >= 0 && (size_t)wrote < record.used)
		errno = ENOSPC;
	return wrote == (ssize_t)record.used;
}

bool tr_events_begin(int fd)
{
	static const char version[] = "brain.Event:2";
	struct message event = { .used = 0 };

	time_add(&event, 0.0);
	text_add(&event, 3, version, strlen(version));
	return record_write(fd, &event);
}

bool tr_events_line(int fd, const char *line, size_t line_bytes)
{
	struct message event = { .used = 0 }, summary = { .used = 0 };
	json_t *o = json_loadb(line, line_bytes, 0, NULL), *value;
	const char *key;

	errno = EINVAL;
	if (o == NULL)
		return false;
	json_object_foreach(o, key, value)
	{
		if (json_is_number(value) && strcmp(key, "step") != 0 && strcmp(key, "time") != 0)
			value_add(&summary, key, (float)json_number_value(value));
	}
	time_add(&event, json_number_value(json_object_get(o, "time")));
	field_add(&event, 2, VARINT);
	varint_add(&event, (uint64_t)json_integer_value(json_object_get(o, "step")));
	text_add(&event, 5, summary.bytes, summary.used);
	json_decref(o);
	return record_write(fd, &event);
}
