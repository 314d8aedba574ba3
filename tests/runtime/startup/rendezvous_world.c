/* rendezvous_world.c -- see rendezvous_world.h. */
#include "tests/runtime/startup/rendezvous_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"

#define NONE UINT32_MAX
#define HAPPENINGS_MAX 4000000 /* More than any run needs: then something goes in circles. */
#define CHOICES_MAX (WORLD_LINKS_MAX * 6 + WORLD_ACTORS_MAX * 5)

static const char secret_text[] = "the right secret", wrong_text[] = "the wrong secret";

enum choice_kind {
	CHOOSE_START,
	CHOOSE_TICK,
	CHOOSE_CONNECT,
	CHOOSE_GATHER,
	CHOOSE_ACCEPT,
	CHOOSE_SEND,    /* A side's outbox into the pipe. */
	CHOOSE_DELIVER, /* The pipe to the other side. */
	CHOOSE_TELL,    /* That the other side is gone. */
	CHOOSE_FAULT,
};

struct choice {
	enum choice_kind kind;
	uint32_t index;
	bool to_root;
};

static bool chance(struct world *w, uint32_t one_in)
{
	return rb_rng_below(&w->rng, one_in) == 0;
}

static void hash_add(struct world *w, uint64_t value)
{
	w->hash = rb_mix(w->hash ^ value) + 0x9e3779b97f4a7c15u;
}

/* ---- Making ---- */

static struct actor *actor_make(struct world *w, enum actor_kind kind, uint32_t rank,
				const char *secret)
{
	struct actor *a = &w->actors[w->actor_count++];
	struct rb_rv_options o = {
		.rank = rank,
		.rank_count = kind == ACTOR_WRONG_SIZE ? w->rank_count + 1 : w->rank_count,
		.root = "root:4000",
		.secret = secret,
		.secret_bytes = secret == NULL ? 0 : strlen(secret),
	};

	ck_assert_uint_le(w->actor_count, WORLD_ACTORS_MAX);
	memset(o.job, kind == ACTOR_WRONG_JOB ? 2 : rank == 0 ? 1 : 0, sizeof(o.job));
	for (size_t i = 0; i < sizeof(o.instance); i++)
		o.instance[i] = (uint8_t)rb_rng_next(&w->rng);
	*a = (struct actor) { .kind = kind,
			      .rank = rank,
			      .rank_count = o.rank_count,
			      .tables_right = true,
			      .starts_ns = rb_rng_below(&w->rng, UINT64_C(3000000000)) };
	memset(a->links, 0xff, sizeof(a->links));
	ck_assert_int_eq(rb_rv_init(&o, &a->machine), RUBATO_OK);
	return a;
}

struct actor *world_add(struct world *w, enum actor_kind kind, uint32_t rank, bool secret)
{
	return actor_make(w, kind, rank,
			  kind == ACTOR_WRONG_SECRET ? wrong_text
			  : secret                   ? secret_text
						     : NULL);
}

struct world *world_make(uint64_t seed, uint32_t rank_count, bool secret)
{
	struct world *w = calloc(1, sizeof(*w));

	ck_assert_ptr_nonnull(w);
	w->rng.state = seed;
	w->rank_count = rank_count;
	w->piece_max = 200;
	w->blob_max = 300;
	w->kill_actor = NONE;
	for (uint32_t i = 0; i < rank_count; i++)
		(void)world_add(w, ACTOR_MEMBER, i, secret);
	return w;
}

void world_free(struct world *w)
{
	for (uint32_t i = 0; i < w->actor_count; i++)
		rb_rv_fini(w->actors[i].machine);
	free(w);
}

/* ---- Blobs, which everybody can tell from rank and round ---- */

static size_t blob_make(const struct world *w, uint32_t rank, uint32_t round, uint8_t *blob)
{
	struct rb_rng rng = { rank * 1000u + round };
	size_t bytes = (size_t)rb_rng_below(&rng, w->blob_max + 1);

	for (size_t i = 0; i < bytes; i++)
		blob[i] = (uint8_t)rb_rng_next(&rng);
	return bytes;
}

static bool table_right(const struct world *w, const struct actor *a)
{
	static uint8_t expected[RB_BLOB_BYTES_MAX];

	for (uint32_t r = 0; r < w->rank_count; r++) {
		size_t bytes = blob_make(w, r, a->rounds, expected), got_bytes;
		const void *got = rb_rv_blob(a->machine, r, &got_bytes);

		if (got_bytes != bytes || memcmp(got, expected, bytes) != 0)
			return false;
	}
	return true;
}

