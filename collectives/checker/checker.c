/* checker.c -- the frame of the checker: its memory, its words, and the order of its parts. */
#include "collectives/checker/checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/checker/checker_inside.h"

struct check_memory {
	struct check_memory *next;
	_Alignas(64) unsigned char bytes[];
};

void *check_alloc(struct checker *k, uint64_t count, size_t bytes)
{
	uint64_t size = sizeof(struct check_memory) + (count > 0 ? count : 1) * bytes;
	struct check_memory *memory = NULL;

	if (count < UINT64_MAX / 2 / bytes)
		memory = aligned_alloc(64, (size + 63) / 64 * 64);
	if (!memory) {
		k->no_memory = true;
		return NULL;
	}
	memset(memory, 0, size);
	memory->next = k->memory;
	k->memory = memory;
	return memory->bytes;
}

void *check_grow(struct checker *k, void *array, uint64_t count, uint64_t *capacity, size_t bytes)
{
	if (count < *capacity)
		return array;
	uint64_t more = *capacity < 4 ? 4 : *capacity * 2;
	void *larger = check_alloc(k, more, bytes);

	if (!larger)
		return NULL;
	if (count > 0)
		memcpy(larger, array, count * bytes);
	*capacity = more;
	return larger;
}

bool check_fail(struct checker *k, uint32_t rank, uint32_t step, uint32_t iteration,
		const char *format, ...)
{
	char *text = k->out->text;
	size_t room = sizeof(k->out->text);
	int n = snprintf(text, room, "rank %u", rank);
	va_list args;

	if (step != CHECK_NONE) {
		n += snprintf(text + n, room - (size_t)n, " step ");
		n += rb_step_text(k->ranks[rank].schedule, step, text + n,
				  room - (size_t)n > 200 ? 200 : room - (size_t)n);
		if (n > 220)
			n = (int)strlen(text);
		n += snprintf(text + n, room - (size_t)n, " iteration %u", iteration);
	}
	n += snprintf(text + n, room - (size_t)n, ": ");
	va_start(args, format);
	(void)vsnprintf(text + n, room - (size_t)n, format, args);
	va_end(args);
	return false;
}

/* ---- Events and places ---- */

static bool number_events(struct checker *k)
{
	uint64_t base = 0, limit = k->in->limits.events;
	uint64_t most = limit > 0 && limit < CHECK_NONE ? limit : CHECK_NONE - 1;

	k->ranks = check_alloc(k, k->n, sizeof(*k->ranks));
	if (!k->ranks)
		return false;
	for (uint32_t r = 0; r < k->n; r++) {
		struct check_rank *rank = &k->ranks[r];
		const struct rb_schedule *s = &k->in->schedules[r];
		uint64_t iterations = 0;

		rank->schedule = s;
		rank->turns = rb_schedule_turns(s, check_layout(k, r));
		rank->first = check_alloc(k, (uint64_t)s->step_count + 1, sizeof(uint32_t));
		rank->match = check_alloc(k, s->step_count, sizeof(uint32_t));
		if (k->no_memory)
			return false;
		k->copies = s->scratch_copies > k->copies ? s->scratch_copies : k->copies;
		rank->base = (uint32_t)base;
		for (uint32_t i = 0; i < s->step_count; i++) {
			rank->first[i] = (uint32_t)iterations;
			const struct rb_layout *layout = check_layout(k, r);

			if (s->steps[i].block + (uint64_t)s->steps[i].blocks > layout->block_count)
				return check_fail(k, r, i, 0, "names blocks beyond the layout's %u",
						  layout->block_count);
			iterations += rb_step_iterations(layout, &s->steps[i]);
		}
		rank->first[s->step_count] = (uint32_t)iterations;
		base += 2 + 3 * iterations;
		if (base * k->in->instances > most) {
			k->too_many = base * k->in->instances;
			return false;
		}
	}
	k->instance_events = (uint32_t)base;
	k->event_count = (uint32_t)base * k->in->instances;
	return true;
}

struct check_event check_decode(const struct checker *k, uint32_t event)
{
	struct check_event e = { .instance = event / k->instance_events, .step = CHECK_NONE };
	uint32_t rest = event % k->instance_events, low = 0, high = k->n;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (k->ranks[middle].base <= rest)
			low = middle;
		else
			high = middle;
	}
	e.rank = low;
	rest -= k->ranks[low].base;
	e.phase = (enum check_phase)rest;
	if (rest < 2)
		return e;
	rest -= 2;
	e.phase = (enum check_phase)(rest % 3);
	rest /= 3;
	const uint32_t *first = k->ranks[low].first;

	/* The last step that begins at or before: empty ones share their place with the next. */
	low = 0;
	high = k->ranks[e.rank].schedule->step_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (first[middle] <= rest)
			low = middle;
		else
			high = middle;
	}
	e.step = low;
	e.iteration = rest - first[low];
	return e;
}

bool check_buffer_is_part(const struct checker *k, enum rb_buffer buffer)
{
	switch (k->in->kind) {
	case RB_KIND_ALLGATHER:
	case RB_KIND_ALLGATHERV:
	case RB_KIND_GATHER:
		return buffer == RB_BUF_IN;
	case RB_KIND_REDUCE_SCATTER:
	case RB_KIND_REDUCE_SCATTERV:
	case RB_KIND_SCATTER:
		return buffer == RB_BUF_OUT;
	default:
		return false;
	}
}

