// SPDX-License-Identifier: GPL-2.0-only
/*
 * folioio: folios in flight, from the lock to the unlock.
 *
 * A folio can span many blocks in different states. It is cut into segments, one a
 * block; each is routed to what it needs (the cache file, a fill, or a question that
 * must be answered first) and routed again when that has changed. A part (one unit of
 * the folio) is ended by whoever claims its bit; the folio is unlocked once, when all
 * parts have ended, and is uptodate if none failed.
 */
#include <linux/highmem.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

/* Inodes whose last reference was dropped where eviction must not run. */
static LLIST_HEAD(dead_ios);
static void reap_ios(struct work_struct *work);
static DECLARE_WORK(reap_work, reap_ios);

/* Fewer outstanding prefetch requests than this, or further ones are left out. */
#define PREFETCH_MAX 4096

static void free_io(struct wfs_io *io)
{
	struct wfs_sb *wsb = io->node->wsb;

	/* The mount waits for reads, so that it outlives the node here. */
	wfs_node_put(io->node);
	if (io->kind == WFS_IO_READ)
		wfs_sb_busy_put(wsb);
	kvfree(io);
}

static void reap_ios(struct work_struct *work)
{
	struct llist_node *list = llist_del_all(&dead_ios);
	struct wfs_io *io, *next;

	llist_for_each_entry_safe(io, next, list, free) {
		iput(io->inode);
		free_io(io);
	}
}

static void put_io(struct wfs_io *io)
{
	if (!refcount_dec_and_test(&io->refs))
		return;
	if (io->inode && !atomic_add_unless(&io->inode->i_count, -1, 1)) {
		/* The last one: evicting an inode is not for a reply's context. */
		if (llist_add(&io->free, &dead_ios))
			queue_work(wfs_wq, &reap_work);
		return;
	}
	free_io(io);
}

void wfs_seg_put(struct wfs_seg *seg)
{
	put_io(seg->io);
}

static void finish_io(struct wfs_io *io)
{
	struct wfs_sb *wsb = io->node->wsb;
	struct folio *folio = io->folio;

	switch (io->kind) {
	case WFS_IO_READ:
		if (!io->error) {
			folio_zero_segment(folio, io->bytes, folio_size(folio));
			flush_dcache_folio(folio);
		} else {
			wfs_count(wsb, WFS_STAT_ERRORS, 1);
		}
		atomic64_sub(io->locked, &wsb->locked);
		/* Not ours any more from here on. */
		io->folio = NULL;
		folio_end_read(folio, !io->error);
		break;
	case WFS_IO_PROBE:
		complete(io->done);
		break;
	case WFS_IO_PREFETCH:
		break;
	}
}

static u32 part_of(const struct wfs_seg *seg, u32 unit)
{
	u32 shift = seg->io->node->geo.block_shift - WFS_UNIT_SHIFT;

	return (seg->block << shift) + unit - (seg->io->pos >> WFS_UNIT_SHIFT);
}

bool wfs_seg_claim(struct wfs_seg *seg, u32 unit)
{
	return !test_and_set_bit(part_of(seg, unit), &seg->io->claimed);
}

void wfs_seg_end_unit(struct wfs_seg *seg, int error)
{
	struct wfs_io *io = seg->io;

	if (error)
		cmpxchg(&io->error, 0, error);
	if (atomic_dec_and_test(&io->left))
		finish_io(io);
}

void wfs_seg_fail(struct wfs_seg *seg, int error)
{
	u32 unit;

	for (unit = seg->unit; unit < seg->unit + seg->units; unit++)
		if (wfs_seg_claim(seg, unit))
			wfs_seg_end_unit(seg, error);
}

/**
 * wfs_seg_span() - where the folio and a unit overlap
 * @seg: a segment
 * @unit: a unit of it
 * @ret_folio_off: offset in the folio
 * @ret_unit_off: offset in the unit
 *
 * Return: object bytes that they share.
 */
size_t wfs_seg_span(const struct wfs_seg *seg, u32 unit, size_t *ret_folio_off,
		    size_t *ret_unit_off)
{
	const struct wfs_io *io = seg->io;
	loff_t start = ((loff_t)seg->block << io->node->geo.block_shift) +
		       ((loff_t)unit << WFS_UNIT_SHIFT);
	loff_t lo = max(start, io->pos);
	loff_t hi = min_t(loff_t, start + WFS_UNIT_SIZE, io->pos + io->bytes);

	*ret_folio_off = lo - io->pos;
	*ret_unit_off = lo - start;
	return hi - lo;
}

