// SPDX-License-Identifier: MIT
/* S3 with credentials that come, end and are refused while it is read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "query.h"
#include "faulty.h"
#include "log.h"

static struct faulty server, other;
static struct loop *loop;
static struct query ask;
static char dst[64], token_file[] = "/tmp/wfs-test-XXXXXX";

/* The clock of pauses, moved by the tests. */
static uint64_t ahead_ns;
uint64_t __real_loop_now_ns(void);
uint64_t __wrap_loop_now_ns(void);

uint64_t __wrap_loop_now_ns(void)
{
	return __real_loop_now_ns() + ahead_ns;
}

static struct origin *open_bucket(void)
{
	const struct origin_settings settings = { .endpoint = server.url };
	struct origin *origin;
	char msg[512] = "";

	if (origin_create("s3://b", &settings, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

static struct origin_attr attr_of(struct origin *origin, const char *path)
{
	query_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr;
}

static void reads(struct origin *origin, const struct origin_attr *attr)
{
	query_read(loop, origin, "x", attr, 0, attr->size, dst, &ask);
	assert_string_equal(ask.message, "");
	assert_memory_equal(dst, "hello", 5);
}

static int asked(void)
{
	return faulty_count(&server, "POST", "/sts");
}

static int set_up(void **state)
{
	char url[80];
	int fd = mkstemp(token_file);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "web-wfssecret", 13), 13);
	close(fd);
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_PROFILE");
	unsetenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	log_setup(LOG_LEVEL_ERROR, false);
	assert_int_equal(loop_create(&loop, 64), 0);
	faulty_start(&server);
	faulty_start(&other);
	snprintf(url, sizeof(url), "%s/sts", server.url);
	setenv("AWS_ENDPOINT_URL_STS", url, 1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	faulty_stop(&server);
	faulty_stop(&other);
	loop_destroy(loop);
	return unlink(token_file);
}

static int each(void **state)
{
	(void)state;
	ahead_ns += 2000000000;
	faulty_clear(&server);
	faulty_clear(&other);
	faulty_put(&server, "/b/x", "hello", 5);
	faulty_s3(&server, "{\"bucket\":\"b\",\"issued\":true}");
	faulty_issuer(&server, "{\"token\":\"web-wfssecret\",\"same\":false}");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token_file, 1);
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
	return 0;
}

/* The session ends before its time: one more request for keys, one more for the bytes. */
static void expired(void **state)
{
	struct origin *origin = open_bucket();
	struct origin_credentials credentials;
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	/* HEAD and the listing waited for the same keys. */
	assert_int_equal(asked(), 1);
	reads(origin, &attr);
	assert_int_equal(asked(), 1);
	origin_credentials(origin, &credentials);
	assert_string_equal(credentials.source, "web-identity");
	assert_true(credentials.expires > 0);
	assert_null(strstr(origin_identity(origin), "ISSUED"));
	assert_null(strstr(origin_identity(origin), "wfssecret"));

	faulty_issuer(&server, "{\"revoke\":true}");
	faulty_clear(&server);
	reads(origin, &attr);
	assert_int_equal(asked(), 1);
	assert_int_equal(faulty_count(&server, "GET", "/b/x"), 2);

	/* HEAD does not say why: the same. */
	faulty_issuer(&server, "{\"revoke\":true}");
	ahead_ns += 2000000000;
	faulty_clear(&server);
	attr_of(origin, "x");
	assert_int_equal(asked(), 1);
	assert_int_equal(faulty_count(&server, "HEAD", "/b/x"), 2);
	origin_unref(origin);
}

static void cannot_be_renewed(void **state)
{
	struct origin *origin = open_bucket();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	faulty_issuer(&server, "{\"revoke\":true,\"token\":\"newer-wfssecret\"}");
	faulty_clear(&server);
	query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, token_file));
	assert_null(strstr(ask.message, "wfssecret"));
	assert_int_equal(faulty_count(&server, "GET", "/b/x"), 1);
	assert_int_equal(asked(), 1);
	/* No keys at all, from the start. */
	origin_unref(origin);
	origin = open_bucket();
	query_stat(loop, origin, "", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_non_null(strstr(ask.message, token_file));
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EACCES);
	/* What may pass is said to be so. */
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":503}");
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	origin_unref(origin);
}

