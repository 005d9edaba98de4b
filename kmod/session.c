// SPDX-License-Identifier: GPL-2.0-only
/*
 * session: the presence of a helper.
 *
 * One live session at a time, named by a generation. It begins with HELLO, is first
 * told of what outlived the last one (mounts, then files, then RESUMED), and ends by
 * DETACH, by a flush of its descriptor in its owner's name, by the last close, or by
 * another helper's takeover. What it had been given goes to the next.
 */
#include <linux/cred.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

/* Beginnings and ends are one at a time: a new session sees all that the old left. */
static DEFINE_MUTEX(session_mutex);

/* How long a helper may take to remember a mount that it was told of, in seconds. */
#define RESUME_TIMEOUT_S 30

struct wfs_session *wfs_session_get(struct wfs_session *ses)
{
	refcount_inc(&ses->refs);
	return ses;
}

/* Context: process. */
void wfs_session_put(struct wfs_session *ses)
{
	if (!refcount_dec_and_test(&ses->refs))
		return;
	wfs_buffers_free(ses->buffers);
	put_pid(ses->pid);
	kfree(ses);
}

bool wfs_session_live(void)
{
	return READ_ONCE(wfs_chan.session);
}

bool wfs_session_is(u64 gen)
{
	bool is;

	spin_lock(&wfs_chan.lock);
	is = wfs_chan.session && wfs_chan.session->gen == gen;
	spin_unlock(&wfs_chan.lock);
	return is;
}

pid_t wfs_session_pid(u64 *ret_gen)
{
	pid_t pid = 0;

	*ret_gen = 0;
	spin_lock(&wfs_chan.lock);
	if (wfs_chan.session) {
		pid = pid_nr(wfs_chan.session->pid);
		*ret_gen = wfs_chan.session->gen;
	}
	spin_unlock(&wfs_chan.lock);
	return pid;
}

bool wfs_is_helper(void)
{
	bool is = false;

	if (!wfs_session_live())
		return false;
	spin_lock(&wfs_chan.lock);
	if (wfs_chan.session)
		is = wfs_chan.session->pid == task_tgid(current);
	spin_unlock(&wfs_chan.lock);
	return is;
}

static void end_parked(struct work_struct *work)
{
	struct wfs_session *ses = container_of(work, struct wfs_session, end_parked);

	wfs_end_parked(&ses->parked);
	wfs_session_put(ses);
}

static void end_locked(struct wfs_session *ses, const char *why)
{
	bool mine;

	lockdep_assert_held(&session_mutex);
	spin_lock(&wfs_chan.lock);
	mine = !ses->dead;
	ses->dead = true;
	if (wfs_chan.session == ses) {
		wfs_chan.session = NULL;
		wfs_sums_keep(true);
	}
	spin_unlock(&wfs_chan.lock);
	if (!mine)
		return;
	wake_up_all(&wfs_chan.wait);
	/* Takes locks of its rings, which a thread of the helper may hold for ever. */
	queue_work(wfs_wq, &wfs_session_get(ses)->end_parked);
	wfs_reqs_session_ended(ses);
	trace_wfs_session(ses->gen, pid_nr(ses->pid), why);
	wfs_event(WFS_EVENT_SESSION_END, 0, ses->gen, NULL, why);
	wfs_session_put(ses); /* the channel's reference */
}

/**
 * wfs_session_end() - end a session, if it has not ended
 * @ses: the session; the caller holds a reference
 * @why: for events and traces
 *
 * Context: process, no locks.
 */
void wfs_session_end(struct wfs_session *ses, const char *why)
{
	mutex_lock(&session_mutex);
	end_locked(ses, why);
	mutex_unlock(&session_mutex);
}

static void resumed_end(struct wfs_req *req, int status)
{
}

static void resumed_free(struct wfs_req *req)
{
	kfree(req);
}

static const struct wfs_req_ops resumed_ops = {
	.end = resumed_end,
	.free = resumed_free,
};

static void mount_resume_end(struct wfs_req *req, int status)
{
	wfs_session_mount_resumed(req->block);
}

/* A helper that cannot serve the mount says why in a sentence; requests will fail. */
static int mount_resume_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	return reply->fd >= 0 ? -EINVAL : 0;
}

static const struct wfs_req_ops mount_resume_ops = {
	.reply = mount_resume_reply,
	.end = mount_resume_end,
	.free = resumed_free,
};

void wfs_session_open_resumed(u64 gen)
{
	bool last = false;
	struct wfs_req *req;

	spin_lock(&wfs_chan.lock);
	if (wfs_chan.session && wfs_chan.session->gen == gen)
		last = --wfs_chan.session->opens == 0;
	spin_unlock(&wfs_chan.lock);
	if (!last)
		return;
	req = kzalloc(sizeof(*req), GFP_NOFS | __GFP_NOFAIL);
	wfs_req_init(req, &resumed_ops, WFS_REQ_RESUMED, NULL, NULL);
	wfs_req_submit(req, 0);
	wfs_req_put(req);
}

static void resume_files(struct wfs_session *ses)
{
	wfs_node_resume_all(ses);
	/* Names may go on; those of files go on one by one. */
	spin_lock(&wfs_chan.lock);
	wfs_kick();
	spin_unlock(&wfs_chan.lock);
	wfs_session_open_resumed(ses->gen);
}

