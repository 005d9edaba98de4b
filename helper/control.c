// SPDX-License-Identifier: MIT
#include "control.h"

#include <errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

struct control {
	struct nl_sock *sock;
	int family;
	int error; /* of the answer being read */
	void (*message)(struct control *control, struct genlmsghdr *header, struct nlattr **attrs);
	union {
		control_mount_fn mount;
		control_event_fn event;
	} fn;
	void *arg;
	struct control_stats *stats;
	bool done;
};

static const char *const stat_names[WFS_STAT_MAX] = {
	[WFS_STAT_READ_BYTES] = "read_bytes",
	[WFS_STAT_READS] = "reads",
	[WFS_STAT_NVME_READS] = "nvme_reads",
	[WFS_STAT_NVME_BYTES] = "nvme_bytes",
	[WFS_STAT_FILL_REQUESTS] = "fill_requests",
	[WFS_STAT_FILL_AGAIN] = "fill_again",
	[WFS_STAT_DELIVER_BYTES] = "deliver_bytes",
	[WFS_STAT_DELIVER_UNUSED] = "deliver_unused",
	[WFS_STAT_OFFER_BYTES] = "offer_bytes",
	[WFS_STAT_STORED] = "stored",
	[WFS_STAT_DROPPED] = "dropped",
	[WFS_STAT_EVICTED] = "evicted",
	[WFS_STAT_CORRUPT] = "corrupt",
	[WFS_STAT_FAULTS] = "faults",
	[WFS_STAT_RANDOM_FAULTS] = "random_faults",
	[WFS_STAT_LOOKUPS] = "lookups",
	[WFS_STAT_READDIRS] = "readdirs",
	[WFS_STAT_STALE] = "stale",
	[WFS_STAT_TIMEOUTS] = "timeouts",
	[WFS_STAT_ERRORS] = "errors",
	[WFS_STAT_SESSIONS] = "sessions",
	[WFS_STAT_LOCKED_BYTES] = "locked_bytes",
	[WFS_STAT_SERVED_PAGES_READS] = "served_pages_reads",
	[WFS_STAT_SERVED_PAGES_BYTES] = "served_pages_bytes",
	[WFS_STAT_SERVED_NVME_READS] = "served_nvme_reads",
	[WFS_STAT_SERVED_NVME_BYTES] = "served_nvme_bytes",
	[WFS_STAT_SERVED_HELPER_READS] = "served_helper_reads",
	[WFS_STAT_SERVED_HELPER_BYTES] = "served_helper_bytes",
	[WFS_STAT_NVME_FAULTS] = "nvme_faults",
	[WFS_STAT_HELPER_FAULTS] = "helper_faults",
};

const char *control_stat_name(unsigned int stat)
{
	return stat < WFS_STAT_MAX && stat_names[stat] ? stat_names[stat] : "unknown";
}

const char *control_event_name(uint32_t event)
{
	switch (event) {
	case WFS_EVENT_MOUNT:
		return "mount";
	case WFS_EVENT_UNMOUNT:
		return "unmount";
	case WFS_EVENT_SESSION:
		return "session";
	case WFS_EVENT_SESSION_END:
		return "session-end";
	case WFS_EVENT_CORRUPT:
		return "corrupt";
	case WFS_EVENT_TIMEOUT:
		return "timeout";
	case WFS_EVENT_STALE:
		return "stale";
	default:
		return "unknown";
	}
}

static int control_errno(int nl)
{
	switch (-nl) {
	case NLE_SUCCESS:
		return 0;
	case NLE_OBJ_NOTFOUND:
		return -ENOENT;
	case NLE_PERM:
	case NLE_NOACCESS:
		return -EPERM;
	case NLE_NOMEM:
		return -ENOMEM;
	case NLE_INVAL:
		return -EINVAL;
	case NLE_INTR:
		return -EINTR;
	default:
		return -EIO;
	}
}

