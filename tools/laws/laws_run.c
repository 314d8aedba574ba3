/*
 * laws_run.c -- what a rank of a trial does: steps of work, commits to all operations, then
 * collects from all of them, in an order of its own; drains, or leaves; frees. All that it does and
 * is given it writes down. See laws.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

/* Virtual: of waiting for one operation before looking at the next; longer from turn to turn. */
#define TURN_NS 20000u
#define TURN_NS_MAX 20000000u
#define PATIENCE_NS 20000000000u /* Of a rank that calls again after a timeout. */
#define LATE_NS 1000000u         /* After its deadline: of a call in a sound world. */
#define LINGER_NS 10000000000u   /* From a leave to the end. */

struct job { /* One rank's side. */
	rubato_comm *comm;
	struct laws_trial *trial;
	uint32_t rank, n, steps;
	struct rng random;
	rubato_partial *partials[LAWS_OPS_MAX];
	bool leased[LAWS_OPS_MAX];
	void *buffer; /* For contribute and collect; */
	void *there;  /* of a device: NULL: none. */
	struct loan {
		const void *result; /* NULL: none. */
		const rubato_contribution *ranks;
		uint64_t round, digest, named;
		uint32_t committed; /* Before it was lent. */
	} loans[LAWS_OPS_MAX];
};

static struct laws_op *op_of(const struct job *job, uint32_t op)
{
	return &job->trial->ops[op];
}

static struct laws_rank *side_of(const struct job *job, uint32_t op)
{
	return &op_of(job, op)->ranks[job->rank];
}

/* The operation that this rank takes as number i: ranks differ. */
static uint32_t op_at(const struct job *job, uint32_t i)
{
	return (i + job->rank) % job->trial->op_count;
}

static bool holds(struct job *job)
{
	return job->trial->hold > 0 && laws_chance(&job->random, job->trial->hold);
}

static void hold(struct job *job)
{
	rubato_sleep(job->comm, 1 + laws_below(&job->random, job->trial->skew_ns + 20000));
}

/* A call that must not take time; false: it did. */
static bool instant(struct job *job, uint64_t begin_ns, const char *call)
{
	if (rubato_now(job->comm) == begin_ns)
		return true;
	laws_break(job->trial, "progress: rank %u: %s took time", job->rank, call);
	return false;
}

/* ---- What the library says of itself ---- */

static uint64_t rounds_now(struct job *job, uint32_t op)
{
	struct laws_rank *side = side_of(job, op);

	side->stats.size_bytes = sizeof(side->stats);
	if (rubato_partial_get_stats(job->partials[op], &side->stats) != RUBATO_OK)
		laws_break_rank(op_of(job, op), NULL, job->rank, " has no statistics");
	return side->stats.rounds;
}

static uint64_t look(struct job *job, uint32_t op)
{
	struct laws_op *o = op_of(job, op);
	struct laws_rank *side = side_of(job, op);
	struct laws_need need;

	(void)rounds_now(job, op);
	need = (struct laws_need) { side->stats.rounds, side->stats.quorum };
	for (uint32_t i = o->need_count; i > 0 && i + 8 > o->need_count; i--)
		if (o->needs[i - 1].round == need.round && o->needs[i - 1].need == need.need)
			return need.round;
	o->needs = laws_grow(o->needs, o->need_count, &o->need_room, sizeof(*o->needs));
	o->needs[o->need_count++] = need;
	return need.round;
}

/* ---- Commits ---- */

static void *lease_take(struct job *job, uint32_t op)
{
	const struct laws_op *o = op_of(job, op);
	bool fresh = !job->leased[op];
	void *buffer = NULL, *again = NULL;

	if (rubato_partial_acquire(job->partials[op], &buffer) != RUBATO_OK ||
	    rubato_partial_acquire(job->partials[op], &again) != RUBATO_OK || again != buffer)
		laws_break(job->trial, "lease: operation %u: rank %u", op, job->rank);
	job->leased[op] = true;
	if (buffer != NULL && fresh && o->options.zeroed && !laws_is_identity(o, buffer))
		laws_break_rank(op_of(job, op), "lease", job->rank,
				"'s buffer does not hold the identity");
	return buffer;
}

