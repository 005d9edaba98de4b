// SPDX-License-Identifier: GPL-2.0-only
/*
 * upcall: requests to the helper, from submission to their one end.
 *
 * A request belongs to a mount, not to a session: it waits while there is no
 * helper, is sent again when a session ends without having answered it, and ends by
 * an answer, by its deadline, by its submitter or with its mount. Whoever moves it to
 * WFS_REQ_ENDED under the channel's lock calls end(), outside of the lock, once.
 */
#include <linux/hashtable.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

struct wfs_chan wfs_chan = {
	.lock = __SPIN_LOCK_UNLOCKED(wfs_chan.lock),
	.front = LIST_HEAD_INIT(wfs_chan.front),
	.pending = LIST_HEAD_INIT(wfs_chan.pending),
	.all = LIST_HEAD_INIT(wfs_chan.all),
	.told = LIST_HEAD_INIT(wfs_chan.told),
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER(wfs_chan.wait),
};

/* How often deadlines are looked at while any request lives. */
#define SCAN_INTERVAL (HZ / 4)

/**
 * wfs_req_init() - make a request ready to be submitted
 * @req: zeroed, or ended before
 * @ops: what to do with its answer and its end
 * @opcode: enum wfs_opcode
 * @wsb: its mount or NULL; a reference is taken
 * @node: its node or NULL; a reference is taken
 *
 * The caller holds the one reference and fills in the fields of its opcode.
 */
void wfs_req_init(struct wfs_req *req, const struct wfs_req_ops *ops, u32 opcode,
		  struct wfs_sb *wsb, struct wfs_node *node)
{
	refcount_set(&req->refs, 1);
	req->ops = ops;
	INIT_LIST_HEAD(&req->link);
	INIT_LIST_HEAD(&req->all);
	INIT_HLIST_NODE(&req->hash);
	req->state = WFS_REQ_NEW;
	req->opcode = opcode;
	req->wsb = wsb ? wfs_sb_get(wsb) : NULL;
	if (node) {
		req->node = wfs_node_get(node);
		req->node_id = node->id;
	}
}

struct wfs_req *wfs_req_get(struct wfs_req *req)
{
	refcount_inc(&req->refs);
	return req;
}

void wfs_req_put(struct wfs_req *req)
{
	if (refcount_dec_and_test(&req->refs)) {
		struct wfs_sb *wsb = req->wsb;
		struct wfs_node *node = req->node;

		req->ops->free(req);
		if (node)
			wfs_node_put(node);
		if (wsb)
			wfs_sb_put(wsb);
	}
}

/* Takes the request off every list; its end is the caller's duty. */
static void unlink_req(struct wfs_req *req)
{
	lockdep_assert_held(&wfs_chan.lock);
	hash_del(&req->hash);
	list_del_init(&req->all);
	list_del_init(&req->link);
	req->state = WFS_REQ_ENDED;
}

static void end_req(struct wfs_req *req, int status)
{
	trace_wfs_end(req->id, req->opcode, status, ktime_us_delta(ktime_get(), req->born));
	req->ops->end(req, status);
	wfs_req_put(req); /* the channel's reference */
}

/* Ends all requests in a list that unlink_req() has filled through req->link. */
static void end_list(struct list_head *list, int status)
{
	struct wfs_req *req, *next;

	list_for_each_entry_safe(req, next, list, link) {
		list_del_init(&req->link);
		end_req(req, status);
	}
}

/* Requests that the helper can only understand once it has opened their node. */
static bool needs_node(const struct wfs_req *req)
{
	return req->opcode == WFS_REQ_MAP || req->opcode == WFS_REQ_FILL;
}

static void queue_req(struct wfs_req *req)
{
	struct wfs_session *ses = wfs_chan.session;

	lockdep_assert_held(&wfs_chan.lock);
	if (needs_node(req) && (!ses || req->node->open_gen != ses->gen)) {
		req->state = WFS_REQ_HELD;
		list_move_tail(&req->link, &req->node->held);
		return;
	}
	req->state = WFS_REQ_PENDING;
	list_move_tail(&req->link, &wfs_chan.pending);
	wfs_kick();
}

