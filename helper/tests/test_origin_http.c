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

#include "ask.h"
#include "faulty.h"

#define SIZE 300000

static struct faulty server, other;
static struct loop *loop;
static char body[SIZE], dst[SIZE + 1];
static struct ask ask;

static struct origin *open_with(const char *path, struct origin_settings settings)
{
	struct origin *origin;
	char source[256], msg[512] = "";

	snprintf(source, sizeof(source), "%s%s", server.url, path);
	settings.connect_timeout_ms = 5000;
	if (!settings.stall_timeout_ms)
		settings.stall_timeout_ms = 5000;
	if (origin_create(source, &settings, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

static struct origin *open_plain(void)
{
	return open_with("/d/", (struct origin_settings){ 0 });
}

/* Reads a range and checks that what came is right, whether or not all came. */
static void read_range(struct origin *origin, const char *path, const struct origin_attr *attr,
		       uint64_t offset, uint64_t len)
{
	memset(dst, 0xaa, sizeof(dst));
	ask_read(loop, origin, path, attr, offset, len, dst, &ask);
	assert_true(ask.bytes <= len);
	assert_memory_equal(dst, body + offset, (size_t)ask.bytes);
	/* Nothing is written past the range. */
	assert_int_equal((unsigned char)dst[len], 0xaa);
}

static void whole(struct origin *origin, const char *path, const struct origin_attr *attr,
		  uint64_t offset, uint64_t len)
{
	read_range(origin, path, attr, offset, len);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.bytes, len);
}

static struct origin_attr attr_of(struct origin *origin, const char *path)
{
	ask_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr;
}

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(loop_create(&loop, 64), 0);
	for (size_t i = 0; i < SIZE; i++)
		body[i] = (char)(i * 7 + i / 251);
	faulty_start(&server);
	faulty_start(&other);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	faulty_stop(&server);
	faulty_stop(&other);
	loop_destroy(loop);
	return 0;
}

static int each(void **state)
{
	(void)state;
	faulty_clear(&server);
	faulty_clear(&other);
	faulty_put(&server, "/d/x", body, SIZE);
	return 0;
}

static void stat_and_read(void **state)
{
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	assert_int_equal(attr.mode, S_IFREG);
	assert_int_equal(attr.size, SIZE);
	assert_int_equal(attr.mtime_sec, 1600000000);
	assert_int_equal(attr.flags, 0);
	assert_int_equal(attr.version[0], '"');
	whole(origin, "x", &attr, 0, SIZE);
	whole(origin, "x", &attr, 1, 1);
	whole(origin, "x", &attr, SIZE - 1, 1);
	whole(origin, "x", &attr, 65536, 65536);
	assert_int_equal(faulty_count(&server, "HEAD", "/d/x"), 1);
	assert_int_equal(faulty_count(&server, "GET", "/d/x"), 4);
	ask_stat(loop, origin, "nope", &ask);
	assert_int_equal(ask.error, -ENOENT);
	assert_false(ask.transient);
	ask_stat(loop, origin, "", &ask);
	assert_int_equal(ask.attr.mode, S_IFDIR);
	origin_unref(origin);
}

static void empty(void **state)
{
	struct origin *origin = open_plain();

	(void)state;
	faulty_put(&server, "/d/empty", "", 0);
	assert_int_equal(attr_of(origin, "empty").size, 0);
	origin_unref(origin);
}

static void directory(void **state)
{
	struct origin *origin = open_plain();

	(void)state;
	faulty_put(&server, "/d/sub/y", "y", 1);
	ask_stat(loop, origin, "sub", &ask);
	assert_int_equal(ask.error, 0);
	assert_int_equal(ask.attr.mode, S_IFDIR);
	ask_list(loop, origin, "sub", NULL, &ask);
	assert_string_equal(ask.names, "y ");
	ask_list(loop, origin, "", NULL, &ask);
	assert_non_null(strstr(ask.names, "sub/ x "));
	ask_list(loop, origin, "nope", NULL, &ask);
	assert_int_equal(ask.error, -ENOENT);
	faulty_fault(&server,
		     "{\"path\":\"/d/\",\"kind\":\"status\",\"code\":200,\"body\":\"<html>\"}");
	ask_list(loop, origin, "", NULL, &ask);
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
	struct origin *origin = open_with("/n", (struct origin_settings){ 0 });

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		faulty_put(&server, names[i][1], body + i, i + 1);
	ask_list(loop, origin, "", NULL, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.count, sizeof(names) / sizeof(names[0]));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ask list = ask;
		struct origin_attr attr;

		assert_non_null(strstr(list.names, names[i][0]));
		attr = attr_of(origin, names[i][0]);
		assert_int_equal(attr.size, i + 1);
		ask_read(loop, origin, names[i][0], &attr, 0, i + 1, dst, &ask);
		assert_string_equal(ask.message, "");
		assert_memory_equal(dst, body + i, i + 1);
		ask = list;
	}
	origin_unref(origin);
}

