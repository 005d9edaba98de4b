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
 *	stored PATH BLOCK
 *	offer PATH BLOCK OFFSET BYTES
 *	invalidate [PATH]
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
#include "standin.h"
#include "standin_fault.h"

#define MEMORY	    (8u << 20)
#define DATA	    (1u << 20) /* where object bytes lie in it; replies before */
#define SLOTS	    2
#define FETCH_MOST  8
#define TAG_SYNC    1
#define TAG_SLOT    1000
#define PENDING_MAX 16

struct node {
	struct node *next;
	uint64_t id, mount;
	struct file *file;
	uint32_t block_shift;
	int fd;
	uint8_t *stored; /* a byte a block */
};

static struct script script = { .store = false };
static struct chan chan;
static bool by_ioctl;
static struct node *nodes;
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

	if (by_ioctl || !chan.uring)
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

static struct node *node_of(uint64_t id)
{
	struct node *node;

	for (node = nodes; node && node->id != id;)
		node = node->next;
	return node;
}

/* Node of the file's last version, or NULL. */
static struct node *node_at(const char *path)
{
	struct node *node;

	for (node = nodes; node; node = node->next)
		if (!strcmp(node->file->path, path) && !node->file->gone)
			return node;
	return NULL;
}

static uint64_t block_bytes(const struct node *node, uint64_t block)
{
	uint64_t at = block << node->block_shift, left = node->file->size - at;

	return left < 1ULL << node->block_shift ? left : 1ULL << node->block_shift;
}

static uint64_t blocks_of(const struct node *node)
{
	return (node->file->size + (1ULL << node->block_shift) - 1) >> node->block_shift;
}

/* Sums of a block, one a unit. */
static size_t sums_of(const struct node *node, uint64_t block, uint64_t *to)
{
	static char unit[WFS_UNIT_SIZE];
	uint64_t bytes = block_bytes(node, block), at;
	size_t n = 0;

	for (at = 0; at < bytes; at += WFS_UNIT_SIZE) {
		size_t len = bytes - at < WFS_UNIT_SIZE ? (size_t)(bytes - at) : WFS_UNIT_SIZE;

		content(node->file->path, node->file->version, (block << node->block_shift) + at,
			unit, len);
		to[n++] = XXH64(unit, len, 0);
	}
	return n;
}

static int tell_stored(struct node *node, uint64_t block)
{
	struct wfs_cmd cmd = chan_op(WFS_CMD_STORED, chan.session);

	cmd.node = node->id;
	cmd.block = block;
	cmd.len = (uint32_t)(sums_of(node, block, (uint64_t *)chan.memory) * sizeof(uint64_t));
	return standin_send(&cmd);
}

static int write_block(const struct node *node, uint64_t block)
{
	uint64_t bytes = block_bytes(node, block), at;
	char *unit = chan.memory + DATA;

	for (at = 0; at < bytes; at += WFS_UNIT_SIZE) {
		size_t len = bytes - at < WFS_UNIT_SIZE ? (size_t)(bytes - at) : WFS_UNIT_SIZE;
		uint64_t offset = (block << node->block_shift) + at;

		memset(unit, 0, WFS_UNIT_SIZE);
		content(node->file->path, node->file->version, offset, unit, len);
		len = (len + 4095) & ~(size_t)4095;
		if (pwrite(node->fd, unit, len, (off_t)offset) != (ssize_t)len)
			return -EIO;
	}
	return fdatasync(node->fd) ? -errno : 0;
}

static void store(struct node *node, uint64_t block)
{
	struct wfs_cmd cmd = chan_op(WFS_CMD_DROPPED, chan.session);

	if (script.store && node->fd >= 0 && !write_block(node, block)) {
		node->stored[block] = 1;
		tell_stored(node, block);
		return;
	}
	cmd.node = node->id;
	cmd.block = block;
	standin_send(&cmd);
}

/* Replies. Each handler fills in what is right; faults spoil it afterwards. */

static void attr_of(const struct file *file, struct wfs_attr *to)
{
	memset(to, 0, sizeof(*to));
	to->mode = file->mode;
	to->size = file->size;
	to->mtime_sec = 1700000000;
	if (file->weak)
		to->flags = WFS_ATTR_UNCACHED;
	if (S_ISREG(file->mode)) {
		to->version_len = (uint32_t)strlen(file->version);
		memcpy(to->version, file->version, to->version_len);
	}
}

