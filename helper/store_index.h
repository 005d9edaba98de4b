/* SPDX-License-Identifier: MIT */
/*
 * store_index: the index of one cache directory, in LMDB.
 *
 *	keys	hash of a file's key -> id
 *	files	id -> struct index_file_record, then identity, path, version
 *	blocks	id, block (big-endian) -> struct index_block_record, then sums
 *	order	sequence number -> id, block; the oldest first
 *	meta	"starts" -> how often the directory was opened
 *
 * Reads: any thread. Changes: the store's thread, one transaction at a time.
 */
#ifndef WFS_STORE_INDEX_H
#define WFS_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index;
struct index_txn;

struct index_hash {
	uint64_t low, high;
};

/* A file as the index knows it; strings valid inside the callback or the transaction. */
struct index_file {
	uint64_t id, size;
	uint32_t block_shift;
	uint64_t blocks, bytes; /* recorded */
	struct index_hash hash;
	const char *identity, *path, *version;
};

struct index_block {
	uint64_t id, block, seq;
	int64_t stored_s; /* wall clock */
	bool chance;	  /* was spared once */
};

int index_open(const char *path, struct index **ret, char *msg, size_t msg_size);
void index_close(struct index *index);
uint64_t index_bytes(struct index *index);
/* How often the directory was opened, this time included. */
uint64_t index_starts(struct index *index);

/* 0 or -ENOENT. fn is called with the file while the transaction lasts. */
int index_find(struct index *index, const struct index_hash *hash,
	       int (*fn)(void *arg, const struct index_file *file), void *arg);
int index_file(struct index *index, uint64_t id,
	       int (*fn)(void *arg, const struct index_file *file), void *arg);
/* All files, until fn returns other than 0, which is then returned. */
int index_each_file(struct index *index, int (*fn)(void *arg, const struct index_file *file),
		    void *arg);
int index_block(struct index *index, uint64_t id, uint64_t block, uint64_t *sums, uint32_t units);
/*
 * Sets the bits of those blocks of [first, first + count) that are recorded, the caller
 * having cleared all, and puts their sums one after the other. Of file: id, size, block_shift.
 */
int index_map(struct index *index, const struct index_file *file, uint64_t first, uint64_t count,
	      uint64_t *bitmap, uint64_t *sums, size_t *ret_sums);
/* Up to max blocks of a file from first on; returns their number or -errno. */
int index_file_blocks(struct index *index, uint64_t id, uint64_t first, struct index_block *blocks,
		      size_t max);
/* The oldest blocks with a number above seq. */
int index_oldest(struct index *index, uint64_t seq, struct index_block *blocks, size_t max);

/*
 * Runs fn in a transaction, again with more room if there was too little: fn must
 * come to the same whenever it is called. Durable when it returns 0.
 */
int index_update(struct index *index, int (*fn)(struct index_txn *txn, void *arg), void *arg);
/* Within fn. len: object bytes. *ret_new: it was not recorded before. */
int index_put_block(struct index_txn *txn, const struct index_file *file, uint64_t block,
		    uint64_t len, const uint64_t *sums, uint32_t units, bool *ret_new);
/* -ENOENT: there is none. The last one takes its file's record with it. */
int index_delete_block(struct index_txn *txn, uint64_t id, uint64_t block, uint64_t len);
/* Makes it the youngest one, and notes that it had its chance. */
int index_rotate(struct index_txn *txn, const struct index_block *block);

#endif /* WFS_STORE_INDEX_H */