/* Resumes belong to one session, whose generation they carry; they end with it. */
static bool resumes_live(const struct wfs_req *req)
{
	return wfs_chan.session && wfs_chan.session->gen == req->block;
}

enum submit_how { SUBMIT_NOW, SUBMIT_HELD, SUBMIT_FRONT };

static void submit(struct wfs_req *req, u32 timeout_s, enum submit_how how)
{
	int refused = 0;

	req->born = ktime_get();
	req->deadline = 0;
	if (timeout_s)
		req->deadline = (jiffies + (unsigned long)timeout_s * HZ) ?: 1;
	wfs_req_get(req);

	spin_lock(&wfs_chan.lock);
	req->id = ++wfs_chan.next_id;
	req->kill = 0;
	req->session = 0;
	if (req->wsb && req->wsb->dying && req->opcode != WFS_REQ_UNMOUNT &&
	    req->opcode != WFS_REQ_FORGET)
		refused = -EIO;
	else if (req->flags & WFS_REQ_F_RESUME && !resumes_live(req))
		refused = -ENOTCONN;
	if (refused) {
		req->state = WFS_REQ_ENDED;
	} else {
		hash_add(wfs_chan.reqs, &req->hash, req->id);
		list_add_tail(&req->all, &wfs_chan.all);
		if (how == SUBMIT_HELD && !req->released) {
			req->state = WFS_REQ_HELD;
		} else if (how == SUBMIT_FRONT) {
			req->state = WFS_REQ_PENDING;
			list_add_tail(&req->link, &wfs_chan.front);
			wfs_kick();
		} else {
			queue_req(req);
		}
	}
	spin_unlock(&wfs_chan.lock);

	trace_wfs_request(req->id, req->opcode, req->wsb ? req->wsb->id : 0, req->node_id,
			  req->block, req->unit, req->units, req->why);
	if (refused)
		end_req(req, refused);
	else if (timeout_s)
		queue_delayed_work(wfs_wq, &wfs_chan.deadlines, SCAN_INTERVAL);
}

void wfs_req_submit(struct wfs_req *req, u32 timeout_s)
{
	submit(req, timeout_s, SUBMIT_NOW);
}

void wfs_req_submit_held(struct wfs_req *req, u32 timeout_s)
{
	submit(req, timeout_s, SUBMIT_HELD);
}

void wfs_req_submit_front(struct wfs_req *req, u32 answer_s)
{
	req->answer_s = answer_s;
	submit(req, 0, SUBMIT_FRONT);
}

/* A request that is, or is about to be, submitted as held may be sent now. */
void wfs_req_release(struct wfs_req *req)
{
	spin_lock(&wfs_chan.lock);
	if (req->state == WFS_REQ_NEW)
		req->released = true;
	else if (req->state == WFS_REQ_HELD && list_empty(&req->link))
		queue_req(req);
	spin_unlock(&wfs_chan.lock);
}

/* wfs_chan.lock held; true: the caller must end it with end_req(). */
static bool kill_locked(struct wfs_req *req, int status)
{
	switch (req->state) {
	case WFS_REQ_NEW:
	case WFS_REQ_ENDED:
		return false;
	case WFS_REQ_BUSY:
		req->kill = status;
		return false;
	default:
		unlink_req(req);
		return true;
	}
}

void wfs_req_cancel(struct wfs_req *req, int status)
{
	bool mine;

	spin_lock(&wfs_chan.lock);
	mine = kill_locked(req, status);
	spin_unlock(&wfs_chan.lock);
	if (mine)
		end_req(req, status);
}

/**
 * wfs_req_abort_mount() - end the requests of a mount with EIO
 * @wsb: the mount
 * @dying: it is being unmounted: refuse further requests
 *
 * Context: process. Telling the helper of the unmount and of forgotten nodes goes on.
 */
