/* SPDX-License-Identifier: MIT */
/*
 * engine: what core, object, block, fetch, flight and hold share. Not for others.
 *
 * One lock (core->lock) guards blocks, waits, queues, flights' membership and the
 * list of held blocks: its sections are short, and sums, copies, system calls and
 * callbacks are made without it. Order of locks: core->lock, then core->table_lock
 * or object->lock (leaves).
 */
#ifndef WFS_ENGINE_H
#define WFS_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "buffers.h"
#include "cleanup.h"
#include "config.h"
#include "core.h"
#include "counters.h"
#include "fetch.h"
#include "loop.h"
#include "object.h"
#include "origin.h"
#include "retry.h"
#include "store.h"
#include "usage.h"

struct block;
struct flight;

#define FETCH_WHYS     3
#define OBJECT_BUCKETS 16384
#define BLOCK_BUCKETS  32
/* Block sizes, log2. */
#define SOURCE_SHIFT_MIN 16
#define SOURCE_SHIFT_MAX 26

/*
 * A block that somebody wants, that is on its way, or that is in a buffer.
 *
 *	NEW -> LOOKING -> QUEUED -> FETCHING -> HELD	(then gone)
 *	EVICTING -> QUEUED or gone
 */
enum block_state {
	BLOCK_NEW,	/* the store is yet to be asked whether it has it */
	BLOCK_LOOKING,	/* it is being asked */
	BLOCK_QUEUED,	/* waits for a buffer and a free transfer */
	BLOCK_FETCHING, /* flights bring its units */
	BLOCK_HELD,	/* whole, in its buffer */
	BLOCK_EVICTING, /* the store removes it from index and file */
};

/* What becomes of a held block. */
enum block_hold {
	HOLD_NONE,
	HOLD_PENDING, /* waits to be written */
	HOLD_WRITING,
	HOLD_WRITTEN,	/* waits to be durable and recorded */
	HOLD_STORED,	/* to be told to the watches */
	HOLD_DROPPED,	/* to be offered, and then the same, given up */
	HOLD_LINGERING, /* was offered */
	HOLD_TELLING,
};

struct block_list {
	struct block *first, *last;
};

/* Guarded by core->lock but where said. */
struct block {
	struct object *object; /* a reference */
	uint64_t nr;
	unsigned int refs;  /* wants, work (queue, flights), hold, eviction */
	unsigned int wants; /* started and not released */
	struct block *hash_next;
	bool hashed;
	struct block *prev, *next; /* in a queue, or in the queue of writes */
	struct block_list *list;
	enum block_state state;
	enum block_hold hold;
	enum fetch_why why;
	unsigned int worker;
	unsigned int flights; /* under way */
	bool from_cache;      /* durable: to be read from the cache file */
	bool cache_failed;    /* was, but could not be read or failed its check */
	bool bulk;	      /* all who want it are (struct fetch_want) */
	bool mark;	      /* of a plan: while it is wanted, its reader is to ask for it */
	uint32_t units, left; /* in it, not arrived yet */
	uint64_t len;	      /* object bytes in it */
	uint64_t used;	      /* of them, given to who waited in the kernel */
	char *bytes;	      /* run of units, or NULL */
	int error;
	char *message;		  /* with error */
	struct fetch_wait *waits; /* wants not done */
	bool unsettled;		  /* in the list that `wfs sync` waits for */
	struct block *unsettled_prev, *unsettled_next;
	uint64_t unsettled_seq;
	uint64_t queued_ns, whole_ns;
	bool dropped;	    /* HOLD_TELLING: this, not stored */
	bool lingered;	    /* and was offered already */
	bool asked_again;   /* HOLD_LINGERING: since it was offered */
	uint64_t linger_ns; /* HOLD_LINGERING: until then */
	struct block *settle_next;
	struct store_record record;
	uint64_t *arrived, *given; /* a bit a unit */
	uint64_t *sums;		   /* one a unit; its flight's thread writes it before the bit */
};

/* What the scheduler knows of a want. Guarded by core->lock. */
struct fetch_wait {
	struct fetch_want *want;
	struct block *block;		 /* a reference */
	struct fetch_wait *next, **link; /* block->waits */
	struct fetch_wait *pending_next;
	bool pending; /* on a worker's list: freed from there */
	bool busy;    /* a callback is being made, by thread */
	pthread_t thread;
	bool released;
	bool held;     /* units had arrived when it was started */
	uint32_t left; /* units not handed over yet */
	uint64_t started_ns;
	uint64_t given[]; /* a bit a unit of the block */
};

