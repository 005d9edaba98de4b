// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "container.h"
#include "counters.h"
#include "events.h"
#include "rig.h"
#include "store.h"
#include "store_index.h"

#define MIB (1u << 20)

static struct rig rig;
static struct rig_source files;
static const char *const source = files.url;
static char msg[512];

static int group_setup(void **state)
{
	(void)state;
	rig_source_create(&files);
	rig_source_file(&files, "a", 20 * MIB + 5, 1);
	rig_source_file(&files, "b", 20 * MIB, 2);
	rig_source_file(&files, "c", 3 * MIB + 1, 3);
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
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_destroy(&rig);
	return 0;
}

static uint64_t used(void)
{
	uint64_t bytes;

	rig_data_files(&rig, &bytes);
	return bytes;
}

static size_t data_files(void)
{
	return rig_data_files(&rig, NULL);
}

/* Fetches an object and returns the hash of its bytes. */
static uint64_t fetch(const char *name, uint32_t shift)
{
	return rig_fetch(&rig, source, name, shift);
}

static void test_restart(void **state)
{
	struct store_dir_info info;
	uint64_t hash, from_origin;

	(void)state;
	rig_start(&rig);
	hash = fetch("a", 20);
	info = rig_dir(&rig, 0);
	assert_int_equal(info.used, 20 * MIB + 5);
	assert_int_equal(info.files, 1);
	rig_stop(&rig);
	from_origin = counter_get(origin_bytes);
	rig_start(&rig);
	info = rig_dir(&rig, 0);
	assert_int_equal(info.used, 20 * MIB + 5);
	assert_true(fetch("a", 20) == hash);
	assert_int_equal(counter_get(origin_bytes), from_origin);
	/* Another block size is another file. */
	assert_true(fetch("a", 22) == hash);
	assert_int_equal(counter_get(origin_bytes), from_origin + 20 * MIB + 5);
	assert_int_equal(data_files(), 2);
}

static void test_capacity(void **state)
{
	uint64_t evicted = counter_get(blocks_evicted);
	uint64_t a, b;

	(void)state;
	rig.config->capacity.bytes = 16 * MIB;
	rig_start(&rig);
	a = fetch("a", 20);
	assert_in_range(used(), 1, 16 * MIB + MIB);
	b = fetch("b", 20);
	assert_in_range(used(), 1, 16 * MIB + MIB);
	assert_true(counter_get(blocks_evicted) > evicted);
	/* Reads are right whatever was evicted meanwhile. */
	assert_true(fetch("a", 20) == a);
	assert_true(fetch("b", 20) == b);
	assert_in_range(used(), 1, 16 * MIB + MIB);
	rig_stop(&rig);
	rig_start(&rig);
	assert_in_range(used(), 1, 16 * MIB + MIB);
	assert_true(fetch("a", 20) == a);
}

struct refuser {
	struct object_watch watch;
	_Atomic int asked, evicted, dropped;
	int answer;
};

static int refuser_evict(struct object_watch *watch, uint64_t block, bool cold)
{
	struct refuser *r = container_of(watch, struct refuser, watch);

	(void)block;
	(void)cold;
	r->asked++;
	return r->answer;
}

static void refuser_evicted(struct object_watch *watch, uint64_t block)
{
	(void)block;
	container_of(watch, struct refuser, watch)->evicted++;
}

static void refuser_dropped(struct object_watch *watch, uint64_t block)
{
	(void)block;
	container_of(watch, struct refuser, watch)->dropped++;
}