/* Writes the next contribution, perhaps in two goes: nobody else may touch it in between. */
static void *lease_write(struct job *job, uint32_t op)
{
	const struct laws_op *o = op_of(job, op);
	uint32_t index = side_of(job, op)->commit_count;
	size_t half = (size_t)(o->count / 2), bytes = half * rubato_type_bytes(o->type);
	bool lease = !job->trial->convenient, fresh = !job->leased[op];
	bool add = lease && fresh && o->options.zeroed != 0;
	void *buffer = lease ? lease_take(job, op) : job->buffer;
	uint64_t before;

	if (buffer == NULL)
		return NULL;
	laws_write(o, job->rank, index, buffer, 0, half, add);
	before = laws_digest(buffer, bytes);
	if (lease && holds(job))
		hold(job);
	if (lease && lease_take(job, op) != buffer)
		laws_break_rank(op_of(job, op), "lease", job->rank, "'s moves");
	if (laws_digest(buffer, bytes) != before)
		laws_break_rank(op_of(job, op), "lease", job->rank, "'s changes while it is held");
	laws_write(o, job->rank, index, buffer, half, o->count, add);
	return buffer;
}

static uint64_t next_step(const struct job *job, uint32_t op)
{
	const struct laws_rank *side = side_of(job, op);
	uint32_t count = side->commit_count;

	if (count == 0 || side->commits[count - 1].era != side->era)
		return laws_first_step(op_of(job, op), job->rank, side->era);
	return side->commits[count - 1].step + laws_gap(op_of(job, op), job->rank, count);
}

static size_t bytes_of(const struct job *job, uint32_t op)
{
	const struct laws_op *o = op_of(job, op);

	return (size_t)o->count * rubato_type_bytes(o->type);
}

static rubato_status contribute(struct job *job, uint32_t op, const void *buffer,
				const struct laws_commit *c)
{
	const void *from = laws_device_put(job->comm, job->there, buffer, bytes_of(job, op));
	rubato_status err = rubato_partial_contribute(job->partials[op], from, c->step, c->weight);

	laws_device_spoil(job->comm, job->there, bytes_of(job, op));
	return err;
}

static rubato_status commit(struct job *job, uint32_t op)
{
	struct laws_rank *side = side_of(job, op);
	uint32_t index = side->commit_count;
	struct laws_commit c = { .step = next_step(job, op),
				 .weight = laws_weight(op_of(job, op), job->rank, index),
				 .era = side->era };
	void *buffer = lease_write(job, op);
	rubato_status err;

	c.completed = look(job, op);
	c.caught_up = side->none_completed == c.completed;
	/* The round that was running then may have been joined, and counts as taken. */
	c.behind = side->none_completed < c.completed && c.completed - side->none_completed > 1;
	c.at_ns = rubato_now(job->comm);
	c.duration_ns = c.at_ns - side->worked_since_ns;
	side->commits = laws_grow(side->commits, side->commit_count, &side->commit_room,
				  sizeof(*side->commits));
	/* Before: others may collect it before the call returns. */
	side->commits[side->commit_count++] = c;
	if (job->trial->convenient)
		err = contribute(job, op, buffer, &c);
	else
		err = rubato_partial_commit(job->partials[op], c.step, c.weight);
	if (err != RUBATO_OK)
		side->commit_count--;
	else
		job->leased[op] = false;
	if (job->there == NULL) /* Where a rank polls for its device, a poll may take 1 us. */
		(void)instant(job, c.at_ns, "commit");
	return err;
}

/* ---- Results ---- */

static void loan_digest(const struct job *job, uint32_t op, struct loan *loan)
{
	const struct laws_op *o = op_of(job, op);

	loan->digest = laws_digest(loan->result, (size_t)o->count * rubato_type_bytes(o->type));
	loan->named = laws_digest(loan->ranks, job->n * sizeof(*loan->ranks));
}

