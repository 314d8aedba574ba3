/* link.h -- how fast the way from one rank to another is. */
#ifndef RB_BASE_LINK_H
#define RB_BASE_LINK_H

struct rb_link {
	double latency_us; /* One way, of a small message; 0: not known. */
	double byte_us;    /* A byte more, of a large one. */
	double message_us; /* What one of many small ones keeps either end busy; 0: not known. */
	/* Longer messages take several times the latency; 0: none do. */
	double eager_bytes;
};

#endif
