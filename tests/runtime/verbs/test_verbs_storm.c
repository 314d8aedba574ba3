/*
 * test_verbs_storm.c -- programs that a seed draws, over one to four rails of which all but one
 * flap, or all.
 *
 * Ranks as threads on mock devices (tests/verbs-mock) do, one after the other, what is drawn for
 * all of them: operations that each rank starts and waits for in an order of its own, messages,
 * receives that are cancelled before their message is sent, algorithms by puts, communicators
 * that are split off and outlive the next things, a result of a partial allreduce that is kept
 * meanwhile. Each rank's buffers are its own matter: plain, registered, unregistered before they
 * are used, allocated, at any offset. Every element is checked, and what lies around the buffers;
 * rails fall while the ranks leave, too.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs.h"

#define RANKS_MAX 4u
#define RAILS_MAX 4u
#define OPS_MAX 4u
#define CHILDREN_MAX 3u
#define ROUNDS 24u
#define AROUND 64u /* Elements on both sides of a buffer. */
#define KEPT 500u  /* Elements of the partial allreduce. */
#define TAG 100u
#define LATE_ELEMENTS 30000u
#define LIMIT_NS 60000000000u

struct storm {
	uint64_t seed;
	uint32_t rank_count, rails, spare; /* The rail that never falls; `rails`: none. */
	_Atomic bool over;
	pthread_mutex_t lock;
	uint32_t opening; /* Ranks. Meanwhile no rail falls. */
	bool down[RAILS_MAX];
	_Atomic uint64_t flaps;
	uint64_t failed[RANKS_MAX];
	char texts[RANKS_MAX][400];
};

struct rank {
	struct storm *storm;
	rubato_comm *comm;
	struct rb_rng common, own; /* The first draws the same for all. */
	rubato_comm *children[CHILDREN_MAX];
	rubato_partial *partial;
	const int64_t *view; /* Lent, or NULL; */
	int64_t view_copy[KEPT];
	int64_t total[KEPT];
	uint64_t steps;
};

/*
 * A port that is down when a rank opens is none of its rails, and the ith rail of one rank is
 * joined to the ith of the other: the spare one would be joined to one that falls. So all are up
 * then.
 */
static void opens(struct storm *storm)
{
	(void)pthread_mutex_lock(&storm->lock);
	storm->opening++;
	for (uint32_t rail = 0; rail < storm->rails; rail++) {
		if (storm->down[rail])
			mock_link(0, rail, 1, true);
		storm->down[rail] = false;
	}
	(void)pthread_mutex_unlock(&storm->lock);
}

static void opened(struct storm *storm)
{
	(void)pthread_mutex_lock(&storm->lock);
	storm->opening--;
	(void)pthread_mutex_unlock(&storm->lock);
}

static uint32_t draw(struct rb_rng *rng, uint32_t below)
{
	return (uint32_t)(rb_rng_next(rng) % below);
}

static uint32_t count_draw(struct rb_rng *rng)
{
	static const uint32_t most[] = { 1, 2, 300, 3000, 20000, 70001 };

	return draw(rng, most[draw(rng, 6)] + 1);
}

/* ---- Buffers ---- */

enum where { PLAIN, REGISTERED, ALLOCATED, WHERES };

struct buffer {
	rubato_comm *comm;
	int32_t *base, *at; /* `at` is between what lies around it. */
	uint32_t count;
	enum where where;
};

static int32_t around(uint32_t i)
{
	return (int32_t)(0x5a000000u + i);
}

static rubato_status buffer_make(struct rank *me, rubato_comm *comm, uint32_t count,
				 struct buffer *out)
{
	uint32_t shift = draw(&me->own, 5), all = count + 2 * AROUND + 8;

	*out = (struct buffer) { .comm = comm, .count = count, .where = draw(&me->own, WHERES) };
	if (out->where == ALLOCATED)
		RB_TRY(rubato_alloc(comm, all * sizeof(int32_t), (void **)&out->base));
	else
		out->base = malloc(all * sizeof(int32_t));
	if (out->where == REGISTERED)
		RB_TRY(rubato_register(comm, out->base, all * sizeof(int32_t)));
	out->at = out->base + AROUND + shift;
	for (uint32_t i = 0; i < AROUND; i++)
		out->at[-1 - (int32_t)i] = out->at[count + i] = around(i);
	return RUBATO_OK;
}

