/*
 * open.c -- makes communicators.
 *
 * Opening exchanges over the bootstrap, for each transport until all ranks are reached: settings,
 * which must agree, and addresses; then whether more is needed. Once connected, what is so between
 * each two (facts.c); that exchange is also the barrier that says that all are connected. From
 * there on the bootstrap is not used any more.
 */
#include "runtime/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/rng.h"
#include "runtime/close.h"
#include "runtime/devices/device_cuda.h"
#include "runtime/devices/devices.h"
#include "runtime/engine/node_speed.h"
#include "runtime/facts.h"
#include "runtime/links.h"
#include "runtime/message.h"
#include "runtime/op.h"
#include "runtime/startup/carriers.h"
#include "runtime/startup/crowd.h"
#include "runtime/startup/host.h"
#include "runtime/startup/interfaces.h"
#include "runtime/startup/profile.h"
#include "runtime/startup/quota.h"
#include "runtime/unmatched.h"
#include "transport/shm_pieces.h"

#define UNREACHED RB_CARRIER_NONE        /* In opening.route. */
#define UNNEEDED_NS UINT64_C(1000000000) /* To close a network that carries nothing. */
enum agreed_word {
	AGREED_VERSION,
	AGREED_CHUNK,
	AGREED_ALGORITHM,
	AGREED_TRANSPORT,
	AGREED_PROFILE,
	AGREED_MEASURE,
	AGREED_WORDS
};
/* What stands before the address: agreed words, host, group, cores, the address's bytes. */
#define BLOB_HEAD_BYTES (8 * AGREED_WORDS + 8 + 8 + 8 * RB_CPU_WORDS + 4 + 4)
_Static_assert(RB_CARRIERS_MAX == RB_ENDPOINTS_MAX, "one for each");
_Static_assert(BLOB_HEAD_BYTES + RB_ADDRESS_BYTES_MAX <= RB_BLOB_BYTES_MAX, "an address fits");

struct opening { /* What exists only while a communicator is opened. */
	struct rubato_comm *comm;
	const struct rb_transport_ops *transports[RB_ENDPOINTS_MAX + 1];
	struct rb_endpoint *opened[RB_ENDPOINTS_MAX];
	struct rb_bootstrap *bootstrap;
	/* What all published for each transport: the bootstrap's. */
	const void *const *blobs[RB_ENDPOINTS_MAX];
	const size_t *blob_bytes[RB_ENDPOINTS_MAX];
	uint8_t *route; /* Per peer: index into opened; */
	uint8_t *reach; /* and bits 1 << index of all by which it is reached. */
	bool tcp;       /* UCX shall use TCP alone. */
	/* Several networks are in the list; and some rank has the first, some a later one. */
	bool weighs, contested;
	char devices[512];    /* For network transports; empty: any. */
	char why[300];        /* What kept a transport from opening, or from a peer. */
	uint64_t host, group; /* See rb_seat. */
	struct rb_place place;
	uint32_t cores_max;
	struct rb_crowding here; /* On this machine. */
	double load;             /* Of its ranks, what falls to the cores of this one. */
	uint64_t agreed[AGREED_WORDS];
	uint64_t deadline_ns;
	const struct rb_setup *setup;
};

/* ---- Transports ---- */

static rubato_status transports_list(struct opening *o)
{
	uint32_t count = 0;

	if (o->setup->transports == NULL)
		return rb_carriers_list(o->comm->config->transport.text, o->transports, &o->tcp);
	for (; o->setup->transports[count] != NULL && count < RB_ENDPOINTS_MAX; count++)
		o->transports[count] = o->setup->transports[count];
	return RUBATO_OK;
}

static enum rb_attach attach_of(const char *text)
{
	return strcmp(text, "never") == 0   ? RB_ATTACH_NEVER
	       : strcmp(text, "offer") == 0 ? RB_ATTACH_OFFER
					    : RB_ATTACH_AUTO;
}

static enum rb_connect connect_of(const char *text)
{
	return strcmp(text, "exchange") == 0 ? RB_CONNECT_EXCHANGE
	       : strcmp(text, "rdmacm") == 0 ? RB_CONNECT_RDMACM
					     : RB_CONNECT_AUTO;
}

/* By verbs: ports and devices of its own, which the others' tries of interfaces do not know. */
static const char *interface_of(const struct opening *o, uint32_t i)
{
	const char *named = o->comm->config->interface.text;
	bool rdma = strcmp(o->transports[i]->name, "verbs") == 0;
	const char *text = rdma ? named : o->devices;

	return named[0] != '\0' && text[0] != '\0' ? text : NULL;
}

