/*
 * verbs.h -- what the files of the verbs backend share: RDMA without UCX.
 *
 * One reliable queue pair (RC) a peer, one completion queue for all. Everything but the bytes of
 * large messages travels in SENDs of a head and at most one slot of payload, into receives that are
 * posted ahead. RC keeps order, so what is sent after an RDMA write says that the write is there.
 *
 *   small   up to RB_VERBS_EAGER_MAX: EAGER, and MORE where one slot does not hold it, from copies:
 *           the send is done when posted. It spends units of credit, as data that may find no
 *           receive; what has no units is announced as large ones are.
 *   large   a receive invites its message as soon as it is posted (CLEAR: where to, by which key),
 *           and the sender writes there and says so (FIN): one latency where the receive came
 *           first. A send without an invitation announces itself (ANNOUNCE). Who invites or
 *           announces first does not matter: a sender that finds the invitation of its tag serves
 *           it, and a receiver ignores the announcement of what it has invited. A destination
 *           that cannot be registered is invited without a key: then pieces come in slots (DATA).
 *   put     RDMA write, then an empty message with the tag (PUT).
 *
 * Receives never run out (rnr_retry is 0, so that a breach is an error): a sender has at most
 * RB_VERBS_WINDOW slots at the peer that it does not know to be posted again, and every head says
 * how many have been. That alone could leave both ends mute, so who owes half a window says so in a
 * message of its own (CREDIT), for which RB_VERBS_RESERVE further slots are there. They suffice:
 * three CREDITs after one, that one is known to be consumed, as its receiver could not have filled
 * one and a half windows without having heard it, and all that it sends says how far it has heard.
 * (An RDMA write of the count would take no slot, but would not wake a peer that sleeps.)
 *
 * The device reads sources and writes destinations by itself, so before a request ends that is not
 * through, the device must be through with it. A source: its writes are waited for, which needs the
 * peer's device alone. A destination: the peer is asked (STOP) and answers behind its last write;
 * where no answer comes, the queue pair goes into its error state, which shuts the peer out, and
 * the peer is lost. Plain memory is registered for one message and no longer: nothing tells us when
 * a caller gives memory back to the system, so a cache of registrations could name pages that
 * are somebody else's by now. Regions, which have a known life, are registered once.
 *
 *	verbs.c          the table: open, posts, cancel, poll, sleeping
 *	verbs_load.c     libibverbs itself: its functions, by name
 *	verbs_device.c   devices, ports, addresses of ports; what errors are called
 *	verbs_connect.c  addresses, queue pairs, hello, close
 *	verbs_peer.c     lost peers: processes, silence, events
 *	verbs_queue.c    the send queue: slots, the chain of one doorbell, what completes
 *	verbs_message.c  heads, what arrives, small messages
 *	verbs_large.c    announced and invited messages
 *	verbs_memory.c   regions, keys, registration, put
 */
#ifndef RB_TRANSPORT_VERBS_H
#define RB_TRANSPORT_VERBS_H

#include <string.h>

#include <infiniband/verbs.h>

#include "transport/match.h"

