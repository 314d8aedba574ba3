/* test_choice.c -- choices can run, fit their limits, and take the paths that they are meant to. */
#include <fenv.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/build.h"
#include "collectives/crossing.h"
#include "tests/check_main.h"
#include "tests/length.h"

static struct rb_choice_facts node(uint32_t ranks, bool mapped)
{
	return (struct rb_choice_facts) { .rank_count = ranks,
					  .mapped = mapped,
					  .cores = 2,
					  .host_ranks = ranks,
					  .chunk_bytes_max = 256u << 10 };
}

/* Each rank alone on its machine. */
static struct rb_choice_facts machines(uint32_t ranks)
{
	struct rb_choice_facts facts = node(ranks, false);

	facts.host_ranks = 1;
	facts.own_links = true;
	return facts;
}

static const char *name_of(struct rb_choice_facts facts, enum rb_kind kind, uint64_t bytes,
			   bool plain)
{
	struct rb_choice c;

	ck_assert_int_eq(rb_choose(&facts, kind, bytes / 4, 4, -1, &c), RUBATO_OK);
	return rb_algorithms[plain ? c.staged : c.algorithm].name;
}

START_TEST(paths_by_size)
{
	struct rb_choice_facts roomy = node(8, false);

	roomy.cores = 8; /* Where ranks share cores, a chain's links do, too. */
	ck_assert_str_eq(name_of(node(2, true), RB_KIND_ALLREDUCE, 8, false), "flat");
	ck_assert_str_eq(name_of(node(4, true), RB_KIND_ALLREDUCE, 8, false), "flat");
	ck_assert_str_eq(name_of(node(4, true), RB_KIND_ALLREDUCE, 1 << 20, false), "direct");
	ck_assert_str_eq(name_of(node(4, true), RB_KIND_ALLREDUCE, 1 << 20, true), "staged");
	ck_assert_str_eq(name_of(node(4, false), RB_KIND_ALLREDUCE, 1 << 20, false), "ring");
	ck_assert_str_eq(name_of(node(64, false), RB_KIND_ALLREDUCE, 8, false),
			 "recursive_doubling");
	ck_assert_str_eq(name_of(node(8, false), RB_KIND_BROADCAST, 8, false), "binomial");
	ck_assert_str_eq(name_of(roomy, RB_KIND_BROADCAST, 64 << 20, false), "chain");
	ck_assert_str_eq(name_of(node(8, true), RB_KIND_REDUCE_SCATTER, 1 << 20, false), "direct");
	ck_assert_str_eq(name_of(node(8, false), RB_KIND_BARRIER, 0, false), "dissemination");
}
END_TEST

/* Where ranks share cores, who maps others' memory waits for all of them to have had their turn,
 * twice; a message waits for nobody. Memory as fast as this makes up for that late. */
START_TEST(ranks_that_share_cores_send)
{
	static const struct {
		enum rb_kind kind;
		const char *small;
	} rows[] = {
		{ RB_KIND_BROADCAST, "flat" },      { RB_KIND_REDUCE, "flat" },
		{ RB_KIND_GATHER, "flat" },         { RB_KIND_SCATTER, "flat" },
		{ RB_KIND_ALLGATHER, "flat" },      { RB_KIND_ALLTOALL, "flat" },
		{ RB_KIND_REDUCE_SCATTER, "flat" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rb_choice_facts facts = node(8, true);

		ck_assert_str_eq(name_of(facts, rows[i].kind, 8 << 10, false), rows[i].small);
		ck_assert_str_eq(name_of(facts, rows[i].kind, 4 << 20, false), "direct");
		facts.cores = 8;
		ck_assert_str_eq(name_of(facts, rows[i].kind, 512 << 10, false), "direct");
	}
}
END_TEST

/* To learn that buffers are not mapped takes a meeting, so mapped ones have to gain that much; but
 * where the others go through mapped scratch, they meet anyway. */
START_TEST(mapped_buffers_gain_what_asking_for_them_costs)
{
	static const enum rb_kind kinds[] = { RB_KIND_BROADCAST, RB_KIND_ALLREDUCE };

	for (size_t k = 0; k < 2; k++) {
		struct rb_choice_facts facts = node(2, true);
		uint32_t direct = (uint32_t)rb_algorithm_find(kinds[k], "direct"), passed_over = 0;
		struct rb_choice c;

		for (uint64_t count = 256; count <= 1 << 18; count += count / 8) {
			ck_assert_int_eq(rb_choose(&facts, kinds[k], count, 4, -1, &c), RUBATO_OK);
			if (c.algorithm == direct)
				continue;
			if (rb_predict(&facts, direct, count, 4) < c.predicted_us)
				passed_over++;
		}
		ck_assert_uint_eq(c.algorithm, direct);
		if (kinds[k] == RB_KIND_BROADCAST)
			ck_assert_uint_gt(passed_over, 0);
	}
	for (uint64_t count = 1 << 14; count <= 1 << 18; count *= 2)
		if (strcmp(name_of(node(2, true), RB_KIND_ALLREDUCE, 4 * count, true), "staged") ==
		    0)
			ck_assert_str_eq(
				name_of(node(2, true), RB_KIND_ALLREDUCE, 4 * count, false),
				"direct");
}
END_TEST

/* What sends every other rank a message, and a vector in many short ones, is for links of one's
 * own; by name it runs anywhere. */
START_TEST(own_links_are_used)
{
	ck_assert_str_eq(name_of(machines(8), RB_KIND_ALLREDUCE, 1 << 20, false), "two_shot");
	ck_assert_str_eq(name_of(machines(8), RB_KIND_BROADCAST, 1 << 20, false),
			 "scatter_allgather");
	ck_assert_str_eq(name_of(machines(8), RB_KIND_REDUCE, 1 << 20, false), "scatter_gather");
	ck_assert_str_eq(name_of(machines(3), RB_KIND_BARRIER, 0, false), "flat");
	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];
		struct rb_choice_facts facts = machines(8);
		struct rb_choice c;

		facts.own_links = false;
		facts.put = true;
		for (uint64_t count = 1; count < 1 << 24 && a->kind != RB_KIND_SENDRECV;
		     count *= 4) {
			ck_assert_int_eq(rb_choose(&facts, a->kind, count, 4, -1, &c), RUBATO_OK);
			ck_assert(!rb_algorithms[c.algorithm].own_link);
		}
		if (a->own_link) {
			ck_assert_int_eq(rb_choose(&facts, a->kind, 1, 4, (int)i, &c), RUBATO_OK);
			ck_assert_uint_eq(c.algorithm, i);
		}
	}
}
END_TEST