/* What is registered may be given up before it is used, */
static rubato_status buffer_forget(struct rank *me, struct buffer *b)
{
	if (b->where != REGISTERED || draw(&me->own, 2) == 0)
		return RUBATO_OK;
	b->where = PLAIN;
	return rubato_unregister(b->comm, b->base);
}

/* but not while it is. */
static rubato_status buffer_refuses(const struct buffer *b)
{
	rubato_status status = RUBATO_ERR_ARGUMENT;

	if (b->where == REGISTERED)
		status = rubato_unregister(b->comm, b->base);
	else if (b->where == ALLOCATED)
		status = rubato_free(b->comm, b->base);
	if (status != RUBATO_ERR_ARGUMENT)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: memory goes while it is in use");
	return RUBATO_OK;
}

static rubato_status buffer_end(struct buffer *b)
{
	for (uint32_t i = 0; i < AROUND; i++)
		if (b->at[-1 - (int32_t)i] != around(i) || b->at[b->count + i] != around(i))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: beside a buffer of %u",
				       b->count);
	if (b->where == ALLOCATED)
		return rubato_free(b->comm, b->base);
	if (b->where == REGISTERED)
		RB_TRY(rubato_unregister(b->comm, b->base));
	free(b->base);
	return RUBATO_OK;
}

/* ---- Operations, in any order ---- */

struct operation {
	rubato_op *op;
	bool alltoall, in_place;
	uint32_t count; /* Elements; of alltoall to each. */
	uint32_t salt;
	struct buffer in, out;
};

static int32_t value(uint32_t rank, uint32_t salt, uint32_t i)
{
	return (int32_t)(rank * 1000003u + salt * 7919u + i * 13u) & 0xffffff;
}

static void operation_fill(struct operation *o, uint32_t ranks, uint32_t rank)
{
	uint32_t all = o->alltoall ? o->count * ranks : o->count;
	int32_t *in = o->in_place ? o->out.at : o->in.at;

	for (uint32_t i = 0; i < all; i++)
		in[i] = value(rank, o->salt, i);
}

static rubato_status operation_check(const struct operation *o, uint32_t ranks, uint32_t rank)
{
	uint32_t all = o->alltoall ? o->count * ranks : o->count;

	for (uint32_t i = 0; i < all; i++) {
		int32_t want = 0;

		if (o->alltoall)
			want = value(i / o->count, o->salt, rank * o->count + i % o->count);
		for (uint32_t r = 0; r < ranks && !o->alltoall; r++)
			want += value(r, o->salt, i);
		if (o->out.at[i] != want)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: element %u of %u of %s", i, all,
				       o->alltoall ? "alltoall" : "allreduce");
	}
	return RUBATO_OK;
}

static rubato_status operation_make(struct rank *me, rubato_comm *comm, struct operation *o)
{
	uint32_t ranks = rubato_size(comm);

	o->alltoall = draw(&me->common, 2);
	o->in_place = draw(&me->common, 2);
	o->count = count_draw(&me->common) / (o->alltoall ? ranks : 1);
	o->salt = draw(&me->common, 1000);
	RB_TRY(buffer_make(me, comm, o->alltoall ? o->count * ranks : o->count, &o->in));
	RB_TRY(buffer_make(me, comm, o->in.count, &o->out));
	const void *in = o->in_place ? o->out.at : o->in.at;

	if (o->alltoall)
		RB_TRY(rubato_op_alltoall(comm, in, o->out.at, o->count, RUBATO_INT32, &o->op));
	else
		RB_TRY(rubato_op_allreduce(comm, in, o->out.at, o->count, RUBATO_INT32, RUBATO_SUM,
					   &o->op));
	RB_TRY(buffer_forget(me, &o->in));
	return RUBATO_OK;
}