/* ---- Links ---- */

static void link_release(struct link *l)
{
	if (l->to_root.sender_gone && l->to_client.sender_gone)
		l->used = false;
}

static void side_closes(struct world *w, struct link *l, bool root)
{
	struct pipe_end *out = root ? &l->to_client : &l->to_root;
	struct pipe_end *in = root ? &l->to_root : &l->to_client;

	out->sender_gone = in->receiver_gone = true;
	in->count = 0;
	if (root)
		w->actors[0].links[l->root_number] = NONE;
	else if (l->client != NONE)
		w->actors[l->client].links[0] = NONE;
	link_release(l);
}

static uint32_t link_make(struct world *w, uint32_t client)
{
	uint32_t i = 0;

	while (i < WORLD_LINKS_MAX && w->links[i].used)
		i++;
	ck_assert_uint_lt(i, WORLD_LINKS_MAX);
	struct link *l = &w->links[i];

	l->used = true;
	l->late = false;
	l->to_root.bytes = w->bytes[i][0];
	l->to_client.bytes = w->bytes[i][1];
	if (i >= w->link_count)
		w->link_count = i + 1;
	l->accepted = false;
	l->client = client;
	l->to_root.count = l->to_client.count = 0;
	l->to_root.sender_gone = l->to_root.receiver_gone = false;
	l->to_client.sender_gone = l->to_client.receiver_gone = client == NONE;
	return i;
}

/* ---- Machines ---- */

static void actor_ends(struct world *w, struct actor *a, rubato_status status, const char *text)
{
	a->ended = true;
	a->ended_ns = w->now_ns;
	a->status = status;
	a->listening = a->connect_wanted = a->gather_wanted = false;
	(void)snprintf(a->text, sizeof(a->text), "%s", text);
	for (uint32_t i = 0; i < WORLD_LINKS_MAX; i++)
		if (a->links[i] != NONE)
			side_closes(w, &w->links[a->links[i]], a == &w->actors[0]);
	for (uint32_t i = 0; i < w->link_count && a == &w->actors[0]; i++) {
		if (w->links[i].used && !w->links[i].accepted) { /* Nobody will accept these. */
			w->links[i].to_root.receiver_gone = w->links[i].to_client.sender_gone =
				true;
			link_release(&w->links[i]);
		}
	}
}

static void actions_take(struct world *w, struct actor *a, bool exchanging)
{
	struct rb_rv_action x;

	while (rb_rv_next(a->machine, &x)) {
		hash_add(w, (uint64_t)x.act << 32 | x.connection);
		switch (x.act) {
		case RB_RV_ACT_LISTEN:
			a->listening = true;
			struct rb_rv_event e = { .kind = RB_RV_EV_LISTENING, .now_ns = w->now_ns };

			rb_rv_step(a->machine, &e);
			break;
		case RB_RV_ACT_UNLISTEN:
			a->listening = false;
			break;
		case RB_RV_ACT_CONNECT:
			a->connect_wanted = true;
			break;
		case RB_RV_ACT_SEND:
			break;
		case RB_RV_ACT_CLOSE:
			a->connect_wanted = false;
			if (a->links[x.connection] != NONE)
				side_closes(w, &w->links[a->links[x.connection]],
					    a == &w->actors[0]);
			break;
		case RB_RV_ACT_REPORT:
			w->reports++;
			break;
		case RB_RV_ACT_DONE:
			if (exchanging) {
				a->tables_right = a->tables_right && table_right(w, a);
				a->rounds++;
			}
			if (a->rounds == WORLD_ROUNDS)
				actor_ends(w, a, RUBATO_OK, "");
			else
				a->gather_wanted = true;
			break;
		case RB_RV_ACT_FAIL:
			actor_ends(w, a, x.status, x.text);
			break;
		}
	}
}

static void give(struct world *w, struct actor *a, struct rb_rv_event *e)
{
	bool exchanging =
		e->kind == RB_RV_EV_GATHER || rb_rv_state_of(a->machine) == RB_RV_EXCHANGING;

	e->now_ns = w->now_ns;
	hash_add(w, (uint64_t)e->kind << 32 | e->connection);
	hash_add(w, w->now_ns ^ e->size_bytes);
	rb_rv_step(a->machine, e);
	actions_take(w, a, exchanging);
	ck_assert(rb_rv_valid(a->machine));
}

static void random_fill(struct world *w, struct rb_rv_event *e)
{
	for (size_t i = 0; i < sizeof(e->random); i++)
		e->random[i] = (uint8_t)rb_rng_next(&w->rng);
}

