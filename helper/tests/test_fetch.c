// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "ask.h"
#include "container.h"
#include "counters.h"
#include "loop.h"
#include "rig_faulty.h"

#define MIB (1u << 20)

#define SIZE (11 * MIB + 12345)

static int group_setup(void **state)
{
	(void)state;
	return rig_faulty_group(SIZE);
}

static struct object *open_f(uint32_t shift)
{
	return rig_open(&rig, faulty.url, "f", shift);
}

static void test_cold_held_warm(void **state)
{
	static const uint32_t shifts[] = { 16, 20, 22, 26 };
	uint64_t hash = XXH64(bytes, SIZE, 0);

	(void)state;
	for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
		uint64_t before = counter_get(origin_bytes);
		struct object *object;

		rig_start(&rig);
		object = open_f(shifts[i]);
		assert_true(rig_read(&rig, object) == hash);
		/* Counted when the answer ends, which is after its last byte. */
		RIG_UNTIL(counter_get(origin_bytes) - before >= SIZE);
		assert_int_equal(counter_get(origin_bytes) - before, SIZE);
		/* Whether it is held still or durable: not from the origin. */
		assert_true(rig_read(&rig, object) == hash);
		assert_int_equal(core_sync(rig.core, 30000), 0);
		assert_true(rig_read(&rig, object) == hash);
		object_unref(object);
		rig_stop(&rig);

		rig_start(&rig);
		object = open_f(shifts[i]);
		assert_true(rig_read(&rig, object) == hash);
		assert_int_equal(counter_get(origin_bytes) - before, SIZE);
		object_unref(object);
		rig_stop(&rig);
	}
}

static void test_one_get(void **state)
{
	struct rig_want wants[64];
	struct object *object;

	(void)state;
	rig_start(&rig);
	object = open_f(22);
	for (size_t i = 0; i < 64; i++)
		rig_want(&rig, &wants[i], object, 1, (uint32_t)i, 1,
			 i % 2 ? FETCH_DEMAND : FETCH_READAHEAD);
	for (size_t i = 0; i < 64; i++) {
		assert_int_equal(rig_wait(&wants[i]), 0);
		assert_memory_equal(wants[i].copy, bytes + 4 * MIB + i * 65536, 65536);
		rig_want_free(&wants[i]);
	}
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 1);
	object_unref(object);
}

static void test_neighbours_join(void **state)
{
	struct object *object;
	struct rig_want want;

	(void)state;
	rig.config->max_concurrent_fetches = 1;
	rig_start(&rig);
	object = open_f(16);
	faulty_fault(
		&faulty,
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"delay\", \"seconds\": 1, \"times\": 1}");
	rig_want(&rig, &want, object, 100, 0, 1, FETCH_DEMAND);
	RIG_UNTIL(counter_get(active_fetches));
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(rig_wait(&want), 0);
	rig_want_free(&want);
	/* 177 blocks of 64 KiB, queued while the first was on its way. */
	assert_in_range(faulty_count(&faulty, "GET", "/f"), 3, 12);
	object_unref(object);
}

/* GETs of what is behind the first 4 MiB. */
static int gets_behind(const char *path)
{
	json_t *log = faulty_log(&faulty), *entry;
	size_t i;
	int n = 0;

	json_array_foreach(log, i, entry) {
		const char *range = json_string_value(json_object_get(entry, "range"));

		n += range && !strcmp(json_string_value(json_object_get(entry, "path")), path) &&
		     strtoull(strchr(range, '=') + 1, NULL, 10) >= 4 * MIB;
	}
	json_decref(log);
	return n;
}

