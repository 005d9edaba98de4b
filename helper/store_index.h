/* SPDX-License-Identifier: MIT */
/*
 * store_index: the index of one cache directory, in LMDB.
 *
 *	keys	hash of a file's key -> id
 *	files	id -> struct index_file_record, then identity, path, version
 *	blocks	id, block (big-endian) -> struct index_block_record, then sums
 *	order	sequence number -> id, block; the oldest first. Numbers with INDEX_MAIN are
 *		those of blocks that proved to be read again, the others are on probation
 *	sources	hash of an identity -> struct index_source_record, then identity, name
 *	pins	hash of (identity, path) -> identity, path
 *	digests	id -> hash of the file's key, then digests that its bytes have had (kept.h)
 *	meta	"starts" -> how often the directory was opened; "totals" -> struct index_totals
 *
 * digests is younger than the format: an index without it is given one, and a daemon that does
 * not know it leaves it as it is; so what it says of a file counts only with that file's hash.
 *
 * Reads: any thread. Changes: the store's thread, one transaction at a time. While the
 * index is not attached to a directory everything answers -ENODEV.
 */
#ifndef WFS_STORE_INDEX_H
#define WFS_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index;
struct index_txn;

#define INDEX_MAIN (1ULL << 63)
/* From so many starts on ids, which are made of them, 40 bits higher, would come again. */
#define INDEX_STARTS_MAX (1U << 23)
/* Bytes that are kept of a file's digests. */
#define INDEX_DIGESTS_MAX 1024

struct index_hash {
	uint64_t low, high;
};

/* A file as the index knows it; strings valid inside the callback or the transaction. */
struct index_file {
	uint64_t id, size;
	uint32_t block_shift;
	uint64_t blocks, bytes; /* recorded */
	int64_t opened_s;	/* when it was last opened with blocks in it, wall clock */
	struct index_hash hash, source;
	const char *identity, *path, *version;
};

struct index_block {
	uint64_t id, block, seq;
	int64_t stored_s; /* wall clock */
	int64_t seen_s;	  /* when it was last moved to the young end */
};

/* A source as the index knows it; strings as above. */
struct index_source {
	uint64_t bytes;	   /* recorded */
	int64_t mounted_s; /* when it was last known to be mounted, 0: never */
	const char *identity, *name;
};

/* All of it, without having to look at all of it. */
struct index_totals {
	uint64_t files, bytes;
	uint64_t young; /* bytes of blocks on probation */
};

/* One that is not attached. */
int index_create(struct index **ret);
/* Opens the index in a directory, made if need be. -errno with a sentence. */
int index_attach(struct index *index, const char *path, char *msg, size_t msg_size);
/* Waits for reads that are under way. */
void index_detach(struct index *index);
/* Both at once. */
int index_open(const char *path, struct index **ret, char *msg, size_t msg_size);
void index_close(struct index *index);
uint64_t index_bytes(struct index *index);
/* How often the directory was opened, this time included. */
uint64_t index_starts(struct index *index);
/* The directory counts as opened so often. */
int index_skip_starts(struct index *index, uint64_t starts);
/* An error of the disk has left it unusable until it is detached and attached again. */
bool index_is_broken(const struct index *index);
void index_totals(struct index *index, struct index_totals *ret);
/* The last sequence number given. The store's thread. */
uint64_t index_seq(const struct index *index);

struct index_hash index_hash_source(const char *identity);
/* A count, and so many more: one that was wrong does not wrap. */
uint64_t index_add(uint64_t count, int64_t more);

/* 0 or -ENOENT. fn is called with the file while the transaction lasts. */
int index_find(struct index *index, const struct index_hash *hash,
	       int (*fn)(void *arg, const struct index_file *file), void *arg);
int index_file(struct index *index, uint64_t id,
	       int (*fn)(void *arg, const struct index_file *file), void *arg);
/* All files, until fn returns other than 0, which is then returned. */
int index_each_file(struct index *index, int (*fn)(void *arg, const struct index_file *file),
		    void *arg);
int index_each_source(struct index *index, int (*fn)(void *arg, const struct index_source *source),
		      void *arg);
int index_each_pin(struct index *index,
		   int (*fn)(void *arg, const char *identity, const char *path), void *arg);
int index_block(struct index *index, uint64_t id, uint64_t block, uint64_t *sums, uint32_t units);
/*
 * Which blocks of a window are recorded, and their sums. units_of says how many sums a block
 * must have; a record with another number is left out.
 */
int index_map(struct index *index, uint64_t id, uint64_t first, uint64_t count,
	      uint32_t (*units_of)(void *arg, uint64_t block), void *arg, uint64_t *bitmap,
	      uint64_t *sums, size_t *ret_sums);
/* Up to max blocks of a file from first on; returns their number or -errno. */
int index_file_blocks(struct index *index, uint64_t id, uint64_t first, struct index_block *blocks,
		      size_t max);
/* The oldest blocks with a number above seq, of the same kind (INDEX_MAIN or not). */
int index_oldest(struct index *index, uint64_t seq, struct index_block *blocks, size_t max);

/* What is kept of a file's digests: so many bytes, or -ENOENT. */
int index_digests(struct index *index, uint64_t id, const struct index_hash *hash,
		  unsigned char bytes[INDEX_DIGESTS_MAX], size_t *ret_len);

/*
 * Runs fn in a transaction, again with more room if there was too little: fn must
 * come to the same whenever it is called. Durable when it returns 0.
 */
int index_update(struct index *index, int (*fn)(struct index_txn *txn, void *arg), void *arg);
/*
 * Within fn. len: object bytes. main: past probation at once. *ret_new: it was not
 * recorded before. file: id, size, block_shift, hash, source and strings count.
 */
int index_put_block(struct index_txn *txn, const struct index_file *file, uint64_t block,
		    uint64_t len, const uint64_t *sums, uint32_t units, bool main, bool *ret_new);
/* -ENOENT: there is none. The last one takes its file's record with it. */
int index_delete_block(struct index_txn *txn, uint64_t id, uint64_t block, uint64_t len);
/* Makes it the youngest one of those past probation. */
int index_rotate(struct index_txn *txn, const struct index_block *block, uint64_t len);
/* Keeps bytes about the digests of a file that is recorded: -ENOENT. They go with its record. */
int index_put_digests(struct index_txn *txn, uint64_t id, const unsigned char *bytes, size_t len);
/* Notes when a file was opened; nothing if it is not recorded. */
int index_touch(struct index_txn *txn, uint64_t id, int64_t opened_s);
/* Makes the record of a source, or changes name and time. name NULL: as it is. */
int index_put_source(struct index_txn *txn, const char *identity, const char *name,
		     int64_t mounted_s);
int index_put_pin(struct index_txn *txn, const char *identity, const char *path);
/* -ENOENT: there is none. */
int index_delete_pin(struct index_txn *txn, const char *identity, const char *path);

#endif /* WFS_STORE_INDEX_H */
