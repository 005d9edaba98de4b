// SPDX-License-Identifier: MIT
/*
 * Cache directories that fail, go away and come back; data files that are not what was
 * written; what is opened while it is evicted.
 */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "container.h"
#include "counters.h"
#include "rig.h"
#include "store.h"
#include "store_index.h"

#define MIB (1u << 20)

/*
 * ThreadSanitizer: a change that a fault leaves in its middle leaves LMDB's lock of who writes
 * with it, so that all locks taken later seem to be taken inside that.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "deadlock:liblmdb";
}

static struct rig rig;
static struct rig_source files;
static const char *const source = files.url;
static char second[64];
static char msg[512];

/* What the disk says: errors for the store's calls, while not 0. */
static _Atomic int open_error, sync_error;
static _Atomic unsigned int refused;
static void (*_Atomic before_fstat)(void);
static pthread_mutex_t stall_lock = PTHREAD_MUTEX_INITIALIZER; /* held: the disk answers nothing */

int __real_openat(int fd, const char *path, int flags, ...);
int __wrap_openat(int fd, const char *path, int flags, ...);
int __wrap_openat(int fd, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	/* As a full or read-only filesystem does. */
	if (open_error && flags & O_CREAT && strcmp(path, "lock")) {
		refused++;
		errno = open_error;
		return -1;
	}
	return __real_openat(fd, path, flags, mode);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	pthread_mutex_lock(&stall_lock);
	pthread_mutex_unlock(&stall_lock);
	if (sync_error) {
		refused++;
		errno = sync_error;
		return -1;
	}
	return __real_fdatasync(fd);
}

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
	int err = __real_fstat(fd, st);
	void (*now)(void) = before_fstat;

	if (now && S_ISREG(st->st_mode)) {
		before_fstat = NULL;
		now();
	}
	return err;
}

static int group_setup(void **state)
{
	(void)state;
	rig_source_create(&files);
	rig_source_file(&files, "a", 4 * MIB + 5, 1);
	rig_source_file(&files, "b", 3 * MIB, 2);
	rig_source_file(&files, "c", MIB, 3);
	rig_source_file(&files, "large", 48 * MIB, 4);
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
	*second = '\0';
	rig.config->cleanup_interval_ms = 200;
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	open_error = 0;
	sync_error = 0;
	before_fstat = NULL;
	rig_destroy(&rig);
	if (!*second)
		return 0;
	snprintf(command, sizeof(command), "rm -rf %s", second);
	return system(command);
}

/* A second directory beside the first. */
static void add_dir(void)
{
	snprintf(second, sizeof(second), "/var/tmp/wfs-test-second-XXXXXX");
	assert_non_null(mkdtemp(second));
	assert_int_equal(config_set(rig.config, "cache", "dir", second, msg, sizeof(msg)), 0);
}

static uint64_t fetch(const char *name)
{
	return rig_fetch(&rig, source, name, 20);
}

static unsigned int cached(const char *name)
{
	return rig_cached(&rig, source, name, 20);
}

static struct store_dir_info info_of(unsigned int number)
{
	return rig_dir(&rig, number);
}

static void run(const char *format, const char *arg)
{
	char command[512];

	snprintf(command, sizeof(command), format, arg, arg, arg);
	assert_int_equal(system(command), 0);
}

/* Counts how often it is told that its object should be opened anew. */
struct opener {
	struct object_watch watch;
	_Atomic unsigned int reopen;
};

static void opener_reopen(struct object_watch *watch)
{
	container_of(watch, struct opener, watch)->reopen++;
}

/* A disk that refuses new files: reads go on uncached; when it is over files are kept again. */
static void disk_refuses(int error)
{
	struct opener opener = { .watch = { .reopen = opener_reopen } };
	struct object *object;
	uint64_t a;

	rig_start(&rig);
	a = fetch("a");
	open_error = error;
	/* Opened while it lasts: it has no data file. */
	object = rig_open(&rig, source, "b", 20);
	assert_int_equal(object_watch(object, &opener.watch), 0);
	assert_int_equal(object_fd(object), -1);
	rig_read(&rig, object);
	assert_true(info_of(0).failed);
	assert_true(fetch("a") == a);
	assert_int_equal(cached("a"), 5);
	open_error = 0;
	RIG_UNTIL(!info_of(0).failed);
	RIG_UNTIL(opener.reopen);
	object_unwatch(object, &opener.watch);
	/* Whoever opens it now keeps it, although it is open without a data file as well. */
	fetch("b");
	assert_int_equal(cached("b"), 3);
	object_unref(object);
	assert_int_equal(cached("b"), 3);
}

