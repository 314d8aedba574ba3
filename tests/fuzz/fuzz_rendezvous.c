/*
 * fuzz_rendezvous.c -- the machine's byte input. The fuzzer's bytes are a script: a root and a rank
 * that talk to each other in pieces, with bytes altered on the way, and a stranger that says
 * whatever it likes to either. Whatever comes, no invariant breaks, and a table that is handed out
 * is right.
 *
 * With libFuzzer: the entry point below. Without: fuzz_driver.c feeds it seeded scripts.
 */
#include <string.h>

#include "runtime/startup/rendezvous.h"
#include "tests/fuzz/fuzz_rendezvous.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#define CHECK(expr)                                                                                \
	do {                                                                                       \
		if (!(expr))                                                                       \
			__builtin_trap();                                                          \
	} while (0)

enum { ROOT, RANK, SIDES };

struct script {
	const uint8_t *at, *end;
};

struct side {
	struct rb_rv *machine;
	bool connect_wanted, listening, ready, over, exchanging;
	uint32_t link; /* Connection number of the link; UINT32_MAX: none. */
	uint8_t inbox[4096];
	size_t inbox_count;
};

struct pair {
	struct side sides[SIDES];
	struct script script;
	uint64_t now_ns;
	bool exchanged;
	uint8_t step[3];   /* What to do, and two arguments. */
	uint32_t stranger; /* Connection number at the root; UINT32_MAX: none. */
};

static uint8_t take(struct script *s)
{
	return s->at < s->end ? *s->at++ : 0;
}

static void give(struct pair *p, int i, struct rb_rv_event *e);

static void unlink_pair(struct pair *p, int from)
{
	struct side *other = &p->sides[!from];
	struct rb_rv_event e = { .kind = RB_RV_EV_CLOSED, .connection = other->link };

	p->sides[from].link = UINT32_MAX;
	p->sides[ROOT].inbox_count = p->sides[RANK].inbox_count = 0;
	if (other->link == UINT32_MAX)
		return;
	other->link = UINT32_MAX;
	if (!other->over)
		give(p, !from, &e);
}

static void table_check(const struct side *s)
{
	static const char *const blobs[] = { "the root's", "of rank 1" };

	for (uint32_t r = 0; r < 2; r++) {
		size_t bytes;
		const void *blob = rb_rv_blob(s->machine, r, &bytes);

		CHECK(bytes == strlen(blobs[r]) && memcmp(blob, blobs[r], bytes) == 0);
	}
}

static void give(struct pair *p, int i, struct rb_rv_event *e)
{
	struct side *s = &p->sides[i];
	struct rb_rv_action actions[64];
	uint32_t count = 0;
	bool exchanging = s->exchanging;

	e->now_ns = p->now_ns;
	rb_rv_step(s->machine, e);
	while (count < 64 && rb_rv_next(s->machine, &actions[count]))
		count++;
	CHECK(count < 64 && rb_rv_valid(s->machine));
	for (uint32_t k = 0; k < count; k++) {
		const struct rb_rv_action *a = &actions[k];

		if (a->act == RB_RV_ACT_CONNECT)
			s->connect_wanted = true;
		else if (a->act == RB_RV_ACT_UNLISTEN)
			s->listening = false;
		else if (a->act == RB_RV_ACT_DONE) {
			s->ready = true;
			s->exchanging = false;
			p->exchanged = p->exchanged || exchanging;
			if (exchanging)
				table_check(s);
		} else if (a->act == RB_RV_ACT_FAIL)
			s->over = true;
		else if (a->act == RB_RV_ACT_CLOSE && i == ROOT && a->connection == p->stranger)
			p->stranger = UINT32_MAX;
		else if (a->act == RB_RV_ACT_CLOSE && s->link == a->connection)
			unlink_pair(p, i);
	}
}

static void random_fill(struct pair *p, struct rb_rv_event *e)
{
	memset(e->random, (int)(p->now_ns & 0xff), sizeof(e->random));
}

static void do_connect(struct pair *p)
{
	struct rb_rv_event e = { .kind = RB_RV_EV_CONNECT_FAILED,
				 .text = "refused",
				 .status = RUBATO_ERR_SYSTEM,
				 .retry = true };
	struct rb_rv_event a = { .kind = RB_RV_EV_ACCEPTED, .text = "rank", .connection = 1 };

	if (!p->sides[RANK].connect_wanted || p->sides[RANK].over)
		return;
	p->sides[RANK].connect_wanted = false;
	random_fill(p, &e);
	random_fill(p, &a);
	if (!p->sides[ROOT].over && rb_rv_accepts(p->sides[ROOT].machine, p->now_ns) &&
	    p->sides[ROOT].link == UINT32_MAX) {
		e.kind = RB_RV_EV_CONNECTED;
		p->sides[ROOT].link = 1;
		p->sides[RANK].link = 0;
		give(p, ROOT, &a);
	}
	give(p, RANK, &e);
}

/* From an outbox to the other side's inbox, one byte of which may change. */
static void do_send(struct pair *p, int i)
{
	struct side *s = &p->sides[i], *other = &p->sides[!i];
	struct rb_rv_event e = { .kind = RB_RV_EV_SENT, .connection = s->link };
	const uint8_t *bytes;
	size_t most = p->step[1] + 1u;
	uint8_t mask = p->step[2];

	if (s->over || s->link == UINT32_MAX)
		return;
	size_t there = rb_rv_outbox(s->machine, s->link, &bytes);

	if (there == 0 || other->inbox_count + most > sizeof(other->inbox))
		return;
	e.size_bytes = there < most ? there : most;
	memcpy(other->inbox + other->inbox_count, bytes, e.size_bytes);
	if (mask >= 0xf8) /* Rarely, or nothing would ever get through. */
		other->inbox[other->inbox_count + e.size_bytes / 2] ^= mask;
	other->inbox_count += e.size_bytes;
	give(p, i, &e);
}

