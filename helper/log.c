// SPDX-License-Identifier: MIT
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

static _Atomic int log_level = LOG_LEVEL_INFO;
static _Atomic bool log_json;

static const char *const log_names[] = { "error", "warn", "info", "debug" };

int log_level_parse(const char *name, enum log_level *ret_level)
{
	for (size_t i = 0; i < ARRAY_SIZE(log_names); i++) {
		if (!strcmp(name, log_names[i])) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_setup(enum log_level level, bool json)
{
	log_level = level;
	log_json = json;
}

bool log_wanted(enum log_level level)
{
	return (int)level <= log_level;
}

/* Text as the inside of a JSON string; control characters escaped, cut to fit. */
static void log_escape(char *out, size_t size, const char *text)
{
	size_t n = 0;

	for (; *text && n + 7 < size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\') {
			out[n++] = '\\';
			out[n++] = (char)c;
		} else if (c < 0x20 || c == 0x7f) {
			n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
		} else {
			out[n++] = (char)c;
		}
	}
	out[n] = '\0';
}

void log_write(enum log_level level, const char *area, const char *format, ...)
{
	char text[1024], escaped[2200], line[2400], stamp[40];
	struct timespec now;
	struct tm tm;
	va_list args;
	int n;

	if (!log_wanted(level))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	log_escape(escaped, sizeof(escaped), text);
	if (log_json)
		n = snprintf(line, sizeof(line),
			     "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"area\":\"%s\",\"message\":\"%s\"}\n",
			     stamp, now.tv_nsec / 1000000, log_names[level], area, escaped);
	else
		n = snprintf(line, sizeof(line), "%s.%03ldZ %-5s %s: %s\n", stamp,
			     now.tv_nsec / 1000000, log_names[level], area, escaped);
	if (n > (int)sizeof(line) - 1)
		n = sizeof(line) - 1;
	/* One write per line, so that lines of several threads do not mix. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}