static void test_full(void **state)
{
	(void)state;
	disk_refuses(ENOSPC);
}

static void test_read_only(void **state)
{
	(void)state;
	disk_refuses(EROFS);
}

/* Writes fail: what was read is dropped, not lost; then it is kept again. */
static void test_io_error(void **state)
{
	uint64_t a, dropped = counter_get(blocks_dropped);

	(void)state;
	rig_start(&rig);
	sync_error = EIO;
	a = fetch("a");
	assert_true(counter_get(blocks_dropped) > dropped);
	assert_int_equal(cached("a"), 0);
	assert_true(info_of(0).failed);
	assert_int_equal(info_of(0).used, 0);
	sync_error = 0;
	RIG_UNTIL(!info_of(0).failed);
	assert_true(fetch("a") == a);
	assert_int_equal(cached("a"), 5);
	assert_int_equal(info_of(0).used, 4 * MIB + 5);
}

/* The directory is removed under the daemon, and made anew by it. */
static void test_removed(void **state)
{
	struct opener opener = { .watch = { .reopen = opener_reopen } };
	struct object *object;
	uint64_t a, b;

	(void)state;
	rig_start(&rig);
	a = fetch("a");
	b = fetch("b");
	object = rig_open(&rig, source, "a", 20);
	assert_int_equal(object_watch(object, &opener.watch), 0);
	run("mv %s %s.gone && rm -rf %s.gone", rig.dir);
	RIG_UNTIL(opener.reopen);
	object_unwatch(object, &opener.watch);
	/* What is open still reads; nothing of the old directory counts. */
	rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	object_unref(object);
	RIG_UNTIL(!info_of(0).failed);
	assert_true(fetch("a") == a);
	assert_true(fetch("b") == b);
	assert_int_equal(cached("a"), 5);
	assert_int_equal(cached("b"), 3);
	assert_int_equal(info_of(0).used, 7 * MIB + 5);
	rig_stop(&rig);
	rig_start(&rig);
	assert_int_equal(cached("a"), 5);
	assert_true(fetch("a") == a);
}

/* Only its index is: the lock is the one that is held already, old data files are nobody's. */
static void test_index_gone(void **state)
{
	uint64_t a;

	(void)state;
	rig_start(&rig);
	a = fetch("a");
	run("rm -rf %s/index", rig.dir);
	RIG_UNTIL(!info_of(0).failed && !info_of(0).used);
	assert_true(fetch("a") == a);
	assert_int_equal(cached("a"), 5);
	assert_int_equal(info_of(0).used, 4 * MIB + 5);
	rig_stop(&rig);
	rig_start(&rig);
	assert_int_equal(cached("a"), 5);
	assert_true(fetch("a") == a);
	RIG_UNTIL(rig_data_files(&rig, NULL) == 1);
}

/*
 * The disk below the index's map gives nothing any more: whoever looks reads on, uncached. What
 * is left of it is no index, and the directory returns when that is removed.
 */
static void test_index_fault(void **state)
{
	struct object *object;
	uint64_t a, b;

	(void)state;
	rig_start(&rig);
	a = fetch("a");
	b = fetch("b");
	object = rig_open(&rig, source, "b", 20);
	run("truncate -s 8192 %s/index/data.mdb", rig.dir);
	assert_true(rig_read(&rig, object) == b);
	assert_true(fetch("a") == a);
	object_unref(object);
	RIG_UNTIL(info_of(0).failed);
	assert_true(fetch("a") == a);
	assert_int_equal(cached("a"), 0);
	run("rm %s/index/data.mdb", rig.dir);
	RIG_UNTIL(!info_of(0).failed);
	assert_true(fetch("a") == a);
	assert_int_equal(cached("a"), 5);
	assert_int_equal(info_of(0).used, 4 * MIB + 5);
}