/* A block in 16 pieces, if they are not too short, and no longer than chunks are anywhere. */
START_TEST(phases_overlap_by_pieces)
{
	int two_shot = rb_algorithm_find(RB_KIND_ALLREDUCE, "two_shot");
	struct rb_choice_facts facts = machines(4);
	struct rb_choice c;

	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1 << 20, 4, two_shot, &c), RUBATO_OK);
	ck_assert_uint_eq(c.chunk, (1 << 20) / 4 / 16);
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1 << 14, 4, two_shot, &c), RUBATO_OK);
	ck_assert_uint_eq(c.chunk, (4 << 10) / 4);
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1 << 24, 4, two_shot, &c), RUBATO_OK);
	ck_assert_uint_eq(c.chunk, (256 << 10) / 4);
	facts.chunk_bytes_max = 1024; /* The caller's word goes first. */
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1 << 20, 4, two_shot, &c), RUBATO_OK);
	ck_assert_uint_eq(c.chunk, 1024 / 4);
}
END_TEST

START_TEST(a_burst_passes_at_once)
{
	struct rb_link link = { .latency_us = 5, .byte_us = 0.008 };

	ck_assert(rb_crossing_byte_us(&link, 0) == 0.008);
	ck_assert(rb_crossing_byte_us(&link, 1e6) == 0.008);
	link.burst_bytes = 1000;
	ck_assert(rb_crossing_byte_us(&link, 0) == 0);
	ck_assert(rb_crossing_byte_us(&link, 1000) == 0);
	ck_assert(rb_crossing_byte_us(&link, 2000) == 0.004);
	ck_assert(rb_crossing_byte_us(&link, 1e9) > 0.0079);
}
END_TEST

START_TEST(two_ranks_apart_exchange)
{
	for (uint64_t bytes = 8; bytes <= 512 << 10; bytes *= 2)
		ck_assert_str_eq(name_of(node(2, false), RB_KIND_ALLREDUCE, bytes, false),
				 "recursive_doubling");
	ck_assert_str_eq(name_of(node(2, false), RB_KIND_ALLREDUCE, 544 << 10, false), "ring");
	ck_assert_str_eq(name_of(node(3, false), RB_KIND_ALLREDUCE, 512 << 10, false), "ring");
	ck_assert_str_eq(name_of(node(2, true), RB_KIND_ALLREDUCE, 512 << 10, false), "direct");
}
END_TEST

static void check_limits(const struct rb_choice_facts *facts, enum rb_kind kind, uint64_t count,
			 uint32_t bytes)
{
	struct rb_choice c, again;

	ck_assert_int_eq(rb_choose(facts, kind, count, bytes, -1, &c), RUBATO_OK);
	ck_assert_int_eq(rb_choose(facts, kind, count, bytes, -1, &again), RUBATO_OK);
	ck_assert(c.algorithm == again.algorithm && c.staged == again.staged &&
		  c.chunk == again.chunk && c.align == again.align);
	const struct rb_algorithm *a = &rb_algorithms[c.algorithm];
	const struct rb_algorithm *s = &rb_algorithms[c.staged];

	ck_assert(a->kind == kind && s->kind == kind && c.why != NULL);
	ck_assert_uint_le(facts->rank_count, a->rank_max);
	ck_assert_uint_le(facts->rank_count, s->rank_max);
	/* A node that maps nothing sends messages. */
	bool by_node = facts->nodes != NULL && a->by_node && (s->by_node || s->flags == 0);

	ck_assert(facts->mapped || by_node ||
		  !((a->flags | s->flags) &
		    (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH)));
	ck_assert(facts->put || !((a->flags | s->flags) & RB_SCHEDULE_PUT));
	ck_assert(!(s->flags & RB_SCHEDULE_MAPPED_BUFFERS));
	ck_assert((a->flags & RB_SCHEDULE_PUT) || !(s->flags & RB_SCHEDULE_PUT));
	ck_assert_uint_ge(c.chunk, 1);
	ck_assert_uint_ge(c.align, 1);
	if (kind == RB_KIND_ALLTOALLV) { /* The count is not asked: any must do. */
		ck_assert_uint_ge(c.chunk * bytes * RB_ITERATION_MAX, UINT64_C(1) << 47);
		ck_assert_uint_eq(c.align, 1);
		return;
	}
	ck_assert_uint_lt(count / c.chunk, RB_ITERATION_MAX - 1);
	if (count / (RB_ITERATION_MAX - 2) * bytes < facts->chunk_bytes_max / 128)
		ck_assert_uint_le(c.chunk * bytes, facts->chunk_bytes_max);
	if (kind >= RB_KIND_REDUCE_SCATTER && kind <= RB_KIND_ALLTOALLV)
		ck_assert_uint_eq(c.align, 1);
}

