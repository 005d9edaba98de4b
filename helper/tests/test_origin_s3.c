// SPDX-License-Identifier: MIT
/* The S3 origin against the S3 face of the misbehaving origin, which checks signatures. */
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

#include "query.h"
#include "faulty.h"

#define KEYS "{\"bucket\":\"b\",\"key\":\"AK\",\"secret\":\"SK+/wfssecret\""

static struct faulty server;
static struct loop *loop;
static struct query ask;
static char dst[4096];

static struct origin *open_with(const char *source, struct origin_settings settings)
{
	struct origin *origin;
	char msg[512] = "";

	settings.endpoint = server.url;
	if (origin_create(source, &settings, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

static struct origin *open_signed(const char *source)
{
	return open_with(source, (struct origin_settings){ .access_key = "AK",
							   .secret_key = "SK+/wfssecret" });
}

static void put(const char *path, const char *text)
{
	faulty_put(&server, path, text, strlen(text));
}

static mode_t mode_of(struct origin *origin, const char *path)
{
	query_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr.mode;
}

static void contains(struct origin *origin, const char *path, const char *text)
{
	struct origin_attr attr;

	assert_int_equal(mode_of(origin, path), S_IFREG);
	attr = ask.attr;
	assert_int_equal(attr.size, strlen(text));
	query_read(loop, origin, path, &attr, 0, attr.size, dst, &ask);
	assert_string_equal(ask.message, "");
	assert_memory_equal(dst, text, strlen(text));
}

static int set_up(void **state)
{
	(void)state;
	/* Nothing of who runs the test. */
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_PROFILE");
	unsetenv("AWS_REGION");
	unsetenv("AWS_DEFAULT_REGION");
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	assert_int_equal(loop_create(&loop, 64), 0);
	faulty_start(&server);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	faulty_stop(&server);
	loop_destroy(loop);
	return 0;
}

static int each(void **state)
{
	(void)state;
	faulty_clear(&server);
	faulty_s3(&server, KEYS "}");
	return 0;
}

static void signed_requests(void **state)
{
	struct origin *origin = open_signed("s3://b");
	struct origin_attr attr;

	(void)state;
	put("/b/x", "hello");
	put("/b/odd%20%23%3F%25%2B%26=~%C3%A9%0A", "odd");
	contains(origin, "x", "hello");
	contains(origin, "odd #?%+&=~\xc3\xa9\n", "odd");
	query_list(loop, origin, "", NULL, &ask);
	assert_string_equal(ask.message, "");
	assert_non_null(strstr(ask.names, "odd #?%+&=~\xc3\xa9\n "));
	query_stat(loop, origin, "x", &ask);
	attr = ask.attr;
	query_read(loop, origin, "x", &attr, 1, 3, dst, &ask);
	assert_memory_equal(dst, "ell", 3);
	origin_unref(origin);
}

/* A3 */
static void refused_keys(void **state)
{
	static const struct {
		const char *key, *secret, *says;
	} cases[] = {
		{ "AK", "wrong-wfssecret", "secret key is wrong" },
		{ "other", "SK+/wfssecret", "does not know the access key" },
		{ NULL, NULL, "refuses access" },
	};

	(void)state;
	put("/b/x", "hello");
	for (size_t i = 0; i < 3; i++) {
		struct origin *origin = open_with("s3://b/", (struct origin_settings){
								     .access_key = cases[i].key,
								     .secret_key = cases[i].secret,
								     .anon = !cases[i].key });

		query_stat(loop, origin, "", &ask);
		assert_int_equal(ask.error, -EACCES);
		assert_false(ask.transient);
		assert_non_null(strstr(ask.message, cases[i].says));
		assert_null(strstr(ask.message, "wrong-wfssecret"));
		query_stat(loop, origin, "x", &ask);
		assert_int_equal(ask.error, -EACCES);
		assert_non_null(strstr(ask.message, cases[i].says));
		assert_null(strstr(origin_identity(origin), "ecret"));
		origin_unref(origin);
	}
}

static void anonymous(void **state)
{
	struct origin *origin;
	json_t *log, *entry;
	size_t i;

	(void)state;
	put("/open/x", "hello");
	origin = open_with("s3://open", (struct origin_settings){ .anon = true });
	contains(origin, "x", "hello");
	log = faulty_log(&server);
	json_array_foreach(log, i, entry)
		assert_null(json_object_get(json_object_get(entry, "headers"), "authorization"));
	json_decref(log);
	origin_unref(origin);
}

/* N1: what cannot be a path is left out and counted, the rest is there. */
static void impossible_names(void **state)
{
	struct origin *origin = open_signed("s3://b/n1/");
	char path[512];

	(void)state;
	put("/b/n1/ok", "ok");
	put("/b/n1//double", "x");
	put("/b/n1/./dot", "x");
	put("/b/n1/../up", "x");
	put("/b/n1/sub//x", "x");
	put("/b/n1/sub/y", "y");
	snprintf(path, sizeof(path), "/b/n1/%0256d", 0);
	put(path, "x");
	query_list(loop, origin, "", NULL, &ask);
	assert_string_equal(ask.message, "");
	assert_string_equal(ask.names, "ok sub/ ");
	assert_int_equal(ask.skipped, 4);
	query_list(loop, origin, "sub", NULL, &ask);
	assert_string_equal(ask.names, "y ");
	assert_int_equal(ask.skipped, 1);
	contains(origin, "sub/y", "y");
	assert_int_equal(origin_stat(origin, loop, "../up", NULL, NULL, NULL), -EINVAL);
	assert_int_equal(origin_stat(origin, loop, "a//b", NULL, NULL, NULL), -EINVAL);
	assert_int_equal(origin_stat(origin, loop, "/a", NULL, NULL, NULL), -EINVAL);
	assert_int_equal(origin_stat(origin, loop, "a/./b", NULL, NULL, NULL), -EINVAL);
	origin_unref(origin);
}

/* N3 to N6 */
static void directories(void **state)
{
	struct origin *origin = open_signed("s3://b/dirs");

	(void)state;
	put("/b/dirs/sessions.json", "{}");
	put("/b/dirs/marker/", "");
	put("/b/dirs/out", "object");
	put("/b/dirs/out-x", "other");
	put("/b/dirs/out/x", "below");
	put("/b/dirs/a/b/c", "deep");
	assert_int_equal(mode_of(origin, ""), S_IFDIR);
	query_stat(loop, origin, "sessions.jso", &ask);
	assert_int_equal(ask.error, -ENOENT);
	assert_false(ask.transient);
	query_stat(loop, origin, "sessions.json/x", &ask);
	assert_int_equal(ask.error, -ENOENT);
	assert_int_equal(mode_of(origin, "marker"), S_IFDIR);
	query_list(loop, origin, "marker", NULL, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.count, 0);
	assert_int_equal(mode_of(origin, "out"), S_IFDIR);
	contains(origin, "out/x", "below");
	contains(origin, "a/b/c", "deep");
	assert_int_equal(mode_of(origin, "a"), S_IFDIR);
	assert_int_equal(mode_of(origin, "a/b"), S_IFDIR);
	origin_unref(origin);

	/* The source may be one object, but not nothing. */
	origin = open_signed("s3://b/dirs/sessions.json");
	contains(origin, "", "{}");
	origin_unref(origin);
	origin = open_signed("s3://b/nothing/");
	query_stat(loop, origin, "", &ask);
	assert_int_equal(ask.error, -ENOENT);
	origin_unref(origin);
	origin = open_signed("s3://missing/");
	query_stat(loop, origin, "", &ask);
	assert_int_equal(ask.error, -ENOENT);
	assert_non_null(strstr(ask.message, "no such bucket"));
	origin_unref(origin);
}

static void pages(void **state)
{
	struct origin *origin = open_signed("s3://b/many");
	char path[64], token[1024] = "";
	size_t count = 0, requests = 0;

	(void)state;
	for (int i = 0; i < 1234; i++) {
		snprintf(path, sizeof(path), "/b/many/k%%2B%05d", i);
		put(path, "");
	}
	do {
		query_list(loop, origin, "", requests ? token : NULL, &ask);
		assert_string_equal(ask.message, "");
		memcpy(token, ask.token, sizeof(token));
		count += ask.count;
		requests++;
	} while (token[0]);
	assert_int_equal(count, 1234);
	assert_int_equal(requests, 2);
	origin_unref(origin);
}

/* A server that gives the token that it was given would be asked for ever. */
static void circle(void **state)
{
	struct origin *origin = open_signed("s3://b");

	(void)state;
	faulty_fault(&server,
		     "{\"path\":\"/b/\",\"kind\":\"status\",\"code\":200,\"body\":"
		     "\"<ListBucketResult><IsTruncated>true</IsTruncated>"
		     "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>\"}");
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, 0);
	assert_string_equal(ask.token, "t");
	query_list(loop, origin, "", "t", &ask);
	assert_int_equal(ask.error, -EIO);
	assert_non_null(strstr(ask.message, "for ever"));
	origin_unref(origin);
}

static void versions(void **state)
{
	struct origin *origin = open_signed("s3://b");
	struct origin_attr attr;
	json_t *log;

	(void)state;
	put("/b/v?version=v%2B1", "one");
	contains(origin, "v", "one");
	attr = ask.attr;
	log = faulty_log(&server);
	assert_string_equal(json_string_value(
				    json_object_get(json_array_get(log, json_array_size(log) - 1),
						    "query")),
			    "versionId=v%2B1");
	json_decref(log);
	query_stat(loop, origin, "v", &ask);
	assert_string_equal(ask.attr.version, "id:v+1");
	attr = ask.attr;
	put("/b/v?version=v2", "two");
	query_read(loop, origin, "v", &attr, 0, 3, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	/* Without versions the ETag says it. */
	put("/b/v?version=null", "one");
	query_stat(loop, origin, "v", &ask);
	attr = ask.attr;
	assert_int_equal(attr.version[0], '"');
	assert_int_equal(attr.flags, 0);
	put("/b/v?version=null", "two");
	query_read(loop, origin, "v", &attr, 0, 3, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	origin_unref(origin);
}

/* O6: trouble is not absence. */
static void unwell(void **state)
{
	struct origin *origin = open_signed("s3://b");
	static const char *const faults[] = {
		"{\"path\":\"/b/*\",\"kind\":\"status\",\"code\":503,"
		"\"body\":\"<Error><Code>SlowDown</Code></Error>\"}",
		"{\"path\":\"/b/\",\"kind\":\"status\",\"code\":500}",
		"{\"path\":\"/b/gone\",\"method\":\"HEAD\",\"kind\":\"status\",\"code\":503}",
	};

	(void)state;
	put("/b/gone", "x");
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		faulty_clear(&server);
		faulty_fault(&server, faults[i]);
		query_stat(loop, origin, "gone", &ask);
		assert_int_equal(ask.error, -EIO);
		assert_true(ask.transient);
	}
	faulty_clear(&server);
	faulty_fault(&server, faults[0]);
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	assert_non_null(strstr(ask.message, "slow down"));
	/* 200, but no listing. */
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/b/\",\"kind\":\"status\",\"code\":200,"
			      "\"body\":\"<html></html>\"}");
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.error, -EIO);
	query_stat(loop, origin, "nope", &ask);
	assert_int_equal(ask.error, -EIO);
	origin_unref(origin);
}

static void write_keys(const char *path, const char *token)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f,
		"[default]\naws_access_key_id = AK\naws_secret_access_key = SK+/wfssecret\n"
		"aws_session_token = %s\n",
		token);
	fclose(f);
}

