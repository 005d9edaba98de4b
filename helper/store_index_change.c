// SPDX-License-Identifier: MIT
/*
 * store_index_change: what is changed in the index, inside a transaction.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "cleanup.h"
#include "store_index_impl.h"

/* Strings with the NUL that follows each, into a record. */
static char *index_append(char *at, const char *text, size_t len)
{
	memcpy(at, text, len);
	at[len] = '\0';
	return at + len + 1;
}

/* The record of a source, with so many bytes more; made if there is none. */
static int index_account_source(struct index_txn *txn, const struct index_hash *hash,
				const char *identity, const char *name, int64_t bytes,
				int64_t mounted_s)
{
	MDB_val key = { sizeof(*hash), (void *)hash }, value;
	struct index_source old = { .name = "" };
	struct index_source_record *record;
	char *copy;
	size_t identity_len = strlen(identity), name_len, size;
	int err = index_error(mdb_get(txn->txn, txn->index->sources, &key, &value));

	/* A damaged one is made anew, like one that there was not. */
	if (!err && index_decode_source(&key, &value, &old))
		old = (struct index_source){ .name = "" };
	if (err && err != -ENOENT)
		return err;
	if (!name)
		name = old.name;
	name_len = strlen(name);
	if (identity_len > UINT16_MAX || name_len > UINT16_MAX)
		return -ENAMETOOLONG;
	size = sizeof(*record) + identity_len + name_len + 2;
	copy = index_scratch(txn, size);
	if (!copy)
		return -ENOMEM;
	record = (struct index_source_record *)copy;
	record->bytes = index_add(old.bytes, bytes);
	record->mounted_s = mounted_s > old.mounted_s ? mounted_s : old.mounted_s;
	record->identity_len = (uint16_t)identity_len;
	record->name_len = (uint16_t)name_len;
	index_append(index_append(record->text, identity, identity_len), name, name_len);
	value = (MDB_val){ size, copy };
	return index_error(mdb_put(txn->txn, txn->index->sources, &key, &value, 0));
}

int index_put_source(struct index_txn *txn, const char *identity, const char *name,
		     int64_t mounted_s)
{
	struct index_hash hash = index_hash_source(identity);

	return index_account_source(txn, &hash, identity, name, 0, mounted_s);
}

/* The file's record with its counts changed; made if there is none, deleted when empty. */
static int index_account(struct index_txn *txn, const struct index_file *file, int64_t blocks,
			 int64_t bytes)
{
	uint64_t id = file->id;
	MDB_val key = { sizeof(id), &id }, old;
	MDB_val hash = { sizeof(file->hash), (void *)&file->hash }, value;
	struct index_file_record *record;
	size_t identity = strlen(file->identity), path = strlen(file->path);
	size_t version = strlen(file->version), size;
	struct index_file known;
	char *copy;
	bool fresh;
	int rc;

	if (identity > UINT16_MAX || path > UINT16_MAX || version > UINT16_MAX)
		return -ENAMETOOLONG;
	size = sizeof(*record) + identity + path + version + 3;
	copy = index_scratch(txn, size);
	if (!copy)
		return -ENOMEM;
	record = (struct index_file_record *)copy;
	rc = index_account_source(txn, &file->source, file->identity, NULL, bytes, 0);
	if (rc)
		return rc;
	rc = mdb_get(txn->txn, txn->index->files, &key, &old);
	fresh = rc == MDB_NOTFOUND;
	if (!rc && old.mv_size == size && !index_decode(id, &old, &known)) {
		memcpy(copy, old.mv_data, size);
		record->blocks = known.blocks;
		record->bytes = known.bytes;
	} else if (rc == MDB_NOTFOUND || !rc) {
		record->size = file->size;
		record->block_shift = file->block_shift;
		record->hash = file->hash;
		record->source = file->source;
		record->opened_s = file->opened_s;
		record->identity_len = (uint16_t)identity;
		record->path_len = (uint16_t)path;
		record->version_len = (uint16_t)version;
		index_append(index_append(index_append(record->text, file->identity, identity),
					  file->path, path),
			     file->version, version);
		value = (MDB_val){ sizeof(id), &id };
		rc = mdb_put(txn->txn, txn->index->keys, &hash, &value, 0);
		if (rc)
			return index_error(rc);
	} else {
		return index_error(rc);
	}
	if (fresh && blocks > 0)
		txn->totals.files++;
	record->blocks = index_add(record->blocks, blocks);
	record->bytes = index_add(record->bytes, bytes);
	txn->totals.bytes = index_add(txn->totals.bytes, bytes);
	if (record->blocks) {
		value = (MDB_val){ size, copy };
		return index_error(mdb_put(txn->txn, txn->index->files, &key, &value, 0));
	}
	txn->totals.files = index_add(txn->totals.files, -1);
	rc = mdb_del(txn->txn, txn->index->files, &key, NULL);
	if (!rc || rc == MDB_NOTFOUND)
		rc = mdb_del(txn->txn, txn->index->digests, &key, NULL);
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
	unsigned int flags = seq & INDEX_MAIN ? MDB_APPEND : 0;

	return index_error(mdb_put(txn->txn, txn->index->order, &key, &value, flags));
}

/* A block of this number leaves its place in the order. */
static int index_delete_order(struct index_txn *txn, uint64_t seq, uint64_t len)
{
	MDB_val key = { sizeof(seq), &seq };
	int rc = mdb_del(txn->txn, txn->index->order, &key, NULL);

	if (!(seq & INDEX_MAIN))
		txn->totals.young = index_add(txn->totals.young, -(int64_t)len);
	return rc == MDB_NOTFOUND ? 0 : index_error(rc);
}

