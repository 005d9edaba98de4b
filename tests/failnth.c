// SPDX-License-Identifier: MIT
/*
 * failnth: does one thing again and again, and lets the kernel fail the first, the second,
 * ... of what can fail in it, until nothing is left to fail; then it must succeed.
 *
 *	failnth [-s STRIDE] MODULE DIRECTORY OPERATION...
 *
 * STRIDE leaves steps out: the first is done, and each STRIDEth from there.
 *
 * MODULE is a file with the module, DIRECTORY the mount point. Operations that need a mount
 * find the stand-in's files there: f0 f1 ... and l0 l1 ... to be looked up once each, c0 c1
 * ... of 300000 bytes to be read once each, w that is cached, and the directory d.
 */
#include <linux/magic.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include "chan.h"
#include "failnth.h"
#include "tap.h"

#define MOST 3000 /* steps, beyond which something is wrong */
#define COLD 300000

static int fail_fd;
static unsigned int nth; /* 0: nothing is to fail */
static bool failed;
static const char *module_path, *mount_point;
static unsigned int fresh; /* number of the next file that nobody has touched */
static int netlink_fd = -1, netlink_family;

static void begin(void)
{
	if (nth)
		failnth_begin(fail_fd, nth);
}

static void end(void)
{
	failed = nth ? failnth_end(fail_fd) : false;
}

static int result(long r)
{
	return r < 0 ? -errno : 0;
}

static const char *path_of(const char *kind)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s%u", mount_point, kind, fresh++);
	return path;
}

static const char *name_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", mount_point, name);
	return path;
}

/* ---- without a helper ---- */

static int do_load(void)
{
	int fd = open(module_path, O_RDONLY | O_CLOEXEC), r;

	begin();
	r = result(syscall(SYS_finit_module, fd, "", 0));
	end();
	close(fd);
	if (!r && syscall(SYS_delete_module, "wfs", O_NONBLOCK))
		bail("the module does not unload: %s", strerror(errno));
	return r;
}

/* A whole session, from the first open of the device to its close. */
static int do_session(void)
{
	struct wfs_hello hello = { .protocol = WFS_PROTOCOL, .features = WFS_FEATURES };
	struct wfs_attach attach = { .slots = 2 };
	static char memory[65536] __attribute__((aligned(4096)));
	struct wfs_buffers buffers = { .addr = (uintptr_t)memory, .len = sizeof(memory) };
	static _Alignas(8) char room[WFS_SLOT_SIZE];
	struct wfs_fetch fetch = {
		.flags = WFS_FETCH_NONBLOCK,
		.max = 1,
		.addr = (uintptr_t)room,
		.len = sizeof(room),
	};
	int fd, wfd = -1, r;
	void *map;

	memset(memory, 1, sizeof(memory));
	memset(room, 1, sizeof(room));
	begin();
	fd = chan_open();
	r = fd < 0 ? fd : chan_ioctl(fd, WFS_IOC_HELLO, &hello);
	if (!r)
		r = chan_ioctl(fd, WFS_IOC_BUFFERS, &buffers);
	if (!r)
		wfd = r = chan_open();
	attach.session = fetch.session = hello.session;
	if (r >= 0)
		r = chan_ioctl(wfd, WFS_IOC_ATTACH, &attach);
	if (!r) {
		map = mmap(NULL, WFS_SLOT_SIZE, PROT_READ, MAP_SHARED, wfd, 0);
		r = map == MAP_FAILED ? -errno : 0;
	}
	if (!r) {
		munmap(map, WFS_SLOT_SIZE);
		r = chan_ioctl(wfd, WFS_IOC_FETCH, &fetch);
		/* That all has been resumed, if it was not told already. */
		r = r == -EAGAIN || r > 0 ? 0 : r;
	}
	if (wfd >= 0)
		close(wfd);
	if (fd >= 0)
		close(fd);
	end();
	return r;
}

/* ---- mounts and names ---- */

static int do_mount(void)
{
	int r;

	begin();
	r = result(mount("file:///nth", mount_point, "wfs", 0, "block=128K"));
	end();
	if (!r && umount(mount_point))
		bail("cannot unmount: %s", strerror(errno));
	return r;
}

