// SPDX-License-Identifier: MIT
/*
 * store_thread: makes written blocks durable and records them, forgets, evicts, cleans.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "counters.h"
#include "faultpoint.h"
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
		.source = file->source->hash,
		.opened_s = file->opened_s,
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
				      record->units,
				      evict_ghost(flush->dir, &file.hash, record->block),
				      &record->fresh);
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

static int flush_write(struct store *store, struct flush *flush)
{
	bool dead;
	int err;

	/* Of a directory that was lost since. It is lost and opened by this thread only. */
	pthread_mutex_lock(&store->lock);
	dead = flush->records->file->dead;
	pthread_mutex_unlock(&store->lock);
	if (dead)
		return -ESTALE;
	faultpoint(FAULT_SYNC);
	err = flush_sync(flush);
	faultpoint(FAULT_SYNCED);
	if (!err)
		err = index_update(flush->dir->index, flush_record, flush);
	faultpoint(FAULT_COMMITTED);
	if (err)
		store_failed(flush->records->file, err);
	return err;
}

static void flush_dir(struct store *store, struct flush *flush)
{
	struct store_record *record, *next;
	int err = flush_write(store, flush);

	pthread_mutex_lock(&store->lock);
	for (record = flush->records; record; record = record->next) {
		struct store_file *file = record->file;

		flush->dir->reserved -= record->len;
		file->source->reserved -= record->len;
		file->writes--;
		if (file->source->quota && file->source->quota->wanted)
			store->evict = true;
		if (err || !record->fresh)
			continue;
		store_account(flush->dir, file->source, (int64_t)record->len);
		file->cached += record->len;
	}
	if (flush->dir->wanted)
		store->evict = true;
	pthread_mutex_unlock(&store->lock);
	for (record = flush->records; record; record = next) {
		next = record->next;
		record->done(record, err);
	}
}

/* Are they of one directory, as it was opened once? */
static bool flush_together(const struct store_record *a, const struct store_record *b)
{
	return a->file->dir == b->file->dir && a->file->dead == b->file->dead;
}

static void store_flush(struct store *store, struct store_record *commits)
{
	while (commits) {
		struct flush flush = { .dir = commits->file->dir };
		struct store_record **link = &commits, **end = &flush.records, *record;

		while ((record = *link)) {
			if (flush.records && !flush_together(flush.records, record)) {
				link = &record->next;
				continue;
			}
			*link = record->next;
			record->next = NULL;
			*end = record;
			end = &record->next;
		}
		flush_dir(store, &flush);
	}
}

static int store_forget_one(struct index_txn *txn, void *arg)
{
	const struct store_forget *forget = arg;
	const struct store_key *key = &forget->file->key;

	return index_delete_block(txn, forget->file->id, forget->block,
				  store_block_len(key->size, key->block_shift, forget->block));
}

static void store_forget_all(struct store *store)
{
	struct store_forget *forget;

	for (;;) {
		uint64_t len;
		int err;

		pthread_mutex_lock(&store->lock);
		if (!store->forgetting)
			store->forgetting = TAKE(store->forgets);
		forget = store->forgetting;
		pthread_mutex_unlock(&store->lock);
		if (!forget)
			return;
		len = store_block_len(forget->file->key.size, forget->file->key.block_shift,
				      forget->block);
		err = forget->file->dead ?
			      -ESTALE :
			      index_update(forget->file->dir->index, store_forget_one, forget);
		faultpoint(FAULT_FORGOTTEN);
		pthread_mutex_lock(&store->lock);
		if (!err) {
			store_account(forget->file->dir, forget->file->source, -(int64_t)len);
			forget->file->cached = index_add(forget->file->cached, -(int64_t)len);
		}
		store->forgetting = forget->next;
		pthread_mutex_unlock(&store->lock);
		/* Its bytes go when nobody reads them, unless they are written anew before. */
		forget->next = store->strays;
		store->strays = forget;
		store->ops.space(store->ops.arg);
	}
}

/* Blocks that were forgotten: punched, or recorded again. */
static void store_punch_strays(struct store *store, bool stop)
{
	struct store_forget **link = &store->strays, *stray;

	while ((stray = *link)) {
		struct store_file *file = stray->file;
		struct index_block found;
		int n = index_file_blocks(file->dir->index, file->id, stray->block, &found, 1);
		bool recorded = n == 1 && found.block == stray->block;

		if (!stop && !file->dead && !recorded && !evict_stray(store, file, stray->block)) {
			link = &stray->next;
			continue;
		}
		*link = stray->next;
		store_file_put(file);
		free(stray);
	}
}

struct store_loss {
	uint64_t id, bytes;
	char *identity, *path; /* as they were first found */
	struct index_file file;
	struct index_block blocks[256];
	int count;
};

static int store_loss_found(void *arg, const struct index_file *record)
{
	struct store_loss *loss = arg;

	loss->file = *record;
	if (!loss->identity)
		loss->identity = strdup(record->identity);
	if (!loss->path)
		loss->path = strdup(record->path);
	return 0;
}

