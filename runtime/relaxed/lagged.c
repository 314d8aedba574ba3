/*
 * lagged.c -- lagged allreduce: step j's gradients are applied at step j + lag, while they are
 * reduced in the background (LAGA: Hakimi et al., ICDM 2021).
 *
 * There are lag + 1 slots, used in turn: slot k mod (lag + 1) is accumulated into, becomes begin
 * number k, is collected, and only then comes round again. Each has a persistent allreduce of its
 * vector, out of place, so that the lent result outlives the accumulation that follows, and one of
 * its weight, started with it. An average is divided by the true sum of weights, which is known
 * when the result is collected.
 *
 * Vectors lie on the host, or, as rubato_cuda_lagged_create says, on a device, which then adds up
 * and divides; their allreduces are as any others of device memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hollow.h"
#include "base/limits.h"
#include "rubato_cuda.h"
#include "runtime/call.h"
#include "runtime/devices/device_copy.h"
#include "runtime/devices/devices.h"
#include "runtime/op_run.h"

struct slot {
	void *in, *out;
	rubato_op *data, *weight;
	int64_t weights[2]; /* This rank's, and the sum. */
	bool clean;         /* Nothing was accumulated since it came round. */
};

struct rubato_lagged {
	struct rubato_comm *comm;
	struct rubato_lagged *next; /* Of the communicator's. */
	uint64_t count;
	rubato_type type;
	rubato_operator op;
	uint32_t slot_count;
	uint64_t begun, collected; /* Numbers of the next begin and of the next to collect. */
	rb_reduce_fn reduce;
	struct slot *slots;
	struct rb_device_copy copy;
	struct rb_executor *device; /* Where the vectors lie; NULL: on the host. */
	void *gradient;             /* One that came from the other side; NULL: none has. */
};

static struct slot *slot_of(struct rubato_lagged *l, uint64_t number)
{
	return &l->slots[number % l->slot_count];
}

static uint64_t bytes_of(const struct rubato_lagged *l)
{
	return l->count * rubato_type_bytes(l->type);
}

/* ---- Creation ---- */

static rubato_status arguments_check(uint64_t count, rubato_type type, rubato_operator op,
				     uint32_t lag)
{
	const char *name = rubato_type_name(type);

	if (rubato_type_bytes(type) == 0 || strstr(name, "float") == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged: type %s is not a floating type", name);
	if (op != RUBATO_SUM && op != RUBATO_AVG)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged: operator %s: sum and avg only",
			       rubato_operator_name(op));
	if (lag < 1 || lag > 1024)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged: lag %u is not in 1 .. 1024", lag);
	if (count > RB_BUFFER_BYTES_MAX / rubato_type_bytes(type))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged: %llu elements do not fit memory",
			       (unsigned long long)count);
	return RUBATO_OK;
}

/* What all ranks must have said alike, and whether this one can make it at all. */
enum word { WORD_STATUS, WORD_COUNT, WORD_TYPE, WORD_OPERATOR, WORD_LAG, WORDS };

static rubato_status words_compare(const struct rubato_comm *comm, const int64_t *ours,
				   const int64_t *theirs, uint32_t rank)
{
	static const char *const names[WORDS] = { "", "count", "type", "operator", "lag" };
	rubato_status status = (rubato_status)theirs[WORD_STATUS];
	char text[2][32];

	if (status != RUBATO_OK)
		return RB_FAIL(status, "lagged: rank %u could not make it: %s", rank,
			       rubato_status_name(status));
	for (uint32_t w = WORD_COUNT; w < WORDS; w++) {
		if (theirs[w] == ours[w])
			continue;
		for (uint32_t side = 0; side < 2; side++) {
			int64_t word = side == 0 ? ours[w] : theirs[w];
			const char *name = w == WORD_TYPE
						   ? rubato_type_name((rubato_type)word)
						   : rubato_operator_name((rubato_operator)word);

			if (w == WORD_TYPE || w == WORD_OPERATOR)
				(void)snprintf(text[side], sizeof(text[side]), "%s", name);
			else
				(void)snprintf(text[side], sizeof(text[side]), "%lld",
					       (long long)word);
		}
		return RB_FAIL(RUBATO_ERR_MISMATCH, "lagged: %s is %s on rank %u, %s on rank %u",
			       names[w], text[0], comm->engine.rank, text[1], rank);
	}
	return RUBATO_OK;
}

