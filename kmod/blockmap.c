// SPDX-License-Identifier: GPL-2.0-only
/*
 * blockmap: states, pins and checksums of the blocks of one file.
 *
 * Knows no inode, folio or request, so that it can be tested alone. States change
 * under the owner's lock; pins are dropped without it. Pins and state share one word, so that
 * a block cannot become evicting while it is pinned, nor be pinned while it is evicting.
 */
#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "../uapi/wfs.h"
#include "blockmap.h"
#include "debugfs.h"

#define ST_STATE 0x07
#define ST_SUMS	 0x08 /* the window's sums hold this block's */
#define ST_BAD	 0x10 /* the cached copy failed its check */
#define ST_REF	 0x20 /* was read since it was cached, or since this was last asked */
#define ST_PIN	 0x40

/* Windows with sums, least recently used first, for the shrinker. */
static LIST_HEAD(sums_lru);
static DEFINE_SPINLOCK(sums_lock);
static unsigned long sums_windows;
static bool sums_kept;
static struct shrinker *sums_shrinker;

u64 wfs_geo_blocks(const struct wfs_geometry *geo)
{
	return (geo->size + (1ULL << geo->block_shift) - 1) >> geo->block_shift;
}

/**
 * wfs_geo_block_bytes() - object bytes of a block
 * @geo: the file
 * @block: a block of it
 *
 * Return: bytes, fewer than the block size in the last block only.
 */
u64 wfs_geo_block_bytes(const struct wfs_geometry *geo, u64 block)
{
	return min_t(u64, geo->size - (block << geo->block_shift), 1ULL << geo->block_shift);
}

u32 wfs_geo_block_units(const struct wfs_geometry *geo, u64 block)
{
	return (wfs_geo_block_bytes(geo, block) + WFS_UNIT_SIZE - 1) >> WFS_UNIT_SHIFT;
}

u32 wfs_geo_window_of(const struct wfs_geometry *geo, u64 block)
{
	return block >> (WFS_WINDOW_SHIFT - geo->block_shift);
}

u64 wfs_geo_window_first(const struct wfs_geometry *geo, u32 window)
{
	return (u64)window << (WFS_WINDOW_SHIFT - geo->block_shift);
}

u32 wfs_geo_window_blocks(const struct wfs_geometry *geo, u32 window)
{
	u64 first = wfs_geo_window_first(geo, window);
	u64 blocks = wfs_geo_blocks(geo);

	if (first >= blocks)
		return 0;
	return min_t(u64, blocks - first, 1U << (WFS_WINDOW_SHIFT - geo->block_shift));
}

/**
 * wfs_window_alloc() - states of one window, all unknown
 * @geo: the file
 * @window: number of the window, inside the file
 * @lock: the lock under which the owner calls everything but pin and unpin
 * @gfp: for the memory
 *
 * Return: the window, to be freed with wfs_window_free(), or NULL.
 */
struct wfs_window *wfs_window_alloc(const struct wfs_geometry *geo, u32 window, spinlock_t *lock,
				    gfp_t gfp)
{
	u32 blocks = wfs_geo_window_blocks(geo, window);
	struct wfs_window *win = kvzalloc(struct_size(win, st, blocks), gfp);
	u64 bytes;

	if (!win)
		return NULL;
	bytes = min_t(u64, geo->size - ((u64)window << WFS_WINDOW_SHIFT), 1ULL << WFS_WINDOW_SHIFT);
	INIT_LIST_HEAD(&win->lru);
	win->lock = lock;
	win->blocks = blocks;
	win->units = 1U << (geo->block_shift - WFS_UNIT_SHIFT);
	win->nsums = (bytes + WFS_UNIT_SIZE - 1) >> WFS_UNIT_SHIFT;
	wfs_held(WFS_HELD_STATES, struct_size(win, st, blocks));
	return win;
}

static void lru_del(struct wfs_window *win)
{
	spin_lock(&sums_lock);
	if (!list_empty(&win->lru)) {
		list_del_init(&win->lru);
		sums_windows--;
	}
	spin_unlock(&sums_lock);
}

static void lru_touch(struct wfs_window *win)
{
	spin_lock(&sums_lock);
	if (list_empty(&win->lru))
		sums_windows++;
	list_move_tail(&win->lru, &sums_lru);
	spin_unlock(&sums_lock);
}

