// SPDX-License-Identifier: GPL-2.0-only
/*
 * direct: O_DIRECT by applications, from the cache file into their memory.
 *
 * Only where nothing is checked (verify=off) and all blocks are cached; they stay pinned
 * until the disk has answered. Everything else goes through the page cache, and so does what
 * could not be read here. Either way the bytes are the same: a version never changes.
 *
 * The disk may outlive the reader's patience: who waits can be killed, and the read goes on
 * into pages that the block layer holds.
 */
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "internal.h"

/* Blocks pinned in one go under the node's lock. */
#define PIN_BATCH 256

/* One read: held by the reader while it waits, and by the disk. */
struct direct {
	struct kiocb iocb;
	refcount_t refs;
	struct completion done;
	struct work_struct free;
	struct wfs_node *node;
	struct wfs_cachefile *cf;
	u64 block; /* first pinned */
	u64 blocks;
	ssize_t result;
};

static u32 index_of(const struct wfs_node *node, u64 block, u32 *ret_window)
{
	*ret_window = wfs_geo_window_of(&node->geo, block);
	return block - wfs_geo_window_first(&node->geo, *ret_window);
}

/* Any context. */
static void unpin(struct direct *d)
{
	while (d->blocks) {
		u32 window, index = index_of(d->node, d->block + --d->blocks, &window);

		/* It lives as long as the node. */
		wfs_block_unpin(xa_load(&d->node->windows, window), index);
	}
}

/* Some more blocks; false if one of them is not cached, or the cache file has changed. */
static bool pin_some(struct direct *d, u64 wanted)
{
	struct wfs_node *node = d->node;
	bool good = true;
	u64 i;

	spin_lock(&node->lock);
	if (!d->cf && node->cf)
		d->cf = wfs_cachefile_get(node->cf);
	for (i = 0; i < PIN_BATCH && d->blocks < wanted && good; i++) {
		u32 window, index = index_of(node, d->block + d->blocks, &window);
		struct wfs_window *win = wfs_node_window_now(node, window);

		good = d->cf && d->cf == node->cf && win && wfs_block_pin(win, index);
		d->blocks += good;
	}
	spin_unlock(&node->lock);
	return good;
}

static bool pin(struct direct *d, loff_t pos, size_t len)
{
	u32 shift = d->node->geo.block_shift;
	u64 wanted = ((pos + len - 1) >> shift) - (pos >> shift) + 1;

	d->block = pos >> shift;
	while (d->blocks < wanted) {
		if (!pin_some(d, wanted))
			return false;
		cond_resched();
	}
	return true;
}

/* Has nobody said yet what is cached there? */
static bool unknown(struct wfs_node *node, loff_t pos)
{
	u32 window, index = index_of(node, pos >> node->geo.block_shift, &window);
	struct wfs_window *win;
	bool ret;

	spin_lock(&node->lock);
	win = wfs_node_window_now(node, window);
	ret = !win || wfs_block_state(win, index) == WFS_BLOCK_UNKNOWN;
	spin_unlock(&node->lock);
	return ret;
}

static void free_direct(struct direct *d)
{
	struct wfs_sb *wsb = d->node->wsb;

	unpin(d);
	if (d->cf)
		wfs_cachefile_put(d->cf);
	/* The mount waits for reads, so that it outlives the node here. */
	wfs_node_put(d->node);
	wfs_sb_busy_put(wsb);
	kfree(d);
}

static void free_work(struct work_struct *work)
{
	free_direct(container_of(work, struct direct, free));
}

/* Any context. */
static void complete_direct(struct kiocb *iocb, long result)
{
	struct direct *d = container_of(iocb, struct direct, iocb);

	d->result = result;
	unpin(d);
	complete(&d->done);
	if (refcount_dec_and_test(&d->refs))
		queue_work(wfs_wq, &d->free);
}

static struct direct *alloc_direct(struct wfs_node *node)
{
	struct direct *d;

	if (!wfs_sb_busy_get(node->wsb))
		return NULL;
	d = kzalloc(sizeof(*d), GFP_KERNEL);
	if (!d) {
		wfs_sb_busy_put(node->wsb);
		return NULL;
	}
	refcount_set(&d->refs, 1);
	init_completion(&d->done);
	INIT_WORK(&d->free, free_work);
	d->node = wfs_node_get(node);
	return d;
}

static ssize_t read_pinned(struct direct *d, const struct kiocb *iocb, struct iov_iter *iter)
{
	ssize_t ret;

	d->iocb.ki_pos = iocb->ki_pos;
	d->iocb.ki_flags = IOCB_DIRECT | (iocb->ki_flags & IOCB_NOWAIT);
	d->iocb.ki_complete = complete_direct;
	refcount_inc(&d->refs);
	ret = wfs_cachefile_read(d->cf, &d->iocb, iter);
	if (ret != -EIOCBQUEUED) {
		refcount_dec(&d->refs);
		return ret;
	}
	ret = wait_for_completion_killable(&d->done);
	return ret ?: d->result;
}

/**
 * wfs_direct_read() - what can be read from the cache file without a copy
 * @iocb: a read with O_DIRECT; its position is moved by what was read
 * @to: where to; advanced by what was read
 *
 * Reads that complete later (AIO, io_uring) or that are for the kernel (splice, loop devices)
 * are left to the page cache.
 * Context: process; waits for the disk, killably. Return: bytes, 0: it is for the page cache,
 * all of it or what is left; -EAGAIN: would wait and may not; -EINTR: killed.
 */
ssize_t wfs_direct_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct wfs_node *node = WFS_I(inode)->node;
	loff_t pos = iocb->ki_pos;
	/* The last bytes are not a whole sector. */
	loff_t end = round_down(i_size_read(inode), PAGE_SIZE);
	struct iov_iter iter = *to;
	struct direct *d;
	ssize_t ret = 0;

	if (node->wsb->opts.verify || !is_sync_kiocb(iocb) || !user_backed_iter(to) ||
	    wfs_is_helper() || pos >= end)
		return 0;
	iov_iter_truncate(&iter, end - pos);
	if (!iov_iter_count(&iter))
		return 0;
	if (unknown(node, pos)) {
		if (iocb->ki_flags & IOCB_NOWAIT)
			return -EAGAIN;
		/* What cannot be told now, the page cache waits for. */
		wfs_io_probe(node, pos, iov_iter_count(&iter));
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	d = alloc_direct(node);
	if (!d)
		return 0;
	if (pin(d, pos, iov_iter_count(&iter)))
		ret = read_pinned(d, iocb, &iter);
	if (refcount_dec_and_test(&d->refs))
		free_direct(d);
	if (ret == -EINTR || ret == -ERESTARTSYS)
		return ret;
	if (ret == -EAGAIN && iocb->ki_flags & IOCB_NOWAIT)
		return ret;
	/* What the disk refuses (misaligned, broken), the page cache is asked for. */
	if (ret < 0)
		return 0;
	if (ret) {
		iocb->ki_pos += ret;
		iov_iter_advance(to, ret);
		wfs_count(node->wsb, WFS_STAT_NVME_READS, 1);
		wfs_count(node->wsb, WFS_STAT_NVME_BYTES, ret);
		wfs_count(node->wsb, WFS_STAT_READ_BYTES, ret);
		wfs_served_direct(node->wsb, ret);
	}
	return ret;
}
