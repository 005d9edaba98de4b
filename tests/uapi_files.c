// SPDX-License-Identifier: MIT
/*
 * uapi_files: ioctls on what is in a mount, and the netlink family, asked as they should
 * be and as they should not.
 *
 *	uapi_files DIRECTORY FILE	FILE in DIRECTORY, of the mount file:///x
 */
#include <errno.h>
#include <fcntl.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <wfs.h>
#include "tap.h"

#define NOBODY 65534

static int ioctl_errno(int fd, unsigned long op, const void *arg)
{
	return ioctl(fd, op, arg) < 0 ? -errno : 0;
}

static int prefetch(int fd, uint64_t offset, uint64_t len)
{
	struct wfs_prefetch range = { .offset = offset, .len = len };

	return ioctl_errno(fd, WFS_IOC_PREFETCH, &range);
}

static void info_cases(int dir, int file, const char *name, uint64_t size)
{
	static struct wfs_file_info info;
	char version[256];
	ssize_t len;
	int fd;

	memset(&info, 0xff, sizeof(info));
	is(ioctl_errno(file, WFS_IOC_FILE_INFO, &info), 0, "FILE_INFO of a file");
	ok(info.mount && info.node && info.size == size, "  names mount, node and size");
	ok(info.path_len == strlen(name) && !memcmp(info.path, name, info.path_len),
	   "  and the path");
	ok(!info.path[info.path_len] && !info.path[sizeof(info.path) - 1] &&
		   !info.version[info.version_len] && !info.version[sizeof(info.version) - 1],
	   "  padded with zeros");
	len = fgetxattr(file, "user.wfs.version", version, sizeof(version));
	ok(len > 0 && (uint32_t)len == info.version_len &&
		   !memcmp(version, info.version, (size_t)len),
	   "  and the version, as the attribute has it");
	memset(&info, 0xff, sizeof(info));
	is(ioctl_errno(dir, WFS_IOC_FILE_INFO, &info), 0, "FILE_INFO of a directory");
	ok(!info.node && !info.size && !info.version_len && !info.path_len,
	   "  that has neither node nor version");
	is(ioctl_errno(file, WFS_IOC_FILE_INFO, (void *)8), -EFAULT, "FILE_INFO to a bad address");
	is(ioctl_errno(file, WFS_IOC_FILE_INFO, NULL), -EFAULT, "FILE_INFO to no address");
	is(ioctl_errno(file, _IO(WFS_IOC_MAGIC, 0x7f), NULL), -ENOTTY,
	   "an unknown ioctl of a file");
	is(ioctl_errno(dir, _IO(WFS_IOC_MAGIC, 0x7f), NULL), -ENOTTY,
	   "an unknown ioctl of a directory");
	is(ioctl_errno(file, WFS_IOC_DETACH, NULL), -ENOTTY, "an ioctl of the device");
	fd = openat(dir, name, O_PATH | O_CLOEXEC);
	is(ioctl_errno(fd, WFS_IOC_FILE_INFO, &info), -EBADF, "FILE_INFO by O_PATH");
	close(fd);
}

static void prefetch_cases(int dir, int file, uint64_t size)
{
	is(prefetch(file, 0, 0), 0, "PREFETCH of a whole file");
	is(prefetch(file, 0, size), 0, "PREFETCH of as much as there is");
	is(prefetch(file, size, 0), 0, "PREFETCH of nothing at the end");
	is(prefetch(file, size - 1, 1), 0, "PREFETCH of the last byte");
	is(prefetch(file, size + 1, 0), -EINVAL, "PREFETCH from beyond the end");
	is(prefetch(file, 0, size + 1), -EINVAL, "PREFETCH to beyond the end");
	is(prefetch(file, 1, size), -EINVAL, "PREFETCH over the end");
	is(prefetch(file, 1, ~0ULL), -EINVAL, "PREFETCH that wraps around");
	is(prefetch(file, ~0ULL, 2), -EINVAL, "PREFETCH from where no file reaches");
	is(prefetch(dir, 0, 0), -EISDIR, "PREFETCH of a directory");
	is(ioctl_errno(file, WFS_IOC_PREFETCH, (void *)8), -EFAULT, "PREFETCH with a bad address");
}

