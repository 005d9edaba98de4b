// SPDX-License-Identifier: MIT
#include "store_index.h"

#include <endian.h>
#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"

/* Address space, not memory: it is doubled when it gets full. */
#define INDEX_MAP_START (1ULL << 30)
#define INDEX_MAP_MAX	(1ULL << 42)
#define INDEX_READERS	512

#define INDEX_CHANCE (1U << 0)

/*
 * What is read is believed only as far as it can be true: a disk errs, and whoever gets
 * a record shifts by it and counts with it.
 */
#define INDEX_SHIFT_MIN	 16
#define INDEX_SHIFT_MAX	 26
#define INDEX_BLOCK_MAX	 ((uint64_t)INT64_MAX >> INDEX_SHIFT_MIN)
#define INDEX_STARTS_MAX (1U << 23) /* ids are made of it, 40 bits higher */

struct index_file_record {
	uint64_t size, blocks, bytes;
	struct index_hash hash;
	uint32_t block_shift;
	uint32_t flags;				      /* none yet */
	uint16_t identity_len, path_len, version_len; /* without the NUL that follows each */
	uint16_t pad;
	char text[];
};

struct index_block_record {
	uint64_t seq;
	int64_t stored_s;
	uint32_t units;
	uint16_t flags;
	uint16_t digest_len; /* of a digest that follows the sums: 0 in this format */
	uint64_t sums[];
};

struct index_block_key {
	uint64_t id, block; /* big-endian */
};

struct index {
	MDB_env *env;
	MDB_dbi keys, files, blocks, order, meta;
	pthread_rwlock_t map_lock; /* held for reading by every transaction */
	uint64_t map_size;
	uint64_t seq; /* the last one; the store's thread */
	uint64_t starts;
};

struct index_txn {
	struct index *index;
	MDB_txn *txn;
	uint64_t seq;
};

static int index_error(int rc)
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

static int index_read_begin(struct index *index, MDB_txn **ret)
{
	int rc;

	pthread_rwlock_rdlock(&index->map_lock);
	rc = mdb_txn_begin(index->env, NULL, MDB_RDONLY, ret);
	if (rc)
		pthread_rwlock_unlock(&index->map_lock);
	return index_error(rc);
}

static void index_read_end(struct index *index, MDB_txn *txn)
{
	mdb_txn_abort(txn);
	pthread_rwlock_unlock(&index->map_lock);
}

