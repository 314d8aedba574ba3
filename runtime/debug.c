/* debug.c -- what the library does and why: dump, explain, statistics, forced algorithms. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine/absent.h"
#include "runtime/op_prepare.h"

#define LINKS_DIFFER 2 /* Times as fast as another: then it is worth a word. */

rubato_status rubato_set_algorithm(rubato_comm *comm, const char *operation, const char *algorithm)
{
	enum rb_kind kind;
	int found;

	if (comm == NULL || operation == NULL || algorithm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "algorithm: NULL");
	kind = rb_kind_find(operation);
	if (kind == RB_KIND_NONE)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "algorithm: unknown operation '%s'", operation);
	found = rb_algorithm_find(kind, algorithm);
	if (found < 0 && strcmp(algorithm, "auto") != 0) {
		char names[256] = "auto";

		for (uint32_t i = 0; i < rb_algorithm_count; i++) {
			if (rb_algorithms[i].kind != kind)
				continue;
			(void)snprintf(names + strlen(names), sizeof(names) - strlen(names), ", %s",
				       rb_algorithms[i].name);
		}
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s has no algorithm '%s': there are %s",
			       operation, algorithm, names);
	}
	RB_TRY(rb_engine_call(&comm->engine));
	comm->choices.forced[kind] = found;
	rb_choices_forget(comm);
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}

struct line { /* What is left of a text. */
	char *at;
	size_t left;
};

static void line_add(struct line *line, const char *format, ...) RB_PRINTF(2, 3);

/* What does not fit is cut off. */
static void line_add(struct line *line, const char *format, ...)
{
	va_list arguments;
	int bytes;

	va_start(arguments, format);
	bytes = vsnprintf(line->at, line->left, format, arguments);
	va_end(arguments);
	if (bytes <= 0 || line->left == 0)
		return;
	size_t used = (size_t)bytes < line->left ? (size_t)bytes : line->left - 1;

	line->at += used;
	line->left -= used;
}

/* How a call of this kind and type is chosen: by which facts, counting in units. */
struct view {
	struct rb_choice_facts facts;
	rubato_wire wire;
	uint64_t total, unit_values;
	uint32_t element_bytes;
};

static struct view view_of(const struct rubato_comm *comm, enum rb_kind kind, uint64_t count,
			   rubato_type type)
{
	struct view v = { .facts = comm->choices.facts,
			  .unit_values = 1,
			  .element_bytes = (uint32_t)rubato_type_bytes(type) };

	if (rb_wire_applies(comm, kind, type)) {
		v.wire = comm->wire;
		v.facts.coded = true;
		v.unit_values = rb_code_values(v.wire);
		v.element_bytes = rb_code_bytes(v.wire);
		count = rb_code_units(v.wire, count);
	}
	v.total = rb_plan_total(kind, count, comm->engine.rank_count);
	return v;
}

/* "; else ring 12.3 us, flat 20.1 us": what the cost model gives those that could run as well. */
static void others_add(struct line *line, const struct view *v, enum rb_kind kind, uint32_t chosen)
{
	const char *before = "; else";

	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		if (rb_algorithms[i].kind != kind || i == chosen)
			continue;
		double us = rb_predict(&v->facts, i, v->total, v->element_bytes);

		if (us < 0)
			continue;
		line_add(line, "%s %s %.1f us", before, rb_algorithms[i].name, us);
		before = ",";
	}
}

/* "; ring where a buffer takes no puts": what a form by puts makes way for. */
static void apart_add(struct line *line, const struct view *v, enum rb_kind kind,
		      const struct rb_choice *choice)
{
	struct rb_choice apart;

	if (rb_algorithms[choice->algorithm].flags & RB_SCHEDULE_PUT &&
	    rb_choose_without_puts(&v->facts, kind, v->total, v->element_bytes, &apart) ==
		    RUBATO_OK)
		line_add(line, "; %s where a buffer takes no puts",
			 rb_algorithms[apart.algorithm].name);
}

/* Where links between nodes differ. */
static void spread_add(struct line *line, const struct rubato_comm *comm)
{
	const struct rb_link_spread *spread = &comm->origin.spread;
	const struct rb_link *network = &comm->choices.facts.network;
	uint32_t count = comm->choices.nodes.count;

	if (network->byte_us > LINKS_DIFFER * spread->byte_us)
		line_add(line, " (%.3g from node %u to %u, up to %.3g elsewhere)",
			 1e-3 / network->byte_us, spread->narrow_node,
			 (spread->narrow_node + 1) % count, 1e-3 / spread->byte_us);
	if (network->latency_us > LINKS_DIFFER * spread->latency_us)
		line_add(line, " (%.1f us from node %u to %u, down to %.1f elsewhere)",
			 network->latency_us, spread->far_node, (spread->far_node + 1) % count,
			 spread->latency_us);
}

