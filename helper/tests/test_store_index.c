// SPDX-License-Identifier: MIT
/* Records that a disk, or somebody else, has changed. */
#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "store_index.h"

#define BLOCKS 5

/*
 * ThreadSanitizer: a change that a fault leaves in its middle leaves LMDB's lock of who writes
 * with it, so that all locks taken later seem to be taken inside that.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "deadlock:liblmdb";
}

static struct index_file file = {
	.id = 1,
	.size = 300000,
	.block_shift = 16,
	.hash = { 1, 2 },
	.identity = "identity",
	.path = "dir/file",
	.version = "\"v1\"",
};

static char dir[64], msg[512];
static struct index *opened;

static uint64_t length(uint64_t block)
{
	return block < BLOCKS - 1 ? 65536 : file.size - (BLOCKS - 1) * 65536;
}

static uint32_t units_of(void *arg, uint64_t block)
{
	(void)arg;
	return block < BLOCKS;
}

static int put_block(struct index_txn *txn, void *arg)
{
	uint64_t block = *(uint64_t *)arg, sum = block + 100;
	bool new;

	return index_put_block(txn, &file, block, length(block), &sum, 1, false, &new);
}

static int rotate(struct index_txn *txn, void *arg)
{
	const struct index_block *block = arg;

	return index_rotate(txn, block, length(block->block));
}

static int delete_block(struct index_txn *txn, void *arg)
{
	uint64_t block = *(uint64_t *)arg;

	return index_delete_block(txn, 1, block, length(block));
}

static int open_again(void)
{
	index_close(opened);
	opened = NULL;
	return index_open(dir, &opened, msg, sizeof(msg));
}

static int begin(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/wfs-test-index-XXXXXX");
	assert_non_null(mkdtemp(dir));
	file.source = index_hash_source(file.identity);
	assert_int_equal(open_again(), 0);
	for (uint64_t block = 0; block < BLOCKS; block++)
		assert_int_equal(index_update(opened, put_block, &block), 0);
	return 0;
}

static int end(void **state)
{
	char command[128];

	(void)state;
	index_close(opened);
	opened = NULL;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* Byte `at` of record `number` becomes value; at -1: its length does. */
static void change_closed(const char *name, unsigned int number, int at, unsigned char value)
{
	char copy[512] = { 0 };
	MDB_val key, record;
	MDB_cursor *cursor;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	index_close(opened);
	opened = NULL;
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
	assert_int_equal(mdb_env_open(env, dir, MDB_NOTLS, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, name, 0, &dbi), 0);
	assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
	assert_int_equal(mdb_cursor_get(cursor, &key, &record, MDB_FIRST), 0);
	while (number--)
		assert_int_equal(mdb_cursor_get(cursor, &key, &record, MDB_NEXT), 0);
	assert_true(record.mv_size <= sizeof(copy));
	memcpy(copy, record.mv_data, record.mv_size);
	record.mv_data = copy;
	if (at < 0)
		record.mv_size = value;
	else
		copy[at] = (char)value;
	assert_int_equal(mdb_cursor_put(cursor, &key, &record, MDB_CURRENT), 0);
	mdb_cursor_close(cursor);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void change(const char *name, unsigned int number, int at, unsigned char value)
{
	change_closed(name, number, at, value);
	assert_int_equal(open_again(), 0);
}

static int nothing(void *arg, const struct index_file *found)
{
	(void)found;
	++*(int *)arg;
	return 0;
}

/* What users shift by, count with, or take for the end of a string. */
static void files(void **state)
{
	/*
	 * size's highest byte, block_shift, a letter of each string, its NUL, the length, the
	 * highest byte of the time, the source's hash.
	 */
	static const struct {
		int at;
		unsigned char value;
	} changes[] = { { 7, 0x80 }, { 64, 200 }, { 64, 2 },  { 80, 0 },    { 90, 0 },
			{ 99, 0 },   { 88, 'x' }, { -1, 20 }, { 31, 0x80 }, { 48, 0 } };
	int count = 0;

	(void)state;
	assert_int_equal(index_each_file(opened, nothing, &count), 0);
	assert_int_equal(count, 1);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		uint64_t block = 1;

		change("files", 0, changes[i].at, changes[i].value);
		assert_int_equal(index_each_file(opened, nothing, &count), -EUCLEAN);
		assert_int_equal(index_find(opened, &file.hash, nothing, &count), -EUCLEAN);
		assert_int_equal(count, 1);
		assert_int_equal(index_update(opened, delete_block, &block), -EUCLEAN);
		end(NULL);
		begin(NULL);
	}
}

