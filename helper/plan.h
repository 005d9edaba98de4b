/* SPDX-License-Identifier: MIT */
/*
 * plan: fetches the places of a profile ahead of who reads them, at the lowest urgency.
 *
 * A stream of the profile is followed once its places are needed in that order; then a
 * window ahead of the last one needed is fetched into the cache, which doubles while it is
 * used. A block that comes from the cache file is not asked of the helper, so that a reader
 * in the window would not be seen: some blocks, the marks, are kept in their buffers when
 * they have come, and the module is told of them when they have been asked for.
 *
 * All is called on one thread, which may wait.
 */
#ifndef WFS_PLAN_H
#define WFS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core;
struct object;
struct plan;
struct profile;

struct plan_ops {
	/*
	 * The object of a file of the profile, a reference. -errno: none, it is left out;
	 * -ECANCELED: not now. May wait.
	 */
	int (*object)(void *arg, size_t file, struct object **ret);
	/* Places [from, to) of a stream have been needed, as far as can be seen. */
	void (*passed)(void *arg, uint32_t stream, size_t from, size_t to);
	void *arg;
	/* plan_pump() has something to do. Any thread, perhaps when the plan has gone. */
	void (*wake)(void *arg);
	void *wake_arg;
};

/* The profile is the caller's; it may grow, and must outlive the plan. */
int plan_create(struct core *core, const struct profile *profile, const struct plan_ops *ops,
		struct plan **ret);
/* Lets go of everything: what is queued is not requested any more. */
void plan_destroy(struct plan *plan);
/* A stream is followed from now on, without waiting for a reader of it. */
int plan_follow(struct plan *plan, uint32_t stream);

/* How a place that is needed fits: false: another one was to be expected. */
bool plan_needed(struct plan *plan, uint64_t place);
/* Somebody has asked for the place, needed or not: if it is a mark, it is let go of. */
void plan_asked(struct plan *plan, uint64_t place);
/* Fetches what is to be fetched now, and settles what has come. */
void plan_pump(struct plan *plan);
/*
 * Lets marks go that nobody has asked for, and keeps none before plan_mark(plan, true): somebody
 * waits for all blocks to settle, or for memory.
 */
void plan_mark(struct plan *plan, bool keep);
/* Is anything of it queued, on its way, or kept as a mark? */
bool plan_is_busy(const struct plan *plan);
bool plan_has_marks(const struct plan *plan);
/* Streams that are followed, and needed places that fitted. */
size_t plan_following(const struct plan *plan);
uint64_t plan_hits(const struct plan *plan);
/* The origin does not give what is planned, or streams departed from were all there were. */
bool plan_is_over(const struct plan *plan);

#endif /* WFS_PLAN_H */