/* `mine`: the status of what came before, here; all ranks return an error, or none does. */
static rubato_status agree(const struct rubato_lagged *l, uint32_t lag, rubato_status mine)
{
	uint32_t n = l->comm->engine.rank_count;
	int64_t words[WORDS] = { mine, (int64_t)l->count, l->type, l->op, lag };
	int64_t *all = malloc((size_t)n * sizeof(words));
	rubato_status err;
	char text[RB_TEXT_BYTES];

	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (all == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "lagged: settings of %u ranks", n);
	err = rb_call_gather(l->comm, RB_KIND_LAGGED, words, all, WORDS, NULL);
	for (uint32_t r = 0; mine == RUBATO_OK && err == RUBATO_OK && r < n; r++)
		err = words_compare(l->comm, words, all + (size_t)r * WORDS, r);
	free(all);
	return mine == RUBATO_OK ? err : RB_FAIL(mine, "%s", text);
}

static rubato_status vector_make(struct rubato_lagged *l, void **out)
{
	size_t bytes = (size_t)bytes_of(l);

	return l->device != NULL ? rubato_cuda_alloc(l->comm, bytes > 0 ? bytes : 1, out)
				 : rubato_alloc(l->comm, bytes, out);
}

static void vector_free(struct rubato_lagged *l, void *vector)
{
	if (l->device != NULL)
		(void)rubato_cuda_free(l->comm, vector);
	else
		(void)rubato_free(l->comm, vector);
}

static rubato_status slot_make(struct rubato_lagged *l, struct slot *slot)
{
	const struct rb_call weight = { .kind = RB_KIND_ALLREDUCE,
					.in = &slot->weights[0],
					.out = &slot->weights[1],
					.count = 1,
					.type = RUBATO_INT64,
					.op = RUBATO_SUM,
					.named = RB_KIND_LAGGED };

	slot->clean = true;
	RB_TRY(vector_make(l, &slot->in));
	if (rb_hollow(slot->in))
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "lagged: this simulation has no memory");
	RB_TRY(vector_make(l, &slot->out));
	RB_TRY(rubato_op_allreduce(l->comm, slot->in, slot->out, l->count, l->type, RUBATO_SUM,
				   &slot->data));
	return rb_call_create(l->comm, &weight, 0, false, &slot->weight);
}

static rubato_status device_find(struct rubato_lagged *l)
{
	rb_engine_enter(&l->comm->engine);
	l->device = rb_devices_cuda(&l->comm->engine);
	rb_engine_leave(&l->comm->engine);
	return l->device != NULL
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				 "lagged: this communicator has no CUDA device: rubato_cuda_use");
}

/* ---- What finalize finds: its operations and vectors are the communicator's ---- */

static void release(struct rubato_lagged *l)
{
	struct rubato_lagged **at = &l->comm->lagged;

	while (*at != NULL && *at != l)
		at = &(*at)->next;
	if (*at == l)
		*at = l->next;
	rb_device_copy_fini(&l->copy);
	if (l->device == NULL)
		free(l->gradient);
	free(l->slots);
	free(l);
}

static void all_release(struct rubato_comm *comm)
{
	while (comm->lagged != NULL)
		release(comm->lagged);
}

static void enlist(struct rubato_lagged *l)
{
	rb_engine_enter(&l->comm->engine);
	l->next = l->comm->lagged;
	l->comm->lagged = l;
	l->comm->lagged_end = all_release;
	rb_engine_leave(&l->comm->engine);
}

