// SPDX-License-Identifier: MIT
/*
 * The wrongs, by the request they are for:
 *
 *	any	status N; positive; never; die; die-after; stale; wrongid; twice; grow N; cut N;
 *		oversize; outside; unaligned; fd (a descriptor that nobody wants); failnth N
 *		(right, while the kernel's Nth chance to fail does; "failnth REQUEST 0|1" says
 *		whether there was one); hold (until the command "answer"); cold PATH (evicts
 *		its first block unless it was read, by the ring, and answers then)
 *	mount, lookup, getattr
 *		mode N; flags N; size N; nsec N; versionlen N; versionpad; versionnul;
 *		mountflags N
 *	readdir	name TEXT (\0 and \s for NUL and slash); reclen N; namelen N; type N; dpad;
 *		count N; empty; rflags N
 *	readlink	target TEXT; targetnul; empty
 *	open	open PATH; rdonly PATH; wronly PATH; buffered PATH; opath PATH; pipe; closed;
 *		self
 *	map	blocks N; bits; mpad; lie
 *	fill	nothing; past; over; inside; ragged; long; nowhere; misplaced; zero; other;
 *		repeat; half; backwards; late; die-half
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "failnth.h"
#include "standin_fault.h"
#include "standin_files.h"

static struct wfs_cmd commit_cmd(const struct reply *reply, const struct wfs_request *request)
{
	size_t len;

	return (struct wfs_cmd){
		.op = WFS_CMD_COMMIT,
		.session = standin_session(),
		.id = request->id,
		.status = reply->status,
		.fd = reply->fd,
		.len = (uint32_t)reply->len,
		.buf = reply->len ? (uint64_t)(reply->payload - standin_memory(&len)) : 0,
	};
}

int reply_send(const struct reply *reply, const struct wfs_request *request)
{
	struct wfs_cmd cmd = commit_cmd(reply, request);

	return standin_send(&cmd);
}

static bool action(const struct fault *fault, const char *name)
{
	return !strcmp(fault->action, name);
}

bool fault_answers(const struct fault *fault)
{
	static const char *const others[] = {
		"past",	 "over",   "inside", "ragged",	  "long",    "nowhere", "misplaced", "zero",
		"other", "repeat", "half",   "backwards", "wrongid", "stale",	"cold",
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (action(fault, others[i]))
			return false;
	return true;
}

__attribute__((noreturn)) static void die_now(const struct fault *fault, const char *request)
{
	printf("fault %s %s 0\n", request, fault->action);
	fflush(stdout);
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static int evict_cold(const char *path)
{
	struct node *node = files_node_at(path);
	struct wfs_cmd cmd = {
		.op = WFS_CMD_EVICT,
		.flags = WFS_EVICT_COLD,
		.session = standin_session(),
		.fd = -1,
	};

	if (!node)
		return -ENXIO;
	cmd.node = node->id;
	return standin_send(&cmd);
}

/* Wrongs of the commit itself. */
static int spoil_commit(const struct fault *fault, const struct wfs_request *request,
			struct reply *reply, unsigned long n)
{
	struct wfs_cmd cmd = commit_cmd(reply, request);
	size_t memory_len;
	char *memory = standin_memory(&memory_len);
	int r;

