// SPDX-License-Identifier: MIT
/*
 * evict: makes room in a cache directory.
 *
 * First go blocks of sources that were mounted and are no more. Then, as S3-FIFO has it: a
 * block that is stored is on probation until it is read again, and a scan, which reads
 * everything once, pushes out nothing but blocks on probation, once those take more than a
 * tenth of the capacity. What was read since it was last looked at moves to the young end of
 * the others. The kernel, which reads cached blocks, has a reference bit for each; a file
 * opened again counts as well. Blocks that come back soon after they were evicted from
 * probation are stored as proven (the ghosts). Pinned blocks stay.
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
#include "faultpoint.h"
#include "store_impl.h"

#define LOG_AREA "evict"
#include "log.h"

#define EVICT_YOUNG_S 60
/* After a round in which nothing could be evicted. */
#define EVICT_STUCK_NS 1000000000ULL
/*
 * What could be evicted if it were not in a buffer is waited for, so long: blocks that have just
 * been recorded are, until the kernel was told of them. Who needs the memory of what waits to
 * be written does not wait for this (hold_drop).
 */
#define EVICT_PATIENCE_NS 10000000000ULL
/* The share of the capacity that blocks on probation have: one in so many. */
#define EVICT_PROBATION 10

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
	const struct store_quota *quota; /* only of its sources; NULL: of all */
	bool held;			 /* something is in a buffer that could go otherwise */
	unsigned int count;
	struct evict_one ones[STORE_EVICTING_MAX];
};

/* What becomes of a block that is looked at. */
enum evict_fate { EVICT_GO, EVICT_SPARE, EVICT_BUSY, EVICT_PINNED, EVICT_PASS };

/* How it is looked at. */
enum evict_how {
	EVICT_COLD,   /* spared if it was read since */
	EVICT_FORCED, /* it was spared already, or somebody says so */
};

static uint64_t ghost_hash(const struct index_hash *hash, uint64_t block)
{
	uint64_t h = hash->low ^ (block * 0x9e3779b97f4a7c15ULL);

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ (h >> 32);
}

static void ghost_add(struct store_dir *dir, const struct index_hash *hash, uint64_t block)
{
	uint64_t h = ghost_hash(hash, block);

	dir->ghosts[h % STORE_GHOSTS] = (uint32_t)(h >> 32) | 1;
}

bool evict_ghost(const struct store_dir *dir, const struct index_hash *hash, uint64_t block)
{
	uint64_t h = ghost_hash(hash, block);

	return dir->ghosts[h % STORE_GHOSTS] == ((uint32_t)(h >> 32) | 1);
}

struct evict_lookup {
	struct evict_batch *batch;
	struct evict_one *one;
	int64_t opened_s;
	bool pinned;
};

static int evict_found(void *arg, const struct index_file *record)
{
	struct evict_lookup *lookup = arg;
	struct store *store = lookup->batch->store;
	struct evict_one *one = lookup->one;
	const struct store_source *source;
	bool wanted;

	one->len = store_block_len(record->size, record->block_shift, one->block.block);
	if (!one->len)
		return -EUCLEAN;
	pthread_mutex_lock(&store->lock);
	source = store_source_by_hash(store, &record->source);
	wanted = !lookup->batch->quota || (source && source->quota == lookup->batch->quota);
	lookup->pinned = store_is_pinned(store, record->identity, record->path);
	pthread_mutex_unlock(&store->lock);
	if (!wanted || lookup->pinned)
		return -EBUSY;
	lookup->opened_s = record->opened_s;
	one->file = store_file_of(store, lookup->batch->dir, record);
	if (!one->file)
		return -ENOMEM;
	/* Whoever has the file open goes by what it was when it was opened. */
	if (one->file->key.size == record->size &&
	    one->file->key.block_shift == record->block_shift)
		return 0;
	store_file_put(one->file);
	return -EUCLEAN;
}