void wfs_req_abort_mount(struct wfs_sb *wsb, bool dying)
{
	struct wfs_req *req, *next;
	LIST_HEAD(ended);

	spin_lock(&wfs_chan.lock);
	if (dying)
		wsb->dying = true;
	list_for_each_entry_safe(req, next, &wfs_chan.all, all) {
		if (req->wsb != wsb || req->opcode == WFS_REQ_UNMOUNT ||
		    req->opcode == WFS_REQ_FORGET)
			continue;
		if (kill_locked(req, -EIO))
			list_add_tail(&req->link, &ended);
	}
	spin_unlock(&wfs_chan.lock);
	end_list(&ended, -EIO);
}

static void scan_deadlines(struct work_struct *work)
{
	struct wfs_req *req, *next;
	bool again = false;
	LIST_HEAD(ended);

	spin_lock(&wfs_chan.lock);
	list_for_each_entry_safe(req, next, &wfs_chan.all, all) {
		if (!req->deadline)
			continue;
		if (time_before(jiffies, req->deadline)) {
			again = true;
			continue;
		}
		if (kill_locked(req, -ETIMEDOUT))
			list_add_tail(&req->link, &ended);
	}
	spin_unlock(&wfs_chan.lock);

	list_for_each_entry(req, &ended, link) {
		wfs_count(req->wsb, WFS_STAT_TIMEOUTS, 1);
		wfs_event(WFS_EVENT_TIMEOUT, req->wsb->id, 0,
			  req->node ? req->node->path : req->str1, NULL);
	}
	end_list(&ended, -ETIMEDOUT);
	if (again)
		queue_delayed_work(wfs_wq, &wfs_chan.deadlines, SCAN_INTERVAL);
}

u64 wfs_req_outstanding(struct wfs_sb *wsb)
{
	struct wfs_req *req;
	u64 n = 0;

	spin_lock(&wfs_chan.lock);
	list_for_each_entry(req, &wfs_chan.all, all)
		if (req->wsb == wsb)
			n++;
	spin_unlock(&wfs_chan.lock);
	return n;
}

static struct wfs_req *find_sent(struct wfs_session *ses, u64 id)
{
	struct wfs_req *req;

	lockdep_assert_held(&wfs_chan.lock);
	hash_for_each_possible(wfs_chan.reqs, req, hash, id) {
		if (req->id == id)
			return req->state == WFS_REQ_SENT && req->session == ses->gen ? req : NULL;
	}
	return NULL;
}

struct wfs_req *wfs_req_find(struct wfs_session *ses, u64 id, u32 opcode)
{
	struct wfs_req *req;

	spin_lock(&wfs_chan.lock);
	req = find_sent(ses, id);
	if (req && req->opcode == opcode)
		wfs_req_get(req);
	else
		req = NULL;
	spin_unlock(&wfs_chan.lock);
	return req;
}

/* What only that session needs to know. */
static bool ends_with_session(const struct wfs_req *req)
{
	return req->flags & WFS_REQ_F_RESUME || req->opcode == WFS_REQ_FORGET ||
	       req->opcode == WFS_REQ_UNMOUNT || req->opcode == WFS_REQ_RESUMED;
}

/* What a helper may say; anything else is taken for EIO. */
static int check_status(s32 status)
{
	switch (status) {
	case 0:
	case -ENOENT:
	case -EACCES:
	case -ESTALE:
	case -EIO:
	case -ETIMEDOUT:
	case -ENOTDIR:
	case -EISDIR:
	case -EINVAL:
	case -ENOMEM:
	case -ENAMETOOLONG:
	case -ELOOP:
	case -EDEADLK:
	case -EOPNOTSUPP:
		return status;
	default:
		return -EIO;
	}
}

/**
 * wfs_commit() - the helper answers a request
 * @ses: its session
 * @cmd: a checked WFS_CMD_COMMIT
 *
 * Context: the helper's process. Return: 0, -ENOENT if nobody waits for it,
 * -EINVAL if the answer is malformed (the request still waits).
 */
