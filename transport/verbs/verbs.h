/*
 * verbs.h -- what the files of the verbs backend share: RDMA without UCX.
 *
 * A rail is a port of this rank, with a protection domain and a completion queue of its own; rail
 * i of one rank talks to rail i of another. A link is one reliable queue pair (RC): a peer over a
 * rail. Everything but the bytes of large messages travels in SENDs of a head and at most one slot
 * of payload, into receives that are posted ahead. RC keeps order, so what is sent after an RDMA
 * write says that the write is there.
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
 * Messages are one stream, numbered, over one link: the main one. Large writes are spread over all
 * live links. An acknowledged write of one rail is not always visible when something comes by
 * another, so each link that carried a share of a message says so behind it (MARK), and what ends
 * the message (FIN, PUT, STOPPED, ENDED) says which MARKs to wait for.
 *
 * A link that fails while another lives is no loss. Its queue pair goes into error, which shuts out
 * what is late; when all that was posted has ended, each end says over a living link how many
 * messages of that link it has taken (RESUME). What was not taken, and the writes in front of it,
 * is done again over the main link, in order; what was taken never is, nor a write in front of
 * it: its message may have ended there, and its memory be somebody else's. Writes that were
 * acknowledged are visible by then, as the same device told later that the receives had ended.
 * The stream waits for this if the main link failed. When the port is active again, the link is
 * made anew (RISE). Where no link is left TCP goes on (verbs_spare.c); where there is none, or it
 * fails, the peer is lost.
 *
 * Receives never run out (rnr_retry is 0, so that a breach is an error): of a link a sender has at
 * most a window of slots that it does not know to be posted again, and every head says how many
 * have been. That alone could leave both ends mute, so who owes half a window says so in a
 * message of its own (CREDIT), for which a reserve of further slots is there. Three suffice: three
 * CREDITs after one, that one is known to be consumed, as its receiver could not have filled one
 * and a half windows without having heard it, and all that it sends says how far it has heard.
 * That asks for half a window that is larger than the reserve, as what may be under way unheard is
 * a window and the reserve; and the CREDITs about units leave three of the reserve alone.
 * (An RDMA write of the count would take no slot, but would not wake a peer that sleeps.)
 *
 * The device reads sources and writes destinations by itself, so before a request ends that is not
 * through, the device must be through with it. A source: its writes are waited for, which needs the
 * peer's device alone. A destination: the peer is asked (STOP) and answers behind its last write;
 * where no answer comes, the queue pair goes into its error state, which shuts the peer out, and
 * the peer is lost. Plain memory is registered for one message, or until it is other memory
 * (verbs_cache.h). Regions, which have a known life, are registered once.
 *
 *	verbs.c          the table: open, posts, cancel, poll, sleeping
 *	verbs_fast.c     what nearly every message takes: posts of small ones, completions
 *	verbs_burst.c    puts and large messages, where one doorbell does
 *	verbs_load.c     libibverbs itself: its functions, by name
 *	verbs_device.c   devices, ports, addresses of ports; what errors are called
 *	verbs_connect.c  addresses, datagrams, connecting, close
 *	verbs_make.c     queue pairs, and how links are greeted
 *	verbs_rdmacm.c   links that rdmacm connects, iWARP's among them
 *	verbs_link.c     links that fail, what is done again, links that rise
 *	verbs_peer.c     lost peers: processes, silence, events
 *	verbs_queue.c    the send queue: slots, the chain of one doorbell, what completes
 *	verbs_share.c    messages whose bytes came by several links
 *	verbs_spare.c    what goes over TCP where no rail is left (verbs_spare.h)
 *	verbs_tcp.c      who connects over TCP, and proves to be who he is
 *	verbs_message.c  heads, what arrives, small messages
 *	verbs_large.c    announced and invited messages
 *	verbs_memory.c   regions, keys, registration, put
 *	verbs_cache.c    registrations that are kept (verbs_cache.h)
 *	verbs_watch.c    memory that changes (verbs_watch.h)
 */
#ifndef RB_TRANSPORT_VERBS_H
#define RB_TRANSPORT_VERBS_H

#include <string.h>

#include <infiniband/verbs.h>

#include "transport/match.h"
#include "transport/verbs/verbs_load.h"
#include "transport/verbs/verbs_wire.h"

