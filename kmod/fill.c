// SPDX-License-Identifier: GPL-2.0-only
/*
 * fill: blocks on their way from the helper to folios, and in and out of the cache.
 *
 * A fill is asked for once per block; who comes while it is under way joins it, unless
 * what they want has already gone by, in which case that part is asked for again and
 * answered from the helper's buffer. A deliver marks its units first and copies then,
 * so that whoever joins later sees that they have gone by.
 */
#include <linux/bitmap.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

static struct wfs_nreq *to_nreq(struct wfs_req *req)
{
	return container_of(req, struct wfs_nreq, req);
}

static u32 index_of(const struct wfs_node *node, u64 block)
{
	return block - wfs_geo_window_first(&node->geo, wfs_geo_window_of(&node->geo, block));
}

/* node->lock held. */
static struct wfs_window *window_of(struct wfs_node *node, u64 block)
{
	return wfs_node_window_now(node, wfs_geo_window_of(&node->geo, block));
}

/**
 * wfs_fill_joinable() - may who wants these units wait for this request?
 * @nreq: any live request of the node; node->lock held
 * @block: block wanted
 * @unit: first unit wanted
 * @units: their number
 * @why: how urgent it is
 *
 * Return: whether it is a fill, no less urgent, that covers them and has not yet
 * delivered any of them.
 */
bool wfs_fill_joinable(const struct wfs_nreq *nreq, u64 block, u32 unit, u32 units, u32 why)
{
	const struct wfs_req *req = &nreq->req;

	return req->opcode == WFS_REQ_FILL && req->block == block && req->why <= why &&
	       unit >= req->unit && unit + units <= req->unit + req->units &&
	       find_next_bit(nreq->delivered, unit + units, unit) >= unit + units;
}

/* Does a deliver command fit the request? */
static int check_deliver(const struct wfs_node *node, const struct wfs_req *req,
			 const struct wfs_cmd *cmd, u32 *ret_unit, u32 *ret_units)
{
	u64 bytes = wfs_geo_block_bytes(&node->geo, req->block);
	u64 end = cmd->offset + cmd->len;

	if (!cmd->len || cmd->len > WFS_DELIVER_MAX || cmd->offset >= bytes || end > bytes)
		return -EINVAL;
	if (cmd->offset % WFS_UNIT_SIZE || (end % WFS_UNIT_SIZE && end != bytes))
		return -EINVAL;
	*ret_unit = cmd->offset >> WFS_UNIT_SHIFT;
	*ret_units = DIV_ROUND_UP(cmd->len, WFS_UNIT_SIZE);
	if (*ret_unit < req->unit || *ret_unit + *ret_units > req->unit + req->units)
		return -EINVAL;
	return 0;
}

/* Copies what the segment still wants of the delivered units; bytes copied. */
static u64 copy_to_seg(const struct wfs_memory *buffers, u64 buf, struct wfs_seg *seg, u32 unit,
		       u32 units)
{
	u32 lo = max(unit, seg->unit);
	u32 hi = min(unit + units, seg->unit + seg->units);
	u64 copied = 0;
	u32 u;

	for (u = lo; u < hi; u++) {
		size_t folio_off, unit_off, n;

		if (!wfs_seg_claim(seg, u))
			continue;
		n = wfs_seg_span(seg, u, &folio_off, &unit_off);
		wfs_buffers_to_folio(buffers, buf + ((u64)(u - unit) << WFS_UNIT_SHIFT) + unit_off,
				     seg->io->folio, folio_off, n);
		copied += n;
		WRITE_ONCE(seg->io->delivered, true);
		wfs_seg_end_unit(seg, 0);
	}
	return copied;
}

/**
 * wfs_deliver() - bytes of a block have come
 * @ses: the helper's session
 * @cmd: a checked WFS_CMD_DELIVER
 *
 * Context: the helper's process; does not sleep. Return: bytes that somebody waited for,
 * -ENOENT if the request has ended, -EINVAL.
 */
