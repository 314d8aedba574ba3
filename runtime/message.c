/* message.c -- see message.h. */
#include "runtime/message.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A void message's. */
static const struct rb_signature void_signature = {
	.kind = RB_KIND_NONE, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

/* A receive has met one. */
static bool met_void(const struct rubato_op *op)
{
	const struct rb_request *request = &op->message.slot->request;

	return !op->sending && request->status == RUBATO_ERR_MISMATCH &&
	       rb_signature_same(&request->theirs, &void_signature);
}

/* ---- Flows ---- */

/* NULL: there is none. */
static struct rubato_op *op_of(struct rb_flow_message *message)
{
	return message == NULL
		       ? NULL
		       : (struct rubato_op *)(void *)((char *)message -
						      offsetof(struct rubato_op, message.in));
}

static struct rubato_op *op_after(const struct rubato_op *op)
{
	return op_of(op->message.in.next);
}

/* It stays where it is until the table changes. */
static struct rb_flow *flow_of(struct rubato_op *op)
{
	struct rb_flows *flows = &op->comm->flows;
	struct rb_flow *flow =
		op->message.flow < flows->capacity ? &flows->at[op->message.flow] : NULL;

	if (flow != NULL && rb_flow_is(flow, op->root, op->user_tag, op->sending))
		return flow;
	flow = rb_flow_find(flows, op->root, op->user_tag, op->sending);
	if (flow != NULL)
		op->message.flow = (uint32_t)(flow - flows->at);
	return flow;
}

/* Of receives: one is over. */
static void receive_over(struct rubato_op *op)
{
	struct rb_flow *flow = flow_of(op);

	rb_flow_remove(flow, &op->message.in);
	rb_flow_settle(&op->comm->flows, flow);
}

/* ---- A message ---- */

static void message_done(struct rb_engine *engine, struct rb_slot *slot);

/*
 * A receive of the flow was given up, and its sender may take back what it had met. Then messages
 * that are sent from there on have lower numbers: those that wait for one are not to meet them.
 */
static inline bool is_held(struct rubato_op *op)
{
	return op->comm->flows.left_count > 0 && !op->sending && flow_of(op)->left != NULL;
}

static void message_post(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, op->root);
	struct rb_request *request = &op->message.slot->request;

	request->peer = op->root;
	request->tag =
		rb_tag_message(engine->epoch, RB_TAG_P2P, op->user_tag, op->message.in.number);
	request->signature = op->signature;
	request->buffer = op->message.where.base;
	request->size_bytes = (size_t)(op->count * rubato_type_bytes(op->type));
	request->where = &op->message.where;
	request->owner = op->message.slot;
	request->state = RB_REQUEST_IDLE;
	if (is_held(op))
		return;
	if (op->sending)
		ep->ops->send(ep, request);
	else
		ep->ops->recv(ep, request);
	if (request->state == RB_REQUEST_DONE)
		message_done(engine, op->message.slot);
}

/* A receive that nothing has met, as if it had not been posted; false: something has. */
static bool message_recall(struct rubato_op *op)
{
	struct rb_endpoint *ep = rb_engine_endpoint(&op->comm->engine, op->root);
	struct rb_slot *slot = op->message.slot;

	return slot == NULL || slot->request.state == RB_REQUEST_IDLE ||
	       ep->ops->recall(ep, &slot->request);
}

/* Those that were recalled, after that one (NULL: all). The last ones first: a message that is void
 * concerns those after it. */
static void messages_post(const struct rb_flow *flow, const struct rb_flow_message *before)
{
	for (struct rb_flow_message *at = flow->last, *previous; at != before; at = previous) {
		struct rubato_op *op = op_of(at);

		previous = at->previous;
		if (op->message.slot != NULL && op->message.slot->request.state == RB_REQUEST_IDLE)
			message_post(op);
	}
}

/* The message that `op` waited for is void: it takes the next receive's, which takes its next. */
static void renumber_void(struct rubato_op *op)
{
	struct rb_flow *flow = flow_of(op);

	for (struct rubato_op *at = op_after(op), *next; at != NULL; at = next) {
		next = op_after(at);
		if (!message_recall(at))
			continue;
		op->message.in.number = at->message.in.number;
		message_post(op);
		op = at;
	}
	op->message.in.number = rb_flow_take(flow);
	message_post(op);
}