static int do_umount(void)
{
	int r;

	if (mount("file:///nth", mount_point, "wfs", 0, "block=128K"))
		bail("cannot mount: %s", strerror(errno));
	stat(path_of("f"), &(struct stat){ 0 });
	begin();
	r = result(umount(mount_point));
	end();
	if (r && umount(mount_point))
		bail("cannot unmount: %s", strerror(errno));
	return r;
}

static int stat_path(const char *path)
{
	struct stat st;
	int r;

	begin();
	r = result(lstat(path, &st));
	end();
	return r;
}

static int do_lookup(void)
{
	return stat_path(path_of("f"));
}

static int do_absent(void)
{
	int r = stat_path(path_of("none"));

	return r == -ENOENT ? 0 : r ? r : -EEXIST;
}

/* Names of this mount are asked again each time. */
static int do_stat(void)
{
	return stat_path(name_of("w"));
}

static int do_readlink(void)
{
	const char *path = path_of("l");
	char target[256];
	int r;

	begin();
	r = result(readlink(path, target, sizeof(target)));
	end();
	return r;
}

static int do_readdir(void)
{
	int fd = open(name_of("d"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static char entries[65536];
	int r, n = 0;

	begin();
	while ((r = result(syscall(SYS_getdents64, fd, entries, sizeof(entries)))) == 0 && n++ < 1)
		;
	end();
	close(fd);
	return fd < 0 ? -EBADF : r;
}

static int do_open(void)
{
	const char *path = name_of("w");
	int fd;

	begin();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	else
		fd = -errno;
	end();
	return fd < 0 ? fd : 0;
}

/* ---- bytes ---- */

static int read_file(const char *path, bool warm)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;
	static char bytes[65536];

	if (warm)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	memset(bytes, 1, sizeof(bytes));
	begin();
	r = result(pread(fd, bytes, sizeof(bytes), 65536));
	end();
	close(fd);
	return fd < 0 ? -EBADF : r;
}

static int do_read_cold(void)
{
	return read_file(path_of("c"), false);
}

static int do_read_warm(void)
{
	return read_file(name_of("w"), true);
}

static sigjmp_buf fault_jump;

static void on_sigbus(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

static int fault_file(const char *path, bool warm, int advice)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	volatile char *map;
	volatile int r = 0;

	if (warm)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	map = mmap(NULL, COLD, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -errno;
	madvise((void *)map, COLD, advice);
	if (sigsetjmp(fault_jump, 1)) {
		r = -EFAULT;
	} else {
		begin();
		(void)map[70000];
	}
	end();
	munmap((void *)map, COLD);
	return r;
}

static int do_fault_cold(void)
{
	return fault_file(path_of("c"), false, MADV_NORMAL);
}

static int do_fault_random(void)
{
	return fault_file(path_of("c"), false, MADV_RANDOM);
}

static int do_fault_warm(void)
{
	return fault_file(name_of("w"), true, MADV_NORMAL);
}

static int do_mmap(void)
{
	int fd = open(name_of("w"), O_RDONLY | O_CLOEXEC), r;
	void *map;

	begin();
	map = mmap(NULL, COLD, PROT_READ, MAP_SHARED, fd, 0);
	r = map == MAP_FAILED ? -errno : 0;
	end();
	if (map != MAP_FAILED)
		munmap(map, COLD);
	close(fd);
	return r;
}

static int do_prefetch(void)
{
	int fd = open(path_of("c"), O_RDONLY | O_CLOEXEC), r;
	struct wfs_prefetch all = { 0 };

	begin();
	r = result(ioctl(fd, WFS_IOC_PREFETCH, &all));
	end();
	close(fd);
	return fd < 0 ? -EBADF : r;
}

static int do_info(void)
{
	int fd = open(path_of("c"), O_RDONLY | O_CLOEXEC), r;
	static struct wfs_file_info info;

	memset(&info, 1, sizeof(info));
	begin();
	r = result(ioctl(fd, WFS_IOC_FILE_INFO, &info));
	end();
	close(fd);
	return fd < 0 ? -EBADF : r;
}

static int do_xattr(void)
{
	const char *path = name_of("w");
	char value[64];
	int r;

	begin();
	r = result(getxattr(path, "user.wfs.cached", value, sizeof(value)));
	end();
	return r;
}

/* ---- netlink ---- */

static void netlink_open(void)
{
	struct nl_sock *sock = nl_socket_alloc();

	if (!sock || genl_connect(sock))
		bail("no netlink");
	netlink_family = genl_ctrl_resolve(sock, WFS_GENL_NAME);
	nl_socket_free(sock);
	if (netlink_family < 0)
		bail("no netlink family");
	netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
}

static int netlink_ask(uint8_t cmd, uint16_t flags)
{
	struct {
		struct nlmsghdr nl;
		struct genlmsghdr genl;
	} ask = {
		.nl = { sizeof(ask), (uint16_t)netlink_family, NLM_F_REQUEST | flags, 1, 0 },
		.genl = { cmd, WFS_GENL_VERSION, 0 },
	};
	static char answer[65536];
	const struct nlmsghdr *nl = (const struct nlmsghdr *)answer;
	int r;

	memset(answer, 0, sizeof(answer));
	begin();
	r = result(send(netlink_fd, &ask, sizeof(ask), 0));
	if (!r)
		r = result(recv(netlink_fd, answer, sizeof(answer), 0));
	end();
	if (!r && nl->nlmsg_type == NLMSG_ERROR)
		r = ((const struct nlmsgerr *)NLMSG_DATA(nl))->error;
	/* What is left of an answer that was not taken. */
	while (recv(netlink_fd, answer, sizeof(answer), MSG_DONTWAIT) > 0)
		;
	return r;
}

static int do_stats(void)
{
	return netlink_ask(WFS_GENL_CMD_STATS, 0);
}

static int do_mounts(void)
{
	return netlink_ask(WFS_GENL_CMD_MOUNTS, NLM_F_DUMP);
}

static const struct {
	const char *name;
	int (*run)(void);
} operations[] = {
	{ "load", do_load },
	{ "session", do_session },
	{ "mount", do_mount },
	{ "umount", do_umount },
	{ "lookup", do_lookup },
	{ "absent", do_absent },
	{ "stat", do_stat },
	{ "readlink", do_readlink },
	{ "readdir", do_readdir },
	{ "open", do_open },
	{ "read_cold", do_read_cold },
	{ "read_warm", do_read_warm },
	{ "fault_cold", do_fault_cold },
	{ "fault_random", do_fault_random },
	{ "fault_warm", do_fault_warm },
	{ "mmap", do_mmap },
	{ "prefetch", do_prefetch },
	{ "info", do_info },
	{ "xattr", do_xattr },
	{ "stats", do_stats },
	{ "mounts", do_mounts },
};

/* Does it with each failure in turn, then without any. */
static void loop(const char *name, int (*run)(void), unsigned int stride)
{
	unsigned int errors = 0, steps = 0;
	int r;

	fresh = 0;
	for (nth = 1; nth < MOST; nth += stride, steps++) {
		r = run();
		if (!failed)
			break;
		errors += r < 0;
		if (steps % 100 == 99)
			printf("# %s: %u steps so far\n", name, steps + 1);
	}
	printf("# %s: %u steps, %u of them seen as an error\n", name, steps, errors);
	ok(nth > 1 && nth < MOST, "%s: what can fail is failed in turn", name);
	nth = 0;
	is(run(), 0, "%s: works afterwards", name);
}

int main(int argc, char **argv)
{
	size_t n = sizeof(operations) / sizeof(*operations), j;
	unsigned int stride = 1;
	int option;

	while ((option = getopt(argc, argv, "s:")) != -1) {
		if (option != 's')
			return 2;
		stride = (unsigned int)strtoul(optarg, NULL, 0);
	}
	argc -= optind;
	argv += optind;
	if (argc < 3 || !stride)
		return 2;
	module_path = argv[0];
	mount_point = argv[1];
	tap_begin();
	fail_fd = failnth_open();
	if (fail_fd < 0)
		bail("no fail-nth in this kernel");
	signal(SIGBUS, on_sigbus);
	for (int i = 2; i < argc; i++) {
		for (j = 0; j < n && strcmp(operations[j].name, argv[i]);)
			j++;
		if (j == n)
			bail("no such operation: %s", argv[i]);
		if (netlink_fd < 0 && strcmp(argv[i], "load"))
			netlink_open();
		loop(argv[i], operations[j].run, stride);
	}
	return tap_end();
}