static void do_receive(struct pair *p, int i)
{
	struct side *s = &p->sides[i];
	struct rb_rv_event e = { .kind = RB_RV_EV_RECEIVED, .connection = s->link };
	uint8_t piece[256];
	size_t most = p->step[1] + 1u;

	if (s->over || s->link == UINT32_MAX || s->inbox_count == 0)
		return;
	size_t room = rb_rv_room(s->machine, s->link);

	most = most < room ? most : room;
	e.size_bytes = most < s->inbox_count ? most : s->inbox_count;
	if (e.size_bytes == 0)
		return;
	memcpy(piece, s->inbox, e.size_bytes);
	s->inbox_count -= e.size_bytes;
	memmove(s->inbox, s->inbox + e.size_bytes, s->inbox_count);
	e.bytes = piece;
	give(p, i, &e);
}

/* The script's own bytes, to the root's stranger or straight into the link. */
static void do_inject(struct pair *p, int i, bool stranger)
{
	struct side *s = &p->sides[i];
	struct rb_rv_event e = { .kind = RB_RV_EV_RECEIVED,
				 .connection = stranger ? p->stranger : s->link };
	size_t left = (size_t)(p->script.end - p->script.at), count = p->step[1] % 64u + 1u;

	if (s->over || e.connection == UINT32_MAX || left == 0)
		return;
	size_t room = rb_rv_room(s->machine, e.connection);

	count = count < left ? count : left;
	e.bytes = p->script.at;
	e.size_bytes = count < room ? count : room;
	p->script.at += e.size_bytes;
	if (e.size_bytes > 0)
		give(p, i, &e);
}

static void do_stranger(struct pair *p)
{
	struct rb_rv_event e = { .kind = RB_RV_EV_ACCEPTED, .text = "stranger", .connection = 2 };

	if (p->stranger != UINT32_MAX || p->sides[ROOT].over ||
	    !rb_rv_accepts(p->sides[ROOT].machine, p->now_ns))
		return;
	p->stranger = 2;
	random_fill(p, &e);
	give(p, ROOT, &e);
}

static void do_gather(struct pair *p, int i)
{
	struct side *s = &p->sides[i];
	struct rb_rv_event e = { .kind = RB_RV_EV_GATHER,
				 .bytes = i == ROOT ? "the root's" : "of rank 1",
				 .deadline_ns = p->now_ns + UINT64_C(60000000000) };

	e.size_bytes = strlen(e.bytes);
	if (!s->ready || s->over)
		return;
	s->ready = false;
	s->exchanging = true;
	give(p, i, &e);
}

static void do_tick(struct pair *p, int i)
{
	struct rb_rv_event e = { .kind = RB_RV_EV_TICK };

	p->now_ns += (uint64_t)p->step[1] * UINT64_C(10000000);
	if (!p->sides[i].over)
		give(p, i, &e);
}

/* The network loses the connection: both sides see it. */
static void do_break(struct pair *p)
{
	struct rb_rv_event e = { .kind = RB_RV_EV_CLOSED, .connection = p->sides[ROOT].link };

	if (e.connection == UINT32_MAX)
		return;
	unlink_pair(p, ROOT);
	if (!p->sides[ROOT].over)
		give(p, ROOT, &e);
}

static void script_run(struct pair *p)
{
	while (p->script.at < p->script.end) {
		for (size_t k = 0; k < sizeof(p->step); k++)
			p->step[k] = take(&p->script);
		uint8_t what = p->step[0];
		int i = what >> 7;

		p->now_ns += 1000;
		do_connect(p);
		switch (what % 16) {
		case 0:
			do_inject(p, i, false);
			break;
		case 1:
			do_inject(p, ROOT, true);
			break;
		case 2:
			do_stranger(p);
			break;
		case 3:
			do_tick(p, i);
			break;
		case 4:
		case 5:
			do_gather(p, i);
			break;
		case 6:
			if (what == 0x76)
				do_break(p);
			break;
		default:
			if (what & 0x40)
				do_send(p, i);
			else
				do_receive(p, i);
		}
	}
}

bool fuzz_rendezvous_run(const uint8_t *data, size_t size_bytes)
{
	struct pair p = { .script = { data, data + size_bytes },
			  .now_ns = 1,
			  .stranger = UINT32_MAX };
	struct rb_rv_event open = { .kind = RB_RV_EV_OPEN, .deadline_ns = UINT64_C(60000000000) };
	struct rb_rv_event listening = { .kind = RB_RV_EV_LISTENING };

	rb_log_level_set(RB_LOG_WARN);
	for (uint32_t i = 0; i < SIDES; i++) {
		struct rb_rv_options o = { .rank = i,
					   .rank_count = 2,
					   .root = "root:1",
					   .secret = "0123456789abcdef",
					   .secret_bytes = 16 };

		o.job[0] = o.instance[0] = (uint8_t)(i + 1);
		memset(o.job, i == ROOT ? 1 : 0, sizeof(o.job));
		CHECK(rb_rv_init(&o, &p.sides[i].machine) == RUBATO_OK);
		p.sides[i].link = UINT32_MAX;
		give(&p, (int)i, &open);
	}
	give(&p, ROOT, &listening);
	script_run(&p);

	rb_rv_fini(p.sides[ROOT].machine);
	rb_rv_fini(p.sides[RANK].machine);
	return p.exchanged;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	(void)fuzz_rendezvous_run(data, size_bytes);
	return 0;
}
