/* calls.h -- two ranks' calls that differ, in words. */
#ifndef RB_RUNTIME_CALLS_H
#define RB_RUNTIME_CALLS_H

#include "base/wire.h"

/* "rank 0 calls allreduce ... by ring, rank 1 calls ...": what both call. Returns text. */
char *rb_calls_text(char *text, size_t text_bytes, uint32_t rank, const struct rb_signature *ours,
		    uint32_t peer, const struct rb_signature *theirs);

static inline bool rb_calls_finalize(const struct rb_signature *ours,
				     const struct rb_signature *theirs)
{
	return ours->kind == RB_KIND_FINALIZE || theirs->kind == RB_KIND_FINALIZE;
}

#endif
