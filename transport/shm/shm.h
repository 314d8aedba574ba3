/*
 * shm.h -- private to shm*.c: what lies in shared memory, and an endpoint's view of it.
 *
 * Each rank owns one segment (a memfd), mapped by every peer:
 *
 *   header | credit[sender] | ring[sender] | bulk[sender] | heap
 *
 * Ring number s of a segment carries what rank s says to the segment's owner. Every word has one
 * writer: cells are written by the sender, credits and header by the owner; but bulk buffers change
 * hands (shm_bulks.h). The owner polls the cell at its position in each ring; a cell is there when
 * the low half of its word is position + 1, stored last. Cells are consumed in order, and what they
 * point to (continuation cells, bulk buffers) is copied out before `consumed` moves on: nothing
 * that waits for its receive ever occupies either.
 */
#ifndef RB_TRANSPORT_SHM_H
#define RB_TRANSPORT_SHM_H

#include "base/copy.h"
#include "base/rng.h"
#include "base/sync.h"
#include "transport/match.h"
#include "transport/shm_bulks.h"
#include "transport/shm_pieces.h"
#include "transport/transport.h"

#define RB_SHM_VERSION 13u
#define RB_SHM_CELLS 128u        /* Of a ring; a power of 2. */
#define RB_SHM_CELL_PAYLOAD 24u  /* In a message's first cell ... */
#define RB_SHM_CHAIN_PAYLOAD 56u /* ... and in each further one. */
_Static_assert(RB_SHM_INLINE_MAX == RB_SHM_CELL_PAYLOAD + 19 * RB_SHM_CHAIN_PAYLOAD, "20 cells");
#define RB_SHM_ARRIVAL_BYTES 256u           /* Charged for each message besides its payload. */
#define RB_SHM_JOINTS 16u                   /* Messages of a pair that both ends copy at once. */
#define RB_SHM_PAGE 4096u                   /* Granularity of the heap. */
#define RB_SHM_SLICE_BYTES 262144u          /* Copied at most by one poll for one put. */
#define RB_SHM_HEAP_MAX (UINT64_C(1) << 45) /* Of all ranks together: they share 2^47. */

/* ---- In shared memory ---- */

enum rb_shm_cell_kind {
	RB_SHM_NONE,
	RB_SHM_EAGER,    /* A message: payload in this and the following cells. */
	RB_SHM_CHAIN,    /* Continues the cell before. */
	RB_SHM_BULK,     /* A message of arg[0] bytes: in a bulk buffer, or the first of them.
			  * arg[1]: what its sender has taken: rb_shm_longs. */
	RB_SHM_ANNOUNCE, /* A message that is held back: arg: sender's id, bytes, joint or 0 and,
			  * above 32 bits, likewise. */
	RB_SHM_CLEAR,   /* Send it: arg: sender's id, receiver's id; by its joint to where, or 0. */
	RB_SHM_ENOUGH,  /* No (more) data is wanted, the send is complete: arg: sender's id. */
	RB_SHM_SETTLE,  /* As ENOUGH, and say so: it is empty, does not fit, or was left: arg:
			 * sender's id, receiver's id. */
	RB_SHM_SETTLED, /* The send is complete: arg: receiver's id. */
	RB_SHM_WITHDRAW, /* The announced message is not coming: tag; arg: sender's id. */
	RB_SHM_DATA,     /* A piece in a bulk buffer: arg: receiver's id, bytes, and for
			  * how many ns the sender copied it, or 0: rb_shm_shows. */
	RB_SHM_WRITE,    /* Likewise, for a region: arg: region's id, offset, bytes. */
	RB_SHM_WRITTEN,  /* By a joint: arg: receiver's id; 1: all is there, 0: it cannot be. */
	RB_SHM_WANT, /* The sender sleeps until all before this is consumed: ring its doorbell. */
	RB_SHM_MORE, /* Right behind its BULK: the next of its bytes, in another bulk buffer. */
};

struct rb_shm_cell {
	/* position + 1 (32) | kind (16) | payload bytes here (16), or which bulk buffer, and how
	 * many were given back (8, 8: shm_bulks.h). */
	_Atomic uint64_t word;
	struct rb_tag tag;
	struct rb_signature signature;
	union {
		uint8_t payload[RB_SHM_CELL_PAYLOAD];
		uint64_t arg[3];
	};
};
_Static_assert(sizeof(struct rb_shm_cell) == 64, "one cache line");