/* Gives back what is lent, if anything: it must be as it was. */
static rubato_status loan_end(struct job *job, uint32_t op)
{
	struct laws_rank *side = side_of(job, op);
	struct loan loan = job->loans[op], now = loan;
	rubato_status err = RUBATO_OK;
	uint64_t begin_ns = rubato_now(job->comm);

	if (loan.result == NULL)
		return RUBATO_OK;
	loan_digest(job, op, &now);
	if (now.digest != loan.digest || now.named != loan.named)
		laws_break(job->trial,
			   "loan: operation %u, round %llu changes while rank %u has it", op,
			   (unsigned long long)loan.round, job->rank);
	job->loans[op].result = NULL;
	side->holds = false;
	if (!job->trial->convenient)
		err = rubato_partial_release(job->partials[op]);
	(void)instant(job, begin_ns, "release");
	if (look(job, op) <= loan.round + 1) /* There is no more. */
		side->none_completed = loan.round + 1;
	else if (side->commit_count > loan.committed)
		side->none_completed = LAWS_NEVER; /* Own: what that skips it has had. */
	return err;
}

static void refused(struct job *job, rubato_status err, const char *call)
{
	bool lost = laws_crashes(job->trial) && err == RUBATO_ERR_PEER;

	if (err != RUBATO_ERR_ARGUMENT && !lost)
		laws_break(job->trial, "misuse: rank %u: %s: %s", job->rank, call,
			   rubato_status_name(err));
}

/* Whether it calls what must be refused: with what is certain only while all goes well. */
static bool is_rude(const struct job *job)
{
	return job->trial->rude && !laws_crashes(job->trial) && job->trial->differs == LAWS_NONE;
}

static void rude_lent(struct job *job, uint32_t op)
{
	const void *result;

	if (is_rude(job))
		refused(job, rubato_partial_collect_view(job->partials[op], &result, NULL, 0),
			"collect with a loan");
}

/* *kept: it is not given back yet. */
static rubato_status result_use(struct job *job, uint32_t op, const void *result,
				const rubato_round *round, bool *kept)
{
	bool lent = !job->trial->convenient;
	struct laws_rank *side = side_of(job, op);
	struct loan *loan = &job->loans[op];

	*loan = (struct loan) { .result = result,
				.ranks = round->ranks,
				.round = round->round,
				.committed = side->commit_count };
	loan_digest(job, op, loan);
	laws_see(op_of(job, op), job->rank, result, round, rubato_now(job->comm));
	side->holds = lent;
	if (lent)
		rude_lent(job, op);
	if (lent && holds(job))
		hold(job);
	*kept = job->trial->keeps && !side->drains && !side->left && laws_chance(&job->random, 3);
	if (!*kept)
		return loan_end(job, op);
	side->none_completed = round->round; /* Or that one: as it began to wait. */
	return RUBATO_OK;
}

/* There is none: it is told that an era is over, if it has drained. `before`: rounds that had
 * completed when the call began. */
static void none_note(struct job *job, uint32_t op, uint64_t before)
{
	struct laws_rank *side = side_of(job, op);
	struct laws_op *o = op_of(job, op);

	/* While it waited rounds completed, the last one perhaps after it had last looked for
	 * results. And some of the next era may be there: it has not caught up with them. */
	if (side->stats.rounds != before)
		side->none_completed = LAWS_NEVER;
	else if (!side->drains || side->next >= side->stats.rounds)
		side->none_completed = side->stats.rounds;
	else if (o->options.collection == RUBATO_COLLECT_OWN)
		side->none_completed = LAWS_NEVER;
	if (!side->drains)
		return;
	side->drains = false;
	side->told++;
	if (side->left)
		return;
	side->era++;
	if (o->begins[side->era] == LAWS_NEVER)
		o->begins[side->era] = side->next;
	if (o->begins[side->era] != side->next)
		laws_break(job->trial,
			   "cut: operation %u: era %u ends with round %llu on rank %u, with %llu "
			   "elsewhere",
			   op, side->era - 1, (unsigned long long)side->next - 1, job->rank,
			   (unsigned long long)o->begins[side->era] - 1);
	side->drained = side->era == job->trial->era_count;
}