/* A1 */
static void expired(void **state)
{
	char path[] = "/tmp/wfs-test-XXXXXX", old[1200], fresh[1200], json[4096];
	struct origin *origin;
	struct origin_attr attr;
	struct stat st;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	memset(old, 'o', sizeof(old) - 1);
	memset(fresh, 'f', sizeof(fresh) - 1);
	old[sizeof(old) - 1] = '\0';
	fresh[sizeof(fresh) - 1] = '\0';
	setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
	write_keys(path, old);
	snprintf(json, sizeof(json), KEYS ",\"token\":\"%s\"}", old);
	faulty_s3(&server, json);
	put("/b/x", "hello");
	origin = open_with("s3://b", (struct origin_settings){ 0 });
	contains(origin, "x", "hello");
	query_stat(loop, origin, "x", &ask);
	attr = ask.attr;

	/* Expired, with nothing new: an error that says so, after one attempt. */
	snprintf(json, sizeof(json), KEYS ",\"token\":\"%s\",\"expired\":[\"%s\"]}", fresh, old);
	faulty_s3(&server, json);
	faulty_clear(&server);
	query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, "expired"));
	assert_int_equal(faulty_count(&server, "GET", "/b/x"), 1);

	/* A fresh one on disk is found before the next request. */
	write_keys(path, fresh);
	contains(origin, "x", "hello");

	/* Or, where the file does not look changed, after the refusal of the old one. */
	assert_int_equal(stat(path, &st), 0);
	memset(old, 'n', sizeof(old) - 1);
	write_keys(path, old);
	assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ st.st_atim, st.st_mtim },
				   0),
			 0);
	snprintf(json, sizeof(json), KEYS ",\"token\":\"%s\"}", old);
	faulty_s3(&server, json);
	faulty_clear(&server);
	query_read(loop, origin, "x", &attr, 0, 5, dst, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(faulty_count(&server, "GET", "/b/x"), 2);
	origin_unref(origin);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
	unlink(path);
}