static void reply_attr(struct reply *reply, const char *path)
{
	const struct file *file = script_find(&script, path);

	if (!file) {
		reply->status = -ENOENT;
		return;
	}
	attr_of(file, (struct wfs_attr *)reply->payload);
	reply->len = sizeof(struct wfs_attr);
}

static void reply_mount(struct reply *reply)
{
	struct wfs_mount_reply *mount = (struct wfs_mount_reply *)reply->payload;

	memset(mount, 0, sizeof(*mount));
	mount->root.mode = S_IFDIR;
	reply->len = sizeof(*mount);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct file *const *)a)->path, (*(struct file *const *)b)->path);
}

static void reply_readdir(struct reply *reply, const char *dir, const char *after)
{
	struct wfs_readdir_reply *head = (struct wfs_readdir_reply *)reply->payload;
	struct file **in = calloc(100000, sizeof(*in));
	size_t n = 0, prefix = *dir ? strlen(dir) + 1 : 0;

	memset(head, 0, sizeof(*head));
	reply->len = sizeof(*head);
	for (struct file *file = script.files; in && file && n < 100000; file = file->next)
		if (!file->gone && strlen(file->path) > prefix &&
		    (!prefix ||
		     (!strncmp(file->path, dir, prefix - 1) && file->path[prefix - 1] == '/')) &&
		    !strchr(file->path + prefix, '/'))
			in[n++] = file;
	qsort(in, n, sizeof(*in), by_name);
	head->flags = WFS_READDIR_EOF;
	for (size_t i = 0; i < n; i++) {
		const char *name = in[i]->path + prefix;
		size_t len = strlen(name), reclen = (sizeof(struct wfs_dirent) + len + 7) & ~7UL;
		struct wfs_dirent *dirent = (struct wfs_dirent *)(reply->payload + reply->len);

		if (*after && strcmp(name, after) <= 0)
			continue;
		if (reply->len + reclen > WFS_REPLY_MAX) {
			head->flags = 0;
			break;
		}
		memset(dirent, 0, reclen);
		dirent->reclen = (uint16_t)reclen;
		dirent->type = S_ISDIR(in[i]->mode) ? DT_DIR :
			       S_ISLNK(in[i]->mode) ? DT_LNK :
						      DT_REG;
		dirent->namelen = (uint8_t)len;
		memcpy(dirent->name, name, len);
		reply->len += reclen;
		head->count++;
	}
	free(in);
}

static void reply_readlink(struct reply *reply, const char *path)
{
	const struct file *file = script_find(&script, path);

	if (!file || !S_ISLNK(file->mode)) {
		reply->status = file ? -EINVAL : -ENOENT;
		return;
	}
	reply->len = strlen(file->version);
	memcpy(reply->payload, file->version, reply->len);
}

static int cache_file(const struct node *node)
{
	char path[4096];
	uint64_t key = XXH64(node->file->path, strlen(node->file->path),
			     XXH64(node->file->version, strlen(node->file->version), 0));
	int fd;

	if (!script.cache || node->file->weak)
		return -1;
	snprintf(path, sizeof(path), "%s/%016llx-%u", script.cache, (unsigned long long)key,
		 node->block_shift);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_NOATIME | O_CLOEXEC, 0600);
	if (fd >= 0 && ftruncate(fd, (off_t)((node->file->size + 4095) & ~4095ULL)))
		fprintf(stderr, "standin: %s: %s\n", path, strerror(errno));
	return fd;
}

static void reply_open(struct reply *reply, const struct wfs_request *request, const char *path,
		       const char *version)
{
	struct node *node = node_of(request->node);
	struct file *file;

	for (file = script.files; file; file = file->next)
		if (!strcmp(file->path, path) && !strcmp(file->version, version))
			break;
	if (!file) {
		reply->status = -ESTALE;
		return;
	}
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (!node)
			exit(1);
		node->next = nodes;
		nodes = node;
	}
	node->id = request->node;
	node->mount = request->mount;
	node->file = file;
	node->block_shift = request->block_shift;
	node->fd = cache_file(node);
	node->stored = calloc(blocks_of(node) + 1, 1);
	reply->fd = node->fd;
}

