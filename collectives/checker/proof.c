/* proof.c -- see proof.h: the cases, and the sentences. */
#include "collectives/checker/proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/checker/joint.h"

#define INSTANCES 3
#define CHUNKS 6 /* Of a block: more than any step has slots. */

struct prover {
	const struct rb_joint *joint; /* Of the moment. */
	const struct rb_check_limits *limits;
	struct rb_proof *proof;
};

static rubato_status prove_layouts(struct prover *p, const struct rb_joint_layouts *layouts)
{
	const struct rb_joint *joint = p->joint;
	bool apart_only = rb_joint_told_in_place(joint->algorithm->kind) && !joint->in_place;
	struct rb_proof *proof = p->proof;
	char name[200];

	for (int in_place = 0; in_place <= !apart_only && proof->proved; in_place++) {
		struct rb_check_result result;

		RB_TRY(rb_joint_check(joint, layouts, in_place, INSTANCES, p->limits, &result));
		proof->proved = result.proved;
		proof->cases++;
		proof->events += result.events;
		proof->pairs += result.pairs;
		if (!result.proved)
			(void)snprintf(proof->text, sizeof(proof->text), "%s: %s",
				       rb_joint_text(joint, layouts, in_place, name, sizeof(name)),
				       result.text);
	}
	return RUBATO_OK;
}

static rubato_status prove_even(struct prover *p, uint64_t count, uint64_t chunk)
{
	struct rb_joint_layouts layouts;
	rubato_status err = rb_joint_even(&layouts, p->joint, count, chunk, 1);

	if (err == RUBATO_OK)
		err = prove_layouts(p, &layouts);
	rb_joint_layouts_free(&layouts);
	return err;
}

/* Some blocks empty, some longer than others; all together not more than the count. */
static uint64_t length_of(const void *arg, uint32_t s, uint32_t d)
{
	static const uint8_t weights[] = { 2, 0, 5, 1, 3 };
	const uint64_t *longest = arg;

	return *longest * weights[(s + 2 * d) % 5] / 5;
}

static rubato_status prove_uneven(struct prover *p, enum rb_gaps gaps, uint64_t count,
				  uint64_t chunk)
{
	struct rb_joint_layouts layouts;
	uint64_t longest = count / p->joint->rank_count;
	rubato_status err = rb_joint_uneven(&layouts, p->joint, chunk, gaps, length_of, &longest);

	if (err == RUBATO_OK)
		err = prove_layouts(p, &layouts);
	rb_joint_layouts_free(&layouts);
	return err;
}

static rubato_status prove_joint(struct prover *p, uint64_t count)
{
	const struct rb_algorithm *a = p->joint->algorithm;
	uint64_t blocks = rb_algorithm_blocks(a, p->joint->rank_count, p->joint->nodes);
	uint64_t most = count > 0 ? count : 2 * CHUNKS * blocks + (a->kind != RB_KIND_ALLTOALL);
	uint64_t chunk = most / (CHUNKS * blocks) > 0 ? most / (CHUNKS * blocks) : 1;
	uint64_t huge = (uint64_t)1 << 33;

	if (a->kind == RB_KIND_BARRIER)
		return prove_even(p, 0, 1);
	/* An alltoallv's count bounds its blocks; of the even ones a rest may be left. */
	if (a->kind != RB_KIND_ALLTOALLV && rb_joint_wants_even(p->joint) &&
	    count % p->joint->rank_count != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "%s %s takes blocks that are equally long: %" PRIu64
			       " elements are no multiple of %u ranks",
			       rb_kind_name(a->kind), a->name, count, p->joint->rank_count);
	RB_TRY(prove_even(p, most, chunk));
	RB_TRY(prove_even(p, most, most)); /* One chunk. */
	if (count == 0) {
		RB_TRY(prove_even(p, blocks / 2, 1)); /* Blocks without elements. */
		RB_TRY(prove_even(p, huge, huge / blocks / 3 + 1));
	}
	if (!rb_joint_takes_uneven(p->joint))
		return RUBATO_OK;
	if (!rb_kind_uneven(a->kind))
		return prove_uneven(p, RB_GAPS_NONE, most, chunk);
	RB_TRY(prove_uneven(p, RB_GAPS_SAME, most, chunk));
	return prove_uneven(p, rb_joint_gaps(p->joint), most, chunk);
}

