/* SPDX-License-Identifier: MIT */
/* store_impl: what the store's files share. Not for others. */
#ifndef WFS_STORE_IMPL_H
#define WFS_STORE_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cleanup.h"
#include "config.h"
#include "store.h"
#include "store_index.h"

#define STORE_BUCKETS	   4096
#define STORE_EVICTING_MAX 32
#define STORE_SUBDIRS	   256
/* Blocks evicted before they were read again are remembered, to be kept longer next time. */
#define STORE_GHOSTS 65536

struct store_dir {
	char *path;
	size_t number; /* among the store's */
	/* -1 until it could be opened; then replaced by dup3() only, so that users need no lock. */
	int fd, lock_fd;
	dev_t dev;		    /* that fd is on; the store's thread */
	struct index *index;	    /* always there; answers -ENODEV while the directory is lost */
	uint64_t first_id, next_id; /* of files made by this process; store->lock */
	/* Bytes; store->lock. */
	uint64_t configured; /* by capacity= */
	uint64_t capacity;   /* the same, less where the filesystem has less left */
	uint64_t used, reserved;
	uint64_t wanted;      /* of the longest block that did not fit */
	uint64_t rest_ns;     /* no writes until then, after an error; 0: none */
	uint64_t stuck_ns;    /* eviction found nothing to evict, tried again then */
	uint64_t patience_ns; /* eviction waits for blocks in buffers until then; 0: does not */
	bool lost;	      /* not there, or not fit to be used: tried again after each rest */
	bool ailing;	      /* has failed since it was last seen to work */
	unsigned int faults;  /* of its index in a row; the store's thread */
	bool refused;	      /* opening it again failed, and the log says why; likewise */
	/* The store's thread. */
	unsigned int collected; /* directories of data files looked at since it was opened */
	uint64_t *left;		/* files of sources that are mounted no more, yet to be looked at */
	size_t left_count, left_at;
	uint64_t left_change; /* store->mount_change that they were found for */
	uint32_t *ghosts;
};

/* The quota of a [source] section; store->lock. */
struct store_quota {
	struct store_quota *next;
	char *prefix;
	uint64_t limit;
	uint64_t wanted, stuck_ns, patience_ns; /* as a directory's */
};

/* What shares an identity; lives as long as the store. store->lock. */
struct store_source {
	struct store_source *next;
	char *identity, *name;
	struct index_hash hash;
	struct store_quota *quota; /* or NULL */
	unsigned int mounts;
	int64_t mounted_s; /* when it was last known to be mounted, wall clock; 0: never */
	uint64_t reserved;
	bool dirty;	 /* to be written to the indexes */
	uint64_t used[]; /* recorded bytes, by directory */
};

struct store_pin {
	struct store_pin *next;
	char *identity, *path; /* one piece of memory */
};

struct store_file {
	struct store_file *next; /* by key; store->lock */
	struct store *store;
	struct store_dir *dir;
	struct store_source *source;
	struct store_key key; /* strings allocated in one piece with it */
	struct index_hash hash;
	uint64_t id;
	/* store->lock. */
	unsigned int refs;
	int fd;		     /* -1: closed for lack of use */
	unsigned int io;     /* uses of the descriptor */
	uint64_t used_ns;    /* when it was last handed out */
	int64_t opened_s;    /* when store_file_opened() was last called, wall clock; 0: not yet */
	uint64_t cached;     /* recorded bytes */
	unsigned int writes; /* blocks reserved and not recorded */
	uint64_t *touched;   /* a bit a block: read by the helper; NULL: none was */
	bool named;	     /* its directory entry is durable */
	bool dead;	     /* its directory went away */
	bool dying;	     /* no reference is left: being removed, not to be found */
	bool collecting;     /* holes are being punched: nothing may be written */
	char *text;
};

struct store_evicting {
	struct store_file *file;
	uint64_t block;
};

struct store_forget {
	struct store_forget *next;
	struct store_file *file; /* a reference */
	uint64_t block;
};

/* A file that was opened again, or whose data file is gone. */
struct store_note {
	struct store_note *next;
	struct store_dir *dir;
	uint64_t id;
	int64_t opened_s; /* 0: its records are to go */
};

enum store_request_kind { STORE_EVICT, STORE_PIN, STORE_UNPIN, STORE_DIGESTS };

/* A command, waiting for the store's thread. */
struct store_request {
	struct store_request *next;
	enum store_request_kind kind;
	const char *identity, *path;
	struct store_file *file; /* STORE_DIGESTS: whose, and what is to be kept of them */
	const unsigned char *bytes;
	size_t len;
	uint64_t blocks, busy, pinned;
	int error;
	bool done;
};

struct store {
	struct store_ops ops;
	struct store_dir *dirs;
	size_t dir_count;
	double low, high;
	uint64_t cleanup_ms;
	struct config_capacity capacity;

