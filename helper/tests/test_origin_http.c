// SPDX-License-Identifier: MIT
/* The HTTP origin against an origin that misbehaves on purpose. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "web.h"

static void stat_and_read(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");

	(void)state;
	assert_int_equal(attr.mode, S_IFREG);
	assert_int_equal(attr.size, WEB_SIZE);
	assert_int_equal(attr.mtime_sec, 1600000000);
	assert_int_equal(attr.flags, 0);
	assert_int_equal(attr.version[0], '"');
	web_whole(origin, "x", &attr, 0, WEB_SIZE);
	web_whole(origin, "x", &attr, 1, 1);
	web_whole(origin, "x", &attr, WEB_SIZE - 1, 1);
	web_whole(origin, "x", &attr, 65536, 65536);
	assert_int_equal(faulty_count(&server, "HEAD", "/d/x"), 1);
	assert_int_equal(faulty_count(&server, "GET", "/d/x"), 4);
	query_stat(loop, origin, "nope", &ask);
	assert_int_equal(ask.error, -ENOENT);
	assert_false(ask.transient);
	query_stat(loop, origin, "", &ask);
	assert_int_equal(ask.attr.mode, S_IFDIR);
	origin_unref(origin);
}

static void empty(void **state)
{
	struct origin *origin = web_open_plain();

	(void)state;
	faulty_put(&server, "/d/empty", "", 0);
	assert_int_equal(web_attr(origin, "empty").size, 0);
	origin_unref(origin);
}

static void directory(void **state)
{
	struct origin *origin = web_open_plain();

	(void)state;
	faulty_put(&server, "/d/sub/y", "y", 1);
	query_stat(loop, origin, "sub", &ask);
	assert_int_equal(ask.error, 0);
	assert_int_equal(ask.attr.mode, S_IFDIR);
	query_list(loop, origin, "sub", NULL, &ask);
	assert_string_equal(ask.names, "y ");
	query_list(loop, origin, "", NULL, &ask);
	assert_non_null(strstr(ask.names, "sub/ x "));
	query_list(loop, origin, "nope", NULL, &ask);
	assert_int_equal(ask.error, -ENOENT);
	faulty_fault(&server,
		     "{\"path\":\"/d/\",\"kind\":\"status\",\"code\":200,\"body\":\"<html>\"}");
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_false(ask.transient);
	origin_unref(origin);
}

/* N2 */
static void odd_names(void **state)
{
	static const char *const names[][2] = {
		{ "a#b", "/n/a%23b" },
		{ "a?b", "/n/a%3Fb" },
		{ "a%b", "/n/a%25b" },
		{ "a%25b", "/n/a%2525b" },
		{ "a+b", "/n/a%2Bb" },
		{ "a b", "/n/a%20b" },
		{ "a&b", "/n/a%26b" },
		{ "\xc3\xa9\xe2\x82\xac", "/n/%C3%A9%E2%82%AC" },
		{ "line\nfeed", "/n/line%0Afeed" },
		{ "bad\xff", "/n/bad%FF" },
		{ "\"q\\", "/n/%22q%5C" },
	};
	struct origin *origin = web_open("/n", (struct origin_settings){ 0 });

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		faulty_put(&server, names[i][1], body + i, i + 1);
	query_list(loop, origin, "", NULL, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.count, sizeof(names) / sizeof(names[0]));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct query list = ask;
		struct origin_attr attr;

		assert_non_null(strstr(list.names, names[i][0]));
		attr = web_attr(origin, names[i][0]);
		assert_int_equal(attr.size, i + 1);
		query_read(loop, origin, names[i][0], &attr, 0, i + 1, dst, &ask);
		assert_string_equal(ask.message, "");
		assert_memory_equal(dst, body + i, i + 1);
		ask = list;
	}
	origin_unref(origin);
}

