// SPDX-License-Identifier: MIT
/* Orders as data: in memory, as JSON, on disk; and what comes after a shard. */
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
#include <unistd.h>
#include <cmocka.h>

#include "profile.h"
#include "profile_file.h"
#include "rig.h"
#include "shard.h"

static char msg[512];

/* Two files of 8 blocks of 64 KiB and one that is short, read by two. */
static struct profile *sample(void)
{
	static const uint64_t one[] = { 0, 1, 2, 7, 6 }, other[] = { 4, 5 };
	struct profile *profile;
	uint32_t stream;
	size_t file;

	assert_int_equal(profile_create("m", 16, &profile), 0);
	assert_int_equal(profile_add_file(profile, "a", "v1", 8 * 65536, &file), 0);
	assert_int_equal(file, 0);
	assert_int_equal(profile_add_file(profile, "b", "", 7 * 65536 + 1, &file), 0);
	assert_int_equal(file, 1);
	assert_int_equal(profile_add_stream(profile, &stream), 0);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(profile_add(profile, stream, profile_place(0, one[i])), 0);
	assert_int_equal(profile_add_stream(profile, &stream), 0);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(profile_add(profile, stream, profile_place(1, other[i])), 0);
	return profile;
}

static void test_places(void **state)
{
	struct profile *profile = sample();
	uint32_t stream;
	size_t position, file;

	(void)state;
	assert_int_equal(profile_add(profile, 1, profile_place(0, 7)), -EEXIST);
	assert_int_equal(profile->count, 7);
	assert_true(profile_find(profile, profile_place(0, 7), &stream, &position));
	assert_int_equal(stream, 0);
	assert_int_equal(position, 3);
	assert_false(profile_find(profile, profile_place(1, 7), &stream, &position));
	assert_int_equal(profile_find_file(profile, "c", &file), -ENOENT);
	assert_int_equal(profile_blocks(profile, 1), 8);
	/* So many that the table grows more than once. */
	assert_int_equal(profile_add_file(profile, "c", "", 1ULL << 40, &file), 0);
	for (uint64_t i = 0; i < 5000; i++)
		assert_int_equal(profile_add(profile, 1, profile_place(file, i * 3)), 0);
	for (uint64_t i = 0; i < 5000; i++) {
		assert_true(profile_find(profile, profile_place(file, i * 3), &stream, &position));
		assert_int_equal(position, i + 2);
		assert_false(
			profile_find(profile, profile_place(file, i * 3 + 1), &stream, &position));
	}
	profile_free(profile);
}

static void test_full(void **state)
{
	struct profile *profile;
	uint32_t stream;
	size_t file;
	int err = 0;

	(void)state;
	assert_int_equal(profile_create("", 16, &profile), 0);
	assert_int_equal(profile_add_file(profile, "a", "", 1ULL << 50, &file), 0);
	assert_int_equal(profile_add_stream(profile, &stream), 0);
	for (uint64_t i = 0; i < PROFILE_BLOCKS_MAX && !err; i++)
		err = profile_add(profile, stream, profile_place(file, i));
	assert_int_equal(err, 0);
	assert_int_equal(profile_add(profile, stream, profile_place(file, 1 << 30)), -E2BIG);
	profile_free(profile);
}

static void same(const struct profile *a, const struct profile *b)
{
	assert_string_equal(a->dir, b->dir);
	assert_int_equal(a->block_shift, b->block_shift);
	assert_int_equal(a->file_count, b->file_count);
	assert_int_equal(a->stream_count, b->stream_count);
	for (size_t i = 0; i < a->file_count; i++) {
		assert_string_equal(a->files[i].name, b->files[i].name);
		assert_string_equal(a->files[i].version, b->files[i].version);
		assert_int_equal(a->files[i].size, b->files[i].size);
	}
	for (size_t i = 0; i < a->stream_count; i++) {
		assert_int_equal(a->streams[i].count, b->streams[i].count);
		assert_memory_equal(a->streams[i].places, b->streams[i].places,
				    a->streams[i].count * sizeof(uint64_t));
	}
}

static void test_json(void **state)
{
	struct profile *profile = sample(), *again;
	json_t *json = profile_json(profile);

	(void)state;
	assert_non_null(json);
	assert_string_equal(json_string_value(json_array_get(json_object_get(json, "streams"), 0)),
			    "0:0+3 0:7 0:6");
	assert_int_equal(profile_parse(json, &again, msg, sizeof(msg)), 0);
	same(profile, again);
	json_decref(json);
	profile_free(profile);
	profile_free(again);
}