/* That a call has kept to its timeout: not before, and not long after. */
static void timeout_judge(struct job *job, uint64_t timeout_ns, uint64_t took_ns, rubato_status err)
{
	bool looks = timeout_ns == RUBATO_NO_WAIT, sound = job->trial->world.fault_count == 0;
	uint64_t bound_ns = timeout_ns > 0 ? timeout_ns : job->trial->world.timeout_ns;

	if (err == RUBATO_ERR_TIMEOUT && (looks || took_ns < bound_ns))
		laws_break(job->trial, "progress: rank %u was timed out %llu ns too early",
			   job->rank, (unsigned long long)(bound_ns - took_ns));
	if (sound && took_ns > (looks ? 0 : bound_ns) + LATE_NS)
		laws_break(job->trial, "progress: rank %u waited %llu ns in a collect of %llu",
			   job->rank, (unsigned long long)took_ns, (unsigned long long)bound_ns);
	if (sound && job->trial->lingers && took_ns > LINGER_NS / 2)
		laws_break(job->trial, "progress: rank %u is held up for %llu ns by one that left",
			   job->rank, (unsigned long long)took_ns);
}

/* One result of an operation; *some false: there is none to wait for, or it is kept. TIMEOUT: it
 * must be waited for. */
static rubato_status take(struct job *job, uint32_t op, uint64_t timeout_ns, bool *some)
{
	struct laws_rank *side = side_of(job, op);
	rubato_partial *partial = job->partials[op];
	rubato_round round = { .size_bytes = sizeof(round) };
	uint64_t before, begin_ns, end_ns;
	const void *result = NULL;
	rubato_status err = loan_end(job, op);
	bool kept = false;

	if (err != RUBATO_OK)
		return err;
	before = rounds_now(job, op);
	begin_ns = rubato_now(job->comm);
	if (job->trial->convenient) {
		void *out = job->there != NULL ? job->there : job->buffer;

		err = rubato_partial_collect(partial, out, some, &round, timeout_ns);
		result = err == RUBATO_OK && *some ? job->buffer : NULL;
		if (result != NULL && out != job->buffer)
			rubato_sim_device_copy(job->comm, job->buffer, out, bytes_of(job, op));
	} else {
		err = rubato_partial_collect_view(partial, &result, &round, timeout_ns);
	}
	*some = err == RUBATO_OK && result != NULL;
	end_ns = rubato_now(job->comm);
	side->waited_ns += end_ns - begin_ns;
	side->worked_since_ns = end_ns;
	timeout_judge(job, timeout_ns, end_ns - begin_ns, err);
	if (err != RUBATO_OK)
		return err;
	laws_note(op_of(job, op), job->rank,
		  &(struct laws_collect) { .round = *some ? round.round : LAWS_NEVER,
					   .begin_ns = begin_ns,
					   .at_ns = end_ns,
					   .completed = look(job, op),
					   .looks = timeout_ns == RUBATO_NO_WAIT });
	if (!*some && timeout_ns != RUBATO_NO_WAIT)
		none_note(job, op, before);
	if (!*some)
		return RUBATO_OK;
	err = result_use(job, op, result, &round, &kept);
	*some = !kept;
	return err;
}

static rubato_status failed(struct job *job, rubato_status err)
{
	if (err == RUBATO_ERR_TIMEOUT && job->trial->dump)
		rubato_dump(job->comm, STDERR_FILENO);
	return err;
}

/* Until there is none to wait for. A timeout is no failure where a freeze is longer. */
static rubato_status collect(struct job *job, uint32_t op)
{
	uint64_t deadline_ns = rubato_now(job->comm) + PATIENCE_NS;
	bool some = true;

	while (some) {
		rubato_status err = RUBATO_OK;

		if (job->trial->peeks > 0 && laws_chance(&job->random, job->trial->peeks))
			err = take(job, op, RUBATO_NO_WAIT, &some);
		if (err == RUBATO_OK)
			err = take(job, op, RUBATO_TIMEOUT_DEFAULT, &some);

		if (err == RUBATO_ERR_TIMEOUT && job->trial->patient &&
		    rubato_now(job->comm) < deadline_ns) {
			some = true;
			continue;
		}
		if (err != RUBATO_OK)
			return failed(job, err);
	}
	return RUBATO_OK;
}

static rubato_status collect_all(struct job *job)
{
	bool single = job->trial->single && !job->trial->patient && laws_chance(&job->random, 2);
	rubato_status err = RUBATO_OK;
	bool some;

	for (uint32_t i = 0; i < job->trial->op_count && err == RUBATO_OK; i++)
		err = single ? take(job, op_at(job, i), RUBATO_TIMEOUT_DEFAULT, &some)
			     : collect(job, op_at(job, i));
	return err;
}

