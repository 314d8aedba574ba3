/*
 * split.c -- communicators out of communicators.
 *
 * All ranks of the parent tell each other color and key. Each group then starts up by itself, as a
 * job does, with endpoints and an engine of its own (open.c); what it needs from outside, an
 * allgather among its ranks, goes over the parent's messages. So a child shares nothing with its
 * parent once it is open: either may fail or end before the other.
 *
 * Such an allgather is the flat schedule of as many ranks as the group has, with the peers' numbers
 * replaced by theirs in the parent. Groups use the same tags at the same time: they have no rank in
 * common.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "runtime/call.h"
#include "runtime/engine/absent.h"
#include "runtime/open.h"

#define WORDS 2           /* Color and key. */
#define FAILED UINT64_MAX /* In place of a blob's size: this rank cannot open the communicator. */

_Static_assert(RUBATO_COLOR_NONE == UINT32_MAX, "no color has this value");

struct member {
	int64_t key;
	uint32_t rank; /* In the parent. */
};

struct blobs { /* One exchange's result: handed out until close. */
	struct blobs *next;
	const void **out;
	size_t *out_bytes;
	uint64_t words[]; /* The blobs, padded to one length; then our own. */
};

struct group {
	struct rb_bootstrap base; /* First. */
	struct rubato_comm *parent;
	uint64_t number; /* Of the split. */
	uint32_t exchanges;
	struct member *members;
	uint64_t *sizes;
	uint8_t *routes; /* Per member: which transport the parent has to it. */
	struct blobs *blobs;
	uint64_t deadline_ns; /* Of the last exchange. */
	bool over;     /* Some rank has failed, and all know: nothing is exchanged any more. */
	bool *parents; /* Who opens it is told: the error's text has the parent's numbers. */
};

static void blobs_free(struct blobs *blobs)
{
	if (blobs == NULL)
		return;
	free(blobs->out);
	free(blobs->out_bytes);
	free(blobs);
}

static struct blobs *blobs_new(uint32_t rank_count, uint64_t words)
{
	struct blobs *blobs =
		calloc(1, sizeof(*blobs) + ((size_t)rank_count + 1) * words * sizeof(uint64_t));

	if (blobs == NULL)
		return NULL;
	blobs->out = calloc(rank_count, sizeof(*blobs->out));
	blobs->out_bytes = calloc(rank_count, sizeof(*blobs->out_bytes));
	if (blobs->out != NULL && blobs->out_bytes != NULL)
		return blobs;
	blobs_free(blobs);
	return NULL;
}

static void group_close(struct rb_bootstrap *b)
{
	struct group *g = (struct group *)b;

	while (g->blobs != NULL) {
		struct blobs *next = g->blobs->next;

		blobs_free(g->blobs);
		g->blobs = next;
	}
	free(g->members);
	free(g->sizes);
	free(g->routes);
	free(g);
}

/* ---- The bootstrap ---- */

struct exchange {
	struct rb_run run;
	bool done;
};

static void exchange_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine;
	((struct exchange *)run->owner)->done = true;
}

static uint32_t parents_name(const void *arg, uint32_t peer)
{
	return ((const struct group *)arg)->members[peer].rank;
}

static rubato_status plan_make(const struct group *g, uint64_t words, struct rb_plan **out)
{
	int flat = rb_algorithm_find(RB_KIND_ALLGATHER, "flat");
	struct rb_plan_key key = { .count = words,
				   .kind = RB_KIND_ALLGATHER,
				   .element_bytes = 8,
				   .algorithm = (uint8_t)flat };
	struct rb_choice choice = { .align = 1, .chunk = words };

	RB_ASSERT(flat >= 0);
	struct rb_build who = { .rank = g->base.rank, .rank_count = g->base.rank_count };

	RB_TRY(rb_plan_make(&key, NULL, &choice, &who, out));
	rb_plan_rename(*out, parents_name, g);
	return RUBATO_OK;
}

/* `words` from everybody, in the group's order. */
static rubato_status exchange_run(struct group *g, uint64_t *in, uint64_t *out, uint64_t words,
				  uint64_t deadline_ns)
{
	struct rb_engine *engine = &g->parent->engine;
	struct exchange x = { .done = false };
	struct rb_plan *plan = NULL;
	rubato_status err;

	RB_TRY(plan_make(g, words, &plan));
	err = rb_run_init(&x.run, plan);
	if (err != RUBATO_OK) {
		rb_plan_free(plan);
		return err;
	}
	x.run.buffers[RB_BUF_IN].base = in;
	x.run.buffers[RB_BUF_OUT].base = out;
	x.run.type = RUBATO_INT64;
	x.run.tag = rb_tag(engine->epoch, RB_TAG_SPLIT, g->number, g->exchanges++);
	x.run.signature = (struct rb_signature) {
		.kind = RB_KIND_SPLIT, .type = 0xff, .op = 0xff, .root = UINT32_MAX, .count = words
	};
	x.run.done = exchange_done;
	x.run.owner = &x;
	rb_engine_enter(engine);
	err = rb_engine_check(engine);
	if (err == RUBATO_OK) {
		rb_run_start(engine, &x.run);
		err = rb_engine_wait(engine, &x.done, deadline_ns);
		if (err != RUBATO_OK)
			rb_run_give_up(engine, &x.run, err, "split: start-up of a group");
		err = x.run.status;
		if (err != RUBATO_OK)
			err = RB_FAIL(err, "%s", x.run.failure);
	}
	rb_run_fini(&x.run);
	rb_engine_leave(engine);
	rb_plan_free(plan);
	return err;
}