/* Nobody waits for message `number` any more: those of `at` and what was posted after it that wait
 * for later ones do, once they are posted. */
static rubato_status renumber_freed(struct rb_flow *flow, struct rubato_op *at, uint64_t number)
{
	for (; at != NULL; at = op_after(at)) {
		uint64_t its = at->message.in.number;

		if (its < number || !message_recall(at))
			continue;
		at->message.in.number = number;
		number = its;
	}
	return rb_flow_give(flow, number);
}

/* A receive that nothing has met: as if it had never been started. */
static rubato_status receive_leave(struct rubato_op *op)
{
	struct rb_flow *flow = flow_of(op);
	rubato_status err = renumber_freed(flow, op_after(op), op->message.in.number);

	messages_post(flow, &op->message.in);
	receive_over(op);
	return err;
}

static void messages_renumber(const struct rb_flow *flow, uint64_t from, uint64_t by)
{
	for (struct rb_flow_message *at = flow->last; at != NULL; at = at->previous) {
		struct rubato_op *op = op_of(at);

		if (op->message.in.number >= from && message_recall(op))
			op->message.in.number += by;
	}
	messages_post(flow, NULL);
}

static void message_text(const struct rubato_op *op, char *text, size_t text_bytes)
{
	const struct rb_request *request = &op->message.slot->request;
	const char *loss = NULL;
	char mine[96], theirs[96], lost[RB_LOSS_BYTES];

	if (request->status == RUBATO_ERR_PEER)
		loss = rb_loss_text(&op->comm->engine.losses, op->root, lost, sizeof(lost));
	(void)rb_signature_text(&op->signature, mine, sizeof(mine));
	(void)rb_signature_text(&request->theirs, theirs, sizeof(theirs));
	if (request->status == RUBATO_ERR_MISMATCH)
		(void)snprintf(text, text_bytes, "rank %u receives %s, rank %u sent %s",
			       op->comm->engine.rank, mine, op->root, theirs);
	else
		(void)snprintf(text, text_bytes, "%s %s rank %u: %s", mine,
			       op->sending ? "to" : "from", op->root,
			       loss != NULL                         ? loss
			       : request->status == RUBATO_ERR_PEER ? "it has left"
								    : "the transport failed");
}

static void message_end(struct rubato_op *op, rubato_status status, const char *text)
{
	struct rb_slot *slot = op->message.slot;

	op->message.slot = NULL;
	if (slot != NULL)
		rb_slot_give(&op->comm->engine, slot);
	rb_op_end(op, status, text);
}

/* ---- Device memory that the transport does not reach ---- */

/*
 * It is copied to the host's before it is sent, from there after it has come. A send has its number
 * meanwhile, so that none overtakes it.
 */
static bool is_staged(const struct rubato_op *op)
{
	return op->converted.sides[!op->sending].device != NULL;
}

static void stage_copy(struct rubato_op *op,
		       void (*then)(void *arg, rubato_status status, const char *text))
{
	op->state = RB_OP_CONVERTING;
	op->message.slot = NULL;
	op->converted.run.signature = op->signature;
	rb_converted_copy(&op->converted, &op->comm->engine, !op->sending, then, op);
}

static void target_copied(void *arg, rubato_status status, const char *text)
{
	rb_op_end(arg, status, text);
}

static void message_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rubato_op *op = slot->owner;
	rubato_status status = slot->request.status;
	char text[RB_TEXT_BYTES] = "";

	if (status == RUBATO_ERR_PEER)
		rb_losses_hear(&engine->losses);
	if (met_void(op)) {
		renumber_void(op);
		return;
	}
	if (!op->sending)
		receive_over(op);
	if (status == RUBATO_ERR_PEER && engine->poison != RUBATO_OK) {
		message_end(op, engine->poison, engine->poison_text); /* The cause. */
		return;
	}
	if (status == RUBATO_OK && !op->sending && is_staged(op)) {
		rb_slot_give(engine, slot);
		stage_copy(op, target_copied);
		return;
	}
	if (status != RUBATO_OK)
		message_text(op, text, sizeof(text));
	message_end(op, status, text);
}

/* ---- Without a request ---- */