struct rb_shm_joint { /* Of a message that sender and receiver copy together: shm_attach.c. */
	_Atomic uint64_t word;    /* Both write it. */
	_Atomic uint64_t address; /* Of the source; by the sender. */
	uint8_t pad[48];
};
_Static_assert(sizeof(struct rb_shm_joint) == 64, "one cache line");

struct rb_shm_ring {
	struct rb_shm_cell cells[RB_SHM_CELLS];
	struct rb_shm_joint joints[RB_SHM_JOINTS];
};

enum rb_shm_life { RB_SHM_ALIVE, RB_SHM_LEFT, RB_SHM_ABORTED };

struct rb_shm_header {
	_Atomic uint32_t sleeping; /* Odd while the owner sleeps, or is about to. */
	_Atomic uint32_t cpu;      /* Where it was of late, + 1; 0: not known. */
	uint8_t pad[120];
	_Atomic uint32_t life;   /* enum rb_shm_life. */
	_Atomic uint32_t blames; /* These: see rb_endpoint; stored before `life`. */
	_Atomic uint32_t spoke;
	uint8_t last_words[RB_LAST_WORDS_BYTES];
};

struct rb_shm_layout { /* Offsets from the segment's start; a function of the first two. */
	uint32_t rank_count;
	uint64_t heap_bytes;
	uint64_t credits, rings, bulks, heap, size_bytes;
};

/* ---- Private ---- */

/*
 * A mapped segment. Ranks in one process share this object, so that memory has one address there;
 * its count is the only word that several ranks write, and it is no part of the data path.
 */
struct rb_shm_segment {
	_Atomic uint32_t references;
	int memory;   /* The memfd, or -1 at peers in other processes. */
	int doorbell; /* An eventfd. */
	uint8_t *base;
	struct rb_shm_layout layout;
};

struct rb_shm_layout rb_shm_layout_of(uint32_t rank_count, uint64_t heap_bytes);
rubato_status rb_shm_memory_try(void); /* UNSUPPORTED, SYSTEM */
/* heap_bytes 0: as much as serves, within share_bytes for the whole. */
rubato_status rb_shm_segment_create(uint32_t rank_count, uint64_t heap_bytes, uint64_t share_bytes,
				    struct rb_shm_segment **out);
/* A peer's. Takes over both descriptors, also when it fails. */
rubato_status rb_shm_segment_map(int memory, int doorbell, const struct rb_shm_layout *layout,
				 struct rb_shm_segment **out);
void rb_shm_segment_keep(struct rb_shm_segment *segment);
void rb_shm_segment_drop(struct rb_shm_segment *segment); /* NULL is fine. */

static inline struct rb_shm_header *rb_shm_header(const struct rb_shm_segment *s)
{
	return (struct rb_shm_header *)(void *)s->base;
}

/* shm_door.c: where ranks of this process leave their segments for one of them. */
struct rb_shm_left;
struct rb_shm_door {
	struct rb_shm_door *next, *previous;
	uint8_t name[16];
	bool open;
	struct rb_shm_left *first;
};
void rb_shm_door_open(struct rb_shm_door *door, const uint8_t name[16]);
/* Drops what lies there. Closed is fine. */
void rb_shm_door_close(struct rb_shm_door *door);
/* Leaves a reference. Not found: it is closed, or another copy of this library in the process has
 * it. MEMORY */
rubato_status rb_shm_door_leave(const uint8_t name[16], struct rb_shm_segment *segment,
				bool *found);
/* The reference that was left, of the segment at this address; NULL: there is none. */
struct rb_shm_segment *rb_shm_door_take(struct rb_shm_door *door, uint64_t which);

/* First fit over page numbers; lives in the owner's private memory, knows no addresses. */
struct rb_shm_range;
struct rb_shm_heap {
	struct rb_shm_range *free, *used; /* By address; by address. */
	uint64_t size_bytes;
};
rubato_status rb_shm_heap_init(struct rb_shm_heap *heap, uint64_t size_bytes);
void rb_shm_heap_fini(struct rb_shm_heap *heap);
rubato_status rb_shm_heap_take(struct rb_shm_heap *heap, uint64_t size_bytes, uint64_t *offset);
/* Returns the size of the range that was given back, 0 when none begins there. */
uint64_t rb_shm_heap_give(struct rb_shm_heap *heap, uint64_t offset);