static int map(uint64_t *bitmap, uint64_t *sums, size_t *ret_sums)
{
	return index_map(opened, 1, 0, BLOCKS, units_of, NULL, bitmap, sums, ret_sums);
}

static void blocks(void **state)
{
	uint64_t bitmap = 0, sums[BLOCKS], block = 1;
	struct index_block oldest[8];
	size_t count;

	(void)state;
	assert_int_equal(map(&bitmap, sums, &count), 0);
	assert_int_equal(bitmap, 0x1f);
	assert_int_equal(count, BLOCKS);
	assert_int_equal(sums[4], 104);
	/* Two sums where the block has one. */
	change("blocks", 1, -1, 48);
	change("blocks", 1, 24, 2);
	bitmap = 0;
	assert_int_equal(map(&bitmap, sums, &count), 0);
	assert_int_equal(bitmap, 0x1d);
	assert_int_equal(count, BLOCKS - 1);
	assert_int_equal(index_block(opened, 1, 1, sums, 1), -EUCLEAN);
	/* Too short for anything. */
	assert_int_equal(index_oldest(opened, 0, oldest, 8), BLOCKS);
	change("blocks", 1, -1, 4);
	assert_int_equal(index_update(opened, rotate, &oldest[1]), -EUCLEAN);
	assert_int_equal(index_oldest(opened, 0, oldest, 8), BLOCKS - 1);
	/* Of a time that never was. */
	change("blocks", 2, 15, 0x80);
	assert_int_equal(index_block(opened, 1, 2, sums, 1), -EUCLEAN);
	change("blocks", 3, 23, 0x80);
	assert_int_equal(index_block(opened, 1, 3, sums, 1), -EUCLEAN);
	assert_int_equal(index_oldest(opened, 0, oldest, 8), BLOCKS - 3);
	/* Put anew it is whole, and counts once. */
	assert_int_equal(index_update(opened, put_block, &block), 0);
	assert_int_equal(index_block(opened, 1, 1, sums, 1), 0);
	for (block = 0; block < BLOCKS; block++)
		assert_int_equal(index_update(opened, delete_block, &block), 0);
	count = 0;
	assert_int_equal(index_each_file(opened, nothing, &count), 0);
	assert_int_equal(count, 0);
}

/* A count that is too low does not wrap: the record ends with the last block it counts. */
static void counts(void **state)
{
	uint64_t block = 0;
	int count = 0;

	(void)state;
	change("files", 0, 8, 0);
	assert_int_equal(index_update(opened, delete_block, &block), 0);
	assert_int_equal(index_each_file(opened, nothing, &count), 0);
	assert_int_equal(count, 0);
	block = 1;
	assert_int_equal(index_update(opened, put_block, &block), 0);
}

static int put_all(struct index_txn *txn, void *arg)
{
	int err = index_put_source(txn, "identity", "name", 5);

	(void)arg;
	return err ? err : index_put_pin(txn, "identity", "dir");
}

static int delete_pin(struct index_txn *txn, void *arg)
{
	(void)arg;
	return index_delete_pin(txn, "identity", "dir");
}

static int found_source(void *arg, const struct index_source *source)
{
	if (strcmp(source->identity, "identity") || strcmp(source->name, "name"))
		return -EBADMSG;
	*(uint64_t *)arg = source->bytes;
	return 0;
}

static int found_pin(void *arg, const char *identity, const char *path)
{
	if (strcmp(identity, "identity") || strcmp(path, "dir"))
		return -EBADMSG;
	++*(int *)arg;
	return 0;
}

/* What is found is right, or nothing; a record that is put anew is whole. */
static void sources(void **state)
{
	/* The highest bytes of count and time, a letter of each string, its NUL, the length. */
	static const struct {
		int at;
		unsigned char value;
	} changes[] = { { 7, 0x80 }, { 15, 0x80 }, { 24, 0 },  { 24, 'x' }, { 34, 0 },
			{ 32, 'x' }, { 37, 'x' },  { -1, 37 }, { -1, 20 },  { -1, 0 } };
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(index_update(opened, put_all, NULL), 0);
	assert_int_equal(index_each_source(opened, found_source, &bytes), 0);
	assert_int_equal(bytes, file.size);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		change("sources", 0, changes[i].at, changes[i].value);
		assert_int_equal(index_each_source(opened, found_source, &bytes), -EUCLEAN);
		assert_int_equal(index_update(opened, put_all, NULL), 0);
		assert_int_equal(index_each_source(opened, found_source, &bytes), 0);
		assert_int_equal(bytes, 0);
	}
	/* Less than there is to go. */
	for (uint64_t block = 0; block < BLOCKS; block++)
		assert_int_equal(index_update(opened, delete_block, &block), 0);
	assert_int_equal(index_each_source(opened, found_source, &bytes), 0);
	assert_int_equal(bytes, 0);
}