/* ---- What can happen ---- */

static struct actor *side_actor(struct world *w, const struct link *l, bool root)
{
	return root ? &w->actors[0] : l->client == NONE ? NULL : &w->actors[l->client];
}

static uint32_t side_number(const struct link *l, bool root)
{
	return root ? l->root_number : 0;
}

static bool stalled(const struct world *w, const struct actor *a)
{
	return a == &w->actors[0] && w->now_ns < w->stalled_until_ns;
}

static void link_choices(struct world *w, uint32_t i, struct choice *out, uint32_t *count)
{
	struct link *l = &w->links[i];

	if (!l->accepted && w->actors[0].listening && !w->actors[0].dead &&
	    !stalled(w, &w->actors[0]) && rb_rv_accepts(w->actors[0].machine, w->now_ns))
		out[(*count)++] = (struct choice) { CHOOSE_ACCEPT, i, true };
	for (int to_root = 0; to_root < 2; to_root++) {
		struct pipe_end *p = to_root ? &l->to_root : &l->to_client;
		struct actor *from = side_actor(w, l, !to_root), *to = side_actor(w, l, to_root);
		const uint8_t *bytes;

		if (from != NULL && !stalled(w, from) && !p->sender_gone &&
		    (to_root || l->accepted) && p->count < WORLD_PIPE_BYTES &&
		    rb_rv_outbox(from->machine, side_number(l, !to_root), &bytes) > 0)
			out[(*count)++] = (struct choice) { CHOOSE_SEND, i, to_root };
		if (to == NULL || p->receiver_gone || !l->accepted || stalled(w, to))
			continue;
		if (p->count > 0 && rb_rv_room(to->machine, side_number(l, to_root)) > 0)
			out[(*count)++] = (struct choice) { CHOOSE_DELIVER, i, to_root };
		/* The end is seen by whoever reads or writes. */
		if (p->sender_gone && p->count == 0 && (!l->late || chance(w, 100)) &&
		    (rb_rv_room(to->machine, side_number(l, to_root)) > 0 ||
		     rb_rv_outbox(to->machine, side_number(l, to_root), &bytes) > 0))
			out[(*count)++] = (struct choice) { CHOOSE_TELL, i, to_root };
	}
	/* Nobody will ever accept it. */
	if (!l->accepted && l->to_client.sender_gone && l->client != NONE &&
	    !l->to_client.receiver_gone)
		out[(*count)++] = (struct choice) { CHOOSE_TELL, i, false };
}

static uint32_t choices_find(struct world *w, struct choice *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < w->actor_count; i++) {
		struct actor *a = &w->actors[i];

		if (a->ended || stalled(w, a))
			continue;
		if (!a->started && a->starts_ns <= w->now_ns)
			out[count++] = (struct choice) { CHOOSE_START, i, false };
		if (a->started && rb_rv_wake_ns(a->machine) <= w->now_ns)
			out[count++] = (struct choice) { CHOOSE_TICK, i, false };
		if (a->connect_wanted)
			out[count++] = (struct choice) { CHOOSE_CONNECT, i, false };
		if (a->gather_wanted)
			out[count++] = (struct choice) { CHOOSE_GATHER, i, false };
	}
	for (uint32_t i = 0; i < w->link_count; i++)
		if (w->links[i].used)
			link_choices(w, i, out, &count);
	if (w->drops + w->late_drops + w->strangers + w->flips + w->stalls > 0 ||
	    w->kill_actor != NONE)
		out[count++] = (struct choice) { CHOOSE_FAULT, 0, false };
	return count;
}

/* ---- Faults ---- */

static void stranger_comes(struct world *w)
{
	static const uint8_t half[] = { 'R', 'B', 'R', 'Z', 1, 1, 0, 0, 40, 0, 0, 0, 7, 7 };
	struct pipe_end *p;

	if (!w->actors[0].listening)
		return;
	p = &w->links[link_make(w, NONE)].to_root;
	w->strangers--;
	w->strangers_fired++;
	p->count = (uint32_t)rb_rng_below(&w->rng, 100);
	for (uint32_t i = 0; i < p->count; i++)
		p->bytes[i] = (uint8_t)rb_rng_next(&w->rng);
	if (chance(w, 2)) {
		p->count = (uint32_t)rb_rng_below(&w->rng, sizeof(half) + 1);
		memcpy(p->bytes, half, p->count);
	}
	p->sender_gone = chance(w, 3); /* Or it stays and says nothing more. */
}