/* Who drains, or has left, collects from each operation in turn. */
static rubato_status collect_in_turns(struct job *job)
{
	uint64_t deadline_ns = rubato_now(job->comm) + PATIENCE_NS, turn_ns = TURN_NS;
	uint32_t ops = job->trial->op_count, open = (1u << ops) - 1;

	if (ops == 1)
		return collect(job, 0);
	while (open != 0) {
		for (uint32_t i = 0; i < ops; i++) {
			uint32_t op = op_at(job, i);
			rubato_status err = RUBATO_OK;
			bool some = (open & 1u << op) != 0;

			while (err == RUBATO_OK && some)
				err = take(job, op, turn_ns, &some);
			if (err == RUBATO_OK)
				open &= ~(1u << op);
			else if (err != RUBATO_ERR_TIMEOUT)
				return err;
		}
		if (open != 0 && rubato_now(job->comm) > deadline_ns)
			return failed(job, RUBATO_ERR_TIMEOUT);
		turn_ns = turn_ns < TURN_NS_MAX ? turn_ns * 2 : turn_ns;
	}
	return RUBATO_OK;
}

/* ---- Calls that must be refused ---- */

static void rude(struct job *job, uint32_t op)
{
	rubato_partial *p = job->partials[op];
	const struct laws_rank *side = side_of(job, op);
	rubato_round round = { .size_bytes = sizeof(round) - 1 };
	const void *result;

	if (!is_rude(job))
		return;
	switch (laws_below(&job->random, 6)) {
	case 0:
		if (!job->leased[op])
			refused(job, rubato_partial_commit(p, UINT64_MAX, 1),
				"commit without a lease");
		break;
	case 1:
		if (job->loans[op].result != NULL)
			break;
		refused(job, rubato_partial_release(p), "release without a loan");
		refused(job, rubato_partial_collect_view(p, &result, &round, RUBATO_NO_WAIT),
			"collect into a round of another size");
		break;
	case 2:
		refused(job, rubato_partial_pending(p, &result, NULL), "pending");
		break;
	case 3:
		(void)lease_take(job, op);
		if (side->commit_count > 0)
			refused(job,
				rubato_partial_commit(p, side->commits[side->commit_count - 1].step,
						      1),
				"commit of an old number");
		break;
	case 4:
		(void)lease_take(job, op);
		refused(job, rubato_partial_commit(p, UINT64_MAX, UINT64_C(1) << 32),
			"commit with a weight of 2^32");
		break;
	default:
		if (!side->drains && !side->left)
			break;
		(void)lease_take(job, op);
		refused(job, rubato_partial_commit(p, UINT64_MAX, 1), "commit after drain");
		refused(job, rubato_partial_drain(p), "drain after drain");
		refused(job, rubato_partial_leave(p), "leave after drain");
	}
}

/* ---- Steps ---- */

/* A collective that blocks, of all ranks, after as many commits on each. */
static rubato_status beside(struct job *job)
{
	int64_t in = (int64_t)job->rank + job->steps, out = 0, want;
	rubato_status err;

	if (!job->trial->beside || job->steps % 3 != 1)
		return RUBATO_OK;
	if (job->steps % 2 == 0)
		return rubato_barrier(job->comm);
	err = rubato_allreduce(job->comm, &in, &out, 1, RUBATO_INT64, RUBATO_SUM);
	want = (int64_t)job->n * (job->n - 1) / 2 + (int64_t)job->n * job->steps;
	if (err == RUBATO_OK && out != want)
		laws_break(job->trial, "beside: rank %u has %lld, not %lld", job->rank,
			   (long long)out, (long long)want);
	return err;
}

static rubato_status step(struct job *job)
{
	uint32_t ops = job->trial->op_count;
	rubato_status err = RUBATO_OK;
	bool looks = job->trial->blind == 0 || !laws_chance(&job->random, job->trial->blind);

	rubato_sleep(job->comm, laws_skew_ns(job->trial, job->rank, job->steps));
	for (uint32_t i = 0; i < ops && err == RUBATO_OK; i++) {
		err = commit(job, op_at(job, i));
		rude(job, op_at(job, i));
	}
	job->steps++;
	if (err == RUBATO_OK && looks)
		err = collect_all(job);
	return err == RUBATO_OK ? beside(job) : err;
}

