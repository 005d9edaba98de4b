// SPDX-License-Identifier: MIT
/*
 * store_index_read: what is read from the index.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "store_index_impl.h"

int index_number(const MDB_val *key, uint64_t *ret)
{
	if (key->mv_size != sizeof(*ret))
		return -EUCLEAN;
	memcpy(ret, key->mv_data, sizeof(*ret));
	return 0;
}

/* Is there a string of just this length, with its NUL? */
static bool index_is_string(const char *text, size_t len)
{
	return strnlen(text, len + 1) == len;
}

static bool index_is_hash(const struct index_hash *hash, const char *identity)
{
	struct index_hash right = index_hash_source(identity);

	return hash->low == right.low && hash->high == right.high;
}

int index_decode(uint64_t id, const MDB_val *value, struct index_file *ret)
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
	ret->opened_s = record.opened_s;
	ret->hash = record.hash;
	ret->source = record.source;
	ret->identity = (const char *)value->mv_data + sizeof(record);
	ret->path = ret->identity + record.identity_len + 1;
	ret->version = ret->path + record.path_len + 1;
	if (!index_is_string(ret->identity, record.identity_len) ||
	    !index_is_string(ret->path, record.path_len) ||
	    !index_is_string(ret->version, record.version_len))
		return -EUCLEAN;
	if (record.block_shift < INDEX_SHIFT_MIN || record.block_shift > INDEX_SHIFT_MAX ||
	    record.size > INT64_MAX || record.opened_s < 0 ||
	    !index_is_hash(&record.source, ret->identity))
		return -EUCLEAN;
	/* Counts that are wrong come right when its blocks go: no reason to lose it. */
	if (ret->bytes > ret->size)
		ret->bytes = ret->size;
	if (ret->blocks > (ret->size >> ret->block_shift) + 1)
		ret->blocks = (ret->size >> ret->block_shift) + 1;
	return 0;
}

int index_get_file(struct index *index, MDB_txn *txn, uint64_t id, struct index_file *ret)
{
	MDB_val key = { sizeof(id), &id }, value;
	int err = index_error(mdb_get(txn, index->files, &key, &value));

	return err ? err : index_decode(id, &value, ret);
}

struct index_showing {
	uint64_t id;
	const struct index_hash *hash; /* NULL: by id */
	int (*fn)(void *arg, const struct index_file *file);
	void *arg;
};

static int index_show(struct index_read *read, void *arg)
{
	struct index_showing *showing = arg;
	const struct index_hash *hash = showing->hash;
	MDB_val key = { sizeof(*hash), (void *)hash }, value;
	struct index_file file;
	int err = 0;

	if (hash) {
		err = index_error(mdb_get(read->txn, read->index->keys, &key, &value));
		if (!err)
			err = index_number(&value, &showing->id);
	}
	key = (MDB_val){ sizeof(showing->id), &showing->id };
	if (!err)
		err = index_error(mdb_get(read->txn, read->index->files, &key, &value));
	if (!err)
		err = index_read_copy(read, &value);
	if (!err)
		err = index_decode(showing->id, &value, &file);
	return err ? err : showing->fn(showing->arg, &file);
}

int index_file(struct index *index, uint64_t id,
	       int (*fn)(void *arg, const struct index_file *file), void *arg)
{
	struct index_showing showing = { .id = id, .fn = fn, .arg = arg };

	return index_read(index, index_show, &showing);
}

struct index_digesting {
	uint64_t id;
	const struct index_hash *hash;
	unsigned char *bytes;
	size_t len;
};

static int index_read_digests(struct index_read *read, void *arg)
{
	struct index_digesting *digesting = arg;
	MDB_val key = { sizeof(digesting->id), &digesting->id }, value;
	size_t head = sizeof(*digesting->hash);
	int err = index_error(mdb_get(read->txn, read->index->digests, &key, &value));

	if (err)
		return err;
	if (value.mv_size < head || value.mv_size > head + INDEX_DIGESTS_MAX ||
	    memcmp(value.mv_data, digesting->hash, head))
		return -ENOENT;
	digesting->len = value.mv_size - head;
	memcpy(digesting->bytes, (const char *)value.mv_data + head, digesting->len);
	return 0;
}

