// SPDX-License-Identifier: MIT
/* What an origin with mirrors says there is, while its source is away. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "container.h"
#include "loop.h"
#include "mirror_rig.h"

/* The source answers, with an error; nothing is reached there. */
#define AWAY "{\"path\": \"/*\", \"kind\": \"status\", \"code\": 503}"

static int asked(unsigned int place, const char *method, const char *path)
{
	return faulty_count(&servers[place], method, path);
}

static void stat_of(const char *path)
{
	query_stat(loop, origin, path, &ask);
}

static void list_of(const char *token)
{
	query_list(loop, origin, "", token, &ask);
}

/* The bytes of f by the version that was told last. */
static void read_told(void)
{
	attr = ask.attr;
	mirror_rig_read_all();
}

static void extra(unsigned int place, const char *name, const char *bytes)
{
	faulty_put(&servers[place], name, bytes, strlen(bytes));
}

static int each(void **state)
{
	for (unsigned int i = 0; i < PLACES; i++)
		faulty_delete(&servers[i], "/new");
	return mirror_rig_each(state);
}

/* The source alone is asked as long as it answers, whatever it says. */
static void test_source(void **state)
{
	(void)state;
	extra(1, "/new", "new");
	mirror_rig_make_of(2, true);
	stat_of("new");
	assert_int_equal(ask.error, -ENOENT);
	list_of(NULL);
	assert_null(strstr(ask.names, "new"));
	mirror_rig_fault(0, "{\"path\": \"/*\", \"kind\": \"status\", \"code\": 403}");
	stat_of("f");
	assert_int_equal(ask.error, -EACCES);
	assert_int_equal(asked(1, "HEAD", "/new") + asked(1, "HEAD", "/f"), 0);
	assert_int_equal(asked(1, "GET", "/"), 0);
	assert_int_equal(rose(mirror_names), 0);
}

/* With trust: names, a listing, and the first read of what nobody had read. */
static void test_trusted(void **state)
{
	(void)state;
	mirror_rig_put(1, "?etag=%22another%22&modified=1500000000", body, SIZE);
	mirror_rig_make_of(2, true);
	mirror_rig_fault(0, AWAY);
	stat_of("f");
	assert_int_equal(ask.error, 0);
	assert_int_equal(ask.attr.size, SIZE);
	/* Nobody knew a version: its own. */
	assert_string_not_equal(ask.attr.version, attr.version);
	assert_int_equal(asked(1, "HEAD", "/f"), 1);
	read_told();
	assert_int_equal(mirror_rig_reads(1), 1);
	assert_int_equal(mirror_rig_reads(0), 0);
	list_of(NULL);
	assert_int_equal(ask.error, 0);
	assert_non_null(strstr(ask.names, "f "));
	assert_int_equal(rose(mirror_names), 1 + ask.count);
	/* What none of them has is not there. */
	stat_of("new");
	assert_int_equal(ask.error, -ENOENT);
	assert_false(ask.transient);
}

/* What was begun from a mirror goes on when the source is back, at either. */
static void test_trusted_back(void **state)
{
	char version[ORIGIN_VERSION_MAX + 1];

	(void)state;
	mirror_rig_put(1, "?etag=%22another%22&modified=1500000000", body, SIZE);
	mirror_rig_make_of(2, true);
	memcpy(version, attr.version, sizeof(version));
	mirror_rig_fault(0, AWAY);
	stat_of("f");
	read_told();
	/* That the source is away is heard before it is back. */
	mirror_rig_settle();
	faulty_clear(&servers[0]);
	clock_ns += 61 * SECOND;
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(0), MIRROR_JOINED);
	mirror_rig_rank();
	mirror_rig_read_all();
	assert_int_equal(mirror_rig_reads(0), 1);
	/* The source's word is the one that counts again. */
	stat_of("f");
	assert_string_equal(ask.attr.version, version);
	read_told();
	/* And is remembered. */
	mirror_rig_fault(0, AWAY);
	stat_of("f");
	assert_int_equal(ask.error, 0);
	assert_string_equal(ask.attr.version, version);
}