static rubato_status passive(struct job *job, bool leaves)
{
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; i < job->trial->op_count && err == RUBATO_OK; i++) {
		uint32_t op = op_at(job, i);
		struct laws_rank *side = side_of(job, op);
		uint64_t completed = look(job, op), begin_ns = rubato_now(job->comm);

		side->passives[side->passive_count++] =
			(struct laws_passive) { completed, side->era, side->commit_count, leaves };
		side->drains = true;
		side->left = leaves;
		err = leaves ? rubato_partial_leave(job->partials[op])
			     : rubato_partial_drain(job->partials[op]);
		(void)instant(job, begin_ns, "drain");
		rude(job, op);
	}
	return err;
}

static rubato_status drain(struct job *job)
{
	rubato_status err = passive(job, false);

	return err == RUBATO_OK ? collect_in_turns(job) : err;
}

static rubato_status era(struct job *job, uint32_t number, bool *left)
{
	const struct laws_trial *trial = job->trial;
	uint32_t steps = trial->steps[number][job->rank], most = steps * 4 + 4;
	bool last = number + 1 == trial->era_count;
	rubato_status err = RUBATO_OK;

	for (uint32_t k = 0; err == RUBATO_OK && !(last && trial->goner == job->rank); k++) {
		bool early = last && !trial->beside && rubato_now(job->comm) < trial->until_ns;

		if (k >= steps && !(early && k < most))
			break;
		if (trial->leaver == job->rank && number == trial->leave_era &&
		    k == trial->leave_step) {
			*left = true;
			err = passive(job, true);
			if (trial->lingers)
				rubato_sleep(job->comm, 4 * trial->skew_ns);
			return err == RUBATO_OK && trial->seed % 3 > 0 ? collect_in_turns(job)
								       : err;
		}
		err = step(job);
	}
	if (err == RUBATO_OK && last && trial->drains_first) /* Some wait for its end. */
		return laws_mix(trial->seed, 80, job->rank) % 2 == 0 ? passive(job, false)
								     : drain(job);
	if (err != RUBATO_OK || (last && (trial->parts_at_once || trial->goner == job->rank)))
		return err;
	err = drain(job);
	return err == RUBATO_OK ? beside(job) : err;
}

static rubato_status eras(struct job *job)
{
	rubato_status err = RUBATO_OK;
	bool left = false;

	for (uint32_t i = 0; i < job->trial->era_count && err == RUBATO_OK && !left; i++)
		err = era(job, i, &left);
	return err;
}

/* ---- The end ---- */

/* After the loss of a rank: the rounds that survivors agreed on, then what came back to us. */
static rubato_status end(struct job *job, uint32_t op)
{
	struct laws_rank *side = side_of(job, op);
	const struct laws_op *o = op_of(job, op);
	const void *buffer = NULL;
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; i < 3 && err == RUBATO_OK; i++) /* The end of an era may be told. */
		err = collect(job, op);
	if (err != RUBATO_ERR_PEER)
		return err;
	err = rubato_partial_pending(job->partials[op], &buffer, &side->pending);
	if (err != RUBATO_OK)
		return err;
	side->ended = true;
	if ((buffer != NULL) != (side->pending.count > 0))
		laws_break_rank(op_of(job, op), "recovery", job->rank,
				": pending without a buffer");
	if (buffer != NULL && side->pending.count > 0) {
		uint32_t first = laws_index_of(o, job->rank, side->pending.first_step);
		uint32_t last = laws_index_of(o, job->rank, side->pending.last_step);
		uint32_t count = side->pending.count;
		bool right = false;
		uint64_t at;

		/* What was joined and what was not may have a gap between them. */
		for (uint32_t k = 0; k < count && !right && first != LAWS_NONE; k++) {
			struct laws_part parts[2] = {
				{ job->rank, first, count - k },
				{ job->rank, last + 1 - k, k },
			};

			right = last + 1 >= first + count &&
				laws_result_right(o, parts, 2, 1, buffer, &at);
		}
		if (!right)
			laws_break_rank(op_of(job, op), "recovery", job->rank,
					" was given back other values than it had committed");
	}
	return RUBATO_OK;
}