START_TEST(choices_fit_everywhere)
{
	struct rb_rng rng = { 11 };
	int draws = test_is_interpreted() ? 4000 : test_length() == TEST_SHORT ? 20000 : 200000;

	for (int i = 0; i < draws; i++) {
		uint64_t draw = rb_rng_next(&rng);
		struct rb_choice_facts facts = {
			.rank_count = 1 + (uint32_t)rb_rng_below(&rng, draw % 3 ? 64 : 3000),
			.mapped = draw >> 8 & 1,
			.put = draw >> 9 & 1,
			.own_links = draw >> 11 & 1,
			.puts_between = draw >> 12 & 1,
			.puts_within = draw >> 13 & 1,
			.cores = 1 + (draw >> 16) % 64,
			.chunk_bytes_max = 1024ull << (draw >> 24) % 12,
		};
		enum rb_kind kind = (enum rb_kind)(RB_KIND_BARRIER + (draw >> 32) % 13);
		uint64_t count = rb_rng_next(&rng) >> (4 + (draw >> 40) % 60);

		facts.host_ranks = 1 + (uint32_t)rb_rng_below(&rng, facts.rank_count);
		if (kind == RB_KIND_SENDRECV)
			facts.rank_count = facts.host_ranks = 2;
		if (kind == RB_KIND_BARRIER)
			count = 0;
		check_limits(&facts, kind, count, draw >> 10 & 1 ? 4 : 8);
	}
}
END_TEST

static bool has_terms(const struct rb_cost_terms *t)
{
	return t->one > 0 || t->log > 0 || t->all > 0 || t->share > 0;
}

static bool is_chosen_for(struct rb_choice_facts *facts, int index)
{
	const struct rb_algorithm *a = &rb_algorithms[index];
	uint32_t n = facts->rank_count;

	for (uint64_t count = 1; count < UINT64_C(1) << 28; count *= 4)
		for (uint32_t i = 0; i < 3; i++) {
			struct rb_choice c;

			facts->cores = i == 0 ? 1 : i == 1 ? n : (n + 3) / 4;
			if (rb_choose(facts, a->kind, count, 4, -1, &c) == RUBATO_OK &&
			    (c.algorithm == index || c.staged == index))
				return true;
		}
	return false;
}

/* Nodes of `size` ranks, and a rest, if there is one. */
static void nodes_of(struct rb_nodes *nodes, uint32_t rank_count, uint32_t size)
{
	static uint32_t words[RB_NODES_WORDS(256)]; /* Of one at a time. */
	uint32_t name_of[256];

	for (uint32_t r = 0; r < rank_count; r++)
		name_of[r] = r / size;
	rb_nodes_make(nodes, words, name_of, rank_count);
}

/* Whether some number of ranks, size, node and network has it chosen. */
static bool is_chosen(int index)
{
	bool chosen = false;

	for (uint32_t n = 1; n <= 256 && !chosen; n++) {
		struct rb_choice_facts mapped = node(n, true), apart = node(n, false);
		struct rb_choice_facts alone = machines(n);

		chosen = is_chosen_for(&mapped, index) || is_chosen_for(&apart, index) ||
			 is_chosen_for(&alone, index);
		mapped.node.message_byte_us = 0.0001; /* Long messages are dear. */
		chosen = chosen || is_chosen_for(&mapped, index);
		alone.put = alone.puts_between = alone.puts_within = true;
		chosen = chosen || is_chosen_for(&alone, index);
		for (uint32_t size = 1; size < n && !chosen; size *= 4) {
			struct rb_choice_facts facts = node(n, false);
			struct rb_nodes nodes;

			nodes_of(&nodes, n, size);
			facts.nodes = &nodes;
			facts.network = (struct rb_link) { .latency_us = 20,
							   .byte_us = 0.008,
							   .message_us = 0 };
			chosen = is_chosen_for(&facts, index);
			facts.put = facts.puts_between = facts.puts_within = true;
			chosen = chosen || is_chosen_for(&facts, index);
		}
	}
	return chosen;
}

static uint32_t apart_bytes(const struct rb_choice_facts *facts)
{
	int direct = rb_algorithm_find(RB_KIND_ALLTOALLV, "direct");
	struct rb_choice c;

	ck_assert_int_eq(rb_choose(facts, RB_KIND_ALLTOALLV, 1, 4, direct, &c), RUBATO_OK);
	return c.apart_bytes;
}

