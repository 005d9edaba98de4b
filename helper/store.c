// SPDX-License-Identifier: MIT
/*
 * store: the cache directories, and what is asked of the store by the workers.
 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "counters.h"
#include "loop.h"
#include "store_impl.h"

#define LOG_AREA "store"
#include "log.h"

#define STORE_FORMAT "wfs cache 1\n"
/* Of the filesystem, left to others. */
#define STORE_LEAVE_PERCENT 1
#define STORE_LEAVE_MAX	    (1ULL << 30)
/* How long a directory rests after an error. */
#define STORE_REST_NS 5000000000ULL

uint64_t store_now(void)
{
	return counter_now();
}

bool store_is_evicting(const struct store *store, const struct store_file *file, uint64_t block)
{
	for (unsigned int i = 0; i < store->evicting_count; i++)
		if (store->evicting[i].file == file && store->evicting[i].block == block)
			return true;
	return false;
}

static int store_mkdir(const char *path)
{
	char part[4096];

	if (strlen(path) >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= strlen(path); i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0700) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Is there anything that the store did not put there? */
static int store_check_format(struct store_dir *dir, char *msg, size_t msg_size)
{
	char text[64];
	ssize_t len;
	cleanup_close int fd = openat(dir->fd, "format", O_RDONLY | O_CLOEXEC);

	if (fd < 0 && errno != ENOENT) {
		snprintf(msg, msg_size, "%s/format cannot be read: %s", dir->path, strerror(errno));
		return -errno;
	}
	if (fd < 0) {
		fd = openat(dir->fd, "format.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 ||
		    write(fd, STORE_FORMAT, strlen(STORE_FORMAT)) !=
			    (ssize_t)strlen(STORE_FORMAT) ||
		    fsync(fd) || renameat(dir->fd, "format.new", dir->fd, "format") ||
		    fsync(dir->fd)) {
			snprintf(msg, msg_size, "%s/format cannot be written: %s", dir->path,
				 strerror(errno));
			return errno ? -errno : -EIO;
		}
		return 0;
	}
	len = read(fd, text, sizeof(text) - 1);
	if (len < 0)
		return -errno;
	text[len] = '\0';
	if (!strcmp(text, STORE_FORMAT))
		return 0;
	text[strcspn(text, "\n")] = '\0';
	snprintf(msg, msg_size,
		 "cache directory %s has a format that this version does not know (\"%s\"); name another directory, or empty this one",
		 dir->path, text);
	return -EPROTONOSUPPORT;
}

/* Who has the lock, as far as is known: its process wrote it there. */
static void store_lock_owner(const struct store_dir *dir, char *text, size_t size)
{
	char pid[16] = "";
	ssize_t len = pread(dir->lock_fd, pid, sizeof(pid) - 1, 0);

	pid[len < 0 ? 0 : len] = '\0';
	pid[strspn(pid, "0123456789")] = '\0';
	snprintf(text, size, *pid ? " (process %s)" : "%s", pid);
}

static int store_lock_dir(struct store_dir *dir, char *msg, size_t msg_size)
{
	char owner[40];
	int err = store_mkdir(dir->path);

	if (!err) {
		dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		err = dir->fd < 0 ? -errno : 0;
	}
	if (err) {
		snprintf(msg, msg_size, "cache directory %s cannot be opened: %s", dir->path,
			 strerror(-err));
		return err;
	}
	dir->lock_fd = openat(dir->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (dir->lock_fd < 0) {
		err = -errno;
		snprintf(msg, msg_size, "%s/lock cannot be opened: %s", dir->path, strerror(-err));
		return err;
	}
	if (flock(dir->lock_fd, LOCK_EX | LOCK_NB)) {
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
		store_lock_owner(dir, owner, sizeof(owner));
		if (err == -EBUSY)
			snprintf(msg, msg_size, "cache directory %s is in use by another wfsd%s",
				 dir->path, owner);
		else
			snprintf(msg, msg_size, "%s/lock cannot be locked: %s", dir->path,
				 strerror(-err));
		return err;
	}
	/* For messages only: it may fail. */
	if (!ftruncate(dir->lock_fd, 0))
		dprintf(dir->lock_fd, "%d\n", (int)getpid());
	return 0;
}

static int store_count_file(void *arg, const struct index_file *file)
{
	struct store_dir *dir = arg;

	dir->used += file->bytes;
	dir->files++;
	return 0;
}

void store_measure(struct store *store, struct store_dir *dir)
{
	struct statvfs vfs;
	uint64_t free_bytes, leave, limit;

	if (fstatvfs(dir->fd, &vfs))
		return;
	free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	leave = (uint64_t)vfs.f_blocks * vfs.f_frsize / 100 * STORE_LEAVE_PERCENT;
	if (leave > STORE_LEAVE_MAX)
		leave = STORE_LEAVE_MAX;
	SCOPED_LOCK(&store->lock);
	limit = dir->used + (free_bytes > leave ? free_bytes - leave : 0);
	if (!dir->configured)
		dir->configured = store->capacity.bytes ?
					  store->capacity.bytes :
					  (uint64_t)((double)(dir->used + free_bytes) *
						     store->capacity.percent / 100);
	dir->capacity = dir->configured < limit ? dir->configured : limit;
}

/* Data files are read and written past the page cache. */
static int store_probe(struct store_dir *dir, char *msg, size_t msg_size)
{
	cleanup_close int fd =
		openat(dir->fd, "probe", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	int err = fd < 0 ? -errno : 0;

	if (!err && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096))
		err = -errno;
	unlinkat(dir->fd, "probe", 0);
	if (err == -EINVAL || err == -EOPNOTSUPP)
		snprintf(msg, msg_size,
			 "cache directory %s is on a filesystem without direct I/O or holes; use XFS or ext4",
			 dir->path);
	else if (err)
		snprintf(msg, msg_size, "cache directory %s cannot be written: %s", dir->path,
			 strerror(-err));
	return err;
}

static int store_open_dir(struct store *store, struct store_dir *dir, char *msg, size_t msg_size)
{
	char path[4096 + 16];
	int err = store_check_format(dir, msg, msg_size);

	if (!err)
		err = store_probe(dir, msg, msg_size);
	if (err)
		return err;
	snprintf(path, sizeof(path), "%s/index", dir->path);
	if (mkdir(path, 0700) && errno != EEXIST)
		err = -errno;
	snprintf(path, sizeof(path), "%s/data", dir->path);
	if (!err && mkdir(path, 0700) && errno != EEXIST)
		err = -errno;
	for (unsigned int i = 0; !err && i < 256; i++) {
		snprintf(path, sizeof(path), "%s/data/%02x", dir->path, i);
		if (mkdir(path, 0700) && errno != EEXIST)
			err = -errno;
	}
	if (err) {
		snprintf(msg, msg_size, "cannot make directories in %s: %s", dir->path,
			 strerror(-err));
		return err;
	}
	snprintf(path, sizeof(path), "%s/index", dir->path);
	err = index_open(path, &dir->index, msg, msg_size);
	if (err)
		return err;
	/* No id is ever used twice, so that what a lost start left behind is nobody's. */
	dir->first_id = index_starts(dir->index) << 40;
	dir->next_id = dir->first_id;
	err = index_each_file(dir->index, store_count_file, dir);
	if (err) {
		snprintf(msg, msg_size,
			 "the index of %s cannot be read: %s; remove the cache directory",
			 dir->path, strerror(-err));
		return err;
	}
	store_measure(store, dir);
	log_info("cache %s: %llu MiB in %llu files, capacity %llu MiB", dir->path,
		 (unsigned long long)dir->used >> 20, (unsigned long long)dir->files,
		 (unsigned long long)dir->capacity >> 20);
	return 0;
}

int store_create(const struct config *config, const struct store_ops *ops, struct store **ret,
		 char *msg, size_t msg_size)
{
	struct store *store = calloc(1, sizeof(*store));
	pthread_condattr_t attr;
	struct rlimit limit;
	int err = 0;

	if (!store)
		return -ENOMEM;
	pthread_mutex_init(&store->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&store->wake, &attr);
	pthread_cond_init(&store->done, &attr);
	pthread_condattr_destroy(&attr);
	store->ops = *ops;
	store->commits_end = &store->commits;
	store->low = config->low;
	store->high = config->high;
	store->cleanup_ms = config->cleanup_interval_ms;
	store->capacity = config->capacity;
	store->fd_limit = 1024;
	if (!getrlimit(RLIMIT_NOFILE, &limit))
		store->fd_limit = limit.rlim_cur / 2 > 1000000 ? 1000000 :
								 (unsigned int)(limit.rlim_cur / 2);
	store->dirs = calloc(config->dir_count, sizeof(*store->dirs));
	if (!store->dirs)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < config->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];

		dir->fd = -1;
		dir->lock_fd = -1;
		dir->path = strdup(config->dirs[i]);
		store->dir_count++;
		err = dir->path ? store_lock_dir(dir, msg, msg_size) : -ENOMEM;
	}
	/* All or nothing: who waits for one of them has changed none. */
	for (size_t i = 0; !err && i < store->dir_count; i++)
		err = store_open_dir(store, &store->dirs[i], msg, msg_size);
	if (err) {
		store_destroy(store);
		return err;
	}
	*ret = store;
	return 0;
}

