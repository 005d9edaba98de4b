// SPDX-License-Identifier: MIT
/* What each kind of origin says of an object's digest. */
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

#define KEYS   "{\"bucket\":\"b\",\"key\":\"AK\",\"secret\":\"SKwfssecret\"}"
#define HELLO  "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
#define BASE64 "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="

static struct faulty server;
static struct loop *loop;
static struct query ask;
static char dir[] = "/tmp/wfs-test-XXXXXX";

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(loop_create(&loop, 64), 0);
	assert_non_null(mkdtemp(dir));
	faulty_start(&server);
	return 0;
}

static int tear_down(void **state)
{
	char command[64];

	(void)state;
	faulty_stop(&server);
	loop_destroy(loop);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static int each(void **state)
{
	(void)state;
	faulty_clear(&server);
	faulty_s3(&server, KEYS);
	return 0;
}

static struct origin *open_origin(const char *source, bool anon)
{
	struct origin_settings settings = {
		.endpoint = server.url,
		.access_key = anon ? NULL : "AK",
		.secret_key = anon ? NULL : "SKwfssecret",
		.anon = anon,
	};
	struct origin *origin;
	char msg[512] = "";

	if (origin_create(source, &settings, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

static void put(const char *path, const char *text)
{
	faulty_put(&server, path, text, strlen(text));
}

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fputs(text, file) >= 0, 1);
	assert_int_equal(fclose(file), 0);
}

static struct origin_attr attr_of(struct origin *origin, const char *path)
{
	query_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr;
}

/* Asks for the offers of what is there. */
static void ask_for(struct origin *origin, const char *path)
{
	struct origin_attr attr = attr_of(origin, path);

	query_offers(loop, origin, path, &attr, &ask);
	assert_string_equal(ask.message, "");
}

/* The offers, by the first letters of who says it, one after the other. */
static void offered(const char *wanted)
{
	char found[OFFERS_MAX + 1] = "";
	struct digest hello;

	assert_int_equal(digest_parse("sha256:" HELLO, &hello), 0);
	for (unsigned int i = 0; i < ask.offers.count; i++) {
		const struct offer *offer = &ask.offers.of[i];

		const char *from = offers_from(offer->from);

		found[i] = from[strncmp(from, "the ", 4) ? 0 : 4];
		if (offer->digest.algo == DIGEST_SHA256)
			assert_true(digest_equal(&offer->digest, &hello));
	}
	assert_string_equal(found, wanted);
}

static void s3(void **state)
{
	struct origin *origin = open_origin("s3://b/dir", false);

	(void)state;
	put("/b/dir/plain", "hello");
	put("/b/dir/sum?checksum=sha256", "hello");
	put("/b/dir/crc?checksum=crc64nvme&checksum_type=FULL_OBJECT", "hello");
	put("/b/dir/parts?checksum=sha256:" HELLO "-2&checksum_type=COMPOSITE", "hello");
	ask_for(origin, "plain");
	offered("");
	assert_false(ask.offers.composite);
	ask_for(origin, "sum");
	offered("S");
	ask_for(origin, "crc");
	offered("S");
	assert_int_equal(ask.offers.of[0].digest.algo, DIGEST_CRC64NVME);
	ask_for(origin, "parts");
	offered("S");
	assert_int_equal(ask.offers.of[0].parts, 2);
	assert_true(ask.offers.composite);
	/* A file beside it says more; one of a file beside it is not asked for. */
	put("/b/dir/sum.sha256", HELLO "  sum\n");
	put("/b/dir/sum.sha256.sha256", HELLO "\n");
	ask_for(origin, "sum");
	offered("S.");
	ask_for(origin, "sum.sha256");
	offered("");
	assert_int_equal(faulty_count(&server, "GET", "/b/dir/sum.sha256.sha256"), 0);
	origin_unref(origin);
}

/* Where the parts of an upload are, by HEAD of one of them. */
static void parts(void **state)
{
	struct origin *origin = open_origin("s3://b/dir", false);
	struct origin_attr attr;

	(void)state;
	put("/b/dir/one?checksum=sha256&parts=2,2,1&checksum_type=COMPOSITE", "hello");
	put("/b/dir/id?checksum=sha256&parts=4,1&version=one", "hello");
	put("/b/dir/id?version=two&keep=1", "other!");
	put("/b/dir/whole?checksum=sha256", "hello");
	ask_for(origin, "one");
	assert_int_equal(ask.offers.count, 1);
	assert_int_equal(ask.offers.of[0].parts, 3);
	attr = attr_of(origin, "one");
	query_part(loop, origin, "one", &attr, 2, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.part.offset, 2);
	assert_int_equal(ask.part.len, 2);
	assert_int_equal(ask.part.count, 3);
	query_part(loop, origin, "one", &attr, 3, &ask);
	assert_int_equal(ask.part.len, 1);
	query_part(loop, origin, "one", &attr, 4, &ask);
	assert_int_equal(ask.error, -EIO);
	/* Of the version that is asked for. */
	put("/b/dir/one?checksum=sha256&parts=2,2,1", "jello");
	query_part(loop, origin, "one", &attr, 1, &ask);
	assert_int_equal(ask.error, -ESTALE);
	attr = (struct origin_attr){ .mode = S_IFREG, .size = 5, .version = "id:one" };
	query_part(loop, origin, "id", &attr, 2, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.part.offset, 4);
	/* A server that does not know what a part is, and one that has none. */
	attr = attr_of(origin, "whole");
	query_part(loop, origin, "whole", &attr, 1, &ask);
	assert_int_equal(ask.error, -EOPNOTSUPP);
	assert_non_null(strstr(ask.message, "where its parts are"));
	origin_unref(origin);
}

static void anonymous(void **state)
{
	struct origin *origin = open_origin("s3://b", true);

	(void)state;
	faulty_s3(&server, "{\"bucket\":\"b\"}");
	put("/b/anonymous?checksum=sha256", "hello");
	ask_for(origin, "anonymous");
	offered("S");
	origin_unref(origin);
}

/* A file that may not be seen is none: without the right to list that is what is said. */
static void refused(void **state)
{
	struct origin *origin = open_origin("s3://b", false);
	struct origin_attr attr;

	(void)state;
	put("/b/secret?checksum=sha256", "hello");
	faulty_fault(&server, "{\"path\":\"/b/secret.sha256\",\"kind\":\"status\",\"code\":403}");
	ask_for(origin, "secret");
	offered("S");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/b/secret.sha256\",\"kind\":\"status\",\"code\":500}");
	attr = attr_of(origin, "secret");
	query_offers(loop, origin, "secret", &attr, &ask);
	assert_int_equal(ask.error, -EIO);
	assert_true(ask.transient);
	origin_unref(origin);
}

/* The digest of one version says nothing about another one. */
static void versions(void **state)
{
	struct origin *origin = open_origin("s3://b", false);
	struct origin_attr old;

	(void)state;
	put("/b/v?checksum=sha256&version=one", "hello");
	old = attr_of(origin, "v");
	put("/b/v?checksum=sha256&version=two&keep=1", "other");
	query_offers(loop, origin, "v", &old, &ask);
	offered("S");
	put("/b/e?checksum=sha256", "hello");
	old = attr_of(origin, "e");
	put("/b/e?checksum=sha256", "other");
	query_offers(loop, origin, "e", &old, &ask);
	assert_int_equal(ask.error, -ESTALE);
	faulty_delete(&server, "/b/e");
	query_offers(loop, origin, "e", &old, &ask);
	assert_int_equal(ask.error, -ENOENT);
	origin_unref(origin);
}

static void http(void **state)
{
	char source[128];
	struct origin_attr old;
	struct origin *origin;

	(void)state;
	snprintf(source, sizeof(source), "%s/h/", server.url);
	origin = open_origin(source, false);
	put("/h/x", "hello");
	ask_for(origin, "x");
	offered("");
	put("/h/x.sha256", HELLO "  x\n");
	ask_for(origin, "x");
	offered(".");
	faulty_fault(&server, "{\"path\":\"/h/x\",\"kind\":\"headers\",\"headers\":{"
			      "\"Repr-Digest\":\"sha-256=:" BASE64 ":\","
			      "\"Digest\":\"SHA-256=" BASE64 "\"}}");
	ask_for(origin, "x");
	offered("RD.");
	faulty_clear(&server);
	/* A page for whatever is asked for, or a directory, is no digest. */
	put("/h/page", "hello");
	put("/h/page.sha256", "<html>not found</html>");
	ask_for(origin, "page");
	offered("");
	put("/h/dir", "hello");
	put("/h/dir.sha256/y", "y");
	ask_for(origin, "dir");
	offered("");
	/* A server without HEAD. */
	faulty_fault(&server, "{\"path\":\"/h/*\",\"method\":\"HEAD\",\"kind\":\"status\","
			      "\"code\":405}");
	ask_for(origin, "x");
	offered(".");
	faulty_clear(&server);
	old = attr_of(origin, "x");
	put("/h/x", "other");
	query_offers(loop, origin, "x", &old, &ask);
	assert_int_equal(ask.error, -ESTALE);
	origin_unref(origin);

	/* The source itself. */
	put("/h/one%2B", "hello");
	put("/h/one%2B.sha256", HELLO "  one+\n");
	snprintf(source, sizeof(source), "%s/h/one%%2B", server.url);
	origin = open_origin(source, false);
	ask_for(origin, "");
	offered(".");
	origin_unref(origin);
}

static void file(void **state)
{
	struct origin_attr old;
	struct origin *origin;
	char source[128];

	(void)state;
	snprintf(source, sizeof(source), "file://%s", dir);
	origin = open_origin(source, false);
	write_file("x", "hello");
	ask_for(origin, "x");
	offered("");
	write_file("x.sha256", HELLO " *x\n");
	ask_for(origin, "x");
	offered(".");
	old = attr_of(origin, "x");
	write_file("x", "others");
	query_offers(loop, origin, "x", &old, &ask);
	assert_int_equal(ask.error, -ESTALE);
	/* Nothing but a file, and none that a link leads to. */
	write_file("y", "hello");
	snprintf(source, sizeof(source), "%s/y.sha256", dir);
	assert_int_equal(symlink("x.sha256", source), 0);
	ask_for(origin, "y");
	offered("");
	assert_int_equal(unlink(source), 0);
	assert_int_equal(mkfifo(source, 0600), 0);
	ask_for(origin, "y");
	offered("");
	origin_unref(origin);
	write_file("one", "hello");
	write_file("one.sha256", HELLO "\n");
	snprintf(source, sizeof(source), "file://%s/one", dir);
	origin = open_origin(source, false);
	ask_for(origin, "");
	offered(".");
	origin_unref(origin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(s3, each),
		cmocka_unit_test_setup(anonymous, each),
		cmocka_unit_test_setup(parts, each),
		cmocka_unit_test_setup(refused, each),
		cmocka_unit_test_setup(versions, each),
		cmocka_unit_test_setup(http, each),
		cmocka_unit_test(file),
	};

	return cmocka_run_group_tests_name("offers", tests, set_up, tear_down);
}
