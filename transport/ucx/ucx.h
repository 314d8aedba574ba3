/*
 * ucx.h -- what the files of the UCX backend share.
 *
 * Everything travels in active messages, each with our own head; our matcher, not UCX's, pairs
 * them with receives, so that all backends mean the same by a match, a mismatch and a cancel.
 *
 *   small   up to one frame: EAGER, from a copy: the send is done when posted. Its sender spends
 *           credit for it, which the receiver gives back (in any head that travels the other way)
 *           once it is consumed.
 *   large   in pieces, each of which says of which message. They leave at once as far as credit
 *           goes (AHEAD; without data where there is none: the message is announced), so that a
 *           message takes one latency, whether its receive is posted before, meanwhile or later.
 *           When the receive is there: CLEAR, and the rest leaves without credit (DATA). So is
 *           what is small but finds no credit.
 *   put     copied straight where the region is mapped here; else PUT_DATA in pieces, checked
 *           against the region's bounds by its owner, and PUT_END, which becomes an empty message
 *           when all pieces are in.
 *
 * UCX never holds a caller's buffer: pieces leave from slots of ours and are copied out in the
 * arrival callback; of a device's memory by rooms of ours on it, at both ends (ucx_device.c). That
 * costs one copy more (over TCP 7 % of the processors and no time: docs/performance.md), and it is
 * why cancel() is always local and immediate, whatever the peer does, and why a stopped peer that
 * wakes up late cannot touch anything.
 *
 * Stores to mapped memory are visible to whoever receives a later message: UCX publishes a message
 * with a store fence behind everything before it, and takes it with a load fence.
 *
 *	ucx.c          the table: open, posts, cancel, poll, sleeping
 *	ucx_load.c     UCX itself: its functions, what it must not take over
 *	ucx_connect.c  addresses, hello, lost peers, close
 *	ucx_slot.c     slots: what leaves
 *	ucx_message.c  posts, heads, what arrives
 *	ucx_large.c    messages in pieces
 *	ucx_device.c   a device's memory: rooms, what lands in them
 *	ucx_memory.c   regions, keys, put
 */
#ifndef RB_TRANSPORT_UCX_H
#define RB_TRANSPORT_UCX_H

#include <string.h>

#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "transport/match.h"

#define RB_UCX_SMALL_MAX 256u     /* Guess: more slots are needed of this size than of others. */
#define RB_UCX_MIDDLE_MAX 8192u   /* Likewise. */
#define RB_UCX_PIECE_BYTES 65000u /* With its heads one frame of TCP_TX_SEG_SIZE, see ucx.c. */
#define RB_UCX_EAGER_MAX RB_UCX_PIECE_BYTES
#define RB_UCX_ROOM_BYTES 524288u /* A piece of device memory, at most. Guess. */
#define RB_UCX_COPIED_MAX 16384u  /* Device memory that goes as the host's does. Guess. */
#define RB_UCX_LANDINGS_MAX 4096u /* Of a peer: more is an attack. */
#define RB_UCX_PIECES_OUT 4u      /* Of a request, held by UCX at a time. Guess. */
#define RB_UCX_CREDIT_UNIT 64u    /* Bytes. */
#define RB_UCX_CREDIT_MAX (RB_UNEXPECTED_BYTES_MAX / RB_UCX_CREDIT_UNIT)
#define RB_UCX_CREDIT_KEPT (RB_UCX_CREDIT_MAX / 4) /* By large messages, for small ones. Guess. */
#define RB_UCX_ARRIVAL_BYTES 128u /* What a waiting message costs besides its payload. */
#define RB_UCX_LARGE_BUCKETS 16u  /* Per peer. */
#define RB_UCX_WAITING_MAX 65536u /* Descriptors of a peer that wait here: more is an attack. */
#define RB_UCX_VERSION 7u
#define RB_UCX_AM_ID 1u

