/*
 * test_straggler.c -- the machine that names the late rank, in every order of events: all starts of
 * 3 to 5 ranks, all deliveries of their messages (in order between two ranks), with a rank lost at
 * any moment or none. Orders that come to the same state are followed once. Laws, in every state:
 *
 *   agreement   all that name a rank for an instance name the same, once
 *   knowledge   nothing is named before all ranks but one have begun
 *   progress    when all, or all but one, have begun, and nothing is on its way to those, they have
 *               named one: the one that has not begun, whether or not it has looked at its messages
 *   loss        whoever hears of a loss before the name is told of it, each time it begins; and
 *               nobody is told without a loss
 *
 * Then the same with faults in the machine's source (straggler_faults.py): each must break a law.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/straggler.h"
#include "tests/check_main.h"
#include "tests/faults.h"
#include "tests/length.h"

#define RANKS_MAX 5
#define QUEUE 4 /* Messages of a pair on their way at once. */
#define NONE UINT32_MAX
#define NAMES 3 /* Instances, at most. */

struct message {
	uint8_t kind, rank, instance;
};

struct state { /* All that the future depends on: compared and hashed as it lies, padding zero. */
	struct rb_straggler machines[RANKS_MAX]; /* has_arrived: NULL while it is stored. */
	uint8_t arrived[RANKS_MAX][2 * RANKS_MAX];
	struct message queues[RANKS_MAX][RANKS_MAX][QUEUE];
	uint8_t queued[RANKS_MAX][RANKS_MAX];
	uint8_t begun[RANKS_MAX], ended[RANKS_MAX]; /* Instances; named or told of a loss. */
	uint8_t names[RANKS_MAX][NAMES + 1];        /* By instance; 0xff: told of a loss. */
	uint8_t lost, knows[RANKS_MAX];             /* The lost rank + 1; who has heard of it. */
};

struct world {
	uint32_t ranks, instances;
	bool losses;
	struct state *stack;
	size_t depth, room;
	uint64_t *seen; /* A set of hashes: 0 is empty. */
	size_t seen_count, seen_room;
	const char *broken; /* The law. */
};

static unsigned int fault_now; /* 0: none. */

bool fault_chosen(unsigned int number)
{
	return number == fault_now;
}

/* ---- The set of states ---- */

static uint64_t hash_of(const struct state *s)
{
	const uint8_t *bytes = (const uint8_t *)s;
	uint64_t hash = 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < sizeof(*s); i += 8) {
		uint64_t word = 0;

		memcpy(&word, bytes + i, sizeof(*s) - i < 8 ? sizeof(*s) - i : 8);
		hash = (hash ^ word) * 0xff51afd7ed558ccdu;
		hash ^= hash >> 32;
	}
	return hash | 1;
}

static bool insert(uint64_t *set, size_t room, uint64_t hash)
{
	size_t at = hash % room;

	while (set[at] != 0 && set[at] != hash)
		at = (at + 1) % room;
	if (set[at] == hash)
		return false;
	set[at] = hash;
	return true;
}

static bool is_new(struct world *w, uint64_t hash)
{
	if (w->seen_count * 2 >= w->seen_room) {
		size_t room = w->seen_room > 0 ? w->seen_room * 4 : 1 << 16;
		uint64_t *more = calloc(room, sizeof(*more));

		ck_assert_ptr_nonnull(more);
		for (size_t i = 0; i < w->seen_room; i++)
			if (w->seen[i] != 0)
				(void)insert(more, room, w->seen[i]);
		free(w->seen);
		w->seen = more;
		w->seen_room = room;
	}
	if (!insert(w->seen, w->seen_room, hash))
		return false;
	w->seen_count++;
	return true;
}

static void push(struct world *w, const struct state *s)
{
	if (w->broken != NULL || !is_new(w, hash_of(s)))
		return;
	if (w->depth == w->room) {
		w->room = w->room > 0 ? w->room * 2 : 1024;
		w->stack = realloc(w->stack, w->room * sizeof(*w->stack));
		ck_assert_ptr_nonnull(w->stack);
	}
	w->stack[w->depth++] = *s;
}

/* ---- One step ---- */

static void law(struct world *w, bool holds, const char *name)
{
	if (!holds && w->broken == NULL)
		w->broken = name;
}

