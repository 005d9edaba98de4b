// SPDX-License-Identifier: MIT
/*
 * Orders recorded and followed, and the next shard: what is asked of the origin, and in which
 * order. A reader asks for what the kernel would ask for: what it was told to be cached it reads
 * from the cache file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "container.h"
#include "counters.h"
#include "engine.h"
#include "faulty.h"
#include "order.h"
#include "profile.h"
#include "profile_file.h"
#include "rig.h"

#define BLOCK  65536u
#define BLOCKS 64
#define FILES  4

static struct faulty faulty;
static struct rig rig;
static char *bytes;

static const char *const names[FILES] = { "m-00001-of-00004.x", "m-00002-of-00004.x",
					  "m-00003-of-00004.x", "m-00004-of-00004.x" };

static int group_setup(void **state)
{
	char path[128];

	(void)state;
	bytes = rig_bytes(BLOCKS * BLOCK, 1);
	faulty_start(&faulty);
	for (size_t i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/m/%s?modified=1000000000", names[i]);
		faulty_put(&faulty, path, bytes, BLOCKS * BLOCK);
		snprintf(path, sizeof(path), "/e/expert%zu.x?modified=1000000000", i);
		faulty_put(&faulty, path, bytes, BLOCKS * BLOCK);
	}
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	faulty_stop(&faulty);
	free(bytes);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	faulty_clear(&faulty);
	rig_create(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	faulty_clear(&faulty);
	rig_destroy(&rig);
	return 0;
}

/* ---- a reader of a file ---- */

struct reader {
	struct object *object;
	struct object_watch watch;
	_Atomic bool cached[BLOCKS]; /* as the kernel was told */
};

static void on_stored(struct object_watch *watch, uint64_t block, const uint64_t *sums,
		      uint32_t units)
{
	(void)sums;
	(void)units;
	container_of(watch, struct reader, watch)->cached[block] = true;
}

static char source[128];

static void reader_open(struct reader *reader, const char *dir, const char *name)
{
	char path[64];

	memset(reader, 0, sizeof(*reader));
	snprintf(source, sizeof(source), "%s/", faulty.url);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	reader->object = rig_open(&rig, source, path, 16);
	reader->watch.stored = on_stored;
	assert_int_equal(object_watch(reader->object, &reader->watch), 0);
	/* What it has is told by the block map when the file is opened. */
	for (uint64_t i = 0; i < BLOCKS; i++) {
		uint64_t bit, sum;
		size_t n;

		assert_int_equal(object_map(reader->object, i, 1, &bit, &sum, &n), 0);
		reader->cached[i] = bit;
	}
}

static void reader_close(struct reader *reader)
{
	object_unwatch(reader->object, &reader->watch);
	object_unref(reader->object);
}

/* True: the helper was asked. */
static bool reader_needs(struct reader *reader, uint64_t block, uint32_t process)
{
	const struct order_asked asked = { .block = block, .reader = process, .first = true };
	struct rig_want want;

	if (reader->cached[block])
		return false;
	rig_want(&rig, &want, reader->object, block, 0, 1, FETCH_DEMAND);
	order_needed(core_order(rig.core), reader->object, &asked);
	assert_int_equal(rig_wait(&want), 0);
	assert_memory_equal(want.copy, bytes + block * BLOCK, BLOCK);
	rig_want_free(&want);
	return true;
}

static const char *identity(const struct reader *reader)
{
	return origin_identity(reader->object->origin);
}

/* How many want a block now. */
static unsigned int wants(struct reader *reader, uint64_t nr)
{
	const struct block *block;
	unsigned int n;

	pthread_mutex_lock(&rig.core->lock);
	block = block_find(reader->object, nr);
	n = block ? block->wants : 0;
	pthread_mutex_unlock(&rig.core->lock);
	return n;
}

/* The load ends, and nothing is left of it in the cache. */
static void forget(const char *id)
{
	uint64_t blocks, busy, pinned;

	order_settle(core_order(rig.core), id, "", ORDER_CLOSE);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(store_evict(core_store(rig.core), id, "", &blocks, &busy, &pinned), 0);
	assert_int_equal(busy, 0);
}