/* Whose long messages between plain buffers take two copies here, though they share memory. */
static void copies_add(struct line *line, const struct rubato_comm *comm)
{
	uint32_t twice = 0;

	for (uint32_t r = 0; r < comm->engine.rank_count; r++) {
		struct rb_endpoint *ep = rb_engine_endpoint(&comm->engine, r);

		twice += r != comm->engine.rank && ep->ops->copies != NULL &&
			 ep->ops->copies(ep, r) > 1;
	}
	if (twice > 0)
		line_add(line, "; messages of %u rank%s copied twice", twice,
			 twice == 1 ? " are" : "s are");
}

/* What the prediction rests on, where ranks do not all share memory. */
static void nodes_add(struct line *line, const struct rubato_comm *comm)
{
	const struct rb_choice_facts *facts = &comm->choices.facts;

	if (comm->origin.profiled)
		line_add(line, "; from profile %s", comm->config->profile.text);
	if (facts->nodes == NULL || facts->nodes->count == 1)
		return;
	line_add(line, "; %u nodes", facts->nodes->count);
	if (facts->own_links)
		line_add(line, ", a rank and a card each");
	if (facts->network.latency_us > 0)
		line_add(line, ", %.1f us and %.3g GB/s between them", facts->network.latency_us,
			 facts->network.byte_us > 0 ? 1e-3 / facts->network.byte_us : 0.0);
	if (facts->network.burst_bytes > 0)
		line_add(line, " after %.3g KB at once", facts->network.burst_bytes * 1e-3);
	spread_add(line, comm);
	if (facts->network.latency_us > 0 && comm->origin.measured)
		line_add(line, ", measured at creation");
	if (facts->put)
		line_add(line, ", puts %s", facts->puts_between ? "good" : "by messages");
}

/* How buffers on devices are reached, where this rank has one: by messages, by what works in peers'
 * buffers, and by puts. */
static void kinds_add(struct line *line, const struct rubato_comm *comm,
		      const struct rb_choice *choice)
{
	uint32_t flags = rb_algorithms[choice->algorithm].flags;
	bool takes = true;

	if (comm->engine.device_count == 0)
		return;
	for (uint32_t i = 0; i < comm->engine.endpoint_count; i++)
		takes = takes && rb_endpoint_reaches(comm->engine.endpoints[i], RB_MEMORY_DEVICE);
	line_add(line, "; device memory %s",
		 takes ? "is read by messages" : "goes through the host's in messages");
	if (flags & RB_SCHEDULE_MAPPED_BUFFERS)
		line_add(line, ", in place where all ranks' buffers are of one kind%s",
			 comm->sharing_refused ? " and all of a node one process" : "");
	if (flags & RB_SCHEDULE_PUT && !takes)
		line_add(line, ", takes no puts");
}

/* What predictions within a node rest on. */
static void memory_add(struct line *line, const struct rubato_comm *comm)
{
	const struct rb_node_speed *node = &comm->choices.facts.node;
	const char *source = rb_node_source_name(rb_comm_node_source(comm));

	if (comm->engine.rank_count == 1)
		return;
	if (node->core_byte_us == 0) {
		line_add(line, "; memory as %s", source);
		return;
	}
	line_add(line, "; memory %.3g GB/s", 1e-3 / node->core_byte_us);
	if (node->cross_byte_us > 0)
		line_add(line, ", %.3g from core to core", 1e-3 / node->cross_byte_us);
	if (node->memory_byte_us > 0)
		line_add(line, ", %.3g for all", 1e-3 / node->memory_byte_us);
	line_add(line, " (%s)", source);
}

