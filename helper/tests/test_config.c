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

#include "config.h"

static char path[] = "/tmp/wfs-test-config-XXXXXX";
static char msg[512];

static void write_file(const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static struct config *read_text(const char *text, int expected)
{
	struct config *config;

	write_file(text);
	assert_int_equal(config_create(&config), 0);
	assert_int_equal(config_read(config, path, msg, sizeof(msg)), expected);
	return config;
}

static void test_defaults(void **state)
{
	struct config *config;

	(void)state;
	assert_int_equal(config_create(&config), 0);
	assert_int_equal(config_finish(config, msg, sizeof(msg)), 0);
	assert_int_equal(config->dir_count, 1);
	assert_string_equal(config->dirs[0], CONFIG_CACHE);
	assert_true(config->capacity.percent == 90);
	assert_int_equal(config->buffer_memory, 512 << 20);
	assert_int_equal(config->retry_budget_ms, 60000);
	assert_int_equal(config->stall_timeout_ms, 10000);
	assert_int_equal(config->connect_timeout_ms, 5000);
	assert_int_equal(config->connections_per_host, 16);
	assert_int_equal(config->max_concurrent_fetches, 64);
	assert_in_range(config->workers, 1, 8);
	assert_string_equal(config->listen, "127.0.0.1:9419");
	config_free(config);
}

static void test_file(void **state)
{
	const struct config_source *source;
	struct config *config = read_text("# a comment\n"
					  "[cache]\n"
					  "dir = /a\n"
					  "dir=/b\n"
					  "capacity = 10G\n"
					  "  low = 70 %\n"
					  "high = 80%\n"
					  "[fetch]\r\n"
					  "workers = 3\r\n"
					  "retry_budget = 2m\n"
					  "stall_timeout = 500ms\n"
					  "[metrics]\n"
					  "listen =\n"
					  "[source s3://models]\n"
					  "endpoint = http://127.0.0.1:7480\n"
					  "secret_key = a=b;c # d\n"
					  "[source s3://models/private]\n"
					  "profile = other\n"
					  "header = X-A: 1\n"
					  "header = X-B: 2\n"
					  "[log]\n"
					  "level = debug\n"
					  "format = json\n",
					  -EINVAL);

	(void)state;
	/* "70 %" is not a number. */
	assert_non_null(strstr(msg, "line 6"));
	assert_non_null(strstr(msg, "low"));
	config_free(config);

	config = read_text("[cache]\ndir = /a\ndir=/b\ncapacity = 10G\nlow = 70%\nhigh = 80%\n"
			   "[fetch]\r\nworkers = 3\r\nretry_budget = 2m\nstall_timeout = 500ms\n"
			   "[metrics]\nlisten =\n"
			   "[source s3://models]\nendpoint = http://127.0.0.1:7480\n"
			   "secret_key = a=b;c # d\n"
			   "[source s3://models/private]\nprofile = other\n"
			   "header = X-A: 1\nheader = X-B: 2\n"
			   "[log]\nlevel = debug\nformat = json\n",
			   0);
	assert_int_equal(config_finish(config, msg, sizeof(msg)), 0);
	assert_int_equal(config->dir_count, 2);
	assert_string_equal(config->dirs[1], "/b");
	assert_int_equal(config->capacity.bytes, 10ULL << 30);
	assert_true(config->low == 70);
	assert_int_equal(config->workers, 3);
	assert_int_equal(config->retry_budget_ms, 120000);
	assert_int_equal(config->stall_timeout_ms, 500);
	assert_string_equal(config->listen, "");
	assert_int_equal(config->log_level, LOG_LEVEL_DEBUG);
	assert_true(config->log_json);

	source = config_source(config, "s3://models/x");
	assert_non_null(source);
	assert_string_equal(source->endpoint, "http://127.0.0.1:7480");
	assert_string_equal(source->secret_key, "a=b;c # d");
	source = config_source(config, "s3://models/private/y");
	assert_non_null(source);
	assert_string_equal(source->profile, "other");
	assert_int_equal(source->header_count, 2);
	assert_string_equal(source->headers[1], "X-B: 2");
	assert_null(source->headers[2]);
	assert_null(config_source(config, "s3://models-2"));
	assert_null(config_source(config, "http://models"));
	config_free(config);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "[cache]\nsize = 1\n", "size" },
		{ "[disk]\n", NULL },
		{ "[disk]\na = b\n", "disk" },
		{ "[cache\n", "line 1" },
		{ "[fetch]\nworkers\n", "line 2" },
		{ "[fetch]\nworkers = 0\n", "workers" },
		{ "[fetch]\nworkers = two\n", "workers" },
		{ "[fetch]\nbuffer_memory = 1X\n", "buffer_memory" },
		{ "[fetch]\nbuffer_memory = -1M\n", "buffer_memory" },
		{ "[cache]\ncapacity = 0\n", "capacity" },
		{ "[cache]\ncapacity = 101%\n", "capacity" },
		{ "[cache]\ndir = relative\n", "dir" },
		{ "[prefetch]\nmax_share = 2\n", "max_share" },
		{ "[log]\nlevel = loud\n", "level" },
		{ "[source http://h]\nheader = no colon\n", "header" },
		{ "[source http://h]\ncolour = red\n", "colour" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config *config = read_text(cases[i].text, cases[i].says ? -EINVAL : 0);

		if (cases[i].says)
			assert_non_null(strstr(msg, cases[i].says));
		config_free(config);
	}
}

