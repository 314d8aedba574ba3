/*
 * calls.c -- collectives: what a call is given, where its values lie, and that its results are
 * right and nothing else was written.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define AROUND 64u /* Bytes on both sides of what a call is given. */
#define UNTOUCHED 0xa5
#define BYTES_MOST (100u << 10) /* Of a block, as a rule. */

const char *kind_name(enum kind kind)
{
	static const char *const names[] = {
		"allreduce", "reduce",  "reduce_scatter",   "allgather",  "broadcast",
		"alltoall",  "gather",  "scatter",          "allgatherv", "reduce_scatterv",
		"alltoallv", "barrier", "allreduce_helped",
	};

	return names[kind];
}

static bool reduces(enum kind kind)
{
	return kind == ALLREDUCE || kind == HELPED || kind == REDUCE || kind == REDUCE_SCATTER ||
	       kind == REDUCE_SCATTERV;
}

static bool uneven(enum kind kind)
{
	return kind == ALLGATHERV || kind == REDUCE_SCATTERV || kind == ALLTOALLV;
}

/* ---- Buffers ---- */

void buffer_make(struct place *place, struct buffer *buffer, size_t bytes, size_t element)
{
	size_t shift = element * below(&place->own, 9);

	*buffer = (struct buffer) { .bytes = bytes, .room = bytes + shift + 2 * AROUND };
	if (one_in(&place->own, 2)) {
		void *memory;

		must(place, rubato_alloc(place->comm, buffer->room, &memory));
		buffer->memory = memory;
		buffer->comm = place->comm;
		count(place, ALLOCATED);
	} else {
		buffer->memory = malloc(buffer->room);
	}
	buffer->shadow = malloc(buffer->room);
	if (buffer->memory == NULL || buffer->shadow == NULL)
		fail(place, "no memory");
	buffer->at = buffer->memory + AROUND + shift;
	memset(buffer->memory, UNTOUCHED, buffer->room);
}

void buffer_free(struct place *place, struct buffer *buffer)
{
	if (buffer->comm != NULL)
		must(place, rubato_free(buffer->comm, buffer->memory));
	else
		free(buffer->memory);
	free(buffer->shadow);
	buffer->memory = buffer->shadow = NULL;
}

void buffer_note(struct buffer *buffer)
{
	memcpy(buffer->shadow, buffer->memory, buffer->room);
}

void buffer_check(const struct place *place, const struct buffer *buffer, size_t element,
		  const char *name)
{
	const uint8_t *shadow = buffer->shadow + (buffer->at - buffer->memory);
	uint64_t expected = 0, got = 0;
	size_t at = 0;

	if (memcmp(buffer->memory, buffer->shadow, buffer->room) == 0)
		return;
	while (buffer->memory[at] == buffer->shadow[at])
		at++;
	ptrdiff_t byte = (ptrdiff_t)at - (buffer->at - buffer->memory);
	if (byte < 0 || byte >= (ptrdiff_t)buffer->bytes)
		fail(place, "%s: byte %td beside it (%zu bytes): expected %02x, got %02x", name,
		     byte, buffer->bytes, buffer->shadow[at], buffer->memory[at]);
	size_t index = (size_t)byte / element;
	memcpy(&expected, shadow + index * element, element);
	memcpy(&got, buffer->at + index * element, element);
	fail(place, "%s: index %zu: expected 0x%" PRIx64 ", got 0x%" PRIx64, name, index, expected,
	     got);
}

/* ---- Drawing ---- */

uint64_t next_key(struct place *place)
{
	return mixed(place->common.state, place->keys++);
}

static uint64_t count_draw(struct draws *draws, uint32_t bytes, uint32_t blocks)
{
	uint32_t most = BYTES_MOST / bytes;

	switch (below(draws, 12)) {
	case 0:
		return 0;
	case 1:
	case 2:
	case 3:
		return 1 + below(draws, 8);
	case 4:
	case 5:
	case 6:
	case 7:
		return below(draws, 300);
	case 8:
	case 9:
	case 10:
		return below(draws, 4000);
	default:
		return below(draws, one_in(draws, 4) ? 3 * most : most) / blocks;
	}
}

static void even_blocks(struct blocks *blocks, uint32_t ranks, uint64_t each)
{
	blocks->packed = true;
	blocks->extent = ranks * each;
	for (uint32_t r = 0; r < ranks; r++) {
		blocks->counts[r] = each;
		blocks->offsets[r] = r * each;
	}
}