/* NULL in o->opened[i] when this machine does not have it: then no peer is reached by it. */
static void endpoint_open(struct opening *o, uint32_t i)
{
	struct rubato_comm *comm = o->comm;
	bool named = comm->config->interface.text[0] != '\0';
	struct rb_transport_options options = {
		.rank = comm->engine.rank,
		.rank_count = comm->engine.rank_count,
		.heap_bytes =
			o->setup->heap_bytes > 0 ? o->setup->heap_bytes : comm->config->heap.number,
		.interface = interface_of(o, i),
		.reaching = !named && o->devices[0] != '\0' ? o->devices : NULL,
		.tcp_only = o->tcp,
		.attach = attach_of(comm->config->attach.text),
		.connect = connect_of(comm->config->verbs_connect.text),
		.resend_ns = comm->config->verbs_resend.number,
		.cache_bytes = comm->config->verbs_cache.number,
		.ucx_device = comm->config->ucx_device.number != 0,
		.backend = o->setup->backend,
		.elsewhere = comm->elsewhere,
		.device = rb_devices_memory(&comm->engine),
	};

	memcpy(options.job, comm->job, sizeof(options.job));
	memcpy(options.key, comm->key, sizeof(options.key));
	if (o->transports[i]->open(&options, &o->opened[i]) == RUBATO_OK)
		return;
	o->opened[i] = NULL;
	(void)snprintf(o->why, sizeof(o->why), ": %s", rubato_error_text());
	RB_LOG(RB_LOG_INFO, "%s: %s", o->transports[i]->name, rubato_error_text());
}

#ifdef RB_HAVE_UCX
/* Once for a job: ranks are named the same devices, as a rule. */
static void left_devices_say(const struct opening *o)
{
	const char *ours = o->comm->config->interface.text, *name, *value;
	char devices[256];

	if (o->comm->engine.rank != 0 || o->tcp)
		return;
	name = rb_interfaces_ucx_leaves(
		"/sys/class/infiniband", ours, rb_config_foreign("UCX_NET_DEVICES"),
		rb_config_foreign("UCX_TLS"), &value, devices, sizeof(devices));
	if (name != NULL)
		RB_LOG(RB_LOG_WARN, "UCX: %s=%s leaves %s unused: active, and RDMA; name it, too",
		       name, value, devices);
}
#endif

/* ---- Exchanges: settings, and one transport's addresses at a time ---- */

/* What a profile says must be the same for all: it decides what is measured, and they choose by
 * it. */
static uint64_t profile_hash(const struct rb_setup *setup)
{
	const double said[] = { setup->network.latency_us,  setup->network.byte_us,
				setup->network.message_us,  setup->node.latency_us,
				setup->node.message_us,     setup->node.core_byte_us,
				setup->node.memory_byte_us, setup->node.attach_copies,
				setup->node.cache_bytes,    setup->node.work_us,
				setup->node.turn_us,        setup->network.burst_bytes };
	uint64_t hash = setup->profiled, word;

	for (size_t i = 0; setup->profiled && i < sizeof(said) / sizeof(said[0]); i++) {
		memcpy(&word, &said[i], sizeof(word));
		hash = rb_mix(hash + word);
	}
	return hash;
}

static void agreed_fill(struct opening *o)
{
	uint64_t names = o->tcp;

	for (uint32_t i = 0; o->transports[i] != NULL; i++)
		names = rb_mix(names + rb_text_hash(o->transports[i]->name));
	o->agreed[AGREED_VERSION] =
		RUBATO_VERSION_MAJOR << 16 | RUBATO_VERSION_MINOR << 8 | RUBATO_VERSION_PATCH;
	o->agreed[AGREED_CHUNK] = o->comm->config->chunk.number;
	o->agreed[AGREED_ALGORITHM] = rb_text_hash(o->comm->config->algorithm.text);
	o->agreed[AGREED_TRANSPORT] = names;
	o->agreed[AGREED_PROFILE] = profile_hash(&o->comm->origin);
	o->agreed[AGREED_MEASURE] = o->comm->config->measure.number;
}

/* Of a text a rank tells its own: the other one has sent a hash. */
static rubato_status agreed_differ(const struct opening *o, uint32_t rank, enum agreed_word word,
				   uint64_t theirs)
{
	const struct rb_config *config = o->comm->config;
	const struct {
		const char *name, *text; /* text: NULL for a number. */
	} words[AGREED_WORDS] = {
		[AGREED_VERSION] = { "the library's version (a byte each)", NULL },
		[AGREED_CHUNK] = { "RUBATO_CHUNK", NULL },
		[AGREED_ALGORITHM] = { "RUBATO_ALGORITHM", config->algorithm.text },
		[AGREED_TRANSPORT] = { "RUBATO_TRANSPORT", config->transport.text },
		[AGREED_PROFILE] = { "what RUBATO_PROFILE says", config->profile.text },
		[AGREED_MEASURE] = { "RUBATO_MEASURE", NULL },
	};
	const char *text = words[word].text;
	char values[96];

	if (text == NULL)
		(void)snprintf(values, sizeof(values),
			       word == AGREED_VERSION ? "%06llx and %06llx" : "%llu and %llu",
			       (unsigned long long)o->agreed[word], (unsigned long long)theirs);
	else
		(void)snprintf(values, sizeof(values), "%.60s on rank %u",
			       text[0] != '\0' ? text : "not set", o->comm->engine.rank);
	return RB_FAIL(RUBATO_ERR_MISMATCH, "ranks %u and %u differ in %s: %s",
		       o->comm->engine.rank, rank, words[word].name, values);
}

