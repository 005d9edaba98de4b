// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "query.h"

#define SIZE 1300000

static struct loop *loop;
static struct origin *origin;
static char dir[] = "/tmp/wfs-test-XXXXXX";
static char body[SIZE], dst[SIZE + 1];
static struct query ask;

static void put(const char *name, const void *bytes, size_t len)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

static int set_up(void **state)
{
	char source[64], msg[512];

	(void)state;
	for (size_t i = 0; i < SIZE; i++)
		body[i] = (char)(i * 7 + i / 251);
	assert_int_equal(loop_create(&loop, 64), 0);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	put("x", body, SIZE);
	put("empty", "", 0);
	assert_int_equal(mkdir("sub", 0755), 0);
	put("sub/y", "y", 1);
	assert_int_equal(symlink("x", "link"), 0);
	assert_int_equal(symlink("sub", "sublink"), 0);
	assert_int_equal(symlink("/etc", "out"), 0);
	assert_int_equal(mkfifo("fifo", 0644), 0);
	snprintf(source, sizeof(source), "file://%s/", dir);
	assert_int_equal(origin_create(source, NULL, &origin, msg, sizeof(msg)), 0);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	origin_unref(origin);
	loop_destroy(loop);
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static mode_t mode_of(const char *path)
{
	query_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr.mode;
}

static void kinds(void **state)
{
	(void)state;
	assert_int_equal(mode_of(""), S_IFDIR);
	assert_int_equal(mode_of("x"), S_IFREG);
	assert_int_equal(ask.attr.size, SIZE);
	assert_true(strlen(ask.attr.version) > 10);
	assert_int_equal(mode_of("empty"), S_IFREG);
	assert_int_equal(mode_of("sub"), S_IFDIR);
	assert_string_equal(ask.attr.version, "");
	assert_int_equal(mode_of("link"), S_IFLNK);
	query_readlink(loop, origin, "link", &ask);
	assert_string_equal(ask.target, "x");
	query_readlink(loop, origin, "x", &ask);
	assert_int_equal(ask.error, -EINVAL);
	query_stat(loop, origin, "fifo", &ask);
	assert_int_equal(ask.error, -ENOENT);
}

/* Nothing outside is reached, by no road. */
static void confined(void **state)
{
	struct origin_call *call;

	(void)state;
	assert_int_equal(origin_stat(origin, loop, "../etc", NULL, NULL, &call), -EINVAL);
	query_stat(loop, origin, "out/passwd", &ask);
	assert_int_equal(ask.error, -ENOENT);
	query_stat(loop, origin, "sublink/y", &ask);
	assert_int_equal(ask.error, -ENOENT);
	query_list(loop, origin, "out", NULL, &ask);
	assert_int_equal(ask.error, -ENOENT);
	query_stat(loop, origin, "x/y", &ask);
	assert_int_equal(ask.error, -ENOENT);
}

static void lists(void **state)
{
	char name[16], token[64] = "";
	size_t count = 0, requests = 0;

	(void)state;
	query_list(loop, origin, "", NULL, &ask);
	assert_int_equal(ask.count, 6);
	assert_int_equal(ask.skipped, 1);
	assert_non_null(strstr(ask.names, "sub/ "));
	assert_non_null(strstr(ask.names, "link "));
	assert_string_equal(ask.token, "");
	query_list(loop, origin, "sub", NULL, &ask);
	assert_string_equal(ask.names, "y ");
	query_list(loop, origin, "x", NULL, &ask);
	assert_int_equal(ask.error, -ENOENT);

	assert_int_equal(mkdir("many", 0755), 0);
	for (int i = 0; i < 2500; i++) {
		snprintf(name, sizeof(name), "many/%d", i);
		put(name, "", 0);
	}
	do {
		query_list(loop, origin, "many", requests ? token : NULL, &ask);
		assert_string_equal(ask.message, "");
		memcpy(token, ask.token, sizeof(token));
		count += ask.count;
		requests++;
	} while (token[0]);
	assert_int_equal(count, 2500);
	assert_int_equal(requests, 3);
}

static void reads(void **state)
{
	static const uint64_t ranges[][2] = {
		{ 0, SIZE }, { 1, 1 }, { SIZE - 1, 1 }, { 524287, 2 }, { 1000, 600000 },
	};
	struct origin_attr attr;

	(void)state;
	mode_of("x");
	attr = ask.attr;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		memset(dst, 0xaa, sizeof(dst));
		query_read(loop, origin, "x", &attr, ranges[i][0], ranges[i][1], dst, &ask);
		assert_string_equal(ask.message, "");
		assert_int_equal(ask.bytes, ranges[i][1]);
		assert_memory_equal(dst, body + ranges[i][0], (size_t)ranges[i][1]);
		assert_int_equal((unsigned char)dst[ranges[i][1]], 0xaa);
	}
}

