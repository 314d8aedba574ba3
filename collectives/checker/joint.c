/* joint.c -- see joint.h. */
#include "collectives/checker/joint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static rubato_status no_memory(const struct rb_joint *joint)
{
	return RB_FAIL(RUBATO_ERR_MEMORY, "%s %s: no memory for the schedules of %u ranks",
		       rb_kind_name(joint->algorithm->kind), joint->algorithm->name,
		       joint->rank_count);
}

static rubato_status build_rank(struct rb_joint *joint, uint32_t rank)
{
	struct rb_build build = { .rank = rank,
				  .rank_count = joint->rank_count,
				  .root = joint->root,
				  .nodes = joint->nodes,
				  .apart = rb_apart_of(joint->apart, joint->rank_count, rank),
				  .in_place = joint->in_place };
	struct rb_schedule *schedule = &joint->schedules[rank];
	struct rb_writer w = { .schedule = schedule };

	joint->algorithm->build(&w, &build); /* Without room: it counts. */
	w.step_capacity = schedule->step_count;
	w.span_capacity = schedule->span_count;
	w.dep_capacity = schedule->dep_count;
	schedule->steps = calloc((size_t)w.step_capacity + 1, sizeof(*schedule->steps));
	schedule->spans = calloc((size_t)w.span_capacity + 1, sizeof(*schedule->spans));
	schedule->deps = calloc((size_t)w.dep_capacity + 1, sizeof(*schedule->deps));
	if (!schedule->steps || !schedule->spans || !schedule->deps)
		return no_memory(joint);
	joint->algorithm->build(&w, &build);
	RB_ASSERT(rb_writer_fits(&w));
	return RUBATO_OK;
}

rubato_status rb_joint_build(struct rb_joint *joint)
{
	joint->schedules = calloc(joint->rank_count, sizeof(*joint->schedules));
	if (!joint->schedules)
		return no_memory(joint);
	for (uint32_t r = 0; r < joint->rank_count; r++)
		RB_TRY(build_rank(joint, r));
	return RUBATO_OK;
}

void rb_joint_free(struct rb_joint *joint)
{
	for (uint32_t r = 0; joint->schedules && r < joint->rank_count; r++) {
		free(joint->schedules[r].steps);
		free(joint->schedules[r].spans);
		free(joint->schedules[r].deps);
	}
	free(joint->schedules);
}

static bool messages_reach(const void *arg, uint32_t peer)
{
	(void)peer;
	return *(const bool *)arg;
}

static rubato_status stage_rank(struct rb_joint *joint, uint32_t rank,
				const struct rb_staging *staging)
{
	struct rb_schedule *from = &joint->schedules[rank], to = { 0 };
	uint32_t *first = calloc((size_t)from->step_count + 1, sizeof(*first));
	struct rb_writer w = { .schedule = &to };
	struct rb_staging all = *staging;

	if (!first)
		return no_memory(joint);
	all.takes = messages_reach;
	all.arg = &joint->device_messages;
	rb_stage(&w, from, &all, first);
	w.step_capacity = to.step_count;
	w.span_capacity = to.span_count;
	w.dep_capacity = to.dep_count;
	to.steps = calloc((size_t)w.step_capacity + 1, sizeof(*to.steps));
	to.spans = calloc((size_t)w.span_capacity + 1, sizeof(*to.spans));
	to.deps = calloc((size_t)w.dep_capacity + 1, sizeof(*to.deps));
	bool room = to.steps && to.spans && to.deps;

	if (room)
		rb_stage(&w, from, &all, first);
	free(first);
	free(from->steps);
	free(from->spans);
	free(from->deps);
	*from = to;
	return room ? RUBATO_OK : no_memory(joint);
}

rubato_status rb_joint_stage(struct rb_joint *joint, const struct rb_staging *stagings)
{
	for (uint32_t r = 0; r < joint->rank_count; r++)
		RB_TRY(stage_rank(joint, r, &stagings[r]));
	return RUBATO_OK;
}

bool rb_joint_wants_even(const struct rb_joint *joint)
{
	if (rb_joint_told_in_place(joint->algorithm->kind) || joint->algorithm->even)
		return true;
	for (uint32_t r = 0; r < joint->rank_count; r++)
		for (uint32_t i = 0; i < joint->schedules[r].span_count; i++)
			if (joint->schedules[r].spans[i].shift > 0)
				return true;
	return false;
}

bool rb_joint_takes_uneven(const struct rb_joint *joint)
{
	if (joint->algorithm->blocks != RB_BLOCKS_RANKS || joint->algorithm->even ||
	    joint->algorithm->kind == RB_KIND_ALLTOALL)
		return false;
	for (uint32_t r = 0; r < joint->rank_count; r++) {
		if (joint->schedules[r].scratch_vector_slots > 0 ||
		    joint->schedules[r].scratch_block_slots > 0)
			return false;
		for (uint32_t i = 0; i < joint->schedules[r].step_count; i++)
			if (joint->schedules[r].steps[i].blocks > 1)
				return false;
	}
	return true;
}

/* ---- Layouts ---- */

