// SPDX-License-Identifier: MIT
/*
 * store_index: opening, transactions. What is read and changed in them: store_index_read,
 * store_index_change.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "faultpoint.h"
#include "store_index_impl.h"

/* Address space, not memory: it is doubled when it gets full. */
#define INDEX_MAP_START (1ULL << 30)
#define INDEX_MAP_MAX	(1ULL << 42)
#define INDEX_READERS	512

int index_error(int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
		return -ENOBUFS;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
		return -EUCLEAN;
	default:
		return rc > 0 ? -rc : -EIO;
	}
}

void *index_scratch(struct index_txn *txn, size_t size)
{
	struct index_scratch *scratch = calloc(1, sizeof(*scratch) + size);

	if (!scratch)
		return NULL;
	scratch->next = txn->scratch;
	txn->scratch = scratch;
	return scratch->bytes;
}

struct index_reading {
	struct index_read read;
	int (*fn)(struct index_read *read, void *arg);
	void *arg;
};

static int index_read_run(void *arg)
{
	struct index_reading *reading = arg;
	struct index_read *read = &reading->read;
	int rc = mdb_txn_begin(read->index->env, NULL, MDB_RDONLY, &read->txn);

	if (rc == MDB_PANIC)
		read->index->broken = true;
	return rc ? index_error(rc) : reading->fn(read, reading->arg);
}

int index_read(struct index *index, int (*fn)(struct index_read *read, void *arg), void *arg)
{
	struct index_reading reading = { { .index = index }, fn, arg };
	struct index_read *read = &reading.read;
	bool left = false;
	int err = -ENODEV;

	pthread_rwlock_rdlock(&index->map_lock);
	if (index->env)
		err = index->broken ? -EIO : index_guard(index, index_read_run, &reading, &left);
	/* None of it looks into the map, also if it was left. */
	if (read->cursor)
		mdb_cursor_close(read->cursor);
	if (read->txn)
		mdb_txn_abort(read->txn);
	pthread_rwlock_unlock(&index->map_lock);
	free(read->copy);
	return err;
}

int index_read_copy(struct index_read *read, MDB_val *value)
{
	if (value->mv_size > read->copy_size) {
		free(read->copy);
		read->copy_size = 0;
		read->copy = malloc(value->mv_size);
		if (!read->copy)
			return -ENOMEM;
		read->copy_size = value->mv_size;
	}
	if (value->mv_size)
		memcpy(read->copy, value->mv_data, value->mv_size);
	value->mv_data = read->copy;
	return 0;
}

struct index_updating {
	struct index_txn txn;
	int (*fn)(struct index_txn *txn, void *arg);
	void *arg;
};

static int index_update_run(void *arg)
{
	struct index_updating *updating = arg;
	struct index_txn *txn = &updating->txn;
	struct index *index = txn->index;
	struct index_totals before = txn->totals;
	MDB_val key = { 6, "totals" }, value = { sizeof(txn->totals), &txn->totals };
	int rc = mdb_txn_begin(index->env, NULL, 0, &txn->txn), err;

	if (rc == MDB_PANIC)
		index->broken = true;
	if (rc)
		return index_error(rc);
	err = updating->fn(txn, updating->arg);
	if (!err && memcmp(&before, &txn->totals, sizeof(before)))
		err = index_error(mdb_put(txn->txn, index->meta, &key, &value, 0));
	if (err) {
		mdb_txn_abort(txn->txn);
		return err;
	}
	faultpoint(FAULT_COMMIT);
	rc = mdb_txn_commit(txn->txn);
	if (rc == EIO || rc == MDB_PANIC)
		index->broken = true;
	return index_error(rc);
}

static int index_update_locked(struct index *index, int (*fn)(struct index_txn *txn, void *arg),
			       void *arg)
{
	struct index_updating updating = { { .index = index, .seq = index->seq }, fn, arg };
	struct index_txn *txn = &updating.txn;
	int err;

	if (!index->env)
		return -ENODEV;
	if (index->broken)
		return -EIO;
	index_totals(index, &txn->totals);
	err = index_guard(index, index_update_run, &updating, &index->wreck);
	while (txn->scratch) {
		struct index_scratch *scratch = txn->scratch;

		txn->scratch = scratch->next;
		free(scratch);
	}
	if (!err) {
		index->seq = txn->seq;
		index->files_count = txn->totals.files;
		index->bytes_count = txn->totals.bytes;
		index->young_bytes = txn->totals.young;
	}
	return err;
}

static int index_grow_run(void *arg)
{
	struct index *index = arg;

	return index_error(mdb_env_set_mapsize(index->env, index->map_size * 2));
}

static int index_grow(struct index *index)
{
	bool left = false;
	int err = -ENODEV;

	/* No transaction may be open while the map grows. */
	pthread_rwlock_wrlock(&index->map_lock);
	if (index->env)
		err = index_guard(index, index_grow_run, index, &left);
	if (!err)
		index->map_size *= 2;
	pthread_rwlock_unlock(&index->map_lock);
	return err;
}

