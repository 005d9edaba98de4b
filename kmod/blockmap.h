/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Block states, pins and sums of a file. No VFS type: tested alone (blockmap_test.c).
 */
#ifndef _WFS_BLOCKMAP_H
#define _WFS_BLOCKMAP_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

enum wfs_block_state {
	WFS_BLOCK_UNKNOWN,
	WFS_BLOCK_ABSENT,
	WFS_BLOCK_FILLING,
	WFS_BLOCK_HELD,
	WFS_BLOCK_CACHED,
	WFS_BLOCK_EVICTING,
};

/**
 * struct wfs_epoch - what a file's map knows belongs to it
 * @helper: rises whenever a helper's knowledge goes
 * @file: rises when the cache file becomes another one, which is such a time, too
 */
struct wfs_epoch {
	u64 helper;
	u64 file;
};

/**
 * struct wfs_window - states of the blocks of 512 MiB of a file
 * @lru: in the list of windows that have sums
 * @lock: the lock of the map's owner, for the shrinker
 * @epoch: the states are of; see wfs_window_catch_up()
 * @sums: one per unit, or NULL
 * @asked: a block map request is under way
 * @stale: a block was evicted, or the cache file became another, since; the answer may be older
 * @st: per block: state, ST_SUMS, ST_BAD, ST_REF, pins from ST_PIN up
 */
struct wfs_window {
	struct list_head lru;
	spinlock_t *lock; /* the owner's */
	struct wfs_epoch epoch;
	u64 *sums;
	u32 nsums;
	u32 blocks;
	u32 units;
	bool asked;
	bool stale;
	atomic_t st[];
};

/* Geometry of a file: what window, how many blocks and units. */
struct wfs_geometry {
	u64 size;
	u32 block_shift;
};

u64 wfs_geo_blocks(const struct wfs_geometry *geo);
u32 wfs_geo_block_units(const struct wfs_geometry *geo, u64 block);
u64 wfs_geo_block_bytes(const struct wfs_geometry *geo, u64 block);
u32 wfs_geo_window_of(const struct wfs_geometry *geo, u64 block);
u32 wfs_geo_window_blocks(const struct wfs_geometry *geo, u32 window);
u64 wfs_geo_window_first(const struct wfs_geometry *geo, u32 window);

struct wfs_window *wfs_window_alloc(const struct wfs_geometry *geo, u32 window, spinlock_t *lock,
				    gfp_t gfp);
void wfs_window_free(struct wfs_window *win);
enum wfs_block_state wfs_block_state(const struct wfs_window *win, u32 index);
void wfs_block_set(struct wfs_window *win, u32 index, enum wfs_block_state state);
/* The cached copy is wrong: absent, and to be fetched afresh. */
void wfs_block_set_bad(struct wfs_window *win, u32 index);
bool wfs_block_is_bad(const struct wfs_window *win, u32 index);
bool wfs_block_test_clear_bad(struct wfs_window *win, u32 index);
bool wfs_block_pin(struct wfs_window *win, u32 index);
void wfs_block_unpin(struct wfs_window *win, u32 index);
bool wfs_block_test_clear_ref(struct wfs_window *win, u32 index);
bool wfs_block_try_evict(struct wfs_window *win, u32 index);
bool wfs_block_has_sums(const struct wfs_window *win, u32 index);
const u64 *wfs_block_sums(const struct wfs_window *win, u32 index);
void wfs_block_store_sums(struct wfs_window *win, u32 index, const u64 *sums, u32 units);
u64 *wfs_window_give_sums(struct wfs_window *win, u64 *sums);
void wfs_window_drop_sums(struct wfs_window *win);
/* What is known, but not any more in this epoch, is forgotten. */
void wfs_window_catch_up(struct wfs_window *win, const struct wfs_epoch *now);
/* Whether sums that are dropped could not be asked for again. */
void wfs_sums_keep(bool keep);
int wfs_blockmap_init(void);
void wfs_blockmap_exit(void);

#endif /* _WFS_BLOCKMAP_H */
