/* SPDX-License-Identifier: MIT */
/* tap: results in the Test Anything Protocol, as kselftest prints them. */
#ifndef WFS_TESTS_TAP_H
#define WFS_TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned int tap_count, tap_failed;

static inline void tap_begin(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("TAP version 13");
}

__attribute__((format(printf, 2, 3))) static inline bool ok(bool good, const char *format, ...)
{
	va_list ap;

	tap_count++;
	if (!good)
		tap_failed++;
	printf("%s %u - ", good ? "ok" : "not ok", tap_count);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	return good;
}

/* A result that must be just this: 0 or more, or -errno. */
__attribute__((format(printf, 3, 4))) static inline bool is(long got, long wanted,
							    const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (got == wanted)
		return ok(true, "%s", text);
	ok(false, "%s", text);
	printf("# got %ld, wanted %ld\n", got, wanted);
	return false;
}

static inline void skip(const char *what, const char *why)
{
	tap_count++;
	printf("ok %u - %s # SKIP %s\n", tap_count, what, why);
}

/* Something that no case is about failed: nothing more can be tested. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void bail(const char *format, ...)
{
	va_list ap;

	printf("Bail out! ");
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	exit(1);
}

static inline int tap_end(void)
{
	printf("1..%u\n", tap_count);
	return tap_failed ? 1 : 0;
}

#endif /* WFS_TESTS_TAP_H */
