/*
 * carriers.c -- see carriers.h.
 *
 * All networks are connected to all peers that they reach; what one leaves out both ends are told
 * of in an exchange. The first rank of each group of ranks that share memory then sends some
 * messages to that of the next group, by each network in turn, small and large ones; the square
 * root of the product of both times is what a network costs there. Links with an end in common are
 * timed one after the other, in two or three rounds.
 *
 * What a rank sent last by one network may have been lost on its way, which the other end still
 * waits for, while this one is at another network or in an exchange: so a second thread looks after
 * all of them as long as links are timed.
 */
#include "runtime/startup/carriers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"

#define BETTER 1.1 /* A later network must be that much faster: less is noise. */
/* Guess: all ranks begin at about the same time, and a device gives up within a second or two. */
#define TRY_NS UINT64_C(3000000000)
#define LINK_NS UINT64_C(3000000000) /* For one network, of a link: then it does not work. */
#define SMALL_BYTES 8u
#define SMALL_TIMES 10u
#define LARGE_BYTES (192u << 10) /* As runtime/engine/ping.h, for the same reason. */
#define LARGE_TIMES 3u
#define POLLS_PER_YIELD 16u
#define LOOK_NS UINT64_C(5000000) /* The best of some trips counts: few of them are disturbed. */
#define NO_GROUP UINT32_MAX

/* ---- The list ---- */

bool rb_carriers_differ(const struct rb_transport_ops *const *transports)
{
	uint32_t networks = 0;

	for (; *transports != NULL; transports++)
		networks += rb_carrier_is_network(*transports);
	return networks > 1;
}

static const struct rb_transport_ops *built(const char *name)
{
	if (strcmp(name, "shm") == 0)
		return &rb_transport_shm;
#ifdef RB_HAVE_VERBS
	if (strcmp(name, "verbs") == 0)
		return &rb_transport_verbs;
#endif
#ifdef RB_HAVE_UCX
	if (strcmp(name, "ucx") == 0 || strcmp(name, "tcp") == 0)
		return &rb_transport_ucx;
#endif
	return NULL;
}

static rubato_status not_built(const char *text, const char *name)
{
	if (strcmp(name, "ucx") == 0 || strcmp(name, "tcp") == 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "RUBATO_TRANSPORT=%s: this build has no UCX, which it needs", text);
	if (strcmp(name, "verbs") == 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "RUBATO_TRANSPORT=%s: this build was made without libibverbs", text);
	return RB_FAIL(RUBATO_ERR_ARGUMENT,
		       "RUBATO_TRANSPORT=%s: expected auto, or some of shm, ucx, tcp and verbs, "
		       "separated by commas",
		       text);
}

/* verbs is not here: it has met no network card yet, and a fault of its shall not reach those who
 * did not ask for it. */
static const char *automatic(void)
{
#ifdef RB_HAVE_UCX
	return "shm,ucx";
#else
	return "shm";
#endif
}

rubato_status rb_carriers_list(const char *text,
			       const struct rb_transport_ops *out[RB_CARRIERS_MAX + 1], bool *tcp)
{
	char list[64], *rest = list, *name;
	uint32_t count = 0;

	*tcp = false;
	(void)snprintf(list, sizeof(list), "%s", strcmp(text, "auto") == 0 ? automatic() : text);
	while ((name = strsep(&rest, ",")) != NULL) {
		const struct rb_transport_ops *ops = built(name);

		if (ops == NULL)
			return not_built(text, name);
		for (uint32_t i = 0; i < count; i++)
			if (out[i] == ops)
				return RB_FAIL(RUBATO_ERR_ARGUMENT,
					       "RUBATO_TRANSPORT=%s: %s is named twice%s", text,
					       ops->name,
					       *tcp || strcmp(name, "tcp") == 0
						       ? " (tcp is ucx without other networks)"
						       : "");
		*tcp |= strcmp(name, "tcp") == 0;
		RB_ASSERT(count < RB_CARRIERS_MAX);
		out[count++] = ops;
		/* Where memory is mapped nothing else is better. */
		for (uint32_t i = count - 1; i > 0 && out[i] == &rb_transport_shm; i--) {
			out[i] = out[i - 1];
			out[i - 1] = &rb_transport_shm;
		}
	}
	out[count] = NULL;
	return RUBATO_OK;
}