/* A source: one origin with its queues. Lives as long as anybody has the origin, at least. */
struct source {
	struct source *next;
	char *key;	       /* source and settings; NULL: came with an object */
	struct origin *origin; /* a reference */
	struct block_list queue[FETCH_WHYS];
	unsigned int active, active_prefetch;
	struct usage usage[SOURCE_SHIFT_MAX - SOURCE_SHIFT_MIN + 1]; /* by block size */
};

struct worker {
	struct core *core;
	unsigned int index;
	struct loop *loop;
	pthread_t thread;
	bool running;
	struct loop_task task;
	bool posted;
	struct fetch_wait *pending, **pending_end;
	struct flight *start;  /* to be started by this worker */
	struct flight *flying; /* started, by the worker's own thread only */
	struct block *settle;  /* to be told */
	struct block_list lingering;
	struct loop_timer linger; /* of the first of them */
	unsigned int active;
	struct loop_timer starved;
	bool cancelled;
	struct loop_task pulse;
	atomic_bool pulsing; /* pulse is posted and has not run yet */
};

struct core {
	const struct config *config;
	struct buffers *buffers;
	struct store *store; /* NULL: nothing is kept */
	struct order *order; /* likewise */
	struct worker *workers;
	unsigned int worker_count;
	int (*before_run)(struct core *core, unsigned int worker, struct loop *loop, void *arg);
	void *before_arg;

	pthread_mutex_t table_lock; /* objects[], object->table_next, source keys */
	struct object **objects;

	pthread_mutex_t lock; /* what follows, blocks, waits, workers' lists */
	pthread_cond_t changed;
	bool stopping;
	struct source *sources;
	unsigned int pumping; /* walks through the sources, which stay as they are meanwhile */
	unsigned int active;  /* transfers */
	uint64_t starved_ns;  /* since when a reader waits for buffer memory, 0: none does */
	uint64_t prefetch_allowed_ns; /* pace of prefetches */
	struct block_list writes;     /* HOLD_PENDING */
	uint64_t writing_bytes;
	unsigned int writing;
	uint64_t unrecorded_bytes; /* being written, or written and not recorded yet */
	uint64_t backlog_bytes;	   /* the same, with what waits to be written */
	struct block *unsettled_first, *unsettled_last; /* by unsettled_seq */
	uint64_t unsettled_seq;
};

struct object_slot {
	struct object_slot *next;
	struct object_watch *watch;
	unsigned int calls; /* under way */
	bool dead;
};

struct object {
	_Atomic unsigned int refs;
	struct core *core;
	struct source *source;
	struct origin *origin; /* a reference */
	char *path;
	struct origin_attr attr;
	uint32_t block_shift;
	struct object *table_next;
	bool replaced; /* not in the table any more; core->table_lock */
	uint64_t hash;
	struct store_file *file; /* NULL: not kept */
	pthread_mutex_t lock;	 /* slots */
	pthread_cond_t calm;
	struct object_slot *slots;
	struct usage usage;		     /* core->lock */
	struct block *blocks[BLOCK_BUCKETS]; /* core->lock */
};

/* core: the calling thread's worker, or -1. */
int core_self(void);
/* Makes the worker look at its lists. core->lock held. */
void core_kick(struct core *core, struct worker *worker);
struct source *core_source(struct core *core, struct origin *origin);

/* core_origin: values of the options that say how a source is reached; NULL: not given. */
enum core_value {
	CORE_ENDPOINT,
	CORE_REGION,
	CORE_PROFILE,
	CORE_ANON,
	CORE_CA,
	CORE_VIRTUAL_HOST,
	CORE_MIRROR,
	CORE_VALUES,
};
/* Makes the origin, of several if it has mirrors. As core_origin(), but new. */
int core_origin_create(struct core *core, const char *source, char *const *values,
		       struct origin **ret, char *msg, size_t msg_size);