int store_start(struct store *store)
{
	int err = -pthread_create(&store->thread, NULL, store_thread, store);

	store->running = !err;
	return err;
}

void store_stop(struct store *store)
{
	if (!store->running)
		return;
	pthread_mutex_lock(&store->lock);
	store->stop = true;
	pthread_cond_broadcast(&store->wake);
	pthread_mutex_unlock(&store->lock);
	pthread_join(store->thread, NULL);
	store->running = false;
}

void store_destroy(struct store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];

		index_close(dir->index);
		if (dir->fd >= 0)
			close(dir->fd);
		/* Explicitly: a ring may keep the file for a moment longer. */
		if (dir->lock_fd >= 0) {
			flock(dir->lock_fd, LOCK_UN);
			close(dir->lock_fd);
		}
		free(dir->path);
	}
	free(store->dirs);
	pthread_cond_destroy(&store->wake);
	pthread_cond_destroy(&store->done);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

void store_reload(struct store *store, const struct config *config)
{
	pthread_mutex_lock(&store->lock);
	store->low = config->low;
	store->high = config->high;
	store->cleanup_ms = config->cleanup_interval_ms;
	store->capacity = config->capacity;
	for (size_t i = 0; i < store->dir_count; i++)
		store->dirs[i].configured = 0;
	pthread_mutex_unlock(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++)
		store_measure(store, &store->dirs[i]);
	store_hurry(store);
}

