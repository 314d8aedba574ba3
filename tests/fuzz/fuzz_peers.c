/*
 * fuzz_peers.c -- what peers send to a communicator that is open: failure notices, last words, the
 * messages of a split (colors, keys, sizes, blobs of the child's start), and where puts may write.
 *
 * The transport is played. Peers answer each message with what this rank sent them under the same
 * tag, as ranks that are all alike would, and a script alters that, lets peers go, and sends
 * notices. Time is virtual and passes with each poll. Whatever comes, each call ends by its
 * deadline with a status that fits, in words that can be printed, and nothing is left.
 */
#include "tests/fuzz/fuzz_peers.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/log.h"
#include "runtime/comm.h"
#include "runtime/open.h"
#include "runtime/startup/setup.h"
#include "tests/fuzz/fuzz.h"

#define RANKS_MAX 6u
#define EXCHANGES_MAX 8u
#define CALLS_MAX 6u
#define SENT_MAX 64u /* Remembered per endpoint: the oldest is forgotten. */
#define STEP_NS 1000u
#define TIMEOUT_NS 1000000u
#define ELEMENTS 40u
#define KEY_BYTES 9u

struct world {
	struct fuzz_script script;
	uint64_t now_ns;
	uint32_t got;
	bool calm; /* Only peers that are alike, for now. */
};

struct sent {
	uint32_t peer;
	struct rb_tag tag;
	void *bytes;
	size_t size_bytes;
};

struct endpoint {
	struct rb_endpoint base; /* First. */
	struct world *world;
	struct rb_request *pending; /* Receives. */
	struct sent sent[SENT_MAX];
	uint32_t sent_count;
	bool gone[RANKS_MAX];
	uint32_t untold; /* Of the gone, + 1; 0: none. */
};

static struct endpoint *endpoint_of(struct rb_endpoint *ep)
{
	return (struct endpoint *)ep;
}

/* ---- The played transport ---- */

static const struct rb_transport_ops play;

static rubato_status play_open(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	struct endpoint *e = calloc(1, sizeof(*e));

	FUZZ_CHECK(e != NULL && options->rank_count <= RANKS_MAX);
	e->world = options->backend;
	e->base.ops = &play;
	e->base.rank = options->rank;
	e->base.rank_count = options->rank_count;
	*out = &e->base;
	return RUBATO_OK;
}

static rubato_status play_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes)
{
	(void)ep;
	memset(bytes, 7, 20);
	*size_bytes = 20;
	return RUBATO_OK;
}

static bool play_reachable(struct rb_endpoint *ep, const void *address, size_t address_bytes)
{
	(void)ep;
	return address_bytes > 0 && *(const uint8_t *)address == 7;
}

static rubato_status play_connect(struct rb_endpoint *ep, const void *const *addresses,
				  const size_t *address_bytes, const bool *use,
				  uint64_t deadline_ns)
{
	(void)deadline_ns;
	for (uint32_t r = 0; r < ep->rank_count; r++)
		FUZZ_CHECK(!use[r] || play_reachable(ep, addresses[r], address_bytes[r]));
	return RUBATO_OK;
}

static void play_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns)
{
	struct endpoint *e = endpoint_of(ep);
	uint8_t words = 0;

	(void)deadline_ns;
	if (e == NULL)
		return;
	for (uint32_t i = 0; abort && ep->last_words != NULL && i < RB_LAST_WORDS_BYTES; i++)
		words |= ep->last_words[i]; /* All can be read. */
	FUZZ_CHECK(words != 0 || !abort || ep->last_words == NULL);
	for (uint32_t i = 0; i < SENT_MAX; i++)
		free(e->sent[i].bytes);
	free(e);
}

static void complete(struct rb_request *request, rubato_status status)
{
	request->state = RB_REQUEST_DONE;
	request->status = status;
}

static void play_send(struct rb_endpoint *ep, struct rb_request *request)
{
	struct endpoint *e = endpoint_of(ep);
	struct sent *s = &e->sent[e->sent_count++ % SENT_MAX];

	FUZZ_CHECK(request->peer < ep->rank_count);
	if (e->gone[request->peer]) {
		complete(request, RUBATO_ERR_PEER);
		return;
	}
	free(s->bytes);
	*s = (struct sent) { .peer = request->peer,
			     .tag = request->tag,
			     .bytes = malloc(request->size_bytes + 1),
			     .size_bytes = request->size_bytes };
	FUZZ_CHECK(s->bytes != NULL);
	if (request->size_bytes > 0)
		memcpy(s->bytes, request->buffer, request->size_bytes);
	complete(request, RUBATO_OK);
}

