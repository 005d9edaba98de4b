// SPDX-License-Identifier: MIT
/*
 * store_collect: finds, in the background, what an earlier start left behind: data files and
 * blocks that no record speaks of.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faultpoint.h"
#include "store_impl.h"

#define LOG_AREA "store"
#include "log.h"

struct collect {
	struct store *store;
	struct store_dir *dir;
	struct store_file *file; /* a reference, found by its record */
	uint64_t blocks, bytes;
};

static int collect_found(void *arg, const struct index_file *record)
{
	struct collect *collect = arg;

	collect->blocks = record->blocks;
	collect->bytes = record->bytes;
	return 0;
}

static int collect_take(void *arg, const struct index_file *record)
{
	struct collect *collect = arg;

	collect->file = store_file_of(collect->store, collect->dir, record);
	return collect->file ? 0 : -ENOMEM;
}

static void collect_hole(int fd, uint64_t from, uint64_t to)
{
	if (to > from)
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			  (off_t)(to - from));
}

/* Everything between the blocks that are recorded. */
static void collect_punch(const struct collect *collect, int fd)
{
	const struct store_file *file = collect->file;
	uint64_t end = (file->key.size + 4095) & ~4095ULL, at = 0, next = 0;
	struct index_block blocks[64];
	int n;

	do {
		n = index_file_blocks(collect->dir->index, file->id, next, blocks, 64);
		for (int i = 0; i < n; i++) {
			uint64_t start = blocks[i].block << file->key.block_shift;

			/* Beyond the file: a damaged record, by which nothing is punched. */
			if (!store_block_len(file->key.size, file->key.block_shift,
					     blocks[i].block))
				return;
			collect_hole(fd, at, start);
			at = start + (1ULL << file->key.block_shift);
			next = blocks[i].block + 1;
		}
	} while (n > 0);
	if (!n)
		collect_hole(fd, at, end);
	faultpoint(FAULT_COLLECTED);
}

/* Written, but not recorded when an earlier daemon was killed. */
static void collect_excess(struct collect *collect, uint64_t id, int dir_fd, const char *name)
{
	/* Tails of blocks, and what the filesystem needs for itself. */
	uint64_t expected = collect->bytes + (collect->blocks + 32) * 4096;
	struct store *store = collect->store;
	struct stat st;
	bool mine;
	int fd;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    (uint64_t)st.st_blocks * 512 <= expected)
		return;
	collect->file = NULL;
	if (index_file(collect->dir->index, id, collect_take, collect))
		return;
	/* What is being written is not recorded either. */
	pthread_mutex_lock(&store->lock);
	mine = !collect->file->writes;
	collect->file->collecting = mine;
	pthread_mutex_unlock(&store->lock);
	fd = mine ? store_file_begin(collect->file) : -1;
	if (fd >= 0) {
		collect_punch(collect, fd);
		store_file_end(collect->file);
	}
	if (mine) {
		pthread_mutex_lock(&store->lock);
		collect->file->collecting = false;
		pthread_mutex_unlock(&store->lock);
		store->ops.space(store->ops.arg);
	}
	store_file_put(collect->file);
}

/* Open, though nothing of it is recorded (any more). */
static bool collect_in_use(struct store *store, const struct store_dir *dir, uint64_t id)
{
	SCOPED_LOCK(&store->lock);

	for (size_t i = 0; i < STORE_BUCKETS; i++)
		for (const struct store_file *file = store->files[i]; file; file = file->next)
			if (file->dir == dir && file->id == id && !file->dead)
				return true;
	return false;
}

void store_collect(struct store *store, struct store_dir *dir, unsigned int sub)
{
	struct collect collect = { .store = store, .dir = dir };
	struct dirent *entry;
	char path[16];
	DIR *list;
	int fd;

	snprintf(path, sizeof(path), "data/%02x", sub);
	fd = openat(dir->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = fd < 0 ? NULL : fdopendir(fd);
	if (!list) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(list))) {
		char *end;
		uint64_t id;
		int err;

		if (entry->d_name[0] == '.')
			continue;
		id = strtoull(entry->d_name, &end, 16);
		/* Files of this start are not recorded yet. */
		if (*end || id >= dir->first_id)
			continue;
		err = index_file(dir->index, id, collect_found, &collect);
		if (!err) {
			collect_excess(&collect, id, dirfd(list), entry->d_name);
		} else if (err == -ENOENT && !collect_in_use(store, dir, id)) {
			unlinkat(dirfd(list), entry->d_name, 0);
			faultpoint(FAULT_COLLECTED);
		}
	}
	closedir(list);
}
