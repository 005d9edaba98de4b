// SPDX-License-Identifier: MIT
/*
 * store: the cache directories, and what is asked of the store by the workers.
 */
#include "store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "counters.h"
#include "loop.h"
#include "store_impl.h"

static_assert(STORE_DIGESTS_MAX <= INDEX_DIGESTS_MAX, "the index takes what the store does");

#define LOG_AREA "store"
#include "log.h"

uint64_t store_now(void)
{
	return counter_now();
}

/* store->lock held. */
static bool store_is_evicting(const struct store *store, const struct store_file *file,
			      uint64_t block)
{
	for (unsigned int i = 0; i < store->evicting_count; i++)
		if (store->evicting[i].file == file && store->evicting[i].block == block)
			return true;
	return false;
}

static bool store_is_forgotten(const struct store_forget *forget, const struct store_file *file,
			       uint64_t block)
{
	for (; forget; forget = forget->next)
		if (forget->file == file && forget->block == block)
			return true;
	return false;
}

bool store_is_leaving(const struct store *store, const struct store_file *file, uint64_t block)
{
	return store_is_evicting(store, file, block) ||
	       store_is_forgotten(store->forgets, file, block) ||
	       store_is_forgotten(store->forgetting, file, block);
}

void store_account(struct store_dir *dir, struct store_source *source, int64_t bytes)
{
	dir->used = index_add(dir->used, bytes);
	if (source)
		source->used[dir->number] = index_add(source->used[dir->number], bytes);
}

uint64_t store_block_len(uint64_t size, uint32_t block_shift, uint64_t block)
{
	uint64_t start = block << block_shift, len = 1ULL << block_shift;

	if (start >> block_shift != block || start >= size)
		return 0;
	return len > size - start ? size - start : len;
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
		dir->number = i;
		dir->path = strdup(config->dirs[i]);
		dir->ghosts = calloc(STORE_GHOSTS, sizeof(*dir->ghosts));
		store->dir_count++;
		err = dir->path && dir->ghosts ? index_create(&dir->index) : -ENOMEM;
	}
	if (!err)
		store_quota_setup(store, config);
	for (size_t i = 0; !err && i < store->dir_count; i++)
		err = store_dir_lock(store, &store->dirs[i], msg, msg_size);
	/* All or nothing: who waits for one of them has changed none. */
	for (size_t i = 0; !err && i < store->dir_count; i++)
		err = store_dir_open(store, &store->dirs[i], msg, msg_size);
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
	for (size_t i = 0; i < store->dir_count; i++)
		store_dir_close(&store->dirs[i]);
	store_source_free(store);
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
	store_quota_setup(store, config);
	store->evict = true;
	pthread_mutex_unlock(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++)
		store_dir_measure(store, &store->dirs[i]);
	store_hurry(store);
}

int store_register(struct store *store, struct loop *loop)
{
	cleanup_free int *fds = calloc(store->dir_count, sizeof(*fds));
	unsigned int count = 0;

	if (!fds)
		return -ENOMEM;
	/* One that is opened again later is locked, but not in the name of the loops. */
	for (size_t i = 0; i < store->dir_count; i++)
		if (store->dirs[i].lock_fd >= 0)
			fds[count++] = store->dirs[i].lock_fd;
	return count ? loop_keep_files(loop, fds, count) : 0;
}

void store_index_error(struct store *store, const struct store_dir *dir)
{
	if (!index_is_broken(dir->index))
		return;
	SCOPED_LOCK(&store->lock);
	pthread_cond_signal(&store->wake);
}

int store_lookup(struct store_file *file, uint64_t block, uint64_t *sums, uint32_t units)
{
	int err = index_block(file->dir->index, file->id, block, sums, units);

	if (err) {
		store_index_error(file->store, file->dir);
		return -ENOENT;
	}
	SCOPED_LOCK(&file->store->lock);
	return file->dead || store_is_leaving(file->store, file, block) ? -ENOENT : 0;
}

int store_lookup_kept(struct store_file *file, uint64_t block, uint64_t *sums, uint32_t units)
{
	int err = index_block(file->dir->index, file->id, block, sums, units);

	if (err) {
		store_index_error(file->store, file->dir);
		return -ENOENT;
	}
	SCOPED_LOCK(&file->store->lock);
	return file->dead || store_is_forgotten(file->store->forgets, file, block) ? -ENOENT : 0;
}

