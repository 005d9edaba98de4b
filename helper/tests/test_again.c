// SPDX-License-Identifier: MIT
/* What has to be asked again: the rest of a short answer, a block whose copy is bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>
#include <cmocka.h>

#include "counters.h"
#include "log.h"
#include "origin.h"
#include "rig_faulty.h"

#define MIB  (1u << 20)
#define SIZE (3 * MIB)

static int group_setup(void **state)
{
	(void)state;
	return rig_faulty_group(SIZE);
}

/* RFC 9110, 15.3.7: a server may send less than the range, and says so. */
static void test_less_than_asked(void **state)
{
	uint64_t before = counter_get(origin_bytes);
	struct object *object = rig_open(&rig, faulty.url, "f", 22);
	char fault[256];

	(void)state;
	snprintf(fault, sizeof(fault),
		 "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"headers\", \"times\": 1,"
		 " \"headers\": {\"Content-Range\": \"bytes 0-99999/%u\","
		 " \"Content-Length\": \"100000\", \"Connection\": \"close\"}}",
		 SIZE);
	faulty_fault(&faulty, fault);
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 2);
	assert_in_range(counter_get(origin_bytes) - before, SIZE, SIZE + 4096);
	object_unref(object);
}

/* The kernel found the cached copy wrong: it comes from the origin, whatever the file says. */
static void test_bad_copy(void **state)
{
	struct object *object = rig_open(&rig, faulty.url, "f", 20);
	uint64_t bitmap, sums[SIZE / 65536];
	struct rig_want want = { .copy = calloc(16, 65536) };
	size_t n;

	(void)state;
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(core_sync(rig.core, 30000), 0);
	RIG_UNTIL(!counter_get(held_blocks));
	faulty_clear(&faulty);
	want.want = rig_want_of(object, 1, 0, 16, FETCH_DEMAND);
	want.want.bad = true;
	assert_int_equal(fetch_start(rig.core, &want.want), 0);
	assert_int_equal(rig_wait(&want), 0);
	assert_memory_equal(want.copy, bytes + MIB, MIB);
	rig_want_free(&want);
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 1);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_int_equal(object_map(object, 0, 3, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 7);
	RIG_UNTIL(!counter_get(held_blocks));
	/* Good again. */
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 1);
	object_unref(object);
}

/* A file of which no block is recorded was not yet found fit to be kept. */
static void test_recorded(void **state)
{
	struct object *object = rig_open(&rig, faulty.url, "f", 22);
	struct origin_attr attr = *object_attr(object);
	struct origin *origin;
	char msg[256];

	(void)state;
	assert_int_equal(core_origin(rig.core, faulty.url, NULL, &origin, msg, sizeof(msg)), 0);
	assert_false(object_recorded(rig.core, origin, "f", &attr, 22));
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(core_sync(rig.core, 30000), 0);
	assert_true(object_recorded(rig.core, origin, "f", &attr, 22));
	assert_false(object_recorded(rig.core, origin, "f", &attr, 20));
	origin_unref(origin);
	object_unref(object);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_faulty_start, rig_faulty_end)
	const struct CMUnitTest tests[] = {
		TEST(test_less_than_asked),
		TEST(test_bad_copy),
		TEST(test_recorded),
	};

	log_setup(LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, group_setup, rig_faulty_group_end);
}
