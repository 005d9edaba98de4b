// SPDX-License-Identifier: MIT
/*
 * flight: one ranged read of one object, from the origin or from its cache file, into
 * the buffers of the blocks it covers; retried from where it got to.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine.h"

#define LOG_AREA "fetch"
#include "log.h"

/* Units summed before they are handed over. */
#define FLIGHT_BATCH 16
/* Where a transfer is taken up again, so that direct reads stay aligned. */
#define FLIGHT_ALIGN 4096ULL
/*
 * A transfer is made at least twice: where the budget is shorter than what it takes to find that
 * it is stalled, it would be given up without another attempt.
 */
#define FLIGHT_AGAIN 1
/* A transfer without a byte for so long does not count among those of its source. */
#define FLIGHT_STUCK_NS 1000000000ULL

/* Its worker's thread owns it; membership in lists: core->lock. */
struct flight {
	struct flight *next, *prev;
	struct worker *worker;
	struct object *object; /* the blocks have references */
	uint64_t offset, len;
	char *dst;
	uint32_t first_unit; /* of the first block */
	uint32_t units, arrived;
	uint64_t base; /* bytes there from earlier attempts */
	bool from_cache, prefetch;
	struct retry retry;
	struct loop_timer timer;
	struct origin_call *call;
	uint64_t attempt_ns;
	_Atomic uint64_t moved_ns; /* when the last bytes came; read by other threads */
	unsigned int count;
	struct block *blocks[];
};

int flight_create(struct worker *worker, struct block **blocks, unsigned int count, uint64_t offset,
		  uint64_t len)
{
	struct flight *flight = calloc(1, sizeof(*flight) + count * sizeof(flight->blocks[0]));
	struct object *object = blocks[0]->object;
	struct core *core = worker->core;
	struct flight **last;

	if (!flight)
		return -ENOMEM;
	flight->worker = worker;
	flight->object = object;
	flight->offset = offset;
	flight->len = len;
	flight->first_unit =
		(uint32_t)((offset - (blocks[0]->nr << object->block_shift)) >> BUFFER_UNIT_SHIFT);
	flight->dst = block_unit(blocks[0], flight->first_unit);
	flight->units = (uint32_t)((len + BUFFER_UNIT - 1) >> BUFFER_UNIT_SHIFT);
	flight->from_cache = blocks[0]->from_cache;
	flight->prefetch = blocks[0]->why == FETCH_PREFETCH;
	flight->moved_ns = counter_now();
	flight->count = count;
	memcpy(flight->blocks, blocks, count * sizeof(*blocks));
	for (unsigned int i = 0; i < count; i++)
		blocks[i]->flights++;
	if (!flight->from_cache) {
		core->active++;
		object->source->active++;
		object->source->active_prefetch += flight->prefetch;
	}
	worker->active++;
	counter_add(active_fetches, 1);
	for (last = &worker->start; *last; last = &(*last)->next)
		;
	*last = flight;
	core_kick(core, worker);
	return 0;
}

struct flight *flight_take(struct worker *worker)
{
	struct flight *flight = worker->start;

	worker->start = flight->next;
	flight->prev = NULL;
	flight->next = worker->flying;
	if (flight->next)
		flight->next->prev = flight;
	worker->flying = flight;
	return flight;
}

unsigned int flight_stuck(const struct core *core, const struct source *source)
{
	uint64_t now = counter_now();
	unsigned int n = 0;

	for (unsigned int i = 0; i < core->worker_count; i++)
		for (const struct flight *f = core->workers[i].flying; f; f = f->next)
			n += !f->from_cache && f->object->source == source &&
			     now - f->moved_ns > FLIGHT_STUCK_NS;
	return n;
}