/* How often each block of a file was asked of the origin; the order of the first ones. */
static unsigned int asked(const char *dir, const char *name, unsigned int *times, int *order,
			  unsigned int order_size)
{
	json_t *log = faulty_log(&faulty), *entry;
	char path[64];
	unsigned int n = 0;
	size_t i;

	memset(times, 0, BLOCKS * sizeof(*times));
	snprintf(path, sizeof(path), "/%s/%s", dir, name);
	json_array_foreach(log, i, entry) {
		const char *range = json_string_value(json_object_get(entry, "range"));
		unsigned long long from, to;

		if (!range || strcmp(json_string_value(json_object_get(entry, "path")), path) ||
		    sscanf(range, "bytes=%llu-%llu", &from, &to) != 2)
			continue;
		for (uint64_t b = from / BLOCK; b <= to / BLOCK; b++) {
			times[b]++;
			if (n < order_size)
				order[n] = (int)b;
			n++;
		}
	}
	json_decref(log);
	return n;
}

/* A weight, then its scale from another region; every second block of each, none of the rest. */
static uint64_t two_region(unsigned int i)
{
	return i % 2 * 32 + i / 2 * 2;
}

#define NEEDED 32

static uint64_t record_two_region(void)
{
	static struct reader reader;
	uint64_t kept = counter_get(order_profiles);

	reader_open(&reader, "m", names[0]);
	for (unsigned int i = 0; i < NEEDED; i++)
		assert_true(reader_needs(&reader, two_region(i), 7));
	forget(identity(&reader));
	assert_int_equal(counter_get(order_profiles), kept + 1);
	reader_close(&reader);
	return kept;
}

/* The order of one load is that of the next, also after a restart; nothing else is brought. */
static void test_replay(void **state)
{
	uint64_t planned = counter_get(plan_blocks), fetched = counter_get(plan_fetched_blocks);
	uint64_t used = counter_get(plan_used_blocks), wasted = counter_get(plan_wasted_blocks);
	struct order_asked advice = { .advice = true };
	unsigned int times[BLOCKS], n = 0;
	static struct reader reader;
	int order[NEEDED];

	(void)state;
	/* One worker, so that what is begun first is asked for first. */
	rig.config->max_concurrent_fetches = 1;
	rig.config->workers = 1;
	rig_start(&rig);
	record_two_region();
	assert_int_equal(counter_get(plan_blocks), planned);
	rig_stop(&rig);
	faulty_clear(&faulty);
	rig_start(&rig);
	reader_open(&reader, "m", names[0]);
	/* The third that fits is followed by others that nobody has asked for yet. */
	for (unsigned int i = 0; i < 3; i++)
		assert_true(reader_needs(&reader, two_region(i), 9));
	RIG_UNTIL(counter_get(plan_fetched_blocks) - fetched >= 4);
	asked("m", names[0], times, order, NEEDED);
	for (unsigned int i = 0; i < 7; i++)
		assert_int_equal(order[i], (int)two_region(i));
	/* A mark is kept until somebody asks for it, be it as advice. */
	assert_int_equal(wants(&reader, two_region(4)), 1);
	advice.block = two_region(4);
	order_needed(core_order(rig.core), reader.object, &advice);
	for (unsigned int i = 0; i < 2; i++)
		order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	assert_int_equal(wants(&reader, two_region(4)), 0);
	assert_int_equal(wants(&reader, two_region(5)), 1);
	for (unsigned int i = 3; i < NEEDED; i++)
		n += reader_needs(&reader, two_region(i), 9);
	/* Some, the marks, were asked for, so that the window moved. */
	assert_true(n > 0);
	forget(identity(&reader));
	assert_int_equal(asked("m", names[0], times, order, NEEDED), NEEDED);
	for (unsigned int i = 0; i < NEEDED; i++)
		assert_int_equal(times[two_region(i)], 1);
	assert_true(counter_get(plan_fetched_blocks) - fetched >= 8);
	assert_int_equal(counter_get(plan_fetched_blocks) - fetched,
			 counter_get(plan_blocks) - planned);
	assert_int_equal(counter_get(plan_used_blocks) - used, counter_get(plan_blocks) - planned);
	assert_int_equal(counter_get(plan_wasted_blocks), wasted);
	reader_close(&reader);
}