static void reply_map(struct reply *reply, const struct wfs_request *request)
{
	struct wfs_map_reply *map = (struct wfs_map_reply *)reply->payload;
	const struct node *node = node_of(request->node);
	unsigned int shift = node ? WFS_WINDOW_SHIFT - node->block_shift : 0;
	uint64_t first = (uint64_t)request->window << shift, count = 1ULL << shift;
	uint64_t *bitmap = (uint64_t *)(map + 1), *sums;

	if (!node || first >= blocks_of(node)) {
		reply->status = -EINVAL;
		return;
	}
	if (count > blocks_of(node) - first)
		count = blocks_of(node) - first;
	memset(map, 0, sizeof(*map));
	map->blocks = (uint32_t)count;
	memset(bitmap, 0, (count + 63) / 64 * 8);
	sums = bitmap + (count + 63) / 64;
	for (uint64_t i = 0; i < count; i++)
		if (node->stored[first + i]) {
			bitmap[i / 64] |= 1ULL << (i % 64);
			sums += sums_of(node, first + i, sums);
		}
	reply->len = (size_t)((char *)sums - reply->payload);
}

/* Delivers [unit, unit + units) of the request's block, from its file. */
int standin_deliver(const struct wfs_request *request, uint32_t unit, uint32_t units)
{
	const struct node *node = node_of(request->node);
	uint64_t bytes, at = (uint64_t)unit << WFS_UNIT_SHIFT;
	uint64_t end = (uint64_t)(unit + units) << WFS_UNIT_SHIFT;
	int r = 0;

	if (!node)
		return -ENOENT;
	bytes = block_bytes(node, request->block);
	if (end > bytes)
		end = bytes;
	for (; at < end && r >= 0; at += WFS_DELIVER_MAX) {
		struct wfs_cmd cmd = chan_op(WFS_CMD_DELIVER, chan.session);

		cmd.id = request->id;
		cmd.offset = at;
		cmd.buf = DATA;
		cmd.len = end - at < WFS_DELIVER_MAX ? (uint32_t)(end - at) : WFS_DELIVER_MAX;
		content(node->file->path, node->file->version,
			(request->block << node->block_shift) + at, chan.memory + DATA, cmd.len);
		r = standin_send(&cmd);
	}
	return r;
}

uint64_t standin_block_bytes(const struct wfs_request *request)
{
	const struct node *node = node_of(request->node);

	return node ? block_bytes(node, request->block) : 0;
}

static void forget(uint64_t id)
{
	struct node **link = &nodes, *node;

	while (*link && (*link)->id != id)
		link = &(*link)->next;
	node = *link;
	if (!node)
		return;
	*link = node->next;
	if (node->fd >= 0)
		close(node->fd);
	free(node->stored);
	free(node);
}

static void build(struct reply *reply, const struct wfs_request *request, const char *a,
		  const char *b)
{
	*reply = (struct reply){ .payload = chan.memory, .fd = -1 };
	switch (request->opcode) {
	case WFS_REQ_MOUNT:
		reply_mount(reply);
		break;
	case WFS_REQ_LOOKUP:
	case WFS_REQ_GETATTR:
		reply_attr(reply, a);
		break;
	case WFS_REQ_READDIR:
		reply_readdir(reply, a, b);
		break;
	case WFS_REQ_READLINK:
		reply_readlink(reply, a);
		break;
	case WFS_REQ_OPEN:
		reply_open(reply, request, a, b);
		break;
	case WFS_REQ_MAP:
		reply_map(reply, request);
		break;
	default:
		break;
	}
}

