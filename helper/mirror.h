/* SPDX-License-Identifier: MIT */
/*
 * mirror: an origin made of several equal ones.
 *
 * The first one says what there is: names, versions and the identity of what is cached are
 * its own; while it is away a mirror says it, if it is trusted, or of the version that is known.
 * Bytes are read from whichever is expected to be quickest, but only from those
 * whose object was found to agree with the first one's. A read that takes longer than its
 * like is asked of another one as well, within a cap; one that fails goes on elsewhere. One
 * that is not reached rests, and is asked again beside the reads, never by one of them.
 *
 * The origins it is made of know nothing of this. Threads and callbacks as in origin.h.
 */
#ifndef WFS_MIRROR_H
#define WFS_MIRROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "origin.h"

/* Mirrors of one source, the source itself not counted. */
#define MIRROR_MAX 7
/* With the source itself. */
#define MIRROR_PLACES (MIRROR_MAX + 1)

struct mirror_place {
	struct origin *origin;
	const char *name; /* for people */
};

/*
 * places[0] is the source itself. References are taken, names copied. trust: size alone
 * says whether objects agree. One reference in *ret. 0, -EINVAL or -ENOMEM.
 */
int mirror_create(const struct mirror_place *places, unsigned int count, bool trust,
		  struct origin **ret);

/* Figures of one place. */
struct mirror_counters {
	uint64_t requests, bytes, errors;
	uint64_t in_flight;
	uint64_t joined, refused; /* objects, since it was made a mirror */
	double latency_seconds;	  /* to the first byte, smoothed */
	double rtt_seconds;	  /* as TCP says */
	uint32_t window;	  /* of TCP, in segments */
	bool resting;		  /* it was not reached */
};
/* why: it rests, or an object was refused, the last time; or NULL. Valid in the callback. */
typedef void (*mirror_fn)(void *arg, const char *name, const struct mirror_counters *counters,
			  const char *why);
/* Calls fn for each place; for none if the origin has no mirrors. fn may not call back. */
void mirror_each(struct origin *origin, mirror_fn fn, void *arg);

/*
 * The value of the option: URLs with '+' or ',' between them, and "trust".
 *
 * '+' ends a URL only where another one or "trust" follows, since it may be part of one.
 */
struct mirror_list {
	char *urls[MIRROR_MAX];
	unsigned int count;
	bool trust;
};
/*
 * What the text names, each as a source of the same kind as source. Where base is not
 * NULL, URLs are mirrors of base, a prefix of source, and what source has behind it is put
 * behind them. For a source of S3, the address of another endpoint stays what it is.
 * mirror_list_free() in any case. -EINVAL with a sentence, or -ENOMEM.
 */
int mirror_list_parse(const char *text, const char *source, const char *base,
		      struct mirror_list *list, char *msg, size_t msg_size);
void mirror_list_free(struct mirror_list *list);
/* Is it the address of an endpoint that has the same bucket as source? */
bool mirror_is_endpoint(const char *source, const char *url);
/*
 * The value for the directories that the objects named by it are in, allocated; NULL: no
 * memory. For a source that is one object.
 */
char *mirror_list_parents(const char *text, const char *source);

#endif /* WFS_MIRROR_H */
