// SPDX-License-Identifier: MIT
/*
 * block: the table of blocks on their way, and handing their units to whoever waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Most units handed over by one data() call: one deliver command. */
#define DELIVER_UNITS 16

static bool bit_test(const uint64_t *bits, uint32_t bit)
{
	return bits[bit / 64] >> (bit % 64) & 1;
}

static void bit_set(uint64_t *bits, uint32_t bit)
{
	bits[bit / 64] |= 1ULL << (bit % 64);
}

void block_list_add(struct block_list *list, struct block *block)
{
	block->list = list;
	block->next = NULL;
	block->prev = list->last;
	if (list->last)
		list->last->next = block;
	else
		list->first = block;
	list->last = block;
}

void block_list_remove(struct block *block)
{
	struct block_list *list = block->list;

	if (!list)
		return;
	if (block->prev)
		block->prev->next = block->next;
	else
		list->first = block->next;
	if (block->next)
		block->next->prev = block->prev;
	else
		list->last = block->prev;
	block->list = NULL;
	block->prev = NULL;
	block->next = NULL;
}

static struct block **block_bucket(struct object *object, uint64_t nr)
{
	return &object->blocks[nr % BLOCK_BUCKETS];
}

struct block *block_find(struct object *object, uint64_t nr)
{
	struct block *block = *block_bucket(object, nr);

	while (block && block->nr != nr)
		block = block->hash_next;
	return block;
}

struct block *block_create(struct object *object, uint64_t nr)
{
	uint32_t units = object_units(object, nr);
	size_t words = (units + 63) / 64;
	struct block *block = calloc(1, sizeof(*block));
	uint64_t *arrays = calloc(2 * words + units, sizeof(*arrays));
	uint64_t start = nr << object->block_shift, end;

	if (!block || !arrays) {
		free(block);
		free(arrays);
		return NULL;
	}
	end = start + (1ULL << object->block_shift);
	if (end > object->attr.size)
		end = object->attr.size;
	block->arrived = arrays;
	block->given = arrays + words;
	block->sums = arrays + 2 * words;
	block->object = object_ref(object);
	block->nr = nr;
	block->refs = 1;
	block->units = units;
	block->left = units;
	block->len = end - start;
	block->hash_next = *block_bucket(object, nr);
	*block_bucket(object, nr) = block;
	block->hashed = true;
	return block;
}

struct block *block_get(struct block *block)
{
	block->refs++;
	return block;
}

void block_unhash(struct block *block)
{
	struct block **link;

	if (!block->hashed)
		return;
	for (link = block_bucket(block->object, block->nr); *link != block;)
		link = &(*link)->hash_next;
	*link = block->hash_next;
	block->hashed = false;
}

void block_put(struct block *block)
{
	struct core *core = block->object->core;
	uint64_t unasked = 0;

	if (--block->refs)
		return;
	block_unhash(block);
	block_list_remove(block);
	hold_expect_no_more(block);
	if (block->bytes) {
		for (uint32_t unit = 0; unit < block->units; unit++)
			if (bit_test(block->arrived, unit) && !bit_test(block->given, unit))
				unasked += block_bytes(block, unit, 1);
		if (!block->from_cache)
			counter_add(beyond_bytes, unasked);
		/* What was fetched ahead on purpose says nothing. */
		if (!block->from_cache && !block->left && block->why != FETCH_PREFETCH) {
			struct object *object = block->object;

			usage_add(&object->usage, block->len, block->used);
			usage_add(&object->source->usage[object->block_shift - SOURCE_SHIFT_MIN],
				  block->len, block->used);
		}
		buffers_put(core->buffers, block->bytes, block->units);
		/* Somebody may wait for this memory. */
		core_kick(core, &core->workers[block->worker]);
	}
	object_unref(block->object);
	free(block->message);
	free(block->arrived);
	free(block);
}

void block_fail(struct block *block, int error, const char *message)
{
	if (block->error)
		return;
	block->error = error;
	block->message = message ? strdup(message) : NULL;
	block_unhash(block);
}

uint32_t block_bytes(const struct block *block, uint32_t unit, uint32_t units)
{
	uint64_t start = (uint64_t)unit << BUFFER_UNIT_SHIFT;
	uint64_t end = (uint64_t)(unit + units) << BUFFER_UNIT_SHIFT;

	return (uint32_t)((end > block->len ? block->len : end) - start);
}