/* ---- What follows from the times ---- */

static double worse(double a, double b)
{
	if (a < 0 || b < 0)
		return -1;
	if (a == 0 || b == 0)
		return 0;
	return a > b ? a : b;
}

/* Of a link from group g to the next one; both ends have seen it. */
static double link_cost(const struct rb_carrier_view *views, uint32_t count, uint32_t g, uint32_t i)
{
	return worse(views[g].next[i], views[(g + 1) % count].previous[i]);
}

/* The better of a group's links: what is wrong with the other may be its neighbour's. */
static double group_cost(const struct rb_carrier_view *views, uint32_t count, uint32_t g,
			 uint32_t i)
{
	double a = link_cost(views, count, g, i);
	double b = link_cost(views, count, (g + count - 1) % count, i);

	if (a <= 0 || b <= 0)
		return a > 0 || b > 0 ? fmax(a, b) : fmin(a, b);
	return a < b ? a : b;
}

static double cost_between(const struct rb_carrier_view *views, uint32_t count, uint32_t a,
			   uint32_t b, uint32_t i)
{
	uint32_t low = a < b ? a : b, high = a < b ? b : a;
	double cost = 0;

	if (low + 1 == high)
		cost = link_cost(views, count, low, i);
	else if (low == 0 && high + 1 == count)
		cost = link_cost(views, count, high, i);
	if (cost != 0)
		return cost;
	return worse(group_cost(views, count, a, i), group_cost(views, count, b, i));
}

uint8_t rb_carrier_between(const struct rb_carrier_view *views, uint32_t group_count, uint32_t a,
			   uint32_t b, uint8_t reach)
{
	uint8_t best = RB_CARRIER_NONE, first = RB_CARRIER_NONE;
	double best_cost = 0;

	for (uint8_t i = 0; i < RB_CARRIERS_MAX; i++) {
		double cost = 0;

		if ((reach & 1u << i) == 0)
			continue;
		first = first == RB_CARRIER_NONE ? i : first;
		if (a < group_count && b < group_count)
			cost = cost_between(views, group_count, a, b, i);
		if (cost < 0)
			continue;
		if (best == RB_CARRIER_NONE ||
		    (cost > 0 && best_cost > 0 && cost * BETTER < best_cost)) {
			best = i;
			best_cost = cost;
		}
	}
	return best != RB_CARRIER_NONE ? best : first;
}

/* ---- Messages that are timed ---- */

static bool by_memory(const struct rb_carriers *c, uint32_t r)
{
	return c->route[r] != RB_CARRIER_NONE && !rb_carrier_is_network(c->transports[c->route[r]]);
}

struct looking {
	const struct rb_carriers *c;
	uint32_t networks;   /* That are connected. */
	struct rb_lock lock; /* Of their endpoints. */
	_Atomic uint32_t ends;
	struct rb_thread thread;
};

static void *look_main(void *arg)
{
	struct looking *looking = arg;

	while (atomic_load(&looking->ends) == 0) {
		rb_lock_take(&looking->lock);
		for (uint32_t i = 0; i < RB_CARRIERS_MAX; i++) {
			struct rb_endpoint *ep = looking->c->opened[i];

			if ((looking->networks & 1u << i) == 0)
				continue;
			if (ep->ops->look != NULL)
				ep->ops->look(ep);
			(void)ep->ops->poll(ep);
		}
		rb_lock_drop(&looking->lock);
		(void)rb_futex_wait(&looking->ends, 0, rb_clock_ns() + LOOK_NS);
	}
	return NULL;
}

static rubato_status looking_begin(struct looking *looking, const struct rb_carriers *c,
				   uint32_t networks)
{
	for (uint32_t r = 0; r < c->bootstrap->rank_count; r++)
		if (r != c->bootstrap->rank && !by_memory(c, r))
			looking->networks |= c->reach[r] & networks;
	looking->c = c;
	rb_lock_init(&looking->lock);
	return rb_thread_start(&looking->thread, look_main, looking);
}

static void looking_end(struct looking *looking)
{
	atomic_store(&looking->ends, 1);
	rb_futex_wake(&looking->ends, 1);
	rb_thread_join(&looking->thread);
}

struct trips {
	struct rb_endpoint *ep;
	struct rb_lock *lock;
	uint32_t peer;
	bool first; /* This rank begins. */
	uint64_t number, deadline_ns;
	uint8_t *bytes; /* LARGE_BYTES. */
};