/* Two directories: what one cannot take the other does, from the start and while running. */
static void test_beside(void **state)
{
	char gone[80];
	uint64_t a;

	(void)state;
	add_dir();
	/* Not a share of what is free, which others change meanwhile. */
	rig.config->capacity.bytes = 64 * MIB;
	rig_start(&rig);
	a = fetch("a");
	fetch("b");
	fetch("c");
	/* Side by side: the one with more room takes the next. */
	assert_true(info_of(0).used);
	assert_true(info_of(1).used);
	assert_int_equal(info_of(0).used + info_of(1).used, 8 * MIB + 5);
	/* Both at once: a look in between would make the directory anew. */
	snprintf(gone, sizeof(gone), "%s.gone", second);
	run("touch %s.gone", second);
	assert_int_equal(renameat2(AT_FDCWD, second, AT_FDCWD, gone, RENAME_EXCHANGE), 0);
	run("rm -rf %s.gone", second);
	RIG_UNTIL(info_of(1).failed);
	assert_false(info_of(0).failed);
	assert_true(fetch("a") == a);
	fetch("b");
	fetch("c");
	assert_int_equal(cached("a") + cached("b") + cached("c"), 9);
	assert_int_equal(info_of(0).used, 8 * MIB + 5);
	run("rm -f %s", second);
	RIG_UNTIL(!info_of(1).failed);
	rig_stop(&rig);
}

/* A disk that fails at the start is no reason not to serve. */
static void test_bad_start(void **state)
{
	(void)state;
	open_error = EROFS;
	rig_start(&rig);
	assert_true(info_of(0).failed);
	fetch("a");
	assert_int_equal(cached("a"), 0);
	open_error = 0;
	RIG_UNTIL(!info_of(0).failed);
	fetch("a");
	assert_int_equal(cached("a"), 5);
}

static void test_foreign(void **state)
{
	struct core *core;

	(void)state;
	assert_int_equal(config_finish(rig.config, msg, sizeof(msg)), 0);
	run("echo mine >%s/thesis.tex", rig.dir);
	assert_int_equal(core_create(rig.config, &core, msg, sizeof(msg)), 0);
	assert_int_equal(core_open(core, msg, sizeof(msg)), -ENOTEMPTY);
	core_destroy(core);
	assert_non_null(strstr(msg, "thesis.tex"));
	run("rm %s/thesis.tex", rig.dir);
	/* Of an earlier version: emptied, and used. */
	rig_start(&rig);
	fetch("a");
	rig_stop(&rig);
	run("echo 'wfs cache 1' >%s/format", rig.dir);
	rig_start(&rig);
	assert_int_equal(cached("a"), 0);
	fetch("a");
	assert_int_equal(cached("a"), 5);
	rig_stop(&rig);
	/* What the old index spoke of is collected: the new files are all there is. */
	rig_start(&rig);
	RIG_UNTIL(info_of(0).used == 4 * MIB + 5);
	assert_int_equal(cached("a"), 5);
	rig_stop(&rig);
}

/* A data file that is not what was written: dropped, fetched again, counted. */
static void damaged(const char *how, unsigned int bad)
{
	uint64_t a, corrupt, from_origin;

	rig_start(&rig);
	a = fetch("a");
	rig_stop(&rig);
	run(how, rig.dir);
	corrupt = counter_get(blocks_corrupt);
	from_origin = counter_get(origin_bytes);
	rig_start(&rig);
	assert_true(fetch("a") == a);
	RIG_UNTIL(counter_get(blocks_corrupt) - corrupt == bad);
	assert_in_range(counter_get(origin_bytes) - from_origin, 1, bad * MIB);
	/* For good, and the account is right. */
	from_origin = counter_get(origin_bytes);
	RIG_UNTIL(info_of(0).used == 4 * MIB + 5);
	assert_true(fetch("a") == a);
	assert_int_equal(counter_get(origin_bytes), from_origin);
	assert_int_equal(info_of(0).files, 1);
	rig_stop(&rig);
	rig_start(&rig);
	assert_true(fetch("a") == a);
	assert_int_equal(counter_get(origin_bytes), from_origin);
}