int wfs_deliver(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_req *req = wfs_req_find(ses, cmd->id, WFS_REQ_FILL);
	struct wfs_nreq *nreq;
	struct wfs_node *node;
	struct list_head *pos;
	u64 copied = 0;
	u32 unit, units;
	int err;

	if (!req)
		return -ENOENT;
	nreq = to_nreq(req);
	node = req->node;
	err = check_deliver(node, req, cmd, &unit, &units);
	if (!err && wfs_inject(WFS_INJECT_DELIVER))
		err = -ENOMEM;
	if (err)
		goto put;

	spin_lock(&node->lock);
	bitmap_set(nreq->delivered, unit, units);
	/* The list only grows while the request is referenced: a place in it stays good. */
	for (pos = nreq->segs.next; pos != &nreq->segs; pos = pos->next) {
		struct wfs_seg *seg = list_entry(pos, struct wfs_seg, link);

		spin_unlock(&node->lock);
		copied += copy_to_seg(ses->buffers, cmd->buf, seg, unit, units);
		spin_lock(&node->lock);
	}
	spin_unlock(&node->lock);

	wfs_count(node->wsb, WFS_STAT_DELIVER_BYTES, copied);
	if (!copied)
		wfs_count(node->wsb, WFS_STAT_DELIVER_UNUSED, cmd->len);
	trace_wfs_deliver(req->id, node->id, req->block, unit, units, copied);
	err = copied;
put:
	wfs_req_put(req);
	return err;
}

static int fill_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	struct wfs_nreq *nreq = to_nreq(req);
	u32 end = req->unit + req->units;

	if (reply->len || reply->fd >= 0)
		return -EINVAL;
	/* All of it must have been delivered. */
	if (!reply->status && find_next_zero_bit(nreq->delivered, end, req->unit) < end)
		return -EINVAL;
	return 0;
}

static void fill_end(struct wfs_req *req, int status)
{
	enum wfs_block_state after = WFS_BLOCK_ABSENT;
	struct wfs_nreq *nreq = to_nreq(req);
	struct wfs_node *node = req->node;
	struct wfs_window *win;

	nreq->status = status;
	if (req->why == WFS_WHY_PREFETCH)
		atomic_dec(&req->wsb->prefetches);
	if (status)
		wfs_node_note_error(node, req->block, status);
	spin_lock(&node->lock);
	list_del_init(&nreq->link);
	win = window_of(node, req->block);
	/* What a session held that ends right now, it may have stored; nobody holds it. */
	if (!status)
		after = wfs_session_is(req->session) ? WFS_BLOCK_HELD : WFS_BLOCK_UNKNOWN;
	if (win && req->flags & WFS_REQ_F_WHOLE &&
	    wfs_block_state(win, index_of(node, req->block)) == WFS_BLOCK_FILLING)
		wfs_block_set(win, index_of(node, req->block), after);
	spin_unlock(&node->lock);
}

/*
 * The last reference is gone, so no deliver walks the list: whatever is still
 * unclaimed was not delivered. Failed here rather than at the end, where a deliver of
 * the same request may be at work on the segments.
 */
static void fill_free(struct wfs_req *req)
{
	struct wfs_nreq *nreq = to_nreq(req);

	wfs_segs_fail(&nreq->segs, nreq->status ?: -EIO);
	wfs_nreq_free(req);
}

static const struct wfs_req_ops fill_ops = {
	.reply = fill_reply,
	.end = fill_end,
	.free = fill_free,
};

void wfs_fill_init(struct wfs_nreq *nreq, struct wfs_node *node, u64 block, u32 unit, u32 units,
		   u32 why, u32 flags)
{
	lockdep_assert_held(&node->lock);
	wfs_req_init(&nreq->req, &fill_ops, WFS_REQ_FILL, node->wsb, node);
	nreq->req.block = block;
	nreq->req.unit = unit;
	nreq->req.units = units;
	nreq->req.why = why;
	nreq->req.flags = flags;
	list_add_tail(&nreq->link, &node->reqs);
}

/* The node of a command about one of its blocks, with a reference, or NULL. */
static struct wfs_node *node_of(const struct wfs_cmd *cmd, int *ret_err)
{
	struct wfs_node *node = wfs_node_find(cmd->node);

	*ret_err = -ENOENT;
	if (node && cmd->block >= wfs_geo_blocks(&node->geo)) {
		wfs_node_put(node);
		node = NULL;
		*ret_err = -EINVAL;
	}
	return node;
}