static rubato_status create(rubato_comm *comm, uint64_t count, rubato_type type, rubato_operator op,
			    uint32_t lag, bool on_device, rubato_lagged **lagged)
{
	struct rubato_lagged *l;
	rubato_status err;

	if (comm == NULL || lagged == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged: NULL");
	RB_TRY(rb_engine_ours(&comm->engine));
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return rb_notice_memory_outside(
			&comm->engine, RB_FAIL(RUBATO_ERR_MEMORY, "lagged: %zu bytes", sizeof(*l)));
	l->comm = comm;
	l->copy.engine = &comm->engine;
	l->count = count;
	l->type = type;
	l->op = op;
	l->reduce = rb_reduce_best();
	err = arguments_check(count, type, op, lag);
	if (err == RUBATO_OK && on_device)
		err = device_find(l);
	if (err == RUBATO_OK) {
		l->slots = calloc(lag + 1, sizeof(*l->slots));
		l->slot_count = l->slots != NULL ? lag + 1 : 0;
		if (l->slots == NULL)
			err = RB_FAIL(RUBATO_ERR_MEMORY, "lagged: %u buffers", lag + 1);
	}
	err = agree(l, lag, err);
	for (uint32_t i = 0; err == RUBATO_OK && i < l->slot_count; i++)
		err = slot_make(l, &l->slots[i]);
	err = rb_notice_memory_outside(&comm->engine, err);
	if (err != RUBATO_OK) {
		char text[RB_TEXT_BYTES];

		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
		(void)rubato_lagged_free(l);
		return RB_FAIL(err, "%s", text);
	}
	enlist(l);
	*lagged = l;
	return RUBATO_OK;
}

rubato_status rubato_lagged_create(rubato_comm *comm, uint64_t count, rubato_type type,
				   rubato_operator op, uint32_t lag, rubato_lagged **lagged)
{
	return create(comm, count, type, op, lag, false, lagged);
}

rubato_status rubato_cuda_lagged_create(rubato_comm *comm, uint64_t count, rubato_type type,
					rubato_operator op, uint32_t lag, rubato_lagged **lagged)
{
	return create(comm, count, type, op, lag, true, lagged);
}

/* Those in flight end first: their buffers are others' to read and write until then. */
static rubato_status flights_end(struct rubato_lagged *l)
{
	uint64_t timeout_ns = l->comm->timeout_ns;
	uint64_t deadline_ns = rb_deadline(rb_engine_now(&l->comm->engine), timeout_ns);
	rubato_status err = RUBATO_OK;

	for (; l->collected < l->begun; l->collected++) {
		struct slot *slot = slot_of(l, l->collected);

		if (err == RUBATO_OK)
			err = rb_op_wait(slot->data, timeout_ns, deadline_ns);
		if (err == RUBATO_OK)
			err = rb_op_wait(slot->weight, timeout_ns, deadline_ns);
		if (err != RUBATO_OK) { /* Cancelling poisons, so the rest ends at once. */
			(void)rubato_cancel(slot->data);
			(void)rubato_cancel(slot->weight);
		}
	}
	return err;
}

rubato_status rubato_lagged_free(rubato_lagged *l)
{
	struct rubato_comm *comm;
	rubato_status err;
	char text[RB_TEXT_BYTES];

	if (l == NULL)
		return RUBATO_OK;
	RB_TRY(rb_engine_ours(&l->comm->engine));
	err = flights_end(l);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	for (uint32_t i = 0; l->slots != NULL && i < l->slot_count; i++) {
		struct slot *slot = &l->slots[i];

		rubato_op_free(slot->data);
		rubato_op_free(slot->weight);
		if (err != RUBATO_OK)
			continue; /* Peers may still write there: finalize frees it. */
		vector_free(l, slot->in);
		vector_free(l, slot->out);
	}
	if (l->device != NULL && l->gradient != NULL)
		vector_free(l, l->gradient);
	comm = l->comm;
	rb_engine_enter(&comm->engine);
	release(l);
	rb_engine_leave(&comm->engine);
	return err == RUBATO_OK ? RUBATO_OK : RB_FAIL(err, "%s", text);
}

/* ---- Accumulation ---- */

static rubato_status slot_open(struct rubato_lagged *l, struct slot **slot)
{
	if (l->begun - l->collected == l->slot_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "lagged: %u allreduces are in flight already: collect first",
			       l->slot_count);
	*slot = slot_of(l, l->begun);
	if ((*slot)->clean)
		(*slot)->weights[0] = 0;
	return RUBATO_OK;
}

/* Neither waits for a peer. `call`: for errors. */
static rubato_status vector_reduce(struct rubato_lagged *l, const char *call,
				   const struct rb_reduce *reduce)
{
	if (l->device != NULL)
		return rb_device_reduce(&l->copy, call, l->device, reduce,
					(uint32_t)rubato_type_bytes(l->type), l->comm->timeout_ns);
	l->reduce(reduce);
	return RUBATO_OK;
}

static rubato_status vector_zero(struct rubato_lagged *l, const char *call, void *vector)
{
	const struct rb_reduce zeros = { .type = RUBATO_UINT8, .to = vector, .count = bytes_of(l) };

	if (l->device != NULL)
		return rb_device_reduce(&l->copy, call, l->device, &zeros, 1, l->comm->timeout_ns);
	memset(vector, 0, (size_t)bytes_of(l));
	return RUBATO_OK;
}

static rubato_status slot_zero(struct rubato_lagged *l, const char *call, struct slot *slot)
{
	if (slot->clean)
		RB_TRY(vector_zero(l, call, slot->in));
	slot->clean = false;
	return RUBATO_OK;
}

rubato_status rubato_lagged_acquire(rubato_lagged *l, void **buffer)
{
	struct slot *slot;

	if (l == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged acquire: NULL");
	RB_TRY(rb_engine_ours(&l->comm->engine));
	RB_TRY(slot_open(l, &slot));
	RB_TRY(slot_zero(l, "lagged acquire", slot));
	*buffer = slot->in;
	return RUBATO_OK;
}

/* From wherever it lies to where the vectors are, which is not the device that it is on. */
static rubato_status gradient_copy(struct rubato_lagged *l, void *to, const void *from)
{
	return (l->device != NULL ? rb_device_copy_out : rb_device_copy_in)(
		&l->copy, "lagged accumulate", to, from, bytes_of(l), l->comm->timeout_ns);
}

/* Whether it lies where the vectors do. */
static rubato_status gradient_find(struct rubato_lagged *l, const void *gradient, bool *near)
{
	struct rb_engine *engine = &l->comm->engine;
	struct rb_executor *device = NULL;
	enum rb_memory_kind kind;
	rubato_status err = RUBATO_OK;

	if (engine->device_count > 0) {
		rb_engine_enter(engine);
		err = rb_memory_kind_find(engine, "lagged accumulate", gradient, bytes_of(l), &kind,
					  &device);
		rb_engine_leave(engine);
	}
	*near = device == l->device;
	return err;
}

/* A copy of it that does. */
static rubato_status gradient_reach(struct rubato_lagged *l, const void **gradient)
{
	if (l->gradient == NULL && l->device != NULL)
		RB_TRY(vector_make(l, &l->gradient));
	else if (l->gradient == NULL)
		l->gradient = malloc((size_t)bytes_of(l));
	if (l->gradient == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "lagged accumulate: %llu bytes",
			       (unsigned long long)bytes_of(l));
	RB_TRY(gradient_copy(l, l->gradient, *gradient));
	*gradient = l->gradient;
	return RUBATO_OK;
}

static rubato_status slot_add(struct rubato_lagged *l, struct slot *slot, const void *gradient)
{
	const void *operands[2] = { slot->in, gradient };
	const struct rb_reduce sum = { .type = l->type,
				       .op = RUBATO_SUM,
				       .to = slot->in,
				       .from = operands,
				       .from_count = 2,
				       .count = l->count };

	const struct rb_reduce first = { .type = l->type,
					 .op = RUBATO_SUM,
					 .to = slot->in,
					 .from = &operands[1],
					 .from_count = 1,
					 .count = l->count };
	bool near;

	RB_TRY(gradient_find(l, gradient, &near));
	if (slot->clean && near && l->device != NULL) {
		RB_TRY(vector_reduce(l, "lagged accumulate", &first));
	} else if (slot->clean) {
		RB_TRY(gradient_copy(l, slot->in, gradient));
	} else {
		if (!near)
			RB_TRY(gradient_reach(l, &operands[1]));
		RB_TRY(vector_reduce(l, "lagged accumulate", &sum));
	}
	slot->clean = false;
	return RUBATO_OK;
}

rubato_status rubato_lagged_accumulate(rubato_lagged *l, const void *gradient, uint64_t weight)
{
	struct slot *slot;
	uint64_t room;

	if (l == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged accumulate: NULL");
	RB_TRY(rb_engine_ours(&l->comm->engine));
	RB_TRY(slot_open(l, &slot));
	/* So that the sum over ranks fits, too. */
	room = (uint64_t)INT64_MAX / l->comm->engine.rank_count - (uint64_t)slot->weights[0];
	if (weight > room)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "lagged accumulate: weight %llu, where there is room for %llu",
			       (unsigned long long)weight, (unsigned long long)room);
	if (gradient != NULL && l->count > 0)
		RB_TRY(slot_add(l, slot, gradient));
	else
		RB_TRY(slot_zero(l, "lagged accumulate", slot));
	slot->weights[0] += (int64_t)weight;
	return RUBATO_OK;
}

/* ---- Begin and collect ---- */

rubato_status rubato_lagged_begin(rubato_lagged *l)
{
	struct slot *slot;

	if (l == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged begin: NULL");
	RB_TRY(rb_engine_ours(&l->comm->engine));
	RB_TRY(slot_open(l, &slot));
	RB_TRY(slot_zero(l, "lagged begin", slot));
	RB_TRY(rubato_start(slot->data));
	RB_TRY(rubato_start(slot->weight));
	slot->clean = true;
	l->begun++;
	return RUBATO_OK;
}

rubato_status rubato_lagged_test(rubato_lagged *l, bool *done)
{
	bool data, weight;
	struct slot *slot;

	if (l == NULL || done == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged test: NULL");
	RB_TRY(rb_engine_ours(&l->comm->engine));
	if (l->collected == l->begun) {
		*done = true;
		return RUBATO_OK;
	}
	slot = slot_of(l, l->collected);
	RB_TRY(rubato_test(slot->data, &data));
	RB_TRY(rubato_test(slot->weight, &weight));
	*done = data && weight;
	return RUBATO_OK;
}

static rubato_status divide(struct rubato_lagged *l, const struct slot *slot)
{
	const uint64_t weight = (uint64_t)slot->weights[1];
	const void *operand = slot->out;
	const struct rb_reduce quotient = { .type = l->type,
					    .op = RUBATO_AVG,
					    .final_count = (uint32_t)weight,
					    .to = slot->out,
					    .from = &operand,
					    .from_count = 1,
					    .count = l->count };

	if (weight > UINT32_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged: a sum of weights of %llu is too large",
			       (unsigned long long)weight);
	if (weight == 0)
		return vector_zero(l, "lagged collect", slot->out);
	return weight > 1 ? vector_reduce(l, "lagged collect", &quotient) : RUBATO_OK;
}

static rubato_status next_take(struct rubato_lagged *l, const void **result, uint64_t *weight,
			       uint64_t timeout_ns)
{
	struct slot *slot = slot_of(l, l->collected);
	uint64_t deadline_ns;
	bool done;

	if (timeout_ns == RUBATO_NO_WAIT) {
		RB_TRY(rubato_lagged_test(l, &done));
		if (!done) {
			*result = NULL;
			return RUBATO_OK;
		}
	} else {
		if (timeout_ns == RUBATO_TIMEOUT_DEFAULT)
			timeout_ns = l->comm->timeout_ns;
		deadline_ns = rb_deadline(rb_engine_now(&l->comm->engine), timeout_ns);
		RB_TRY(rb_op_wait(slot->data, timeout_ns, deadline_ns));
		RB_TRY(rb_op_wait(slot->weight, timeout_ns, deadline_ns));
	}
	/* What cannot be divided is given up, or nothing that follows would ever be had. */
	l->collected++;
	if (l->op == RUBATO_AVG)
		RB_TRY(divide(l, slot));
	*result = slot->out;
	if (weight != NULL)
		*weight = (uint64_t)slot->weights[1];
	return RUBATO_OK;
}

rubato_status rubato_lagged_collect(rubato_lagged *l, const void **result, uint64_t *weight,
				    uint64_t timeout_ns)
{
	if (l == NULL || result == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged collect: NULL");
	RB_TRY(rb_engine_ours(&l->comm->engine));
	if (l->collected + l->slot_count <= l->begun)
		return next_take(l, result, weight, timeout_ns);
	*result = NULL;
	return RUBATO_OK;
}

rubato_status rubato_lagged_flush(rubato_lagged *l, const void **result, uint64_t *weight,
				  uint64_t timeout_ns)
{
	if (l == NULL || result == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "lagged flush: NULL");
	RB_TRY(rb_engine_ours(&l->comm->engine));
	if (l->collected < l->begun)
		return next_take(l, result, weight, timeout_ns);
	*result = NULL;
	return RUBATO_OK;
}