/* O1 */
static void whole_for_a_range(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");

	(void)state;
	faulty_fault(&server, "{\"path\":\"/d/*\",\"method\":\"GET\",\"kind\":\"full\"}");
	web_whole(origin, "x", &attr, 100, 1000);
	web_whole(origin, "x", &attr, WEB_SIZE - 5, 5);
	web_whole(origin, "x", &attr, 0, WEB_SIZE);
	faulty_put(&server, "/d/large?size=300000000&seed=1", NULL, 0);
	attr = web_attr(origin, "large");
	query_read(loop, origin, "large", &attr, 200000000, 1000, dst, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_false(ask.transient);
	assert_int_equal(ask.bytes, 0);
	origin_unref(origin);
}

/* O3: nothing of such an answer is taken. */
static void refused(const char *fault, int error, bool transient)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");

	faulty_fault(&server, fault);
	web_range(origin, "x", &attr, 1000, 2000);
	assert_int_equal(ask.error, error);
	assert_int_equal(ask.transient, transient);
	assert_int_equal(ask.bytes, 0);
	faulty_clear(&server);
	web_whole(origin, "x", &attr, 1000, 2000);
	origin_unref(origin);
}

static void wrong_answers(void **state)
{
	(void)state;
#define GET(rest) "{\"path\":\"/d/x\",\"method\":\"GET\"," rest "}"
	refused(GET("\"kind\":\"wrong_range\",\"shift\":1"), -EIO, true);
	refused(GET("\"kind\":\"wrong_range\",\"shift\":-1000"), -EIO, true);
	refused(GET("\"kind\":\"no_range\""), -EIO, true);
	refused(GET("\"kind\":\"announce\",\"extra\":10"), -EIO, true);
	refused(GET("\"kind\":\"wrong_total\",\"total\":300001"), -ESTALE, false);
	refused(GET("\"kind\":\"etag\",\"value\":\"\\\"other\\\"\""), -ESTALE, false);
	refused(GET("\"kind\":\"status\",\"code\":412"), -ESTALE, false);
	refused(GET("\"kind\":\"status\",\"code\":404"), -ESTALE, false);
	refused(GET("\"kind\":\"status\",\"code\":416"), -ESTALE, false);
	refused(GET("\"kind\":\"status\",\"code\":403"), -EACCES, false);
	refused(GET("\"kind\":\"status\",\"code\":401"), -EACCES, false);
	refused(GET("\"kind\":\"status\",\"code\":400"), -EIO, false);
	refused(GET("\"kind\":\"status\",\"code\":500"), -EIO, true);
	refused(GET("\"kind\":\"status\",\"code\":503"), -EIO, true);
	refused(GET("\"kind\":\"status\",\"code\":304"), -EIO, false);
	refused(GET("\"kind\":\"reset\""), -EIO, true);
	refused(GET("\"kind\":\"headers\",\"headers\":{\"ETag\":null,\"Last-Modified\":null}"),
		-EIO, false);
}

static void too_long(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");

	(void)state;
	faulty_fault(&server, GET("\"kind\":\"long\",\"extra\":100"));
	web_range(origin, "x", &attr, 1000, 2000);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	/* What else it sent is no better: nothing counts as arrived, now or on the way. */
	assert_int_equal(ask.bytes, 0);
	assert_int_equal(ask.progressed, 0);
	origin_unref(origin);
}

/* O9: what arrived counts, and the read goes on from there. */
static void cut(const char *fault, int error)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");

	faulty_fault(&server, fault);
	web_range(origin, "x", &attr, 1000, 200000);
	assert_int_equal(ask.error, error);
	assert_true(ask.transient);
	assert_int_equal(ask.bytes, 70000);
	web_whole(origin, "x", &attr, 1000 + ask.bytes, 200000 - ask.bytes);
	origin_unref(origin);
}

static void closed_early(void **state)
{
	(void)state;
	cut(GET("\"kind\":\"short\",\"after\":70000,\"times\":1"), -EIO);
	cut(GET("\"kind\":\"close\",\"after\":70000,\"times\":1"), -EIO);
}

/* O8 */
static void stalls(void **state)
{
	struct origin *origin =
		web_open("/d/", (struct origin_settings){ .stall_timeout_ms = 300 });
	struct origin_attr attr = web_attr(origin, "x");
	uint64_t begin = loop_now_ns();

	(void)state;
	faulty_fault(&server, GET("\"kind\":\"stall\",\"after\":70000,\"times\":1"));
	web_range(origin, "x", &attr, 0, WEB_SIZE);
	assert_int_equal(ask.error, -ETIMEDOUT);
	assert_true(ask.transient);
	assert_int_equal(ask.bytes, 70000);
	assert_true(loop_now_ns() - begin >= 300000000);
	faulty_fault(&server, GET("\"kind\":\"stall\",\"after\":0,\"times\":1"));
	web_range(origin, "x", &attr, 0, WEB_SIZE);
	assert_int_equal(ask.error, -ETIMEDOUT);
	assert_int_equal(ask.bytes, 0);
	web_whole(origin, "x", &attr, 0, WEB_SIZE);
	origin_unref(origin);
}

