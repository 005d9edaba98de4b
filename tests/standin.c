// SPDX-License-Identifier: MIT
/*
 * standin: a helper for tests. Serves files made of arithmetic over the channel, which
 * it speaks by itself, and does wrong where its script says so.
 *
 *	standin [-i] [-t] [-s SCRIPT] [-e LINE]...	serve; -i: by ioctl, -t: take over
 *	standin -c PATH VERSION SIZE			print the contents of such a file
 *
 * Says "ready SESSION" once it serves, and "fault REQUEST ACTION RESULT" for each wrong
 * it did (RESULT: as the kernel answered). Lines on standard input are further lines of the
 * script, or one of
 *	evict|evicted|dropped PATH BLOCK	the command, for the last version of the file
 *	cold PATH BLOCK				evict, unless it was read
 *	reopen PATH
 *	answer					what a fault "hold" has kept, in its order
 *	stored PATH BLOCK
 *	offer PATH BLOCK OFFSET BYTES
 *	invalidate [PATH]
 *	nth N COMMAND...	the command, while the kernel's Nth chance to fail does;
 *				"failnth command 0|1" says whether there was one
 *	detach | quit
 * each answered with "did COMMAND RESULT".
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>
#include "chan.h"
#include "failnth.h"
#include "standin.h"
#include "standin_fault.h"
#include "standin_files.h"

#define MEMORY	    (8u << 20)
#define SLOTS	    2
#define FETCH_MOST  8
#define TAG_SYNC    1
#define TAG_SLOT    1000
#define PENDING_MAX 16

static struct chan chan;
static bool by_ioctl;
static __thread bool off_ring; /* this thread may not touch the ring */
static uint64_t last_mount;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t tag;
	int res;
} pending[PENDING_MAX];
static size_t pending_count;

static const char *const request_names[] = {
	[WFS_REQ_MOUNT] = "mount",     [WFS_REQ_UNMOUNT] = "unmount",
	[WFS_REQ_LOOKUP] = "lookup",   [WFS_REQ_GETATTR] = "getattr",
	[WFS_REQ_READDIR] = "readdir", [WFS_REQ_READLINK] = "readlink",
	[WFS_REQ_OPEN] = "open",       [WFS_REQ_MAP] = "map",
	[WFS_REQ_FILL] = "fill",       [WFS_REQ_FORGET] = "forget",
	[WFS_REQ_RESUMED] = "resumed",
};

__attribute__((noreturn)) static void die(const char *what, int r)
{
	fprintf(stderr, "standin: %s: %s\n", what, strerror(-r));
	exit(1);
}