/* Marks the block and asks for it: 0, or that it stays. */
static int evict_ask(struct store *store, struct evict_one *one, bool cold)
{
	bool marked = false;
	int err;

	pthread_mutex_lock(&store->lock);
	if (store->evicting_count < STORE_EVICTING_MAX) {
		store->evicting[store->evicting_count++] =
			(struct store_evicting){ one->file, one->block.block };
		marked = true;
	}
	pthread_mutex_unlock(&store->lock);
	if (!marked)
		return -EBUSY;
	err = store->ops.evict(store->ops.arg, one->file, one->block.block, cold);
	if (!err) {
		faultpoint(FAULT_GRANTED);
		return 0;
	}
	pthread_mutex_lock(&store->lock);
	store->evicting_count--;
	pthread_mutex_unlock(&store->lock);
	return err;
}

/* Was it read, or its file opened again, since it was stored or last looked at? */
static bool evict_is_hot(struct store *store, const struct evict_lookup *lookup)
{
	const struct evict_one *one = lookup->one;
	const struct index_block *block = &one->block;
	int64_t since = block->seen_s > block->stored_s ? block->seen_s : block->stored_s;

	SCOPED_LOCK(&store->lock);
	return store_file_touched(one->file, block->block) || lookup->opened_s > since ||
	       one->file->opened_s > since;
}

/* Adds the block to the batch if it is to go or to be rotated. */
static enum evict_fate evict_add(struct evict_batch *batch, const struct index_block *block,
				 enum evict_how how)
{
	struct evict_one *one = &batch->ones[batch->count];
	struct evict_lookup lookup = { .batch = batch, .one = one };
	int err;

	*one = (struct evict_one){ .block = *block };
	if (index_file(batch->dir->index, block->id, evict_found, &lookup))
		return lookup.pinned ? EVICT_PINNED : EVICT_PASS;
	one->spare = how == EVICT_COLD && evict_is_hot(batch->store, &lookup);
	if (!one->spare) {
		err = evict_ask(batch->store, one, how == EVICT_COLD);
		one->spare = err == -EAGAIN;
		if (err && !one->spare) {
			batch->held = batch->held || err == -EINPROGRESS;
			store_file_put(one->file);
			return EVICT_BUSY;
		}
	}
	batch->count++;
	return one->spare ? EVICT_SPARE : EVICT_GO;
}

static int evict_change(struct index_txn *txn, void *arg)
{
	struct evict_batch *batch = arg;
	int err = 0;

	for (unsigned int i = 0; i < batch->count && !err; i++) {
		struct evict_one *one = &batch->ones[i];

		if (one->spare) {
			err = index_rotate(txn, &one->block, one->len);
			continue;
		}
		err = index_delete_block(txn, one->block.id, one->block.block, one->len);
		one->gone = !err;
		if (err == -ENOENT)
			err = 0;
	}
	return err;
}

static void evict_punch(struct store_file *file, uint64_t block, uint64_t len)
{
	int fd = store_file_begin(file);

	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(block << file->key.block_shift), (off_t)((len + 4095) & ~4095ULL)))
		log_warn("cache %s: a hole cannot be punched: %s", file->dir->path,
			 strerror(errno));
	store_file_end(file);
}

static void evict_count(struct store_dir *dir, const struct evict_one *one)
{
	counter_add(blocks_evicted, 1);
	if (time(NULL) - one->block.stored_s < EVICT_YOUNG_S)
		counter_add(blocks_evicted_young, 1);
	if (!(one->block.seq & INDEX_MAIN))
		ghost_add(dir, &one->file->hash, one->block.block);
}

