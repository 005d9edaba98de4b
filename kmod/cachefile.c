// SPDX-License-Identifier: GPL-2.0-only
/*
 * cachefile: checked direct reads of a cache file into folios.
 *
 * Submitted without waiting where the filesystem can, else from a workqueue. The
 * completion may come in interrupt context and queues work; there the sums are checked,
 * and only then does any part count as read. What fails its check is marked bad and routed
 * again, which fetches it afresh. With verify=off what was read ends in the completion.
 *
 * The sum of one unit takes some microseconds: less than to wake a thread on another
 * processor while the reader waits. Larger reads are checked beside the reader.
 *
 * Where a segment's folio is as large as the unit of checksums, or nothing is checked, the
 * disk writes into the folio. Smaller folios share a bounce buffer of one unit.
 */
#include <linux/bvec.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/huge_mm.h>
#include <linux/magic.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>
#include <linux/xxhash.h>

#include "internal.h"
#include "trace.h"

/* Files are sized in these steps; direct reads begin and end on them. */
#define ALIGNMENT 4096

struct wfs_cachefile {
	refcount_t refs;
	struct file *file;
	const struct cred *cred;
};

/* One read of a cache file. */
struct wfs_cread {
	struct kiocb iocb;
	refcount_t refs; /* the submitter's and the completion's */
	struct work_struct work;
	struct wfs_node *node;
	struct wfs_cachefile *cf;
	struct wfs_window *win; /* of the pinned block */
	u32 index;		/* of the block in it */
	u32 unit;		/* range read, in units of the block */
	u32 units;
	struct list_head segs; /* what it is for */
	void *bounce;	       /* memory of one unit; NULL: straight into the folio */
	loff_t pos;	       /* range read, in bytes of the file */
	size_t len;	       /* a multiple of ALIGNMENT */
	ssize_t result;	       /* of the read: bytes or -errno */
	bool waited;	       /* submitted from the workqueue, where it may block */
	bool late;	       /* to take long, for tests */
	u64 sums[WFS_CREAD_UNITS];
	struct bio_vec bv[WFS_CREAD_SEGS];
};

/* Sums and copies go through the kernel's map of all memory. */
static_assert(!IS_ENABLED(CONFIG_HIGHMEM));
static_assert((PAGE_SIZE << HPAGE_PMD_ORDER) / WFS_UNIT_SIZE <= WFS_CREAD_UNITS);
static_assert(WFS_UNIT_SIZE / PAGE_SIZE <= WFS_CREAD_SEGS);
/* Folios and the ranges read of them begin and end on pages. */
static_assert(PAGE_SIZE % ALIGNMENT == 0);

static struct workqueue_struct *read_wq;
/* Where the disk's interrupt was, at once: may not sleep. */
static struct workqueue_struct *unit_wq;

/**
 * wfs_cachefile_open() - take a cache file from the helper
 * @fd: its descriptor in the calling process
 * @ret: the file, one reference
 *
 * Refuses with EINVAL what is no regular file on a filesystem with a block device under
 * it (so no wfs, FUSE, NFS or overlay), or was not opened for direct reads.
 */
int wfs_cachefile_open(int fd, struct wfs_cachefile **ret)
{
	struct wfs_cachefile *cf;
	struct file *file = fget(fd);

	if (!file)
		return -EINVAL;
	if (!S_ISREG(file_inode(file)->i_mode) || !file_inode(file)->i_sb->s_bdev ||
	    file_inode(file)->i_sb->s_magic == FUSE_SUPER_MAGIC ||
	    (file->f_mode & (FMODE_READ | FMODE_CAN_READ | FMODE_CAN_ODIRECT)) !=
		    (FMODE_READ | FMODE_CAN_READ | FMODE_CAN_ODIRECT) ||
	    !(file->f_flags & O_DIRECT)) {
		fput(file);
		return -EINVAL;
	}
	cf = kzalloc(sizeof(*cf), GFP_KERNEL);
	if (!cf) {
		fput(file);
		return -ENOMEM;
	}
	refcount_set(&cf->refs, 1);
	cf->file = file;
	cf->cred = get_cred(file->f_cred);
	*ret = cf;
	return 0;
}

struct wfs_cachefile *wfs_cachefile_get(struct wfs_cachefile *cf)
{
	refcount_inc(&cf->refs);
	return cf;
}

void wfs_cachefile_put(struct wfs_cachefile *cf)
{
	if (refcount_dec_and_test(&cf->refs)) {
		fput(cf->file);
		put_cred(cf->cred);
		kfree(cf);
	}
}