/* Where a core's cache holds IN, OUT and the slots. */
START_TEST(slots_that_alternate_are_cheaper_while_they_fit)
{
	static const enum rb_kind kinds[] = { RB_KIND_ALLTOALL, RB_KIND_REDUCE_SCATTER,
					      RB_KIND_ALLGATHER };
	const uint64_t cache = 2 << 20, element = 4;

	for (uint32_t i = 0; i < 2 * sizeof(kinds) / sizeof(kinds[0]); i++) {
		uint32_t n = i % 2 == 0 ? 2 : 3,
			 staged = (uint32_t)rb_algorithm_find(kinds[i / 2], "staged");
		struct rb_choice_facts facts = node(n, true), small;

		facts.cores = n;
		small = facts;

		facts.node.core_byte_us = small.node.core_byte_us = 1e-3 / 77.9;
		facts.node.cross_byte_us = small.node.cross_byte_us = 1e-3 / 23.2;
		facts.node.cache_bytes = (double)cache;
		small.node.cache_bytes = 4096;
		for (uint64_t bytes = cache / 16; bytes <= cache; bytes *= 2) {
			bool fits =
				5 * bytes <= cache && (n == 2 || kinds[i / 2] != RB_KIND_ALLGATHER);
			double us = rb_predict(&facts, staged, bytes / element, element);
			double other = rb_predict(&small, staged, bytes / element, element);

			ck_assert_msg(fits ? us < 0.9 * other : us == other,
				      "%s of %u bytes on %u ranks: %g us, %g where it does not fit",
				      rb_kind_name(kinds[i / 2]), (uint32_t)bytes, n, us, other);
		}
	}
	struct rb_choice_facts facts = node(2, true);

	facts.ahead = true;
	facts.node.cache_bytes = (double)cache;
	uint32_t staged = (uint32_t)rb_algorithm_find(RB_KIND_ALLTOALL, "staged");
	double ahead = rb_predict(&facts, staged, RB_AHEAD_BYTES / element, element);

	facts.node.cache_bytes = 4096; /* Those of calls that go ahead do not. */
	ck_assert_double_eq(rb_predict(&facts, staged, RB_AHEAD_BYTES / element, element), ahead);
}
END_TEST

static uint64_t chunk_bytes(const struct rb_choice_facts *facts, enum rb_kind kind,
			    const char *name, uint64_t bytes)
{
	struct rb_choice choice;

	ck_assert_int_eq(
		rb_choose(facts, kind, bytes / 4, 4, rb_algorithm_find(kind, name), &choice),
		RUBATO_OK);
	return choice.chunk * 4;
}

/* As measured on 2 cores of an Intel Xeon (family 6, model 207). */
START_TEST(long_messages_go_by_a_kernel_that_copies_fast)
{
	for (uint32_t n = 2; n <= 4; n += 2) {
		struct rb_choice_facts facts = node(n, true);

		facts.ahead = true;
		facts.node.core_byte_us = 1e-3 / 77.9;
		facts.node.cross_byte_us = 1e-3 / 23.2;
		facts.node.message_byte_us = 1e-3 / 16.4;
		uint32_t apart = apart_bytes(&facts);

		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, true), "staged");
		facts.node.attach_bytes = 131072;
		facts.node.attach_copies = 2.4;
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, true), "flat");
		/* Blocks of alltoall and allgather that it does not copy. */
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 128 << 10, true),
				 n == 2 ? "flat" : "staged");
		/* What a peer has written has to be read once more. */
		ck_assert_str_eq(name_of(facts, RB_KIND_REDUCE_SCATTER, 4 << 20, true), "staged");
		ck_assert_uint_eq(apart_bytes(&facts), apart);
		facts.node.attach_copies = 6;
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, true), "staged");
	}
}
END_TEST

/* Whom nobody waits for has nothing of short chunks. */
START_TEST(what_the_kernel_copies_goes_in_long_messages)
{
	struct rb_choice_facts facts = node(2, true);

	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLGATHER, "flat", 16 << 20), 256 << 10);
	facts.node.attach_bytes = 131072;
	facts.node.attach_copies = 2.4;
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLGATHER, "flat", 16 << 20), 2 << 20);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_BROADCAST, "flat", 16 << 20), 2 << 20);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLGATHER, "ring", 16 << 20), 256 << 10);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLGATHER, "bruck", 16 << 20), 256 << 10);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLREDUCE, "flat", 16 << 20), 256 << 10);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_BROADCAST, "staged", 16 << 20), 256 << 10);
	facts.chunk_bytes_max = 4 << 20; /* The caller's word goes first. */
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLGATHER, "flat", 16 << 20), 4 << 20);
	facts.chunk_bytes_max = 128 << 10;
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLGATHER, "flat", 16 << 20), 128 << 10);
}
END_TEST

/* As measured there. */
static struct rb_choice_facts crowded(uint32_t ranks)
{
	struct rb_choice_facts facts = node(ranks, true);

	facts.ahead = true;
	facts.node.core_byte_us = 1e-3 / 77.9;
	facts.node.cross_byte_us = 1e-3 / 23.2;
	facts.node.turn_us = 0.71;
	return facts;
}

/* Machines on which two algorithms take the same time somewhere between two lengths. */
enum machine {
	TWO_CORES,
	CORE_EACH,
	DEAR_MESSAGES, /* On two cores, as long ones were measured there. */
	ATTACHING,     /* On two cores whose kernel copies from buffer to buffer. */
	FAR_APART,     /* Each rank on its own, at 1 Gbit/s. */
};