/* UCX's functions, by their own names: it is loaded, not linked. */
/* clang-format off */
#define RB_UCX_FUNCTIONS(X) \
	X(ucp_am_recv_data_nbx) X(ucp_am_send_nbx) X(ucp_cleanup) X(ucp_config_modify) \
	X(ucp_config_print) \
	X(ucp_context_print_info) X(ucp_context_query) \
	X(ucp_config_read) X(ucp_config_release) X(ucp_ep_close_nbx) X(ucp_ep_create) \
	X(ucp_ep_print_info) \
	X(ucp_ep_rkey_unpack) X(ucp_get_version) X(ucp_get_version_string) \
	X(ucp_init_version) X(ucp_mem_map) X(ucp_mem_query) X(ucp_mem_unmap) \
	X(ucp_request_check_status) X(ucp_request_free) X(ucp_rkey_buffer_release) \
	X(ucp_rkey_destroy) X(ucp_rkey_pack) X(ucp_rkey_ptr) X(ucp_worker_arm) \
	X(ucp_worker_create) X(ucp_worker_destroy) X(ucp_worker_flush_nbx) \
	X(ucp_worker_get_address) X(ucp_worker_get_efd) X(ucp_worker_progress) \
	X(ucp_worker_release_address) X(ucp_worker_set_am_recv_handler) \
	X(ucs_debug_disable_signal) X(ucs_log_push_handler) X(ucs_status_string)
/* clang-format on */
#define RB_UCX_FUNCTION(name) __typeof__(name) *name;
struct rb_ucx_api {
	RB_UCX_FUNCTIONS(RB_UCX_FUNCTION)
};

enum rb_ucx_message {
	RB_UCX_HELLO = 1, /* connect(): I can reach you. */
	RB_UCX_WELCOME,   /* Answers HELLO. */
	RB_UCX_EAGER,     /* A whole message. */
	RB_UCX_AHEAD,     /* A piece at `offset` of the sender's flight `id`, or none: on credit. */
	RB_UCX_CLEAR,     /* Send all of your flight `id`; `offset` not 0: no more, done. */
	RB_UCX_DATA,      /* A piece at `offset` of the sender's flight `id`, which was cleared. */
	RB_UCX_STOPPED, /* Flight `id` is taken back: `offset` bytes have been sent, no more are. */
	RB_UCX_ENDED,   /* Likewise, but it is complete: answers CLEAR that wants no more. */
	RB_UCX_PUT,     /* A whole put: for region `id` at `offset`. */
	RB_UCX_PUT_DATA, /* A piece of put `id` for region `tag.call` at `offset`. */
	RB_UCX_PUT_END,  /* Put `id` has `offset` bytes in all; then deliver the empty message. */
	RB_UCX_PUT_STOPPED,
	RB_UCX_CREDIT,   /* Only its `credit`. */
	RB_UCX_BYE,      /* The last message of a rank that leaves in good order. */
	RB_UCX_BYE_SEEN, /* Answers BYE. */
	RB_UCX_ABORT,    /* The last message of one that does not: blames `id`; last words. */
};

/* Before each message; EAGER ends after size_bytes. Little-endian hosts only, like UCX itself. */
struct rb_ucx_head {
	uint64_t job; /* The nonce, folded: others' messages are dropped. */
	uint32_t sender;
	uint8_t message; /* enum rb_ucx_message. */
	uint8_t version;
	uint16_t credit; /* Units given back. */
	struct rb_tag tag;
	struct rb_signature signature;
	uint64_t size_bytes; /* Of the whole message. */
	uint64_t id;
	uint64_t offset;
};
#define RB_UCX_HEAD_SHORT offsetof(struct rb_ucx_head, id)
_Static_assert(sizeof(struct rb_ucx_head) == 72, "travels as it is");
_Static_assert(RB_UCX_HEAD_SHORT == 56, "travels as it is");

enum rb_ucx_slot_class { RB_UCX_SLOT_SMALL, RB_UCX_SLOT_MIDDLE, RB_UCX_SLOT_PIECE };
#define RB_UCX_SLOT_CLASSES 3

