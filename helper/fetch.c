// SPDX-License-Identifier: MIT
/*
 * fetch: who waits for what, and which block comes next.
 */
#include "fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define LOG_AREA "fetch"
#include "log.h"

/* Bytes of neighbouring blocks in one ranged GET: while transfers are free, and at most. */
#define JOIN_IDLE   (8ULL << 20)
#define JOIN_MAX    (32ULL << 20)
#define JOIN_BLOCKS 512
/* Of those that nobody waits for, whose way to the origin and back is to be short beside them. */
#define JOIN_BULK (16ULL << 20)
/* A block longer than this comes by several transfers, of this many bytes each. */
#define SPLIT_FROM  (32ULL << 20)
#define SPLIT_BYTES (16ULL << 20)
/* How long a reader waits for buffer memory before unwritten blocks are given up. */
#define STARVED_NS	100000000ULL
#define STARVED_LOOK_MS 50
/* How often transfers that keep others waiting are looked at. */
#define EXCEED_LOOK_MS 500

static unsigned int fetch_home(struct core *core, const struct fetch_want *want)
{
	int self = core_self();

	return self >= 0 ? (unsigned int)self : (unsigned int)(want->block % core->worker_count);
}

static void fetch_raise(struct block *block, enum fetch_why why)
{
	if (why >= block->why)
		return;
	block->why = why;
	block->bulk = false;
	if (block->state == BLOCK_QUEUED) {
		block_list_remove(block);
		block_list_add(&block->object->source->queue[why], block);
		core_kick(block->object->core, &block->object->core->workers[block->worker]);
	}
}

static bool fetch_has_arrived(const struct block *block, const struct fetch_want *want)
{
	if (block->state == BLOCK_HELD)
		return true;
	for (uint32_t unit = want->unit; unit < want->unit + want->units; unit++)
		if (!(block->arrived[unit / 64] >> (unit % 64) & 1))
			return false;
	return true;
}

int fetch_start(struct core *core, struct fetch_want *want)
{
	uint32_t units = object_units(want->object, want->block);
	struct fetch_wait *wait;
	struct worker *worker;
	struct block *block;

	if (!want->units || want->unit >= units || want->units > units - want->unit ||
	    (unsigned int)want->why >= FETCH_WHYS)
		return -EINVAL;
	wait = calloc(1, sizeof(*wait) + (units + 63) / 64 * sizeof(wait->given[0]));
	if (!wait)
		return -ENOMEM;
	wait->want = want;
	wait->left = want->units;
	wait->started_ns = counter_now();

	SCOPED_LOCK(&core->lock);
	if (core->stopping) {
		free(wait);
		return -ESHUTDOWN;
	}
	block = block_find(want->object, want->block);
	if (!block) {
		block = block_create(want->object, want->block);
		if (!block) {
			free(wait);
			return -ENOMEM;
		}
		block->why = want->why;
		block->bulk = want->bulk;
		block->worker = fetch_home(core, want);
		block->queued_ns = wait->started_ns;
		/* One that is on its way already is checked, or has never been in the file. */
		if (want->bad && want->object->file) {
			block->cache_failed = true;
			counter_add(blocks_corrupt, 1);
			store_forget(want->object->file, want->block);
		}
	} else {
		fetch_raise(block, want->why);
		block->bulk = block->bulk && want->bulk;
	}
	wait->block = block_get(block);
	block->wants++;
	wait->held = fetch_has_arrived(block, want);
	wait->next = block->waits;
	wait->link = &block->waits;
	if (wait->next)
		wait->next->link = &wait->next;
	block->waits = wait;
	want->opaque = wait;
	counter_add(asked_bytes, block_bytes(block, want->unit, want->units));

	/* The thread that asked is the one that is told: no callback is made from here. */
	worker = &core->workers[fetch_home(core, want)];
	wait->pending = true;
	*worker->pending_end = wait;
	worker->pending_end = &wait->pending_next;
	core_kick(core, worker);
	return 0;
}

void fetch_promote(struct fetch_want *want, enum fetch_why why)
{
	struct core *core = want->object->core;
	struct fetch_wait *wait;

	SCOPED_LOCK(&core->lock);
	wait = want->opaque;
	if (wait && wait->block)
		fetch_raise(wait->block, why);
}

