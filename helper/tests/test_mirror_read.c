// SPDX-License-Identifier: MIT
/* Reads of an origin with mirrors: who is read from, second requests, errors. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "cleanup.h"
#include "loop.h"
#include "mirror_rig.h"

/* Which place is read from is a matter of what they say of the object. */
static void test_join(void **state)
{
	(void)state;
	mirror_rig_put(2, "", body, SIZE - 1);
	mirror_rig_make_of(3, false);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_JOINED);
	assert_int_equal(mirror_rig_state(2), MIRROR_REFUSED);
	assert_non_null(strstr(mirrors->of[2].why, "it has 2097151 bytes there, not 2097152"));
	assert_int_equal(rose(mirrors_refused), 1);
	assert_int_equal(mirror_rig_reads(1), 0);
	/* Each that little is known of is read from; the one that was refused never. */
	for (unsigned int i = 0; i < 8; i++)
		mirror_rig_read_all();
	assert_true(mirror_rig_reads(1) > 0);
	assert_int_equal(mirror_rig_reads(2), 0);
	/* Asked once. */
	assert_int_equal(faulty_count(&servers[1], "HEAD", "/f"), 1);
	assert_int_equal(faulty_count(&servers[2], "HEAD", "/f"), 1);
	/* It may have it later. */
	mirror_rig_put(2, "", body, SIZE);
	clock_ns += 61 * SECOND;
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(2), MIRROR_JOINED);
}

static void test_absent(void **state)
{
	(void)state;
	faulty_delete(&servers[1], "/f");
	mirror_rig_make_of(2, true);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
	assert_non_null(strstr(mirrors->of[1].why, "not found"));
	mirror_rig_read_all();
	assert_int_equal(mirror_rig_reads(1), 0);
}

/* Another validator: only where a digest says that the bytes are the same. */
static void test_validator(void **state)
{
	static const char another[] =
		"1111111111111111111111111111111111111111111111111111111111111111\n";
	static const char sum[] =
		"0000000000000000000000000000000000000000000000000000000000000000\n";

	(void)state;
	mirror_rig_put(1, "?etag=%22another%22", other, SIZE);
	mirror_rig_put(2, "?etag=weak", body, SIZE);
	mirror_rig_make_of(3, false);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
	assert_int_equal(mirror_rig_state(2), MIRROR_REFUSED);
	assert_non_null(strstr(mirrors->of[1].why, "no digest"));
	mirror_rig_drop();

	/* The digest of one says nothing; nor do two that differ. */
	faulty_put(&servers[0], "/f.sha256", sum, sizeof(sum) - 1);
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
	faulty_put(&servers[1], "/f.sha256", another, sizeof(another) - 1);
	mirror_rig_drop();
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
	mirror_rig_drop();

	mirror_rig_put(1, "?etag=%22another%22", body, SIZE);
	faulty_put(&servers[1], "/f.sha256", sum, sizeof(sum) - 1);
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_JOINED);
	mirror_rig_rank();
	mirrors->of[1].rank.first_ns = 1;
	mirror_rig_read_all();
	/* By its own validator. */
	assert_int_equal(mirror_rig_reads(1), 1);
	faulty_delete(&servers[1], "/f.sha256");
}

/* Alike by a time of this minute, which two writes may have. */
static void test_weak(void **state)
{
	char query[64];

	(void)state;
	snprintf(query, sizeof(query), "?etag=none&modified=%lld", (long long)time(NULL));
	mirror_rig_put(0, query, body, SIZE);
	mirror_rig_put(1, query, other, SIZE);
	mirror_rig_make_of(2, false);
	assert_true(attr.flags & ORIGIN_WEAK);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
	assert_non_null(strstr(mirrors->of[1].why, "nothing proves"));
}

static void test_trust(void **state)
{
	(void)state;
	mirror_rig_put(1, "?etag=%22another%22&modified=1500000000", body, SIZE);
	mirror_rig_put(2, "?etag=none&modified=none", body, SIZE + 1);
	mirror_rig_make_of(3, true);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_JOINED);
	/* Size is the least. */
	assert_int_equal(mirror_rig_state(2), MIRROR_REFUSED);
	mirror_rig_rank();
	mirrors->of[1].rank.first_ns = 1;
	mirror_rig_read_all();
	assert_int_equal(mirror_rig_reads(1), 1);
}

