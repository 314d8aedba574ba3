/*
 * limit.h -- limits against hangs that are not Check's own: CK_TIMEOUT_MULTIPLIER makes them longer
 * as it does Check's, where what is tested has few processors.
 */
#ifndef RB_TESTS_LIMIT_H
#define RB_TESTS_LIMIT_H

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static inline unsigned limit_seconds(unsigned seconds)
{
	const char *text = getenv("CK_TIMEOUT_MULTIPLIER");
	double times = text != NULL ? strtod(text, NULL) : 1;

	return times > 1 ? (unsigned)(seconds * times) : seconds;
}

/* This process, which a test has forked, ends then, by SIGALRM. Check's own handler, which it
 * inherits, kills the whole test, and nobody says who it was. */
static inline void limit_start(unsigned seconds)
{
	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(limit_seconds(seconds));
}

#endif