	if (action(fault, "cold"))
		return evict_cold(fault->arg ? fault->arg : "");
	if (action(fault, "status")) {
		cmd.status = (int)strtol(fault->arg, NULL, 0);
		if (cmd.status) {
			cmd.len = 0;
			cmd.buf = 0;
			cmd.fd = -1;
		}
	} else if (action(fault, "positive")) {
		cmd.status = 5;
	} else if (action(fault, "stale")) {
		cmd.session--;
	} else if (action(fault, "wrongid")) {
		cmd.id += 1000000;
	} else if (action(fault, "grow")) {
		memset(memory + cmd.buf + cmd.len, 0, n);
		cmd.len += (uint32_t)n;
	} else if (action(fault, "cut")) {
		cmd.len = n < cmd.len ? cmd.len - (uint32_t)n : 0;
	} else if (action(fault, "oversize")) {
		cmd.len = WFS_REPLY_MAX + 8;
	} else if (action(fault, "outside")) {
		cmd.buf = memory_len - 8;
		cmd.len = 64;
	} else if (action(fault, "unaligned")) {
		memmove(memory + cmd.buf + 4, memory + cmd.buf, cmd.len);
		cmd.buf += 4;
		cmd.len = cmd.len ? cmd.len : 8;
	} else if (action(fault, "fd")) {
		cmd.fd = STDERR_FILENO;
	} else if (action(fault, "twice")) {
		r = standin_send(&cmd);
		printf("fault %u first %d\n", request->opcode, r);
		standin_send(&cmd);
		return standin_send(&cmd);
	} else if (action(fault, "failnth")) {
		int fd = failnth_open();

		failnth_begin(fd, (unsigned int)n);
		r = standin_send(&cmd);
		printf("failnth %s %d\n", fault->request, failnth_end(fd));
		close(fd);
		return r;
	} else if (!action(fault, "as-is")) {
		return -ENOSYS;
	}
	return standin_send(&cmd);
}

static bool spoil_attr(const struct fault *fault, struct wfs_attr *attr, unsigned long n)
{
	if (action(fault, "mode"))
		attr->mode = (uint32_t)n;
	else if (action(fault, "flags"))
		attr->flags = (uint32_t)n;
	else if (action(fault, "size"))
		attr->size = strtoull(fault->arg, NULL, 0);
	else if (action(fault, "nsec"))
		attr->mtime_nsec = (uint32_t)n;
	else if (action(fault, "versionlen"))
		attr->version_len = (uint32_t)n;
	else if (action(fault, "versionpad"))
		attr->version[255] = 'x';
	else if (action(fault, "versionnul"))
		attr->version[attr->version_len++] = '\0';
	else
		return false;
	return true;
}

/* Puts a name into the first record, or makes one: "\0" is a NUL, "\s" a slash. */
static void put_name(struct reply *reply, const char *text)
{
	struct wfs_readdir_reply *head = (struct wfs_readdir_reply *)reply->payload;
	struct wfs_dirent *dirent = (struct wfs_dirent *)(head + 1);
	size_t len = 0;

	memset(head, 0, sizeof(*head) + sizeof(*dirent) + 512);
	while (*text && len < 300) {
		if (*text == '\\' && text[1]) {
			dirent->name[len++] = text[1] == '0' ? '\0' : '/';
			text += 2;
		} else {
			dirent->name[len++] = (uint8_t)*text++;
		}
	}
	dirent->namelen = (uint8_t)len;
	dirent->type = 8;
	dirent->reclen = (uint16_t)((sizeof(*dirent) + len + 7) & ~7UL);
	head->count = 1;
	head->flags = WFS_READDIR_EOF;
	reply->len = sizeof(*head) + dirent->reclen;
}

static bool spoil_readdir(const struct fault *fault, struct reply *reply, unsigned long n)
{
	struct wfs_readdir_reply *head = (struct wfs_readdir_reply *)reply->payload;
	struct wfs_dirent *dirent = (struct wfs_dirent *)(head + 1);

	if (action(fault, "name")) {
		put_name(reply, fault->arg ? fault->arg : "");
	} else if (action(fault, "reclen")) {
		dirent->reclen = (uint16_t)n;
	} else if (action(fault, "namelen")) {
		dirent->namelen = (uint8_t)n;
	} else if (action(fault, "type")) {
		dirent->type = (uint8_t)n;
	} else if (action(fault, "dpad")) {
		dirent->pad = 1;
	} else if (action(fault, "count")) {
		head->count = (uint32_t)n;
	} else if (action(fault, "rflags")) {
		head->flags = (uint32_t)n;
	} else if (action(fault, "empty")) {
		memset(head, 0, sizeof(*head));
		reply->len = sizeof(*head);
	} else {
		return false;
	}
	return true;
}