static void refused(const char *files, const char *streams, const char *sentence)
{
	char text[1024];
	struct profile *profile;
	json_t *json;

	snprintf(text, sizeof(text),
		 "{\"directory\": \"\", \"block_size\": 65536, \"files\": %s, \"streams\": %s}",
		 files, streams);
	json = json_loads(text, 0, NULL);
	assert_non_null(json);
	msg[0] = '\0';
	assert_int_equal(profile_parse(json, &profile, msg, sizeof(msg)), -EINVAL);
	if (!strstr(msg, sentence))
		fail_msg("\"%s\" does not say \"%s\"", msg, sentence);
	json_decref(json);
}

static void refused_model(const char *text, const char *sentence)
{
	struct profile *profile;
	json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);

	assert_non_null(json);
	msg[0] = '\0';
	assert_int_equal(profile_parse(json, &profile, msg, sizeof(msg)), -EINVAL);
	if (!strstr(msg, sentence))
		fail_msg("\"%s\" does not say \"%s\"", msg, sentence);
	json_decref(json);
}

static void test_refused(void **state)
{
	static const char one[] = "[{\"name\": \"a\", \"size\": 200000}]";
	static const char tail[] = "\"block_size\": 65536, \"files\": [], \"streams\": []}";
	static const char *const dirs[] = { "..", "a/../b", "/a", "a/", "a//b", "." };
	char text[256];

	(void)state;
	refused(one, "[\"0:4\"]", "past the end");
	refused(one, "[\"0:3+2\"]", "past the end");
	refused(one, "[\"0:0+18446744073709551600\"]", "past the end");
	refused(one, "[\"0:99999999999999999999999\"]", "FILE:BLOCK");
	refused(one, "[\"1:0\"]", "file 1 of 1");
	refused(one, "[\"0:0 0:1\", \"0:1\"]", "twice");
	refused(one, "[\"0:0+0\"]", "FILE:BLOCK");
	refused(one, "[\"0:0  0:1\"]", "FILE:BLOCK");
	refused(one, "[\"0:0 \"]", "FILE:BLOCK");
	refused(one, "[\"0:-1\"]", "FILE:BLOCK");
	refused(one, "[\"0 0\"]", "FILE:BLOCK");
	refused(one, "[\"0:1x\"]", "FILE:BLOCK");
	refused(one, "[7]", "no text");
	refused(one, "[]", "no blocks");
	refused(one, "{}", "lists");
	refused("[{\"name\": \"a\"}]", "[\"0:0\"]", "size");
	refused("[{\"name\": \"a\", \"size\": -1}]", "[\"0:0\"]", "size");
	refused("[{\"name\": \"a/b\", \"size\": 1}]", "[\"0:0\"]", "name");
	refused("[{\"name\": \"..\", \"size\": 1}]", "[\"0:0\"]", "name");
	refused("[{\"size\": 1}]", "[\"0:0\"]", "name");
	refused("[{\"name\": \"a\", \"size\": 1, \"version\": 3}]", "[\"0:0\"]", "version");
	refused("[{\"name\": \"a\", \"size\": 1}, {\"name\": \"a\", \"size\": 1}]", "[\"0:0\"]",
		"twice");
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(text, sizeof(text), "{\"directory\": \"%s\", %s", dirs[i], tail);
		refused_model(text, "directory");
	}
	refused_model("{\"directory\": \"\", \"block_size\": 65535, \"files\": [], \"streams\": []}",
		      "power of two");
	refused_model("{\"directory\": \"\", \"files\": [], \"streams\": []}", "power of two");
	refused_model("[]", "directory");
	refused_model("3", "directory");
}

static void test_scaled(void **state)
{
	struct profile *profile = sample(), *large, *small;

	(void)state;
	assert_int_equal(profile_scaled(profile, 17, &large), 0);
	/* 0 1 2 7 6 are 0 1 3 in blocks of twice the size. */
	assert_int_equal(large->streams[0].count, 3);
	assert_int_equal(large->streams[0].places[1], profile_place(0, 1));
	assert_int_equal(large->streams[0].places[2], profile_place(0, 3));
	assert_int_equal(profile_scaled(large, 16, &small), 0);
	assert_int_equal(small->streams[0].count, 6);
	assert_int_equal(small->streams[1].count, 2);
	profile_free(profile);
	profile_free(large);
	profile_free(small);
}

/* ---- on disk ---- */

static int each_counts(void *arg, const struct profile_found *found)
{
	unsigned int *count = arg;

	assert_true(found->profile->count > 0);
	(*count)++;
	return 0;
}