static void pins(void **state)
{
	static const struct {
		int at;
		unsigned char value;
	} changes[] = { { 0, 'x' },  { 8, 'x' }, { 9, 'x' }, { 11, 0 },
			{ 12, 'x' }, { -1, 12 }, { -1, 9 },  { -1, 0 } };
	int count = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		assert_int_equal(index_update(opened, put_all, NULL), 0);
		assert_int_equal(index_each_pin(opened, found_pin, &count), 0);
		change("pins", 0, changes[i].at, changes[i].value);
		assert_int_equal(index_each_pin(opened, found_pin, &count), -EUCLEAN);
		assert_int_equal(count, i + 1);
	}
	assert_int_equal(index_update(opened, delete_pin, NULL), 0);
	assert_int_equal(index_update(opened, delete_pin, NULL), -ENOENT);
}

static int found_bytes(void *arg, const struct index_file *found)
{
	*(struct index_file *)arg = *found;
	return 0;
}

/* What is counted over all, and over a file, is no more than there can be. */
static void totals(void **state)
{
	struct index_totals all;
	struct index_file found;

	(void)state;
	change("files", 0, 15, 0x7f);
	change("files", 0, 23, 0x7f);
	assert_int_equal(index_file(opened, 1, found_bytes, &found), 0);
	assert_int_equal(found.blocks, BLOCKS);
	assert_int_equal(found.bytes, file.size);
	change("meta", 1, 23, 1);
	index_totals(opened, &all);
	assert_int_equal(all.files, 1);
	assert_int_equal(all.bytes, file.size);
	assert_int_equal(all.young, file.size);
	change("meta", 1, 16, 1);
	change("meta", 1, 17, 0);
	change("meta", 1, 18, 0);
	change("meta", 1, 8, 1);
	change("meta", 1, 9, 0);
	change("meta", 1, 10, 0);
	change("meta", 1, 0, 0);
	for (uint64_t block = 0; block < BLOCKS; block++)
		assert_int_equal(index_update(opened, delete_block, &block), 0);
	index_totals(opened, &all);
	assert_int_equal(all.files, 0);
	assert_int_equal(all.bytes, 0);
	assert_int_equal(all.young, 0);
	for (int at = 7; at <= 15; at += 8) {
		end(NULL);
		begin(NULL);
		change_closed("meta", 1, at, 0x80);
		assert_int_equal(open_again(), -EUCLEAN);
	}
}

/* From so many starts on ids would come again. */
static void starts(void **state)
{
	(void)state;
	change("meta", 0, 2, 0x7f);
	change_closed("meta", 0, 2, 0x80);
	assert_int_equal(open_again(), -EUCLEAN);
	assert_non_null(strstr(msg, "remove the cache directory"));
}

/* What LMDB was at when a page of its map was not to be had is lost, on purpose. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:mdb_txn_begin\nleak:mdb_cursor_open\n";
}

static void cut(off_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	assert_int_equal(truncate(path, size), 0);
}

/* Pages that the disk does not give, to a reader and to a change: an error, and no more. */
static void faults(void **state)
{
	uint64_t block = 0, sum;
	unsigned int i;

	(void)state;
	/* cmocka has signals of its own by now. */
	assert_int_equal(open_again(), 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(index_block(opened, 1, 0, &sum, 1), 0);
		/* The pages that say where the others are, or all but those. */
		cut(i & 1 ? 8192 : 0);
		if (i & 2)
			assert_int_equal(index_block(opened, 1, 0, &sum, 1), -EIO);
		else
			assert_int_equal(index_update(opened, delete_block, &block), -EIO);
		assert_true(index_is_broken(opened));
		/* Nobody waits for a lock that is never let go. */
		assert_int_equal(index_update(opened, put_block, &block), -EIO);
		assert_int_equal(index_block(opened, 1, 0, &sum, 1), -EIO);
		assert_int_equal(index_bytes(opened), 0);
		index_detach(opened);
		/* What is left is damaged; if it is nothing, it is made anew. */
		if (i & 1) {
			assert_int_equal(index_attach(opened, dir, msg, sizeof(msg)), -EUCLEAN);
			cut(0);
		}
		assert_int_equal(index_attach(opened, dir, msg, sizeof(msg)), 0);
		assert_false(index_is_broken(opened));
		assert_int_equal(index_block(opened, 1, 0, &sum, 1), -ENOENT);
		assert_int_equal(index_update(opened, put_block, &block), 0);
	}
}