static int store_lose_blocks(struct index_txn *txn, void *arg)
{
	struct store_loss *loss = arg;
	int err = 0;

	loss->bytes = 0;
	for (int i = 0; i < loss->count && !err; i++) {
		uint64_t len = store_block_len(loss->file.size, loss->file.block_shift,
					       loss->blocks[i].block);

		err = index_delete_block(txn, loss->id, loss->blocks[i].block, len);
		loss->bytes += len;
	}
	return err;
}

/* The data file is gone: what is recorded of it goes. */
static void store_lose_file(struct store *store, struct store_dir *dir, uint64_t id)
{
	struct store_loss loss = { .id = id };
	char path[64], text[128];
	uint64_t blocks = 0;

	while (!index_file(dir->index, id, store_loss_found, &loss)) {
		loss.count =
			index_file_blocks(dir->index, id, 0, loss.blocks, ARRAY_SIZE(loss.blocks));
		if (loss.count <= 0 || index_update(dir->index, store_lose_blocks, &loss))
			break;
		blocks += (uint64_t)loss.count;
		SCOPED_LOCK(&store->lock);
		store_account(dir, store_source_by_hash(store, &loss.file.source),
			      -(int64_t)loss.bytes);
	}
	if (blocks) {
		store_file_path(id, path, sizeof(path));
		unlinkat(dir->fd, path, 0);
		counter_add(blocks_corrupt, blocks);
		log_warn("cache %s: %llu blocks of data file %s are lost", dir->path,
			 (unsigned long long)blocks, path);
		snprintf(text, sizeof(text),
			 "%llu cached blocks are lost: their data file is gone, or something else",
			 (unsigned long long)blocks);
		if (loss.identity && loss.path)
			store_tell(store, loss.identity, loss.path, "corrupt", text);
	}
	free(loss.identity);
	free(loss.path);
}

struct store_touching {
	const struct store_dir *dir;
	const struct store_note *notes;
};

static int store_touch_files(struct index_txn *txn, void *arg)
{
	const struct store_touching *touching = arg;
	int err = 0;

	for (const struct store_note *note = touching->notes; note && !err; note = note->next)
		if (note->dir == touching->dir && note->opened_s)
			err = index_touch(txn, note->id, note->opened_s);
	return err;
}

/* Losses at once; who was opened is written when it is needed, since that costs a commit. */
static void store_read_notes(struct store *store, bool all)
{
	struct store_note *mine = NULL, **link, *note;

	pthread_mutex_lock(&store->lock);
	for (link = &store->notes; (note = *link);) {
		if (!all && note->opened_s) {
			link = &note->next;
			continue;
		}
		*link = note->next;
		note->next = mine;
		mine = note;
	}
	pthread_mutex_unlock(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_touching touching = { &store->dirs[i], mine };
		bool any = false;

		for (note = mine; note; note = note->next) {
			if (note->dir == touching.dir && !note->opened_s)
				store_lose_file(store, note->dir, note->id);
			any = any || (note->dir == touching.dir && note->opened_s);
		}
		if (any)
			index_update(touching.dir->index, store_touch_files, &touching);
	}
	while ((note = mine)) {
		mine = note->next;
		free(note);
	}
}

static void store_count(struct store *store)
{
	uint64_t used = 0, capacity = 0, files = 0, index = 0;
	struct index_totals totals;

	for (size_t i = 0; i < store->dir_count; i++) {
		index += index_bytes(store->dirs[i].index);
		index_totals(store->dirs[i].index, &totals);
		files += totals.files;
	}
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++) {
		used += store->dirs[i].used;
		capacity += store->dirs[i].capacity;
	}
	pthread_mutex_unlock(&store->lock);
	counter_set(cache_used_bytes, used);
	counter_set(cache_capacity_bytes, capacity);
	counter_set(cache_files, files);
	counter_set(index_bytes, index);
}

static bool store_lost_noted(const struct store *store)
{
	const struct store_note *note = store->notes;

	while (note && note->opened_s)
		note = note->next;
	return note;
}

/* store->lock held: when eviction has waited enough; UINT64_MAX: it does not wait. */
static uint64_t store_patience(const struct store *store)
{
	uint64_t first_ns = UINT64_MAX;

	for (size_t i = 0; i < store->dir_count; i++)
		if (store->dirs[i].patience_ns && store->dirs[i].patience_ns < first_ns)
			first_ns = store->dirs[i].patience_ns;
	for (const struct store_quota *quota = store->quotas; quota; quota = quota->next)
		if (quota->patience_ns && quota->patience_ns < first_ns)
			first_ns = quota->patience_ns;
	return store->allowed ? first_ns : UINT64_MAX;
}

