// SPDX-License-Identifier: GPL-2.0-only
/*
 * node: one version of one object, as the channel knows it.
 *
 * Outlives its inode for as long as a request or a read refers to it, so that the
 * channel never sees an inode. OPEN brings the cache file, MAP the states of its
 * blocks; both are asked when first needed and wait for nobody: what needs them is
 * kept as a list of segments and routed again when the answer is there.
 */
#include <linux/hashtable.h>
#include <linux/memcontrol.h>
#include <linux/slab.h>

#include "internal.h"

/* How long read_folio() repeats a failure instead of asking again. */
#define ERROR_MEMORY (HZ / 2)

static DEFINE_HASHTABLE(nodes, 12);
static DEFINE_SPINLOCK(nodes_lock);
static atomic64_t next_id;

static struct wfs_nreq *to_nreq(struct wfs_req *req)
{
	return container_of(req, struct wfs_nreq, req);
}

static long node_bytes(const struct wfs_node *node)
{
	return sizeof(*node) + strlen(node->path) + strlen(node->version) + 2;
}

/**
 * wfs_node_create() - a node for a new inode
 * @inode: not hashed yet; the node never takes a reference to it
 * @path: below the mount, copied
 * @version: copied
 * @ret: the node, one reference, the inode's
 *
 * Return: 0 or -ENOMEM.
 */
int wfs_node_create(struct inode *inode, const char *path, const char *version,
		    struct wfs_node **ret)
{
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);
	struct wfs_node *node;

	node = kzalloc(sizeof(*node), GFP_KERNEL_ACCOUNT);
	if (!node)
		return -ENOMEM;
	node->path = kstrdup(path, GFP_KERNEL_ACCOUNT);
	node->version = kstrdup(version, GFP_KERNEL_ACCOUNT);
	if (!node->path || !node->version) {
		kfree(node->path);
		kfree(node->version);
		kfree(node);
		return -ENOMEM;
	}
	refcount_set(&node->refs, 1);
	node->id = atomic64_inc_return(&next_id);
	node->wsb = wfs_sb_get(wsb);
	node->geo.size = i_size_read(inode);
	node->geo.block_shift = wsb->opts.block_shift;
	spin_lock_init(&node->lock);
	node->inode = inode;
	xa_init(&node->windows);
	INIT_LIST_HEAD(&node->reqs);
	INIT_LIST_HEAD(&node->open_segs);
	INIT_LIST_HEAD(&node->held);
	INIT_LIST_HEAD(&node->link);
	atomic64_inc(&wsb->nodes);
	wfs_held(WFS_HELD_NODES, node_bytes(node));
	spin_lock(&nodes_lock);
	hash_add(nodes, &node->hash, node->id);
	spin_unlock(&nodes_lock);
	*ret = node;
	return 0;
}

struct wfs_node *wfs_node_get(struct wfs_node *node)
{
	refcount_inc(&node->refs);
	return node;
}

struct wfs_node *wfs_node_find(u64 id)
{
	struct wfs_node *node, *found = NULL;

	spin_lock(&nodes_lock);
	hash_for_each_possible(nodes, node, hash, id) {
		if (node->id == id && refcount_inc_not_zero(&node->refs)) {
			found = node;
			break;
		}
	}
	spin_unlock(&nodes_lock);
	return found;
}

static void free_node(struct wfs_node *node)
{
	struct wfs_window *win;
	unsigned long index;

	xa_for_each(&node->windows, index, win) {
		wfs_window_free(win);
		cond_resched();
	}
	xa_destroy(&node->windows);
	if (node->cf)
		wfs_cachefile_put(node->cf);
	mem_cgroup_put(node->memcg);
	wfs_held(WFS_HELD_NODES, -node_bytes(node));
	kfree(node->path);
	kfree(node->version);
	kfree(node);
}

static void forget_end(struct wfs_req *req, int status)
{
}

static void forget_free(struct wfs_req *req)
{
	free_node(container_of(req, struct wfs_node, forget));
}

static const struct wfs_req_ops forget_ops = {
	.end = forget_end,
	.free = forget_free,
};