int index_update(struct index *index, int (*fn)(struct index_txn *txn, void *arg), void *arg)
{
	int err;

	for (;;) {
		pthread_rwlock_rdlock(&index->map_lock);
		err = index_update_locked(index, fn, arg);
		pthread_rwlock_unlock(&index->map_lock);
		if (err != -ENOBUFS || index->map_size >= INDEX_MAP_MAX)
			return err == -ENOBUFS ? -ENOSPC : err;
		err = index_grow(index);
		if (err)
			return err;
	}
}

/* A number that is kept in the table of such; *value stays if there is none yet. */
static int index_get_meta(struct index_txn *txn, const char *name, void *value, size_t size)
{
	MDB_val key = { strlen(name), (void *)name }, found;
	int rc = mdb_get(txn->txn, txn->index->meta, &key, &found);

	if (rc == MDB_NOTFOUND)
		return 0;
	if (rc)
		return index_error(rc);
	if (found.mv_size != size)
		return -EUCLEAN;
	memcpy(value, found.mv_data, size);
	return 0;
}

/* The last number given: of either kind, it is the largest without INDEX_MAIN. */
static int index_last_seq(struct index_txn *txn)
{
	uint64_t border = INDEX_MAIN, seq;
	MDB_val key, value;
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(txn->txn, txn->index->order, &cursor), err;

	if (rc)
		return index_error(rc);
	txn->seq = 0;
	err = index_error(mdb_cursor_get(cursor, &key, &value, MDB_LAST));
	if (!err)
		err = index_number(&key, &seq);
	if (!err) {
		txn->seq = seq & ~INDEX_MAIN;
		key = (MDB_val){ sizeof(border), &border };
		rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
		err = index_error(mdb_cursor_get(cursor, &key, &value, rc ? MDB_LAST : MDB_PREV));
	}
	if (!err)
		err = index_number(&key, &seq);
	if (!err && (seq & ~INDEX_MAIN) > txn->seq)
		txn->seq = seq & ~INDEX_MAIN;
	mdb_cursor_close(cursor);
	if (err && err != -ENOENT)
		return err;
	return txn->seq > INDEX_SEQ_MAX ? -EUCLEAN : 0;
}

/* What they were last known to be, as far as it can be. */
static int index_get_totals(struct index_txn *txn)
{
	struct index_totals *totals = &txn->totals;
	int err = index_get_meta(txn, "totals", totals, sizeof(*totals));

	if (!err && (totals->files > INT64_MAX || totals->bytes > INT64_MAX))
		err = -EUCLEAN;
	if (totals->young > totals->bytes)
		totals->young = totals->bytes;
	return err;
}

static int index_setup(struct index_txn *txn, void *arg)
{
	struct index *index = arg;
	const struct {
		const char *name;
		unsigned int flags;
		MDB_dbi *dbi;
	} tables[] = {
		{ "keys", 0, &index->keys },
		{ "files", MDB_INTEGERKEY, &index->files },
		{ "blocks", 0, &index->blocks },
		{ "order", MDB_INTEGERKEY, &index->order },
		{ "sources", 0, &index->sources },
		{ "pins", 0, &index->pins },
		{ "digests", MDB_INTEGERKEY, &index->digests },
		{ "meta", 0, &index->meta },
	};
	MDB_val key = { 6, "starts" }, value = { sizeof(index->starts), &index->starts };
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(tables); i++)
		err = index_error(mdb_dbi_open(txn->txn, tables[i].name,
					       MDB_CREATE | tables[i].flags, tables[i].dbi));
	index->starts = 0;
	if (!err)
		err = index_get_meta(txn, "starts", &index->starts, sizeof(index->starts));
	if (!err)
		err = index_get_totals(txn);
	if (++index->starts > INDEX_STARTS_MAX && !err)
		err = -EUCLEAN;
	if (!err)
		err = index_error(mdb_put(txn->txn, index->meta, &key, &value, 0));
	return err ? err : index_last_seq(txn);
}

int index_create(struct index **ret)
{
	struct index *index = calloc(1, sizeof(*index));

	if (!index)
		return -ENOMEM;
	pthread_rwlock_init(&index->map_lock, NULL);
	*ret = index;
	return 0;
}

struct index_opening {
	const char *path;
	MDB_env *env;
	uint64_t map_size;
	MDB_envinfo info;
};

static int index_open_run(void *arg)
{
	struct index_opening *opening = arg;
	MDB_env *env = opening->env;
	int err = index_error(mdb_env_set_maxdbs(env, 8));

	if (!err)
		err = index_error(mdb_env_set_maxreaders(env, INDEX_READERS));
	if (!err)
		err = index_error(mdb_env_set_mapsize(env, INDEX_MAP_START));
	if (!err)
		err = index_error(
			mdb_env_open(env, opening->path, MDB_NOTLS | MDB_NORDAHEAD, 0600));
	if (!err)
		err = index_error(mdb_env_info(env, &opening->info));
	if (!err) {
		/* Room to grow before the map has to. */
		opening->map_size = INDEX_MAP_START;
		while (opening->map_size < opening->info.me_mapsize)
			opening->map_size *= 2;
		err = index_error(mdb_env_set_mapsize(env, opening->map_size));
	}
	return err;
}

