// SPDX-License-Identifier: GPL-2.0-only
/*
 * pages: the page cache's questions.
 *
 * read-ahead and read_folio hand locked folios to folioio and return; the VFS sleeps
 * on the folio lock, killably. Folios added by ourselves (random faults, remainders of
 * blocks that are not stored) are added under the shared invalidate lock.
 */
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "internal.h"

/* A quarter of the least that the reader's memory cgroups allow, in pages. */
static unsigned long memcg_limit(void)
{
	unsigned long limit = ULONG_MAX;
#ifdef CONFIG_MEMCG
	struct mem_cgroup *memcg;

	rcu_read_lock();
	for (memcg = mem_cgroup_from_task(current); memcg; memcg = parent_mem_cgroup(memcg))
		limit = min(limit, READ_ONCE(memcg->memory.max) / 4);
	rcu_read_unlock();
#endif
	return limit;
}

/* Most bytes of locked folios in flight on one mount; they cannot be reclaimed. */
static s64 locked_limit(void)
{
	unsigned long pages = min3(totalram_pages() / 8, memcg_limit(), SZ_1G >> PAGE_SHIFT);

	return (s64)pages << PAGE_SHIFT;
}

/* One file may have half of what its mount may have. */
static bool locked_enough(const struct wfs_node *node, s64 limit)
{
	return atomic64_read(&node->wsb->locked) >= limit ||
	       atomic64_read(&node->locked) >= limit / 2;
}

/*
 * What is cached can be read further ahead than what would have to be fetched: with 4 MiB a
 * reader waits for checksums that are taken beside it (0.7 of the rate of a mapping, 0.9 with
 * 8 MiB).
 */
#define CACHED_WINDOW SZ_8M

/* Is what follows cached? Two looks, since this is asked with each read. */
static bool cached_ahead(struct inode *inode, loff_t pos)
{
	struct wfs_node *node = WFS_I(inode)->node;
	loff_t last = i_size_read(inode) - 1;

	return wfs_node_cached_at(node, min(pos + CACHED_WINDOW / 2, last)) &&
	       wfs_node_cached_at(node, min(pos + CACHED_WINDOW, last));
}

/**
 * wfs_stream_window() - how far one stream may read ahead now
 * @inode: a file
 * @pos: where it reads, before the end
 *
 * The page cache allocates and locks a whole window before it asks for it, so what the
 * reader's memory cgroup cannot bear has to be known before: one stream may have an
 * eighth of what may be locked, and one unit where enough is locked already.
 * Context: the reader's. Return: pages, at least those of a unit.
 */
unsigned int wfs_stream_window(struct inode *inode, loff_t pos)
{
	u64 pages = inode->i_sb->s_bdi->ra_pages;
	s64 limit = locked_limit();
	u64 window = 0;

	if (pages < CACHED_WINDOW >> PAGE_SHIFT &&
	    WFS_SB(inode->i_sb)->opts.readahead >= CACHED_WINDOW && cached_ahead(inode, pos))
		pages = CACHED_WINDOW >> PAGE_SHIFT;
	if (!locked_enough(WFS_I(inode)->node, limit))
		window = min_t(u64, limit / 8 >> PAGE_SHIFT, pages);
	return max_t(u64, window, WFS_UNIT_SIZE >> PAGE_SHIFT);
}

static void wfs_readahead(struct readahead_control *rac)
{
	struct inode *inode = rac->mapping->host;
	struct wfs_node *node = WFS_I(inode)->node;
	u64 first = readahead_pos(rac) >> node->geo.block_shift;
	s64 limit = locked_limit();
	struct folio *folio;
	LIST_HEAD(segs);
	bool any = false;

	/* What is left alone here, read_folio() refuses. */
	if (wfs_is_helper())
		return;
	wfs_node_charge_to(node, current);
	while (!any || !locked_enough(node, limit)) {
		u64 block;

		folio = readahead_folio(rac);
		if (!folio)
			break;
		block = folio_pos(folio) >> node->geo.block_shift;
		wfs_io_read(inode, folio, block == first ? WFS_WHY_DEMAND : WFS_WHY_READAHEAD,
			    &segs);
		any = true;
	}
	wfs_route(node, &segs);
}

static int wfs_read_folio(struct file *file, struct folio *folio)
{
	struct inode *inode = folio->mapping->host;
	struct wfs_node *node = WFS_I(inode)->node;
	LIST_HEAD(segs);
	int err;

	err = wfs_is_helper() ? -EDEADLK :
				wfs_node_recent_error(node, folio_pos(folio), folio_size(folio));
	if (err) {
		folio_unlock(folio);
		return err;
	}
	wfs_node_charge_to(node, current);
	wfs_io_read(inode, folio, WFS_WHY_DEMAND, &segs);
	wfs_route(node, &segs);
	return 0;
}