static bool message(struct trips *t, bool sends, size_t bytes)
{
	struct rb_request request = { .peer = t->peer,
				      .tag = rb_tag(0, RB_TAG_CARRIER, t->number++, 0),
				      .buffer = t->bytes,
				      .size_bytes = bytes };
	const struct rb_transport_ops *ops = t->ep->ops;

	rb_lock_take(t->lock);
	if (sends)
		ops->send(t->ep, &request);
	else
		ops->recv(t->ep, &request);
	for (uint32_t polls = 1; request.state != RB_REQUEST_DONE; polls++) {
		(void)ops->poll(t->ep); /* There is no other request. */
		if (request.state == RB_REQUEST_DONE)
			break;
		if (rb_clock_ns() > t->deadline_ns) {
			ops->cancel(t->ep, &request);
			break;
		}
		rb_lock_drop(t->lock);
		if (polls % POLLS_PER_YIELD == 0)
			rb_yield();
		rb_lock_take(t->lock);
	}
	rb_lock_drop(t->lock);
	return request.status == RUBATO_OK;
}

/* Bytes there and a few back. The first trip opens connections, and does not count. */
static bool trips_time(struct trips *t, size_t bytes, uint32_t times, uint64_t *best_ns)
{
	for (uint32_t k = 0; k < times; k++) {
		uint64_t begin_ns = rb_clock_ns(), ns;

		if (!message(t, t->first, bytes) || !message(t, !t->first, SMALL_BYTES))
			return false;
		ns = rb_clock_ns() - begin_ns;
		if (k > 0 && ns < *best_ns)
			*best_ns = ns;
	}
	return true;
}

/* In ns, all of them together; below 0: it does not work. The other end may come later: each of
 * `before` networks may have kept it as long. */
static double network_time(struct trips *t, uint32_t before, uint64_t best_ns[2])
{
	uint64_t deadline_ns = t->deadline_ns;
	bool good;

	t->deadline_ns = rb_deadline(rb_clock_ns(), (before + 1) * LINK_NS);
	t->deadline_ns = t->deadline_ns < deadline_ns ? t->deadline_ns : deadline_ns;
	good = trips_time(t, SMALL_BYTES, SMALL_TIMES, &best_ns[0]) &&
	       trips_time(t, LARGE_BYTES, LARGE_TIMES, &best_ns[1]);
	t->deadline_ns = deadline_ns;
	return good ? sqrt((double)best_ns[0] * (double)best_ns[1]) : -1;
}

struct choosing {
	struct rb_carriers *c;
	uint32_t n, own, networks; /* networks: bits 1 << transport. */
	uint32_t *group_of;        /* Per rank; NO_GROUP. */
	uint32_t *first_of;        /* Per group: its first rank. */
	uint32_t group_count;
	struct rb_carrier_view *views; /* Per group. */
	struct looking looking;
};

/* To or from the first rank of a neighbour; costs[i] of each network that reaches it. */
static rubato_status link_time(struct choosing *ch, uint32_t peer, bool first, double *costs)
{
	const struct rb_carriers *c = ch->c;
	struct trips t = { .lock = &ch->looking.lock,
			   .peer = peer,
			   .first = first,
			   .deadline_ns = c->deadline_ns };
	uint64_t best_ns[RB_CARRIERS_MAX][2];
	uint32_t reach = c->reach[peer] & ch->networks, before = 0;

	if ((reach & (reach - 1)) == 0)
		return RUBATO_OK; /* There is no choice. */
	t.bytes = calloc(1, LARGE_BYTES);
	if (t.bytes == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "messages to time: %u bytes", LARGE_BYTES);
	memset(best_ns, 0xff, sizeof(best_ns));
	/* Both begin with the same one, and have the same numbers whatever happens. */
	for (uint32_t k = 0; k < 2 * RB_CARRIERS_MAX; k++) {
		uint32_t i = k % RB_CARRIERS_MAX;

		if ((reach & 1u << i) == 0 || costs[i] < 0)
			continue;
		t.ep = c->opened[i];
		t.number = (uint64_t)k << 32;
		costs[i] = network_time(&t, before++, best_ns[i]);
		if (costs[i] < 0)
			RB_LOG(RB_LOG_WARN,
			       "%s: messages to rank %u and back do not pass, though it was "
			       "reached: another network carries its data",
			       c->transports[i]->name, peer);
		else
			RB_LOG(RB_LOG_DEBUG, "%s to rank %u and back: %.1f us, %u KiB %.1f us",
			       c->transports[i]->name, peer, (double)best_ns[i][0] / 1e3,
			       LARGE_BYTES >> 10, (double)best_ns[i][1] / 1e3);
	}
	free(t.bytes);
	return RUBATO_OK;
}

