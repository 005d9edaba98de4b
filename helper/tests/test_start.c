// SPDX-License-Identifier: MIT
/* A start looks at as much of the index whether it holds a hundred blocks or 100,000. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include <lmdb.h>

#include "config.h"
#include "counters.h"
#include "store.h"
#include "store_index.h"

#define BLOCKS_A_FILE 100
#define BLOCK	      65536

static char dir[] = "/var/tmp/wfs-test-start-XXXXXX";
static char msg[512];
static _Atomic unsigned int looked; /* records that were read */

int __real_mdb_get(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *data);
int __wrap_mdb_get(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *data);
int __wrap_mdb_get(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *data)
{
	looked++;
	return __real_mdb_get(txn, dbi, key, data);
}

int __real_mdb_cursor_get(MDB_cursor *cursor, MDB_val *key, MDB_val *data, MDB_cursor_op op);
int __wrap_mdb_cursor_get(MDB_cursor *cursor, MDB_val *key, MDB_val *data, MDB_cursor_op op);
int __wrap_mdb_cursor_get(MDB_cursor *cursor, MDB_val *key, MDB_val *data, MDB_cursor_op op)
{
	looked++;
	return __real_mdb_cursor_get(cursor, key, data, op);
}

static int evict(void *arg, struct store_file *file, uint64_t block, bool cold)
{
	(void)arg;
	(void)file;
	(void)block;
	(void)cold;
	return 0;
}

static void evicted(void *arg, struct store_file *file, uint64_t block, bool removed)
{
	(void)arg;
	(void)file;
	(void)block;
	(void)removed;
}

static void nothing(void *arg)
{
	(void)arg;
}

static void dir_info(void *arg, const struct store_dir_info *info)
{
	*(struct store_dir_info *)arg = *info;
}

/* Opens and closes the store; what it holds. */
static struct store_dir_info start(void)
{
	const struct store_ops ops = { evict, evicted, nothing, nothing, NULL };
	struct store_dir_info info;
	struct config *config;
	struct store *store;
	uint64_t begun;

	assert_int_equal(config_create(&config), 0);
	assert_int_equal(config_set(config, "cache", "dir", dir, msg, sizeof(msg)), 0);
	assert_int_equal(config_finish(config, msg, sizeof(msg)), 0);
	looked = 0;
	begun = counter_now();
	assert_int_equal(store_create(config, &ops, &store, msg, sizeof(msg)), 0);
	print_message("# opened in %.1f ms, %u records looked at\n",
		      (double)(counter_now() - begun) / 1e6, (unsigned int)looked);
	store_each_dir(store, dir_info, &info);
	store_destroy(store);
	config_free(config);
	return info;
}

struct filling {
	unsigned int first, files;
};

static int fill(struct index_txn *txn, void *arg)
{
	const struct filling *filling = arg;
	const uint64_t sum = 1;
	int err = 0;

	for (unsigned int i = filling->first; i < filling->first + filling->files && !err; i++) {
		char path[32];
		struct index_file file = {
			.id = i + 1,
			.size = BLOCKS_A_FILE * BLOCK,
			.block_shift = 16,
			.hash = { i, i },
			.source = index_hash_source("source"),
			.identity = "source",
			.path = path,
			.version = "1",
		};

		snprintf(path, sizeof(path), "file%u", i);
		for (uint64_t block = 0; block < BLOCKS_A_FILE && !err; block++) {
			bool fresh;

			err = index_put_block(txn, &file, block, BLOCK, &sum, 1, false, &fresh);
		}
	}
	return err;
}

static void grow(unsigned int first, unsigned int files)
{
	struct filling filling = { first, files };
	struct index *index;
	char path[64];

	snprintf(path, sizeof(path), "%s/index", dir);
	assert_int_equal(index_open(path, &index, msg, sizeof(msg)), 0);
	assert_int_equal(index_update(index, fill, &filling), 0);
	index_close(index);
}

static void test_start(void **state)
{
	struct store_dir_info info;
	unsigned int few;

	(void)state;
	start();
	grow(0, 1);
	info = start();
	assert_int_equal(info.used, 100ULL * BLOCK);
	few = looked;
	grow(1, 999);
	info = start();
	assert_int_equal(info.used, 100000ULL * BLOCK);
	assert_int_equal(info.files, 1000);
	assert_int_equal(looked, few);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start),
	};

	log_setup(LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, setup, teardown);
}
