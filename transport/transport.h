/*
 * transport.h -- moves bytes between ranks; knows nothing about collectives.
 *
 * A backend is one const table plus a private struct that begins with struct rb_endpoint, in a
 * folder of its own: shm (mapped segments), ucx (networks), verbs (RDMA), sim (seeded, virtual
 * time).
 * tests/conformance/ runs against each of them and is the real contract; this is its summary.
 *
 *   Threads     every call on an endpoint is made under its engine's lock, one at a time, from
 *               whichever thread drives; only wake() may be called by any thread at any time.
 *   Requests    belong to the caller and stay put from post to completion. A post never fails: a
 *               request that cannot be carried out completes with its error. After the post
 *               returns, the request is DONE (then it is not listed by poll) or PENDING (then
 *               exactly one poll lists it, in any order). Buffers are the backend's until then.
 *   Matching    a message goes to the receive with equal (peer, tag), whichever is posted first. At
 *               most one message per (sender, receiver, tag) is on its way; messages may overtake
 *               each other. The signatures must be equal and the sizes too: else the receive
 *               completes with RUBATO_ERR_MISMATCH, `theirs` and `their_bytes` telling what came.
 *   Send        complete when the source may be reused, perhaps before the receive is posted (small
 *               ones) or only after (large ones): callers must not rely on either.
 *   Leaving     what is complete may still be on its way out of this process. While an endpoint's
 *               `leaving` is not 0 and left() does not say that all has left, poll must go on being
 *               called, or the peers wait for it; arm and the descriptor serve that as well.
 *   Put         writes source_bytes at remote + offset, then delivers an empty message with the
 *               tag: when the target's receive of 0 bytes completes, the bytes are there, and the
 *               source is read no more. Needs registered memory at the target, not at the source.
 *               Every transport has it, by messages where it has nothing better (puts_well). The
 *               kinds of memory at both ends are known: where an endpoint does not take one of them
 *               the target is not opened, or the put ends, with UNSUPPORTED (verbs: its own end's
 *               alone).
 *   Stores      made to mapped memory before a send or put was posted are visible to the peer when
 *               the receive of that message completes.
 *   Where       a request says what kind of memory its buffer lies in (base/memory_kind.h), and for
 *               long ones which region of this endpoint holds it, where one does: hints that save
 *               copies and registering; whether they are used is the backend's own affair.
 *   Credits     data that arrives before its receive is posted is bounded: RB_UNEXPECTED_BYTES_MAX
 *               per peer; beyond it, senders hold theirs back.
 *   Cancel      after cancel() the request is DONE, with RUBATO_ERR_CANCELLED, or with what had
 *               happened already; in either case it will not be listed and its buffer is not
 *               touched again.
 *   Failure     a lost peer: every request that needs it completes with RUBATO_ERR_PEER, and
 *               failure() tells it once. Requests with other peers go on.
 */
#ifndef RB_TRANSPORT_TRANSPORT_H
#define RB_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/link.h"
#include "base/list.h"
#include "base/memory_kind.h"
#include "base/status.h"
#include "base/wire.h"

/* Of an endpoint, as exchanged at start-up: a word for each of 3,900 ranks, and what all share. */
#define RB_ADDRESS_BYTES_MAX 16000
#define RB_KEY_BYTES_MAX 256               /* Of a region, as exchanged between peers. */
#define RB_UNEXPECTED_BYTES_MAX (1u << 20) /* Guess; per peer. */

#define RB_LAST_WORDS_BYTES 204

enum rb_request_kind { RB_REQUEST_SEND, RB_REQUEST_RECV, RB_REQUEST_PUT };
enum rb_request_state { RB_REQUEST_IDLE, RB_REQUEST_PENDING, RB_REQUEST_DONE };

struct rb_region { /* Memory that peers may reach: begins the backend's own struct. */
	void *base;
	size_t size_bytes;
	bool allocated; /* By region_alloc: freed with the region. */
	/* HOST, unless who adds it says otherwise before asking for its key, which has it. */
	enum rb_memory_kind kind;
};

/* Where a buffer lies. */
struct rb_where {
	void *base;
	enum rb_memory_kind kind;
	/* Of the engine's endpoints, each at its `index`, entries perhaps NULL: they hold the
	 * buffer. NULL: it is not registered, or too short for that to matter. */
	struct rb_region *const *regions;
};

