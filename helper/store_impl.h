/* SPDX-License-Identifier: MIT */
/* store_impl: what the store's files share. Not for others. */
#ifndef WFS_STORE_IMPL_H
#define WFS_STORE_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "config.h"
#include "store.h"
#include "store_index.h"

#define STORE_BUCKETS	   4096
#define STORE_EVICTING_MAX 32

struct store_dir {
	char *path;
	int fd, lock_fd;
	struct index *index;
	uint64_t first_id, next_id; /* of files made by this process; store->lock */
	/* Bytes; store->lock. */
	uint64_t configured; /* by capacity= */
	uint64_t capacity;   /* the same, less where the filesystem has less left */
	uint64_t used, reserved;
	uint64_t wanted; /* of the longest block that did not fit */
	uint64_t files;
	uint64_t rest_ns;  /* no writes until then, after an error */
	uint64_t stuck_ns; /* eviction found nothing to evict, tried again then */
};

struct store_file {
	struct store_file *next; /* by key; store->lock */
	struct store *store;
	struct store_dir *dir;
	struct store_key key; /* strings allocated in one piece with it */
	struct index_hash hash;
	uint64_t id;
	/* store->lock. */
	unsigned int refs;
	int fd;		  /* -1: closed for lack of use */
	unsigned int io;  /* uses of the descriptor */
	uint64_t used_ns; /* when it was last handed out */
	int64_t opened_s; /* when the object was last opened, wall clock */
	uint64_t cached;  /* recorded bytes */
	bool named;	  /* its directory entry is durable */
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

/* `wfs evict`, waiting for the store's thread. */
struct store_request {
	struct store_request *next;
	const char *identity, *path;
	uint64_t blocks, busy;
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
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t wake, done;
	bool stop, hurry, allowed, evict;
	struct store_file *files[STORE_BUCKETS];
	unsigned int open_fds, fd_limit;
	struct store_record *commits, **commits_end;
	unsigned int commit_count;
	uint64_t commit_ns; /* when the first of them came */
	struct store_forget *forgets;
	struct store_request *requests;
	struct store_evicting evicting[STORE_EVICTING_MAX];
	unsigned int evicting_count;
};

uint64_t store_now(void);
/* Path of a data file below the directory. */
void store_file_path(uint64_t id, char *path, size_t size);
/* The file of a record, made for as long as it is needed; NULL: no memory. */
struct store_file *store_file_of(struct store *store, struct store_dir *dir,
				 const struct index_file *record);
/* store->lock held. */
bool store_is_evicting(const struct store *store, const struct store_file *file, uint64_t block);
/* Looks at what the filesystem has left. */
void store_measure(struct store *store, struct store_dir *dir);
/*
 * Looks at one of the 256 directories of data files: removes files and punches blocks that
 * no record speaks of, as an earlier start may have left them.
 */
#define STORE_SUBDIRS 256
void store_collect(struct store *store, struct store_dir *dir, unsigned int sub);
/* Closes descriptors that were not used for a while. */
void store_close_idle(struct store *store);

/* evict: on the store's thread, no lock held. */
void evict_run(struct store *store, struct store_dir *dir);
void evict_request(struct store *store, struct store_request *request);
/* store->lock held: is it time? */
bool evict_due(const struct store *store, const struct store_dir *dir);

/* store_thread */
void *store_thread(void *arg);

#endif /* WFS_STORE_IMPL_H */
