// SPDX-License-Identifier: GPL-2.0-only
/*
 * names: questions about names, asked of the helper and waited for.
 *
 * Every wait is killable and has a deadline (but a mount's with timeout=0), for names below
 * the hung-task limit, since the VFS lets others wait uninterruptibly for them. What the
 * helper answers is checked here, before anything else of the module sees it.
 */
#include <linux/completion.h>
#include <linux/ctype.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "internal.h"

/* No object is larger, and offsets in windows and blocks are sure not to overflow. */
#define SIZE_LIMIT BIT_ULL(48)

/* A question, its strings, and room for the answer. */
struct call {
	struct wfs_req req;
	struct completion done;
	int status;
	char *str1;
	char *str2;
	struct mem_cgroup *memcg; /* of who asks, and is charged for a listing */
	struct wfs_attr attr;
	void *page; /* READDIR: the reply; READLINK: the target; MOUNT: a sentence */
	u32 page_len;
};

static struct call *to_call(struct wfs_req *req)
{
	return container_of(req, struct call, req);
}

static void call_end(struct wfs_req *req, int status)
{
	to_call(req)->status = status;
	complete(&to_call(req)->done);
}

static void call_free(struct wfs_req *req)
{
	struct call *call = to_call(req);

	wfs_held(WFS_HELD_REQUESTS, -(long)sizeof(*call));
	kfree(call->str1);
	kfree(call->str2);
	kvfree(call->page);
	mem_cgroup_put(call->memcg);
	kfree(call);
}

/* Printable, without NUL, padded with zeros. */
static bool good_version(const struct wfs_attr *attr)
{
	u32 i;

	if (attr->version_len > WFS_VERSION_MAX)
		return false;
	for (i = 0; i < sizeof(attr->version); i++) {
		u8 c = attr->version[i];

		if (i < attr->version_len ? (c < 0x20 || c == 0x7f) : c)
			return false;
	}
	return true;
}

static bool good_attr(const struct wfs_attr *attr)
{
	if (attr->flags & ~(WFS_ATTR_UNCACHED | WFS_ATTR_UNPROVEN) || attr->size > SIZE_LIMIT ||
	    (attr->flags & WFS_ATTR_UNPROVEN && !(attr->flags & WFS_ATTR_UNCACHED)) ||
	    attr->mtime_nsec >= NSEC_PER_SEC || !good_version(attr))
		return false;
	switch (attr->mode) {
	case S_IFREG:
		return attr->version_len;
	case S_IFDIR:
		return !attr->version_len && !attr->size && !attr->flags;
	case S_IFLNK:
		return attr->size <= WFS_TARGET_MAX;
	default:
		return false;
	}
}

static int attr_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	struct call *call = to_call(req);

	if (reply->fd >= 0)
		return -EINVAL;
	if (reply->status)
		return 0;
	if (reply->len != sizeof(call->attr) ||
	    wfs_reply_copy(reply, &call->attr, sizeof(call->attr)) || !good_attr(&call->attr))
		return -EINVAL;
	return 0;
}

/* With an error the payload is a sentence, made fit for a log. */
static int mount_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	struct call *call = to_call(req);
	struct wfs_mount_reply mount;
	u32 len, i;
	char *text;

	if (reply->fd >= 0)
		return -EINVAL;
	if (reply->status) {
		len = min_t(u32, reply->len, WFS_MESSAGE_MAX - 1);
		if (!len || call->page)
			return 0;
		text = kvzalloc(WFS_MESSAGE_MAX, GFP_KERNEL);
		if (!text)
			return 0;
		if (wfs_reply_copy(reply, text, len)) {
			kvfree(text);
			return -EINVAL;
		}
		for (i = 0; i < len && text[i]; i++)
			if (iscntrl(text[i]))
				text[i] = ' ';
		call->page = text;
		return 0;
	}
	if (reply->len != sizeof(mount) || wfs_reply_copy(reply, &mount, sizeof(mount)) ||
	    mount.flags || !good_attr(&mount.root) || mount.root.mode != S_IFDIR)
		return -EINVAL;
	call->attr = mount.root;
	return 0;
}