int index_digests(struct index *index, uint64_t id, const struct index_hash *hash,
		  unsigned char bytes[INDEX_DIGESTS_MAX], size_t *ret_len)
{
	struct index_digesting digesting = { .id = id, .hash = hash, .bytes = bytes };
	int err = index_read(index, index_read_digests, &digesting);

	if (!err)
		*ret_len = digesting.len;
	return err;
}

int index_find(struct index *index, const struct index_hash *hash,
	       int (*fn)(void *arg, const struct index_file *file), void *arg)
{
	struct index_showing showing = { .hash = hash, .fn = fn, .arg = arg };

	return index_read(index, index_show, &showing);
}

struct index_iterating {
	const MDB_dbi *table;
	int (*fn)(void *arg, const MDB_val *key, const MDB_val *value);
	void *arg;
};

static int index_iterate(struct index_read *read, void *arg)
{
	const struct index_iterating *iterating = arg;
	union {
		uint64_t number;
		struct index_hash hash;
	} name;
	MDB_val key, value;
	int err = index_error(mdb_cursor_open(read->txn, *iterating->table, &read->cursor));

	while (!err) {
		err = index_error(mdb_cursor_get(read->cursor, &key, &value, MDB_NEXT));
		if (!err && key.mv_size > sizeof(name))
			err = -EUCLEAN;
		if (!err)
			err = index_read_copy(read, &value);
		if (!err) {
			memcpy(&name, key.mv_data, key.mv_size);
			key.mv_data = &name;
			err = iterating->fn(iterating->arg, &key, &value);
		}
	}
	return err == -ENOENT ? 0 : err;
}

/* Calls fn for each record of a table, until it returns other than 0. */
static int index_each(struct index *index, const MDB_dbi *table,
		      int (*fn)(void *arg, const MDB_val *key, const MDB_val *value), void *arg)
{
	struct index_iterating iterating = { table, fn, arg };

	return index_read(index, index_iterate, &iterating);
}

struct index_each {
	int (*file)(void *arg, const struct index_file *file);
	int (*source)(void *arg, const struct index_source *source);
	int (*pin)(void *arg, const char *identity, const char *path);
	void *arg;
};

static int index_each_file_one(void *arg, const MDB_val *key, const MDB_val *value)
{
	const struct index_each *each = arg;
	struct index_file file;
	uint64_t id;
	int err = index_number(key, &id);

	if (!err)
		err = index_decode(id, value, &file);
	return err ? err : each->file(each->arg, &file);
}

int index_each_file(struct index *index, int (*fn)(void *arg, const struct index_file *file),
		    void *arg)
{
	struct index_each each = { .file = fn, .arg = arg };

	return index_each(index, &index->files, index_each_file_one, &each);
}

int index_decode_source(const MDB_val *key, const MDB_val *value, struct index_source *ret)
{
	struct index_source_record record;
	struct index_hash hash;

	if (key->mv_size != sizeof(hash) || value->mv_size < sizeof(record))
		return -EUCLEAN;
	memcpy(&hash, key->mv_data, sizeof(hash));
	memcpy(&record, value->mv_data, sizeof(record));
	if (value->mv_size != sizeof(record) + record.identity_len + record.name_len + 2u)
		return -EUCLEAN;
	ret->bytes = record.bytes;
	ret->mounted_s = record.mounted_s;
	ret->identity = (const char *)value->mv_data + sizeof(record);
	ret->name = ret->identity + record.identity_len + 1;
	if (!index_is_string(ret->identity, record.identity_len) ||
	    !index_is_string(ret->name, record.name_len) || record.bytes > INT64_MAX ||
	    record.mounted_s < 0 || !index_is_hash(&hash, ret->identity))
		return -EUCLEAN;
	return 0;
}

