/* SPDX-License-Identifier: MIT */
/* origin_path: names that can be files, and their form in a URL. */
#ifndef WFS_ORIGIN_PATH_H
#define WFS_ORIGIN_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* One component: 1 to 255 bytes, no '/' or NUL, not "." or "..". */
bool origin_name_valid(const char *name, size_t len);
/* Components separated by single '/', none at the ends; "" is valid. */
bool origin_path_valid(const char *path);

/* Room for any encoding of len bytes, with its NUL. */
#define ORIGIN_ENCODED_MAX(len) (3 * (len) + 1)

/*
 * Writes the percent-encoding of len bytes: all but unreserved characters (RFC 3986,
 * 2.3) and, if slash, '/'. Returns the end (the NUL); dst has ORIGIN_ENCODED_MAX(len).
 */
char *origin_encode(char *dst, const char *src, size_t len, bool slash);
/* Undoes it in place; returns the new length. A '%' without two hex digits stays. */
size_t origin_decode(char *text);

#endif /* WFS_ORIGIN_PATH_H */