static int control_valid(struct nl_msg *msg, void *arg)
{
	struct control *control = arg;
	struct nlattr *attrs[WFS_GENL_ATTR_MAX + 1];
	struct nlmsghdr *header = nlmsg_hdr(msg);

	if (header->nlmsg_type != control->family ||
	    genlmsg_parse(header, 0, attrs, WFS_GENL_ATTR_MAX, NULL) < 0)
		return NL_SKIP;
	if (control->message)
		control->message(control, genlmsg_hdr(header), attrs);
	return NL_OK;
}

static int control_failed(struct sockaddr_nl *address, struct nlmsgerr *error, void *arg)
{
	struct control *control = arg;

	(void)address;
	control->error = error->error;
	control->done = true;
	return NL_STOP;
}

static int control_finished(struct nl_msg *msg, void *arg)
{
	struct control *control = arg;

	(void)msg;
	control->done = true;
	return NL_STOP;
}

int control_open(struct control **ret)
{
	struct control *control = calloc(1, sizeof(*control));
	int r;

	if (!control)
		return -ENOMEM;
	control->sock = nl_socket_alloc();
	if (!control->sock) {
		free(control);
		return -ENOMEM;
	}
	r = genl_connect(control->sock);
	if (!r) {
		r = genl_ctrl_resolve(control->sock, WFS_GENL_NAME);
		control->family = r;
		r = r < 0 ? r : 0;
	}
	if (r) {
		control_close(control);
		return r == -NLE_OBJ_NOTFOUND ? -ENOENT : control_errno(r);
	}
	nl_socket_modify_cb(control->sock, NL_CB_VALID, NL_CB_CUSTOM, control_valid, control);
	nl_socket_modify_cb(control->sock, NL_CB_FINISH, NL_CB_CUSTOM, control_finished, control);
	nl_socket_modify_cb(control->sock, NL_CB_ACK, NL_CB_CUSTOM, control_finished, control);
	nl_socket_modify_err_cb(control->sock, NL_CB_CUSTOM, control_failed, control);
	*ret = control;
	return 0;
}

void control_close(struct control *control)
{
	if (!control)
		return;
	nl_socket_free(control->sock);
	free(control);
}

/* Sends a command and reads until the kernel says that this was all. */
static int control_ask(struct control *control, int command, int flags, uint64_t mount,
		       const char *path)
{
	struct nl_msg *msg = nlmsg_alloc();
	int r = 0;

	if (!msg)
		return -ENOMEM;
	if (!genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, control->family, 0, flags,
			 (uint8_t)command, WFS_GENL_VERSION))
		r = -NLE_NOMEM;
	if (!r && mount)
		r = nla_put_u64(msg, WFS_GENL_ATTR_MOUNT_ID, mount);
	if (!r && path)
		r = nla_put_string(msg, WFS_GENL_ATTR_PATH, path);
	control->error = 0;
	control->done = false;
	if (!r)
		r = nl_send_auto(control->sock, msg);
	nlmsg_free(msg);
	while (r >= 0 && !control->done)
		r = nl_recvmsgs_default(control->sock);
	if (control->error)
		return control->error;
	return r < 0 ? control_errno(r) : 0;
}

static uint64_t control_u64(struct nlattr **attrs, int attr)
{
	return attrs[attr] ? nla_get_u64(attrs[attr]) : 0;
}

static uint32_t control_u32(struct nlattr **attrs, int attr)
{
	return attrs[attr] ? nla_get_u32(attrs[attr]) : 0;
}

static const char *control_string(struct nlattr **attrs, int attr)
{
	const char *text = attrs[attr] ? nla_data(attrs[attr]) : NULL;

	/* Not trusted to end with a NUL. */
	return text && memchr(text, '\0', (size_t)nla_len(attrs[attr])) ? text : NULL;
}