static void send(struct world *w, struct state *s, uint32_t from, uint32_t to, const uint8_t *bytes)
{
	struct rb_straggler_message message;

	memcpy(&message, bytes, sizeof(message));
	if (s->lost == to + 1 && s->knows[from])
		return;
	law(w, rb_straggler_neighbour(to, from), "a message to one that does not listen");
	if (s->queued[from][to] == QUEUE) {
		law(w, false, "more messages than there can be");
		return;
	}
	s->queues[from][to][s->queued[from][to]++] =
		(struct message) { (uint8_t)message.kind, (uint8_t)message.rank,
				   (uint8_t)message.instance };
}

static void named(struct world *w, struct state *s, uint32_t r, uint64_t value)
{
	uint8_t instance = s->begun[r];
	uint32_t begun = 0;

	law(w, instance > 0 && s->ended[r] < instance, "named twice, or what was not begun");
	law(w, value < w->ranks, "a rank that there is not");
	if (w->broken != NULL)
		return;
	s->ended[r] = instance;
	s->names[r][instance] = (uint8_t)value;
	for (uint32_t q = 0; q < w->ranks; q++) {
		begun += s->begun[q] >= instance;
		if (s->ended[q] >= instance && s->names[q][instance] != 0xff)
			law(w, s->names[q][instance] == value, "agreement");
	}
	law(w, begun >= w->ranks - 1, "named before all but one have begun");
}

static void step(struct world *w, struct state *s, uint32_t r, struct rb_protocol_event *event)
{
	struct rb_protocol_actions out = { 0 };
	struct rb_straggler *m = &s->machines[r];

	event->now_ns = 0;
	for (uint32_t i = 0; i < 2; i++)
		m->instances[i].has_arrived =
			r < RB_STRAGGLER_JUDGES ? &s->arrived[r][i * w->ranks] : NULL;
	rb_straggler_step(m, event, &out);
	for (uint32_t i = 0; i < 2; i++)
		m->instances[i].has_arrived = NULL;
	for (uint32_t i = 0; i < out.count; i++) {
		const struct rb_protocol_action *a = &out.item[i];

		if (a->act == RB_PROTOCOL_SEND)
			send(w, s, r, a->peer, a->message);
		for (uint32_t q = 0; a->act == RB_PROTOCOL_SEND_ALL && q < w->ranks; q++)
			if (q != r)
				send(w, s, r, q, a->message);
		if (a->act == RB_PROTOCOL_RUN)
			named(w, s, r, a->value);
		if (a->act != RB_PROTOCOL_DONE)
			continue;
		law(w, s->knows[r] && a->status == RUBATO_ERR_PEER && a->value + 1 == s->lost,
		    "told of a loss that is none");
		law(w, s->ended[r] < s->begun[r], "told of a loss after the end");
		s->ended[r] = s->begun[r];
		s->names[r][s->begun[r]] = 0xff;
	}
}

static void deliver(struct world *w, const struct state *from, uint32_t sender, uint32_t to)
{
	struct state s = *from;
	struct message *queue = s.queues[sender][to];
	struct rb_straggler_message message = { .kind = queue[0].kind,
						.rank = queue[0].rank,
						.instance = queue[0].instance };
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE, .peer = sender };

	memcpy(event.message, &message, sizeof(message));
	memmove(queue, queue + 1, (QUEUE - 1) * sizeof(*queue));
	memset(queue + QUEUE - 1, 0, sizeof(*queue));
	s.queued[sender][to]--;
	if (s.lost != to + 1)
		step(w, &s, to, &event);
	push(w, &s);
}

/* The allreduce of an instance ends on no rank before all have begun it and have its name. */
static bool may_begin(const struct world *w, const struct state *s, uint32_t r)
{
	if (s->begun[r] == w->instances || s->lost == r + 1)
		return false;
	for (uint32_t q = 0; q < w->ranks; q++)
		if (s->begun[q] < s->begun[r] || (q == r && s->ended[q] < s->begun[r]) ||
		    (s->begun[r] > 0 && s->names[r][s->begun[r]] == 0xff))
			return false;
	return true;
}

static void begin(struct world *w, const struct state *from, uint32_t r)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START };
	struct state s = *from;

	s.begun[r]++;
	step(w, &s, r, &event);
	if (s.knows[r])
		law(w, s.ended[r] == s.begun[r], "began after a loss, and was not told");
	push(w, &s);
}