struct rb_remote { /* A peer's region, seen from here: begins the backend's own struct. */
	uint32_t peer;
	void *mapped; /* Its memory in this address space, or NULL: cannot be mapped. */
	size_t size_bytes;
	enum rb_memory_kind kind; /* As its owner says. */
};

struct rb_request {
	/* Set by the caller before the post. */
	uint32_t peer;
	uint32_t kind; /* enum rb_request_kind; set by the post functions. */
	struct rb_tag tag;
	struct rb_signature signature;
	void *buffer; /* SEND, PUT: only read. */
	size_t size_bytes;
	const struct rb_where
		*where;           /* Of the buffer, until it is done. NULL: plain host memory. */
	struct rb_remote *remote; /* PUT. */
	uint64_t remote_offset;   /* PUT, bytes. */
	void *owner;              /* The caller's. */
	/* Set by the backend. */
	enum rb_request_state state;
	rubato_status status;
	struct rb_signature theirs; /* On MISMATCH. */
	uint64_t their_bytes;       /* Likewise. */
	/* Lists: whoever holds the request may use them. */
	struct rb_request *next, *previous;
	uint64_t backend[7]; /* Private to the backend between post and completion. */
};

struct rb_message { /* Sent or received at once, or not at all: without a request. */
	uint32_t peer;
	struct rb_tag tag;
	const struct rb_signature *signature;
	void *buffer; /* The host's; sent: only read. */
	size_t size_bytes;
};

/* A short message that goes again and again, as far as it is the same each time. */
struct rb_parcel {
	uint32_t peer, size_bytes;
	uint64_t tag_step;
	uint64_t at;    /* Where it lies, bytes from the begin */
	uint8_t buffer; /* of this one of the exchange's. */
	bool sends;
};

/* One of them after the other: parcels[at] to parcels[end - 1]; `at` moves on as they are done. */
struct rb_parcels {
	const struct rb_parcel *parcels;
	uint32_t at, end;
	uint32_t looks;    /* For what has not come yet, at most, besides the first. */
	struct rb_tag tag; /* All their steps have each parcel's bits besides. */
	const struct rb_signature *signature;
	void *const *buffers; /* The host's. */
};

enum rb_now {
	RB_NOW_DONE,
	RB_NOW_ABSENT, /* Nothing has come from this peer. */
	RB_NOW_REFUSED /* Something else has, or this takes longer: post a request. */
};

struct rb_transport_ops;

typedef bool rb_unmatched_visit(void *arg, uint32_t peer, struct rb_tag tag,
				const struct rb_signature *signature);

struct rb_endpoint {
	const struct rb_transport_ops *ops;
	uint32_t rank, rank_count;
	uint32_t index; /* Among its engine's endpoints; set by who opened it. */
	uint32_t takes; /* By the backend. Bits 1 << kind: memory that posts may name, and regions
			   * be of, beside HOST and MANAGED. */
	uint32_t slow;  /* Likewise. Of these: it turned out that they go in pieces by way of the
			   * host's, which whoever posts may do better. */
	/* Likewise. It carries a device's memory with streams of its own making, which might wait
	 * behind those that wait for it. */
	bool makes_streams;
	uint64_t leaving; /* By the backend. 0: nothing that peers wait for needs our polls. */
	/* Likewise: what has left may be lost on its way; polls find and mend that. So often, where
	 * nobody calls, does the progress thread look (0: never), and while something is being
	 * mended it drives. */
	uint64_t look_ns;
	uint32_t mending;
	uint64_t bytes_sent, bytes_received; /* Payload. Counted by the backend. */
	uint64_t sleeps;
	/* From connect_some() until who opened it has chosen it: another one may be better. Then a
	 * way that fails is not made up for. */
	bool on_trial;
	/* Set by who opened it once operations have failed: peers that have not heard of that may
	 * still read what it allocated, so region_drop leaves that as it is until close. */
	bool failed;
	/* Set around region_alloc: memory that is there is wanted, also in a hollow simulation. */
	bool solid;
	/* Set before close(abort), for the peers: over whom, + 1 (0: nobody), and what else there
	 * is to say (RB_LAST_WORDS_BYTES; NULL: nothing). */
	uint32_t blames;
	const uint8_t *last_words;
};

