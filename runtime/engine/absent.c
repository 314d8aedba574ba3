/* absent.c -- see absent.h. */
#include "runtime/engine/absent.h"

#include <stdio.h>
#include <string.h>

struct absent {
	char *text;
	size_t text_bytes, at;
	uint32_t named;
};

/* False: there is no room for more. */
static bool absent_add(struct absent *a, const struct rb_run *run, const struct rb_step *step)
{
	bool incoming = step->kind == RB_STEP_RECV || step->kind == RB_STEP_WAIT;
	char one[48];

	(void)snprintf(one, sizeof(one), " rank %u%s,", rb_run_peer(run, step),
		       incoming ? "" : " to take a message");
	if (strstr(a->text, one) != NULL)
		return true;
	if (++a->named > 8 || a->at + sizeof(one) >= a->text_bytes)
		return false;
	a->at += (size_t)snprintf(a->text + a->at, a->text_bytes - a->at, "%s", one);
	return true;
}

char *rb_run_absent(const struct rb_run *run, char *text, size_t text_bytes)
{
	struct absent a = { .text = text, .text_bytes = text_bytes };
	const struct rb_plan *plan = run->plan;

	text[0] = '\0';
	for (const struct rb_slot *slot = run->slots; slot != NULL; slot = slot->next)
		if (!slot->is_work && !absent_add(&a, run, &plan->schedule.steps[slot->step]))
			break;
	if (run->deferred) /* Nothing is posted: it stopped at a message that had not come. */
		(void)absent_add(&a, run, &plan->schedule.steps[plan->order[run->straight]]);
	if (a.at > 0)
		text[a.at - 1] = '\0';
	return text;
}

void rb_run_give_up(struct rb_engine *engine, struct rb_run *run, rubato_status status,
		    const char *what)
{
	char absent[128], text[256];

	(void)rb_run_absent(run, absent, sizeof(absent));
	(void)snprintf(text, sizeof(text), "%s: waits for%s", what,
		       absent[0] != '\0' ? absent : " its own work");
	rb_run_fail(engine, run, status, text);
}

char *rb_run_way(const struct rb_engine *engine, const struct rb_run *run, char *text,
		 size_t text_bytes)
{
	const struct rb_slot *slot = run->slots;
	struct rb_endpoint *ep;
	char path[RB_WAY_BYTES] = "";
	uint32_t peer;

	text[0] = '\0';
	while (slot != NULL && slot->is_work)
		slot = slot->next;
	if (slot == NULL)
		return text;
	peer = rb_run_peer(run, &run->plan->schedule.steps[slot->step]);
	ep = rb_engine_endpoint(engine, peer);
	if (ep->ops->path != NULL)
		ep->ops->path(ep, peer, path, sizeof(path));
	path[strcspn(path, ";")] = '\0'; /* The first of several rails. */
	if (path[0] != '\0')
		(void)snprintf(text, text_bytes, " (by %s)", path);
	return text;
}