/* Blocks that the kernel reads are not evicted; what does not fit then is not kept. */
static void test_busy_blocks(void **state)
{
	struct refuser r = { .watch = { .evict = refuser_evict, .evicted = refuser_evicted },
			     .answer = -EBUSY };
	struct object *object;
	uint64_t bitmap, sums[16 * 20];
	size_t n;

	(void)state;
	rig.config->capacity.bytes = 16 * MIB;
	rig.config->high = 100;
	rig.config->low = 90;
	rig_start(&rig);
	object = rig_open(&rig, source, "c", 20);
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(object_watch(object, &r.watch), 0);
	fetch("b", 20);
	assert_true(r.asked > 0);
	assert_int_equal(r.evicted, 0);
	assert_int_equal(object_map(object, 0, 4, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 15);

	/* Granted, they go, and are told to be gone. */
	r.answer = 0;
	r.asked = 0;
	fetch("a", 20);
	fetch("b", 22);
	RIG_UNTIL(r.evicted > 0);
	assert_int_equal(object_map(object, 0, 4, &bitmap, sums, &n), 0);
	assert_int_not_equal(bitmap, 15);
	object_unwatch(object, &r.watch);
	object_unref(object);
}

static void test_eviction_held_back(void **state)
{
	struct object *object;
	struct refuser r = { .watch = { .dropped = refuser_dropped } };
	uint64_t evicted = counter_get(blocks_evicted);

	(void)state;
	rig.config->capacity.bytes = 16 * MIB;
	rig_start(&rig);
	core_allow_eviction(rig.core, 0);
	object = rig_open(&rig, source, "a", 20);
	assert_int_equal(object_watch(object, &r.watch), 0);
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(counter_get(blocks_evicted), evicted);
	assert_int_equal(r.dropped, 5);
	assert_in_range(used(), 15 * MIB, 16 * MIB + MIB);
	object_unwatch(object, &r.watch);
	object_unref(object);
	core_allow_eviction(rig.core, 1);
	fetch("c", 20);
	RIG_UNTIL(counter_get(blocks_evicted) > evicted);
}

static void test_evict_request(void **state)
{
	uint64_t blocks, busy, pinned, hash;
	struct origin *origin;

	(void)state;
	rig_start(&rig);
	hash = fetch("a", 20);
	fetch("c", 20);
	assert_int_equal(core_origin(rig.core, source, NULL, &origin, msg, sizeof(msg)), 0);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "c", &blocks,
				     &busy, &pinned),
			 0);
	assert_int_equal(blocks, 4);
	assert_int_equal(busy, 0);
	assert_int_equal(data_files(), 1);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "", &blocks,
				     &busy, &pinned),
			 0);
	assert_int_equal(blocks, 21);
	assert_int_equal(data_files(), 0);
	assert_int_equal(store_evict(core_store(rig.core), "nobody", "", &blocks, &busy, &pinned),
			 0);
	assert_int_equal(blocks, 0);
	origin_unref(origin);
	assert_true(fetch("a", 20) == hash);
}