static void *read_on(void *arg)
{
	uint64_t sum;

	(void)arg;
	while (!index_block(opened, 1, 0, &sum, 1))
		;
	return NULL;
}

/* Many threads at once, with signals blocked as the workers have them. */
static void faults_at_once(void **state)
{
	pthread_t threads[8];
	sigset_t all, old;
	uint64_t block = 0;

	(void)state;
	assert_int_equal(open_again(), 0);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, NULL), 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	for (int i = 0; i < 20; i++)
		assert_int_equal(index_update(opened, put_block, &block), 0);
	cut(0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(index_is_broken(opened));
	assert_int_equal(open_again(), 0);
}

static int put_digests(struct index_txn *txn, void *arg)
{
	const char *text = arg;

	return index_put_digests(txn, 1, (const unsigned char *)text, strlen(text));
}

static void kept(const char *wanted)
{
	unsigned char bytes[INDEX_DIGESTS_MAX];
	size_t len = 0;

	assert_int_equal(index_digests(opened, 1, &file.hash, bytes, &len), wanted ? 0 : -ENOENT);
	if (wanted) {
		assert_int_equal(len, strlen(wanted));
		assert_memory_equal(bytes, wanted, len);
	}
}

/* What an index has that is older than the table of digests: all but that. */
static void drop_digests(void)
{
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	index_close(opened);
	opened = NULL;
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
	assert_int_equal(mdb_env_open(env, dir, MDB_NOTLS, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, "digests", 0, &dbi), 0);
	assert_int_equal(mdb_drop(txn, dbi, 1), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

/* Digests are kept with their file, and go with its last block. */
static void digests(void **state)
{
	const struct index_hash other = { 1, 3 };
	unsigned char bytes[INDEX_DIGESTS_MAX];
	size_t len;

	(void)state;
	kept(NULL);
	assert_int_equal(index_update(opened, put_digests, "one"), 0);
	assert_int_equal(index_update(opened, put_digests, "another"), 0);
	kept("another");
	assert_int_equal(open_again(), 0);
	kept("another");
	/* Not of a file that has its number by now. */
	assert_int_equal(index_digests(opened, 1, &other, bytes, &len), -ENOENT);
	for (uint64_t block = 0; block < BLOCKS; block++) {
		kept("another");
		assert_int_equal(index_update(opened, delete_block, &block), 0);
	}
	kept(NULL);
	assert_int_equal(index_update(opened, put_digests, "one"), -ENOENT);
	for (uint64_t block = 0; block < BLOCKS; block++)
		assert_int_equal(index_update(opened, put_block, &block), 0);
	kept(NULL);
	/* A record that is no such thing. */
	assert_int_equal(index_update(opened, put_digests, "one"), 0);
	change("digests", 0, -1, 15);
	kept(NULL);
	assert_int_equal(index_update(opened, put_digests, "one"), 0);
	change("digests", 0, 3, 9);
	kept(NULL);
	/* An older index is given the table, and loses nothing. */
	drop_digests();
	assert_int_equal(open_again(), 0);
	kept(NULL);
	assert_int_equal(index_update(opened, put_digests, "one"), 0);
	kept("one");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files, begin, end),
		cmocka_unit_test_setup_teardown(blocks, begin, end),
		cmocka_unit_test_setup_teardown(counts, begin, end),
		cmocka_unit_test_setup_teardown(sources, begin, end),
		cmocka_unit_test_setup_teardown(pins, begin, end),
		cmocka_unit_test_setup_teardown(digests, begin, end),
		cmocka_unit_test_setup_teardown(totals, begin, end),
		cmocka_unit_test_setup_teardown(starts, begin, end),
		cmocka_unit_test_setup_teardown(faults, begin, end),
		cmocka_unit_test_setup_teardown(faults_at_once, begin, end),
	};

	return cmocka_run_group_tests_name("store_index", tests, NULL, NULL);
}