/* Netlink. */

struct answer {
	unsigned int messages;
	int error;
	bool done;
	uint64_t mount;
	uint32_t helper;
	size_t stats;
};

static int got_message(struct nl_msg *msg, void *arg)
{
	struct nlattr *attrs[WFS_GENL_ATTR_MAX + 1];
	struct answer *answer = arg;

	answer->messages++;
	if (genlmsg_parse(nlmsg_hdr(msg), 0, attrs, WFS_GENL_ATTR_MAX, NULL))
		return NL_SKIP;
	if (attrs[WFS_GENL_ATTR_MOUNT_ID])
		answer->mount = nla_get_u64(attrs[WFS_GENL_ATTR_MOUNT_ID]);
	if (attrs[WFS_GENL_ATTR_HELPER])
		answer->helper = nla_get_u32(attrs[WFS_GENL_ATTR_HELPER]);
	if (attrs[WFS_GENL_ATTR_STATS])
		answer->stats = (size_t)nla_len(attrs[WFS_GENL_ATTR_STATS]);
	return NL_OK;
}

static int got_error(struct sockaddr_nl *from, struct nlmsgerr *error, void *arg)
{
	struct answer *answer = arg;

	(void)from;
	answer->error = error->error;
	answer->done = true;
	return NL_STOP;
}

static int got_end(struct nl_msg *msg, void *arg)
{
	struct answer *answer = arg;

	(void)msg;
	answer->done = true;
	return NL_STOP;
}

/* Asks; build adds attributes. The result is the error that came back, or of connecting. */
static int ask(uint8_t cmd, int flags, void (*build)(struct nl_msg *msg), struct answer *ret)
{
	struct nl_sock *sock = nl_socket_alloc();
	struct nl_cb *cb = nl_cb_alloc(NL_CB_CUSTOM);
	struct nl_msg *msg = nlmsg_alloc();
	int family, r;

	if (!sock || !cb || !msg)
		bail("no memory");
	*ret = (struct answer){ 0 };
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, got_message, ret);
	nl_cb_set(cb, NL_CB_FINISH, NL_CB_CUSTOM, got_end, ret);
	nl_cb_set(cb, NL_CB_ACK, NL_CB_CUSTOM, got_end, ret);
	nl_cb_err(cb, NL_CB_CUSTOM, got_error, ret);
	r = genl_connect(sock);
	family = r < 0 ? r : genl_ctrl_resolve(sock, WFS_GENL_NAME);
	if (family >= 0) {
		genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, flags | NLM_F_ACK, cmd,
			    WFS_GENL_VERSION);
		if (build)
			build(msg);
		nl_send_auto(sock, msg);
		while (!ret->done && nl_recvmsgs(sock, cb) >= 0)
			;
	}
	nlmsg_free(msg);
	nl_cb_put(cb);
	nl_socket_free(sock);
	return family < 0 ? -ENOENT : ret->error;
}

static uint64_t mount_id;

static void put_mount(struct nl_msg *msg)
{
	nla_put_u64(msg, WFS_GENL_ATTR_MOUNT_ID, mount_id);
	nla_put_string(msg, WFS_GENL_ATTR_PATH, "some/name");
}

static void put_other_mount(struct nl_msg *msg)
{
	nla_put_u64(msg, WFS_GENL_ATTR_MOUNT_ID, mount_id + 1000);
	nla_put_string(msg, WFS_GENL_ATTR_PATH, "");
}

static void put_no_mount(struct nl_msg *msg)
{
	nla_put_u64(msg, WFS_GENL_ATTR_MOUNT_ID, 0);
}

static void put_short_mount(struct nl_msg *msg)
{
	nla_put_u32(msg, WFS_GENL_ATTR_MOUNT_ID, (uint32_t)mount_id);
}