#define RB_VERBS_SLOTS_MAX 64u  /* For what a peer sends by a link: 64 KiB. */
#define RB_VERBS_SLOTS_MIN 14u  /* Fewer, and a window is too short for its reserve. */
#define RB_VERBS_FEW_RANKS 64u  /* A link has all slots in jobs of no more, else a peer has. */
#define RB_VERBS_QUEUE_MAX 128u /* Entries of a send queue; a power of 2. */
#define RB_VERBS_COUNTS_FROM 0xffffff80u /* Each run takes counts past their end. */
#define RB_VERBS_CHAIN 16u               /* Posted by one doorbell. */
#define RB_VERBS_TELL_EACH 8u            /* Entries, one of which tells its completion. */
#define RB_VERBS_EAGER_MAX 16384u        /* Guess. */
#define RB_VERBS_PIECE_BYTES (1u << 18)  /* Of an RDMA write. Guess. */
#define RB_VERBS_PIECE_LEAST (1u << 14)  /* Where writes are spread. Guess. */
#define RB_VERBS_PIECES_OUT 4u           /* Of a request, at a time, on a link. Guess. */
#define RB_VERBS_SPREAD_MIN (1u << 16)   /* Shorter messages are not spread. Guess. */
#define RB_VERBS_UNIT_BYTES 64u
#define RB_VERBS_UNITS_MAX (RB_UNEXPECTED_BYTES_MAX / RB_VERBS_UNIT_BYTES)
#define RB_VERBS_ARRIVAL_BYTES 128u /* What a waiting message costs besides its payload. */
#define RB_VERBS_WAITING_MAX 65536u /* Descriptors of a peer that wait here: more is a fault. */
#define RB_VERBS_REASON_BYTES 192   /* With a device of a long name. */
/* What a completion is of: wr_id. Else the link's word | the number of an entry of its queue. */
#define RB_VERBS_RECEIVED (UINT64_C(1) << 63) /* | the link's word | slot. */
#define RB_VERBS_DATAGRAM (UINT64_C(1) << 62) /* | slot; or, sent, RB_VERBS_DATAGRAMS. */
#define RB_VERBS_RANK_BITS 20
#define RB_VERBS_LINK_BITS 20
#define RB_VERBS_NOTHING UINT32_MAX /* No completion's upper half. */
#define RB_VERBS_DATAGRAMS 64u
/* What watch_fd tells of, beside the ranks of processes: a rail's events are EVENTS + its index. */
#define RB_VERBS_WATCH_EVENTS (UINT32_MAX - RB_VERBS_RAILS_MAX)
#define RB_VERBS_WATCH_CLOCK UINT32_MAX
#define RB_VERBS_WATCH_CM (RB_VERBS_WATCH_EVENTS - 1)
/* | the rank, or the stranger's number. */
#define RB_VERBS_WATCH_LISTENER (1u << 25)
#define RB_VERBS_WATCH_STRANGER (1u << 26)
#define RB_VERBS_WATCH_OUT (1u << 27)
#define RB_VERBS_WATCH_IN (1u << 28)
#define RB_VERBS_TCP_BYTES 131072u     /* Gathered of what leaves, and of what comes. Guess. */
#define RB_VERBS_REGIONS_LEAST 3u      /* Slots to send from and to receive into, datagrams. */
#define RB_VERBS_ROUNDS_PER_CHECK 1024 /* Guess: polls between two looks at what is watched. */
#define RB_VERBS_RETRIES 6             /* Soft-RoCE takes 7 for endless. */
#define RB_VERBS_KEY_BYTES (17 + 4 * RB_VERBS_RAILS_MAX) /* Address, size, kind, a key a rail. */

struct rb_verbs_slot { /* Holds what leaves, until the device is through with it. */
	struct rb_verbs_slot *next;
	struct rb_verbs_head *head; /* RB_VERBS_SLOT_BYTES from there are registered. */
	const struct rb_verbs_chunk *chunk;
};

struct rb_verbs_chunk { /* Of slots: one registration. */
	struct rb_verbs_chunk *next;
	void *memory;
	struct ibv_mr *mrs[RB_VERBS_RAILS_MAX];
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
	union {
		uint64_t offset;               /* Of an RDMA write. */
		struct rb_verbs_flight *burst; /* Behind `writes`; it may have ended. */
	};
	uint32_t bytes;  /* Likewise. */
	uint8_t message; /* enum rb_verbs_message; 0: an RDMA write. */
	uint8_t tries;   /* That failed by themselves. */
	uint16_t writes; /* Of that flight, all that it has: folded before this message. */
};

struct rb_verbs_post {
	struct ibv_send_wr request;
	struct ibv_sge part;
};

struct rb_verbs_redo { /* What a failed link did not bring over. */
	struct rb_verbs_redo *next;
	struct rb_verbs_entry entry;
};

struct rb_verbs_shared { /* The end of a message whose bytes came by several links. */
	struct rb_verbs_shared *next;
	uint64_t id;  /* The sender's flight. */
	uint8_t have; /* MARKs. */
	bool ended;   /* The end has come: */
	struct rb_verbs_head head;
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
	RB_VERBS_STAGE_NONE,      /* Being posted, or done. */
	RB_VERBS_STAGE_MATCHING,  /* A receive in the matcher; with a flight: it has invited. */
	RB_VERBS_STAGE_SELF,      /* A send to oneself, an arrival in the matcher. */
	RB_VERBS_STAGE_WAITING,   /* A send, announced, in the matcher of what leaves. */
	RB_VERBS_STAGE_SENDING,   /* A send that serves an invitation, or a put. */
	RB_VERBS_STAGE_RECEIVING, /* A receive whose message comes. */
	RB_VERBS_STAGE_LISTED,    /* It has ended: in the list of completed ones. */
};
enum rb_verbs_word {
	RB_VERBS_STAGE,
	RB_VERBS_FLIGHT, /* Id, or 0. */
	RB_VERBS_OTHER,  /* SELF: its arrival. */
	RB_VERBS_WORDS,
};

enum rb_verbs_halt {
	RB_VERBS_GOES_ON,
	RB_VERBS_ASKED,    /* cancel() or leave() waits: for STOPPED, */
	RB_VERBS_IS_OVER,  /* which has come, */
	RB_VERBS_IS_ENDED, /* or ENDED. */
	RB_VERBS_RECALLED, /* recall() waits: for STOPPED, */
	RB_VERBS_IS_MET,   /* or KEPT, which has come. */
	RB_VERBS_LEFT,     /* Nobody wants it; its sender has yet to say what has become of it. */
};

/* What peers may speak of, or the device has something of, by id: generation << 32 | index + 1.
 * While it is free `mrs`, `cached` and `copy` are NULL; the rest is set when it begins. */