struct rb_ucx_room { /* Of RB_UCX_ROOM_BYTES on the device. */
	struct rb_ucx_room *next;
	struct rb_ucx_room *next_made; /* All that there are, for close. */
	void *memory;
	ucp_mem_h registered;
};

struct rb_ucx_slot { /* Holds a message until UCX is through with it. */
	struct rb_ucx_slot *next;
	struct rb_ucx_slot *next_made; /* All slots there are, for close. */
	struct rb_ucx *ux;
	uint32_t peer;
	uint32_t slot_class;
	uint64_t flight;          /* The flight it is a piece of, or 0. */
	struct rb_ucx_room *room; /* Where its bytes are, or NULL: in `payload`. */
	struct rb_ucx_head head;
	uint8_t payload[];
};

struct rb_ucx_piece { /* Of a message whose receive is not there yet. */
	struct rb_ucx_piece *next;
	uint64_t offset;
	size_t size_bytes;
	uint8_t bytes[];
};

/* A message that came before its receive, in the matcher; one in pieces, from the first to the
 * last thing that comes of it: see ucx_large.c. */
struct rb_ucx_arrival {
	struct rb_arrival base;
	uint32_t units; /* Of credit that it holds. Whole: 0 if counted in peer.waiting. */
	uint64_t size_bytes;
	struct rb_request *self; /* The send, when it is our own. */
	uint64_t id;             /* In pieces: the sender's flight. 0: whole, in `payload`. */
	struct rb_ucx_arrival *next_by_id;
	struct rb_request *receive;     /* That it has met. */
	bool dead;                      /* Nobody wants it; with a receive: it does not fit. */
	bool left;                      /* Its receive left it: see leave(). */
	bool began, stopped;            /* Something of it came; STOPPED or ENDED came. */
	bool answered;                  /* CLEAR has been sent, as things are. */
	uint64_t came_bytes, end_bytes; /* How much came, of what will. */
	struct rb_ucx_piece *pieces;
	uint8_t payload[];
};

struct rb_ucx_put { /* A put that is coming in. */
	struct rb_ucx_put *next;
	uint64_t id;
	uint64_t received_bytes;
	bool ended; /* PUT_END was here: it has head and total. */
	struct rb_ucx_head end;
};

/* Where a request is: request->backend[RB_UCX_STAGE]. */
enum rb_ucx_stage {
	RB_UCX_STAGE_NONE,      /* Done, or in the list of completed ones. */
	RB_UCX_STAGE_MATCHING,  /* A receive in the matcher. */
	RB_UCX_STAGE_SELF,      /* A send to oneself, an arrival in the matcher. */
	RB_UCX_STAGE_SENDING,   /* Its pieces leave, or wait for CLEAR. */
	RB_UCX_STAGE_RECEIVING, /* Pieces come. */
	RB_UCX_STAGE_PUTTING,   /* Pieces leave. */
};
/* The words of request->backend. */
enum rb_ucx_word {
	RB_UCX_STAGE,
	RB_UCX_FLIGHT, /* Own id. */
	RB_UCX_OTHER,  /* Send: it is cleared. To oneself, receive: its arrival. Put: its id. */
	RB_UCX_MOVED,  /* Bytes sent. */
	RB_UCX_OUT,    /* Pieces that UCX holds. */
	RB_UCX_LISTED, /* In the list of completed ones. */
};

/* Requests that the peer may speak of, by id: generation << 32 | index + 1. */
struct rb_ucx_flight {
	struct rb_request *request; /* NULL: free. */
	uint32_t generation;
	uint32_t next_free; /* Index + 1; 0: none. */
};

