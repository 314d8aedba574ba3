/* calls.h -- two ranks' calls that differ, in words. */
#ifndef RB_RUNTIME_CALLS_H
#define RB_RUNTIME_CALLS_H

#include "base/wire.h"

/* "rank 0 calls allreduce ... by ring, rank 1 calls ...": what both call. Returns text. */
char *rb_calls_text(char *text, size_t text_bytes, uint32_t rank, const struct rb_signature *ours,
		    uint32_t peer, const struct rb_signature *theirs);

#endif