static rubato_status agreed_check(const struct opening *o, uint32_t rank, struct rb_wire *w)
{
	for (uint32_t i = 0; i < AGREED_WORDS; i++) {
		uint64_t theirs = rb_wire_get_u64(w);

		if (theirs != o->agreed[i])
			return agreed_differ(o, rank, (enum agreed_word)i, theirs);
	}
	return RUBATO_OK;
}

static rubato_status exchange(struct opening *o, const void *in, size_t in_bytes,
			      const void *const **out, const size_t **out_bytes)
{
	return o->bootstrap->allgather(o->bootstrap, in, in_bytes, out, out_bytes, o->deadline_ns);
}

/* One that has others beside it need not have one. */
static rubato_status address_get(struct opening *o, uint32_t i, void *at, size_t *bytes)
{
	rubato_status err = RUBATO_OK;

	*bytes = 0;
	if (o->opened[i] != NULL)
		err = o->transports[i]->address(o->opened[i], at, bytes);
	if (err == RUBATO_OK || !o->weighs || !rb_carrier_is_network(o->transports[i]))
		return err;
	RB_LOG(RB_LOG_WARN, "%s is not used here: %s", o->transports[i]->name, rubato_error_text());
	o->transports[i]->close(o->opened[i], true, o->deadline_ns);
	o->opened[i] = NULL;
	*bytes = 0;
	return RUBATO_OK;
}

#ifdef RB_HAVE_UCX
/* All ranks' first exchange begins with these words, whatever each has set: so they are known to
 * agree about what else is exchanged, and when. */
static rubato_status agreed_exchange(struct opening *o)
{
	uint8_t blob[8 * AGREED_WORDS];
	struct rb_wire w = rb_wire_over(blob, sizeof(blob));
	const void *const *blobs;
	const size_t *bytes;

	for (uint32_t k = 0; k < AGREED_WORDS; k++)
		rb_wire_put_u64(&w, o->agreed[k]);
	RB_TRY(exchange(o, blob, sizeof(blob), &blobs, &bytes));
	for (uint32_t r = 0; r < o->comm->engine.rank_count; r++) {
		w = rb_wire_over((void *)(uintptr_t)blobs[r], bytes[r]);
		RB_TRY(agreed_check(o, r, &w));
	}
	return RUBATO_OK;
}
#endif

/* This rank's blob for transport i, and everybody's in its place. */
static rubato_status blobs_exchange(struct opening *o, uint32_t i)
{
	uint8_t blob[BLOB_HEAD_BYTES + RB_ADDRESS_BYTES_MAX];
	struct rb_wire w = rb_wire_over(blob, sizeof(blob));
	size_t bytes;

	RB_TRY(address_get(o, i, blob + BLOB_HEAD_BYTES, &bytes));
	for (uint32_t k = 0; k < AGREED_WORDS; k++)
		rb_wire_put_u64(&w, o->agreed[k]);
	rb_wire_put_u64(&w, o->host);
	rb_wire_put_u64(&w, o->group);
	for (uint32_t k = 0; k < RB_CPU_WORDS; k++)
		rb_wire_put_u64(&w, o->place.cores[k]);
	rb_wire_put_u32(&w, o->cores_max);
	rb_wire_put_u32(&w, (uint32_t)bytes);
	RB_ASSERT(!w.bad && w.at == blob + BLOB_HEAD_BYTES && bytes <= RB_ADDRESS_BYTES_MAX);
	return exchange(o, blob, BLOB_HEAD_BYTES + bytes, &o->blobs[i], &o->blob_bytes[i]);
}

static rubato_status blob_read(const struct opening *o, uint32_t i, uint32_t r,
			       struct rb_seat *seat)
{
	size_t bytes = o->blob_bytes[i][r];
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)o->blobs[i][r], bytes);
	uint32_t address_bytes;

	RB_TRY(agreed_check(o, r, &w));
	seat->host = rb_wire_get_u64(&w);
	seat->group = rb_wire_get_u64(&w);
	for (uint32_t k = 0; k < RB_CPU_WORDS; k++)
		seat->cores[k] = rb_wire_get_u64(&w);
	seat->cores_max = rb_wire_get_u32(&w);
	address_bytes = rb_wire_get_u32(&w);
	return w.bad || address_bytes != bytes - BLOB_HEAD_BYTES
		       ? RB_FAIL(RUBATO_ERR_MISMATCH, "rank %u's start-up blob is malformed", r)
		       : RUBATO_OK;
}

/* Where a blob that was read holds the address. */
static const void *address_of(const struct opening *o, uint32_t i, uint32_t r, size_t *bytes)
{
	*bytes = o->blob_bytes[i][r] - BLOB_HEAD_BYTES;
	return (const uint8_t *)o->blobs[i][r] + BLOB_HEAD_BYTES;
}