#define RB_VERBS_VERSION 1u
#define RB_VERBS_SLOT_BYTES 1024u
#define RB_VERBS_WINDOW 56u    /* Slots at a peer for what this rank sends. Guess. */
#define RB_VERBS_RESERVE 8u    /* More, for CREDIT alone. */
#define RB_VERBS_UNITS_OVER 4u /* Of the reserve, for a CREDIT that is about units only. */
#define RB_VERBS_SLOTS (RB_VERBS_WINDOW + RB_VERBS_RESERVE) /* 64 KiB a peer. */
#define RB_VERBS_QUEUE 128u             /* Entries of a send queue; a power of 2. */
#define RB_VERBS_CHAIN 16u              /* Posted by one doorbell. */
#define RB_VERBS_SIGNAL_EACH 8u         /* Entries, one of which tells its completion. */
#define RB_VERBS_EAGER_MAX 16384u       /* Guess. */
#define RB_VERBS_PIECE_BYTES (1u << 18) /* Of an RDMA write. Guess. */
#define RB_VERBS_PIECES_OUT 4u          /* Of a request, at a time. Guess. */
#define RB_VERBS_UNIT_BYTES 64u
#define RB_VERBS_UNITS_MAX (RB_UNEXPECTED_BYTES_MAX / RB_VERBS_UNIT_BYTES)
#define RB_VERBS_ARRIVAL_BYTES 128u /* What a waiting message costs besides its payload. */
#define RB_VERBS_WAITING_MAX 65536u /* Descriptors of a peer that wait here: more is a fault. */
#define RB_VERBS_REASON_BYTES 140
/* What a completion is of: wr_id. Else rank << 32 | number of an entry of its queue. */
#define RB_VERBS_RECEIVED (UINT64_C(1) << 63) /* | rank << 32 | slot. */
#define RB_VERBS_DATAGRAM (UINT64_C(1) << 62) /* | slot; or, sent, RB_VERBS_DATAGRAMS. */
#define RB_VERBS_DATAGRAMS 64u
/* What watch_fd tells of, beside the ranks of processes. */
#define RB_VERBS_WATCH_EVENTS UINT32_MAX
#define RB_VERBS_WATCH_CLOCK (UINT32_MAX - 1)
#define RB_VERBS_KEY_BYTES 21 /* Address, size, key, kind of memory. */

/* libibverbs' functions, by their own names: it is loaded, not linked. Others are inline, by way of
 * the context. Those after the first line that not every version has may be NULL. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
/* clang-format off */
#define RB_VERBS_FUNCTIONS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) \
	X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) \
	X(ibv_query_gid) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_dereg_mr) \
	X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) \
	X(ibv_destroy_cq) X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_create_qp) \
	X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_create_ah) X(ibv_destroy_ah) \
	X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_wc_status_str) X(ibv_event_type_str)
#define RB_VERBS_FUNCTIONS_NEWER(X) X(_ibv_query_gid_ex) X(ibv_fork_init)
/* clang-format on */
#define RB_VERBS_FUNCTION(name) __typeof__(name) *name;
struct rb_verbs_api {
	RB_VERBS_FUNCTIONS(RB_VERBS_FUNCTION)
	RB_VERBS_FUNCTIONS_NEWER(RB_VERBS_FUNCTION)
};

enum rb_verbs_message {
	RB_VERBS_HELLO = 1, /* connect(): the job and the rank; over the path that data takes. */
	RB_VERBS_EAGER,     /* A message, or the first piece of one. */
	RB_VERBS_MORE,      /* The next piece of the last EAGER. */
	RB_VERBS_ANNOUNCE,  /* The sender's flight `id` waits for its invitation. */
	RB_VERBS_CLEAR,     /* Invites: the receiver's flight `id`; a struct rb_verbs_target. */
	RB_VERBS_REFUSED,   /* The message of that tag does not fit what flight `id` invites. */
	RB_VERBS_DROP,      /* Nobody wants the announced flight `id`. */
	RB_VERBS_GONE,      /* The announced flight `id` was cancelled. */
	RB_VERBS_DATA,      /* A piece of what the receiver's flight `id` invited without a key. */
	RB_VERBS_FIN,       /* What flight `id` invited is written. */
	RB_VERBS_STOP,      /* Is flight `id` being served? Then stop (`size_bytes` 1: go on). */
	RB_VERBS_STOPPED,   /* Nobody writes for flight `id` any more. */
	RB_VERBS_KEPT,      /* Flight `id` is being served. */
	RB_VERBS_PUT,       /* The empty message behind a put. */
	RB_VERBS_CREDIT,    /* Only what every head says. */
	RB_VERBS_BYE,       /* The last message of a rank that leaves in good order. */
	RB_VERBS_ABORT,     /* The last message of one that does not: blames `id`; last words. */
};

/* Before each payload. Little-endian hosts only. */
struct rb_verbs_head {
	uint8_t message; /* enum rb_verbs_message. */
	uint8_t version;
	uint16_t bytes;    /* Of payload behind this head. */
	uint32_t consumed; /* Slots of the sender's that were posted again, ever. */
	uint32_t freed;    /* Units of credit given back, ever. */
	uint32_t zero;
	struct rb_tag tag;
	struct rb_signature signature;
	uint64_t size_bytes; /* Of the whole message; DATA: where this piece belongs. */
	uint64_t id;
};
_Static_assert(sizeof(struct rb_verbs_head) == 64, "travels as it is");
#define RB_VERBS_PAYLOAD_MAX (RB_VERBS_SLOT_BYTES - (uint32_t)sizeof(struct rb_verbs_head))

