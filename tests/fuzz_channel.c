// SPDX-License-Identifier: MIT
/*
 * fuzz_channel: a helper that says right, nearly right and random things, beside programs
 * that use a mount, mount, and talk to the netlink family. Nothing may come of it but
 * errors.
 *
 *	fuzz_channel [-s SEED] [-t SECONDS] MOUNT_POINT OTHER_MOUNT_POINT CACHE_DIRECTORY
 *
 * Each process has its own sequence, made of the seed, its part and how often that began
 * before: the same seed makes the same sequences, in another order among each other.
 * Ends with "executions N" and the shares; exit status 1 if a process cannot be killed.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include "chan.h"
#include "fuzz.h"
#include "standin_files.h"

#define MEMORY (4u << 20)
#define SLOTS  4
#define SEEN   64

static struct chan chan = { .fd = -1, .wfd = -1 };
static const char *cache_dir;

/* What requests have named, for commands that name it again. */
static struct wfs_request seen[SEEN];
static size_t seen_count;

/* ---- the helper ---- */

int standin_send(const struct wfs_cmd *cmd)
{
	struct wfs_cmd copy = *cmd;

	if (fuzz_one_in(20))
		fuzz_mutate(&copy, sizeof(copy));
	fuzz_count(FUZZ_COMMANDS);
	return chan_ioctl_cmd(&chan, &copy);
}

char *standin_memory(size_t *ret_len)
{
	*ret_len = chan.memory_len;
	return chan.memory;
}

uint64_t standin_session(void)
{
	return chan.session;
}

static const struct wfs_request *any_seen(void)
{
	static const struct wfs_request none = { .id = 1, .node = 1, .mount = 1 };

	return seen_count ? &seen[fuzz_below(seen_count < SEEN ? seen_count : SEEN)] : &none;
}

/* A command that might be right, about something that was seen. */
static struct wfs_cmd likely_cmd(void)
{
	static const uint32_t ops[] = {
		WFS_CMD_COMMIT,	 WFS_CMD_DELIVER,    WFS_CMD_STORED,
		WFS_CMD_DROPPED, WFS_CMD_EVICT,	     WFS_CMD_EVICTED,
		WFS_CMD_OFFER,	 WFS_CMD_INVALIDATE, WFS_CMD_REOPEN,
	};
	const struct wfs_request *about = any_seen();
	struct wfs_cmd cmd = chan_op(ops[fuzz_below(9)], chan.session);
	const struct node *node = files_node(about->node);
	uint64_t blocks = node ? files_blocks(node) : 1;
	uint64_t block = fuzz_below(blocks ? blocks : 1);

	switch (cmd.op) {
	case WFS_CMD_COMMIT:
		cmd.id = about->id;
		cmd.status = -(int)fuzz_below(40);
		break;
	case WFS_CMD_DELIVER:
		cmd.id = about->id;
		cmd.offset = fuzz_below(4) * WFS_UNIT_SIZE;
		cmd.buf = FILES_DATA;
		cmd.len = (uint32_t)(1 + fuzz_below(2)) * WFS_UNIT_SIZE;
		break;
	case WFS_CMD_INVALIDATE:
		cmd.node = about->mount;
		break;
	case WFS_CMD_EVICT:
		cmd.flags = fuzz_one_in(2) ? WFS_EVICT_COLD : 0;
		break;
	case WFS_CMD_REOPEN:
		cmd.node = about->node;
		break;
	case WFS_CMD_STORED:
		if (node && node->fd >= 0 && !files_write(node, block))
			cmd.len = (uint32_t)(files_sums(node, block, (uint64_t *)chan.memory) * 8);
		break;
	case WFS_CMD_OFFER:
		cmd.offset = fuzz_below(2) * WFS_UNIT_SIZE;
		cmd.buf = FILES_DATA;
		cmd.len = WFS_UNIT_SIZE;
		break;
	default:
		break;
	}
	if (cmd.op >= WFS_CMD_STORED && cmd.op <= WFS_CMD_OFFER) {
		cmd.node = about->node;
		cmd.block = block;
	}
	return cmd;
}

