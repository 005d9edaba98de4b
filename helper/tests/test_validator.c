// SPDX-License-Identifier: MIT
/* Heads of answers, and what they prove of a version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "validator.h"

/* Lines separated by '\n', as they come from a socket. */
static struct http_reply reply_of(const char *head)
{
	struct http_reply reply = { 0 };

	while (*head) {
		size_t len = strcspn(head, "\n");
		char line[2048];

		snprintf(line, sizeof(line), "%.*s\r\n", (int)len, head);
		http_reply_line(&reply, line, strlen(line));
		head += len + (head[len] == '\n');
	}
	return reply;
}

static void heads(void **state)
{
	struct http_reply reply;

	(void)state;
	reply = reply_of("HTTP/1.1 100 Continue\nETag: \"x\"\nHTTP/1.1 206 Partial Content\n"
			 "content-length:  10 \nContent-Range: bytes 5-14/100\nRetry-After: 3\n"
			 "Last-Modified: Sun, 13 Sep 2020 12:26:40 GMT\nnonsense\n: \n");
	assert_int_equal(reply.status, 206);
	assert_true(reply.has_length);
	assert_int_equal(reply.length, 10);
	assert_true(reply.has_range && reply.has_total);
	assert_int_equal(reply.range_first, 5);
	assert_int_equal(reply.range_last, 14);
	assert_int_equal(reply.total, 100);
	assert_int_equal(reply.retry_after_ms, 3000);
	assert_int_equal(reply.modified, 1600000000);
	assert_string_equal(reply.etag, "");
	reply = reply_of("HTTP/2 200\nETag: \"a\"\n");
	assert_int_equal(reply.status, 200);
	assert_string_equal(reply.etag, "\"a\"");
	reply = reply_of("HTTP/1.1 416 x\nContent-Range: bytes */77\n");
	assert_false(reply.has_range);
	assert_int_equal(reply.total, 77);
}

static void bad_heads(void **state)
{
	static const char *const ranges[] = {
		"bytes 5-4/100",
		"bytes 5-100/100",
		"bytes -5/100",
		"bytes 5-/100",
		"bytes 5-9",
		"items 5-9/100",
		"bytes 5-9/100x",
		"bytes 5-9/99999999999999999999",
		"bytes 5-9/9223372036854775808",
		"bytes 99999999999999999999-1/5",
		"",
		"bytes a-b/c",
		"bytes 0x5-9/100",
	};
	static const char *const lengths[] = {
		"-1", "1x", "", "0x10", "1,1", "18446744073709551616", "9223372036854775808"
	};
	char head[1200];

	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		snprintf(head, sizeof(head), "HTTP/1.1 206 x\nContent-Range: %s", ranges[i]);
		assert_false(reply_of(head).has_range);
	}
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		snprintf(head, sizeof(head), "HTTP/1.1 200 x\nContent-Length: %s", lengths[i]);
		assert_false(reply_of(head).has_length);
	}
	assert_int_equal(reply_of("HTTP/1.1 abc\n").status, 0);
	assert_int_equal(reply_of("HTTP/1.1 99999999999999999999999\n").status, 0);
	/* A validator that is cut would match what it does not name. */
	snprintf(head, sizeof(head), "HTTP/1.1 200 x\nETag: \"%0300d\"", 1);
	assert_string_equal(reply_of(head).etag, "");
	assert_string_equal(reply_of("HTTP/1.1 200 x\nETag: \"a b\"").etag, "");
	snprintf(head, sizeof(head), "HTTP/1.1 200 x\nETag: \"%01100d\"", 1);
	reply_of(head);
}

#define OLD   "Last-Modified: Sun, 13 Sep 2020 12:26:40 GMT\n"
#define SOON  "Date: Sun, 13 Sep 2020 12:27:40 GMT\n"
#define LATER "Date: Sun, 13 Sep 2020 12:27:41 GMT\n"
#define OK    "HTTP/1.1 200 OK\nContent-Length: 100\n"

