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
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

/* Inodes whose last reference was dropped where eviction must not run. */
static LLIST_HEAD(dead_ios);
static void reap_ios(struct work_struct *work);
static DECLARE_WORK(reap_work, reap_ios);

/* Blocks of a mount to be prefetched: what is asked for beyond these is left out. */
#define PREFETCH_MAX 4096

static void free_io(struct wfs_io *io)
{
	if (io->kind == WFS_IO_PREFETCH)
		atomic_dec(&io->wsb->prefetches);
	if (io->node)
		wfs_node_put(io->node);
	/* The mount waits for reads, so that it outlives the node here. */
	if (io->kind == WFS_IO_READ)
		wfs_sb_busy_put(io->wsb);
	wfs_held(WFS_HELD_FOLIOS, -(long)struct_size(io, segs, io->nsegs));
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
	if (io->inode) {
		/* Not the node's last reference, which needs a process: the inode has one. */
		wfs_node_put(io->node);
		io->node = NULL;
		if (!atomic_add_unless(&io->inode->i_count, -1, 1)) {
			/* The last one: evicting an inode is not for this context. */
			if (llist_add(&io->free, &dead_ios))
				queue_work(wfs_wq, &reap_work);
			return;
		}
	}
	free_io(io);
}

/* Any context for a segment of a folio. */
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
			wfs_served_mark(folio, READ_ONCE(io->delivered) ? WFS_SERVED_HELPER :
									  WFS_SERVED_NVME);
		} else {
			wfs_count(wsb, WFS_STAT_ERRORS, 1);
		}
		atomic64_sub(io->locked, &wsb->locked);
		atomic64_sub(io->locked, &io->node->locked);
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

/**
 * wfs_seg_range() - the object bytes of a segment
 * @seg: a segment
 * @ret_folio_off: where they begin in the folio
 * @ret_pos: where they begin in the file
 *
 * Return: how many.
 */
size_t wfs_seg_range(const struct wfs_seg *seg, size_t *ret_folio_off, loff_t *ret_pos)
{
	const struct wfs_io *io = seg->io;
	loff_t start = ((loff_t)seg->block << io->node->geo.block_shift) +
		       ((loff_t)seg->unit << WFS_UNIT_SHIFT);
	loff_t lo = max(start, io->pos);
	loff_t hi =
		min_t(loff_t, start + ((loff_t)seg->units << WFS_UNIT_SHIFT), io->pos + io->bytes);

	*ret_folio_off = lo - io->pos;
	*ret_pos = lo;
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
	/* Whoever asks: a request may be made of it by somebody else later. */
	io->reader = task_tgid_nr(current);
	io->node = wfs_node_get(node);
	io->wsb = node->wsb;
	io->nsegs = nsegs;
	wfs_held(WFS_HELD_FOLIOS, struct_size(io, segs, nsegs));
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
	atomic64_add(io->locked, &node->locked);
	cut_segs(io, segs);
	put_io(io);
	return;
fail:
	folio_end_read(folio, false);
}

/**
 * wfs_io_probe() - make the block states known
 * @node: the file
 * @pos: from here on
 * @len: bytes; the windows that they lie in
 *
 * Context: process; waits killably, for at most the mount's timeout a window.
 * Return: 0, -EINTR, or why the helper could not tell.
 */