/* Names for objects in peers' hands: index and generation, so that a late answer finds nothing. */
struct rb_shm_ids {
	struct rb_shm_id *slots;
	uint32_t slot_count, free;
};
#define RB_SHM_ID_NONE UINT64_MAX
uint64_t rb_shm_id_take(struct rb_shm_ids *ids, void *object); /* NONE: no memory. */
void *rb_shm_id_find(const struct rb_shm_ids *ids, uint64_t id);
void rb_shm_id_give(struct rb_shm_ids *ids, uint64_t id);
void rb_shm_ids_fini(struct rb_shm_ids *ids);

struct rb_shm_queue { /* Of requests; doubly linked, so that cancel is O(1). */
	struct rb_request *first, *last;
};

/* What a request's private words hold. */
enum {
	RB_SHM_STAGE,
	RB_SHM_ID,
	RB_SHM_THEIR_ID,
	RB_SHM_OFFSET,
	RB_SHM_JOINT, /* Its number + 1, and whose turn it is << 8; 0: none. */
	RB_SHM_THEIR_ADDRESS,
	RB_SHM_SHOWN /* Long receive on trial: its way, and what it took: shm_attach.c. Else 0. */
};

enum rb_shm_stage {
	RB_SHM_MATCHING,  /* Receive: posted, in `match`. */
	RB_SHM_IN_PIECES, /* Receive: of the message in `pieces`. */
	RB_SHM_INCOMING,  /* Receive: cleared its sender; pieces come, or are fetched. */
	RB_SHM_SETTLING, /* Receive: of it nothing is to come; its sender may take it back first. */
	RB_SHM_LETTING,  /* Likewise, and nobody wants it any more: see leave(). */
	RB_SHM_QUEUED,   /* Send: waits for room in the ring. */
	RB_SHM_ANNOUNCED, /* Send: waits for CLEAR; then, by a joint, for its end. */
	RB_SHM_STREAMING, /* Send: pieces go out. Put to added memory: likewise. */
	RB_SHM_COPYING,   /* Put to mapped memory: some slices are still to be copied. */
};

struct rb_shm_control { /* A cell that waits for room. */
	struct rb_shm_control *next;
	enum rb_shm_cell_kind kind;
	struct rb_tag tag;
	uint64_t arg[3];
};

struct rb_shm_arrival { /* A message without receive. */
	struct rb_arrival base;
	uint64_t size_bytes;
	uint64_t their_id; /* RB_SHM_ID_NONE: the payload follows here. */
	uint64_t joint;    /* Of what is announced. */
	uint8_t payload[];
};

struct rb_shm_pieces { /* A message of which not all is here; nobody's: neither of the two. */
	struct rb_request *request;
	struct rb_shm_arrival *arrival; /* Not to be matched yet. */
	uint64_t here, left;            /* Bytes. */
};

struct rb_shm_inbound {
	struct rb_shm_ring *ring; /* In our segment. */
	struct rb_shm_credit *credit;
	uint32_t position, bulk; /* bulk: buffers read, counted on. */
	uint32_t left;           /* The cell that was left for the next poll, + 1. */
	uint64_t released;
	uint64_t held; /* Charged for the eager messages among the arrivals. */
	bool wanted;   /* The peer asked for its doorbell. */
	struct rb_shm_pieces pieces;
};

struct rb_shm_outbound {
	rb_copy_fn *copy;         /* The endpoint's. */
	struct rb_shm_ring *ring; /* In the peer's segment. */
	struct rb_shm_credit *credit;
	struct rb_shm_header *header;
	uint32_t position, consumed; /* Cells; `consumed` as last seen. */
	uint32_t owed;               /* Buffers that streams have before the next message has. */
	uint32_t further;            /* Cells that the next message may have behind its first. */
	uint32_t shorter;            /* Messages in a row that had none. */
	uint64_t spent, released;    /* Eager bytes; `released` as last seen. */
	uint32_t rung;               /* The sleep for which we rang the doorbell. */
	bool want;                   /* A WANT is on its way, */
	uint32_t want_at;            /* there. */
};