struct rb_verbs_target { /* The payload of CLEAR. */
	uint64_t address;
	uint32_t key; /* 0: none. */
	uint32_t zero;
	uint64_t send; /* The announced flight that it is for; 0: whichever has its tag. */
};

struct rb_verbs_greeting { /* The payload of HELLO; and before connecting, over UD. */
	uint8_t job[16];
	uint32_t rank;
	uint8_t version;
	uint8_t heard; /* UD: the addressee's was heard. */
	uint16_t zero;
};

struct rb_verbs_slot { /* Holds what leaves, until the device is through with it. */
	struct rb_verbs_slot *next;
	struct rb_verbs_head *head; /* RB_VERBS_SLOT_BYTES from there are registered: */
	uint32_t key;
};

struct rb_verbs_chunk { /* Of slots: one registration. */
	struct rb_verbs_chunk *next;
	void *memory;
	struct ibv_mr *mr;
	struct rb_verbs_slot slots[];
};

/* What has no slot at the peer yet: a copy. */
struct rb_verbs_out {
	struct rb_verbs_out *next;
	struct rb_verbs_head head; /* Without counts. */
	size_t size_bytes, moved;  /* Of the payload. */
	uint8_t payload[];
};

struct rb_verbs_entry {             /* Of a send queue. */
	struct rb_verbs_slot *slot; /* Given back when it completes, or NULL. */
	uint64_t flight;            /* 0: none. */
	uint32_t bytes;             /* Of an RDMA write. */
	uint8_t message;            /* enum rb_verbs_message; 0: an RDMA write. */
};

/* A message that came before its receive, in the matcher. */
struct rb_verbs_arrival {
	struct rb_arrival base;
	uint32_t units;          /* Of credit that it holds. */
	struct rb_request *send; /* Its own, when it is to oneself. */
	uint64_t id;             /* The sender's flight: it is announced only. 0: whole. */
	uint64_t size_bytes;
	uint8_t payload[];
};

/* An invitation, at the sender. */
struct rb_verbs_invite {
	struct rb_arrival base;
	uint64_t id; /* The receiver's flight. */
	uint64_t size_bytes;
	struct rb_verbs_target target;
};

/* Where a request is: request->backend[RB_VERBS_STAGE]. */
enum rb_verbs_stage {
	RB_VERBS_STAGE_NONE,      /* Done, or in the list of completed ones. */
	RB_VERBS_STAGE_MATCHING,  /* A receive in the matcher; with a flight: it has invited. */
	RB_VERBS_STAGE_SELF,      /* A send to oneself, an arrival in the matcher. */
	RB_VERBS_STAGE_WAITING,   /* A send, announced, in the matcher of what leaves. */
	RB_VERBS_STAGE_SENDING,   /* A send that serves an invitation, or a put. */
	RB_VERBS_STAGE_RECEIVING, /* A receive whose message comes. */
};
enum rb_verbs_word {
	RB_VERBS_STAGE,
	RB_VERBS_FLIGHT, /* Id, or 0. */
	RB_VERBS_OTHER,  /* SELF: its arrival. */
	RB_VERBS_LISTED, /* In the list of completed ones. */
};

enum rb_verbs_halt { RB_VERBS_GOES_ON, RB_VERBS_ASKED, RB_VERBS_IS_OVER, RB_VERBS_IS_MET };