static void versions(void **state)
{
	static const struct {
		const char *head, *version;
		unsigned int flags;
	} cases[] = {
		{ OK "ETag: \"abc\"\n", "\"abc\"", 0 },
		{ OK "ETag: \"abc\"\n" OLD SOON, "\"abc\"", 0 },
		{ OK "ETag: W/\"abc\"\n" OLD LATER, "lm:1600000000", 0 },
		{ OK "ETag: W/\"abc\"\n" OLD SOON, "lm:1600000000", ORIGIN_WEAK },
		{ OK "ETag: W/\"abc\"\n", "size", ORIGIN_WEAK | ORIGIN_UNPROVEN },
		{ OK "ETag: abc\n" OLD LATER, "lm:1600000000", 0 },
		{ OK OLD, "lm:1600000000", ORIGIN_WEAK },
		{ OK, "size", ORIGIN_WEAK | ORIGIN_UNPROVEN },
		/* nginx: time and size. */
		{ OK "ETag: \"5f5e1000-64\"\n" OLD SOON, "\"5f5e1000-64\"", ORIGIN_WEAK },
		{ OK "ETag: \"5f5e1000-64\"\n" OLD LATER, "\"5f5e1000-64\"", 0 },
		{ OK "ETag: \"5f5e1000-65\"\n" OLD SOON, "\"5f5e1000-65\"", 0 },
		{ OK "ETag: \"abc\"\nx-amz-version-id: v1\n", "id:v1", 0 },
		{ OK "ETag: \"abc\"\nx-amz-version-id: null\n", "\"abc\"", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http_reply reply = reply_of(cases[i].head);
		struct origin_attr attr;

		validator_attr(&reply, &attr);
		assert_string_equal(attr.version, cases[i].version);
		assert_int_equal(attr.flags, cases[i].flags);
		assert_int_equal(attr.size, 100);
		assert_int_equal(attr.mode, S_IFREG);
	}
}

#define PART "HTTP/1.1 206 x\nContent-Length: 10\nContent-Range: bytes 0-9/100\n"

static void checks(void **state)
{
	static const struct {
		const char *version, *head;
		enum validator_verdict verdict;
	} cases[] = {
		{ "\"abc\"", PART "ETag: \"abc\"\n", VALIDATOR_SAME },
		{ "\"abc\"", PART "ETag: \"abd\"\n", VALIDATOR_CHANGED },
		{ "\"abc\"", PART "ETag: W/\"abc\"\n", VALIDATOR_CHANGED },
		{ "\"abc\"", PART OLD, VALIDATOR_SAME },
		{ "\"abc\"", PART, VALIDATOR_UNKNOWN },
		{ "\"abc\"", OK "ETag: \"abc\"\n", VALIDATOR_SAME },
		{ "\"abc\"", "HTTP/1.1 200 x\nContent-Length: 99\nETag: \"abc\"\n",
		  VALIDATOR_CHANGED },
		{ "\"abc\"", "HTTP/1.1 206 x\nContent-Range: bytes 0-9/101\nETag: \"abc\"\n",
		  VALIDATOR_CHANGED },
		{ "lm:1600000000", PART OLD, VALIDATOR_SAME },
		{ "lm:1600000000", PART "Last-Modified: Sun, 13 Sep 2020 12:26:41 GMT\n",
		  VALIDATOR_CHANGED },
		{ "lm:1600000000", PART, VALIDATOR_UNKNOWN },
		{ "id:v1", PART "x-amz-version-id: v1\n", VALIDATOR_SAME },
		{ "id:v1", PART "x-amz-version-id: v2\n", VALIDATOR_CHANGED },
		{ "size", PART, VALIDATOR_SAME },
		{ "size", "HTTP/1.1 206 x\nContent-Range: bytes 0-9/*\n", VALIDATOR_UNKNOWN },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct origin_attr attr = { .size = 100 };
		struct http_reply reply = reply_of(cases[i].head);

		snprintf(attr.version, sizeof(attr.version), "%s", cases[i].version);
		/* Beside an ETag only: a time that is the version stands in the version. */
		if (attr.version[0] == '"')
			attr.mtime_sec = 1600000000;
		assert_int_equal(validator_check(&attr, &reply), cases[i].verdict);
	}
}

/* The kernel opens a version by its name, without a time. */
static void no_time(void **state)
{
	struct origin_attr attr = { .size = 100, .version = "\"abc\"" };
	struct http_reply reply = reply_of(PART OLD);

	(void)state;
	assert_int_equal(validator_check(&attr, &reply), VALIDATOR_UNKNOWN);
}

static void headers(void **state)
{
	static const char *const cases[][2] = {
		{ "\"abc\"", "If-Match: \"abc\"" },
		{ "lm:1600000000", "If-Unmodified-Since: Sun, 13 Sep 2020 12:26:40 GMT" },
		{ "id:v1", NULL },
		{ "size", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct origin_attr attr = { .size = 100 };
		struct curl_slist *list = NULL;

		snprintf(attr.version, sizeof(attr.version), "%s", cases[i][0]);
		assert_int_equal(validator_header(&attr, &list), 0);
		assert_int_equal(!!list, !!cases[i][1]);
		if (list)
			assert_string_equal(list->data, cases[i][1]);
		curl_slist_free_all(list);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heads),  cmocka_unit_test(bad_heads), cmocka_unit_test(versions),
		cmocka_unit_test(checks), cmocka_unit_test(headers),   cmocka_unit_test(no_time),
	};

	return cmocka_run_group_tests_name("validator", tests, NULL, NULL);
}
