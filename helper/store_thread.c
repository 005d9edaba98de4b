// SPDX-License-Identifier: MIT
/*
 * store_thread: makes written blocks durable and records them, forgets, evicts, cleans.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "counters.h"
#include "store_impl.h"

#define LOG_AREA "store"
#include "log.h"

/* Written blocks wait for company: so many, or so long. */
#define FLUSH_BLOCKS 64
#define FLUSH_NS     100000000ULL
/* From so many files on the whole filesystem is synced at once. */
#define FLUSH_FILES 16

struct flush {
	struct store_dir *dir;
	struct store_record *records; /* of dir */
};

static struct index_file flush_describe(const struct store_file *file)
{
	return (struct index_file){
		.id = file->id,
		.size = file->key.size,
		.block_shift = file->key.block_shift,
		.hash = file->hash,
		.identity = file->key.identity,
		.path = file->key.path,
		.version = file->key.version,
	};
}

static int flush_record(struct index_txn *txn, void *arg)
{
	struct flush *flush = arg;
	int err = 0;

	for (struct store_record *record = flush->records; record && !err; record = record->next) {
		struct index_file file = flush_describe(record->file);

		err = index_put_block(txn, &file, record->block, record->len, record->sums,
				      record->units, &record->fresh);
	}
	return err;
}

/* The directory entry of a new file must not be lost while its record is there. */
static int flush_sync_name(struct store_dir *dir, const struct store_file *file)
{
	char path[64];
	cleanup_close int fd = -1;

	store_file_path(file->id, path, sizeof(path));
	*strrchr(path, '/') = '\0';
	fd = openat(dir->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		return -errno;
	return 0;
}

static int flush_sync_file(struct store_dir *dir, struct store_file *file)
{
	int fd = store_file_begin(file), err;

	if (fd < 0)
		return fd;
	err = fdatasync(fd) ? -errno : 0;
	store_file_end(file);
	if (err || file->named)
		return err;
	err = flush_sync_name(dir, file);
	file->named = !err;
	return err;
}

/* The data, and the names of files that are new. */
static int flush_sync(struct flush *flush)
{
	const struct store_record *at, *record;
	unsigned int files = 0;
	int err = 0;

	for (record = flush->records; record; record = record->next) {
		for (at = flush->records; at != record && at->file != record->file; at = at->next)
			;
		files += at == record;
	}
	if (files > FLUSH_FILES)
		return syncfs(flush->dir->fd) ? -errno : 0;
	for (record = flush->records; record && !err; record = record->next) {
		for (at = flush->records; at != record && at->file != record->file; at = at->next)
			;
		if (at == record)
			err = flush_sync_file(flush->dir, record->file);
	}
	return err;
}

static void flush_dir(struct store *store, struct flush *flush)
{
	struct store_record *record, *next;
	int err = flush_sync(flush);

	if (!err)
		err = index_update(flush->dir->index, flush_record, flush);
	if (err)
		store_failed(flush->records->file, err);
	pthread_mutex_lock(&store->lock);
	for (record = flush->records; record; record = record->next) {
		flush->dir->reserved -= record->len;
		if (err || !record->fresh)
			continue;
		flush->dir->used += record->len;
		if (!record->file->cached)
			flush->dir->files++;
		record->file->cached += record->len;
	}
	if (flush->dir->wanted)
		store->evict = true;
	pthread_mutex_unlock(&store->lock);
	for (record = flush->records; record; record = next) {
		next = record->next;
		record->done(record, err);
	}
}

static void store_flush(struct store *store, struct store_record *commits)
{
	for (size_t i = 0; i < store->dir_count; i++) {
		struct flush flush = { .dir = &store->dirs[i] };
		struct store_record **link = &commits, **end = &flush.records, *record;

		while ((record = *link)) {
			if (record->file->dir != flush.dir) {
				link = &record->next;
				continue;
			}
			*link = record->next;
			record->next = NULL;
			*end = record;
			end = &record->next;
		}
		if (flush.records)
			flush_dir(store, &flush);
	}
}

static int store_forget_one(struct index_txn *txn, void *arg)
{
	const struct store_forget *forget = arg;
	const struct store_key *key = &forget->file->key;
	uint64_t start = forget->block << key->block_shift, len = 1ULL << key->block_shift;

	if (len > key->size - start)
		len = key->size - start;
	return index_delete_block(txn, forget->file->id, forget->block, len);
}

static void store_forget_all(struct store *store, struct store_forget *forgets)
{
	while (forgets) {
		struct store_forget *forget = forgets;
		const struct store_key *key = &forget->file->key;
		uint64_t len = 1ULL << key->block_shift;

		forgets = forget->next;
		if (len > key->size - (forget->block << key->block_shift))
			len = key->size - (forget->block << key->block_shift);
		if (!index_update(forget->file->dir->index, store_forget_one, forget)) {
			pthread_mutex_lock(&store->lock);
			forget->file->dir->used -= len;
			forget->file->cached -= len;
			pthread_mutex_unlock(&store->lock);
		}
		store_file_put(forget->file);
		free(forget);
	}
}

static void store_count(struct store *store)
{
	uint64_t used = 0, capacity = 0, files = 0, index = 0;

	for (size_t i = 0; i < store->dir_count; i++)
		index += index_bytes(store->dirs[i].index);
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++) {
		used += store->dirs[i].used;
		capacity += store->dirs[i].capacity;
		files += store->dirs[i].files;
	}
	pthread_mutex_unlock(&store->lock);
	counter_set(cache_used_bytes, used);
	counter_set(cache_capacity_bytes, capacity);
	counter_set(cache_files, files);
	counter_set(index_bytes, index);
}