static rubato_status create(struct job *job)
{
	struct laws_trial *trial = job->trial;
	size_t room = 8;
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; i < trial->op_count; i++) {
		size_t bytes = (size_t)trial->ops[i].count * rubato_type_bytes(trial->ops[i].type);

		room = bytes > room ? bytes : room;
	}
	job->buffer = malloc(room);
	job->there = laws_device_new(job->comm, trial, room);
	if (job->buffer == NULL || (job->there == NULL && trial->device))
		return RUBATO_ERR_MEMORY;
	for (uint32_t i = 0; i < trial->op_count && err == RUBATO_OK; i++) {
		struct laws_rank *side = side_of(job, i);

		side->made_ns = rubato_now(job->comm); /* At the earliest. */
		err = rubato_partial_create(job->comm, trial->ops[i].count, trial->ops[i].type,
					    trial->ops[i].reduction, &trial->ops[i].options,
					    &job->partials[i]);
		side->worked_since_ns = side->opened_ns = rubato_now(job->comm);
	}
	return err;
}

/* What of a round was waited for is part of it; and without results that hold it up, nothing but
 * the window keeps a rank from joining. */
static void phases_judge(struct job *job, uint32_t op)
{
	const struct laws_rank *side = side_of(job, op);
	const rubato_partial_options *o = &op_of(job, op)->options;
	const rubato_partial_stats *s = &side->stats;

	for (int i = 0; i < 4 && side->drained; i++)
		if (s->wait_ns[i] > s->round_ns[i])
			laws_break_rank(op_of(job, op), "figures", job->rank,
					" waited %llu ns in a phase of %llu",
					(unsigned long long)s->wait_ns[i],
					(unsigned long long)s->round_ns[i]);
	if (o->collection == RUBATO_COLLECT_LATEST && job->trial->world.fault_count == 0 &&
	    job->trial->hold == 0 && !job->trial->keeps &&
	    s->round_ns[1] > (s->rounds + 1) * o->window_ns)
		laws_break_rank(op_of(job, op), "figures", job->rank,
				" was joining for %llu ns in %llu rounds",
				(unsigned long long)s->round_ns[1], (unsigned long long)s->rounds);
}

/* The rest of the figures, and that the clocks agree with ours. */
static void figures(struct job *job, uint32_t op)
{
	struct laws_rank *side = side_of(job, op);
	const rubato_partial_stats *s = &side->stats;
	uint64_t now_ns = rubato_now(job->comm), in_rounds = 0, rounds_ns = 0, waited;

	(void)look(job, op);
	waited = s->call_ns;
	for (int i = 0; i < 4; i++) {
		in_rounds += s->round_ns[i];
		waited += s->wait_ns[i];
	}
	if (laws_crashes(job->trial) || job->trial->differs != LAWS_NONE)
		return;                                    /* Recovery has no phase of theirs. */
	for (uint32_t i = 0; i < side->collect_count; i++) /* It waited: so the round was on. */
		if (side->collects[i].round != LAWS_NEVER &&
		    side->collects[i].begin_ns < side->collects[i].at_ns)
			rounds_ns = side->collects[i].begin_ns - side->opened_ns;
	if (in_rounds < rounds_ns)
		laws_break_rank(op_of(job, op), "figures", job->rank,
				" was in rounds for %llu ns, not %llu",
				(unsigned long long)in_rounds, (unsigned long long)rounds_ns);
	phases_judge(job, op);
	if (in_rounds > now_ns - side->made_ns)
		laws_break_rank(op_of(job, op), "figures", job->rank,
				" was in rounds for too long");
	/* A poll in vain takes 1 us here now and then. */
	if ((waited != side->waited_ns && job->there == NULL) ||
	    (s->call_ns > 1000 * (side->commit_count + side->collect_count) &&
	     job->trial->kinds[RUBATO_SIM_FREEZE] == 0))
		laws_break_rank(op_of(job, op), "figures", job->rank,
				" has waited %llu ns, by its own account %llu",
				(unsigned long long)side->waited_ns, (unsigned long long)waited);
}