enum rb_shm_peer_state { RB_SHM_UNUSED, RB_SHM_CONNECTED, RB_SHM_GONE };

struct rb_shm_joined { /* By joint. */
	struct rb_request *requests[RB_SHM_JOINTS];
	uint32_t active; /* Bits: those with slices left to claim, so far as we know. */
};

/* How long messages come: attached, or through the bulk buffers. By the size of the first of each
 * class; those of the last are as long or longer. */
enum rb_shm_way { RB_SHM_ATTACHED, RB_SHM_STREAMED };
enum rb_shm_kernel {
	RB_SHM_KERNEL_UNKNOWN,
	RB_SHM_KERNEL_FAST,
	RB_SHM_KERNEL_SLOW,
	RB_SHM_KERNEL_HOPELESS /* Slow, and not tried. */
};
#define RB_SHM_CLASSES 8u

struct rb_shm_ways {
	enum rb_shm_way way;   /* Of the messages now: so many of them are left. */
	uint32_t left, trials; /* trials: this is the first, the second; 0: none. */
	uint64_t each[2];      /* Picoseconds a byte, by way, in its last trial; 0: not known. */
};

enum rb_shm_attach { RB_SHM_ATTACH_NO, RB_SHM_ATTACH_PROCESS, RB_SHM_ATTACH_THREAD };

struct rb_shm_peer {
	struct rb_shm_inbound in;
	struct rb_shm_outbound out;
	struct rb_shm_bulks bulks;
	struct rb_shm_longs longs;
	uint32_t outgoing; /* Objects in control, sends, streams, copies and active joints;
				base.leaving: of all. */
	struct rb_shm_control *control_first, *control_last;
	struct rb_shm_queue sends, streams, copies, announced, incoming;
	struct rb_shm_joined receives, attached_sends;
	enum rb_shm_attach attach;
	int32_t attach_process; /* Its number here. */
	struct rb_match_peer match;
	uint32_t rank;
	enum rb_shm_peer_state state;
	rubato_status doom; /* Set in the middle of things; poll ends the peer. */
	bool untold;        /* For failure(). */
	struct rb_shm_segment *segment;
	int socket;         /* -1: not kept, see shm_connect.c. */
	int process_fd;     /* Readable when its process has ended; -1: none. */
	uint64_t closed_ns; /* When its socket ended, while its process had not; 0: not so. */
	int32_t process;
	bool gone;           /* Its process had ended before it was met. */
	bool gave_up, spoke; /* These: see rb_failure. */
	uint32_t blames;
	char text[160];
	uint8_t last_words[RB_LAST_WORDS_BYTES];
};

struct rb_shm_region {
	struct rb_region base;
	struct rb_shm_region *next, *previous;
	uint64_t word; /* 0: foreign memory, known to peers by */
	uint64_t id;
};

struct rb_shm_remote {
	struct rb_remote base;
	struct rb_shm_remote *next, *previous;
	uint64_t id;
};

struct rb_shm_endpoint {
	struct rb_endpoint base;
	struct rb_shm_peer *peers;
	uint32_t *active; /* Ranks of connected peers. */
	uint32_t active_count;
	uint32_t polls;
	bool notice;                /* Look at the sockets in the next poll. */
	rb_copy_fn *copy;           /* Into peers' segments. */
	struct rb_request *posting; /* The request of the post under way: not listed. */
	struct rb_shm_queue done;
	struct rb_shm_ids ids, region_ids;
	uint32_t untold;
	uint64_t heap_bytes;            /* Asked for; 0: what serves. */
	struct rb_shm_segment *segment; /* From connect on; */
	struct rb_shm_heap heap;        /* likewise. */
	struct rb_shm_region *regions;
	struct rb_shm_remote *remotes;
	int listener, epoll;
	struct rb_shm_door door; /* Open while the listener is. */
	struct rb_rng rng;
	uint8_t job[16];
	uint8_t name[16]; /* Of the listening socket. */
	enum rb_attach attach;
	uint64_t probe; /* What peers that attach us see. */
	enum rb_shm_kernel kernel;
	double kernel_copies; /* One of its copies takes as long as so many of memcpy. */
	struct rb_shm_ways ways[RB_SHM_CLASSES];
};