static void test_files(void **state)
{
	struct profile *profile = sample(), *again;
	unsigned int count = 0;
	struct store *store;
	char pattern[128];
	struct rig rig;
	glob_t found;
	int fd;

	(void)state;
	rig_create(&rig);
	rig_start(&rig);
	store = core_store(rig.core);
	assert_int_equal(profile_file_read(store, "x", "m", &again), -ENOENT);
	assert_int_equal(profile_file_write(store, "x", profile), 0);
	assert_int_equal(profile_file_read(store, "y", "m", &again), -ENOENT);
	/* It outlives the daemon. */
	rig_stop(&rig);
	rig_start(&rig);
	store = core_store(rig.core);
	assert_int_equal(profile_file_read(store, "x", "m", &again), 0);
	same(profile, again);
	profile_free(again);
	free(profile->dir);
	profile->dir = strdup("n/deep");
	assert_int_equal(profile_file_write(store, "x", profile), 0);
	assert_int_equal(profile_file_each(store, NULL, "", each_counts, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(profile_file_drop(store, "x", "n", &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(profile_file_drop(store, "x", "n", &count), 0);
	assert_int_equal(count, 0);
	/* One byte is another: as good as not there, and gone. */
	snprintf(pattern, sizeof(pattern), "%s/order/*", rig.dir);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	fd = open(found.gl_pathv[0], O_WRONLY);
	assert_int_equal(pwrite(fd, "#", 1, 100), 1);
	close(fd);
	globfree(&found);
	assert_int_equal(profile_file_read(store, "x", "m", &again), -ENOENT);
	assert_int_equal(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
	profile_free(profile);
	rig_destroy(&rig);
}

/* ---- shards ---- */

static void test_numbered(void **state)
{
	char next[64];

	(void)state;
	assert_int_equal(shard_numbered("model-00001-of-00030.safetensors", next, sizeof(next)), 0);
	assert_string_equal(next, "model-00002-of-00030.safetensors");
	assert_int_equal(shard_numbered("a-09-of-10.gguf", next, sizeof(next)), 0);
	assert_string_equal(next, "a-10-of-10.gguf");
	assert_int_equal(shard_numbered("a-of-b-1-of-2", next, sizeof(next)), 0);
	assert_string_equal(next, "a-of-b-2-of-2");
	assert_int_equal(shard_numbered("m-00030-of-00030.x", next, sizeof(next)), -ENOENT);
	assert_int_equal(shard_numbered("best-of-breed.x", next, sizeof(next)), -ENOENT);
	assert_int_equal(shard_numbered("m-of-3.x", next, sizeof(next)), -ENOENT);
	assert_int_equal(shard_numbered("model.safetensors", next, sizeof(next)), -ENOENT);
	assert_int_equal(shard_numbered("m-1-of-30.safetensors", next, 8), -ENAMETOOLONG);
	assert_true(shard_is_alike("a.x", "b.x"));
	assert_false(shard_is_alike("a.x", "a.y"));
	assert_false(shard_is_alike("a", "a.y"));
}

/* How many blocks of 64, in this order, until the file counts as read in sequence; 0: never. */
static unsigned int until_read(uint64_t (*nth)(uint64_t i), uint32_t readers)
{
	struct shards *shards;
	unsigned int until = 0;

	assert_int_equal(shards_create(&shards), 0);
	for (uint64_t i = 0; i < 64 && !until; i++)
		if (shards_needed(shards, 3, 64, nth(i), (uint32_t)(i % readers)))
			until = (unsigned int)i + 1;
	assert_int_equal(shards_was_read(shards, 3), until > 0);
	assert_false(shards_was_read(shards, 2));
	shards_free(shards);
	return until;
}

static uint64_t nth_rising(uint64_t i)
{
	return i;
}

static uint64_t nth_swapped(uint64_t i)
{
	return i ^ 1;
}

static uint64_t nth_far(uint64_t i)
{
	return i * 37 % 64;
}

static uint64_t nth_halves(uint64_t i)
{
	return i % 2 * 32 + i / 2;
}

static void test_sequence(void **state)
{
	struct shards *shards;

	(void)state;
	assert_int_equal(until_read(nth_rising, 1), 56);
	assert_int_equal(until_read(nth_swapped, 1), 56);
	assert_int_equal(until_read(nth_far, 1), 0);
	/* Two processes, each its half. */
	assert_int_equal(until_read(nth_halves, 2), 56);
	/* A file of few blocks says nothing. */
	assert_int_equal(shards_create(&shards), 0);
	for (uint64_t i = 0; i < 3; i++)
		assert_false(shards_needed(shards, 0, 3, i, 0));
	shards_free(shards);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),	 cmocka_unit_test(test_full),
		cmocka_unit_test(test_json),	 cmocka_unit_test(test_refused),
		cmocka_unit_test(test_scaled),	 cmocka_unit_test(test_files),
		cmocka_unit_test(test_numbered), cmocka_unit_test(test_sequence),
	};

	return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