/* What the parent's messages say of ranks, as of who is waited for, is in the parent's numbers. */
static rubato_status exchange(struct group *g, uint64_t *in, uint64_t *out, uint64_t words)
{
	rubato_status err = exchange_run(g, in, out, words, g->deadline_ns);

	err = rb_notice_memory_outside(&g->parent->engine, err);
	*g->parents = err != RUBATO_OK;
	return err;
}

/* How long a blob is; who has failed says that instead. */
static rubato_status sizes_exchange(struct group *g, uint64_t size)
{
	RB_TRY(exchange(g, &size, g->sizes, 1));
	for (uint32_t r = 0; r < g->base.rank_count; r++) {
		g->base.blames = g->sizes[r] == FAILED ? r + 1 : 0;
		if (g->sizes[r] == FAILED)
			return RB_FAIL(RUBATO_ERR_PEER,
				       "rank %u failed to open it: its own text says why", r);
	}
	return RUBATO_OK;
}

static rubato_status group_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				     const void *const **out, const size_t **out_bytes,
				     uint64_t deadline_ns)
{
	struct group *g = (struct group *)b;
	uint64_t words = 1;

	g->deadline_ns = deadline_ns;
	g->over = true; /* Until it is known to be otherwise. */
	RB_TRY(sizes_exchange(g, in_bytes));
	for (uint32_t r = 0; r < b->rank_count; r++) {
		if (g->sizes[r] > RB_BLOB_BYTES_MAX)
			return RB_FAIL(RUBATO_ERR_MISMATCH, "rank %u brings a blob of %llu bytes",
				       r, (unsigned long long)g->sizes[r]);
		if ((g->sizes[r] + 7) / 8 > words)
			words = (g->sizes[r] + 7) / 8;
	}
	struct blobs *blobs = blobs_new(b->rank_count, words);

	if (blobs == NULL)
		return rb_notice_memory_outside(
			&g->parent->engine,
			RB_FAIL(RUBATO_ERR_MEMORY, "split: blobs of %u ranks", b->rank_count));
	blobs->next = g->blobs;
	g->blobs = blobs;
	uint64_t *own = blobs->words + b->rank_count * words;

	if (in_bytes > 0)
		memcpy(own, in, in_bytes);
	RB_TRY(exchange(g, own, blobs->words, words));
	for (uint32_t r = 0; r < b->rank_count; r++) {
		blobs->out[r] = blobs->words + r * words;
		blobs->out_bytes[r] = (size_t)g->sizes[r];
	}
	*out = blobs->out;
	*out_bytes = blobs->out_bytes;
	g->over = false;
	return RUBATO_OK;
}

/* The others are on their way into the next exchange, or come here as well. */
static rubato_status group_end(struct rb_bootstrap *b, bool good)
{
	struct group *g = (struct group *)b;
	uint64_t size = FAILED;
	char text[RB_TEXT_BYTES];

	if (g->over)
		return RUBATO_OK;
	g->over = true;
	if (good) /* And so are all. */
		return sizes_exchange(g, 0);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	(void)rb_notice_memory_outside(&g->parent->engine,
				       exchange_run(g, &size, g->sizes, 1, g->deadline_ns));
	return RB_FAIL(RUBATO_ERR_PEER, "%s", text);
}

/* ---- Groups ---- */