/* object: tell the watches; on a worker's thread, no lock held. */
void object_tell_stored(struct object *object, struct block *block);
void object_tell_dropped(struct object *object, struct block *block);
/* Offers a block that is about to be dropped. */
void object_offer(struct object *object, struct block *block);
/* On the store's thread. 0, -EBUSY, or -EAGAIN if cold. */
int object_tell_evict(struct object *object, uint64_t block, bool cold);
void object_tell_evicted(struct object *object, uint64_t block);
/* Those without a data file, or with a lost one, are opened anew. On the store's thread. */
void object_reopen_all(struct core *core);
/* Has the kernel opened it? */
bool object_is_watched(struct object *object);
/* A reference to the object that has this cache file open, or NULL. */
struct object *object_of_file(struct core *core, struct store_file *file);
uint64_t object_blocks(const struct object *object);
/* The object if it is open, with a reference, or NULL. */
struct object *object_known(struct core *core, struct origin *origin, const char *path,
			    const struct origin_attr *attr, uint32_t block_shift);

/* block: core->lock held in all of these. */
void block_list_add(struct block_list *list, struct block *block);
void block_list_remove(struct block *block);
struct block *block_find(struct object *object, uint64_t nr);
/* In the table, one reference. NULL: no memory. */
struct block *block_create(struct object *object, uint64_t nr);
struct block *block_get(struct block *block);
void block_put(struct block *block);
/* Out of the table, so that whoever asks next starts anew. */
void block_unhash(struct block *block);
/* Ends it with an error: its waits will be told by block_deliver(). */
void block_fail(struct block *block, int error, const char *message);
/*
 * Hands what has arrived to the waits, and the end. Gives up the lock while callbacks
 * run; the caller holds a reference. On a worker's thread.
 */
void block_deliver(struct block *block);
void block_wait_free(struct fetch_wait *wait);
static inline char *block_unit(const struct block *block, uint32_t unit)
{
	return block->bytes + ((size_t)unit << BUFFER_UNIT_SHIFT);
}
/* Object bytes of units [unit, unit + units). */
uint32_t block_bytes(const struct block *block, uint32_t unit, uint32_t units);

/* fetch: core->lock held. The block waits for its turn; it has its work reference. */
void fetch_queue(struct block *block);
/* The eviction of the block has ended; kept: it is in the cache still, its sums in block->sums. */
void fetch_evicted(struct block *block, bool kept);
/* The worker's task: pending wants, flights to start, held blocks to settle. */
void fetch_worker_run(struct worker *worker);

/* flight: brings blocks. */
/* core->lock held: makes a flight of a run of blocks of one object that has buffers. */
int flight_create(struct worker *worker, struct block **blocks, unsigned int count, uint64_t offset,
		  uint64_t len);
/* core->lock held: transfers of the source that no byte has come from for a while. */
unsigned int flight_stuck(const struct core *core, const struct source *source);
/* On its worker's thread, no lock held. */
void flight_start(struct flight *flight);
/* Takes the next one that its worker is to start, or NULL. core->lock held. */
struct flight *flight_take(struct worker *worker);
/* Ends all flights of the worker. On its thread, no lock held. */
void flight_cancel_all(struct worker *worker);

/* hold: what happens to whole blocks. core->lock held but where said. */
void hold_begin(struct block *block);
/* From the start of its fetch on, `wfs sync` waits for the block. */
void hold_expect(struct block *block);
void hold_expect_no_more(struct block *block);
/* Starts writes. On a worker's thread. */
void hold_pump(struct worker *worker);
/* Tells what is to be told as soon as no want has the block. */
void hold_settle(struct block *block);
/* No lock held, on the worker's thread. */
void hold_tell(struct block *block);
/* The worker's timer. */
void hold_linger_over(struct loop_timer *timer);
/* Memory for so many units is wanted: blocks that linger go, the oldest first. */
void hold_linger_cut(struct core *core, uint32_t units);
/* Somebody opens the object, who is to see nothing older than that. */
void hold_forget(struct object *object);
/* Is so much on its way to the disk that readers who need memory do not wait for it? */
bool hold_is_behind(const struct core *core);
/* Gives blocks up that wait to be written, until so many units are on their way back. */
void hold_drop(struct core *core, uint32_t units);
/* As core_sync_below(). No lock held. */
int hold_sync(struct core *core, const struct core_below *what, uint64_t timeout_ms);

#endif /* WFS_ENGINE_H */