/* Streams are followed one by one: what the other process needs is left to it. */
static void test_ranks(void **state)
{
	uint64_t fetched = counter_get(plan_fetched_blocks);
	unsigned int times[BLOCKS];
	struct profile *profile;
	static struct reader reader;

	(void)state;
	rig_start(&rig);
	reader_open(&reader, "m", names[0]);
	for (uint64_t i = 0; i < 30; i++) {
		reader_needs(&reader, i, 1);
		reader_needs(&reader, 32 + i, 2);
	}
	forget(identity(&reader));
	assert_int_equal(profile_file_read(core_store(rig.core), identity(&reader), "m", &profile),
			 0);
	assert_int_equal(profile->stream_count, 2);
	assert_int_equal(profile->streams[0].count, 30);
	assert_int_equal(profile->streams[1].places[3], profile_place(0, 35));
	profile_free(profile);
	faulty_clear(&faulty);
	memset((void *)reader.cached, 0, sizeof(reader.cached));
	for (uint64_t i = 0; i < 30; i++) {
		reader_needs(&reader, 32 + i, 5);
		if (i == 3)
			RIG_UNTIL(counter_get(plan_fetched_blocks) - fetched >= 2);
	}
	forget(identity(&reader));
	assert_int_equal(asked("m", names[0], times, NULL, 0), 30);
	for (uint64_t i = 0; i < 30; i++)
		assert_int_equal(times[i], 0);
	reader_close(&reader);
}

/* Who goes elsewhere is not followed for long, and what is queued is not asked for. */
static void test_departed(void **state)
{
	uint64_t dropped, planned;
	unsigned int times[BLOCKS];
	static struct reader reader;
	unsigned int n;

	(void)state;
	rig_start(&rig);
	record_two_region();
	dropped = counter_get(plans_dropped);
	planned = counter_get(plan_blocks);
	faulty_clear(&faulty);
	reader_open(&reader, "m", names[0]);
	for (unsigned int i = 0; i < 4; i++)
		reader_needs(&reader, two_region(i), 9);
	/* Blocks that no load needed before. */
	for (uint64_t i = 0; i < 24; i++)
		reader_needs(&reader, 2 * i + 1, 9);
	RIG_UNTIL(counter_get(plans_dropped) > dropped);
	n = (unsigned int)(counter_get(plan_blocks) - planned);
	forget(identity(&reader));
	/* No more than a window of what was recorded. */
	assert_in_range(n, 1, 8);
	assert_in_range(asked("m", names[0], times, NULL, 0), 28, 28 + n);
	reader_close(&reader);
}

/* With no room that would be free, nothing is brought ahead. */
static void test_full(void **state)
{
	uint64_t planned;
	static struct reader reader;

	(void)state;
	rig_start(&rig);
	record_two_region();
	rig_stop(&rig);
	/* Less than a block may be there before eviction is due. */
	rig.config->capacity.bytes = 64 * BLOCK;
	rig.config->high = 1;
	rig.config->low = 0.5;
	rig_start(&rig);
	planned = counter_get(plan_blocks);
	reader_open(&reader, "m", names[0]);
	for (unsigned int i = 0; i < 12; i++)
		reader_needs(&reader, two_region(i), 9);
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	assert_int_equal(counter_get(plan_blocks), planned);
	reader_close(&reader);
}

/* ---- the next shard ---- */

static unsigned int any_asked(const char *dir, const char *name)
{
	unsigned int times[BLOCKS];

	return asked(dir, name, times, NULL, 0);
}

static void test_next_shard(void **state)
{
	uint64_t begun = counter_get(next_shards), fetched = counter_get(plan_fetched_blocks);
	static struct reader reader, next;

	(void)state;
	rig_start(&rig);
	reader_open(&reader, "m", names[0]);
	for (uint64_t i = 0; i < 55; i++)
		reader_needs(&reader, i, 1);
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	assert_int_equal(counter_get(next_shards), begun);
	assert_int_equal(any_asked("m", names[1]), 0);
	reader_needs(&reader, 55, 1);
	RIG_UNTIL(counter_get(next_shards) == begun + 1);
	RIG_UNTIL(counter_get(plan_fetched_blocks) - fetched >= 4);
	/* So much and no more, until somebody reads it. */
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	assert_int_equal(any_asked("m", names[1]), 4);
	assert_int_equal(any_asked("m", names[2]), 0);
	reader_open(&next, "m", names[1]);
	for (uint64_t i = 0; i < BLOCKS; i++)
		reader_needs(&next, i, 1);
	RIG_UNTIL(counter_get(next_shards) == begun + 2);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(any_asked("m", names[1]), BLOCKS);
	assert_int_equal(any_asked("m", names[3]), 0);
	reader_close(&next);
	reader_close(&reader);
}

