/*
 * test_ahead.c -- proves what is left of schedules through mapped scratch when the ranks go ahead:
 * each has done its RB_STEP_AHEAD copies, then all meet, then follow the other steps. Instances
 * have two sets of slots in turn; with one set it must not be proved.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/build.h"
#include "collectives/checker/joint.h"
#include "tests/check_main.h"

#define INSTANCES 4
#define MEETING 1000 /* A channel that no schedule has. */
#define LEFT_OUT UINT32_MAX

/* Steps and dependencies of the schedule that is being made; its spans are the old one's. */
struct making {
	const struct rb_schedule *from;
	struct rb_step *steps;
	struct rb_dep *deps;
	uint32_t step_count, dep_count;
	uint32_t *now; /* Where a step of `from` is. */
	uint32_t waits, wait_count;
};

static void dep_add(struct making *m, uint32_t step)
{
	m->deps[m->dep_count++] = (struct rb_dep) { .step = step };
	m->steps[m->step_count - 1].dep_count++;
}

static struct rb_step *step_add(struct making *m, const struct rb_step *like)
{
	struct rb_step *step = &m->steps[m->step_count++];

	*step = *like;
	step->dep = m->dep_count;
	step->dep_count = 0;
	return step;
}

static bool is_copy_ahead(const struct rb_step *step)
{
	return step->kind == RB_STEP_COPY && step->flags & RB_STEP_AHEAD;
}

/* Before they meet nobody has said anything. */
static void copies_make(struct making *m)
{
	for (uint32_t i = 0; i < m->from->step_count; i++) {
		const struct rb_step *step = &m->from->steps[i];

		m->now[i] = LEFT_OUT;
		if (!is_copy_ahead(step))
			continue;
		for (uint32_t d = 0; d < step->dep_count; d++) {
			const struct rb_dep *dep = &m->from->deps[step->dep + d];

			ck_assert(dep->lag > 0 || m->from->steps[dep->step].flags & RB_STEP_ENTRY);
		}
		ck_assert_uint_eq(m->from->spans[step->to].rank, RB_SELF);
		ck_assert_uint_eq(m->from->spans[step->from].rank, RB_SELF);
		m->now[i] = m->step_count;
		(void)step_add(m, step);
	}
}

static void meeting_make(struct making *m, uint32_t rank, uint32_t n)
{
	uint32_t copies = m->step_count;

	for (uint32_t kind = 0; kind < 2; kind++)
		for (uint32_t i = 1; i < n; i++) {
			const struct rb_step step = {
				.kind = kind == 0 ? RB_STEP_NOTIFY : RB_STEP_WAIT,
				.flags = RB_STEP_ONCE,
				.channel = MEETING,
				.peer = (rank + i) % n,
				.to = RB_NO_SPAN,
			};

			(void)step_add(m, &step);
			for (uint32_t c = 0; kind == 0 && c < copies; c++)
				dep_add(m, c);
		}
	m->wait_count = n - 1;
	m->waits = m->step_count - m->wait_count;
}

static void rest_make(struct making *m)
{
	for (uint32_t i = 0; i < m->from->step_count; i++) {
		const struct rb_step *step = &m->from->steps[i];

		if (step->flags & (RB_STEP_ENTRY | RB_STEP_AHEAD))
			continue;
		m->now[i] = m->step_count;
		(void)step_add(m, step);
		for (uint32_t w = 0; w < m->wait_count; w++)
			dep_add(m, m->waits + w);
	}
}

