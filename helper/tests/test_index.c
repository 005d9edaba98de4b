// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "http_index.h"
#include "origin_impl.h"

static struct origin_page page;

static int parse(const char *text, size_t len)
{
	origin_page_free(&page);
	page = (struct origin_page){ 0 };
	return http_index_parse(text, len, &page);
}

static int each(void **state)
{
	(void)state;
	origin_page_free(&page);
	page = (struct origin_page){ 0 };
	return 0;
}

#define ENTRY(name) "{\"name\":\"" name "\",\"type\":\"file\",\"size\":1}"

static int parse_text(const char *text)
{
	return parse(text, strlen(text));
}

static void entries(void **state)
{
	(void)state;
	assert_int_equal(parse_text(
				 "[{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Sun, 13 Sep 2020 "
				 "12:26:40 GMT\" },\n"
				 "{ \"name\":\"f\", \"type\":\"file\", \"mtime\":\"Sun, 13 Sep 2020 "
				 "12:26:40 GMT\", \"size\":5000000000 },\n"
				 "{ \"name\":\"s\", \"type\":\"other\" }]"),
			 0);
	assert_int_equal(page.count, 2);
	assert_int_equal(page.skipped, 1);
	assert_string_equal(page.entries[0].name, "d");
	assert_int_equal(page.entries[0].attr.mode, S_IFDIR);
	assert_int_equal(page.entries[1].attr.mode, S_IFREG);
	assert_int_equal(page.entries[1].attr.size, 5000000000);
	assert_int_equal(page.entries[1].attr.mtime_sec, 1600000000);
	assert_int_equal(parse_text("[]"), 0);
}

static void names(void **state)
{
	static const char text[] = "[" ENTRY("a\xff\xfe") "," ENTRY("\xc3\xa9") "," ENTRY("\xc3") "," ENTRY(
		"q\\\"\\n") "," ENTRY("x/y") "," ENTRY("..") "," ENTRY("n\\u0000n") "," ENTRY("") "]";

	(void)state;
	assert_int_equal(parse(text, sizeof(text) - 1), 0);
	assert_int_equal(page.count, 4);
	assert_int_equal(page.skipped, 4);
	assert_string_equal(page.entries[0].name, "a\xff\xfe");
	assert_string_equal(page.entries[1].name, "\xc3\xa9");
	assert_string_equal(page.entries[2].name, "\xc3");
	assert_string_equal(page.entries[3].name, "q\"\n");
}

/* Characters that stand for bytes that are no UTF-8 while a listing is read. */
static void characters(void **state)
{
	static const char text[] = "[" ENTRY("\xf4\x8f\xbd\x81") "," ENTRY("\xf4\x8f\xbc\xaf") "]";

	(void)state;
	assert_int_equal(parse(text, sizeof(text) - 1), 0);
	assert_int_equal(page.count, 2);
	assert_string_equal(page.entries[0].name, "\xf4\x8f\xbd\x81");
	assert_string_equal(page.entries[1].name, "\xf4\x8f\xbc\xaf");
}

static void limits(void **state)
{
	static const char one[] = "{\"name\":\"\",\"type\":\"\"},";
	static const char begin[] = "[{\"name\":\"a\",\"type\":\"x\"";
	const size_t many = (1u << 20) + 1;
	char *text = malloc(many * strlen(one) + 2), *end = text;

	(void)state;
	assert_non_null(text);
	*end++ = '[';
	for (size_t i = 0; i < many; i++)
		end = mempcpy(end, one, strlen(one));
	end[-1] = ']';
	assert_int_equal(parse(text, (size_t)(end - text)), -EFBIG);
	/* One entry is never as long. */
	memset(text, ' ', 100000);
	memcpy(text, begin, strlen(begin));
	memcpy(text + 100000, "}]", 2);
	assert_int_equal(parse(text, 100002), -EINVAL);
	memcpy(text + strlen(begin), "}]", 2);
	assert_int_equal(parse(text, 100000), 0);
	free(text);
}

static void others(void **state)
{
	static const char *const texts[] = {
		"",
		"<html>",
		"{}",
		"null",
		"[1]",
		"[{}]",
		"[{\"name\":1,\"type\":\"file\"}]",
		"[" ENTRY("a"),
		"[" ENTRY("a") "] x",
		"[" ENTRY("a") ",]",
		"[" ENTRY("a") ENTRY("b") "]",
		"[" ENTRY("a") ",",
		"[" ENTRY("a}") "",
		"[{}}]",
		"[,]",
		"[",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(parse_text(texts[i]), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(entries, each, each),
		cmocka_unit_test_setup_teardown(names, each, each),
		cmocka_unit_test_setup_teardown(characters, each, each),
		cmocka_unit_test_setup_teardown(limits, each, each),
		cmocka_unit_test_setup_teardown(others, each, each),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