/* An order of its own for each rank. */
static void order_draw(struct rank *me, uint32_t count, uint32_t *order)
{
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	for (uint32_t i = count; i > 1; i--) {
		uint32_t k = draw(&me->own, i), other = order[k];

		order[k] = order[i - 1];
		order[i - 1] = other;
	}
}

static rubato_status await(struct rank *me, rubato_op *op)
{
	bool done = false;

	while (draw(&me->own, 3) != 0 && !done)
		RB_TRY(rubato_test(op, &done));
	return done ? RUBATO_OK : rubato_wait(op, LIMIT_NS);
}

static rubato_status operations(struct rank *me, rubato_comm *comm)
{
	struct operation ops[OPS_MAX];
	uint32_t count = 1 + draw(&me->common, OPS_MAX), order[OPS_MAX];
	uint32_t ranks = rubato_size(comm), rank = rubato_rank(comm);

	for (uint32_t i = 0; i < count; i++)
		RB_TRY(operation_make(me, comm, &ops[i]));
	for (uint32_t times = 0; times < 3; times++) {
		order_draw(me, count, order);
		for (uint32_t i = 0; i < count; i++) {
			ops[order[i]].salt += 1;
			operation_fill(&ops[order[i]], ranks, rank);
			RB_TRY(rubato_start(ops[order[i]].op));
		}
		order_draw(me, count, order);
		for (uint32_t i = 0; i < count; i++) {
			RB_TRY(await(me, ops[order[i]].op));
			RB_TRY(operation_check(&ops[order[i]], ranks, rank));
		}
	}
	order_draw(me, count, order);
	for (uint32_t i = 0; i < count; i++) {
		struct operation *o = &ops[order[i]];

		rubato_op_free(o->op);
		RB_TRY(buffer_end(&o->in));
		RB_TRY(buffer_end(&o->out));
	}
	return RUBATO_OK;
}

/* ---- Messages ---- */

struct message {
	rubato_op *op;
	struct buffer buffer;
	bool sends;
	uint32_t peer, salt;
};

/* To and from everybody, all at once. */
static rubato_status messages(struct rank *me)
{
	struct message all[2 * RANKS_MAX * 2];
	uint32_t ranks = rubato_size(me->comm), rank = rubato_rank(me->comm), count = 0;
	uint32_t order[2 * RANKS_MAX * 2], each = 1 + draw(&me->common, 2);

	for (uint32_t from = 0; from < ranks; from++)
		for (uint32_t to = 0; to < ranks; to++)
			for (uint32_t k = 0; k < each; k++) {
				uint32_t elements = count_draw(&me->common);
				uint32_t salt = draw(&me->common, 1000);
				struct message *m = &all[count];

				if (from == to || (rank != from && rank != to))
					continue;
				*m = (struct message) { .sends = rank == from,
							.peer = rank == from ? to : from,
							.salt = salt };
				RB_TRY(buffer_make(me, me->comm, elements, &m->buffer));
				for (uint32_t i = 0; i < elements; i++)
					m->buffer.at[i] = m->sends ? value(from, salt, i) : -1;
				if (m->sends)
					RB_TRY(rubato_op_send(me->comm, m->buffer.at, elements,
							      RUBATO_INT32, to, TAG + k, &m->op));
				else
					RB_TRY(rubato_op_recv(me->comm, m->buffer.at, elements,
							      RUBATO_INT32, from, TAG + k, &m->op));
				count++;
			}
	order_draw(me, count, order);
	for (uint32_t i = 0; i < count; i++)
		RB_TRY(rubato_start(all[order[i]].op));
	order_draw(me, count, order);
	for (uint32_t i = 0; i < count; i++) {
		struct message *m = &all[order[i]];

		RB_TRY(await(me, m->op));
		rubato_op_free(m->op);
		for (uint32_t k = 0; k < m->buffer.count && !m->sends; k++)
			if (m->buffer.at[k] != value(m->peer, m->salt, k))
				return RB_FAIL(RUBATO_ERR_INTERNAL,
					       "wrong: element %u of %u from rank %u", k,
					       m->buffer.count, m->peer);
		RB_TRY(buffer_end(&m->buffer));
	}
	return RUBATO_OK;
}