/* Carries the batch out; returns the number of blocks that went, or -errno. */
static int evict_carry_out(struct evict_batch *batch)
{
	struct store *store = batch->store;
	int gone = 0, err = 0;

	if (batch->count)
		err = index_update(batch->dir->index, evict_change, batch);
	for (unsigned int i = 0; i < batch->count && !err; i++) {
		struct evict_one *one = &batch->ones[i];

		if (one->spare || !one->gone)
			continue;
		faultpoint(FAULT_UNRECORDED);
		evict_punch(one->file, one->block.block, one->len);
		faultpoint(FAULT_PUNCHED);
		evict_count(batch->dir, one);
		gone++;
	}
	pthread_mutex_lock(&store->lock);
	for (unsigned int i = 0; i < batch->count; i++) {
		struct evict_one *one = &batch->ones[i];

		if (err || one->spare || !one->gone)
			continue;
		store_account(batch->dir, one->file->source, -(int64_t)one->len);
		one->file->cached = index_add(one->file->cached, -(int64_t)one->len);
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

bool evict_stray(struct store *store, struct store_file *file, uint64_t block)
{
	struct evict_one one = { .file = file, .block.block = block };

	if (evict_ask(store, &one, false))
		return false;
	evict_punch(file, block, store_block_len(file->key.size, file->key.block_shift, block));
	pthread_mutex_lock(&store->lock);
	store->evicting_count = 0;
	pthread_mutex_unlock(&store->lock);
	store->ops.evicted(store->ops.arg, file, block, true);
	return true;
}

bool evict_due(const struct store *store, const struct store_dir *dir)
{
	uint64_t taken = dir->used + dir->reserved;

	return (double)taken > (double)dir->capacity * store->high / 100 ||
	       taken + dir->wanted > dir->capacity;
}

/* ---- sources that nobody mounts any more ---- */

struct evict_left {
	struct store *store;
	struct store_dir *dir;
	size_t size;
};

static bool evict_is_left(struct store *store, const struct index_file *record,
			  int64_t *ret_mounted_s)
{
	const struct store_source *source;

	SCOPED_LOCK(&store->lock);
	source = store_source_by_hash(store, &record->source);
	/* Opened since, by `wfs fetch`: somebody has plans for it. */
	if (!source || !store_source_left(source) || record->opened_s > source->mounted_s)
		return false;
	*ret_mounted_s = source->mounted_s;
	return true;
}

static int evict_find_left(void *arg, const struct index_file *record)
{
	struct evict_left *found = arg;
	struct store_dir *dir = found->dir;
	int64_t mounted_s;

	if (!evict_is_left(found->store, record, &mounted_s))
		return 0;
	if (dir->left_count == found->size) {
		size_t size = found->size ? found->size * 2 : 64;
		uint64_t *ids = reallocarray(dir->left, size, sizeof(*ids));

		if (!ids)
			return -ENOMEM;
		dir->left = ids;
		found->size = size;
	}
	dir->left[dir->left_count++] = record->id;
	return 0;
}

/* Looks for their files, once for each change of who is mounted. */
static void evict_look_for_left(struct store *store, struct store_dir *dir)
{
	struct evict_left found = { .store = store, .dir = dir };
	bool any = false;
	uint64_t change;

	pthread_mutex_lock(&store->lock);
	change = store->mount_change;
	for (const struct store_source *source = store->sources; source && !any;
	     source = source->next)
		any = store_source_left(source) && source->used[dir->number];
	pthread_mutex_unlock(&store->lock);
	if (dir->left_change == change)
		return;
	free(dir->left);
	dir->left = NULL;
	dir->left_count = 0;
	dir->left_at = 0;
	dir->left_change = change;
	if (any && index_each_file(dir->index, evict_find_left, &found))
		log_error("cache %s: the index cannot be read", dir->path);
}

struct evict_left_file {
	struct store *store;
	int64_t mounted_s; /* 0: it is not left any more */
};

static int evict_left_found(void *arg, const struct index_file *record)
{
	struct evict_left_file *file = arg;

	if (!evict_is_left(file->store, record, &file->mounted_s))
		file->mounted_s = 0;
	return 0;
}

/* The next blocks of such files into the batch; false: there are no more. */
static bool evict_add_left(struct evict_batch *batch, uint64_t *next, uint64_t excess)
{
	struct store_dir *dir = batch->dir;
	struct index_block blocks[STORE_EVICTING_MAX];

	while (dir->left_at < dir->left_count) {
		struct evict_left_file file = { .store = batch->store };
		uint64_t id = dir->left[dir->left_at], going = 0;
		int n = 0;

		if (!index_file(dir->index, id, evict_left_found, &file) && file.mounted_s)
			n = index_file_blocks(dir->index, id, *next, blocks, STORE_EVICTING_MAX);
		for (int i = 0; i < n && going < excess; i++) {
			*next = blocks[i].block + 1;
			if (blocks[i].stored_s <= file.mounted_s &&
			    evict_add(batch, &blocks[i], EVICT_FORCED) == EVICT_GO)
				going += batch->ones[batch->count - 1].len;
		}
		if (n > 0)
			return true;
		*next = 0;
		dir->left_at++;
	}
	return false;
}

/* ---- the order of the others ---- */

struct evict_walk {
	uint64_t at[2]; /* numbers looked at: on probation, proven */
	bool end[2];
	uint64_t begun; /* the last number when it began: later ones were spared in it */
};

static void evict_walk_begin(struct evict_walk *walk, const struct store_dir *dir)
{
	*walk = (struct evict_walk){ .at = { 0, INDEX_MAIN }, .begun = index_seq(dir->index) };
}

/*
 * The oldest blocks of the queue whose turn it is; their number, 0: all were looked at, or
 * what is being written is to come first.
 */
static int evict_walk_next(struct evict_walk *walk, struct store *store, struct store_dir *dir,
			   struct index_block *blocks)
{
	for (;;) {
		struct index_totals totals;
		uint64_t capacity, reserved;
		unsigned int queue;
		int n;

		pthread_mutex_lock(&store->lock);
		capacity = dir->capacity;
		reserved = dir->reserved;
		pthread_mutex_unlock(&store->lock);
		index_totals(dir->index, &totals);
		queue = totals.young + reserved > capacity / EVICT_PROBATION ? 0 : 1;
		if (!queue && walk->end[queue] && reserved)
			return 0;
		if (walk->end[queue])
			queue = !queue;
		if (walk->end[queue])
			return 0;
		n = index_oldest(dir->index, walk->at[queue], blocks, STORE_EVICTING_MAX);
		if (n)
			return n;
		walk->end[queue] = true;
	}
}

/* Is there something on its way that will be on probation? */
static bool evict_is_awaited(const struct evict_batch *batch)
{
	SCOPED_LOCK(&batch->store->lock);

	return batch->dir->reserved > 0;
}

/*
 * Adds blocks of the walk to the batch until so much is going. False: there are no more, but
 * perhaps those that were spared, while what is being written can go in a moment.
 */
static bool evict_add_oldest(struct evict_batch *batch, struct evict_walk *walk, uint64_t excess)
{
	struct index_block blocks[STORE_EVICTING_MAX];
	uint64_t going = 0;
	int n = evict_walk_next(walk, batch->store, batch->dir, blocks);

	for (int i = 0; i < n && going < excess; i++) {
		bool again = (blocks[i].seq & ~INDEX_MAIN) > walk->begun;

		if (again && evict_is_awaited(batch))
			return i > 0;
		walk->at[blocks[i].seq & INDEX_MAIN ? 1 : 0] = blocks[i].seq;
		if (evict_add(batch, &blocks[i], again ? EVICT_FORCED : EVICT_COLD) == EVICT_GO)
			going += batch->ones[batch->count - 1].len;
	}
	return n > 0;
}

/* Bytes over the low mark; 0 below the high mark unless it was passed before. */
static uint64_t evict_excess(struct store *store, struct store_dir *dir, bool begun)
{
	SCOPED_LOCK(&store->lock);
	uint64_t taken = dir->used + dir->reserved + dir->wanted;
	double low = (double)dir->capacity * store->low / 100;

	if (store->stop || dir->lost || (!begun && !evict_due(store, dir)))
		return 0;
	return (double)taken > low ? taken - (uint64_t)low : 0;
}

/* store->lock held. Nothing could go in a round: is there something to wait for, and time? */
static bool evict_is_patient(uint64_t *patience_ns, bool held)
{
	if (!held)
		return false;
	if (!*patience_ns)
		*patience_ns = store_now() + EVICT_PATIENCE_NS;
	return store_now() < *patience_ns;
}

void evict_run(struct store *store, struct store_dir *dir)
{
	struct evict_batch batch = { .store = store, .dir = dir };
	struct evict_walk walk;
	uint64_t excess, next = 0;
	bool begun = false;

	evict_walk_begin(&walk, dir);
	while ((excess = evict_excess(store, dir, begun))) {
		int gone;

		evict_look_for_left(store, dir);
		if (!evict_add_left(&batch, &next, excess) &&
		    !evict_add_oldest(&batch, &walk, excess))
			break;
		gone = evict_carry_out(&batch);
		if (gone < 0)
			break;
		if (gone > 0) {
			begun = true;
			store->ops.space(store->ops.arg);
		}
	}
	pthread_mutex_lock(&store->lock);
	/* What is being written will be recorded, and can be evicted then. */
	if (excess && dir->reserved)
		store->hurry = true;
	if (!begun && excess &&
	    (dir->reserved || evict_is_patient(&dir->patience_ns, batch.held))) {
		pthread_mutex_unlock(&store->lock);
		return;
	}
	dir->wanted = 0;
	dir->patience_ns = 0;
	if (excess && !begun)
		dir->stuck_ns = store_now() + EVICT_STUCK_NS;
	pthread_mutex_unlock(&store->lock);
	store->ops.space(store->ops.arg);
}

/* ---- quotas ---- */

static uint64_t evict_quota_excess(struct store *store, const struct store_quota *quota, bool begun)
{
	SCOPED_LOCK(&store->lock);
	uint64_t taken = store_quota_taken(store, quota) + quota->wanted;
	double low = (double)quota->limit * store->low / 100;

	if (store->stop || !quota->limit || (!begun && taken <= quota->limit))
		return 0;
	return (double)taken > low ? taken - (uint64_t)low : 0;
}

/* Of one directory. The number of blocks that went. */
static uint64_t evict_quota_dir(struct store *store, struct store_dir *dir,
				const struct store_quota *quota, bool *held)
{
	struct evict_batch batch = { .store = store, .dir = dir, .quota = quota };
	uint64_t excess, total = 0;
	struct evict_walk walk;

	evict_walk_begin(&walk, dir);
	while ((excess = evict_quota_excess(store, quota, total > 0))) {
		int gone;

		if (!evict_add_oldest(&batch, &walk, excess))
			break;
		gone = evict_carry_out(&batch);
		if (gone < 0)
			break;
		total += (uint64_t)gone;
		if (gone)
			store->ops.space(store->ops.arg);
	}
	*held = *held || batch.held;
	return total;
}

void evict_quota(struct store *store, struct store_quota *quota)
{
	bool reserved = false, held = false;
	uint64_t gone = 0;

	for (size_t i = 0; i < store->dir_count; i++)
		gone += evict_quota_dir(store, &store->dirs[i], quota, &held);
	pthread_mutex_lock(&store->lock);
	for (const struct store_source *source = store->sources; source; source = source->next)
		reserved = reserved || (source->quota == quota && source->reserved);
	if (quota->wanted && !gone && reserved) {
		store->hurry = true;
		pthread_mutex_unlock(&store->lock);
		return;
	}
	if (quota->wanted && !gone && evict_is_patient(&quota->patience_ns, held)) {
		pthread_mutex_unlock(&store->lock);
		return;
	}
	quota->patience_ns = 0;
	if (quota->wanted && !gone)
		quota->stuck_ns = store_now() + EVICT_STUCK_NS;
	quota->wanted = 0;
	pthread_mutex_unlock(&store->lock);
	store->ops.space(store->ops.arg);
}

/* ---- `wfs evict` ---- */

struct evict_wanted {
	const struct store_request *request;
	uint64_t *ids;
	size_t count, size;
};

bool evict_below(const char *path, const char *top)
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

static void evict_whole(struct evict_batch *batch, uint64_t id, struct store_request *request)
{
	struct index_block blocks[STORE_EVICTING_MAX];
	uint64_t next = 0;
	int n;

	while ((n = index_file_blocks(batch->dir->index, id, next, blocks, STORE_EVICTING_MAX)) >
	       0) {
		int gone;

		for (int j = 0; j < n; j++) {
			enum evict_fate fate = evict_add(batch, &blocks[j], EVICT_FORCED);

			next = blocks[j].block + 1;
			request->busy += fate == EVICT_BUSY;
			request->pinned += fate == EVICT_PINNED;
		}
		gone = evict_carry_out(batch);
		if (gone < 0)
			break;
		request->blocks += (uint64_t)gone;
	}
}

void evict_request(struct store *store, struct store_request *request)
{
	for (size_t d = 0; d < store->dir_count; d++) {
		struct evict_batch batch = { .store = store, .dir = &store->dirs[d] };
		struct evict_wanted wanted = { .request = request };
		int err = index_each_file(batch.dir->index, evict_want, &wanted);

		if (err && err != -ENODEV)
			log_error("cache %s: the index cannot be read", batch.dir->path);
		for (size_t i = 0; i < wanted.count; i++)
			evict_whole(&batch, wanted.ids[i], request);
		free(wanted.ids);
	}
	store->ops.space(store->ops.arg);
}
