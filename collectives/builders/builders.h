/* builders.h -- every builder, as algorithm_rows.h names them. */
#ifndef RB_COLLECTIVES_BUILDERS_H
#define RB_COLLECTIVES_BUILDERS_H

#include "collectives/build.h"

/* Per algorithm: rb_build_NAME writes rank's steps, rb_sent_NAME is the formula of its bytes. */
#define ROW(kind, name, needs, max, blocks, builder, ...)                                          \
	void rb_build_##builder(struct rb_writer *w, const struct rb_build *build);                \
	uint64_t rb_sent_##builder(const struct rb_layout *layout, const struct rb_build *build,   \
				   uint32_t element_bytes);
#include "collectives/algorithm_rows.h"
#undef ROW

/* The formula of those that work in mapped memory, or move no bytes at all. */
#define RB_SENDS_NOTHING(builder)                                                                  \
	uint64_t rb_sent_##builder(const struct rb_layout *layout, const struct rb_build *build,   \
				   uint32_t element_bytes)                                         \
	{                                                                                          \
		(void)layout, (void)build, (void)element_bytes;                                    \
		return 0;                                                                          \
	}

#endif