struct rb_verbs_flight {
	struct rb_request *request; /* NULL: free, or its request has ended before it. */
	uint32_t index, generation;
	struct rb_verbs_flight *next, *previous; /* In its peer's list; next: of the free ones. */
	struct ibv_mr *mrs[RB_VERBS_RAILS_MAX];  /* Of this message alone, or of `cached`; NULL. */
	struct rb_verbs_cached *cached;          /* Or NULL. */
	uint8_t *copy; /* Of a device's memory that cannot be registered; NULL: none. */
	uint32_t local_keys[RB_VERBS_RAILS_MAX]; /* [0] is 0: not registered. */
	uint32_t keys[RB_VERBS_RAILS_MAX];       /* Theirs; [0] is 0: pieces in slots. */
	union {
		struct {
			bool used;
			bool active; /* In its peer's list of those that push. */
			/* A send's, a put's. */
			uint8_t rails;   /* That carried some, and have not been compared since. */
			uint8_t marked;  /* That have said so. */
			bool finished;   /* All is handed over, its end too. */
			bool halted;     /* No more of it leaves; its request ends with it. */
			bool stopping;   /* ENDED is its end, said when there is room. */
			bool mismatched; /* A receive's: ends with MISMATCH once nobody can write
					  * any more. */
		};
		uint64_t states; /* 0: none of these. */
	};
	uint64_t invite;         /* The flight that it serves. 0: a put, or none yet. */
	uint64_t address;        /* There. */
	uint64_t moved;          /* Bytes handed over; DATA, received: bytes that came. */
	uint32_t out;            /* Writes under way. */
	enum rb_verbs_halt halt; /* A receive's, for its end or an answer; a send's: ASKED. */
};
#define RB_VERBS_FLIGHTS_EACH 64u

enum rb_verbs_link_state {
	RB_VERBS_LINK_MAKING, /* Its queue pair is there; greetings are exchanged. */
	RB_VERBS_LINK_LIVE,
	RB_VERBS_LINK_DRAINING,  /* In error: what was posted ends. */
	RB_VERBS_LINK_COMPARING, /* All has ended; not both ends have said what they have. */
	RB_VERBS_LINK_DOWN,      /* Its queue pair is gone, what it owed is done again elsewhere. */
};

struct rb_verbs_link { /* A peer over a rail. */
	struct rb_verbs_peer *peer;
	struct rb_verbs_rail *rail;
	struct ibv_qp *qp;
	enum rb_verbs_link_state state;
	uint8_t index;                  /* Of its rail. */
	uint8_t mtu;                    /* Theirs: these four, */
	uint16_t lid;                   /* and */
	union ibv_gid gid;              /* where */
	uint32_t contact;               /* datagrams go while connecting, */
	struct ibv_ah *ah;              /* by this path; rdmacm: their listener's port. */
	struct rdma_cm_id *id;          /* rdmacm: of the try, or what has come of it. */
	uint8_t attempt;                /* Its number; in this one, or the last: */
	char refusal[64];               /* why it failed. */
	uint32_t life;                  /* How often it was made anew; */
	uint32_t made;                  /* its queue pair was made. */
	uint64_t word;                  /* Of its completions: that and its place in vb->links; */
	uint32_t sent_as, received_as;  /* the upper half of their wr_id. */
	uint32_t qp_number;             /* Theirs; 0: not known yet. */
	bool heard;                     /* It can receive, and was greeted. */
	bool greeted;                   /* Its HELLO came. */
	uint8_t *slots;                 /* For what comes. */
	struct rb_verbs_entry *entries; /* The send queue's. */
	/* Counts of this life, of slots: sent to them and known to be posted again; posted again
	 * here and said so. */
	uint32_t sent, sent_known;
	uint32_t reposted, reposted_said;
	uint32_t receives;          /* That the device has. */
	uint32_t taken;             /* Messages that came. */
	uint32_t posted, retired;   /* Entries of the send queue, ever. */
	uint32_t ended;             /* In error, up to there; they are not retired. */
	uint32_t unposted;          /* The last so many the device never got. */
	uint32_t untold, tell_each; /* Next but so many tells its completion; one of so many. */
	uint32_t folded;            /* Bursts under way: see verbs_burst.c. */
	uint64_t bytes_out;         /* Of writes under way. */
	bool broken;                /* An entry has ended in error. */
	bool probing;               /* A write of no bytes asks whether it is there; */
	uint32_t ticks;             /* or it is in this state: so long. */
	uint32_t rest, rest_next;   /* Ticks until it is made anew. */
	bool ask;                   /* A probe is due. */
	bool holds;                 /* The stream waits for it. */
	bool lamented;              /* It failed, and has not been back since. */
	bool greet_owed;            /* A RISE is due. */
	bool resume_owed, resumed;  /* Ours is to be said; theirs has come: */
	uint32_t their_taken;
	uint32_t refused; /* Bytes of a write by invitation that its key did not allow; 0: none. */
	bool early;       /* And so has that of its next life: */
	uint32_t early_taken;
	uint32_t their_revoked; /* With what was taken: keys that they have taken back, ever. */
};