/* A mirror that changes after it was joined: no byte of the other version. */
static void test_changed(void **state)
{
	static const char *const faults[] = {
		NULL,
		"{\"path\": \"/f\", \"kind\": \"unconditional\"}",
		"{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"full\"}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		mirror_rig_put(1, "", body, SIZE);
		mirror_rig_make_of(2, false);
		mirror_rig_join();
		assert_int_equal(mirror_rig_state(1), MIRROR_JOINED);
		mirror_rig_rank();
		mirrors->of[1].rank.first_ns = 1;
		mirror_rig_put(1, "", other, SIZE);
		if (faults[i])
			mirror_rig_fault(1, faults[i]);
		mirror_rig_read_all();
		assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
		assert_int_equal(rose(mirror_failovers), i + 1);
		faulty_clear(&servers[1]);
		mirror_rig_drop();
	}
}

/* The first one's word is final. */
static void test_first_changed(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_put(0, "", other, SIZE);
	query_read(loop, origin, "f", &attr, 0, SIZE, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	assert_false(ask.transient);
	mirror_rig_put(0, "", body, SIZE);
}

static void test_hedge_won(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_earn(20);
	mirror_rig_fault(0, SLOW("\"mute\""));
	mirror_rig_read_all();
	assert_int_equal(rose(hedges_sent), 1);
	assert_int_equal(rose(hedges_won), 1);
	assert_int_equal(rose(hedge_lost_bytes), 0);
	assert_int_equal(mirror_rig_reads(1), 1);
	/* Nothing was lost, so that the bytes may be spent again, but not the request. */
	assert_int_equal(mirrors->hedge.requests, 2);
	assert_true(mirrors->hedge.bytes >= 20ULL * SIZE);
}

/* The first one answers after all: the second one is given up. */
static void test_hedge_lost(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_earn(20);
	mirror_rig_fault(0, SLOW("\"delay\", \"seconds\": 0.2"));
	mirror_rig_fault(1, SLOW("\"mute\""));
	mirror_rig_read_all();
	assert_int_equal(rose(hedges_sent), 1);
	assert_int_equal(rose(hedges_won), 0);
	assert_int_equal(mirror_rig_reads(0), 2);
}

/* One that stops on its way: the rest, and only that, is asked of another. */
static void test_hedge_rest(void **state)
{
	unsigned long from = 0, to = 0;
	json_t *log;

	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	/* The first bytes may come late, and be waited for, before those that never come. */
	mirror_rig_earn(40);
	mirror_rig_fault(0, SLOW("\"stall\", \"after\": 1000000"));
	mirror_rig_read_all();
	assert_int_equal(ask.progressed, SIZE);
	assert_true(rose(hedges_sent) == 1 || rose(hedges_sent) == 2);
	assert_int_equal(rose(hedges_won), 1);
	log = faulty_log(&servers[1]);
	assert_int_equal(sscanf(json_string_value(
					json_object_get(json_array_get(log,
								       json_array_size(log) - 1),
							"range")),
				"bytes=%lu-%lu", &from, &to),
			 2);
	json_decref(log);
	/* It was late when some, or all, of what is to come from there had come. */
	assert_true(from <= 1000000);
	assert_int_equal(to, SIZE - 1);
	assert_true(rose(hedge_lost_bytes) <= 1000000 - from);
}

/* Both bring bytes, at their own pace; none of it is mixed, whoever is ahead when. */
static void test_hedge_races(void **state)
{
	(void)state;
	mirror_rig_make_of(3, false);
	mirror_rig_join();
	for (unsigned int i = 0; i < 30; i++) {
		char text[128];

		mirror_rig_rank();
		mirror_rig_earn(20);
		snprintf(text, sizeof(text), SLOW("\"delay\", \"seconds\": 0.00%u"), i % 10);
		mirror_rig_fault(0, text);
		snprintf(text, sizeof(text), SLOW("\"delay\", \"seconds\": 0.00%u"), i / 3);
		mirror_rig_fault(1, text);
		mirror_rig_read_all();
		faulty_clear(&servers[0]);
		faulty_clear(&servers[1]);
	}
	assert_true(rose(hedges_won) <= rose(hedges_sent));
}

/* The second one leads from its first byte on, and may be late in turn. */
static void test_hedge_twice(void **state)
{
	unsigned long from = 0;
	json_t *log;

	(void)state;
	mirror_rig_make_of(3, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_earn(60);
	mirror_rig_fault(0, SLOW("\"mute\""));
	mirror_rig_fault(1, SLOW("\"stall\", \"after\": 1000000"));
	mirror_rig_read_all();
	assert_true(rose(hedges_sent) >= 2);
	assert_int_equal(rose(hedges_won), 2);
	log = faulty_log(&servers[2]);
	assert_int_equal(sscanf(json_string_value(
					json_object_get(json_array_get(log,
								       json_array_size(log) - 1),
							"range")),
				"bytes=%lu-", &from),
			 1);
	json_decref(log);
	assert_true(from > 0);
	/* They were given up, before they gave up. */
	assert_int_equal(mirrors->of[0].rank.errors + mirrors->of[1].rank.errors, 0);
}

struct shadow {
	char *copy;
	uint64_t len;
	bool done;
};

static void shadow_progress(void *arg, uint64_t count)
{
	struct shadow *shadow = arg;

	assert_true(count > shadow->len && count <= SIZE);
	memcpy(shadow->copy + shadow->len, dst + shadow->len, count - shadow->len);
	shadow->len = count;
}

static void shadow_done(void *arg, const struct origin_result *result, uint64_t count)
{
	struct shadow *shadow = arg;

	assert_int_equal(result->error, 0);
	assert_int_equal(count, SIZE);
	shadow->done = true;
	loop_stop(loop);
}

/*
 * Two that are trusted to be the same, and are not: what was given out stays as it is, and
 * the bytes of one follow those of the other.
 */
static void test_hedge_apart(void **state)
{
	struct shadow shadow = { .copy = malloc(SIZE) };
	struct origin_call *call;
	const struct origin_get get = {
		.path = "f",
		.attr = &attr,
		.len = SIZE,
		.dst = dst,
		.progress = shadow_progress,
		.done = shadow_done,
		.arg = &shadow,
	};

	(void)state;
	assert_non_null(shadow.copy);
	mirror_rig_put(1, "", other, SIZE);
	mirror_rig_make_of(2, true);
	mirror_rig_join();
	for (unsigned int i = 0; i < 8; i++) {
		size_t at = 0;

		mirror_rig_rank();
		mirror_rig_earn(40);
		mirror_rig_fault(0, SLOW("\"stall\", \"after\": 1000000"));
		shadow.len = 0;
		shadow.done = false;
		assert_int_equal(origin_read(origin, loop, &get, &call), 0);
		assert_int_equal(loop_run(loop), 0);
		assert_true(shadow.done);
		assert_int_equal(shadow.len, SIZE);
		assert_memory_equal(shadow.copy, dst, SIZE);
		while (dst[at] == body[at])
			at++;
		assert_true(at <= 1000000 + 256);
		assert_memory_equal(dst + at, other + at, SIZE - at);
		faulty_clear(&servers[0]);
	}
	assert_true(rose(hedges_won) >= 8);
	free(shadow.copy);
}

static void test_capped(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_fault(0, SLOW("\"delay\", \"seconds\": 0.1"));
	mirror_rig_read_all();
	assert_int_equal(rose(hedges_sent), 0);
	assert_int_equal(rose(hedges_capped), 1);
	assert_int_equal(mirror_rig_reads(1), 0);
	/* Enough requests were made, but not enough bytes. */
	mirrors->hedge.requests = 1000;
	mirrors->hedge.bytes = 20ULL * SIZE - 1;
	mirror_rig_rank();
	mirror_rig_read_all();
	assert_int_equal(rose(hedges_sent), 0);
	assert_int_equal(rose(hedges_capped), 2);
	/* All of them late: one in twenty is made twice. */
	mirrors->hedge = (struct mirror_hedge){ 0 };
	faulty_clear(&servers[0]);
	mirror_rig_fault(0, SLOW("\"delay\", \"seconds\": 0.01"));
	for (unsigned int i = 0; i < 100; i++) {
		mirror_rig_rank();
		mirror_rig_read_all();
	}
	assert_true(rose(hedges_sent) <= 5);
	assert_true(rose(hedges_sent) >= 4);
}

/* No second request to nobody: not joined, resting, or the only one. */
static void test_hedge_nobody(void **state)
{
	(void)state;
	mirror_rig_put(1, "", body, SIZE - 1);
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_earn(20);
	mirror_rig_fault(0, SLOW("\"delay\", \"seconds\": 0.05"));
	mirror_rig_read_all();
	assert_int_equal(rose(hedges_sent), 0);
	assert_int_equal(rose(hedges_capped), 0);
}

/* A mirror that is not there: asked beside the reads, less and less often. */
static void test_dead_mirror(void **state)
{
	const char *const urls[] = { servers[0].url, UNKNOWN };
	uint64_t pause = 1, probes;
	struct origin_counters c;

	(void)state;
	mirror_rig_make(urls, 2, false);
	mirror_rig_join();
	assert_true(mirrors->of[1].rank.down);
	for (unsigned int i = 0; i < 8; i++) {
		origin_counters(mirrors->of[1].origin, &c);
		probes = c.requests;
		for (unsigned int j = 0; j < 5; j++) {
			clock_ns += pause * SECOND / 6;
			mirror_rig_join();
		}
		origin_counters(mirrors->of[1].origin, &c);
		assert_int_equal(c.requests, probes);
		clock_ns += pause * SECOND / 6 + SECOND / 100;
		mirror_rig_join();
		mirror_rig_join();
		origin_counters(mirrors->of[1].origin, &c);
		assert_int_equal(c.requests, probes + 1);
		pause = pause < 32 ? 2 * pause : 60;
	}
	/* None of the reads was made there, or again. */
	assert_int_equal(mirrors->of[1].rank.requests, 0);
	assert_int_equal(rose(mirror_failovers), 0);
}

/* The first one goes, and comes back. */
static void test_dead_first(void **state)
{
	struct faulty gone;
	const char *urls[2];
	uint64_t requests;

	(void)state;
	faulty_start(&gone);
	faulty_put(&gone, "/f", body, SIZE);
	urls[0] = gone.url;
	urls[1] = servers[1].url;
	mirror_rig_make(urls, 2, false);
	mirror_rig_join();
	mirror_rig_rank();
	faulty_stop(&gone);
	/* Whoever finds out goes on at once; the next ones do not even try. */
	mirror_rig_read_all();
	assert_int_equal(rose(mirror_failovers), 1);
	assert_true(mirrors->of[0].rank.down);
	requests = mirrors->of[0].rank.requests;
	for (unsigned int i = 0; i < 10; i++)
		mirror_rig_read_all();
	assert_int_equal(mirrors->of[0].rank.requests, requests);
	assert_int_equal(rose(mirror_failovers), 1);
	/* A version that nobody was asked about yet: soon. */
	attr.flags = 1u << 30;
	query_read(loop, origin, "f", &attr, 0, SIZE, dst, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	mirror_rig_settle();
	mirror_rig_read_all();
	assert_int_equal(mirrors->of[0].rank.requests, requests);
}

/* One that answers with errors rests as well, and is read from when it is back. */
static void test_back(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_fault(0, SLOW("\"status\", \"code\": 503"));
	for (unsigned int i = 0; i < 3; i++) {
		assert_false(mirrors->of[0].rank.down);
		mirror_rig_rank();
		mirror_rig_read_all();
	}
	assert_int_equal(rose(mirror_failovers), 3);
	assert_true(mirrors->of[0].rank.down);
	assert_int_equal(mirror_rig_reads(0), 4);
	faulty_clear(&servers[0]);
	mirror_rig_read_all();
	assert_int_equal(mirror_rig_reads(0), 0);
	clock_ns += SECOND;
	mirror_rig_join();
	assert_false(mirrors->of[0].rank.down);
	assert_int_equal(faulty_count(&servers[0], "HEAD", "/f"), 1);
	mirror_rig_rank();
	mirror_rig_read_all();
	assert_int_equal(mirror_rig_reads(0), 1);
}

/* What has come before an error is kept, and the rest asked elsewhere. */
static void test_broken_off(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_fault(0, SLOW("\"reset\", \"after\": 1500000"));
	mirror_rig_read_all();
	assert_int_equal(rose(mirror_failovers), 1);
	assert_int_equal(mirror_rig_reads(1), 1);
}

/* All fail: the first one's error, and it is worth while to try again. */
static void test_all_fail(void **state)
{
	(void)state;
	mirror_rig_make_of(3, false);
	mirror_rig_join();
	mirror_rig_rank();
	for (unsigned int i = 0; i < 3; i++)
		mirror_rig_fault(
			i,
			i ? SLOW("\"status\", \"code\": 403") :
			    SLOW("\"status\", \"code\": 503, \"headers\": {\"Retry-After\": \"7\"}"));
	query_read(loop, origin, "f", &attr, 0, SIZE, dst, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_int_equal(ask.retry_after_ms, 7000);
	assert_int_equal(mirror_rig_reads(1) + mirror_rig_reads(2), 2);
	for (unsigned int i = 0; i < 3; i++)
		faulty_clear(&servers[i]);
	mirror_rig_read_all();
}

/* What a mirror says is never final: there is the first one yet. */
static void test_mirror_fails(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirrors->of[0].rank.down = true;
	mirrors->of[0].rank.rest_ns = UINT64_MAX;
	mirror_rig_fault(1, SLOW("\"status\", \"code\": 403"));
	query_read(loop, origin, "f", &attr, 0, SIZE, dst, &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_true(ask.transient);
	assert_int_equal(mirror_rig_state(1), MIRROR_REFUSED);
	/* Nobody else is left. */
	mirror_rig_read_all();
	assert_false(mirrors->of[0].rank.down);
}

static void unwanted(void *arg, const struct origin_result *result, uint64_t count)
{
	(void)arg;
	(void)result;
	(void)count;
	fail();
}

struct cancelling {
	struct origin_call *call;
	bool reported;
};

static void cancel_it(void *arg, uint64_t count)
{
	struct cancelling *c = arg;

	(void)count;
	assert_false(c->reported);
	c->reported = true;
	origin_cancel(c->call);
}

/* While two are asked, and from inside a callback. */
static void test_cancel(void **state)
{
	struct cancelling c = { 0 };
	struct origin_get get = {
		.path = "f",
		.attr = &attr,
		.len = SIZE,
		.dst = dst,
		.progress = cancel_it,
		.done = unwanted,
		.arg = &c,
	};
	unsigned int rounds = 0;

	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	mirror_rig_rank();
	mirror_rig_earn(40);
	mirror_rig_fault(0, SLOW("\"mute\""));
	mirror_rig_fault(1, SLOW("\"mute\""));
	assert_int_equal(origin_read(origin, loop, &get, &c.call), 0);
	while (!rose(hedges_sent)) {
		assert_true(rounds++ < 3000);
		query_turn(loop, 5);
	}
	origin_cancel(c.call);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(mirrors->of[i].rank.in_flight, 0);
	for (unsigned int i = 0; i < 2; i++) {
		faulty_clear(&servers[0]);
		faulty_clear(&servers[1]);
		/* From the one that leads, or from the second one. */
		if (i)
			mirror_rig_fault(0, SLOW("\"mute\""));
		mirror_rig_rank();
		c.reported = false;
		assert_int_equal(origin_read(origin, loop, &get, &c.call), 0);
		for (rounds = 0; !c.reported; rounds++) {
			assert_true(rounds < 3000);
			query_turn(loop, 5);
		}
	}
	/* What is asked beside the reads ends with the loop. */
	clock_ns += 3600 * SECOND;
	attr.flags = 1u << 30;
	get.progress = NULL;
	assert_int_equal(origin_read(origin, loop, &get, &c.call), 0);
	assert_non_null(mirrors->checks);
	origin_cancel(c.call);
	origin_stop(origin, loop);
	assert_null(mirrors->checks);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, mirror_rig_each, mirror_rig_end)
	const struct CMUnitTest tests[] = {
		TEST(test_join),	  TEST(test_absent),	  TEST(test_validator),
		TEST(test_weak),	  TEST(test_trust),	  TEST(test_changed),
		TEST(test_first_changed), TEST(test_hedge_won),	  TEST(test_hedge_lost),
		TEST(test_hedge_rest),	  TEST(test_hedge_races), TEST(test_hedge_apart),
		TEST(test_hedge_twice),	  TEST(test_capped),	  TEST(test_hedge_nobody),
		TEST(test_dead_mirror),	  TEST(test_dead_first),  TEST(test_back),
		TEST(test_broken_off),	  TEST(test_all_fail),	  TEST(test_mirror_fails),
		TEST(test_cancel),
	};

	return cmocka_run_group_tests(tests, mirror_rig_group, mirror_rig_group_end);
}