/* A parent has chosen: what it found the better network, or the only one that works, is. */
static bool passed_over(const struct opening *o, uint32_t i, uint32_t r)
{
	return o->setup->routes != NULL && o->setup->routes[r] != UNREACHED &&
	       o->setup->routes[r] > i && rb_carrier_is_network(o->transports[i]);
}

/* The first one says it for all. */
static void apart_note(struct opening *o, uint32_t i, uint32_t r)
{
	const struct rb_transport_ops *ops = o->transports[i];
	char text[256] = "";
	size_t bytes;
	const void *address = address_of(o, i, r, &bytes);

	if (ops->apart != NULL && o->why[0] == '\0')
		ops->apart(o->opened[i], address, bytes, text, sizeof(text));
	if (text[0] != '\0')
		(void)snprintf(o->why, sizeof(o->why), ": %s: rank %u: %s", ops->name, r, text);
}

/* By transport i rank r is reached, if it can and by none before. */
static void route_find(struct opening *o, uint32_t i, uint32_t r)
{
	size_t bytes;
	const void *address = address_of(o, i, r, &bytes);

	if ((o->route[r] != UNREACHED && !o->weighs) || o->opened[i] == NULL || bytes == 0 ||
	    passed_over(o, i, r))
		return;
	if (!o->transports[i]->reachable(o->opened[i], address, bytes)) {
		apart_note(o, i, r);
		return;
	}
	o->reach[r] |= (uint8_t)(1u << i);
	if (o->route[r] == UNREACHED)
		o->route[r] = (uint8_t)i;
}

/* Whether rank r's blob says what the one before it says, but for the address. */
static bool blob_alike(const struct opening *o, uint32_t i, uint32_t r)
{
	return o->blob_bytes[i][r] == o->blob_bytes[i][r - 1] &&
	       memcmp(o->blobs[i][r], o->blobs[i][r - 1], BLOB_HEAD_BYTES) == 0;
}

/* Ranks in a row with seats alike are counted together: those of a machine often are, and thousands
 * of simulated ones always. */
static rubato_status blobs_read(struct opening *o, uint32_t i)
{
	struct rb_choice_facts *facts = &o->comm->choices.facts;
	struct rb_crowd crowd = { 0 };
	struct rb_crowding worst;
	struct rb_seat seat;
	uint32_t n = o->comm->engine.rank_count, alike = 0;
	bool again = false;
	rubato_status err = RUBATO_OK;

	o->load = 0;
	for (uint32_t r = 0; r < n && err == RUBATO_OK; r++) {
		if (!again)
			err = blob_read(o, i, r, &seat);
		if (err != RUBATO_OK)
			break;
		route_find(o, i, r);
		alike++;
		again = r + 1 < n && blob_alike(o, i, r + 1);
		if (again)
			continue;
		err = rb_crowd_add(&crowd, &seat, alike);
		if (seat.host == o->host)
			o->load += alike * rb_sharing_load(o->place.cores, seat.cores);
		alike = 0;
	}
	o->here = rb_crowd_at(&crowd, o->host, o->group);
	worst = rb_crowd_worst(&crowd); /* Ranks choose alike, so one machine speaks for all. */
	facts->host_ranks = worst.ranks;
	facts->cores = worst.cores;
	rb_crowd_fini(&crowd);
	return err;
}

/* Nobody else knows why. */
static bool has_opened_none(const struct opening *o, uint32_t r)
{
	for (uint32_t i = 0; o->transports[i] != NULL; i++)
		if (o->blobs[i] != NULL && o->blob_bytes[i][r] > BLOB_HEAD_BYTES)
			return false;
	return r != o->comm->engine.rank;
}

static rubato_status unreached_check(const struct opening *o, bool *all)
{
	for (uint32_t r = 0; r < o->comm->engine.rank_count; r++)
		if (o->route[r] == UNREACHED) {
			*all = false;
			return RB_FAIL(
				RUBATO_ERR_UNSUPPORTED,
				"no transport reaches rank %u from rank %u%s%s", r,
				o->comm->engine.rank, o->why,
				o->why[0] == '\0' && has_opened_none(o, r)
					? ": none could be opened there, its own text says why"
					: "");
		}
	*all = true;
	return RUBATO_OK;
}

/* Whether some rank has opened transport i. */
static bool is_anywhere(const struct opening *o, uint32_t i)
{
	bool found = false;

	for (uint32_t r = 0; r < o->comm->engine.rank_count; r++)
		found |= o->blob_bytes[i][r] > BLOB_HEAD_BYTES;
	return found;
}

/* All ranks are reached once transport i is there. Of networks that are to be weighed there are
 * more to open, until the last one; true: there are none. */
static bool routes_final(struct opening *o, uint32_t i)
{
	uint32_t networks = 0;

	if (!o->weighs || !rb_carrier_is_network(o->transports[i]))
		return true;
	if (o->transports[i + 1] != NULL)
		return false;
	for (uint32_t k = 0; k <= i; k++)
		networks += rb_carrier_is_network(o->transports[k]) && is_anywhere(o, k);
	o->contested = networks > 1;
	return true;
}

/*
 * Opens transports, best first, until every rank reaches every other: so a job on one machine opens
 * no network at all.
 */