	pthread_t thread;
	bool running;
	/*
	 * What follows. Taken inside what index_file() and the like call, which have an index's
	 * map_lock: so nothing is read from an index, and nothing changed in it, with this held.
	 */
	pthread_mutex_t lock;
	pthread_cond_t wake, done;
	bool stop, hurry, allowed, evict;
	bool homeless; /* a file was refused, or died */
	struct store_file *files[STORE_BUCKETS];
	uint64_t files_left; /* counts those that were taken out of it */
	unsigned int open_fds, fd_limit;
	struct store_record *commits, **commits_end;
	unsigned int commit_count;
	uint64_t commit_ns;			   /* when the first of them came */
	struct store_forget *forgets, *forgetting; /* to come; under way, by the thread */
	struct store_forget *strays; /* not recorded, yet to be punched; the store's thread */
	struct store_note *notes;
	struct store_request *requests;
	struct store_evicting evicting[STORE_EVICTING_MAX];
	unsigned int evicting_count;
	struct store_source *sources;
	struct store_quota *quotas;
	struct store_pin *pins;
	uint64_t mount_change; /* counts changes of who is mounted */
};

uint64_t store_now(void);
/* store->lock held. Being evicted, or about to be forgotten. */
bool store_is_leaving(const struct store *store, const struct store_file *file, uint64_t block);
/* store->lock held. Recorded bytes, of which there are so many more now. */
void store_account(struct store_dir *dir, struct store_source *source, int64_t bytes);
/* What the index should have said: if its disk has failed it, the thread looks at that now. */
void store_index_error(struct store *store, const struct store_dir *dir);
/* Object bytes of a block; 0 beyond the end. */
uint64_t store_block_len(uint64_t size, uint32_t block_shift, uint64_t block);

/* store_dir. */
/* Locks it: -EBUSY. Its disk may keep it from being used now (0, dir->lost). */
int store_dir_lock(struct store *store, struct store_dir *dir, char *msg, size_t msg_size);
/* Opens it, or sees that it cannot be opened now, likewise. -errno with a sentence. */
int store_dir_open(struct store *store, struct store_dir *dir, char *msg, size_t msg_size);
void store_dir_close(struct store_dir *dir);
/* Looks at what the filesystem has left. */
void store_dir_measure(struct store *store, struct store_dir *dir);
/* store->lock held. Rests: nothing is written there for a while. */
void store_dir_rest(struct store *store, struct store_dir *dir, int error, const char *what);
/* store->lock held: has its index failed, which store_dir_check() is to see? */
bool store_dir_is_failed(const struct store_dir *dir);
/*
 * On the store's thread, no lock held: is it still there? Opens it again if it was lost.
 * True: it can be used.
 */
bool store_dir_check(struct store *store, struct store_dir *dir);

/* store_file. */
/* Path of a data file below the directory. */
void store_file_path(uint64_t id, char *path, size_t size);
/* The file of a record, made for as long as it is needed; NULL: no memory. */
struct store_file *store_file_of(struct store *store, struct store_dir *dir,
				 const struct index_file *record);
/* Closes descriptors that were not used for a while. */
void store_close_idle(struct store *store);
/* store->lock held: nothing of this directory is found or stored any more. */
void store_files_die(struct store *store, const struct store_dir *dir);
/* store->lock held: was it read by the helper since this was last asked? */
bool store_file_touched(struct store_file *file, uint64_t block);

/* store_source; store->lock held but where said. */
/* Found or made; NULL: no memory. */
struct store_source *store_source_get(struct store *store, const char *identity);
struct store_source *store_source_by_hash(struct store *store, const struct index_hash *hash);
/* No lock held. What a directory's index knows of sources and pins. */
int store_source_load(struct store *store, struct store_dir *dir);
/* No lock held, on the store's thread: writes what changed. */
void store_source_record(struct store *store);
/* Was mounted, and is no more. */
bool store_source_left(const struct store_source *source);
/* Takes the quotas of a configuration. */
void store_quota_setup(struct store *store, const struct config *config);
/* What the sources of a quota have and will have. */
uint64_t store_quota_taken(const struct store *store, const struct store_quota *quota);
bool store_is_pinned(const struct store *store, const char *identity, const char *path);
/* No lock held, on the store's thread. */
int store_pin_request(struct store *store, const struct store_request *request);
void store_source_free(struct store *store);

/* store_collect: on the store's thread, no lock held. */
/*
 * Looks at one of the 256 directories of data files: removes files and punches blocks that
 * no record speaks of, as an earlier start may have left them.
 */
void store_collect(struct store *store, struct store_dir *dir, unsigned int sub);

/* evict: on the store's thread, no lock held. */
void evict_run(struct store *store, struct store_dir *dir);
/* Until the sources of the quota are below its low mark. */
void evict_quota(struct store *store, struct store_quota *quota);
void evict_request(struct store *store, struct store_request *request);
/* Punches a block that is not recorded, if nobody reads or writes it. */
bool evict_stray(struct store *store, struct store_file *file, uint64_t block);
/* store->lock held: is it time? */
bool evict_due(const struct store *store, const struct store_dir *dir);
/* Is the path at or below top? */
bool evict_below(const char *path, const char *top);
/* Was it evicted before it proved itself, not long ago? */
bool evict_ghost(const struct store_dir *dir, const struct index_hash *hash, uint64_t block);

/* store_thread */
void *store_thread(void *arg);

#endif /* WFS_STORE_IMPL_H */
