/* SPDX-License-Identifier: MIT */
/* names, inside: records and the calls that fill them. Under names->lock unless said. */
#ifndef WFS_NAMES_IMPL_H
#define WFS_NAMES_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include "loop.h"
#include "names.h"
#include "origin.h"
#include "retry.h"

#define NAMES_PATH_MAX 4096

enum record_kind { RECORD_ATTR, RECORD_LISTING };

struct record {
	struct record *next;	      /* in its bucket */
	struct record *newer, *older; /* by last use; a ring through names->lru */
	enum record_kind kind;
	uint64_t stamp_ns; /* when the origin said so */
	size_t bytes;
	struct call *call; /* that extends the listing; keeps the record alive */
	bool removed;	   /* no longer in the table */
	/* RECORD_ATTR */
	int error; /* 0 or -ENOENT */
	mode_t mode;
	uint32_t flags, mtime_nsec;
	uint64_t size;
	int64_t mtime_sec;
	char *version;
	/* RECORD_LISTING */
	struct listing *listing;
	struct listing *old; /* complete, until the new one is */
	uint64_t old_stamp_ns;
	struct names_part *parts; /* that wait for pages */
	char path[];
};

enum call_kind { CALL_STAT, CALL_LINK, CALL_LIST };

struct waiter {
	struct waiter *next;
	names_attr_fn attr;
	names_link_fn link;
	void *arg;
	bool stale;
};

/* One question to the origin with its further attempts. Lives on one loop. */
struct call {
	struct call *prev, *next; /* names->calls */
	struct names *names;
	enum call_kind kind;
	struct loop *loop;
	uint64_t generation; /* of names, when it was asked */
	uint64_t budget_ms;
	struct retry retry;
	struct loop_timer timer;
	struct origin_call *under_way; /* the loop's thread only */
	int refused;		       /* the origin did not even take it */
	struct waiter *waiters;
	struct record *record; /* CALL_LIST */
	size_t page;	       /* CALL_LIST: which one is asked for */
	unsigned int empty;    /* CALL_LIST: pages in a row with nothing in them */
	char path[];
};

struct names {
	atomic_uint refs;
	struct origin *origin;
	size_t limit;
	pthread_mutex_t lock; /* for all that follows */
	struct record **buckets;
	size_t bucket_count, record_count;
	struct record lru; /* newer: the latest; older: the oldest */
	size_t bytes;
	uint64_t generation; /* what was asked before is not kept */
	uint64_t away_ns;    /* when attempts ended in vain, 0: they did not */
	struct call *calls;
	struct names_counters counters;
};

uint64_t names_now(void);
bool names_young(uint64_t stamp_ns, uint64_t max_age_ms);

struct record *record_find(struct names *names, enum record_kind kind, const char *path);
struct record *record_add(struct names *names, enum record_kind kind, const char *path);
void record_resize(struct names *names, struct record *record);
void record_remove(struct names *names, struct record *record);
/* The record's call has ended. */
void record_release(struct record *record);
/* Forgets the oldest until the limit holds. */
void names_trim(struct names *names);

/* Joins the call that asks the same, or starts one. */
int call_join(struct names *names, enum call_kind kind, const char *path, uint64_t budget_ms,
	      struct waiter *waiter);
/* Starts to ask for a page of the record's listing. */
int call_list(struct names *names, struct record *record, size_t page, uint64_t budget_ms);
/* The call goes on with another page, from inside its answer. */
void call_page(struct call *call, size_t page);
/* Takes the call off the list; its waiters are the caller's. */
struct waiter *call_end(struct call *call);
/* Without the lock. */
void call_free(struct call *call);

/* Answers, from the loop, without the lock. */
void names_answer_attr(struct names *names, struct call *call, const struct origin_result *result,
		       const struct origin_attr *attr);
void names_answer_link(struct names *names, struct call *call, const struct origin_result *result,
		       const char *target);
void names_answer_list(struct names *names, struct call *call, const struct origin_result *result,
		       const struct origin_entry *entries, size_t count, const char *next_token,
		       uint64_t skipped);

#endif /* WFS_NAMES_IMPL_H */