/* What somebody has read or written; at NULL: it does not matter where. */
struct rb_touch {
	const void *at;
	uint64_t size_bytes;
	bool writes;
};

struct rb_failure {
	uint32_t peer;
	rubato_status status; /* RUBATO_ERR_PEER. */
	bool gave_up;         /* It closed with abort, */
	uint32_t blames;      /* and over whom it said that it did, + 1; 0: nobody. */
	bool spoke;           /* It left last words. */
	char text[192];       /* What was noticed: "process 4711 ended". */
	uint8_t last_words[RB_LAST_WORDS_BYTES];
};

/* Whether peers' memory is attached (shm: process_vm_readv and its twin), where the kernel lets us;
 * OFFER: we ask it to let peers. */
enum rb_attach { RB_ATTACH_AUTO, RB_ATTACH_NEVER, RB_ATTACH_OFFER };

/* How verbs makes its queue pairs known to each other. AUTO: by rdmacm where nothing else does. */
enum rb_connect { RB_CONNECT_AUTO, RB_CONNECT_EXCHANGE, RB_CONNECT_RDMACM };

/*
 * A device's memory, to who moves it: what the application's devices are is their owner's affair.
 * All NULL: there are none.
 */
struct rb_device_memory {
	void *arg;
	/* By which it may be registered: bits, RB_MEMORY_BY_...; 0: there is no device, or *why (if
	 * not NULL). To be asked again when devices_changed() is called. */
	uint32_t (*ways)(void *arg, const char **why);
	/* Whether these bytes are a device's. */
	bool (*knows)(void *arg, const void *address, size_t size_bytes);
	/* A dma-buf that holds them, which is the caller's to close, and where they begin in it: as
	 * far into a page as the address is. Errors: UNSUPPORTED (it has none), SYSTEM. */
	rubato_status (*export_dmabuf)(void *arg, const void *address, size_t size_bytes, int *fd,
				       uint64_t *offset);
	/* Of any memory to any; the bytes are there when it returns OK. */
	rubato_status (*copy)(void *arg, void *to, const void *from, size_t size_bytes);
	/* What peers have written there before is what the device reads from now on: before
	 * anybody hears that it came. */
	rubato_status (*flush)(void *arg);
	/* Between the two the device is the calling thread's, for libraries that ask. */
	void (*enter)(void *arg);
	void (*leave)(void *arg);
};

#define RB_JOB_KEY_BYTES 32

struct rb_transport_options {
	uint32_t rank, rank_count;
	uint64_t heap_bytes; /* For region_alloc: address space set aside. */
	uint8_t job[16];     /* The job's nonce: names sockets, guards against strangers. */
	/* What its ranks prove themselves by; nothing to others where the job has a secret. */
	uint8_t key[RB_JOB_KEY_BYTES];
	bool elsewhere;          /* Other machines may be served over TCP. */
	const char *interface;   /* RUBATO_INTERFACE: network device(s), or NULL; */
	const char *reaching;    /* those that were found to do, or NULL: any. */
	bool tcp_only;           /* ucx: UCX's TCP only (--transport tcp). */
	enum rb_attach attach;   /* shm: RUBATO_ATTACH. */
	enum rb_connect connect; /* verbs: RUBATO_VERBS_CONNECT. */
	uint64_t resend_ns;      /* verbs: RUBATO_VERBS_RESEND. 0: its default. */
	uint64_t cache_bytes;    /* verbs: RUBATO_VERBS_CACHE. */
	bool ucx_device;         /* ucx: RUBATO_UCX_DEVICE. */
	void *backend;           /* sim: its cluster. */
	struct rb_device_memory device;
};

#define RB_CAP_MAP 1u /* Regions from region_alloc can be mapped by reachable peers. */
#define RB_CAP_PUT 2u
#define RB_CAP_BACKGROUND 4u   /* Drives background progress by itself: see drive(). */
#define RB_CAP_VIRTUAL_TIME 8u /* Time passes in wait() and sleep() alone, not while one polls. */
#define RB_CAP_REGIONS 16u     /* Does more for long messages whose region it is told. */

