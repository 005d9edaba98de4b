// SPDX-License-Identifier: GPL-2.0-only
/*
 * served: where the bytes that readers are given came from.
 *
 * What brings a folio leaves a mark in its private word: who brought it, and how far it
 * has been read since. Bytes beyond that count for whoever brought them, once; all others
 * count for the page cache. So each byte that a reader is given counts for one place.
 *
 * PG_private is not set: a folio whose mark is lost (reclaimed, split, moved) needs
 * nothing to be released, and counts for the page cache.
 */
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/xarray.h>

#include "internal.h"

/* The mark: enum wfs_served in the low bits, bytes read so far above; 0: wholly read. */
#define MARK_FROM  3UL
#define MARK_SHIFT 2

/**
 * wfs_served_mark() - a folio has been brought
 * @folio: locked, not uptodate yet
 * @from: by whom, where parts of it came from several places the farthest
 */
void wfs_served_mark(struct folio *folio, enum wfs_served from)
{
	WRITE_ONCE(folio->private, (void *)(unsigned long)from);
}

/* Takes [pos, end) of what was not read yet out of the mark, and adds it to its place. */
static void take_fresh(struct folio *folio, loff_t pos, loff_t end, u64 bytes[WFS_SERVED_MAX])
{
	loff_t start = folio_pos(folio);
	size_t size = folio_size(folio);
	size_t lo = max(pos, start) - start;
	size_t hi = min_t(loff_t, end - start, size);
	void *old = READ_ONCE(folio->private), *new;
	unsigned long mark;

	do {
		mark = (unsigned long)old;
		if (!(mark & MARK_FROM) || hi <= mark >> MARK_SHIFT)
			return;
		new = hi == size ? NULL : (void *)(hi << MARK_SHIFT | (mark & MARK_FROM));
	} while (!try_cmpxchg(&folio->private, &old, new));
	bytes[mark & MARK_FROM] += hi - max(lo, mark >> MARK_SHIFT);
}

static void collect(struct address_space *mapping, loff_t pos, loff_t end,
		    u64 bytes[WFS_SERVED_MAX])
{
	XA_STATE(xas, &mapping->i_pages, pos >> PAGE_SHIFT);
	struct folio *folio;

	rcu_read_lock();
	xas_for_each(&xas, folio, (end - 1) >> PAGE_SHIFT)
	{
		if (xas_retry(&xas, folio) || xa_is_value(folio))
			continue;
		/* Only a look, without a reference: most have no mark and are left alone. */
		if (READ_ONCE(folio->private) && folio_try_get(folio)) {
			if (folio == xas_reload(&xas))
				take_fresh(folio, pos, end, bytes);
			folio_put(folio);
		}
		if (need_resched()) {
			xas_pause(&xas);
			rcu_read_unlock();
			cond_resched();
			rcu_read_lock();
		}
	}
	rcu_read_unlock();
}

/**
 * wfs_served_read() - count what a reader was given
 * @inode: a file
 * @pos: offset
 * @len: bytes given, at least 1
 *
 * The read counts for the farthest place that bytes of it came from.
 * Context: process.
 */
void wfs_served_read(struct inode *inode, loff_t pos, size_t len)
{
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);
	u64 bytes[WFS_SERVED_MAX] = { 0 };
	int from, farthest = WFS_SERVED_PAGES;

	collect(inode->i_mapping, pos, pos + len, bytes);
	bytes[WFS_SERVED_PAGES] = len - bytes[WFS_SERVED_NVME] - bytes[WFS_SERVED_HELPER];
	for (from = 0; from < WFS_SERVED_MAX; from++) {
		if (!bytes[from])
			continue;
		farthest = from;
		wfs_count(wsb, WFS_STAT_SERVED_PAGES_BYTES + 2 * from, bytes[from]);
	}
	wfs_count(wsb, WFS_STAT_SERVED_PAGES_READS + 2 * farthest, 1);
}

void wfs_served_direct(struct wfs_sb *wsb, size_t len)
{
	wfs_count(wsb, WFS_STAT_SERVED_PAGES_BYTES + 2 * WFS_SERVED_NVME, len);
	wfs_count(wsb, WFS_STAT_SERVED_PAGES_READS + 2 * WFS_SERVED_NVME, 1);
}

/**
 * wfs_served_fault() - count a fault that missed the page cache and has ended
 * @inode: a file
 * @index: page that it wanted
 *
 * Counted by the place its folio came from; not at all if there is none by now.
 * Context: process.
 */
void wfs_served_fault(struct inode *inode, pgoff_t index)
{
	struct folio *folio = filemap_get_folio(inode->i_mapping, index);
	unsigned long mark;

	if (IS_ERR_OR_NULL(folio))
		return;
	mark = folio_test_uptodate(folio) ? (unsigned long)READ_ONCE(folio->private) : 0;
	folio_put(folio);
	if ((mark & MARK_FROM) == WFS_SERVED_NVME)
		wfs_count(WFS_SB(inode->i_sb), WFS_STAT_NVME_FAULTS, 1);
	else if ((mark & MARK_FROM) == WFS_SERVED_HELPER)
		wfs_count(WFS_SB(inode->i_sb), WFS_STAT_HELPER_FAULTS, 1);
}