/* How many GETs bring 23 blocks that were queued while the one before was on its way. */
static int prefetch_gets(const char *name, bool bulk)
{
	struct rig_want wants[24];
	char text[128], path[16];
	struct object *object;

	snprintf(path, sizeof(path), "/%s", name);
	snprintf(text, sizeof(text), "%s?size=100000000&modified=1000000000", path);
	faulty_put(&faulty, text, "", 0);
	snprintf(text, sizeof(text), "{\"path\": \"%s\", \"method\": \"GET\", \"kind\": \"mute\"}",
		 path);
	faulty_fault(&faulty, text);
	object = rig_open(&rig, faulty.url, name, 22);
	for (uint64_t i = 0; i < 24; i++) {
		uint32_t units = object_units(object, i);

		wants[i] = (struct rig_want){ .copy = calloc(units, 65536) };
		assert_non_null(wants[i].copy);
		wants[i].want = rig_want_of(object, i, 0, units, FETCH_PREFETCH);
		wants[i].want.bulk = bulk;
		assert_int_equal(fetch_start(rig.core, &wants[i].want), 0);
		/* The first alone, and no wait for its server from there on. */
		if (!i)
			RIG_UNTIL(faulty_count(&faulty, "GET", path) == 1);
	}
	RIG_UNTIL(counter_get(queued_blocks) == 23);
	faulty_clear(&faulty);
	for (size_t i = 0; i < 24; i++) {
		assert_int_equal(rig_wait(&wants[i]), 0);
		rig_want_free(&wants[i]);
	}
	object_unref(object);
	return gets_behind(path);
}

/* What nobody waits for comes in requests that are twice as long. */
static void test_bulk(void **state)
{
	(void)state;
	rig.config->max_concurrent_fetches = 1;
	rig.config->workers = 1;
	rig.config->stall_timeout_ms = 30000;
	rig_start(&rig);
	/* Two blocks a time; four. One less if the first has to be asked for again, with others. */
	assert_in_range(prefetch_gets("piece", false), 11, 12);
	assert_in_range(prefetch_gets("bulk", true), 5, 6);
}

static void test_resumes(void **state)
{
	uint64_t before = counter_get(origin_bytes), retried = counter_get(retries);
	struct object *object;

	(void)state;
	faulty_fault(
		&faulty,
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"short\", \"after\": 700000, \"times\": 6}");
	rig_start(&rig);
	object = open_f(26);
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(counter_get(retries) - retried, 6);
	/* At most a page is asked again after each break. */
	assert_in_range(counter_get(origin_bytes) - before, SIZE, SIZE + 6 * 4096);
	object_unref(object);
}

static void test_busy_server(void **state)
{
	struct object *object;

	(void)state;
	rig_start(&rig);
	object = open_f(22);
	faulty_fault(
		&faulty,
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"status\", \"code\": 503, \"times\": 3}");
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	object_unref(object);
}

static void test_stalls(void **state)
{
	struct object *object;

	(void)state;
	rig_start(&rig);
	object = open_f(22);
	faulty_fault(
		&faulty,
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"stall\", \"after\": 100000, \"times\": 2}");
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	object_unref(object);
}

/* As many transfers as there may be hang: others are served meanwhile. */
/* A budget that is over when a stall is found out: tried again all the same. */
static void test_stalls_too_long(void **state)
{
	struct rig_want want;
	struct object *object;

	(void)state;
	rig.config->retry_budget_ms = 200;
	rig_start(&rig);
	object = open_f(22);
	faulty_fault(
		&faulty,
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"stall\", \"after\": 0, \"times\": 1}");
	rig_want(&rig, &want, object, 0, 0, 64, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	assert_memory_equal(want.copy, bytes, 4 * MIB);
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 2);
	rig_want_free(&want);
	object_unref(object);
}

static void test_all_stall(void **state)
{
	struct rig_want hung[4], want;
	struct object *object;

	(void)state;
	rig.config->connections_per_host = 4;
	rig.config->stall_timeout_ms = 60000;
	rig_start(&rig);
	object = open_f(20);
	faulty_fault(
		&faulty,
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"stall\", \"after\": 0, \"times\": 4}");
	for (uint64_t i = 0; i < 4; i++)
		rig_want(&rig, &hung[i], object, 2 * i, 0, 1, FETCH_DEMAND);
	RIG_UNTIL(counter_get(active_fetches) == 4);
	rig_want(&rig, &want, object, 9, 0, 16, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	assert_memory_equal(want.copy, bytes + 9 * MIB, MIB);
	rig_want_free(&want);
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(hung[i].done, 0);
		fetch_release(&hung[i].want);
		rig_want_free(&hung[i]);
	}
	object_unref(object);
}

struct crowd {
	struct object *object;
	unsigned int seed;
	unsigned int wrong;
};

