/* verbs_watch_none.c -- verbs_watch.h where the build had no userfaultfd: nothing is watched. */
#include "transport/verbs/verbs_watch.h"

rubato_status rb_verbs_watch_open(uint32_t range_count, struct rb_verbs_watch **out)
{
	(void)range_count;
	(void)out;
	return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
		       "built without userfaultfd: linux/userfaultfd.h older than Linux 5.7's");
}

void rb_verbs_watch_close(struct rb_verbs_watch *watch)
{
	(void)watch;
}

bool rb_verbs_watch_begin(struct rb_verbs_watch *watch, uint32_t range, const void *base,
			  size_t bytes)
{
	(void)watch;
	(void)range;
	(void)base;
	(void)bytes;
	return false;
}

void rb_verbs_watch_end(struct rb_verbs_watch *watch, uint32_t range)
{
	(void)watch;
	(void)range;
}

bool rb_verbs_watch_same(struct rb_verbs_watch *watch, uint32_t range)
{
	(void)watch;
	(void)range;
	return false;
}

bool rb_verbs_watch_changed(struct rb_verbs_watch *watch, uint32_t range)
{
	(void)watch;
	(void)range;
	return true;
}

uint32_t rb_verbs_watch_changes(struct rb_verbs_watch *watch)
{
	(void)watch;
	return 0;
}
