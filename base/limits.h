/*
 * limits.h -- what the system lets this process have, for sentences that name the limit, its value
 * and what is needed: "Too many open files" alone sends nobody to ulimit -n.
 */
#ifndef RB_BASE_LIMITS_H
#define RB_BASE_LIMITS_H

#include "base/status.h"

/* No buffer is longer: user space has 2^56 bytes at most (x86-64 with five levels of page tables;
 * aarch64 has 2^52). */
#define RB_BUFFER_BYTES_MAX (UINT64_C(1) << 56)

struct rb_limit {
	uint64_t limit; /* UINT64_MAX: none. */
	uint64_t used;  /* So far; 0: not known, or no limit. */
};

struct rb_limit rb_limit_descriptors(void);   /* ulimit -n */
struct rb_limit rb_limit_address_space(void); /* ulimit -v, in bytes */

/* OK when `more` further descriptors can be had. Else SYSTEM: "`who` needs 300 descriptors more,
 * ..." and what to do. */
RB_NODISCARD rubato_status rb_limit_descriptors_check(const char *who, uint64_t more);

/* strerror(why), and behind it the limit that is in the way, where `why` is one's. Returns text. */
const char *rb_limit_text(int why, char *text, size_t text_bytes);
/* The same, for an argument of RB_FAIL. */
#define RB_ERRNO_TEXT(why) rb_limit_text((why), (char[200]) { 0 }, 200)

#endif
