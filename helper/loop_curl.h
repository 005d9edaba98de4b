/* SPDX-License-Identifier: MIT */
/* loop_curl: libcurl's multi handle, driven by the loop's polls and timers. For loop.c. */
#ifndef WFS_LOOP_CURL_H
#define WFS_LOOP_CURL_H

#include "loop.h"

struct loop_curl;

int loop_curl_create(struct loop_curl **ret, struct loop *loop);
/* Closes all connections; polls of theirs end later, loop_curl_polls() counts them. */
void loop_curl_close(struct loop_curl *lc);
unsigned int loop_curl_polls(const struct loop_curl *lc);
void loop_curl_destroy(struct loop_curl *lc);

struct loop_curl *loop_curl(struct loop *loop);

#endif /* WFS_LOOP_CURL_H */
