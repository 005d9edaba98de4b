/* SPDX-License-Identifier: MIT */
/*
 * mirror_rig: an origin of places that misbehave on purpose, which are the same for all tests of
 * a group, by a clock that stands still, on one loop. Each place has /f, of SIZE bytes: body.
 */
#ifndef WFS_TEST_MIRROR_RIG_H
#define WFS_TEST_MIRROR_RIG_H

#include "counters.h"
#include "faulty.h"
#include "mirror_impl.h"
#include "query.h"

#define SIZE	(2u << 20)
#define MS	1000000ULL
#define SECOND	1000000000ULL
#define UNKNOWN "http://127.0.0.1:1"
#define PLACES	3

extern struct loop *loop;
extern struct faulty servers[PLACES];
extern struct origin *origin; /* that was made last, */
extern struct mirrors *mirrors;
extern struct origin_attr attr; /* and what it says of "f" */
extern struct query ask;
extern char body[SIZE + 1], other[SIZE], dst[SIZE];
extern uint64_t clock_ns, before[COUNTER_MAX];

/* Setup and teardown of a group, and of a test: no faults, no origin. */
int mirror_rig_group(void **state);
int mirror_rig_group_end(void **state);
int mirror_rig_each(void **state);
int mirror_rig_end(void **state);

/* What a place has at /f; query as faulty_put(). */
void mirror_rig_put(unsigned int place, const char *query, const char *bytes, size_t len);
/* The origin of these; of the first so many servers. */
void mirror_rig_make(const char *const *urls, unsigned int count, bool trust);
void mirror_rig_make_of(unsigned int count, bool trust);
/* Lets go of it, so that another one can be made. */
void mirror_rig_drop(void);

/* By how much a counter rose in this test. */
#define rose(name) (counter_get(name) - before[COUNTER_##name])

/* Reads, and checks what came. */
void mirror_rig_read_at(uint64_t offset, uint64_t len);
void mirror_rig_read_all(void);
enum mirror_state mirror_rig_state(unsigned int place);
/* Until all have answered that were asked beside the reads. */
void mirror_rig_settle(void);
/* Reads once, and until all have been asked. */
void mirror_rig_join(void);
/* Place 0 is asked first, then 1, then 2; what takes longer than 2 ms is late. */
void mirror_rig_rank(void);
/* So many reads of that size were made. */
void mirror_rig_earn(unsigned int count);
/* So often was the place asked for bytes. */
int mirror_rig_reads(unsigned int place);
void mirror_rig_fault(unsigned int place, const char *json);

#define SLOW(kind) "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": " kind "}"

#endif /* WFS_TEST_MIRROR_RIG_H */
