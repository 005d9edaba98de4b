/* SPDX-License-Identifier: MIT */
/*
 * store: the cache directories. One sparse data file per object version, an index
 * (LMDB) that says which blocks are durable and their sums.
 *
 * A block goes: store_reserve -> write by store_io_start -> store_commit -> recorded.
 * Its record is removed durably before its bytes are. Any thread, unless said.
 */
#ifndef WFS_STORE_H
#define WFS_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;
struct loop;
struct store;
struct store_file;

/* What identifies the bytes of a data file. */
struct store_key {
	const char *identity, *path, *version;
	uint64_t size;
	uint32_t block_shift;
};

/* Called on the store's own thread, no lock held. */
struct store_ops {
	/*
	 * May the block's bytes go? 0: nobody reads it until evicted() is called;
	 * -EBUSY: another one; -EAGAIN, if cold: it was read since this was last asked;
	 * -EINPROGRESS: it is in a buffer, and whoever waits for room asks again when that is free.
	 */
	int (*evict)(void *arg, struct store_file *file, uint64_t block, bool cold);
	void (*evicted)(void *arg, struct store_file *file, uint64_t block, bool removed);
	/* store_reserve() may succeed now where it said -EAGAIN, or will say -ENOSPC. */
	void (*space)(void *arg);
	/* Files that store_file_open() refused, or that died, may be opened now. */
	void (*back)(void *arg);
	void *arg;
};

/*
 * Opens the directories, each locked. -errno with a sentence: foreign format, ... -EBUSY:
 * another process has one of them. One that only its disk keeps from being used is tried
 * again later.
 */
int store_create(const struct config *config, const struct store_ops *ops, struct store **ret,
		 char *msg, size_t msg_size);
/* Starts the store's thread: flushing, eviction, cleaning. */
int store_start(struct store *store);
/* Records what was committed, ends the thread. */
void store_stop(struct store *store);
void store_destroy(struct store *store);
/* Takes capacity, marks, interval and quotas from a configuration read again. */
void store_reload(struct store *store, const struct config *config);

/* Ties the directories' locks to a loop, so that they outlive its writes. */
int store_register(struct store *store, struct loop *loop);

/* Names the source of an identity, so that its quota is known. */
void store_source(struct store *store, const char *identity, const char *name);
/* Tells who follows events what was found of an object that is cached. No lock held. */
void store_tell(struct store *store, const char *identity, const char *path, const char *event,
		const char *text);
/* It was mounted once more, or (false) once less. */
void store_mounted(struct store *store, const char *identity, bool mounted);

/* Is any block of it recorded? */
bool store_file_recorded(struct store *store, const struct store_key *key);
/* Finds or makes the data file. *ret holds one reference. -errno: ops->back() will say. */
int store_file_open(struct store *store, const struct store_key *key, struct store_file **ret);
struct store_file *store_file_ref(struct store_file *file);
void store_file_put(struct store_file *file);
/* Descriptor (O_RDWR | O_DIRECT), opened again if it was closed for lack of use; or -errno. */
int store_file_fd(struct store_file *file);
/* The same, kept open until store_file_end(). */
int store_file_begin(struct store_file *file);
void store_file_end(struct store_file *file);
/*
 * Its directory went away: nothing is found in it or stored in it any more. store_file_open()
 * makes another one when ops->back() has been called.
 */
bool store_file_dead(struct store_file *file);
/* Somebody opened the object: what is stored of it by now is worth keeping. */
void store_file_opened(struct store_file *file);
/* The block was read from the cache by the helper itself: it is spared once. */
void store_file_used(struct store_file *file, uint64_t block);
/* The file's key, valid while it is referenced. */
const struct store_key *store_file_key(const struct store_file *file);

/* 0 with the block's sums, or -ENOENT. */
int store_lookup(struct store_file *file, uint64_t block, uint64_t *sums, uint32_t units);
/* The same for a block whose eviction came to nothing, from inside ops->evict and evicted(). */
int store_lookup_kept(struct store_file *file, uint64_t block, uint64_t *sums, uint32_t units);
/* As object_map(). */
int store_map(struct store_file *file, uint64_t first, uint64_t count, uint64_t *bitmap,
	      uint64_t *sums, size_t *ret_sums);
/* Takes the block first + bit, which is in it, out of such a map. */
void store_unmap(const struct store_key *key, uint64_t first, uint64_t bit, uint64_t *bitmap,
		 uint64_t *sums, size_t *ret_sums);
/* Bytes of the file that are recorded. */
uint64_t store_file_cached(struct store_file *file);

/*
 * Room for a block: 0, -EAGAIN (ops->space() will say when to ask again), -ENOSPC. What
 * was reserved is given back by store_unreserve() or becomes used by store_commit().
 */