void wfs_session_mount_resumed(u64 gen)
{
	struct wfs_session *ses = NULL;

	spin_lock(&wfs_chan.lock);
	if (wfs_chan.session && wfs_chan.session->gen == gen && --wfs_chan.session->mounts == 0)
		ses = wfs_session_get(wfs_chan.session);
	spin_unlock(&wfs_chan.lock);
	if (ses) {
		resume_files(ses);
		wfs_session_put(ses);
	}
}

static void resume_mounts(struct wfs_session *ses)
{
	struct wfs_sb *wsb;
	u64 id = 0;

	/* One more than there are mounts, so that none is the last before all are queued. */
	while ((wsb = wfs_sb_next(id))) {
		struct wfs_req *req = kzalloc(sizeof(*req), GFP_KERNEL | __GFP_NOFAIL);

		id = wsb->id;
		wfs_req_init(req, &mount_resume_ops, WFS_REQ_MOUNT, wsb, NULL);
		req->flags = WFS_REQ_F_RESUME;
		req->str1 = wsb->source;
		req->str2 = wsb->text;
		req->block = ses->gen; /* whose count it is in */
		spin_lock(&wfs_chan.lock);
		ses->mounts++;
		spin_unlock(&wfs_chan.lock);
		wfs_req_submit_front(req, RESUME_TIMEOUT_S);
		wfs_req_put(req);
		wfs_sb_put(wsb);
	}
	wfs_session_mount_resumed(ses->gen);
}

static void late_mount_end(struct wfs_req *req, int status)
{
}

static const struct wfs_req_ops late_mount_ops = {
	.reply = mount_resume_reply,
	.end = late_mount_end,
	.free = resumed_free,
};

void wfs_session_add_mount(struct wfs_sb *wsb)
{
	struct wfs_req *req;
	u64 gen;

	wfs_session_pid(&gen);
	if (!gen || gen == wsb->asked_gen)
		return;
	req = kzalloc(sizeof(*req), GFP_KERNEL | __GFP_NOFAIL);
	wfs_req_init(req, &late_mount_ops, WFS_REQ_MOUNT, wsb, NULL);
	req->flags = WFS_REQ_F_RESUME;
	req->str1 = wsb->source;
	req->str2 = wsb->text;
	req->block = gen;
	wfs_req_submit_front(req, RESUME_TIMEOUT_S);
	wfs_req_put(req);
}

static bool session_abandoned(const struct wfs_session *ses)
{
	bool gone;

	rcu_read_lock();
	gone = !pid_task(ses->pid, PIDTYPE_TGID);
	rcu_read_unlock();
	return gone;
}

/**
 * wfs_session_hello() - a helper begins
 * @dev: its descriptor
 * @hello: what it says; features and session are filled in
 * @ret: the session, one reference
 *
 * Context: process, in the helper. Return: 0, -EBUSY, -ENOMEM, -EINTR.
 */
int wfs_session_hello(struct wfs_dev *dev, struct wfs_hello *hello, struct wfs_session **ret)
{
	struct wfs_session *ses, *old;

	ses = kzalloc(sizeof(*ses), GFP_KERNEL);
	if (!ses)
		return -ENOMEM;
	refcount_set(&ses->refs, 2); /* the descriptor's and the channel's */
	INIT_LIST_HEAD(&ses->parked);
	INIT_WORK(&ses->end_parked, end_parked);
	ses->features = hello->features & WFS_FEATURES;
	ses->owner = current->files;
	ses->pid = get_pid(task_tgid(current));
	ses->mounts = 1;
	ses->opens = 1;

	if (mutex_lock_killable(&session_mutex)) {
		put_pid(ses->pid);
		kfree(ses);
		return -EINTR;
	}
	old = wfs_chan.session; /* changes under the mutex only */
	if (old) {
		if (!(hello->flags & WFS_HELLO_TAKEOVER) && !session_abandoned(old)) {
			mutex_unlock(&session_mutex);
			put_pid(ses->pid);
			kfree(ses);
			return -EBUSY;
		}
		end_locked(old, "taken over");
	}
	spin_lock(&wfs_chan.lock);
	ses->gen = ++wfs_chan.next_gen;
	wfs_chan.session = ses;
	wfs_sums_keep(false);
	spin_unlock(&wfs_chan.lock);
	hello->session = ses->gen;
	hello->features = ses->features;
	wfs_count(NULL, WFS_STAT_SESSIONS, 1);
	trace_wfs_session(ses->gen, pid_nr(ses->pid), "hello");
	wfs_event(WFS_EVENT_SESSION, 0, ses->gen, NULL, NULL);
	resume_mounts(ses);
	mutex_unlock(&session_mutex);
	*ret = ses;
	return 0;
}

/**
 * wfs_session_attach() - another descriptor of the helper joins
 * @gen: generation of the live session
 * @ret: the session, one reference
 *
 * Return: 0, -ESTALE if that session does not live, -EPERM if it is another process's.
 */
int wfs_session_attach(u64 gen, struct wfs_session **ret)
{
	struct wfs_session *ses;
	int err = 0;

	spin_lock(&wfs_chan.lock);
	ses = wfs_chan.session;
	if (!ses || ses->gen != gen)
		err = -ESTALE;
	else if (ses->pid != task_tgid(current))
		err = -EPERM;
	else
		*ret = wfs_session_get(ses);
	spin_unlock(&wfs_chan.lock);
	return err;
}
