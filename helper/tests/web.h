/* SPDX-License-Identifier: MIT */
/* web: HTTP origins of two servers that misbehave on purpose, for all tests of a group. */
#ifndef WFS_TEST_WEB_H
#define WFS_TEST_WEB_H

#include "query.h"
#include "faulty.h"

#define WEB_SIZE 300000

extern struct faulty server, other;
extern struct loop *loop;
/* What /d/x of the server is, and what was read of it last. */
extern char body[WEB_SIZE], dst[WEB_SIZE + 1];
extern struct query ask;

/* Setup and teardown of a group, and setup of a test: no faults. */
int web_begin(void **state);
int web_end(void **state);
int web_each(void **state);

/* An origin of the server; of /d/. */
struct origin *web_open(const char *path, struct origin_settings settings);
struct origin *web_open_plain(void);
/* Reads a range and checks that what came is right, whether or not all came. */
void web_range(struct origin *origin, const char *path, const struct origin_attr *attr,
	       uint64_t offset, uint64_t len);
/* The same, and that all came. */
void web_whole(struct origin *origin, const char *path, const struct origin_attr *attr,
	       uint64_t offset, uint64_t len);
struct origin_attr web_attr(struct origin *origin, const char *path);

#endif /* WFS_TEST_WEB_H */