struct rb_transport_ops {
	const char *name;
	uint32_t caps;
	/* Longer messages leave only when their receive is there: several times the latency. 0: all
	 * take one. */
	uint32_t eager_bytes;
	uint32_t piece_bytes; /* Longer messages go in pieces, and ask after the first. 0: whole. */
	/* Up to so long the processors of both ends copy what goes to another node. 0: none. */
	uint32_t copied_bytes;
	uint32_t key_bytes; /* Of a region's key, at most; up to RB_KEY_BYTES_MAX. */

	/* Makes an endpoint that is not connected yet. Errors: UNSUPPORTED (not on this machine),
	 * MEMORY, SYSTEM. */
	rubato_status (*open)(const struct rb_transport_options *options, struct rb_endpoint **out);
	/* What peers need to connect: at most RB_ADDRESS_BYTES_MAX bytes. */
	rubato_status (*address)(struct rb_endpoint *ep, void *bytes, size_t *size_bytes);
	/* Whether a peer with this address can be reached by this backend (shm: the same host). */
	bool (*reachable)(struct rb_endpoint *ep, const void *address, size_t size_bytes);
	/* Why a peer with such an address is not reached: what it has there, what this rank has.
	 * Empty, or NULL: there is no more to say. */
	void (*apart)(struct rb_endpoint *ep, const void *address, size_t size_bytes, char *text,
		      size_t text_bytes);
	/* addresses[r] for each rank r with use[r]; use[own rank] is true as well, and messages to
	 * oneself work. Returns when all are reachable. Errors: TIMEOUT (the text names a rank),
	 * PEER, SYSTEM. */
	rubato_status (*connect)(struct rb_endpoint *ep, const void *const *addresses,
				 const size_t *address_bytes, const bool *use,
				 uint64_t deadline_ns);
	/* As connect(), but a peer that is not reached is left out, which is no failure: use[r]
	 * becomes false, and the log has a warning that says who, and from where. Errors: SYSTEM,
	 * MEMORY, of what concerns all. NULL: the backend leaves nobody out. */
	rubato_status (*connect_some)(struct rb_endpoint *ep, const void *const *addresses,
				      const size_t *address_bytes, bool *use, uint64_t deadline_ns);
	/* This rank has failed before it is connected to the peer, which may wait for it in its
	 * connect() and then hears of it, now or from close(), which follows. Tried once; cannot
	 * fail. NULL: such peers wait until their deadline. */
	void (*call_off)(struct rb_endpoint *ep, uint32_t rank, const void *address,
			 size_t size_bytes);
	/* Drops what is in flight, without completions, but lets leave what is complete; frees all
	 * regions and remotes. Tells peers that this rank leaves in good order (no failure event
	 * there) unless `abort`. Bounded by deadline_ns; cannot fail. NULL is fine. */
	void (*close)(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns);

	/* Memory. region_alloc: zeroed, page-aligned. region_add: the caller's own memory. */
	rubato_status (*region_alloc)(struct rb_endpoint *ep, size_t size_bytes,
				      struct rb_region **out);
	rubato_status (*region_add)(struct rb_endpoint *ep, void *base, size_t size_bytes,
				    struct rb_region **out);
	void (*region_drop)(struct rb_endpoint *ep, struct rb_region *region);
	rubato_status (*region_key)(struct rb_endpoint *ep, struct rb_region *region, void *key,
				    size_t *key_bytes);
	/* Makes a peer's region reachable from here: for put, and in remote->mapped if it can
	 * be. */
	rubato_status (*remote_open)(struct rb_endpoint *ep, uint32_t peer, const void *key,
				     size_t key_bytes, struct rb_remote **out);
	void (*remote_close)(struct rb_endpoint *ep, struct rb_remote *remote);
	/*
	 * The short way for backends whose allocated memory is one heap per rank, known to all
	 * since connect (shm, sim within a node): a word that names the address, 0 if there is none
	 * (foreign memory), and its translation for a peer, NULL if it cannot be, or if so many
	 * bytes from there on are not the peer's to give. Both NULL in the table: never.
	 */
	uint64_t (*word_of)(struct rb_endpoint *ep, const void *address, size_t size_bytes);
	void *(*word_map)(struct rb_endpoint *ep, uint32_t peer, uint64_t word,
			  uint64_t size_bytes);