/* V1 */
static void overwritten(void **state)
{
	struct origin_attr attr;

	(void)state;
	put("v", "one", 3);
	mode_of("v");
	/* Just written: it might be written again within the same tick of the clock. */
	assert_int_equal(ask.attr.flags, ORIGIN_WEAK);
	query_turn(loop, 60);
	mode_of("v");
	assert_int_equal(ask.attr.flags, 0);
	attr = ask.attr;
	put("v", "two", 3);
	query_read(loop, origin, "v", &attr, 0, 3, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	assert_int_equal(ask.bytes, 0);
	/* Another file under the same name. */
	mode_of("v");
	attr = ask.attr;
	put("w", "two", 3);
	assert_int_equal(rename("w", "v"), 0);
	query_read(loop, origin, "v", &attr, 0, 3, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	unlink("v");
	query_read(loop, origin, "v", &attr, 0, 3, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	put("v", "", 0);
	unlink("v");
	assert_int_equal(mkfifo("v", 0644), 0);
	query_read(loop, origin, "v", &attr, 0, 3, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
}

static void not_progress(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	fail_msg("progress after cancel");
}

static void not_done(void *arg, const struct origin_result *result, uint64_t bytes)
{
	(void)result;
	not_progress(arg, bytes);
}

static struct origin_call *to_cancel;

static void cancel_in_progress(void *arg, uint64_t bytes)
{
	(void)arg;
	assert_true(bytes < SIZE);
	assert_non_null(to_cancel);
	origin_cancel(to_cancel);
	to_cancel = NULL;
}

static void cancelled(void **state)
{
	struct origin_attr attr;
	struct origin_call *call;
	struct origin_get get = {
		.path = "x",
		.attr = &attr,
		.len = SIZE,
		.dst = dst,
		.progress = not_progress,
		.done = not_done,
	};

	(void)state;
	mode_of("x");
	attr = ask.attr;
	assert_int_equal(origin_read(origin, loop, &get, &call), 0);
	origin_cancel(call);
	/* What the ring does afterwards does not reach dst. */
	memset(dst, 0xbb, sizeof(dst));
	query_turn(loop, 20);
	for (size_t i = 0; i < sizeof(dst); i++)
		assert_int_equal((unsigned char)dst[i], 0xbb);
	get.progress = cancel_in_progress;
	assert_int_equal(origin_read(origin, loop, &get, &to_cancel), 0);
	while (to_cancel)
		query_turn(loop, 10);
	query_turn(loop, 10);
	attr.version[0] = 'x';
	assert_int_equal(origin_read(origin, loop, &get, &call), 0);
	origin_cancel(call);
	query_turn(loop, 10);
}

static void sources(void **state)
{
	struct origin *other;
	char msg[512] = "", source[64];
	struct origin_attr attr;

	(void)state;
	assert_int_equal(origin_create("file://relative", NULL, &other, msg, sizeof(msg)), -EINVAL);
	assert_int_equal(origin_create("file:///nonexistent", NULL, &other, msg, sizeof(msg)),
			 -ENOENT);
	assert_string_equal(msg, "/nonexistent: No such file or directory");
	/* One file. */
	snprintf(source, sizeof(source), "file://%s/x", dir);
	assert_int_equal(origin_create(source, NULL, &other, msg, sizeof(msg)), 0);
	query_stat(loop, other, "", &ask);
	assert_int_equal(ask.attr.mode, S_IFREG);
	attr = ask.attr;
	query_read(loop, other, "", &attr, 0, 100, dst, &ask);
	assert_memory_equal(dst, body, 100);
	origin_unref(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds),       cmocka_unit_test(confined),
		cmocka_unit_test(lists),       cmocka_unit_test(reads),
		cmocka_unit_test(overwritten), cmocka_unit_test(cancelled),
		cmocka_unit_test(sources),
	};

	return cmocka_run_group_tests_name("origin_file", tests, set_up, tear_down);
}