static struct link *random_link(struct world *w)
{
	struct link *l = &w->links[rb_rng_below(&w->rng, w->link_count)];

	return l->used && l->accepted && l->client != NONE && !l->to_root.receiver_gone &&
			       !l->to_client.receiver_gone
		       ? l
		       : NULL;
}

/* Both sides lose the connection; `late`: the root sees it in its own time only. */
static void link_drops(struct world *w, struct link *l, bool late)
{
	struct actor *client = &w->actors[l->client];
	uint32_t number = l->root_number;

	l->to_root.count = l->to_client.count = 0;
	l->to_root.sender_gone = l->to_client.receiver_gone = true;
	l->late = late;
	client->links[0] = NONE;
	struct rb_rv_event e = { .kind = RB_RV_EV_CLOSED };

	if (!late) {
		w->actors[0].links[number] = NONE;
		l->used = false;
		struct rb_rv_event r = { .kind = RB_RV_EV_CLOSED, .connection = number };

		give(w, &w->actors[0], &r);
	}
	give(w, client, &e);
}

static void fault(struct world *w)
{
	enum rb_rv_state root = rb_rv_state_of(w->actors[0].machine);
	struct link *l = w->link_count == 0 ? NULL : random_link(w);

	if (w->strangers > 0 && chance(w, 3)) {
		stranger_comes(w);
	} else if (w->kill_actor != NONE && root >= RB_RV_STARTING && chance(w, 60)) {
		w->kills_fired += !w->actors[w->kill_actor].ended;
		if (!w->actors[w->kill_actor].ended)
			actor_ends(w, &w->actors[w->kill_actor], RUBATO_ERR_CANCELLED, "killed");
		w->actors[w->kill_actor].dead = true;
		w->kill_actor = NONE;
	} else if (w->drops + w->late_drops > 0 && l != NULL && root == RB_RV_JOINING &&
		   !w->actors[l->client].ended && chance(w, 4)) {
		bool late = w->drops == 0;

		w->drops -= !late;
		w->late_drops -= late;
		w->drops_fired += !late;
		w->late_drops_fired += late;
		link_drops(w, l, late);
	} else if (w->flips > 0 && l != NULL && chance(w, 4)) {
		struct pipe_end *p = chance(w, 2) ? &l->to_root : &l->to_client;

		if (p->count == 0)
			return;
		p->bytes[rb_rng_below(&w->rng, p->count)] ^=
			(uint8_t)(1u << rb_rng_below(&w->rng, 8));
		w->flips--;
		w->flips_fired++;
	} else if (w->stalls > 0 && root == RB_RV_JOINING && l != NULL && chance(w, 4)) {
		w->stalled_until_ns = w->now_ns + w->stall_ns;
		w->stalls--;
		w->stalls_fired++;
	}
}

/* ---- Happenings ---- */

static void happen_connect(struct world *w, uint32_t i)
{
	struct actor *a = &w->actors[i];
	bool there = w->actors[0].listening, more = w->several && chance(w, 2);
	struct rb_rv_event begun = { .kind = RB_RV_EV_CONNECTING, .more = true };
	struct rb_rv_event e = { .kind = there ? RB_RV_EV_CONNECTED : RB_RV_EV_CONNECT_FAILED,
				 .text = there ? "10.0.0.1:4000" : "Connection refused",
				 .status = RUBATO_ERR_SYSTEM,
				 .retry = true,
				 .more = more };

	a->connect_wanted = false;
	if (w->several)
		give(w, a, &begun);
	if (there)
		a->links[0] = link_make(w, i);
	random_fill(w, &e);
	give(w, a, &e);
}

static void happen_accept(struct world *w, struct link *l, uint32_t index)
{
	struct actor *root = &w->actors[0];
	struct rb_rv_event e = { .kind = RB_RV_EV_ACCEPTED, .text = "10.0.0.2:5000" };

	while (root->links[e.connection] != NONE)
		e.connection++;
	ck_assert_uint_lt(e.connection, rb_rv_connection_count(root->machine));
	root->links[e.connection] = index;
	l->accepted = true;
	l->root_number = e.connection;
	random_fill(w, &e);
	give(w, root, &e);
}

