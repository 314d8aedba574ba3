/*
 * notice.h -- failure notices: a rank that fails tells the others, so that they need not wait for
 * their deadlines.
 *
 * Each rank keeps one receive posted for each neighbour at distance 1, 2, 4, ... both ways. A rank
 * whose engine is poisoned sends its reason to all of them; who receives it is poisoned in turn and
 * so passes it on: every live rank is reached in about log2 n hops, around lost ones. Those that
 * see a rank go before its notice has come read the same in its last words (transport.h).
 */
#ifndef RB_RUNTIME_NOTICE_H
#define RB_RUNTIME_NOTICE_H

#include "runtime/engine/engine.h"

struct rb_notices;

struct rb_notice { /* One per neighbour, each way. */
	struct rb_notices *notices;
	struct rb_slot *slot;
	uint32_t peer;
	uint8_t bytes[RB_LAST_WORDS_BYTES];
};

struct rb_notices {
	struct rb_poller poller; /* First. */
	struct rb_engine *engine;
	struct rb_notice *at; /* One per neighbour. */
	uint32_t count;
	uint32_t origin; /* Of the poison, when it came as a notice: the rank and its words. */
	rubato_status status;
	char text[192];
};

RB_NODISCARD rubato_status rb_notices_open(struct rb_notices *notices, struct rb_engine *engine);
/* Nothing is heard or sent afterwards. */
void rb_notices_close(struct rb_notices *notices);
/* What to leave as last words; false: that this rank goes says enough. */
bool rb_notices_last_words(const struct rb_notices *notices, uint8_t words[RB_LAST_WORDS_BYTES]);

/* What a rank does that lacks memory for what the others wait for: it poisons, so that they hear of
 * it at once. Other errors are none of that. Returns err. Under the lock;
 * outside: where it is not held. */
rubato_status rb_notice_memory(struct rb_engine *engine, rubato_status err);
rubato_status rb_notice_memory_outside(struct rb_engine *engine, rubato_status err);

#endif