static struct wfs_io *alloc_io(struct wfs_node *node, enum wfs_io_kind kind, u32 nsegs)
{
	struct wfs_io *io = kvzalloc(struct_size(io, segs, nsegs), GFP_NOFS);
	u32 i;

	if (!io)
		return NULL;
	refcount_set(&io->refs, nsegs + 1);
	io->kind = kind;
	io->node = wfs_node_get(node);
	io->nsegs = nsegs;
	for (i = 0; i < nsegs; i++) {
		INIT_LIST_HEAD(&io->segs[i].link);
		io->segs[i].io = io;
	}
	return io;
}

/* Cuts the folio at the borders of blocks. */
static void cut_segs(struct wfs_io *io, struct list_head *segs)
{
	u32 shift = io->node->geo.block_shift - WFS_UNIT_SHIFT;
	u64 unit = io->pos >> WFS_UNIT_SHIFT;
	u64 end = (io->pos + io->bytes + WFS_UNIT_SIZE - 1) >> WFS_UNIT_SHIFT;
	u32 i;

	atomic_set(&io->left, end - unit);
	for (i = 0; i < io->nsegs; i++) {
		struct wfs_seg *seg = &io->segs[i];

		seg->block = unit >> shift;
		seg->unit = unit - (seg->block << shift);
		seg->units = min_t(u64, end, (seg->block + 1) << shift) - unit;
		unit += seg->units;
		list_add_tail(&seg->link, segs);
	}
}

/**
 * wfs_io_read() - begin to read a folio
 * @inode: its inode
 * @folio: locked, in the page cache; unlocked when the read ends
 * @why: WFS_WHY_*
 * @segs: its segments are added to this list, for wfs_route()
 */
void wfs_io_read(struct inode *inode, struct folio *folio, u32 why, struct list_head *segs)
{
	struct wfs_node *node = WFS_I(inode)->node;
	u32 shift = node->geo.block_shift;
	loff_t pos = folio_pos(folio);
	loff_t size = i_size_read(inode);
	size_t bytes;
	struct wfs_io *io;

	if (pos >= size) {
		folio_zero_segment(folio, 0, folio_size(folio));
		folio_end_read(folio, true);
		return;
	}
	bytes = min_t(loff_t, size - pos, folio_size(folio));
	if (!wfs_sb_busy_get(node->wsb))
		goto fail;
	io = alloc_io(node, WFS_IO_READ, ((pos + bytes - 1) >> shift) - (pos >> shift) + 1);
	if (!io) {
		wfs_sb_busy_put(node->wsb);
		goto fail;
	}
	io->why = why;
	io->pos = pos;
	io->bytes = bytes;
	io->folio = folio;
	io->locked = folio_size(folio);
	ihold(inode);
	io->inode = inode;
	atomic64_add(io->locked, &node->wsb->locked);
	cut_segs(io, segs);
	put_io(io);
	return;
fail:
	folio_end_read(folio, false);
}

/**
 * wfs_io_probe() - make the block states known
 * @node: the file
 *
 * Context: process; waits killably, for at most the mount's timeout a window.
 * Return: 0, -EINTR, or why the helper could not tell.
 */
int wfs_io_probe(struct wfs_node *node)
{
	u64 blocks = wfs_geo_blocks(&node->geo);
	u64 block;

	for (block = 0; block < blocks;
	     block += 1ULL << (WFS_WINDOW_SHIFT - node->geo.block_shift)) {
		DECLARE_COMPLETION_ONSTACK(done);
		struct wfs_io *io = alloc_io(node, WFS_IO_PROBE, 1);
		LIST_HEAD(segs);
		int err;

		if (!io)
			return -ENOMEM;
		io->done = &done;
		io->pos = block << node->geo.block_shift;
		io->bytes = 1;
		cut_segs(io, &segs);
		wfs_route(node, &segs);
		err = wait_for_completion_killable(&done);
		if (err) {
			/* Whoever claims it uses @done: take the part, or wait for its end. */
			if (wfs_seg_claim(&io->segs[0], io->segs[0].unit))
				io->done = NULL;
			else
				wait_for_completion(&done);
		}
		err = err ?: io->error;
		put_io(io);
		if (err)
			return err;
	}
	return 0;
}

/**
 * wfs_io_prefetch() - ask for absent blocks
 * @node: the file
 * @pos: first byte
 * @len: bytes
 *
 * Does not wait; what it cannot ask for is left out, since it is advice.
 * Return: 0 or -ENOMEM.
 */
