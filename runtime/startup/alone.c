/* alone.c -- start-up of a job of one rank, which needs nobody's word. */
#include <stdlib.h>
#include <string.h>

#include "runtime/startup/bootstrap.h"

struct alone_blob {
	struct alone_blob *next;
	const void *out;
	size_t out_bytes;
	uint8_t bytes[];
};

struct alone {
	struct rb_bootstrap base;
	struct alone_blob *blobs;
};

static rubato_status alone_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				     const void *const **out, const size_t **out_bytes,
				     uint64_t deadline_ns)
{
	struct alone *alone = (struct alone *)b;
	struct alone_blob *blob = malloc(sizeof(*blob) + in_bytes);

	(void)deadline_ns;
	if (blob == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up: %zu bytes", in_bytes);
	if (in_bytes > 0)
		memcpy(blob->bytes, in, in_bytes);
	blob->out = blob->bytes;
	blob->out_bytes = in_bytes;
	blob->next = alone->blobs;
	alone->blobs = blob;
	*out = &blob->out;
	*out_bytes = &blob->out_bytes;
	return RUBATO_OK;
}

static void alone_close(struct rb_bootstrap *b)
{
	struct alone *alone = (struct alone *)b;

	while (alone->blobs != NULL) {
		struct alone_blob *next = alone->blobs->next;

		free(alone->blobs);
		alone->blobs = next;
	}
	free(alone);
}

rubato_status rb_bootstrap_alone(struct rb_bootstrap **out)
{
	struct alone *alone = calloc(1, sizeof(*alone));

	if (alone == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up: %zu bytes", sizeof(*alone));
	alone->base.rank_count = 1;
	alone->base.allgather = alone_allgather;
	alone->base.close = alone_close;
	*out = &alone->base;
	return RUBATO_OK;
}
