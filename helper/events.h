/* SPDX-License-Identifier: MIT */
/*
 * events: what the daemon finds wrong with the cache, for whoever follows it (`wfs events`).
 *
 * Global, as the log is. The last EVENTS_KEPT are kept; nobody waits for who follows them.
 */
#ifndef WFS_EVENTS_H
#define WFS_EVENTS_H

#include <stdint.h>

#define EVENTS_KEPT 256

struct event {
	int64_t time_s;	  /* wall clock */
	const char *name; /* as in wfs(1), EVENTS; a constant */
	const char *source, *path, *text;
	char bytes[]; /* of these three */
};

/*
 * It has happened to an object at a path of a source. Any thread, also with locks held: it takes
 * none but its own.
 */
void events_tell(const char *name, const char *source, const char *path, const char *text);
/* The number of the next one that happens. */
uint64_t events_next(void);
/*
 * Waits, at most timeout_ms, for event *number, and moves *number behind it: 0 with a copy, which
 * the caller frees. -EAGAIN: not yet. -EOVERFLOW: it is not kept any more, nor are others up to
 * *number. -ENOMEM.
 */
int events_wait(uint64_t *number, uint64_t timeout_ms, struct event **ret);
/* Ends waits at once. */
void events_wake(void);

#endif /* WFS_EVENTS_H */