static bool spoil_readlink(const struct fault *fault, struct reply *reply)
{
	if (action(fault, "empty")) {
		reply->len = 0;
	} else if (action(fault, "target")) {
		reply->len = strlen(fault->arg);
		memcpy(reply->payload, fault->arg, reply->len);
	} else if (action(fault, "targetnul")) {
		reply->payload[reply->len / 2] = '\0';
	} else {
		return false;
	}
	return true;
}

static bool spoil_open(const struct fault *fault, struct reply *reply)
{
	int pipes[2];

	if (action(fault, "open")) {
		reply->fd = open(fault->arg, O_RDWR | O_DIRECT | O_CLOEXEC);
		if (reply->fd < 0)
			reply->fd = open(fault->arg, O_RDONLY | O_CLOEXEC);
	} else if (action(fault, "rdonly")) {
		reply->fd = open(fault->arg, O_RDONLY | O_DIRECT | O_CLOEXEC);
	} else if (action(fault, "wronly")) {
		reply->fd = open(fault->arg, O_WRONLY | O_DIRECT | O_CLOEXEC);
	} else if (action(fault, "buffered")) {
		reply->fd = open(fault->arg, O_RDWR | O_CLOEXEC);
	} else if (action(fault, "opath")) {
		reply->fd = open(fault->arg, O_PATH | O_CLOEXEC);
	} else if (action(fault, "pipe")) {
		if (!pipe2(pipes, O_CLOEXEC))
			reply->fd = pipes[0];
	} else if (action(fault, "closed")) {
		reply->fd = 1000;
	} else if (action(fault, "self")) {
		reply->fd = open(WFS_DEVICE, O_RDWR | O_CLOEXEC);
	} else {
		return false;
	}
	return true;
}

static bool spoil_map(const struct fault *fault, struct reply *reply, unsigned long n)
{
	struct wfs_map_reply *map = (struct wfs_map_reply *)reply->payload;
	uint64_t *bitmap = (uint64_t *)(map + 1);

	if (action(fault, "blocks")) {
		map->blocks = (uint32_t)n;
	} else if (action(fault, "mpad")) {
		map->pad = 1;
	} else if (action(fault, "bits")) {
		bitmap[map->blocks / 64] |= 1ULL << (map->blocks % 64);
		if (map->blocks % 64 == 0)
			reply->len += 8;
	} else if (action(fault, "lie")) {
		/* The first block, as if it were cached; its sums are those of nothing. */
		bitmap[0] |= 1;
		memset(reply->payload + reply->len, 0x5a, n * 8);
		reply->len += n * 8;
	} else {
		return false;
	}
	return true;
}

static int deliver_raw(const struct wfs_request *request, uint64_t id, uint64_t offset,
		       uint64_t buf, uint32_t len)
{
	struct wfs_cmd cmd = {
		.op = WFS_CMD_DELIVER,
		.session = standin_session(),
		.id = id,
		.fd = -1,
		.offset = offset,
		.buf = buf,
		.len = len,
	};

	(void)request;
	return standin_send(&cmd);
}

/* -ENOSYS: no wrong of this kind. */
static int spoil_fill(const struct fault *fault, const struct wfs_request *request,
		      struct reply *reply)
{
	uint64_t bytes = standin_block_bytes(request);
	uint64_t start = (uint64_t)request->unit << WFS_UNIT_SHIFT;
	uint64_t whole = (bytes + WFS_UNIT_SIZE - 1) & ~(uint64_t)(WFS_UNIT_SIZE - 1);
	size_t memory_len;
	int r = 0;