/* Context: process; allocates nothing. */
void wfs_node_put(struct wfs_node *node)
{
	struct wfs_sb *wsb = node->wsb;
	bool told;

	if (!refcount_dec_and_test(&node->refs))
		return;
	spin_lock(&nodes_lock);
	hash_del(&node->hash);
	spin_unlock(&nodes_lock);
	spin_lock(&wfs_chan.lock);
	told = node->told;
	list_del_init(&node->link);
	spin_unlock(&wfs_chan.lock);
	atomic64_dec(&wsb->nodes);

	if (told && wfs_session_live()) {
		/* The record is part of the node, which goes when it has been told. */
		wfs_req_init(&node->forget, &forget_ops, WFS_REQ_FORGET, wsb, NULL);
		node->forget.node_id = node->id;
		wfs_req_submit(&node->forget, 0);
		wfs_req_put(&node->forget);
	} else {
		free_node(node);
	}
	wfs_sb_put(wsb);
}

/*
 * The caller, a reader, misses a page: what is offered of the block later, and the states of
 * blocks around it, are charged to its memory cgroup.
 */
void wfs_node_charge_to(struct wfs_node *node, struct task_struct *task)
{
	struct mem_cgroup *memcg, *old;
	bool same;

	rcu_read_lock();
	same = mem_cgroup_from_task(task) == READ_ONCE(node->memcg);
	rcu_read_unlock();
	if (same)
		return;
	memcg = get_mem_cgroup_from_mm(task->mm);
	spin_lock(&node->lock);
	old = node->memcg;
	node->memcg = memcg;
	spin_unlock(&node->lock);
	mem_cgroup_put(old);
}

/* Of the last reader that missed, with a reference; NULL if there was none. */
struct mem_cgroup *wfs_node_memcg(struct wfs_node *node)
{
	struct mem_cgroup *memcg = NULL;

	spin_lock(&node->lock);
	if (node->memcg && css_tryget(&node->memcg->css))
		memcg = node->memcg;
	spin_unlock(&node->lock);
	return memcg;
}

void wfs_node_evict(struct wfs_node *node)
{
	spin_lock(&node->lock);
	node->inode = NULL;
	spin_unlock(&node->lock);
	wfs_node_put(node);
}

static struct wfs_nreq *nreq_alloc(gfp_t gfp)
{
	struct wfs_nreq *nreq = kzalloc(sizeof(*nreq), gfp);

	if (nreq) {
		wfs_held(WFS_HELD_REQUESTS, sizeof(*nreq));
		INIT_LIST_HEAD(&nreq->segs);
		INIT_LIST_HEAD(&nreq->link);
	}
	return nreq;
}

struct wfs_nreq *wfs_nreq_alloc(void)
{
	if (wfs_inject(WFS_INJECT_REQUEST))
		return NULL;
	return nreq_alloc(GFP_NOFS);
}

void wfs_nreq_free(struct wfs_req *req)
{
	struct wfs_nreq *nreq = to_nreq(req);

	if (nreq->cf)
		wfs_cachefile_put(nreq->cf);
	wfs_held(WFS_HELD_REQUESTS, -(long)sizeof(*nreq));
	kfree(nreq);
}

void wfs_segs_fail(struct list_head *segs, int error)
{
	struct wfs_seg *seg, *next;

	list_for_each_entry_safe(seg, next, segs, link) {
		list_del_init(&seg->link);
		wfs_seg_fail(seg, error);
		wfs_seg_put(seg);
	}
}

/* Whoever reads those blocks is told why, though the page cache says EIO. */
static void fail_and_note(struct wfs_node *node, struct list_head *segs, int error)
{
	struct wfs_seg *seg;
	u64 last = U64_MAX;

	list_for_each_entry(seg, segs, link) {
		if (seg->block != last)
			wfs_node_note_error(node, seg->block, error);
		last = seg->block;
	}
	wfs_segs_fail(segs, error);
}

/* ---- OPEN ---- */

static int open_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	if (reply->len)
		return -EINVAL;
	if (reply->status || reply->fd < 0)
		return 0;
	return wfs_cachefile_open(reply->fd, &to_nreq(req)->cf);
}

/* node->lock held. */
static void forget_windows(struct wfs_node *node, bool all)
{
	node->epoch.helper++;
	if (all)
		node->epoch.file++;
}