	/* What options.device says may have changed: there is a device now. NULL: none matters. */
	void (*devices_changed)(struct rb_endpoint *ep);

	/* Posts. */
	void (*send)(struct rb_endpoint *ep, struct rb_request *request);
	void (*recv)(struct rb_endpoint *ep, struct rb_request *request);
	void (*put)(struct rb_endpoint *ep, struct rb_request *request);
	void (*cancel)(struct rb_endpoint *ep, struct rb_request *request);
	/*
	 * As cancel, of a receive: its buffer is quiet. But a message that it has met may yet be
	 * taken back by its sender. True: that is not known; it is PENDING, for it completes when
	 * the message was sent, and nobody has it (OK), or was not (CANCELLED: as if the receive
	 * had never been posted). False: it is DONE. NULL: cancel knows.
	 */
	bool (*leave)(struct rb_endpoint *ep, struct rb_request *request);
	/* Takes back a receive, as if it had never been posted; false: a message has met it. */
	bool (*recall)(struct rb_endpoint *ep, struct rb_request *request);

	/*
	 * What a send or receive would be that completes before its post returns; if it would not,
	 * or would fail, nothing has happened. All NULL: none does. send_now: DONE or REFUSED.
	 * here: whether recv_now, which said ABSENT, may say another thing by now. Nobody polls
	 * between the two.
	 */
	enum rb_now (*send_now)(struct rb_endpoint *ep, const struct rb_message *message);
	enum rb_now (*recv_now)(struct rb_endpoint *ep, const struct rb_message *message);
	bool (*here)(struct rb_endpoint *ep, uint32_t peer);
	/* As those two of each parcel, up to the first that is not DONE: what that one said. NULL:
	 * there is nothing shorter than these. */
	enum rb_now (*parcels_now)(struct rb_endpoint *ep, struct rb_parcels *parcels);
	/* A short message to the peer is about to be sent, as far as the caller knows: a hint, so
	 * that what it takes may be fetched meanwhile. NULL: no need. */
	void (*send_soon)(struct rb_endpoint *ep, uint32_t peer);

	/* Visits the messages that have come and found no receive, until a visit returns true;
	 * whether one did. What they are tells what peers do instead of what we wait for. */
	bool (*unmatched)(struct rb_endpoint *ep, rb_unmatched_visit *visit, void *arg);

	/* Makes progress, never blocks. Returns the requests that completed, linked by `next`, or
	 * NULL. */
	struct rb_request *(*poll)(struct rb_endpoint *ep);
	/* Asked when `leaving` is not 0: whether all has left nevertheless. NULL: it has not. */
	bool (*left)(struct rb_endpoint *ep);
	/* The next lost peer, if there is one that was not told yet. */
	bool (*failure)(struct rb_endpoint *ep, struct rb_failure *out);
	/* Looks for lost peers now; polls do so from time to time. What it completes the next poll
	 * lists. NULL: failure() always knows. */
	void (*look)(struct rb_endpoint *ep);

	/* Sleeping. arm: from now on an event makes the descriptor readable; false: something is
	 * there already, poll instead. disarm: after the sleep, whatever ended it. wake: from any
	 * thread, makes the descriptor readable once (or ends wait). */
	int (*descriptor)(struct rb_endpoint *ep);
	bool (*arm)(struct rb_endpoint *ep);
	void (*disarm)(struct rb_endpoint *ep);
	void (*wake)(struct rb_endpoint *ep);
	/* RB_CAP_VIRTUAL_TIME, instead of a descriptor: blocks until poll has something, wake, or
	 * the deadline. */
	void (*wait)(struct rb_endpoint *ep, uint64_t deadline_ns);

	/* RB_CAP_BACKGROUND: while the rank is busy elsewhere, the backend calls step(arg) at
	 * first, when something arrived for it and at the time that the last call returned (sim:
	 * during rubato_sleep). The others have a progress thread of
	 * the engine. */
	void (*drive)(struct rb_endpoint *ep, uint64_t (*step)(void *arg), void *arg);