/* ---- Memory: a key is a mark and the size that its owner tells ---- */

#define KEY_MARK 0x6b

static rubato_status play_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				     struct rb_region **out)
{
	(void)ep;
	*out = calloc(1, sizeof(**out));
	FUZZ_CHECK(*out != NULL);
	**out = (struct rb_region) { .base = base, .size_bytes = size_bytes };
	return RUBATO_OK;
}

static rubato_status play_region_alloc(struct rb_endpoint *ep, size_t size_bytes,
				       struct rb_region **out)
{
	void *base = calloc(1, size_bytes);

	FUZZ_CHECK(base != NULL);
	RB_TRY(play_region_add(ep, base, size_bytes, out));
	(*out)->allocated = true;
	return RUBATO_OK;
}

static void play_region_drop(struct rb_endpoint *ep, struct rb_region *region)
{
	(void)ep;
	if (region->allocated)
		free(region->base);
	free(region);
}

static rubato_status play_region_key(struct rb_endpoint *ep, struct rb_region *region, void *key,
				     size_t *key_bytes)
{
	struct rb_wire w = rb_wire_over(key, KEY_BYTES);

	(void)ep;
	rb_wire_put_u8(&w, KEY_MARK);
	rb_wire_put_u64(&w, region->size_bytes);
	*key_bytes = KEY_BYTES;
	return RUBATO_OK;
}

static rubato_status play_remote_open(struct rb_endpoint *ep, uint32_t peer, const void *key,
				      size_t key_bytes, struct rb_remote **out)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)key, key_bytes);
	uint8_t mark = rb_wire_get_u8(&w);

	FUZZ_CHECK(peer < ep->rank_count && key_bytes <= RB_KEY_BYTES_MAX);
	if (key_bytes != KEY_BYTES || mark != KEY_MARK)
		return RB_FAIL(RUBATO_ERR_PEER, "played: no key");
	*out = calloc(1, sizeof(**out));
	FUZZ_CHECK(*out != NULL);
	(*out)->peer = peer;
	(*out)->size_bytes = rb_wire_get_u64(&w);
	return RUBATO_OK;
}

static void play_remote_close(struct rb_endpoint *ep, struct rb_remote *remote)
{
	(void)ep;
	free(remote);
}

/* As its notification. Whatever peers say, it lies within what they say that they have. */
static void play_put(struct rb_endpoint *ep, struct rb_request *request)
{
	const struct rb_remote *remote = request->remote;
	size_t size_bytes = request->size_bytes;

	FUZZ_CHECK(remote != NULL && remote->peer == request->peer);
	FUZZ_CHECK(request->remote_offset <= remote->size_bytes &&
		   size_bytes <= remote->size_bytes - request->remote_offset);
	request->size_bytes = 0;
	play_send(ep, request);
	request->size_bytes = size_bytes;
	endpoint_of(ep)->world->got |= FUZZ_PEERS_PUT;
}

static void play_recv(struct rb_endpoint *ep, struct rb_request *request)
{
	struct endpoint *e = endpoint_of(ep);

	FUZZ_CHECK(request->peer < ep->rank_count);
	if (e->gone[request->peer]) {
		complete(request, RUBATO_ERR_PEER);
		return;
	}
	request->state = RB_REQUEST_PENDING;
	request->next = e->pending;
	e->pending = request;
}

static void pending_remove(struct endpoint *e, struct rb_request *request)
{
	struct rb_request **at = &e->pending;

	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
}

static void play_cancel(struct rb_endpoint *ep, struct rb_request *request)
{
	if (request->state == RB_REQUEST_DONE)
		return; /* Listed by this poll, and not looked at yet. */
	pending_remove(endpoint_of(ep), request);
	complete(request, RUBATO_ERR_CANCELLED);
}

static bool play_recall(struct rb_endpoint *ep, struct rb_request *request)
{
	play_cancel(ep, request);
	return true;
}

static bool play_unmatched(struct rb_endpoint *ep, rb_unmatched_visit *visit, void *arg)
{
	(void)ep;
	(void)visit;
	(void)arg;
	return false;
}

/* ---- What peers do ---- */

static const struct sent *answer_to(const struct endpoint *e, const struct rb_request *request)
{
	for (uint32_t i = 0; i < SENT_MAX; i++) {
		const struct sent *s = &e->sent[i];

		if (s->bytes != NULL && s->peer == request->peer &&
		    rb_tag_same(s->tag, request->tag) && s->size_bytes == request->size_bytes)
			return s;
	}
	return NULL;
}