/* Where blocks of given counts lie: packed, or in any order with gaps. */
static void offsets_draw(struct draws *draws, struct blocks *blocks, uint32_t ranks)
{
	uint32_t order[RANKS_MAX];
	uint64_t at = 0;

	blocks->packed = one_in(draws, 3);
	blocks->extent = 0;
	order_draw(draws, ranks, order);
	for (uint32_t i = 0; i < ranks; i++) {
		uint32_t r = blocks->packed ? i : order[i];

		if (!blocks->packed && one_in(draws, 2))
			at += below(draws, 20);
		blocks->offsets[r] = at;
		at += blocks->counts[r];
		if (blocks->counts[r] > 0)
			blocks->extent = at;
	}
}

static uint64_t block_count(uint64_t key, uint64_t count, uint32_t a, uint32_t b)
{
	uint64_t drawn = mixed(key, a * RANKS_MAX + b);

	return drawn % 4 == 0 ? 0 : (drawn >> 8) % (count + 1);
}

/* How much goes from each rank to each other; where it lies is a rank's own matter. */
static void pairs_draw(struct place *place, struct call *call)
{
	uint32_t me = place->rank;

	for (uint32_t r = 0; r < place->size; r++) {
		uint32_t low = r < me ? r : me, high = r < me ? me : r;
		bool same = call->symmetric;

		call->in_blocks.counts[r] =
			block_count(call->key, call->count, same ? low : me, same ? high : r);
		call->out_blocks.counts[r] =
			block_count(call->key, call->count, same ? low : r, same ? high : me);
	}
	offsets_draw(&place->own, &call->in_blocks, place->size);
	if (call->in_place)
		call->out_blocks = call->in_blocks;
	else
		offsets_draw(&place->own, &call->out_blocks, place->size);
}

/* Rounded on the way: no more than an average is. */
static void wire_draw(struct place *place, struct call *call)
{
	if (one_in(&place->common, 2)) {
		call->type = RUBATO_FLOAT32;
		call->op = RUBATO_SUM;
	}
	if (call->type != RUBATO_FLOAT32 || (call->op != RUBATO_SUM && call->op != RUBATO_AVG))
		return;
	call->wire = place->wire;
	call->odd = false;
	if (place->feedback) /* What an average loses would come later. */
		call->op = RUBATO_SUM;
}

void call_draw(struct place *place, struct call *call, bool persistent)
{
	struct draws *draws = &place->common;
	bool may_be_in_place;

	*call = (struct call) { .kind = (enum kind)below(draws, persistent ? KINDS : HELPED) };
	if (place->wanted != KINDS)
		call->kind = place->wanted;
	call->type = type_draw(draws);
	call->op = (rubato_operator)below(draws, RUBATO_OPERATOR_COUNT);
	call->root = below(draws, place->size);
	call->count = count_draw(draws, (uint32_t)rubato_type_bytes(call->type),
				 call->kind < REDUCE_SCATTER ? 1 : (place->size + 1) / 2);
	call->odd = one_in(draws, 6) && is_float(call->type) && reduces(call->kind);
	call->symmetric = one_in(draws, 2);
	call->key = next_key(place);
	may_be_in_place = call->kind != ALLTOALLV || call->symmetric;
	call->in_place = one_in(&place->own, 3) && may_be_in_place;
	if (call->kind == HELPED && place->wire != RUBATO_WIRE_SAME)
		call->kind = ALLREDUCE;
	if (call->kind == HELPED && one_in(draws, 2)) /* From 64 KiB on it is not an allreduce. */
		call->count = (68u << 10) / rubato_type_bytes(call->type) + below(draws, 1000);
	if (place->wire != RUBATO_WIRE_SAME &&
	    (call->kind == ALLREDUCE || call->kind == REDUCE_SCATTER))
		wire_draw(place, call);
	even_blocks(&call->in_blocks, place->size, call->count);
	if (uneven(call->kind) && call->kind != ALLTOALLV) {
		for (uint32_t r = 0; r < place->size; r++)
			call->in_blocks.counts[r] = block_count(call->key, call->count, r, 0);
		offsets_draw(draws, &call->in_blocks, place->size);
	}
	call->out_blocks = call->in_blocks;
	if (call->kind == ALLTOALLV)
		pairs_draw(place, call);
	if (call->count == 0)
		count(place, EMPTY);
	if (call->odd)
		count(place, ODD_FLOATS);
	place->done[DONE_TYPE(call->type)]++;
	if (reduces(call->kind))
		place->done[DONE_OPERATOR(call->op)]++;
}

/* ---- Where values lie ---- */

static void piece_add(struct piece *pieces, uint32_t *count, uint64_t first, uint64_t elements,
		      uint32_t stream, uint64_t from)
{
	pieces[(*count)++] = (struct piece) { first, elements, stream, from };
}

#define IN(...) piece_add(call->in_pieces, &call->in_piece_count, __VA_ARGS__)
#define OUT(...) piece_add(call->out_pieces, &call->out_piece_count, __VA_ARGS__)