static rubato_status routes_find(struct opening *o)
{
	const void *const *blobs;
	const size_t *bytes;
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; o->transports[i] != NULL; i++) {
		bool all = true;
		uint8_t verdict;

#ifdef RB_HAVE_UCX
		if (o->transports[i] == &rb_transport_ucx && i == 0)
			RB_TRY(agreed_exchange(o));
		if (o->transports[i] == &rb_transport_ucx)
			RB_TRY(rb_interfaces_choose(o->bootstrap, o->comm->config->interface.text,
						    o->deadline_ns, o->devices,
						    sizeof(o->devices)));
		if (o->transports[i] == &rb_transport_ucx)
			left_devices_say(o);
#endif
		endpoint_open(o, i);
		RB_TRY(blobs_exchange(o, i));
		RB_TRY(blobs_read(o, i));
		err = unreached_check(o, &all);
		verdict = all;
		RB_TRY(exchange(o, &verdict, sizeof(verdict), &blobs, &bytes));
		for (uint32_t r = 0; r < o->comm->engine.rank_count; r++)
			all &= bytes[r] == 1 && *(const uint8_t *)blobs[r] == 1;
		if (all && routes_final(o, i))
			return RUBATO_OK;
	}
	return err != RUBATO_OK ? err
				: RB_FAIL(RUBATO_ERR_UNSUPPORTED,
					  "some ranks have no transport to reach each other");
}

static const void *address_asked(void *arg, uint32_t i, uint32_t r, size_t *bytes)
{
	return address_of(arg, i, r, bytes);
}

/* Connects the networks, too. */
static rubato_status networks_weigh(struct opening *o)
{
	struct rb_carriers carriers = {
		.bootstrap = o->bootstrap,
		.transports = o->transports,
		.opened = o->opened,
		.address = address_asked,
		.arg = o,
		.measures = o->comm->config->measure.number != 0,
		.reach = o->reach,
		.route = o->route,
		.deadline_ns = o->deadline_ns,
	};

	return o->contested ? rb_carriers_choose(&carriers) : RUBATO_OK;
}

static rubato_status endpoint_connect(struct opening *o, uint32_t i)
{
	uint32_t n = o->comm->engine.rank_count;
	const void **addresses = calloc(n, sizeof(*addresses));
	size_t *bytes = calloc(n, sizeof(*bytes));
	bool *use = calloc(n, sizeof(*use));
	rubato_status err;

	for (uint32_t r = 0; addresses != NULL && bytes != NULL && use != NULL && r < n; r++) {
		use[r] = o->route[r] == i;
		if (use[r])
			addresses[r] = address_of(o, i, r, &bytes[r]);
	}
	if (addresses == NULL || bytes == NULL || use == NULL)
		err = RB_FAIL(RUBATO_ERR_MEMORY, "start-up tables of %u ranks", n);
	else
		err = o->transports[i]->connect(o->opened[i], addresses, bytes, use,
						o->deadline_ns);
	free(addresses);
	free(bytes);
	free(use);
	return err;
}

/* Peers may do the same, and not answer any more. */
static uint64_t unneeded_until(const struct opening *o)
{
	uint64_t until_ns = rb_deadline(rb_clock_ns(), UNNEEDED_NS);

	return o->contested && until_ns < o->deadline_ns ? until_ns : o->deadline_ns;
}

/* Connects each transport that is needed, drops the others, and fills the engine's route. */
static rubato_status endpoints_connect(struct opening *o)
{
	struct rb_engine *engine = &o->comm->engine;

	for (uint32_t i = 0; o->transports[i] != NULL; i++) {
		bool needed = false;

		if (o->opened[i] == NULL)
			continue;
		for (uint32_t r = 0; r < engine->rank_count; r++) {
			if (o->route[r] != i)
				continue;
			needed = true;
			engine->route[r] = (uint8_t)engine->endpoint_count;
		}
		if (needed) {
			if (!o->contested || !rb_carrier_is_network(o->transports[i]))
				RB_TRY(endpoint_connect(o, i));
			o->opened[i]->index = engine->endpoint_count;
			o->opened[i]->on_trial = false;
			engine->transport[engine->endpoint_count] = (uint8_t)i;
			engine->endpoints[engine->endpoint_count++] = o->opened[i];
		} else {
			o->transports[i]->close(o->opened[i], false, unneeded_until(o));
		}
		o->opened[i] = NULL;
	}
	return RUBATO_OK;
}

/* ---- Opening ---- */

static rubato_status forced_read(struct rubato_comm *comm)
{
	const char *said = comm->config->algorithm.text;
	bool named[RB_KIND_COUNT] = { false };
	char text[256], *rest = text, *item;

	for (uint32_t k = 0; k < RB_KIND_COUNT; k++)
		comm->choices.forced[k] = -1;
	(void)snprintf(text, sizeof(text), "%s", said);
	while (said[0] != '\0' && (item = strsep(&rest, ",")) != NULL) {
		char *name = strchr(item, '=');
		enum rb_kind kind;

		if (name == NULL)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "RUBATO_ALGORITHM=%s: \"%s\": expected operation=name", said,
				       item);
		*name++ = '\0';
		RB_TRY(rubato_set_algorithm(comm, item, name));
		kind = rb_kind_find(item);
		if (named[kind])
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "RUBATO_ALGORITHM=%s: %s is named twice", said, item);
		named[kind] = true;
	}
	return RUBATO_OK;
}