/* store->lock held: is there anything to do now? Else *ret_ns is when there may be. */
static bool store_due(const struct store *store, uint64_t *ret_ns)
{
	uint64_t now = store_now(), patience_ns = store_patience(store);

	if (store->stop || store->forgets || store->requests || store->evict ||
	    store_lost_noted(store))
		return true;
	if (patience_ns <= now)
		return true;
	if (patience_ns < *ret_ns)
		*ret_ns = patience_ns;
	for (size_t i = 0; i < store->dir_count; i++) {
		uint64_t rest_ns = store->dirs[i].rest_ns;

		if (store_dir_is_failed(&store->dirs[i]))
			return true;
		if (rest_ns && rest_ns <= now)
			return true;
		if (rest_ns && rest_ns < *ret_ns)
			*ret_ns = rest_ns;
	}
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
	store_read_notes(store, true);
	for (size_t i = 0; i < store->dir_count; i++) {
		store_dir_measure(store, &store->dirs[i]);
		evict_run(store, &store->dirs[i]);
	}
	for (struct store_quota *quota = store->quotas; quota; quota = quota->next)
		evict_quota(store, quota);
}

/* Directories whose rest is over, or whose index failed, and at times all of them. */
static void store_check_dirs(struct store *store, bool all)
{
	bool back = false, usable = false;

	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];
		uint64_t rest_ns;
		bool failed;

		pthread_mutex_lock(&store->lock);
		rest_ns = dir->rest_ns;
		failed = store_dir_is_failed(dir);
		pthread_mutex_unlock(&store->lock);
		if (failed || (all ? !rest_ns : rest_ns && rest_ns <= store_now()))
			back = store_dir_check(store, dir) || back;
	}
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++)
		usable = usable || (!store->dirs[i].lost && !store->dirs[i].rest_ns);
	back = back && usable && store->homeless;
	if (back)
		store->homeless = false;
	pthread_mutex_unlock(&store->lock);
	if (back)
		store->ops.back(store->ops.arg);
}

static int store_write_digests(struct index_txn *txn, void *arg)
{
	const struct store_request *request = arg;

	return index_put_digests(txn, request->file->id, request->bytes, request->len);
}

static void store_answer(struct store *store, struct store_request *request)
{
	if (request->kind == STORE_EVICT)
		evict_request(store, request);
	else if (request->kind == STORE_DIGESTS)
		request->error =
			index_update(request->file->dir->index, store_write_digests, request);
	else
		request->error = store_pin_request(store, request);
}

/* A little at a time: a large cache must not keep what comes in waiting. */
static bool store_collect_some(struct store *store)
{
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];

		if (dir->collected >= STORE_SUBDIRS || dir->lost)
			continue;
		store_collect(store, dir, dir->collected++);
		return true;
	}
	return false;
}

void *store_thread(void *arg)
{
	struct store *store = arg;
	uint64_t cleanup_ns;
	bool stop = false, collecting = true;

	store_count(store);
	pthread_mutex_lock(&store->lock);
	cleanup_ns = store_now() + store->cleanup_ms * 1000000;
	while (!stop) {
		struct store_record *commits;
		struct store_request *request;
		uint64_t until = cleanup_ns;
		bool evict, cleanup, allowed;

		while (!store_due(store, &until) && store_now() < until &&
		       !(collecting && store->allowed)) {
			struct timespec at = { .tv_sec = (time_t)(until / 1000000000),
					       .tv_nsec = (long)(until % 1000000000) };

			pthread_cond_timedwait(&store->wake, &store->lock, &at);
			until = cleanup_ns;
		}
		cleanup = store_now() >= cleanup_ns;
		evict = (store->evict || cleanup || store_patience(store) <= store_now()) &&
			store->allowed;
		if (cleanup)
			cleanup_ns = store_now() + store->cleanup_ms * 1000000;
		allowed = store->allowed;
		stop = store->stop;
		request = store->requests;
		if (request)
			store->requests = request->next;
		commits = store_take_commits(store);
		store->evict = false;
		pthread_mutex_unlock(&store->lock);

		store_forget_all(store);
		store_flush(store, commits);
		store_read_notes(store, stop);
		if (allowed || stop)
			store_punch_strays(store, stop);
		store_check_dirs(store, cleanup && !stop);
		if (cleanup || stop || request)
			store_source_record(store);
		if (evict && !stop)
			store_evict_all(store);
		if (request) {
			if (stop)
				request->error = -ESHUTDOWN;
			else
				store_answer(store, request);
			pthread_mutex_lock(&store->lock);
			request->done = true;
			pthread_cond_broadcast(&store->done);
			pthread_mutex_unlock(&store->lock);
		}
		/* What an earlier session's readers may still read stays until they are known. */
		if (allowed)
			collecting = store_collect_some(store);
		store_close_idle(store);
		store_count(store);
		pthread_mutex_lock(&store->lock);
		if (cleanup)
			collecting = true;
	}
	/* What came in while the last round was made. */
	while (store->requests) {
		store->requests->error = -ESHUTDOWN;
		store->requests->done = true;
		store->requests = store->requests->next;
	}
	pthread_cond_broadcast(&store->done);
	pthread_mutex_unlock(&store->lock);
	return NULL;
}