static void lose(struct world *w, const struct state *from, uint32_t r)
{
	struct state s = *from;

	s.lost = (uint8_t)(r + 1);
	push(w, &s);
}

static void hear(struct world *w, const struct state *from, uint32_t r)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_PEER_LOST, .peer = from->lost - 1u };
	struct state s = *from;

	s.knows[r] = 1;
	step(w, &s, r, &event);
	law(w, s.ended[r] == s.begun[r], "heard of a loss, and was not told");
	push(w, &s);
}

/* Whether nothing is on its way to those that have begun the newest instance: a late rank need not
 * look at what comes. */
static bool is_quiet(const struct world *w, const struct state *s, uint8_t newest)
{
	for (uint32_t a = 0; a < w->ranks; a++)
		for (uint32_t b = 0; b < w->ranks; b++)
			if (s->queued[a][b] > 0 && s->begun[b] == newest)
				return false;
	return true;
}

static void judge_quiet(struct world *w, const struct state *s)
{
	uint8_t newest = 0;
	uint32_t begun = 0, last = NONE;

	for (uint32_t r = 0; r < w->ranks; r++)
		newest = s->begun[r] > newest ? s->begun[r] : newest;
	if (!is_quiet(w, s, newest))
		return;
	for (uint32_t r = 0; r < w->ranks; r++) {
		begun += s->begun[r] == newest;
		if (s->begun[r] < newest)
			last = r;
	}
	if (s->lost != 0 || newest == 0 || begun + 1 < w->ranks)
		return;
	for (uint32_t r = 0; r < w->ranks; r++) {
		if (s->begun[r] < newest)
			continue;
		law(w, s->ended[r] == newest, "progress");
		if (begun + 1 == w->ranks && s->ended[r] == newest)
			law(w, s->names[r][newest] == last, "not the one that is missing");
	}
}

static void follow(struct world *w, const struct state *s)
{
	judge_quiet(w, s);
	for (uint32_t a = 0; a < w->ranks; a++)
		for (uint32_t b = 0; b < w->ranks; b++)
			if (s->queued[a][b] > 0)
				deliver(w, s, a, b);
	for (uint32_t r = 0; r < w->ranks; r++) {
		if (may_begin(w, s, r))
			begin(w, s, r);
		if (w->losses && s->lost == 0)
			lose(w, s, r);
		if (s->lost != 0 && s->lost != r + 1 && !s->knows[r])
			hear(w, s, r);
	}
}

/* Returns the law that is broken, or NULL. */
static const char *explore(uint32_t ranks, uint32_t instances, bool losses, size_t *states)
{
	struct world w = { .ranks = ranks, .instances = instances, .losses = losses };
	struct state *first = calloc(1, sizeof(*first)), *s = malloc(sizeof(*s));

	ck_assert(first != NULL && s != NULL);
	for (uint32_t r = 0; r < ranks; r++) {
		struct rb_straggler m;

		rb_straggler_init(&m, r, ranks, first->arrived[r]);
		first->machines[r].rank = m.rank;
		first->machines[r].rank_count = m.rank_count;
	}
	push(&w, first);
	while (w.depth > 0 && w.broken == NULL) {
		*s = w.stack[--w.depth];
		follow(&w, s);
	}
	*states = w.seen_count;
	free(w.stack);
	free(w.seen);
	free(first);
	free(s);
	return w.broken;
}

START_TEST(every_order_of_events)
{
	static const struct {
		uint32_t ranks, instances;
		bool losses;
		enum test_length from;
	} worlds[] = {
		{ 3, 2, false, TEST_SHORT },  { 3, 1, true, TEST_NORMAL },
		{ 4, 1, false, TEST_NORMAL }, { 5, 1, false, TEST_LONG },
		{ 3, 2, true, TEST_LONG },    { 4, 1, true, TEST_LONG },
	};

	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		size_t states;

		if (worlds[i].from > test_length())
			continue;
		const char *broken =
			explore(worlds[i].ranks, worlds[i].instances, worlds[i].losses, &states);

		printf("%u ranks, %u instances%s: %zu states\n", worlds[i].ranks,
		       worlds[i].instances, worlds[i].losses ? ", losses" : "", states);
		ck_assert_msg(broken == NULL, "%u ranks: %s", worlds[i].ranks, broken);
		ck_assert_uint_ge(states, 100);
	}
}
END_TEST