/* ---- What the library runs for itself ---- */

static rubato_status barrier_plan_make(struct rubato_comm *comm)
{
	int dissemination = rb_algorithm_find(RB_KIND_BARRIER, "dissemination");
	struct rb_plan_key key = { .kind = RB_KIND_BARRIER,
				   .element_bytes = 1,
				   .algorithm = (uint8_t)dissemination };
	struct rb_choice choice = { .align = 1, .chunk = 1 };

	RB_ASSERT(dissemination >= 0);
	struct rb_build who = rb_comm_build(comm);

	return rb_plan_make(&key, NULL, &choice, &who, &comm->plans.barrier);
}

static rubato_status opening_allocate(struct opening *o)
{
	uint32_t n = o->comm->engine.rank_count;

	o->route = malloc(n * sizeof(*o->route));
	if (o->route == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up table of %u ranks", n);
	memset(o->route, UNREACHED, n * sizeof(*o->route));
	o->reach = calloc(n, sizeof(*o->reach));
	if (o->reach == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up table of %u ranks", n);
	return RUBATO_OK;
}

/* Reads where the progress thread may run, and finds this rank's place on the way. */
static rubato_status background_place(struct opening *o)
{
	const char *text = o->comm->config->background_cpus.text;
	uint64_t *cpus = o->comm->engine.background.cpus;
	char *end = NULL;
	unsigned long cpu = strtoul(text, &end, 10);
	bool domain = strcmp(text, "numa") == 0;

	if (o->setup->backend == NULL) { /* Simulated ranks are nowhere. */
		struct rb_quota quota = rb_quota_find("");

		rb_place_here(domain, &o->place);
		o->group = quota.group;
		o->cores_max = rb_quota_cores(&quota);
	}
	if (domain) {
		if (rb_cpus_count(o->place.domain) == 0)
			RB_LOG(RB_LOG_INFO, "RUBATO_BACKGROUND_CPUS=numa: the domain is not known");
		memcpy(cpus, o->place.domain, sizeof(o->place.domain));
	} else if (text[0] != '\0') {
		if (*end != '\0' || text[0] < '0' || text[0] > '9' || cpu >= 64 * RB_CPU_WORDS)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "RUBATO_BACKGROUND_CPUS=%s: expected numa, or a processor's "
				       "number",
				       text);
		cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
	}
	return RUBATO_OK;
}

/* What has memory of its own on this machine: a child's is its parent's. */
static rubato_status devices_open(struct opening *o)
{
	struct rb_setup *origin = &o->comm->origin;
	const struct rb_engine *engine = &o->comm->engine;

	if (!origin->devices_known)
		RB_TRY(rb_devices_cuda_read(o->comm->config->cuda.text, &origin->cuda));
	RB_TRY(rb_devices_open(&o->comm->engine, origin->cuda));
	origin->devices_known = true;
	if (rb_devices_cuda(engine) != NULL)
		origin->cuda = rb_device_cuda_number(rb_devices_cuda(engine));
	return RUBATO_OK;
}

static rubato_status oneshots_prepare(struct rubato_comm *comm)
{
	struct rubato_op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "operation: %zu bytes", sizeof(*op));
	op->comm = comm;
	op->done = true;
	comm->oneshots.op = op;
	return RUBATO_OK;
}

/* Of the largest node. */
static uint32_t largest_node(const struct rb_nodes *nodes)
{
	uint32_t most = 1;

	for (uint32_t i = 0; i < nodes->count; i++)
		if (rb_node_size(nodes, i) > most)
			most = rb_node_size(nodes, i);
	return most;
}

static rubato_status facts_agree(struct opening *o)
{
	struct rb_whereabouts here = { .host = o->host, .domain = RB_DOMAIN_NONE };

	if (o->setup->backend == NULL) { /* Simulated ranks are nowhere. */
		here.card = rb_mix(rb_network_number() ^ rb_text_hash(o->devices));
		here.domain = rb_domain_here();
	}
	return rb_facts_agree(o->comm, o->bootstrap, &here, o->deadline_ns);
}

/* A child has its parent's; the simulator knows better. */
static rubato_status profile_find(struct opening *o)
{
	struct rb_setup *origin = &o->comm->origin;
	const char *path = o->comm->config->profile.text;
	struct rb_profile profile;

	if (path[0] == '\0' || origin->profiled || o->setup->backend != NULL)
		return RUBATO_OK;
	RB_TRY(rb_profile_read(path, &profile));
	origin->network = profile.network;
	origin->node = profile.node;
	if (origin->node.attach_copies >= RB_SHM_KERNEL_COPIES)
		origin->node.attach_copies = 0;
	else if (origin->node.attach_copies > 0)
		origin->node.attach_bytes = RB_SHM_ATTACH_BYTES_MIN;
	origin->profiled = true;
	return RUBATO_OK;
}