/* Those that are not left out, of steps that are not: one iteration, so no lags. */
static void deps_make(struct making *m)
{
	struct rb_dep *deps = calloc((size_t)m->dep_count + m->from->dep_count + 1, sizeof(*deps));
	uint32_t count = 0;

	for (uint32_t s = 0; s < m->step_count; s++) {
		struct rb_step *step = &m->steps[s];
		uint32_t first = count;

		memcpy(deps + count, m->deps + step->dep, step->dep_count * sizeof(*deps));
		count += step->dep_count;
		for (uint32_t i = 0; i < m->from->step_count; i++)
			for (uint32_t d = 0; m->now[i] == s && d < m->from->steps[i].dep_count;
			     d++) {
				struct rb_dep dep = m->from->deps[m->from->steps[i].dep + d];

				dep.step = m->now[dep.step];
				if (dep.step != LEFT_OUT && dep.lag <= 0)
					deps[count++] = dep;
			}
		step->dep = first;
		step->dep_count = (uint16_t)(count - first);
	}
	free(m->deps);
	m->deps = deps;
	m->dep_count = count;
}

static void go_ahead(struct rb_schedule *s, uint32_t rank, uint32_t n, uint32_t sets)
{
	size_t steps = s->step_count + 2 * (size_t)n, waits = steps * steps;
	struct making m = { .from = s,
			    .steps = calloc(steps, sizeof(*m.steps)),
			    .deps = calloc(waits, sizeof(*m.deps)),
			    .now = calloc(steps, sizeof(*m.now)) };

	copies_make(&m);
	meeting_make(&m, rank, n);
	rest_make(&m);
	deps_make(&m);
	free(m.now);
	free(s->steps);
	free(s->deps);
	s->steps = m.steps;
	s->deps = m.deps;
	s->step_count = m.step_count;
	s->dep_count = m.dep_count;
	s->scratch_copies = sets;
	for (uint32_t i = 0; i < s->span_count; i++) /* The engine begins anew then. */
		s->spans[i] = rb_span_side(s->spans[i], false);
}

static bool proved(const struct rb_algorithm *a, uint32_t n, uint32_t root, uint64_t count,
		   uint32_t sets, bool in_place)
{
	bool told = rb_joint_told_in_place(a->kind);
	struct rb_joint joint = { .algorithm = a, .rank_count = n, .root = root };
	struct rb_joint_layouts layouts;
	struct rb_check_result result;

	joint.in_place = told && in_place;
	ck_assert_int_eq(rb_joint_build(&joint), RUBATO_OK);
	ck_assert_int_eq(rb_joint_even(&layouts, &joint, count, 1000, 1), RUBATO_OK);
	for (uint32_t r = 0; r < n; r++)
		go_ahead(&joint.schedules[r], r, n, sets);
	ck_assert_int_eq(rb_joint_check(&joint, &layouts, in_place, INSTANCES, NULL, &result),
			 RUBATO_OK);
	if (!result.proved && sets > 1)
		ck_abort_msg("%s %s, %u ranks, root %u, count %u%s: %s", rb_kind_name(a->kind),
			     a->name, n, root, (uint32_t)count, in_place ? ", in place" : "",
			     result.text);
	rb_joint_layouts_free(&layouts);
	rb_joint_free(&joint);
	return result.proved;
}

START_TEST(what_is_left_is_right)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	uint32_t roots;

	if (!(a->flags & RB_SCHEDULE_MAPPED_SCRATCH) || a->by_node)
		return;
	for (uint32_t n = 2; n <= RB_AHEAD_RANKS; n++) {
		roots = rb_algorithm_rooted(a) ? n : 1;
		for (uint32_t root = 0; root < roots; root++)
			for (uint64_t count = 1; count <= 3 * n; count += n + 1)
				for (int in_place = 0; in_place < 2; in_place++)
					ck_assert(proved(a, n, root, count, 2, in_place));
		/* Of two ranks of an allreduce, each is the last to read its slots. */
		if (a->kind != RB_KIND_ALLREDUCE || n > 2)
			ck_assert(!proved(a, n, 0, 3 * n, 1, false));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ahead");

	tcase_add_loop_test(tc, what_is_left_is_right, 0, (int)rb_algorithm_count);
	return check_main("ahead", tc);
}