struct rb_verbs_peer {
	struct rb_verbs *vb;
	uint32_t rank, pid;
	int pid_fd;                  /* Same host: tells when the process has ended; else -1. */
	struct rb_verbs_link *links; /* One for each rail that both have; */
	struct rb_verbs_link *main;  /* the stream's. */
	uint8_t link_count;
	uint8_t live;            /* Links. */
	uint8_t slots_each;      /* Of a link: */
	uint8_t half;            /* Of `window`. */
	uint8_t window, reserve; /* for what is sent; more, for CREDIT alone; */
	uint8_t units_over;      /* of the reserve, for a CREDIT that is about units only. */
	union {
		struct {
			uint8_t held_by; /* Links that the stream waits for. */
			bool troubled;   /* A link is not live. */
			bool by_tcp;     /* No link is; there was one. */
			bool lost;       /* No more traffic; `left` is not lost. */
			bool parted;     /* Our BYE or ABORT was posted. */
			bool owes;       /* Half a window of a link, perhaps. */
		};
		uint64_t halts; /* 0: none of these. */
	};
	/* What the short ways ask, instead of all that is rare: */
	uint32_t may; /* Small messages leave, so many: nothing is in their way, there is room. */
	bool amiss;   /* What comes is looked at closely: a link is not live, or something waits. */
	bool mends;   /* So does its end: see `mending` in transport.h. */
	bool used;    /* Named in connect(). */
	bool left;    /* It said BYE. */
	bool told;    /* failure() gave it out. */
	bool leaving; /* Its BYE waits for the ends of messages. */
	bool is_stirred;
	bool quiet;                    /* Nothing came or completed since the clock last ticked. */
	uint32_t number, their_number; /* Of the stream's next message; of the one to come. */
	/* Units of credit: spent, known to be back; given back, said so. */
	uint32_t spent, spent_known;
	uint32_t freed, freed_said;
	uint32_t held;    /* Units of arrivals that wait here. */
	uint32_t waiting; /* Arrivals without units, invitations, shared ends. */
	uint32_t revoked; /* Keys that were taken back before it answered, ever. */
	uint32_t borne;   /* Links that failed as it had taken one back. */
	struct rb_verbs_peer *next_stirred;
	struct rb_verbs_redo *words; /* RESUME, RISE: at once; */
	struct rb_verbs_redo *redo;  /* before all that is in */
	struct rb_verbs_out *out_first, *out_last;
	struct rb_verbs_flight *active_first, *active_last;
	struct rb_verbs_shared *shared;
	/* The message whose MORE comes next. */
	struct {
		uint64_t left_bytes, moved;
		uint32_t cost;
		struct rb_request *receive;       /* It goes there, */
		struct rb_verbs_arrival *arrival; /* or there; neither: nobody wants it. */
	} coming;
	struct rb_match_peer match;    /* Receives, and messages. */
	struct rb_match_peer outgoing; /* Announced sends, and invitations. */
	struct rb_verbs_spare *spare;  /* Over TCP; NULL: not needed yet. */
	bool gave_up, spoke;           /* These: see rb_failure. */
	uint32_t blames;
	uint8_t last_words[RB_LAST_WORDS_BYTES];
	char reason[RB_VERBS_REASON_BYTES];
};

struct rb_verbs_region {
	struct rb_region base;
	struct rb_verbs_region *next;
	struct ibv_mr *mrs[RB_VERBS_RAILS_MAX];
	bool mapped; /* Our own mmap. */
	bool device; /* A device's memory. */
};

struct rb_verbs_stuck { /* A registration that could not be ended. */
	struct rb_verbs_stuck *next;
	struct ibv_mr *mr;
};

struct rb_verbs_remote {
	struct rb_remote base;
	struct rb_verbs_remote *next;
	uint64_t address;
	uint32_t keys[RB_VERBS_RAILS_MAX];
};

struct rb_verbs_port { /* Of a device: what its peers must know, and what carries data. */
	char device[64];
	uint8_t number, gid_index;
	bool ethernet;
	bool roce_1;
	bool iwarp;  /* Then `gid` is the IP address, as RoCE v2 would have it. */
	uint8_t mtu; /* enum ibv_mtu. */
	uint16_t lid;
	int32_t domain; /* NUMA; -1: not known. */
	union ibv_gid gid;
};

struct rb_verbs_rail {
	struct rb_verbs_port port;
	uint8_t index;
	bool dead, mute;      /* The device has failed; carries no datagram any more. */
	uint32_t regions_max; /* Of all who use the device. */
	uint64_t region_bytes_max;
	uint32_t links_lost; /* That lived, and do not. */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct rdma_cm_id *listener;
	uint16_t listens_at;      /* Its port. */
	struct ibv_qp *datagrams; /* While connecting. */
	uint8_t *datagram_slots;
	struct ibv_mr *datagram_mr, *slots_mr;
	struct ibv_recv_wr receive; /* Of one slot: what stays the same; */
	struct ibv_sge receive_part;
	uint64_t datagrams_out; /* Bits: slots that the device has. */
	uint32_t cq_events;     /* To be acknowledged. */
};

struct rb_verbs {
	struct rb_endpoint base;
	struct rb_verbs_api api;
	struct rb_verbs_cm *cm; /* NULL: links are connected by what is exchanged. */
	struct rb_device_memory device;
	uint32_t device_ways;       /* By which its memory may be registered here; */
	uint32_t device_regions;    /* regions that are of it; */
	const char *device_lacking; /* why there is no way, if there is a device. */
	struct rb_verbs_rail rails[RB_VERBS_RAILS_MAX];
	uint8_t rail_count;
	struct rb_verbs_listener *listener;
	uint32_t by_tcp; /* Peers. */
	bool connecting;
	uint64_t call_off_ns; /* Until then datagrams say that this rank gives up; 0: none does. */
	/* Of a send queue, 2^k; less 1; for messages, else CREDITs; writes; before a burst. */
	uint32_t queue, queue_mask, queue_messages, queue_writes, queue_burst;
	struct rb_verbs_link *links; /* All peers', */
	struct rb_verbs_entry *entries;
	uint8_t *slots; /* and theirs. */
	size_t slots_bytes;
	uint32_t inline_max;
	uint8_t resend; /* A device waits 4.096 us << that for an answer, then sends again. */
	uint32_t cq_entries;
	struct {                               /* For the log. */
		uint64_t failed, risen, again; /* Links; what was done again. */
		uint64_t by_clock;             /* Drains that the device did not end. */
		uint64_t spares;               /* Connections of TCP. */
	} counts;
	uint8_t job[16];
	uint64_t host; /* rb_process_host() */
	int epoll_fd, wake_fd;
	int watch_fd, clock_fd; /* Processes, the device's events and a clock. */
	uint32_t rounds;        /* Of poll, until watch_fd is looked at; not 0. */
	uint32_t to_tell;       /* Lost peers that failure() has not given out. */
	uint64_t random;
	struct rb_verbs_peer *stirred; /* Something came of them. */
	bool due; /* Polls look further: something is stirred, or in the chain; or several rails. */
	struct rb_request *posting;
	struct rb_request *done, **done_end; /* Where the next one goes. */
	struct rb_verbs_flight **flights;    /* In chunks. */
	uint32_t flight_count;
	struct rb_verbs_flight *flight_free;
	struct rb_verbs_chunk *chunks;
	struct rb_verbs_slot *free_slots;
	struct rb_verbs_invite *free_invites; /* So many: */
	uint32_t free_invite_count;
	struct rb_verbs_post alone; /* A message that one doorbell posts. */
	/* Writes, and the message behind them, likewise. */
	struct rb_verbs_post burst[RB_VERBS_PIECES_OUT + 1];
	struct {                            /* What one doorbell will post. */
		struct rb_verbs_link *link; /* NULL: nothing. */
		struct rb_verbs_post *end;
		struct rb_verbs_post posts[RB_VERBS_CHAIN];
	} chain;
	struct rb_verbs_region *regions;
	struct rb_verbs_remote *remotes;
	struct rb_verbs_stuck *stuck;
	bool stuck_said;
	struct rb_verbs_cache *cache; /* NULL: not needed yet. */
	size_t cache_bytes;           /* That it may keep, of all rails; 0: none is made. */
	struct rb_verbs_peer peers[];
};

