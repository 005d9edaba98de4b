// SPDX-License-Identifier: MIT
/* How many sources are remembered, and what one that never comes to an end may cost. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../ask.h"
#include "listing.h"
#include "origin.h"
#include "rig_faulty.h"

/* Unused ones that are remembered at most, with the one that is asked for. */
#define KEPT 65

static char msg[512];

static int group_setup(void **state)
{
	(void)state;
	return rig_faulty_group(0);
}

static void count_one(void *arg, struct origin *origin)
{
	(void)origin;
	++*(unsigned int *)arg;
}

static unsigned int sources(void)
{
	unsigned int count = 0;

	core_each_origin(rig.core, count_one, &count);
	return count;
}

static struct origin *source(unsigned int number)
{
	struct origin *origin;
	char name[64];

	snprintf(name, sizeof(name), "http://127.0.0.1:1/%u/", number);
	if (core_origin(rig.core, name, NULL, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

/* Whatever is asked for once is forgotten one day, and what is in use is not. */
static void test_bounded(void **state)
{
	struct origin *used[100], *first = source(0), *again;
	unsigned int next = 2000;
	struct object *object;

	(void)state;
	faulty_put(&faulty, "/f?modified=1000000000", "bytes", 5);
	/* Nobody has its origin but an object. */
	object = rig_open(&rig, faulty.url, "f", 20);
	for (unsigned int i = 1; i <= 500; i++)
		origin_unref(source(i));
	assert_int_equal(sources(), KEPT + 2);
	again = source(0);
	assert_ptr_equal(first, again);
	origin_unref(again);
	assert_true(rig_read(&rig, object) != 0);
	assert_int_equal(faulty_count(&faulty, "GET", "/f"), 1);
	for (unsigned int i = 0; i < 100; i++)
		used[i] = source(1000 + i);
	for (unsigned int i = 1; i <= 100; i++)
		origin_unref(source(i));
	assert_int_equal(sources(), KEPT + 2 + 100);
	for (unsigned int i = 0; i < 100; i++)
		origin_unref(used[i]);
	origin_unref(first);
	object_unref(object);
	/* A source is tidied away when another one is made; a block of the object may linger. */
	RIG_UNTIL((origin_unref(source(next++)), sources() == KEPT));
}

/* The one that was asked for last stays longest. */
static void test_recent(void **state)
{
	struct origin *kept = source(0), *again;

	(void)state;
	origin_unref(kept);
	for (unsigned int i = 1; i <= 200; i++) {
		origin_unref(source(i));
		again = source(0);
		assert_ptr_equal(again, kept);
		origin_unref(again);
	}
	assert_int_equal(sources(), KEPT);
}

static int entry(void *arg, const struct origin_entry *found)
{
	(void)arg;
	(void)found;
	return 0;
}

static void test_endless(void **state)
{
	struct origin *origin;
	uint64_t skipped = 0;
	char options[128];

	(void)state;
	faulty_put(&faulty, "/bucket/d/x?modified=1000000000", "", 0);
	faulty_fault(&faulty,
		     "{\"path\": \"/bucket*\", \"method\": \"GET\", \"kind\": \"endless\"}");
	snprintf(options, sizeof(options), "endpoint=%s\nanon=on", faulty.url);
	if (core_origin(rig.core, "s3://bucket", options, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	assert_int_equal(ask_list(rig.asker, origin, "d", entry, NULL, &skipped, msg, sizeof(msg)),
			 -EIO);
	assert_string_equal(msg, "d: " LISTING_EMPTY_TEXT);
	origin_unref(origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_faulty_start, rig_faulty_end)
		TEST(test_bounded),
		TEST(test_recent),
		TEST(test_endless),
	};

	return cmocka_run_group_tests(tests, group_setup, rig_faulty_group_end);
}