static void open_end(struct wfs_req *req, int status)
{
	struct wfs_nreq *nreq = to_nreq(req), *other;
	struct wfs_node *node = req->node;
	bool resume = req->flags & WFS_REQ_F_RESUME;
	struct wfs_cachefile *old = NULL;
	LIST_HEAD(segs);
	bool again;
	u64 owed;

	spin_lock(&node->lock);
	node->opening = false;
	again = node->again;
	node->again = false;
	/* Refused for a session that is gone, while the next one relied on it. */
	if (status == -ENOTCONN && node->owed)
		again = true;
	if (!status) {
		bool same = wfs_cachefile_same(node->cf, nreq->cf);

		if (!same) {
			old = node->cf;
			node->cf = nreq->cf;
			nreq->cf = NULL;
		}
		forget_windows(node, !same);
		node->opened = true;
	} else if (status != -ENOTCONN) {
		/* Without the helper's consent nothing of the file may be relied on. */
		old = node->cf;
		node->cf = NULL;
		forget_windows(node, true);
		node->opened = false;
	}
	if (status != -ENOTCONN)
		list_splice_init(&node->open_segs, &segs);
	/* What waited for an eviction of the last session goes on. */
	if (status != -ENOTCONN)
		list_for_each_entry(other, &node->reqs, link)
			wfs_req_release(&other->req);
	spin_unlock(&node->lock);

	if (old)
		wfs_cachefile_put(old);
	if (status != -ENOTCONN && !wfs_req_node_opened(node, req->session, status))
		again = true;
	if (again)
		wfs_node_reopen(node, GFP_NOFS | __GFP_NOFAIL);
	if (!status)
		wfs_route(node, &segs);
	else
		fail_and_note(node, &segs, status);
	if (resume)
		wfs_session_open_resumed(req->block);
	if (again)
		return;
	spin_lock(&node->lock);
	owed = node->opening ? 0 : node->owed;
	if (owed)
		node->owed = 0;
	spin_unlock(&node->lock);
	if (owed)
		wfs_session_open_resumed(owed);
}

static const struct wfs_req_ops open_ops = {
	.reply = open_reply,
	.end = open_end,
	.free = wfs_nreq_free,
};

static void submit_open(struct wfs_nreq *nreq, struct wfs_node *node, u32 flags, u64 gen)
{
	wfs_req_init(&nreq->req, &open_ops, WFS_REQ_OPEN, node->wsb, node);
	nreq->req.flags = flags;
	nreq->req.block = gen;
	nreq->req.str1 = node->path;
	nreq->req.str2 = node->version;
	wfs_req_submit(&nreq->req, node->wsb->opts.timeout_s);
	wfs_req_put(&nreq->req);
}

/*
 * Asks OPEN again of a node that is open: the session that answered ended at that very
 * moment, or the helper says that its answer would be another one. What is known and what is
 * under way stays until the answer is there. The answer to an OPEN that is under way may
 * have been made before that, so it is followed by another.
 */
int wfs_node_reopen(struct wfs_node *node, gfp_t gfp)
{
	struct wfs_nreq *nreq = nreq_alloc(gfp);
	bool go;

	if (!nreq)
		return -ENOMEM;
	spin_lock(&node->lock);
	go = !node->opening;
	if (go)
		node->opening = true;
	else
		node->again = true;
	spin_unlock(&node->lock);
	if (go)
		submit_open(nreq, node, 0, 0);
	else
		wfs_nreq_free(&nreq->req);
	return 0;
}

void wfs_node_open(struct wfs_node *node)
{
	struct wfs_nreq *nreq = wfs_nreq_alloc();
	LIST_HEAD(segs);

	if (nreq) {
		submit_open(nreq, node, 0, 0);
		return;
	}
	spin_lock(&node->lock);
	node->opening = false;
	list_splice_init(&node->open_segs, &segs);
	spin_unlock(&node->lock);
	wfs_segs_fail(&segs, -ENOMEM);
}

/* The next told node that this session has not been told of, with a reference. */
static struct wfs_node *next_to_resume(struct wfs_session *ses)
{
	struct wfs_node *node, *found = NULL;

	spin_lock(&wfs_chan.lock);
	if (ses->dead) {
		spin_unlock(&wfs_chan.lock);
		return NULL;
	}
	list_for_each_entry(node, &wfs_chan.told, link) {
		/* Nor one that this session has opened since. */
		if (node->resume_gen == ses->gen || node->open_gen == ses->gen ||
		    !refcount_inc_not_zero(&node->refs))
			continue;
		node->resume_gen = ses->gen;
		list_move_tail(&node->link, &wfs_chan.told);
		found = node;
		break;
	}
	if (found)
		ses->opens++;
	spin_unlock(&wfs_chan.lock);
	return found;
}