static void handle(const struct wfs_request *request)
{
	const char *name = request->opcode < sizeof(request_names) / sizeof(*request_names) &&
					   request_names[request->opcode] ?
				   request_names[request->opcode] :
				   "unknown";
	const char *a = request->payload_len ? (const char *)request->payload : "";
	const char *b = request->payload_len ? a + strlen(a) + 1 : "";
	struct node *node = node_of(request->node);
	const char *path = node && request->opcode >= WFS_REQ_MAP ? node->file->path : a;
	struct fault *fault;
	struct reply reply;
	int r = -EINVAL;

	if (script.verbose)
		printf("request %s %s block %llu units %u+%u flags %x why %u\n", name, path,
		       (unsigned long long)request->block, request->unit, request->units,
		       request->flags, request->why);
	if (request->opcode == WFS_REQ_MOUNT)
		last_mount = request->mount;
	while ((fault = script_fault(&script, name, path))) {
		build(&reply, request, a, b);
		r = fault_do(fault, request, &reply);
		printf("fault %s %s %d\n", name, fault->action, r);
		if (fault->final || (r >= 0 && fault_answers(fault)))
			return;
	}
	if (request->opcode == WFS_REQ_FILL) {
		r = standin_deliver(request, request->unit, request->units);
		if (r < 0)
			printf("deliver %s %llu %d\n", path, (unsigned long long)request->block, r);
	}
	build(&reply, request, a, b);
	r = reply_send(&reply, request);
	if (r < 0)
		printf("commit %s %s %d\n", name, path, r);
	if (request->opcode == WFS_REQ_FILL && node && request->flags & WFS_REQ_F_WHOLE)
		store(node, request->block);
	if (request->opcode == WFS_REQ_FORGET)
		forget(request->node);
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
		handle(request);
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

static int block_cmd(uint32_t op, char **word, size_t n)
{
	struct wfs_cmd cmd = chan_op(op, chan.session);
	struct node *node = n > 2 ? node_at(word[1]) : NULL;

	if (!node)
		return -ENXIO;
	cmd.node = node->id;
	cmd.block = strtoull(word[2], NULL, 0);
	if (cmd.block >= blocks_of(node))
		return chan_ioctl_cmd(&chan, &cmd);
	if (op == WFS_CMD_EVICTED)
		node->stored[cmd.block] = 0;
	if (op == WFS_CMD_STORED) {
		if (node->fd < 0 || write_block(node, cmd.block))
			return -EIO;
		node->stored[cmd.block] = 1;
		cmd.len = (uint32_t)(sums_of(node, cmd.block, (uint64_t *)chan.memory) *
				     sizeof(uint64_t));
	}
	if (op == WFS_CMD_OFFER && n > 4) {
		cmd.offset = strtoull(word[3], NULL, 0);
		cmd.len = (uint32_t)strtoul(word[4], NULL, 0);
		cmd.buf = DATA;
		content(node->file->path, node->file->version,
			(cmd.block << node->block_shift) + cmd.offset, chan.memory + DATA,
			cmd.len < MEMORY - DATA ? cmd.len : MEMORY - DATA);
	}
	return chan_ioctl_cmd(&chan, &cmd);
}

static int command(char **word, size_t n)
{
	static const struct {
		const char *name;
		uint32_t op;
	} block_cmds[] = {
		{ "evict", WFS_CMD_EVICT },   { "evicted", WFS_CMD_EVICTED },
		{ "stored", WFS_CMD_STORED }, { "dropped", WFS_CMD_DROPPED },
		{ "offer", WFS_CMD_OFFER },
	};

	for (size_t i = 0; i < sizeof(block_cmds) / sizeof(*block_cmds); i++)
		if (!strcmp(word[0], block_cmds[i].name))
			return block_cmd(block_cmds[i].op, word, n);
	if (!strcmp(word[0], "invalidate")) {
		struct wfs_cmd cmd = chan_op(WFS_CMD_INVALIDATE, chan.session);

		cmd.node = last_mount;
		cmd.len = n > 1 ? (uint32_t)strlen(word[1]) : 0;
		memcpy(chan.memory, n > 1 ? word[1] : "", cmd.len);
		return chan_ioctl_cmd(&chan, &cmd);
	}
	if (!strcmp(word[0], "detach"))
		return chan_detach(&chan);
	return -ENOSYS;
}

static void *read_input(void *arg)
{
	char line[4096];

	(void)arg;
	while (fgets(line, sizeof(line), stdin)) {
		char *word[8];
		size_t n;
		int r;

		pthread_mutex_lock(&lock);
		r = script_line(&script, line);
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
		if (script_line(&script, line)) {
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
			if (script_line(&script, optarg)) {
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
	script_line(&script, "dir .");
	r = chan_hello(&chan, flags);
	if (r)
		die("HELLO", r);
	r = chan_buffers(&chan, MEMORY);
	if (r)
		die("BUFFERS", r);
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
