/* flow.c -- see flow.h. */
#include "runtime/engine/flow.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* No receiver has so many receives in flight: they would not wait for numbers of new flows. */
#define SPACING (UINT64_C(1) << 28)
#define NUMBER_MAX (UINT64_MAX / 2) /* Then nobody begins anew any more. */

/* What is told: where new flows begin, then the tag and the next number of each old one. */
#define ENTRY_BYTES 12u
#define LIST_BYTES (8u + RB_FLOWS_MAX * ENTRY_BYTES)

enum { HEAD, LIST }; /* The head comes first: who receives it makes room for the list. */

struct rb_pair { /* Of this rank and a peer, one direction. */
	struct rb_flows *table;
	uint32_t peer, count; /* Flows. */
	uint64_t begin;       /* Where new ones begin. */
	uint32_t begun;       /* How often the sender has begun anew. */
	uint8_t *list;        /* Received: room for it; NULL: the head is awaited. */
	struct rb_pair *next;
};

struct rb_flow_list { /* On its way. */
	struct rb_flows *flows;
	struct rb_flow_list *next, *previous;
	uint8_t bytes[LIST_BYTES];
};

static const struct rb_signature flows_signature = {
	.kind = RB_KIND_CONTROL, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

/* ---- The table: flows, and an entry without a tag for each pair ---- */

#define PAIR_KEY (UINT64_C(1) << 63)

static inline uint64_t flow_key(uint32_t peer, uint32_t user_tag, bool sending)
{
	return (uint64_t)peer << 33 | (uint64_t)user_tag << 1 | sending;
}

static inline uint64_t pair_key(uint32_t peer, bool sending)
{
	return PAIR_KEY | flow_key(0, peer, sending);
}

static uint32_t tag_of(const struct rb_flow *flow)
{
	return (uint32_t)(flow->key >> 1);
}

static bool is_of(const struct rb_flow *flow, const struct rb_pair *pair)
{
	return flow->used && flow->pair == pair && !(flow->key & PAIR_KEY);
}

static struct rb_flow *flow_slot(struct rb_flow *flows, uint32_t capacity, uint64_t key)
{
	uint32_t at = (uint32_t)rb_mix(key) & (capacity - 1);

	while (flows[at].used && flows[at].key != key)
		at = (at + 1) & (capacity - 1);
	return &flows[at];
}

static bool flows_grow(struct rb_flows *table)
{
	uint32_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
	struct rb_flow *flows = calloc(capacity, sizeof(*flows));

	if (flows == NULL)
		return false;
	for (uint32_t i = 0; i < table->capacity; i++)
		if (table->at[i].used)
			*flow_slot(flows, capacity, table->at[i].key) = table->at[i];
	free(table->at);
	table->at = flows;
	table->capacity = capacity;
	return true;
}

/* What other ones had to step over it for moves up. */
static void flow_forget(struct rb_flows *table, struct rb_flow *flow)
{
	uint32_t mask = table->capacity - 1, hole = (uint32_t)(flow - table->at);

	flow->pair->count--;
	table->count--;
	free(flow->freed);
	free(flow->jumps);
	for (uint32_t i = (hole + 1) & mask; table->at[i].used; i = (i + 1) & mask) {
		uint32_t home = (uint32_t)rb_mix(table->at[i].key) & mask;

		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		table->at[hole] = table->at[i];
		hole = i;
	}
	table->at[hole] = (struct rb_flow) { .used = false };
}

static struct rb_flow *flow_make(struct rb_flows *table, struct rb_pair *pair, uint64_t key)
{
	struct rb_flow *flow = flow_slot(table->at, table->capacity, key);

	*flow = (struct rb_flow) {
		.key = key, .next = pair->begin, .pair = pair, .moved = pair->begun, .used = true
	};
	pair->count += !(key & PAIR_KEY);
	table->count++;
	return flow;
}

/* For one more, and the pair that it may be the first of. */
static bool room_make(struct rb_flows *table)
{
	return (table->count + 1) * 2 < table->capacity || flows_grow(table);
}

/* ---- Numbers ---- */

void rb_flow_jump(struct rb_flow *flow)
{
	if (flow->next != flow->jumps[0].from)
		return;
	flow->next = flow->jumps[0].to;
	memmove(flow->jumps, flow->jumps + 1, --flow->jump_count * sizeof(*flow->jumps));
}

uint64_t rb_flow_take(struct rb_flow *flow)
{
	uint64_t number = flow->next;

	if (flow->freed_count == 0) {
		rb_flow_pass(flow);
		return number;
	}
	number = flow->freed[0];
	memmove(flow->freed, flow->freed + 1, --flow->freed_count * sizeof(*flow->freed));
	return number;
}

rubato_status rb_flow_give(struct rb_flow *flow, uint64_t number)
{
	uint32_t at = flow->freed_count;

	if (number + 1 == flow->next) {
		flow->next--;
		while (flow->freed_count > 0 &&
		       flow->freed[flow->freed_count - 1] + 1 == flow->next) {
			flow->freed_count--;
			flow->next--;
		}
		return RUBATO_OK;
	}
	if (flow->freed_count == flow->freed_room) {
		uint32_t room = flow->freed_room * 2 + 4;
		uint64_t *freed = realloc(flow->freed, room * sizeof(*freed));

		if (freed == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "numbers of messages");
		flow->freed = freed;
		flow->freed_room = room;
	}
	while (at > 0 && flow->freed[at - 1] > number)
		at--;
	memmove(flow->freed + at + 1, flow->freed + at,
		(flow->freed_count - at) * sizeof(*flow->freed));
	flow->freed[at] = number;
	flow->freed_count++;
	return RUBATO_OK;
}

void rb_flow_add(struct rb_flow *flow, struct rb_flow_message *message)
{
	message->next = NULL;
	message->previous = flow->last;
	*(flow->last != NULL ? &flow->last->next : &flow->first) = message;
	flow->last = message;
}

void rb_flow_remove(struct rb_flow *flow, struct rb_flow_message *message)
{
	*(message->previous != NULL ? &message->previous->next : &flow->first) = message->next;
	*(message->next != NULL ? &message->next->previous : &flow->last) = message->previous;
}

struct rb_flow_left *rb_flow_leave(struct rb_flows *flows, struct rb_flow *flow, uint64_t number)
{
	struct rb_flow_left *left = malloc(sizeof(*left));

	if (left == NULL)
		return NULL;
	*left = (struct rb_flow_left) { .flows = flows, .number = number, .next = flow->left };
	if (left->next != NULL)
		left->next->previous = left;
	flow->left = left;
	flows->left_count++;
	return left;
}

void rb_flow_left_end(struct rb_flow *flow, struct rb_flow_left *left)
{
	*(left->previous != NULL ? &left->previous->next : &flow->left) = left->next;
	if (left->next != NULL)
		left->next->previous = left->previous;
	left->flows->left_count--;
	free(left);
}

/* ---- Who sends begins anew ---- */

static void request_set(struct rb_slot *slot, const struct rb_pair *pair, uint32_t part,
			uint32_t begun, uint8_t *bytes)
{
	slot->is_work = false;
	slot->request = (struct rb_request) {
		.peer = pair->peer,
		.tag = rb_tag_message(pair->table->engine->epoch, RB_TAG_FLOWS, part, begun),
		.signature = flows_signature,
		.buffer = bytes,
		.size_bytes = part == LIST ? LIST_BYTES : 0,
		.owner = slot,
	};
}

static void part_sent(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_flow_list *list = slot->owner;

	if (list != NULL) {
		*(list->previous != NULL ? &list->previous->next : &list->flows->lists) =
			list->next;
		if (list->next != NULL)
			list->next->previous = list->previous;
		free(list);
	}
	engine->in_flight--;
	rb_slot_give(engine, slot);
}

static void part_send(struct rb_pair *pair, struct rb_slot *slot, uint32_t part,
		      struct rb_flow_list *list)
{
	struct rb_engine *engine = pair->table->engine;
	struct rb_endpoint *ep = rb_engine_endpoint(engine, pair->peer);

	request_set(slot, pair, part, pair->begun, list != NULL ? list->bytes : NULL);
	slot->owner = list;
	slot->done = part_sent;
	engine->in_flight++; /* The progress thread sees to it. */
	ep->ops->send(ep, &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		part_sent(engine, slot);
}

/* The pair's flows, which are as many as a list has room for. */
static uint64_t list_write(struct rb_flows *table, const struct rb_pair *pair, struct rb_wire *w)
{
	uint64_t highest = pair->begin;

	for (uint32_t i = 0; i < table->capacity; i++) {
		const struct rb_flow *flow = &table->at[i];

		if (!is_of(flow, pair))
			continue;
		rb_wire_put_u32(w, tag_of(flow));
		rb_wire_put_u64(w, flow->next);
		highest = flow->next > highest ? flow->next : highest;
	}
	return highest;
}

/* False: no memory. */
static bool begin_anew(struct rb_pair *pair)
{
	struct rb_flows *table = pair->table;
	struct rb_engine *engine = pair->table->engine;
	struct rb_flow_list *list = malloc(sizeof(*list));
	struct rb_slot *head = rb_slot_take(engine);
	struct rb_slot *slot = head != NULL ? rb_slot_take(engine) : NULL;
	struct rb_wire w, first;
	uint64_t highest;

	if (list == NULL || slot == NULL) {
		free(list);
		if (head != NULL)
			rb_slot_give(engine, head);
		return false;
	}
	first = rb_wire_over(list->bytes, 8);
	w = rb_wire_over(list->bytes + 8, sizeof(list->bytes) - 8);
	highest = list_write(table, pair, &w);
	pair->begin = highest + SPACING;
	rb_wire_put_u64(&first, pair->begin);
	for (uint32_t i = 0; i < table->capacity;)
		if (is_of(&table->at[i], pair))
			flow_forget(table, &table->at[i]);
		else
			i++;
	pair->begun++;
	list->flows = table;
	list->previous = NULL;
	list->next = table->lists;
	if (list->next != NULL)
		list->next->previous = list;
	table->lists = list;
	part_send(pair, head, HEAD, NULL);
	part_send(pair, slot, LIST, list);
	return true;
}

/* ---- Who receives hears of it ---- */

static rubato_status jump_add(struct rb_flow *flow, uint64_t from, uint64_t to)
{
	if (flow->jump_count > 0 && flow->jumps[flow->jump_count - 1].to == from) {
		flow->jumps[flow->jump_count - 1].to = to; /* Nothing lay between. */
		return RUBATO_OK;
	}
	if (flow->jump_count == flow->jump_room) {
		uint32_t room = flow->jump_room * 2 + 1;
		struct rb_jump *jumps = realloc(flow->jumps, room * sizeof(*jumps));

		if (jumps == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "numbers of messages");
		flow->jumps = jumps;
		flow->jump_room = room;
	}
	flow->jumps[flow->jump_count++] = (struct rb_jump) { from, to };
	return RUBATO_OK;
}

/* Its number `from` is now `to`, and so on. */
static rubato_status flow_move(struct rb_flow *flow, uint64_t from, uint64_t to)
{
	flow->moved = flow->pair->begun;
	if (flow->jump_count > 0 || flow->next < from)
		return jump_add(flow, from, to);
	flow->next += to - from;
	for (struct rb_flow_left *left = flow->left; left != NULL; left = left->next)
		left->number += left->number >= from ? to - from : 0;
	for (uint32_t i = flow->freed_count; i > 0 && flow->freed[i - 1] >= from; i--)
		flow->freed[i - 1] += to - from;
	flow->pair->table->renumber(flow, from, to - from);
	return RUBATO_OK;
}

static rubato_status entry_take(struct rb_pair *pair, uint32_t tag, uint64_t end, uint64_t was)
{
	struct rb_flows *table = pair->table;
	uint64_t key = flow_key(pair->peer, tag, false);
	struct rb_flow *flow;

	if (end < was || end >= pair->begin)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "rank %u tells nonsense of tag %u", pair->peer,
			       tag);
	if (!room_make(table))
		return RB_FAIL(RUBATO_ERR_MEMORY, "numbers of messages");
	flow = flow_slot(table->at, table->capacity, key);
	if (!flow->used) {
		if (end == was)
			return RUBATO_OK;
		flow = flow_make(table, pair, key);
		flow->next = was;
	}
	return flow_move(flow, end, pair->begin);
}

static rubato_status list_take(struct rb_pair *pair)
{
	struct rb_flows *table = pair->table;
	struct rb_wire w = rb_wire_over(pair->list, LIST_BYTES);
	uint64_t was = pair->begin;

	pair->begin = rb_wire_get_u64(&w);
	pair->begun++;
	for (uint32_t i = 0; i < RB_FLOWS_MAX; i++) {
		uint32_t tag = rb_wire_get_u32(&w);

		RB_TRY(entry_take(pair, tag, rb_wire_get_u64(&w), was));
	}
	for (uint32_t i = 0; i < table->capacity; i++)
		if (is_of(&table->at[i], pair) && table->at[i].moved != pair->begun)
			RB_TRY(flow_move(&table->at[i], was, pair->begin));
	for (uint32_t i = 0; i < table->capacity;) {
		uint32_t count = table->count;

		if (is_of(&table->at[i], pair))
			rb_flow_settle(table, &table->at[i]);
		i += table->count == count;
	}
	return RUBATO_OK;
}

static void part_came(struct rb_engine *engine, struct rb_slot *slot);

/* The next part is awaited; true: it is here already. */
static bool part_await(struct rb_pair *pair, struct rb_slot *slot)
{
	struct rb_endpoint *ep = rb_engine_endpoint(pair->table->engine, pair->peer);

	request_set(slot, pair, pair->list != NULL ? LIST : HEAD, pair->begun + 1, pair->list);
	slot->owner = pair;
	slot->done = part_came;
	ep->ops->recv(ep, &slot->request);
	return slot->request.state == RB_REQUEST_DONE;
}

static rubato_status part_take(struct rb_pair *pair)
{
	rubato_status err;

	if (pair->list == NULL) {
		pair->list = malloc(LIST_BYTES);
		return pair->list != NULL ? RUBATO_OK
					  : RB_FAIL(RUBATO_ERR_MEMORY, "numbers of messages");
	}
	err = list_take(pair);
	free(pair->list);
	pair->list = NULL;
	return err;
}

static void part_came(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_pair *pair = slot->owner;
	rubato_status err;

	do {
		bool lost = slot->request.status != RUBATO_OK; /* The peer: nothing more comes. */

		err = lost ? RUBATO_OK : part_take(pair);
		if (lost || err != RUBATO_OK) {
			rb_slot_give(engine, slot);
			if (err != RUBATO_OK)
				rb_engine_poison(engine, err, rubato_error_text());
			return;
		}
	} while (part_await(pair, slot));
}

/* ---- Finding them ---- */

/* With room in the table. */
static struct rb_pair *pair_find(struct rb_flows *table, uint32_t peer, bool sending)
{
	uint64_t key = pair_key(peer, sending);
	struct rb_flow *entry = flow_slot(table->at, table->capacity, key);
	struct rb_slot *slot;
	struct rb_pair *pair;

	if (entry->used)
		return entry->pair;
	pair = calloc(1, sizeof(*pair));
	slot = sending || pair == NULL ? NULL : rb_slot_take(table->engine);
	if (pair == NULL || (!sending && slot == NULL)) {
		free(pair);
		return NULL;
	}
	pair->table = table;
	pair->peer = peer;
	pair->next = table->pairs;
	table->pairs = pair;
	(void)flow_make(table, pair, key);
	if (!sending && part_await(pair, slot))
		part_came(table->engine, slot);
	return pair;
}

static struct rb_flow *flow_new(struct rb_flows *table, uint32_t peer, uint64_t key)
{
	bool sending = key & 1;
	struct rb_pair *pair;
	struct rb_flow *flow;

	if (!room_make(table))
		return NULL;
	pair = pair_find(table, peer, sending);
	if (pair == NULL)
		return NULL;
	if (sending && pair->count >= RB_FLOWS_MAX && pair->begin < NUMBER_MAX && !begin_anew(pair))
		return NULL;
	if (!room_make(table)) /* What has come may have brought some. */
		return NULL;
	flow = flow_slot(table->at, table->capacity, key);
	return flow->used ? flow : flow_make(table, pair, key);
}

struct rb_flow *rb_flow_find(struct rb_flows *flows, uint32_t peer, uint32_t user_tag, bool sending)
{
	uint64_t key = flow_key(peer, user_tag, sending);

	if (__builtin_expect(flows->capacity > 0, 1)) {
		struct rb_flow *flow = flow_slot(flows->at, flows->capacity, key);

		if (flow->used)
			return flow;
	}
	return flow_new(flows, peer, key);
}

struct rb_flow *rb_flow_known(const struct rb_flows *flows, uint32_t peer, uint32_t user_tag,
			      bool sending)
{
	struct rb_flow *flow =
		flow_slot(flows->at, flows->capacity, flow_key(peer, user_tag, sending));

	return flow->used ? flow : NULL;
}

void rb_flow_settle(struct rb_flows *flows, struct rb_flow *flow)
{
	if (flow->next == flow->pair->begin && flow->first == NULL && flow->left == NULL &&
	    flow->freed_count == 0 && flow->jump_count == 0)
		flow_forget(flows, flow);
}

void rb_flows_free(struct rb_flows *flows)
{
	for (uint32_t i = 0; i < flows->capacity; i++) {
		while (flows->at[i].left != NULL)
			rb_flow_left_end(&flows->at[i], flows->at[i].left);
		free(flows->at[i].freed);
		free(flows->at[i].jumps);
	}
	free(flows->at);
	while (flows->pairs != NULL) {
		struct rb_pair *pair = flows->pairs;

		flows->pairs = pair->next;
		free(pair->list);
		free(pair);
	}
	while (flows->lists != NULL) {
		struct rb_flow_list *list = flows->lists;

		flows->lists = list->next;
		free(list);
	}
}