/* What peers may speak of, or the device has something of, by id: generation << 32 | index + 1. */
struct rb_verbs_flight {
	struct rb_request *request; /* NULL: free, or its request has ended before it. */
	uint32_t index, generation;
	uint32_t next_free; /* Index + 1; 0: none. */
	bool used;
	bool active;                             /* In its peer's list of those that push. */
	struct rb_verbs_flight *next, *previous; /* There. */
	struct ibv_mr *mr;                       /* Registered for this message alone, or NULL. */
	uint32_t local_key;                      /* 0: not registered. */
	/* A send's, a put's. */
	struct rb_verbs_invite *invite; /* That it serves. NULL: a put, or none yet. */
	uint64_t address;               /* There. */
	uint32_t key;                   /* 0: pieces in slots. */
	uint32_t out;                   /* Writes under way. */
	uint64_t moved;                 /* Bytes handed over; DATA, received: bytes that came. */
	bool finished;                  /* All is handed over, its end too. */
	bool halted;                    /* No more of it leaves; its request ends with it. */
	/* A receive's. */
	bool mismatched;         /* Ends with MISMATCH once nobody can write any more. */
	enum rb_verbs_halt halt; /* While cancel() or recall() waits for an answer. */
};
#define RB_VERBS_FLIGHTS_EACH 64u

struct rb_verbs_peer {
	struct rb_verbs *vb;
	uint32_t rank, pid;
	struct ibv_qp *qp;
	uint32_t qp_number; /* Theirs. */
	struct ibv_ah *ah;  /* While connecting, for datagrams to */
	uint32_t datagrams; /* this queue pair. */
	union ibv_gid gid;
	int pid_fd;     /* Same host: tells when the process has ended; else -1. */
	bool used;      /* Named in connect(). */
	bool heard;     /* It can receive. */
	bool greeted;   /* Its HELLO came. */
	bool left;      /* It said BYE. */
	bool lost;      /* No more traffic; `left` is not lost. */
	bool told;      /* failure() gave it out. */
	bool parted;    /* Our BYE or ABORT was posted. */
	uint8_t *slots; /* RB_VERBS_SLOTS, for what comes. */
	/* Counts, ever, of slots: sent to them and known to be posted again; posted again here and
	 * said so. Likewise units: spent, known to be back; given back, said so. */
	uint32_t sent, sent_known;
	uint32_t reposted, reposted_said;
	uint32_t spent, spent_known;
	uint32_t freed, freed_said;
	uint32_t held;    /* Units of arrivals that wait here. */
	uint32_t waiting; /* Arrivals without units, and invitations. */
	struct rb_verbs_peer *next_stirred;
	bool is_stirred;
	uint32_t posted, retired; /* Entries of the send queue, ever. */
	uint32_t unsignalled;     /* The last so many tell no completion. */
	bool quiet;               /* Nothing came or completed since the clock last ticked. */
	bool probing;             /* A write of no bytes asks whether it is there, */
	uint32_t ticks;           /* since so long. */
	struct rb_verbs_entry entries[RB_VERBS_QUEUE];
	struct rb_verbs_out *out_first, *out_last;
	struct rb_verbs_flight *active_first, *active_last;
	/* The message whose MORE comes next. */
	struct {
		uint64_t left_bytes, moved;
		uint32_t cost;
		struct rb_request *receive;       /* It goes there, */
		struct rb_verbs_arrival *arrival; /* or there; neither: nobody wants it. */
	} coming;
	struct rb_match_peer match;    /* Receives, and messages. */
	struct rb_match_peer outgoing; /* Announced sends, and invitations. */
	bool gave_up, spoke;           /* These: see rb_failure. */
	uint32_t blames;
	uint8_t last_words[RB_LAST_WORDS_BYTES];
	char reason[RB_VERBS_REASON_BYTES];
};

struct rb_verbs_region {
	struct rb_region base;
	struct rb_verbs_region *next;
	struct ibv_mr *mr;
	bool mapped; /* Our own mmap. */
};

struct rb_verbs_remote {
	struct rb_remote base;
	struct rb_verbs_remote *next;
	uint64_t address;
	uint32_t key;
};

struct rb_verbs_port { /* Of a device: what its peers must know, and what carries data. */
	char device[64];
	uint8_t number, gid_index;
	bool ethernet;
	bool roce_1;
	uint8_t mtu; /* enum ibv_mtu. */
	uint16_t lid;
	int32_t domain; /* NUMA; -1: not known. */
	union ibv_gid gid;
};

