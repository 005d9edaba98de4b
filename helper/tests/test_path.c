// SPDX-License-Identifier: MIT
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "origin_path.h"

static void names(void **state)
{
	char long_name[257];

	(void)state;
	memset(long_name, 'x', sizeof(long_name));
	assert_true(origin_name_valid("a", 1));
	assert_true(origin_name_valid("...", 3));
	assert_true(origin_name_valid(".a", 2));
	assert_true(origin_name_valid("\xff\n", 2));
	assert_true(origin_name_valid(long_name, 255));
	assert_false(origin_name_valid(long_name, 256));
	assert_false(origin_name_valid("", 0));
	assert_false(origin_name_valid(".", 1));
	assert_false(origin_name_valid("..", 2));
	assert_false(origin_name_valid("a/b", 3));
	assert_false(origin_name_valid("a\0b", 3));
}

static void paths(void **state)
{
	static const char *const good[] = { "", "a", "a/b", "a/..b/...", "a b/\n" };
	static const char *const bad[] = { "/",	   "/a",   "a/", "a//b", "a/./b",
					   "a/..", "../a", "..", ".",	 "a/b/" };

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(origin_path_valid(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(origin_path_valid(bad[i]));
}

static void encoding(void **state)
{
	char all[256], encoded[ORIGIN_ENCODED_MAX(255)], *end;

	(void)state;
	origin_encode(encoded, "a/b c~", 6, true);
	assert_string_equal(encoded, "a/b%20c~");
	origin_encode(encoded, "a/b", 3, false);
	assert_string_equal(encoded, "a%2Fb");
	for (int i = 0; i < 255; i++)
		all[i] = (char)(i + 1);
	all[255] = '\0';
	end = origin_encode(encoded, all, 255, true);
	assert_ptr_equal(end, encoded + strlen(encoded));
	for (const char *c = encoded; *c; c++)
		assert_true(*c > ' ' && *c < 127 && !strchr("#?+&\"<>", *c));
	assert_int_equal(origin_decode(encoded), 255);
	assert_memory_equal(encoded, all, 256);
}

static void decoding(void **state)
{
	static const char *const cases[][2] = {
		{ "%41%6a%6A", "Ajj" }, { "%", "%" },	  { "%4", "%4" },     { "%zz", "%zz" },
		{ "%%41", "%A" },	{ "a+b", "a+b" }, { "%2541", "%41" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[16];

		snprintf(text, sizeof(text), "%s", cases[i][0]);
		assert_int_equal(origin_decode(text), strlen(cases[i][1]));
		assert_string_equal(text, cases[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(paths),
		cmocka_unit_test(encoding),
		cmocka_unit_test(decoding),
	};

	return cmocka_run_group_tests_name("path", tests, NULL, NULL);
}