void wfs_node_resume_all(struct wfs_session *ses)
{
	struct wfs_node *node;

	while ((node = next_to_resume(ses))) {
		bool opening, opened;

		spin_lock(&node->lock);
		opening = node->opening;
		opened = node->opened;
		/* What was asked of the last session is answered by this one, and counts then. */
		if (opened && opening)
			node->owed = ses->gen;
		else if (opened)
			node->opening = true;
		spin_unlock(&node->lock);
		if (!opened)
			wfs_session_open_resumed(ses->gen);
		else if (!opening)
			submit_open(nreq_alloc(GFP_NOFS | __GFP_NOFAIL), node, WFS_REQ_F_RESUME,
				    ses->gen);
		wfs_node_put(node);
	}
}

/* ---- MAP ---- */

/* A window that is known, its states being those of now. node->lock held. */
struct wfs_window *wfs_node_window_now(struct wfs_node *node, u32 window)
{
	struct wfs_window *win = xa_load(&node->windows, window);

	lockdep_assert_held(&node->lock);
	if (win)
		wfs_window_catch_up(win, &node->epoch);
	return win;
}

/* The window, made if need be. What is known of it is for wfs_node_window_now() to say. */
struct wfs_window *wfs_node_window(struct wfs_node *node, u32 window)
{
	struct wfs_window *win = xa_load(&node->windows, window), *old;
	struct mem_cgroup *memcg, *own;

	if (win)
		return win;
	/* A reader's, also where a worker or the helper makes it; their own if there was none. */
	memcg = wfs_node_memcg(node);
	own = set_active_memcg(memcg);
	win = wfs_window_alloc(&node->geo, window, &node->lock, GFP_NOFS | __GFP_ACCOUNT);
	set_active_memcg(own);
	mem_cgroup_put(memcg);
	if (!win)
		return NULL;
	old = xa_cmpxchg(&node->windows, window, NULL, win, GFP_NOFS);
	if (old) {
		wfs_window_free(win);
		return xa_is_err(old) ? NULL : old;
	}
	return win;
}

/* The sums that a map with these bits must carry; -EINVAL for bits beyond the end. */
static long count_sums(const struct wfs_node *node, u32 window, const u64 *bits, u32 blocks)
{
	u64 first = wfs_geo_window_first(&node->geo, window);
	u32 words = DIV_ROUND_UP(blocks, 64);
	long n = 0;
	u32 i;

	if (blocks % 64 && bits[words - 1] >> (blocks % 64))
		return -EINVAL;
	for (i = 0; i < blocks; i++)
		if (bits[i / 64] >> (i % 64) & 1)
			n += wfs_geo_block_units(&node->geo, first + i);
	return n;
}

static void apply_map(struct wfs_node *node, struct wfs_window *win, u32 window, const u64 *bits,
		      const u64 *sums)
{
	u64 first = wfs_geo_window_first(&node->geo, window);
	u32 i;

	lockdep_assert_held(&node->lock);
	for (i = 0; i < win->blocks; i++) {
		bool cached = bits[i / 64] >> (i % 64) & 1;
		u32 units = wfs_geo_block_units(&node->geo, first + i);

		switch (wfs_block_state(win, i)) {
		case WFS_BLOCK_UNKNOWN:
		case WFS_BLOCK_ABSENT:
		case WFS_BLOCK_CACHED:
			if (wfs_block_is_bad(win, i))
				break;
			wfs_block_set(win, i, cached ? WFS_BLOCK_CACHED : WFS_BLOCK_ABSENT);
			if (cached)
				wfs_block_store_sums(win, i, sums, units);
			break;
		default:
			/* On its way in or out: that will tell. */
			break;
		}
		if (cached)
			sums += units;
	}
}

static int map_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	struct wfs_node *node = req->node;
	struct wfs_window *win = xa_load(&node->windows, req->window);
	u32 words = DIV_ROUND_UP(win->blocks, 64);
	struct wfs_map_reply *map;
	u64 *room, *bits;
	long nsums;
	int err = 0;

	if (reply->fd >= 0)
		return -EINVAL;
	if (reply->status)
		return 0;
	if (reply->len < sizeof(*map) + words * sizeof(u64))
		return -EINVAL;
	map = kvmalloc(reply->len, GFP_NOFS);
	room = kvmalloc_array(win->nsums, sizeof(u64), GFP_NOFS);
	if (!map || !room) {
		err = -ENOMEM;
		goto free;
	}
	err = wfs_reply_copy(reply, map, reply->len);
	if (err)
		goto free;
	bits = (u64 *)(map + 1);
	err = -EINVAL;
	if (map->blocks != win->blocks || map->pad)
		goto free;
	nsums = count_sums(node, req->window, bits, win->blocks);
	if (nsums < 0 || reply->len != sizeof(*map) + words * sizeof(u64) + nsums * sizeof(u64))
		goto free;
	err = 0;
	spin_lock(&node->lock);
	wfs_window_catch_up(win, &node->epoch);
	if (READ_ONCE(reply->session->dead)) {
		/* Perhaps about another cache file by now: asked again of the next session. */
		err = -EINVAL;
	} else if (!win->stale) {
		room = wfs_window_give_sums(win, room);
		apply_map(node, win, req->window, bits, bits + words);
	}
	spin_unlock(&node->lock);