static void pieces_set(const struct place *place, struct call *call)
{
	const struct blocks *in = &call->in_blocks, *out = &call->out_blocks;
	uint32_t me = place->rank, stream = me * RANKS_MAX;
	bool root = me == call->root;

	switch (call->kind) {
	case ALLREDUCE:
	case HELPED:
	case REDUCE:
		IN(0, call->count, stream, 0);
		if (call->kind != REDUCE || root)
			OUT(0, call->count, EVERYBODY, 0);
		break;
	case REDUCE_SCATTER:
	case REDUCE_SCATTERV:
		IN(0, in->extent, stream, 0);
		OUT(0, in->counts[me], EVERYBODY, in->offsets[me]);
		break;
	case ALLGATHER:
	case ALLGATHERV:
	case GATHER:
		IN(0, in->counts[me], stream, 0);
		for (uint32_t r = 0; r < place->size && (call->kind != GATHER || root); r++)
			OUT(out->offsets[r], out->counts[r], r * RANKS_MAX, 0);
		break;
	case BROADCAST:
		if (root)
			IN(0, call->count, stream, 0);
		OUT(0, call->count, call->root * RANKS_MAX, 0);
		break;
	case SCATTER:
		if (root)
			IN(0, in->extent, stream, 0);
		OUT(0, call->count, call->root * RANKS_MAX, me * call->count);
		break;
	case ALLTOALL:
	case ALLTOALLV:
		for (uint32_t r = 0; r < place->size; r++) {
			IN(in->offsets[r], in->counts[r], stream + r, 0);
			OUT(out->offsets[r], out->counts[r], r * RANKS_MAX + me, 0);
		}
		break;
	default:
		break;
	}
}

static uint64_t extent(const struct piece *pieces, uint32_t count)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < count; i++)
		if (pieces[i].count > 0 && pieces[i].first + pieces[i].count > most)
			most = pieces[i].first + pieces[i].count;
	return most;
}

/* In place: where, in the one buffer, in and out begin. */
static void places_in_one(const struct place *place, const struct call *call, uint64_t *in,
			  uint64_t *out)
{
	uint64_t mine = call->in_blocks.offsets[place->rank];

	*in = call->kind == ALLGATHER || call->kind == ALLGATHERV || call->kind == GATHER ? mine
											  : 0;
	*out = call->kind == REDUCE_SCATTER || call->kind == REDUCE_SCATTERV ||
			       call->kind == SCATTER
		       ? mine
		       : 0;
}

static bool rooted(enum kind kind)
{
	return kind == REDUCE || kind == GATHER || kind == SCATTER;
}

void call_make(struct place *place, struct call *call)
{
	size_t element = rubato_type_bytes(call->type);
	uint64_t in, out, in_at, out_at;

	pieces_set(place, call);
	in = extent(call->in_pieces, call->in_piece_count);
	out = extent(call->out_pieces, call->out_piece_count);
	if (call->kind == BROADCAST)
		call->in_place = true;
	else if (rooted(call->kind) && place->rank != call->root)
		call->in_place = false;
	if (call->in_place) {
		places_in_one(place, call, &in_at, &out_at);
		uint64_t all = in_at + in > out_at + out ? in_at + in : out_at + out;
		/* The other blocks of the buffer in place count, too. */
		buffer_make(place, &call->out_buffer, all * element, element);
		call->in = call->out_buffer.at + in_at * element;
		call->out = call->out_buffer.at + out_at * element;
		count(place, PLAIN_IN_PLACE);
		return;
	}
	buffer_make(place, &call->in_buffer, in * element, element);
	buffer_make(place, &call->out_buffer, out * element, element);
	call->in = call->in_buffer.at;
	call->out = call->out_buffer.at;
	/* What is ignored, or empty, may be nothing. */
	if (in == 0 && one_in(&place->own, 2))
		call->in = NULL;
	if (out == 0 && one_in(&place->own, 2))
		call->out = NULL;
}

static void pieces_put(const struct place *place, const struct call *call,
		       const struct piece *pieces, uint32_t count, uint8_t *to)
{
	size_t element = rubato_type_bytes(call->type);

	for (uint32_t i = 0; i < count; i++) {
		const struct piece *p = &pieces[i];
		uint8_t *at = to + p->first * element;

		if (p->count == 0)
			continue;
		if (p->stream == EVERYBODY)
			values_expected(call, place->size, p->from, p->count, at);
		else if (reduces(call->kind))
			values_reduced(call, p->stream, p->from, p->count, at);
		else
			values_moved(call->key, p->stream, p->from, p->count, call->type, at);
	}
}