/* All ranks hear of numbers that differ, with both; or that others have gone for good. */
static void misuse_note(struct job *job, rubato_status err)
{
	struct laws_trial *trial = job->trial;
	static const char sentence[] = "the first number after a drain is ";
	const char *text = strstr(rubato_error_text(), sentence);
	unsigned long long steps[2];
	unsigned ranks[2];
	bool right = trial->deserts && (err == RUBATO_ERR_TIMEOUT || err == RUBATO_ERR_PEER);

	if (trial->differs != LAWS_NONE && err == RUBATO_ERR_MISMATCH && text != NULL &&
	    sscanf(text + sizeof(sentence) - 1, "%llu on rank %u, %llu on rank %u", &steps[0],
		   &ranks[0], &steps[1], &ranks[1]) == 4)
		for (uint32_t op = 0; op < trial->op_count; op++)
			right = right ||
				(ranks[0] < job->n && ranks[1] < job->n && steps[0] != steps[1] &&
				 steps[0] == laws_first_step(op_of(job, op), ranks[0],
							     trial->differ_era) &&
				 steps[1] == laws_first_step(op_of(job, op), ranks[1],
							     trial->differ_era));
	if (right)
		trial->heard |= UINT64_C(1) << job->rank;
}

/* Who has left is given nothing more once it has been told so, however late it asks. */
static rubato_status linger(struct job *job)
{
	const struct laws_trial *trial = job->trial;
	rubato_status err = RUBATO_OK;

	if (trial->lingers)
		rubato_sleep(job->comm, LINGER_NS);
	for (uint32_t op = 0; op < trial->op_count && err == RUBATO_OK; op++) {
		bool told = side_of(job, op)->told > trial->leave_era, some = false;

		if (told)
			err = take(job, op, RUBATO_NO_WAIT, &some);
		if (some)
			laws_break_rank(op_of(job, op), "left", job->rank, " is given more");
	}
	return err;
}

static rubato_status free_all(struct job *job, rubato_status err)
{
	for (uint32_t i = 0; i < job->trial->op_count && job->partials[i] != NULL; i++) {
		struct laws_rank *side = side_of(job, i);
		rubato_status end;

		side->freed = true;
		if ((job->trial->parts_at_once || job->trial->goner == job->rank) && !side->left)
			side->passives[side->passive_count++] =
				(struct laws_passive) { look(job, i), side->era, side->commit_count,
							false };
		end = rubato_partial_free(job->partials[i]);
		misuse_note(job, end);
		if (end != RUBATO_OK && job->trial->dump)
			rubato_dump(job->comm, STDERR_FILENO);
		err = err != RUBATO_OK ? err : end;
	}
	if (job->there != NULL)
		(void)rubato_sim_device_free(job->comm, job->there);
	free(job->buffer);
	return err;
}

rubato_status laws_rank(rubato_comm *comm, void *arg)
{
	struct laws_trial *trial = arg;
	struct job job = { .comm = comm,
			   .trial = trial,
			   .rank = rubato_rank(comm),
			   .n = rubato_size(comm),
			   .random = { laws_mix(trial->seed, 77, rubato_rank(comm)) } };
	bool victim = laws_victim(trial, job.rank);
	rubato_status err;

	if (trial->is_lagged)
		return laws_lagged_rank(comm, trial);
	err = create(&job);
	if (err == RUBATO_OK)
		err = eras(&job);
	misuse_note(&job, err);
	if (err == RUBATO_OK && trial->leaver == job.rank)
		err = linger(&job);
	for (uint32_t i = 0; i < trial->op_count && job.partials[i] != NULL && !victim; i++) {
		if (err == RUBATO_ERR_PEER && end(&job, i) != RUBATO_OK)
			laws_break(trial, "operation %u: rank %u, after a loss: %s", i, job.rank,
				   rubato_error_text());
		figures(&job, i);
	}
	if (err != RUBATO_OK && err != RUBATO_ERR_PEER && !victim &&
	    (err != RUBATO_ERR_MISMATCH || trial->differs == LAWS_NONE))
		laws_break(trial, "progress: rank %u: %s", job.rank, rubato_error_text());
	/* What others have made without this rank they also end without its going. */
	if (err == RUBATO_ERR_PEER && job.partials[trial->op_count - 1] == NULL)
		rubato_sleep(comm, 2 * trial->world.timeout_ns);
	if (rubato_now(comm) < trial->until_ns && trial->goner != job.rank)
		rubato_sleep(comm, trial->until_ns - rubato_now(comm));
	return free_all(&job, err);
}