bool fetch_cancel(struct fetch_want *want)
{
	struct core *core = want->object->core;
	struct fetch_wait *wait;

	SCOPED_LOCK(&core->lock);
	wait = want->opaque;
	if (!wait || !wait->block || wait->busy || wait->block->state == BLOCK_FETCHING ||
	    wait->block->state == BLOCK_HELD)
		return false;
	want->opaque = NULL;
	block_wait_free(wait);
	return true;
}

void fetch_used(struct fetch_want *want, uint64_t bytes)
{
	struct core *core = want->object->core;
	struct fetch_wait *wait;

	SCOPED_LOCK(&core->lock);
	wait = want->opaque;
	if (wait && wait->block)
		wait->block->used += bytes;
}

void fetch_release(struct fetch_want *want)
{
	struct core *core = want->object->core;
	struct fetch_wait *wait;

	SCOPED_LOCK(&core->lock);
	wait = want->opaque;
	if (!wait)
		return;
	want->opaque = NULL;
	if (wait->busy && pthread_equal(wait->thread, pthread_self())) {
		/* From inside its own callback, which frees it. */
		wait->released = true;
		return;
	}
	while (wait->busy)
		pthread_cond_wait(&core->changed, &core->lock);
	block_wait_free(wait);
}

void fetch_queue(struct block *block)
{
	block->state = BLOCK_QUEUED;
	block_list_add(&block->object->source->queue[block->why], block);
	counter_add(queued_blocks, 1);
	core_kick(block->object->core, &block->object->core->workers[block->worker]);
}

void fetch_evicted(struct block *block, bool kept)
{
	/* Its reference becomes that of the work to come, if somebody waits. */
	if (block->waits) {
		block->from_cache = kept;
		block->queued_ns = counter_now();
		fetch_queue(block);
		return;
	}
	block_unhash(block);
	block->state = BLOCK_HELD;
	block_put(block);
}

/* A new block: does the cache file have it? core->lock held, given up meanwhile. */
static void fetch_look(struct core *core, struct block *block)
{
	struct store_file *file = block->object->file;
	bool cached = false;

	block->state = BLOCK_LOOKING;
	if (file && !block->cache_failed) {
		pthread_mutex_unlock(&core->lock);
		cached = !store_lookup(file, block->nr, block->sums, block->units);
		pthread_mutex_lock(&core->lock);
	}
	block->from_cache = cached;
	if (block->waits) {
		fetch_queue(block);
		return;
	}
	block_unhash(block);
	block->state = BLOCK_HELD;
	block_put(block);
}

static void fetch_pending(struct worker *worker, struct fetch_wait *wait)
{
	struct core *core = worker->core;
	struct block *block = wait->block;

	worker->pending = wait->pending_next;
	if (!worker->pending)
		worker->pending_end = &worker->pending;
	wait->pending = false;
	wait->pending_next = NULL;
	if (!block) {
		/* Released before it got here. */
		free(wait);
		return;
	}
	block_get(block);
	if (block->state == BLOCK_NEW)
		fetch_look(core, block);
	block_deliver(block);
	block_put(block);
}

static struct worker *fetch_least_busy(struct core *core, unsigned int home)
{
	struct worker *best = &core->workers[home];

	for (unsigned int i = 0; i < core->worker_count; i++)
		if (core->workers[i].active < best->active)
			best = &core->workers[i];
	return best;
}

/* Transfers of prefetches that a source may have at once. */
static unsigned int fetch_share(const struct config *config)
{
	unsigned int share = (unsigned int)(config->connections_per_host * config->max_share);

	return share ? share : 1;
}

/* Of what is queued, so much that there is as much for each transfer that is free. */
static uint64_t fetch_bulk_most(const struct core *core, const struct source *source)
{
	const struct config *config = core->config;
	unsigned int idle = fetch_share(config) - source->active_prefetch;
	const struct block *block = source->queue[FETCH_PREFETCH].first;
	uint64_t len = 0;

	if (idle > config->connections_per_host - source->active)
		idle = config->connections_per_host - source->active;
	if (idle > config->max_concurrent_fetches - core->active)
		idle = config->max_concurrent_fetches - core->active;
	for (; block && len < idle * JOIN_BULK; block = block->next)
		len += block->len;
	len /= idle;
	if (len < JOIN_IDLE)
		return JOIN_IDLE;
	return len < JOIN_BULK ? len : JOIN_BULK;
}

/* Bytes of the ranged GET that begins with the block, which may start. */
static uint64_t fetch_join_most(const struct core *core, const struct source *source,
				const struct block *block)
{
	if (block->bulk && !block->from_cache)
		return fetch_bulk_most(core, source);
	return source->active < core->config->connections_per_host / 2 ? JOIN_IDLE : JOIN_MAX;
}

