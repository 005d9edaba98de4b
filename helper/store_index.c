// SPDX-License-Identifier: MIT
/*
 * store_index: opening, transactions. What is read and changed in them: store_index_read,
 * store_index_change.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int index_read_begin(struct index *index, MDB_txn **ret)
{
	int rc;

	pthread_rwlock_rdlock(&index->map_lock);
	rc = index->env ? mdb_txn_begin(index->env, NULL, MDB_RDONLY, ret) : ENODEV;
	if (rc == MDB_PANIC)
		index->broken = true;
	if (rc)
		pthread_rwlock_unlock(&index->map_lock);
	return index_error(rc);
}

void index_read_end(struct index *index, MDB_txn *txn)
{
	mdb_txn_abort(txn);
	pthread_rwlock_unlock(&index->map_lock);
}

static int index_update_locked(struct index *index, int (*fn)(struct index_txn *txn, void *arg),
			       void *arg)
{
	struct index_txn txn = { .index = index, .seq = index->seq };
	MDB_val key = { 6, "totals" }, value = { sizeof(txn.totals), &txn.totals };
	struct index_totals before;
	int rc, err;

	if (!index->env)
		return -ENODEV;
	index_totals(index, &before);
	txn.totals = before;
	rc = mdb_txn_begin(index->env, NULL, 0, &txn.txn);
	if (rc) {
		index->broken = rc == MDB_PANIC;
		return index_error(rc);
	}
	err = fn(&txn, arg);
	if (!err && memcmp(&before, &txn.totals, sizeof(before)))
		err = index_error(mdb_put(txn.txn, index->meta, &key, &value, 0));
	if (err) {
		mdb_txn_abort(txn.txn);
		return err;
	}
	faultpoint(FAULT_COMMIT);
	rc = mdb_txn_commit(txn.txn);
	if (rc == EIO || rc == MDB_PANIC)
		index->broken = true;
	err = index_error(rc);
	if (!err) {
		index->seq = txn.seq;
		index->files_count = txn.totals.files;
		index->bytes_count = txn.totals.bytes;
		index->young_bytes = txn.totals.young;
	}
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
		/* No transaction may be open while the map grows. */
		pthread_rwlock_wrlock(&index->map_lock);
		err = index_error(mdb_env_set_mapsize(index->env, index->map_size * 2));
		if (!err)
			index->map_size *= 2;
		pthread_rwlock_unlock(&index->map_lock);
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
	int rc = mdb_cursor_open(txn->txn, txn->index->order, &cursor);

	int err;

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
		{ "keys", 0, &index->keys },	   { "files", MDB_INTEGERKEY, &index->files },
		{ "blocks", 0, &index->blocks },   { "order", MDB_INTEGERKEY, &index->order },
		{ "sources", 0, &index->sources }, { "pins", 0, &index->pins },
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

static int index_open_env(const char *path, MDB_env **ret, uint64_t *ret_map_size)
{
	MDB_env *env = NULL;
	MDB_envinfo info;
	int err = index_error(mdb_env_create(&env));

	if (!err)
		err = index_error(mdb_env_set_maxdbs(env, 8));
	if (!err)
		err = index_error(mdb_env_set_maxreaders(env, INDEX_READERS));
	if (!err)
		err = index_error(mdb_env_set_mapsize(env, INDEX_MAP_START));
	if (!err)
		err = index_error(mdb_env_open(env, path, MDB_NOTLS | MDB_NORDAHEAD, 0600));
	if (!err)
		err = index_error(mdb_env_info(env, &info));
	if (!err) {
		/* Room to grow before the map has to. */
		*ret_map_size = INDEX_MAP_START;
		while (*ret_map_size < info.me_mapsize)
			*ret_map_size *= 2;
		err = index_error(mdb_env_set_mapsize(env, *ret_map_size));
	}
	if (err && env)
		mdb_env_close(env);
	else
		*ret = env;
	return err;
}

int index_attach(struct index *index, const char *path, char *msg, size_t msg_size)
{
	uint64_t map_size = 0;
	MDB_env *env = NULL;
	int err = index_open_env(path, &env, &map_size);

	if (!err) {
		pthread_rwlock_wrlock(&index->map_lock);
		index->env = env;
		index->map_size = map_size;
		index->seq = 0;
		index->broken = false;
		index->files_count = 0;
		index->bytes_count = 0;
		index->young_bytes = 0;
		pthread_rwlock_unlock(&index->map_lock);
		err = index_update(index, index_setup, index);
		if (err)
			index_detach(index);
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
	pthread_rwlock_unlock(&index->map_lock);
	if (env)
		mdb_env_close(env);
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

uint64_t index_bytes(struct index *index)
{
	MDB_envinfo info;
	MDB_stat stat;
	int rc;

	/* What these read lies in the map. */
	pthread_rwlock_rdlock(&index->map_lock);
	rc = index->env ? mdb_env_info(index->env, &info) : ENODEV;
	if (!rc)
		rc = mdb_env_stat(index->env, &stat);
	pthread_rwlock_unlock(&index->map_lock);
	return rc ? 0 : (info.me_last_pgno + 1) * stat.ms_psize;
}

uint64_t index_starts(struct index *index)
{
	return index->starts;
}
