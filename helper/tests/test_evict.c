// SPDX-License-Identifier: MIT
/* What is evicted, and what is not: references, scans, pins, quotas, sources nobody mounts. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "container.h"
#include "counters.h"
#include "rig.h"
#include "store.h"

#define MIB (1u << 20)

static struct rig rig;
static struct rig_source files;
static char sources[2][192];
static char msg[512];

static int group_setup(void **state)
{
	(void)state;
	rig_source_create(&files);
	for (unsigned int i = 0; i < 2; i++)
		snprintf(sources[i], sizeof(sources[i]), "%s/%u", files.url, i);
	rig_source_file(&files, "0/hot", 3 * MIB, 1);
	rig_source_file(&files, "0/scan1", 12 * MIB, 2);
	rig_source_file(&files, "0/scan2", 12 * MIB, 3);
	rig_source_file(&files, "0/scan3", 12 * MIB, 4);
	rig_source_file(&files, "1/other", 6 * MIB, 5);
	rig_source_file(&files, "1/more", 6 * MIB, 6);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	return rig_source_remove(&files);
}

static int setup(void **state)
{
	(void)state;
	rig_create(&rig);
	rig.config->capacity.bytes = 16 * MIB;
	return 0;
}

static void meter_stop(void);

static int teardown(void **state)
{
	(void)state;
	meter_stop();
	rig_destroy(&rig);
	return 0;
}

static void fetch(unsigned int source, const char *name)
{
	struct object *object = rig_open(&rig, sources[source], name, 20);

	object_opened(object);
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	object_unref(object);
}

/* Time stamps from now on are later than those before. */
static void next_second(void)
{
	for (time_t now = time(NULL); time(NULL) <= now;)
		rig_pause();
}

static unsigned int cached(unsigned int source, const char *name)
{
	return rig_cached(&rig, sources[source], name, 20);
}

static uint64_t used(void)
{
	return rig_dir(&rig, 0).used;
}

static struct origin *origin_of(unsigned int source)
{
	struct origin *origin;

	assert_int_equal(core_origin(rig.core, sources[source], NULL, &origin, msg, sizeof(msg)),
			 0);
	return origin;
}

/* The kernel: says for some blocks that they were read since it was last asked. */
struct reader {
	struct object_watch watch;
	_Atomic unsigned int cold_asked, spared, granted;
	_Atomic bool reads;
};

static int reader_evict(struct object_watch *watch, uint64_t block, bool cold)
{
	struct reader *reader = container_of(watch, struct reader, watch);

	(void)block;
	reader->cold_asked += cold;
	if (cold && reader->reads) {
		reader->spared++;
		return -EAGAIN;
	}
	reader->granted++;
	return 0;
}

static void reader_evicted(struct object_watch *watch, uint64_t block)
{
	(void)watch;
	(void)block;
}

/* The most that the data files take on the disk, looked at all the time. */
struct meter {
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	uint64_t most;
	unsigned int looks;
};

/* Not a test's own: one that fails leaves at once, and its thread goes on. */
static struct meter meter;

static void *meter_run(void *arg)
{
	(void)arg;
	while (!meter.stop) {
		uint64_t taken;

		if (!rig_data_files(&rig, &taken))
			continue;
		if (taken > meter.most)
			meter.most = taken;
		meter.looks++;
	}
	return NULL;
}

static void meter_start(void)
{
	meter = (struct meter){ .running = true };
	assert_int_equal(pthread_create(&meter.thread, NULL, meter_run, NULL), 0);
}

static void meter_stop(void)
{
	if (!meter.running)
		return;
	meter.stop = true;
	pthread_join(meter.thread, NULL);
	meter.running = false;
}

/*
 * The stated slack: 4 KiB for each object, here five, and as much for what the filesystem
 * needs to say where the blocks of each are.
 */
#define SLACK (5 * 2 * 4096)

/* What the kernel reads again and again outlasts scans of several times the capacity. */
static void test_scan(void **state)
{
	struct reader hot = { .watch = { .evict = reader_evict, .evicted = reader_evicted } };
	struct object *object;

	(void)state;
	rig_start(&rig);
	meter_start();
	object = rig_open(&rig, sources[0], "hot", 20);
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(object_watch(object, &hot.watch), 0);
	hot.reads = true;
	for (unsigned int round = 0; round < 2; round++) {
		fetch(0, "scan1");
		fetch(0, "scan2");
		fetch(0, "scan3");
	}
	assert_int_equal(rig_cached_of(object), 3);
	assert_true(hot.spared >= 3);
	/* Not read any more it goes, though it was proven. */
	hot.reads = false;
	fetch(1, "other");
	fetch(1, "more");
	for (unsigned int round = 0; rig_cached_of(object) && round < 8; round++) {
		fetch(0, round % 2 ? "scan1" : "scan2");
		fetch(1, "other");
		fetch(1, "more");
	}
	object_unwatch(object, &hot.watch);
	object_unref(object);
	meter_stop();
	print_message("# at most %llu bytes over the capacity, seen in %u looks\n",
		      (unsigned long long)(meter.most > 16 * MIB ? meter.most - 16 * MIB : 0),
		      meter.looks);
	assert_true(meter.looks > 10);
	assert_true(meter.most <= 16 * MIB + SLACK);
}