int wfs_io_prefetch(struct wfs_node *node, u64 pos, u64 len)
{
	u32 shift = node->geo.block_shift;
	u64 first = pos >> shift;
	u64 count = ((pos + len - 1) >> shift) - first + 1;
	u64 i;

	for (i = 0; i < min_t(u64, count, PREFETCH_MAX); i++) {
		struct wfs_io *io = alloc_io(node, WFS_IO_PREFETCH, 1);
		LIST_HEAD(segs);

		if (!io)
			return -ENOMEM;
		io->why = WFS_WHY_PREFETCH;
		io->pos = (first + i) << shift;
		io->bytes = 1;
		cut_segs(io, &segs);
		put_io(io);
		wfs_route(node, &segs);
	}
	return 0;
}

static void end_seg(struct wfs_seg *seg, int error)
{
	wfs_seg_fail(seg, error);
	wfs_seg_put(seg);
}

/* Small folios that want something of the same unit are read together. */
static void gather(struct wfs_seg *seg, struct list_head *rest, struct list_head *to)
{
	struct wfs_seg *next;

	list_add(&seg->link, to);
	if (seg->io->bytes >= WFS_UNIT_SIZE || seg->units != 1)
		return;
	while ((next = list_first_entry_or_null(rest, struct wfs_seg, link)) &&
	       next->block == seg->block && next->unit == seg->unit && next->units == 1)
		list_move_tail(&next->link, to);
}

static struct wfs_nreq *find_map(struct wfs_node *node, u32 window)
{
	struct wfs_nreq *nreq;

	list_for_each_entry(nreq, &node->reqs, link)
		if (nreq->req.opcode == WFS_REQ_MAP && nreq->req.window == window)
			return nreq;
	return NULL;
}

static struct wfs_nreq *find_fill(struct wfs_node *node, const struct wfs_seg *seg)
{
	struct wfs_nreq *nreq;

	list_for_each_entry(nreq, &node->reqs, link)
		if (wfs_fill_joinable(nreq, seg->block, seg->unit, seg->units, seg->io->why))
			return nreq;
	return NULL;
}

static bool any_fill(struct wfs_node *node, u64 block)
{
	struct wfs_nreq *nreq;

	list_for_each_entry(nreq, &node->reqs, link)
		if (nreq->req.opcode == WFS_REQ_FILL && nreq->req.block == block)
			return true;
	return false;
}

/* What a segment needs, decided under node->lock. */
enum need { NEED_DONE, NEED_OPEN, NEED_WINDOW, NEED_MAP, NEED_READ, NEED_FILL };

static enum need seg_needs(struct wfs_node *node, struct wfs_window *win, u32 index)
{
	if (!node->opened)
		return NEED_OPEN;
	if (!node->cf)
		return NEED_FILL;
	if (!win)
		return NEED_WINDOW;
	switch (wfs_block_state(win, index)) {
	case WFS_BLOCK_UNKNOWN:
		return NEED_MAP;
	case WFS_BLOCK_CACHED:
		if (node->wsb->opts.verify && !wfs_block_has_sums(win, index))
			return NEED_MAP;
		return NEED_READ;
	default:
		return NEED_FILL;
	}
}

/* Starts or joins the fill of a segment's block. node->lock is held, and dropped. */
static void start_fill(struct wfs_node *node, struct wfs_window *win, u32 index,
		       struct wfs_seg *seg, struct wfs_nreq *nreq)
{
	enum wfs_block_state state = WFS_BLOCK_ABSENT;
	u32 flags = 0, unit = seg->unit, units = seg->units;
	bool prefetch = seg->io->kind == WFS_IO_PREFETCH;
	bool whole;

	if (win)
		state = wfs_block_state(win, index);
	whole = prefetch || !any_fill(node, seg->block);
	if (state == WFS_BLOCK_HELD)
		whole = false;
	if (whole) {
		flags = WFS_REQ_F_WHOLE;
		unit = 0;
		units = wfs_geo_block_units(&node->geo, seg->block);
		if (win && wfs_block_test_clear_bad(win, index))
			flags |= WFS_REQ_F_BAD;
	}
	if (win && state == WFS_BLOCK_ABSENT)
		wfs_block_set(win, index, WFS_BLOCK_FILLING);
	wfs_fill_init(nreq, node, seg->block, unit, units, seg->io->why, flags);
	if (!prefetch)
		wfs_nreq_join(nreq, seg);
	spin_unlock(&node->lock);