int wfs_commit(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_reply reply = {
		.session = ses,
		.status = cmd->status,
		.fd = cmd->fd,
		.buf = cmd->buf,
		.len = cmd->len,
	};
	struct wfs_req *req;
	int status, err, kill;

	if (cmd->status > 0 || cmd->len > WFS_REPLY_MAX)
		return -EINVAL;

	spin_lock(&wfs_chan.lock);
	req = find_sent(ses, cmd->id);
	if (req) {
		req->state = WFS_REQ_BUSY;
		wfs_req_get(req);
	}
	spin_unlock(&wfs_chan.lock);
	if (!req)
		return -ENOENT;

	wfs_inject_late(WFS_INJECT_COMMIT, ses->gen);
	/* Taken or refused by the kind of request; most expect no payload with an error. */
	status = check_status(cmd->status);
	if (req->ops->reply)
		err = req->ops->reply(req, &reply);
	else
		err = cmd->len || cmd->fd >= 0 ? -EINVAL : 0;

	spin_lock(&wfs_chan.lock);
	kill = req->kill;
	if (err == -EINVAL && !kill) {
		/* Malformed: as if nothing had come. */
		req->state = WFS_REQ_SENT;
		if (ses->dead && ends_with_session(req)) {
			unlink_req(req);
			spin_unlock(&wfs_chan.lock);
			end_req(req, -ENOTCONN);
		} else {
			if (ses->dead)
				queue_req(req);
			spin_unlock(&wfs_chan.lock);
		}
		wfs_req_put(req);
		return -EINVAL;
	}
	unlink_req(req);
	spin_unlock(&wfs_chan.lock);

	end_req(req, kill ?: status ?: err);
	wfs_req_put(req);
	return 0;
}

static size_t put_string(u8 *to, const char *s)
{
	size_t n = s ? strlen(s) + 1 : 0;

	memcpy(to, s, n);
	return n;
}

static size_t record_size(const struct wfs_req *req)
{
	size_t n = sizeof(struct wfs_request);

	if (req->str1)
		n += strlen(req->str1) + 1;
	if (req->str2)
		n += strlen(req->str2) + 1;
	return ALIGN(n, 8);
}

static void write_record(const struct wfs_session *ses, const struct wfs_req *req,
			 struct wfs_request *to, size_t size)
{
	size_t n;

	memset(to, 0, size);
	to->size = size;
	to->opcode = req->opcode;
	to->id = req->id;
	to->session = req->session;
	to->mount = req->wsb ? req->wsb->id : 0;
	to->node = req->node_id;
	to->flags = req->flags;
	to->why = req->why;
	if (req->opcode == WFS_REQ_FILL) {
		to->block = req->block;
		to->unit = req->unit;
		to->units = req->units;
		if (ses->features & WFS_FEATURE_READER)
			to->reader = req->reader;
	}
	to->window = req->window;
	to->mount_ttl = req->wsb ? req->wsb->opts.ttl_ms : 0;
	if (req->opcode == WFS_REQ_OPEN) {
		to->block_shift = req->node->geo.block_shift;
		to->file_size = req->node->geo.size;
	}
	n = put_string(to->payload, req->str1);
	n += put_string(to->payload + n, req->str2);
	to->payload_len = n;
}

static struct wfs_req *next_req(struct wfs_session *ses)
{
	struct wfs_req *req;

	req = list_first_entry_or_null(&wfs_chan.front, struct wfs_req, link);
	if (!req && !ses->mounts)
		req = list_first_entry_or_null(&wfs_chan.pending, struct wfs_req, link);
	return req;
}

/**
 * wfs_take_requests() - hand requests to the helper
 * @ses: its session
 * @to: kernel memory
 * @room: bytes there, at least WFS_SLOT_SIZE
 * @max: most requests
 *
 * Return: number of records written.
 */
unsigned int wfs_take_requests(struct wfs_session *ses, void *to, size_t room, unsigned int max)
{
	bool timed = false;
	unsigned int n = 0;
	struct wfs_req *req;

	spin_lock(&wfs_chan.lock);
	while (!ses->dead && n < max && (req = next_req(ses))) {
		size_t size = record_size(req);

		if (size > room)
			break;
		list_del_init(&req->link);
		req->state = WFS_REQ_SENT;
		req->session = ses->gen;
		if (req->answer_s) {
			req->deadline = (jiffies + (unsigned long)req->answer_s * HZ) ?: 1;
			timed = true;
		}
		if (req->opcode == WFS_REQ_OPEN && !req->node->told) {
			req->node->told = true;
			list_add_tail(&req->node->link, &wfs_chan.told);
			/* New to every helper: this one need not be told that it was open. */
			req->node->resume_gen = ses->gen;
		}
		write_record(ses, req, to, size);
		to += size;
		room -= size;
		n++;
	}
	spin_unlock(&wfs_chan.lock);
	if (timed)
		queue_delayed_work(wfs_wq, &wfs_chan.deadlines, SCAN_INTERVAL);
	return n;
}

