/* SPDX-License-Identifier: MIT */
/* store_index_impl: records and handles that the two halves of the index share. Not for others. */
#ifndef WFS_STORE_INDEX_IMPL_H
#define WFS_STORE_INDEX_IMPL_H

#include <lmdb.h>
#include <pthread.h>

#include "store_index.h"

/*
 * What is read is believed only as far as it can be true: a disk errs, and whoever gets
 * a record shifts by it and counts with it.
 */
#define INDEX_SHIFT_MIN 16
#define INDEX_SHIFT_MAX 26
#define INDEX_BLOCK_MAX ((uint64_t)INT64_MAX >> INDEX_SHIFT_MIN)
#define INDEX_SEQ_MAX	(INDEX_MAIN >> 1) /* there must be numbers left */

struct index_file_record {
	uint64_t size, blocks, bytes;
	int64_t opened_s;
	struct index_hash hash, source;
	uint32_t block_shift;
	uint32_t flags;				      /* none yet */
	uint16_t identity_len, path_len, version_len; /* without the NUL that follows each */
	uint16_t pad;
	char text[];
};

struct index_block_record {
	uint64_t seq;
	int64_t stored_s, seen_s;
	uint32_t units;
	uint16_t flags;	     /* none yet */
	uint16_t digest_len; /* of a digest that follows the sums: 0 in this format */
	uint64_t sums[];
};

struct index_source_record {
	uint64_t bytes;
	int64_t mounted_s;
	uint16_t identity_len, name_len; /* without the NUL that follows each */
	uint32_t pad;
	char text[];
};

struct index_block_key {
	uint64_t id, block; /* big-endian */
};

struct index {
	pthread_rwlock_t map_lock; /* held for reading by every transaction; guards env */
	MDB_env *env;		   /* NULL: not attached */
	MDB_dbi keys, files, blocks, order, sources, pins, meta;
	uint64_t map_size;
	uint64_t seq; /* the last one, without INDEX_MAIN; the store's thread */
	uint64_t starts;
	_Atomic bool broken;
	_Atomic uint64_t files_count, bytes_count, young_bytes; /* as last committed */
};

struct index_txn {
	struct index *index;
	MDB_txn *txn;
	uint64_t seq;
	struct index_totals totals;
};

/* -errno of an LMDB result. */
int index_error(int rc);
int index_read_begin(struct index *index, MDB_txn **ret);
void index_read_end(struct index *index, MDB_txn *txn);
int index_get_file(struct index *index, MDB_txn *txn, uint64_t id, struct index_file *ret);
/* A key of files or order. */
int index_number(const MDB_val *key, uint64_t *ret);
/*
 * A record whose lengths add up, with strings of these lengths, of the source that it says;
 * counts that the file can have.
 */
int index_decode(uint64_t id, const MDB_val *value, struct index_file *ret);
/* The head of a block's record of the right length; its sums follow. */
int index_block_head(const MDB_val *value, struct index_block_record *ret);
/* As index_decode(), of a record that is where its identity's is to be. */
int index_decode_source(const MDB_val *key, const MDB_val *value, struct index_source *ret);

#endif /* WFS_STORE_INDEX_IMPL_H */