static void control_mount_message(struct control *control, struct genlmsghdr *header,
				  struct nlattr **attrs)
{
	struct control_mount mount = {
		.id = control_u64(attrs, WFS_GENL_ATTR_MOUNT_ID),
		.source = control_string(attrs, WFS_GENL_ATTR_SOURCE),
		.options = control_string(attrs, WFS_GENL_ATTR_OPTIONS),
		.block_size = control_u32(attrs, WFS_GENL_ATTR_BLOCK_SIZE),
		.nodes = control_u64(attrs, WFS_GENL_ATTR_NODES),
		.pending = control_u64(attrs, WFS_GENL_ATTR_PENDING),
		.helper = control_u32(attrs, WFS_GENL_ATTR_HELPER),
	};

	if (header->cmd != WFS_GENL_CMD_MOUNTS)
		return;
	if (!mount.source)
		mount.source = "";
	if (!mount.options)
		mount.options = "";
	control->fn.mount(control->arg, &mount);
}

int control_mounts(struct control *control, control_mount_fn fn, void *arg)
{
	control->message = control_mount_message;
	control->fn.mount = fn;
	control->arg = arg;
	return control_ask(control, WFS_GENL_CMD_MOUNTS, NLM_F_DUMP, 0, NULL);
}

static void control_stats_message(struct control *control, struct genlmsghdr *header,
				  struct nlattr **attrs)
{
	const struct nlattr *stats = attrs[WFS_GENL_ATTR_STATS];
	size_t len = stats ? (size_t)nla_len(stats) : 0;

	if (header->cmd != WFS_GENL_CMD_STATS)
		return;
	control->stats->helper = control_u32(attrs, WFS_GENL_ATTR_HELPER);
	control->stats->session = control_u64(attrs, WFS_GENL_ATTR_SESSION);
	if (len > sizeof(control->stats->values))
		len = sizeof(control->stats->values);
	if (len)
		memcpy(control->stats->values, nla_data(stats), len);
}

int control_stats(struct control *control, uint64_t mount, struct control_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	control->message = control_stats_message;
	control->stats = ret;
	return control_ask(control, WFS_GENL_CMD_STATS, NLM_F_ACK, mount, NULL);
}

int control_invalidate(struct control *control, uint64_t mount, const char *path)
{
	control->message = NULL;
	return control_ask(control, WFS_GENL_CMD_INVALIDATE, NLM_F_ACK, mount, path);
}

static void control_event_message(struct control *control, struct genlmsghdr *header,
				  struct nlattr **attrs)
{
	struct control_event event = {
		.event = control_u32(attrs, WFS_GENL_ATTR_EVENT),
		.mount = control_u64(attrs, WFS_GENL_ATTR_MOUNT_ID),
		.session = control_u64(attrs, WFS_GENL_ATTR_SESSION),
		.path = control_string(attrs, WFS_GENL_ATTR_PATH),
		.text = control_string(attrs, WFS_GENL_ATTR_TEXT),
	};

	if (!event.text)
		event.text = control_string(attrs, WFS_GENL_ATTR_SOURCE);
	if (header->cmd == WFS_GENL_CMD_EVENT && !control->fn.event(control->arg, &event))
		control->done = true;
}

int control_events(struct control *control, control_event_fn fn, void *arg)
{
	int group = genl_ctrl_resolve_grp(control->sock, WFS_GENL_NAME, WFS_GENL_GROUP);
	int r = group < 0 ? group : nl_socket_add_membership(control->sock, group);

	if (r < 0)
		return control_errno(r);
	nl_socket_disable_seq_check(control->sock);
	control->message = control_event_message;
	control->fn.event = fn;
	control->arg = arg;
	control->done = false;
	while (!control->done) {
		r = nl_recvmsgs_default(control->sock);
		/* Events were lost: those that follow still count. */
		if (r < 0 && r != -NLE_NOMEM && r != -NLE_INTR && r != -NLE_AGAIN)
			return control_errno(r);
	}
	return 0;
}
