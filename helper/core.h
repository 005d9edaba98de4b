/* SPDX-License-Identifier: MIT */
/* core: workers, buffer memory, objects and store, with or without the kernel part. */
#ifndef WFS_CORE_H
#define WFS_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;
struct core;
struct loop;
struct order;
struct origin;
struct store;

/* Makes buffers, loops and the table; starts no thread. msg: a sentence on failure. */
int core_create(const struct config *config, struct core **ret, char *msg, size_t msg_size);
/*
 * Opens the cache directories, before core_start(). -EBUSY: another process has them; a
 * daemon that was killed keeps them until its last writes have ended. May be tried again.
 */
int core_open(struct core *core, char *msg, size_t msg_size);
/* Starts the workers' threads. before_run is called on each, before its loop runs. */
int core_start(struct core *core,
	       int (*before_run)(struct core *core, unsigned int worker, struct loop *loop,
				 void *arg),
	       void *arg);
/*
 * Has each worker turned since the last call? For the watchdog, by one thread. A worker
 * that is busy misses one call or two; one that is stuck misses all.
 */
bool core_alive(struct core *core);
/* Stops the workers, waits for writes under way, closes the store. */
void core_stop(struct core *core);
void core_destroy(struct core *core);

unsigned int core_workers(const struct core *core);
struct loop *core_loop(const struct core *core, unsigned int worker);
const struct config *core_config(const struct core *core);

/* The one contiguous piece of memory that all buffers lie in (for WFS_IOC_BUFFERS). */
void core_memory(const struct core *core, void **ret_base, size_t *ret_len);
/*
 * A small payload buffer (WFS_REPLY_MAX bytes, for replies to the kernel) from that
 * memory, or NULL when none is free. Any thread.
 */
void *core_reply_get(struct core *core);
void core_reply_put(struct core *core, void *reply);

/*
 * The origin of a source, shared by all who name the same source with the same
 * settings; configuration ([source] sections) completes what the options leave open.
 * options: "key=value" lines separated by '\n', or NULL. One reference in *ret.
 */
int core_origin(struct core *core, const char *source, const char *options, struct origin **ret,
		char *msg, size_t msg_size);

/*
 * Eviction is held back until the kernel has told what outlived the last session
 * (WFS_REQ_RESUMED), so that nothing is punched under a reader.
 */
void core_allow_eviction(struct core *core, int allowed);

/* The origin's source was mounted once more (1), or once less (0). Any thread. */
void core_mounted(struct core *core, struct origin *origin, int mounted);

/*
 * Waits until all blocks that are being fetched or are whole now are durable or given up
 * and their watches told, at most timeout_ms: -ETIMEDOUT. Not on a worker's thread.
 */
int core_sync(struct core *core, uint64_t timeout_ms);
/* What of an origin's objects is at or below a path; "": all of them. */
struct core_below {
	const char *identity; /* of the origin */
	const char *path;
};
/* The same for those only; NULL: for all. */
int core_sync_below(struct core *core, const struct core_below *what, uint64_t timeout_ms);

/* NULL: nothing is kept. */
struct store *core_store(const struct core *core);
/* Likewise. */
struct order *core_order(const struct core *core);
/* Calls fn for every origin in use, with a lock held: fn may not call back. Any thread. */
void core_each_origin(struct core *core, void (*fn)(void *arg, struct origin *origin), void *arg);

#endif /* WFS_CORE_H */
