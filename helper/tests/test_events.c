// SPDX-License-Identifier: MIT
/* Events of the daemon, and who follows them. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "events.h"

/* Longer than any test may take. */
#define BOUND_MS 3600000

static void one(uint64_t *number, const char *path)
{
	struct event *event;

	assert_int_equal(events_wait(number, BOUND_MS, &event), 0);
	assert_string_equal(event->name, "corrupt");
	assert_string_equal(event->source, "s3://b");
	assert_string_equal(event->path, path);
	assert_string_equal(event->text, "text");
	assert_true(event->time_s > 0);
	free(event);
}

static void in_order(void **state)
{
	uint64_t number = events_next(), other = number;
	struct event *event;

	(void)state;
	assert_int_equal(events_wait(&number, 0, &event), -EAGAIN);
	events_tell("corrupt", "s3://b", "a", "text");
	events_tell("corrupt", "s3://b", "b", "text");
	one(&number, "a");
	one(&number, "b");
	assert_int_equal(events_wait(&number, 0, &event), -EAGAIN);
	/* Each follower has all of them. */
	one(&other, "a");
	assert_int_equal(events_next(), number);
}

/* Who is too late is told so, and goes on with what there is. */
static void too_many(void **state)
{
	uint64_t number = events_next();
	struct event *event;
	char path[16];

	(void)state;
	for (unsigned int i = 0; i < EVENTS_KEPT + 3; i++) {
		snprintf(path, sizeof(path), "%u", i);
		events_tell("corrupt", "s3://b", path, "text");
	}
	assert_int_equal(events_wait(&number, BOUND_MS, &event), -EOVERFLOW);
	for (unsigned int i = 3; i < EVENTS_KEPT + 3; i++) {
		snprintf(path, sizeof(path), "%u", i);
		one(&number, path);
	}
	assert_int_equal(events_wait(&number, 0, &event), -EAGAIN);
}

static void *tell(void *arg)
{
	(void)arg;
	events_tell("corrupt", "s3://b", "late", "text");
	return NULL;
}

static void *wake(void *arg)
{
	_Atomic int *ended = arg;

	while (!*ended)
		events_wake();
	return NULL;
}

static void waits(void **state)
{
	uint64_t number = events_next();
	struct event *event;
	_Atomic int ended = 0;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, tell, NULL), 0);
	one(&number, "late");
	pthread_join(thread, NULL);
	assert_int_equal(pthread_create(&thread, NULL, wake, &ended), 0);
	assert_int_equal(events_wait(&number, BOUND_MS, &event), -EAGAIN);
	ended = 1;
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order),
		cmocka_unit_test(too_many),
		cmocka_unit_test(waits),
	};

	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
