/* SPDX-License-Identifier: MIT */
/*
 * log: what the daemon tells a person, as text or as JSON lines, on standard error.
 *
 * Never given secrets: what may hold one (header values, signed URLs, keys) does not
 * get here in the first place. Any thread.
 */
#ifndef WFS_LOG_H
#define WFS_LOG_H

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* "error", "warn", "info", "debug"; -EINVAL for anything else. */
int log_level_parse(const char *name, enum log_level *ret_level);
void log_setup(enum log_level level, bool json);
bool log_wanted(enum log_level level);

void log_write(enum log_level level, const char *area, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* LOG_AREA is the file's concept, a short word. */
#define log_error(...) log_write(LOG_LEVEL_ERROR, LOG_AREA, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, LOG_AREA, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, LOG_AREA, __VA_ARGS__)
#define log_debug(...)                                                     \
	do {                                                               \
		if (log_wanted(LOG_LEVEL_DEBUG))                           \
			log_write(LOG_LEVEL_DEBUG, LOG_AREA, __VA_ARGS__); \
	} while (0)

#endif /* WFS_LOG_H */