struct rb_ucx_peer {
	struct rb_ucx *ux;
	uint32_t rank, pid;
	ucp_ep_h ucp;
	ucs_status_ptr_t closing; /* While close() waits for it. */
	int pid_fd;               /* Same host: tells when the process has ended; else -1. */
	uint64_t ended_ns; /* When it had, and UCX has yet to say what it still said; 0: not so. */
	bool used;         /* Named in connect(). */
	bool shared;       /* Same host: UCX may use shared memory and does not tell failures. */
	bool welcomed;     /* It answered HELLO. */
	bool left;         /* It said BYE. */
	bool lacked;       /* This rank had no memory for it. */
	bool bye_seen;     /* It answered ours. */
	bool lost;         /* No more traffic; `left` is not lost. */
	bool broken;       /* UCX gave up on its endpoint: to be closed outside callbacks. */
	bool told;         /* failure() gave it out. */
	uint32_t credit;   /* Units that may be spent. */
	uint32_t owed;     /* Units to give back. */
	uint32_t held;     /* Units of arrivals that wait here. */
	uint32_t landings; /* Of it, that are not over. */
	bool bye_waits;    /* It said BYE, which they come before. */
	uint32_t waiting;  /* Messages in pieces, and puts, that are not over here. */
	uint64_t out;      /* Slots that UCX holds. */
	struct rb_ucx_put *puts;
	struct rb_ucx_arrival *large[RB_UCX_LARGE_BUCKETS]; /* By id. */
	struct rb_match_peer match;
	bool gave_up, spoke; /* These: see rb_failure. */
	uint32_t blames;
	uint8_t last_words[RB_LAST_WORDS_BYTES];
	char reason[120];
};

struct rb_ucx_region {
	struct rb_region base;
	struct rb_ucx_region *next;
	ucp_mem_h memory; /* NULL: not known to UCX. */
	uint64_t id;
	bool mapped; /* Our own mmap. */
};

struct rb_ucx_remote {
	struct rb_remote base;
	struct rb_ucx_remote *next;
	ucp_rkey_h rkey; /* NULL: pieces only. */
	uint64_t region;
};

struct rb_ucx {
	struct rb_endpoint base;
	struct rb_ucx_api api;
	ucp_context_h context;
	ucp_worker_h worker;
	uint64_t job;
	uint64_t host; /* rb_process_host() */
	bool tcp_only;
	int epoll_fd, pids_fd, wake_fd, nap_fd;
	int ucx_fd;          /* UCX's own. */
	uint32_t busy_arms;  /* In a row, of which UCX took none, with nothing moved in between. */
	uint32_t idle_moves; /* Likewise, of who waits in here. */
	bool napping;        /* nap_fd is set, or has rung. */
	uint32_t pid_count;
	uint32_t ended_count; /* Peers whose ended_ns is set. */
	uint32_t rounds;      /* Of poll, since the process descriptors were looked at. */
	uint32_t to_tell;     /* Lost peers that failure() has not given out. */
	uint32_t to_close;    /* Broken endpoints. */
	uint64_t puts_begun;  /* Ids of puts. */
	uint64_t regions_made;
	uint64_t random;
	/* base.leaving counts the slots that UCX holds for live peers, and `unflushed`. */
	ucp_ep_h anchor;  /* To ourselves, the first of all; see rb_ucx_left. NULL: UCX has none. */
	uint64_t handed;  /* Slots that UCX was given; */
	uint64_t flushed; /* by the time it was asked to flush. */
	bool unflushed;   /* It may hold bytes of slots that it gave back. */
	bool flushing;    /* It will tell when not. */
	bool deserted;    /* Some peer is lost, or has left. */
	struct rb_request *posting; /* The request whose post is under way. */
	struct rb_request *done_first, *done_last;
	struct rb_ucx_flight *flights;
	uint32_t flight_count, flight_free;
	struct rb_ucx_slot *slots[RB_UCX_SLOT_CLASSES], *slots_made;
	struct rb_device_memory device;
	bool device_wanted;         /* RUBATO_UCX_DEVICE. */
	bool cuda;                  /* UCX handles its memory. */
	const char *device_lacking; /* There is a device, and why it is not used; or NULL. */
	struct rb_ucx_room *rooms, *rooms_made, *spare;
	struct rb_ucx_landing *landings;
	struct rb_ucx_region *regions;
	struct rb_ucx_remote *remotes;
	struct rb_ucx_peer peers[];
};

