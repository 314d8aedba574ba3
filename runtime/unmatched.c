/* unmatched.c -- see unmatched.h. */
#include "runtime/unmatched.h"

#include <stdio.h>

#include "runtime/engine/calls.h"
#include "runtime/op.h"

#define PROBED_MAX                                                                                 \
	8u           /* Ranks that one run asks: more are seldom needed to find one that differs. */
#define DONE_MAX 16u /* Probes taken off at a look. */

struct look {
	struct rubato_comm *comm;
	const struct rb_run *run; /* Messages of those that it waits for, only; NULL: of all. */
	bool ending;              /* No rank calls anything any more. */
	uint32_t peer;            /* Whose message it was. */
	bool finalizes;           /* One of the two. */
	char text[256];
	bool fault; /* Ours, not the callers'. */
	struct {    /* Probes that have told all they can. */
		uint32_t peer;
		struct rb_tag tag;
		struct rb_signature signature;
	} done[DONE_MAX];
	uint32_t done_count;
};

static bool signatures_agree(const struct rb_signature *theirs, const struct rb_signature *ours)
{
	struct rb_signature same = *theirs;

	if (theirs->kind == RB_KIND_ALLTOALLV)
		same.count = ours->count; /* In its messages the pair's. */
	return rb_signature_same(&same, ours);
}

static bool differ(struct look *look, uint32_t peer, const struct rb_signature *theirs,
		   const struct rb_signature *ours)
{
	look->finalizes = rb_calls_finalize(ours, theirs);
	(void)rb_calls_text(look->text, sizeof(look->text), look->comm->engine.rank, ours, peer,
			    theirs);
	return true;
}

/* A probe of a call that is over here tells nothing more. */
static bool probe_done(struct look *look, uint32_t peer, struct rb_tag tag,
		       const struct rb_signature *signature)
{
	if (look->done_count < DONE_MAX) {
		look->done[look->done_count].peer = peer;
		look->done[look->done_count].tag = tag;
		look->done[look->done_count++].signature = *signature;
	}
	return false;
}

/* Alike, and still without a receive: then a schedule is wrong. */
static bool fault(struct look *look, uint32_t peer, struct rb_tag tag,
		  const struct rb_signature *theirs)
{
	char other[96];

	(void)snprintf(look->text, sizeof(look->text),
		       "%s: a message of rank %u (%llx:%llx) has no receive at rank %u",
		       rb_signature_text(theirs, other, sizeof(other)), peer,
		       (unsigned long long)tag.call, (unsigned long long)tag.step,
		       look->comm->engine.rank);
	look->fault = true;
	return true;
}

/* Of the call that we are in. What two ranks have for each other says whether they exchange records
 * first: where they differ in that, one may wait for a record and the other for the block. */
static bool pair_differs(struct look *look, uint32_t peer, struct rb_tag tag,
			 const struct rb_signature *theirs)
{
	const struct rubato_op *op = look->comm->oneshots.op;
	struct rb_signature ours = op->signature;

	if (theirs->kind != RB_KIND_ALLTOALLV || rb_tag_channel_of(tag) != RB_CHANNEL_BLOCKS ||
	    rb_tag_is_probe(tag))
		return false;
	ours.count = rb_layout_out_length(&op->plan->layout, peer, 1);
	return theirs->count != ours.count && differ(look, peer, theirs, &ours);
}

