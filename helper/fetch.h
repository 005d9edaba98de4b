/* SPDX-License-Identifier: MIT */
/*
 * fetch: the scheduler. Brings blocks from the origin into buffers once, hands
 * them to all who want them, then to the store.
 */
#ifndef WFS_FETCH_H
#define WFS_FETCH_H

#include <stdbool.h>
#include <stdint.h>
#include "object.h"

/* As WFS_WHY_* of the uapi, most urgent first. */
enum fetch_why { FETCH_DEMAND, FETCH_READAHEAD, FETCH_PREFETCH };

/*
 * Somebody who wants units [unit, unit + units) of a block. Owned by the caller,
 * alive until fetch_release().
 *
 * data(): units [unit, unit + units) have arrived and been checked; bytes points to
 * them inside the session's registered memory, len counts object bytes (the last unit
 * of a file may be short). Called any number of times, together covering the range, on
 * the thread of some worker. The bytes stay until fetch_release().
 * done(): once, last: 0 (all data() calls made) or -errno, with a sentence in message.
 */
struct fetch_want {
	struct object *object;
	uint64_t block;
	uint32_t unit, units;
	enum fetch_why why;
	bool bad;  /* the copy in the cache file was found wrong: from the origin, then */
	bool bulk; /* a prefetch of which nobody waits for any part: it comes in few requests */
	void (*data)(struct fetch_want *want, uint32_t unit, uint32_t units, const void *bytes,
		     uint32_t len);
	void (*done)(struct fetch_want *want, int error, const char *message);
	void *opaque; /* the scheduler's */
};

/*
 * Asks for the want's range. A block already in a buffer is handed over from there; one
 * that is durable in the cache file is read from it; else one ranged GET brings the whole
 * block (neighbours are joined), retried within the retry budget. Any thread; a worker's
 * is told on its own thread where that is possible. Callbacks are never made from inside
 * this call. -errno: nothing was started.
 */
int fetch_start(struct core *core, struct fetch_want *want);
/* More urgent than before (a queued prefetch somebody now waits for). */
void fetch_promote(struct fetch_want *want, enum fetch_why why);
/*
 * Takes a want back whose block has not been asked for yet: true: done() is not called, as after
 * fetch_release(). False: it is on its way, and goes on.
 */
bool fetch_cancel(struct fetch_want *want);
/* Of what the want was given so many bytes were really waited for. Before fetch_release(). */
void fetch_used(struct fetch_want *want, uint64_t bytes);
/*
 * Gives the buffer back, after done(); before done() it cancels: done() is not called. Any
 * thread, also from inside the want's own callbacks. If one of them runs on another
 * thread, waits for it: hold no lock that a callback takes. Buffers are what others wait
 * for: release soon after done().
 */
void fetch_release(struct fetch_want *want);

#endif /* WFS_FETCH_H */
