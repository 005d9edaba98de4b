// SPDX-License-Identifier: MIT
/*
 * hold: whole blocks in their buffers, on their way to the cache file or given up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "faultpoint.h"

#define LOG_AREA "hold"
#include "log.h"

/* Bytes of writes under way. */
#define HOLD_WRITING_MAX (64ULL << 20)
/*
 * Shares of the buffer memory: of blocks that are being written or made durable, which
 * cannot be given up any more; and of those with what waits to be written, from which on
 * readers who need memory do not wait for the disk.
 */
#define HOLD_UNRECORDED_SHARE 4
#define HOLD_BACKLOG_SHARE    2

/*
 * A block that was offered is kept for so long before it is dropped: a reader may have found
 * pages missing before the offer came to them, and its request be on its way.
 */
#define HOLD_LINGER_NS 100000000ULL

static uint64_t hold_share(const struct core *core, unsigned int share)
{
	return ((uint64_t)buffers_units(core->buffers) << BUFFER_UNIT_SHIFT) / share;
}

bool hold_is_behind(const struct core *core)
{
	return core->backlog_bytes >= hold_share(core, HOLD_BACKLOG_SHARE);
}

void hold_expect(struct block *block)
{
	struct core *core = block->object->core;

	if (block->unsettled)
		return;
	block->unsettled = true;
	block->unsettled_seq = ++core->unsettled_seq;
	block->unsettled_next = NULL;
	block->unsettled_prev = core->unsettled_last;
	if (core->unsettled_last)
		core->unsettled_last->unsettled_next = block;
	else
		core->unsettled_first = block;
	core->unsettled_last = block;
}

void hold_expect_no_more(struct block *block)
{
	struct core *core = block->object->core;

	if (!block->unsettled)
		return;
	block->unsettled = false;
	if (block->unsettled_prev)
		block->unsettled_prev->unsettled_next = block->unsettled_next;
	else
		core->unsettled_first = block->unsettled_next;
	if (block->unsettled_next)
		block->unsettled_next->unsettled_prev = block->unsettled_prev;
	else
		core->unsettled_last = block->unsettled_prev;
	pthread_cond_broadcast(&core->changed);
}

void hold_begin(struct block *block)
{
	struct core *core = block->object->core;

	block->state = BLOCK_HELD;
	block->whole_ns = counter_now();
	block_get(block);
	counter_add(held_blocks, 1);
	if (block->from_cache) {
		block->hold = HOLD_STORED;
	} else if (block->object->file && !core->stopping) {
		block->hold = HOLD_PENDING;
		core->backlog_bytes += block->len;
		block_list_add(&core->writes, block);
		core_kick(core, &core->workers[block->worker]);
	} else {
		block->hold = HOLD_DROPPED;
	}
	hold_settle(block);
}

/* Onto the list of what is to be told. */
static void hold_put_to_tell(struct block *block)
{
	struct worker *worker = &block->object->core->workers[block->worker];

	block->hold = HOLD_TELLING;
	block->settle_next = worker->settle;
	worker->settle = block;
	core_kick(worker->core, worker);
}

void hold_settle(struct block *block)
{
	if (block->hold == HOLD_LINGERING && !block->wants)
		block->asked_again = true;
	if ((block->hold != HOLD_STORED && block->hold != HOLD_DROPPED) || block->wants)
		return;
	block->dropped = block->hold == HOLD_DROPPED;
	block->lingered = false;
	hold_put_to_tell(block);
}

static void hold_linger(struct worker *worker, struct block *block)
{
	block->hold = HOLD_LINGERING;
	block->asked_again = false;
	block->linger_ns = counter_now() + HOLD_LINGER_NS;
	if (!worker->lingering.first)
		loop_timer_start(worker->loop, &worker->linger, HOLD_LINGER_NS / 1000000);
	block_list_add(&worker->lingering, block);
}

/* Off its list: dropped, or offered again if somebody came. */
static void hold_linger_end(struct block *block, bool again)
{
	block_list_remove(block);
	if (block->wants || (block->asked_again && again)) {
		block->hold = HOLD_DROPPED;
		hold_settle(block);
		return;
	}
	block->lingered = true;
	hold_put_to_tell(block);
}

