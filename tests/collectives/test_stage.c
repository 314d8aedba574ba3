/*
 * test_stage.c -- schedules for device memory (stage.h): every algorithm is proved with its ranks'
 * buffers on hosts, on devices and in managed memory, drawn at random; and what is wrong with a
 * staged schedule the checker finds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/checker/joint.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/seeds.h"

#define RANKS_MAX 8u
#define INSTANCES 3
#define COUNT (3 * 2 * 6) /* Of the ring: more chunks than slots. */

struct draw {
	struct rb_rng rng;
	struct rb_nodes nodes;
	uint32_t words[RB_NODES_WORDS(RANKS_MAX)], node_ranks;
	struct rb_staging stagings[RANKS_MAX];
	uint8_t apart[RANKS_MAX * RANKS_MAX];
	bool in_place;
};

static uint32_t below(struct draw *d, uint32_t bound)
{
	return (uint32_t)rb_rng_below(&d->rng, bound);
}

static struct rb_joint joint_draw(struct draw *d, const struct rb_algorithm *a)
{
	uint32_t n = 1 + below(d, RANKS_MAX), names[RANKS_MAX];
	struct rb_joint joint = { .algorithm = a };

	if (n > a->rank_max)
		n = a->rank_max;
	joint.rank_count = n;
	joint.root = rb_kind_rooted(a->kind) ? below(d, n) : 0;
	joint.device_messages = below(d, 3) == 0;
	d->in_place = below(d, 2) == 0;
	joint.in_place = d->in_place && rb_joint_told_in_place(a->kind);
	if (a->by_node) {
		d->node_ranks = 1 + below(d, n);
		for (uint32_t r = 0; r < n; r++)
			names[r] = r / d->node_ranks;
		rb_nodes_make(&d->nodes, d->words, names, n);
		joint.nodes = &d->nodes;
	}
	if (a->kind == RB_KIND_ALLTOALLV && a->flags != 0 && below(d, 3) > 0) {
		for (uint32_t r = 0; r < n; r++)
			for (uint32_t p = 0; p <= r; p++)
				d->apart[r * n + p] = d->apart[p * n + r] = below(d, 2) == 0;
		joint.apart = d->apart;
	}
	ck_assert_int_eq(rb_joint_build(&joint), RUBATO_OK);
	return joint;
}

static uint8_t kind_draw(struct draw *d)
{
	static const uint8_t kinds[] = { RB_MEMORY_HOST, RB_MEMORY_DEVICE, RB_MEMORY_DEVICE,
					 RB_MEMORY_MANAGED };

	return kinds[below(d, 4)];
}

/* Each rank's own kinds; but what all map is of one. */
static void kinds_draw(struct draw *d, const struct rb_joint *joint)
{
	uint32_t flags = joint->algorithm->flags;

	for (uint32_t r = 0; r < joint->rank_count; r++) {
		uint8_t *kinds = d->stagings[r].kinds;

		d->stagings[r] = (struct rb_staging) { .depth = 1 + below(d, 3) };
		kinds[RB_BUF_IN] = kind_draw(d);
		kinds[RB_BUF_OUT] = d->in_place ? kinds[RB_BUF_IN] : kind_draw(d);
		if (joint->device_messages && !(flags & RB_SCHEDULE_MAPPED_SCRATCH))
			kinds[RB_BUF_SCRATCH] = kind_draw(d);
		if (flags & RB_SCHEDULE_PUT && !joint->device_messages) /* It would give no key. */
			kinds[RB_BUF_OUT] = kinds[RB_BUF_IN] = RB_MEMORY_MANAGED;
		if (flags & RB_SCHEDULE_PUT && !joint->device_messages && !d->in_place)
			kinds[RB_BUF_IN] = kind_draw(d);
		if (flags & RB_SCHEDULE_MAPPED_BUFFERS && r > 0)
			memcpy(kinds, d->stagings[0].kinds, RB_BUFFER_COUNT);
	}
}

static bool prove(const struct draw *d, const struct rb_joint *joint,
		  struct rb_check_result *result, uint64_t count, uint64_t chunk)
{
	struct rb_joint_layouts layouts;

	ck_assert_int_eq(rb_joint_even(&layouts, joint, count, chunk, 1), RUBATO_OK);
	ck_assert_int_eq(rb_joint_check(joint, &layouts, d->in_place, INSTANCES, NULL, result),
			 RUBATO_OK);
	rb_joint_layouts_free(&layouts);
	return result->proved;
}

/* What staging adds: slots, and steps of the device's. */
static uint64_t added(const struct rb_joint *joint)
{
	uint64_t count = 0;

	for (uint32_t r = 0; r < joint->rank_count; r++) {
		const struct rb_schedule *s = &joint->schedules[r];

		count += s->stage_slots[0] + s->stage_slots[1];
		for (uint32_t i = 0; i < s->step_count; i++)
			count += (s->steps[i].flags & RB_STEP_DEVICE) != 0;
	}
	return count;
}