static void random_cmd(void)
{
	struct wfs_cmd cmd = likely_cmd();

	switch (fuzz_below(4)) {
	case 0:
		fuzz_bytes(&cmd, sizeof(cmd));
		if (fuzz_one_in(2)) {
			cmd.op = (uint32_t)fuzz_below(WFS_CMD_REOPEN + 2);
			cmd.session = chan.session;
			cmd.flags = 0;
			cmd.pad = 0;
		}
		break;
	case 1:
		fuzz_mutate(&cmd, sizeof(cmd));
		break;
	default:
		break;
	}
	standin_send(&cmd);
}

static int any_descriptor(int right)
{
	switch (fuzz_below(8)) {
	case 0:
		return chan.fd;
	case 1:
		return chan.wfd;
	case 2:
		return (int)fuzz_below(40);
	case 3:
		return -1;
	default:
		return right;
	}
}

static void answer(const struct wfs_request *request)
{
	const char *a = request->payload_len ? (const char *)request->payload : "";
	const char *b = request->payload_len ? a + strlen(a) + 1 : "";
	struct reply reply;

	seen[seen_count++ % SEEN] = *request;
	fuzz_count(FUZZ_REPLIES);
	if (fuzz_one_in(16))
		return; /* never */
	if (request->opcode == WFS_REQ_FILL && !fuzz_one_in(8))
		standin_deliver(request, request->unit, request->units);
	files_reply(&reply, request, a, b);
	/* What was refused is answered again, once at least as it should be. */
	for (int tries = (int)fuzz_below(4); tries >= 0; tries--) {
		struct reply wrong = reply;
		char save[512];
		size_t keep = reply.len < sizeof(save) ? reply.len : sizeof(save);

		memcpy(save, reply.payload, keep);
		if (tries && reply.len) {
			fuzz_mutate(reply.payload, keep);
			if (fuzz_one_in(3))
				wrong.len = fuzz_below(WFS_REPLY_MAX + 16);
		}
		if (tries && fuzz_one_in(4))
			wrong.fd = any_descriptor(reply.fd);
		if (tries && fuzz_one_in(4))
			wrong.status = (int)fuzz_value(0);
		reply_send(&wrong, request);
		memcpy(reply.payload, save, keep);
	}
	if (request->opcode == WFS_REQ_FILL && files_node(request->node) && !fuzz_one_in(4))
		files_store(files_node(request->node), request->block);
	if (request->opcode == WFS_REQ_FORGET)
		files_forget(request->node);
}

static void take(const char *at, size_t room, int count)
{
	static _Alignas(8) char copy[WFS_SLOT_SIZE];

	memcpy(copy, at, room < sizeof(copy) ? room : sizeof(copy));
	at = copy;
	for (int i = 0; i < count; i++) {
		const struct wfs_request *request = (const struct wfs_request *)at;

		at += request->size;
		answer(request);
	}
}

static void fetch_by_ioctl(void)
{
	static unsigned int over;
	static _Alignas(8) char room[WFS_SLOT_SIZE];
	struct wfs_fetch fetch = {
		.session = chan.session,
		.addr = (uintptr_t)room,
		.len = sizeof(room),
		.max = 1 + (uint32_t)fuzz_below(8),
		.flags = fuzz_one_in(16) ? 0 : WFS_FETCH_NONBLOCK,
	};
	int n;

	if (fuzz_one_in(30))
		fuzz_mutate(&fetch, sizeof(fetch));
	n = chan_ioctl(chan.wfd, WFS_IOC_FETCH, &fetch);
	/* Over, or something else than the session was asked for: not for ever. */
	if (n == -ESTALE && ++over > 10)
		exit(0);
	if (n > 0 && fetch.addr == (uintptr_t)room)
		take(room, sizeof(room), n);
}