struct rb_verbs {
	struct rb_endpoint base;
	struct rb_verbs_api api;
	struct rb_verbs_port port;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *datagrams; /* While connecting. */
	uint8_t *datagram_slots;
	struct ibv_mr *datagram_mr, *slots_mr;
	uint64_t datagrams_out; /* Bits: slots that the device has. */
	uint8_t *slots;         /* All peers'. */
	size_t slots_bytes;
	uint32_t inline_max;
	uint32_t cq_entries;
	uint8_t job[16];
	uint8_t host[16];
	int epoll_fd, wake_fd;
	int watch_fd, clock_fd; /* Processes, the device's events and a clock. */
	uint32_t rounds;        /* Of poll, since watch_fd was looked at. */
	uint32_t to_tell;       /* Lost peers that failure() has not given out. */
	uint32_t cq_events;     /* To be acknowledged. */
	uint64_t random;
	bool dead;                     /* The device has failed. */
	struct rb_verbs_peer *stirred; /* Something came of them. */
	struct rb_request *posting;
	struct rb_request *done_first, *done_last;
	struct rb_verbs_flight **flights; /* In chunks. */
	uint32_t flight_count, flight_free;
	struct rb_verbs_chunk *chunks;
	struct rb_verbs_slot *free_slots;
	struct { /* What one doorbell will post. */
		struct rb_verbs_peer *peer;
		uint32_t count;
		struct ibv_send_wr requests[RB_VERBS_CHAIN];
		struct ibv_sge parts[RB_VERBS_CHAIN];
		struct rb_verbs_slot *slots[RB_VERBS_CHAIN]; /* Free once posted: sent inline. */
	} chain;
	struct rb_verbs_region *regions;
	struct rb_verbs_remote *remotes;
	struct rb_verbs_peer peers[];
};

/* The units that so many bytes take. */
static inline uint32_t rb_verbs_units(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + RB_VERBS_ARRIVAL_BYTES + RB_VERBS_UNIT_BYTES - 1) /
			  RB_VERBS_UNIT_BYTES);
}

static inline void rb_verbs_copy(void *to, const void *from, size_t size_bytes)
{
	if (size_bytes != 0)
		memcpy(to, from, size_bytes);
}

/* verbs.c */
/* Ends a request: DONE at once if its post is still under way, else when poll lists it. Its flight,
 * if it has one, ends too. */
void rb_verbs_complete(struct rb_verbs *vb, struct rb_request *request, rubato_status status);
/* Errors: MEMORY. */
RB_NODISCARD rubato_status rb_verbs_flight_begin(struct rb_verbs *vb, struct rb_request *request,
						 struct rb_verbs_flight **out);
void rb_verbs_flight_end(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* NULL: it has ended. */
struct rb_verbs_flight *rb_verbs_flight_find(struct rb_verbs *vb, uint64_t id);
static inline uint64_t rb_verbs_flight_id(const struct rb_verbs_flight *flight)
{
	return (uint64_t)flight->generation << 32 | (flight->index + 1);
}
/* The flight of a request of that peer in that stage, or NULL. */
struct rb_verbs_flight *rb_verbs_flight_of(struct rb_verbs *vb, uint64_t id, uint32_t peer,
					   enum rb_verbs_stage stage);
/* The next round of progress asks whether the peer's flights can go on. */
static inline void rb_verbs_stir(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (peer->is_stirred)
		return;
	peer->is_stirred = true;
	peer->next_stirred = vb->stirred;
	vb->stirred = peer;
}
/* Completions, as far as there are, and what follows from them; how many. */
uint32_t rb_verbs_progress(struct rb_verbs *vb);
/* For who waits in here: a round of progress; where nothing moved, a short sleep. */
void rb_verbs_move(struct rb_verbs *vb, uint64_t until_ns);

/* verbs_load.c */
/* Errors: UNSUPPORTED (there is none that serves). */
RB_NODISCARD rubato_status rb_verbs_load(struct rb_verbs_api *api);

/* verbs_device.c */
/* The device and port that `interface` names (NULL: the best one), open. Errors: UNSUPPORTED. */
RB_NODISCARD rubato_status rb_verbs_device_open(struct rb_verbs *vb, const char *interface);
/* "mlx5_0 port 1, RoCE v2, GID 3 fe80::1, MTU 4096": what carries data. */
#define RB_VERBS_GID_BYTES 40
char *rb_verbs_gid_text(const union ibv_gid *gid, char text[RB_VERBS_GID_BYTES]);
char *rb_verbs_port_text(const struct rb_verbs_port *port, char *text, size_t text_bytes);
uint32_t rb_verbs_mtu_bytes(uint8_t mtu);
/* Of a failed call, by errno: MEMORY or SYSTEM. */
rubato_status rb_verbs_failed(const struct rb_verbs *vb, int error, const char *what);

/* verbs_connect.c */
rubato_status rb_verbs_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes);
bool rb_verbs_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes);
rubato_status rb_verbs_connect(struct rb_endpoint *ep, const void *const *addresses,
			       const size_t *address_bytes, const bool *use, uint64_t deadline_ns);
