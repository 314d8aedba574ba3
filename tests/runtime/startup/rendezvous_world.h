/*
 * rendezvous_world.h -- many rendezvous machines on a network that exists in memory only: seeded
 * delays, pieces of any size, connections that break, strangers. Virtual time; one seed, one run.
 */
#ifndef RB_TESTS_RENDEZVOUS_WORLD_H
#define RB_TESTS_RENDEZVOUS_WORLD_H

#include "base/rng.h"
#include "runtime/startup/rendezvous.h"

#define WORLD_RANKS_MAX 64
#define WORLD_ACTORS_MAX (WORLD_RANKS_MAX + 8)
#define WORLD_LINKS_MAX 512
#define WORLD_PIPE_BYTES 40000
#define WORLD_ROUNDS 3
#define WORLD_DEADLINE_NS UINT64_C(60000000000)

enum actor_kind { ACTOR_MEMBER, ACTOR_WRONG_SECRET, ACTOR_WRONG_JOB, ACTOR_WRONG_SIZE };

struct actor {
	enum actor_kind kind;
	uint32_t rank, rank_count;
	struct rb_rv *machine;
	uint64_t starts_ns, ended_ns;
	bool started, ended, dead; /* dead: killed; says nothing more. */
	bool connect_wanted, listening, gather_wanted;
	uint32_t rounds; /* Exchanges done. */
	bool tables_right;
	rubato_status status;
	char text[RB_RV_TEXT_MAX];
	uint32_t links[WORLD_LINKS_MAX]; /* By connection number; UINT32_MAX: none. */
};

struct pipe_end { /* One direction of a link. */
	uint32_t count;
	bool sender_gone, receiver_gone;
	uint8_t *bytes; /* WORLD_PIPE_BYTES of the world's. */
};

struct link {
	bool used, accepted;
	bool late;       /* Broken, and the root has no idea yet. */
	uint32_t client; /* Actor; UINT32_MAX: a stranger without a machine. */
	uint32_t root_number;
	struct pipe_end to_root, to_client;
};

struct world {
	struct rb_rng rng;
	uint64_t now_ns, hash;
	uint32_t rank_count, actor_count;
	uint32_t link_count; /* Numbers in use are below this. */
	uint32_t piece_max;  /* Bytes that move at once. */
	uint32_t blob_max;
	uint32_t happenings;
	/* Faults still to be injected, and how often each fired. */
	uint32_t drops, late_drops, strangers, flips;
	uint32_t stalls;     /* The root does nothing for stall_ns, while ranks come. */
	uint32_t kill_actor; /* UINT32_MAX: none; killed once the root has seen all. */
	uint32_t drops_fired, late_drops_fired, strangers_fired, flips_fired, kills_fired;
	uint32_t stalls_fired;
	uint64_t stall_ns, stalled_until_ns;
	bool several; /* The root may have other addresses, so that ranks have less patience. */
	uint32_t reports;
	struct actor actors[WORLD_ACTORS_MAX]; /* The first rank_count are the ranks. */
	struct link links[WORLD_LINKS_MAX];
	uint8_t bytes[WORLD_LINKS_MAX][2][WORLD_PIPE_BYTES];
};

struct world *world_make(uint64_t seed, uint32_t rank_count, bool secret);
/* An actor that does not belong there (or a namesake: ACTOR_MEMBER). */
struct actor *world_add(struct world *w, enum actor_kind kind, uint32_t rank, bool secret);
void world_run(struct world *w); /* Until every actor has ended; aborts the test when one cannot. */
void world_free(struct world *w);

#endif
