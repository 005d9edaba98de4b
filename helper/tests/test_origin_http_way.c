// SPDX-License-Identifier: MIT
/* The way to an HTTP origin: redirects, credentials, TLS, proxies. */
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
	origin = web_open("/d/", (struct origin_settings){ .headers = headers,
							   .bearer_file = token_file });
	assert_null(strstr(origin_identity(origin), "secret"));
	faulty_put(&other, "/else", body, WEB_SIZE);
	snprintf(fault, sizeof(fault),
		 "{\"path\":\"/d/x\",\"kind\":\"redirect\",\"to\":\"%s/else?sig=sig-wfssecret\"}",
		 other.url);
	faulty_fault(&server, fault);
	attr = web_attr(origin, "x");
	assert_int_equal(attr.size, WEB_SIZE);
	web_whole(origin, "x", &attr, 1000, 2000);

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
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_null(strstr(ask.message, "secret"));

	/* A2: a place that refuses is looked up again, once. */
	assert_true(faulty_count(&other, "HEAD", "/else") >= 2);
	faulty_clear(&other);
	faulty_fault(&other, "{\"path\":\"/else\",\"kind\":\"status\",\"code\":403,\"times\":1}");
	web_whole(origin, "x", &attr, 1000, 2000);
	assert_int_equal(faulty_count(&other, "GET", "/else"), 2);
	/* It may be signed for GET only. */
	faulty_fault(&other,
		     "{\"path\":\"/else\",\"method\":\"HEAD\",\"kind\":\"status\",\"code\":403}");
	assert_int_equal(web_attr(origin, "x").size, WEB_SIZE);

	/* The same host keeps them; a circle ends. */
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"redirect\",\"to\":\"/d/y\"}");
	faulty_put(&server, "/d/y", "y", 1);
	assert_int_equal(web_attr(origin, "x").size, 1);
	log = faulty_log(&server);
	assert_string_equal(header_of(log, 1, "x-key"), "key-wfssecret");
	json_decref(log);
	faulty_fault(&server, "{\"path\":\"/d/y\",\"kind\":\"redirect\",\"to\":\"/d/x\"}");
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_false(ask.transient);

	/* A renewed token is used from the next request on. */
	faulty_clear(&server);
	fd = open(token_file, O_WRONLY | O_TRUNC);
	assert_int_equal(write(fd, "newer", 5), 5);
	close(fd);
	web_attr(origin, "x");
	log = faulty_log(&server);
	assert_string_equal(header_of(log, 0, "authorization"), "Bearer newer");
	json_decref(log);
	unlink(token_file);
	origin_unref(origin);
}

static void on_stat(void *arg, const struct origin_result *result, const struct origin_attr *attr)
{
	struct query *got = arg;

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
	origin = web_open("/d/", (struct origin_settings){ .bearer_file = token_file });
	origin_credentials(origin, &credentials);
	assert_string_equal(credentials.source, "bearer_file");
	attr = web_attr(origin, "x");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"status\",\"code\":401,\"times\":1}");
	assert_int_equal(origin_stat(origin, loop, "x", on_stat, &ask, &call), 0);
	write_token(token_file, "new-wfssecret\n");
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(ask.error, 0);
	assert_int_equal(ask.attr.size, WEB_SIZE);
	log = faulty_log(&server);
	assert_int_equal(json_array_size(log), 2);
	assert_string_equal(header_of(log, 0, "authorization"), "Bearer old-wfssecret");
	assert_string_equal(header_of(log, 1, "authorization"), "Bearer new-wfssecret");
	json_decref(log);

	/* The same token: refused, after one attempt. */
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"status\",\"code\":401}");
	web_range(origin, "x", &attr, 0, 1000);
	assert_int_equal(ask.error, -EACCES);
	assert_int_equal(faulty_count(&server, "GET", "/d/x"), 1);
	origin_unref(origin);

	/* One that is another one each time it is read: once more, not for ever. */
	origin = web_open("/d/", (struct origin_settings){
					 .bearer_file = "/proc/sys/kernel/random/uuid" });
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/d/x\",\"kind\":\"status\",\"code\":401}");
	query_stat(loop, origin, "x", &ask);
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
	faulty_put(&secure, "/d/x", body, WEB_SIZE);
	snprintf(source, sizeof(source), "%s/d/", secure.url);
	/* Not trusted: said at once, not retried. */
	assert_int_equal(origin_create(source, NULL, &origin, msg, sizeof(msg)), 0);
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, "ca="));
	origin_unref(origin);

	assert_int_equal(origin_create(source, &(struct origin_settings){ .ca = secure.ca },
				       &origin, msg, sizeof(msg)),
			 0);
	attr = web_attr(origin, "x");
	web_whole(origin, "x", &attr, 0, WEB_SIZE);
	/* Down from https is no redirect to follow. */
	snprintf(fault, sizeof(fault),
		 "{\"path\":\"/d/x\",\"kind\":\"redirect\",\"to\":\"%s/d/x\"}", server.url);
	faulty_fault(&secure, fault);
	query_stat(loop, origin, "x", &ask);
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
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(faulty_count(&server, "HEAD", "http://origin.invalid/d/x"), 1);
	origin_unref(origin);
}

/* The environment's proxy is for people's browsers, not for a daemon's origins. */
static void no_proxy(void **state)
{
	struct origin *origin = web_open_plain();

	(void)state;
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	web_attr(origin, "x");
	unsetenv("http_proxy");
	origin_unref(origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(redirects, web_each),
		cmocka_unit_test_setup(bearer_renewed, web_each),
		cmocka_unit_test_setup(tls, web_each),
		cmocka_unit_test_setup(proxy, web_each),
		cmocka_unit_test_setup(no_proxy, web_each),
	};

	return cmocka_run_group_tests_name("origin_http_way", tests, web_begin, web_end);
}