/* ucx_path.c */
void rb_ucx_path(struct rb_endpoint *ep, uint32_t peer, char *text, size_t text_bytes);
/* The log's lines, once all are connected. */
void rb_ucx_paths_log(struct rb_ucx *ux);
/* Of what UCX prints of a connection: "rc_verbs/mlx5_0:1, tcp/eth0", each once, in the order of its
 * lanes. False: nothing that is understood. */
bool rb_ucx_lanes_read(const char *printed, char *text, size_t text_bytes);

/* ucx.c */
/* Ends a request: DONE at once if its post is still under way, else when poll lists it. */
void rb_ucx_complete(struct rb_ucx *ux, struct rb_request *request, rubato_status status);
/* Gives the request an id that the peer may use. Errors: MEMORY. */
RB_NODISCARD rubato_status rb_ucx_flight_begin(struct rb_ucx *ux, struct rb_request *request,
					       enum rb_ucx_stage stage);
void rb_ucx_flight_end(struct rb_ucx *ux, struct rb_request *request);
/* The request of flight `id` if it is with `peer` and in `stage`, else NULL. */
struct rb_request *rb_ucx_flight_find(struct rb_ucx *ux, uint64_t id, uint32_t peer,
				      enum rb_ucx_stage stage);
rubato_status rb_ucx_failed(const struct rb_ucx *ux, ucs_status_t status, const char *what);
unsigned rb_ucx_progress(const struct rb_ucx *ux);
/* For who waits in here: a round of progress; where nothing moved, a short sleep. */
void rb_ucx_move(struct rb_ucx *ux, uint64_t until_ns);

/* ucx_load.c */
/* Loads UCX, if this process has not. Errors: UNSUPPORTED (there is none that serves). */
RB_NODISCARD rubato_status rb_ucx_load(struct rb_ucx_api *api);
/* Whether UCX has said in this thread, since this was asked last, that it has no use for an
 * option. */
bool rb_ucx_option_unused(void);
/* Says so, once a process; in test builds it is an error. */
void rb_ucx_option_unknown(const char *name);
/* Runs begin(arg) in a thread of its own, from which UCX's threads may come. Errors: its own, and
 * MEMORY (no thread). */
RB_NODISCARD rubato_status rb_ucx_begin(rubato_status (*begin)(void *arg), void *arg);

/* ucx_connect.c */
rubato_status rb_ucx_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes);
bool rb_ucx_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes);
void rb_ucx_call_off(struct rb_endpoint *ep, uint32_t rank, const void *address, size_t size_bytes);
rubato_status rb_ucx_connect(struct rb_endpoint *ep, const void *const *addresses,
			     const size_t *address_bytes, const bool *use, uint64_t deadline_ns);
void rb_ucx_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns);
/* No more traffic with the peer: its requests end with PEER. In good order when `left` is set. */
void rb_ucx_lose(struct rb_ucx *ux, uint32_t peer, const char *reason);
/* The same where this rank lacks memory: the peer is told, if there is memory for that. */
void rb_ucx_lack(struct rb_ucx *ux, uint32_t rank, const char *reason);
void rb_ucx_lose_by_status(struct rb_ucx *ux, uint32_t peer, ucs_status_t status);
/* Looks for processes that ended, and closes endpoints that UCX gave up. Outside callbacks. */
void rb_ucx_check_peers(struct rb_ucx *ux);
/* The same at once: a process that has ended is lost, whatever UCX may still have of it. */
void rb_ucx_look(struct rb_endpoint *ep);