/* The neighbours that follow a queued block and may come with it. */
static unsigned int fetch_join(struct core *core, struct source *source, struct block **blocks,
			       uint64_t *ret_len)
{
	uint64_t limit = fetch_join_most(core, source, blocks[0]);
	unsigned int count = 1;
	uint64_t len = blocks[0]->len;

	while (count < JOIN_BLOCKS && !blocks[0]->from_cache) {
		struct block *next = block_find(blocks[0]->object, blocks[0]->nr + count);

		if (!next || next->state != BLOCK_QUEUED || next->from_cache ||
		    len + next->len > limit)
			break;
		/* A prefetch rides along with nothing more urgent. */
		if (next->why == FETCH_PREFETCH && blocks[0]->why != FETCH_PREFETCH)
			break;
		/* Nor does what somebody waits for with a long one that nobody does. */
		if (blocks[0]->bulk && !next->bulk && len + next->len > JOIN_IDLE)
			break;
		len += next->len;
		blocks[count++] = next;
	}
	*ret_len = len;
	return count;
}

/*
 * Transfers that hang must not keep readers from those that would not: for each of them
 * one more may begin, up to twice the limit.
 */
static bool fetch_may_exceed(struct core *core, struct worker *worker, struct source *source,
			     const struct block *block)
{
	unsigned int limit = core->config->connections_per_host, stuck;

	if (block->why == FETCH_PREFETCH)
		return false;
	stuck = flight_stuck(core, source);
	if (stuck > limit)
		stuck = limit;
	if (source->active < limit + stuck &&
	    core->active < core->config->max_concurrent_fetches + stuck)
		return true;
	loop_timer_start(worker->loop, &worker->starved, EXCEED_LOOK_MS);
	return false;
}

static bool fetch_may_start(struct core *core, struct worker *worker, struct source *source,
			    const struct block *block)
{
	const struct config *config = core->config;
	uint64_t now;

	if (block->why == FETCH_PREFETCH &&
	    buffers_free_units(core->buffers) < buffers_units(core->buffers) / 2)
		return false;
	if (block->from_cache)
		return true;
	if (core->active >= config->max_concurrent_fetches ||
	    source->active >= config->connections_per_host)
		return fetch_may_exceed(core, worker, source, block);
	if (block->why != FETCH_PREFETCH)
		return true;
	if (source->active_prefetch >= fetch_share(config))
		return false;
	now = counter_now();
	if (core->prefetch_allowed_ns > now) {
		loop_timer_start(worker->loop, &worker->starved,
				 (core->prefetch_allowed_ns - now) / 1000000 + 1);
		return false;
	}
	return true;
}

static void fetch_paced(struct core *core, uint64_t len)
{
	uint64_t now = counter_now();

	if (!core->config->max_rate)
		return;
	if (core->prefetch_allowed_ns < now)
		core->prefetch_allowed_ns = now;
	core->prefetch_allowed_ns += (uint64_t)((double)len * 1e9 / (double)core->config->max_rate);
}

/* Buffer memory is out, and block is first in line. */
static void fetch_starved(struct core *core, struct worker *worker, const struct block *block)
{
	uint64_t now = counter_now();

	if (!core->starved_ns) {
		core->starved_ns = now;
		counter_add(buffer_waits, 1);
	}
	if (core->store)
		store_hurry(core->store);
	hold_linger_cut(core, block->units);
	if (block->why == FETCH_PREFETCH)
		return;
	if (hold_is_behind(core) || now - core->starved_ns >= STARVED_NS)
		hold_drop(core, block->units);
	loop_timer_start(worker->loop, &worker->starved, STARVED_LOOK_MS);
}

static void fetch_took_off(struct core *core, struct block **blocks, unsigned int count, char *run)
{
	uint64_t now = counter_now();

	core->starved_ns = 0;
	for (unsigned int i = 0; i < count; i++) {
		block_list_remove(blocks[i]);
		counter_sub(queued_blocks, 1);
		blocks[i]->state = BLOCK_FETCHING;
		hold_expect(blocks[i]);
		blocks[i]->bytes = run;
		run += (size_t)blocks[i]->units << BUFFER_UNIT_SHIFT;
		counter_waited(COUNTER_WAIT_queue, now - blocks[i]->queued_ns);
	}
}

