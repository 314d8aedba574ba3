/*
 * log.h -- what the library says to people: on standard error, a line at a time, never elsewhere.
 *
 * RUBATO_LOG=none|warn|info|debug|data. Levels are defined by volume: warn is what somebody should
 * act on, info is bounded per communicator, debug per collective, data per message.
 */
#ifndef RB_BASE_LOG_H
#define RB_BASE_LOG_H

#include "base/status.h"

enum rb_log_level { RB_LOG_NONE, RB_LOG_WARN, RB_LOG_INFO, RB_LOG_DEBUG, RB_LOG_DATA };

/* Process-wide, set from the environment when the first communicator opens; later calls may lower
 * it. */
void rb_log_level_set(enum rb_log_level level);
bool rb_log_enabled(enum rb_log_level level);
void rb_log_line(enum rb_log_level level, const char *format, ...) RB_PRINTF(2, 3);

#define RB_LOG(level, ...)                                                                         \
	do {                                                                                       \
		if (rb_log_enabled(level))                                                         \
			rb_log_line((level), __VA_ARGS__);                                         \
	} while (0)

#endif