/* The flow's next message; what is not done has not happened. */
static enum rb_now next_now(struct rb_engine *engine, struct rb_flow *flow,
			    struct rb_message *message, uint32_t user_tag, bool sending, bool look)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, message->peer);
	enum rb_now got;

	if (ep->ops->send_now == NULL || engine->device_count > 0 || flow->first != NULL ||
	    flow->left != NULL || flow->freed_count > 0) /* Older receives come first. */
		return RB_NOW_REFUSED;
	if (!look)
		return RB_NOW_ABSENT;
	message->tag = rb_tag_message(engine->epoch, RB_TAG_P2P, user_tag, flow->next);
	got = sending ? ep->ops->send_now(ep, message) : ep->ops->recv_now(ep, message);
	if (got == RB_NOW_DONE)
		rb_flow_pass(flow);
	return got;
}

bool rb_message_now(struct rubato_comm *comm, struct rb_message *message, uint32_t user_tag,
		    bool sending)
{
	struct rb_engine *engine = &comm->engine;
	struct rb_flow *flow = rb_flow_find(&comm->flows, message->peer, user_tag, sending);
	enum rb_now got;

	if (flow == NULL || (!sending && !rb_engine_quiet(engine, 0, 0)))
		return false;
	got = next_now(engine, flow, message, user_tag, sending, true);
	if (got == RB_NOW_ABSENT && rb_engine_linger(engine, message->peer))
		got = next_now(engine, flow, message, user_tag, sending, true);
	engine->operations += got == RB_NOW_DONE;
	return got == RB_NOW_DONE;
}

static inline struct rb_message message_of(const struct rubato_op *op)
{
	return (struct rb_message) {
		.peer = op->root,
		.signature = &op->signature,
		.buffer = op->sending ? (void *)(uintptr_t)op->in : op->out,
		.size_bytes = (size_t)(op->count * rubato_type_bytes(op->type)),
	};
}

/* ---- With one ---- */

/* It has its number; a receive is in its flow. */
static void message_begin(struct rubato_op *op)
{
	struct rb_slot *slot = rb_slot_take(&op->comm->engine);

	if (slot == NULL) {
		if (op->sending)
			(void)rb_flow_give(flow_of(op), op->message.in.number);
		else
			(void)receive_leave(op);
		rb_op_end(op, RUBATO_ERR_MEMORY, "out of memory for a message");
		return;
	}
	op->message.slot = slot;
	rb_memory_where(&op->comm->memory, op->sending ? (void *)(uintptr_t)op->in : op->out,
			op->count * rubato_type_bytes(op->type), &op->message.where);
	op->message.where.kind =
		(enum rb_memory_kind)op->device.kinds[op->sending ? RB_BUF_IN : RB_BUF_OUT];
	slot->is_work = false;
	slot->owner = op;
	slot->done = message_done;
	message_post(op);
}

/* ---- Receives that are put off ---- */

/* In a quiet engine; one of a flow at most, its oldest. */
static bool may_put_off(const struct rubato_op *op)
{
	return !op->sending && op->persistent && op->comm->receives.count < RB_RECEIVES_PUT_OFF;
}

static void put_off(struct rubato_op *op)
{
	struct rb_receives *receives = &op->comm->receives;

	receives->at[receives->count++] = op;
	op->comm->engine.polled++;
}

static void put_off_end(struct rb_receives *receives, uint32_t i)
{
	receives->count--;
	receives->poller.comm->engine.polled--;
	memmove(receives->at + i, receives->at + i + 1,
		(receives->count - i) * sizeof(struct rubato_op *));
}

/* The i-th takes its message, if it is here. */
static enum rb_now put_off_take(struct rb_receives *receives, uint32_t i)
{
	struct rubato_op *op = receives->at[i];
	struct rb_engine *engine = &op->comm->engine;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, op->root);
	struct rb_message message = message_of(op);
	enum rb_now got;

	message.tag =
		rb_tag_message(engine->epoch, RB_TAG_P2P, op->user_tag, op->message.in.number);
	got = ep->ops->recv_now(ep, &message);
	if (got == RB_NOW_DONE) {
		put_off_end(receives, i);
		receive_over(op);
		rb_op_end(op, RUBATO_OK, "");
	}
	return got;
}

/* The i-th is looked for, and notes whether its message is here. */
static enum rb_now look_again(struct rb_receives *receives, uint32_t i)
{
	struct rubato_op *op = receives->at[i];
	enum rb_now got;