/* Some bytes of it, near its start or anywhere. */
static void alter(struct fuzz_script *s, uint8_t *bytes, size_t size_bytes)
{
	uint8_t changes = fuzz_take_u8(s);

	for (uint8_t i = 0; i < changes % 4 && size_bytes > 0; i++) {
		size_t at = fuzz_take_u8(s);

		at |= changes >= 0x80 ? (size_t)fuzz_take_u8(s) << 8 : 0;
		bytes[at % size_bytes] ^= fuzz_take_u8(s);
	}
}

static void news_fill(struct fuzz_script *s, uint8_t *bytes)
{
	struct rb_wire w = rb_wire_over(bytes, RB_LAST_WORDS_BYTES);
	uint8_t form = fuzz_take_u8(s);

	memset(bytes, form & 0x10 ? 0xff : 0, RB_LAST_WORDS_BYTES);
	rb_wire_put_u32(&w, form & 1 ? (uint32_t)fuzz_take_u64(s) : (uint32_t) - (form >> 5));
	rb_wire_put_u32(&w, form & 2 ? (uint32_t)fuzz_take_u64(s) : fuzz_take_u8(s) % RANKS_MAX);
	rb_wire_put_u32(&w, form & 4 ? (uint32_t)fuzz_take_u64(s) : fuzz_take_u8(s) % RANKS_MAX);
	for (uint32_t i = 0; i < 8; i++)
		bytes[12 + i] = fuzz_take_u8(s);
}

/* Whether the message for this receive has come, by the script's will. */
static bool answer(struct endpoint *e, struct rb_request *request)
{
	struct fuzz_script *s = &e->world->script;
	bool notice = rb_tag_class_of(request->tag) == RB_TAG_NOTICE;
	const struct sent *sent = notice ? NULL : answer_to(e, request);
	uint8_t what = e->world->calm ? 0 : fuzz_take_u8(s);

	if (notice) {
		if (what < 0xf0)
			return false;
		FUZZ_CHECK(request->size_bytes == RB_LAST_WORDS_BYTES);
		news_fill(s, request->buffer);
		e->world->got |= FUZZ_PEERS_NEWS;
	} else if (sent == NULL) {
		return false;
	} else {
		if (request->size_bytes > 0)
			memcpy(request->buffer, sent->bytes, request->size_bytes);
		if (what >= 0xc0)
			alter(s, request->buffer, request->size_bytes);
	}
	complete(request, RUBATO_OK);
	if (what >= 0xb8 && what < 0xc0) {
		request->theirs = request->signature;
		request->theirs.count += what;
		request->their_bytes = what;
		request->status = RUBATO_ERR_MISMATCH;
	}
	return true;
}

static void peer_goes(struct endpoint *e, uint32_t peer)
{
	if (peer == e->base.rank || peer >= e->base.rank_count || e->gone[peer] || e->untold != 0)
		return;
	e->gone[peer] = true;
	e->untold = peer + 1;
}

static struct rb_request *play_poll(struct rb_endpoint *ep)
{
	struct endpoint *e = endpoint_of(ep);
	struct rb_request *list = NULL, **at = &e->pending;
	uint8_t what = e->world->calm ? 0 : fuzz_take_u8(&e->world->script);

	e->world->now_ns += STEP_NS;
	if (what >= 0xf8)
		peer_goes(e, what % ep->rank_count);
	while (*at != NULL) {
		struct rb_request *request = *at;
		bool lost = e->gone[request->peer];

		if (lost)
			complete(request, RUBATO_ERR_PEER);
		if (!lost && !answer(e, request)) {
			at = &request->next;
			continue;
		}
		*at = request->next;
		request->next = list;
		list = request;
	}
	return list;
}

static bool play_failure(struct rb_endpoint *ep, struct rb_failure *out)
{
	struct endpoint *e = endpoint_of(ep);
	struct fuzz_script *s = &e->world->script;
	uint8_t what;

	if (e->untold == 0)
		return false;
	what = fuzz_take_u8(s);
	out->peer = e->untold - 1;
	out->status = RUBATO_ERR_PEER;
	out->gave_up = what & 1;
	out->blames = what & 2 ? (uint32_t)fuzz_take_u64(s) : what >> 2 & 7;
	out->spoke = what & 1 && what % 8 > 1;
	(void)snprintf(out->text, sizeof(out->text), "it went");
	if (out->spoke) {
		news_fill(s, out->last_words);
		e->world->got |= FUZZ_PEERS_LAST_WORDS;
	}
	e->untold = 0;
	return true;
}