/* node->lock held. */
static int make_cached(struct wfs_node *node, struct wfs_window *win, u32 index, const u64 *sums,
		       u32 units)
{
	switch (wfs_block_state(win, index)) {
	case WFS_BLOCK_UNKNOWN:
	case WFS_BLOCK_ABSENT:
	case WFS_BLOCK_FILLING:
	case WFS_BLOCK_HELD:
		if (!node->cf)
			return -EBUSY;
		wfs_block_set(win, index, WFS_BLOCK_CACHED);
		wfs_block_store_sums(win, index, sums, units);
		return 0;
	default:
		return -EBUSY;
	}
}

/**
 * wfs_stored() - a block is durable in the cache file
 * @ses: the helper's session
 * @cmd: a checked WFS_CMD_STORED
 *
 * Return: 0, -ENOENT, -EBUSY if the block cannot have been stored now, -EINVAL.
 */
int wfs_stored(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_reply payload = { .session = ses, .buf = cmd->buf, .len = cmd->len };
	u64 *sums = NULL, *room = NULL;
	struct wfs_window *win;
	struct wfs_node *node;
	u32 units, index;
	int err;

	node = node_of(cmd, &err);
	if (!node)
		return err;
	units = wfs_geo_block_units(&node->geo, cmd->block);
	index = index_of(node, cmd->block);
	err = -EINVAL;
	if (cmd->len != units * sizeof(u64))
		goto put;
	err = -ENOMEM;
	win = wfs_node_window(node, wfs_geo_window_of(&node->geo, cmd->block));
	sums = kvmalloc(cmd->len, GFP_NOFS);
	if (!win || !sums)
		goto put;
	err = wfs_reply_copy(&payload, sums, cmd->len);
	if (err)
		goto put;
	/* Without room for sums the block is cached all the same; they are asked for later. */
	if (!READ_ONCE(win->sums) && !wfs_inject(WFS_INJECT_SUMS))
		room = kvmalloc_array(win->nsums, sizeof(u64), GFP_NOFS | __GFP_NOWARN);

	spin_lock(&node->lock);
	win = window_of(node, cmd->block);
	if (room)
		room = wfs_window_give_sums(win, room);
	/* Of a session that was taken over meanwhile, perhaps another cache file's. */
	if (READ_ONCE(ses->dead))
		err = -ESTALE;
	else
		err = make_cached(node, win, index, sums, units);
	spin_unlock(&node->lock);
	if (!err)
		wfs_count(node->wsb, WFS_STAT_STORED, 1);
	trace_wfs_store(node->id, cmd->block, "stored", err);
put:
	kvfree(room);
	kvfree(sums);
	wfs_node_put(node);
	return err;
}

/* A held block will not be stored. */
int wfs_dropped(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_window *win;
	struct wfs_node *node;
	int err;

	node = node_of(cmd, &err);
	if (!node)
		return err;
	spin_lock(&node->lock);
	win = window_of(node, cmd->block);
	if (win && !READ_ONCE(ses->dead) &&
	    wfs_block_state(win, index_of(node, cmd->block)) == WFS_BLOCK_HELD)
		wfs_block_set(win, index_of(node, cmd->block), WFS_BLOCK_ABSENT);
	spin_unlock(&node->lock);
	wfs_count(node->wsb, WFS_STAT_DROPPED, 1);
	trace_wfs_store(node->id, cmd->block, "dropped", 0);
	wfs_node_put(node);
	return 0;
}

/**
 * wfs_evict() - may a block be dropped from the cache file?
 * @ses: the helper's session
 * @cmd: a checked WFS_CMD_EVICT
 *
 * Return: 0: yes, it is evicting and no read of it is in flight; -EBUSY; -ENOENT;
 * with WFS_EVICT_COLD -EAGAIN: it was read since this was last asked.
 */