/* Wants at random, some let go before they are answered, some promoted. */
static void *crowd_run(void *arg)
{
	struct crowd *crowd = arg;
	uint32_t shift = object_block_shift(crowd->object);
	uint64_t blocks = (SIZE - 1) / (1u << shift) + 1;
	struct rig_want wants[8];

	for (unsigned int round = 0; round < 150; round++) {
		bool released[8] = { false };

		for (size_t i = 0; i < 8; i++) {
			uint64_t block = (uint64_t)rand_r(&crowd->seed) % blocks;
			uint32_t units = object_units(crowd->object, block);
			uint32_t unit = (uint32_t)rand_r(&crowd->seed) % units;

			rig_want(&rig, &wants[i], crowd->object, block, unit,
				 1 + (uint32_t)rand_r(&crowd->seed) % (units - unit),
				 (enum fetch_why)(rand_r(&crowd->seed) % 3));
		}
		for (size_t i = 0; i < 8; i++) {
			if (rand_r(&crowd->seed) % 8 == 0) {
				fetch_release(&wants[i].want);
				released[i] = true;
			} else if (rand_r(&crowd->seed) % 4 == 0) {
				fetch_promote(&wants[i].want, FETCH_DEMAND);
			}
		}
		for (size_t i = 0; i < 8; i++) {
			const struct fetch_want *want = &wants[i].want;
			uint64_t at = (want->block << shift) + ((uint64_t)want->unit << 16);

			if (!released[i] && (rig_wait(&wants[i]) ||
					     memcmp(wants[i].copy, bytes + at, wants[i].got)))
				crowd->wrong++;
			rig_want_free(&wants[i]);
		}
	}
	return NULL;
}

/* Many at once, little memory, a cache that is too small: everything stays right. */
static void test_crowd(void **state)
{
	static const uint32_t shifts[] = { 16, 20 };
	struct crowd crowds[4];
	pthread_t threads[4];
	char source[64], path[64] = "/var/tmp/wfs-test-crowd-XXXXXX";
	int fd;

	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(source, sizeof(source), "file://%s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	for (size_t i = 0; i < 2; i++) {
		int file = openat(fd, "f", O_RDWR | O_CREAT | O_TRUNC, 0600);
		struct object *object;

		assert_int_equal(write(file, bytes, SIZE), SIZE);
		close(file);
		rig.config->buffer_memory = 16 * MIB;
		rig.config->capacity.bytes = 6 * MIB;
		rig_start(&rig);
		object = rig_open(&rig, source, "f", shifts[i]);
		for (unsigned int j = 0; j < 4; j++) {
			crowds[j] = (struct crowd){ object, j + 1, 0 };
			assert_int_equal(pthread_create(&threads[j], NULL, crowd_run, &crowds[j]),
					 0);
		}
		for (unsigned int j = 0; j < 4; j++) {
			pthread_join(threads[j], NULL);
			assert_int_equal(crowds[j].wrong, 0);
		}
		object_unref(object);
		assert_int_equal(core_sync(rig.core, 30000), 0);
		RIG_UNTIL(!counter_get(buffer_used_bytes));
		assert_int_equal(counter_get(queued_blocks), 0);
		assert_int_equal(counter_get(held_blocks), 0);
		rig_stop(&rig);
	}
	unlinkat(fd, "f", 0);
	close(fd);
	rmdir(path);
}

static void test_gives_up(void **state)
{
	struct timespec start, end;
	struct rig_want want;
	struct object *object;

	(void)state;
	rig.config->retry_budget_ms = 1000;
	rig_start(&rig);
	object = open_f(22);
	faulty_fault(&faulty,
		     "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"status\", \"code\": 500}");
	clock_gettime(CLOCK_MONOTONIC, &start);
	rig_want(&rig, &want, object, 0, 0, 4, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), -EIO);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_in_range(end.tv_sec - start.tv_sec, 0, 10);
	assert_true(faulty_count(&faulty, "GET", "/f") > 1);
	rig_want_free(&want);
	/* A failure is not remembered. */
	faulty_clear(&faulty);
	rig_want(&rig, &want, object, 0, 0, 4, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), 0);
	assert_memory_equal(want.copy, bytes, 4 * 65536);
	rig_want_free(&want);
	object_unref(object);
}