struct check_range check_blocks(const struct checker *k, uint32_t rank, enum rb_buffer buffer)
{
	struct check_range all = { 0, check_layout(k, rank)->block_count }, none = { 0, 0 };
	bool in = buffer == RB_BUF_IN, has = true;

	switch (k->in->kind) {
	case RB_KIND_BROADCAST:
		has = !in;
		break;
	case RB_KIND_REDUCE:
	case RB_KIND_GATHER:
		has = in || rank == k->in->root;
		break;
	case RB_KIND_SCATTER:
		has = !in || rank == k->in->root;
		break;
	case RB_KIND_SENDRECV:
		has = k->n == 1 || in == (rank == 0);
		break;
	default:
		break;
	}
	if (has && check_buffer_is_part(k, buffer))
		return (struct check_range) { rank, rank + 1 };
	return has ? all : none;
}

struct check_range check_block(const struct checker *k, uint32_t rank, enum rb_buffer buffer,
			       uint32_t block)
{
	const struct rb_layout *layout = check_layout(k, rank);
	bool out = buffer == RB_BUF_OUT;
	uint64_t lo = out ? rb_layout_out_offset(layout, block) : rb_layout_offset(layout, block);

	return (struct check_range) { lo, lo + (out ? rb_layout_out_length(layout, block, 1)
						    : rb_layout_length(layout, block, 1)) };
}

uint32_t check_span_block(const struct checker *k, uint32_t rank, const struct rb_step *step,
			  const struct rb_span *span)
{
	return (uint32_t)(((uint64_t)step->block + span->shift) %
			  check_layout(k, rank)->block_count);
}

struct check_place check_place(const struct checker *k, uint32_t rank, const struct rb_step *step,
			       const struct rb_span *both, uint32_t instance, uint32_t c)
{
	const struct rb_layout *layout = check_layout(k, rank);
	struct rb_span in_turn;
	const struct rb_span *span = both;

	if (both->alternates) {
		in_turn = rb_span_in_turn(*both, instance * k->ranks[rank].turns + c);
		span = &in_turn;
	}
	uint32_t owner = span->rank == RB_SELF ? rank : span->rank, which = span->buffer;
	const struct rb_schedule *schedule = k->ranks[owner].schedule;
	uint64_t offset = rb_span_offset(layout, step, span, c);

	if (span->buffer == RB_BUF_SCRATCH) {
		which = 2 + instance % schedule->scratch_copies;
		if (span->depth != RB_VECTOR_SLOT)
			offset += schedule->scratch_vector_slots * layout->count;
		if (span->depth == RB_BLOCK_SLOT)
			offset += schedule->scratch_slots * layout->chunk;
	} else if (span->buffer > RB_BUF_SCRATCH) {
		which = 2 + k->copies + span->buffer - RB_BUF_STAGE_HOST;
	} else if (span->part || (layout->per_peer && owner != rank)) {
		/* Given from its begin: at its owner it lies where that one has it. */
		offset += check_block(k, owner, span->buffer, check_span_block(k, rank, step, span))
				  .lo;
	}
	if (which == RB_BUF_IN && k->in->in_place)
		which = RB_BUF_OUT;
	return (struct check_place) { check_space(k, owner, which), offset };
}

uint64_t check_space_elements(const struct checker *k, uint32_t space)
{
	uint32_t rank = space / check_spaces(k), which = space % check_spaces(k);
	const struct rb_schedule *schedule = k->ranks[rank].schedule;
	const struct rb_layout *layout = check_layout(k, rank);
	uint64_t in = rb_layout_extent(layout, RB_BUF_IN);
	uint64_t out = rb_layout_extent(layout, RB_BUF_OUT);

	if (which < 2)
		return in > out ? in : out;
	if (which >= 2 + k->copies)
		return schedule->stage_slots[which - 2 - k->copies] * layout->chunk;
	return schedule->scratch_vector_slots * layout->count +
	       schedule->scratch_slots * layout->chunk +
	       schedule->scratch_block_slots * rb_layout_longest(layout);
}

/* ---- The whole ---- */

rubato_status rb_check_schedules(const struct rb_check *check, struct rb_check_result *result)
{
	struct checker k = { .in = check, .out = result, .n = check->rank_count, .copies = 1 };

	*result = (struct rb_check_result) { .proved = false };
	result->proved = number_events(&k) && check_bounds(&k) && check_match(&k) &&
			 check_progress(&k) && check_implied(&k) && check_order(&k) &&
			 check_results(&k);
	while (k.memory) {
		struct check_memory *memory = k.memory;

		k.memory = memory->next;
		free(memory);
	}
	if (k.no_memory)
		return RB_FAIL(RUBATO_ERR_MEMORY, "checking %u ranks: out of memory", k.n);
	if (k.too_many > 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "%u ranks of %s need more than %llu events: too many to check", k.n,
			       rb_kind_name(check->kind), (unsigned long long)k.too_many);
	if (k.stopped)
		return RB_FAIL(RUBATO_ERR_TIMEOUT, "checking %u ranks: stopped before the end",
			       k.n);
	return RUBATO_OK;
}
