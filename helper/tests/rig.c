// SPDX-License-Identifier: MIT
#include "rig.h"

#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>
#include <cmocka.h>

#include "../ask.h"
#include "container.h"

static char msg[512];

/*
 * cmocka hears signals itself, and ends with status 255 and no word where it is not a test's own
 * thread that crashed. What is never meant is the sanitizer's to report.
 */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "handle_segv=2:handle_sigill=2:handle_sigfpe=2";
}

void rig_create(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	/* Not in /tmp: that may be a tmpfs, which knows no direct I/O. */
	snprintf(rig->dir, sizeof(rig->dir), "/var/tmp/wfs-test-rig-XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	assert_int_equal(config_create(&rig->config), 0);
	assert_int_equal(config_set(rig->config, "cache", "dir", rig->dir, msg, sizeof(msg)), 0);
	rig->config->workers = 3;
	rig->config->retry_budget_ms = 20000;
	rig->config->stall_timeout_ms = 1000;
}

void rig_start(struct rig *rig)
{
	int err;

	msg[0] = '\0';
	assert_int_equal(config_finish(rig->config, msg, sizeof(msg)), 0);
	err = core_create(rig->config, &rig->core, msg, sizeof(msg));
	/* A process that was killed may not quite have let go. */
	for (int i = 0; !err && i < 500; i++) {
		err = core_open(rig->core, msg, sizeof(msg));
		if (err != -EBUSY)
			break;
		err = 0;
		rig_pause();
	}
	if (!err && !core_store(rig->core))
		err = -EBUSY;
	if (err)
		fail_msg("%s: %s", msg, strerror(-err));
	assert_int_equal(asker_create(rig->core, &rig->asker), 0);
	assert_int_equal(core_start(rig->core, NULL, NULL), 0);
	core_allow_eviction(rig->core, 1);
}

void rig_stop(struct rig *rig)
{
	core_stop(rig->core);
	asker_destroy(rig->asker);
	core_destroy(rig->core);
	rig->core = NULL;
}

void rig_destroy(struct rig *rig)
{
	char command[128];

	if (rig->core)
		rig_stop(rig);
	config_free(rig->config);
	snprintf(command, sizeof(command), "rm -rf %s", rig->dir);
	assert_int_equal(system(command), 0);
}

struct object *rig_open(struct rig *rig, const char *source, const char *path, uint32_t block_shift)
{
	struct origin_attr attr;
	struct origin *origin;
	struct object *object;

	if (core_origin(rig->core, source, NULL, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	if (ask_stat(rig->asker, origin, path, &attr, msg, sizeof(msg)))
		fail_msg("%s", msg);
	assert_int_equal(object_open(rig->core, origin, path, &attr, block_shift, &object), 0);
	origin_unref(origin);
	return object;
}

static void rig_data(struct fetch_want *want, uint32_t unit, uint32_t units, const void *bytes,
		     uint32_t len)
{
	struct rig_want *mine = container_of(want, struct rig_want, want);

	assert_true(unit >= want->unit && unit + units <= want->unit + want->units);
	memcpy(mine->copy + (size_t)(unit - want->unit) * 65536, bytes, len);
	mine->got += len;
}

static void rig_done(struct fetch_want *want, int error, const char *message)
{
	struct rig_want *mine = container_of(want, struct rig_want, want);

	mine->error = error;
	assert_true(!error == !message);
	/* At once: whoever holds what is done keeps buffers from what is not. */
	fetch_release(want);
	mine->done++;
}

struct fetch_want rig_want_of(struct object *object, uint64_t block, uint32_t unit, uint32_t units,
			      enum fetch_why why)
{
	return (struct fetch_want){
		.object = object,
		.block = block,
		.unit = unit,
		.units = units,
		.why = why,
		.data = rig_data,
		.done = rig_done,
	};
}

void rig_want(struct rig *rig, struct rig_want *want, struct object *object, uint64_t block,
	      uint32_t unit, uint32_t units, enum fetch_why why)
{
	memset(want, 0, sizeof(*want));
	want->copy = calloc(units, 65536);
	assert_non_null(want->copy);
	want->want = rig_want_of(object, block, unit, units, why);
	assert_int_equal(fetch_start(rig->core, &want->want), 0);
}

void rig_pause(void)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	nanosleep(&pause, NULL);
}

int rig_wait(struct rig_want *want)
{
	RIG_UNTIL(want->done);
	assert_int_equal(want->done, 1);
	return want->error;
}

void rig_want_free(struct rig_want *want)
{
	free(want->copy);
	want->copy = NULL;
}

uint64_t rig_read(struct rig *rig, struct object *object)
{
	uint64_t size = object_attr(object)->size;
	uint32_t shift = object_block_shift(object);
	uint64_t blocks = ((size - 1) >> shift) + 1, hash;
	struct rig_want *wants = calloc(blocks, sizeof(*wants));
	XXH64_state_t *state = XXH64_createState();

	assert_true(wants && state);
	XXH64_reset(state, 0);
	for (uint64_t i = 0; i < blocks; i++)
		rig_want(rig, &wants[i], object, i, 0, object_units(object, i), FETCH_DEMAND);
	for (uint64_t i = 0; i < blocks; i++) {
		assert_int_equal(rig_wait(&wants[i]), 0);
		XXH64_update(state, wants[i].copy, wants[i].got);
		rig_want_free(&wants[i]);
	}
	free(wants);
	hash = XXH64_digest(state);
	XXH64_freeState(state);
	return hash;
}

char *rig_bytes(size_t size, unsigned int seed)
{
	char *bytes = malloc(size ? size : 1);

	assert_non_null(bytes);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (char)rand_r(&seed);
	return bytes;
}

void rig_source_create(struct rig_source *source)
{
	snprintf(source->dir, sizeof(source->dir), "/var/tmp/wfs-test-source-XXXXXX");
	assert_non_null(mkdtemp(source->dir));
	snprintf(source->url, sizeof(source->url), "file://%s", source->dir);
}

void rig_source_file(const struct rig_source *source, const char *name, size_t size,
		     unsigned int seed)
{
	char path[192], *bytes = rig_bytes(size, seed);
	size_t dir = strlen(source->dir);
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", source->dir, name);
	for (char *slash = strchr(path + dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	free(bytes);
}

int rig_source_remove(const struct rig_source *source)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", source->dir);
	return system(command);
}

uint64_t rig_fetch(struct rig *rig, const char *source, const char *path, uint32_t block_shift)
{
	struct object *object = rig_open(rig, source, path, block_shift);
	uint64_t hash = rig_read(rig, object);

	assert_int_equal(core_sync(rig->core, 30000), 0);
	object_unref(object);
	return hash;
}

unsigned int rig_cached_of(struct object *object)
{
	uint64_t count = 32, bitmap, *sums;
	uint32_t shift = object_block_shift(object);
	size_t n;

	sums = calloc(count << (shift - 16), sizeof(*sums));
	assert_non_null(sums);
	assert_int_equal(object_map(object, 0, count, &bitmap, sums, &n), 0);
	free(sums);
	return (unsigned int)__builtin_popcountll(bitmap);
}

unsigned int rig_cached(struct rig *rig, const char *source, const char *path, uint32_t block_shift)
{
	struct object *object = rig_open(rig, source, path, block_shift);
	unsigned int n = rig_cached_of(object);

	object_unref(object);
	return n;
}

struct rig_dirs {
	struct store_dir_info dirs[4];
	unsigned int count;
};

static void rig_dir_info(void *arg, const struct store_dir_info *info)
{
	struct rig_dirs *dirs = arg;

	assert_true(dirs->count < sizeof(dirs->dirs) / sizeof(dirs->dirs[0]));
	dirs->dirs[dirs->count++] = *info;
}

struct store_dir_info rig_dir(struct rig *rig, unsigned int number)
{
	struct rig_dirs dirs = { 0 };

	store_each_dir(core_store(rig->core), rig_dir_info, &dirs);
	assert_true(number < dirs.count);
	return dirs.dirs[number];
}

size_t rig_data_files(struct rig *rig, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	char pattern[128];
	struct stat st;
	glob_t found;
	size_t n;

	snprintf(pattern, sizeof(pattern), "%s/data/*/*", rig->dir);
	if (ret_bytes)
		*ret_bytes = 0;
	if (glob(pattern, 0, NULL, &found))
		return 0;
	n = found.gl_pathc;
	for (size_t i = 0; i < n; i++)
		if (!stat(found.gl_pathv[i], &st))
			bytes += (uint64_t)st.st_blocks * 512;
	globfree(&found);
	if (ret_bytes)
		*ret_bytes = bytes;
	return n;
}