static void test_flipped(void **state)
{
	(void)state;
	damaged("for f in %s/data/*/*; do printf X | dd of=$f bs=1 seek=1234567 conv=notrunc "
		"status=none; done",
		1);
}

static void test_holes(void **state)
{
	(void)state;
	damaged("for f in %s/data/*/*; do fallocate -p -o 1M -l 2M $f; done", 2);
}

static void test_truncated(void **state)
{
	(void)state;
	damaged("truncate -s 1M %s/data/*/*", 5);
}

static void test_missing(void **state)
{
	(void)state;
	damaged("rm %s/data/*/*", 5);
}

static void test_foreign_file(void **state)
{
	(void)state;
	/* Of the same size, with other bytes. */
	damaged("for f in %s/data/*/*; do s=$(stat -c %%s $f); rm $f; head -c $s /dev/zero >$f; done",
		5);
}

static void test_symlink(void **state)
{
	(void)state;
	damaged("for f in %s/data/*/*; do mv $f %s/format.new; ln -s %s/format.new $f; done", 5);
}

/* Counts what is offered of blocks that are not kept. */
struct taker {
	struct object_watch watch;
	_Atomic uint64_t offered;
	_Atomic unsigned int dropped, stored;
};

static void taker_offer(struct object_watch *watch, uint64_t block, uint64_t offset,
			const void *bytes, uint32_t len)
{
	(void)block;
	(void)offset;
	(void)bytes;
	container_of(watch, struct taker, watch)->offered += len;
}

static void taker_dropped(struct object_watch *watch, uint64_t block)
{
	(void)block;
	container_of(watch, struct taker, watch)->dropped++;
}

static void taker_stored(struct object_watch *watch, uint64_t block, const uint64_t *sums,
			 uint32_t units)
{
	(void)block;
	(void)sums;
	(void)units;
	container_of(watch, struct taker, watch)->stored++;
}

/* A disk that answers nothing at all keeps nobody from reading three times the memory. */
static void test_slow(void **state)
{
	struct taker taker = {
		.watch = { .offer = taker_offer, .dropped = taker_dropped, .stored = taker_stored }
	};
	struct object *object;
	uint64_t hash;

	(void)state;
	rig.config->buffer_memory = 16 * MIB;
	rig_start(&rig);
	object = rig_open(&rig, source, "large", 20);
	assert_int_equal(object_watch(object, &taker.watch), 0);
	pthread_mutex_lock(&stall_lock);
	hash = rig_read(&rig, object);
	assert_int_equal(taker.stored, 0);
	assert_true(taker.dropped >= 32);
	pthread_mutex_unlock(&stall_lock);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	/* The remainders were offered; what had been written is kept. */
	assert_int_equal(taker.stored + taker.dropped, 48);
	assert_int_equal(taker.offered, (uint64_t)taker.dropped * MIB);
	assert_true(taker.stored > 0);
	object_unwatch(object, &taker.watch);
	assert_true(rig_read(&rig, object) == hash);
	object_unref(object);
}

static int found_id(void *arg, const struct index_file *file)
{
	*(uint64_t *)arg = file->id;
	return 0;
}

static int put_odd(struct index_txn *txn, void *arg)
{
	static const uint64_t sums[99];
	struct index_file file = {
		.id = *(uint64_t *)arg, .identity = "", .path = "", .version = ""
	};
	bool fresh;

	return index_put_block(txn, &file, 2, MIB, sums, 99, false, &fresh);
}