int index_put_block(struct index_txn *txn, const struct index_file *file, uint64_t block,
		    uint64_t len, const uint64_t *sums, uint32_t units, bool main, bool *ret_new)
{
	struct index_block_key block_key = { htobe64(file->id), htobe64(block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	struct index_block_record *record, head;
	char *copy;
	size_t size = sizeof(*record) + units * sizeof(*sums);
	int rc = mdb_get(txn->txn, txn->index->blocks, &key, &value), err = 0;
	bool known = !rc;

	if (rc && rc != MDB_NOTFOUND)
		return index_error(rc);
	if (known && !index_block_head(&value, &head))
		err = index_delete_order(txn, head.seq, len);
	if (err)
		return err;
	copy = index_scratch(txn, size);
	if (!copy)
		return -ENOMEM;
	record = (struct index_block_record *)copy;
	record->seq = ++txn->seq | (main ? INDEX_MAIN : 0);
	record->stored_s = time(NULL);
	record->seen_s = record->stored_s;
	if (!main)
		txn->totals.young += len;
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
		err = index_delete_order(txn, head.seq, len);
	if (!err)
		err = index_error(mdb_del(txn->txn, txn->index->blocks, &key, NULL));
	if (err)
		return err;
	err = index_get_file(txn->index, txn->txn, id, &file);
	if (!err) {
		/* Its strings lie in pages that the change may move. */
		size_t size = strlen(file.identity) + strlen(file.path) + strlen(file.version) + 3;
		char *text = index_scratch(txn, size);

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

int index_rotate(struct index_txn *txn, const struct index_block *block, uint64_t len)
{
	struct index_block_key block_key = { htobe64(block->id), htobe64(block->block) };
	MDB_val key = { sizeof(block_key), &block_key }, value;
	char *copy;
	struct index_block_record *record, head;
	int err = index_error(mdb_get(txn->txn, txn->index->blocks, &key, &value));

	if (!err)
		err = index_block_head(&value, &head);
	if (err)
		return err == -ENOENT ? 0 : err;
	copy = index_scratch(txn, value.mv_size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value.mv_data, value.mv_size);
	record = (struct index_block_record *)copy;
	err = index_delete_order(txn, head.seq, len);
	if (err)
		return err;
	record->seq = ++txn->seq | INDEX_MAIN;
	record->seen_s = time(NULL);
	value.mv_data = copy;
	err = index_error(mdb_put(txn->txn, txn->index->blocks, &key, &value, 0));
	return err ? err : index_put_order(txn, record->seq, &block_key);
}

int index_put_digests(struct index_txn *txn, uint64_t id, const unsigned char *bytes, size_t len)
{
	MDB_val key = { sizeof(id), &id }, value;
	struct index_file file;
	char *copy;
	int err = index_get_file(txn->index, txn->txn, id, &file);

	if (err)
		return err;
	copy = index_scratch(txn, sizeof(file.hash) + len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, &file.hash, sizeof(file.hash));
	memcpy(copy + sizeof(file.hash), bytes, len);
	value = (MDB_val){ sizeof(file.hash) + len, copy };
	return index_error(mdb_put(txn->txn, txn->index->digests, &key, &value, 0));
}

int index_touch(struct index_txn *txn, uint64_t id, int64_t opened_s)
{
	MDB_val key = { sizeof(id), &id }, value;
	struct index_file known;
	char *copy;
	int err = index_error(mdb_get(txn->txn, txn->index->files, &key, &value));

	if (err)
		return err == -ENOENT ? 0 : err;
	/* No reason to lose what else is noted. */
	if (index_decode(id, &value, &known))
		return 0;
	copy = index_scratch(txn, value.mv_size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value.mv_data, value.mv_size);
	((struct index_file_record *)copy)->opened_s = opened_s;
	value.mv_data = copy;
	return index_error(mdb_put(txn->txn, txn->index->files, &key, &value, 0));
}

/* identity and path, a NUL behind each: hashed to be the key, since keys are short. */
static int index_pin_text(struct index_txn *txn, const char *identity, const char *path, char **ret,
			  size_t *ret_size, XXH128_hash_t *ret_hash)
{
	size_t identity_len = strlen(identity), path_len = strlen(path);
	char *text = index_scratch(txn, identity_len + path_len + 2);

	if (!text)
		return -ENOMEM;
	index_append(index_append(text, identity, identity_len), path, path_len);
	*ret_size = identity_len + path_len + 2;
	*ret_hash = XXH3_128bits(text, *ret_size);
	*ret = text;
	return 0;
}

int index_put_pin(struct index_txn *txn, const char *identity, const char *path)
{
	char *text;
	MDB_val key, value;
	XXH128_hash_t hash;
	size_t size;
	int err = index_pin_text(txn, identity, path, &text, &size, &hash);

	if (err)
		return err;
	key = (MDB_val){ sizeof(hash), &hash };
	value = (MDB_val){ size, text };
	return index_error(mdb_put(txn->txn, txn->index->pins, &key, &value, 0));
}

int index_delete_pin(struct index_txn *txn, const char *identity, const char *path)
{
	char *text;
	XXH128_hash_t hash;
	MDB_val key;
	size_t size;
	int err = index_pin_text(txn, identity, path, &text, &size, &hash);

	if (err)
		return err;
	key = (MDB_val){ sizeof(hash), &hash };
	return index_error(mdb_del(txn->txn, txn->index->pins, &key, NULL));
}
