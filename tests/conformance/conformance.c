/* conformance.c -- the harness: runs ranks, waits with deadlines, checks the rules of
 * completion. */
#include "conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

/* ---- Ranks ---- */

struct thread_rank {
	pthread_t thread;
	void (*rank_main)(void *arg, uint32_t rank);
	void *arg;
	uint32_t rank;
};

static void *thread_main(void *arg)
{
	struct thread_rank *t = arg;

	t->rank_main(t->arg, t->rank);
	return NULL;
}

bool conform_run_threads(void *cluster, uint32_t rank_count,
			 void (*rank_main)(void *arg, uint32_t rank), void *arg)
{
	struct thread_rank ranks[CONFORM_RANKS_MAX];

	(void)cluster;
	for (uint32_t i = 0; i < rank_count; i++) {
		ranks[i] = (struct thread_rank) { 0, rank_main, arg, i };
		ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, thread_main, &ranks[i]), 0);
	}
	for (uint32_t i = 0; i < rank_count; i++)
		ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
	return true;
}

bool conform_run_processes(void *cluster, uint32_t rank_count,
			   void (*rank_main)(void *arg, uint32_t rank), void *arg)
{
	pid_t children[CONFORM_RANKS_MAX];
	bool good = true;

	(void)cluster;
	(void)fflush(NULL);
	for (uint32_t i = 0; i < rank_count; i++) {
		children[i] = fork();
		ck_assert_int_ge(children[i], 0);
		if (children[i] == 0) {
			rank_main(arg, i);
			_exit(0);
		}
	}
	for (uint32_t i = 0; i < rank_count; i++) {
		int status = 0;

		ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
		good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	return good;
}

static void rank_connect(struct conform_rank *r)
{
	struct conform_shared *w = r->shared;
	struct rb_transport_options options = {
		.rank = r->rank,
		.rank_count = r->rank_count,
		.heap_bytes = 64u << 20,
		.tcp_only = conform_backend.tcp_only,
		.attach = conform_backend.attach,
		.connect = conform_backend.connect,
		.interface = conform_backend.interface != NULL ? conform_backend.interface(r->rank)
							       : NULL,
		.backend = w->backend,
	};
	const void *addresses[CONFORM_RANKS_MAX];
	size_t address_bytes[CONFORM_RANKS_MAX];
	bool use[CONFORM_RANKS_MAX];
	size_t size_bytes = RB_ADDRESS_BYTES_MAX;
	rubato_status err;

	memcpy(options.job, &w->seed, sizeof(w->seed));
	err = r->ops->open(&options, &r->ep);
	ck_assert_msg(err == RUBATO_OK, "rank %u: open: %s", r->rank, rubato_error_text());
	ck_assert_uint_eq(r->ep->rank, r->rank);
	ck_assert_uint_eq(r->ep->rank_count, r->rank_count);
	err = r->ops->address(r->ep, w->address[r->rank].bytes, &size_bytes);
	ck_assert_msg(err == RUBATO_OK, "rank %u: address: %s", r->rank, rubato_error_text());
	ck_assert_uint_le(size_bytes, RB_ADDRESS_BYTES_MAX);
	w->address[r->rank].size_bytes = size_bytes;
	conform_barrier(r, "addresses");
	for (uint32_t i = 0; i < r->rank_count; i++) {
		addresses[i] = w->address[i].bytes;
		address_bytes[i] = w->address[i].size_bytes;
		use[i] = true;
		ck_assert_msg(r->ops->reachable(r->ep, addresses[i], address_bytes[i]),
			      "rank %u: rank %u is not reachable", r->rank, i);
	}
	err = r->ops->connect(r->ep, addresses, address_bytes, use,
			      r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS);
	ck_assert_msg(err == RUBATO_OK, "rank %u: connect: %s", r->rank, rubato_error_text());
	r->connected = true;
}

void conform_leave(struct conform_rank *r)
{
	(void)atomic_fetch_add(&r->shared->arrived[r->rank], 1u << 20);
}

static void rank_main(void *arg, uint32_t rank)
{
	struct conform_shared *w = arg;
	struct conform_rank r = {
		.ops = conform_backend.ops,
		.shared = w,
		.rank = rank,
		.rank_count = w->rank_count,
		.rng = { w->seed ^ rb_mix(rank + 1) },
	};

	rank_connect(&r);
	w->body(&r);
	if (!r.closed) {
		conform_barrier(&r, "the end");
		r.ops->close(r.ep, false, r.ops->now_ns(r.ep) + CONFORM_DEADLINE_NS);
	} else {
		conform_leave(&r);
	}
}

void conform_run(uint32_t rank_count, void (*body)(struct conform_rank *r))
{
	struct conform_shared *w =
		mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(w, MAP_FAILED);
	w->rank_count = rank_count;
	w->body = body;
	w->seed = 0x5eed0000u + rank_count;
	if (conform_backend.cluster_open != NULL)
		w->backend = conform_backend.cluster_open(rank_count);
	ck_assert_msg(conform_backend.run(w->backend, rank_count, rank_main, w),
		      "a rank ended badly");
	if (conform_backend.cluster_close != NULL)
		conform_backend.cluster_close(w->backend);
	ck_assert_int_eq(munmap(w, sizeof(*w)), 0);
}

/* ---- Waiting ---- */

void conform_pause(struct conform_rank *r)
{
	if (r->ops->caps & RB_CAP_VIRTUAL_TIME)
		r->ops->wait(r->ep, r->ops->now_ns(r->ep) + 1000);
	else
		rb_yield();
}

void conform_expire(struct conform_rank *r, uint64_t since_ns, const char *what)
{
	uint64_t waited_ns = r->ops->now_ns(r->ep) - since_ns;

	CONFORM(waited_ns < CONFORM_DEADLINE_NS, "rank %u of %u waited for what did not come: %s",
		r->rank, r->rank_count, what);
}

bool conform_poll(struct conform_rank *r)
{
	struct rb_request *done = r->ops->poll(r->ep);
	bool any = done != NULL;

	while (done != NULL) {
		struct conform_request *c = done->owner;

		done = done->next;
		CONFORM(c != NULL, "a request without owner");
		CONFORM(!c->done_at_post, "listed, but it was DONE after its post");
		CONFORM(c->listed == 0, "listed twice");
		CONFORM(c->request.state == RB_REQUEST_DONE, "%s is %d", "c->request.state",
			(int)c->request.state);
		c->listed = 1;
	}
	return any;
}

void conform_barrier(struct conform_rank *r, const char *what)
{
	struct conform_shared *w = r->shared;
	uint32_t mine = atomic_load(&w->arrived[r->rank]) + 1;
	uint64_t since_ns = r->ops->now_ns(r->ep);

	atomic_store(&w->arrived[r->rank], mine);
	for (uint32_t i = 0; i < r->rank_count; i++) {
		while ((int32_t)(atomic_load(&w->arrived[i]) - mine) < 0) {
			conform_expire(r, since_ns, what);
			conform_pause(r);
			if (r->connected)
				(void)conform_poll(r);
		}
	}
}

/* ---- Requests ---- */

static void request_init(struct conform_request *c, uint32_t peer, uint64_t tag, void *buffer,
			 size_t size_bytes)
{
	memset(c, 0, sizeof(*c));
	c->request.peer = peer;
	c->request.tag = (struct rb_tag) { tag >> 32, tag & 0xffffffff };
	c->request.signature = conform_signature(size_bytes);
	c->request.buffer = buffer;
	c->request.size_bytes = size_bytes;
	c->request.owner = c;
}

static void request_posted(struct conform_request *c)
{
	CONFORM(c->request.state == RB_REQUEST_DONE || c->request.state == RB_REQUEST_PENDING,
		"state %d after the post", (int)c->request.state);
	c->done_at_post = c->request.state == RB_REQUEST_DONE;
}

void conform_recv(struct conform_rank *r, struct conform_request *c, uint32_t peer, uint64_t tag,
		  void *buffer, size_t size_bytes)
{
	request_init(c, peer, tag, buffer, size_bytes);
	r->ops->recv(r->ep, &c->request);
	request_posted(c);
	CONFORM(c->request.kind == RB_REQUEST_RECV, "%s is %d", "c->request.kind",
		(int)c->request.kind);
}

void conform_send(struct conform_rank *r, struct conform_request *c, uint32_t peer, uint64_t tag,
		  const void *buffer, size_t size_bytes)
{
	request_init(c, peer, tag, (void *)(uintptr_t)buffer, size_bytes);
	r->ops->send(r->ep, &c->request);
	request_posted(c);
	CONFORM(c->request.kind == RB_REQUEST_SEND, "%s is %d", "c->request.kind",
		(int)c->request.kind);
}

void conform_put(struct conform_rank *r, struct conform_request *c, uint32_t peer, uint64_t tag,
		 const void *buffer, size_t size_bytes, struct rb_remote *remote, uint64_t offset)
{
	request_init(c, peer, tag, (void *)(uintptr_t)buffer, size_bytes);
	c->request.signature = conform_signature(0); /* As the empty receive at the target has. */
	c->request.remote = remote;
	c->request.remote_offset = offset;
	r->ops->put(r->ep, &c->request);
	request_posted(c);
	CONFORM(c->request.kind == RB_REQUEST_PUT, "%s is %d", "c->request.kind",
		(int)c->request.kind);
}

static const char *request_text(const struct conform_request *c, char *text, size_t text_bytes)
{
	static const char *const kinds[] = { "send to", "receive from", "put to" };

	(void)snprintf(text, text_bytes, "%s rank %u, tag %#llx, %zu bytes",
		       kinds[c->request.kind % 3], c->request.peer,
		       (unsigned long long)(c->request.tag.call << 32 | c->request.tag.step),
		       c->request.size_bytes);
	return text;
}

void conform_finish(struct conform_rank *r, struct conform_request *c)
{
	uint64_t since_ns = r->ops->now_ns(r->ep);
	char text[128];

	while (c->request.state != RB_REQUEST_DONE) {
		if (conform_poll(r))
			continue;
		conform_expire(r, since_ns, request_text(c, text, sizeof(text)));
		conform_pause(r);
	}
	CONFORM(c->done_at_post || c->listed == 1, "DONE, but poll did not list it");
}

void conform_finish_ok(struct conform_rank *r, struct conform_request *c)
{
	char text[128];

	conform_finish(r, c);
	CONFORM(c->request.status == RUBATO_OK, "rank %u: %s: %s", r->rank,
		request_text(c, text, sizeof(text)), rubato_status_name(c->request.status));
}

void conform_cancel(struct conform_rank *r, struct conform_request *c)
{
	r->ops->cancel(r->ep, &c->request);
	CONFORM(c->request.state == RB_REQUEST_DONE, "%s is %d", "c->request.state",
		(int)c->request.state);
	c->done_at_post = true; /* From here on it must not be listed. */
}

void conform_let_leave(struct conform_rank *r)
{
	uint64_t since_ns = r->ops->now_ns(r->ep);

	while (r->ep->leaving != 0 && (r->ops->left == NULL || !r->ops->left(r->ep))) {
		(void)conform_poll(r);
		conform_expire(r, since_ns, "all to leave");
		conform_pause(r);
	}
}

/* ---- Data ---- */

struct rb_signature conform_signature(uint64_t count)
{
	return (struct rb_signature) { RB_KIND_SENDRECV, RUBATO_INT32, 0xff, 0, UINT32_MAX, count };
}

void conform_fill(void *buffer, size_t size_bytes, uint64_t key)
{
	uint8_t *bytes = buffer;
	struct rb_rng rng = { rb_mix(key + 1) };
	size_t i = 0;

	for (; i + 8 <= size_bytes; i += 8) {
		uint64_t word = rb_rng_next(&rng);

		memcpy(bytes + i, &word, 8);
	}
	for (; i < size_bytes; i++)
		bytes[i] = (uint8_t)rb_rng_next(&rng);
}

void conform_verify(const void *buffer, size_t size_bytes, uint64_t key)
{
	uint8_t *expected = malloc(size_bytes + 1);
	const uint8_t *bytes = buffer;
	size_t at = 0;

	CONFORM(expected != NULL, "memory");
	conform_fill(expected, size_bytes, key);
	if (size_bytes > 0 && memcmp(expected, bytes, size_bytes) != 0) {
		while (expected[at] == bytes[at])
			at++;
		ck_abort_msg("byte %zu of %zu is %02x, not %02x (key %llu)", at, size_bytes,
			     bytes[at], expected[at], (unsigned long long)key);
	}
	free(expected);
}
