// SPDX-License-Identifier: MIT
/*
 * store_read: what is recorded of objects, and reading it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "store_impl.h"

#define UNIT_SHIFT 16
/* A block may be evicted while it is read, and stored again: its bytes are looked at anew. */
#define READ_TRIES 3

struct read_list {
	const char *identity, *path;
	uint64_t *ids;
	size_t count, size;
};

static int read_listed(void *arg, const struct index_file *record)
{
	struct read_list *list = arg;

	if (strcmp(record->identity, list->identity) || !evict_below(record->path, list->path))
		return 0;
	if (list->count == list->size) {
		size_t size = list->size ? list->size * 2 : 64;
		uint64_t *ids = reallocarray(list->ids, size, sizeof(*ids));

		if (!ids)
			return -ENOMEM;
		list->ids = ids;
		list->size = size;
	}
	list->ids[list->count++] = record->id;
	return 0;
}

static int read_copy(void *arg, const struct index_file *record)
{
	struct store_object *object = arg;
	char *path = strdup(record->path), *version = strdup(record->version);

	if (!path || !version) {
		free(path);
		free(version);
		return -ENOMEM;
	}
	object->key.path = path;
	object->key.version = version;
	object->key.size = record->size;
	object->key.block_shift = record->block_shift;
	object->bytes = record->bytes;
	object->blocks = record->blocks;
	return 0;
}

/* Is there no such data file, or one that cannot be it? */
static bool read_is_lost(const struct store_dir *dir, uint64_t id, uint64_t size)
{
	struct stat st;
	char path[64];

	store_file_path(id, path, sizeof(path));
	if (fstatat(dir->fd, path, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT;
	return !S_ISREG(st.st_mode) || (uint64_t)st.st_size != ((size + 4095) & ~4095ULL);
}

/* -ENOENT: it is recorded no more. */
static int read_one(struct store_dir *dir, uint64_t id, const char *identity,
		    int (*fn)(void *arg, const struct store_object *object), void *arg)
{
	struct store_object object = { .key.identity = identity }, again = { 0 };
	int err = index_file(dir->index, id, read_copy, &object);

	if (err)
		return err;
	object.lost = read_is_lost(dir, id, object.key.size);
	/* Or it went just now, with its record. */
	if (object.lost)
		err = index_file(dir->index, id, read_copy, &again);
	if (!err)
		err = fn(arg, &object);
	free((char *)object.key.path);
	free((char *)object.key.version);
	free((char *)again.key.path);
	free((char *)again.key.version);
	return err;
}

int store_each_object(struct store *store, const char *identity, const char *path,
		      int (*fn)(void *arg, const struct store_object *object), void *arg)
{
	int err = 0;

	for (size_t i = 0; i < store->dir_count && !err; i++) {
		struct read_list list = { .identity = identity, .path = path };
		struct store_dir *dir = &store->dirs[i];

		err = index_each_file(dir->index, read_listed, &list);
		/* A directory that is lost has nothing. */
		if (err == -ENODEV)
			err = 0;
		for (size_t j = 0; j < list.count && !err; j++) {
			err = read_one(dir, list.ids[j], identity, fn, arg);
			if (err == -ENOENT || err == -ENODEV)
				err = 0;
		}
		free(list.ids);
	}
	return err;
}

int store_next_block(struct store_file *file, uint64_t from, uint64_t *ret_block)
{
	struct index_block found;
	int n = index_file_blocks(file->dir->index, file->id, from, &found, 1);

	if (n < 0)
		return n == -ENODEV ? -ENOENT : n;
	if (!n || !store_block_len(file->key.size, file->key.block_shift, found.block))
		return -ENOENT;
	*ret_block = found.block;
	return 0;
}

static int read_bytes(int fd, char *bytes, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t n = pread(fd, bytes, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		/* Short, and direct I/O cannot go on from there. */
		if (!n || n & 511)
			return -EIO;
		bytes += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static bool read_is_right(const char *bytes, uint64_t len, const uint64_t *sums)
{
	for (uint64_t at = 0; at < len; at += 1ULL << UNIT_SHIFT) {
		uint64_t left = len - at, unit = 1ULL << UNIT_SHIFT;

		if (sums[at >> UNIT_SHIFT] != XXH64(bytes + at, left < unit ? left : unit, 0))
			return false;
	}
	return true;
}

int store_read_block(struct store_file *file, uint64_t block, void *buffer, store_read_fn fn,
		     void *arg)
{
	const struct store_key *key = &file->key;
	uint64_t len = store_block_len(key->size, key->block_shift, block);
	uint32_t units = (uint32_t)((len + (1ULL << UNIT_SHIFT) - 1) >> UNIT_SHIFT);
	cleanup_free uint64_t *sums = calloc(units + 1, sizeof(*sums));
	int fd, err;

	if (!sums)
		return -ENOMEM;
	err = store_lookup(file, block, sums, units);
	if (err)
		return err;
	fd = store_file_begin(file);
	if (fd < 0)
		return fd == -ENOENT ? -EUCLEAN : fd;
	for (uint64_t at = 0; at < len && !err;) {
		uint64_t piece = len - at < STORE_READ_BYTES ? len - at : STORE_READ_BYTES;
		bool right = false;

		for (int try = 0; try < READ_TRIES && !right && !err; try++) {
			int failed = read_bytes(fd, buffer, (piece + 4095) & ~4095ULL,
						(block << key->block_shift) + at);

			right = !failed && read_is_right(buffer, piece, sums + (at >> UNIT_SHIFT));
			/* Only what is recorded still has to be right. */
			if (!right)
				err = store_lookup(file, block, sums, units);
			if (!right && !err && try + 1 == READ_TRIES)
				err = failed ? failed : -EUCLEAN;
		}
		if (!err)
			err = fn(arg, buffer, piece);
		at += piece;
	}
	store_file_end(file);
	return err;
}