static bool good_name(const u8 *name, u32 len)
{
	if (!len || memchr(name, 0, len) || memchr(name, '/', len))
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

static bool good_page(const struct wfs_readdir_reply *page, u32 len)
{
	const void *at = page + 1, *end = (void *)page + len;
	u32 i;

	if (page->flags & ~WFS_READDIR_EOF || (!page->count && !(page->flags & WFS_READDIR_EOF)))
		return false;
	for (i = 0; i < page->count; i++) {
		const struct wfs_dirent *ent = at;

		if (end - at < sizeof(*ent) || ent->reclen % 8 || ent->reclen > end - at ||
		    ent->reclen != ALIGN(sizeof(*ent) + ent->namelen, 8) || ent->pad ||
		    memchr_inv(ent->name + ent->namelen, 0,
			       ent->reclen - sizeof(*ent) - ent->namelen) ||
		    !good_name(ent->name, ent->namelen) ||
		    (ent->type != DT_REG && ent->type != DT_DIR && ent->type != DT_LNK))
			return false;
		at += ent->reclen;
	}
	return at == end;
}

static int readdir_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	struct call *call = to_call(req);
	struct wfs_readdir_reply *page;
	struct mem_cgroup *own;

	if (reply->fd >= 0)
		return -EINVAL;
	if (reply->status)
		return 0;
	if (reply->len < sizeof(*page))
		return -EINVAL;
	own = set_active_memcg(call->memcg);
	page = kvmalloc(reply->len, GFP_KERNEL_ACCOUNT);
	set_active_memcg(own);
	if (!page)
		return -ENOMEM;
	if (wfs_reply_copy(reply, page, reply->len) || !good_page(page, reply->len)) {
		kvfree(page);
		return -EINVAL;
	}
	kvfree(call->page);
	call->page = page;
	call->page_len = reply->len;
	return 0;
}

static int readlink_reply(struct wfs_req *req, const struct wfs_reply *reply)
{
	struct call *call = to_call(req);
	char *target;

	if (reply->fd >= 0)
		return -EINVAL;
	if (reply->status)
		return 0;
	if (!reply->len || reply->len > WFS_TARGET_MAX)
		return -EINVAL;
	target = kvzalloc(reply->len + 1, GFP_KERNEL);
	if (!target)
		return -ENOMEM;
	if (wfs_reply_copy(reply, target, reply->len) || strlen(target) != reply->len) {
		kvfree(target);
		return -EINVAL;
	}
	kvfree(call->page);
	call->page = target;
	return 0;
}

#define CALL_OPS(kind)                                 \
	static const struct wfs_req_ops kind##_ops = { \
		.reply = kind##_reply,                 \
		.end = call_end,                       \
		.free = call_free,                     \
	}

CALL_OPS(attr);
CALL_OPS(mount);
CALL_OPS(readdir);
CALL_OPS(readlink);

/*
 * Asks and waits. On success the caller holds the call's one reference, with the
 * answer in it. A kill or the deadline ends the wait, and the request.
 */
static int ask(struct wfs_sb *wsb, const struct wfs_req_ops *ops, u32 opcode, const char *str1,
	       const char *str2, u32 timeout_s, struct call **ret)
{
	struct call *call;
	int err;

	/* It would wait for itself. */
	if (wfs_is_helper())
		return -EDEADLK;
	call = wfs_inject(WFS_INJECT_REQUEST) ? NULL : kzalloc(sizeof(*call), GFP_KERNEL);
	if (!call)
		return -ENOMEM;
	wfs_held(WFS_HELD_REQUESTS, sizeof(*call));
	init_completion(&call->done);
	wfs_req_init(&call->req, ops, opcode, wsb, NULL);
	call->str1 = kstrdup(str1, GFP_KERNEL);
	call->str2 = str2 ? kstrdup(str2, GFP_KERNEL) : NULL;
	if (!call->str1 || (str2 && !call->str2)) {
		wfs_req_put(&call->req);
		return -ENOMEM;
	}
	if (opcode == WFS_REQ_READDIR)
		call->memcg = get_mem_cgroup_from_mm(current->mm);
	call->req.str1 = call->str1;
	call->req.str2 = call->str2;
	wfs_req_submit(&call->req, timeout_s);
	err = wait_for_completion_killable(&call->done);
	if (err)
		wfs_req_cancel(&call->req, -EINTR);
	else
		err = call->status;
	/* With an error the caller may still want the sentence of a refused mount. */
	if (err && opcode != WFS_REQ_MOUNT) {
		wfs_req_put(&call->req);
		return err;
	}
	*ret = call;
	return err;
}