static void region(void **state)
{
	struct origin *origin = open_signed("s3://b");

	(void)state;
	faulty_fault(&server, "{\"path\":\"/b/*\",\"kind\":\"status\",\"code\":301,"
			      "\"headers\":{\"x-amz-bucket-region\":\"eu-north-1\"}}");
	query_stat(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EINVAL);
	assert_non_null(strstr(ask.message, "region=eu-north-1"));
	origin_unref(origin);
}

static void addresses(void **state)
{
	static const struct {
		const char *endpoint;
		bool in_host;
		const char *region, *identity;
	} cases[] = {
		{ NULL, false, NULL, "https://b.s3.us-east-1.amazonaws.com/p k:" },
		{ NULL, false, "eu-west-1", "https://b.s3.eu-west-1.amazonaws.com/p k:" },
		{ "https://minio.example:443/", false, NULL, "https://minio.example/b/p k:" },
		{ "http://minio.example:80", false, NULL, "http://minio.example/b/p k:" },
		{ "http://minio.example:9000/s3", false, NULL,
		  "http://minio.example:9000/s3/b/p k:" },
		{ "http://minio.example:9000", true, NULL, "http://b.minio.example:9000/p k:" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct origin_settings settings = {
			.endpoint = cases[i].endpoint,
			.virtual_host = cases[i].in_host,
			.region = cases[i].region,
			.access_key = "k",
			.secret_key = "s",
		};
		struct origin *origin;
		char msg[512], want[256];

		assert_int_equal(origin_create("s3://b/p/", &settings, &origin, msg, sizeof(msg)),
				 0);
		snprintf(want, sizeof(want), "%.*s", (int)strlen(cases[i].identity) - 3,
			 cases[i].identity);
		assert_memory_equal(origin_identity(origin), want, strlen(want));
		origin_unref(origin);
	}
}

static void refused_sources(void **state)
{
	static const struct {
		const char *source;
		struct origin_settings settings;
		int error;
	} cases[] = {
		{ "s3://", { .anon = true }, -EINVAL },
		{ "s3:///x", { .anon = true }, -EINVAL },
		{ "s3://a@b/", { .anon = true }, -EINVAL },
		{ "s3://b", { .anon = true, .endpoint = "minio:9000" }, -EINVAL },
		{ "s3://b", { .anon = true, .endpoint = "http://u:secret@minio" }, -EINVAL },
		{ "s3://b", { .anon = true, .endpoint = "http://a b" }, -EINVAL },
		{ "s3://b", { .anon = true, .endpoint = "http://host:99999" }, -EINVAL },
		{ "s3://b", { .anon = true, .endpoint = "http://\n[2Jhost" }, -EINVAL },
		{ "s3://b", { .anon = true, .region = "x/y" }, -EINVAL },
		{ "s3://b", { .access_key = "k" }, -EINVAL },
		{ "s3://b", { .profile = "missing" }, -EACCES },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct origin *origin;
		char msg[512] = "";

		assert_int_equal(origin_create(cases[i].source, &cases[i].settings, &origin, msg,
					       sizeof(msg)),
				 cases[i].error);
		assert_true(strlen(msg) > 10);
		assert_null(strstr(msg, "secret@"));
		assert_null(strpbrk(msg, "\n\033"));
	}
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
	struct origin *origin = open_signed("s3://b");
	struct origin_call *call;

	(void)state;
	put("/b/x", "hello");
	assert_int_equal(origin_stat(origin, loop, "x", not_done, NULL, &call), 0);
	origin_cancel(call);
	/* With one of its two answers there. */
	faulty_fault(&server, "{\"path\":\"/b/\",\"kind\":\"delay\",\"seconds\":0.3}");
	assert_int_equal(origin_stat(origin, loop, "x", not_done, NULL, &call), 0);
	query_turn(loop, 100);
	origin_cancel(call);
	query_turn(loop, 20);
	contains(origin, "x", "hello");
	origin_unref(origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(signed_requests, each),
		cmocka_unit_test_setup(refused_keys, each),
		cmocka_unit_test_setup(anonymous, each),
		cmocka_unit_test_setup(impossible_names, each),
		cmocka_unit_test_setup(directories, each),
		cmocka_unit_test_setup(pages, each),
		cmocka_unit_test_setup(circle, each),
		cmocka_unit_test_setup(versions, each),
		cmocka_unit_test_setup(unwell, each),
		cmocka_unit_test_setup(expired, each),
		cmocka_unit_test_setup(region, each),
		cmocka_unit_test_setup(addresses, each),
		cmocka_unit_test_setup(refused_sources, each),
		cmocka_unit_test_setup(cancelled, each),
	};

	return cmocka_run_group_tests_name("origin_s3", tests, set_up, tear_down);
}