/* The units that so many bytes take. */
static inline uint32_t rb_verbs_units(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + RB_VERBS_ARRIVAL_BYTES + RB_VERBS_UNIT_BYTES - 1) /
			  RB_VERBS_UNIT_BYTES);
}

/* Opaque to the compiler, which else computes it again wherever it is used. */
static inline struct rb_verbs_peer *rb_verbs_peer_of(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	__asm__("" : "+r"(peer));
	return peer;
}

/* The stream's link; it is not live where there is none that is. */
static inline struct rb_verbs_link *rb_verbs_main(const struct rb_verbs_peer *peer)
{
	return peer->main;
}

/* Something of a peer's is not as it mostly is: until it is settled, all is looked at. */
static inline void rb_verbs_amiss(struct rb_verbs_peer *peer)
{
	peer->may = 0;
	peer->amiss = true;
}

/* A link of it is not live, or has something to say. */
static inline void rb_verbs_trouble(struct rb_verbs_peer *peer)
{
	peer->troubled = true;
	rb_verbs_amiss(peer);
}

static inline bool rb_verbs_is_live(const struct rb_verbs_link *link)
{
	return link->state == RB_VERBS_LINK_LIVE;
}

static inline struct rb_verbs_entry *rb_verbs_entry_at(const struct rb_verbs *vb,
						       const struct rb_verbs_link *link,
						       uint32_t number)
{
	return &link->entries[number & vb->queue_mask];
}

/* Whether a completion of the peer's is of the link's queue pair. */
static inline bool rb_verbs_is_of_life(const struct rb_verbs_link *link, uint64_t wr_id)
{
	return ((wr_id ^ link->word) >> (32 + RB_VERBS_LINK_BITS) & 63) == 0;
}

/* For what a peer sends, over all links: fewer in large jobs. */
static inline uint32_t rb_verbs_slots_all(uint32_t rank_count)
{
	return rank_count <= 256    ? RB_VERBS_SLOTS_MAX
	       : rank_count <= 1024 ? RB_VERBS_SLOTS_MAX / 2
				    : RB_VERBS_SLOTS_MAX / 4;
}

/* Of its regions the longest: all that a rail receives into, by as many links. */
static inline uint64_t rb_verbs_region_least(const struct rb_verbs *vb)
{
	uint32_t slots = rb_verbs_slots_all(vb->base.rank_count);

	return (uint64_t)(vb->base.rank_count - 1) * slots * RB_VERBS_SLOT_BYTES;
}

static inline bool rb_verbs_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

/* verbs.c */
/* More that are free. Errors: MEMORY. */
RB_NODISCARD rubato_status rb_verbs_flights_grow(struct rb_verbs *vb);
/* Flight `index`, used or not. */
static inline struct rb_verbs_flight *rb_verbs_flight_at(struct rb_verbs *vb, uint32_t index)
{
	return &vb->flights[index / RB_VERBS_FLIGHTS_EACH][index % RB_VERBS_FLIGHTS_EACH];
}
/* NULL: it has ended. */
static inline struct rb_verbs_flight *rb_verbs_flight_find(struct rb_verbs *vb, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct rb_verbs_flight *flight;

	if (index == 0 || index > vb->flight_count)
		return NULL;
	flight = rb_verbs_flight_at(vb, index - 1);
	return flight->used && flight->generation == (uint32_t)(id >> 32) ? flight : NULL;
}
static inline uint64_t rb_verbs_flight_id(const struct rb_verbs_flight *flight)
{
	return (uint64_t)flight->generation << 32 | (flight->index + 1);
}
/* One of those that are free; keys are the caller's to set. */
static inline struct rb_verbs_flight *rb_verbs_flight_take(struct rb_verbs *vb,
							   struct rb_request *request)
{
	struct rb_verbs_flight *flight = vb->flight_free;