/* With trust the version that is known stays the name of what has its size; others do not count. */
static void test_trusted_known(void **state)
{
	(void)state;
	mirror_rig_put(1, "", body, SIZE - 1);
	mirror_rig_put(2, "?etag=%22another%22", body, SIZE);
	mirror_rig_make_of(3, true);
	mirror_rig_join();
	mirror_rig_fault(0, AWAY);
	stat_of("f");
	assert_int_equal(ask.error, 0);
	assert_string_equal(ask.attr.version, attr.version);
	faulty_delete(&servers[2], "/f");
	stat_of("f");
	/* Not absent: it was there, and one that does not have it is no mirror of it. */
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_non_null(strstr(ask.message, "503"));
	assert_non_null(strstr(ask.message, "it has another version"));
}

/* Without trust: the version that is known, if the mirror has just that, and nothing else. */
static void test_known(void **state)
{
	(void)state;
	mirror_rig_make_of(2, false);
	mirror_rig_fault(0, AWAY);
	/* Nobody has read it. */
	stat_of("f");
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_non_null(strstr(ask.message, "503"));
	assert_non_null(strstr(ask.message, "without trust"));
	list_of(NULL);
	assert_int_equal(ask.error, -EIO);
	assert_int_equal(asked(1, "HEAD", "/f") + asked(1, "GET", "/"), 0);
	faulty_clear(&servers[0]);
	mirror_rig_join();
	mirror_rig_fault(0, AWAY);
	stat_of("f");
	assert_int_equal(ask.error, 0);
	assert_string_equal(ask.attr.version, attr.version);
	assert_int_equal(rose(mirror_names), 1);
	/* Another one of the same size there. */
	mirror_rig_put(1, "?etag=%22another%22", other, SIZE);
	stat_of("f");
	assert_int_equal(ask.error, -EIO);
	assert_non_null(strstr(ask.message, "it has another version"));
	mirror_rig_put(1, "", body, SIZE - 1);
	stat_of("f");
	assert_int_equal(ask.error, -EIO);
	assert_int_equal(rose(mirror_names), 1);
}

/* A version that was joined by a digest is the known one, too. */
static void test_known_digest(void **state)
{
	static const char sum[] =
		"0000000000000000000000000000000000000000000000000000000000000000\n";

	(void)state;
	extra(0, "/f.sha256", sum);
	extra(1, "/f.sha256", sum);
	mirror_rig_put(1, "?etag=%22another%22", body, SIZE);
	mirror_rig_make_of(2, false);
	mirror_rig_join();
	assert_int_equal(mirror_rig_state(1), MIRROR_JOINED);
	mirror_rig_fault(0, AWAY);
	stat_of("f");
	assert_int_equal(ask.error, 0);
	assert_string_equal(ask.attr.version, attr.version);
}

/* What the source has said since counts: a mirror that is behind does not bring the old one back. */
static void test_known_changed(void **state)
{
	static const bool trust[] = { false, true };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		mirror_rig_put(0, "", body, SIZE);
		mirror_rig_make_of(2, trust[i]);
		mirror_rig_join();
		mirror_rig_put(0, "", other, SIZE - 1);
		stat_of("f");
		assert_int_equal(ask.attr.size, SIZE - 1);
		mirror_rig_fault(0, AWAY);
		stat_of("f");
		assert_int_equal(ask.error, -EIO);
		faulty_clear(&servers[0]);
		/* Nor what it says is gone. */
		faulty_delete(&servers[0], "/f");
		stat_of("f");
		assert_int_equal(ask.error, -ENOENT);
		mirror_rig_fault(0, AWAY);
		stat_of("f");
		assert_int_equal(ask.error, trust[i] ? 0 : -EIO);
		faulty_clear(&servers[0]);
		mirror_rig_drop();
	}
}