/* O6, O7 */
static void names_when_unwell(void **state)
{
	struct origin *origin = web_open_plain();

	(void)state;
	faulty_fault(&server, "{\"path\":\"/d/*\",\"kind\":\"status\",\"code\":503,"
			      "\"headers\":{\"Retry-After\":\"7\"}}");
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_int_equal(ask.retry_after_ms, 7000);
	assert_int_equal(ask.status, 503);
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/*\",\"kind\":\"status\",\"code\":429}");
	query_stat(loop, origin, "x", &ask);
	assert_true(ask.transient);
	origin_unref(origin);
}

static void nobody_there(void **state)
{
	struct origin *origin;
	char msg[512];

	(void)state;
	assert_int_equal(origin_create("http://127.0.0.1:1/", NULL, &origin, msg, sizeof(msg)), 0);
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_int_equal(ask.status, 0);
	origin_unref(origin);
}

/* O11 */
static void content_encoding(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr;

	(void)state;
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"gzip\"}");
	attr = web_attr(origin, "x");
	assert_int_equal(attr.size, WEB_SIZE);
	web_whole(origin, "x", &attr, 0, WEB_SIZE);
	origin_unref(origin);
}

/* V1 */
static void overwritten(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");

	(void)state;
	body[0] ^= 1;
	faulty_put(&server, "/d/x", body, WEB_SIZE);
	web_range(origin, "x", &attr, 1, 1000);
	assert_int_equal(ask.error, -ESTALE);
	assert_int_equal(ask.bytes, 0);
	assert_string_not_equal(web_attr(origin, "x").version, attr.version);
	origin_unref(origin);
}

static void weak(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr;
	json_t *log;
	const char *since;

	(void)state;
	faulty_put(&server, "/d/x?etag=weak", body, WEB_SIZE);
	attr = web_attr(origin, "x");
	assert_string_equal(attr.version, "lm:1600000000");
	assert_int_equal(attr.flags, 0);
	web_whole(origin, "x", &attr, 5, 10);
	log = faulty_log(&server);
	since = json_string_value(
		json_object_get(json_object_get(json_array_get(log, 1), "headers"),
				"if-unmodified-since"));
	assert_string_equal(since, "Sun, 13 Sep 2020 12:26:40 GMT");
	json_decref(log);
	/* Later, the same size: If-Unmodified-Since says so; a server that ignores it is caught. */
	faulty_put(&server, "/d/x?etag=weak&modified=1600000001", body, WEB_SIZE);
	web_range(origin, "x", &attr, 5, 10);
	assert_int_equal(ask.error, -ESTALE);
	faulty_put(&server, "/d/x?etag=weak&modified=1500000000", body, WEB_SIZE);
	web_range(origin, "x", &attr, 5, 10);
	assert_int_equal(ask.error, -ESTALE);
	/* Younger than a minute: no proof. */
	faulty_put(&server, "/d/x?etag=none&modified=4000000000", body, WEB_SIZE);
	assert_int_equal(web_attr(origin, "x").flags, ORIGIN_WEAK);
	faulty_put(&server, "/d/x?etag=none&modified=none", body, WEB_SIZE);
	attr = web_attr(origin, "x");
	assert_int_equal(attr.flags, ORIGIN_WEAK | ORIGIN_UNPROVEN);
	assert_string_equal(attr.version, "size");
	web_whole(origin, "x", &attr, 5, 10);
	origin_unref(origin);
}