/* What it costs here, a parent may have measured. */
static void waiting_find(struct opening *o)
{
	struct rb_setup *origin = &o->comm->origin;

	o->comm->engine.waiting = rb_waiting_find(&origin->wake_ns, o->here.ranks, o->here.cores,
						  o->comm->config->spin.number);
}

/* Files tell it: a child does not read them again. */
static void past_find(struct opening *o)
{
	struct rb_setup *origin = &o->comm->origin;

	if (!origin->cache_known)
		rb_shared_cache_of(rb_cpu_here(), &origin->cache);
	origin->cache_known = true;
	o->comm->engine.past_bytes =
		rb_past_bytes(&origin->cache, o->comm->choices.facts.host_ranks);
}

/* Ranks that sleep may be left on one core, and those that yield be more on one than on others. */
static void sharing_open(struct opening *o)
{
	struct rb_sharing *sharing = &o->comm->engine.sharing;

	memcpy(sharing->cores, o->place.cores, sizeof(o->place.cores));
	sharing->share = rb_sharing_share(o->load, rb_cpus_count(o->place.cores));
}

/* In the bootstrap's exchanges a rank is outside of the engine, and what it sent last may have been
 * lost, which another one still waits for: the progress thread sees to it. */
static rubato_status links_agree(struct opening *o)
{
	struct rb_engine *engine = &o->comm->engine;
	const struct rb_choice_facts *facts = &o->comm->choices.facts;
	const struct rb_config *config = o->comm->config;
	bool stays = config->background.number != 0;
	bool sends = config->measure.number != 0 && rb_engine_looks_each_ns(engine) > 0;

	RB_TRY(rb_engine_background(engine, stays || sends));
	RB_TRY(rb_links_agree(o->comm, o->bootstrap, o->deadline_ns));
	if (!stays)
		rb_engine_stop(engine);
	if (rb_engine_time_is_virtual(engine) || facts->nodes->count == 1)
		return RUBATO_OK;
	rb_engine_enter(engine);
	rb_waiting_network(&engine->waiting, facts->network.latency_us);
	rb_engine_leave(engine);
	return RUBATO_OK;
}

static rubato_status open_steps(struct opening *o)
{
	struct rubato_comm *comm = o->comm;

	RB_TRY(opening_allocate(o));
	RB_TRY(oneshots_prepare(comm));
	RB_TRY(background_place(o));
	RB_TRY(profile_find(o));
	RB_TRY(transports_list(o));
	o->weighs = o->setup->routes == NULL && rb_carriers_differ(o->transports);
	agreed_fill(o);
	RB_TRY(routes_find(o));
	RB_TRY(networks_weigh(o));
	RB_TRY(endpoints_connect(o));
	RB_TRY(devices_open(o));
	RB_TRY(facts_agree(o));

	bool simulated = rb_engine_time_is_virtual(&comm->engine);

	if (simulated) { /* Every simulated rank has a core of its own, on a node that is one. */
		comm->choices.facts.cores = comm->engine.rank_count;
		comm->choices.facts.host_ranks = largest_node(comm->choices.facts.nodes);
		if (comm->engine.endpoints[0]->ops->work != NULL)
			rb_executor_host_time(comm->engine.executor, comm->engine.endpoints[0]);
	} else {
		past_find(o);
		waiting_find(o);
		if (comm->config->spread.number != 0)
			sharing_open(o);
	}
	comm->choices.facts.chunk_bytes_max = comm->config->chunk.number;
	RB_TRY(rb_plan_cache_init(&comm->plans.cache, (uint32_t)comm->config->cache.number));
	RB_TRY(forced_read(comm));
	RB_TRY(barrier_plan_make(comm));
	/* A rank that is through already may have failed already: its notice may be here. */
	rb_runs_open(&comm->runs, &comm->engine);
	rb_messages_open(comm);
	rb_unmatched_open(comm);
	RB_TRY(rb_notices_open(&comm->notices, &comm->engine));
	return links_agree(o);
}

/* Over whom this rank gives up, + 1, whoever noticed it; 0: nobody. */
static uint32_t blames_find(const struct opening *o)
{
	uint32_t blames = o->bootstrap->blames;

	for (uint32_t i = 0; i < RB_ENDPOINTS_MAX && blames == 0; i++)
		blames = o->opened[i] != NULL ? o->opened[i]->blames : 0;
	if (blames > 0)
		return blames;
	rb_engine_enter(&o->comm->engine); /* The progress thread may be there already. */
	blames = o->comm->engine.losses.blames;
	rb_engine_leave(&o->comm->engine);
	return blames;
}

static void blames_tell(struct opening *o, uint32_t blames)
{
	rb_engine_enter(&o->comm->engine);
	o->comm->engine.losses.blames = blames;
	rb_engine_leave(&o->comm->engine);
	for (uint32_t i = 0; i < RB_ENDPOINTS_MAX; i++)
		if (o->opened[i] != NULL)
			o->opened[i]->blames = blames;
}