static bool oneshot_judge(struct look *look, uint32_t peer, struct rb_tag tag,
			  const struct rb_signature *theirs)
{
	const struct rubato_comm *comm = look->comm;
	const struct rubato_op *op = comm->oneshots.op;
	uint64_t number = rb_tag_number_of(tag);
	const struct rb_signature *ours = &comm->oneshots.called[number % RB_CALLS_REMEMBERED];
	bool probe = rb_tag_class_of(tag) == RB_TAG_PROBE_ONESHOT;
	bool past = number < comm->oneshots.sequence;
	bool known = past && comm->oneshots.sequence - number <= RB_CALLS_REMEMBERED;
	char other[96];

	if (!past)
		return false; /* It is ahead: at the end, in the last barrier. */
	if (known && signatures_agree(theirs, ours) && !op->done && op->number == number)
		return pair_differs(look, peer, tag, theirs); /* Or a step ahead. */
	if (probe && (!known || signatures_agree(theirs, ours)))
		return probe_done(look, peer, tag, theirs);
	if (known && signatures_agree(theirs, ours))
		return fault(look, peer, tag, theirs);
	if (known)
		return differ(look, peer, theirs, ours);
	(void)snprintf(look->text, sizeof(look->text),
		       "rank %u called %s as its call %llu, rank %u something else", peer,
		       rb_signature_text(theirs, other, sizeof(other)), (unsigned long long)number,
		       comm->engine.rank);
	return true;
}

static bool persistent_judge(struct look *look, uint32_t peer, struct rb_tag tag,
			     const struct rb_signature *theirs)
{
	const struct rubato_comm *comm = look->comm;
	uint64_t number = rb_tag_number_of(tag);
	const struct rubato_op *op = rb_op_find(comm, number);
	int32_t lead = op != NULL ? rb_tag_lead(tag, op->instance) : 0;
	bool past = op != NULL ? lead <= 0 : number < comm->persistent_sequence;
	bool probe = rb_tag_class_of(tag) == RB_TAG_PROBE_PERSISTENT;
	char other[96];

	if (!past && !look->ending)
		return false; /* It is ahead. */
	if (op != NULL && !signatures_agree(theirs, &op->signature))
		return differ(look, peer, theirs, &op->signature);
	if (op != NULL && lead == 0 && !op->done)
		return false;
	if (probe && past)
		return probe_done(look, peer, tag, theirs);
	(void)snprintf(look->text, sizeof(look->text),
		       "rank %u has started persistent operation %llu, %s, %s rank %u%s", peer,
		       (unsigned long long)number, rb_signature_text(theirs, other, sizeof(other)),
		       op != NULL ? "more often than" : "which", comm->engine.rank,
		       op != NULL ? "" : " has freed or never made");
	return true;
}

static bool judge(void *arg, uint32_t peer, struct rb_tag tag, const struct rb_signature *theirs)
{
	struct look *look = arg;
	char other[96];

	look->peer = peer;
	switch (rb_tag_class_of(tag)) {
	case RB_TAG_ONESHOT:
	case RB_TAG_EXCHANGE:
	case RB_TAG_PROBE_ONESHOT:
		return oneshot_judge(look, peer, tag, theirs);
	case RB_TAG_PERSISTENT:
	case RB_TAG_PROBE_PERSISTENT:
		return persistent_judge(look, peer, tag, theirs);
	case RB_TAG_P2P:
		if (!look->ending || theirs->kind != RB_KIND_SENDRECV)
			return false;
		(void)snprintf(look->text, sizeof(look->text),
			       "rank %u ends without having received rank %u's %s with tag %llu",
			       look->comm->engine.rank, peer,
			       rb_signature_text(theirs, other, sizeof(other)),
			       (unsigned long long)rb_tag_number_of(tag));
		return true;
	default: /* The library's own. */
		return false;
	}
}

static void request_prepare(struct rb_request *request, uint32_t peer, struct rb_tag tag,
			    const struct rb_signature *signature)
{
	*request = (struct rb_request) { .peer = peer, .tag = tag, .signature = *signature };
}

/* A receive that is met at once takes a probe off. */
static void probes_take(struct look *look)
{
	for (uint32_t i = 0; i < look->done_count; i++) {
		uint32_t peer = look->done[i].peer;
		struct rb_endpoint *ep = rb_engine_endpoint(&look->comm->engine, peer);
		struct rb_request request;

		request_prepare(&request, peer, look->done[i].tag, &look->done[i].signature);
		ep->ops->recv(ep, &request);
		if (request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &request);
	}
}

