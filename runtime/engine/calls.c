/* calls.c -- see calls.h. */
#include "runtime/engine/calls.h"

#include <stdio.h>

#include "collectives/algorithms.h"

static const char *algorithm_name(const struct rb_signature *signature)
{
	return signature->algorithm < rb_algorithm_count ? rb_algorithms[signature->algorithm].name
							 : "unknown";
}

char *rb_calls_text(char *text, size_t text_bytes, uint32_t rank, const struct rb_signature *ours,
		    uint32_t peer, const struct rb_signature *theirs)
{
	char mine[96], other[96];
	bool named = ours->kind == theirs->kind && ours->algorithm != theirs->algorithm;

	(void)snprintf(text, text_bytes, "rank %u calls %s%s%s, rank %u calls %s%s%s", rank,
		       rb_signature_text(ours, mine, sizeof(mine)), named ? " by " : "",
		       named ? algorithm_name(ours) : "", peer,
		       rb_signature_text(theirs, other, sizeof(other)), named ? " by " : "",
		       named ? algorithm_name(theirs) : "");
	return text;
}
