/* SPDX-License-Identifier: MIT */
/* http_index: nginx's directory listing in JSON (autoindex_format json). */
#ifndef WFS_HTTP_INDEX_H
#define WFS_HTTP_INDEX_H

#include <stddef.h>

struct origin_page;

/*
 * Adds the entries to page, which stays to be freed. -EINVAL: it is no such listing;
 * -EFBIG: more than a million entries; -ENOMEM.
 */
int http_index_parse(const char *text, size_t len, struct origin_page *page);

#endif /* WFS_HTTP_INDEX_H */