/* O1 */
static void whole_for_a_range(void **state)
{
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	faulty_fault(&server, "{\"path\":\"/d/*\",\"method\":\"GET\",\"kind\":\"full\"}");
	whole(origin, "x", &attr, 100, 1000);
	whole(origin, "x", &attr, SIZE - 5, 5);
	whole(origin, "x", &attr, 0, SIZE);
	faulty_put(&server, "/d/large?size=300000000&seed=1", NULL, 0);
	attr = attr_of(origin, "large");
	ask_read(loop, origin, "large", &attr, 200000000, 1000, dst, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_false(ask.transient);
	assert_int_equal(ask.bytes, 0);
	origin_unref(origin);
}

/* O3: nothing of such an answer is taken. */
static void refused(const char *fault, int error, bool transient)
{
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");

	faulty_fault(&server, fault);
	read_range(origin, "x", &attr, 1000, 2000);
	assert_int_equal(ask.error, error);
	assert_int_equal(ask.transient, transient);
	assert_int_equal(ask.bytes, 0);
	faulty_clear(&server);
	whole(origin, "x", &attr, 1000, 2000);
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
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	faulty_fault(&server, GET("\"kind\":\"long\",\"extra\":100"));
	read_range(origin, "x", &attr, 1000, 2000);
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
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");

	faulty_fault(&server, fault);
	read_range(origin, "x", &attr, 1000, 200000);
	assert_int_equal(ask.error, error);
	assert_true(ask.transient);
	assert_int_equal(ask.bytes, 70000);
	whole(origin, "x", &attr, 1000 + ask.bytes, 200000 - ask.bytes);
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
		open_with("/d/", (struct origin_settings){ .stall_timeout_ms = 300 });
	struct origin_attr attr = attr_of(origin, "x");
	uint64_t begin = loop_now_ns();

	(void)state;
	faulty_fault(&server, GET("\"kind\":\"stall\",\"after\":70000,\"times\":1"));
	read_range(origin, "x", &attr, 0, SIZE);
	assert_int_equal(ask.error, -ETIMEDOUT);
	assert_true(ask.transient);
	assert_int_equal(ask.bytes, 70000);
	assert_true(loop_now_ns() - begin >= 300000000);
	faulty_fault(&server, GET("\"kind\":\"stall\",\"after\":0,\"times\":1"));
	read_range(origin, "x", &attr, 0, SIZE);
	assert_int_equal(ask.error, -ETIMEDOUT);
	assert_int_equal(ask.bytes, 0);
	whole(origin, "x", &attr, 0, SIZE);
	origin_unref(origin);
}

/* O6, O7 */
static void names_when_unwell(void **state)
{
	struct origin *origin = open_plain();

	(void)state;
	faulty_fault(&server, "{\"path\":\"/d/*\",\"kind\":\"status\",\"code\":503,"
			      "\"headers\":{\"Retry-After\":\"7\"}}");
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_int_equal(ask.retry_after_ms, 7000);
	assert_int_equal(ask.status, 503);
	ask_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/*\",\"kind\":\"status\",\"code\":429}");
	ask_stat(loop, origin, "x", &ask);
	assert_true(ask.transient);
	origin_unref(origin);
}

static void nobody_there(void **state)
{
	struct origin *origin;
	char msg[512];

	(void)state;
	assert_int_equal(origin_create("http://127.0.0.1:1/", NULL, &origin, msg, sizeof(msg)), 0);
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_int_equal(ask.status, 0);
	origin_unref(origin);
}

/* O11 */
static void content_encoding(void **state)
{
	struct origin *origin = open_plain();
	struct origin_attr attr;

	(void)state;
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"gzip\"}");
	attr = attr_of(origin, "x");
	assert_int_equal(attr.size, SIZE);
	whole(origin, "x", &attr, 0, SIZE);
	origin_unref(origin);
}

/* V1 */
static void overwritten(void **state)
{
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	body[0] ^= 1;
	faulty_put(&server, "/d/x", body, SIZE);
	read_range(origin, "x", &attr, 1, 1000);
	assert_int_equal(ask.error, -ESTALE);
	assert_int_equal(ask.bytes, 0);
	assert_string_not_equal(attr_of(origin, "x").version, attr.version);
	origin_unref(origin);
}

static void weak(void **state)
{
	struct origin *origin = open_plain();
	struct origin_attr attr;
	json_t *log;
	const char *since;

	(void)state;
	faulty_put(&server, "/d/x?etag=weak", body, SIZE);
	attr = attr_of(origin, "x");
	assert_string_equal(attr.version, "lm:1600000000");
	assert_int_equal(attr.flags, 0);
	whole(origin, "x", &attr, 5, 10);
	log = faulty_log(&server);
	since = json_string_value(
		json_object_get(json_object_get(json_array_get(log, 1), "headers"),
				"if-unmodified-since"));
	assert_string_equal(since, "Sun, 13 Sep 2020 12:26:40 GMT");
	json_decref(log);
	/* Later, the same size: If-Unmodified-Since says so; a server that ignores it is caught. */
	faulty_put(&server, "/d/x?etag=weak&modified=1600000001", body, SIZE);
	read_range(origin, "x", &attr, 5, 10);
	assert_int_equal(ask.error, -ESTALE);
	faulty_put(&server, "/d/x?etag=weak&modified=1500000000", body, SIZE);
	read_range(origin, "x", &attr, 5, 10);
	assert_int_equal(ask.error, -ESTALE);
	/* Younger than a minute: no proof. */
	faulty_put(&server, "/d/x?etag=none&modified=4000000000", body, SIZE);
	assert_int_equal(attr_of(origin, "x").flags, ORIGIN_WEAK);
	faulty_put(&server, "/d/x?etag=none&modified=none", body, SIZE);
	attr = attr_of(origin, "x");
	assert_int_equal(attr.flags, ORIGIN_WEAK | ORIGIN_UNPROVEN);
	assert_string_equal(attr.version, "size");
	whole(origin, "x", &attr, 5, 10);
	origin_unref(origin);
}

static void no_head(void **state)
{
	struct origin *origin = open_plain();

	(void)state;
	faulty_fault(&server,
		     "{\"path\":\"/d/x\",\"method\":\"HEAD\",\"kind\":\"status\",\"code\":405}");
	assert_int_equal(attr_of(origin, "x").size, SIZE);
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/*\",\"method\":\"HEAD\",\"kind\":\"headers\","
			      "\"headers\":{\"Content-Length\":null,\"Connection\":\"close\"}}");
	assert_int_equal(attr_of(origin, "x").size, SIZE);
	faulty_put(&server, "/d/empty", "", 0);
	assert_int_equal(attr_of(origin, "empty").size, 0);
	origin_unref(origin);
}

static const char *header_of(json_t *log, size_t i, const char *name)
{
	return json_string_value(
		json_object_get(json_object_get(json_array_get(log, i), "headers"), name));
}

/* Credentials go to the host they are for, and nowhere else. */
static void redirects(void **state)
{
	const char *headers[] = { "X-Key: key-wfssecret", "Cookie: cookie-wfssecret", NULL };
	char token_file[] = "/tmp/wfs-test-XXXXXX", fault[256];
	struct origin *origin;
	struct origin_attr attr;
	json_t *log;
	int fd = mkstemp(token_file);

	(void)state;
	assert_int_equal(write(fd, "token-wfssecret\n", 16), 16);
	close(fd);
	origin = open_with("/d/", (struct origin_settings){ .headers = headers,
							    .bearer_file = token_file });
	assert_null(strstr(origin_identity(origin), "secret"));
	faulty_put(&other, "/else", body, SIZE);
	snprintf(fault, sizeof(fault),
		 "{\"path\":\"/d/x\",\"kind\":\"redirect\",\"to\":\"%s/else?sig=sig-wfssecret\"}",
		 other.url);
	faulty_fault(&server, fault);
	attr = attr_of(origin, "x");
	assert_int_equal(attr.size, SIZE);
	whole(origin, "x", &attr, 1000, 2000);

	log = faulty_log(&server);
	assert_string_equal(header_of(log, 0, "authorization"), "Bearer token-wfssecret");
	assert_string_equal(header_of(log, 0, "x-key"), "key-wfssecret");
	json_decref(log);
	log = faulty_log(&other);
	assert_int_equal(json_array_size(log), 2);
	for (size_t i = 0; i < 2; i++) {
		assert_null(header_of(log, i, "authorization"));
		assert_null(header_of(log, i, "x-key"));
		assert_null(header_of(log, i, "cookie"));
	}
	assert_non_null(header_of(log, 1, "range"));
	json_decref(log);

	/* Nor into a sentence. */
	faulty_fault(&other, "{\"path\":\"/else\",\"kind\":\"status\",\"code\":403}");
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_null(strstr(ask.message, "secret"));

	/* A2: a place that refuses is looked up again, once. */
	assert_true(faulty_count(&other, "HEAD", "/else") >= 2);
	faulty_clear(&other);
	faulty_fault(&other, "{\"path\":\"/else\",\"kind\":\"status\",\"code\":403,\"times\":1}");
	whole(origin, "x", &attr, 1000, 2000);
	assert_int_equal(faulty_count(&other, "GET", "/else"), 2);
	/* It may be signed for GET only. */
	faulty_fault(&other,
		     "{\"path\":\"/else\",\"method\":\"HEAD\",\"kind\":\"status\",\"code\":403}");
	assert_int_equal(attr_of(origin, "x").size, SIZE);

	/* The same host keeps them; a circle ends. */
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"redirect\",\"to\":\"/d/y\"}");
	faulty_put(&server, "/d/y", "y", 1);
	assert_int_equal(attr_of(origin, "x").size, 1);
	log = faulty_log(&server);
	assert_string_equal(header_of(log, 1, "x-key"), "key-wfssecret");
	json_decref(log);
	faulty_fault(&server, "{\"path\":\"/d/y\",\"kind\":\"redirect\",\"to\":\"/d/x\"}");
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_false(ask.transient);

	/* A renewed token is used from the next request on. */
	faulty_clear(&server);
	fd = open(token_file, O_WRONLY | O_TRUNC);
	assert_int_equal(write(fd, "newer", 5), 5);
	close(fd);
	attr_of(origin, "x");
	log = faulty_log(&server);
	assert_string_equal(header_of(log, 0, "authorization"), "Bearer newer");
	json_decref(log);
	unlink(token_file);
	origin_unref(origin);
}

static void on_stat(void *arg, const struct origin_result *result, const struct origin_attr *attr)
{
	struct ask *got = arg;

	got->error = result->error;
	got->status = result->status;
	got->attr = *attr;
	loop_stop(loop);
}

static void write_token(const char *path, const char *token)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(token, f);
	fclose(f);
}

