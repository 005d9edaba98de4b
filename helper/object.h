/* SPDX-License-Identifier: MIT */
/*
 * object: one version of one object, with what the helper knows of its blocks.
 *
 * Refcounted, in one table (core), found by (origin identity, path, version, size,
 * block size). The kernel's nodes and the command line's fetches share objects, so
 * that each byte is asked of the origin once whoever wants it.
 */
#ifndef WFS_OBJECT_H
#define WFS_OBJECT_H

#include <stdbool.h>
#include <stdint.h>
#include "origin.h"

struct core; /* the daemon's engine: workers, buffers, table of objects, store */
struct object;

/*
 * What the channel must be told of an object; set by the channel when the kernel
 * opens it. Called on some worker's thread (evict, evicted: the store's), with no lock
 * held. Bytes and sums are good until the call returns.
 */
struct object_watch {
	/* Block durable in the cache file. sums: one XXH64 per unit. */
	void (*stored)(struct object_watch *watch, uint64_t block, const uint64_t *sums,
		       uint32_t units);
	/* Block will not be stored; before this, offer() may be called with its bytes. */
	void (*dropped)(struct object_watch *watch, uint64_t block);
	/* Bytes of a block about to be dropped unstored: offset within the block. */
	void (*offer)(struct object_watch *watch, uint64_t block, uint64_t offset,
		      const void *bytes, uint32_t len);
	/*
	 * May the block be dropped from the cache file? Blocks until the kernel has
	 * answered: 0 or -EBUSY; -EAGAIN, if cold: it was read since this was last asked.
	 * Called on the store's own thread.
	 */
	int (*evict)(struct object_watch *watch, uint64_t block, bool cold);
	void (*evicted)(struct object_watch *watch, uint64_t block);
	/* The object is to be opened anew: it may have a cache file then. The store's thread. */
	void (*reopen)(struct object_watch *watch);
};

/*
 * Finds or makes the object; *ret holds one reference. attr->version, size and flags
 * are copied. Any thread. Opens its cache file unless ORIGIN_WEAK or the store is out of use.
 */
int object_open(struct core *core, struct origin *origin, const char *path,
		const struct origin_attr *attr, uint32_t block_shift, struct object **ret);
/* Somebody opened it, or wants it kept: what is cached of it by now is spared once. */
void object_opened(struct object *object);
/* Is any block of it in the cache, so that an earlier open found it fit to be kept? Any thread. */
bool object_recorded(struct core *core, struct origin *origin, const char *path,
		     const struct origin_attr *attr, uint32_t block_shift);
struct object *object_ref(struct object *object);
void object_unref(struct object *object);

/* At most a few watches (one per mount of the same object). Any thread. */
int object_watch(struct object *object, struct object_watch *watch);
/* When it returns no callback of the watch runs or will run. */
void object_unwatch(struct object *object, struct object_watch *watch);

/* Descriptor of the cache file (O_RDWR | O_DIRECT), owned by the object, or -1. */
int object_fd(const struct object *object);
const struct origin_attr *object_attr(const struct object *object);
const char *object_path(const struct object *object);
uint32_t object_block_shift(const struct object *object);
/* Units of a block: fewer in the last one. */
uint32_t object_units(const struct object *object, uint64_t block);

/*
 * Cached blocks of [first, first + count): a bit each in bitmap (LSB first), and the
 * sums of the cached ones one after the other in sums (room for all of them).
 * *ret_sums: number of sums. Durable blocks only. Any thread.
 */
int object_map(struct object *object, uint64_t first, uint64_t count, uint64_t *bitmap,
	       uint64_t *sums, size_t *ret_sums);

#endif /* WFS_OBJECT_H */