	op->message.missed = false; /* Its end may be the operation's. */
	got = put_off_take(receives, i);
	if (got != RB_NOW_DONE)
		op->message.missed = true;
	return got;
}

/* Who waits has looked for them before; who tests, or the progress thread, has not. */
static bool receives_post(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_receives *receives = &((struct rb_comm_poller *)poller)->comm->receives;
	bool any = receives->count > 0, look = engine->driving != RB_DRIVING_WAITER;

	while (receives->count > 0) {
		struct rubato_op *op = receives->at[0];

		if (look && look_again(receives, 0) == RB_NOW_DONE)
			continue;
		put_off_end(receives, 0);
		message_begin(op);
	}
	return any;
}

/* Those that find no message are posted by the first poll, if there is one. */
static void receives_awaited(struct rb_engine *engine, struct rb_poller *poller)
{
	struct rb_receives *receives = &((struct rb_comm_poller *)poller)->comm->receives;
	uint32_t count = receives->count;
	enum rb_now got, first = RB_NOW_REFUSED;

	for (uint32_t i = 0; i < receives->count;) {
		got = look_again(receives, i);
		if (got == RB_NOW_DONE)
			continue;
		first = i == 0 ? got : first;
		i++;
	}
	if (receives->count < count || first != RB_NOW_ABSENT) /* It may be here, set aside. */
		return;
	if (rb_engine_linger(engine, receives->at[0]->root))
		(void)put_off_take(receives, 0);
}

/* Not what the engine is about to hear of anyway. */
static void message_fail(struct rb_flow *flow, struct rubato_op *op, rubato_status status,
			 const char *text)
{
	struct rb_slot *slot = op->message.slot;
	struct rb_endpoint *ep = rb_engine_endpoint(&op->comm->engine, op->root);

	if (slot == NULL || slot->request.state == RB_REQUEST_DONE)
		return;
	if (slot->request.state == RB_REQUEST_IDLE) /* It is held. */
		slot->request.status = RUBATO_ERR_CANCELLED;
	ep->ops->cancel(ep, &slot->request);
	if (flow != NULL)
		rb_flow_remove(flow, &op->message.in);
	if (slot->request.status == RUBATO_OK && (op->sending || !is_staged(op)))
		message_end(op, RUBATO_OK, "");
	else
		message_end(op, status, text);
}

/* Messages in flight end as collectives do: nobody may be left to send or to receive them. */
static void messages_poisoned(struct rb_engine *engine, struct rb_poller *poller,
			      rubato_status status, const char *text)
{
	struct rubato_comm *comm = ((struct rb_comm_poller *)poller)->comm;
	struct rubato_op *next;

	(void)engine;
	while (comm->receives.count > 0) {
		struct rubato_op *op = comm->receives.at[0];

		put_off_end(&comm->receives, 0);
		rb_flow_remove(flow_of(op), &op->message.in);
		rb_op_end(op, status, text);
	}
	for (uint32_t i = 0; i < comm->flows.capacity; i++)
		for (struct rubato_op *op = op_of(comm->flows.at[i].first); op != NULL; op = next) {
			next = op_after(op);
			message_fail(&comm->flows.at[i], op, status, text);
		}
	for (uint32_t i = 0; i < RB_OP_LISTS; i++)
		for (struct rubato_op *op = comm->operations[i]; op != NULL; op = op->next)
			if (op->sending)
				message_fail(NULL, op, status, text);
	for (struct rubato_op *op = comm->sends; op != NULL; op = op->next)
		message_fail(NULL, op, status, text);
}

static bool works_in(const struct rubato_op *op, const struct rb_memory *memory)
{
	/* A receive in a flow is in flight, posted or not. */
	return op->sending ? op->message.slot != NULL && rb_memory_is_of(memory, op->in)
			   : rb_memory_is_of(memory, op->out);
}

bool rb_messages_work_in(const struct rubato_comm *comm, const struct rb_memory *memory)
{
	for (uint32_t i = 0; i < comm->flows.capacity; i++)
		for (struct rubato_op *op = op_of(comm->flows.at[i].first); op != NULL;
		     op = op_after(op))
			if (works_in(op, memory))
				return true;
	for (uint32_t i = 0; i < RB_OP_LISTS; i++)
		for (const struct rubato_op *op = comm->operations[i]; op != NULL; op = op->next)
			if (op->sending && works_in(op, memory))
				return true;
	for (const struct rubato_op *op = comm->sends; op != NULL; op = op->next)
		if (works_in(op, memory))
			return true;
	return false;
}