static struct rb_choice_facts machine_facts(enum machine machine, uint32_t ranks)
{
	struct rb_choice_facts facts = machine == ATTACHING ? crowded(ranks) : node(ranks, true);
	static struct rb_nodes nodes; /* Of one at a time. */

	if (machine == FAR_APART) {
		nodes_of(&nodes, ranks, 1);
		facts = machines(ranks);
		facts.nodes = &nodes;
		facts.network = (struct rb_link) { .latency_us = 10000, .byte_us = 0.008 };
	}
	facts.ahead = false;
	if (machine == CORE_EACH)
		facts.cores = ranks;
	if (machine == DEAR_MESSAGES)
		facts.node.message_byte_us = 1e-3 / 16.4;
	if (machine == ATTACHING) {
		facts.node.attach_bytes = 131072;
		facts.node.attach_copies = 2.4;
	}
	return facts;
}

/* The lengths of a row are a tenth apart: a constant that is that much larger or smaller has the
 * same algorithm at both. Which constant, stands beside it. */
static const struct {
	enum machine machine;
	uint32_t ranks;
	enum rb_kind kind;
	bool plain;
	uint64_t below, above;
	const char *names[2];
} crossings[] = {
	/* CROSSING_US, HANDED_CROSSING */
	{ TWO_CORES, 2, RB_KIND_REDUCE_SCATTER, false, 39424, 43264, { "flat", "direct" } },
	/* HANDED_BYTES */
	{ DEAR_MESSAGES, 2, RB_KIND_ALLTOALL, true, 500032, 550016, { "flat", "staged" } },
	/* BYTE_US */
	{ TWO_CORES, 4, RB_KIND_REDUCE, false, 83200, 92672, { "flat", "direct" } },
	/* PHASE_US, HALVES_BYTES */
	{ CORE_EACH,
	  8,
	  RB_KIND_ALLREDUCE,
	  false,
	  8512,
	  9472,
	  { "recursive_doubling", "recursive_halving_doubling" } },
	/* TURN_US */
	{ TWO_CORES, 4, RB_KIND_ALLREDUCE, false, 11136, 12416, { "flat", "recursive_doubling" } },
	/* MESSAGE_US, MAPPED_MESSAGES */
	{ CORE_EACH, 8, RB_KIND_REDUCE, false, 34240, 38144, { "binomial", "direct" } },
	/* EXCHANGE_PHASES */
	{ TWO_CORES, 3, RB_KIND_BROADCAST, false, 129600, 144384, { "flat", "direct" } },
	/* ALTERNATING_VECTORS, CACHE_BYTES */
	{ TWO_CORES, 3, RB_KIND_ALLTOALL, true, 134400, 147200, { "staged", "flat" } },
	/* FLOOD_CACHES: smaller, larger */
	{ TWO_CORES, 4, RB_KIND_ALLGATHERV, true, 150272, 167360, { "flat", "ring" } },
	{ TWO_CORES, 8, RB_KIND_ALLGATHERV, true, 159424, 177600, { "flat", "ring" } },
	/* FLOODED_MAX */
	{ TWO_CORES, 64, RB_KIND_ALLGATHERV, true, 341952, 377728, { "flat", "ring" } },
	/* JOINED_BYTES */
	{ FAR_APART, 4, RB_KIND_REDUCE_SCATTER, false, 4682752, 5172672, { "flat", "ring" } },
	{ FAR_APART, 4, RB_KIND_REDUCE, true, 29000000, 32000000, { "scatter_gather", "chain" } },
	/* SHORT_CROSSING */
	{ CORE_EACH, 3, RB_KIND_ALLGATHER, false, 78400, 87360, { "flat", "direct" } },
	/* SHORT_BYTES */
	{ CORE_EACH, 8, RB_KIND_ALLTOALL, false, 125824, 140160, { "flat", "direct" } },
	/* PIECES_BYTES */
	{ DEAR_MESSAGES, 4, RB_KIND_REDUCE, false, 71744, 79936, { "flat", "direct" } },
	/* ATTACHED_BYTES */
	{ ATTACHING, 16, RB_KIND_REDUCE, false, 201920, 224960, { "flat", "direct" } },
	/* ATTACHED_BROADCAST_BYTES */
	{ ATTACHING, 3, RB_KIND_BROADCAST, true, 141632, 157760, { "flat", "staged" } },
};

START_TEST(curves_cross_where_they_do)
{
	for (size_t i = 0; i < sizeof(crossings) / sizeof(crossings[0]); i++) {
		struct rb_choice_facts facts =
			machine_facts(crossings[i].machine, crossings[i].ranks);

		for (uint32_t side = 0; side < 2; side++) {
			uint64_t bytes = side == 0 ? crossings[i].below : crossings[i].above;
			const char *name =
				name_of(facts, crossings[i].kind, bytes, crossings[i].plain);

			ck_assert_msg(strcmp(name, crossings[i].names[side]) == 0,
				      "row %zu: %s of %llu bytes on %u ranks: %s, not %s", i,
				      rb_kind_name(crossings[i].kind), (unsigned long long)bytes,
				      crossings[i].ranks, name, crossings[i].names[side]);
		}
	}
}
END_TEST