/* STS is unwell for a moment: another attempt succeeds, however soon it is made. */
static void renewed_later(void **state)
{
	struct origin *origin = open_bucket();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	faulty_issuer(&server, "{\"revoke\":true}");
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":503,\"times\":2}");
	for (int i = 0; i < 2; i++) {
		query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
		assert_int_equal(ask.error, -EIO);
		assert_true(ask.transient);
	}
	reads(origin, &attr);
	origin_unref(origin);
}

/* The server refuses the new keys as well: told, after one more attempt. */
static void refused_again(void **state)
{
	struct origin *origin = open_bucket();
	struct origin_attr attr = attr_of(origin, "x");

	(void)state;
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/b/x\",\"kind\":\"status\",\"code\":403,"
			      "\"body\":\"<Error><Code>ExpiredToken</Code></Error>\"}");
	query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, "ExpiredToken"));
	assert_int_equal(faulty_count(&server, "GET", "/b/x"), 2);
	assert_int_equal(asked(), 1);
	/* What the role may not do is no reason to ask for other keys. */
	ahead_ns += 2000000000;
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/b/x\",\"kind\":\"status\",\"code\":403,"
			      "\"body\":\"<Error><Code>AccessDenied</Code></Error>\"}");
	query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_int_equal(faulty_count(&server, "GET", "/b/x"), 1);
	assert_int_equal(asked(), 0);
	origin_unref(origin);
}

static void unsigned_requests(void **state)
{
	struct origin *origin;

	(void)state;
	unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
	origin = open_bucket();
	query_stat(loop, origin, "", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, "without credentials"));
	assert_non_null(strstr(ask.message, "/nonexistent"));
	faulty_s3(&server, "{\"bucket\":\"b\"}");
	attr_of(origin, "x");
	origin_unref(origin);
}

/* S3 redirects to other regions: what is signed goes nowhere else. */
static void redirected(void **state)
{
	struct origin *origin = open_bucket();
	struct origin_attr attr = attr_of(origin, "x");
	char fault[256];
	json_t *log;

	(void)state;
	snprintf(fault, sizeof(fault),
		 "{\"path\":\"/b/x\",\"kind\":\"redirect\",\"code\":307,\"to\":\"%s/b/x\"}",
		 other.url);
	faulty_fault(&server, fault);
	query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
	assert_int_equal(ask.error, -EIO);
	log = faulty_log(&other);
	assert_int_equal(json_array_size(log), 0);
	json_decref(log);
	origin_unref(origin);
}

static void not_done(void *arg, const struct origin_result *result, const struct origin_attr *attr)
{
	(void)arg;
	(void)result;
	(void)attr;
	fail_msg("answer after cancel");
}

static void cancelled(void **state)
{
	struct origin *origin = open_bucket();
	struct origin_call *call;

	(void)state;
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"delay\",\"seconds\":0.2}");
	assert_int_equal(origin_stat(origin, loop, "x", not_done, NULL, &call), 0);
	query_turn(loop, 50);
	origin_cancel(call);
	attr_of(origin, "x");
	origin_unref(origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(expired, each),
		cmocka_unit_test_setup(cannot_be_renewed, each),
		cmocka_unit_test_setup(renewed_later, each),
		cmocka_unit_test_setup(refused_again, each),
		cmocka_unit_test_setup(unsigned_requests, each),
		cmocka_unit_test_setup(redirected, each),
		cmocka_unit_test_setup(cancelled, each),
	};

	return cmocka_run_group_tests_name("credentials_s3", tests, set_up, tear_down);
}