/* Writes inputs, and notes what buffers hold: of results, only what a call has no business with. */
void call_fill(struct place *place, struct call *call)
{
	struct buffer *in = &call->in_buffer, *out = &call->out_buffer;

	memset(out->memory, UNTOUCHED, out->room);
	if (call->in_piece_count > 0)
		pieces_put(place, call, call->in_pieces, call->in_piece_count,
			   call->in_place ? out->at + ((const uint8_t *)call->in - out->at)
					  : in->at);
	if (!call->in_place)
		buffer_note(in);
	buffer_note(out);
}

void call_check(struct place *place, struct call *call)
{
	struct buffer *out = &call->out_buffer;
	size_t element = rubato_type_bytes(call->type);
	ptrdiff_t at = call->in_place ? (uint8_t *)call->out - out->memory : out->at - out->memory;
	bool spent = call->kind == REDUCE_SCATTER || call->kind == REDUCE_SCATTERV;

	/* In place nothing is said of the blocks that are others'. */
	if (call->in_place && spent)
		memcpy(out->shadow + (out->at - out->memory), out->at, out->bytes);
	pieces_put(place, call, call->out_pieces, call->out_piece_count, out->shadow + at);
	buffer_check(place, out, element, "out");
	if (!call->in_place)
		buffer_check(place, &call->in_buffer, element, "in");
}

void call_free(struct place *place, struct call *call)
{
	if (!call->in_place)
		buffer_free(place, &call->in_buffer);
	buffer_free(place, &call->out_buffer);
}

void call_say(struct place *place, const struct call *call, const char *prefix)
{
	doing(place, "%s%s count %" PRIu64 " %s %s root %u of %u%s", prefix, kind_name(call->kind),
	      call->count, rubato_type_name(call->type),
	      reduces(call->kind) ? rubato_operator_name(call->op) : "-", call->root, place->size,
	      call->in_place ? " in place" : "");
}

/* ---- Blocking ---- */

static const uint64_t *offsets_of(const struct blocks *blocks)
{
	return blocks->packed ? NULL : blocks->offsets;
}

static rubato_status blocking(rubato_comm *comm, const struct call *c)
{
	const struct blocks *in = &c->in_blocks, *out = &c->out_blocks;

	switch (c->kind) {
	case ALLREDUCE:
		return rubato_allreduce(comm, c->in, c->out, c->count, c->type, c->op);
	case REDUCE:
		return rubato_reduce(comm, c->in, c->out, c->count, c->type, c->op, c->root);
	case REDUCE_SCATTER:
		return rubato_reduce_scatter(comm, c->in, c->out, c->count, c->type, c->op);
	case ALLGATHER:
		return rubato_allgather(comm, c->in, c->out, c->count, c->type);
	case BROADCAST:
		return rubato_broadcast(comm, c->out, c->count, c->type, c->root);
	case ALLTOALL:
		return rubato_alltoall(comm, c->in, c->out, c->count, c->type);
	case GATHER:
		return rubato_gather(comm, c->in, c->out, c->count, c->type, c->root);
	case SCATTER:
		return rubato_scatter(comm, c->in, c->out, c->count, c->type, c->root);
	case ALLGATHERV:
		return rubato_allgatherv(comm, c->in, c->out, in->counts, offsets_of(in), c->type);
	case REDUCE_SCATTERV:
		return rubato_reduce_scatterv(comm, c->in, c->out, in->counts, offsets_of(in),
					      c->type, c->op);
	case ALLTOALLV:
		return rubato_alltoallv(comm, c->in, in->counts, offsets_of(in), c->out,
					out->counts, offsets_of(out), c->type);
	default:
		return rubato_barrier(comm);
	}
}

/* Now, or many calls later. */
static void look(struct place *place, struct call *call)
{
	uint32_t slot = below(&place->own, HELD);

	if (!one_in(&place->own, 3)) {
		call_check(place, call);
		call_free(place, call);
		return;
	}
	if (place->holds[slot]) {
		call_say(place, &place->held[slot], "held ");
		call_check(place, &place->held[slot]);
		call_free(place, &place->held[slot]);
	}
	place->held[slot] = *call;
	place->holds[slot] = true;
	count(place, HELD_LONG);
}

void held_check(struct place *place)
{
	for (uint32_t i = 0; i < HELD; i++) {
		if (!place->holds[i])
			continue;
		call_say(place, &place->held[i], "held ");
		call_check(place, &place->held[i]);
		call_free(place, &place->held[i]);
		place->holds[i] = false;
	}
}

void step_call(struct place *place)
{
	struct call *call = malloc(sizeof(*call));
	rubato_status status;

	if (call == NULL)
		fail(place, "no memory");
	call_draw(place, call, false);
	call_make(place, call);
	call_fill(place, call);
	call_say(place, call, "");
	status = blocking(place->comm, call);
	if (unsupported(place, call->kind, status))
		status = blocking(place->comm, call);
	must(place, status);
	place->done[call->kind]++;
	look(place, call);
	free(call);
}