/* When the link from group g to the next one is timed; each takes part in one at a time. */
static uint32_t round_of(uint32_t count, uint32_t g)
{
	if (count == 2)
		return g; /* Two have but one link: there is one round. */
	return g + 1 == count && count % 2 == 1 ? 2 : g % 2;
}

static uint32_t rounds_of(uint32_t count)
{
	return count < 2 ? 0 : count == 2 ? 1 : count % 2 == 1 ? 3 : 2;
}

static rubato_status rounds_run(struct choosing *ch, struct rb_carrier_view *own)
{
	struct rb_bootstrap *b = ch->c->bootstrap;
	uint32_t count = ch->group_count, g = ch->group_of[ch->own];
	bool takes_part = g != NO_GROUP && ch->first_of[g] == ch->own;
	const void *const *blobs;
	const size_t *bytes;

	for (uint32_t round = 0; round < rounds_of(count); round++) {
		uint32_t before = (g + count - 1) % count, behind = (g + 1) % count;

		/* All begin it together: who comes late would be taken for one who cannot. */
		RB_TRY(b->allgather(b, "", 0, &blobs, &bytes, ch->c->deadline_ns));
		if (takes_part && round_of(count, g) == round)
			RB_TRY(link_time(ch, ch->first_of[behind], true, own->next));
		if (takes_part && round_of(count, before) == round)
			RB_TRY(link_time(ch, ch->first_of[before], false, own->previous));
	}
	return RUBATO_OK;
}

static bool is_view(const struct rb_carrier_view *view)
{
	bool good = true;

	for (uint32_t i = 0; i < RB_CARRIERS_MAX; i++)
		good &= isfinite(view->next[i]) && isfinite(view->previous[i]);
	return good;
}

static rubato_status views_exchange(struct choosing *ch)
{
	struct rb_bootstrap *b = ch->c->bootstrap;
	struct rb_carrier_view own = { 0 };
	uint32_t g = ch->group_of[ch->own];
	const void *const *blobs;
	const size_t *bytes;
	rubato_status err;

	if (!ch->c->measures || ch->group_count < 2)
		return RUBATO_OK;
	RB_TRY(looking_begin(&ch->looking, ch->c, ch->networks));
	err = rounds_run(ch, &own);
	if (err == RUBATO_OK)
		err = b->allgather(b, &own,
				   g != NO_GROUP && ch->first_of[g] == ch->own ? sizeof(own) : 0,
				   &blobs, &bytes, ch->c->deadline_ns);
	looking_end(&ch->looking);
	RB_TRY(err);
	for (uint32_t k = 0; k < ch->group_count; k++) {
		uint32_t r = ch->first_of[k];

		if (bytes[r] == sizeof(own))
			memcpy(&ch->views[k], blobs[r], sizeof(own));
		if (bytes[r] != sizeof(own) || !is_view(&ch->views[k]))
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "rank %u's start-up times of networks are malformed", r);
	}
	return RUBATO_OK;
}

/* ---- Connecting ---- */

struct tables { /* For connect(). */
	const void **addresses;
	size_t *bytes;
	bool *use;
};