/**
 * wfs_cachefile_read() - read from the file, as its opener
 * @cf: the file
 * @iocb: position, flags and completion; the rest is filled in
 * @to: where to
 *
 * Security modules are asked about the opener, not about whom it is for.
 * Return: as ->read_iter().
 */
ssize_t wfs_cachefile_read(struct wfs_cachefile *cf, struct kiocb *iocb, struct iov_iter *to)
{
	const struct cred *old = override_creds(cf->cred);
	ssize_t ret;

	iocb->ki_filp = cf->file;
	ret = vfs_iocb_iter_read(cf->file, iocb, to);
	revert_creds(old);
	return ret;
}

bool wfs_cachefile_same(const struct wfs_cachefile *a, const struct wfs_cachefile *b)
{
	return a && b && file_inode(a->file) == file_inode(b->file);
}

struct wfs_cread *wfs_cread_alloc(void)
{
	struct wfs_cread *cr = kzalloc(sizeof(*cr), GFP_NOFS);

	if (cr) {
		refcount_set(&cr->refs, 1);
		INIT_LIST_HEAD(&cr->segs);
	}
	return cr;
}

/* Room for the sums of the units to be read, to be filled before the start. */
u64 *wfs_cread_sums(struct wfs_cread *cr)
{
	return cr->sums;
}

/* Any context while segments of a folio keep the node, see put_io(). */
static void let_go(struct wfs_cread *cr)
{
	wfs_block_unpin(cr->win, cr->index);
	wfs_cachefile_put(cr->cf);
	wfs_node_put(cr->node);
	cr->node = NULL;
}

void wfs_cread_free(struct wfs_cread *cr)
{
	if (cr->node)
		let_go(cr);
	kvfree(cr->bounce);
	kfree(cr);
}

static void put_cread(struct wfs_cread *cr)
{
	if (refcount_dec_and_test(&cr->refs))
		wfs_cread_free(cr);
}

/* Is unit @i of the read what its sum says? Whole units but at the end of the file. */
static bool check_unit(const struct wfs_cread *cr, const void *bytes, u64 block, u32 i)
{
	u64 block_bytes = wfs_geo_block_bytes(&cr->node->geo, block);
	u64 off = (u64)(cr->unit + i) << WFS_UNIT_SHIFT;

	return xxh64(bytes, min_t(u64, block_bytes - off, WFS_UNIT_SIZE), 0) == cr->sums[i];
}

static bool check_seg(const struct wfs_cread *cr, const struct wfs_seg *seg)
{
	size_t folio_off, unit_off;
	u32 unit;

	for (unit = seg->unit; unit < seg->unit + seg->units; unit++) {
		wfs_seg_span(seg, unit, &folio_off, &unit_off);
		if (!check_unit(cr, folio_address(seg->io->folio) + folio_off, seg->block,
				unit - cr->unit))
			return false;
	}
	return true;
}

/* All parts are right. Any context. */
static void end_segs(struct wfs_cread *cr)
{
	struct wfs_seg *seg;
	u32 unit;

	list_for_each_entry(seg, &cr->segs, link)
		for (unit = seg->unit; unit < seg->unit + seg->units; unit++)
			if (wfs_seg_claim(seg, unit))
				wfs_seg_end_unit(seg, 0);
}

/*
 * Ends all parts if each is right, and none else: the next read of the segments goes into
 * the same folios, over what was right in this one. No part was ended before, and none is
 * meanwhile: the segments are in no other list.
 */
static bool take_direct(struct wfs_cread *cr)
{
	struct wfs_seg *seg;

	list_for_each_entry(seg, &cr->segs, link)
		if (!check_seg(cr, seg))
			return false;
	end_segs(cr);
	return true;
}

static bool take_bounce(struct wfs_cread *cr)
{
	struct wfs_seg *seg = list_first_entry(&cr->segs, struct wfs_seg, link);

	if (!check_unit(cr, cr->bounce, seg->block, 0))
		return false;
	list_for_each_entry(seg, &cr->segs, link) {
		size_t folio_off, unit_off, n;

		if (!wfs_seg_claim(seg, cr->unit))
			continue;
		n = wfs_seg_span(seg, cr->unit, &folio_off, &unit_off);
		memcpy(folio_address(seg->io->folio) + folio_off, cr->bounce + unit_off, n);
		wfs_seg_end_unit(seg, 0);
	}
	return true;
}

/* Any context. */
static bool take(struct wfs_cread *cr)
{
	if (cr->node->wsb->opts.verify)
		return cr->bounce ? take_bounce(cr) : take_direct(cr);
	end_segs(cr);
	return true;
}