int wfs_io_probe(struct wfs_node *node, u64 pos, u64 len)
{
	u64 window_blocks = 1ULL << (WFS_WINDOW_SHIFT - node->geo.block_shift);
	u64 end = min(pos + len, node->geo.size);
	u64 block;

	for (block = round_down(pos >> node->geo.block_shift, window_blocks);
	     block << node->geo.block_shift < end; block += window_blocks) {
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
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		if (err)
			return err;
		cond_resched();
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

	for (i = 0; i < count; i++) {
		struct wfs_io *io;
		LIST_HEAD(segs);

		if (fatal_signal_pending(current) ||
		    atomic_read(&node->wsb->prefetches) >= PREFETCH_MAX)
			break;
		io = alloc_io(node, WFS_IO_PREFETCH, 1);
		if (!io)
			return -ENOMEM;
		atomic_inc(&node->wsb->prefetches);
		io->why = WFS_WHY_PREFETCH;
		io->pos = (first + i) << shift;
		io->bytes = 1;
		cut_segs(io, &segs);
		put_io(io);
		wfs_route(node, &segs);
		cond_resched();
	}
	return 0;
}

static void end_seg(struct wfs_seg *seg, int error)
{
	wfs_seg_fail(seg, error);
	wfs_seg_put(seg);
}

/* Can @next be read with @last, which is for one folio too? */
static bool goes_with(const struct wfs_seg *last, const struct wfs_seg *next)
{
	if (next->io->kind != WFS_IO_READ || next->block != last->block)
		return false;
	/* All of the unit is read, to be checked: there may be others between them. */
	if (last->io->wsb->opts.verify && !wfs_seg_holds_units(last))
		return next->unit == last->unit && !wfs_seg_holds_units(next);
	return next->io->pos == last->io->pos + last->io->bytes &&
	       (!last->io->wsb->opts.verify || wfs_seg_holds_units(next));
}

/* What follows a segment in its block, and is cached like it, is read together with it. */
static void gather(struct wfs_seg *seg, struct list_head *rest, struct list_head *to)
{
	u32 first = seg->unit;
	struct wfs_seg *next;
	int n = 1;

	list_add(&seg->link, to);
	while ((next = list_first_entry_or_null(rest, struct wfs_seg, link)) &&
	       goes_with(seg, next) && n < WFS_CREAD_SEGS &&
	       next->unit + next->units - first <= WFS_CREAD_UNITS) {
		list_move_tail(&next->link, to);
		seg = next;
		n++;
	}
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
enum need { NEED_OPEN, NEED_WINDOW, NEED_MAP, NEED_READ, NEED_FILL };

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

/* What is left to do once the lock is dropped. */
enum action {
	DO_NOTHING, /* the segment waits in a list */
	DO_END,	    /* nothing more is wanted for it */
	DO_OPEN,
	DO_WINDOW,     /* make the window, decide again */
	DO_ALLOC_REQ,  /* have a request ready, decide again */
	DO_ALLOC_READ, /* have a read ready, decide again */
	DO_AGAIN,
	DO_SUBMIT,
	DO_SUBMIT_HELD,
	DO_READ,
};

/* One segment on its way: what is ready for it, and what was decided. */
struct route {
	struct wfs_node *node;
	struct wfs_seg *seg;
	struct wfs_window *win;
	u32 window;
	u32 index;
	struct wfs_nreq *spare;	  /* ready to become a request */
	struct wfs_nreq *nreq;	  /* the request to be submitted */
	struct wfs_cread *cr;	  /* ready to become a read */
	struct wfs_cachefile *cf; /* for the read */
};

static struct wfs_nreq *take_spare(struct route *r)
{
	r->nreq = r->spare;
	r->spare = NULL;
	return r->nreq;
}

static enum action route_map(struct route *r)
{
	struct wfs_nreq *nreq = find_map(r->node, r->window);

	if (nreq) {
		wfs_nreq_join(nreq, r->seg);
		return DO_NOTHING;
	}
	if (!r->spare)
		return DO_ALLOC_REQ;
	nreq = take_spare(r);
	wfs_node_ask_map(r->node, nreq, r->window);
	wfs_nreq_join(nreq, r->seg);
	return DO_SUBMIT;
}

/* Sums of the units from the segment's first on, as many as one read may have. */
static void copy_sums(struct route *r)
{
	u32 unit = r->seg->unit;
	u32 units = wfs_geo_block_units(&r->node->geo, r->seg->block) - unit;

	memcpy(wfs_cread_sums(r->cr), wfs_block_sums(r->win, r->index) + unit,
	       min_t(u32, units, WFS_CREAD_UNITS) * sizeof(u64));
}

static enum action route_read(struct route *r)
{
	struct wfs_seg *seg = r->seg;

	if (seg->io->kind != WFS_IO_READ)
		return DO_END;
	if (!r->cr)
		return DO_ALLOC_READ;
	if (!wfs_block_pin(r->win, r->index))
		return DO_AGAIN;
	if (r->node->wsb->opts.verify)
		copy_sums(r);
	r->cf = wfs_cachefile_get(r->node->cf);
	return DO_READ;
}

/* Makes the spare request the fill of the segment's block. */
static enum action new_fill(struct route *r, enum wfs_block_state state)
{
	struct wfs_node *node = r->node;
	struct wfs_seg *seg = r->seg;
	u32 flags = 0, unit = seg->unit, units = seg->units;
	bool prefetch = seg->io->kind == WFS_IO_PREFETCH;
	struct wfs_nreq *nreq = take_spare(r);

	/* The first request for a block brings all of it; later ones a part once more. */
	if (prefetch || (state != WFS_BLOCK_HELD && !any_fill(node, seg->block))) {
		flags = WFS_REQ_F_WHOLE;
		unit = 0;
		units = wfs_geo_block_units(&node->geo, seg->block);
		if (r->win && wfs_block_test_clear_bad(r->win, r->index))
			flags |= WFS_REQ_F_BAD;
	} else {
		wfs_count(node->wsb, WFS_STAT_FILL_AGAIN, 1);
	}
	if (r->win && flags & WFS_REQ_F_WHOLE && state == WFS_BLOCK_ABSENT)
		wfs_block_set(r->win, r->index, WFS_BLOCK_FILLING);
	if (prefetch)
		atomic_inc(&node->wsb->prefetches);
	wfs_fill_init(nreq, node, seg->block, unit, units, seg->io->why, flags);
	nreq->req.reader = seg->io->reader;
	if (!prefetch)
		wfs_nreq_join(nreq, seg);
	wfs_count(node->wsb, WFS_STAT_FILL_REQUESTS, 1);
	return state == WFS_BLOCK_EVICTING ? DO_SUBMIT_HELD : DO_SUBMIT;
}

static enum action route_fill(struct route *r)
{
	enum wfs_block_state state = WFS_BLOCK_ABSENT;
	enum wfs_io_kind kind = r->seg->io->kind;
	struct wfs_nreq *nreq;

	if (r->win)
		state = wfs_block_state(r->win, r->index);
	if (kind == WFS_IO_PROBE)
		return DO_END;
	if (kind == WFS_IO_PREFETCH &&
	    (state == WFS_BLOCK_HELD || any_fill(r->node, r->seg->block)))
		return DO_END;
	nreq = find_fill(r->node, r->seg);
	if (nreq) {
		wfs_nreq_join(nreq, r->seg);
		return DO_NOTHING;
	}
	return r->spare ? new_fill(r, state) : DO_ALLOC_REQ;
}

static enum action decide(struct route *r)
{
	struct wfs_node *node = r->node;

	lockdep_assert_held(&node->lock);
	r->win = wfs_node_window_now(node, r->window);
	switch (seg_needs(node, r->win, r->index)) {
	case NEED_OPEN:
		list_add_tail(&r->seg->link, &node->open_segs);
		if (node->opening)
			return DO_NOTHING;
		node->opening = true;
		return DO_OPEN;
	case NEED_WINDOW:
		return DO_WINDOW;
	case NEED_MAP:
		return route_map(r);
	case NEED_READ:
		return route_read(r);
	case NEED_FILL:
		return route_fill(r);
	}
	return DO_END;
}

/* Prefetching segments wait for nothing; others are in the request's list. */
static void submit_req(struct route *r, bool held)
{
	struct wfs_nreq *nreq = r->nreq;
	bool prefetch = r->seg->io->kind == WFS_IO_PREFETCH && nreq->req.opcode == WFS_REQ_FILL;
	/* Nobody waits for a prefetch: it ends with the mount at the latest. */
	u32 timeout_s = prefetch ? 0 : r->node->wsb->opts.timeout_s;

	if (prefetch)
		end_seg(r->seg, 0);
	if (held)
		wfs_inject_late(WFS_INJECT_SUBMIT, 0);
	if (held)
		wfs_req_submit_held(&nreq->req, timeout_s);
	else
		wfs_req_submit(&nreq->req, timeout_s);
	wfs_req_put(&nreq->req);
}

/* Does what was decided; true: decide again. */
static bool act(struct route *r, enum action what, struct list_head *rest)
{
	LIST_HEAD(segs);

	switch (what) {
	case DO_NOTHING:
		return false;
	case DO_END:
		end_seg(r->seg, 0);
		return false;
	case DO_OPEN:
		wfs_node_open(r->node);
		return false;
	case DO_WINDOW:
		if (wfs_node_window(r->node, r->window))
			return true;
		break;
	case DO_ALLOC_REQ:
		r->spare = wfs_nreq_alloc();
		if (r->spare)
			return true;
		break;
	case DO_ALLOC_READ:
		r->cr = wfs_cread_alloc();
		if (r->cr)
			return true;
		break;
	case DO_AGAIN:
		return true;
	case DO_SUBMIT:
	case DO_SUBMIT_HELD:
		submit_req(r, what == DO_SUBMIT_HELD);
		return false;
	case DO_READ:
		gather(r->seg, rest, &segs);
		wfs_cread_start(r->cr, r->node, r->cf, r->win, r->index, &segs);
		r->cr = NULL;
		return false;
	}
	end_seg(r->seg, -ENOMEM);
	return false;
}

static void route_one(struct wfs_node *node, struct wfs_seg *seg, struct list_head *rest)
{
	u32 window = wfs_geo_window_of(&node->geo, seg->block);
	struct route r = {
		.node = node,
		.seg = seg,
		.window = window,
		.index = seg->block - wfs_geo_window_first(&node->geo, window),
	};
	enum action action;

	do {
		spin_lock(&node->lock);
		action = decide(&r);
		spin_unlock(&node->lock);
	} while (act(&r, action, rest));
	if (r.spare)
		wfs_nreq_free(&r.spare->req);
	if (r.cr)
		wfs_cread_free(r.cr);
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
		cond_resched();
	}
}

void wfs_folioio_exit(void)
{
	flush_work(&reap_work);
}
