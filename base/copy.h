/*
 * copy.h -- copies into memory that another core has read last, and reads next.
 *
 * The lines to be written lie in that core's cache. An ordinary store brings each over before it
 * changes it; a string instruction says that whole lines are written, and the other core only gives
 * them up. The C library does so by itself for longer copies only: where nothing crosses, it is
 * slower. Measured, docs/performance.md, "What crosses between two cores".
 */
#ifndef RB_BASE_COPY_H
#define RB_BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who watches memory does not see what a string instruction touches. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(RB_MEMORY_IS_WATCHED)
#define RB_COPY_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
	__has_feature(memory_sanitizer)
#define RB_COPY_WATCHED 1
#endif
#endif
#ifndef RB_COPY_WATCHED
#define RB_COPY_WATCHED 0
#endif

/* From here on and below there, where the processor has fast short strings. */
#define RB_COPY_STRING_MIN 768u
#define RB_COPY_STRING_END 8192u

/* Whether a copy of so many bytes is for a string instruction that is fast. */
static inline bool rb_copy_by_string(size_t size_bytes)
{
	return size_bytes >= RB_COPY_STRING_MIN && size_bytes < RB_COPY_STRING_END;
}

typedef void rb_copy_fn(void *to, const void *from, size_t size_bytes);

/* Finds the one for this processor. */
rb_copy_fn *rb_copy_across(void);

/* A copy that leaves the caches to others: of what nobody reads before they have forgotten it. An
 * ordinary store reads each line first, to write it back later. */
void rb_copy_past(void *to, const void *from, size_t size_bytes);

#endif
