/*
 * random_program.c -- a program that a seed draws, run by every rank of a job against the public
 * functions alone; each result is held against what a plain computation says.
 *
 * usage: random_program --seed S [--steps N]
 *
 * All ranks draw the same steps; how a rank goes through them (when it naps, in which order it
 * waits, where its buffers are, when it looks at results) is drawn from its number, too. What is
 * wrong is one line, and exit status 1; else each rank ends with a line of what it has done.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "random.h"

/* ---- What others call ---- */

void doing(struct place *place, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(place->doing, sizeof(place->doing), format, arguments);
	va_end(arguments);
}

void fail(const struct place *place, const char *format, ...)
{
	const struct program *program = place->program;
	char text[600];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	(void)fprintf(stderr,
		      "random_program: seed %" PRIu64
		      " step %u rank %u (%u of place %td): %s: %s\n",
		      program->seed, program->step, program->rank, place->rank,
		      place - program->places, place->doing, text);
	_exit(1);
}

void must(const struct place *place, rubato_status status)
{
	if (status != RUBATO_OK)
		fail(place, "expected ok, got %s: %s", rubato_status_name(status),
		     rubato_error_text());
}

void must_be(const struct place *place, rubato_status expected, rubato_status status)
{
	if (status != expected)
		fail(place, "expected %s, got %s", rubato_status_name(expected),
		     rubato_status_name(status));
}

void nap_unseen(uint32_t us)
{
	struct timespec span = { .tv_nsec = (long)us * 1000 };

	(void)nanosleep(&span, NULL);
}

void nap(struct place *place, uint32_t us)
{
	nap_unseen(us);
	count(place, NAP);
}

void count(struct place *place, enum other what)
{
	place->done[DONE_OTHER(what)]++;
}

/* ---- A place ---- */

void place_step(struct place *place)
{
	uint32_t what = below(&place->common, 100);

	if (one_in(&place->own, 10))
		nap(place, below(&place->own, one_in(&place->own, 10) ? 10000 : 1000));
	if (one_in(&place->own, 12))
		step_refused(place);
	if (one_in(&place->own, 12))
		step_memory(place);
	if (one_in(&place->own, 20))
		step_look(place);
	if (what < 35)
		step_call(place);
	else if (what < 72)
		step_persistent(place);
	else if (what < 82)
		step_messages(place);
	else if (what < 86)
		step_cancel(place);
	else if (what < 94)
		step_settings(place);
	else if (what < 97)
		step_lagged(place);
	else
		step_partial(place);
}

void place_end(struct place *place)
{
	operations_end(place);
	parcels_end(place);
	held_check(place);
}

static void place_begin(struct program *program, uint32_t slot, rubato_comm *comm, uint64_t seed)
{
	struct place *place = &program->places[slot];
	uint64_t done[DONE_COUNT];

	memcpy(done, place->done, sizeof(done));
	*place = (struct place) { .program = program,
				  .comm = comm,
				  .rank = rubato_rank(comm),
				  .size = rubato_size(comm),
				  .wanted = KINDS,
				  .common = { seed },
				  .own = { mixed(draw(&program->own), slot) } };
	memcpy(place->done, done, sizeof(done));
}

/* ---- Communicators ---- */

static void child_end(struct program *program, uint32_t slot)
{
	struct place *place = &program->places[slot];

	if (place->comm == NULL)
		return;
	place_end(place);
	doing(place, "rubato_finalize");
	must(place, rubato_finalize(place->comm));
	place->comm = NULL;
	count(place, CHILD_FINALIZED);
}

/* The number of `rank` among those of its color. */
static uint32_t number_of(const uint32_t *colors, const int32_t *keys, uint32_t size, uint32_t rank,
			  uint32_t *members)
{
	uint32_t before = 0;

	*members = 0;
	for (uint32_t r = 0; r < size; r++) {
		if (colors[r] != colors[rank])
			continue;
		++*members;
		before += keys[r] < keys[rank] || (keys[r] == keys[rank] && r < rank);
	}
	return before;
}

/* What was in the slot ends; the ranks of `from` come to new places there. */
static void split(struct program *program, uint32_t from, uint32_t slot)
{
	struct place *place = &program->places[from];
	uint32_t colors[RANKS_MAX], color, number, members;
	int32_t keys[RANKS_MAX];
	rubato_comm *child = NULL;
	uint64_t seed;

	child_end(program, slot);
	if (place->comm == NULL)
		return;
	seed = draw(&place->common);
	for (uint32_t r = 0; r < place->size; r++) {
		colors[r] =
			one_in(&place->common, 6) ? RUBATO_COLOR_NONE : below(&place->common, 2);
		keys[r] = (int32_t)below(&place->common, 4) - 2;
	}
	color = colors[place->rank];
	doing(place, "rubato_split color %u key %d", color, keys[place->rank]);
	must(place, rubato_split(place->comm, color, keys[place->rank], &child));
	count(place, from == 0 ? SPLIT : SPLIT_OFF_CHILD);
	if (color == RUBATO_COLOR_NONE) {
		if (child != NULL)
			fail(place, "expected no communicator");
		return;
	}
	number = number_of(colors, keys, place->size, place->rank, &members);
	if (rubato_size(child) != members || rubato_rank(child) != number)
		fail(place, "expected rank %u of %u, got %u of %u", number, members,
		     rubato_rank(child), rubato_size(child));
	place_begin(program, slot, child, mixed(seed, color));
}

