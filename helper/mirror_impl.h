/* SPDX-License-Identifier: MIT */
/*
 * mirror_impl: what the files of mirror share. Not for others.
 *
 * mirror_hedge and mirror_rank compute and do nothing else: times are given to them.
 * mirror_join knows which object is the same where; mirror_read reads; mirror_names asks what
 * there is.
 */
#ifndef WFS_MIRROR_IMPL_H
#define WFS_MIRROR_IMPL_H

#include <pthread.h>

#include "mirror.h"
#include "origin_impl.h"

/* mirror_hedge: when a read is late, and whether a second request may be made for it. */

/* Sizes of reads by powers of four, from 64 KiB; so many of the last ones of each. */
#define MIRROR_HEDGE_SIZES   7
#define MIRROR_HEDGE_SAMPLES 128
/* So many are needed before they say what is late; until then: this. */
#define MIRROR_HEDGE_LEAST 16
#define MIRROR_HEDGE_NS	   1000000000ULL
/* Nothing is late before this: timers have no finer pace. */
#define MIRROR_HEDGE_MIN_NS 2000000ULL
/* One of so many requests and bytes, and at most so many at once. */
#define MIRROR_HEDGE_CAP   20
#define MIRROR_HEDGE_BURST 16
#define MIRROR_HEDGE_BYTES (64ULL << 20)

struct mirror_hedge {
	struct mirror_times {
		uint32_t us[MIRROR_HEDGE_SAMPLES];
		uint64_t count;	  /* ever */
		uint64_t tail_ns; /* of those there were when it was computed last */
	} sizes[MIRROR_HEDGE_SIZES];
	/* What was earned and not spent, in requests and bytes of ordinary reads. */
	uint64_t requests, bytes;
};

/* The request that brought a read of len bytes to its end took so long. */
void mirror_hedge_took(struct mirror_hedge *hedge, uint64_t len, uint64_t ns);
/*
 * From when on a request for len bytes is late: the 95th percentile of those like it, or
 * twice their median if that is longer.
 */
uint64_t mirror_hedge_late_ns(const struct mirror_hedge *hedge, uint64_t len);
/* A read has brought so many bytes. */
void mirror_hedge_earn(struct mirror_hedge *hedge, uint64_t bytes);
/* A second request for so many bytes is wanted: true, it may be made, and is paid for. */
bool mirror_hedge_spend(struct mirror_hedge *hedge, uint64_t bytes);
/* Of what was paid for, so many bytes were not lost after all. */
void mirror_hedge_refund(struct mirror_hedge *hedge, uint64_t bytes);

/* mirror_rank: what is known of one place, and which is to be asked. */

struct mirror_rank {
	uint64_t requests, bytes, errors;
	uint64_t in_flight;
	uint64_t answers;
	double first_ns, byte_ns; /* smoothed: to the first byte, and for each after it */
	double failing;		  /* share of the last requests */
	double losses;		  /* segments lost or overtaken a request, smoothed */
	uint64_t lost;		  /* of TCP when it was looked at last */
	uint32_t rtt_us, window;
	uint64_t asked_ns;     /* last time, 0: never */
	unsigned int failures; /* in a row */
	unsigned int rests;    /* in a row */
	bool down, probing;
	uint64_t rest_ns; /* until then */
};

/* What TCP says of a place, all its connections together. */
struct mirror_tcp {
	uint64_t lost;
	uint32_t rtt_us, window;
};

void mirror_rank_asked(struct mirror_rank *rank, uint64_t now);
/* Ends what mirror_rank_asked() began, however it ended. */
void mirror_rank_ended(struct mirror_rank *rank, uint64_t bytes);
void mirror_rank_answered(struct mirror_rank *rank, uint64_t bytes, uint64_t first_ns,
			  uint64_t took_ns);
/* It was given up after so long, nothing having come. */
void mirror_rank_late(struct mirror_rank *rank, uint64_t waited_ns);
/* unreached: no answer at all. True: from now on it rests. */
bool mirror_rank_failed(struct mirror_rank *rank, uint64_t now, bool unreached,
			uint32_t retry_after_ms);
/* Is it to be asked, beside the reads, whether it is back? True once, until mirror_rank_probed(). */
bool mirror_rank_probe(struct mirror_rank *rank, uint64_t now);
/* True: it is back. */
bool mirror_rank_probed(struct mirror_rank *rank, uint64_t now, bool answers);
void mirror_rank_tcp(struct mirror_rank *rank, const struct mirror_tcp *tcp);
/* How long a read of len bytes is expected to take there, in nanoseconds. */
double mirror_rank_expect(const struct mirror_rank *rank, uint64_t len);

