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

static const struct {
	const char *name, *help;
} stats[WFS_STAT_MAX] = {
	[WFS_STAT_READ_BYTES] = { "read_bytes", "Bytes given to read and splice" },
	[WFS_STAT_READS] = { "reads", "Calls of read and splice" },
	[WFS_STAT_NVME_READS] = { "nvme_reads", "Reads of cache files" },
	[WFS_STAT_NVME_BYTES] = { "nvme_bytes", "Bytes read from cache files" },
	[WFS_STAT_FILL_REQUESTS] = { "fill_requests", "Blocks asked of the daemon" },
	[WFS_STAT_FILL_AGAIN] = { "fill_again", "Blocks asked in part, after they were delivered" },
	[WFS_STAT_DELIVER_BYTES] = { "deliver_bytes", "Bytes delivered to who waited" },
	[WFS_STAT_DELIVER_UNUSED] = { "deliver_unused", "Bytes delivered with nobody waiting" },
	[WFS_STAT_OFFER_BYTES] = { "offer_bytes", "Bytes of dropped blocks, kept in memory" },
	[WFS_STAT_STORED] = { "stored", "Blocks stored" },
	[WFS_STAT_DROPPED] = { "dropped", "Blocks not stored" },
	[WFS_STAT_EVICTED] = { "evicted", "Blocks evicted" },
	[WFS_STAT_CORRUPT] = { "corrupt", "Reads of cached blocks that failed their check" },
	[WFS_STAT_FAULTS] = { "faults", "Page faults that missed the page cache" },
	[WFS_STAT_RANDOM_FAULTS] = { "random_faults", "Of these, answered with 64 KiB" },
	[WFS_STAT_LOOKUPS] = { "lookups", "Questions about names" },
	[WFS_STAT_READDIRS] = { "readdirs", "Pages of directories asked for" },
	[WFS_STAT_STALE] = { "stale", "Names served past their time" },
	[WFS_STAT_TIMEOUTS] = { "timeouts", "Requests ended by their deadline" },
	[WFS_STAT_ERRORS] = { "errors", "Folios that failed" },
	[WFS_STAT_SESSIONS] = { "sessions", "Sessions of daemons" },
	[WFS_STAT_LOCKED_BYTES] = { "locked_bytes", "Bytes of folios locked in flight" },
	[WFS_STAT_SERVED_PAGES_READS] = { "served_pages_reads",
					  "Reads answered from the page cache alone" },
	[WFS_STAT_SERVED_PAGES_BYTES] = { "served_pages_bytes",
					  "Bytes given to read, read before" },
	[WFS_STAT_SERVED_NVME_READS] = { "served_nvme_reads",
					 "Reads answered from cache files, none by the daemon" },
	[WFS_STAT_SERVED_NVME_BYTES] = { "served_nvme_bytes",
					 "Bytes given to read, new from cache files" },
	[WFS_STAT_SERVED_HELPER_READS] = { "served_helper_reads",
					   "Reads answered by the daemon, at least in part" },
	[WFS_STAT_SERVED_HELPER_BYTES] = { "served_helper_bytes",
					   "Bytes given to read, new from the daemon" },
	[WFS_STAT_NVME_FAULTS] = { "nvme_faults", "Page faults answered from cache files" },
	[WFS_STAT_HELPER_FAULTS] = { "helper_faults", "Page faults answered by the daemon" },
};

const char *control_stat_name(unsigned int stat)
{
	return stat < WFS_STAT_MAX && stats[stat].name ? stats[stat].name : "unknown";
}

const char *control_stat_help(unsigned int stat)
{
	return stat < WFS_STAT_MAX && stats[stat].help ? stats[stat].help : "";
}

bool control_stat_rises(unsigned int stat)
{
	return stat != WFS_STAT_LOCKED_BYTES;
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
	const struct nlattr *values = attrs[WFS_GENL_ATTR_STATS];
	size_t len = values ? (size_t)nla_len(values) : 0;

	if (header->cmd != WFS_GENL_CMD_STATS)
		return;
	control->stats->helper = control_u32(attrs, WFS_GENL_ATTR_HELPER);
	control->stats->session = control_u64(attrs, WFS_GENL_ATTR_SESSION);
	if (len > sizeof(control->stats->values))
		len = sizeof(control->stats->values);
	if (len)
		memcpy(control->stats->values, nla_data(values), len);
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