int wfs_evict(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_window *win;
	struct wfs_node *node;
	int err;
	u32 i;

	node = node_of(cmd, &err);
	if (!node)
		return err;
	i = index_of(node, cmd->block);
	/* Made if need be, so that a map asked from now on finds the state. */
	win = wfs_node_window(node, wfs_geo_window_of(&node->geo, cmd->block));
	if (!win) {
		wfs_node_put(node);
		return -ENOMEM;
	}
	spin_lock(&node->lock);
	win = window_of(node, cmd->block);
	/* A map that was answered before this would be wrong after it. */
	if (win->asked)
		win->stale = true;
	if (READ_ONCE(ses->dead))
		err = -ESTALE;
	else if (cmd->flags & WFS_EVICT_COLD && wfs_block_state(win, i) == WFS_BLOCK_CACHED &&
		 wfs_block_test_clear_ref(win, i))
		err = -EAGAIN;
	else if (wfs_block_state(win, i) == WFS_BLOCK_EVICTING || wfs_block_try_evict(win, i))
		err = 0;
	else
		err = -EBUSY;
	spin_unlock(&node->lock);
	trace_wfs_evict(node->id, cmd->block, err);
	wfs_node_put(node);
	return err;
}

/* The block is gone from index and file: who waited for that asks for it again. */
int wfs_evicted(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_window *win;
	struct wfs_nreq *nreq;
	struct wfs_node *node;
	int err;

	node = node_of(cmd, &err);
	if (!node)
		return err;
	spin_lock(&node->lock);
	win = window_of(node, cmd->block);
	if (win && !READ_ONCE(ses->dead) &&
	    wfs_block_state(win, index_of(node, cmd->block)) == WFS_BLOCK_EVICTING) {
		wfs_block_set(win, index_of(node, cmd->block), WFS_BLOCK_ABSENT);
		list_for_each_entry(nreq, &node->reqs, link) {
			if (nreq->req.opcode != WFS_REQ_FILL || nreq->req.block != cmd->block)
				continue;
			if (nreq->req.flags & WFS_REQ_F_WHOLE)
				wfs_block_set(win, index_of(node, cmd->block), WFS_BLOCK_FILLING);
			wfs_req_release(&nreq->req);
		}
	}
	spin_unlock(&node->lock);
	wfs_count(node->wsb, WFS_STAT_EVICTED, 1);
	wfs_node_put(node);
	return 0;
}

/* The helper has another cache file for the node, or has one at last: OPEN is asked again. */
int wfs_reopen(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_node *node = wfs_node_find(cmd->node);
	int err;

	if (!node)
		return -ENOENT;
	err = wfs_node_reopen(node, GFP_NOFS);
	wfs_node_put(node);
	return err;
}

/**
 * wfs_offer() - bytes of a block that is about to be dropped
 * @ses: the helper's session
 * @cmd: a checked WFS_CMD_OFFER
 *
 * Return: bytes taken into the page cache, -ENOENT, -EINVAL.
 */
int wfs_offer(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct mem_cgroup *memcg = NULL, *old;
	struct inode *inode = NULL;
	struct wfs_node *node;
	u64 bytes, end;
	int ret;

	node = node_of(cmd, &ret);
	if (!node)
		return ret;
	bytes = wfs_geo_block_bytes(&node->geo, cmd->block);
	end = cmd->offset + cmd->len;
	ret = -EINVAL;
	if (!cmd->len || cmd->len > WFS_DELIVER_MAX || cmd->offset >= bytes || end > bytes ||
	    cmd->offset % WFS_UNIT_SIZE || (end % WFS_UNIT_SIZE && end != bytes))
		goto put;
	ret = -ENOENT;
	/* Keeps the superblock until the inode is let go. */
	if (!wfs_sb_busy_get(node->wsb))
		goto put;
	spin_lock(&node->lock);
	if (node->inode)
		inode = igrab(node->inode);
	spin_unlock(&node->lock);
	if (inode) {
		/* The helper's own if there was none. */
		memcg = wfs_node_memcg(node);
		old = set_active_memcg(memcg);
		ret = wfs_page_cache_offer(inode,
					   ((loff_t)cmd->block << node->geo.block_shift) +
						   cmd->offset,
					   cmd->len, ses->buffers, cmd->buf);
		set_active_memcg(old);
		wfs_count(node->wsb, WFS_STAT_OFFER_BYTES, ret);
		iput(inode);
	}
	mem_cgroup_put(memcg);
	wfs_sb_busy_put(node->wsb);
put:
	wfs_node_put(node);
	return ret;
}