int store_reserve(struct store_file *file, uint64_t block, uint64_t len);
void store_unreserve(struct store_file *file, uint64_t len);
/* Bytes that the file's blocks may take before anything is evicted for them. Any thread. */
uint64_t store_room(struct store_file *file);

/* A block that has been written. Owned by the caller, alive until done(). */
struct store_record {
	struct store_record *next;
	struct store_file *file; /* the caller's reference */
	uint64_t block, len;
	const uint64_t *sums; /* alive until done() */
	uint32_t units;
	bool fresh; /* the store's: it was not recorded before */
	/* On the store's thread, no lock held. 0: durable and recorded. */
	void (*done)(struct store_record *record, int error);
};
/* The block has been written: makes it durable, soon, and records it. */
void store_commit(struct store_record *record);
/* A write failed with this error: the directory rests for a while. */
void store_failed(struct store_file *file, int error);
/* Makes what was committed durable without waiting for more. */
void store_hurry(struct store *store);

/* The block failed its check: its record is removed. */
void store_forget(struct store_file *file, uint64_t block);

void store_allow_eviction(struct store *store, bool allowed);

/*
 * Removes all blocks of objects of this identity at or below path ("": all of them),
 * busy and pinned ones excepted. Waits for it. *ret_* count blocks.
 */
int store_evict(struct store *store, const char *identity, const char *path, uint64_t *ret_blocks,
		uint64_t *ret_busy, uint64_t *ret_pinned);
/*
 * Blocks of objects of this identity at or below path are not evicted until store_unpin()
 * of the same. Durable when it returns 0; -ENOENT: it was not pinned.
 */
int store_pin(struct store *store, const char *identity, const char *path);
int store_unpin(struct store *store, const char *identity, const char *path);

/*
 * Keeps bytes that say what digests the file's bytes have had, for as long as any block of it
 * is recorded; what they mean is the caller's. Waits for it. -ENOENT: none is.
 */
#define STORE_DIGESTS_MAX 1024
int store_keep_digests(struct store_file *file, const unsigned char *bytes, size_t len);
/* What is kept so: -ENOENT. */
int store_digests(struct store_file *file, unsigned char bytes[STORE_DIGESTS_MAX], size_t *ret_len);

/* For `wfs stat`: one directory each, until fn is through. */
struct store_dir_info {
	const char *path;
	uint64_t capacity, used, files, index_bytes;
	bool failed;
};
void store_each_dir(struct store *store, void (*fn)(void *arg, const struct store_dir_info *info),
		    void *arg);

/*
 * A directory of this name in the first cache directory that can be used, made where it is not
 * there: for what is kept beside the blocks. A descriptor, or -errno.
 */
int store_beside(struct store *store, const char *name);
/*
 * To root, in the directory of another user, the new file fd/name is to be that user's, whose
 * daemon may come next. Best effort: this one needs no such thing. fd: the cache directory, or
 * one of store_beside().
 */
void store_dir_give(int fd, const char *name);

/*
 * store_read: what is recorded, read back on the calling thread, which may wait.
 */

/* One version of an object that is recorded; strings valid inside the callback. */
struct store_object {
	struct store_key key;
	uint64_t blocks, bytes; /* recorded */
	bool lost;		/* its data file is gone, or is something else */
};
/*
 * Calls fn for each version of an object of this identity at or below path ("": all of them),
 * no lock held, until it returns other than 0, which is then returned.
 */
int store_each_object(struct store *store, const char *identity, const char *path,
		      int (*fn)(void *arg, const struct store_object *object), void *arg);
/* The first recorded block from one on. -ENOENT: there is none. */
int store_next_block(struct store_file *file, uint64_t from, uint64_t *ret_block);
/*
 * Reads a recorded block past the page cache: fn is called with one piece after the other, of
 * whole units, that are right by their sums. It may end it by an error. buffer: of
 * STORE_READ_BYTES, 4 KiB aligned. -ENOENT: it is not recorded (any more). -EUCLEAN: it has
 * not the bytes that were stored; it is for the caller to store_forget() it.
 */
#define STORE_READ_BYTES (4UL << 20)
typedef int (*store_read_fn)(void *arg, const void *bytes, uint64_t len);
int store_read_block(struct store_file *file, uint64_t block, void *buffer, store_read_fn fn,
		     void *arg);

/*
 * store_io: one block to or from its file through a loop, in pieces. On the loop's thread.
 */

typedef void (*store_io_fn)(void *arg, int error);
/*
 * len is rounded up to 4 KiB: the buffer has room for it. Done is called once, from the
 * loop. 0 or -errno (done is not called then).
 */
int store_io_start(struct store_file *file, struct loop *loop, bool write, uint64_t offset,
		   void *bytes, uint64_t len, store_io_fn done, void *arg);

#endif /* WFS_STORE_H */