/* Damaged, rather than not readable now: is the file shorter than it says? */
static bool index_is_short(struct index *index, const struct index_opening *opening)
{
	struct stat st;
	int fd;

	return !mdb_env_get_fd(index->env, &fd) && !fstat(fd, &st) &&
	       (uint64_t)st.st_size / (uint64_t)sysconf(_SC_PAGESIZE) <= opening->info.me_last_pgno;
}

int index_attach(struct index *index, const char *path, char *msg, size_t msg_size)
{
	struct index_opening opening = { .path = path };
	int locks = -1, err = index_error(mdb_env_create(&opening.env));
	bool left = false;

	index->broken = false;
	index_fault_setup();
	if (!err)
		err = index_locks_begin(path, &locks);
	if (!err) {
		err = index_guard(index, index_open_run, &opening, &left);
		index_locks_end(path, locks);
	}
	if (!err) {
		pthread_rwlock_wrlock(&index->map_lock);
		index->env = opening.env;
		index->map_size = opening.map_size;
		index->seq = 0;
		index->files_count = 0;
		index->bytes_count = 0;
		index->young_bytes = 0;
		pthread_rwlock_unlock(&index->map_lock);
		err = index_update(index, index_setup, index);
		if (err == -EIO && index->wreck && index_is_short(index, &opening))
			err = -EUCLEAN;
		if (err)
			index_detach(index);
	} else if (opening.env) {
		mdb_env_close(opening.env);
	}
	if (err)
		snprintf(msg, msg_size,
			 "the cache index %s cannot be opened: %s; if it is damaged, remove the cache directory",
			 path, strerror(-err));
	return err;
}

void index_detach(struct index *index)
{
	MDB_env *env;

	pthread_rwlock_wrlock(&index->map_lock);
	env = TAKE(index->env);
	index->files_count = 0;
	index->bytes_count = 0;
	index->young_bytes = 0;
	if (env && index->wreck)
		index_wreck(env);
	else if (env)
		mdb_env_close(env);
	index->wreck = false;
	pthread_rwlock_unlock(&index->map_lock);
}

int index_open(const char *path, struct index **ret, char *msg, size_t msg_size)
{
	struct index *index;
	int err = index_create(&index);

	if (err)
		return err;
	err = index_attach(index, path, msg, msg_size);
	if (err)
		index_close(index);
	else
		*ret = index;
	return err;
}

void index_close(struct index *index)
{
	if (!index)
		return;
	index_detach(index);
	pthread_rwlock_destroy(&index->map_lock);
	free(index);
}

static int index_put_starts(struct index_txn *txn, void *arg)
{
	MDB_val key = { 6, "starts" }, value = { sizeof(uint64_t), arg };

	return index_error(mdb_put(txn->txn, txn->index->meta, &key, &value, 0));
}

int index_skip_starts(struct index *index, uint64_t starts)
{
	int err = index_update(index, index_put_starts, &starts);

	if (!err)
		index->starts = starts;
	return err;
}

bool index_is_broken(const struct index *index)
{
	return index->broken;
}

void index_totals(struct index *index, struct index_totals *ret)
{
	*ret = (struct index_totals){
		.files = index->files_count,
		.bytes = index->bytes_count,
		.young = index->young_bytes,
	};
}

uint64_t index_seq(const struct index *index)
{
	return index->seq;
}

uint64_t index_add(uint64_t count, int64_t more)
{
	return more < 0 && count < -(uint64_t)more ? 0 : count + (uint64_t)more;
}

struct index_hash index_hash_source(const char *identity)
{
	XXH128_hash_t digest = XXH3_128bits(identity, strlen(identity));

	return (struct index_hash){ digest.low64, digest.high64 };
}

static int index_bytes_run(void *arg)
{
	struct index *index = ((void **)arg)[0];
	uint64_t *bytes = ((void **)arg)[1];
	MDB_envinfo info;
	MDB_stat stat;
	int rc = mdb_env_info(index->env, &info);

	if (!rc)
		rc = mdb_env_stat(index->env, &stat);
	if (!rc)
		*bytes = (info.me_last_pgno + 1) * stat.ms_psize;
	return 0;
}

uint64_t index_bytes(struct index *index)
{
	uint64_t bytes = 0;
	void *args[] = { index, &bytes };
	bool left = false;

	/* What these read lies in the map. */
	pthread_rwlock_rdlock(&index->map_lock);
	if (index->env && !index->broken)
		index_guard(index, index_bytes_run, args, &left);
	pthread_rwlock_unlock(&index->map_lock);
	return bytes;
}

uint64_t index_starts(struct index *index)
{
	return index->starts;
}