/* store->lock held: is there anything to do now? Else *ret_ns is when there may be. */
static bool store_due(const struct store *store, uint64_t *ret_ns)
{
	uint64_t now = store_now();

	if (store->stop || store->forgets || store->requests || store->evict)
		return true;
	if (!store->commit_count)
		return false;
	if (store->hurry || store->commit_count >= FLUSH_BLOCKS ||
	    now >= store->commit_ns + FLUSH_NS)
		return true;
	if (store->commit_ns + FLUSH_NS < *ret_ns)
		*ret_ns = store->commit_ns + FLUSH_NS;
	return false;
}

/* store->lock held. What has waited long enough, or is enough. */
static struct store_record *store_take_commits(struct store *store)
{
	struct store_record *commits;

	if (!store->stop && !store->hurry && store->commit_count < FLUSH_BLOCKS &&
	    store_now() < store->commit_ns + FLUSH_NS)
		return NULL;
	commits = TAKE(store->commits);
	store->commits_end = &store->commits;
	store->commit_count = 0;
	store->hurry = false;
	return commits;
}

static void store_evict_all(struct store *store)
{
	for (size_t i = 0; i < store->dir_count; i++) {
		store_measure(store, &store->dirs[i]);
		evict_run(store, &store->dirs[i]);
	}
}

void *store_thread(void *arg)
{
	struct store *store = arg;
	unsigned int collected = 0, to_collect = (unsigned int)store->dir_count * STORE_SUBDIRS;
	uint64_t cleanup_ns;
	bool stop = false;

	store_count(store);
	pthread_mutex_lock(&store->lock);
	cleanup_ns = store_now() + store->cleanup_ms * 1000000;
	while (!stop) {
		struct store_record *commits;
		struct store_forget *forgets;
		struct store_request *request;
		uint64_t until = cleanup_ns;
		bool evict;

		while (!store_due(store, &until) && store_now() < until &&
		       collected == to_collect) {
			struct timespec at = { .tv_sec = (time_t)(until / 1000000000),
					       .tv_nsec = (long)(until % 1000000000) };

			pthread_cond_timedwait(&store->wake, &store->lock, &at);
			until = cleanup_ns;
		}
		evict = (store->evict || store_now() >= cleanup_ns) && store->allowed;
		if (store_now() >= cleanup_ns)
			cleanup_ns = store_now() + store->cleanup_ms * 1000000;
		stop = store->stop;
		forgets = TAKE(store->forgets);
		request = store->requests;
		if (request)
			store->requests = request->next;
		commits = store_take_commits(store);
		store->evict = false;
		pthread_mutex_unlock(&store->lock);

		store_forget_all(store, forgets);
		store_flush(store, commits);
		if (evict && !stop)
			store_evict_all(store);
		if (request) {
			if (!stop)
				evict_request(store, request);
			pthread_mutex_lock(&store->lock);
			request->done = true;
			pthread_cond_broadcast(&store->done);
			pthread_mutex_unlock(&store->lock);
		}
		/* A little at a time: a large cache must not keep what comes in waiting. */
		if (collected < to_collect) {
			store_collect(store, &store->dirs[collected / STORE_SUBDIRS],
				      collected % STORE_SUBDIRS);
			collected++;
		}
		store_close_idle(store);
		store_count(store);
		pthread_mutex_lock(&store->lock);
	}
	/* What came in while the last round was made. */
	while (store->requests) {
		store->requests->done = true;
		store->requests = store->requests->next;
	}
	pthread_cond_broadcast(&store->done);
	pthread_mutex_unlock(&store->lock);
	return NULL;
}