/* What is opened again later outlives a scan. */
static void test_opened_again(void **state)
{
	(void)state;
	rig_start(&rig);
	fetch(0, "hot");
	next_second();
	fetch(0, "hot");
	fetch(0, "scan1");
	fetch(0, "scan2");
	assert_int_equal(cached(0, "hot"), 3);
	rig_stop(&rig);
	/* Proven is proven after a restart. */
	rig_start(&rig);
	fetch(0, "scan3");
	assert_int_equal(cached(0, "hot"), 3);
}

/* A read by the helper itself counts like one by the kernel. */
static void test_read_again(void **state)
{
	struct object *object;

	(void)state;
	rig_start(&rig);
	object = rig_open(&rig, sources[0], "hot", 20);
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	rig_read(&rig, object);
	fetch(0, "scan1");
	fetch(0, "scan2");
	assert_int_equal(rig_cached_of(object), 3);
	object_unref(object);
}

/* Blocks that all are read all the time do not keep eviction from ending. */
static void test_all_hot(void **state)
{
	struct reader hot = { .watch = { .evict = reader_evict, .evicted = reader_evicted } };
	struct object *object;
	uint64_t evicted = counter_get(blocks_evicted);

	(void)state;
	rig_start(&rig);
	object = rig_open(&rig, sources[0], "scan1", 20);
	assert_int_equal(object_watch(object, &hot.watch), 0);
	hot.reads = true;
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	fetch(1, "other");
	fetch(1, "more");
	assert_true(counter_get(blocks_evicted) > evicted);
	assert_true(used() <= 16 * MIB);
	object_unwatch(object, &hot.watch);
	object_unref(object);
}

/* A reader that keeps what it was given. */
struct keeper {
	struct fetch_want want;
	_Atomic bool done;
};

static void keeper_data(struct fetch_want *want, uint32_t unit, uint32_t units, const void *bytes,
			uint32_t len)
{
	(void)want;
	(void)unit;
	(void)units;
	(void)bytes;
	(void)len;
}

static void keeper_done(struct fetch_want *want, int error, const char *message)
{
	(void)message;
	assert_int_equal(error, 0);
	container_of(want, struct keeper, want)->done = true;
}

static void keeper_start(struct keeper *keeper, struct object *object, uint64_t block)
{
	keeper->want = rig_want_of(object, block, 0, object_units(object, block), FETCH_DEMAND);
	keeper->want.data = keeper_data;
	keeper->want.done = keeper_done;
	assert_int_equal(fetch_start(rig.core, &keeper->want), 0);
}

/* The kernel, which never lets a block go. */
static int refuser_evict(struct object_watch *watch, uint64_t block, bool cold)
{
	(void)block;
	(void)cold;
	container_of(watch, struct reader, watch)->cold_asked++;
	return -EBUSY;
}

/* All that could go is in buffers for a moment: what comes in waits for it, and is kept. */
static void test_in_buffers(void **state)
{
	struct reader refuser = { .watch = { .evict = refuser_evict } };
	struct keeper keepers[12] = { 0 };
	struct object *hot, *scan, *other;
	uint64_t blocks, busy, pinned, stored, dropped = counter_get(blocks_dropped);
	struct rig_want want;
	struct origin *origin;

	(void)state;
	rig.config->capacity.bytes = 15 * MIB + MIB / 2;
	rig.config->high = 100;
	rig.config->low = 90;
	rig_start(&rig);
	hot = rig_open(&rig, sources[0], "hot", 20);
	rig_read(&rig, hot);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(object_watch(hot, &refuser.watch), 0);
	stored = counter_get(blocks_stored);
	scan = rig_open(&rig, sources[0], "scan1", 20);
	for (unsigned int i = 0; i < 12; i++)
		keeper_start(&keepers[i], scan, i);
	RIG_UNTIL(counter_get(blocks_stored) == stored + 12);
	other = rig_open(&rig, sources[1], "other", 20);
	rig_want(&rig, &want, other, 0, 0, 16, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	rig_want_free(&want);
	/* Eviction has looked at everything, and that round has ended. */
	RIG_UNTIL(refuser.cold_asked >= 3);
	origin = origin_of(0);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "nothing",
				     &blocks, &busy, &pinned),
			 0);
	origin_unref(origin);
	for (unsigned int i = 0; i < 12; i++) {
		assert_true(keepers[i].done);
		fetch_release(&keepers[i].want);
	}
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(counter_get(blocks_dropped), dropped);
	assert_int_equal(rig_cached_of(hot), 3);
	assert_int_equal(rig_cached_of(other), 1);
	assert_true(rig_cached_of(scan) < 12);
	object_unwatch(hot, &refuser.watch);
	object_unref(hot);
	object_unref(scan);
	object_unref(other);
}

