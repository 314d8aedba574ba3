/* expect.h -- what a rank's function of a test expects: else it returns the line, the condition and
 * the last error of its thread. */
#ifndef RB_TESTS_EXPECT_H
#define RB_TESTS_EXPECT_H

#include "base/status.h"
#include "rubato.h"

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return RB_FAIL(RUBATO_ERR_INTERNAL, "line %d: not %s (last: %s)",          \
				       __LINE__, #condition, rubato_error_text());                 \
	} while (0)

#endif
