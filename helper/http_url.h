/* SPDX-License-Identifier: MIT */
/* http_url: what redirects ask of two URLs. */
#ifndef WFS_HTTP_URL_H
#define WFS_HTTP_URL_H

#include <stdbool.h>

/* Scheme, host and port are the same. */
bool http_url_same_host(const char *a, const char *b);
/* The path of to, decoded, is that of from and a '/'. */
bool http_url_adds_slash(const char *from, const char *to);

#endif /* WFS_HTTP_URL_H */