void hold_linger_over(struct loop_timer *timer)
{
	struct worker *worker = container_of(timer, struct worker, linger);
	uint64_t now = counter_now();
	struct block *block;

	SCOPED_LOCK(&worker->core->lock);
	while ((block = worker->lingering.first) && block->linger_ns <= now)
		hold_linger_end(block, true);
	if (block)
		loop_timer_start(worker->loop, timer, (block->linger_ns - now) / 1000000 + 1);
}

void hold_linger_cut(struct core *core, uint32_t units)
{
	struct block *oldest;
	uint32_t cut = 0;

	do {
		oldest = NULL;
		for (unsigned int i = 0; i < core->worker_count; i++) {
			struct block *block = core->workers[i].lingering.first;

			if (block && (!oldest || block->linger_ns < oldest->linger_ns))
				oldest = block;
		}
		if (oldest) {
			cut += oldest->units;
			hold_linger_end(oldest, false);
		}
	} while (oldest && cut < units);
}

void hold_forget(struct object *object)
{
	SCOPED_LOCK(&object->core->lock);

	for (size_t i = 0; i < BLOCK_BUCKETS; i++) {
		struct block *block = object->blocks[i], *next;

		for (; block; block = next) {
			next = block->hash_next;
			if (block->hold == HOLD_LINGERING && !block->wants)
				block_unhash(block);
		}
	}
}

/*
 * Offers it. A reader may be faster, and want what the offer has not come to yet: it gets that
 * from the buffer, rather than the whole block once more, and the block is offered again when
 * that is over. True: nobody has come, and it is to be dropped.
 */
static bool hold_offer(struct block *block)
{
	struct core *core = block->object->core;

	if (!block->lingered)
		object_offer(block->object, block);
	SCOPED_LOCK(&core->lock);
	if (block->wants) {
		block->hold = HOLD_DROPPED;
		return false;
	}
	if (!block->lingered && !core->stopping) {
		hold_linger(&core->workers[block->worker], block);
		return false;
	}
	/* Whoever asks from now on gets it anew. */
	block_unhash(block);
	counter_add(blocks_dropped, 1);
	return true;
}

void hold_tell(struct block *block)
{
	struct core *core = block->object->core;

	if (block->dropped && !hold_offer(block))
		return;
	if (block->dropped)
		object_tell_dropped(block->object, block);
	else
		object_tell_stored(block->object, block);
	faultpoint(FAULT_TOLD);

	SCOPED_LOCK(&core->lock);
	counter_sub(held_blocks, 1);
	hold_expect_no_more(block);
	block_put(block);
}

static void hold_give_up(struct block *block)
{
	block->object->core->backlog_bytes -= block->len;
	block->hold = HOLD_DROPPED;
	hold_settle(block);
}

/* On the store's thread. */
static void hold_recorded(struct store_record *record, int error)
{
	struct block *block = container_of(record, struct block, record);
	struct core *core = block->object->core;

	SCOPED_LOCK(&core->lock);
	core->unrecorded_bytes -= block->len;
	core_kick(core, &core->workers[block->worker]);
	if (error) {
		counter_add(store_errors, 1);
		hold_give_up(block);
		return;
	}
	core->backlog_bytes -= block->len;
	counter_add(blocks_stored, 1);
	/* Recorded before: it was fetched although the cache had it. */
	if (!record->fresh)
		counter_add(duplicate_fetches, 1);
	counter_waited(COUNTER_WAIT_store, counter_now() - block->whole_ns);
	block->hold = HOLD_STORED;
	hold_settle(block);
}

static void hold_written(void *arg, int error)
{
	struct block *block = arg;
	struct core *core = block->object->core;
	struct store_file *file = block->object->file;

	SCOPED_LOCK(&core->lock);
	core->writing--;
	core->writing_bytes -= block->len;
	pthread_cond_broadcast(&core->changed);
	faultpoint(FAULT_WRITTEN);
	if (error) {
		counter_add(store_errors, 1);
		core->unrecorded_bytes -= block->len;
		store_failed(file, error);
		store_unreserve(file, block->len);
		hold_give_up(block);
	} else {
		counter_add(stored_bytes, block->len);
		block->hold = HOLD_WRITTEN;
		block->record = (struct store_record){
			.file = file,
			.block = block->nr,
			.len = block->len,
			.sums = block->sums,
			.units = block->units,
			.done = hold_recorded,
		};
		store_commit(&block->record);
	}
	if (core_self() >= 0)
		core_kick(core, &core->workers[core_self()]);
}