static void test_changed(void **state)
{
	struct rig_want want;
	struct object *object;
	int gets;

	(void)state;
	faulty_put(&faulty, "/g?modified=1000000000", bytes, MIB);
	rig_start(&rig);
	object = rig_open(&rig, faulty.url, "g", 22);
	faulty_put(&faulty, "/g?modified=1000000000", bytes + MIB, MIB);
	gets = faulty_count(&faulty, "GET", "/g");
	rig_want(&rig, &want, object, 0, 0, 16, FETCH_DEMAND);
	assert_int_equal(rig_wait(&want), -ESTALE);
	assert_int_equal(want.got, 0);
	assert_int_equal(faulty_count(&faulty, "GET", "/g"), gets + 1);
	rig_want_free(&want);
	object_unref(object);
}

static void test_cancel(void **state)
{
	struct rig_want want;
	struct object *object;

	(void)state;
	rig_start(&rig);
	object = open_f(22);
	faulty_fault(&faulty,
		     "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"delay\", \"seconds\": 1}");
	rig_want(&rig, &want, object, 0, 0, 64, FETCH_DEMAND);
	RIG_UNTIL(faulty_count(&faulty, "GET", "/f") > 0 || counter_get(active_fetches));
	fetch_release(&want.want);
	assert_int_equal(want.done, 0);
	rig_want_free(&want);
	/* Released before it was looked at. */
	rig_want(&rig, &want, object, 1, 0, 64, FETCH_DEMAND);
	fetch_release(&want.want);
	rig_want_free(&want);
	object_unref(object);
}

/* More urgent wants overtake; a promoted one as well. */
static void test_order(void **state)
{
	struct rig_want wants[10];
	struct object *object;
	json_t *log, *entry;
	size_t i, n = 0;
	int seen[3] = { -1, -1, -1 };

	(void)state;
	rig.config->max_concurrent_fetches = 1;
	rig.config->workers = 1;
	rig.config->stall_timeout_ms = 10000;
	rig_start(&rig);
	/* A file of its own: the server may yet log what another test had asked. */
	faulty_put(&faulty, "/o?modified=1000000000", bytes, SIZE);
	object = rig_open(&rig, faulty.url, "o", 20);
	faulty_fault(
		&faulty,
		"{\"path\": \"/o\", \"method\": \"GET\", \"kind\": \"delay\", \"seconds\": 0.5, \"times\": 1}");
	rig_want(&rig, &wants[0], object, 10, 0, 16, FETCH_DEMAND);
	RIG_UNTIL(counter_get(active_fetches));
	/* Blocks that do not touch, so that they are not joined. */
	rig_want(&rig, &wants[1], object, 0, 0, 16, FETCH_PREFETCH);
	rig_want(&rig, &wants[2], object, 4, 0, 16, FETCH_PREFETCH);
	rig_want(&rig, &wants[3], object, 8, 0, 16, FETCH_READAHEAD);
	RIG_UNTIL(counter_get(queued_blocks) == 3);
	fetch_promote(&wants[2].want, FETCH_DEMAND);
	for (i = 0; i < 4; i++) {
		assert_int_equal(rig_wait(&wants[i]), 0);
		rig_want_free(&wants[i]);
	}
	log = faulty_log(&faulty);
	json_array_foreach(log, i, entry) {
		const char *range = json_string_value(json_object_get(entry, "range"));

		if (!range || strcmp(json_string_value(json_object_get(entry, "path")), "/o"))
			continue;
		if (n++ && n <= 4)
			seen[n - 2] = (int)(strtoull(strchr(range, '=') + 1, NULL, 10) / MIB);
	}
	json_decref(log);
	assert_int_equal(seen[0], 4);
	assert_int_equal(seen[1], 8);
	assert_int_equal(seen[2], 0);
	object_unref(object);
}

static void test_little_memory(void **state)
{
	struct object *object;

	(void)state;
	rig.config->buffer_memory = 16 * MIB;
	rig_start(&rig);
	faulty_put(&faulty, "/big?size=100000000&modified=1000000000", "", 0);
	object = rig_open(&rig, faulty.url, "big", 22);
	assert_true(rig_read(&rig, object) == rig_read(&rig, object));
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(counter_get(buffer_used_bytes), 0);
	object_unref(object);
}

