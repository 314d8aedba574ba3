/* absent.h -- whom a run waits for, in words: of errors, and of rubato_dump. */
#ifndef RB_RUNTIME_ABSENT_H
#define RB_RUNTIME_ABSENT_H

#include "runtime/engine/engine.h"
#include "runtime/engine/run.h"

#define RB_WAY_BYTES 256

/* " rank 3, to send to rank 5": whom it lacks; empty: nobody. Returns text. */
char *rb_run_absent(const struct rb_run *run, char *text, size_t text_bytes);
/* Fails a run that has been waited for in vain: "WHAT: waits for rank 3". */
void rb_run_give_up(struct rb_engine *engine, struct rb_run *run, rubato_status status,
		    const char *what);
/* By what the first of them is reached: " (by mlx5_0 port 1, ...)"; empty: there is nothing to
 * name. */
char *rb_run_way(const struct rb_engine *engine, const struct rb_run *run, char *text,
		 size_t text_bytes);

#endif