static int hold_write(struct worker *worker, struct block *block)
{
	struct core *core = worker->core;
	uint64_t tail = ((block->len + 4095) & ~4095ULL) - block->len;
	int err;

	memset(block->bytes + block->len, 0, tail);
	core->writing++;
	core->writing_bytes += block->len;
	core->unrecorded_bytes += block->len;
	block->hold = HOLD_WRITING;
	err = store_io_start(block->object->file, worker->loop, true,
			     block->nr << block->object->block_shift, block->bytes, block->len,
			     hold_written, block);
	if (err) {
		core->writing--;
		core->writing_bytes -= block->len;
		core->unrecorded_bytes -= block->len;
	}
	return err;
}

void hold_pump(struct worker *worker)
{
	struct core *core = worker->core;
	struct block *block;
	int err;

	while ((block = core->writes.first)) {
		struct store_file *file = block->object->file;

		if (core->writing && core->writing_bytes + block->len > HOLD_WRITING_MAX)
			break;
		if (core->unrecorded_bytes &&
		    core->unrecorded_bytes + block->len > hold_share(core, HOLD_UNRECORDED_SHARE)) {
			store_hurry(core->store);
			break;
		}
		err = store_reserve(file, block->nr, block->len);
		if (err == -EAGAIN)
			break;
		block_list_remove(block);
		if (!err) {
			err = hold_write(worker, block);
			if (err)
				store_unreserve(file, block->len);
		}
		if (err)
			hold_give_up(block);
	}
}

void hold_drop(struct core *core, uint32_t units)
{
	struct block *block, *next;
	uint32_t dropped = 0;

	for (block = core->writes.first; block && dropped < units; block = next) {
		next = block->next;
		if (block->wants && !core->stopping)
			continue;
		dropped += block->units;
		block_list_remove(block);
		hold_give_up(block);
	}
}

/* Is it in the way of a sync of what? */
static bool hold_concerns(const struct block *block, const struct core_below *what)
{
	const struct object *object = block->object;
	size_t len;

	if (!what)
		return true;
	len = strlen(what->path);
	return !strncmp(object->path, what->path, len) &&
	       (!len || !object->path[len] || object->path[len] == '/') &&
	       !strcmp(origin_identity(object->origin), what->identity);
}

/* What is left of what was begun up to a target. */
enum hold_left {
	HOLD_LEFT_NONE,
	HOLD_LEFT_WRITTEN, /* it is all written, and the store need not wait for more to record */
	HOLD_LEFT_SOME,
};

static enum hold_left hold_left(const struct core *core, const struct core_below *what,
				uint64_t target)
{
	const struct block *block = core->unsettled_first;
	enum hold_left left = HOLD_LEFT_NONE;

	for (; block && block->unsettled_seq <= target; block = block->unsettled_next) {
		if (!hold_concerns(block, what))
			continue;
		if (block->hold < HOLD_WRITTEN)
			return HOLD_LEFT_SOME;
		left = HOLD_LEFT_WRITTEN;
	}
	return left;
}

int hold_sync(struct core *core, const struct core_below *what, uint64_t timeout_ms)
{
	struct timespec until;
	enum hold_left left;
	uint64_t target;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(timeout_ms / 1000);
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	if (core->store)
		store_hurry(core->store);

	SCOPED_LOCK(&core->lock);
	target = core->unsettled_seq;
	while (!err && (left = hold_left(core, what, target)) != HOLD_LEFT_NONE) {
		/* What came before the last write took the first hurry with it. */
		if (left == HOLD_LEFT_WRITTEN && core->store)
			store_hurry(core->store);
		err = pthread_cond_timedwait(&core->changed, &core->lock, &until);
	}
	return -err;
}