/* One that was read here and there says nothing; a whole one says little of files like it. */
static void test_no_next(void **state)
{
	uint64_t begun = counter_get(next_shards);
	static struct reader reader;

	(void)state;
	rig_start(&rig);
	reader_open(&reader, "m", names[0]);
	for (uint64_t i = 0; i < BLOCKS; i++)
		reader_needs(&reader, i * 37 % BLOCKS, 1);
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_DISCARD);
	assert_int_equal(counter_get(next_shards), begun);
	reader_close(&reader);
	reader_open(&reader, "e", "expert0.x");
	reader_needs(&reader, 0, 1);
	reader_close(&reader);
	reader_open(&reader, "e", "expert1.x");
	for (uint64_t i = 0; i < BLOCKS; i++)
		reader_needs(&reader, i, 1);
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	assert_int_equal(counter_get(next_shards), begun);
	reader_close(&reader);
	/* Two in a row do. */
	reader_open(&reader, "e", "expert2.x");
	for (uint64_t i = 0; i < BLOCKS; i++)
		reader_needs(&reader, i, 1);
	RIG_UNTIL(counter_get(next_shards) == begun + 1);
	RIG_UNTIL(any_asked("e", "expert3.x") > 0);
	assert_int_equal(any_asked("e", "expert0.x"), 1);
	reader_close(&reader);
}

/* ---- an origin that does not answer ---- */

/* Nothing is given up while the test runs: what waits for an answer to come waits too long. */
static void setup_patient(void)
{
	rig.config->stall_timeout_ms = 10000;
	rig.config->retry_budget_ms = 10000;
	rig_start(&rig);
}

/* Commands do not wait for an answer about the next file, and it is asked for again. */
static void test_hanging_file(void **state)
{
	static const char *const path = "/m/m-00002-of-00004.x";
	static struct reader reader, next;
	uint64_t given_up;

	(void)state;
	setup_patient();
	reader_open(&reader, "m", names[0]);
	reader_open(&next, "m", names[1]);
	for (uint64_t i = 0; i < 5; i++)
		reader_needs(&reader, i, 1);
	for (uint64_t i = 0; i < 8; i++)
		reader_needs(&next, i, 1);
	reader_close(&next);
	forget(identity(&reader));
	memset((void *)reader.cached, 0, sizeof(reader.cached));
	faulty_clear(&faulty);
	faulty_fault(&faulty, "{\"path\": \"/m/m-00002-of-00004.x\", \"kind\": \"mute\"}");
	/* What is fetched ahead meanwhile comes when the sync below waits for it already. */
	faulty_fault(&faulty, "{\"path\": \"/m/m-00001-of-00004.x\", \"method\": \"GET\","
			      " \"kind\": \"delay\", \"seconds\": 1, \"from\": 196608}");
	given_up = counter_get(retries);
	for (uint64_t i = 0; i < 3; i++)
		reader_needs(&reader, i, 1);
	RIG_UNTIL(faulty_count(&faulty, "HEAD", path) == 1);
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	RIG_UNTIL(faulty_count(&faulty, "HEAD", path) == 2);
	assert_int_equal(wants(&reader, 3), 1);
	assert_int_equal(core_sync(rig.core, 10000), 0);
	RIG_UNTIL(faulty_count(&faulty, "HEAD", path) == 3);
	assert_int_equal(counter_get(retries), given_up);
	faulty_clear(&faulty);
	RIG_UNTIL(any_asked("m", names[1]) > 0);
	forget(identity(&reader));
	reader_close(&reader);
}

/* Nor for a listing. */
static void test_hanging_listing(void **state)
{
	uint64_t begun = counter_get(next_shards), given_up = counter_get(retries);
	static struct reader reader;
	char name[16];

	(void)state;
	setup_patient();
	faulty_fault(&faulty, "{\"path\": \"/e/\", \"method\": \"GET\", \"kind\": \"mute\"}");
	for (unsigned int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "expert%u.x", i);
		reader_open(&reader, "e", name);
		for (uint64_t j = 0; j < BLOCKS; j++)
			reader_needs(&reader, j, 1);
		if (i)
			break;
		RIG_UNTIL(faulty_count(&faulty, "GET", "/e/") == 1);
		order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
		RIG_UNTIL(faulty_count(&faulty, "GET", "/e/") == 2);
		reader_close(&reader);
	}
	order_settle(core_order(rig.core), identity(&reader), "", ORDER_KEEP);
	RIG_UNTIL(faulty_count(&faulty, "GET", "/e/") == 3);
	assert_int_equal(counter_get(next_shards), begun);
	assert_int_equal(counter_get(retries), given_up);
	faulty_clear(&faulty);
	RIG_UNTIL(counter_get(next_shards) == begun + 1);
	RIG_UNTIL(any_asked("e", "expert2.x") > 0);
	forget(identity(&reader));
	reader_close(&reader);
}

