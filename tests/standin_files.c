// SPDX-License-Identifier: MIT
/*
 * standin_files: what the files made of arithmetic are, block by block, and what is right
 * to answer to a request about them.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>
#include "chan.h"
#include "standin_files.h"

struct script files_script;
char *files_memory;
static struct node *nodes;

struct node *files_node(uint64_t id)
{
	struct node *node;

	for (node = nodes; node && node->id != id;)
		node = node->next;
	return node;
}

/* Node of the file's last version, or NULL. */
struct node *files_node_at(const char *path)
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

uint64_t files_blocks(const struct node *node)
{
	return (node->file->size + (1ULL << node->block_shift) - 1) >> node->block_shift;
}

/* Sums of a block, one a unit. */
size_t files_sums(const struct node *node, uint64_t block, uint64_t *to)
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
	struct wfs_cmd cmd = chan_op(WFS_CMD_STORED, standin_session());

	cmd.node = node->id;
	cmd.block = block;
	cmd.len = (uint32_t)(files_sums(node, block, (uint64_t *)files_memory) * sizeof(uint64_t));
	return standin_send(&cmd);
}

int files_write(const struct node *node, uint64_t block)
{
	uint64_t bytes = block_bytes(node, block), at;
	char *unit = files_memory + FILES_DATA;

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

void files_store(struct node *node, uint64_t block)
{
	struct wfs_cmd cmd = chan_op(WFS_CMD_DROPPED, standin_session());

	if (files_script.store && node->fd >= 0 && !files_write(node, block)) {
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
	const struct file *file = script_find(&files_script, path);

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
	for (struct file *file = files_script.files; in && file && n < 100000; file = file->next)
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
		if (reply->len + reclen > WFS_REPLY_MAX ||
		    (files_script.page && head->count == files_script.page)) {
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
	const struct file *file = script_find(&files_script, path);

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

	if (!files_script.cache || node->file->weak)
		return -1;
	snprintf(path, sizeof(path), "%s/%016llx-%u", files_script.cache, (unsigned long long)key,
		 node->block_shift);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_NOATIME | O_CLOEXEC, 0600);
	if (fd >= 0 && ftruncate(fd, (off_t)((node->file->size + 4095) & ~4095ULL)))
		fprintf(stderr, "standin: %s: %s\n", path, strerror(errno));
	return fd;
}

static void reply_open(struct reply *reply, const struct wfs_request *request, const char *path,
		       const char *version)
{
	struct node *node = files_node(request->node);
	struct file *file;

	for (file = files_script.files; file; file = file->next)
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
	node->stored = calloc(files_blocks(node) + 1, 1);
	reply->fd = node->fd;
}

static void reply_map(struct reply *reply, const struct wfs_request *request)
{
	struct wfs_map_reply *map = (struct wfs_map_reply *)reply->payload;
	const struct node *node = files_node(request->node);
	unsigned int shift = node ? WFS_WINDOW_SHIFT - node->block_shift : 0;
	uint64_t first = (uint64_t)request->window << shift, count = 1ULL << shift;
	uint64_t *bitmap = (uint64_t *)(map + 1), *sums;

	if (!node || first >= files_blocks(node)) {
		reply->status = -EINVAL;
		return;
	}
	if (count > files_blocks(node) - first)
		count = files_blocks(node) - first;
	memset(map, 0, sizeof(*map));
	map->blocks = (uint32_t)count;
	memset(bitmap, 0, (count + 63) / 64 * 8);
	sums = bitmap + (count + 63) / 64;
	for (uint64_t i = 0; i < count; i++)
		if (node->stored[first + i]) {
			bitmap[i / 64] |= 1ULL << (i % 64);
			sums += files_sums(node, first + i, sums);
		}
	reply->len = (size_t)((char *)sums - reply->payload);
}

/* Delivers [unit, unit + units) of the request's block, from its file. */
int standin_deliver(const struct wfs_request *request, uint32_t unit, uint32_t units)
{
	const struct node *node = files_node(request->node);
	uint64_t bytes, at = (uint64_t)unit << WFS_UNIT_SHIFT;
	uint64_t end = (uint64_t)(unit + units) << WFS_UNIT_SHIFT;
	int r = 0;

	if (!node)
		return -ENOENT;
	bytes = block_bytes(node, request->block);
	if (end > bytes)
		end = bytes;
	for (; at < end && r >= 0; at += WFS_DELIVER_MAX) {
		struct wfs_cmd cmd = chan_op(WFS_CMD_DELIVER, standin_session());

		cmd.id = request->id;
		cmd.offset = at;
		cmd.buf = FILES_DATA;
		cmd.len = end - at < WFS_DELIVER_MAX ? (uint32_t)(end - at) : WFS_DELIVER_MAX;
		content(node->file->path, node->file->version,
			(request->block << node->block_shift) + at, files_memory + FILES_DATA,
			cmd.len);
		r = standin_send(&cmd);
	}
	return r;
}

uint64_t standin_block_bytes(const struct wfs_request *request)
{
	const struct node *node = files_node(request->node);

	return node ? block_bytes(node, request->block) : 0;
}

void files_forget(uint64_t id)
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

void files_reply(struct reply *reply, const struct wfs_request *request, const char *a,
		 const char *b)
{
	*reply = (struct reply){ .payload = files_memory, .fd = -1 };
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