int store_register(struct store *store, struct loop *loop)
{
	cleanup_free int *fds = calloc(store->dir_count, sizeof(*fds));

	if (!fds)
		return -ENOMEM;
	for (size_t i = 0; i < store->dir_count; i++)
		fds[i] = store->dirs[i].lock_fd;
	return loop_keep_files(loop, fds, (unsigned int)store->dir_count);
}

int store_lookup(struct store_file *file, uint64_t block, uint64_t *sums, uint32_t units)
{
	int err = index_block(file->dir->index, file->id, block, sums, units);

	if (err)
		return -ENOENT;
	SCOPED_LOCK(&file->store->lock);
	return store_is_evicting(file->store, file, block) ? -ENOENT : 0;
}

int store_lookup_kept(struct store_file *file, uint64_t block, uint64_t *sums, uint32_t units)
{
	return index_block(file->dir->index, file->id, block, sums, units) ? -ENOENT : 0;
}

int store_map(struct store_file *file, uint64_t first, uint64_t count, uint64_t *bitmap,
	      uint64_t *sums, size_t *ret_sums)
{
	struct store *store = file->store;
	uint32_t shift = file->key.block_shift;
	struct index_file record = { .id = file->id, .size = file->key.size, .block_shift = shift };
	int err = index_map(file->dir->index, &record, first, count, bitmap, sums, ret_sums);

	if (err)
		return err;
	/*
	 * A block is marked before the object's watches are asked: either it is seen
	 * here, or the one who asks for the map was seen there.
	 */
	SCOPED_LOCK(&store->lock);
	for (unsigned int i = 0; i < store->evicting_count; i++) {
		uint64_t bit = store->evicting[i].block - first, at = 0, start, units;

		if (store->evicting[i].file != file || bit >= count ||
		    !(bitmap[bit / 64] >> (bit % 64) & 1))
			continue;
		for (uint64_t j = 0; j < bit; j++)
			if (bitmap[j / 64] >> (j % 64) & 1)
				at += 1ULL << (shift - 16);
		start = store->evicting[i].block << shift;
		units = file->key.size - start > 1ULL << shift ?
				1ULL << (shift - 16) :
				(file->key.size - start + 65535) >> 16;
		memmove(sums + at, sums + at + units, (*ret_sums - at - units) * sizeof(*sums));
		*ret_sums -= units;
		bitmap[bit / 64] &= ~(1ULL << (bit % 64));
	}
	return 0;
}