	vb->flight_free = flight->next;
	flight->request = request;
	flight->states = 0;
	flight->used = true;
	flight->invite = flight->address = flight->moved = 0;
	flight->out = 0;
	flight->halt = RB_VERBS_GOES_ON;
	request->backend[RB_VERBS_FLIGHT] = rb_verbs_flight_id(flight);
	return flight;
}
/* Errors: MEMORY. */
RB_NODISCARD static inline rubato_status rb_verbs_flight_begin(struct rb_verbs *vb,
							       struct rb_request *request,
							       struct rb_verbs_flight **out)
{
	if (vb->flight_free == NULL)
		RB_TRY(rb_verbs_flights_grow(vb));
	*out = rb_verbs_flight_take(vb, request);
	memset((*out)->local_keys, 0, sizeof((*out)->local_keys));
	memset((*out)->keys, 0, sizeof((*out)->keys));
	return RUBATO_OK;
}
void rb_verbs_flight_rest(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* False: some registration stays. */
bool rb_verbs_unregister(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* Of one that has nothing any more, with its request. */
static inline void rb_verbs_flight_free(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	flight->used = false;
	flight->generation++; /* Whatever still speaks of this id finds nothing. */
	flight->next = vb->flight_free;
	vb->flight_free = flight;
}
static inline void rb_verbs_flight_end(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	RB_ASSERT(flight->used);
	if (flight->active)
		rb_verbs_flight_rest(vb, flight);
	if (flight->mrs[0] != NULL || flight->copy != NULL)
		(void)rb_verbs_unregister(vb, flight);
	flight->request->backend[RB_VERBS_FLIGHT] = 0;
	flight->request = NULL;
	rb_verbs_flight_free(vb, flight);
}
/* To what the next poll lists. */
static inline void rb_verbs_done_add(struct rb_verbs *vb, struct rb_request *request)
{
	request->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_LISTED;
	request->next = NULL;
	*vb->done_end = request;
	vb->done_end = &request->next;
}
/* Ends a request: DONE at once if its post is still under way, else when poll lists it. Its flight,
 * if it has one, has ended. */
static inline void rb_verbs_list(struct rb_verbs *vb, struct rb_request *request,
				 rubato_status status)
{
	request->status = status;
	if (vb->posting == request) {
		request->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_NONE;
		request->state = RB_REQUEST_DONE;
		return;
	}
	rb_verbs_done_add(vb, request);
}
/* Likewise; its flight ends, too. */
static inline void rb_verbs_complete(struct rb_verbs *vb, struct rb_request *request,
				     rubato_status status)
{
	struct rb_verbs_flight *flight =
		rb_verbs_flight_find(vb, request->backend[RB_VERBS_FLIGHT]);

	if (flight != NULL)
		rb_verbs_flight_end(vb, flight);
	request->backend[RB_VERBS_FLIGHT] = 0;
	rb_verbs_list(vb, request, status);
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
	vb->due = true;
	peer->next_stirred = vb->stirred;
	vb->stirred = peer;
}
void rb_verbs_post(struct rb_endpoint *ep, struct rb_request *request, enum rb_request_kind kind,
		   void (*carry_out)(struct rb_verbs *vb, struct rb_request *request));
/* For who waits in here: a round of progress; where nothing moved, a short sleep. */
void rb_verbs_move(struct rb_verbs *vb, uint64_t until_ns);

/* verbs_fast.c */
struct rb_request *rb_verbs_poll(struct rb_endpoint *ep);
void rb_verbs_send(struct rb_endpoint *ep, struct rb_request *request);
void rb_verbs_recv(struct rb_endpoint *ep, struct rb_request *request);
/* Whether something of a peer's is amiss still. */
void rb_verbs_settle(struct rb_verbs_peer *peer);
/* What one look at completions gives, and what follows from it. */
void rb_verbs_glance(struct rb_verbs *vb);
/* Completions, as far as there are, and what follows from them; how many. */
uint32_t rb_verbs_progress(struct rb_verbs *vb);

/* verbs_burst.c: all that a request has to write, by one doorbell. */
void rb_verbs_put(struct rb_endpoint *ep, struct rb_request *put);
/* Longer than RB_VERBS_EAGER_MAX. */
void rb_verbs_send_large(struct rb_endpoint *ep, struct rb_request *send);
void rb_verbs_recv_large(struct rb_endpoint *ep, struct rb_request *receive);

/* verbs_device.c */
/* The ports that `interface` names (NULL: the nearest ones), open. Errors: UNSUPPORTED. */
RB_NODISCARD rubato_status rb_verbs_devices_open(struct rb_verbs *vb, const char *interface);
/* "mlx5_0 port 1, RoCE v2, GID 3 fe80::1, MTU 4096": what carries data. */
#define RB_VERBS_GID_BYTES 40
char *rb_verbs_gid_text(const union ibv_gid *gid, char text[RB_VERBS_GID_BYTES]);
char *rb_verbs_port_text(const struct rb_verbs_port *port, char *text, size_t text_bytes);
uint32_t rb_verbs_mtu_bytes(uint8_t mtu);
/* The index of a port's network device, by which its link-local addresses are known; 0: none. */
uint32_t rb_verbs_netdev(const struct rb_verbs_port *port);
bool rb_verbs_is_active(const struct rb_verbs *vb, const struct rb_verbs_rail *rail);
/* Of a failed call, by errno: MEMORY or SYSTEM. */
rubato_status rb_verbs_failed(const struct rb_verbs_rail *rail, int error, const char *what);
/* Of a failed registration: with what may be in its way. */
rubato_status rb_verbs_unregistered(const struct rb_verbs_rail *rail, int error, const char *what,
				    size_t size_bytes);

/* verbs_connect.c */
rubato_status rb_verbs_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes);
bool rb_verbs_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes);
void rb_verbs_apart(struct rb_endpoint *ep, const void *address, size_t size_bytes, char *text,
		    size_t text_bytes);
rubato_status rb_verbs_connect(struct rb_endpoint *ep, const void *const *addresses,
			       const size_t *address_bytes, const bool *use, uint64_t deadline_ns);
void rb_verbs_call_off(struct rb_endpoint *ep, uint32_t rank, const void *address, size_t bytes);
rubato_status rb_verbs_connect_some(struct rb_endpoint *ep, const void *const *addresses,
				    const size_t *address_bytes, bool *use, uint64_t deadline_ns);
void rb_verbs_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns);
void rb_verbs_datagram(struct rb_verbs *vb, struct rb_verbs_rail *rail, const struct ibv_wc *wc);

/* verbs_make.c */
/* A queue pair for datagrams, ready but for its receives; or a link's, which takes receives, is
 * being made, and knows nothing of its peer's yet. */
RB_NODISCARD rubato_status rb_verbs_datagrams_make(struct rb_verbs *vb, struct rb_verbs_rail *rail,
						   uint32_t key);