/* Begins with the block. 1: begun, 0: not now, -1: no memory, nobody else either. */
static int fetch_launch(struct core *core, struct worker *worker, struct source *source,
			struct block *block)
{
	struct block *blocks[JOIN_BLOCKS] = { block };
	uint64_t len, piece, offset = block->nr << block->object->block_shift;
	unsigned int count;
	char *run = NULL;
	int err = 0;

	if (!fetch_may_start(core, worker, source, block))
		return 0;
	count = fetch_join(core, source, blocks, &len);
	for (;;) {
		uint32_t units = (uint32_t)((len + BUFFER_UNIT - 1) >> BUFFER_UNIT_SHIFT);

		run = buffers_get(core->buffers, units);
		if (run || count == 1)
			break;
		while (count > 1 && len > (uint64_t)units << BUFFER_UNIT_SHIFT >> 1)
			len -= blocks[--count]->len;
	}
	if (!run) {
		fetch_starved(core, worker, block);
		return -1;
	}
	fetch_took_off(core, blocks, count, run);
	if (block->why == FETCH_PREFETCH)
		fetch_paced(core, len);
	piece = len;
	if (count == 1 && len > SPLIT_FROM && !block->from_cache && block->object->attr.size > len)
		piece = SPLIT_BYTES;
	for (uint64_t at = 0; !err && at < len; at += piece) {
		if (piece > len - at)
			piece = len - at;
		err = flight_create(fetch_least_busy(core, block->worker), blocks, count,
				    offset + at, piece);
	}
	if (err) {
		for (unsigned int i = 0; i < count; i++) {
			block_fail(blocks[i], err, "out of memory");
			if (!blocks[i]->flights) {
				block_deliver(blocks[i]);
				block_put(blocks[i]);
			}
		}
	}
	return 1;
}

static void fetch_pump(struct core *core, struct worker *worker)
{
	int begun;

	/* The lock may be given up in between. */
	core->pumping++;
	do {
		begun = 0;
		for (int why = 0; !begun && why < FETCH_WHYS; why++) {
			for (struct source *source = core->sources; source && begun >= 0;
			     source = source->next) {
				struct block *block = source->queue[why].first;
				int one = block ? fetch_launch(core, worker, source, block) : 0;

				if (one)
					begun = one;
			}
		}
	} while (begun > 0);
	core->pumping--;
}

static struct block *fetch_first_queued(struct core *core)
{
	for (struct source *source = core->sources; source; source = source->next)
		for (int why = 0; why < FETCH_WHYS; why++)
			if (source->queue[why].first)
				return source->queue[why].first;
	return NULL;
}

/* Everything queued fails; what the store has yet to write is let go. */
static void fetch_stop(struct worker *worker)
{
	struct core *core = worker->core;
	struct block *block;

	pthread_mutex_unlock(&core->lock);
	flight_cancel_all(worker);
	loop_timer_stop(worker->loop, &worker->starved);
	loop_timer_stop(worker->loop, &worker->linger);
	pthread_mutex_lock(&core->lock);
	for (struct source *source = core->sources; source; source = source->next)
		origin_stop(source->origin, worker->loop);
	hold_linger_cut(core, UINT32_MAX);
	while (core->writes.first)
		hold_drop(core, 1);
	while ((block = fetch_first_queued(core))) {
		block_list_remove(block);
		counter_sub(queued_blocks, 1);
		block_fail(block, -ECANCELED, "the daemon is stopping");
		block->state = BLOCK_HELD;
		block_deliver(block);
		block_put(block);
	}
	if (!worker->flying && !worker->start && !worker->cancelled) {
		worker->cancelled = true;
		pthread_cond_broadcast(&core->changed);
	}
}

void fetch_worker_run(struct worker *worker)
{
	struct core *core = worker->core;

	SCOPED_LOCK(&core->lock);
	for (;;) {
		if (worker->pending) {
			fetch_pending(worker, worker->pending);
		} else if (worker->start) {
			struct flight *flight = flight_take(worker);

			pthread_mutex_unlock(&core->lock);
			flight_start(flight);
			pthread_mutex_lock(&core->lock);
		} else if (worker->settle) {
			struct block *block = worker->settle;

			worker->settle = block->settle_next;
			pthread_mutex_unlock(&core->lock);
			hold_tell(block);
			pthread_mutex_lock(&core->lock);
		} else {
			if (core->stopping) {
				fetch_stop(worker);
			} else {
				hold_pump(worker);
				fetch_pump(core, worker);
			}
			if (!worker->pending && !worker->start && !worker->settle)
				break;
		}
	}
}
