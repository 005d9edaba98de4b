// SPDX-License-Identifier: MIT
#include "mirror_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cleanup.h"
#include "loop.h"

struct loop *loop;
struct faulty servers[PLACES];
struct origin *origin;
struct mirrors *mirrors;
struct origin_attr attr;
struct query ask;
char body[SIZE + 1], other[SIZE], dst[SIZE];
uint64_t clock_ns, before[COUNTER_MAX];

static uint64_t clock_now(void)
{
	return clock_ns;
}

int mirror_rig_group(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZE; i++) {
		body[i] = (char)(i * 7 + i / 251);
		other[i] = (char)(i * 11 + i / 241);
	}
	assert_int_equal(loop_create(&loop, 64), 0);
	for (unsigned int i = 0; i < PLACES; i++)
		faulty_start(&servers[i]);
	return 0;
}

int mirror_rig_group_end(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < PLACES; i++)
		faulty_stop(&servers[i]);
	loop_destroy(loop);
	return 0;
}

void mirror_rig_put(unsigned int place, const char *query, const char *bytes, size_t len)
{
	char path[256];

	snprintf(path, sizeof(path), "/f%s", query);
	faulty_put(&servers[place], path, bytes, len);
}

int mirror_rig_each(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < PLACES; i++) {
		faulty_clear(&servers[i]);
		faulty_delete(&servers[i], "/f.sha256");
		mirror_rig_put(i, "", body, SIZE);
	}
	memset(dst, 0, sizeof(dst));
	memcpy(before, (const void *)counters, sizeof(before));
	origin = NULL;
	return 0;
}

void mirror_rig_make(const char *const *urls, unsigned int count, bool trust)
{
	struct mirror_place places[PLACES] = { 0 };
	char msg[512];

	for (unsigned int i = 0; i < count; i++) {
		places[i].name = urls[i];
		if (origin_create(urls[i], NULL, &places[i].origin, msg, sizeof(msg)))
			fail_msg("%s", msg);
	}
	assert_int_equal(mirror_create(places, count, trust, &origin), 0);
	for (unsigned int i = 0; i < count; i++)
		origin_unref(places[i].origin);
	mirrors = container_of(origin, struct mirrors, base);
	mirrors->now = clock_now;
	clock_ns = 1000 * SECOND;
	query_stat(loop, origin, "f", &ask);
	assert_int_equal(ask.error, 0);
	attr = ask.attr;
}

void mirror_rig_make_of(unsigned int count, bool trust)
{
	const char *urls[PLACES];

	for (unsigned int i = 0; i < count; i++)
		urls[i] = servers[i].url;
	mirror_rig_make(urls, count, trust);
}

void mirror_rig_drop(void)
{
	origin_stop(origin, loop);
	origin_unref(origin);
	origin = NULL;
}

int mirror_rig_end(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < PLACES; i++)
		faulty_clear(&servers[i]);
	if (origin) {
		origin_stop(origin, loop);
		for (unsigned int i = 0; i < mirrors->count; i++)
			assert_int_equal(mirrors->of[i].rank.in_flight, 0);
		assert_false(origin_is_shared(origin));
		origin_unref(origin);
	}
	/* Nothing is left under way. */
	query_turn(loop, 0);
	return 0;
}

void mirror_rig_read_at(uint64_t offset, uint64_t len)
{
	memset(dst + offset, 0, len);
	query_read(loop, origin, "f", &attr, offset, len, dst + offset, &ask);
	if (ask.error)
		fail_msg("%s", ask.message);
	assert_int_equal(ask.bytes, len);
	assert_memory_equal(dst + offset, body + offset, len);
}

void mirror_rig_read_all(void)
{
	mirror_rig_read_at(0, SIZE);
}

enum mirror_state mirror_rig_state(unsigned int place)
{
	struct mirror_object *object;
	enum mirror_state is;

	pthread_mutex_lock(&mirrors->lock);
	object = mirror_join_get(mirrors, "f", &attr, 0);
	is = object->of[place].state;
	mirror_join_put(object);
	pthread_mutex_unlock(&mirrors->lock);
	return is;
}

void mirror_rig_settle(void)
{
	unsigned int rounds = 0;

	while (mirrors->checks) {
		assert_true(rounds++ < 3000);
		query_turn(loop, 10);
	}
}

void mirror_rig_join(void)
{
	mirror_rig_read_at(0, 4096);
	mirror_rig_settle();
}

void mirror_rig_rank(void)
{
	for (unsigned int i = 0; i < mirrors->count; i++) {
		struct mirror_rank *r = &mirrors->of[i].rank;

		r->asked_ns = clock_ns;
		r->answers = 1;
		r->first_ns = (double)((i + 1) * MS);
		r->byte_ns = 0;
		r->losses = 0;
		r->rtt_us = 0;
		r->window = 0;
		r->failing = 0;
	}
	for (unsigned int i = 0; i < 2 * MIRROR_HEDGE_SAMPLES; i++)
		mirror_hedge_took(&mirrors->hedge, SIZE, MS / 2);
}

void mirror_rig_earn(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		mirror_hedge_earn(&mirrors->hedge, SIZE);
}

int mirror_rig_reads(unsigned int place)
{
	return faulty_count(&servers[place], "GET", "/f");
}

void mirror_rig_fault(unsigned int place, const char *json)
{
	faulty_fault(&servers[place], json);
}