RB_NODISCARD rubato_status rb_verbs_link_make(struct rb_verbs *vb, struct rb_verbs_link *link);
/* NULL: nothing. One that cannot be destroyed is to reach no memory any more. */
void rb_verbs_qp_drop(struct rb_verbs *vb, struct ibv_qp *qp);
struct ibv_ah_attr rb_verbs_path_to(const struct rb_verbs_link *link);
/* A link's queue pair receives, and sends: of `attr`, path, numbers and MTU. */
RB_NODISCARD rubato_status rb_verbs_link_ready(struct rb_verbs *vb, struct rb_verbs_link *link,
					       const struct ibv_qp_attr *attr);
struct rb_verbs_greeting rb_verbs_greeting_to(const struct rb_verbs_link *link);
/* The link that a greeting is of, or NULL: it is none of this job's. */
struct rb_verbs_link *rb_verbs_greeting_of(struct rb_verbs *vb, const void *bytes,
					   size_t size_bytes, struct rb_verbs_greeting *out);
/* A datagram or RISE has come for a link. True: an answer is due. */
bool rb_verbs_heard(struct rb_verbs *vb, struct rb_verbs_link *link,
		    const struct rb_verbs_greeting *theirs);
/* The other end is ready: HELLO is due. */
void rb_verbs_hear(struct rb_verbs *vb, struct rb_verbs_link *link);
/* HELLO has come. */
void rb_verbs_greeted(struct rb_verbs *vb, struct rb_verbs_link *link, const void *payload,
		      size_t bytes);

/* verbs_rdmacm.c */
#ifdef RB_HAVE_RDMACM
/* Loads librdmacm, for what verbs.c watches: events. Errors: UNSUPPORTED, MEMORY, SYSTEM. */
RB_NODISCARD rubato_status rb_verbs_cm_open(struct rb_verbs *vb);
int rb_verbs_cm_fd(const struct rb_verbs *vb);
RB_NODISCARD rubato_status rb_verbs_cm_listen(struct rb_verbs *vb, struct rb_verbs_rail *rail);
/* Begins a try, where none is under way and it is this end that connects. */
void rb_verbs_cm_connect(struct rb_verbs *vb, struct rb_verbs_link *link);
/* False: events cannot be read any more. */
bool rb_verbs_cm_take(struct rb_verbs *vb);
/* What rdmacm has of a link, after its queue pair; of all that is left. */
void rb_verbs_cm_drop(struct rb_verbs *vb, struct rb_verbs_link *link);
void rb_verbs_cm_close(struct rb_verbs *vb);
#else /* Its header was not there: vb->cm is NULL. */
static inline rubato_status rb_verbs_cm_open(struct rb_verbs *vb)
{
	(void)vb;
	return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
		       "verbs: this build has no rdmacm: rdma/rdma_cma.h was not there");
}
static inline int rb_verbs_cm_fd(const struct rb_verbs *vb)
{
	(void)vb;
	return -1;
}
static inline rubato_status rb_verbs_cm_listen(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	(void)vb, (void)rail;
	return RUBATO_OK;
}
static inline void rb_verbs_cm_connect(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	(void)vb, (void)link;
}
static inline bool rb_verbs_cm_take(struct rb_verbs *vb)
{
	(void)vb;
	return true;
}
static inline void rb_verbs_cm_drop(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	(void)vb, (void)link;
}
static inline void rb_verbs_cm_close(struct rb_verbs *vb)
{
	(void)vb;
}
#endif

/* verbs_link.c (verbs_link.h) */
/* It was being made, and is there. */
void rb_verbs_link_lives(struct rb_verbs *vb, struct rb_verbs_link *link);

/* verbs_tcp.c */
/* Listens; where that cannot be had a peer is lost with its last rail. Errors: MEMORY, SYSTEM. */
RB_NODISCARD rubato_status rb_verbs_listener_open(struct rb_verbs *vb,
						  const struct rb_transport_options *options);

/* verbs_share.c */
/* False: there is no room now. Behind what each link has carried of a flight, but for the main
 * one, is said that it is there. */
bool rb_verbs_mark(struct rb_verbs *vb, struct rb_verbs_flight *flight);
void rb_verbs_mark_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			   const struct rb_verbs_head *head);
/* FIN, PUT, STOPPED, ENDED. True: to be taken now; else when the last MARK is here. */
bool rb_verbs_end_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  const struct rb_verbs_head *head);
bool rb_verbs_ends_wait(const struct rb_verbs_peer *peer);
void rb_verbs_shared_drop(struct rb_verbs_peer *peer);