/* mirror_join */

enum mirror_state {
	MIRROR_UNKNOWN,
	MIRROR_CHECKING,
	MIRROR_JOINED,
	MIRROR_REFUSED,
};

struct mirror_member {
	enum mirror_state state;
	uint64_t since_ns;
	struct origin_attr *attr; /* its own, NULL: the object's */
};

/* One version of one object, and who has it too. Guarded by mirrors->lock. */
struct mirror_object {
	struct mirror_object *next;
	unsigned int refs;
	uint64_t used; /* by mirrors->clock */
	uint64_t said; /* the same, when it was said to be what there is; 0: it is not any more */
	char *path;
	struct origin_attr attr;
	unsigned int from; /* whose word that is: the first one's, or of one that is trusted */
	struct mirror_member of[MIRROR_PLACES];
};

#define MIRROR_BUCKETS 256

struct mirror {
	struct origin *origin;
	char *name;
	struct mirror_rank rank;
	uint64_t joined, refused;
	uint64_t said_ns; /* when a refusal was logged last */
	char why[ORIGIN_MESSAGE_MAX];
};

/* What mirror_create() makes. */
struct mirrors {
	struct origin base;
	unsigned int count;
	bool trust;
	uint64_t (*now)(void);

	pthread_mutex_t lock; /* what follows; no call is made with it held */
	struct mirror_hedge hedge;
	struct mirror of[MIRROR_PLACES];
	struct mirror_object *objects[MIRROR_BUCKETS];
	unsigned int object_count;
	uint64_t clock;
	struct mirror_check *checks; /* under way */
};

/* The object, a reference; NULL: no memory. from: who says so, if it is new. Lock held. */
struct mirror_object *mirror_join_get(struct mirrors *mirrors, const char *path,
				      const struct origin_attr *attr, unsigned int from);
void mirror_join_put(struct mirror_object *object);
/* Asks those that are not known to have it, and those that may be back. No lock held. */
void mirror_join_begin(struct mirrors *mirrors, struct mirror_object *object, struct loop *loop);
/* It does not have this version after all; why is a sentence. No lock held. */
void mirror_join_refuse(struct mirrors *mirrors, struct mirror_object *object, unsigned int place,
			const char *why);
/* Who may be read from: a bit each. Lock held. */
unsigned int mirror_join_usable(const struct mirrors *mirrors, const struct mirror_object *object);
/* Is somebody still being asked? Lock held. */
bool mirror_join_asking(const struct mirrors *mirrors, const struct mirror_object *object);
/* What the first one says there is; NULL: nothing, or no file. No lock held. */
void mirror_join_said(struct mirrors *mirrors, const char *path, const struct origin_attr *attr);
/* Is a version of an object at this path known? Lock held. */
bool mirror_join_knows(const struct mirrors *mirrors, const char *path);
/*
 * What a mirror says there is, the first one being away: true: it counts, and *ret is what there
 * is, by the version that is known. False: why it does not. No lock held.
 */
bool mirror_join_agrees(struct mirrors *mirrors, const char *path, unsigned int place,
			const struct origin_attr *attr, struct origin_attr *ret, const char **why);
/* Gives up what is asked on this loop. On its thread. */
void mirror_join_stop(struct mirrors *mirrors, struct loop *loop);
void mirror_join_clear(struct mirrors *mirrors);

/*
 * A place was asked, but not for bytes: true, it has answered, whatever that was. probe: as
 * mirror_rank_probe() said. No lock held.
 */
bool mirror_heard(struct mirrors *mirrors, unsigned int place, bool probe,
		  const struct origin_result *result);
/* Looks at what TCP says. No lock held. */
void mirror_look(struct mirrors *mirrors, unsigned int place);
/*
 * Of a set of places, a bit each, the one to be asked for len bytes, or -1. explore: one that
 * little is known of goes before. Lock held.
 */
int mirror_choose(const struct mirrors *mirrors, unsigned int usable, uint64_t len, bool explore);

/* mirror_names: as origin_stat() and origin_list(). */
int mirror_stat(struct origin *origin, struct loop *loop, const char *path, origin_stat_fn done,
		void *arg, struct origin_call **ret_call);
int mirror_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		origin_list_fn done, void *arg, struct origin_call **ret_call);

/* mirror_read: as origin_read(). */
int mirror_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		struct origin_call **ret_call);

#endif /* WFS_MIRROR_IMPL_H */
