/*
 * joint.h -- all ranks' schedules of one collective, and layouts to check them on: what checker.h
 * takes. For proofs and tests: it allocates. Errors: MEMORY.
 */
#ifndef RB_COLLECTIVES_JOINT_H
#define RB_COLLECTIVES_JOINT_H

#include "collectives/checker/checker.h"
#include "collectives/stage.h"

struct rb_joint {
	const struct rb_algorithm *algorithm;
	uint32_t rank_count, root;
	const struct rb_nodes *nodes;  /* The caller's; NULL: all ranks are on one. */
	const uint8_t *apart;          /* Likewise: rb_check's. */
	bool in_place;                 /* As the builder was told. */
	struct rb_schedule *schedules; /* One per rank; the joint's. */
	bool device_messages;          /* As rb_staging.takes says, of all peers. */
};

/* Builds every rank's schedule, each into arrays of just the right size; all else is set. Free it
 * also after an error. */
RB_NODISCARD rubato_status rb_joint_build(struct rb_joint *joint);
void rb_joint_free(struct rb_joint *joint);
/* Each rank's schedule for the kinds of its buffers: stagings[r]. Once. */
RB_NODISCARD rubato_status rb_joint_stage(struct rb_joint *joint,
					  const struct rb_staging *stagings);

/* ALLTOALL(V): schedules for memory in place are others. */
static inline bool rb_joint_told_in_place(enum rb_kind kind)
{
	return kind == RB_KIND_ALLTOALL || kind == RB_KIND_ALLTOALLV;
}
/* Whether all blocks must be equally long: spans lie elsewhere than their steps' ranges. */
bool rb_joint_wants_even(const struct rb_joint *joint);
/* Whether steps take blocks one by one, so that these need not be even. */
bool rb_joint_takes_uneven(const struct rb_joint *joint);

struct rb_joint_layouts { /* One per rank. */
	uint32_t rank_count;
	struct rb_layout *each;
	uint64_t *numbers; /* Where their arrays are. */
	const char *name;
};

/* The same even blocks everywhere. Rounds the count down to equal ones where they must be. Free
 * them also after an error. */
RB_NODISCARD rubato_status rb_joint_even(struct rb_joint_layouts *layouts,
					 const struct rb_joint *joint, uint64_t count,
					 uint64_t chunk, uint32_t align);

/* The same ones on all ranks, or starts that differ from rank to rank. */
enum rb_gaps { RB_GAPS_NONE, RB_GAPS_SAME, RB_GAPS_PER_RANK };
/* Of a V: how far its blocks' starts may differ. Where a rank touches another's blocks on behalf of
 * its node, they do not: only those of ALLTOALLV ever may. */
static inline enum rb_gaps rb_joint_gaps(const struct rb_joint *joint)
{
	const struct rb_algorithm *a = joint->algorithm;
	bool touches = a->by_node && (a->flags & RB_SCHEDULE_MAPPED_BUFFERS) != 0;

	return touches && a->kind != RB_KIND_ALLTOALLV ? RB_GAPS_SAME : RB_GAPS_PER_RANK;
}

/*
 * Uneven blocks: length(arg, s, d) elements go from rank s to rank d in ALLTOALLV; in the others
 * d is the block and s is 0. Where the schedules are for memory in place, ALLTOALLV takes
 * min(s, d), max(s, d).
 */
typedef uint64_t rb_joint_length(const void *arg, uint32_t s, uint32_t d);
RB_NODISCARD rubato_status rb_joint_uneven(struct rb_joint_layouts *layouts,
					   const struct rb_joint *joint, uint64_t chunk,
					   enum rb_gaps gaps, rb_joint_length *length,
					   const void *arg);
void rb_joint_layouts_free(struct rb_joint_layouts *layouts);

/* Runs the checker. `limits` may be NULL. */
RB_NODISCARD rubato_status rb_joint_check(const struct rb_joint *joint,
					  const struct rb_joint_layouts *layouts, bool in_place,
					  uint32_t instances, const struct rb_check_limits *limits,
					  struct rb_check_result *result);

/* "allreduce ring, 5 ranks root 0, count 17 chunk 2, in place": for messages. Returns text. */
const char *rb_joint_text(const struct rb_joint *joint, const struct rb_joint_layouts *layouts,
			  bool in_place, char *text, size_t text_bytes);

#endif