/* shm.c: makes this rank's segment, of share_bytes at most where nobody asked for a size. */
rubato_status rb_shm_segment_open(struct rb_shm_endpoint *ep, uint64_t share_bytes);

/* shm_connect.c */
rubato_status rb_shm_listen(struct rb_shm_endpoint *ep);
rubato_status rb_shm_address(struct rb_endpoint *base, void *bytes, size_t *size_bytes);
bool rb_shm_reachable(struct rb_endpoint *base, const void *address, size_t size_bytes);
rubato_status rb_shm_connect(struct rb_endpoint *base, const void *const *addresses,
			     const size_t *address_bytes, const bool *use, uint64_t deadline_ns);
void rb_shm_call_off(struct rb_endpoint *base, uint32_t rank, const void *address,
		     size_t address_bytes);
/* The peer is connected from here on. Takes over a reference to its segment. */
void rb_shm_wire(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		 struct rb_shm_segment *segment);
void rb_shm_hang_up(struct rb_shm_endpoint *ep);
void rb_shm_hang_up_on(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);
void rb_shm_socket_end(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);

/* shm_region.c */
rubato_status rb_shm_region_alloc(struct rb_endpoint *base, size_t size_bytes,
				  struct rb_region **out);
rubato_status rb_shm_region_add(struct rb_endpoint *base, void *memory, size_t size_bytes,
				struct rb_region **out);
void rb_shm_region_drop(struct rb_endpoint *base, struct rb_region *region);
#define RB_SHM_KEY_BYTES 17 /* Kinds, word or id, size. */
rubato_status rb_shm_region_key(struct rb_endpoint *base, struct rb_region *region, void *key,
				size_t *key_bytes);
rubato_status rb_shm_remote_open(struct rb_endpoint *base, uint32_t peer, const void *key,
				 size_t key_bytes, struct rb_remote **out);
void rb_shm_remote_close(struct rb_endpoint *base, struct rb_remote *remote);
uint64_t rb_shm_word_of(struct rb_endpoint *base, const void *address, size_t size_bytes);
void *rb_shm_word_map(struct rb_endpoint *base, uint32_t peer, uint64_t word, uint64_t size_bytes);
void rb_shm_regions_fini(struct rb_shm_endpoint *ep);

/* shm_send.c: the way out. */
void rb_shm_send(struct rb_endpoint *base, struct rb_request *request);
void rb_shm_put(struct rb_endpoint *base, struct rb_request *request);
enum rb_now rb_shm_send_now(struct rb_endpoint *base, const struct rb_message *message);
void rb_shm_next_prefetch(struct rb_shm_outbound *out, uint32_t count);
void rb_shm_flush(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);
/* Before sleep: false when something can go out now; else the peer will ring. */
bool rb_shm_blocked(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);
/* Sends a control cell, now or when there is room; dooms the peer when memory runs out. */
void rb_shm_say(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, enum rb_shm_cell_kind kind,
		struct rb_tag tag, uint64_t arg0, uint64_t arg1, uint64_t arg2);
/* False: it says what it must not. */
bool rb_shm_cleared(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t id,
		    uint64_t their_id, uint64_t address);
/* False: there is no such send; it was withdrawn meanwhile. */
bool rb_shm_enough(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t id);
/* By a joint, the last slice by us. */
void rb_shm_sent(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request);
/* False: it was sent. */
bool rb_shm_cancel_send(struct rb_shm_endpoint *ep, struct rb_request *request);
void rb_shm_doorbell(const struct rb_shm_segment *segment);

/* shm_receive.c: the way in. */
void rb_shm_recv(struct rb_endpoint *base, struct rb_request *request);
enum rb_now rb_shm_recv_now(struct rb_endpoint *base, const struct rb_message *message);
bool rb_shm_here(struct rb_endpoint *base, uint32_t peer);
void rb_shm_send_soon(struct rb_endpoint *base, uint32_t peer);
/* all: nothing is left for the next poll. */
void rb_shm_drain(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, bool all);
void rb_shm_cancel_recv(struct rb_shm_endpoint *ep, struct rb_request *request);
/* False: nothing that its sender may take back has met it. */
bool rb_shm_leave_recv(struct rb_shm_endpoint *ep, struct rb_request *request);
/* Of a lost peer: the message of which not all has come. */
void rb_shm_pieces_lose(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);
/* By a joint, the last slice by us. */
void rb_shm_received(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		     struct rb_request *request);