rubato_status rubato_explain(rubato_comm *comm, const char *operation, uint64_t count,
			     rubato_type type, char *text, size_t text_bytes)
{
	struct rb_choice choice;
	rubato_status err;
	enum rb_kind kind;
	struct view v;

	if (comm == NULL || operation == NULL || text == NULL || rubato_type_bytes(type) == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "explain: NULL or unknown type");
	kind = rb_kind_find(operation);
	if (kind == RB_KIND_NONE)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "explain: unknown operation '%s'", operation);
	RB_TRY(rb_engine_call(&comm->engine));
	v = view_of(comm, kind, count, type);
	err = rb_choose(&v.facts, kind, v.total, v.element_bytes, comm->choices.forced[kind],
			&choice);
	rb_engine_leave(&comm->engine);
	if (err != RUBATO_OK)
		return err;
	struct line line = { text, text_bytes };

	line_add(&line, "%s: %s (%s), chunks of %llu elements, predicted %.1f us", operation,
		 rb_algorithms[choice.algorithm].name, choice.why,
		 (unsigned long long)(choice.chunk * v.unit_values), choice.predicted_us);
	if (v.wire != RUBATO_WIRE_SAME)
		line_add(&line, "; sums and averages travel as %s", rubato_wire_name(v.wire));
	/* What is coded lies in the library's memory. */
	if (choice.apart_bytes > 0)
		line_add(&line,
			 "; messages between two ranks with at most %u bytes for each other, or a "
			 "plain buffer",
			 choice.apart_bytes);
	else if (choice.staged != choice.algorithm && v.wire == RUBATO_WIRE_SAME)
		line_add(&line, "; %s where a buffer is plain", rb_algorithms[choice.staged].name);
	apart_add(&line, &v, kind, &choice);
	copies_add(&line, comm);
	nodes_add(&line, comm);
	others_add(&line, &v, kind, choice.algorithm);
	kinds_add(&line, comm, &choice);
	memory_add(&line, comm);
	return RUBATO_OK;
}

rubato_status rubato_get_stats(rubato_comm *comm, rubato_stats *stats)
{
	struct rb_engine *engine;

	if (comm == NULL || stats == NULL || stats->size_bytes < sizeof(*stats))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "stats: NULL, or size_bytes is not set");
	engine = &comm->engine;
	RB_TRY(rb_engine_call(engine));
	*stats = (rubato_stats) {
		.size_bytes = (uint32_t)sizeof(*stats),
		.operations_in_flight = engine->in_flight,
		.operations = engine->operations,
		.bytes_mapped = engine->bytes_mapped,
		.wait_ns = engine->wait_ns,
		.background_polls = engine->background.polls,
	};
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		stats->bytes_sent += engine->endpoints[i]->bytes_sent;
		stats->bytes_received += engine->endpoints[i]->bytes_received;
		stats->sleeps += engine->endpoints[i]->sleeps;
	}
	rb_engine_leave(engine);
	return RUBATO_OK;
}

/* ---- Dump ---- */

#define EARLY_LINES 64u

/* Written when the lock is free again: who reads it may be slow, or nobody. */
struct lines {
	char *text;
	size_t used, room;
};

static void line_keep(void *arg, const char *text)
{
	struct lines *lines = arg;
	size_t bytes = strlen(text);

	if (lines->used + bytes + 1 > lines->room) {
		size_t room = 2 * lines->room + bytes + 4096;
		char *more = realloc(lines->text, room);

		if (more == NULL)
			return;
		lines->text = more;
		lines->room = room;
	}
	memcpy(lines->text + lines->used, text, bytes);
	lines->text[lines->used + bytes] = '\n';
	lines->used += bytes + 1;
}

static void lines_write(const struct lines *lines, int fd)
{
	size_t at = 0;

	while (at < lines->used) {
		ssize_t put = write(fd, lines->text + at, lines->used - at);

		if (put > 0)
			at += (size_t)put;
		else if (put == 0 || errno != EINTR)
			return;
	}
}

/* " in device out host, 131072 bytes staged": of what does not lie in the host's memory. */
static const char *kinds_text(const struct rb_plan *plan, char *text, size_t text_bytes)
{
	text[0] = '\0';
	if (plan->staged)
		(void)snprintf(text, text_bytes, " in %s out %s, %llu bytes staged",
			       rb_memory_kind_name((enum rb_memory_kind)plan->kinds[RB_BUF_IN]),
			       rb_memory_kind_name((enum rb_memory_kind)plan->kinds[RB_BUF_OUT]),
			       (unsigned long long)(plan->stage_bytes[0] + plan->stage_bytes[1]));
	return text;
}

static void run_dump(const struct rb_engine *engine, const struct rb_run *run, struct lines *lines)
{
	const struct rb_schedule *schedule = &run->plan->schedule;
	char name[96], absent[96], kinds[64], line[320];
	uint32_t complete = rb_run_steps_done(run);

	(void)rb_signature_text(&run->signature, name, sizeof(name));
	(void)rb_run_absent(run, absent, sizeof(absent));
	(void)snprintf(line, sizeof(line), "r%u %s %s s%u/%u tag %llx:%llx wait%s%s", engine->rank,
		       run->plan->algorithm != NULL ? run->plan->algorithm->name : "given", name,
		       complete, schedule->step_count, (unsigned long long)run->tag.call,
		       (unsigned long long)run->tag.step, absent[0] != '\0' ? absent : " none",
		       kinds_text(run->plan, kinds, sizeof(kinds)));
	line_keep(lines, line);
}