static const struct rb_poller_ops messages_ops = {
	.order = RB_POLLER_RUNS,
	.post = receives_post,
	.awaited = receives_awaited,
	.poisoned = messages_poisoned,
};

void rb_messages_open(struct rubato_comm *comm)
{
	comm->receives.poller.poller.ops = &messages_ops;
	comm->receives.poller.comm = comm;
	comm->flows.engine = &comm->engine;
	comm->flows.renumber = messages_renumber;
	rb_engine_add_poller(&comm->engine, &comm->receives.poller.poller);
}

/* ---- Sends that are not sent ---- */

static void void_sent(struct rb_engine *engine, struct rb_slot *slot)
{
	rb_slot_give(engine, slot);
}

/* A later message is on its way already: this one's place is taken by one that says so. */
static void void_send(const struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, op->root);
	struct rb_slot *slot = rb_slot_take(engine);

	if (slot == NULL) {
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, "out of memory for a void message");
		return;
	}
	slot->is_work = false;
	slot->done = void_sent;
	slot->request =
		(struct rb_request) { .peer = op->root,
				      .tag = rb_tag_message(engine->epoch, RB_TAG_P2P, op->user_tag,
							    op->message.in.number),
				      .signature = void_signature,
				      .owner = slot };
	ep->ops->send(ep, &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		rb_slot_give(engine, slot);
}

/* Its number is the next one's, if none has been taken since. */
static void send_leave(const struct rubato_op *op)
{
	struct rb_flow *flow = rb_flow_known(&op->comm->flows, op->root, op->user_tag, true);

	if (flow != NULL && flow->next == op->message.in.number + 1)
		flow->next--;
	else
		void_send(op);
}

static void source_copied(void *arg, rubato_status status, const char *text)
{
	struct rubato_op *op = arg;

	if (status == RUBATO_OK) {
		op->state = RB_OP_RUNNING;
		message_begin(op);
		return;
	}
	if (op->comm->engine.poison == RUBATO_OK)
		send_leave(op);
	rb_op_end(op, status, text);
}

/* ---- Start ---- */

void rb_message_start(struct rubato_op *op)
{
	struct rb_flow *flow = flow_of(op);
	struct rb_message message = message_of(op);
	uint32_t put_off_count = op->comm->receives.count;
	enum rb_now got = RB_NOW_REFUSED;
	/* Who exchanges with us sends at this moment. To look for its message takes from it the
	 * line that it writes to, and both lose what a line takes to cross. */
	bool look = !may_put_off(op) || !op->message.missed;

	if (flow == NULL) {
		rb_op_end(op, RUBATO_ERR_MEMORY, "out of memory for a message");
		return;
	}
	if (op->sending ||
	    rb_engine_quiet(&op->comm->engine, put_off_count + op->persistent, put_off_count))
		got = next_now(&op->comm->engine, flow, &message, op->user_tag, op->sending, look);
	if (got == RB_NOW_DONE) {
		rb_op_end(op, RUBATO_OK, "");
		atomic_store_explicit(&op->over, rb_engine_over(&op->comm->engine, &op->done),
				      memory_order_release);
		return;
	}
	op->state = RB_OP_RUNNING;
	op->message.missed = true;
	op->message.slot = NULL;
	op->message.in.number = rb_flow_take(flow);
	if (!op->sending)
		rb_flow_add(flow, &op->message.in);
	if (got == RB_NOW_ABSENT && may_put_off(op))
		put_off(op);
	else if (op->sending && is_staged(op))
		stage_copy(op, source_copied);
	else
		message_begin(op);
}

/* ---- Cancel ---- */

/* What has come is copied to its end: nobody else gets it. */
static void stage_cancel(struct rubato_op *op, const char *text)
{
	struct rb_engine *engine = &op->comm->engine;

	if (op->sending || rb_engine_wait_for(engine, &op->done, op->comm->timeout_ns) != RUBATO_OK)
		rb_run_fail(engine, &op->converted.run, RUBATO_ERR_CANCELLED, text);
}