/* A receive is cancelled, and then its message is sent, which another buffer gets. */
static rubato_status cancelled(struct rank *me)
{
	uint32_t ranks = rubato_size(me->comm), rank = rubato_rank(me->comm);
	uint32_t next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	uint32_t count = draw(&me->common, 2) ? LATE_ELEMENTS : 100, salt = draw(&me->common, 1000);
	struct buffer first, second, from;
	rubato_op *op, *again, *send;

	RB_TRY(buffer_make(me, me->comm, count, &first));
	RB_TRY(buffer_make(me, me->comm, count, &second));
	RB_TRY(buffer_make(me, me->comm, count, &from));
	for (uint32_t i = 0; i < count; i++) {
		first.at[i] = around(i);
		from.at[i] = value(rank, salt, i);
	}
	RB_TRY(rubato_op_recv(me->comm, first.at, count, RUBATO_INT32, last, TAG, &op));
	RB_TRY(rubato_op_recv(me->comm, second.at, count, RUBATO_INT32, last, TAG, &again));
	RB_TRY(rubato_op_send(me->comm, from.at, count, RUBATO_INT32, next, TAG, &send));
	RB_TRY(rubato_start(op));
	if (draw(&me->own, 2))
		RB_TRY(rubato_start(again));
	RB_TRY(rubato_barrier(me->comm));
	RB_TRY(buffer_refuses(&first)); /* It waits for its message. */
	if (rubato_cancel(op) != RUBATO_ERR_CANCELLED)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: what nobody sends has come");
	if (rubato_wait(again, RUBATO_NO_WAIT) == RUBATO_OK) /* It was not started: it is idle. */
		RB_TRY(rubato_start(again));
	RB_TRY(rubato_barrier(me->comm));
	RB_TRY(rubato_start(send));
	RB_TRY(await(me, again));
	RB_TRY(await(me, send));
	for (uint32_t i = 0; i < count; i++)
		if (second.at[i] != value(last, salt, i) || first.at[i] != around(i))
			return RB_FAIL(RUBATO_ERR_INTERNAL,
				       "wrong: element %u of %u, after a cancelled receive", i,
				       count);
	rubato_op_free(op);
	rubato_op_free(again);
	rubato_op_free(send);
	RB_TRY(buffer_end(&first));
	RB_TRY(buffer_end(&second));
	return buffer_end(&from);
}

/* ---- Algorithms by puts, and others ---- */

static rubato_status any_algorithm(struct rank *me)
{
	uint32_t a = draw(&me->common, rb_algorithm_count);
	const struct rb_algorithm *algorithm = &rb_algorithms[a];
	struct exercise e = { .kind = rb_kind_name(algorithm->kind),
			      .algorithm = algorithm->name,
			      .count = count_draw(&me->common),
			      .type = RUBATO_INT32,
			      .op = RUBATO_SUM,
			      .root = draw(&me->common, rubato_size(me->comm)),
			      .in_place = draw(&me->common, 2),
			      .allocated = draw(&me->common, 2),
			      .mixed = draw(&me->common, 2),
			      .persistent = draw(&me->common, 2),
			      .times = 2,
			      .salt = draw(&me->common, 1000) };
	rubato_status status;

	if (strcmp(e.kind, "sendrecv") == 0)
		return RUBATO_OK;
	status = exercise_run(me->comm, &e, NULL);
	if (status == RUBATO_ERR_UNSUPPORTED)
		status = RUBATO_OK; /* Its memory is not mapped here. */
	RB_TRY(rubato_set_algorithm(me->comm, e.kind, "auto"));
	return status;
}

/* ---- Communicators ---- */

static rubato_status split(struct rank *me)
{
	uint32_t k = draw(&me->common, CHILDREN_MAX), colors = draw(&me->common, 1u << RANKS_MAX);
	rubato_comm **child = &me->children[k];

	if (*child != NULL)
		RB_TRY(rubato_finalize(*child));
	*child = NULL;
	opens(me->storm); /* None is through before all are here. */
	RB_TRY(rubato_split(me->comm, colors >> rubato_rank(me->comm) & 1,
			    (int32_t)draw(&me->own, 10), child));
	opened(me->storm);
	return operations(me, *child);
}