/* They are at no transport. */
static void put_off_dump(const struct rubato_comm *comm, struct lines *lines)
{
	char name[96], line[320];

	for (uint32_t i = 0; i < comm->receives.count; i++) {
		const struct rubato_op *op = comm->receives.at[i];

		(void)snprintf(line, sizeof(line), "r%u recv from %u tag %u put off: %s",
			       comm->engine.rank, op->root, op->user_tag,
			       rb_signature_text(&op->signature, name, sizeof(name)));
		line_keep(lines, line);
	}
}

/* They have no run yet. */
static void enqueued_dump(const struct rubato_comm *comm, struct lines *lines)
{
	char name[96], line[320];

	for (const struct rubato_op *op = comm->enqueued.first; op != NULL; op = op->stream.next) {
		(void)snprintf(line, sizeof(line), "r%u enqueued %s waits for its stream",
			       comm->engine.rank,
			       rb_signature_text(&op->signature, name, sizeof(name)));
		line_keep(lines, line);
	}
}

struct early {
	uint32_t rank, count;
	struct lines *lines;
};

static bool early_line(void *arg, uint32_t peer, struct rb_tag tag,
		       const struct rb_signature *signature)
{
	struct early *early = arg;
	char name[96], line[320];

	if (early->count++ >= EARLY_LINES)
		return false;
	(void)snprintf(line, sizeof(line), "r%u early from %u tag %llx:%llx: %s", early->rank, peer,
		       (unsigned long long)tag.call, (unsigned long long)tag.step,
		       rb_signature_text(signature, name, sizeof(name)));
	line_keep(early->lines, line);
	return false;
}

/* What has come and has no receive yet. */
static void early_dump(const struct rb_engine *engine, struct lines *lines)
{
	struct early early = { .rank = engine->rank, .lines = lines };
	char line[96];

	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		(void)engine->endpoints[i]->ops->unmatched(engine->endpoints[i], early_line,
							   &early);
	if (early.count <= EARLY_LINES)
		return;
	(void)snprintf(line, sizeof(line), "r%u early: %u more", engine->rank,
		       early.count - EARLY_LINES);
	line_keep(lines, line);
}

void rubato_dump(rubato_comm *comm, int fd)
{
	static const char *const who[] = { "nobody", "waiter", "background" };
	struct lines lines = { .text = NULL };
	struct rb_engine *engine;
	char line[300 + RB_TEXT_BYTES];

	if (comm == NULL)
		return;
	engine = &comm->engine;
	if (rb_engine_call(engine) != RUBATO_OK)
		return;
	(void)snprintf(line, sizeof(line),
		       "r%u of %u operations %llu in_flight %u driving %s waiters %u poison %s",
		       engine->rank, engine->rank_count, (unsigned long long)engine->operations,
		       engine->in_flight, who[engine->driving], engine->waiters,
		       engine->poison != RUBATO_OK ? engine->poison_text : "none");
	line_keep(&lines, line);
	for (const struct rb_run *run = engine->runs; run != NULL; run = run->next)
		run_dump(engine, run, &lines);
	if (comm->relaxed != NULL)
		comm->relaxed->dump(comm, line_keep, &lines);
	if (comm->help != NULL)
		comm->help->dump(comm, line_keep, &lines);
	put_off_dump(comm, &lines);
	enqueued_dump(comm, &lines);
	early_dump(engine, &lines);
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		engine->endpoints[i]->ops->dump(engine->endpoints[i], line_keep, &lines);
	rb_engine_leave(engine);
	lines_write(&lines, fd);
	free(lines.text);
}

const char *rubato_operation_name(uint32_t index)
{
	uint32_t count = RB_KIND_SENDRECV - RB_KIND_BARRIER;

	return index < count ? rb_kind_name((enum rb_kind)(RB_KIND_BARRIER + index)) : NULL;
}

const char *rubato_algorithm_name(const char *operation, uint32_t index)
{
	for (uint32_t i = 0; operation != NULL && i < rb_algorithm_count; i++)
		if (strcmp(rb_kind_name(rb_algorithms[i].kind), operation) == 0 && index-- == 0)
			return rb_algorithms[i].name;
	return NULL;
}
