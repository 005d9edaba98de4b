// SPDX-License-Identifier: MIT
/* What is told of a block that is whole: stored with its sums, or offered and dropped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>

#include "container.h"
#include "counters.h"
#include "rig_faulty.h"

#define MIB  (1u << 20)
#define SIZE (11 * MIB + 12345)

static int group_setup(void **state)
{
	(void)state;
	return rig_faulty_group(SIZE);
}

struct watcher {
	struct object_watch watch;
	_Atomic int stored, dropped, offered;
	_Atomic uint64_t offered_bytes;
	uint64_t sum;
};

static void watch_stored(struct object_watch *watch, uint64_t block, const uint64_t *sums,
			 uint32_t units)
{
	struct watcher *w = container_of(watch, struct watcher, watch);

	if (!block)
		w->sum = sums[0];
	assert_true(units > 0);
	w->stored++;
}

static void watch_dropped(struct object_watch *watch, uint64_t block)
{
	(void)block;
	container_of(watch, struct watcher, watch)->dropped++;
}

static void watch_offer(struct object_watch *watch, uint64_t block, uint64_t offset,
			const void *data, uint32_t len)
{
	struct watcher *w = container_of(watch, struct watcher, watch);

	assert_memory_equal(data, bytes + (block << 22) + offset, len);
	assert_int_equal(w->dropped, (int)block);
	w->offered_bytes += len;
}

static void test_watch_stored(void **state)
{
	struct watcher w = { .watch = { .stored = watch_stored, .dropped = watch_dropped } };
	uint64_t bitmap, sums[256];
	struct object *object;
	size_t n;

	(void)state;
	rig_start(&rig);
	object = rig_open(&rig, faulty.url, "f", 22);
	assert_true(object_fd(object) >= 0);
	assert_int_equal(object_map(object, 0, 3, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 0);
	assert_int_equal(object_watch(object, &w.watch), 0);
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	object_unwatch(object, &w.watch);
	assert_int_equal(w.stored, 3);
	assert_int_equal(w.dropped, 0);
	assert_true(w.sum == XXH64(bytes, 65536, 0));
	assert_int_equal(object_map(object, 0, 3, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 7);
	assert_int_equal(n, (SIZE + 65535) / 65536);
	assert_true(sums[0] == w.sum);
	assert_true(sums[n - 1] == XXH64(bytes + (n - 1) * 65536, SIZE - (n - 1) * 65536, 0));
	object_unref(object);
}

/* Without a proof of the version nothing is kept; the kernel is offered the rest. */
static void test_weak(void **state)
{
	struct watcher w = {
		.watch = { .stored = watch_stored, .dropped = watch_dropped, .offer = watch_offer }
	};
	struct rig_want want;
	struct object *object;

	(void)state;
	faulty_put(&faulty, "/w?etag=none&modified=none", bytes, SIZE);
	rig_start(&rig);
	object = rig_open(&rig, faulty.url, "w", 22);
	assert_int_equal(object_fd(object), -1);
	assert_int_equal(object_watch(object, &w.watch), 0);
	rig_want(&rig, &want, object, 0, 3, 2, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	assert_memory_equal(want.copy, bytes + 3 * 65536, 2 * 65536);
	RIG_UNTIL(w.dropped == 1);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(w.offered_bytes, 4 * MIB);
	assert_int_equal(w.stored, 0);
	object_unwatch(object, &w.watch);
	rig_want_free(&want);
	object_unref(object);
}

struct follower {
	struct object_watch watch;
	struct object *object;
	struct rig_want want;
	_Atomic unsigned int offers, dropped;
};

/* The kernel takes the beginning; its reader has begun to wait for the end meanwhile. */
static void follower_offer(struct object_watch *watch, uint64_t block, uint64_t offset,
			   const void *data, uint32_t len)
{
	struct follower *follower = container_of(watch, struct follower, watch);

	(void)data;
	(void)len;
	if (!offset && !follower->offers++)
		rig_want(&rig, &follower->want, follower->object, block, 60, 2, FETCH_DEMAND);
}

static void follower_dropped(struct object_watch *watch, uint64_t block)
{
	struct follower *follower = container_of(watch, struct follower, watch);

	assert_int_equal(block, 0);
	assert_int_equal(follower->want.done, 1);
	follower->dropped++;
}

/* A block that is not kept is fetched once for a reader who is faster than the offer. */
static void test_offered_late(void **state)
{
	struct follower follower = {
		.watch = { .offer = follower_offer, .dropped = follower_dropped },
	};
	uint64_t fetched = counter_get(origin_bytes);
	struct rig_want want;

	(void)state;
	faulty_put(&faulty, "/w?etag=none&modified=none", bytes, SIZE);
	rig_start(&rig);
	follower.object = rig_open(&rig, faulty.url, "w", 22);
	assert_int_equal(object_watch(follower.object, &follower.watch), 0);
	rig_want(&rig, &want, follower.object, 0, 0, 2, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	RIG_UNTIL(follower.offers);
	assert_int_equal(rig_wait(&follower.want), 0);
	assert_memory_equal(follower.want.copy, bytes + 60 * 65536, 2 * 65536);
	RIG_UNTIL(follower.dropped == 1);
	assert_int_equal(counter_get(origin_bytes) - fetched, 4 * MIB);
	assert_int_equal(follower.offers, 2);
	object_unwatch(follower.object, &follower.watch);
	rig_want_free(&want);
	rig_want_free(&follower.want);
	object_unref(follower.object);
}

struct latecomer {
	struct object_watch watch;
	_Atomic uint64_t offered_ns; /* when all of the last block had been */
	_Atomic unsigned int dropped;
};

static void latecomer_offer(struct object_watch *watch, uint64_t block, uint64_t offset,
			    const void *data, uint32_t len)
{
	struct latecomer *latecomer = container_of(watch, struct latecomer, watch);

	(void)block;
	(void)data;
	if (offset + len == MIB)
		latecomer->offered_ns = counter_now();
}

static void latecomer_dropped(struct object_watch *watch, uint64_t block)
{
	(void)block;
	container_of(watch, struct latecomer, watch)->dropped++;
}

/*
 * A request that was on its way while the last of a block was offered. Asked too late, which
 * happens where there is much else to do, it proves nothing: again, with another block.
 */
static void test_asked_late(void **state)
{
	struct latecomer latecomer = {
		.watch = { .offer = latecomer_offer, .dropped = latecomer_dropped },
	};
	uint64_t fetched = 0, took = UINT64_MAX;
	struct rig_want want;
	struct object *object;

	(void)state;
	faulty_put(&faulty, "/w?etag=none&modified=none", bytes, SIZE);
	rig_start(&rig);
	object = rig_open(&rig, faulty.url, "w", 20);
	assert_int_equal(object_watch(object, &latecomer.watch), 0);
	for (uint64_t block = 0; block < 10 && took > 50000000; block++) {
		fetched = counter_get(origin_bytes);
		latecomer.offered_ns = 0;
		rig_want(&rig, &want, object, block, 0, 2, FETCH_DEMAND);
		assert_int_equal(rig_wait(&want), 0);
		rig_want_free(&want);
		RIG_UNTIL(latecomer.offered_ns);
		rig_want(&rig, &want, object, block, 14, 2, FETCH_DEMAND);
		took = counter_now() - latecomer.offered_ns;
		assert_int_equal(rig_wait(&want), 0);
		assert_memory_equal(want.copy, bytes + block * MIB + 14 * 65536, 2 * 65536);
		rig_want_free(&want);
		assert_int_equal(core_sync(rig.core, 30000), 0);
	}
	assert_in_range(took, 0, 50000000);
	assert_int_equal(counter_get(origin_bytes) - fetched, MIB);
	object_unwatch(object, &latecomer.watch);
	object_unref(object);
}

/* Who opens it anew is given nothing that was fetched before. */
static void test_opened_late(void **state)
{
	struct latecomer latecomer = {
		.watch = { .offer = latecomer_offer, .dropped = latecomer_dropped },
	};
	uint64_t fetched = counter_get(origin_bytes);
	struct rig_want want;
	struct object *object;

	(void)state;
	faulty_put(&faulty, "/w?etag=none&modified=none", bytes, SIZE);
	rig_start(&rig);
	object = rig_open(&rig, faulty.url, "w", 20);
	assert_int_equal(object_watch(object, &latecomer.watch), 0);
	rig_want(&rig, &want, object, 0, 0, 2, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	rig_want_free(&want);
	RIG_UNTIL(latecomer.offered_ns);
	object_opened(object);
	rig_want(&rig, &want, object, 0, 0, 2, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	rig_want_free(&want);
	RIG_UNTIL(latecomer.dropped == 2);
	assert_int_equal(counter_get(origin_bytes) - fetched, 2 * MIB);
	object_unwatch(object, &latecomer.watch);
	object_unref(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_faulty_create, rig_faulty_end)
		TEST(test_watch_stored), TEST(test_weak),	 TEST(test_offered_late),
		TEST(test_asked_late),	 TEST(test_opened_late),
	};

	return cmocka_run_group_tests(tests, group_setup, rig_faulty_group_end);
}