static void test_pin(void **state)
{
	struct origin *origin;
	uint64_t blocks, busy, pinned;

	(void)state;
	rig_start(&rig);
	origin = origin_of(1);
	assert_int_equal(store_unpin(core_store(rig.core), origin_identity(origin), "other"),
			 -ENOENT);
	assert_int_equal(store_pin(core_store(rig.core), origin_identity(origin), "other"), 0);
	fetch(1, "other");
	fetch(1, "more");
	fetch(0, "scan1");
	fetch(0, "scan2");
	assert_int_equal(cached(1, "other"), 6);
	assert_int_equal(cached(1, "more"), 0);
	origin_unref(origin);
	rig_stop(&rig);
	/* It lasts. */
	rig_start(&rig);
	fetch(0, "scan3");
	assert_int_equal(cached(1, "other"), 6);
	origin = origin_of(1);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "", &blocks,
				     &busy, &pinned),
			 0);
	assert_int_equal(pinned, 6);
	assert_int_equal(cached(1, "other"), 6);
	assert_int_equal(store_unpin(core_store(rig.core), origin_identity(origin), "other"), 0);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "", &blocks,
				     &busy, &pinned),
			 0);
	assert_int_equal(pinned, 0);
	assert_int_equal(cached(1, "other"), 0);
	origin_unref(origin);
}

/* All of it is pinned: what does not fit is served and not kept. */
static void test_pinned_full(void **state)
{
	struct origin *origin;
	uint64_t dropped = counter_get(blocks_dropped);

	(void)state;
	rig_start(&rig);
	origin = origin_of(0);
	assert_int_equal(store_pin(core_store(rig.core), origin_identity(origin), ""), 0);
	fetch(0, "scan1");
	fetch(0, "hot");
	fetch(0, "scan2");
	assert_int_equal(cached(0, "scan1"), 12);
	assert_int_equal(cached(0, "hot"), 3);
	assert_true(counter_get(blocks_dropped) > dropped);
	assert_true(used() <= 16 * MIB);
	origin_unref(origin);
}

static void test_quota(void **state)
{
	char section[256];
	uint64_t room;

	(void)state;
	snprintf(section, sizeof(section), "source %s", sources[0]);
	assert_int_equal(config_set(rig.config, section, "quota", "4M", msg, sizeof(msg)), 0);
	rig_start(&rig);
	fetch(1, "other");
	fetch(0, "scan1");
	room = used();
	assert_true(room <= 10 * MIB);
	assert_true(room > 6 * MIB);
	assert_int_equal(cached(1, "other"), 6);
	fetch(0, "scan2");
	assert_true(used() <= 10 * MIB);
	rig_stop(&rig);
	/* What it had before counts after a restart, before anything of it is opened. */
	rig_start(&rig);
	fetch(0, "scan3");
	assert_true(used() <= 10 * MIB);
	assert_int_equal(cached(1, "other"), 6);
	rig_stop(&rig);
	/* A smaller one is kept to as soon as it is said. */
	assert_int_equal(config_set(rig.config, section, "quota", "2M", msg, sizeof(msg)), 0);
	rig_start(&rig);
	fetch(0, "hot");
	assert_true(used() <= 8 * MIB);
}

/* What was mounted and is no more goes before what is older and still mounted. */
static void test_left(void **state)
{
	struct origin *mounted, *left;

	(void)state;
	rig.config->low = 100;
	rig.config->high = 100;
	rig_start(&rig);
	mounted = origin_of(0);
	left = origin_of(1);
	core_mounted(rig.core, mounted, 1);
	core_mounted(rig.core, left, 1);
	fetch(0, "hot");
	fetch(1, "other");
	fetch(1, "more");
	core_mounted(rig.core, left, 0);
	fetch(0, "scan1");
	assert_int_equal(cached(0, "hot"), 3);
	assert_int_equal(cached(0, "scan1"), 12);
	assert_true(cached(1, "other") + cached(1, "more") <= 1);
	core_mounted(rig.core, mounted, 0);
	origin_unref(mounted);
	origin_unref(left);
}

/* Opened again after the last unmount: somebody has plans for it. */
static void test_left_and_fetched(void **state)
{
	struct origin *left;

	(void)state;
	rig_start(&rig);
	left = origin_of(1);
	core_mounted(rig.core, left, 1);
	core_mounted(rig.core, left, 0);
	origin_unref(left);
	next_second();
	fetch(0, "hot");
	fetch(1, "other");
	fetch(0, "scan1");
	/* In the order in which they came. */
	assert_int_equal(cached(0, "hot"), 0);
	assert_true(cached(1, "other") > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_scan),       TEST(test_opened_again),
		TEST(test_read_again), TEST(test_all_hot),
		TEST(test_in_buffers), TEST(test_pin),
		TEST(test_quota),      TEST(test_pinned_full),
		TEST(test_left),       TEST(test_left_and_fetched),
	};

	log_setup(LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
