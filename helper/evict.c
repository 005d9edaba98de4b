// SPDX-License-Identifier: MIT
/*
 * evict: makes room in a cache directory, the oldest blocks first. A block whose
 * file was opened again since it was stored is spared once.
 *
 * The order, for each block: the kernel grants it, the record is removed durably, the
 * bytes are punched, the kernel is told.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "counters.h"
#include "store_impl.h"

#define LOG_AREA "evict"
#include "log.h"

#define EVICT_YOUNG_S 60
/* After a round in which nothing could be evicted. */
#define EVICT_STUCK_NS 1000000000ULL

struct evict_one {
	struct index_block block;
	struct store_file *file; /* a reference */
	uint64_t len;
	bool spare; /* rotated instead */
	bool gone;
};

struct evict_batch {
	struct store *store;
	struct store_dir *dir;
	unsigned int count;
	struct evict_one ones[STORE_EVICTING_MAX];
};

static int evict_file(void *arg, const struct index_file *record)
{
	struct evict_one *one = arg;
	uint64_t start;

	if (!record->size || one->block.block > (record->size - 1) >> record->block_shift)
		return -EUCLEAN;
	start = one->block.block << record->block_shift;
	one->len = 1ULL << record->block_shift;
	if (one->len > record->size - start)
		one->len = record->size - start;
	return 0;
}

struct evict_lookup {
	struct store *store;
	struct store_dir *dir;
	struct evict_one *one;
};

static int evict_found(void *arg, const struct index_file *record)
{
	struct evict_lookup *lookup = arg;
	int err = evict_file(lookup->one, record);

	if (err)
		return err;
	lookup->one->file = store_file_of(lookup->store, lookup->dir, record);
	return lookup->one->file ? 0 : -ENOMEM;
}

/* Marks the block and asks for it. False: it stays. */
static bool evict_ask(struct store *store, struct evict_one *one)
{
	bool marked = false;

	pthread_mutex_lock(&store->lock);
	if (store->evicting_count < STORE_EVICTING_MAX) {
		store->evicting[store->evicting_count++] =
			(struct store_evicting){ one->file, one->block.block };
		marked = true;
	}
	pthread_mutex_unlock(&store->lock);
	if (!marked)
		return false;
	if (!store->ops.evict(store->ops.arg, one->file, one->block.block))
		return true;
	pthread_mutex_lock(&store->lock);
	store->evicting_count--;
	pthread_mutex_unlock(&store->lock);
	return false;
}

/* Adds the block to the batch if it may go. 1: it will go, 0: it will not. */
static int evict_add(struct evict_batch *batch, const struct index_block *block, bool force)
{
	struct evict_one *one = &batch->ones[batch->count];
	struct evict_lookup lookup = { batch->store, batch->dir, one };

	*one = (struct evict_one){ .block = *block };
	if (index_file(batch->dir->index, block->id, evict_found, &lookup))
		return 0;
	one->spare = !force && !block->chance && one->file->opened_s > block->stored_s + 1;
	if (!one->spare && !evict_ask(batch->store, one)) {
		store_file_put(one->file);
		return 0;
	}
	batch->count++;
	return !one->spare;
}

static int evict_change(struct index_txn *txn, void *arg)
{
	struct evict_batch *batch = arg;
	int err = 0;

	for (unsigned int i = 0; i < batch->count && !err; i++) {
		struct evict_one *one = &batch->ones[i];

		if (one->spare) {
			err = index_rotate(txn, &one->block);
			continue;
		}
		err = index_delete_block(txn, one->block.id, one->block.block, one->len);
		one->gone = !err;
		if (err == -ENOENT)
			err = 0;
	}
	return err;
}

static void evict_punch(struct store_dir *dir, struct evict_one *one)
{
	uint64_t start = one->block.block << one->file->key.block_shift;
	int fd = store_file_begin(one->file);

	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
		      (off_t)((one->len + 4095) & ~4095ULL)))
		log_warn("cache %s: a hole cannot be punched: %s", dir->path, strerror(errno));
	store_file_end(one->file);
}