int standin_send(const struct wfs_cmd *cmd)
{
	uint64_t tag;
	int res;

	if (by_ioctl || off_ring || !chan.uring)
		return chan_ioctl_cmd(&chan, cmd);
	res = chan_queue(&chan, cmd, TAG_SYNC);
	if (res < 0)
		return res;
	while (chan_reap(&chan, 60000, &tag, &res)) {
		if (tag == TAG_SYNC)
			return res;
		if (pending_count < PENDING_MAX) {
			pending[pending_count].tag = tag;
			pending[pending_count++].res = res;
		}
	}
	return -ETIME;
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

struct held {
	struct held *next;
	struct wfs_request *request;
};

static struct held *held_first, **held_end = &held_first;

static void hold(const struct wfs_request *request)
{
	struct held *held = calloc(1, sizeof(*held));

	if (!held)
		die("no memory", -ENOMEM);
	held->request = malloc(request->size);
	if (!held->request)
		die("no memory", -ENOMEM);
	memcpy(held->request, request, request->size);
	*held_end = held;
	held_end = &held->next;
}

static void handle(const struct wfs_request *request, bool held)
{
	const char *name = request->opcode < sizeof(request_names) / sizeof(*request_names) &&
					   request_names[request->opcode] ?
				   request_names[request->opcode] :
				   "unknown";
	const char *a = request->payload_len ? (const char *)request->payload : "";
	const char *b = request->payload_len ? a + strlen(a) + 1 : "";
	struct node *node = files_node(request->node);
	const char *path = node && request->opcode >= WFS_REQ_MAP ? node->file->path : a;
	struct fault *fault;
	struct reply reply;
	int r = -EINVAL;

	if (files_script.verbose && !held)
		printf("request %s %s block %llu units %u+%u flags %x why %u\n", name, path,
		       (unsigned long long)request->block, request->unit, request->units,
		       request->flags, request->why);
	if (request->opcode == WFS_REQ_MOUNT)
		last_mount = request->mount;
	while ((fault = script_fault(&files_script, name, path))) {
		if (!strcmp(fault->action, "hold")) {
			printf("fault %s hold 0\n", name);
			hold(request);
			return;
		}
		files_reply(&reply, request, a, b);
		r = fault_do(fault, request, &reply);
		printf("fault %s %s %d\n", name, fault->action, r);
		if (fault->final || (r >= 0 && fault_answers(fault)))
			return;
	}
	if (request->opcode == WFS_REQ_FILL) {
		r = standin_deliver(request, request->unit, request->units);
		if (r == -ENOMEM)
			r = standin_deliver(request, request->unit, request->units);
		if (r < 0)
			printf("deliver %s %llu %d\n", path, (unsigned long long)request->block, r);
	}
	files_reply(&reply, request, a, b);
	r = reply_send(&reply, request);
	if (r < 0)
		printf("commit %s %s %d\n", name, path, r);
	if (request->opcode == WFS_REQ_FILL && node && request->flags & WFS_REQ_F_WHOLE)
		files_store(node, request->block);
	if (request->opcode == WFS_REQ_FORGET)
		files_forget(request->node);
}

/* Returns how many there were. */
static int answer_held(void)
{
	int n = 0;

	while (held_first) {
		struct held *held = held_first;

		held_first = held->next;
		if (!held_first)
			held_end = &held_first;
		handle(held->request, true);
		free(held->request);
		free(held);
		n++;
	}
	return n;
}

/* Copies requests out, so that their slot can be used again, and handles them. */
static void take(const char *at, int count)
{
	static _Alignas(8) char room[4 * WFS_SLOT_SIZE];

	memcpy(room, at, WFS_SLOT_SIZE);
	at = room;
	for (int i = 0; i < count; i++) {
		const struct wfs_request *request = (const struct wfs_request *)at;

		pthread_mutex_lock(&lock);
		handle(request, false);
		pthread_mutex_unlock(&lock);
		at += request->size;
	}
}

static void serve_ioctl(void)
{
	static _Alignas(8) char room[WFS_SLOT_SIZE];
	struct wfs_fetch fetch = {
		.session = chan.session,
		.addr = (uintptr_t)room,
		.len = sizeof(room),
		.max = FETCH_MOST,
	};

	for (;;) {
		int n = chan_ioctl(chan.wfd, WFS_IOC_FETCH, &fetch);

		if (n > 0)
			take(room, n);
		else if (n != -EINTR && n != -EAGAIN)
			return;
	}
}

static void park(uint16_t slot)
{
	struct wfs_cmd cmd = chan_op(WFS_CMD_FETCH, chan.session);
	int r;

	cmd.slot = slot;
	cmd.max = FETCH_MOST;
	r = chan_queue(&chan, &cmd, TAG_SLOT + slot);
	if (r < 0)
		die("cannot park a fetch", r);
}

static void serve_uring(void)
{
	for (uint16_t slot = 0; slot < SLOTS; slot++)
		park(slot);
	for (;;) {
		uint64_t tag;
		int res;

		if (pending_count) {
			tag = pending[0].tag;
			res = pending[0].res;
			memmove(pending, pending + 1, --pending_count * sizeof(*pending));
		} else if (!chan_reap(&chan, 1000, &tag, &res)) {
			continue;
		}
		if (tag < TAG_SLOT)
			continue;
		if (res > 0)
			take(chan.slots + (tag - TAG_SLOT) * WFS_SLOT_SIZE, res);
		else if (res != -EAGAIN)
			return;
		park((uint16_t)(tag - TAG_SLOT));
	}
}

/* Commands from standard input: by ioctl, since the ring is the other thread's. */

static unsigned int command_nth;

static int send_command(const struct wfs_cmd *cmd)
{
	int fd, r;

	if (!command_nth)
		return chan_ioctl_cmd(&chan, cmd);
	fd = failnth_open();
	failnth_begin(fd, command_nth);
	r = chan_ioctl_cmd(&chan, cmd);
	printf("failnth command %d\n", failnth_end(fd));
	close(fd);
	command_nth = 0;
	return r;
}

static int block_cmd(uint32_t op, char **word, size_t n)
{
	struct wfs_cmd cmd = chan_op(op, chan.session);
	struct node *node = n > 2 || (op == WFS_CMD_REOPEN && n > 1) ? files_node_at(word[1]) :
								       NULL;

	if (!node)
		return -ENXIO;
	cmd.node = node->id;
	if (op == WFS_CMD_REOPEN)
		return send_command(&cmd);
	if (!strcmp(word[0], "cold"))
		cmd.flags = WFS_EVICT_COLD;
	cmd.block = strtoull(word[2], NULL, 0);
	if (cmd.block >= files_blocks(node))
		return send_command(&cmd);
	if (op == WFS_CMD_EVICTED)
		node->stored[cmd.block] = 0;
	if (op == WFS_CMD_STORED) {
		if (node->fd < 0 || files_write(node, cmd.block))
			return -EIO;
		node->stored[cmd.block] = 1;
		cmd.len = (uint32_t)(files_sums(node, cmd.block, (uint64_t *)chan.memory) *
				     sizeof(uint64_t));
	}
	if (op == WFS_CMD_OFFER && n > 4) {
		cmd.offset = strtoull(word[3], NULL, 0);
		cmd.len = (uint32_t)strtoul(word[4], NULL, 0);
		cmd.buf = FILES_DATA;
		content(node->file->path, node->file->version,
			(cmd.block << node->block_shift) + cmd.offset, chan.memory + FILES_DATA,
			cmd.len < MEMORY - FILES_DATA ? cmd.len : MEMORY - FILES_DATA);
	}
	return send_command(&cmd);
}

static int command(char **word, size_t n)
{
	static const struct {
		const char *name;
		uint32_t op;
	} block_cmds[] = {
		{ "evict", WFS_CMD_EVICT },   { "evicted", WFS_CMD_EVICTED },
		{ "stored", WFS_CMD_STORED }, { "dropped", WFS_CMD_DROPPED },
		{ "offer", WFS_CMD_OFFER },   { "reopen", WFS_CMD_REOPEN },
		{ "cold", WFS_CMD_EVICT },
	};

	for (size_t i = 0; i < sizeof(block_cmds) / sizeof(*block_cmds); i++)
		if (!strcmp(word[0], block_cmds[i].name))
			return block_cmd(block_cmds[i].op, word, n);
	if (!strcmp(word[0], "invalidate")) {
		struct wfs_cmd cmd = chan_op(WFS_CMD_INVALIDATE, chan.session);

		cmd.node = last_mount;
		cmd.len = n > 1 ? (uint32_t)strlen(word[1]) : 0;
		memcpy(chan.memory, n > 1 ? word[1] : "", cmd.len);
		return send_command(&cmd);
	}
	if (!strcmp(word[0], "answer"))
		return answer_held();
	if (!strcmp(word[0], "detach"))
		return chan_detach(&chan);
	if (!strcmp(word[0], "nth") && n > 2) {
		command_nth = (unsigned int)strtoul(word[1], NULL, 0);
		return command(word + 2, n - 2);
	}
	return -ENOSYS;
}

static void *read_input(void *arg)
{
	char line[4096];

	(void)arg;
	off_ring = true;
	while (fgets(line, sizeof(line), stdin)) {
		char *word[8];
		size_t n;
		int r;

		pthread_mutex_lock(&lock);
		r = script_line(&files_script, line);
		n = words(line, word, 8);
		if (n && !strcmp(word[0], "quit"))
			exit(0);
		if (n && r == -ENOSYS)
			r = command(word, n);
		if (n)
			printf("did %s %d\n", word[0], r);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static int print_content(char **args)
{
	uint64_t size = strtoull(args[2], NULL, 0), at;
	static char bytes[WFS_UNIT_SIZE];

	for (at = 0; at < size; at += sizeof(bytes)) {
		size_t len = size - at < sizeof(bytes) ? (size_t)(size - at) : sizeof(bytes);

		content(args[0], args[1], at, bytes, len);
		if (fwrite(bytes, 1, len, stdout) != len)
			return 1;
	}
	return fflush(stdout) ? 1 : 0;
}

static void read_script(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[4096];

	if (!f)
		die(path, -errno);
	while (fgets(line, sizeof(line), f))
		if (script_line(&files_script, line)) {
			fprintf(stderr, "standin: %s: %s", path, line);
			exit(2);
		}
	fclose(f);
}

int main(int argc, char **argv)
{
	uint32_t flags = 0;
	pthread_t thread;
	int option, r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt(argc, argv, "its:e:c")) != -1) {
		switch (option) {
		case 'i':
			by_ioctl = true;
			break;
		case 't':
			flags = WFS_HELLO_TAKEOVER;
			break;
		case 's':
			read_script(optarg);
			break;
		case 'e':
			if (script_line(&files_script, optarg)) {
				fprintf(stderr, "standin: %s\n", optarg);
				return 2;
			}
			break;
		case 'c':
			return argc - optind == 3 ? print_content(argv + optind) : 2;
		default:
			return 2;
		}
	}
	script_line(&files_script, "dir .");
	r = chan_hello(&chan, flags);
	if (r)
		die("HELLO", r);
	r = chan_buffers(&chan, MEMORY);
	if (r)
		die("BUFFERS", r);
	files_memory = chan.memory;
	r = chan_attach(&chan, by_ioctl ? 0 : SLOTS);
	if (r)
		die("ATTACH", r);
	if (!by_ioctl) {
		r = chan_ring(&chan, 32);
		if (r)
			die("no ring", r);
	}
	printf("ready %llu\n", (unsigned long long)chan.session);
	if (pthread_create(&thread, NULL, read_input, NULL))
		die("no thread", -EAGAIN);
	if (by_ioctl)
		serve_ioctl();
	else
		serve_uring();
	puts("ended");
	return 0;
}
