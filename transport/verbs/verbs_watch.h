/*
 * verbs_watch.h -- says whether memory is still what it was: whether its pages were unmapped,
 * discarded or moved since.
 *
 * The kernel tells by userfaultfd, of mappings that are registered for write protection; nothing is
 * protected, so no page fault is ever caught. Whoever unmaps or discards such memory waits in the
 * kernel until a thread of ours has read that. Who asks of a range learns whether anything is being
 * read or is still to be: so `same` is exact, all that happened before has been taken into account.
 * Discarding (madvise) is told just before it happens, to who waits: only a program that sends what
 * another thread discards meanwhile can have the old pages registered again, read or written then.
 *
 * A mapping has one watcher in a process, so the descriptor and its thread are the process's, and
 * end with the last that watches. The thread takes one lock, under which nothing is allocated,
 * freed or unmapped: who unmaps may hold any other.
 *
 * Watched are whole mappings, as registering a part would split them, and a mapping in two parts
 * cannot be moved by one call. Only anonymous private ones: others change by their files, of which
 * nothing is told. Linux 5.19: since then pinned anonymous pages stay where they are mapped, and
 * a fork gives the child the copies.
 */
#ifndef RB_TRANSPORT_VERBS_WATCH_H
#define RB_TRANSPORT_VERBS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct rb_verbs_watch;

/* Of so many ranges, none of which is watched yet. Errors: UNSUPPORTED, MEMORY: why. */
RB_NODISCARD rubato_status rb_verbs_watch_open(uint32_t range_count, struct rb_verbs_watch **out);
/* NULL: nothing. */
void rb_verbs_watch_close(struct rb_verbs_watch *watch);
/* False: this memory cannot be watched. It is mapped, and stays so until this returns. */
bool rb_verbs_watch_begin(struct rb_verbs_watch *watch, uint32_t range, const void *base,
			  size_t bytes);
void rb_verbs_watch_end(struct rb_verbs_watch *watch, uint32_t range);
/* Since its begin. False: it has changed, or some memory of this process changes just now. */
bool rb_verbs_watch_same(struct rb_verbs_watch *watch, uint32_t range);
bool rb_verbs_watch_changed(struct rb_verbs_watch *watch, uint32_t range);
/* How many ranges have changed and not ended; asks nobody. */
uint32_t rb_verbs_watch_changes(struct rb_verbs_watch *watch);

#endif