START_TEST(every_fault_breaks_a_law)
{
	uint32_t survivors = 0;

	if (test_length() == TEST_SHORT)
		return;

	for (uint32_t i = 0; i < fault_count; i++) {
		const char *broken;
		size_t states;

		fault_now = i + 1;
		broken = explore(3, 2, false, &states);
		if (broken == NULL)
			broken = explore(3, 1, true, &states);
		if (broken == NULL)
			broken = explore(4, 1, false, &states);
		if (broken == NULL)
			broken = explore(3, 3, false, &states);
		printf("%-58s %s\n", faults[i].name, broken != NULL ? broken : "not caught");
		(void)fflush(stdout);
		survivors += broken == NULL;
	}
	fault_now = 0;
	ck_assert_uint_ge(fault_count, 10);
	ck_assert_uint_eq(survivors, 0);
}
END_TEST

/* ---- What no peer of ours would send ---- */

START_TEST(a_message_that_cannot_be_is_an_error)
{
	static const struct {
		uint32_t peer;
		struct rb_straggler_message message;
	} bad[] = {
		{ 1, { .kind = 0, .instance = 1 } },
		{ 1, { .kind = 3, .instance = 1 } },
		{ 1, { .kind = RB_STRAGGLER_ARRIVED, .instance = 0 } },
		{ 1, { .kind = RB_STRAGGLER_ARRIVED, .instance = 3 } },
		{ 1, { .kind = RB_STRAGGLER_ARRIVED, .instance = UINT64_MAX } },
		{ 1, { .kind = RB_STRAGGLER_VOTE, .instance = 1, .rank = 4 } },
		{ 3, { .kind = RB_STRAGGLER_VOTE, .instance = 1, .rank = 2 } },
		{ 0, { .kind = RB_STRAGGLER_ARRIVED, .instance = 1 } },
		{ 4, { .kind = RB_STRAGGLER_ARRIVED, .instance = 1 } },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_START };
		struct rb_protocol_actions out;
		uint8_t memory[8] = { 0 };
		struct rb_straggler m;

		ck_assert_uint_eq(rb_straggler_bytes(0, 4), sizeof(memory));
		rb_straggler_init(&m, 0, 4, memory);
		rb_straggler_step(&m, &event, &out);
		ck_assert_uint_eq(out.count, 2); /* To the two other judges. */
		event = (struct rb_protocol_event) { .kind = RB_PROTOCOL_MESSAGE,
						     .peer = bad[i].peer };
		memcpy(event.message, &bad[i].message, sizeof(bad[i].message));
		rb_straggler_step(&m, &event, &out);
		ck_assert_msg(out.count == 1 && out.item[0].act == RB_PROTOCOL_DONE, "message %zu",
			      i);
		ck_assert_int_eq(out.item[0].status, RUBATO_ERR_INTERNAL);
		ck_assert_uint_eq(out.item[0].value, bad[i].peer);
	}
}
END_TEST

START_TEST(a_second_vote_or_arrival_is_an_error)
{
	for (uint32_t kind = RB_STRAGGLER_ARRIVED; kind <= RB_STRAGGLER_VOTE; kind++) {
		struct rb_straggler_message message = { .kind = kind, .rank = 3, .instance = 1 };
		struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE, .peer = 1 };
		struct rb_protocol_actions out;
		uint8_t memory[8] = { 0 };
		struct rb_straggler m;

		rb_straggler_init(&m, 0, 4, memory);
		memcpy(event.message, &message, sizeof(message));
		rb_straggler_step(&m, &event, &out);
		ck_assert_uint_eq(out.count, 0);
		rb_straggler_step(&m, &event, &out);
		ck_assert_uint_eq(out.count, 0); /* Nothing was begun that could end. */
		event.kind = RB_PROTOCOL_START;
		rb_straggler_step(&m, &event, &out);
		ck_assert_uint_eq(out.count, 1);
		ck_assert_int_eq(out.item[0].status, RUBATO_ERR_INTERNAL);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("straggler");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, every_order_of_events);
	tcase_add_test(tc, every_fault_breaks_a_law);
	tcase_add_test(tc, a_message_that_cannot_be_is_an_error);
	tcase_add_test(tc, a_second_vote_or_arrival_is_an_error);
	return check_main("straggler", tc);
}
