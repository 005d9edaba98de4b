// SPDX-License-Identifier: MIT
/*
 * uapi_access: who may serve, who may mount, and what a mount may bring.
 *
 *	uapi_access DIRECTORY	the stand-in serves; file:///x is mounted there
 *
 * Rights are taken away from a child: uapi_misuse and uapi_files have those who never had any.
 */
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include "chan.h"
#include "tap.h"

/* Takes a capability out of what is in effect, or puts it back. */
static void effective(int capability, bool have)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	uint32_t bit = 1U << capability % 32;

	if (syscall(SYS_capget, &head, data))
		bail("capget: %s", strerror(errno));
	if (have)
		data[capability / 32].effective |= bit;
	else
		data[capability / 32].effective &= ~bit;
	if (syscall(SYS_capset, &head, data))
		bail("capset: %s", strerror(errno));
}

static int hello(int fd)
{
	struct wfs_hello arg = {
		.protocol = WFS_PROTOCOL,
		.flags = WFS_HELLO_TAKEOVER,
		.features = WFS_FEATURES,
	};

	return chan_ioctl(fd, WFS_IOC_HELLO, &arg);
}

/* Opened without the right, used with it: as if the descriptor had been handed over. */
static int opener_without(void)
{
	int fd;

	effective(CAP_SYS_ADMIN, false);
	fd = chan_open();
	effective(CAP_SYS_ADMIN, true);
	return fd < 0 ? -EIO : hello(fd);
}

static int caller_without(void)
{
	int fd = chan_open();

	effective(CAP_SYS_ADMIN, false);
	return fd < 0 ? -EIO : hello(fd);
}

static int attach_opener_without(void)
{
	struct wfs_attach arg = { .session = 1 };
	int fd;

	effective(CAP_SYS_ADMIN, false);
	fd = chan_open();
	effective(CAP_SYS_ADMIN, true);
	return fd < 0 ? -EIO : chan_ioctl(fd, WFS_IOC_ATTACH, &arg);
}

static int mount_without(void)
{
	effective(CAP_SYS_ADMIN, false);
	return mount("file:///other", "/srv", "wfs", 0, "") ? -errno : 0;
}

static int mount_in_user_namespace(void)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -EIO;
	return mount("file:///other", "/srv", "wfs", 0, "") ? -errno : 0;
}

static int fsopen_in_user_namespace(void)
{
	int fd;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -EIO;
	/* Superblocks need the right in the first namespace; so must their making, or this. */
	fd = (int)syscall(SYS_fsopen, "wfs", 0);
	if (fd < 0)
		return -errno;
	syscall(SYS_fsconfig, fd, FSCONFIG_SET_STRING, "source", "file:///other", 0);
	return syscall(SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ? -errno : 0;
}

static int mount_with_suid(void)
{
	return mount("file:///other", "/srv", "wfs", 0, "mode=4555") ? -errno : 0;
}

static int in_child(int (*run)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(-run());
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

int main(int argc, char **argv)
{
	struct stat st;

	if (argc != 2)
		return 2;
	tap_begin();
	ok(!stat(WFS_DEVICE, &st) && S_ISCHR(st.st_mode) && (st.st_mode & 07777) == 0600 &&
		   !st.st_uid && !st.st_gid,
	   "the device is root's alone");
	is(in_child(caller_without), -EPERM, "HELLO by whoever has no CAP_SYS_ADMIN");
	is(in_child(opener_without), -EPERM, "HELLO on what somebody without it has opened");
	is(in_child(attach_opener_without), -EPERM,
	   "ATTACH on what somebody without it has opened");
	is(in_child(mount_without), -EPERM, "mount by whoever has no CAP_SYS_ADMIN");
	is(in_child(mount_in_user_namespace), -EPERM, "mount in a user namespace");
	is(in_child(fsopen_in_user_namespace), -EPERM, "  and a step at a time");
	is(in_child(mount_with_suid), -EINVAL, "a mode with set-user-ID is no option");
	ok(!stat(argv[1], &st) && !(st.st_mode & 06000), "  and nothing in a mount has it");
	return tap_end();
}