static bool look_for(struct rubato_comm *comm, bool ending)
{
	struct look look = { .comm = comm, .ending = ending };
	struct rb_engine *engine = &comm->engine;
	const char *loss = NULL;
	char lost[RB_LOSS_BYTES];
	bool found = false;

	if (engine->poison != RUBATO_OK)
		return false;
	for (uint32_t i = 0; i < engine->endpoint_count && !found; i++)
		found = engine->endpoints[i]->ops->unmatched(engine->endpoints[i], judge, &look);
	probes_take(&look);
	if (found && look.finalizes)
		rb_losses_await(&engine->losses, look.peer);
	if (found)
		rb_losses_hear(&engine->losses);
	if (engine->poison != RUBATO_OK)
		return true;
	if (found && !look.fault)
		loss = rb_loss_behind(&engine->losses, look.peer, lost, sizeof(lost));
	if (loss != NULL)
		rb_engine_poison(engine, RUBATO_ERR_PEER, loss);
	else if (found)
		rb_engine_poison(engine, look.fault ? RUBATO_ERR_INTERNAL : RUBATO_ERR_MISMATCH,
				 look.text);
	return found;
}

void rb_unmatched_look(struct rubato_comm *comm)
{
	(void)look_for(comm, false);
}

rubato_status rb_unmatched_end(struct rubato_comm *comm)
{
	return look_for(comm, true) ? rb_engine_check(&comm->engine) : RUBATO_OK;
}

/* ---- Calls that this rank has yet to make ---- */

static bool run_awaits(const struct rb_run *run, uint32_t peer)
{
	for (const struct rb_slot *slot = run->slots; slot != NULL; slot = slot->next)
		if (!slot->is_work && slot->request.kind == RB_REQUEST_RECV &&
		    slot->request.peer == peer)
			return true;
	return false;
}

static bool is_ahead(void *arg, uint32_t peer, struct rb_tag tag, const struct rb_signature *theirs)
{
	struct look *look = arg;
	enum rb_tag_class tag_class = rb_tag_class_of(tag);
	uint64_t number = rb_tag_number_of(tag);
	char other[96];

	if ((tag_class != RB_TAG_ONESHOT && tag_class != RB_TAG_EXCHANGE &&
	     tag_class != RB_TAG_PROBE_ONESHOT) ||
	    number < look->comm->oneshots.sequence ||
	    (look->run != NULL && !run_awaits(look->run, peer)))
		return false;
	(void)snprintf(look->text, sizeof(look->text),
		       "; rank %u is in %s, call %llu, which rank %u has not called", peer,
		       rb_signature_text(theirs, other, sizeof(other)), (unsigned long long)number,
		       look->comm->engine.rank);
	return true;
}

char *rb_unmatched_ahead(struct rubato_comm *comm, const struct rb_run *run, char *text,
			 size_t text_bytes)
{
	struct look look = { .comm = comm, .run = run };
	struct rb_engine *engine = &comm->engine;

	for (uint32_t i = 0; i < engine->endpoint_count && look.text[0] == '\0'; i++)
		(void)engine->endpoints[i]->ops->unmatched(engine->endpoints[i], is_ahead, &look);
	(void)snprintf(text, text_bytes, "%s", look.text);
	return text;
}

static bool is_persistent(void *arg, uint32_t peer, struct rb_tag tag,
			  const struct rb_signature *theirs)
{
	struct look *look = arg;
	enum rb_tag_class tag_class = rb_tag_class_of(tag);
	const struct rubato_op *call = look->comm->oneshots.op, *op;
	char other[96];

	uint64_t number = rb_tag_number_of(tag);
	bool made = number < look->comm->persistent_sequence;

	if ((tag_class != RB_TAG_PERSISTENT && tag_class != RB_TAG_PROBE_PERSISTENT) ||
	    !run_awaits(rb_op_current((struct rubato_op *)(uintptr_t)call), peer))
		return false;
	op = made ? rb_op_find(look->comm, number) : NULL;
	if (made && (op == NULL || theirs->kind != call->signature.kind ||
		     rb_tag_lead(tag, op->instance) <= 0))
		return false;
	(void)snprintf(look->text, sizeof(look->text),
		       "; rank %u %s persistent operation %llu, %s, which rank %u has not", peer,
		       made ? "has started" : "makes", (unsigned long long)number,
		       rb_signature_text(theirs, other, sizeof(other)), look->comm->engine.rank);
	return true;
}