/* What was shown, once all cases are. */
static void text_write(const struct rb_proof_case *what, uint32_t roots, struct rb_proof *proof)
{
	const struct rb_algorithm *a = what->algorithm;
	const char *results = "Each element of a result is the very element of an input that it "
			      "must be.";
	char of_roots[48] = "", on_nodes[48] = "";

	if (a->kind == RB_KIND_BARRIER)
		results = "No rank leaves before every rank has come.";
	else if (rb_kind_reduces(a->kind))
		results = "Each element of a result has every rank's input in it exactly once, "
			  "reduced in the same order wherever it is reduced.";
	if (rb_algorithm_rooted(a))
		(void)snprintf(of_roots, sizeof(of_roots), ", %u %s%s", roots,
			       a->late ? "late rank" : "root", roots == 1 ? "" : "s");
	if (what->nodes != NULL)
		(void)snprintf(on_nodes, sizeof(on_nodes), " on %u node%s", what->nodes->count,
			       what->nodes->count == 1 ? "" : "s");
	(void)snprintf(
		proof->text, sizeof(proof->text),
		"%s %s is proved on %u rank%s%s%s: %u cases, each of three operations in a row. It "
		"ends, even if every send waits until it is received. %s Any two accesses to the "
		"same memory, one of them a write, are ordered (%" PRIu64 " pairs), also when a "
		"buffer is used again. Every rank sends the bytes of the formula.",
		rb_kind_name(a->kind), a->name, what->rank_count, what->rank_count == 1 ? "" : "s",
		on_nodes, of_roots, proof->cases, results, proof->pairs);
}

/* Whether pairs of a node may be apart. */
static bool takes_apart(const struct rb_algorithm *a)
{
	return a->kind == RB_KIND_ALLTOALLV && (a->flags & RB_SCHEDULE_MAPPED_BUFFERS) != 0;
}

/* Which pairs are, in each form: none, two of three, and all. */
#define APART_FORMS 3u

static const uint8_t *apart_draw(uint8_t *apart, uint32_t n, uint32_t form)
{
	for (uint32_t r = 0; r < n; r++)
		for (uint32_t p = 0; p < n; p++)
			apart[(size_t)r * n + p] = form == 2 || (r + p + r * p) % 3 > 0;
	return form > 0 ? apart : NULL;
}

rubato_status rb_prove(const struct rb_proof_case *what, const struct rb_check_limits *limits,
		       struct rb_proof *proof)
{
	enum rb_kind kind = what->algorithm->kind;
	bool rooted = rb_algorithm_rooted(what->algorithm), all = what->root == RB_PROOF_ROOTS_ALL;
	uint32_t first = rooted && !all ? what->root : 0;
	uint32_t roots = rooted && all ? what->rank_count : 1;
	bool told = rb_joint_told_in_place(kind);
	uint32_t pairs = takes_apart(what->algorithm) ? APART_FORMS : 1, forms = (1 + told) * pairs;
	uint8_t *apart = calloc((size_t)what->rank_count * what->rank_count, 1);
	rubato_status err = RUBATO_OK;

	if (apart == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "a proof of %u ranks", what->rank_count);
	*proof = (struct rb_proof) { .proved = true };
	for (uint32_t i = 0; i < roots * forms && proof->proved && err == RUBATO_OK; i++) {
		struct rb_joint joint = { .algorithm = what->algorithm,
					  .rank_count = what->rank_count,
					  .root = first + i / forms,
					  .nodes = what->nodes,
					  .apart = apart_draw(apart, what->rank_count, i % pairs),
					  .in_place = i / pairs % (1 + told) == 1 };
		struct prover prover = { &joint, limits, proof };

		err = rb_joint_build(&joint);
		if (err == RUBATO_OK)
			err = prove_joint(&prover, what->count);
		rb_joint_free(&joint);
	}
	free(apart);
	RB_TRY(err);
	if (proof->proved)
		text_write(what, roots, proof);
	return RUBATO_OK;
}