/* verbs_peer.c */
/* No more traffic with the peer: its requests end with PEER. In good order when `left` is set. */
void rb_verbs_lose(struct rb_verbs *vb, uint32_t peer, const char *reason);
/* Its process, where it is of this host, has ended: then it is lost. */
bool rb_verbs_lose_ended(struct rb_verbs *vb, uint32_t peer);
/* Loses a peer that broke the protocol. */
void rb_verbs_wrong(struct rb_verbs *vb, uint32_t peer, const char *what);
RB_NODISCARD rubato_status rb_verbs_watch_process(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_unwatch(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Takes what is here already of a peer that has ended. */
void rb_verbs_hear_out(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Processes that ended, events of the device, peers that have been silent for long. */
void rb_verbs_check_peers(struct rb_verbs *vb);
void rb_verbs_look(struct rb_endpoint *ep);
bool rb_verbs_failure(struct rb_endpoint *ep, struct rb_failure *out);

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
	const struct rb_verbs_link *link;

	if (peer->link_count == 0)
		return false;
	link = rb_verbs_main(peer);
	return link->sent - link->sent_known >= peer->half;
}
/* A message of its own on that link, not of the stream; false: there is no memory for it now. */
bool rb_verbs_link_say(struct rb_verbs *vb, struct rb_verbs_link *link,
		       const struct rb_verbs_head *head, const void *payload, size_t bytes);
/* A piece of DATA of a flight, if there is room now; false: not. */
bool rb_verbs_piece(struct rb_verbs *vb, uint32_t peer, const struct rb_verbs_head *head,
		    const void *payload, size_t payload_bytes);
/* Says what is owed, if it is much; see above. */
void rb_verbs_repay_much(struct rb_verbs *vb, struct rb_verbs_peer *peer);
static inline bool rb_verbs_owes_slots(const struct rb_verbs_link *link)
{
	return link->reposted - link->reposted_said >= link->peer->half;
}
static inline bool rb_verbs_owes_units(const struct rb_verbs_peer *peer)
{
	return peer->freed - peer->freed_said >= RB_VERBS_UNITS_MAX / 4;
}
static inline void rb_verbs_repay(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (peer->owes || rb_verbs_owes_units(peer))
		rb_verbs_repay_much(vb, peer);
}
/* RDMA writes of what is left of a flight, from registered memory or from copies in slots, over the
 * main link or spread. False: no room now, or the peer is lost. */
bool rb_verbs_write_pieces(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* What a failed link had, as far as there is room. */
void rb_verbs_redo(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Of a link in error: a completion behind the last entry, whether or not that tells its own. */
void rb_verbs_drain_mark(struct rb_verbs_link *link);
/* A write of no bytes: whether somebody is there. */
void rb_verbs_probe(struct rb_verbs *vb, struct rb_verbs_link *link);
/* Rings the doorbell for what was told. */
void rb_verbs_ring_chain(struct rb_verbs *vb);
static inline void rb_verbs_ring(struct rb_verbs *vb)
{
	if (vb->chain.link != NULL)
		rb_verbs_ring_chain(vb);
}
/* The link's last `unposted` entries could not be: it fails. */
void rb_verbs_post_failed(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t unposted,
			  int error);
/* What the doorbell has not posted of a link yet never will be. */
void rb_verbs_chain_drop(struct rb_verbs *vb, struct rb_verbs_link *link);
/* Entry `number` of a link's queue has completed, and all before it. */
void rb_verbs_ended(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t number,
		    const struct ibv_wc *wc);
/* All before `number` have succeeded. */
void rb_verbs_retire(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t number);
/* After room has come: what waits for it. */
void rb_verbs_pump_waiting(struct rb_verbs *vb, struct rb_verbs_peer *peer);
static inline void rb_verbs_pump(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (peer->out_first != NULL || peer->active_first != NULL || peer->redo != NULL ||
	    peer->troubled)
		rb_verbs_pump_waiting(vb, peer);
}
/* Of a lost peer: what has not left. */
void rb_verbs_outs_drop(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Posts a slot of the link's receives. */
void rb_verbs_repost(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t slot);
void rb_verbs_repost_failed(struct rb_verbs *vb, struct rb_verbs_link *link, int error);

/* verbs_message.c */
void rb_verbs_post_send(struct rb_verbs *vb, struct rb_request *request);
void rb_verbs_post_recv(struct rb_verbs *vb, struct rb_request *request);
/* What came into a slot of the link's; NULL: over TCP. */
void rb_verbs_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer, struct rb_verbs_link *link,
		      const void *bytes, uint32_t byte_count);
/* An end of a message, all of whose bytes are there: FIN, PUT, STOPPED, ENDED. */
void rb_verbs_end_take(struct rb_verbs *vb, uint32_t peer, const struct rb_verbs_head *head);
/* BYE, when no ends wait any more. */
void rb_verbs_leave(struct rb_verbs *vb, uint32_t peer);
/* Whether a message is what the receive expects; if not, the receive is told what it was. */
bool rb_verbs_fits(struct rb_request *receive, const struct rb_signature *signature,
		   uint64_t size_bytes);
void rb_verbs_arrivals_drop(struct rb_verbs *vb, uint32_t peer, bool all);
void rb_verbs_deliver_self(struct rb_verbs *vb, struct rb_request *put);

/* verbs_large.c (verbs_large.h) */
/* What takes a message's head and its flight's id to say. */
void rb_verbs_say(struct rb_verbs *vb, uint32_t peer, enum rb_verbs_message message,
		  struct rb_tag tag, uint64_t id, uint64_t size_bytes);
/* Hands over what is left of a flight, as far as there is room. */
void rb_verbs_push(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* The first time, and whenever there is room again. */
void rb_verbs_flight_push_begin(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* A write of the flight has completed: the last one that was under way; any. */
void rb_verbs_written_last(struct rb_verbs *vb, struct rb_verbs_flight *flight);
static inline void rb_verbs_written(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	RB_ASSERT(flight->out > 0);
	if (--flight->out == 0)
		rb_verbs_written_last(vb, flight);
}
/* Before a request with a flight ends early. */
void rb_verbs_withdraw(struct rb_verbs *vb, struct rb_request *request);
/* Of a receive: see leave(). False: it ends as if cancelled. */
bool rb_verbs_leave_recv(struct rb_verbs *vb, struct rb_request *receive);
bool rb_verbs_recall_invited(struct rb_verbs *vb, struct rb_request *receive);
void rb_verbs_invite_free(struct rb_verbs *vb, struct rb_verbs_invite *invite);

/* verbs_memory.c */
/* Whether a device's memory can be registered: then posts may name it. */
void rb_verbs_devices_changed(struct rb_endpoint *ep);
/* With a device: "device memory by dma-buf; ". How long it is. */
size_t rb_verbs_device_path(const struct rb_verbs *vb, char *text, size_t text_bytes);
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
 * local_keys[0] stays 0. `written`: sets the keys for the peer. Errors: of a device's memory that
 * is to be read, and has to be copied, MEMORY, SYSTEM. */
RB_NODISCARD rubato_status rb_verbs_register(struct rb_verbs *vb, struct rb_verbs_flight *flight,
					     bool written);
/* The last try. */
void rb_verbs_stuck_end(struct rb_verbs *vb);

#endif