/* core->lock held, given up while callbacks are made. */
static void flight_end(struct flight *flight)
{
	struct worker *worker = flight->worker;
	struct core *core = worker->core;
	struct source *source = flight->object->source;

	if (flight->next)
		flight->next->prev = flight->prev;
	if (flight->prev)
		flight->prev->next = flight->next;
	else
		worker->flying = flight->next;
	if (!flight->from_cache) {
		core->active--;
		source->active--;
		source->active_prefetch -= flight->prefetch;
	}
	worker->active--;
	counter_sub(active_fetches, 1);
	for (unsigned int i = 0; i < flight->count; i++) {
		struct block *block = flight->blocks[i];

		if (block->left && flight->from_cache && !block->error) {
			/* Not readable or not right in the cache: its origin has it. */
			buffers_put(core->buffers, block->bytes, block->units);
			block->bytes = NULL;
			block->flights--;
			block->from_cache = false;
			block->cache_failed = true;
			if (block->waits) {
				fetch_queue(block);
			} else {
				/* Whoever wanted it has gone: it is not brought for nobody. */
				block_unhash(block);
				block->state = BLOCK_HELD;
				block_put(block);
			}
			continue;
		}
		block_deliver(block);
		if (!--block->flights)
			block_put(block);
	}
	free(flight);
	core_kick(core, worker);
}

static void flight_fail(struct flight *flight, int error, const char *message)
{
	struct core *core = flight->worker->core;

	SCOPED_LOCK(&core->lock);
	for (unsigned int i = 0; i < flight->count; i++)
		if (flight->blocks[i]->left)
			block_fail(flight->blocks[i], error, message);
	flight_end(flight);
}

static struct block *flight_block(const struct flight *flight, uint32_t unit, uint32_t *ret_unit)
{
	uint32_t shift = flight->object->block_shift - BUFFER_UNIT_SHIFT;

	unit += flight->first_unit;
	*ret_unit = unit & ((1U << shift) - 1);
	return flight->blocks[unit >> shift];
}

/* total bytes are there: sums the whole units among them and hands them over. */
static void flight_arrived(struct flight *flight, uint64_t total)
{
	struct core *core = flight->worker->core;
	uint32_t there = total >= flight->len ? flight->units :
						(uint32_t)(total >> BUFFER_UNIT_SHIFT);

	while (flight->arrived < there) {
		uint32_t unit, n = 0;
		struct block *block = flight_block(flight, flight->arrived, &unit);
		uint64_t start = counter_now();

		for (; n < FLIGHT_BATCH && flight->arrived + n < there && unit + n < block->units;
		     n++)
			block->sums[unit + n] = XXH64(block_unit(block, unit + n),
						      block_bytes(block, unit + n, 1), 0);
		counter_waited(COUNTER_WAIT_verify, counter_now() - start);
		flight->arrived += n;

		SCOPED_LOCK(&core->lock);
		for (uint32_t i = unit; i < unit + n; i++)
			block->arrived[i / 64] |= 1ULL << (i % 64);
		block->left -= n;
		if (!block->left && !block->error)
			hold_begin(block);
		block_deliver(block);
	}
}

static void flight_read(struct flight *flight);

static void flight_again(struct loop_timer *timer)
{
	flight_read(container_of(timer, struct flight, timer));
}

static void flight_progress(void *arg, uint64_t bytes)
{
	struct flight *flight = arg;

	flight->moved_ns = counter_now();
	flight_arrived(flight, flight->base + bytes);
}

/* Does anybody still wait for one of the blocks? */
static bool flight_wanted(struct flight *flight)
{
	SCOPED_LOCK(&flight->worker->core->lock);

	for (unsigned int i = 0; i < flight->count; i++)
		if (flight->blocks[i]->waits && flight->blocks[i]->left)
			return true;
	return false;
}