static rubato_status allocate(struct rb_joint_layouts *layouts, const struct rb_joint *joint,
			      uint64_t numbers)
{
	layouts->rank_count = joint->rank_count;
	layouts->each = calloc(joint->rank_count, sizeof(*layouts->each));
	layouts->numbers = calloc(numbers + 1, sizeof(*layouts->numbers));
	if (!layouts->each || !layouts->numbers)
		return no_memory(joint);
	return RUBATO_OK;
}

rubato_status rb_joint_even(struct rb_joint_layouts *layouts, const struct rb_joint *joint,
			    uint64_t count, uint64_t chunk, uint32_t align)
{
	uint32_t n = joint->rank_count;

	RB_TRY(allocate(layouts, joint, 0));
	layouts->name = "";
	if (rb_joint_wants_even(joint)) {
		count = count / n * n;
		align = 1;
	}
	for (uint32_t r = 0; r < n; r++)
		layouts->each[r] = (struct rb_layout) {
			.count = count,
			.block_count = rb_algorithm_blocks(joint->algorithm, n, joint->nodes),
			.align = align,
			.chunk = chunk,
		};
	return RUBATO_OK;
}

/* Lays blocks of these lengths out; by `salt`, in rising or falling order, with gaps or without. */
static uint64_t place(uint64_t *starts, const uint64_t *lengths, uint32_t n, enum rb_gaps gaps,
		      uint32_t salt)
{
	uint64_t at = 0, sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t b = gaps != RB_GAPS_NONE && salt % 2 == 1 ? n - 1 - i : i;

		at += gaps == RB_GAPS_NONE ? 0 : (i + salt) % 3;
		starts[b] = at;
		at += lengths[b];
		sum += lengths[b];
	}
	return sum;
}

rubato_status rb_joint_uneven(struct rb_joint_layouts *layouts, const struct rb_joint *joint,
			      uint64_t chunk, enum rb_gaps gaps, rb_joint_length *length,
			      const void *arg)
{
	uint32_t n = joint->rank_count;
	bool all = joint->algorithm->kind == RB_KIND_ALLTOALLV;

	RB_ASSERT(rb_joint_takes_uneven(joint));
	RB_TRY(allocate(layouts, joint, (uint64_t)4 * n * n));
	layouts->name = gaps == RB_GAPS_NONE ? " uneven" : " uneven with gaps";
	for (uint32_t r = 0; r < n; r++) {
		uint64_t *numbers = layouts->numbers + (uint64_t)4 * n * r, sum, out_sum;
		uint64_t *lengths = numbers + n, *out_starts = numbers + 2 * n;
		uint64_t *out_lengths = numbers + 3 * n;

		for (uint32_t b = 0; b < n; b++) {
			bool swap = all && joint->in_place && r > b;

			lengths[b] = length(arg, !all ? 0 : swap ? b : r, swap ? r : b);
			out_lengths[b] = all && !joint->in_place ? length(arg, b, r) : lengths[b];
		}
		sum = place(numbers, lengths, n, gaps, gaps == RB_GAPS_PER_RANK ? r : 1);
		out_sum = place(out_starts, out_lengths, n, gaps, r + 1);
		layouts->each[r] = (struct rb_layout) {
			.count = sum > out_sum ? sum : out_sum,
			.chunk = chunk,
			.block_count = n,
			.align = 1,
			.starts = numbers,
			.lengths = lengths,
			.out_starts = all && !joint->in_place ? out_starts : NULL,
			.out_lengths = all && !joint->in_place ? out_lengths : NULL,
			.per_peer = all || gaps == RB_GAPS_PER_RANK,
		};
	}
	return RUBATO_OK;
}

void rb_joint_layouts_free(struct rb_joint_layouts *layouts)
{
	free(layouts->each);
	free(layouts->numbers);
}

/* ---- Checks ---- */

rubato_status rb_joint_check(const struct rb_joint *joint, const struct rb_joint_layouts *layouts,
			     bool in_place, uint32_t instances,
			     const struct rb_check_limits *limits, struct rb_check_result *result)
{
	struct rb_check check = { .kind = joint->algorithm->kind,
				  .schedules = joint->schedules,
				  .rank_count = joint->rank_count,
				  .root = joint->root,
				  .nodes = joint->nodes,
				  .apart = joint->apart,
				  .layouts = layouts->each,
				  .in_place = in_place,
				  .device_messages = joint->device_messages,
				  .instances = instances,
				  .algorithm = joint->algorithm,
				  .implied_rank = RB_NO_SPAN };

	RB_ASSERT(layouts->rank_count == joint->rank_count);
	if (limits)
		check.limits = *limits;
	return rb_check_schedules(&check, result);
}

const char *rb_joint_text(const struct rb_joint *joint, const struct rb_joint_layouts *layouts,
			  bool in_place, char *text, size_t text_bytes)
{
	(void)snprintf(text, text_bytes,
		       "%s %s, %u ranks root %u, count %" PRIu64 " chunk %" PRIu64 "%s%s%s%s",
		       rb_kind_name(joint->algorithm->kind), joint->algorithm->name,
		       joint->rank_count, joint->root, layouts->each[0].count,
		       layouts->each[0].chunk, layouts->name, in_place ? " in place" : "",
		       joint->in_place ? " (told)" : "",
		       joint->apart != NULL ? ", some pairs apart" : "");
	return text;
}