/* ucx_slot.c */
enum rb_ucx_sent { RB_UCX_SENT, RB_UCX_HELD, RB_UCX_LOST }; /* HELD: UCX gives it back later. */
/* NULL: no memory. */
struct rb_ucx_slot *rb_ucx_slot_take(struct rb_ucx *ux, enum rb_ucx_slot_class slot_class);
void rb_ucx_slot_give(struct rb_ucx_slot *slot);
/* Sends slot->head and the payload to slot->peer. The slot is no longer the caller's. */
enum rb_ucx_sent rb_ucx_slot_send(struct rb_ucx_slot *slot, size_t payload_bytes);
void rb_ucx_slots_free(struct rb_ucx *ux);
/* Whether UCX has passed on all that it was given for live peers. */
bool rb_ucx_left(struct rb_endpoint *ep);

/* ucx_message.c */
static inline void rb_ucx_copy(void *to, const void *from, size_t size_bytes)
{
	if (size_bytes != 0)
		memcpy(to, from, size_bytes);
}
/* The credit that so many bytes take. */
static inline uint32_t rb_ucx_units(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + RB_UCX_ARRIVAL_BYTES + RB_UCX_CREDIT_UNIT - 1) /
			  RB_UCX_CREDIT_UNIT);
}
static inline bool rb_ucx_is_device(const struct rb_request *request)
{
	return request->where != NULL && request->where->kind == RB_MEMORY_DEVICE;
}
/* `device`: one end may be its memory. Errors: the device's. */
static inline rubato_status rb_ucx_move_bytes(const struct rb_ucx *ux, bool device, void *to,
					      const void *from, size_t size_bytes)
{
	if (device && size_bytes != 0)
		return ux->device.copy(ux->device.arg, to, from, size_bytes);
	rb_ucx_copy(to, from, size_bytes);
	return RUBATO_OK;
}
ucs_status_t rb_ucx_arrived(void *arg, const void *header, size_t header_bytes, void *data,
			    size_t data_bytes, const ucp_am_recv_param_t *param);
/* What is done with a message whose head has been looked at. */
void rb_ucx_heard(struct rb_ucx *ux, const struct rb_ucx_head *head, void *data, size_t data_bytes);
/* A message without payload. Losing the peer is how it fails. */
void rb_ucx_tell_head(struct rb_ucx *ux, uint32_t peer, const struct rb_ucx_head *head);
void rb_ucx_tell_abort(struct rb_ucx *ux, uint32_t peer);
#define RB_UCX_NO_TAG ((struct rb_tag) { 0, 0 })
void rb_ucx_tell(struct rb_ucx *ux, uint32_t peer, enum rb_ucx_message message, struct rb_tag tag,
		 uint64_t id, uint64_t offset);
void rb_ucx_post_send(struct rb_ucx *ux, struct rb_request *request);
void rb_ucx_post_recv(struct rb_ucx *ux, struct rb_request *request);
/* Before a request ends early: takes it out of the matcher, and lets the peer know. */
void rb_ucx_withdraw(struct rb_ucx *ux, struct rb_request *request);
/* Loses a peer that broke the protocol. */
void rb_ucx_wrong(struct rb_ucx *ux, uint32_t peer, const char *what);
/* Whether a message is what the receive expects; if not, the receive is told what it was. */
bool rb_ucx_fits(struct rb_request *receive, const struct rb_signature *signature,
		 uint64_t size_bytes);
struct rb_ucx_arrival *rb_ucx_arrival_make(size_t payload_bytes);
/* Frees what is left of a peer in the matcher. */
void rb_ucx_arrivals_drop(struct rb_ucx *ux, uint32_t peer);

/* ucx_large.c */
void rb_ucx_large_send(struct rb_ucx *ux, struct rb_request *send);
/* Sends pieces of a request in stage SENDING or PUTTING as far as window and credit allow. */
void rb_ucx_push(struct rb_ucx *ux, struct rb_request *request);
/* Tells that no more comes of a send in stage SENDING. */
void rb_ucx_large_stop(struct rb_ucx *ux, struct rb_request *send);
/* Of a receive that a message has met; it stays with it. */
void rb_ucx_large_let(struct rb_ucx *ux, struct rb_request *receive);
/* A receive meets what has come of its message, which is out of the matcher. */
void rb_ucx_large_meet(struct rb_ucx *ux, struct rb_request *receive,
		       struct rb_ucx_arrival *message);