static void corrupt_data_files(void)
{
	char pattern[128], byte;
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/data/*/*", rig.dir);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		int fd = open(found.gl_pathv[i], O_RDWR);

		assert_true(fd >= 0);
		assert_int_equal(pread(fd, &byte, 1, 5000000), 1);
		byte = (char)~byte;
		assert_int_equal(pwrite(fd, &byte, 1, 5000000), 1);
		assert_int_equal(fsync(fd), 0);
		close(fd);
	}
	globfree(&found);
}

static void test_corrupt(void **state)
{
	uint64_t hash = XXH64(bytes, SIZE, 0), corrupt = counter_get(blocks_corrupt);
	struct object *object;

	(void)state;
	rig_start(&rig);
	object = open_f(22);
	assert_true(rig_read(&rig, object) == hash);
	object_unref(object);
	rig_stop(&rig);
	corrupt_data_files();
	faulty_clear(&faulty);

	rig_start(&rig);
	object = open_f(22);
	assert_true(rig_read(&rig, object) == hash);
	assert_int_equal(counter_get(blocks_corrupt) - corrupt, 1);
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 1);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	/* Stored again, and right this time. */
	assert_true(rig_read(&rig, object) == hash);
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 1);
	object_unref(object);
}

static void test_stop_in_the_middle(void **state)
{
	struct rig_want wants[3];
	struct object *object;
	struct timespec start, end;

	(void)state;
	rig.config->stall_timeout_ms = 60000;
	rig_start(&rig);
	object = open_f(22);
	faulty_fault(&faulty,
		     "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"stall\", \"after\": 70000}");
	for (uint64_t i = 0; i < 3; i++)
		rig_want(&rig, &wants[i], object, i, 0, object_units(object, i), FETCH_DEMAND);
	RIG_UNTIL(wants[0].got > 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	core_stop(rig.core);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_in_range(end.tv_sec - start.tv_sec, 0, 5);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(rig_wait(&wants[i]), -ECANCELED);
		rig_want_free(&wants[i]);
	}
	object_unref(object);
}

struct stuck {
	struct loop_task task;
	sem_t begun, end;
};

static void stick(struct loop_task *task)
{
	struct stuck *stuck = container_of(task, struct stuck, task);

	sem_post(&stuck->begun);
	while (sem_wait(&stuck->end) && errno == EINTR)
		;
}

/* What the watchdog asks: a worker that is stuck is noticed, and that it is none any more. */
static void test_alive(void **state)
{
	struct stuck stuck = { .task.run = stick };

	(void)state;
	sem_init(&stuck.begun, 0, 0);
	sem_init(&stuck.end, 0, 0);
	rig_start(&rig);
	RIG_UNTIL(core_alive(rig.core));
	RIG_UNTIL(core_alive(rig.core));
	loop_post(core_loop(rig.core, 0), &stuck.task);
	while (sem_wait(&stuck.begun) && errno == EINTR)
		;
	core_alive(rig.core);
	for (int i = 0; i < 20; i++) {
		assert_false(core_alive(rig.core));
		rig_pause();
	}
	sem_post(&stuck.end);
	RIG_UNTIL(core_alive(rig.core));
	sem_destroy(&stuck.begun);
	sem_destroy(&stuck.end);
}