START_TEST(every_algorithm_stays_right)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	int times = test_length() == TEST_SHORT ? 12 : test_length() == TEST_NORMAL ? 60 : 1000;
	struct seeds seeds = seeds_from(__func__, 1, (uint64_t)times);
	uint64_t count = 0;
	struct draw d;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rb_check_result result;
		uint64_t blocks;

		d = (struct draw) { .rng = { seed * 64 + (uint64_t)_i } };
		struct rb_joint joint = joint_draw(&d, a);

		kinds_draw(&d, &joint);
		ck_assert_int_eq(rb_joint_stage(&joint, d.stagings), RUBATO_OK);
		count += added(&joint);
		blocks = rb_algorithm_blocks(a, joint.rank_count, joint.nodes);
		ck_assert_msg(prove(&d, &joint, &result,
				    a->kind == RB_KIND_BARRIER
					    ? 0
					    : blocks * 2 * (1 + seed % 5) + seed % 2,
				    2),
			      "%s %s, %u ranks, seed %llu: %s", rb_kind_name(a->kind), a->name,
			      joint.rank_count, (unsigned long long)seed, result.text);
		rb_joint_free(&joint);
	}
	/* Puts out of OUT into OUT: either both are reached, or none is on a device. */
	if (a->kind != RB_KIND_BARRIER && !(a->flags & RB_SCHEDULE_PUT))
		ck_assert_uint_gt(count, 0);
}
END_TEST

/* ---- What must be found ---- */

/* A ring with all buffers on devices, of which step `index` of rank 0 is then spoilt. */
static struct rb_joint ring_of_devices(struct draw *d)
{
	struct rb_joint joint = { .rank_count = 3 };

	joint.algorithm = &rb_algorithms[rb_algorithm_find(RB_KIND_ALLREDUCE, "ring")];
	*d = (struct draw) { .in_place = false };
	for (uint32_t r = 0; r < 3; r++)
		d->stagings[r] = (struct rb_staging) {
			.kinds = { RB_MEMORY_DEVICE, RB_MEMORY_DEVICE, RB_MEMORY_HOST }, .depth = 2
		};
	ck_assert_int_eq(rb_joint_build(&joint), RUBATO_OK);
	ck_assert_int_eq(rb_joint_stage(&joint, d->stagings), RUBATO_OK);
	return joint;
}

enum fault { BY_THE_HOST, DEVICE_SENT, UNORDERED, SLOT_TOO_SOON, FAULTS };

/* *gone: the dependency that it is about; {0, 0}: none. */
static bool spoil(struct rb_schedule *s, uint32_t index, enum fault fault, struct rb_dep *gone)
{
	struct rb_step *step = &s->steps[index];
	struct rb_dep *dep = &s->deps[step->dep];

	switch (fault) {
	case BY_THE_HOST: /* A device's step is carried out by the host. */
		if (!(step->flags & RB_STEP_DEVICE))
			return false;
		step->flags &= (uint8_t)~RB_STEP_DEVICE;
		return true;
	case DEVICE_SENT: /* A message goes out of device memory. */
		if (step->kind != RB_STEP_SEND || s->spans[step->from].buffer < RB_BUF_STAGE_HOST)
			return false;
		s->spans[step->from] = rb_span_in(RB_SELF);
		return true;
	case UNORDERED: /* It goes before the copy into its slot is there. */
		if (step->kind != RB_STEP_SEND || s->spans[step->from].buffer < RB_BUF_STAGE_HOST)
			return false;
		step->dep_count = 0;
		return true;
	case SLOT_TOO_SOON: /* The copy does not wait until the slot is free. */
		for (uint32_t i = 0; i < step->dep_count; i++)
			if (dep[i].lag == 2) {
				*gone = dep[i];
				dep[i] = dep[--step->dep_count];
				return true;
			}
		return false;
	case FAULTS:
		break;
	}
	return false;
}

/* Whether the rest says the same as the dependency that is gone. */
static bool implied(const struct rb_joint *joint, uint32_t index, struct rb_dep gone)
{
	struct rb_joint_layouts layouts;
	struct rb_check_result result;
	struct rb_check check = { .kind = joint->algorithm->kind,
				  .schedules = joint->schedules,
				  .rank_count = joint->rank_count,
				  .instances = INSTANCES,
				  .implied_step = index,
				  .implied_dep = gone };

	ck_assert_int_eq(rb_joint_even(&layouts, joint, COUNT, 2, 1), RUBATO_OK);
	check.layouts = layouts.each;
	ck_assert_int_eq(rb_check_schedules(&check, &result), RUBATO_OK);
	rb_joint_layouts_free(&layouts);
	return result.implied;
}

START_TEST(what_is_wrong_is_found)
{
	uint32_t tried = 0, found = 0;
	struct draw d;

	for (uint32_t index = 0;; index++) {
		struct rb_joint joint = ring_of_devices(&d);
		struct rb_check_result result;
		bool over = index >= joint.schedules[0].step_count;

		struct rb_dep gone = { 0, 0 };

		if (!over && spoil(&joint.schedules[0], index, (enum fault)_i, &gone) &&
		    !(gone.lag != 0 && implied(&joint, index, gone))) {
			tried++;
			found += !prove(&d, &joint, &result, COUNT, 2);
		}
		rb_joint_free(&joint);
		if (over)
			break;
	}
	ck_assert_uint_gt(tried, 2);
	ck_assert_uint_eq(found, tried);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("kinds");

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, every_algorithm_stays_right, 0, (int)rb_algorithm_count);
	tcase_add_loop_test(tc, what_is_wrong_is_found, 0, FAULTS);
	return check_main("stage", tc);
}
