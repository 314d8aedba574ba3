/*
 * rounds_world.c -- the worlds of rounds_world.h: time, the network, faults, how a world begins
 * and ends. What a machine should do is told by rounds_world_laws.c, what its application does
 * and is given by rounds_world_application.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rounds_world_inside.h"

#define LATER_POLICIES 6 /* From this one on: never raised. */

void world_broke(struct world *w, const char *format, ...)
{
	va_list args;
	const rubato_partial_options *o = &w->config.options;
	int length = snprintf(
		w->text, w->text_bytes,
		"%u ranks, %u members, policy %d, rounds %d, late %d, collection %d, t=%" PRIu64
		": ",
		w->n, member_count(w), (int)o->policy, (int)o->rounds, (int)o->late,
		(int)o->collection, w->now);

	va_start(args, format);
	(void)vsnprintf(w->text + length, w->text_bytes - (size_t)length, format, args);
	va_end(args);
	longjmp(w->broken, 1);
}

/* ---- Time ---- */

static bool sooner(const struct event *a, const struct event *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

void world_at(struct world *w, uint64_t delay, enum happening kind, uint32_t rank, uint32_t peer,
	      uint64_t value)
{
	struct event event = { .at = w->now + delay,
			       .order = w->order++,
			       .kind = kind,
			       .rank = rank,
			       .peer = peer,
			       .value = value };
	uint32_t i = w->heap_count++;

	LAW(w, w->heap_count <= EVENTS_MAX, "the harness holds too few events");
	for (; i > 0 && sooner(&event, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = event;
}

static struct event next_event(struct world *w)
{
	struct event top = w->heap[0], moved = w->heap[--w->heap_count];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= w->heap_count)
			break;
		if (child + 1 < w->heap_count && sooner(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!sooner(&w->heap[child], &moved))
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = moved;
	return top;
}

uint64_t world_delay(struct world *w)
{
	return 1 + (chance(w, 10) ? below(w, 20 * w->slow) : below(w, w->slow));
}

/* ---- The network ---- */

static void letter_send(struct world *w, uint32_t from, uint32_t to, const uint8_t *message)
{
	uint32_t l = w->letter_free;

	LAW(w, from != to && to < w->n, "rank %u sends to %u", from, to);
	LAW(w, l != NONE, "the harness holds too few messages");
	LAW(w,
	    w->dead_count > 0 ||
		    rb_rounds_neighbour(&((struct rb_rounds_config) { .rank = from,
								      .rank_count = w->n,
								      .nodes = w->config.nodes,
								      .few = w->config.few }),
					to),
	    "rank %u sends to %u, which is no neighbour", from, to);
	w->letter_free = w->letters[l].next;
	w->letters[l].next = NONE;
	memcpy(w->letters[l].message, message, sizeof(w->letters[l].message));
	if (w->first[from][to] == NONE)
		w->first[from][to] = l;
	else
		w->letters[w->last[from][to]].next = l;
	w->last[from][to] = l;
	world_at(w, world_delay(w), LETTER, to, from, 0);
}

static bool letter_take(struct world *w, uint32_t from, uint32_t to, uint8_t *message)
{
	uint32_t l = w->first[from][to];

	if (l == NONE)
		return false; /* Lost in a crash. */
	memcpy(message, w->letters[l].message, sizeof(w->letters[l].message));
	w->first[from][to] = w->letters[l].next;
	w->letters[l].next = w->letter_free;
	w->letter_free = l;
	return true;
}

/* The last messages of a pair are lost. */
static void letters_cut(struct world *w, uint32_t from, uint32_t to)
{
	uint32_t count = 0, l;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];

	for (l = w->first[from][to]; l != NONE; l = w->letters[l].next)
		count++;
	if (count == 0)
		return;
	count = (uint32_t)below(w, count + 1);
	if (count == 0) {
		while (letter_take(w, from, to, message))
			;
		return;
	}
	for (l = w->first[from][to]; --count > 0;)
		l = w->letters[l].next;
	w->letters[w->last[from][to]].next = NONE;
	while (w->letters[l].next != NONE) {
		uint32_t gone = w->letters[l].next;

		w->letters[l].next = w->letters[gone].next;
		w->letters[gone].next = w->letter_free;
		w->letter_free = gone;
	}
	w->last[from][to] = l;
}

static void done(struct world *w, uint32_t r, const struct rb_protocol_action *action)
{
	struct rank *rank = &w->ranks[r];
	uint64_t number = action->value / RB_ROUNDS_EVENTS;

	switch ((enum rb_rounds_done)(action->value % RB_ROUNDS_EVENTS)) {
	case RB_ROUNDS_COMPLETED:
		world_completed(w, r, number);
		break;
	case RB_ROUNDS_DIFFERING:
		LAW(w, false, "rank %u finds other numbers in %" PRIu64, r, number);
		break;
	case RB_ROUNDS_ENDED:
		LAW(w, !rank->ended && w->dead_count > 0 && number == rank->completed,
		    "rank %u ends after %" PRIu64, r, number);
		rank->ended = true;
		break;
	}
	if (rank->state == WAITING) {
		rank->state = COLLECTING;
		world_at(w, below(w, 20), APPLICATION, r, 0, 0);
	}
}

static void acts_note(struct world *w, uint32_t r, const struct rb_protocol_actions *actions)
{
	uint64_t acts = w->totals->acts ^ rb_mix(w->now * RANKS_MAX + r);

	for (uint32_t i = 0; i < actions->count; i++) {
		const struct rb_protocol_action *action = &actions->item[i];
		uint64_t words[RB_PROTOCOL_MESSAGE_BYTES / 8];

		acts = rb_mix(acts ^ rb_mix(action->value * 8 + action->act) ^ action->peer);
		if (action->act != RB_PROTOCOL_SEND && action->act != RB_PROTOCOL_SEND_ALL)
			continue; /* It has no message. */
		memcpy(words, action->message, sizeof(words));
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			acts = rb_mix(acts ^ words[k]);
	}
	w->totals->acts = acts;
}

static void actions_do(struct world *w, uint32_t r, const struct rb_protocol_actions *actions)
{
	acts_note(w, r, actions);
	for (uint32_t i = 0; i < actions->count; i++) {
		const struct rb_protocol_action *action = &actions->item[i];

		switch (action->act) {
		case RB_PROTOCOL_SEND:
			letter_send(w, r, action->peer, action->message);
			break;
		case RB_PROTOCOL_SEND_ALL:
			for (uint32_t p = 0; p < w->n; p++)
				if (p != r && !w->ranks[r].knows[p])
					letter_send(w, r, p, action->message);
			break;
		case RB_PROTOCOL_RUN:
			world_run_start(w, r, action);
			break;
		case RB_PROTOCOL_WAKE:
			LAW(w, action->value >= w->now, "rank %u wakes in the past", r);
			w->ranks[r].timer = action->value;
			world_at(w, action->value - w->now, TIMER, r, 0, action->value);
			break;
		case RB_PROTOCOL_DONE:
			done(w, r, action);
			break;
		}
	}
}

/* The machine passes over calls that it takes not to matter to rounds: then a look at them all must
 * find nothing. A deadline that is over may wait for its timer. */
static void passed_check(struct world *w, uint32_t r, const struct rb_protocol_event *event)
{
	const struct rb_protocol_event timer = { .kind = RB_PROTOCOL_TIMER, .now_ns = w->now };
	struct rb_rounds *m = w->ranks[r].machine;
	enum rb_rounds_phase phase = rb_rounds_phase_of(m);
	struct rb_protocol_actions actions;

	if (event->kind != RB_PROTOCOL_START || phase > RB_ROUNDS_REDUCING ||
	    w->config.options.policy == RUBATO_POLICY_DEADLINE)
		return;
	if (event->value != RB_ROUNDS_COLLECT && event->value != RB_ROUNDS_LOOK &&
	    event->value != RB_ROUNDS_RELEASE)
		return;
	actions.count = 0;
	rb_rounds_step(m, &timer, &actions);
	LAW(w, actions.count == 0 && rb_rounds_phase_of(m) == phase,
	    "rank %u has passed over what call %" PRIu64 " has brought about", r, event->value);
}

void world_event(struct world *w, uint32_t r, struct rb_protocol_event *event)
{
	struct rank *rank = &w->ranks[r];
	struct rb_protocol_actions actions;
	const char *what = "";
	bool idle = rb_rounds_is_idle(rank->machine);

	actions.count = 0;
	event->now_ns = w->now;
	LAW(w, rb_rounds_valid(rank->machine), "rank %u is not valid before an event", r);
	LAW(w, w->now <= rank->due || w->now <= rank->frozen_until,
	    "rank %u has slept over what was due at %" PRIu64, r, rank->due);
	rb_rounds_step(rank->machine, event, &actions);
	LAW(w, rb_rounds_valid(rank->machine), "rank %u is not valid", r);
	LAW(w, !rb_broken_take(&what), "rank %u: %s", r, what);
	passed_check(w, r, event);
	struct rb_rounds_view view = rb_rounds_view_of(rank->machine);
	uint64_t number = view.round;

	LAW(w,
	    RB_IMPLIES(idle && event->kind == RB_PROTOCOL_START &&
			       event->value == RB_ROUNDS_COLLECT,
		       view.offer != RB_ROUNDS_WAIT),
	    "rank %u waits for a round that it has nothing for", r);
	if (view.phase >= RB_ROUNDS_JOINING && view.phase <= RB_ROUNDS_REDUCING &&
	    rank->opened <= number) {
		/* Told before the actions, among which the join may be. */
		rank->opened = number + 1;
		rank->joining_since = w->now;
		if (!w->rounds[number].opened)
			world_round_opened(w, number, r);
	}
	actions_do(w, r, &actions);
	world_machine_check(w, r);
}

/* ---- Faults ---- */

static void crash(struct world *w)
{
	uint32_t dead = (uint32_t)below(w, w->n);
	bool foremost = chance(w, 50); /* Who has completed most: the rest need what it has. */

	if (w->dead_count + 1 == w->n)
		return;
	while (w->ranks[dead].dead)
		dead = (dead + 1) % w->n;
	for (uint32_t r = 0; foremost && r < w->n; r++)
		if (!w->ranks[r].dead && w->ranks[r].completed > w->ranks[dead].completed)
			dead = r;
	for (uint32_t r = 0; r < w->n; r++) {
		struct rank *rank = &w->ranks[r];
		enum rb_rounds_phase phase = rb_rounds_view_of(rank->machine).phase;
		bool running = phase == RB_ROUNDS_EXCHANGING || phase == RB_ROUNDS_REDUCING;

		w->totals->late_crashes += r == dead && rank->ended;
		if (r == dead || rank->dead)
			continue;
		letters_cut(w, dead, r);
		/* What the dead rank had sent has come, or has not. */
		if ((running || rank->fetch_from == dead) && chance(w, 50))
			rank->run++;
		world_at(w, chance(w, 30) ? below(w, 3000) : world_delay(w), LOSS, r, dead, 0);
	}
	w->ranks[dead].dead = true;
	w->dead_count++;
	w->totals->crashes++;
}

static void happen(struct world *w, const struct event *e)
{
	struct rank *rank = &w->ranks[e->rank];
	struct rb_protocol_event event = { .peer = e->peer };

	switch (e->kind) {
	case LETTER:
		event.kind = RB_PROTOCOL_MESSAGE;
		if (letter_take(w, e->peer, e->rank, event.message) && !rank->knows[e->peer])
			world_event(w, e->rank, &event);
		break;
	case RUN_END:
		world_run_end(w, e);
		break;
	case TIMER:
		event.kind = RB_PROTOCOL_TIMER;
		if (rank->timer == e->value)
			world_event(w, e->rank, &event);
		break;
	case APPLICATION:
		world_application(w, e->rank);
		break;
	case GIVE_UP:
		world_give_up(w, e->rank, e->value);
		break;
	case MERGE_END:
		rank->merging--;
		world_call(w, e->rank, RB_ROUNDS_MERGED, NULL, 0);
		break;
	case LOSS:
		rank->knows[e->peer] = true;
		event.kind = RB_PROTOCOL_PEER_LOST;
		world_event(w, e->rank, &event);
		break;
	case CRASH:
		crash(w);
		break;
	case FREEZE:
		rank->frozen_until = w->now + below(w, 2000);
		w->totals->freezes++;
		break;
	}
}

/* ---- The end ---- */

static void end_check(struct world *w)
{
	uint64_t rounds = UINT64_MAX;

	for (uint32_t r = 0; r < w->n; r++) {
		struct rank *rank = &w->ranks[r];
		uint64_t delivered = 0;

		if (rank->dead)
			continue;
		rounds = rounds == UINT64_MAX ? rank->completed : rounds;
		LAW(w, rank->completed == rounds || w->config.options.policy == RUBATO_POLICY_WAGMA,
		    "rank %u ends after %" PRIu64 " rounds, not %" PRIu64, r, rank->completed,
		    rounds);
		for (uint64_t i = 0; i < rank->completed; i++)
			delivered |= w->rounds[i].sets[r];
		LAW(w,
		    rank->delivered == delivered && rank->joined == 0 &&
			    (rank->delivered | rank->discarded | rank->pending) == rank->produced &&
			    bits(rank->delivered) + bits(rank->discarded) + bits(rank->pending) ==
				    bits(rank->produced),
		    "rank %u: something is lost or twice there", r);
		if (w->dead_count > 0) {
			uint32_t lost = rb_rounds_lost(rank->machine);

			LAW(w, rank->ended, "rank %u never ends", r);
			LAW(w, lost < w->n && w->ranks[lost].dead, "rank %u names no lost one", r);
			continue;
		}
		LAW(w, rank->state == PARTING && rb_rounds_view_of(rank->machine).parted,
		    "rank %u is stuck in round %" PRIu64 ", phase %d, application %d", r,
		    rank->completed, (int)rb_rounds_view_of(rank->machine).phase, (int)rank->state);
		LAW(w, rank->pending == 0, "rank %u has something pending at the end", r);
	}
}

/* ---- The beginning ---- */

/* Worlds stay what their seeds have always stood for: policies that came after the first ones each
 * take some of them, by a stream of their own, and leave all others alone. */
static rubato_policy policy_draw(uint64_t seed, rubato_policy policy)
{
	for (uint32_t later = LATER_POLICIES; later < RUBATO_POLICY_COUNT; later++) {
		struct rb_rng own = { rb_mix(seed) + later };

		if (rb_rng_below(&own, later + 1) == 0)
			policy = (rubato_policy)later;
	}
	return policy;
}

_Static_assert(sizeof(rubato_partial_options) == 104, "a field more: what is drawn for it?");

/* Of a stream of its own, too. A group and a quorum are then numbers of nodes. */
static void members_draw(struct world *w, uint64_t seed)
{
	rubato_partial_options *o = &w->config.options;
	struct rb_rng own = { rb_mix(seed ^ 0x0de5) };
	bool alone = w->totals->members == ROUNDS_ALONE;
	uint32_t names[RANKS_MAX], most = 1 + (uint32_t)rb_rng_below(&own, w->n), count;

	w->config.nodes = NULL;
	if (!alone && (w->totals->members == ROUNDS_RANKS || rb_rng_below(&own, 3) > 0))
		return;
	for (uint32_t r = 0; r < w->n; r++)
		names[r] = alone ? r : (uint32_t)rb_rng_below(&own, most);
	if (!alone && rb_rng_below(&own, 3) == 0) /* Evenly: groups of them can be. */
		for (uint32_t r = 0; r < w->n; r++)
			names[r] = w->n % most == 0 ? r % most : 0;
	rb_nodes_make(&w->layout, w->layout_words, names, w->n);
	w->config.nodes = &w->layout;
	o->members = RUBATO_MEMBERS_NODES;
	count = w->layout.count;
	o->quorum = 1 + (o->quorum - 1) % count;
	o->group = 1 + (o->group - 1) % count;
	while (count % o->group != 0)
		o->group--;
	if (w->layout.least * count != w->n)
		o->group = count;
}

/* Of a stream of its own, too. */
static void few_draw(struct world *w, uint64_t seed)
{
	struct rb_rng own = { rb_mix(seed ^ 0xfe3) };

	w->config.few =
		w->totals->members == ROUNDS_DRAWN && rb_rng_below(&own, 2) == 0 ? RANKS_MAX : 0;
}

static void config_draw(struct world *w)
{
	rubato_partial_options *o = &w->config.options;
	uint64_t seed = w->rng.state;
	uint32_t n = 1 + (uint32_t)below(w, chance(w, 25) ? RANKS_MAX : 5);

	w->n = w->config.rank_count = n;
	w->config.average = chance(w, 60);
	*o = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	o->policy = policy_draw(seed, (rubato_policy)below(w, LATER_POLICIES));
	o->quorum = 1 + (uint32_t)below(w, n);
	o->group = 1 + (uint32_t)below(w, n);
	while (n % o->group != 0)
		o->group--;
	members_draw(w, seed);
	few_draw(w, seed);
	w->patience_rng = (struct rb_rng) { rb_mix(seed ^ 0x9a7e) };
	w->impatient = (uint32_t[]) { 0, 0, 30 }[rb_rng_below(&w->patience_rng, 3)];
	o->deadline_ns = below(w, 400);
	o->window_ns = chance(w, 30) ? below(w, 200) : 0;
	o->late = (rubato_late)below(w, 3);
	o->rounds = (rubato_rounds)below(w, 2);
	o->collection = chance(w, 40) ? RUBATO_COLLECT_EACH : (rubato_collection)below(w, 3);
	o->normalise = (rubato_normalise)below(w, 4);
	o->depth = 1 + (uint32_t)below(w, chance(w, 20) ? SLOTS_MAX : 4);
	o->full_every = chance(w, 30) ? 1 + (uint32_t)below(w, 6) : 0;
	o->max_absence = chance(w, 30) ? 1 + (uint32_t)below(w, 4) : 0;
	o->seed = rb_rng_next(&w->rng);
	w->segments = 1 + (uint32_t)below(w, 3);
	w->blind = (uint32_t[]) { 0, 10, 90 }[below(w, 3)];
	w->holds = (uint32_t[]) { 0, 10, 90 }[below(w, 3)];
	w->waits = (uint32_t[]) { 0, 0, 30 }[below(w, 3)];
	w->gaps = chance(w, 20);
	w->parts_at_once = chance(w, 20);
	w->slow = (uint64_t[]) { 5, 80, 400 }[below(w, 3)];
}

static void world_begin(struct world *w)
{
	w->now = w->order = w->base_round = 0;
	w->heap_count = w->dead_count = 0;
	config_draw(w);
	for (uint32_t i = 0; i < LETTERS_MAX; i++)
		w->letters[i].next = i + 1 < LETTERS_MAX ? i + 1 : NONE;
	w->letter_free = 0;
	memset(w->first, 0xff, sizeof(w->first));
	memset(w->ranks, 0, sizeof(w->ranks));
	memset(w->passive, 0, sizeof(w->passive));
	memset(w->absent, 0, sizeof(w->absent));
	memset(&w->rounds[0], 0, sizeof(w->rounds[0]));
	world_round_expect(w, 0);
	for (uint32_t r = 0; r < w->n; r++) {
		struct rank *rank = &w->ranks[r];

		w->config.rank = r;
		LAW(w, rb_rounds_bytes(&w->config) <= sizeof(w->memory[r]), "memory");
		rank->machine = (struct rb_rounds *)(void *)w->memory[r];
		LAW(w, rb_rounds_init(rank->machine, &w->config) == RUBATO_OK, "%s",
		    rubato_error_text());
		rank->caught_up = true;
		rank->fetch_from = NONE;
		rank->state = COLLECTING;
		rank->lent = rank->cut = rank->due = NEVER;
		memset(rank->kept, 0xff, sizeof(rank->kept));
		world_segment_begin(w, r, 0);
		world_at(w, below(w, 100), APPLICATION, r, 0, 0);
		if (chance(w, 5))
			world_at(w, below(w, 3000), FREEZE, r, 0, 0);
	}
	uint64_t crash_at = below(w, 3000);
	bool close = chance(w, 50);

	for (uint64_t i = chance(w, 30) ? 1 + below(w, 4) : 0; i > 0; i--)
		world_at(w, close ? crash_at + below(w, 10 * w->slow) : below(w, 3000), CRASH, 0, 0,
			 0);
}

static void world_go(struct world *w)
{
	uint64_t count = 0;

	world_begin(w);
	while (w->heap_count > 0) {
		struct event e = next_event(w);

		w->now = e.at;
		LAW(w, ++count < EVENTS_LIMIT, "it never ends");
		if (e.kind != CRASH && w->ranks[e.rank].dead)
			continue;
		if (e.kind != CRASH && w->ranks[e.rank].frozen_until > w->now)
			world_at(w, w->ranks[e.rank].frozen_until - w->now, e.kind, e.rank, e.peer,
				 e.value);
		else
			happen(w, &e);
	}
	w->totals->events += count;
	end_check(w);
}

const char *rounds_world_run(uint64_t seed, struct rounds_totals *totals, char *text,
			     size_t text_bytes)
{
	struct world *w = malloc(sizeof(*w));
	bool fine = false;

	if (w == NULL)
		return "out of memory";
	w->rng = (struct rb_rng) { seed };
	w->totals = totals;
	w->text = text;
	w->text_bytes = text_bytes;
	if (setjmp(w->broken) == 0) {
		world_go(w);
		fine = true;
	}
	free(w);
	return fine ? NULL : text;
}