/* shm_parcels.c: short ones in a row. */
enum rb_now rb_shm_parcels_now(struct rb_endpoint *base, struct rb_parcels *parcels);

/* shm_attach.c: long messages in one copy. A request with RB_SHM_JOINT has a joint. */
void rb_shm_attach_open(struct rb_shm_endpoint *ep, enum rb_attach attach);
/* Whether the kernel copies at a speed that makes one copy the better way. Found out when it is
 * first asked, some 0.1 ms: most communicators have no long messages. */
bool rb_shm_kernel_is_fast(struct rb_shm_endpoint *ep);
/* Only attach_bytes and attach_copies. False: some rank of this node is not attached, or the kernel
 * is slow. */
bool rb_shm_node_speed(struct rb_endpoint *ep, struct rb_node_speed *out);
/* By what a copy of the same bytes takes either. */
enum rb_shm_kernel rb_shm_kernel_judge(uint64_t kernel_ns, uint64_t plain_ns);
/* Whether the peer's memory can be attached: its word at `address` is `probe`. */
void rb_shm_attach_try(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, int32_t process,
		       uint64_t address, uint64_t probe);
void rb_shm_attach_not(struct rb_shm_peer *peer, const char *why);
/* A slice of a receive, and one of a send. */
void rb_shm_attach_flush(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);
/* For what is announced: its joint, or 0. */
uint64_t rb_shm_offer(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		      struct rb_request *request, uint64_t size_bytes);
/* A receive that meets it: where it is wanted, or 0: it has to come otherwise, or had better. */
uint64_t rb_shm_join(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		     struct rb_request *request, uint64_t joint);
/* A send that is wanted there; false: it has no joint. */
bool rb_shm_joined(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request,
		   uint64_t address);
/* It has no joint any more, if it had one, since its end was told; */
void rb_shm_part(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request);
/* or by us: when this returns, nobody touches its buffer. True: all was copied. */
bool rb_shm_part_early(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       struct rb_request *request);
void rb_shm_part_all(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer);
/* Whether a piece shows what it takes: some do, as clocks take time, too. */
static inline bool rb_shm_shows(uint64_t offset)
{
	return offset / RB_SHM_BULK_BYTES % 4 == 1;
}
/* Of a receive of an announced message: `bytes` took all who copied them so long; it is over. */
void rb_shm_way_add(struct rb_request *request, uint64_t bytes, uint64_t took_ns);
void rb_shm_way_note(struct rb_shm_endpoint *ep, const struct rb_request *request);
/* A receive begins again, piece by piece. */
void rb_shm_stream_instead(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			   struct rb_request *request);

/* shm.c */
void rb_shm_complete(struct rb_shm_endpoint *ep, struct rb_request *request, rubato_status status);
void rb_shm_queue_add(struct rb_shm_queue *queue, struct rb_request *request);
void rb_shm_queue_push(struct rb_shm_queue *queue, struct rb_request *request); /* First. */
void rb_shm_queue_remove(struct rb_shm_queue *queue, struct rb_request *request);
/* Ends a peer: `text` is NULL for one that left in good order. */
void rb_shm_lose(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, const char *text);

static inline uint64_t rb_shm_cell_word(uint32_t position, enum rb_shm_cell_kind kind,
					size_t size_bytes)
{
	return (uint64_t)(position + 1) | ((uint64_t)kind << 32) | ((uint64_t)size_bytes << 48);
}

static inline bool rb_shm_inbox_full(const struct rb_shm_peer *peer)
{
	const struct rb_shm_cell *cell =
		&peer->in.ring->cells[peer->in.position & (RB_SHM_CELLS - 1)];

	return (uint32_t)atomic_load_explicit(&cell->word, memory_order_seq_cst) ==
	       peer->in.position + 1;
}

#endif