static void test_no_secret_in_message(void **state)
{
	struct config *config = read_text("[source http://h]\nsecret = hunter2\n", -EINVAL);

	(void)state;
	assert_null(strstr(msg, "hunter2"));
	config_free(config);
}

static void test_options_win(void **state)
{
	struct config *config = read_text("[cache]\ndir = /a\n[log]\nlevel = warn\n", 0);
	size_t found = 0;

	(void)state;
	for (size_t i = 0; config_option(i); i++) {
		assert_non_null(config_option_help(i));
		if (!strcmp(config_option(i), "cache-dir")) {
			assert_int_equal(config_set_option(config, i, "/c", msg, sizeof(msg)), 0);
			assert_int_equal(config_set_option(config, i, "/d", msg, sizeof(msg)), 0);
			found++;
		}
		if (!strcmp(config_option(i), "log-level")) {
			assert_int_equal(config_set_option(config, i, "error", msg, sizeof(msg)),
					 0);
			found++;
		}
	}
	assert_int_equal(found, 2);
	assert_int_equal(config->dir_count, 2);
	assert_string_equal(config->dirs[0], "/c");
	assert_string_equal(config->dirs[1], "/d");
	assert_int_equal(config->log_level, LOG_LEVEL_ERROR);
	config_free(config);
}

static void test_finish(void **state)
{
	struct config *config = read_text("[cache]\nlow = 90%\nhigh = 80%\n", 0);

	(void)state;
	assert_int_equal(config_finish(config, msg, sizeof(msg)), -EINVAL);
	config_free(config);
	config = read_text("[fetch]\nbuffer_memory = 1M\n", 0);
	assert_int_equal(config_finish(config, msg, sizeof(msg)), -EINVAL);
	config_free(config);
}

static void test_units(void **state)
{
	uint64_t n;

	(void)state;
	assert_int_equal(config_bytes("64K", &n), 0);
	assert_int_equal(n, 65536);
	assert_int_equal(config_bytes("1.5g", &n), 0);
	assert_int_equal(n, 1536 << 20);
	assert_int_equal(config_bytes("7MiB", &n), 0);
	assert_int_equal(n, 7 << 20);
	assert_int_equal(config_bytes("", &n), -EINVAL);
	assert_int_equal(config_bytes("K", &n), -EINVAL);
	assert_int_equal(config_bytes("1KK", &n), -EINVAL);
	assert_int_equal(config_bytes("5 ", &n), -EINVAL);
	assert_int_equal(config_bytes("999999999P", &n), -ERANGE);
	assert_int_equal(config_time("3", &n), 0);
	assert_int_equal(n, 3000);
	assert_int_equal(config_time("1h", &n), 0);
	assert_int_equal(n, 3600000);
	assert_int_equal(config_time("3 s", &n), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),    cmocka_unit_test(test_file),
		cmocka_unit_test(test_refused),	    cmocka_unit_test(test_no_secret_in_message),
		cmocka_unit_test(test_options_win), cmocka_unit_test(test_finish),
		cmocka_unit_test(test_units),
	};
	int fd = mkstemp(path), failed;

	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