/* Parts a receive in stage RECEIVING from its message. */
void rb_ucx_large_leave(struct rb_ucx *ux, struct rb_request *receive);
void rb_ucx_piece_arrived(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
			  size_t data_bytes);
void rb_ucx_cleared(struct rb_ucx *ux, const struct rb_ucx_head *head);
void rb_ucx_stopped(struct rb_ucx *ux, const struct rb_ucx_head *head);
/* The message that a piece is of; NULL: there is none. */
struct rb_ucx_arrival *rb_ucx_message_find(struct rb_ucx *ux, uint32_t rank, uint64_t id);
/* Of a lost peer: its receives end with PEER; messages that are not whole go. `all`: of one that
 * is closed; all messages go, and receives are their owners' again. */
void rb_ucx_large_drop(struct rb_ucx *ux, uint32_t peer, bool all);

/* ucx_memory.c */
rubato_status rb_ucx_region_alloc(struct rb_endpoint *ep, size_t size_bytes,
				  struct rb_region **out);
rubato_status rb_ucx_region_add(struct rb_endpoint *ep, void *base, size_t size_bytes,
				struct rb_region **out);
void rb_ucx_region_drop(struct rb_endpoint *ep, struct rb_region *region);
rubato_status rb_ucx_region_key(struct rb_endpoint *ep, struct rb_region *region, void *key,
				size_t *key_bytes);
rubato_status rb_ucx_remote_open(struct rb_endpoint *ep, uint32_t peer, const void *key,
				 size_t key_bytes, struct rb_remote **out);
void rb_ucx_remote_close(struct rb_endpoint *ep, struct rb_remote *remote);
void rb_ucx_post_put(struct rb_ucx *ux, struct rb_request *request);
/* A piece of a put, and its end. False: the peer broke the protocol; the text says how. */
bool rb_ucx_put_arrived(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
			size_t data_bytes, const char **wrong);
/* The empty message that a put delivers, as if it had come by itself. */
void rb_ucx_deliver(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data);
void rb_ucx_puts_drop(struct rb_ucx_peer *peer);
/* NULL: it was dropped. */
struct rb_ucx_region *rb_ucx_region_find(struct rb_ucx *ux, uint64_t id);

/* ucx_device.c */
/* Around what UCX does with a device's memory, which it may ask the calling thread's context for:
 * nothing while there is none. */
static inline void rb_ucx_enter(const struct rb_ucx *ux)
{
	if (ux->base.takes != 0)
		ux->device.enter(ux->device.arg);
}
static inline void rb_ucx_leave(const struct rb_ucx *ux)
{
	if (ux->base.takes != 0)
		ux->device.leave(ux->device.arg);
}
/* Of an open context: whether UCX handles CUDA's memory. */
void rb_ucx_device_ask(struct rb_ucx *ux);
void rb_ucx_devices_changed(struct rb_endpoint *ep);
/* Errors: MEMORY, the device's, UCX's. */
RB_NODISCARD rubato_status rb_ucx_room_take(struct rb_ucx *ux, struct rb_ucx_room **out);
void rb_ucx_room_give(struct rb_ucx *ux, struct rb_ucx_room *room);
/* A piece whose bytes are still at its sender. What is returned is what the callback returns. */
ucs_status_t rb_ucx_landing_begin(struct rb_ucx *ux, const struct rb_ucx_head *head, void *data,
				  size_t data_bytes);
/* Before the worker goes. False: it may not go, the device does not end what it was given. */
bool rb_ucx_device_settle(struct rb_ucx *ux);
/* When the worker is gone, and before the context is. */
void rb_ucx_device_close(struct rb_ucx *ux);
/* "device memory by UCX; ", or why not, or nothing; how long it is. */
size_t rb_ucx_device_path(const struct rb_ucx *ux, char *text, size_t text_bytes);

#endif
