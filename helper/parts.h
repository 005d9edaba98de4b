/* SPDX-License-Identifier: MIT */
/*
 * parts: the parts of an object that was uploaded in parts: where they are, and the digest of
 * their digests.
 *
 *	parts_learn -> { parts_sum_create -> parts_sum_add* -> parts_sum_end* ->
 *		parts_sum_free }* -> parts_clear
 */
#ifndef WFS_PARTS_H
#define WFS_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "digest.h"

struct parts {
	uint32_t count;
	uint64_t even;	/* bytes of each but the last, which is no longer; 0: ends says it */
	uint64_t *ends; /* where each ends; allocated, or NULL */
	bool inferred;	/* even, of which not all were asked for */
};

/* One part, as struct origin_part. 0 or -errno, which ends it. */
typedef int (*parts_ask_fn)(void *arg, uint32_t number, uint64_t *ret_offset, uint64_t *ret_len,
			    uint32_t *ret_count);
/*
 * Asks where the parts of an object of size bytes are, which must be count of them. all: each
 * is asked for; else, if the first and the last lie so, all are taken to be as long as the
 * first. -EPROTO: what is said does not add up.
 */
int parts_learn(uint64_t size, uint32_t count, bool all, parts_ask_fn ask, void *arg,
		struct parts *ret);
/* As if learnt to be even. -EINVAL: they cannot be. */
int parts_of_even(uint64_t size, uint32_t count, uint64_t even, struct parts *ret);
void parts_clear(struct parts *parts);

/* Several digests of the digests of the same parts. Of one thread. */
struct parts_sum;
/* parts: as long as the sum. algos, results: as digest_sum_create(). */
int parts_sum_create(const struct parts *parts, uint64_t size, unsigned int algos,
		     struct parts_sum **ret);
int parts_sum_add(struct parts_sum *sum, const void *bytes, size_t len);
/* All bytes of the object were added, and none is any more. */
int parts_sum_end(struct parts_sum *sum, enum digest_algo algo, struct digest *ret);
void parts_sum_free(struct parts_sum *sum);

#endif /* WFS_PARTS_H */
