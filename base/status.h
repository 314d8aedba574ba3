/*
 * status.h -- how functions fail, and how broken invariants are told apart from bad luck.
 *
 * Who first knows which error it is says so once, with RB_FAIL and the values; everyone above
 * passes it on with RB_TRY or an undo label. The outside world's mistakes (any byte from a peer)
 * are statuses. Our own are RB_ASSERT: test builds abort there; others note it, and the engine,
 * which asks rb_broken() after each round of progress, poisons its communicator. A library never
 * ends its user's process.
 */
#ifndef RB_BASE_STATUS_H
#define RB_BASE_STATUS_H

#include "rubato.h"

#define RB_NODISCARD __attribute__((warn_unused_result))
#define RB_PRINTF(format_index, args_index)                                                        \
	__attribute__((format(printf, format_index, args_index)))

/* Of an error's sentence: what keeps one has room for all of it. */
#define RB_TEXT_BYTES 512

/* Remembers the sentence for rubato_error_text() of this thread, and logs it at level info. */
void rb_fail_note(const char *file, int line, rubato_status status, const char *format, ...)
	RB_PRINTF(4, 5);

#define RB_FAIL(status, ...) (rb_fail_note(__FILE__, __LINE__, (status), __VA_ARGS__), (status))

#define RB_TRY(expr)                                                                               \
	do {                                                                                       \
		rubato_status try_err_ = (expr);                                                   \
		if (try_err_ != RUBATO_OK)                                                         \
			return try_err_;                                                           \
	} while (0)

/* Notes a broken invariant for this thread; aborts in test builds (RB_ASSERT_ABORTS). */
void rb_broken_note(const char *file, int line, const char *what);
/* Whether this thread met a broken invariant since the last call; `what` then names it. */
bool rb_broken_take(const char **what);

#define RB_ASSERT(expr)                                                                            \
	do {                                                                                       \
		if (__builtin_expect(!(expr), 0))                                                  \
			rb_broken_note(__FILE__, __LINE__, #expr);                                 \
	} while (0)

/* The same of what takes longer to find out than what is done: test builds only. */
#ifdef RB_ASSERT_ABORTS
#define RB_ASSERT_DEAR(expr) RB_ASSERT(expr)
#else
#define RB_ASSERT_DEAR(expr) ((void)sizeof(expr))
#endif

#define RB_IMPLIES(a, b) (!(a) || (b))

#endif