/* What comes to a core fits a larger cache. */
START_TEST(messages_from_many_are_cheaper_where_caches_are_larger)
{
	struct rb_choice_facts facts = crowded(8);
	uint32_t flat = (uint32_t)rb_algorithm_find(RB_KIND_REDUCE_SCATTER, "flat");
	double unknown = rb_predict(&facts, flat, 1 << 15, 4), before = 0;

	ck_assert_str_eq(name_of(facts, RB_KIND_REDUCE_SCATTER, 32 << 10, true), "staged");
	for (double bytes = 4 << 20; bytes >= 1 << 20; bytes /= 2) {
		facts.node.cache_bytes = bytes;
		ck_assert_double_gt(rb_predict(&facts, flat, 1 << 15, 4), before);
		before = rb_predict(&facts, flat, 1 << 15, 4);
	}
	ck_assert_double_eq(before, unknown);
	facts.node.cache_bytes = 2 << 20;
	ck_assert_str_eq(name_of(facts, RB_KIND_REDUCE_SCATTER, 32 << 10, true), "flat");
	facts.cores = 8; /* Each has one for itself. */
	before = rb_predict(&facts, flat, 1 << 15, 4);
	facts.node.cache_bytes = 0;
	ck_assert_double_eq(rb_predict(&facts, flat, 1 << 15, 4), before);
}
END_TEST

/* All ranks of a tree that have children may be on one core. */
START_TEST(a_tree_of_sums_is_charged_to_the_core_of_its_root)
{
	uint32_t binomial = (uint32_t)rb_algorithm_find(RB_KIND_REDUCE, "binomial");
	struct rb_choice_facts facts = machine_facts(ATTACHING, 8);
	double crowded_us = rb_predict(&facts, binomial, 8 << 20, 4);

	for (uint64_t bytes = 4 << 20; bytes <= 32 << 20; bytes *= 2)
		ck_assert_str_ne(name_of(facts, RB_KIND_REDUCE, bytes, true), "binomial");
	facts.cores = 1; /* There is no other. */
	ck_assert_double_lt(crowded_us, rb_predict(&facts, binomial, 8 << 20, 4));
	facts.cores = 8; /* Each has one. */
	ck_assert_double_gt(crowded_us, rb_predict(&facts, binomial, 8 << 20, 4));
}
END_TEST

/* Its blocks lie in scratch as long as they do in buffers of pairs. */
START_TEST(an_alltoall_gains_nothing_by_scratch)
{
	for (uint32_t n = 3; n <= 16; n++)
		for (uint64_t bytes = 256 << 10; bytes <= 1 << 20; bytes *= 2) {
			ck_assert_str_eq(name_of(crowded(n), RB_KIND_ALLTOALL, bytes, true),
					 "flat");
			ck_assert_str_ne(name_of(crowded(n), RB_KIND_ALLGATHER, bytes, true),
					 "flat");
		}
}
END_TEST

/* But where all of it does not fit the cache that cores share, scratch is shorter. */
START_TEST(an_alltoall_that_fills_the_outer_cache_goes_through_scratch)
{
	for (uint32_t n = 4; n <= 8; n += 4) {
		struct rb_choice_facts facts = crowded(n);

		facts.node.outer_bytes = (double)(32 << 20) / n;
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 512 << 10, true), "flat");
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, true), "staged");
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 16 << 20, true), "staged");
		facts.node.outer_bytes *= 8;
		ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, true), "flat");
	}
}
END_TEST

START_TEST(networks_are_spared)
{
	struct rb_choice_facts facts = node(8, false);
	struct rb_nodes nodes;

	nodes_of(&nodes, 8, 4);
	facts.nodes = &nodes;
	facts.host_ranks = 4;
	facts.network = (struct rb_link) { .latency_us = 30,
					   .byte_us = 0.008,
					   .message_us = 0 }; /* 1 Gbit/s. */
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 4 << 20, false), "hierarchical");
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 4 << 20, true), "hierarchical_staged");
	/* Four alone: the fewer bytes, the more a latency counts. */
	nodes_of(&nodes, 4, 1);
	facts.nodes = &nodes;
	facts.rank_count = 4;
	facts.host_ranks = 1;
	facts.own_links = true;
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 64 << 10, false), "two_shot");
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 16 << 20, false), "ring");
	facts.network = (struct rb_link) { .latency_us = 5000,
					   .byte_us = 0.08,
					   .message_us = 0 }; /* 100 Mbit/s, far away. */
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 1 << 10, false), "flat");
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 64 << 10, false), "two_shot");
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 64 << 10, false), "flat");
	facts.own_links = false; /* Whole vectors, in as few phases. */
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 64 << 10, false), "recursive_doubling");
}
END_TEST

/* Measured, two hosts of 4 ranks and four of 2 on the same 2 cores, TCP at 1 Gbit/s: what all ranks
 * of a core do takes turns, and messages that stay within nodes cost little of what others do. */
START_TEST(nodes_that_share_cores_save_messages)
{
	struct rb_nodes nodes;

	for (uint32_t size = 2; size <= 4; size += 2)
		for (int plain = 0; plain < 2; plain++) {
			struct rb_choice_facts facts = crowded(8);

			nodes_of(&nodes, 8, size);
			facts.nodes = &nodes;
			facts.mapped = false;
			facts.network = (struct rb_link) { .latency_us = size == 4 ? 6.8 : 10.2,
							   .byte_us = 0.009,
							   .message_us = 6.8,
							   .copied_bytes = 1e18,
							   .piece_bytes = 65000 };
			ck_assert_str_eq(name_of(facts, RB_KIND_BROADCAST, 1 << 10, plain),
					 "binomial");
			ck_assert_str_eq(name_of(facts, RB_KIND_REDUCE, 1 << 10, plain),
					 "binomial");
			ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 1 << 10, plain),
					 "recursive_doubling");
		}
}
END_TEST