/* Anything on the ring: fetches most of all, with whatever flags there are. */
static void by_ring(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&chan.ring);
	struct wfs_cmd cmd = likely_cmd();
	uint64_t tag;
	int res;

	if (sqe) {
		if (!fuzz_one_in(4)) {
			cmd = chan_op(WFS_CMD_FETCH, chan.session);
			cmd.slot = (uint16_t)fuzz_below(SLOTS);
			cmd.max = (uint16_t)fuzz_below(4);
		}
		if (fuzz_one_in(8))
			fuzz_mutate(&cmd, sizeof(cmd));
		memset(sqe, 0, 2 * sizeof(*sqe));
		sqe->opcode = IORING_OP_URING_CMD;
		sqe->fd = fuzz_one_in(16) ? chan.fd : chan.wfd;
		sqe->cmd_op = fuzz_one_in(16) ? (uint32_t)fuzz_below(12) : cmd.op;
		sqe->user_data = cmd.op == WFS_CMD_FETCH ? 1 + cmd.slot : 0;
		memcpy(sqe->cmd, &cmd, sizeof(cmd));
		if (fuzz_one_in(8))
			sqe->flags = (uint8_t)(fuzz_next() & (IOSQE_ASYNC | IOSQE_IO_LINK));
		if (fuzz_one_in(32))
			sqe->uring_cmd_flags = (uint32_t)fuzz_below(4);
		if (fuzz_one_in(32)) {
			sqe->opcode = IORING_OP_ASYNC_CANCEL;
			sqe->addr = 1 + fuzz_below(SLOTS);
		}
		fuzz_count(FUZZ_COMMANDS);
		io_uring_submit(&chan.ring);
	}
	while (chan_reap(&chan, 0, &tag, &res))
		if (res > 0 && tag && tag <= SLOTS)
			take(chan.slots + (tag - 1) * WFS_SLOT_SIZE, WFS_SLOT_SIZE, res);
}

/* Orders on the device, its own or another descriptor. */
static void random_ioctl(void)
{
	static const unsigned long orders[] = {
		WFS_IOC_HELLO, WFS_IOC_ATTACH, WFS_IOC_BUFFERS,	  WFS_IOC_FETCH,
		WFS_IOC_CMD,   WFS_IOC_DETACH, WFS_IOC_FILE_INFO, WFS_IOC_PREFETCH,
	};
	unsigned long order = orders[fuzz_below(8)];
	uint64_t arg[512] = { 0 };
	int fd = fuzz_below(3) ? chan_open() : fuzz_one_in(2) ? chan.fd : chan.wfd;

	if (order == WFS_IOC_DETACH && (fd == chan.fd || fd == chan.wfd) && !fuzz_one_in(20))
		order = WFS_IOC_FETCH;
	if (order == WFS_IOC_HELLO && fuzz_one_in(2)) {
		struct wfs_hello hello = {
			.protocol = WFS_PROTOCOL,
			.flags = fuzz_one_in(40) ? WFS_HELLO_TAKEOVER : 0,
			.slots = (uint32_t)fuzz_below(4),
		};

		memcpy(arg, &hello, sizeof(hello));
	} else if (order == WFS_IOC_ATTACH && fuzz_one_in(2)) {
		arg[0] = chan.session;
		arg[1] = fuzz_below(SLOTS);
	} else {
		fuzz_bytes(arg, 128);
	}
	fuzz_count(FUZZ_COMMANDS);
	/* Reads by a thread that serves would wait for it: the timer ends them. */
	chan_ioctl(fd, order, fuzz_one_in(30) ? (void *)fuzz_next() : arg);
	if (fuzz_one_in(4)) {
		void *map = mmap(NULL, WFS_SLOT_SIZE, PROT_READ | (fuzz_one_in(4) ? PROT_WRITE : 0),
				 fuzz_one_in(4) ? MAP_PRIVATE : MAP_SHARED, fd,
				 fuzz_one_in(4) ? 4096 : 0);

		if (map != MAP_FAILED)
			munmap(map, WFS_SLOT_SIZE);
	}
	if (fd >= 0 && fd != chan.fd && fd != chan.wfd)
		close(fd);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void helper(void)
{
	struct itimerval every = { { 0, 100000 }, { 0, 100000 } };
	struct sigaction act = { .sa_handler = on_alarm };
	uint64_t life = 50 + fuzz_below(600);

	for (int i = 0; i < 100; i++) {
		if (!chan_hello(&chan, fuzz_one_in(4) ? WFS_HELLO_TAKEOVER : 0))
			break;
		sched_yield();
	}
	if (chan.fd < 0 || chan_buffers(&chan, MEMORY) || chan_attach(&chan, SLOTS) ||
	    chan_ring(&chan, 32))
		exit(0);
	files_memory = chan.memory;
	fuzz_bytes(chan.memory, MEMORY);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	while (life--) {
		fetch_by_ioctl();
		by_ring();
		if (fuzz_one_in(2))
			random_cmd();
		if (fuzz_one_in(16))
			random_ioctl();
	}
	switch (fuzz_below(3)) {
	case 0:
		chan_detach(&chan);
		break;
	case 1:
		kill(getpid(), SIGKILL);
		break;
	default:
		break;
	}
	exit(0);
}

/* ---- all parts ---- */

static void mounter(const char *dir)
{
	static const char *const options[] = {
		"",
		"block=64K,timeout=1,name_timeout=1",
		"block=1M,verify=off,timeout=1,name_timeout=1",
		"ttl=0,negative_ttl=0,timeout=1,name_timeout=1,stale=off",
		"huge=never,timeout=1,name_timeout=1,readahead=64K",
		"huge=advise,mode=0600,uid=7,timeout=1",
	};

	for (;;) {
		char text[256];

		snprintf(text, sizeof(text), "%s", options[fuzz_below(6)]);
		if (fuzz_one_in(6) && *text)
			fuzz_mutate(text, strlen(text));
		fuzz_count(FUZZ_FILES);
		if (!mount("file:///other", dir, "wfs", 0, text)) {
			fuzz_use(dir, 1 + fuzz_below(40));
			if (umount2(dir, fuzz_one_in(3) ? MNT_FORCE : 0))
				umount2(dir, MNT_DETACH);
		}
		fuzz_pause(20);
	}
}

enum part { HELPER, READER, READER_2, NETLINK, MOUNTER, PARTS };

static pid_t begin(enum part part, uint64_t seed, unsigned int times, char **dirs)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fuzz_seed(seed * 1000003 + part * 7919 + times);
	switch (part) {
	case HELPER:
		helper();
		break;
	case READER:
	case READER_2:
		fuzz_use(dirs[0], ~0ULL);
		break;
	case NETLINK:
		fuzz_netlink();
		break;
	default:
		mounter(dirs[1]);
		break;
	}
	exit(0);
}

