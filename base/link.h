/* link.h -- how fast the way from one rank to another is, and the memory of a node. */
#ifndef RB_BASE_LINK_H
#define RB_BASE_LINK_H

struct rb_link {
	double latency_us;  /* One way, of a small message; 0: not known. */
	double byte_us;     /* A byte more, of a large one. */
	double message_us;  /* What one of many small ones keeps either end busy; 0: not known. */
	double burst_bytes; /* So much passes at once after a pause; 0: nothing, or not known. */
	/* Longer messages take several times the latency; 0: none do. */
	double eager_bytes;
	double copied_bytes; /* Up to so long, processors copy messages, at both ends; 0: none. */
	double piece_bytes;  /* Longer ones count as several, of message_us each; 0: never. */
};

/* Within a node, of whatever ranks it has. */
struct rb_node_speed {
	double latency_us;   /* A notification from one rank to another; 0: nothing is known. */
	double message_us;   /* What one of many small messages keeps either end busy. */
	double core_byte_us; /* A byte that a rank reads, or writes, while no other does. */
	/* Likewise, one that a rank on another core has written, or reads next; 0: as any other. */
	double cross_byte_us;
	/* What a byte of a long message keeps either end busy; 0: as one of its own and one that
	 * crosses. */
	double message_byte_us;
	/* Likewise, k ranks at once: k times this, if that is more. 0: they do not hinder each
	 * other. */
	double memory_byte_us;
	/* Longer messages are copied by both ends at once, three latencies later, and from
	 * attach_bytes on there is one copy, of which each makes half. 0: none are. */
	double eager_bytes, attach_bytes;
	double attach_copies; /* Such a copy takes so many times as long as another; 0: as long. */
	double cache_bytes;   /* Of a core's own; 0: not known. */
	double outer_bytes;   /* Of the cache that cores share, for each rank; 0: not known. */
	double work_us;       /* A piece of copying or reducing takes so much besides its bytes. */
	double turn_us;       /* Of a core, from one rank to another; 0: not known. */
};

#endif