/* The next units that have arrived and that the wait has not been given. */
static uint32_t block_next(const struct block *block, const struct fetch_wait *wait,
			   uint32_t *ret_unit)
{
	const struct fetch_want *want = wait->want;
	uint32_t end = want->unit + want->units, unit, n;

	if (!wait->left || !block->bytes)
		return 0;
	for (unit = want->unit; unit < end; unit++)
		if (bit_test(block->arrived, unit) && !bit_test(wait->given, unit))
			break;
	for (n = 0; n < DELIVER_UNITS && unit + n < end; n++)
		if (!bit_test(block->arrived, unit + n) || bit_test(wait->given, unit + n))
			break;
	*ret_unit = unit;
	return n;
}

static void block_unlink_wait(struct fetch_wait *wait)
{
	if (!wait->link)
		return;
	*wait->link = wait->next;
	if (wait->next)
		wait->next->link = wait->link;
	wait->link = NULL;
}

void block_wait_free(struct fetch_wait *wait)
{
	struct block *block = wait->block;

	if (block) {
		block_unlink_wait(wait);
		wait->block = NULL;
		block->wants--;
		/* Nobody waits for it any more: it need not be fetched. */
		if ((block->state == BLOCK_QUEUED || block->state == BLOCK_NEW) && !block->waits) {
			block_unhash(block);
			block_list_remove(block);
			if (block->state == BLOCK_QUEUED)
				counter_sub(queued_blocks, 1);
			block->state = BLOCK_HELD;
			block_put(block);
		}
		hold_settle(block);
		block_put(block);
	}
	wait->want = NULL;
	if (!wait->pending)
		free(wait);
}

/* After a callback: the want may have been released from inside it. */
static void block_called(struct core *core, struct fetch_wait *wait)
{
	wait->busy = false;
	if (wait->released)
		block_wait_free(wait);
	else
		pthread_cond_broadcast(&core->changed);
}

static void block_count(const struct block *block, const struct fetch_wait *wait)
{
	uint64_t len = block_bytes(block, wait->want->unit, wait->want->units);

	if (!block->error && wait->want->why == FETCH_PREFETCH)
		counter_add(prefetch_bytes, len);
	if (block->error) {
		counter_add(failed_requests, 1);
	} else if (wait->held) {
		counter_add(served_held_requests, 1);
		counter_add(served_held_bytes, len);
	} else if (block->from_cache) {
		counter_add(served_nvme_requests, 1);
		counter_add(served_nvme_bytes, len);
	} else {
		counter_add(served_origin_requests, 1);
		counter_add(served_origin_bytes, len);
	}
}

static bool block_deliver_one(struct core *core, struct block *block, struct fetch_wait *wait)
{
	struct fetch_want *want = wait->want;
	uint32_t unit = 0, n = block_next(block, wait, &unit);
	uint64_t start;

	if (!n && wait->left && !block->error)
		return false;
	for (uint32_t i = unit; n && i < unit + n; i++) {
		bit_set(wait->given, i);
		bit_set(block->given, i);
	}
	wait->left -= n;
	wait->busy = true;
	wait->thread = pthread_self();
	if (!n) {
		block_unlink_wait(wait);
		block_count(block, wait);
	}
	pthread_mutex_unlock(&core->lock);
	if (n) {
		start = counter_now();
		want->data(want, unit, n, block_unit(block, unit), block_bytes(block, unit, n));
		counter_waited(COUNTER_WAIT_deliver, counter_now() - start);
	} else {
		want->done(want, block->error,
			   block->error && !block->message ? "the block could not be fetched" :
							     block->message);
	}
	pthread_mutex_lock(&core->lock);
	block_called(core, wait);
	return true;
}

void block_deliver(struct block *block)
{
	struct core *core = block->object->core;
	struct fetch_wait *wait;
	bool again;

	/* The list may change whenever a callback is made: look again from its start. */
	do {
		again = false;
		for (wait = block->waits; wait && !again; wait = wait->next)
			if (!wait->busy && !wait->pending)
				again = block_deliver_one(core, block, wait);
	} while (again);
}