char *rb_unmatched_persistent(struct rubato_comm *comm, char *text, size_t text_bytes)
{
	struct look look = { .comm = comm };
	struct rb_engine *engine = &comm->engine;

	for (uint32_t i = 0; i < engine->endpoint_count && look.text[0] == '\0'; i++)
		(void)engine->endpoints[i]->ops->unmatched(engine->endpoints[i], is_persistent,
							   &look);
	(void)snprintf(text, text_bytes, "%s", look.text);
	return text;
}

/* ---- Probes ---- */

static void probe_sent(struct rb_engine *engine, struct rb_slot *slot)
{
	rb_slot_give(engine, slot);
}

/* Best effort: where there is no memory or credit for it, the deadline tells less. */
static void probe_send(struct rb_engine *engine, uint32_t peer, struct rb_tag tag,
		       const struct rb_signature *signature)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, peer);
	struct rb_slot *slot = rb_slot_take(engine);

	if (slot == NULL)
		return;
	request_prepare(&slot->request, peer, tag, signature);
	slot->is_work = false;
	slot->request.owner = slot;
	slot->done = probe_sent;
	ep->ops->send(ep, &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		rb_slot_give(engine, slot);
}

static void run_probe(struct rb_engine *engine, struct rb_run *run, enum rb_tag_class tag_class)
{
	struct rb_tag tag = rb_tag(engine->epoch, tag_class, rb_tag_number_of(run->tag), 0);
	uint32_t asked[PROBED_MAX], count = 0;

	tag.step = run->tag.step; /* Of a run: the instance alone. */

	for (const struct rb_slot *slot = run->slots; slot != NULL && count < PROBED_MAX;
	     slot = slot->next) {
		uint32_t peer = slot->request.peer, i = 0;

		if (slot->is_work || slot->request.kind != RB_REQUEST_RECV ||
		    engine->losses.lost[peer])
			continue;
		while (i < count && asked[i] != peer)
			i++;
		if (i < count)
			continue;
		asked[count++] = peer;
		probe_send(engine, peer, tag, &run->signature);
	}
}

/* Tells those that we wait for what we call. */
static void runs_probe(struct rb_engine *engine, struct rb_poller *poller)
{
	(void)poller;
	for (struct rb_run *run = engine->runs; run != NULL; run = run->next) {
		enum rb_tag_class tag_class = rb_tag_class_of(run->tag);

		if (run->probed)
			continue;
		run->probed = true;
		if (tag_class == RB_TAG_ONESHOT || tag_class == RB_TAG_EXCHANGE)
			run_probe(engine, run, RB_TAG_PROBE_ONESHOT);
		else if (tag_class == RB_TAG_PERSISTENT)
			run_probe(engine, run, RB_TAG_PROBE_PERSISTENT);
	}
}

/* ---- What the engine asks for ---- */

static void unmatched_look(struct rb_engine *engine, struct rb_poller *poller)
{
	(void)engine;
	rb_unmatched_look(((struct rb_comm_poller *)poller)->comm);
}

static const struct rb_poller_ops unmatched_ops = {
	.order = RB_POLLER_NOTICE,
	.sleeping = unmatched_look,
	.overdue = runs_probe,
};

void rb_unmatched_open(struct rubato_comm *comm)
{
	comm->unmatched.poller.ops = &unmatched_ops;
	comm->unmatched.comm = comm;
	rb_engine_add_poller(&comm->engine, &comm->unmatched.poller);
}