/* The block is not what it was stored as: nobody reads it again, it is fetched afresh. */
static void mark_bad(struct wfs_cread *cr, u64 block)
{
	struct wfs_node *node = cr->node;

	spin_lock(&node->lock);
	/* What an old cache file held says nothing of its successor. */
	if (cr->cf == node->cf && wfs_block_state(cr->win, cr->index) == WFS_BLOCK_CACHED)
		wfs_block_set_bad(cr->win, cr->index);
	spin_unlock(&node->lock);
	wfs_count(node->wsb, WFS_STAT_CORRUPT, 1);
	wfs_event(WFS_EVENT_CORRUPT, node->wsb->id, 0, node->path,
		  "a cached block failed its check and is fetched again");
	pr_warn_ratelimited("wfs: %s: block %llu of \"%s\" failed its check (%zd), fetching again\n",
			    node->wsb->source, block, node->path, cr->result);
}

static void submit(struct wfs_cread *cr);

/* What was read well, as if the disk had done less. Any context. */
static void inject_result(struct wfs_cread *cr)
{
	cr->late = wfs_inject(WFS_INJECT_READ_LATE);
	if (cr->result != cr->len)
		return;
	if (wfs_inject(WFS_INJECT_READ_ERROR))
		cr->result = -EIO;
	else if (wfs_inject(WFS_INJECT_READ_SHORT))
		cr->result -= ALIGNMENT;
	else
		return;
	/* Not tried again. */
	cr->waited = true;
}

/* All was read: the segments are ended if it is right. Any context. */
static bool finish(struct wfs_cread *cr)
{
	struct wfs_node *node = cr->node;
	struct wfs_seg *seg, *next;
	u64 block = list_first_entry(&cr->segs, struct wfs_seg, link)->block;

	if (!take(cr))
		return false;
	wfs_count(node->wsb, WFS_STAT_NVME_BYTES, cr->len);
	trace_wfs_hit(node->id, block, cr->unit, cr->units, 0);
	let_go(cr);
	list_for_each_entry_safe(seg, next, &cr->segs, link) {
		list_del_init(&seg->link);
		wfs_seg_put(seg);
	}
	return true;
}

/* It would have blocked, wholly or half-way, or is wrong. */
static void retry_work(struct work_struct *work)
{
	struct wfs_cread *cr = container_of(work, struct wfs_cread, work);
	struct wfs_seg *seg;

	if (cr->late)
		msleep(200);
	if (cr->result != cr->len && !cr->waited) {
		/* From here it may block. */
		cr->waited = true;
		submit(cr);
		return;
	}
	if (cr->result != cr->len || !finish(cr)) {
		seg = list_first_entry(&cr->segs, struct wfs_seg, link);
		trace_wfs_hit(cr->node->id, seg->block, cr->unit, cr->units, -EIO);
		mark_bad(cr, seg->block);
		wfs_route(cr->node, &cr->segs);
	}
	put_cread(cr);
}

static void retry(struct wfs_cread *cr)
{
	INIT_WORK(&cr->work, retry_work);
	queue_work(read_wq, &cr->work);
}

static void check_work(struct work_struct *work)
{
	struct wfs_cread *cr = container_of(work, struct wfs_cread, work);

	if (finish(cr))
		put_cread(cr);
	else
		retry(cr);
}

static void cread_complete(struct kiocb *iocb, long result)
{
	struct wfs_cread *cr = container_of(iocb, struct wfs_cread, iocb);

	cr->result = result;
	inject_result(cr);
	if (cr->result != cr->len || cr->late) {
		retry(cr);
	} else if (!cr->node->wsb->opts.verify) {
		finish(cr);
		put_cread(cr);
	} else if (cr->units == 1) {
		/* Not one INIT_WORK for both: lockdep tells their contexts apart by place. */
		INIT_WORK(&cr->work, check_work);
		queue_work(unit_wq, &cr->work);
	} else {
		INIT_WORK(&cr->work, check_work);
		queue_work(read_wq, &cr->work);
	}
}

/* The pages that the disk writes to. */
static void init_iter(struct wfs_cread *cr, struct iov_iter *iter)
{
	struct wfs_seg *seg;
	size_t folio_off, n, left;
	unsigned int i = 0;
	loff_t pos;

	if (!cr->bounce) {
		list_for_each_entry(seg, &cr->segs, link) {
			n = wfs_seg_range(seg, &folio_off, &pos);
			bvec_set_page(&cr->bv[i++],
				      folio_page(seg->io->folio, folio_off >> PAGE_SHIFT),
				      ALIGN(n, ALIGNMENT), 0);
		}
		iov_iter_bvec(iter, ITER_DEST, cr->bv, i, cr->len);
		return;
	}
	for (left = cr->len; left; i++, left -= n) {
		void *at = cr->bounce + i * PAGE_SIZE;

		n = min(left, PAGE_SIZE);
		bvec_set_page(&cr->bv[i],
			      is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at), n, 0);
	}
	iov_iter_bvec(iter, ITER_DEST, cr->bv, i, cr->len);
}

