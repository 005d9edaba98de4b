/* SPDX-License-Identifier: MIT */
/*
 * usage: of the blocks that came from the origin for readers, how much was asked for: what
 * tells whether another block size would fetch less.
 */
#ifndef WFS_USAGE_H
#define WFS_USAGE_H

#include <stdint.h>

struct core;
struct origin;
struct origin_attr;

/* From 1/1 in halves to 1/1024 and less. */
#define USAGE_BUCKETS 11

struct usage {
	uint64_t blocks;
	uint64_t fetched, asked; /* bytes */
	/* Blocks, and bytes in them, of which at most 1/2^i was asked, but more than half that. */
	struct {
		uint64_t blocks, bytes;
	} bucket[USAGE_BUCKETS];
};

/* A block of fetched bytes was asked for so many. */
void usage_add(struct usage *usage, uint64_t fetched, uint64_t asked);

/*
 * The block size in bytes that would have fetched less than half, had it been that; 0: none,
 * or too little is known. Each halving must save a quarter: smaller blocks cost requests.
 */
uint32_t usage_hint(const struct usage *usage, uint32_t block_shift);

/* Of one version of an object that is open, or -ENOENT. Any thread. */
int usage_of_file(struct core *core, struct origin *origin, const char *path,
		  const struct origin_attr *attr, uint32_t block_shift, struct usage *ret);
/* Of all objects of an origin since the daemon began, fetched in blocks of this size. */
void usage_of_origin(struct core *core, struct origin *origin, uint32_t block_shift,
		     struct usage *ret);

#endif /* WFS_USAGE_H */