bool evict_due(const struct store *store, const struct store_dir *dir)
{
	uint64_t taken = dir->used + dir->reserved;

	return (double)taken > (double)dir->capacity * store->high / 100 ||
	       taken + dir->wanted > dir->capacity;
}

int store_reserve(struct store_file *file, uint64_t block, uint64_t len)
{
	struct store *store = file->store;
	struct store_dir *dir = file->dir;
	uint64_t now = store_now();
	bool due;

	SCOPED_LOCK(&store->lock);
	if (store_is_evicting(store, file, block))
		return -EAGAIN;
	if (dir->rest_ns > now || len > dir->capacity)
		return -ENOSPC;
	dir->reserved += len;
	due = evict_due(store, dir);
	if (due && store->allowed && dir->stuck_ns <= now) {
		store->evict = true;
		pthread_cond_signal(&store->wake);
	}
	if (dir->used + dir->reserved <= dir->capacity)
		return 0;
	dir->reserved -= len;
	if (!store->allowed || dir->stuck_ns > now)
		return -ENOSPC;
	if (dir->wanted < len)
		dir->wanted = len;
	store->evict = true;
	pthread_cond_signal(&store->wake);
	return -EAGAIN;
}

void store_unreserve(struct store_file *file, uint64_t len)
{
	SCOPED_LOCK(&file->store->lock);

	file->dir->reserved -= len;
	if (file->dir->wanted) {
		file->store->evict = true;
		pthread_cond_signal(&file->store->wake);
	}
}

void store_commit(struct store_record *record)
{
	struct store *store = record->file->store;

	SCOPED_LOCK(&store->lock);
	record->next = NULL;
	*store->commits_end = record;
	store->commits_end = &record->next;
	if (!store->commit_count++)
		store->commit_ns = store_now();
	/* What is not recorded cannot be evicted, and somebody waits for room. */
	if (record->file->dir->wanted)
		store->hurry = true;
	pthread_cond_signal(&store->wake);
}

void store_failed(struct store_file *file, int error)
{
	struct store *store = file->store;
	struct store_dir *dir = file->dir;

	SCOPED_LOCK(&store->lock);
	if (dir->rest_ns <= store_now())
		log_warn("cache %s: a write failed (%s): nothing is stored there for %llu s",
			 dir->path, strerror(-error), STORE_REST_NS / 1000000000);
	dir->rest_ns = store_now() + STORE_REST_NS;
	/* Somebody else's data may have filled the disk: the thread measures it. */
	store->evict = true;
	pthread_cond_signal(&store->wake);
}

void store_hurry(struct store *store)
{
	SCOPED_LOCK(&store->lock);

	store->hurry = true;
	pthread_cond_signal(&store->wake);
}

void store_forget(struct store_file *file, uint64_t block)
{
	struct store *store = file->store;
	struct store_forget *forget = calloc(1, sizeof(*forget));

	if (!forget)
		return;
	forget->file = store_file_ref(file);
	forget->block = block;
	SCOPED_LOCK(&store->lock);
	forget->next = store->forgets;
	store->forgets = forget;
	pthread_cond_signal(&store->wake);
}

void store_allow_eviction(struct store *store, bool allowed)
{
	SCOPED_LOCK(&store->lock);

	store->allowed = allowed;
	store->evict = allowed;
	pthread_cond_signal(&store->wake);
}

int store_evict(struct store *store, const char *identity, const char *path, uint64_t *ret_blocks,
		uint64_t *ret_busy)
{
	struct store_request request = { .identity = identity, .path = path };

	SCOPED_LOCK(&store->lock);
	if (!store->running || store->stop)
		return -ESHUTDOWN;
	if (!store->allowed)
		return -EAGAIN;
	request.next = store->requests;
	/* Taken off the list before this returns. */
	/* cppcheck-suppress autoVariables */
	store->requests = &request;
	pthread_cond_signal(&store->wake);
	while (!request.done)
		pthread_cond_wait(&store->done, &store->lock);
	*ret_blocks = request.blocks;
	*ret_busy = request.busy;
	return 0;
}

void store_each_dir(struct store *store, void (*fn)(void *arg, const struct store_dir_info *info),
		    void *arg)
{
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];
		struct store_dir_info info = { .path = dir->path };

		info.index_bytes = index_bytes(dir->index);
		pthread_mutex_lock(&store->lock);
		info.capacity = dir->capacity;
		info.used = dir->used;
		info.files = dir->files;
		info.failed = dir->rest_ns > store_now();
		pthread_mutex_unlock(&store->lock);
		fn(arg, &info);
	}
}
