// SPDX-License-Identifier: MIT
/* Reading back what is recorded: nothing but the right bytes comes out. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "rig.h"
#include "store.h"

#define MIB   (1u << 20)
#define SIZE  (9 * MIB + 70003)
#define SHIFT 22

static struct rig rig;
static char source_dir[] = "/var/tmp/wfs-test-source-XXXXXX";
static char source[64], identity[256];
static void *buffer;
static struct object *object;
static uint64_t whole; /* the object's hash */

/* What a block gave. */
static struct {
	XXH64_state_t *state;
	uint64_t bytes;
	int pieces, error;
} got;

static int group_setup(void **state)
{
	char path[128], *bytes = malloc(SIZE);
	unsigned int seed = 5;
	FILE *file;

	(void)state;
	if (!bytes || !mkdtemp(source_dir))
		return -1;
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (char)rand_r(&seed);
	snprintf(path, sizeof(path), "%s/a", source_dir);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, SIZE, file), SIZE);
	assert_int_equal(fclose(file), 0);
	free(bytes);
	snprintf(source, sizeof(source), "file://%s", source_dir);
	snprintf(identity, sizeof(identity), "file://%s", source_dir);
	buffer = aligned_alloc(4096, STORE_READ_BYTES);
	got.state = XXH64_createState();
	return buffer && got.state ? 0 : -1;
}

static int group_teardown(void **state)
{
	char command[128];

	(void)state;
	free(buffer);
	XXH64_freeState(got.state);
	snprintf(command, sizeof(command), "rm -rf %s", source_dir);
	return system(command);
}

static int setup(void **state)
{
	(void)state;
	rig_create(&rig);
	rig_start(&rig);
	object = rig_open(&rig, source, "a", SHIFT);
	/* A file so young proves no version. */
	while (object_attr(object)->flags & ORIGIN_WEAK) {
		object_unref(object);
		rig_pause();
		object = rig_open(&rig, source, "a", SHIFT);
	}
	whole = rig_read(&rig, object);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	XXH64_reset(got.state, 0);
	got.bytes = 0;
	got.pieces = 0;
	got.error = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	object_unref(object);
	rig_destroy(&rig);
	return 0;
}

static struct store_file *open_file(void)
{
	const struct store_key key = { identity, "a", object_attr(object)->version, SIZE, SHIFT };
	struct store_file *file;

	assert_int_equal(store_file_open(core_store(rig.core), &key, &file), 0);
	return file;
}

static int take(void *arg, const void *bytes, uint64_t len)
{
	(void)arg;
	assert_true(len <= STORE_READ_BYTES);
	XXH64_update(got.state, bytes, len);
	got.bytes += len;
	got.pieces++;
	return got.error;
}

static int data_file(int flags)
{
	char pattern[128];
	glob_t found;
	int fd;

	snprintf(pattern, sizeof(pattern), "%s/data/*/*", rig.dir);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	fd = open(found.gl_pathv[0], flags);
	assert_true(fd >= 0);
	if (flags == O_PATH)
		assert_int_equal(unlink(found.gl_pathv[0]), 0);
	globfree(&found);
	return fd;
}