/* What was begun is answered in any order, and what is not wanted any more ends at once. */
static void test_ask_ahead(void **state)
{
	struct question *questions[3];
	struct origin_attr attr = { 0 };
	struct origin *origin;
	char msg[512];

	(void)state;
	assert_int_equal(core_origin(rig.core, faulty.url, NULL, &origin, msg, sizeof(msg)), 0);
	faulty_fault(&faulty, "{\"path\": \"/f\", \"method\": \"HEAD\", \"kind\": \"mute\"}");
	assert_int_equal(ask_stat_begin(rig.asker, origin, "f", &questions[0]), 0);
	assert_int_equal(ask_stat_begin(rig.asker, origin, "none", &questions[1]), 0);
	assert_int_equal(ask_stat_begin(rig.asker, origin, "f", &questions[2]), 0);
	RIG_UNTIL(faulty_count(&faulty, "HEAD", "/f") == 2);
	assert_int_equal(ask_stat_end(questions[1], &attr, msg, sizeof(msg)), -ENOENT);
	assert_non_null(strstr(msg, "not found"));
	ask_stat_drop(questions[2]);
	faulty_clear(&faulty);
	assert_int_equal(ask_stat_end(questions[0], &attr, msg, sizeof(msg)), 0);
	assert_int_equal(attr.size, SIZE);
	/* When the daemon ends. */
	faulty_fault(&faulty, "{\"path\": \"/f\", \"method\": \"HEAD\", \"kind\": \"mute\"}");
	assert_int_equal(ask_stat_begin(rig.asker, origin, "f", &questions[0]), 0);
	RIG_UNTIL(faulty_count(&faulty, "HEAD", "/f") == 2);
	asker_cancel(rig.asker);
	assert_int_equal(ask_stat_begin(rig.asker, origin, "f", &questions[1]), 0);
	assert_int_equal(ask_stat_end(questions[0], &attr, msg, sizeof(msg)), -ECANCELED);
	assert_int_equal(ask_stat_end(questions[1], &attr, msg, sizeof(msg)), -ECANCELED);
	assert_int_equal(faulty_count(&faulty, "HEAD", "/f"), 2);
	origin_unref(origin);
}

static uint64_t store_stands_ns; /* 0: the store's clock goes on */

uint64_t __real_store_now(void);
uint64_t __wrap_store_now(void);
uint64_t __wrap_store_now(void)
{
	uint64_t stands_ns = __atomic_load_n(&store_stands_ns, __ATOMIC_RELAXED);

	return stands_ns ? stands_ns : __real_store_now();
}

static void *sync_run(void *arg)
{
	*(int *)arg = core_sync(rig.core, 20000);
	return NULL;
}

/*
 * Who waits for what is written does not wait for company that it might be recorded with:
 * neither does the first of two blocks, nor the second, which comes later.
 */
static void test_sync(void **state)
{
	struct object *object = open_f(20);
	struct rig_want wants[2];
	pthread_t thread;
	int err = -1;

	(void)state;
	__atomic_store_n(&store_stands_ns, __real_store_now(), __ATOMIC_RELAXED);
	faulty_fault(&faulty,
		     "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"mute\", \"from\": 8388608}");
	rig_want(&rig, &wants[0], object, 0, 0, 16, FETCH_DEMAND);
	rig_want(&rig, &wants[1], object, 8, 0, 16, FETCH_DEMAND);
	/* Both are on their way when the waiting begins. */
	RIG_UNTIL(faulty_count(&faulty, "GET", "/f") == 2);
	assert_int_equal(pthread_create(&thread, NULL, sync_run, &err), 0);
	RIG_UNTIL(rig_cached_of(object) == 1);
	faulty_clear(&faulty);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(err, 0);
	assert_int_equal(rig_cached_of(object), 2);
	__atomic_store_n(&store_stands_ns, 0, __ATOMIC_RELAXED);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(rig_wait(&wants[i]), 0);
		rig_want_free(&wants[i]);
	}
	object_unref(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name)  cmocka_unit_test_setup_teardown(name, rig_faulty_create, rig_faulty_end)
#define START(name) cmocka_unit_test_setup_teardown(name, rig_faulty_start, rig_faulty_end)
		TEST(test_cold_held_warm),  TEST(test_one_get),
		TEST(test_neighbours_join), TEST(test_resumes),
		TEST(test_busy_server),	    TEST(test_stalls),
		TEST(test_stalls_too_long), TEST(test_crowd),
		TEST(test_all_stall),	    TEST(test_gives_up),
		TEST(test_changed),	    TEST(test_cancel),
		TEST(test_order),	    TEST(test_little_memory),
		TEST(test_corrupt),	    TEST(test_stop_in_the_middle),
		TEST(test_alive),	    START(test_ask_ahead),
		START(test_sync),	    TEST(test_bulk),
	};

	log_setup(LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, group_setup, rig_faulty_group_end);
}
