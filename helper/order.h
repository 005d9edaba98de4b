/* SPDX-License-Identifier: MIT */
/*
 * order: records in which order the blocks of a model are first needed, and fetches ahead by
 * it the next time; without a record, the next shard after one that was read in sequence.
 *
 * A model is what lies in one directory of a source. All work is done on a thread of its
 * own, which may wait; what the workers say costs them a moment.
 *
 *	order.c		the thread, and what it is told
 *	order_load.c	one load of a model: what is recorded, and kept of it
 *	order_ahead.c	what is fetched ahead for it
 *	profile.c	an order	plan.c	follows one	shard.c	what comes next
 */
#ifndef WFS_ORDER_H
#define WFS_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct core;
struct object;
struct order;

/* For a core whose store is open; no thread yet. */
int order_create(struct core *core, struct order **ret);
int order_start(struct order *order);
/* Keeps what was recorded, lets go of what is fetched ahead. The workers still run. */
void order_stop(struct order *order);
/* NULL is none, here and in all that follows. */
void order_destroy(struct order *order);

/* What is known of a block that was asked for. */
struct order_asked {
	uint64_t block;
	uint32_t reader; /* tells processes apart, 0: not known */
	bool first;	 /* nothing of the block was asked for before */
	bool advice;	 /* nobody waits for it: it is no part of an order */
};
/* A block was asked for, and the want for it has been started. Any thread. */
void order_needed(struct order *order, struct object *object, const struct order_asked *asked);

/* What order_settle() does to loads at or below a directory of an origin. */
enum order_settle {
	ORDER_KEEP,    /* records what is known by now; they go on */
	ORDER_CLOSE,   /* records and ends them: what comes next is another load */
	ORDER_DISCARD, /* ends them, and records nothing */
};
/*
 * Returns when that is done, and, of loads that ended, what was queued ahead is taken back: true:
 * something was on its way, and comes yet. Not on a worker's thread.
 */
bool order_settle(struct order *order, const char *identity, const char *dir,
		  enum order_settle what);
/* ORDER_CLOSE of all of an origin, without waiting. Any thread. */
void order_unmounted(struct order *order, const char *identity);

/* From true to false: no block is kept back from settling. Any thread. */
void order_hurry(struct order *order, bool hurry);

#endif /* WFS_ORDER_H */