static void test_foreign_format(void **state)
{
	char path[128];
	FILE *file;
	struct core *core;

	(void)state;
	rig_start(&rig);
	rig_stop(&rig);
	snprintf(path, sizeof(path), "%s/format", rig.dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("wfs cache 99\n", file);
	fclose(file);
	assert_int_equal(core_create(rig.config, &core, msg, sizeof(msg)), 0);
	assert_int_equal(core_open(core, msg, sizeof(msg)), -EPROTONOSUPPORT);
	core_destroy(core);
	assert_non_null(strstr(msg, rig.dir));
	assert_non_null(strstr(msg, "wfs cache 99"));
}

static void test_locked(void **state)
{
	struct core *core;
	char pid[32];

	(void)state;
	rig_start(&rig);
	assert_int_equal(core_create(rig.config, &core, msg, sizeof(msg)), 0);
	assert_int_equal(core_open(core, msg, sizeof(msg)), -EBUSY);
	assert_non_null(strstr(msg, "in use"));
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	assert_non_null(strstr(msg, pid));
	core_destroy(core);
}

static void test_orphans(void **state)
{
	char path[128];
	FILE *file;

	(void)state;
	rig_start(&rig);
	fetch("c", 20);
	rig_stop(&rig);
	snprintf(path, sizeof(path), "%s/data/07/0000000000000007", rig.dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("left behind", file);
	fclose(file);
	assert_int_equal(data_files(), 2);
	rig_start(&rig);
	RIG_UNTIL(data_files() == 1);
	rig_stop(&rig);
}

static int found_id(void *arg, const struct index_file *file)
{
	*(uint64_t *)arg = file->id;
	return 0;
}

static int delete_record(struct index_txn *txn, void *arg)
{
	return index_delete_block(txn, *(uint64_t *)arg, 3, MIB);
}

/* Bytes that no record speaks of, as a killed daemon leaves them, do not stay. */
static void test_unrecorded(void **state)
{
	struct index *index;
	char path[128];
	uint64_t id, hash, before;

	(void)state;
	rig_start(&rig);
	hash = fetch("a", 20);
	rig_stop(&rig);
	snprintf(path, sizeof(path), "%s/index", rig.dir);
	assert_int_equal(index_open(path, &index, msg, sizeof(msg)), 0);
	assert_int_equal(index_each_file(index, found_id, &id), 0);
	assert_int_equal(index_update(index, delete_record, &id), 0);
	index_close(index);
	before = used();
	rig_start(&rig);
	RIG_UNTIL(used() + MIB <= before);
	rig_stop(&rig);
	rig_start(&rig);
	assert_true(fetch("a", 20) == hash);
	assert_int_equal(used(), before);
}

/* A data file that went away: fetched again, nothing wrong served. */
static void test_lost_data(void **state)
{
	uint64_t hash;
	char command[128];

	(void)state;
	rig_start(&rig);
	hash = fetch("a", 20);
	rig_stop(&rig);
	snprintf(command, sizeof(command), "rm -f %s/data/*/*", rig.dir);
	assert_int_equal(system(command), 0);
	rig_start(&rig);
	assert_true(fetch("a", 20) == hash);
	rig_stop(&rig);
	rig_start(&rig);
	assert_true(fetch("a", 20) == hash);
}

/* What the store tells of /a next. */
static void told(uint64_t *number, const char *says)
{
	struct event *event;

	assert_int_equal(events_wait(number, 30000, &event), 0);
	assert_string_equal(event->name, "corrupt");
	assert_string_equal(event->source, source);
	assert_string_equal(event->path, "a");
	assert_non_null(strstr(event->text, says));
	free(event);
}

static void damage(const char *how)
{
	char command[256];

	snprintf(command, sizeof(command), "cd %s/data && for f in */*; do %s; done", rig.dir, how);
	assert_int_equal(system(command), 0);
}

/* Whatever becomes of a data file is found, told, and comes from the origin. */
static void test_damaged_data(void **state)
{
	uint64_t hash, number = events_next(), corrupt;

	(void)state;
	rig_start(&rig);
	hash = fetch("a", 20);
	rig_stop(&rig);
	damage("printf x | dd of=$f bs=1 seek=3000000 conv=notrunc 2>/dev/null");
	rig_start(&rig);
	corrupt = counter_get(blocks_corrupt);
	assert_true(fetch("a", 20) == hash);
	told(&number, "block 2 in the cache failed its check");
	assert_int_equal(counter_get(blocks_corrupt), corrupt + 1);
	rig_stop(&rig);
	damage("truncate -s 4M $f");
	rig_start(&rig);
	assert_true(fetch("a", 20) == hash);
	told(&number, "data file is gone, or something else");
	rig_stop(&rig);
	damage("rm $f");
	rig_start(&rig);
	assert_true(fetch("a", 20) == hash);
	told(&number, "data file is gone, or something else");
	rig_stop(&rig);
	/* And is right from then on. */
	rig_start(&rig);
	assert_true(fetch("a", 20) == hash);
	assert_int_equal(events_next(), number);
}

/* Killed at any moment: the next start serves nothing wrong. */
static void test_killed(void **state)
{
	uint64_t hash;
	pid_t pid;
	int status;

	(void)state;
	rig_start(&rig);
	hash = fetch("a", 16);
	rig_stop(&rig);
	for (unsigned int round = 0; round < 6; round++) {
		char command[128];

		snprintf(command, sizeof(command), "rm -rf %s/*", rig.dir);
		assert_int_equal(system(command), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			struct object *object;

			rig_start(&rig);
			object = rig_open(&rig, source, "a", 16);
			rig_read(&rig, object);
			_exit(0);
		}
		for (unsigned int i = 0; i < round * 5; i++)
			rig_pause();
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		rig_start(&rig);
		assert_true(fetch("a", 16) == hash);
		rig_stop(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_restart),	  TEST(test_capacity),
		TEST(test_busy_blocks),	  TEST(test_eviction_held_back),
		TEST(test_evict_request), TEST(test_foreign_format),
		TEST(test_locked),	  TEST(test_orphans),
		TEST(test_unrecorded),	  TEST(test_lost_data),
		TEST(test_damaged_data),  TEST(test_killed),
	};

	log_setup(LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
