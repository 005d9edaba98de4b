// SPDX-License-Identifier: GPL-2.0-only
/*
 * control: the generic netlink family: mounts, counters, invalidation, events.
 *
 * Never on the data path. In the initial network namespace only.
 */
#include <linux/slab.h>
#include <net/genetlink.h>

#include "internal.h"

static struct genl_family wfs_family;

static const struct nla_policy policy[WFS_GENL_ATTR_MAX + 1] = {
	[WFS_GENL_ATTR_MOUNT_ID] = { .type = NLA_U64 },
	[WFS_GENL_ATTR_PATH] = { .type = NLA_NUL_STRING, .len = WFS_PATH_MAX },
};

static int put_u64(struct sk_buff *skb, int attr, u64 value)
{
	return nla_put_u64_64bit(skb, attr, value, WFS_GENL_ATTR_PAD);
}

static int put_mount(struct sk_buff *skb, struct netlink_callback *cb, struct wfs_sb *wsb)
{
	u64 gen;
	void *hdr;
	u32 pid = wfs_session_pid(&gen);

	hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &wfs_family,
			  NLM_F_MULTI, WFS_GENL_CMD_MOUNTS);
	if (!hdr)
		return -EMSGSIZE;
	if (put_u64(skb, WFS_GENL_ATTR_MOUNT_ID, wsb->id) ||
	    nla_put_string(skb, WFS_GENL_ATTR_SOURCE, wsb->source) ||
	    nla_put_string(skb, WFS_GENL_ATTR_OPTIONS, wsb->text) ||
	    nla_put_u32(skb, WFS_GENL_ATTR_BLOCK_SIZE, 1U << wsb->opts.block_shift) ||
	    put_u64(skb, WFS_GENL_ATTR_NODES, atomic64_read(&wsb->nodes)) ||
	    put_u64(skb, WFS_GENL_ATTR_PENDING, wfs_req_outstanding(wsb)) ||
	    nla_put_u32(skb, WFS_GENL_ATTR_HELPER, pid)) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return 0;
}

static int dump_mounts(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct wfs_sb *wsb;
	u64 id = cb->args[0];
	int err = 0;

	while ((wsb = wfs_sb_next(id))) {
		err = put_mount(skb, cb, wsb);
		if (!err)
			id = wsb->id;
		wfs_sb_put(wsb);
		if (err)
			break;
	}
	cb->args[0] = id;
	/* One that does not fit into a message by itself must not end the list silently. */
	return err && !skb->len ? err : skb->len;
}

/* The mount a message names; NULL with *ret_err 0: it names none. */
static struct wfs_sb *named_mount(struct genl_info *info, int *ret_err)
{
	struct wfs_sb *wsb;

	*ret_err = 0;
	if (!info->attrs[WFS_GENL_ATTR_MOUNT_ID])
		return NULL;
	wsb = wfs_sb_find(nla_get_u64(info->attrs[WFS_GENL_ATTR_MOUNT_ID]));
	if (!wsb)
		*ret_err = -ENOENT;
	return wsb;
}

static u64 locked_bytes(void)
{
	struct wfs_sb *wsb;
	u64 bytes = 0, id = 0;

	while ((wsb = wfs_sb_next(id))) {
		bytes += atomic64_read(&wsb->locked);
		id = wsb->id;
		wfs_sb_put(wsb);
	}
	return bytes;
}

static int do_stats(struct sk_buff *in, struct genl_info *info)
{
	u64 stats[WFS_STAT_MAX], gen;
	struct sk_buff *skb;
	struct wfs_sb *wsb;
	u32 pid;
	void *hdr;
	int err;

	wsb = named_mount(info, &err);
	if (err)
		return err;
	wfs_stats_sum(wsb ? wsb->stats : wfs_stats, stats);
	stats[WFS_STAT_LOCKED_BYTES] = wsb ? atomic64_read(&wsb->locked) : locked_bytes();
	if (wsb)
		wfs_sb_put(wsb);
	pid = wfs_session_pid(&gen);
	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!skb)
		return -ENOMEM;
	hdr = genlmsg_put_reply(skb, info, &wfs_family, 0, WFS_GENL_CMD_STATS);
	if (!hdr || nla_put(skb, WFS_GENL_ATTR_STATS, sizeof(stats), stats) ||
	    nla_put_u32(skb, WFS_GENL_ATTR_HELPER, pid) ||
	    put_u64(skb, WFS_GENL_ATTR_SESSION, gen)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return genlmsg_reply(skb, info);
}

static int do_invalidate(struct sk_buff *in, struct genl_info *info)
{
	struct wfs_sb *wsb;
	int err;

	wsb = named_mount(info, &err);
	if (!wsb)
		return err ?: -EINVAL;
	wfs_sb_invalidate(wsb);
	wfs_sb_put(wsb);
	return 0;
}

static const struct genl_small_ops ops[] = {
	{
		.cmd = WFS_GENL_CMD_MOUNTS,
		.dumpit = dump_mounts,
	},
	{
		.cmd = WFS_GENL_CMD_STATS,
		.doit = do_stats,
	},
	{
		.cmd = WFS_GENL_CMD_INVALIDATE,
		.flags = GENL_ADMIN_PERM,
		.doit = do_invalidate,
	},
};

static const struct genl_multicast_group groups[] = {
	/* Events name files that not everybody may list. */
	{ .name = WFS_GENL_GROUP, .flags = GENL_MCAST_CAP_NET_ADMIN },
};

static struct genl_family wfs_family __ro_after_init = {
	.name = WFS_GENL_NAME,
	.version = WFS_GENL_VERSION,
	.maxattr = WFS_GENL_ATTR_MAX,
	.policy = policy,
	.module = THIS_MODULE,
	.small_ops = ops,
	.n_small_ops = ARRAY_SIZE(ops),
	.resv_start_op = WFS_GENL_CMD_EVENT + 1,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

/**
 * wfs_event() - tell whoever listens
 * @event: what happened
 * @mount: mount id or 0
 * @session: session generation or 0
 * @path: below the mount, or NULL
 * @text: or NULL
 *
 * Context: process; never fails the caller: without memory the event is lost.
 */
void wfs_event(enum wfs_event event, u64 mount, u64 session, const char *path, const char *text)
{
	struct sk_buff *skb;
	void *hdr;

	if (!genl_has_listeners(&wfs_family, &init_net, 0))
		return;
	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_NOFS);
	if (!skb)
		return;
	hdr = genlmsg_put(skb, 0, 0, &wfs_family, 0, WFS_GENL_CMD_EVENT);
	if (!hdr || nla_put_u32(skb, WFS_GENL_ATTR_EVENT, event) ||
	    (mount && put_u64(skb, WFS_GENL_ATTR_MOUNT_ID, mount)) ||
	    (session && put_u64(skb, WFS_GENL_ATTR_SESSION, session)) ||
	    (path && nla_put_string(skb, WFS_GENL_ATTR_PATH, path)) ||
	    (text && nla_put_string(skb, WFS_GENL_ATTR_TEXT, text))) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, hdr);
	genlmsg_multicast(&wfs_family, skb, 0, 0, GFP_NOFS);
}

int wfs_control_init(void)
{
	return genl_register_family(&wfs_family);
}

void wfs_control_exit(void)
{
	genl_unregister_family(&wfs_family);
}