/* ---- Time ---- */

static void play_wait(struct rb_endpoint *ep, uint64_t deadline_ns)
{
	struct world *w = endpoint_of(ep)->world;
	uint64_t next_ns = w->now_ns + 20 * STEP_NS;

	w->now_ns = deadline_ns < next_ns ? deadline_ns : next_ns;
	w->now_ns += STEP_NS;
}

static void play_wake(struct rb_endpoint *ep)
{
	(void)ep;
}

static uint64_t play_now(struct rb_endpoint *ep)
{
	return endpoint_of(ep)->world->now_ns;
}

static uint64_t play_random(struct rb_endpoint *ep)
{
	(void)ep;
	return 4;
}

static void play_sleep(struct rb_endpoint *ep, uint64_t until_ns)
{
	endpoint_of(ep)->world->now_ns = until_ns;
}

static void play_drive(struct rb_endpoint *ep, uint64_t (*step)(void *arg), void *arg)
{
	(void)ep;
	(void)step;
	(void)arg;
}

static void play_dump(struct rb_endpoint *ep, void (*line)(void *arg, const char *text), void *arg)
{
	(void)ep;
	(void)line;
	(void)arg;
}

static const struct rb_transport_ops play = {
	.name = "played",
	.caps = RB_CAP_PUT | RB_CAP_BACKGROUND | RB_CAP_VIRTUAL_TIME,
	.key_bytes = KEY_BYTES,
	.open = play_open,
	.address = play_address,
	.reachable = play_reachable,
	.connect = play_connect,
	.close = play_close,
	.region_alloc = play_region_alloc,
	.region_add = play_region_add,
	.region_drop = play_region_drop,
	.region_key = play_region_key,
	.remote_open = play_remote_open,
	.remote_close = play_remote_close,
	.send = play_send,
	.recv = play_recv,
	.put = play_put,
	.cancel = play_cancel,
	.recall = play_recall,
	.unmatched = play_unmatched,
	.poll = play_poll,
	.failure = play_failure,
	.wait = play_wait,
	.wake = play_wake,
	.now_ns = play_now,
	.random = play_random,
	.sleep = play_sleep,
	.drive = play_drive,
	.dump = play_dump,
};

/* ---- A start among ranks that are alike ---- */

struct mirror {
	struct rb_bootstrap base; /* First. */
	uint32_t exchanges;
	void *blobs[EXCHANGES_MAX];
	const void *outs[EXCHANGES_MAX][RANKS_MAX];
	size_t bytes[EXCHANGES_MAX][RANKS_MAX];
};

static rubato_status mirror_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				      const void *const **out, const size_t **out_bytes,
				      uint64_t deadline_ns)
{
	struct mirror *m = (struct mirror *)b;
	uint32_t now = m->exchanges++;

	(void)deadline_ns;
	FUZZ_CHECK(now < EXCHANGES_MAX);
	m->blobs[now] = malloc(in_bytes + 1);
	FUZZ_CHECK(m->blobs[now] != NULL);
	if (in_bytes > 0)
		memcpy(m->blobs[now], in, in_bytes);
	for (uint32_t r = 0; r < b->rank_count; r++) {
		m->outs[now][r] = m->blobs[now];
		m->bytes[now][r] = in_bytes;
	}
	*out = m->outs[now];
	*out_bytes = m->bytes[now];
	return RUBATO_OK;
}

static void mirror_close(struct rb_bootstrap *b)
{
	struct mirror *m = (struct mirror *)b;

	for (uint32_t i = 0; i < m->exchanges; i++)
		free(m->blobs[i]);
	free(m);
}

static rubato_comm *comm_open(struct world *w)
{
	static const struct rb_transport_ops *const transports[] = { &play, NULL };
	struct mirror *m = calloc(1, sizeof(*m));
	struct rb_config config;
	struct rb_setup setup = { .config = &config,
				  .transports = transports,
				  .timeout_ns = TIMEOUT_NS,
				  .network = { .latency_us = 10, .byte_us = 0.001 },
				  .backend = w };
	rubato_comm *comm = NULL;

	FUZZ_CHECK(m != NULL && rb_config_read(&config) == RUBATO_OK);
	rb_log_level_set(RB_LOG_NONE);
	m->base.rank_count = 2 + fuzz_take_u8(&w->script) % (RANKS_MAX - 1);
	m->base.rank = fuzz_take_u8(&w->script) % m->base.rank_count;
	m->base.allgather = mirror_allgather;
	m->base.close = mirror_close;
	setup.bootstrap = &m->base;
	w->calm = true;
	FUZZ_CHECK(rb_comm_open(&setup, &comm) == RUBATO_OK);
	w->calm = false;
	return comm;
}