/**
 * wfs_ask_mount() - may this source be mounted?
 * @wsb: the mount to be
 * @ret_root: attributes of its root
 * @message: WFS_MESSAGE_MAX bytes: why not, or empty
 */
int wfs_ask_mount(struct wfs_sb *wsb, struct wfs_attr *ret_root, char *message)
{
	struct call *call = NULL;
	int err;

	message[0] = 0;
	err = ask(wsb, &mount_ops, WFS_REQ_MOUNT, wsb->source, wsb->text, wsb->opts.timeout_s,
		  &call);
	if (!err) {
		*ret_root = call->attr;
		wsb->asked_gen = call->req.session;
	} else if (call && call->page && err != -EINTR && err != -ERESTARTSYS) {
		strscpy(message, call->page, WFS_MESSAGE_MAX);
	}
	if (call)
		wfs_req_put(&call->req);
	return err;
}

static int ask_attr(struct wfs_sb *wsb, u32 opcode, const char *path, const char *version,
		    struct wfs_attr *ret_attr)
{
	struct call *call;
	int err;

	wfs_count(wsb, WFS_STAT_LOOKUPS, 1);
	err = ask(wsb, &attr_ops, opcode, path, version, wsb->opts.name_timeout_s, &call);
	if (err)
		return err;
	*ret_attr = call->attr;
	wfs_req_put(&call->req);
	return 0;
}

int wfs_ask_lookup(struct wfs_sb *wsb, const char *path, struct wfs_attr *ret_attr)
{
	return ask_attr(wsb, WFS_REQ_LOOKUP, path, NULL, ret_attr);
}

int wfs_ask_getattr(struct wfs_sb *wsb, const char *path, const char *version,
		    struct wfs_attr *ret_attr)
{
	return ask_attr(wsb, WFS_REQ_GETATTR, path, version, ret_attr);
}

/* *ret_target is kvfree()d by the caller. */
int wfs_ask_readlink(struct wfs_sb *wsb, const char *path, char **ret_target)
{
	struct call *call;
	int err;

	err = ask(wsb, &readlink_ops, WFS_REQ_READLINK, path, NULL, wsb->opts.name_timeout_s,
		  &call);
	if (err)
		return err;
	*ret_target = call->page;
	call->page = NULL;
	wfs_req_put(&call->req);
	return 0;
}

int wfs_ask_readdir(struct wfs_sb *wsb, const char *path, const char *after,
		    struct wfs_readdir_reply **ret_page, u32 *ret_len)
{
	struct call *call;
	int err;

	wfs_count(wsb, WFS_STAT_READDIRS, 1);
	err = ask(wsb, &readdir_ops, WFS_REQ_READDIR, path, after, wsb->opts.name_timeout_s, &call);
	if (err)
		return err;
	*ret_page = call->page;
	*ret_len = call->page_len;
	call->page = NULL;
	wfs_req_put(&call->req);
	return 0;
}

static void tell_end(struct wfs_req *req, int status)
{
}

static void tell_free(struct wfs_req *req)
{
	kfree(req);
}

static const struct wfs_req_ops tell_ops = {
	.end = tell_end,
	.free = tell_free,
};

/* The helper may forget the mount; nobody waits for the answer. */
void wfs_tell_unmount(struct wfs_sb *wsb)
{
	struct wfs_req *req;

	if (!wfs_session_live())
		return;
	req = kzalloc(sizeof(*req), GFP_KERNEL | __GFP_NOFAIL);
	wfs_req_init(req, &tell_ops, WFS_REQ_UNMOUNT, wsb, NULL);
	wfs_req_submit(req, 0);
	wfs_req_put(req);
}