/* ---- Two places at a time ---- */

#define BESIDE_CALLS 4

static void *beside_main(void *arg)
{
	struct place *place = arg;

	for (uint32_t i = 0; i < BESIDE_CALLS; i++)
		step_call(place);
	step_messages(place);
	return NULL;
}

static void beside(struct program *program, uint32_t slot)
{
	struct place *first = &program->places[0], *second = &program->places[slot];
	pthread_t thread;

	if (second->comm != NULL && pthread_create(&thread, NULL, beside_main, second) != 0)
		fail(second, "no thread");
	(void)beside_main(first);
	if (second->comm == NULL)
		return;
	(void)pthread_join(thread, NULL);
	count(second, BESIDE);
}

/* ---- The program ---- */

static void step(struct program *program)
{
	uint32_t what = below(&program->common, 40);
	uint32_t slot = 1 + below(&program->common, PLACES - 1);

	if (what == 0)
		split(program, 0, slot);
	else if (what == 1 && slot > 1)
		split(program, slot - 1, slot);
	else if (what == 2)
		child_end(program, slot);
	else if (what == 3)
		beside(program, slot);
	else if (what >= 12)
		place_step(&program->places[0]);
	else if (program->places[slot].comm != NULL) {
		place_step(&program->places[slot]);
		count(&program->places[slot], CHILD_STEPS);
	}
}

static void done_print(const struct program *program)
{
	static const char *const others[OTHERS] = {
		"in_place",
		"allocated",
		"held_long",
		"polled",
		"empty",
		"odd_floats",
		"started_again",
		"freed_beside",
		"messages_any_order",
		"messages_blocking",
		"messages_expected",
		"messages_waiting",
		"messages_unexpected",
		"messages_to_self",
		"messages_both_ways",
		"woken",
		"receive_cancelled",
		"receive_timed_out",
		"cancel_raced",
		"send_cancelled",
		"split",
		"split_off_child",
		"child_finalized",
		"child_steps",
		"beside",
		"memory",
		"registered",
		"forced",
		"unsupported",
		"wire",
		"accumulate",
		"refused",
		"lagged",
		"partial",
		"nap",
		"look",
	};
	char line[4096] = "done";

	for (uint32_t i = 0; i < DONE_COUNT; i++) {
		const char *prefix = "", *name;
		uint64_t total = 0;
		size_t used = strlen(line);

		if (i < 2 * KINDS) {
			prefix = i < KINDS ? "" : "op_";
			name = kind_name((enum kind)(i % KINDS));
			if (i == HELPED) /* There is no blocking one. */
				continue;
		} else if (i < DONE_TYPE(0)) {
			name = others[i - DONE_OTHER(0)];
		} else if (i < DONE_OPERATOR(0)) {
			name = rubato_type_name((rubato_type)(i - DONE_TYPE(0)));
		} else if (i < DONE_POLICY(0)) {
			name = rubato_operator_name((rubato_operator)(i - DONE_OPERATOR(0)));
		} else {
			name = rubato_policy_name((rubato_policy)(i - DONE_POLICY(0)));
		}
		for (uint32_t p = 0; p < PLACES; p++)
			total += program->places[p].done[i];
		(void)snprintf(line + used, sizeof(line) - used, " %s%s=%" PRIu64, prefix, name,
			       total);
	}
	(void)puts(line);
}

static int usage(void)
{
	(void)fprintf(stderr, "usage: random_program --seed S [--steps N]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static struct program program;
	const char *background = getenv("RUBATO_BACKGROUND");
	uint32_t steps = 100;
	rubato_comm *comm;

	for (int i = 1; i < argc; i += 2) {
		if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
			program.seed = strtoull(argv[i + 1], NULL, 10);
		else if (i + 1 < argc && strcmp(argv[i], "--steps") == 0)
			steps = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else
			return usage();
	}
	if (rubato_init(&comm, NULL) != RUBATO_OK || rubato_size(comm) > RANKS_MAX) {
		(void)fprintf(stderr, "random_program: %s\n", rubato_error_text());
		return 1;
	}
	program.background = background == NULL || strcmp(background, "0") != 0;
	program.rank = rubato_rank(comm);
	program.size = rubato_size(comm);
	program.common.state = mixed(program.seed, 0);
	program.own.state = mixed(program.seed, 1 + program.rank);
	place_begin(&program, 0, comm, mixed(program.seed, 1u << 31));
	step_woken(&program.places[0]);
	for (; program.step < steps; program.step++)
		step(&program);
	for (uint32_t slot = 1; slot < PLACES; slot++)
		child_end(&program, slot);
	place_end(&program.places[0]);
	doing(&program.places[0], "rubato_finalize");
	must(&program.places[0], rubato_finalize(comm));
	done_print(&program);
	return 0;
}