static rubato_status network_connect(const struct choosing *ch, uint32_t i, struct tables *t)
{
	struct rb_carriers *c = ch->c;
	struct rb_endpoint *ep = c->opened[i];
	const struct rb_transport_ops *ops = c->transports[i];
	bool others = false, peers = false;
	uint64_t try_ns = rb_deadline(rb_clock_ns(), TRY_NS);
	rubato_status err;

	for (uint32_t r = 0; r < ch->n; r++) {
		t->use[r] = r == ch->own || ((c->reach[r] & 1u << i) != 0 && !by_memory(c, r));
		peers |= t->use[r] && r != ch->own;
		t->addresses[r] = t->use[r] ? c->address(c->arg, i, r, &t->bytes[r]) : NULL;
	}
	for (uint32_t k = 0; c->transports[k] != NULL; k++)
		others |= k != i && c->opened[k] != NULL && (ch->networks & 1u << k) != 0;
	if (!peers)
		return RUBATO_OK;
	if (!others || ops->connect_some == NULL)
		return ops->connect(ep, t->addresses, t->bytes, t->use, c->deadline_ns);
	err = ops->connect_some(ep, t->addresses, t->bytes, t->use,
				try_ns < c->deadline_ns ? try_ns : c->deadline_ns);
	if (err != RUBATO_OK)
		RB_LOG(RB_LOG_WARN, "%s is not used here: %s", ops->name, rubato_error_text());
	for (uint32_t r = 0; r < ch->n; r++)
		if (r != ch->own && (err != RUBATO_OK || !t->use[r]))
			c->reach[r] &= (uint8_t) ~(1u << i);
	return RUBATO_OK;
}

static rubato_status networks_connect(const struct choosing *ch)
{
	struct tables t = { calloc(ch->n, sizeof(*t.addresses)), calloc(ch->n, sizeof(*t.bytes)),
			    calloc(ch->n, sizeof(*t.use)) };
	rubato_status err =
		t.addresses == NULL || t.bytes == NULL || t.use == NULL
			? RB_FAIL(RUBATO_ERR_MEMORY, "start-up tables of %u ranks", ch->n)
			: RUBATO_OK;

	for (uint32_t i = 0; ch->c->transports[i] != NULL && err == RUBATO_OK; i++)
		if ((ch->networks & 1u << i) != 0 && ch->c->opened[i] != NULL)
			err = network_connect(ch, i, &t);
	free(t.addresses);
	free(t.bytes);
	free(t.use);
	return err;
}

/* ---- Who reaches whom, in both directions ---- */

/* The first rank of this rank's group; and for each network, where it does not reach all ranks, of
 * whom that is true. */
static size_t reach_write(const struct choosing *ch, uint8_t *blob)
{
	const struct rb_carriers *c = ch->c;
	size_t bits_bytes = (ch->n + 7) / 8;
	struct rb_wire w = rb_wire_over(blob, 4 + 1 + RB_CARRIERS_MAX * bits_bytes);
	uint32_t first = ch->own;
	uint8_t lacking = 0;

	for (uint32_t r = 0; r < ch->n; r++) {
		first = by_memory(c, r) && r < first ? r : first;
		if (r != ch->own && !by_memory(c, r))
			lacking |= (uint8_t)(ch->networks & ~(uint32_t)c->reach[r]);
	}
	rb_wire_put_u32(&w, first);
	rb_wire_put_u8(&w, lacking);
	for (uint32_t i = 0; i < RB_CARRIERS_MAX; i++) {
		if ((lacking & 1u << i) == 0)
			continue;
		for (uint32_t k = 0; k < bits_bytes; k++) {
			uint8_t bits = 0;

			for (uint32_t r = 8 * k; r < 8 * (k + 1) && r < ch->n; r++)
				bits |= (uint8_t)((c->reach[r] >> i & 1) << r % 8);
			rb_wire_put_u8(&w, bits);
		}
	}
	RB_ASSERT(!w.bad);
	return (size_t)(w.at - blob);
}

static rubato_status reach_read(const struct choosing *ch, uint32_t r, const void *blob,
				size_t bytes)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)blob, bytes);
	size_t bits_bytes = (ch->n + 7) / 8;
	uint32_t first = rb_wire_get_u32(&w);
	uint8_t lacking = rb_wire_get_u8(&w);

	for (uint32_t i = 0; i < RB_CARRIERS_MAX && !w.bad; i++) {
		uint8_t bits = 0;

		for (uint32_t k = 0; (lacking & 1u << i) != 0 && k < bits_bytes; k++) {
			uint8_t next = rb_wire_get_u8(&w);

			bits = k == ch->own / 8 ? next : bits;
		}
		if ((lacking & 1u << i) != 0 && (bits >> ch->own % 8 & 1) == 0 && r != ch->own)
			ch->c->reach[r] &= (uint8_t) ~(1u << i);
	}
	ch->group_of[r] = first; /* So far. */
	return w.bad || w.at != w.end || first > r
		       ? RB_FAIL(RUBATO_ERR_MISMATCH, "rank %u's start-up reach is malformed", r)
		       : RUBATO_OK;
}