static int member_compare(const void *a, const void *b)
{
	const struct member *left = a, *right = b;

	if (left->key != right->key)
		return left->key < right->key ? -1 : 1;
	return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* The color's ranks, in their order; `all` holds everybody's color and key. */
static void members_find(struct group *g, const int64_t *all, uint32_t color)
{
	const struct rb_engine *engine = &g->parent->engine;
	uint32_t count = 0, parent_rank = engine->rank;

	for (uint32_t r = 0; r < engine->rank_count; r++)
		if (all[r * WORDS] == (int64_t)color)
			g->members[count++] = (struct member) { all[r * WORDS + 1], r };
	qsort(g->members, count, sizeof(*g->members), member_compare);
	g->base.rank_count = count;
	while (g->members[g->base.rank].rank != parent_rank)
		g->base.rank++;
	for (uint32_t r = 0; r < count; r++)
		g->routes[r] = engine->transport[engine->route[g->members[r].rank]];
}

/* A nonce that the group shares and no other: of its parent's, the split and the color. */
static void job_name(struct group *g, uint32_t color)
{
	uint64_t halves[2];

	memcpy(halves, g->parent->job, sizeof(halves));
	halves[0] = rb_mix(halves[0] ^ rb_mix(rb_mix(g->number) + color + 1));
	halves[1] = rb_mix(halves[1] ^ rb_mix(halves[0]));
	memcpy(g->base.job, halves, sizeof(halves));
}

static rubato_status group_new(struct rubato_comm *parent, const int64_t *all, uint32_t color,
			       uint64_t number, struct group **out)
{
	uint32_t n = parent->engine.rank_count;
	struct group *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "split: %zu bytes", sizeof(*g));
	g->parent = parent;
	g->number = number;
	g->base.allgather = group_allgather;
	g->base.end = group_end;
	g->base.close = group_close;
	memcpy(g->base.key, parent->key, sizeof(g->base.key));
	g->base.elsewhere = parent->elsewhere;
	g->members = calloc(n, sizeof(*g->members));
	g->sizes = calloc(n, sizeof(*g->sizes));
	g->routes = calloc(n, sizeof(*g->routes));
	if (g->members == NULL || g->sizes == NULL || g->routes == NULL) {
		group_close(&g->base);
		return RB_FAIL(RUBATO_ERR_MEMORY, "split: tables of %u ranks", n);
	}
	members_find(g, all, color);
	job_name(g, color);
	*out = g;
	return RUBATO_OK;
}

/* "0, 2, 4, ...": the members, in the parent's numbers. */
static void members_print(const struct group *g, char *text, size_t text_bytes)
{
	size_t at = 0;

	for (uint32_t i = 0; i < g->base.rank_count && at + 16 < text_bytes; i++)
		at += (size_t)snprintf(text + at, text_bytes - at, "%s%u", i > 0 ? ", " : "",
				       g->members[i].rank);
	if (at + 16 >= text_bytes)
		(void)snprintf(text + at, text_bytes - at, ", ...");
}

/*
 * Why a group could not open, as the caller counts ranks: who holds the parent knows nothing of the
 * numbers in a communicator that is not there. Those that its own start-up speaks of are explained;
 * `parents`: the text has the parent's. What the parent has lost is the cause, also where it was in
 * another group: those who had noticed went.
 */
static rubato_status open_failed(struct rubato_comm *parent, rubato_status err, const char *members,
				 bool parents)
{
	struct rb_engine *engine = &parent->engine;
	char text[RB_TEXT_BYTES], lost[RB_LOSS_BYTES];
	const char *loss;

	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rb_engine_enter(engine);
	rb_losses_hear(&engine->losses);
	loss = rb_loss_behind(&engine->losses, UINT32_MAX, lost, sizeof(lost));
	if (loss != NULL && engine->poison != RUBATO_ERR_MISMATCH)
		err = RB_FAIL(RUBATO_ERR_PEER, "split: %s", loss);
	else if (engine->poison != RUBATO_OK)
		err = RB_FAIL(engine->poison, "split: %s", engine->poison_text);
	else
		err = RB_FAIL(err, "split, of ranks %s%s: %s", members,
			      parents ? "" : ", numbered from 0 in what follows", text);
	rb_engine_leave(engine);
	return err;
}

static rubato_status group_open(struct rubato_comm *parent, struct group *g, rubato_comm **out)
{
	struct rb_setup setup = parent->origin;
	char members[64];
	bool parents = false;
	rubato_status err;

	g->parents = &parents;
	members_print(g, members, sizeof(members)); /* Opening ends the group. */

	setup.routes = g->routes;
	setup.config = parent->config;
	setup.bootstrap = &g->base;
	setup.timeout_ns = parent->began_timeout_ns;
	rb_engine_enter(&parent->engine);
	setup.deadline_ns = rb_deadline(rb_engine_now(&parent->engine), parent->timeout_ns);
	g->deadline_ns = setup.deadline_ns;
	rb_engine_leave(&parent->engine);
	err = rb_comm_open(&setup, out);
	return err == RUBATO_OK ? RUBATO_OK : open_failed(parent, err, members, parents);
}

rubato_status rubato_split(rubato_comm *comm, uint32_t color, int32_t key, rubato_comm **out)
{
	int64_t mine[WORDS] = { color, key }, *all;
	struct group *group = NULL;
	uint64_t number = 0;
	rubato_status err;

	if (comm == NULL || out == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "split: NULL");
	RB_TRY(rb_engine_ours(&comm->engine));
	all = calloc(comm->engine.rank_count, sizeof(mine));
	if (all == NULL)
		return rb_notice_memory_outside(&comm->engine, RB_FAIL(RUBATO_ERR_MEMORY,
								       "split: table of %u ranks",
								       comm->engine.rank_count));
	err = rb_call_gather(comm, RB_KIND_SPLIT, mine, all, WORDS, &number);
	if (err == RUBATO_OK && color != RUBATO_COLOR_NONE)
		err = group_new(comm, all, color, number, &group);
	free(all);
	if (err != RUBATO_OK)
		return rb_notice_memory_outside(&comm->engine, err);
	if (group == NULL) {
		*out = NULL;
		return RUBATO_OK;
	}
	return group_open(comm, group, out);
}