static void flight_done(void *arg, const struct origin_result *result, uint64_t bytes)
{
	struct flight *flight = arg;
	struct core *core = flight->worker->core;
	struct origin_result why = *result;
	int64_t pause;

	flight->call = NULL;
	counter_add(origin_bytes, bytes);
	counter_waited(COUNTER_WAIT_origin, counter_now() - flight->attempt_ns);
	flight_arrived(flight, flight->base + bytes);
	if (flight->arrived == flight->units) {
		SCOPED_LOCK(&core->lock);
		flight_end(flight);
		return;
	}
	/* An answer that was good but short is the same to us as a broken connection. */
	if (!why.error) {
		why.error = -EIO;
		why.transient = true;
		why.message = "the origin's answer was too short";
	}
	if (!why.transient) {
		flight_fail(flight, why.error, why.message);
		return;
	}
	if (why.error == -ETIMEDOUT)
		counter_add(stalls, 1);
	flight->base = (flight->base + bytes) & ~(FLIGHT_ALIGN - 1);
	if (bytes >= FLIGHT_ALIGN)
		retry_start(&flight->retry, core->config->retry_budget_ms, FLIGHT_AGAIN);
	pause = retry_next(&flight->retry, &why);
	if (pause < 0 || !flight_wanted(flight)) {
		flight_fail(flight, why.error, why.message);
		return;
	}
	counter_add(retries, 1);
	log_debug("%s at %llu: %s; trying again in %lld ms", object_path(flight->object),
		  (unsigned long long)(flight->offset + flight->base),
		  why.message ? why.message : "it failed", (long long)pause);
	loop_timer_start(flight->worker->loop, &flight->timer, (uint64_t)pause);
}

static void flight_read(struct flight *flight)
{
	struct object *object = flight->object;
	struct origin_get get = {
		.path = object->path,
		.attr = &object->attr,
		.offset = flight->offset + flight->base,
		.len = flight->len - flight->base,
		.dst = flight->dst + flight->base,
		.progress = flight_progress,
		.done = flight_done,
		.arg = flight,
	};
	int err;

	flight->attempt_ns = counter_now();
	flight->moved_ns = flight->attempt_ns;
	counter_add(origin_fetches, 1);
	err = origin_read(object->origin, flight->worker->loop, &get, &flight->call);
	if (err) {
		flight->call = NULL;
		flight_fail(flight, err, "the read could not be started");
	}
}

/* Sums of the index against what the file gave. */
static bool flight_check(const struct flight *flight)
{
	const struct block *block = flight->blocks[0];

	for (uint32_t unit = 0; unit < block->units; unit++)
		if (block->sums[unit] !=
		    XXH64(block_unit(block, unit), block_bytes(block, unit, 1), 0))
			return false;
	return true;
}

/* The block is not what was stored, or cannot be read. */
static void flight_bad(const struct flight *flight, int error)
{
	const struct object *object = flight->object;
	char text[128];

	if (error)
		snprintf(text, sizeof(text), "block %llu cannot be read from the cache: %s",
			 (unsigned long long)flight->blocks[0]->nr, strerror(-error));
	else
		snprintf(text, sizeof(text), "block %llu in the cache failed its check",
			 (unsigned long long)flight->blocks[0]->nr);
	log_warn("%s: %s; it is fetched again", object_path(object), text);
	counter_add(blocks_corrupt, 1);
	store_tell(object->core->store, origin_identity(object->origin), object_path(object),
		   "corrupt", text);
	store_forget(object->file, flight->blocks[0]->nr);
}

static void flight_cached(void *arg, int error)
{
	struct flight *flight = arg;
	struct core *core = flight->worker->core;
	struct block *block = flight->blocks[0];

	if (!error && flight_check(flight)) {
		store_file_used(flight->object->file, block->nr);
		flight_arrived(flight, flight->len);
	} else {
		flight_bad(flight, error);
	}
	SCOPED_LOCK(&core->lock);
	flight_end(flight);
}

void flight_start(struct flight *flight)
{
	int err;

	flight->timer.expired = flight_again;
	retry_start(&flight->retry, flight->worker->core->config->retry_budget_ms, FLIGHT_AGAIN);
	if (!flight->from_cache) {
		flight_read(flight);
		return;
	}
	err = store_io_start(flight->object->file, flight->worker->loop, false, flight->offset,
			     flight->dst, flight->len, flight_cached, flight);
	if (err)
		flight_cached(flight, err);
}

void flight_cancel_all(struct worker *worker)
{
	struct flight *flight = worker->flying, *next;

	for (; flight; flight = next) {
		next = flight->next;
		/* A read of the cache file ends by itself. */
		if (flight->from_cache)
			continue;
		if (flight->call)
			origin_cancel(flight->call);
		loop_timer_stop(worker->loop, &flight->timer);
		flight_fail(flight, -ECANCELED, "the daemon is stopping");
		/* Callbacks may have ended others: from the start. */
		next = worker->flying;
	}
}