/* Direct reads go through the page cache, where they are checked and coherent. */
const struct address_space_operations wfs_aops = {
	.readahead = wfs_readahead,
	.read_folio = wfs_read_folio,
	.direct_IO = noop_direct_IO,
};

/* To the huge page code of older kernels there is no folio of two pages. */
static unsigned int usable_order(unsigned int order)
{
	return order == 1 ? 0 : order;
}

static struct folio *alloc_folio(gfp_t gfp, unsigned int order)
{
	return wfs_inject(WFS_INJECT_FOLIO) ? NULL : filemap_alloc_folio(gfp, order);
}

/**
 * wfs_page_cache_add() - add one folio and begin to read it
 * @inode: a file
 * @index: page that it must hold
 * @order: of the folio, smaller where the file ends before
 *
 * Context: process, no folio lock. Return: 0, -EEXIST if something is there, -ENOMEM.
 */
int wfs_page_cache_add(struct inode *inode, pgoff_t index, unsigned int order)
{
	struct address_space *mapping = inode->i_mapping;
	pgoff_t last = (i_size_read(inode) - 1) >> PAGE_SHIFT;
	gfp_t gfp = readahead_gfp_mask(mapping);
	struct folio *folio;
	LIST_HEAD(segs);
	int err;

	order = usable_order(min(order, wfs_mapping_max_order(mapping)));
	/* Not past the end of the file, where folios may be smaller than a unit. */
	while (order > wfs_mapping_min_order(mapping) &&
	       round_down(index, 1UL << order) + (1UL << order) - 1 > last)
		order = usable_order(order - 1);
	index = round_down(index, 1UL << order);
	folio = alloc_folio(gfp, order);
	if (!folio)
		return -ENOMEM;
	filemap_invalidate_lock_shared(mapping);
	err = filemap_add_folio(mapping, folio, index, gfp);
	if (!err) {
		wfs_io_read(inode, folio, WFS_WHY_DEMAND, &segs);
		wfs_route(WFS_I(inode)->node, &segs);
	}
	filemap_invalidate_unlock_shared(mapping);
	folio_put(folio);
	return err;
}

/* The largest folio that starts at @index and lies within @pages pages. */
static unsigned int offer_order(pgoff_t index, unsigned long pages)
{
	unsigned int order = min_t(unsigned int, HPAGE_PMD_ORDER, ilog2(pages));

	return index ? min_t(unsigned int, order, __ffs(index)) : order;
}

/**
 * wfs_page_cache_offer() - bytes that nobody waits for, before they are dropped
 * @inode: a file
 * @pos: offset in the file, a multiple of the unit
 * @len: bytes: a multiple of the unit, or up to the end of the file
 * @buffers: where they are
 * @buf: offset there
 *
 * Adds uptodate folios where none are, as far as memory is easily had.
 * Context: process; sleeps for memory at most. Return: bytes taken.
 */
size_t wfs_page_cache_offer(struct inode *inode, loff_t pos, size_t len,
			    const struct wfs_memory *buffers, u64 buf)
{
	struct address_space *mapping = inode->i_mapping;
	gfp_t gfp = readahead_gfp_mask(mapping);
	size_t taken = 0;

	/* Not at the cost of what is in use: an eighth of memory stays free of it. */
	if (si_mem_available() < totalram_pages() / 8)
		return 0;
	if (!down_read_trylock(&mapping->invalidate_lock))
		return 0;
	while (len) {
		unsigned long pages = DIV_ROUND_UP(round_up(len, WFS_UNIT_SIZE), PAGE_SIZE);
		pgoff_t index = pos >> PAGE_SHIFT;
		unsigned int most = wfs_mapping_max_order(mapping);
		unsigned int order = usable_order(min(offer_order(index, pages), most));
		struct folio *folio;
		size_t n;
		int err;

		/* A smaller folio than the unit where the file ends and the kernel has them. */
		while (order > wfs_mapping_min_order(mapping) && len <= PAGE_SIZE << (order - 1))
			order = usable_order(order - 1);
		n = min_t(size_t, len, PAGE_SIZE << order);
		folio = alloc_folio(gfp, order);
		if (!folio)
			break;
		err = filemap_add_folio(mapping, folio, index, gfp);
		if (!err) {
			wfs_buffers_to_folio(buffers, buf, folio, 0, n);
			folio_zero_segment(folio, n, folio_size(folio));
			flush_dcache_folio(folio);
			wfs_served_mark(folio, WFS_SERVED_HELPER);
			folio_end_read(folio, true);
			taken += n;
		}
		folio_put(folio);
		if (err && err != -EEXIST)
			break;
		pos += n;
		buf += n;
		len -= n;
	}
	up_read(&mapping->invalidate_lock);
	return taken;
}