/* Renewed between a request and its refusal: made again with the token that is there by then. */
static void bearer_renewed(void **state)
{
	char token_file[] = "/tmp/wfs-test-XXXXXX";
	struct origin_call *call;
	struct origin_credentials credentials;
	struct origin_attr attr;
	struct origin *origin;
	int fd = mkstemp(token_file);
	json_t *log;

	(void)state;
	close(fd);
	write_token(token_file, "old-wfssecret");
	origin = open_with("/d/", (struct origin_settings){ .bearer_file = token_file });
	origin_credentials(origin, &credentials);
	assert_string_equal(credentials.source, "bearer_file");
	attr = attr_of(origin, "x");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"status\",\"code\":401,\"times\":1}");
	assert_int_equal(origin_stat(origin, loop, "x", on_stat, &ask, &call), 0);
	write_token(token_file, "new-wfssecret\n");
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(ask.error, 0);
	assert_int_equal(ask.attr.size, SIZE);
	log = faulty_log(&server);
	assert_int_equal(json_array_size(log), 2);
	assert_string_equal(header_of(log, 0, "authorization"), "Bearer old-wfssecret");
	assert_string_equal(header_of(log, 1, "authorization"), "Bearer new-wfssecret");
	json_decref(log);

	/* The same token: refused, after one attempt. */
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"status\",\"code\":401}");
	read_range(origin, "x", &attr, 0, 1000);
	assert_int_equal(ask.error, -EACCES);
	assert_int_equal(faulty_count(&server, "GET", "/d/x"), 1);
	origin_unref(origin);

	/* One that is another one each time it is read: once more, not for ever. */
	origin = open_with("/d/", (struct origin_settings){
					  .bearer_file = "/proc/sys/kernel/random/uuid" });
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"status\",\"code\":401}");
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_int_equal(faulty_count(&server, "HEAD", "/d/x"), 2);
	unlink(token_file);
	origin_unref(origin);
}