static void put_open_path(struct nl_msg *msg)
{
	nla_put_u64(msg, WFS_GENL_ATTR_MOUNT_ID, mount_id);
	nla_put(msg, WFS_GENL_ATTR_PATH, 4, "path");
}

static void put_long_path(struct nl_msg *msg)
{
	static char path[WFS_PATH_MAX + 2];

	memset(path, 'x', sizeof(path) - 1);
	nla_put_u64(msg, WFS_GENL_ATTR_MOUNT_ID, mount_id);
	nla_put_string(msg, WFS_GENL_ATTR_PATH, path);
}

static int status_of(void (*f)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		f();
		_exit(99);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		bail("a child did not end as it should");
	return -WEXITSTATUS(status);
}

static void invalidate_as_nobody(void)
{
	struct answer answer;

	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(98);
	_exit(-ask(WFS_GENL_CMD_INVALIDATE, 0, put_mount, &answer));
}

static void stats_elsewhere(void)
{
	struct answer answer;

	if (unshare(CLONE_NEWNET))
		_exit(98);
	_exit(-ask(WFS_GENL_CMD_STATS, 0, NULL, &answer));
}

static void netlink_cases(void)
{
	struct answer answer;

	is(ask(WFS_GENL_CMD_MOUNTS, NLM_F_DUMP, NULL, &answer), 0, "MOUNTS");
	ok(answer.messages == 1 && answer.mount && answer.helper, "  lists the mount");
	mount_id = answer.mount;
	is(ask(WFS_GENL_CMD_STATS, 0, NULL, &answer), 0, "STATS");
	ok(answer.messages == 1 && answer.stats == WFS_STAT_MAX * sizeof(uint64_t),
	   "  has as many counters as the header");
	is(ask(WFS_GENL_CMD_STATS, 0, put_mount, &answer), 0, "STATS of the mount");
	is(ask(WFS_GENL_CMD_STATS, 0, put_other_mount, &answer), -ENOENT, "STATS of no mount");
	is(ask(WFS_GENL_CMD_STATS, 0, put_no_mount, &answer), -ENOENT, "STATS of mount 0");
	is(ask(WFS_GENL_CMD_STATS, 0, put_short_mount, &answer), -EINVAL, "STATS with half an id");
	is(ask(WFS_GENL_CMD_INVALIDATE, 0, put_mount, &answer), 0, "INVALIDATE");
	is(ask(WFS_GENL_CMD_INVALIDATE, 0, NULL, &answer), -EINVAL, "INVALIDATE of nothing");
	is(ask(WFS_GENL_CMD_INVALIDATE, 0, put_other_mount, &answer), -ENOENT,
	   "INVALIDATE in no mount");
	is(ask(WFS_GENL_CMD_INVALIDATE, 0, put_open_path, &answer), -EINVAL,
	   "INVALIDATE of a path without its end");
	is(ask(WFS_GENL_CMD_INVALIDATE, 0, put_long_path, &answer), -EINVAL,
	   "INVALIDATE of a path too long");
	is(status_of(invalidate_as_nobody), -EPERM, "INVALIDATE by nobody");
	is(status_of(stats_elsewhere), -ENOENT, "the family in another network namespace");
	is(ask(WFS_GENL_CMD_EVENT, 0, NULL, &answer), -EOPNOTSUPP, "EVENT is not for asking");
	is(ask(99, 0, NULL, &answer), -EOPNOTSUPP, "an unknown command");
}

int main(int argc, char **argv)
{
	struct stat st;
	int dir, file;

	if (argc != 3) {
		fprintf(stderr, "usage: uapi_files DIRECTORY FILE\n");
		return 2;
	}
	tap_begin();
	dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	file = openat(dir, argv[2], O_RDONLY | O_CLOEXEC);
	if (dir < 0 || file < 0 || fstat(file, &st))
		bail("%s/%s: %s", argv[1], argv[2], strerror(errno));
	info_cases(dir, file, argv[2], (uint64_t)st.st_size);
	prefetch_cases(dir, file, (uint64_t)st.st_size);
	netlink_cases();
	return tap_end();
}