static void count_sums_gone(const struct wfs_window *win)
{
	if (win->sums)
		wfs_held(WFS_HELD_SUMS, -(long)(win->nsums * sizeof(*win->sums)));
}

static u64 *take_sums(struct wfs_window *win)
{
	u64 *sums = win->sums;
	u32 i;

	count_sums_gone(win);
	win->sums = NULL;
	for (i = 0; i < win->blocks; i++)
		atomic_and(~ST_SUMS, &win->st[i]);
	return sums;
}

/* No reader, pin or shrinker may be left (the shrinker is kept off by lru_del()). */
void wfs_window_free(struct wfs_window *win)
{
	if (!win)
		return;
	lru_del(win);
	count_sums_gone(win);
	kvfree(win->sums);
	wfs_held(WFS_HELD_STATES, -(long)struct_size(win, st, win->blocks));
	kvfree(win);
}

enum wfs_block_state wfs_block_state(const struct wfs_window *win, u32 index)
{
	return atomic_read(&win->st[index]) & ST_STATE;
}

/*
 * Sets the state, keeps the pins; sums stay only with a cached block, and that it was read
 * as long as it is one.
 */
static void set_state(struct wfs_window *win, u32 index, int state)
{
	int old = atomic_read(&win->st[index]);
	int keep;

	do {
		keep = ~(ST_STATE | ST_SUMS | ST_REF);
		/* That a copy was bad says nothing of the next one, or of another file's. */
		if (state == WFS_BLOCK_CACHED || state == WFS_BLOCK_UNKNOWN)
			keep &= ~ST_BAD;
		if (state == WFS_BLOCK_CACHED && (old & ST_STATE) == WFS_BLOCK_CACHED)
			keep |= ST_REF;
	} while (!atomic_try_cmpxchg(&win->st[index], &old, (old & keep) | state));
}

void wfs_block_set(struct wfs_window *win, u32 index, enum wfs_block_state state)
{
	set_state(win, index, state);
}

void wfs_block_set_bad(struct wfs_window *win, u32 index)
{
	set_state(win, index, WFS_BLOCK_ABSENT);
	atomic_or(ST_BAD, &win->st[index]);
}

bool wfs_block_is_bad(const struct wfs_window *win, u32 index)
{
	return atomic_read(&win->st[index]) & ST_BAD;
}

bool wfs_block_test_clear_bad(struct wfs_window *win, u32 index)
{
	return atomic_fetch_andnot(ST_BAD, &win->st[index]) & ST_BAD;
}

/**
 * wfs_block_pin() - keep a cached block from being evicted
 * @win: its window
 * @index: block within the window
 *
 * Any context. Return: whether the block was cached and is now pinned.
 */
bool wfs_block_pin(struct wfs_window *win, u32 index)
{
	int old = atomic_read(&win->st[index]);

	do {
		if ((old & ST_STATE) != WFS_BLOCK_CACHED)
			return false;
	} while (!atomic_try_cmpxchg(&win->st[index], &old, (old | ST_REF) + ST_PIN));
	return true;
}

/* Was the block pinned since it was cached, or since this was last asked? Any context. */
bool wfs_block_test_clear_ref(struct wfs_window *win, u32 index)
{
	return atomic_fetch_andnot(ST_REF, &win->st[index]) & ST_REF;
}

/* Any context. */
void wfs_block_unpin(struct wfs_window *win, u32 index)
{
	atomic_sub(ST_PIN, &win->st[index]);
}

/*
 * Unpinned and not on its way in becomes evicting; false otherwise. Pins count whatever
 * the state: a block found bad may still be being read.
 */
bool wfs_block_try_evict(struct wfs_window *win, u32 index)
{
	int old = atomic_read(&win->st[index]);

	do {
		int state = old & ST_STATE;

		if ((state != WFS_BLOCK_CACHED && state != WFS_BLOCK_ABSENT &&
		     state != WFS_BLOCK_UNKNOWN) ||
		    old >= ST_PIN)
			return false;
	} while (!atomic_try_cmpxchg(&win->st[index], &old, WFS_BLOCK_EVICTING));
	return true;
}

bool wfs_block_has_sums(const struct wfs_window *win, u32 index)
{
	return win->sums && (atomic_read(&win->st[index]) & ST_SUMS);
}