static void tls(void **state)
{
	struct faulty secure;
	struct origin *origin;
	struct origin_attr attr;
	char source[128], msg[512], fault[256];

	(void)state;
	faulty_start_tls(&secure);
	faulty_put(&secure, "/d/x", body, SIZE);
	snprintf(source, sizeof(source), "%s/d/", secure.url);
	/* Not trusted: said at once, not retried. */
	assert_int_equal(origin_create(source, NULL, &origin, msg, sizeof(msg)), 0);
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, "ca="));
	origin_unref(origin);

	assert_int_equal(origin_create(source, &(struct origin_settings){ .ca = secure.ca },
				       &origin, msg, sizeof(msg)),
			 0);
	attr = attr_of(origin, "x");
	whole(origin, "x", &attr, 0, SIZE);
	/* Down from https is no redirect to follow. */
	snprintf(fault, sizeof(fault),
		 "{\"path\":\"/d/x\",\"kind\":\"redirect\",\"to\":\"%s/d/x\"}", server.url);
	faulty_fault(&secure, fault);
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_int_equal(faulty_count(&server, "HEAD", "/d/x"), 0);
	origin_unref(origin);
	faulty_stop(&secure);
}

static void proxy(void **state)
{
	const struct origin_settings settings = { .proxy = server.url };
	struct origin *origin;
	char msg[512];

	(void)state;
	assert_int_equal(origin_create("http://origin.invalid/d/", &settings, &origin, msg,
				       sizeof(msg)),
			 0);
	ask_stat(loop, origin, "x", &ask);
	assert_int_equal(faulty_count(&server, "HEAD", "http://origin.invalid/d/x"), 1);
	origin_unref(origin);
}

