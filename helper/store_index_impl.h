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
	/*
	 * Held for reading by every transaction; guards env. Comes before store->lock, which
	 * callbacks of reads take; who has that does not come here.
	 */
	pthread_rwlock_t map_lock;
	MDB_env *env; /* NULL: not attached */
	/*
	 * A change was left in its middle, and LMDB's lock of who writes with it: nobody waits for
	 * that, since what is broken is neither read nor changed any more. The store's thread.
	 */
	bool wreck;
	MDB_dbi keys, files, blocks, order, sources, pins, digests, meta;
	uint64_t map_size;
	uint64_t seq; /* the last one, without INDEX_MAIN; the store's thread */
	uint64_t starts;
	_Atomic bool broken;
	_Atomic uint64_t files_count, bytes_count, young_bytes; /* as last committed */
};

/* Memory that is freed when the transaction ends, however that is. */
struct index_scratch {
	struct index_scratch *next;
	char bytes[] __attribute__((aligned(16)));
};

struct index_txn {
	struct index *index;
	MDB_txn *txn;
	struct index_scratch *scratch;
	uint64_t seq;
	struct index_totals totals;
};

/* -errno of an LMDB result. */
int index_error(int rc);
/* Zeroed; NULL: no memory. */
void *index_scratch(struct index_txn *txn, size_t size);
int index_get_file(struct index *index, MDB_txn *txn, uint64_t id, struct index_file *ret);

/* A transaction that only reads. */
struct index_read {
	struct index *index;
	MDB_txn *txn;
	MDB_cursor *cursor; /* closed with it */
	char *copy;	    /* freed with it: of what is shown to others */
	size_t copy_size;
};
/*
 * Runs fn in it. What fn returns, -ENODEV or -EIO. What fn calls may take locks only if it
 * looks at nothing that lies in the map.
 */
int index_read(struct index *index, int (*fn)(struct index_read *read, void *arg), void *arg);
/* Takes it out of the map, until the next one is taken. */
int index_read_copy(struct index_read *read, MDB_val *value);
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

/* store_index_fault. Has the process hear SIGBUS; for index_guard(). Any thread. */
void index_fault_setup(void);
/*
 * Everything that reads the map is called by this. What fn returns; or -EIO with *ret_left set:
 * the disk has not given a page of the map, fn was left where it was, and the index is broken.
 * So fn, and what it calls, has neither lock nor memory of its own while it reads the map.
 */
int index_guard(struct index *index, int (*fn)(void *arg), void *arg, bool *ret_left);
/* An environment that a change was left in the middle of: kept, since it cannot be closed. */
void index_wreck(MDB_env *env);
/*
 * Has LMDB, which opens the index in path in between, take its locks from memory. Nobody else
 * may open it: the directory is locked.
 */
int index_locks_begin(const char *path, int *ret_fd);
void index_locks_end(const char *path, int fd);

#endif /* WFS_STORE_INDEX_IMPL_H */