static uint32_t store_units(void *arg, uint64_t block)
{
	const struct store_key *key = arg;

	return (uint32_t)((store_block_len(key->size, key->block_shift, block) + 65535) >> 16);
}

void store_unmap(const struct store_key *key, uint64_t first, uint64_t bit, uint64_t *bitmap,
		 uint64_t *sums, size_t *ret_sums)
{
	uint64_t units = store_units((void *)key, first + bit), at = 0;

	for (uint64_t i = 0; i < bit; i++)
		if (bitmap[i / 64] >> (i % 64) & 1)
			at += 1ULL << (key->block_shift - 16);
	memmove(sums + at, sums + at + units, (*ret_sums - at - units) * sizeof(*sums));
	*ret_sums -= units;
	bitmap[bit / 64] &= ~(1ULL << (bit % 64));
}

int store_map(struct store_file *file, uint64_t first, uint64_t count, uint64_t *bitmap,
	      uint64_t *sums, size_t *ret_sums)
{
	struct store *store = file->store;
	int err = index_map(file->dir->index, file->id, first, count, store_units, &file->key,
			    bitmap, sums, ret_sums);

	/* What the index cannot say is not cached: it is fetched, then. */
	if (err)
		store_index_error(store, file->dir);
	/*
	 * A block is marked before the object's watches are asked: either it is seen
	 * here, or the one who asks for the map was seen there.
	 */
	SCOPED_LOCK(&store->lock);
	if (err || file->dead) {
		memset(bitmap, 0, (count + 63) / 64 * sizeof(*bitmap));
		*ret_sums = 0;
		return 0;
	}
	for (unsigned int i = 0; i < store->evicting_count; i++) {
		uint64_t bit = store->evicting[i].block - first;

		if (store->evicting[i].file == file && bit < count &&
		    bitmap[bit / 64] >> (bit % 64) & 1)
			store_unmap(&file->key, first, bit, bitmap, sums, ret_sums);
	}
	return 0;
}

/* store->lock held. The thread is to make room. */
static void store_want_room(struct store *store)
{
	store->evict = true;
	pthread_cond_signal(&store->wake);
}

/* store->lock held. Is there room for it in what its source may have? As store_reserve(). */
static int store_reserve_quota(struct store *store, struct store_quota *quota, uint64_t len,
			       uint64_t now)
{
	if (!quota || store_quota_taken(store, quota) + len <= quota->limit)
		return 0;
	if (len > quota->limit || !store->allowed || quota->stuck_ns > now)
		return -ENOSPC;
	if (quota->wanted < len)
		quota->wanted = len;
	store_want_room(store);
	return -EAGAIN;
}

int store_reserve(struct store_file *file, uint64_t block, uint64_t len)
{
	struct store *store = file->store;
	struct store_dir *dir = file->dir;
	uint64_t now = store_now();
	int err;

	SCOPED_LOCK(&store->lock);
	if (file->dead || dir->lost || dir->rest_ns || len > dir->capacity)
		return -ENOSPC;
	if (file->collecting || store_is_leaving(store, file, block))
		return -EAGAIN;
	err = store_reserve_quota(store, file->source->quota, len, now);
	if (err)
		return err;
	dir->reserved += len;
	if (evict_due(store, dir) && store->allowed && dir->stuck_ns <= now)
		store_want_room(store);
	if (dir->used + dir->reserved <= dir->capacity) {
		file->source->reserved += len;
		file->writes++;
		return 0;
	}
	dir->reserved -= len;
	if (!store->allowed || dir->stuck_ns > now)
		return -ENOSPC;
	if (dir->wanted < len)
		dir->wanted = len;
	store_want_room(store);
	return -EAGAIN;
}

/* store->lock held: does somebody wait for room that this file's blocks take? */
static bool store_is_wanted(const struct store_file *file)
{
	return file->dir->wanted || (file->source->quota && file->source->quota->wanted);
}

void store_unreserve(struct store_file *file, uint64_t len)
{
	SCOPED_LOCK(&file->store->lock);

	file->dir->reserved -= len;
	file->source->reserved -= len;
	file->writes--;
	if (store_is_wanted(file))
		store_want_room(file->store);
}