/* Few messages where one costs much, and chunks that are worth it. */
START_TEST(messages_cost_what_was_measured)
{
	struct rb_choice_facts facts = node(64, false);
	struct rb_nodes nodes;

	nodes_of(&nodes, 64, 1);
	facts.nodes = &nodes;
	facts.host_ranks = 1;
	facts.own_links = true;
	facts.network = (struct rb_link) { .latency_us = 20, .byte_us = 0.0008, .message_us = 0.5 };
	ck_assert_str_eq(name_of(facts, RB_KIND_BARRIER, 0, false), "flat");
	facts.network.message_us = 20;
	ck_assert_str_eq(name_of(facts, RB_KIND_BARRIER, 0, false), "dissemination");
	nodes_of(&nodes, 8, 4);
	facts = node(8, false);
	facts.nodes = &nodes;
	facts.network = (struct rb_link) { .latency_us = 20,
					   .byte_us = 0.008,
					   .message_us = 8 }; /* 1 Gbit/s, TCP. */
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLREDUCE, "hierarchical", 64 << 20),
			  256 << 10);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLREDUCE, "hierarchical", 4 << 20),
			  32 << 10);
	ck_assert_uint_eq(chunk_bytes(&facts, RB_KIND_ALLREDUCE, "hierarchical", 1 << 20),
			  16 << 10);
	facts.network.byte_us = 0.0008; /* 10 Gbit/s. */
	ck_assert_uint_ge(chunk_bytes(&facts, RB_KIND_ALLREDUCE, "hierarchical", 4 << 20),
			  96 << 10);
}
END_TEST

/* What a message takes where nobody has measured it: a tenth more or less, and both are one. */
START_TEST(messages_cost_what_was_guessed)
{
	struct rb_choice_facts facts = node(8, false);
	struct rb_nodes nodes;

	nodes_of(&nodes, 8, 4);
	facts.nodes = &nodes;
	facts.cores = 8;
	facts.host_ranks = 4;
	facts.network = (struct rb_link) { .latency_us = 30, .byte_us = 0.008, .message_us = 0 };
	ck_assert_str_eq(name_of(facts, RB_KIND_GATHER, 768, false), "hierarchical_staged");
	ck_assert_str_eq(name_of(facts, RB_KIND_GATHER, 832, false), "flat");
}
END_TEST

/* Where cards put well, and nowhere else; an algorithm that stays within nodes to put between them
 * asks for no more. */
START_TEST(puts_are_for_where_they_are_good)
{
	static const struct {
		enum rb_kind kind;
		const char *name;
	} by_node[] = { { RB_KIND_BROADCAST, "hierarchical_put" },
			{ RB_KIND_REDUCE_SCATTER, "hierarchical_put" },
			{ RB_KIND_ALLGATHER, "hierarchical_put" },
			{ RB_KIND_ALLTOALL, "hierarchical_direct_put" } };
	struct rb_choice_facts facts = node(8, false);
	struct rb_nodes nodes;

	nodes_of(&nodes, 8, 4);
	facts.nodes = &nodes;
	facts.host_ranks = 4;
	facts.network = (struct rb_link) { .latency_us = 5,
					   .byte_us = 0.00008,
					   .message_us = 0 }; /* 100 Gbit/s. */
	facts.put = true;
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 4 << 20, false), "hierarchical");
	facts.puts_within = true;
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 4 << 20, false), "hierarchical");
	facts.puts_between = true;
	facts.puts_within = false;
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 4 << 20, false), "hierarchical_put");
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 4 << 20, true),
			 "hierarchical_put_staged");
	ck_assert_str_ne(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, false), "flat_put");
	for (size_t i = 0; i < sizeof(by_node) / sizeof(by_node[0]); i++) {
		char staged[64];

		(void)snprintf(staged, sizeof(staged), "%s_staged", by_node[i].name);
		ck_assert_str_eq(name_of(facts, by_node[i].kind, 16 << 20, false), by_node[i].name);
		ck_assert_str_eq(name_of(facts, by_node[i].kind, 16 << 20, true), staged);
	}
	nodes_of(&nodes, 8, 1);
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 64 << 20, false), "ring_put");
	ck_assert_str_eq(name_of(facts, RB_KIND_REDUCE_SCATTER, 64 << 20, false), "ring_put");
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLTOALL, 4 << 20, false), "flat_put");
	facts.put = false;
	ck_assert_str_eq(name_of(facts, RB_KIND_ALLREDUCE, 64 << 20, false), "ring");
}
END_TEST

/* A row without cost terms would look cheapest of all, or be of no use. */
START_TEST(every_algorithm_has_a_cost_and_a_use)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];

		ck_assert_msg(has_terms(&a->cost.phases) && has_terms(&a->cost.messages) &&
				      (a->kind == RB_KIND_BARRIER || has_terms(&a->cost.vectors)),
			      "%s %s has no cost", rb_kind_name(a->kind), a->name);
		ck_assert_msg(a->forced_only != is_chosen((int)i), "%s %s is %s chosen",
			      rb_kind_name(a->kind), a->name, a->forced_only ? "" : "never");
	}
}
END_TEST

