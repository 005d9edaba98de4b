// SPDX-License-Identifier: MIT
#include "web.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

struct faulty server, other;
struct loop *loop;
char body[WEB_SIZE], dst[WEB_SIZE + 1];
struct query ask;

struct origin *web_open(const char *path, struct origin_settings settings)
{
	struct origin *origin;
	char source[256], msg[512] = "";

	snprintf(source, sizeof(source), "%s%s", server.url, path);
	settings.connect_timeout_ms = 5000;
	if (!settings.stall_timeout_ms)
		settings.stall_timeout_ms = 5000;
	if (origin_create(source, &settings, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

struct origin *web_open_plain(void)
{
	return web_open("/d/", (struct origin_settings){ 0 });
}

/* Reads a range and checks that what came is right, whether or not all came. */
void web_range(struct origin *origin, const char *path, const struct origin_attr *attr,
	       uint64_t offset, uint64_t len)
{
	memset(dst, 0xaa, sizeof(dst));
	query_read(loop, origin, path, attr, offset, len, dst, &ask);
	assert_true(ask.bytes <= len);
	assert_memory_equal(dst, body + offset, (size_t)ask.bytes);
	/* Nothing is written past the range. */
	assert_int_equal((unsigned char)dst[len], 0xaa);
}

void web_whole(struct origin *origin, const char *path, const struct origin_attr *attr,
	       uint64_t offset, uint64_t len)
{
	web_range(origin, path, attr, offset, len);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.bytes, len);
}

struct origin_attr web_attr(struct origin *origin, const char *path)
{
	query_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr;
}

int web_begin(void **state)
{
	(void)state;
	assert_int_equal(loop_create(&loop, 64), 0);
	for (size_t i = 0; i < WEB_SIZE; i++)
		body[i] = (char)(i * 7 + i / 251);
	faulty_start(&server);
	faulty_start(&other);
	return 0;
}

int web_end(void **state)
{
	(void)state;
	faulty_stop(&server);
	faulty_stop(&other);
	loop_destroy(loop);
	return 0;
}

int web_each(void **state)
{
	(void)state;
	faulty_clear(&server);
	faulty_clear(&other);
	faulty_put(&server, "/d/x", body, WEB_SIZE);
	return 0;
}