/* The sums of a block, one per unit; valid under the owner's lock. */
const u64 *wfs_block_sums(const struct wfs_window *win, u32 index)
{
	lru_touch((struct wfs_window *)win);
	return win->sums + (size_t)index * win->units;
}

/* Stores the sums of a block that has just become cached, if there is room for them. */
void wfs_block_store_sums(struct wfs_window *win, u32 index, const u64 *sums, u32 units)
{
	if (!win->sums)
		return;
	memcpy(win->sums + (size_t)index * win->units, sums, units * sizeof(*sums));
	atomic_or(ST_SUMS, &win->st[index]);
}

/*
 * Gives the window room for sums (win->nsums of them, kvmalloc()ed). Return: NULL if it
 * was taken; the room if there is some already, for the caller to free without the lock.
 */
u64 *wfs_window_give_sums(struct wfs_window *win, u64 *sums)
{
	if (win->sums)
		return sums;
	win->sums = sums;
	wfs_held(WFS_HELD_SUMS, win->nsums * sizeof(*sums));
	lru_touch(win);
	return NULL;
}

void wfs_window_drop_sums(struct wfs_window *win)
{
	lru_del(win);
	kvfree(take_sums(win));
}

/*
 * What only the last session knew (held, evicting) is unknown again and will be asked;
 * cached blocks are durable and stay, unless @all.
 */
static void forget(struct wfs_window *win, bool all)
{
	u32 i;

	for (i = 0; i < win->blocks; i++) {
		switch (wfs_block_state(win, i)) {
		case WFS_BLOCK_HELD:
		case WFS_BLOCK_EVICTING:
			set_state(win, i, WFS_BLOCK_UNKNOWN);
			break;
		case WFS_BLOCK_ABSENT:
		case WFS_BLOCK_CACHED:
			if (all)
				set_state(win, i, WFS_BLOCK_UNKNOWN);
			break;
		default:
			break;
		}
	}
}

/**
 * wfs_window_catch_up() - bring what is known up to date
 * @win: the window
 * @now: the epoch of its file
 *
 * An epoch ends for all windows of a file at one moment, and a large file has thousands. So each
 * is caught up on when it is looked at next: by whoever looks, under the owner's lock, before
 * anything else.
 */
void wfs_window_catch_up(struct wfs_window *win, const struct wfs_epoch *now)
{
	bool all = win->epoch.file != now->file;

	if (likely(win->epoch.helper == now->helper))
		return;
	win->epoch = *now;
	forget(win, all);
	/* A map that was asked before is about another file. */
	if (all && win->asked)
		win->stale = true;
}

/*
 * Without sums a cached block cannot be checked, and so not be served, before a helper
 * tells them again: while there is none, memory pressure has to do without them.
 */
void wfs_sums_keep(bool keep)
{
	WRITE_ONCE(sums_kept, keep);
}

static unsigned long sums_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long n = READ_ONCE(sums_kept) ? 0 : READ_ONCE(sums_windows);

	return n ?: SHRINK_EMPTY;
}

static unsigned long sums_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long freed = 0;
	unsigned long left = sc->nr_to_scan;

	while (left-- && !READ_ONCE(sums_kept)) {
		struct wfs_window *win;
		u64 *sums = NULL;

		spin_lock(&sums_lock);
		win = list_first_entry_or_null(&sums_lru, struct wfs_window, lru);
		if (!win) {
			spin_unlock(&sums_lock);
			break;
		}
		/* The owner's lock comes first everywhere else; here only if free. */
		if (spin_trylock(win->lock)) {
			list_del_init(&win->lru);
			sums_windows--;
			sums = take_sums(win);
			spin_unlock(win->lock);
		} else {
			list_move_tail(&win->lru, &sums_lru);
		}
		spin_unlock(&sums_lock);
		if (sums) {
			kvfree(sums);
			freed++;
		}
	}
	return freed ?: SHRINK_STOP;
}

int wfs_blockmap_init(void)
{
	sums_shrinker = wfs_shrinker_register(sums_count, sums_scan);
	return sums_shrinker ? 0 : -ENOMEM;
}

void wfs_blockmap_exit(void)
{
	wfs_shrinker_unregister(sums_shrinker);
}