	/* Whether a put to a peer needs neither its processor nor its word that it may come, large
	 * ones too. NULL: none does; then a put is carried by messages. */
	bool (*puts_well)(struct rb_endpoint *ep, uint32_t peer);
	/* What is known of the way to a peer without measuring it; false, or NULL: nothing. */
	bool (*link)(struct rb_endpoint *ep, uint32_t peer, struct rb_link *out);
	/* Likewise of the rank's own node; fields that are not known are left as they are. */
	bool (*node_speed)(struct rb_endpoint *ep, struct rb_node_speed *out);

	/* Names what this rank's messages to other nodes leave by: ranks with equal words share it.
	 * NULL: what the network that the process sees has (runtime/facts.c). */
	uint64_t (*card)(struct rb_endpoint *ep);

	/* Names what carries data to a peer, for people: device, port, address. Empty: there is
	 * nothing to name. NULL: likewise. */
	void (*path)(struct rb_endpoint *ep, uint32_t peer, char *text, size_t text_bytes);
	/* How often a long message of a peer is copied on its way between buffers that are not
	 * allocated here. NULL: not known. */
	uint32_t (*copies)(struct rb_endpoint *ep, uint32_t peer);
	/* Whether that rank is of this process, so that a pointer of its is one here. NULL: it is
	 * not. */
	bool (*in_process)(const struct rb_endpoint *ep, uint32_t peer);
	/* The processor that a rank of this machine was on when it last slept, or asked this of
	 * itself, or a moment ago; RB_CPU_NONE: not known. NULL: never. */
	uint32_t (*processor)(struct rb_endpoint *ep, uint32_t peer);

	/* Time and chance. */
	uint64_t (*now_ns)(struct rb_endpoint *ep);
	uint64_t (*random)(struct rb_endpoint *ep);
	void (*sleep)(struct rb_endpoint *ep, uint64_t until_ns); /* Stands for computation. */
	/* RB_CAP_VIRTUAL_TIME: the caller has read and written that, one piece of copying or
	 * reducing; it takes time now. NULL: it takes none. */
	void (*work)(struct rb_endpoint *ep, const struct rb_touch *touches, uint32_t count);

	/* One line per outstanding request, for rubato_dump. */
	void (*dump)(struct rb_endpoint *ep, void (*line)(void *arg, const char *text), void *arg);
};

/* Whether this endpoint reads and writes memory of that kind. */
static inline bool rb_endpoint_takes(const struct rb_endpoint *ep, enum rb_memory_kind kind)
{
	return kind == RB_MEMORY_HOST || kind == RB_MEMORY_MANAGED || (ep->takes & 1u << kind) != 0;
}

/* And without the host's memory between. */
static inline bool rb_endpoint_reaches(const struct rb_endpoint *ep, enum rb_memory_kind kind)
{
	return rb_endpoint_takes(ep, kind) && (ep->slow & 1u << kind) == 0;
}

/* Of a peer's key, when it is opened. Errors: UNSUPPORTED. */
static inline rubato_status rb_remote_check(const struct rb_endpoint *ep, uint32_t peer,
					    enum rb_memory_kind kind)
{
	return rb_endpoint_takes(ep, kind)
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				 "%s does not put into %s memory, which rank %u gave a key of",
				 ep->ops->name, rb_memory_kind_name(kind), peer);
}

/* Of a put, when it is posted. Errors: UNSUPPORTED. */
static inline rubato_status rb_put_check(const struct rb_endpoint *ep,
					 const struct rb_request *request)
{
	enum rb_memory_kind from = request->where != NULL ? request->where->kind : RB_MEMORY_HOST;
	enum rb_memory_kind to = request->remote->kind;

	return request->size_bytes == 0 ||
			       (rb_endpoint_takes(ep, from) && rb_endpoint_takes(ep, to))
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				 "%s does not put from %s memory into %s memory of rank %u",
				 ep->ops->name, rb_memory_kind_name(from), rb_memory_kind_name(to),
				 request->peer);
}

/* What this endpoint knows of the request's buffer; NULL: nothing. */
static inline struct rb_region *rb_request_region(const struct rb_endpoint *ep,
						  const struct rb_request *request)
{
	const struct rb_where *where = request->where;

	return where != NULL && where->regions != NULL ? where->regions[ep->index] : NULL;
}

extern const struct rb_transport_ops rb_transport_shm, rb_transport_ucx, rb_transport_sim,
	rb_transport_verbs;

#endif