/* The environment's proxy is for people's browsers, not for a daemon's origins. */
static void no_proxy(void **state)
{
	struct origin *origin = open_plain();

	(void)state;
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	attr_of(origin, "x");
	unsetenv("http_proxy");
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
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");
	struct origin_get get = {
		.path = "x",
		.attr = &attr,
		.len = SIZE,
		.dst = dst,
		.progress = not_expected,
		.done = not_done,
	};
	struct origin_call *call;

	(void)state;
	/* At once, before anything was sent. */
	assert_int_equal(origin_read(origin, loop, &get, &call), 0);
	origin_cancel(call);
	ask_turn(loop, 20);
	/* While it waits for the answer. */
	faulty_fault(&server, GET("\"kind\":\"stall\",\"after\":0"));
	assert_int_equal(origin_read(origin, loop, &get, &call), 0);
	ask_turn(loop, 100);
	origin_cancel(call);
	ask_turn(loop, 20);
	faulty_clear(&server);
	/* From inside its own progress(). */
	get.progress = cancel_in_progress;
	assert_int_equal(origin_read(origin, loop, &get, &to_cancel), 0);
	while (to_cancel)
		ask_turn(loop, 10);
	ask_turn(loop, 20);
	whole(origin, "x", &attr, 0, SIZE);
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
	struct origin *origin = open_plain();
	struct origin_attr attr = attr_of(origin, "x");
	struct origin_counters counters;

	(void)state;
	whole(origin, "x", &attr, 0, 1000);
	ask_stat(loop, origin, "nope", &ask);
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
		cmocka_unit_test_setup(stat_and_read, each),
		cmocka_unit_test_setup(empty, each),
		cmocka_unit_test_setup(directory, each),
		cmocka_unit_test_setup(odd_names, each),
		cmocka_unit_test_setup(whole_for_a_range, each),
		cmocka_unit_test_setup(wrong_answers, each),
		cmocka_unit_test_setup(too_long, each),
		cmocka_unit_test_setup(closed_early, each),
		cmocka_unit_test_setup(stalls, each),
		cmocka_unit_test_setup(names_when_unwell, each),
		cmocka_unit_test_setup(nobody_there, each),
		cmocka_unit_test_setup(content_encoding, each),
		cmocka_unit_test_setup(overwritten, each),
		cmocka_unit_test_setup(weak, each),
		cmocka_unit_test_setup(no_head, each),
		cmocka_unit_test_setup(redirects, each),
		cmocka_unit_test_setup(bearer_renewed, each),
		cmocka_unit_test_setup(tls, each),
		cmocka_unit_test_setup(proxy, each),
		cmocka_unit_test_setup(no_proxy, each),
		cmocka_unit_test_setup(cancelled, each),
		cmocka_unit_test_setup(refused_sources, each),
		cmocka_unit_test_setup(counted, each),
	};

	return cmocka_run_group_tests_name("origin_http", tests, set_up, tear_down);
}