/* Carries the batch out; returns the number of blocks that went, or -errno. */
static int evict_carry_out(struct evict_batch *batch)
{
	struct store *store = batch->store;
	int64_t now = time(NULL);
	int err = batch->count ? index_update(batch->dir->index, evict_change, batch) : 0;
	int gone = 0;

	for (unsigned int i = 0; i < batch->count; i++) {
		struct evict_one *one = &batch->ones[i];

		if (one->spare)
			continue;
		if (!err && one->gone) {
			evict_punch(batch->dir, one);
			counter_add(blocks_evicted, 1);
			if (now - one->block.stored_s < EVICT_YOUNG_S)
				counter_add(blocks_evicted_young, 1);
			gone++;
		}
	}
	pthread_mutex_lock(&store->lock);
	for (unsigned int i = 0; i < batch->count; i++) {
		struct evict_one *one = &batch->ones[i];

		if (err || one->spare || !one->gone)
			continue;
		batch->dir->used -= one->len;
		one->file->cached -= one->len;
		if (!one->file->cached)
			batch->dir->files--;
	}
	store->evicting_count = 0;
	pthread_mutex_unlock(&store->lock);
	for (unsigned int i = 0; i < batch->count; i++) {
		struct evict_one *one = &batch->ones[i];

		if (!one->spare)
			store->ops.evicted(store->ops.arg, one->file, one->block.block,
					   !err && one->gone);
		store_file_put(one->file);
	}
	batch->count = 0;
	if (err)
		log_error("cache %s: eviction failed: %s", batch->dir->path, strerror(-err));
	return err ? err : gone;
}

/* Bytes over the low mark; 0 below the high mark unless it was passed before. */
static uint64_t evict_excess(struct store *store, struct store_dir *dir, bool begun)
{
	SCOPED_LOCK(&store->lock);
	uint64_t taken = dir->used + dir->reserved + dir->wanted;
	double low = (double)dir->capacity * store->low / 100;

	if (store->stop || (!begun && !evict_due(store, dir)))
		return 0;
	return (double)taken > low ? taken - (uint64_t)low : 0;
}

void evict_run(struct store *store, struct store_dir *dir)
{
	struct evict_batch batch = { .store = store, .dir = dir };
	struct index_block blocks[STORE_EVICTING_MAX];
	uint64_t seq = 0, excess;
	unsigned int idle = 0;
	bool begun = false;

	while ((excess = evict_excess(store, dir, begun))) {
		uint64_t going = 0;
		int n = index_oldest(dir->index, seq, blocks, STORE_EVICTING_MAX);
		int gone;

		/* Once through all of them, then once more, sparing none. */
		if (n <= 0) {
			if (n < 0 || ++idle == 2)
				break;
			seq = 0;
			continue;
		}
		for (int i = 0; i < n && going < excess; i++) {
			seq = blocks[i].seq;
			if (evict_add(&batch, &blocks[i], idle > 0))
				going += batch.ones[batch.count - 1].len;
		}
		gone = evict_carry_out(&batch);
		if (gone < 0)
			break;
		if (gone > 0) {
			begun = true;
			store->ops.space(store->ops.arg);
		}
	}
	pthread_mutex_lock(&store->lock);
	if (!begun && excess && dir->reserved) {
		/* What is being written will be recorded, and can be evicted then. */
		store->hurry = true;
		pthread_mutex_unlock(&store->lock);
		return;
	}
	dir->wanted = 0;
	if (excess && !begun)
		dir->stuck_ns = store_now() + EVICT_STUCK_NS;
	pthread_mutex_unlock(&store->lock);
	store->ops.space(store->ops.arg);
}

struct evict_wanted {
	const struct store_request *request;
	uint64_t *ids;
	size_t count, size;
};

static bool evict_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !len || (!strncmp(path, top, len) && (!path[len] || path[len] == '/'));
}

static int evict_want(void *arg, const struct index_file *record)
{
	struct evict_wanted *wanted = arg;

	if (strcmp(record->identity, wanted->request->identity) ||
	    !evict_below(record->path, wanted->request->path))
		return 0;
	if (wanted->count == wanted->size) {
		size_t size = wanted->size ? wanted->size * 2 : 64;
		uint64_t *ids = reallocarray(wanted->ids, size, sizeof(*ids));

		if (!ids)
			return -ENOMEM;
		wanted->ids = ids;
		wanted->size = size;
	}
	wanted->ids[wanted->count++] = record->id;
	return 0;
}

void evict_request(struct store *store, struct store_request *request)
{
	struct index_block blocks[STORE_EVICTING_MAX];

	for (size_t d = 0; d < store->dir_count; d++) {
		struct evict_batch batch = { .store = store, .dir = &store->dirs[d] };
		struct evict_wanted wanted = { .request = request };
		int n;

		if (index_each_file(batch.dir->index, evict_want, &wanted))
			log_error("cache %s: the index cannot be read", batch.dir->path);
		for (size_t i = 0; i < wanted.count; i++) {
			uint64_t next = 0;

			while ((n = index_file_blocks(batch.dir->index, wanted.ids[i], next, blocks,
						      STORE_EVICTING_MAX)) > 0) {
				int gone;

				for (int j = 0; j < n; j++) {
					next = blocks[j].block + 1;
					if (!evict_add(&batch, &blocks[j], true))
						request->busy++;
				}
				gone = evict_carry_out(&batch);
				if (gone < 0)
					break;
				request->blocks += (uint64_t)gone;
			}
		}
		free(wanted.ids);
	}
	store->ops.space(store->ops.arg);
}