static void happen_send(struct world *w, struct link *l, bool to_root)
{
	struct pipe_end *p = to_root ? &l->to_root : &l->to_client;
	struct actor *from = side_actor(w, l, !to_root);
	struct rb_rv_event e = { .kind = RB_RV_EV_SENT, .connection = side_number(l, !to_root) };
	const uint8_t *bytes;
	size_t most = rb_rv_outbox(from->machine, e.connection, &bytes);

	if (most > w->piece_max)
		most = w->piece_max;
	if (most > WORLD_PIPE_BYTES - p->count)
		most = WORLD_PIPE_BYTES - p->count;
	e.size_bytes = 1 + rb_rng_below(&w->rng, most);
	if (!p->receiver_gone) {
		memcpy(p->bytes + p->count, bytes, e.size_bytes);
		p->count += (uint32_t)e.size_bytes;
	}
	give(w, from, &e);
}

static void happen_deliver(struct world *w, struct link *l, bool to_root)
{
	struct pipe_end *p = to_root ? &l->to_root : &l->to_client;
	struct actor *to = side_actor(w, l, to_root);
	struct rb_rv_event e = { .kind = RB_RV_EV_RECEIVED, .connection = side_number(l, to_root) };
	size_t most = rb_rv_room(to->machine, e.connection);
	static uint8_t piece[WORLD_PIPE_BYTES];

	if (most > p->count)
		most = p->count;
	if (most > w->piece_max)
		most = w->piece_max;
	e.size_bytes = 1 + rb_rng_below(&w->rng, most);
	memcpy(piece, p->bytes, e.size_bytes);
	e.bytes = piece;
	p->count -= (uint32_t)e.size_bytes;
	memmove(p->bytes, p->bytes + e.size_bytes, p->count);
	give(w, to, &e);
}

static void happen_tell(struct world *w, struct link *l, bool to_root)
{
	struct actor *to = side_actor(w, l, to_root);
	struct rb_rv_event e = { .kind = RB_RV_EV_CLOSED, .connection = side_number(l, to_root) };

	side_closes(w, l, to_root);
	give(w, to, &e);
}

static void happen(struct world *w, struct choice c)
{
	static uint8_t blob[RB_BLOB_BYTES_MAX];
	struct actor *a = &w->actors[c.index % WORLD_ACTORS_MAX];
	struct link *l = &w->links[c.index];
	struct rb_rv_event e = { .deadline_ns = w->now_ns + WORLD_DEADLINE_NS };

	switch (c.kind) {
	case CHOOSE_START:
		a->started = true;
		e.kind = RB_RV_EV_OPEN;
		give(w, a, &e);
		break;
	case CHOOSE_TICK:
		e.kind = RB_RV_EV_TICK;
		give(w, a, &e);
		break;
	case CHOOSE_CONNECT:
		happen_connect(w, c.index);
		break;
	case CHOOSE_GATHER:
		a->gather_wanted = false;
		e.kind = RB_RV_EV_GATHER;
		e.size_bytes = blob_make(w, a->rank, a->rounds, blob);
		e.bytes = blob;
		give(w, a, &e);
		break;
	case CHOOSE_ACCEPT:
		happen_accept(w, l, c.index);
		break;
	case CHOOSE_SEND:
		happen_send(w, l, c.to_root);
		break;
	case CHOOSE_DELIVER:
		happen_deliver(w, l, c.to_root);
		break;
	case CHOOSE_TELL:
		happen_tell(w, l, c.to_root);
		break;
	case CHOOSE_FAULT:
		fault(w);
		break;
	}
}

static bool all_ended(const struct world *w)
{
	for (uint32_t i = 0; i < w->actor_count; i++)
		if (!w->actors[i].ended)
			return false;
	return true;
}

/* To when something is due; faults alone do not keep time from passing. */
static void time_jumps(struct world *w)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < w->actor_count; i++) {
		const struct actor *a = &w->actors[i];
		uint64_t due_ns = stalled(w, a) ? w->stalled_until_ns
				  : a->started  ? rb_rv_wake_ns(a->machine)
						: a->starts_ns;

		if (!a->ended && due_ns < next_ns)
			next_ns = due_ns;
	}
	ck_assert_msg(next_ns != UINT64_MAX, "somebody waits for nothing");
	if (next_ns > w->now_ns)
		w->now_ns = next_ns;
}

void world_run(struct world *w)
{
	static struct choice choices[CHOICES_MAX];

	while (!all_ended(w)) {
		uint32_t count = choices_find(w, choices);

		ck_assert_uint_lt(w->happenings++, HAPPENINGS_MAX);
		if (count == 0 || (count == 1 && choices[0].kind == CHOOSE_FAULT && chance(w, 2))) {
			time_jumps(w);
			continue;
		}
		happen(w, choices[rb_rng_below(&w->rng, count)]);
		w->now_ns += rb_rng_below(&w->rng, 100000);
	}
}