static rubato_status children_use(struct rank *me)
{
	struct rb_rng common = me->common;

	for (uint32_t k = 0; k < CHILDREN_MAX; k++) {
		me->common = common;
		if (me->children[k] != NULL)
			RB_TRY(operations(me, me->children[k]));
	}
	(void)rb_rng_next(&common);
	me->common = common; /* Groups may have drawn differently. */
	return RUBATO_OK;
}

/* ---- A partial allreduce, beside all this ---- */

static rubato_status view_give_back(struct rank *me)
{
	if (me->view == NULL)
		return RUBATO_OK;
	if (memcmp(me->view, me->view_copy, sizeof(me->view_copy)) != 0)
		return RB_FAIL(RUBATO_ERR_INTERNAL,
			       "wrong: a result has changed while it was lent");
	me->view = NULL;
	return rubato_partial_release(me->partial);
}

static rubato_status view_take(struct rank *me)
{
	const void *view;

	RB_TRY(rubato_partial_collect_view(me->partial, &view, NULL, LIMIT_NS));
	me->view = view;
	for (uint32_t i = 0; view != NULL && i < KEPT; i++) {
		me->view_copy[i] = me->view[i];
		me->total[i] += me->view[i];
	}
	return RUBATO_OK;
}

static rubato_status rounds(struct rank *me)
{
	int64_t given[KEPT];

	RB_TRY(view_give_back(me));
	for (uint32_t times = 1 + draw(&me->own, 3); times > 0; times--) {
		for (uint32_t i = 0; i < KEPT; i++)
			given[i] = (int64_t)(i + 1) * (rubato_rank(me->comm) + 1);
		RB_TRY(rubato_partial_contribute(me->partial, given, me->steps++, 1));
	}
	return view_take(me); /* Kept until the next time. */
}

static rubato_status rounds_end(struct rank *me)
{
	int64_t steps = (int64_t)(me->steps * (rubato_rank(me->comm) + 1)), all = 0;

	RB_TRY(view_give_back(me));
	RB_TRY(rubato_partial_drain(me->partial));
	do {
		RB_TRY(view_take(me));
		if (me->view == NULL)
			break;
		RB_TRY(view_give_back(me));
	} while (true);
	RB_TRY(rubato_allreduce(me->comm, &steps, &all, 1, RUBATO_INT64, RUBATO_SUM));
	for (uint32_t i = 0; i < KEPT; i++)
		if (me->total[i] != (int64_t)(i + 1) * all)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: all rounds' element %u", i);
	return rubato_partial_free(me->partial);
}

/* ---- A rank's program ---- */

static rubato_status step(struct rank *me)
{
	switch (draw(&me->common, 8)) {
	case 0:
	case 1:
		return operations(me, me->comm);
	case 2:
		return messages(me);
	case 3:
		return cancelled(me);
	case 4:
		return any_algorithm(me);
	case 5:
		return split(me);
	case 6:
		return children_use(me);
	default:
		if (draw(&me->own, 8) == 0) /* A late one. */
			(void)usleep(draw(&me->own, 100000));
		return rounds(me);
	}
}

static rubato_status program(struct rank *me)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rounds = test_length() == TEST_LONG ? 4 * ROUNDS : ROUNDS;

	options.rounds = RUBATO_ROUNDS_FREE;
	RB_TRY(rubato_partial_create(me->comm, KEPT, RUBATO_INT64, RUBATO_SUM, &options,
				     &me->partial));
	for (uint32_t i = 0; i < rounds; i++)
		RB_TRY(step(me));
	RB_TRY(rounds_end(me));
	for (uint32_t k = 0; k < CHILDREN_MAX; k++)
		if (me->children[k] != NULL)
			RB_TRY(rubato_finalize(me->children[k]));
	return RUBATO_OK;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct storm *storm = arg;
	uint32_t rank = rubato_rank(comm);
	struct rank *me = calloc(1, sizeof(*me));
	rubato_status status;

	me->storm = storm;
	me->comm = comm;
	me->common.state = storm->seed;
	me->own.state = rb_mix(storm->seed ^ (rank + 1));
	opened(storm);
	while (storm->rails + storm->spare > 1 && storm->flaps == 0)
		(void)usleep(100);
	status = program(me);
	if (status != RUBATO_OK) {
		(void)snprintf(storm->texts[rank], sizeof(storm->texts[rank]), "%s: %s",
			       rubato_status_name(status), rubato_error_text());
		(void)rubato_abort(comm);
	}
	rb_engine_enter(&comm->engine);
	storm->failed[rank] = ((struct rb_verbs *)rb_comm_endpoint(comm))->counts.failed;
	rb_engine_leave(&comm->engine);
	free(me);
	return status;
}

