// SPDX-License-Identifier: MIT
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

#include "inifile.h"

static char seen[8192];

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
	size_t len = strlen(seen);

	(void)arg;
	snprintf(seen + len, sizeof(seen) - len, "[%s]%s=%s;", section, name, value);
	return strcmp(name, "bad") != 0;
}

static int parse(const char *text)
{
	char path[] = "/tmp/wfs-test-XXXXXX";
	int fd = mkstemp(path), ret;

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	seen[0] = '\0';
	ret = inifile_parse(path, on_value, NULL);
	unlink(path);
	return ret;
}

static void plain(void **state)
{
	(void)state;
	assert_int_equal(parse("[a]\nx = 1\ny=2\r\n# comment\n\n[b]\nx = last"), 0);
	assert_string_equal(seen, "[a]x=1;[a]y=2;[b]x=last;");
	assert_int_equal(parse("[a]\ndir = one\ndir = two\n"), 0);
	assert_string_equal(seen, "[a]dir=one;[a]dir=two;");
	assert_int_equal(parse(""), 0);
	assert_int_equal(parse("[a]\ns3 =\n  max = 1\nx = 2\n"), 0);
	assert_string_equal(seen, "[a]s3=;[a]s3=max = 1;[a]x=2;");
}

static void long_lines(void **state)
{
	static const size_t lengths[] = { 120, 125, 126, 127, 128, 129,
					  190, 199, 200, 256, 257, 3000 };
	char text[4096], want[4096], value[3001];

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t k = 0; k < lengths[i]; k++)
			value[k] = (char)('a' + k % 26);
		value[lengths[i]] = '\0';
		snprintf(text, sizeof(text), "[a]\nk = %s\nk = v\n", value);
		snprintf(want, sizeof(want), "[a]k=%s;[a]k=v;", value);
		assert_int_equal(parse(text), 0);
		assert_string_equal(seen, want);
	}
}

/* What is long must not run into what stands before or after it. */
static void long_others(void **state)
{
	char text[2048], filler[301];

	(void)state;
	memset(filler, 'x', sizeof(filler) - 1);
	filler[sizeof(filler) - 1] = '\0';
	snprintf(text, sizeof(text), "[a]\nk = v\n# %s\n; %s\nl = w ; %s\nm = z\n", filler, filler,
		 filler);
	assert_int_equal(parse(text), 0);
	assert_string_equal(seen, "[a]k=v;[a]l=w;[a]m=z;");
	snprintf(text, sizeof(text), "[a]\nk = v\n[%s]\nk = w\n", filler);
	assert_int_equal(parse(text), 0);
	assert_non_null(strstr(seen, "x]k=w;"));
	assert_int_equal(strlen(seen), strlen("[a]k=v;[]k=w;") + strlen(filler));
	/* Keys below a section that is malformed are nobody's. */
	assert_int_equal(parse("[a]\nk = v\n[b\nk = w\n x\n[c] ; d\nk=u"), 3);
	assert_string_equal(seen, "[a]k=v;[]k=w;[]k=x;[c]k=u;");
	/* Spaces where a value was cut into pieces. */
	snprintf(text, sizeof(text), "[a]\nk = %.122s  %.20s\n", filler, filler);
	assert_int_equal(parse(text), 0);
	assert_int_equal(strlen(seen), strlen("[a]k=;") + 144);
	assert_int_equal(parse("\xef\xbb\xbf[a]\nk=v\n"), 0);
	assert_string_equal(seen, "[a]k=v;");
}

static void errors(void **state)
{
	(void)state;
	assert_int_equal(inifile_parse("/nonexistent", on_value, NULL), -ENOENT);
	assert_int_not_equal(parse("[a]\nno equals sign\n"), 0);
	assert_int_not_equal(parse("[a]\nbad = 1\n"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(long_lines),
		cmocka_unit_test(long_others),
		cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests_name("inifile", tests, NULL, NULL);
}