void rb_verbs_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns);
void rb_verbs_greeted(struct rb_verbs *vb, uint32_t rank, const void *payload, size_t bytes);
void rb_verbs_datagram(struct rb_verbs *vb, const struct ibv_wc *wc);

/* verbs_peer.c */
/* No more traffic with the peer: its requests end with PEER. In good order when `left` is set. */
void rb_verbs_lose(struct rb_verbs *vb, uint32_t peer, const char *reason);
/* All of them: the device has failed. */
void rb_verbs_lose_all(struct rb_verbs *vb, const char *what);
/* By what a completion said of an entry of its queue. */
void rb_verbs_lose_by(struct rb_verbs *vb, uint32_t peer, const char *what,
		      const struct ibv_wc *wc);
/* Loses a peer that broke the protocol. */
void rb_verbs_wrong(struct rb_verbs *vb, uint32_t peer, const char *what);
RB_NODISCARD rubato_status rb_verbs_watch_process(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_unwatch(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Processes that ended, events of the device, peers that have been silent for long. */
void rb_verbs_check_peers(struct rb_verbs *vb);
void rb_verbs_look(struct rb_endpoint *ep);
bool rb_verbs_failure(struct rb_endpoint *ep, struct rb_failure *out);
void rb_verbs_host_id(struct rb_verbs *vb);

/* verbs_queue.c */
/* Slots for what leaves, until close. Errors: MEMORY. */
RB_NODISCARD rubato_status rb_verbs_slots_make(struct rb_verbs *vb);
void rb_verbs_slots_free(struct rb_verbs *vb);
/* Leaves, now or when there is room: a head (counts are filled in) and its payload. Losing the peer
 * is how it fails. */
void rb_verbs_tell(struct rb_verbs *vb, uint32_t peer, const struct rb_verbs_head *head,
		   const void *payload, size_t payload_bytes);
/* Half of the peer's slots at least are taken, as far as is known. */
static inline bool rb_verbs_is_full(const struct rb_verbs_peer *peer)
{
	return peer->sent - peer->sent_known >= RB_VERBS_WINDOW / 2;
}
/* A piece of DATA of a flight, if there is room now; false: not. */
bool rb_verbs_piece(struct rb_verbs *vb, uint32_t peer, const struct rb_verbs_head *head,
		    const void *payload, size_t payload_bytes);
/* Says what is owed, if it is much; see above. */
void rb_verbs_repay(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* An RDMA write for a flight, from registered memory (local_key not 0) or from a copy in a slot;
 * false: no room now. `last`: something that tells its completion follows. */
bool rb_verbs_write(struct rb_verbs *vb, uint32_t peer, struct rb_verbs_flight *flight,
		    const void *from, uint32_t bytes, uint64_t address, bool last);
/* A write of no bytes: whether somebody is there. */
void rb_verbs_probe(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Rings the doorbell for what was told. */
void rb_verbs_ring(struct rb_verbs *vb);
/* Entry `number` of the peer's queue has completed, and all before it. */
void rb_verbs_retire(struct rb_verbs *vb, uint32_t peer, uint32_t number, const struct ibv_wc *wc);
/* After room has come: what waits for it. */
void rb_verbs_pump(struct rb_verbs *vb, uint32_t peer);
/* Of a lost peer: what has not left. */
void rb_verbs_outs_drop(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Posts a slot of the peer's receives (again). */
void rb_verbs_repost(struct rb_verbs *vb, struct rb_verbs_peer *peer, uint32_t slot);

/* verbs_message.c */
void rb_verbs_post_send(struct rb_verbs *vb, struct rb_request *request);
void rb_verbs_post_recv(struct rb_verbs *vb, struct rb_request *request);
/* What came into a slot of the peer's. */
void rb_verbs_arrived(struct rb_verbs *vb, uint32_t peer, const void *bytes, uint32_t byte_count);
/* Whether a message is what the receive expects; if not, the receive is told what it was. */
bool rb_verbs_fits(struct rb_request *receive, const struct rb_signature *signature,
		   uint64_t size_bytes);
void rb_verbs_arrivals_drop(struct rb_verbs *vb, uint32_t peer, bool all);
void rb_verbs_deliver_self(struct rb_verbs *vb, struct rb_request *put);

/* verbs_large.c */
/* What takes a message's head and its flight's id to say. */
void rb_verbs_say(struct rb_verbs *vb, uint32_t peer, enum rb_verbs_message message,
		  struct rb_tag tag, uint64_t id, uint64_t size_bytes);
/* A send serves the invitation of its tag. False: there is none. */
bool rb_verbs_serve(struct rb_verbs *vb, struct rb_request *send);
void rb_verbs_announce(struct rb_verbs *vb, struct rb_request *send);
/* A receive in the matcher invites its message, if it is one of those. */
void rb_verbs_invite(struct rb_verbs *vb, struct rb_request *receive);
/* A receive, which is not in the matcher, meets the announced message that is the sender's flight
 * `id`. */
void rb_verbs_meet(struct rb_verbs *vb, struct rb_request *receive, uint64_t id,
		   const struct rb_signature *signature, uint64_t size_bytes);
/* Hands over what is left of a flight, as far as there is room. */
void rb_verbs_push(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* The first time, and whenever there is room again. */
void rb_verbs_flight_push_begin(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* A write of the flight's has completed. */
void rb_verbs_written(struct rb_verbs *vb, struct rb_verbs_flight *flight);
void rb_verbs_flight_rest(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* One of ANNOUNCE to KEPT. */
void rb_verbs_large_arrived(struct rb_verbs *vb, uint32_t peer, const struct rb_verbs_head *head,
			    const uint8_t *payload);
/* A receive that has invited is met by what it did not invite: it ends with MISMATCH. */
void rb_verbs_revoke(struct rb_verbs *vb, struct rb_request *receive);
/* Before a request with a flight ends early. *over: it has ended by itself meanwhile. */
void rb_verbs_withdraw(struct rb_verbs *vb, struct rb_request *request);
bool rb_verbs_recall_invited(struct rb_verbs *vb, struct rb_request *receive);
void rb_verbs_invites_drop(struct rb_verbs *vb, uint32_t peer);

/* verbs_memory.c */
rubato_status rb_verbs_region_alloc(struct rb_endpoint *ep, size_t size_bytes,
				    struct rb_region **out);
rubato_status rb_verbs_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				  struct rb_region **out);
void rb_verbs_region_drop(struct rb_endpoint *ep, struct rb_region *region);
rubato_status rb_verbs_region_key(struct rb_endpoint *ep, struct rb_region *region, void *key,
				  size_t *key_bytes);
rubato_status rb_verbs_remote_open(struct rb_endpoint *ep, uint32_t peer, const void *key,
				   size_t key_bytes, struct rb_remote **out);
void rb_verbs_remote_close(struct rb_endpoint *ep, struct rb_remote *remote);
void rb_verbs_post_put(struct rb_verbs *vb, struct rb_request *request);
/* Registers the request's buffer for its flight, unless a region holds it, or it cannot be: then
 * local_key stays 0. Returns the key for peers. */
uint32_t rb_verbs_register(struct rb_verbs *vb, struct rb_verbs_flight *flight, bool written);
void rb_verbs_unregister(struct rb_verbs *vb, struct rb_verbs_flight *flight);

#endif