/* ---- Calls and their laws ---- */

static void outcome_check(rubato_status err, uint64_t begun_ns, const struct world *w)
{
	const char *text = rubato_error_text();

	FUZZ_CHECK(err <= RUBATO_OK && err > RUBATO_ERR_INTERNAL);
	FUZZ_CHECK(w->now_ns - begun_ns < 40 * (uint64_t)TIMEOUT_NS);
	for (; err != RUBATO_OK && *text != '\0'; text++)
		FUZZ_CHECK(*text >= ' ' && *text < 127);
}

static rubato_status puts_call(rubato_comm *comm, const double *in, double *out, uint64_t count)
{
	rubato_status err;

	RB_TRY(rubato_set_algorithm(comm, "allgather", "flat_put"));
	err = rubato_allgather(comm, in, out, count, RUBATO_FLOAT64);
	if (rubato_set_algorithm(comm, "allgather", "auto") != RUBATO_OK)
		FUZZ_CHECK(err != RUBATO_OK);
	return err;
}

static rubato_status call(rubato_comm *comm, uint8_t what)
{
	uint32_t n = rubato_size(comm);
	double in[ELEMENTS * RANKS_MAX] = { 0 }, out[ELEMENTS * RANKS_MAX];

	switch (what % 6) {
	case 0:
		return rubato_barrier(comm);
	case 1:
		return rubato_allreduce(comm, in, out, what % ELEMENTS, RUBATO_FLOAT64, RUBATO_SUM);
	case 2:
		return rubato_allgather(comm, in, out, what % ELEMENTS, RUBATO_FLOAT64);
	case 3:
	case 4:
		return puts_call(comm, in, out, what % ELEMENTS);
	default:
		return rubato_recv(comm, in, what % ELEMENTS, RUBATO_FLOAT64,
				   (rubato_rank(comm) + 1) % n, 3);
	}
}

/* What a refused key is called: here, and by the exchange. */
static bool names_key(const char *text)
{
	return strstr(text, "no key") != NULL || strstr(text, "gave a key") != NULL ||
	       strstr(text, "none of its memory") != NULL;
}

static void split(struct world *w, rubato_comm *comm)
{
	uint8_t what = fuzz_take_u8(&w->script);
	rubato_comm *child = NULL;
	uint64_t begun_ns = w->now_ns;
	rubato_status err;

	err = rubato_split(comm, what % 16 == 15 ? RUBATO_COLOR_NONE : what % 3, what / 16 - 8,
			   &child);
	outcome_check(err, begun_ns, w);
	w->got |= err != RUBATO_OK && err != RUBATO_ERR_PEER ? FUZZ_PEERS_REFUSED : 0;
	if (child == NULL)
		return;
	w->got |= FUZZ_PEERS_SPLIT;
	FUZZ_CHECK(err == RUBATO_OK && rubato_rank(child) < rubato_size(child) &&
		   rubato_size(child) <= rubato_size(comm));
	begun_ns = w->now_ns;
	err = call(child, what);
	outcome_check(err, begun_ns, w);
	begun_ns = w->now_ns;
	outcome_check(rubato_finalize(child), begun_ns, w);
}

uint32_t fuzz_peers_run(const uint8_t *data, size_t size_bytes)
{
	struct world w = { .script = fuzz_script_over(data, size_bytes), .now_ns = 1 };
	rubato_comm *comm;
	uint64_t begun_ns;

	comm = comm_open(&w);
	for (uint32_t i = 0; i < CALLS_MAX && w.script.at < w.script.end; i++) {
		uint8_t what = fuzz_take_u8(&w.script);
		rubato_status err;

		if (what % 2 == 0) {
			split(&w, comm);
			continue;
		}
		begun_ns = w.now_ns;
		err = call(comm, what / 2);
		outcome_check(err, begun_ns, &w);
		w.got |= err == RUBATO_OK ? FUZZ_PEERS_CALLED : 0;
		if (err != RUBATO_OK && names_key(rubato_error_text()))
			w.got |= FUZZ_PEERS_BAD_KEY;
	}
	begun_ns = w.now_ns;
	outcome_check(rubato_finalize(comm), begun_ns, &w);
	return w.got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	(void)fuzz_peers_run(data, size_bytes);
	return 0;
}