static int index_each_source_one(void *arg, const MDB_val *key, const MDB_val *value)
{
	const struct index_each *each = arg;
	struct index_source source;
	int err = index_decode_source(key, value, &source);

	return err ? err : each->source(each->arg, &source);
}

int index_each_source(struct index *index, int (*fn)(void *arg, const struct index_source *source),
		      void *arg)
{
	struct index_each each = { .source = fn, .arg = arg };

	return index_each(index, &index->sources, index_each_source_one, &each);
}

static int index_each_pin_one(void *arg, const MDB_val *key, const MDB_val *value)
{
	const struct index_each *each = arg;
	const char *identity = value->mv_data;
	size_t len = value->mv_size ? strnlen(identity, value->mv_size) : 0;
	XXH128_hash_t hash;

	if (key->mv_size != sizeof(hash) || len + 1 >= value->mv_size ||
	    !index_is_string(identity + len + 1, value->mv_size - len - 2))
		return -EUCLEAN;
	/* A pin of something else would hold what nobody pinned, and could not be taken back. */
	hash = XXH3_128bits(identity, value->mv_size);
	if (memcmp(&hash, key->mv_data, sizeof(hash)))
		return -EUCLEAN;
	return each->pin(each->arg, identity, identity + len + 1);
}

int index_each_pin(struct index *index,
		   int (*fn)(void *arg, const char *identity, const char *path), void *arg)
{
	struct index_each each = { .pin = fn, .arg = arg };

	return index_each(index, &index->pins, index_each_pin_one, &each);
}

int index_block_head(const MDB_val *value, struct index_block_record *ret)
{
	if (value->mv_size < sizeof(*ret))
		return -EUCLEAN;
	memcpy(ret, value->mv_data, sizeof(*ret));
	if (ret->stored_s < 0 || ret->seen_s < 0)
		return -EUCLEAN;
	return value->mv_size == sizeof(*ret) + ret->units * sizeof(uint64_t) + ret->digest_len ?
		       0 :
		       -EUCLEAN;
}

static const char *index_block_sums(const MDB_val *value)
{
	return (const char *)value->mv_data + sizeof(struct index_block_record);
}

struct index_getting {
	uint64_t id, block, *sums;
	uint32_t units;
};