/* Numbers the groups in the order of their first ranks. */
static void groups_number(struct choosing *ch)
{
	for (uint32_t r = 0; r < ch->n; r++) {
		uint32_t first = ch->group_of[r];

		if (first == r) {
			ch->first_of[ch->group_count] = r;
			ch->group_of[r] = ch->group_count++;
		} else { /* One before it, so it has its number. */
			uint32_t g = ch->group_of[first];

			ch->group_of[r] =
				g < ch->group_count && ch->first_of[g] == first ? g : NO_GROUP;
		}
	}
}

static rubato_status reach_agree(struct choosing *ch)
{
	struct rb_bootstrap *b = ch->c->bootstrap;
	size_t bytes_most = 4 + 1 + RB_CARRIERS_MAX * (((size_t)ch->n + 7) / 8), own_bytes;
	uint8_t *own = malloc(bytes_most);
	const void *const *blobs;
	const size_t *bytes;
	rubato_status err;

	if (own == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up reach of %u ranks", ch->n);
	own_bytes = reach_write(ch, own);
	err = own_bytes > RB_BLOB_BYTES_MAX
		      ? RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				"%u ranks are too many for several networks: name one in "
				"RUBATO_TRANSPORT",
				ch->n)
		      : b->allgather(b, own, own_bytes, &blobs, &bytes, ch->c->deadline_ns);
	free(own);
	for (uint32_t r = 0; r < ch->n && err == RUBATO_OK; r++)
		err = reach_read(ch, r, blobs[r], bytes[r]);
	if (err == RUBATO_OK)
		groups_number(ch);
	return err;
}

/* ---- Choosing ---- */

static void choice_log(const struct choosing *ch, const uint32_t *carried)
{
	for (uint32_t i = 0; ch->c->transports[i] != NULL; i++)
		if ((ch->networks & 1u << i) != 0)
			RB_LOG(RB_LOG_INFO, "%s carries what goes to %u of %u ranks (%s)",
			       ch->c->transports[i]->name, carried[i], ch->n - 1,
			       ch->c->measures ? "links were timed" : "the list says it");
}

static rubato_status routes_make(const struct choosing *ch)
{
	struct rb_carriers *c = ch->c;
	uint32_t carried[RB_CARRIERS_MAX] = { 0 }, mine = ch->group_of[ch->own];

	for (uint32_t r = 0; r < ch->n; r++) {
		if (r == ch->own || by_memory(c, r))
			continue;
		c->route[r] = rb_carrier_between(ch->views, ch->group_count, mine, ch->group_of[r],
						 (uint8_t)(c->reach[r] & ch->networks));
		if (c->route[r] == RB_CARRIER_NONE)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "no network reaches rank %u from rank %u: see the warnings",
				       r, ch->own);
		carried[c->route[r]]++;
	}
	/* To itself a rank sends by one that it has anyway. */
	for (uint32_t i = RB_CARRIERS_MAX; i-- > 0 && !by_memory(c, ch->own);)
		if (carried[i] > 0)
			c->route[ch->own] = (uint8_t)i;
	choice_log(ch, carried);
	return RUBATO_OK;
}

rubato_status rb_carriers_choose(struct rb_carriers *c)
{
	struct choosing ch = { .c = c, .n = c->bootstrap->rank_count, .own = c->bootstrap->rank };
	rubato_status err;

	for (uint32_t i = 0; c->transports[i] != NULL; i++)
		if (rb_carrier_is_network(c->transports[i]))
			ch.networks |= 1u << i;
	ch.group_of = calloc(ch.n, sizeof(*ch.group_of));
	ch.first_of = calloc(ch.n, sizeof(*ch.first_of));
	ch.views = calloc(ch.n, sizeof(*ch.views));
	err = ch.group_of == NULL || ch.first_of == NULL || ch.views == NULL
		      ? RB_FAIL(RUBATO_ERR_MEMORY, "start-up tables of %u ranks", ch.n)
		      : networks_connect(&ch);
	if (err == RUBATO_OK)
		err = reach_agree(&ch);
	if (err == RUBATO_OK)
		err = views_exchange(&ch);
	if (err == RUBATO_OK)
		err = routes_make(&ch);
	free(ch.group_of);
	free(ch.first_of);
	free(ch.views);
	return err;
}