/* A record with more sums than its block can have is not believed. */
static void test_odd_record(void **state)
{
	uint64_t a, id, bitmap, *sums = malloc((4 * 16 + 1) * sizeof(*sums));
	struct object *object;
	struct index *index;
	char path[128];
	size_t n;

	(void)state;
	rig_start(&rig);
	a = fetch("a");
	rig_stop(&rig);
	snprintf(path, sizeof(path), "%s/index", rig.dir);
	assert_int_equal(index_open(path, &index, msg, sizeof(msg)), 0);
	assert_int_equal(index_each_file(index, found_id, &id), 0);
	assert_int_equal(index_update(index, put_odd, &id), 0);
	index_close(index);
	rig_start(&rig);
	object = rig_open(&rig, source, "a", 20);
	/* No more room than the blocks need. */
	assert_int_equal(object_map(object, 0, 5, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 0x1b);
	assert_int_equal(n, 3 * 16 + 1);
	assert_true(rig_read(&rig, object) == a);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(object_map(object, 0, 5, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 0x1f);
	object_unref(object);
	free(sums);
	assert_int_equal(info_of(0).used, 4 * MIB + 5);
}

/* The record of the only file, with a block size that none has. */
static void damage_file(void)
{
	char path[128], copy[512] = { 0 };
	MDB_val key, record;
	MDB_cursor *cursor;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	snprintf(path, sizeof(path), "%s/index", rig.dir);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOTLS, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, "files", 0, &dbi), 0);
	assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
	assert_int_equal(mdb_cursor_get(cursor, &key, &record, MDB_FIRST), 0);
	assert_true(record.mv_size <= sizeof(copy));
	memcpy(copy, record.mv_data, record.mv_size);
	assert_int_equal(copy[64], 20);
	copy[64] = (char)200;
	record.mv_data = copy;
	assert_int_equal(mdb_cursor_put(cursor, &key, &record, MDB_CURRENT), 0);
	mdb_cursor_close(cursor);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

/* What nobody can read is as good as none: the object has a data file again. */
static void test_damaged_record(void **state)
{
	uint64_t a;

	(void)state;
	rig_start(&rig);
	a = fetch("a");
	rig_stop(&rig);
	damage_file();
	rig_start(&rig);
	assert_true(fetch("a") == a);
	assert_int_equal(cached("a"), 5);
	rig_stop(&rig);
}

/* Pins are in the new directory, too, when the old one is gone. */
static void test_pin_survives(void **state)
{
	struct origin *origin;
	char path[128];

	(void)state;
	rig_start(&rig);
	assert_int_equal(core_origin(rig.core, source, NULL, &origin, msg, sizeof(msg)), 0);
	assert_int_equal(store_pin(core_store(rig.core), origin_identity(origin), "a"), 0);
	run("mv %s %s.gone && rm -rf %s.gone", rig.dir);
	snprintf(path, sizeof(path), "%s/index/data.mdb", rig.dir);
	RIG_UNTIL(!access(path, F_OK) && !info_of(0).failed);
	origin_unref(origin);
	rig_stop(&rig);
	rig_start(&rig);
	assert_int_equal(core_origin(rig.core, source, NULL, &origin, msg, sizeof(msg)), 0);
	assert_int_equal(store_unpin(core_store(rig.core), origin_identity(origin), "a"), 0);
	origin_unref(origin);
}

/* The last block goes, and with it the file, while somebody opens it. */
static void evict_all(void)
{
	uint64_t blocks, busy, pinned;
	struct origin *origin;

	assert_int_equal(core_origin(rig.core, source, NULL, &origin, msg, sizeof(msg)), 0);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "", &blocks,
				     &busy, &pinned),
			 0);
	assert_int_equal(blocks, 1);
	origin_unref(origin);
}

static void test_opened_while_evicted(void **state)
{
	uint64_t c, from_origin;

	(void)state;
	rig_start(&rig);
	c = fetch("c");
	before_fstat = evict_all;
	assert_true(fetch("c") == c);
	assert_null(before_fstat);
	assert_int_equal(cached("c"), 1);
	rig_stop(&rig);
	from_origin = counter_get(origin_bytes);
	rig_start(&rig);
	assert_true(fetch("c") == c);
	assert_int_equal(counter_get(origin_bytes), from_origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_full),	   TEST(test_read_only),
		TEST(test_io_error),	   TEST(test_removed),
		TEST(test_beside),	   TEST(test_bad_start),
		TEST(test_foreign),	   TEST(test_flipped),
		TEST(test_holes),	   TEST(test_truncated),
		TEST(test_missing),	   TEST(test_foreign_file),
		TEST(test_symlink),	   TEST(test_opened_while_evicted),
		TEST(test_slow),	   TEST(test_odd_record),
		TEST(test_damaged_record), TEST(test_pin_survives),
		TEST(test_index_gone),	   TEST(test_index_fault),
	};

	log_setup(getenv("VERBOSE") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