void wfs_untake_requests(struct wfs_session *ses, const void *from, unsigned int count)
{
	const struct wfs_request *rec = from;
	LIST_HEAD(front);
	LIST_HEAD(back);

	spin_lock(&wfs_chan.lock);
	while (count--) {
		struct wfs_req *req = find_sent(ses, rec->id);

		if (req) {
			bool first = req->opcode == WFS_REQ_MOUNT && req->flags & WFS_REQ_F_RESUME;

			req->state = WFS_REQ_PENDING;
			list_add_tail(&req->link, first ? &front : &back);
		}
		rec = (const void *)rec + rec->size;
	}
	list_splice(&front, &wfs_chan.front);
	list_splice(&back, &wfs_chan.pending);
	wfs_kick();
	spin_unlock(&wfs_chan.lock);
}

/**
 * wfs_req_node_opened() - a node's OPEN was answered
 * @node: the node
 * @gen: session that answered
 * @status: 0: its requests go on; else they end with it
 *
 * Return: false if another session lives by now, which must open it too.
 */
bool wfs_req_node_opened(struct wfs_node *node, u64 gen, int status)
{
	struct wfs_req *req, *next;
	LIST_HEAD(ended);
	LIST_HEAD(held);
	bool current_gen;

	spin_lock(&wfs_chan.lock);
	current_gen = status || !wfs_chan.session || wfs_chan.session->gen == gen;
	if (!status)
		node->open_gen = gen;
	/* What cannot go on goes back into the node's list. */
	list_splice_init(&node->held, &held);
	list_for_each_entry_safe(req, next, &held, link) {
		if (!status) {
			queue_req(req);
		} else {
			unlink_req(req);
			list_add_tail(&req->link, &ended);
		}
	}
	spin_unlock(&wfs_chan.lock);
	end_list(&ended, status);
	return current_gen;
}

/**
 * wfs_reqs_session_ended() - take back what a session was given
 * @ses: dead, no longer the channel's
 *
 * Answers that are being taken right now end or come back by themselves. What only
 * that session needed to know ends, with ENOTCONN.
 */
void wfs_reqs_session_ended(struct wfs_session *ses)
{
	struct wfs_req *req, *next;
	LIST_HEAD(ended);

	spin_lock(&wfs_chan.lock);
	list_for_each_entry_safe(req, next, &wfs_chan.all, all) {
		if (req->state == WFS_REQ_BUSY)
			continue;
		if (ends_with_session(req)) {
			unlink_req(req);
			list_add_tail(&req->link, &ended);
		} else if (req->state == WFS_REQ_SENT || req->state == WFS_REQ_PENDING) {
			/* In the order of ids, which is the order of age. */
			list_del_init(&req->link);
			queue_req(req);
		}
	}
	spin_unlock(&wfs_chan.lock);
	end_list(&ended, -ENOTCONN);
}

void wfs_upcall_init(void)
{
	hash_init(wfs_chan.reqs);
	INIT_DELAYED_WORK(&wfs_chan.deadlines, scan_deadlines);
}

/* No mount and no session is left: only what nobody will fetch any more. */
void wfs_upcall_exit(void)
{
	struct wfs_req *req, *next;
	LIST_HEAD(ended);

	spin_lock(&wfs_chan.lock);
	list_for_each_entry_safe(req, next, &wfs_chan.all, all) {
		unlink_req(req);
		list_add_tail(&req->link, &ended);
	}
	spin_unlock(&wfs_chan.lock);
	end_list(&ended, -EIO);
	cancel_delayed_work_sync(&wfs_chan.deadlines);
}
