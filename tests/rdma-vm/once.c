/*
 * once.c -- preloaded: a queue pair tells only once that its last receive is over.
 *
 * Soft-RoCE tells of IBV_EVENT_QP_LAST_WQE_REACHED for each packet that still comes to a queue pair
 * in error; real devices tell once. UCX 1.13 ends the process at a second one that comes before the
 * first is dealt with (ib_device.c, "wait_ctx->cb_id == (-1)"). With this, what is ours can be
 * tested over UCX's rc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define TOLD_MAX 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct ibv_qp *told[TOLD_MAX]; /* Have told, and are not destroyed. */

#define SEEN __attribute__((visibility("default")))

/* The library's own function of that name, into *function. */
static void next(const char *name, void *function)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL) {
		(void)fprintf(stderr, "once: libibverbs has no %s\n", name);
		abort();
	}
	memcpy(function, &found, sizeof(found));
}

/* Where it stands, or where there is room. */
static unsigned find(const struct ibv_qp *qp)
{
	unsigned room = TOLD_MAX;

	for (unsigned i = 0; i < TOLD_MAX; i++) {
		if (told[i] == qp)
			return i;
		if (told[i] == NULL && room == TOLD_MAX)
			room = i;
	}
	if (room == TOLD_MAX) {
		(void)fprintf(stderr, "once: more than %d queue pairs\n", TOLD_MAX);
		abort();
	}
	return room;
}

static int again(const struct ibv_async_event *event)
{
	unsigned at;
	int found;

	if (event->event_type != IBV_EVENT_QP_LAST_WQE_REACHED)
		return 0;
	(void)pthread_mutex_lock(&lock);
	at = find(event->element.qp);
	found = told[at] != NULL;
	told[at] = event->element.qp;
	(void)pthread_mutex_unlock(&lock);
	return found;
}

SEEN int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int (*get)(struct ibv_context *, struct ibv_async_event *);
	int status;

	next("ibv_get_async_event", &get);
	while ((status = get(context, event)) == 0 && again(event))
		ibv_ack_async_event(event);
	return status;
}

SEEN int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*destroy)(struct ibv_qp *);
	unsigned at;

	(void)pthread_mutex_lock(&lock);
	at = find(qp);
	told[at] = NULL;
	(void)pthread_mutex_unlock(&lock);
	next("ibv_destroy_qp", &destroy);
	return destroy(qp);
}