	wfs_count(node->wsb, WFS_STAT_FILL_REQUESTS, 1);
	if (!whole)
		wfs_count(node->wsb, WFS_STAT_FILL_AGAIN, 1);
	if (state == WFS_BLOCK_EVICTING)
		wfs_req_submit_held(&nreq->req, node->wsb->opts.timeout_s);
	else
		wfs_req_submit(&nreq->req, node->wsb->opts.timeout_s);
	wfs_req_put(&nreq->req);
	if (prefetch)
		end_seg(seg, 0);
}

static void route_one(struct wfs_node *node, struct wfs_seg *seg, struct list_head *rest)
{
	u32 window = wfs_geo_window_of(&node->geo, seg->block);
	u32 index = seg->block - wfs_geo_window_first(&node->geo, window);
	bool asks = seg->io->kind != WFS_IO_READ;
	struct wfs_nreq *nreq, *spare = NULL;
	struct wfs_cread *cr = NULL;
	struct wfs_cachefile *cf;
	struct wfs_window *win;
	bool start = false;
	LIST_HEAD(segs);

again:
	spin_lock(&node->lock);
	win = xa_load(&node->windows, window);
	switch (seg_needs(node, win, index)) {
	case NEED_OPEN:
		list_add_tail(&seg->link, &node->open_segs);
		start = !node->opening;
		node->opening = true;
		spin_unlock(&node->lock);
		if (start)
			wfs_node_open(node);
		break;
	case NEED_WINDOW:
		spin_unlock(&node->lock);
		if (wfs_node_window(node, window))
			goto again;
		end_seg(seg, -ENOMEM);
		break;
	case NEED_MAP:
		nreq = find_map(node, window);
		if (!nreq && !spare)
			goto alloc;
		if (!nreq) {
			nreq = spare;
			spare = NULL;
			wfs_node_ask_map(node, nreq, window);
			start = true;
		}
		wfs_nreq_join(nreq, seg);
		spin_unlock(&node->lock);
		if (start) {
			wfs_req_submit(&nreq->req, node->wsb->opts.timeout_s);
			wfs_req_put(&nreq->req);
		}
		break;
	case NEED_READ:
		if (asks) {
			spin_unlock(&node->lock);
			end_seg(seg, 0);
			break;
		}
		if (!cr) {
			spin_unlock(&node->lock);
			cr = wfs_cread_alloc();
			if (cr)
				goto again;
			end_seg(seg, -ENOMEM);
			break;
		}
		if (!wfs_block_pin(win, index)) {
			spin_unlock(&node->lock);
			goto again;
		}
		if (node->wsb->opts.verify)
			memcpy(wfs_cread_sums(cr), wfs_block_sums(win, index) + seg->unit,
			       seg->units * sizeof(u64));
		cf = wfs_cachefile_get(node->cf);
		spin_unlock(&node->lock);
		gather(seg, rest, &segs);
		wfs_cread_start(cr, node, cf, win, index, &segs);
		cr = NULL;
		break;
	case NEED_FILL:
		if (seg->io->kind == WFS_IO_PROBE ||
		    (seg->io->kind == WFS_IO_PREFETCH &&
		     (any_fill(node, seg->block) ||
		      (win && wfs_block_state(win, index) == WFS_BLOCK_HELD)))) {
			spin_unlock(&node->lock);
			end_seg(seg, 0);
			break;
		}
		nreq = find_fill(node, seg);
		if (nreq) {
			wfs_nreq_join(nreq, seg);
			spin_unlock(&node->lock);
			break;
		}
		if (!spare)
			goto alloc;
		start_fill(node, win, index, seg, spare);
		spare = NULL;
		break;
	case NEED_DONE:
		spin_unlock(&node->lock);
		break;
	}
	kfree(spare);
	if (cr)
		wfs_cread_free(cr);
	return;

alloc:
	spin_unlock(&node->lock);
	spare = wfs_nreq_alloc();
	if (spare)
		goto again;
	end_seg(seg, -ENOMEM);
	if (cr)
		wfs_cread_free(cr);
}

/**
 * wfs_route() - start what each segment needs
 * @node: their file
 * @segs: segments in the order of the file; the list is empty afterwards
 *
 * Context: process. Sleeps for memory at most, never for the helper or the disk.
 */
void wfs_route(struct wfs_node *node, struct list_head *segs)
{
	struct wfs_seg *seg;

	while ((seg = list_first_entry_or_null(segs, struct wfs_seg, link))) {
		list_del_init(&seg->link);
		route_one(node, seg, segs);
	}
}

void wfs_folioio_exit(void)
{
	flush_work(&reap_work);
}