/* On one node the costs of what goes over nodes are next to nothing. */
START_TEST(candidates_alone_have_a_time)
{
	struct rb_choice_facts facts = node(4, true);

	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];
		bool none = a->by_node || (a->own_link && a->pieces > 0) || a->forced_only ||
			    a->rank_max < 4 || a->flags & RB_SCHEDULE_PUT;

		ck_assert_msg((rb_predict(&facts, i, 1 << 20, 4) < 0) == none, "%s %s",
			      rb_kind_name(a->kind), a->name);
	}
}
END_TEST

START_TEST(by_name_or_not_at_all)
{
	struct rb_choice_facts facts = node(4, false);
	int ring = rb_algorithm_find(RB_KIND_ALLREDUCE, "ring");
	int direct = rb_algorithm_find(RB_KIND_ALLREDUCE, "direct");
	int put = rb_algorithm_find(RB_KIND_ALLGATHER, "ring_put");
	struct rb_choice c;

	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1, 4, ring, &c), RUBATO_OK);
	ck_assert_int_eq(c.algorithm, ring);
	ck_assert_int_eq(c.staged, ring);
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1, 4, direct, &c),
			 RUBATO_ERR_UNSUPPORTED);
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLGATHER, 1, 4, put, &c),
			 RUBATO_ERR_UNSUPPORTED);
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_REDUCE, 1, 4, ring, &c), RUBATO_ERR_ARGUMENT);
	facts.mapped = true;
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1 << 20, 4, direct, &c), RUBATO_OK);
	ck_assert_int_eq(c.algorithm, direct);
	ck_assert_str_eq(rb_algorithms[c.staged].name, "staged");
	facts.rank_count = 5000;
	ck_assert_int_eq(rb_choose(&facts, RB_KIND_ALLREDUCE, 1, 4, ring, &c),
			 RUBATO_ERR_UNSUPPORTED);
}
END_TEST

/* Of two that take the same time the last bit decides: it is one for all, however they round. */
START_TEST(how_a_thread_rounds_changes_no_choice)
{
	static const int modes[] = { FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };

	for (uint32_t i = 0; i < 2000; i++) {
		int mode = modes[i % 3];
		uint32_t n = 2 + i % 15;
		enum rb_kind kind = rb_algorithms[i * 7 % rb_algorithm_count].kind;
		struct rb_choice_facts facts = i % 2 ? node(n, i % 4 == 1) : machines(n);
		struct rb_choice nearest, otherwise;
		double us[2];

		if (kind == RB_KIND_SENDRECV) /* There is nothing to choose. */
			continue;
		ck_assert_int_eq(rb_choose(&facts, kind, i, 4, -1, &nearest), RUBATO_OK);
		us[0] = rb_predict(&facts, nearest.algorithm, i, 4);
		ck_assert_int_eq(fesetround(mode), 0);
		ck_assert_int_eq(rb_choose(&facts, kind, i, 4, -1, &otherwise), RUBATO_OK);
		us[1] = rb_predict(&facts, nearest.algorithm, i, 4);
		ck_assert_int_eq(fegetround(), mode);
		ck_assert_int_eq(fesetround(FE_TONEAREST), 0);
		ck_assert_uint_eq(otherwise.algorithm, nearest.algorithm);
		ck_assert_uint_eq(otherwise.staged, nearest.staged);
		ck_assert_uint_eq(otherwise.chunk, nearest.chunk);
		ck_assert(memcmp(&us[0], &us[1], sizeof(us[0])) == 0);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("choice");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_algorithm_has_a_cost_and_a_use);
	tcase_add_test(tc, paths_by_size);
	tcase_add_test(tc, ranks_that_share_cores_send);
	tcase_add_test(tc, mapped_buffers_gain_what_asking_for_them_costs);
	tcase_add_test(tc, own_links_are_used);
	tcase_add_test(tc, phases_overlap_by_pieces);
	tcase_add_test(tc, a_burst_passes_at_once);
	tcase_add_test(tc, two_ranks_apart_exchange);
	tcase_add_test(tc, an_alltoall_that_fills_the_outer_cache_goes_through_scratch);
	tcase_add_test(tc, networks_are_spared);
	tcase_add_test(tc, puts_are_for_where_they_are_good);
	tcase_add_test(tc, nodes_that_share_cores_save_messages);
	tcase_add_test(tc, messages_cost_what_was_measured);
	tcase_add_test(tc, messages_cost_what_was_guessed);
	tcase_add_test(tc, choices_fit_everywhere);
	tcase_add_test(tc, slots_that_alternate_are_cheaper_while_they_fit);
	tcase_add_test(tc, long_messages_go_by_a_kernel_that_copies_fast);
	tcase_add_test(tc, what_the_kernel_copies_goes_in_long_messages);
	tcase_add_test(tc, curves_cross_where_they_do);
	tcase_add_test(tc, messages_from_many_are_cheaper_where_caches_are_larger);
	tcase_add_test(tc, a_tree_of_sums_is_charged_to_the_core_of_its_root);
	tcase_add_test(tc, an_alltoall_gains_nothing_by_scratch);
	tcase_add_test(tc, candidates_alone_have_a_time);
	tcase_add_test(tc, by_name_or_not_at_all);
	tcase_add_test(tc, how_a_thread_rounds_changes_no_choice);
	return check_main("choice", tc);
}