static int index_get_block(struct index_read *read, void *arg)
{
	const struct index_getting *getting = arg;
	struct index_block_key block_key = { htobe64(getting->id), htobe64(getting->block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record head;
	int err = index_error(mdb_get(read->txn, read->index->blocks, &key, &value));

	if (!err)
		err = index_block_head(&value, &head);
	if (!err && head.units != getting->units)
		err = -EUCLEAN;
	if (!err)
		memcpy(getting->sums, index_block_sums(&value),
		       getting->units * sizeof(*getting->sums));
	return err;
}

int index_block(struct index *index, uint64_t id, uint64_t block, uint64_t *sums, uint32_t units)
{
	struct index_getting getting = { id, block, sums, units };

	return index_read(index, index_get_block, &getting);
}

/* Of the blocks of a file from first on. sums lie in the map. */
struct index_walking {
	uint64_t id, first;
	int (*fn)(void *arg, uint64_t block, const struct index_block_record *head,
		  const char *sums);
	void *arg;
};

static int index_walk_run(struct index_read *read, void *arg)
{
	const struct index_walking *walking = arg;
	struct index_block_key block_key = { htobe64(walking->id), htobe64(walking->first) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record head;
	int err = index_error(mdb_cursor_open(read->txn, read->index->blocks, &read->cursor));

	if (!err)
		err = index_error(mdb_cursor_get(read->cursor, &key, &value, MDB_SET_RANGE));
	while (!err) {
		err = key.mv_size == sizeof(block_key) ? index_block_head(&value, &head) : -EUCLEAN;
		if (err)
			break;
		memcpy(&block_key, key.mv_data, sizeof(block_key));
		if (be64toh(block_key.id) != walking->id ||
		    be64toh(block_key.block) > INDEX_BLOCK_MAX)
			break;
		err = walking->fn(walking->arg, be64toh(block_key.block), &head,
				  index_block_sums(&value));
		if (!err)
			err = index_error(mdb_cursor_get(read->cursor, &key, &value, MDB_NEXT));
	}
	return err == -ENOENT ? 0 : err;
}

/* Calls fn for the blocks of a file from first on, until it returns other than 0. */
static int index_walk(struct index *index, uint64_t id, uint64_t first,
		      int (*fn)(void *arg, uint64_t block, const struct index_block_record *head,
				const char *sums),
		      void *arg)
{
	struct index_walking walking = { id, first, fn, arg };

	return index_read(index, index_walk_run, &walking);
}

struct index_mapping {
	uint64_t first, count, *bitmap, *sums;
	size_t used;
	uint32_t (*units_of)(void *arg, uint64_t block);
	void *arg;
};

static int index_map_one(void *arg, uint64_t block, const struct index_block_record *head,
			 const char *sums)
{
	struct index_mapping *map = arg;

	if (block - map->first >= map->count)
		return 1;
	/* The room for sums was measured by the object's size, not by what a record says. */
	if (!head->units || head->units != map->units_of(map->arg, block))
		return 0;
	map->bitmap[(block - map->first) / 64] |= 1ULL << ((block - map->first) % 64);
	memcpy(map->sums + map->used, sums, head->units * sizeof(*map->sums));
	map->used += head->units;
	return 0;
}

int index_map(struct index *index, uint64_t id, uint64_t first, uint64_t count,
	      uint32_t (*units_of)(void *arg, uint64_t block), void *arg, uint64_t *bitmap,
	      uint64_t *sums, size_t *ret_sums)
{
	struct index_mapping map = { first, count, bitmap, sums, 0, units_of, arg };
	int err = index_walk(index, id, first, index_map_one, &map);

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
		.seen_s = head->seen_s,
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

struct index_aging {
	uint64_t seq;
	struct index_block *blocks;
	size_t used, max;
};

static int index_age(struct index_read *read, void *arg)
{
	struct index_aging *aging = arg;
	uint64_t from = aging->seq + 1;
	MDB_val key = { sizeof(from), &from }, value, block_value;
	int err = index_error(mdb_cursor_open(read->txn, read->index->order, &read->cursor));

	if (!err)
		err = index_error(mdb_cursor_get(read->cursor, &key, &value, MDB_SET_RANGE));
	while (!err && aging->used < aging->max) {
		struct index_block_key block_key;
		uint64_t number;
		MDB_val search = { sizeof(block_key), &block_key };
		struct index_block_record head;

		err = value.mv_size == sizeof(block_key) ? index_number(&key, &number) : -EUCLEAN;
		if (err || (number ^ aging->seq) & INDEX_MAIN)
			break;
		memcpy(&block_key, value.mv_data, sizeof(block_key));
		if (!mdb_get(read->txn, read->index->blocks, &search, &block_value) &&
		    !index_block_head(&block_value, &head))
			aging->blocks[aging->used++] = (struct index_block){
				.id = be64toh(block_key.id),
				.block = be64toh(block_key.block),
				.seq = number,
				.stored_s = head.stored_s,
				.seen_s = head.seen_s,
			};
		err = index_error(mdb_cursor_get(read->cursor, &key, &value, MDB_NEXT));
	}
	return err == -ENOENT ? 0 : err;
}

int index_oldest(struct index *index, uint64_t seq, struct index_block *blocks, size_t max)
{
	struct index_aging aging = { seq, blocks, 0, max };
	int err = index_read(index, index_age, &aging);

	return err ? err : (int)aging.used;
}