static void opening_close(struct opening *o)
{
	for (uint32_t i = 0; i < RB_ENDPOINTS_MAX; i++)
		if (o->opened[i] != NULL)
			o->transports[i]->close(o->opened[i], true, o->deadline_ns);
	free(o->route);
	free(o->reach);
}

/* Who knows this rank's address may wait for it already. */
static void connections_call_off(const struct opening *o)
{
	size_t bytes;

	for (uint32_t i = 0; i < RB_ENDPOINTS_MAX; i++) {
		if (o->opened[i] == NULL || o->blobs[i] == NULL ||
		    o->transports[i]->call_off == NULL)
			continue;
		for (uint32_t r = 0; r < o->comm->engine.rank_count; r++) {
			bool elsewhere = o->route != NULL && !o->contested &&
					 o->route[r] != UNREACHED && o->route[r] != i;

			if (elsewhere || o->blob_bytes[i][r] <= BLOB_HEAD_BYTES)
				continue;
			const void *address = address_of(o, i, r, &bytes);

			o->transports[i]->call_off(o->opened[i], r, address, bytes);
		}
	}
}

/* Tells the others, unless they know, and closes all that they wait for. Which of their troubles
 * was the first may be known to one of them only. */
static rubato_status open_failed(struct opening *o, rubato_status err, bool known)
{
	struct rb_bootstrap *b = o->bootstrap;
	uint32_t blames = blames_find(o);
	char text[RB_TEXT_BYTES];

	/* Closing may fail in its own ways; the first sentence counts. */
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	b->blames = blames;
	if (b->leave != NULL && !known)
		b->leave(b);
	blames_tell(o, b->blames);
	connections_call_off(o);
	opening_close(o);
	rb_comm_free(o->comm, true, 1000000000u);
	err = RB_FAIL(err, "%s", text);
	if (b->end != NULL && !known)
		(void)b->end(b, false);
	if (err == RUBATO_ERR_PEER && b->blames > 0 && b->blames != blames &&
	    b->blames != b->rank + 1)
		err = RB_FAIL(err, "%s; start-up failed because of rank %u", text, b->blames - 1);
	else
		err = RB_FAIL(err, "%s", text);
	b->close(b);
	return err;
}

rubato_status rb_comm_open(const struct rb_setup *setup, rubato_comm **out)
{
	struct opening o = { .setup = setup, .host = rb_host_number() };
	size_t copy_bytes = setup->config_stays ? 0 : sizeof(*setup->config);
	struct rubato_comm *comm = calloc(1, sizeof(*comm) + copy_bytes);
	struct rb_bootstrap *bootstrap = setup->bootstrap;
	rubato_status err = RUBATO_OK;
	uint32_t mode;

	if (comm == NULL)
		err = RB_FAIL(RUBATO_ERR_MEMORY, "communicator: %zu bytes", sizeof(*comm));
	if (err == RUBATO_OK && bootstrap == NULL)
		err = rb_bootstrap_alone(&bootstrap);
	if (err == RUBATO_OK)
		err = rb_engine_init(&comm->engine, bootstrap->rank, bootstrap->rank_count);
	if (err != RUBATO_OK) {
		if (bootstrap != NULL) {
			if (bootstrap->end != NULL)
				(void)bootstrap->end(bootstrap, false);
			bootstrap->close(bootstrap);
		}
		free(comm);
		return err;
	}
	comm->memory.engine = &comm->engine;
	memcpy(comm->job, bootstrap->job, sizeof(comm->job));
	memcpy(comm->key, bootstrap->key, sizeof(comm->key));
	comm->elsewhere = bootstrap->elsewhere;
	comm->config = setup->config;
	if (copy_bytes > 0)
		comm->config = memcpy(comm + 1, setup->config, copy_bytes);
	comm->timeout_ns = setup->timeout_ns > 0 ? setup->timeout_ns : comm->config->timeout.number;
	comm->began_timeout_ns = comm->timeout_ns;
	o.comm = comm;
	o.bootstrap = bootstrap;
	/* Simulated endpoints replace this clock once they are open; their clock starts at 0. */
	o.deadline_ns = setup->backend != NULL ? comm->timeout_ns
					       : rb_deadline(rb_clock_ns(), comm->timeout_ns);
	if (setup->deadline_ns > 0)
		o.deadline_ns = setup->deadline_ns;
	comm->origin = *setup;
	comm->origin.bootstrap = NULL;
	comm->origin.routes = NULL;
	mode = rb_float_mode_enter(); /* All make the same facts of what was measured. */
	err = open_steps(&o);
	rb_float_mode_leave(mode);
	if (err != RUBATO_OK)
		return open_failed(&o, err, false);
	if (bootstrap->end != NULL)
		err = bootstrap->end(bootstrap, true);
	if (err != RUBATO_OK)
		return open_failed(&o, err, true);
	opening_close(&o);
	bootstrap->close(bootstrap);
	*out = comm;
	return RUBATO_OK;
}