/* Submits the read; its completion comes from anywhere, also from inside here. */
static void submit(struct wfs_cread *cr)
{
	struct iov_iter iter;
	unsigned int nofs;
	ssize_t ret;

	init_iter(cr, &iter);
	memset(&cr->iocb, 0, sizeof(cr->iocb));
	cr->iocb.ki_pos = cr->pos;
	cr->iocb.ki_flags = IOCB_DIRECT | (cr->waited ? 0 : IOCB_NOWAIT);
	cr->iocb.ki_complete = cread_complete;

	refcount_inc(&cr->refs);
	nofs = memalloc_nofs_save();
	if (!cr->waited && wfs_inject(WFS_INJECT_READ_AGAIN))
		ret = -EAGAIN;
	else
		ret = wfs_cachefile_read(cr->cf, &cr->iocb, &iter);
	memalloc_nofs_restore(nofs);
	if (ret != -EIOCBQUEUED)
		cread_complete(&cr->iocb, ret);
	put_cread(cr);
}

/* Just what the folios hold of their segments, which follow each other. */
static void range_of_folios(struct wfs_cread *cr)
{
	struct wfs_seg *seg;
	size_t folio_off;
	loff_t pos;

	list_for_each_entry(seg, &cr->segs, link) {
		size_t n = ALIGN(wfs_seg_range(seg, &folio_off, &pos), ALIGNMENT);

		if (!cr->len)
			cr->pos = pos;
		cr->len += n;
	}
}

static void range_of_units(struct wfs_cread *cr)
{
	struct wfs_seg *seg = list_first_entry(&cr->segs, struct wfs_seg, link);
	const struct wfs_geometry *geo = &cr->node->geo;
	u64 off = (u64)cr->unit << WFS_UNIT_SHIFT;
	size_t bytes = min_t(u64, wfs_geo_block_bytes(geo, seg->block) - off,
			     (u64)cr->units << WFS_UNIT_SHIFT);

	cr->pos = ((loff_t)seg->block << geo->block_shift) + off;
	cr->len = ALIGN(bytes, ALIGNMENT);
}

/**
 * wfs_cread_start() - read what segments want of a cached block
 * @cr: from wfs_cread_alloc(), sums filled in if the mount checks them
 * @node: the file
 * @cf: its cache file; the reference is taken over
 * @win: window of the block
 * @index: the block in it; the pin is taken over
 * @segs: segments that follow each other, or those of small folios that lie in one unit;
 *	taken over
 *
 * Context: process. Does not wait for the disk.
 */
void wfs_cread_start(struct wfs_cread *cr, struct wfs_node *node, struct wfs_cachefile *cf,
		     struct wfs_window *win, u32 index, struct list_head *segs)
{
	struct wfs_seg *seg = list_first_entry(segs, struct wfs_seg, link), *last;

	cr->node = wfs_node_get(node);
	cr->cf = cf;
	cr->win = win;
	cr->index = index;
	cr->unit = seg->unit;
	last = list_last_entry(segs, struct wfs_seg, link);
	cr->units = last->unit + last->units - cr->unit;
	list_splice_init(segs, &cr->segs);
	wfs_count(node->wsb, WFS_STAT_NVME_READS, 1);

	if (!node->wsb->opts.verify) {
		range_of_folios(cr);
		submit(cr);
		return;
	}
	range_of_units(cr);
	if (!wfs_seg_holds_units(seg)) {
		cr->bounce = kvmalloc(WFS_UNIT_SIZE, GFP_NOFS);
		if (!cr->bounce) {
			wfs_segs_fail(&cr->segs, -ENOMEM);
			wfs_cread_free(cr);
			return;
		}
	}
	submit(cr);
}

int wfs_cachefile_init(void)
{
	read_wq = alloc_workqueue("wfs-read", WQ_MEM_RECLAIM | WQ_UNBOUND | WQ_HIGHPRI, 0);
	unit_wq = alloc_workqueue("wfs-unit", WFS_WQ_AT_ONCE, 0);
	if (read_wq && unit_wq)
		return 0;
	wfs_cachefile_exit();
	return -ENOMEM;
}

void wfs_cachefile_exit(void)
{
	if (unit_wq)
		destroy_workqueue(unit_wq);
	if (read_wq)
		destroy_workqueue(read_wq);
}