static void make_files(void)
{
	char line[256];

	script_line(&files_script, "dir .");
	script_line(&files_script, "dir d");
	snprintf(line, sizeof(line), "cache %s", cache_dir);
	script_line(&files_script, line);
	for (int i = 0; i < FUZZ_NAMES; i++) {
		snprintf(line, sizeof(line), "file f%d %d", i, i * 77777);
		script_line(&files_script, line);
		snprintf(line, sizeof(line), "file d/f%d %d", i, i * 1000);
		script_line(&files_script, line);
		snprintf(line, sizeof(line), "link l%d f%d", i, i);
		script_line(&files_script, line);
	}
	script_line(&files_script, "weak f2 200000");
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	uint64_t seed = (uint64_t)time(NULL), end, tried = 0;
	unsigned int times[PARTS] = { 0 }, seconds = 10;
	pid_t pids[PARTS] = { 0 };
	bool stuck = false, mounted = false;
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt(argc, argv, "s:t:")) != -1) {
		if (option == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (option == 't')
			seconds = (unsigned int)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (argc - optind != 3)
		return 2;
	argv += optind;
	cache_dir = argv[2];
	printf("seed %llu\n", (unsigned long long)seed);
	fuzz_init();
	fuzz_seed(seed);
	make_files();
	end = now_ms() + seconds * 1000ULL;
	while (now_ms() < end) {
		int status;
		pid_t pid;

		for (enum part part = 0; part < PARTS; part++)
			if (!pids[part])
				pids[part] = begin(part, seed, times[part]++, argv);
		/* As soon as a helper lets it be mounted; then it stays, whatever comes. */
		if (!mounted && now_ms() - tried > 500) {
			mounted =
				!mount("file:///fuzz", argv[0], "wfs", 0,
				       "block=128K,ttl=0,negative_ttl=0,timeout=1,name_timeout=1");
			tried = now_ms();
			if (mounted)
				printf("mounted after %u helpers\n", times[HELPER]);
		}
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			for (enum part part = 0; part < PARTS; part++)
				if (pids[part] == pid)
					pids[part] = 0;
		fuzz_pause(20);
	}
	for (enum part part = 0; part < PARTS; part++)
		if (pids[part])
			kill(pids[part], SIGKILL);
	end = now_ms() + 60000;
	for (enum part part = 0; part < PARTS; part++) {
		while (pids[part] > 0 && waitpid(pids[part], NULL, WNOHANG) != pids[part] &&
		       !(stuck = now_ms() > end))
			fuzz_pause(20);
		if (stuck)
			printf("process %d of part %d cannot be killed\n", pids[part], (int)part);
	}
	printf("helpers %u\n", times[HELPER]);
	fuzz_report();
	return stuck;
}