static void flip(uint64_t offset)
{
	int fd = data_file(O_RDWR);
	char byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

static void in_order(void **state)
{
	struct store_file *file = open_file();
	uint64_t block, next = 0;

	(void)state;
	while (!store_next_block(file, next, &block)) {
		assert_int_equal(block, next);
		assert_int_equal(store_read_block(file, block, buffer, take, NULL), 0);
		next++;
	}
	assert_int_equal(next, 3);
	assert_int_equal(got.bytes, SIZE);
	assert_true(XXH64_digest(got.state) == whole);
	/* What there is not. */
	assert_int_equal(store_read_block(file, 3, buffer, take, NULL), -ENOENT);
	assert_int_equal(store_read_block(file, 1ULL << 60, buffer, take, NULL), -ENOENT);
	got.error = -ECANCELED;
	assert_int_equal(store_read_block(file, 0, buffer, take, NULL), -ECANCELED);
	store_file_put(file);
}

static void damaged(void **state)
{
	struct store_file *file = open_file();

	(void)state;
	flip(4 * MIB + 12345);
	assert_int_equal(store_read_block(file, 0, buffer, take, NULL), 0);
	assert_int_equal(store_read_block(file, 1, buffer, take, NULL), -EUCLEAN);
	assert_int_equal(got.bytes, 4 * MIB);
	/* The last byte; what follows it is nobody's. */
	flip(SIZE);
	assert_int_equal(store_read_block(file, 2, buffer, take, NULL), 0);
	flip(SIZE - 1);
	assert_int_equal(store_read_block(file, 2, buffer, take, NULL), -EUCLEAN);
	store_forget(file, 1);
	assert_int_equal(store_read_block(file, 1, buffer, take, NULL), -ENOENT);
	store_file_put(file);
}

static void evicted(void **state)
{
	struct store_file *file = open_file();
	uint64_t blocks, busy, pinned, block;

	(void)state;
	assert_int_equal(store_evict(core_store(rig.core), identity, "a", &blocks, &busy, &pinned),
			 0);
	assert_int_equal(blocks, 3);
	assert_int_equal(store_read_block(file, 0, buffer, take, NULL), -ENOENT);
	assert_int_equal(store_next_block(file, 0, &block), -ENOENT);
	assert_int_equal(got.bytes, 0);
	store_file_put(file);
}

static int evict_then_take(void *arg, const void *bytes, uint64_t len)
{
	uint64_t blocks, busy, pinned;

	if (!got.pieces)
		assert_int_equal(store_evict(core_store(rig.core), identity, "a", &blocks, &busy,
					     &pinned),
				 0);
	return take(arg, bytes, len);
}

/* Between two pieces: what is read then is nobody's, and no damage. */
static void evicted_meanwhile(void **state)
{
	struct object *large = rig_open(&rig, source, "a", 23);
	const struct store_key key = { identity, "a", object_attr(large)->version, SIZE, 23 };
	struct store_file *file;

	(void)state;
	rig_read(&rig, large);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(store_file_open(core_store(rig.core), &key, &file), 0);
	object_unref(large);
	assert_int_equal(store_read_block(file, 0, buffer, evict_then_take, NULL), -ENOENT);
	assert_int_equal(got.pieces, 1);
	store_file_put(file);
}

struct seen {
	int count, lost;
	uint64_t bytes, blocks;
	int answer;
};

static int see(void *arg, const struct store_object *found)
{
	struct seen *seen = arg;

	seen->count++;
	seen->lost += found->lost;
	seen->bytes += found->bytes;
	seen->blocks += found->blocks;
	assert_string_equal(found->key.identity, identity);
	assert_string_equal(found->key.path, "a");
	assert_int_equal(found->key.size, SIZE);
	return seen->answer;
}

static void objects(void **state)
{
	struct store *store = core_store(rig.core);
	struct object *other = rig_open(&rig, source, "a", 20);
	struct seen seen = { 0 };

	(void)state;
	assert_int_equal(store_each_object(store, identity, "", see, &seen), 0);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.bytes, SIZE);
	assert_int_equal(seen.blocks, 3);
	assert_int_equal(seen.lost, 0);
	/* Another block size is another one; nothing is to be found elsewhere. */
	rig_read(&rig, other);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	object_unref(other);
	assert_int_equal(store_each_object(store, identity, "a", see, &seen), 0);
	assert_int_equal(seen.count, 3);
	assert_int_equal(store_each_object(store, identity, "b", see, &seen), 0);
	assert_int_equal(store_each_object(store, "file:///", "", see, &seen), 0);
	assert_int_equal(seen.count, 3);
	seen.answer = -ECANCELED;
	assert_int_equal(store_each_object(store, identity, "", see, &seen), -ECANCELED);
	assert_int_equal(seen.count, 4);
}

static void lost(void **state)
{
	struct seen seen = { 0 };

	(void)state;
	close(data_file(O_PATH));
	assert_int_equal(store_each_object(core_store(rig.core), identity, "", see, &seen), 0);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.lost, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(evicted, setup, teardown),
		cmocka_unit_test_setup_teardown(evicted_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(objects, setup, teardown),
		cmocka_unit_test_setup_teardown(lost, setup, teardown),
	};

	return cmocka_run_group_tests_name("store_read", tests, group_setup, group_teardown);
}