static int index_update_locked(struct index *index, int (*fn)(struct index_txn *txn, void *arg),
			       void *arg)
{
	struct index_txn txn = { .index = index, .seq = index->seq };
	int err = index_error(mdb_txn_begin(index->env, NULL, 0, &txn.txn));

	if (err)
		return err;
	err = fn(&txn, arg);
	if (err) {
		mdb_txn_abort(txn.txn);
		return err;
	}
	err = index_error(mdb_txn_commit(txn.txn));
	if (!err)
		index->seq = txn.seq;
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

/* A key of files or order. */
static int index_number(const MDB_val *key, uint64_t *ret)
{
	if (key->mv_size != sizeof(*ret))
		return -EUCLEAN;
	memcpy(ret, key->mv_data, sizeof(*ret));
	return 0;
}

static int index_setup(struct index_txn *txn, void *arg)
{
	struct index *index = arg;
	MDB_val key = { 6, "starts" }, value;
	MDB_cursor *cursor;
	int rc, err = 0;

	rc = mdb_dbi_open(txn->txn, "keys", MDB_CREATE, &index->keys);
	if (!rc)
		rc = mdb_dbi_open(txn->txn, "files", MDB_CREATE | MDB_INTEGERKEY, &index->files);
	if (!rc)
		rc = mdb_dbi_open(txn->txn, "blocks", MDB_CREATE, &index->blocks);
	if (!rc)
		rc = mdb_dbi_open(txn->txn, "order", MDB_CREATE | MDB_INTEGERKEY, &index->order);
	if (!rc)
		rc = mdb_dbi_open(txn->txn, "meta", MDB_CREATE, &index->meta);
	if (rc)
		return index_error(rc);

	index->starts = 0;
	rc = mdb_get(txn->txn, index->meta, &key, &value);
	if (!rc && value.mv_size == sizeof(index->starts))
		memcpy(&index->starts, value.mv_data, sizeof(index->starts));
	else if (rc != MDB_NOTFOUND)
		return rc ? index_error(rc) : -EUCLEAN;
	if (++index->starts > INDEX_STARTS_MAX)
		return -EUCLEAN;
	value = (MDB_val){ sizeof(index->starts), &index->starts };
	rc = mdb_put(txn->txn, index->meta, &key, &value, 0);
	if (!rc)
		rc = mdb_cursor_open(txn->txn, index->order, &cursor);
	if (rc)
		return index_error(rc);
	rc = mdb_cursor_get(cursor, &key, &value, MDB_LAST);
	if (!rc)
		err = index_number(&key, &txn->seq);
	/* There must be numbers left. */
	if (!err && txn->seq > INT64_MAX)
		err = -EUCLEAN;
	mdb_cursor_close(cursor);
	if (!err && rc != MDB_NOTFOUND)
		err = index_error(rc);
	return err;
}

int index_open(const char *path, struct index **ret, char *msg, size_t msg_size)
{
	struct index *index = calloc(1, sizeof(*index));
	MDB_envinfo info;
	int err;

	if (!index)
		return -ENOMEM;
	pthread_rwlock_init(&index->map_lock, NULL);
	index->map_size = INDEX_MAP_START;
	err = index_error(mdb_env_create(&index->env));
	if (!err)
		err = index_error(mdb_env_set_maxdbs(index->env, 8));
	if (!err)
		err = index_error(mdb_env_set_maxreaders(index->env, INDEX_READERS));
	if (!err)
		err = index_error(mdb_env_set_mapsize(index->env, index->map_size));
	if (!err)
		err = index_error(mdb_env_open(index->env, path, MDB_NOTLS | MDB_NORDAHEAD, 0600));
	if (!err)
		err = index_error(mdb_env_info(index->env, &info));
	if (!err) {
		/* Room to grow before the map has to. */
		while (index->map_size < info.me_mapsize)
			index->map_size *= 2;
		err = index_error(mdb_env_set_mapsize(index->env, index->map_size));
	}
	if (!err)
		err = index_update(index, index_setup, index);
	if (err) {
		snprintf(msg, msg_size,
			 "the cache index %s cannot be opened: %s; if it is damaged, remove the cache directory",
			 path, strerror(-err));
		index_close(index);
		return err;
	}
	*ret = index;
	return 0;
}

void index_close(struct index *index)
{
	if (!index)
		return;
	if (index->env)
		mdb_env_close(index->env);
	pthread_rwlock_destroy(&index->map_lock);
	free(index);
}

uint64_t index_bytes(struct index *index)
{
	MDB_envinfo info;
	MDB_stat stat;
	int rc;

	/* What these read lies in the map. */
	pthread_rwlock_rdlock(&index->map_lock);
	rc = mdb_env_info(index->env, &info);
	if (!rc)
		rc = mdb_env_stat(index->env, &stat);
	pthread_rwlock_unlock(&index->map_lock);
	return rc ? 0 : (info.me_last_pgno + 1) * stat.ms_psize;
}

uint64_t index_starts(struct index *index)
{
	return index->starts;
}

/* A record whose lengths add up, with strings of these lengths. */
static int index_decode(uint64_t id, const MDB_val *value, struct index_file *ret)
{
	struct index_file_record record;

	/* LMDB aligns to two bytes only. */
	if (value->mv_size < sizeof(record))
		return -EUCLEAN;
	memcpy(&record, value->mv_data, sizeof(record));
	if (value->mv_size !=
	    sizeof(record) + record.identity_len + record.path_len + record.version_len + 3u)
		return -EUCLEAN;
	ret->id = id;
	ret->size = record.size;
	ret->block_shift = record.block_shift;
	ret->blocks = record.blocks;
	ret->bytes = record.bytes;
	ret->hash = record.hash;
	ret->identity = (const char *)value->mv_data + sizeof(record);
	ret->path = ret->identity + record.identity_len + 1;
	ret->version = ret->path + record.path_len + 1;
	if (strnlen(ret->identity, record.identity_len + 1u) != record.identity_len ||
	    strnlen(ret->path, record.path_len + 1u) != record.path_len ||
	    strnlen(ret->version, record.version_len + 1u) != record.version_len)
		return -EUCLEAN;
	if (record.block_shift < INDEX_SHIFT_MIN || record.block_shift > INDEX_SHIFT_MAX ||
	    record.size > INT64_MAX)
		return -EUCLEAN;
	return 0;
}

static int index_get_file(struct index *index, MDB_txn *txn, uint64_t id, struct index_file *ret)
{
	MDB_val key = { sizeof(id), &id }, value;
	int err = index_error(mdb_get(txn, index->files, &key, &value));

	return err ? err : index_decode(id, &value, ret);
}

int index_file(struct index *index, uint64_t id,
	       int (*fn)(void *arg, const struct index_file *file), void *arg)
{
	struct index_file file;
	MDB_txn *txn;
	int err = index_read_begin(index, &txn);

	if (err)
		return err;
	err = index_get_file(index, txn, id, &file);
	if (!err)
		err = fn(arg, &file);
	index_read_end(index, txn);
	return err;
}

int index_find(struct index *index, const struct index_hash *hash,
	       int (*fn)(void *arg, const struct index_file *file), void *arg)
{
	MDB_val key = { sizeof(*hash), (void *)hash }, value;
	struct index_file file;
	uint64_t id;
	MDB_txn *txn;
	int err = index_read_begin(index, &txn);

	if (err)
		return err;
	err = index_error(mdb_get(txn, index->keys, &key, &value));
	if (!err && value.mv_size != sizeof(id))
		err = -EUCLEAN;
	if (!err) {
		memcpy(&id, value.mv_data, sizeof(id));
		err = index_get_file(index, txn, id, &file);
	}
	if (!err)
		err = fn(arg, &file);
	index_read_end(index, txn);
	return err;
}

int index_each_file(struct index *index, int (*fn)(void *arg, const struct index_file *file),
		    void *arg)
{
	struct index_file file;
	MDB_cursor *cursor;
	MDB_val key, value;
	MDB_txn *txn;
	int err = index_read_begin(index, &txn);

	if (err)
		return err;
	err = index_error(mdb_cursor_open(txn, index->files, &cursor));
	if (!err) {
		while (!err &&
		       !(err = index_error(mdb_cursor_get(cursor, &key, &value, MDB_NEXT)))) {
			uint64_t id;

			err = index_number(&key, &id);
			if (!err)
				err = index_decode(id, &value, &file);
			if (!err)
				err = fn(arg, &file);
		}
		if (err == -ENOENT)
			err = 0;
		mdb_cursor_close(cursor);
	}
	index_read_end(index, txn);
	return err;
}

/* The head of a block's record; its sums follow. */
static int index_block_head(const MDB_val *value, struct index_block_record *ret)
{
	if (value->mv_size < sizeof(*ret))
		return -EUCLEAN;
	memcpy(ret, value->mv_data, sizeof(*ret));
	return value->mv_size == sizeof(*ret) + ret->units * sizeof(uint64_t) + ret->digest_len ?
		       0 :
		       -EUCLEAN;
}

static const char *index_block_sums(const MDB_val *value)
{
	return (const char *)value->mv_data + sizeof(struct index_block_record);
}

int index_block(struct index *index, uint64_t id, uint64_t block, uint64_t *sums, uint32_t units)
{
	struct index_block_key block_key = { htobe64(id), htobe64(block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record head;
	MDB_txn *txn;
	int err = index_read_begin(index, &txn);

	if (err)
		return err;
	err = index_error(mdb_get(txn, index->blocks, &key, &value));
	if (!err)
		err = index_block_head(&value, &head);
	if (!err && head.units != units)
		err = -EUCLEAN;
	if (!err)
		memcpy(sums, index_block_sums(&value), units * sizeof(*sums));
	index_read_end(index, txn);
	return err;
}

/*
 * Calls fn for the blocks of a file from first on, until it returns other than 0.
 */
static int index_walk(struct index *index, uint64_t id, uint64_t first,
		      int (*fn)(void *arg, uint64_t block, const struct index_block_record *head,
				const char *sums),
		      void *arg)
{
	struct index_block_key block_key = { htobe64(id), htobe64(first) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record head;
	MDB_cursor *cursor;
	MDB_txn *txn;
	int err = index_read_begin(index, &txn);

	if (err)
		return err;
	err = index_error(mdb_cursor_open(txn, index->blocks, &cursor));
	if (err) {
		index_read_end(index, txn);
		return err;
	}
	err = index_error(mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE));
	while (!err) {
		err = key.mv_size == sizeof(block_key) ? index_block_head(&value, &head) : -EUCLEAN;
		if (err)
			break;
		memcpy(&block_key, key.mv_data, sizeof(block_key));
		if (be64toh(block_key.id) != id || be64toh(block_key.block) > INDEX_BLOCK_MAX)
			break;
		err = fn(arg, be64toh(block_key.block), &head, index_block_sums(&value));
		if (!err)
			err = index_error(mdb_cursor_get(cursor, &key, &value, MDB_NEXT));
	}
	mdb_cursor_close(cursor);
	index_read_end(index, txn);
	return err == -ENOENT ? 0 : err;
}

struct index_mapping {
	const struct index_file *file;
	uint64_t first, count, *bitmap, *sums;
	size_t used;
};

/* How many sums a block has. */
static uint64_t index_units(const struct index_file *file, uint64_t block)
{
	uint64_t start, len;

	if (block > file->size >> file->block_shift)
		return 0;
	start = block << file->block_shift;
	len = file->size - start;
	if (len > 1ULL << file->block_shift)
		len = 1ULL << file->block_shift;
	return (len + (1U << INDEX_SHIFT_MIN) - 1) >> INDEX_SHIFT_MIN;
}

static int index_map_one(void *arg, uint64_t block, const struct index_block_record *head,
			 const char *sums)
{
	struct index_mapping *map = arg;

	if (block - map->first >= map->count)
		return 1;
	/* There is room for just what the file can have. */
	if (head->units != index_units(map->file, block))
		return 0;
	map->bitmap[(block - map->first) / 64] |= 1ULL << ((block - map->first) % 64);
	memcpy(map->sums + map->used, sums, head->units * sizeof(*map->sums));
	map->used += head->units;
	return 0;
}

int index_map(struct index *index, const struct index_file *file, uint64_t first, uint64_t count,
	      uint64_t *bitmap, uint64_t *sums, size_t *ret_sums)
{
	struct index_mapping map = { file, first, count, bitmap, sums, 0 };
	int err = index_walk(index, file->id, first, index_map_one, &map);
	if (err < 0)
		return err;
	*ret_sums = map.used;
	return 0;
}

struct index_listing {
	struct index_block *blocks;
	size_t used, max;
	uint64_t id;
};

static int index_list_one(void *arg, uint64_t block, const struct index_block_record *head,
			  const char *sums)
{
	struct index_listing *list = arg;

	(void)sums;
	if (list->used == list->max)
		return 1;
	list->blocks[list->used++] = (struct index_block){
		.id = list->id,
		.block = block,
		.seq = head->seq,
		.stored_s = head->stored_s,
		.chance = head->flags & INDEX_CHANCE,
	};
	return 0;
}

int index_file_blocks(struct index *index, uint64_t id, uint64_t first, struct index_block *blocks,
		      size_t max)
{
	struct index_listing list = { blocks, 0, max, id };
	int err = index_walk(index, id, first, index_list_one, &list);

	return err < 0 ? err : (int)list.used;
}

int index_oldest(struct index *index, uint64_t seq, struct index_block *blocks, size_t max)
{
	uint64_t from = seq + 1;
	MDB_val key = { sizeof(from), &from }, value, block_value;
	size_t used = 0;
	MDB_cursor *cursor;
	MDB_txn *txn;
	int err = index_read_begin(index, &txn);

	if (err)
		return err;
	err = index_error(mdb_cursor_open(txn, index->order, &cursor));
	if (err) {
		index_read_end(index, txn);
		return err;
	}
	err = index_error(mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE));
	while (!err && used < max) {
		struct index_block_key block_key;
		MDB_val search = { sizeof(block_key), &block_key };
		struct index_block_record head;

		err = value.mv_size == sizeof(block_key) ? index_number(&key, &from) : -EUCLEAN;
		if (err)
			break;
		memcpy(&block_key, value.mv_data, sizeof(block_key));
		if (!mdb_get(txn, index->blocks, &search, &block_value) &&
		    !index_block_head(&block_value, &head)) {
			blocks[used] = (struct index_block){
				.id = be64toh(block_key.id),
				.block = be64toh(block_key.block),
				.seq = from,
				.stored_s = head.stored_s,
				.chance = head.flags & INDEX_CHANCE,
			};
			used++;
		}
		err = index_error(mdb_cursor_get(cursor, &key, &value, MDB_NEXT));
	}
	mdb_cursor_close(cursor);
	index_read_end(index, txn);
	return err && err != -ENOENT ? err : (int)used;
}

/* What was counted wrong must not wrap. */
static uint64_t index_add(uint64_t count, int64_t more)
{
	return more < 0 && count < (uint64_t)-more ? 0 : count + (uint64_t)more;
}

/* The file's record with its counts changed; made if there is none, deleted when empty. */
static int index_account(struct index_txn *txn, const struct index_file *file, int64_t blocks,
			 int64_t bytes)
{
	uint64_t id = file->id;
	MDB_val key = { sizeof(id), &id }, old;
	MDB_val hash = { sizeof(file->hash), (void *)&file->hash }, value;
	struct index_file_record *record;
	struct index_file known;
	size_t identity = strlen(file->identity), path = strlen(file->path);
	size_t version = strlen(file->version), size;
	cleanup_free char *copy = NULL;
	int rc;

	if (identity > UINT16_MAX || path > UINT16_MAX || version > UINT16_MAX)
		return -ENAMETOOLONG;
	size = sizeof(*record) + identity + path + version + 3;
	copy = calloc(1, size);
	if (!copy)
		return -ENOMEM;
	record = (struct index_file_record *)copy;
	rc = mdb_get(txn->txn, txn->index->files, &key, &old);
	if (!rc && old.mv_size == size && !index_decode(id, &old, &known)) {
		memcpy(copy, old.mv_data, size);
	} else if (rc == MDB_NOTFOUND || !rc) {
		record->size = file->size;
		record->block_shift = file->block_shift;
		record->hash = file->hash;
		record->identity_len = (uint16_t)identity;
		record->path_len = (uint16_t)path;
		record->version_len = (uint16_t)version;
		memcpy(record->text, file->identity, identity + 1);
		memcpy(record->text + identity + 1, file->path, path + 1);
		memcpy(record->text + identity + 1 + path + 1, file->version, version + 1);
		value = (MDB_val){ sizeof(id), &id };
		rc = mdb_put(txn->txn, txn->index->keys, &hash, &value, 0);
		if (rc)
			return index_error(rc);
	} else {
		return index_error(rc);
	}
	record->blocks = index_add(record->blocks, blocks);
	record->bytes = index_add(record->bytes, bytes);
	if (record->blocks) {
		value = (MDB_val){ size, copy };
		return index_error(mdb_put(txn->txn, txn->index->files, &key, &value, 0));
	}
	rc = mdb_del(txn->txn, txn->index->files, &key, NULL);
	if (rc && rc != MDB_NOTFOUND)
		return index_error(rc);
	/* The key may name a younger file by now. */
	rc = mdb_get(txn->txn, txn->index->keys, &hash, &value);
	if (!rc && value.mv_size == sizeof(id) && !memcmp(value.mv_data, &id, sizeof(id)))
		rc = mdb_del(txn->txn, txn->index->keys, &hash, NULL);
	return rc == MDB_NOTFOUND ? 0 : index_error(rc);
}

static int index_put_order(struct index_txn *txn, uint64_t seq,
			   const struct index_block_key *block_key)
{
	MDB_val key = { sizeof(seq), &seq };
	MDB_val value = { sizeof(*block_key), (void *)block_key };

	return index_error(mdb_put(txn->txn, txn->index->order, &key, &value, MDB_APPEND));
}

static int index_delete_order(struct index_txn *txn, uint64_t seq)
{
	MDB_val key = { sizeof(seq), &seq };
	int rc = mdb_del(txn->txn, txn->index->order, &key, NULL);

	return rc == MDB_NOTFOUND ? 0 : index_error(rc);
}

int index_put_block(struct index_txn *txn, const struct index_file *file, uint64_t block,
		    uint64_t len, const uint64_t *sums, uint32_t units, bool *ret_new)
{
	struct index_block_key block_key = { htobe64(file->id), htobe64(block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record *record, head;
	cleanup_free char *copy = NULL;
	size_t size = sizeof(*record) + units * sizeof(*sums);
	int rc = mdb_get(txn->txn, txn->index->blocks, &key, &value), err = 0;
	bool known = !rc;

	if (rc && rc != MDB_NOTFOUND)
		return index_error(rc);
	if (known && !index_block_head(&value, &head))
		err = index_delete_order(txn, head.seq);
	if (err)
		return err;
	copy = calloc(1, size);
	if (!copy)
		return -ENOMEM;
	record = (struct index_block_record *)copy;
	record->seq = ++txn->seq;
	record->stored_s = time(NULL);
	record->units = units;
	memcpy(record->sums, sums, units * sizeof(*sums));
	value = (MDB_val){ size, copy };
	err = index_error(mdb_put(txn->txn, txn->index->blocks, &key, &value, 0));
	if (!err)
		err = index_put_order(txn, record->seq, &block_key);
	if (!err && !known)
		err = index_account(txn, file, 1, (int64_t)len);
	*ret_new = !known;
	return err;
}

int index_delete_block(struct index_txn *txn, uint64_t id, uint64_t block, uint64_t len)
{
	struct index_block_key block_key = { htobe64(id), htobe64(block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record head;
	struct index_file file;
	int err = index_error(mdb_get(txn->txn, txn->index->blocks, &key, &value));

	if (err)
		return err;
	if (!index_block_head(&value, &head))
		err = index_delete_order(txn, head.seq);
	if (!err)
		err = index_error(mdb_del(txn->txn, txn->index->blocks, &key, NULL));
	if (err)
		return err;
	err = index_get_file(txn->index, txn->txn, id, &file);
	if (!err) {
		/* Its strings lie in pages that the change may move. */
		size_t size = strlen(file.identity) + strlen(file.path) + strlen(file.version) + 3;
		cleanup_free char *text = malloc(size);

		if (!text)
			return -ENOMEM;
		memcpy(text, file.identity, size);
		file.path = text + (file.path - file.identity);
		file.version = text + (file.version - file.identity);
		file.identity = text;
		err = index_account(txn, &file, -1, -(int64_t)len);
	}
	return err == -ENOENT ? 0 : err;
}

int index_rotate(struct index_txn *txn, const struct index_block *block)
{
	struct index_block_key block_key = { htobe64(block->id), htobe64(block->block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	cleanup_free char *copy = NULL;
	struct index_block_record *record, head;
	int err = index_error(mdb_get(txn->txn, txn->index->blocks, &key, &value));

	if (!err)
		err = index_block_head(&value, &head);
	if (err)
		return err == -ENOENT ? 0 : err;
	copy = malloc(value.mv_size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value.mv_data, value.mv_size);
	record = (struct index_block_record *)copy;
	err = index_delete_order(txn, record->seq);
	if (err)
		return err;
	record->seq = ++txn->seq;
	record->flags |= INDEX_CHANCE;
	value.mv_data = copy;
	err = index_error(mdb_put(txn->txn, txn->index->blocks, &key, &value, 0));
	return err ? err : index_put_order(txn, record->seq, &block_key);
}