uint64_t store_room(struct store_file *file)
{
	struct store *store = file->store;
	const struct store_dir *dir = file->dir;
	const struct store_quota *quota;
	uint64_t room, most, taken;

	SCOPED_LOCK(&store->lock);
	if (file->dead || dir->lost || dir->rest_ns)
		return 0;
	most = (uint64_t)((double)dir->capacity * store->high / 100);
	taken = dir->used + dir->reserved + dir->wanted;
	room = most > taken ? most - taken : 0;
	quota = file->source->quota;
	if (!quota)
		return room;
	taken = store_quota_taken(store, quota) + quota->wanted;
	most = quota->limit > taken ? quota->limit - taken : 0;
	return most < room ? most : room;
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
	if (store_is_wanted(record->file))
		store->hurry = true;
	pthread_cond_signal(&store->wake);
}

void store_failed(struct store_file *file, int error)
{
	struct store *store = file->store;

	SCOPED_LOCK(&store->lock);
	if (!file->dead)
		store_dir_rest(store, file->dir, error, "a write failed");
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

/* Hands a request to the thread and waits for its end. */
static int store_ask(struct store *store, struct store_request *request)
{
	SCOPED_LOCK(&store->lock);

	if (!store->running || store->stop)
		return -ESHUTDOWN;
	if (request->kind == STORE_EVICT && !store->allowed)
		return -EAGAIN;
	request->next = store->requests;
	/* Taken off the list before this returns. */
	/* cppcheck-suppress autoVariables */
	store->requests = request;
	pthread_cond_signal(&store->wake);
	while (!request->done)
		pthread_cond_wait(&store->done, &store->lock);
	return request->error;
}

int store_evict(struct store *store, const char *identity, const char *path, uint64_t *ret_blocks,
		uint64_t *ret_busy, uint64_t *ret_pinned)
{
	struct store_request request = { .kind = STORE_EVICT, .identity = identity, .path = path };
	int err = store_ask(store, &request);

	if (err)
		return err;
	*ret_blocks = request.blocks;
	*ret_busy = request.busy;
	*ret_pinned = request.pinned;
	return 0;
}

int store_pin(struct store *store, const char *identity, const char *path)
{
	struct store_request request = { .kind = STORE_PIN, .identity = identity, .path = path };

	return store_ask(store, &request);
}

int store_unpin(struct store *store, const char *identity, const char *path)
{
	struct store_request request = { .kind = STORE_UNPIN, .identity = identity, .path = path };

	return store_ask(store, &request);
}

int store_keep_digests(struct store_file *file, const unsigned char *bytes, size_t len)
{
	struct store_request request = {
		.kind = STORE_DIGESTS,
		.file = file,
		.bytes = bytes,
		.len = len,
	};

	return len > STORE_DIGESTS_MAX ? -E2BIG : store_ask(file->store, &request);
}

int store_digests(struct store_file *file, unsigned char bytes[STORE_DIGESTS_MAX], size_t *ret_len)
{
	int err = index_digests(file->dir->index, file->id, &file->hash, bytes, ret_len);

	if (err)
		store_index_error(file->store, file->dir);
	return err ? -ENOENT : 0;
}

void store_each_dir(struct store *store, void (*fn)(void *arg, const struct store_dir_info *info),
		    void *arg)
{
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];
		struct store_dir_info info = { .path = dir->path };
		struct index_totals totals;

		info.index_bytes = index_bytes(dir->index);
		index_totals(dir->index, &totals);
		info.files = totals.files;
		pthread_mutex_lock(&store->lock);
		info.capacity = dir->capacity;
		info.used = dir->used;
		info.failed = dir->lost || dir->ailing;
		pthread_mutex_unlock(&store->lock);
		fn(arg, &info);
	}
}

int store_beside(struct store *store, const char *name)
{
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];
		bool lost;
		int fd;

		pthread_mutex_lock(&store->lock);
		lost = dir->lost;
		pthread_mutex_unlock(&store->lock);
		if (lost)
			continue;
		if (!mkdirat(dir->fd, name, 0700))
			store_dir_give(dir->fd, name);
		else if (errno != EEXIST)
			return -errno;
		fd = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	return -ENODEV;
}