/* Its sender has the last word on the message that the receive had met. Not sent: who has been
 * started since, or is next, waits for its number. */
static void left_done(struct rb_engine *engine, struct rb_slot *slot)
{
	const struct rb_request *request = &slot->request;
	struct rb_flow_left *left = slot->owner;
	struct rb_flows *flows = left->flows;
	uint32_t tag = (uint32_t)rb_tag_number_of(request->tag);
	struct rb_flow *flow = rb_flow_known(flows, request->peer, tag, false);

	if (request->status == RUBATO_ERR_CANCELLED &&
	    renumber_freed(flow, op_of(flow->first), left->number) != RUBATO_OK)
		rb_engine_poison(engine, RUBATO_ERR_MEMORY, rubato_error_text());
	rb_flow_left_end(flow, left);
	if (flow->left == NULL)
		messages_post(flow, NULL);
	flow = rb_flow_known(flows, request->peer, tag, false);
	if (flow != NULL)
		rb_flow_settle(flows, flow);
	rb_slot_give(engine, slot);
}

/* A receive that a message has met, which may yet be taken back: the application has its buffer,
 * and the slot waits. False: there is nothing to wait for, or no memory to do so. */
static bool message_leave(struct rubato_op *op, const char *text)
{
	struct rb_slot *slot = op->message.slot;
	struct rb_endpoint *ep = rb_engine_endpoint(&op->comm->engine, op->root);
	struct rb_flow *flow = flow_of(op);
	struct rb_flow_left *left;

	if (op->sending || ep->ops->leave == NULL)
		return false;
	left = rb_flow_leave(&op->comm->flows, flow, op->message.in.number);
	if (left == NULL)
		return false;
	if (!ep->ops->leave(ep, &slot->request)) {
		rb_flow_left_end(flow, left);
		return false;
	}
	slot->owner = left;
	slot->done = left_done;
	slot->request.buffer = NULL;
	slot->request.where = NULL;
	op->message.slot = NULL;
	for (struct rubato_op *at = op_after(op); at != NULL; at = op_after(at))
		(void)message_recall(at);
	receive_over(op);
	rb_op_end(op, RUBATO_ERR_CANCELLED, text);
	return true;
}

/* Posted only now: if its message is here it has that, as receives after it may have theirs. */
static void put_off_cancel(struct rubato_op *op)
{
	struct rb_receives *receives = &op->comm->receives;

	for (uint32_t i = 0; i < receives->count; i++) {
		if (receives->at[i] != op)
			continue;
		put_off_end(receives, i);
		message_begin(op);
		return;
	}
}

bool rb_message_recall(struct rubato_op *op, const char *text)
{
	if (op->sending || op->state == RB_OP_CONVERTING || !message_recall(op))
		return false;
	if (receive_leave(op) == RUBATO_OK)
		message_end(op, RUBATO_ERR_CANCELLED, text);
	else
		message_end(op, RUBATO_ERR_MEMORY, rubato_error_text());
	return true;
}

void rb_message_cancel(struct rubato_op *op, const char *text)
{
	struct rb_engine *engine = &op->comm->engine;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, op->root);
	rubato_status status;
	char own[192];

	if (op->state == RB_OP_CONVERTING) {
		stage_cancel(op, text);
		return;
	}
	put_off_cancel(op);
	if (op->done || rb_message_recall(op, text) || message_leave(op, text))
		return;
	if (op->message.slot->request.state == RB_REQUEST_PENDING)
		ep->ops->cancel(ep, &op->message.slot->request);
	status = met_void(op) ? RUBATO_ERR_CANCELLED : op->message.slot->request.status;
	if (status != RUBATO_OK && status != RUBATO_ERR_CANCELLED) { /* It had ended by itself. */
		message_text(op, own, sizeof(own));
		text = own;
	}
	if (!op->sending)
		receive_over(op);
	else if (status == RUBATO_ERR_CANCELLED)
		send_leave(op);
	if (status != RUBATO_OK || op->sending || !is_staged(op)) {
		message_end(op, status, status == RUBATO_OK ? "" : text);
		return;
	}
	rb_slot_give(engine, op->message.slot);
	stage_copy(op, target_copied);
	stage_cancel(op, text);
}
