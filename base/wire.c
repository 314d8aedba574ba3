/* wire.c -- see wire.h. */
#include "base/wire.h"

#include <stdio.h>
#include <string.h>

const char *rb_kind_name(enum rb_kind kind)
{
	static const char *const names[RB_KIND_COUNT] = {
		"none",           "barrier",         "broadcast", "reduce",   "allreduce",
		"reduce_scatter", "allgather",       "gather",    "scatter",  "alltoall",
		"allgatherv",     "reduce_scatterv", "alltoallv", "sendrecv", "split",
		"finalize",       "control",         "lagged",    "partial",
	};

	return (unsigned)kind < RB_KIND_COUNT ? names[kind] : "unknown";
}

enum rb_kind rb_kind_find(const char *name)
{
	for (int k = RB_KIND_BARRIER; k < RB_KIND_SENDRECV; k++)
		if (strcmp(name, rb_kind_name((enum rb_kind)k)) == 0)
			return (enum rb_kind)k;
	return RB_KIND_NONE;
}

char *rb_signature_text(const struct rb_signature *s, char *text, size_t text_bytes)
{
	int n = snprintf(text, text_bytes, "%s", rb_kind_name((enum rb_kind)s->kind));
	size_t at = n < 0 ? 0 : (size_t)n;

	uint32_t type = s->type & ((1u << RB_SIGNATURE_WIRE_SHIFT) - 1);
	uint32_t wire = s->type >> RB_SIGNATURE_WIRE_SHIFT;
	bool feedback = wire >= RUBATO_WIRE_COUNT;

	wire -= feedback ? RB_SIGNATURE_FED_BACK : 0;

	if (s->type != 0xff && at < text_bytes)
		at += (size_t)snprintf(
			text + at, text_bytes - at, " %s%s%s%s x %llu",
			rubato_type_name((rubato_type)type), wire != RUBATO_WIRE_SAME ? " as " : "",
			wire != RUBATO_WIRE_SAME ? rubato_wire_name((rubato_wire)wire) : "",
			feedback ? " with feedback" : "", (unsigned long long)s->count);
	if (s->op != 0xff && at < text_bytes)
		at += (size_t)snprintf(text + at, text_bytes - at, " %s",
				       rubato_operator_name((rubato_operator)s->op));
	bool blocks = s->kind == RB_KIND_ALLGATHERV || s->kind == RB_KIND_REDUCE_SCATTERV;

	if (s->root != UINT32_MAX && at < text_bytes)
		(void)snprintf(text + at, text_bytes - at, blocks ? " in blocks #%08x" : " root %u",
			       s->root);
	return text;
}

static bool room(struct rb_wire *w, size_t size_bytes)
{
	if ((size_t)(w->end - w->at) < size_bytes)
		w->bad = true;
	return !w->bad;
}

static void put_little(struct rb_wire *w, uint64_t value, size_t size_bytes)
{
	if (!room(w, size_bytes))
		return;
	for (size_t i = 0; i < size_bytes; i++)
		*w->at++ = (uint8_t)(value >> (8 * i));
}

static uint64_t get_little(struct rb_wire *w, size_t size_bytes)
{
	uint64_t value = 0;

	if (!room(w, size_bytes))
		return 0;
	for (size_t i = 0; i < size_bytes; i++)
		value |= (uint64_t)*w->at++ << (8 * i);
	return value;
}

void rb_wire_put_u8(struct rb_wire *w, uint8_t value)
{
	put_little(w, value, 1);
}

void rb_wire_put_u16(struct rb_wire *w, uint16_t value)
{
	put_little(w, value, 2);
}

void rb_wire_put_u32(struct rb_wire *w, uint32_t value)
{
	put_little(w, value, 4);
}

void rb_wire_put_u64(struct rb_wire *w, uint64_t value)
{
	put_little(w, value, 8);
}

void rb_wire_put_bytes(struct rb_wire *w, const void *bytes, size_t size_bytes)
{
	if (!room(w, size_bytes) || size_bytes == 0)
		return;
	memcpy(w->at, bytes, size_bytes);
	w->at += size_bytes;
}

uint8_t rb_wire_get_u8(struct rb_wire *w)
{
	return (uint8_t)get_little(w, 1);
}

uint16_t rb_wire_get_u16(struct rb_wire *w)
{
	return (uint16_t)get_little(w, 2);
}

uint32_t rb_wire_get_u32(struct rb_wire *w)
{
	return (uint32_t)get_little(w, 4);
}

uint64_t rb_wire_get_u64(struct rb_wire *w)
{
	return get_little(w, 8);
}

void rb_wire_get_bytes(struct rb_wire *w, void *bytes, size_t size_bytes)
{
	if (!room(w, size_bytes) || size_bytes == 0)
		return;
	memcpy(bytes, w->at, size_bytes);
	w->at += size_bytes;
}