/* ---- urgency ---- */

/* As the kernel does: a want of its own for a block that is queued for somebody less urgent. */
static void test_joined_is_promoted(void **state)
{
	struct rig_want wants[6];
	unsigned int times[BLOCKS];
	static struct reader reader;
	int order[8];

	(void)state;
	rig.config->max_concurrent_fetches = 1;
	rig.config->workers = 1;
	rig.config->stall_timeout_ms = 10000;
	rig_start(&rig);
	reader_open(&reader, "m", names[3]);
	faulty_fault(
		&faulty,
		"{\"path\": \"/m/m-00004-of-00004.x\", \"method\": \"GET\", \"kind\": \"delay\", \"seconds\": 0.5, \"times\": 1}");
	rig_want(&rig, &wants[0], reader.object, 40, 0, 1, FETCH_DEMAND);
	RIG_UNTIL(counter_get(active_fetches));
	rig_want(&rig, &wants[1], reader.object, 0, 0, 1, FETCH_PREFETCH);
	rig_want(&rig, &wants[2], reader.object, 10, 0, 1, FETCH_PREFETCH);
	rig_want(&rig, &wants[3], reader.object, 20, 0, 1, FETCH_READAHEAD);
	rig_want(&rig, &wants[4], reader.object, 30, 0, 1, FETCH_PREFETCH);
	RIG_UNTIL(counter_get(queued_blocks) == 4);
	rig_want(&rig, &wants[5], reader.object, 10, 0, 1, FETCH_DEMAND);
	/* Nobody wants this one any more. */
	assert_true(fetch_cancel(&wants[4].want));
	assert_int_equal(counter_get(queued_blocks), 3);
	assert_false(fetch_cancel(&wants[0].want));
	rig_want_free(&wants[4]);
	for (size_t i = 0; i < 6; i++) {
		if (i == 4)
			continue;
		assert_int_equal(rig_wait(&wants[i]), 0);
		rig_want_free(&wants[i]);
	}
	asked("m", names[3], times, order, 8);
	assert_int_equal(times[30], 0);
	assert_int_equal(times[10], 1);
	assert_int_equal(order[0], 40);
	assert_int_equal(order[1], 10);
	assert_int_equal(order[2], 20);
	assert_int_equal(order[3], 0);
	reader_close(&reader);
}

/* All that has not begun can be taken back, and is not asked for. */
static void test_taken_back(void **state)
{
	static struct rig_want wants[BLOCKS];
	static struct reader reader;
	unsigned int times[BLOCKS];
	bool gone[BLOCKS];

	(void)state;
	rig.config->connections_per_host = 1;
	rig_start(&rig);
	reader_open(&reader, "m", names[2]);
	faulty_fault(
		&faulty,
		"{\"path\": \"/m/m-00003-of-00004.x\", \"method\": \"GET\", \"kind\": \"delay\", \"seconds\": 0.5, \"times\": 1}");
	rig_want(&rig, &wants[0], reader.object, 0, 0, 1, FETCH_PREFETCH);
	RIG_UNTIL(counter_get(active_fetches));
	for (uint64_t i = 1; i < BLOCKS; i++)
		rig_want(&rig, &wants[i], reader.object, i, 0, 1, FETCH_PREFETCH);
	for (uint64_t i = 0; i < BLOCKS; i++)
		gone[i] = fetch_cancel(&wants[i].want);
	for (uint64_t i = 0; i < BLOCKS; i++) {
		if (!gone[i])
			assert_int_equal(rig_wait(&wants[i]), 0);
		rig_want_free(&wants[i]);
	}
	RIG_UNTIL(!counter_get(queued_blocks));
	RIG_UNTIL(!counter_get(active_fetches));
	asked("m", names[2], times, NULL, 0);
	for (uint64_t i = 0; i < BLOCKS; i++)
		assert_int_equal(times[i], gone[i] ? 0 : 1);
	assert_false(gone[0]);
	assert_true(gone[BLOCKS - 1]);
	reader_close(&reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_replay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ranks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_departed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_next_shard, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_next, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hanging_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hanging_listing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_joined_is_promoted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_taken_back, setup, teardown),
	};

	return cmocka_run_group_tests_name("order", tests, group_setup, group_teardown);
}