free:
	kvfree(room);
	kvfree(map);
	return err;
}

static void map_end(struct wfs_req *req, int status)
{
	struct wfs_nreq *nreq = to_nreq(req);
	struct wfs_node *node = req->node;
	struct wfs_window *win = xa_load(&node->windows, req->window);
	LIST_HEAD(segs);

	spin_lock(&node->lock);
	list_del_init(&nreq->link);
	list_splice_init(&nreq->segs, &segs);
	wfs_window_catch_up(win, &node->epoch);
	win->asked = false;
	win->stale = false;
	spin_unlock(&node->lock);
	if (!status)
		wfs_route(node, &segs);
	else
		fail_and_note(node, &segs, status);
}

static const struct wfs_req_ops map_ops = {
	.reply = map_reply,
	.end = map_end,
	.free = wfs_nreq_free,
};

/* Makes @nreq the MAP request of a window; node->lock held, submitted by the caller. */
void wfs_node_ask_map(struct wfs_node *node, struct wfs_nreq *nreq, u32 window)
{
	struct wfs_window *win = wfs_node_window_now(node, window);

	wfs_req_init(&nreq->req, &map_ops, WFS_REQ_MAP, node->wsb, node);
	nreq->req.window = window;
	win->asked = true;
	win->stale = false;
	list_add_tail(&nreq->link, &node->reqs);
}

/* ---- what others ask ---- */

void wfs_node_note_error(struct wfs_node *node, u64 block, int error)
{
	unsigned int i;

	spin_lock(&node->lock);
	i = node->last_error;
	/* The blocks of one read-ahead fail together: one range, or they push out each other. */
	if (node->errors[i].error == error && time_before(jiffies, node->errors[i].until) &&
	    block + 1 >= node->errors[i].first && block <= node->errors[i].last + 1) {
		node->errors[i].first = min(node->errors[i].first, block);
		node->errors[i].last = max(node->errors[i].last, block);
	} else {
		i = (i + 1) % WFS_NODE_ERRORS;
		node->errors[i].first = block;
		node->errors[i].last = block;
		node->errors[i].error = error;
		node->last_error = i;
	}
	node->errors[i].until = jiffies + ERROR_MEMORY;
	spin_unlock(&node->lock);
}

/* The error with which a block of the range failed a moment ago, or 0. */
int wfs_node_recent_error(struct wfs_node *node, loff_t pos, u64 len)
{
	u64 first = pos >> node->geo.block_shift;
	u64 last = (pos + max(len, 1ULL) - 1) >> node->geo.block_shift;
	int i, error = 0;

	spin_lock(&node->lock);
	for (i = 0; i < WFS_NODE_ERRORS; i++)
		if (node->errors[i].error && node->errors[i].first <= last &&
		    node->errors[i].last >= first && time_before(jiffies, node->errors[i].until))
			error = node->errors[i].error;
	spin_unlock(&node->lock);
	return error;
}

u64 wfs_node_cached_bytes(struct wfs_node *node)
{
	struct wfs_window *win;
	unsigned long index;
	u64 bytes = 0;
	u32 i;

	xa_for_each(&node->windows, index, win) {
		u64 first = wfs_geo_window_first(&node->geo, index);

		/* Of another cache file. */
		if (READ_ONCE(win->epoch.file) != READ_ONCE(node->epoch.file))
			continue;
		for (i = 0; i < win->blocks; i++)
			if (wfs_block_state(win, i) == WFS_BLOCK_CACHED)
				bytes += wfs_geo_block_bytes(&node->geo, first + i);
		cond_resched();
	}
	return bytes;
}

bool wfs_node_cached_at(struct wfs_node *node, loff_t pos)
{
	u64 block = pos >> node->geo.block_shift;
	u32 window = wfs_geo_window_of(&node->geo, block);
	struct wfs_window *win = xa_load(&node->windows, window);

	return win && wfs_block_state(win, block - wfs_geo_window_first(&node->geo, window)) ==
			      WFS_BLOCK_CACHED;
}