	standin_memory(&memory_len);
	if (action(fault, "nothing"))
		return reply_send(reply, request);
	if (action(fault, "past"))
		return deliver_raw(request, request->id, whole, 1 << 20, WFS_UNIT_SIZE);
	if (action(fault, "over"))
		return deliver_raw(request, request->id, whole - WFS_UNIT_SIZE, 1 << 20,
				   2 * WFS_UNIT_SIZE);
	if (action(fault, "inside"))
		return deliver_raw(request, request->id, start + 4096, 1 << 20, WFS_UNIT_SIZE);
	if (action(fault, "ragged"))
		return deliver_raw(request, request->id, start, 1 << 20, WFS_UNIT_SIZE / 2);
	if (action(fault, "long"))
		return deliver_raw(request, request->id, start, 1 << 20,
				   WFS_DELIVER_MAX + WFS_UNIT_SIZE);
	if (action(fault, "nowhere"))
		return deliver_raw(request, request->id, start, memory_len - 8, WFS_UNIT_SIZE);
	if (action(fault, "misplaced"))
		return deliver_raw(request, request->id, start, (1 << 20) + 4, WFS_UNIT_SIZE);
	if (action(fault, "zero"))
		return deliver_raw(request, request->id, start, 0, 0);
	if (action(fault, "other"))
		return deliver_raw(request, request->id + 1000000, start, 1 << 20, WFS_UNIT_SIZE);
	if (action(fault, "repeat")) {
		r = standin_deliver(request, request->unit, request->units);
		return r < 0 ? r : standin_deliver(request, request->unit, request->units);
	}
	if (action(fault, "half"))
		return standin_deliver(request, request->unit, request->units / 2);
	if (action(fault, "backwards")) {
		for (uint32_t unit = request->units; unit-- > 0 && r >= 0;)
			r = standin_deliver(request, request->unit + unit, 1);
		return r;
	}
	if (action(fault, "late")) {
		r = standin_deliver(request, request->unit, request->units);
		if (r >= 0)
			r = reply_send(reply, request);
		return r < 0 ? r : deliver_raw(request, request->id, start, 1 << 20, WFS_UNIT_SIZE);
	}
	return -ENOSYS;
}

int fault_do(const struct fault *fault, const struct wfs_request *request, struct reply *reply)
{
	unsigned long n = fault->arg ? strtoul(fault->arg, NULL, 0) : 0;
	bool spoiled = false;
	int r;

	if (action(fault, "die"))
		die_now(fault, fault->request);
	if (action(fault, "die-half")) {
		standin_deliver(request, request->unit, (request->units + 1) / 2);
		die_now(fault, fault->request);
	}
	if (action(fault, "never"))
		return 0;
	if (action(fault, "die-after")) {
		if (request->opcode == WFS_REQ_FILL)
			standin_deliver(request, request->unit, request->units);
		reply_send(reply, request);
		die_now(fault, fault->request);
	}
	switch (request->opcode) {
	case WFS_REQ_MOUNT:
		if (action(fault, "mountflags")) {
			((struct wfs_mount_reply *)reply->payload)->flags = n;
			spoiled = true;
			break;
		}
		spoiled = spoil_attr(fault, &((struct wfs_mount_reply *)reply->payload)->root, n);
		break;
	case WFS_REQ_LOOKUP:
	case WFS_REQ_GETATTR:
		spoiled = spoil_attr(fault, (struct wfs_attr *)reply->payload, n);
		break;
	case WFS_REQ_READDIR:
		spoiled = spoil_readdir(fault, reply, n);
		break;
	case WFS_REQ_READLINK:
		spoiled = spoil_readlink(fault, reply);
		break;
	case WFS_REQ_OPEN:
		spoiled = spoil_open(fault, reply);
		break;
	case WFS_REQ_MAP:
		spoiled = spoil_map(fault, reply, n);
		break;
	case WFS_REQ_FILL:
		r = spoil_fill(fault, request, reply);
		if (r != -ENOSYS)
			return r;
		break;
	default:
		break;
	}
	return spoiled ? reply_send(reply, request) : spoil_commit(fault, request, reply, n);
}