/* One that is not reached is not asked for each name; it is tried when its rest is over. */
static void test_resting(void **state)
{
	(void)state;
	mirror_rig_make_of(3, true);
	mirror_rig_fault(0, AWAY);
	for (unsigned int i = 0; i < 10; i++)
		stat_of("f");
	/* The one that made the origin, and three that failed. */
	assert_int_equal(asked(0, "HEAD", "/f"), 4);
	assert_int_equal(asked(1, "HEAD", "/f"), 10);
	clock_ns += SECOND;
	stat_of("f");
	assert_int_equal(asked(0, "HEAD", "/f"), 5);
	stat_of("f");
	assert_int_equal(asked(0, "HEAD", "/f"), 5);
	faulty_clear(&servers[0]);
	clock_ns += 2 * SECOND;
	stat_of("f");
	assert_false(mirrors->of[0].rank.down);
	stat_of("f");
	assert_int_equal(asked(0, "HEAD", "/f"), 2);
	/* When nobody else has an answer it is asked all the same. */
	mirrors->of[0].rank.down = true;
	mirrors->of[0].rank.rest_ns = UINT64_MAX;
	for (unsigned int i = 1; i < 3; i++)
		mirror_rig_fault(i, AWAY);
	stat_of("f");
	assert_int_equal(ask.error, 0);
}

/* The pages of a listing come from where the first one did. */
static void test_pages(void **state)
{
	const struct origin_settings anon[] = { { .endpoint = servers[0].url, .anon = true },
						{ .endpoint = servers[1].url, .anon = true } };
	struct mirror_place places[2] = { 0 };
	char token[sizeof(ask.token)], msg[512];

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		faulty_many(&servers[i], "/b/", 1001 + i);
		places[i].name = servers[i].url;
		if (origin_create("s3://b/", &anon[i], &places[i].origin, msg, sizeof(msg)))
			fail_msg("%s", msg);
	}
	assert_int_equal(mirror_create(places, 2, true, &origin), 0);
	mirrors = container_of(origin, struct mirrors, base);
	for (unsigned int i = 0; i < 2; i++)
		origin_unref(places[i].origin);
	for (unsigned int i = 0; i < 2; i++) {
		mirror_rig_fault(!i, AWAY);
		list_of(NULL);
		assert_int_equal(ask.error, 0);
		assert_int_equal(ask.count, 1000);
		assert_string_not_equal(ask.token, "");
		/* Versions are told as they are known here, when they are asked for. */
		assert_string_equal(ask.attr.version, "");
		memcpy(token, ask.token, sizeof(token));
		/* Now the other one could answer. */
		faulty_clear(&servers[!i]);
		list_of(token);
		assert_int_equal(ask.error, 0);
		assert_int_equal(ask.count, 1 + i);
		assert_string_equal(ask.token, "");
		mirror_rig_fault(i, AWAY);
		list_of(token);
		assert_int_equal(ask.error, -EIO);
		assert_true(ask.transient);
		faulty_clear(&servers[i]);
	}
}

static void unwanted(void *arg, const struct origin_result *result, const struct origin_attr *told)
{
	(void)arg;
	(void)result;
	(void)told;
	fail();
}

/* While a mirror is asked, and while the source is, whose rest may end by it. */
static void test_cancel(void **state)
{
	struct origin_call *call;

	(void)state;
	mirror_rig_make_of(2, true);
	mirror_rig_fault(0, AWAY);
	mirror_rig_fault(1, "{\"path\": \"/*\", \"kind\": \"mute\"}");
	assert_int_equal(origin_stat(origin, loop, "f", unwanted, NULL, &call), 0);
	for (unsigned int rounds = 0; !asked(1, "HEAD", "/f"); rounds++) {
		assert_true(rounds < 3000);
		query_turn(loop, 5);
	}
	origin_cancel(call);
	mirrors->of[0].rank.down = true;
	mirrors->of[0].rank.rest_ns = 0;
	assert_int_equal(origin_stat(origin, loop, "f", unwanted, NULL, &call), 0);
	assert_true(mirrors->of[0].rank.probing);
	origin_cancel(call);
	assert_false(mirrors->of[0].rank.probing);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, each, mirror_rig_end)
	const struct CMUnitTest tests[] = {
		TEST(test_source),	  TEST(test_trusted), TEST(test_trusted_back),
		TEST(test_trusted_known), TEST(test_known),   TEST(test_known_digest),
		TEST(test_known_changed), TEST(test_resting), TEST(test_pages),
		TEST(test_cancel),
	};

	return cmocka_run_group_tests(tests, mirror_rig_group, mirror_rig_group_end);
}
