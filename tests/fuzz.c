// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <wfs.h>
#include "fuzz.h"

static unsigned long *counters;
static uint64_t state;

void fuzz_init(void)
{
	counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counters == MAP_FAILED)
		exit(1);
}

void fuzz_count(enum fuzz_kind kind)
{
	__atomic_fetch_add(&counters[kind], 1, __ATOMIC_RELAXED);
}

void fuzz_report(void)
{
	unsigned long all = 0;

	for (int i = 0; i < FUZZ_KINDS; i++)
		all += counters[i];
	printf("executions %lu commands %lu replies %lu netlink %lu files %lu\n", all,
	       counters[FUZZ_COMMANDS], counters[FUZZ_REPLIES], counters[FUZZ_NETLINK],
	       counters[FUZZ_FILES]);
}

void fuzz_seed(uint64_t seed)
{
	state = seed * 0x9e3779b97f4a7c15ULL + 1;
}

uint64_t fuzz_next(void)
{
	uint64_t x = state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

uint64_t fuzz_below(uint64_t limit)
{
	return limit ? fuzz_next() % limit : 0;
}

bool fuzz_one_in(uint64_t n)
{
	return !fuzz_below(n);
}

uint64_t fuzz_value(uint64_t value)
{
	static const uint64_t edges[] = {
		0,	1,	    2,		7,	    8,		0x7f,	    0xff,
		0x1000, 0xffff,	    0x10000,	0x100000,   0x200000,	0x7fffffff, 0x80000000,
		~0U,	1ULL << 32, 1ULL << 48, ~0ULL >> 1, 1ULL << 63, ~0ULL,
	};

	switch (fuzz_below(5)) {
	case 0:
		return edges[fuzz_below(sizeof(edges) / sizeof(*edges))];
	case 1:
		return value + 1;
	case 2:
		return value - 1;
	case 3:
		return value ^ 1ULL << fuzz_below(64);
	default:
		return fuzz_next();
	}
}

void fuzz_bytes(void *to, size_t len)
{
	char *at = to;

	while (len) {
		uint64_t value = fuzz_next();
		size_t n = len < sizeof(value) ? len : sizeof(value);

		memcpy(at, &value, n);
		at += n;
		len -= n;
	}
}

void fuzz_mutate(void *bytes, size_t len)
{
	char *at = bytes;

	for (uint64_t times = 1 + fuzz_below(3); times && len; times--) {
		size_t width = 1UL << fuzz_below(4), place;
		uint64_t value = 0;

		if (width > len)
			width = 1;
		place = fuzz_below(len / width) * width;
		memcpy(&value, at + place, width);
		value = fuzz_value(value);
		memcpy(at + place, &value, width);
	}
}

void fuzz_pause(unsigned int ms)
{
	struct timespec ts = { 0, ms * 1000000L };

	nanosleep(&ts, NULL);
}

/* ---- files ---- */

bool fuzz_mounted(const char *dir)
{
	struct statfs st;

	return !statfs(dir, &st) && st.f_type == WFS_SUPER_MAGIC;
}

static sigjmp_buf fault_jump;

static void on_sigbus(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

static void touch(int fd)
{
	size_t len = 1 + fuzz_below(600000);
	volatile char *map =
		mmap(NULL, len, PROT_READ, fuzz_one_in(2) ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	volatile int times = (int)fuzz_below(5);

	if (map == MAP_FAILED)
		return;
	if (fuzz_one_in(3))
		madvise((void *)map, len, (int)fuzz_below(6));
	if (!sigsetjmp(fault_jump, 1))
		while (times-- > 0)
			(void)map[fuzz_below(len)];
	munmap((void *)map, len);
}

static void use_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | (fuzz_one_in(4) ? O_DIRECT : 0));
	static _Alignas(4096) char bytes[1 << 20];
	struct wfs_file_info info;
	struct wfs_prefetch range = { fuzz_below(300000), fuzz_below(300000) };

	if (fd < 0)
		return;
	for (uint64_t times = 1 + fuzz_below(4); times; times--) {
		switch (fuzz_below(8)) {
		case 0:
			(void)!pread(fd, bytes, 1 + fuzz_below(sizeof(bytes)),
				     (off_t)fuzz_below(600000));
			break;
		case 1:
			touch(fd);
			break;
		case 2:
			posix_fadvise(fd, (off_t)fuzz_below(300000), (off_t)fuzz_below(300000),
				      (int)fuzz_below(6));
			break;
		case 3:
			ioctl(fd, WFS_IOC_FILE_INFO, &info);
			break;
		case 4:
			ioctl(fd, WFS_IOC_PREFETCH, &range);
			break;
		case 5:
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			break;
		default:
			(void)!read(fd, bytes, 65536);
			break;
		}
	}
	close(fd);
}

static void use_directory(const char *path)
{
	DIR *dir = opendir(path);

	while (dir && readdir(dir))
		if (fuzz_one_in(40))
			rewinddir(dir);
	if (dir)
		closedir(dir);
}

static void drop(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	(void)!write(fd, fuzz_one_in(2) ? "1" : "2", 1);
	close(fd);
}

void fuzz_use(const char *dir, uint64_t times)
{
	static const char *const kinds[] = { "f", "d/f", "l", "none" };

	signal(SIGBUS, on_sigbus);
	while (times--) {
		struct stat st;
		char path[512], value[512];

		if (!fuzz_mounted(dir)) {
			fuzz_pause(100);
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s%u", dir, kinds[fuzz_below(4)],
			 (unsigned int)fuzz_below(FUZZ_NAMES));
		fuzz_count(FUZZ_FILES);
		switch (fuzz_below(8)) {
		case 0:
			lstat(path, &st);
			break;
		case 1:
			(void)!readlink(path, value, sizeof(value));
			break;
		case 2:
			use_directory(fuzz_one_in(2) ? dir : path);
			break;
		case 3:
			(void)!getxattr(path,
					fuzz_one_in(2) ? "user.wfs.cached" : "user.wfs.version",
					value, sizeof(value));
			break;
		case 4:
			if (fuzz_one_in(20))
				drop();
			break;
		default:
			use_file(path);
			break;
		}
	}
}

/* ---- netlink ---- */

static size_t put_attr(char *at, unsigned int type, const void *value, size_t len)
{
	struct nlattr attr = { (uint16_t)(sizeof(attr) + len), (uint16_t)type };

	if (fuzz_one_in(10))
		attr.nla_len = (uint16_t)fuzz_value(attr.nla_len);
	if (fuzz_one_in(10))
		attr.nla_type = (uint16_t)fuzz_value(type);
	memcpy(at, &attr, sizeof(attr));
	memcpy(at + sizeof(attr), value, len);
	return (sizeof(attr) + len + 3) & ~3UL;
}

static size_t make_message(char *at, int family)
{
	struct nlmsghdr nl = {
		.nlmsg_type = (uint16_t)family,
		.nlmsg_flags = NLM_F_REQUEST,
		.nlmsg_seq = (uint32_t)fuzz_next(),
	};
	struct genlmsghdr genl = { (uint8_t)fuzz_below(6), WFS_GENL_VERSION, 0 };
	size_t len = sizeof(nl) + sizeof(genl);
	uint64_t mount = fuzz_below(20);
	char text[256];

	if (genl.cmd == WFS_GENL_CMD_MOUNTS || fuzz_one_in(6))
		nl.nlmsg_flags |= NLM_F_DUMP;
	if (fuzz_one_in(2))
		nl.nlmsg_flags |= NLM_F_ACK;
	if (fuzz_one_in(3))
		len += put_attr(at + len, WFS_GENL_ATTR_MOUNT_ID, &mount, sizeof(mount));
	if (fuzz_one_in(3))
		len += put_attr(at + len, WFS_GENL_ATTR_PATH, "d/f1", 5);
	for (uint64_t more = fuzz_below(4); more; more--) {
		fuzz_bytes(text, sizeof(text));
		len += put_attr(at + len, (unsigned int)fuzz_below(WFS_GENL_ATTR_MAX + 3), text,
				fuzz_below(64));
	}
	nl.nlmsg_len = (uint32_t)len;
	memcpy(at, &nl, sizeof(nl));
	memcpy(at + sizeof(nl), &genl, sizeof(genl));
	if (fuzz_one_in(8))
		fuzz_mutate(at + sizeof(nl), len - sizeof(nl));
	if (fuzz_one_in(20)) {
		nl.nlmsg_len = (uint32_t)fuzz_value(len);
		memcpy(at, &nl, sizeof(nl));
	}
	return len;
}

void fuzz_netlink(void)
{
	struct nl_sock *sock = nl_socket_alloc();
	static _Alignas(8) char out[4096], in[65536];
	int family, fd;

	if (!sock || genl_connect(sock))
		exit(1);
	family = genl_ctrl_resolve(sock, WFS_GENL_NAME);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (family < 0 || fd < 0)
		exit(1);
	for (;;) {
		memset(out, 0, sizeof(out));
		send(fd, out, make_message(out, family), MSG_DONTWAIT);
		fuzz_count(FUZZ_NETLINK);
		while (recv(fd, in, sizeof(in), MSG_DONTWAIT) > 0)
			;
		fuzz_pause(2);
	}
}