static void no_head(void **state)
{
	struct origin *origin = web_open_plain();

	(void)state;
	faulty_fault(&server,
		     "{\"path\":\"/d/x\",\"method\":\"HEAD\",\"kind\":\"status\",\"code\":405}");
	assert_int_equal(web_attr(origin, "x").size, WEB_SIZE);
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/*\",\"method\":\"HEAD\",\"kind\":\"headers\","
			      "\"headers\":{\"Content-Length\":null,\"Connection\":\"close\"}}");
	assert_int_equal(web_attr(origin, "x").size, WEB_SIZE);
	faulty_put(&server, "/d/empty", "", 0);
	assert_int_equal(web_attr(origin, "empty").size, 0);
	origin_unref(origin);
}

static void not_expected(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	fail_msg("progress after cancel");
}

static void not_done(void *arg, const struct origin_result *result, uint64_t bytes)
{
	(void)result;
	not_expected(arg, bytes);
}

static struct origin_call *to_cancel;

static void cancel_in_progress(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	assert_non_null(to_cancel);
	origin_cancel(to_cancel);
	to_cancel = NULL;
}

static void cancelled(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");
	struct origin_get get = {
		.path = "x",
		.attr = &attr,
		.len = WEB_SIZE,
		.dst = dst,
		.progress = not_expected,
		.done = not_done,
	};
	struct origin_call *call;

	(void)state;
	/* At once, before anything was sent. */
	assert_int_equal(origin_read(origin, loop, &get, &call), 0);
	origin_cancel(call);
	query_turn(loop, 20);
	/* While it waits for the answer. */
	faulty_fault(&server, GET("\"kind\":\"stall\",\"after\":0"));
	assert_int_equal(origin_read(origin, loop, &get, &call), 0);
	query_turn(loop, 100);
	origin_cancel(call);
	query_turn(loop, 20);
	faulty_clear(&server);
	/* From inside its own progress(). */
	get.progress = cancel_in_progress;
	assert_int_equal(origin_read(origin, loop, &get, &to_cancel), 0);
	while (to_cancel)
		query_turn(loop, 10);
	query_turn(loop, 20);
	web_whole(origin, "x", &attr, 0, WEB_SIZE);
	origin_unref(origin);
}

static void refused_sources(void **state)
{
	static const char *const sources[] = {
		"http://user:secret@host/",
		"http://host/?a=secret",
		"http://host/#x",
		"http:///x",
		"http://",
		"ftp://host/",
		"https://ho st/",
		"https://h\n[2J/\033",
		"x\n\033",
	};
	const char *bad[] = { "no colon secret", NULL };
	const struct origin_settings settings = { .headers = bad };
	struct origin *origin;
	char msg[512];

	(void)state;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		msg[0] = '\0';
		assert_int_equal(origin_create(sources[i], NULL, &origin, msg, sizeof(msg)),
				 -EINVAL);
		assert_true(strlen(msg) > 10);
		assert_null(strstr(msg, "secret"));
		/* A line of a log, whatever stands in a source. */
		assert_null(strpbrk(msg, "\n\033"));
	}
	assert_int_equal(origin_create("http://host/", &settings, &origin, msg, sizeof(msg)),
			 -EINVAL);
	assert_null(strstr(msg, "secret"));
}

static void counted(void **state)
{
	struct origin *origin = web_open_plain();
	struct origin_attr attr = web_attr(origin, "x");
	struct origin_counters counters;

	(void)state;
	web_whole(origin, "x", &attr, 0, 1000);
	query_stat(loop, origin, "nope", &ask);
	origin_counters(origin, &counters);
	assert_int_equal(counters.requests, 3);
	assert_int_equal(counters.bytes, 1000);
	assert_int_equal(counters.status_class[2], 2);
	assert_int_equal(counters.status_class[4], 1);
	assert_int_equal(counters.errors, 1);
	origin_unref(origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(stat_and_read, web_each),
		cmocka_unit_test_setup(empty, web_each),
		cmocka_unit_test_setup(directory, web_each),
		cmocka_unit_test_setup(odd_names, web_each),
		cmocka_unit_test_setup(whole_for_a_range, web_each),
		cmocka_unit_test_setup(wrong_answers, web_each),
		cmocka_unit_test_setup(too_long, web_each),
		cmocka_unit_test_setup(closed_early, web_each),
		cmocka_unit_test_setup(stalls, web_each),
		cmocka_unit_test_setup(names_when_unwell, web_each),
		cmocka_unit_test_setup(nobody_there, web_each),
		cmocka_unit_test_setup(content_encoding, web_each),
		cmocka_unit_test_setup(overwritten, web_each),
		cmocka_unit_test_setup(weak, web_each),
		cmocka_unit_test_setup(no_head, web_each),
		cmocka_unit_test_setup(cancelled, web_each),
		cmocka_unit_test_setup(refused_sources, web_each),
		cmocka_unit_test_setup(counted, web_each),
	};

	return cmocka_run_group_tests_name("origin_http", tests, web_begin, web_end);
}