static void *flapper(void *arg)
{
	struct storm *storm = arg;
	struct rb_rng rng = { storm->seed * 3 + 1 };

	while (!storm->over) {
		uint32_t rail = draw(&rng, storm->rails);

		(void)usleep(500 + draw(&rng, 40000));
		(void)pthread_mutex_lock(&storm->lock);
		if (rail != storm->spare && storm->opening == 0) {
			storm->down[rail] = !storm->down[rail];
			mock_link(0, rail, 1, !storm->down[rail]);
			storm->flaps++;
		}
		(void)pthread_mutex_unlock(&storm->lock);
	}
	return NULL;
}

/* How many links have failed. */
static uint64_t storm_run(uint64_t seed)
{
	static const struct rb_transport_ops *const transports[] = { &rb_transport_verbs, NULL };
	struct storm storm = { .seed = seed,
			       .rank_count = 2 + (uint32_t)(seed % 3),
			       .rails = 1 + (uint32_t)(seed / 3 % 4) };
	uint64_t begun_ns = rb_clock_ns(), failed = 0;
	struct mock_counters counters;
	struct mock_config config;
	pthread_t thread;

	(void)pthread_mutex_init(&storm.lock, NULL);
	storm.opening = storm.rank_count;
	storm.spare = (uint32_t)(seed / 12 % (storm.rails + 1));
	mock_config_default(&config);
	config.devices = storm.rails;
	config.seed = seed;
	ck_assert_int_eq(mock_reset(&config), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, flapper, &storm), 0);
	rubato_status status = local_run(storm.rank_count, transports, rank_main, &storm, NULL);

	storm.over = true;
	(void)pthread_join(thread, NULL);
	(void)pthread_mutex_destroy(&storm.lock);
	for (uint32_t r = 0; r < storm.rank_count; r++) {
		ck_assert_msg(storm.texts[r][0] == '\0', "%u ranks, %u rails: rank %u: %s",
			      storm.rank_count, storm.rails, r, storm.texts[r]);
		failed += storm.failed[r];
	}
	ck_assert_int_eq(status, RUBATO_OK);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.rnr, 0);
	ck_assert_uint_eq(counters.outside_local, 0);
	ck_assert_uint_eq(counters.outside_remote, 0);
	ck_assert_uint_eq(counters.cq_overruns, 0);
	ck_assert_uint_eq(counters.length_errors, 0);
	ck_assert_uint_eq(counters.left_open, 0);
	(void)fprintf(stderr, "seed %llu: %u ranks, %u rails, %llu flaps, %llu failed, %.1f s\n",
		      (unsigned long long)seed, storm.rank_count, storm.rails,
		      (unsigned long long)storm.flaps, (unsigned long long)failed,
		      (double)(rb_clock_ns() - begun_ns) / 1e9);
	ck_assert((storm.rails == 1 && storm.spare == 0) || storm.flaps > 0);
	return failed; /* A short program may be over before its ranks have noticed. */
}

START_TEST(programs_that_nobody_wrote_are_right)
{
	uint64_t count = test_length() == TEST_SHORT ? 12 : test_length() == TEST_LONG ? 500 : 36;
	struct seeds seeds = seeds_from(__func__, 1, count);
	uint64_t failed = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);)
		failed += storm_run(seed);
	ck_assert(seeds_chosen() || failed > 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("storm");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, programs_that_nobody_wrote_are_right);
	return check_main("verbs-storm", tc);
}
