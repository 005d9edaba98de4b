/* SPDX-License-Identifier: MIT */
/* http_reply: the head of an HTTP answer, as far as origins care. */
#ifndef WFS_HTTP_REPLY_H
#define WFS_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offers.h"

struct http_reply {
	unsigned int status;
	bool has_length, has_range, has_total, has_modified, has_date;
	uint64_t length;		  /* Content-Length */
	uint64_t range_first, range_last; /* Content-Range, if has_range */
	uint64_t total;			  /* Content-Range's whole length, if has_total */
	int64_t modified, date;		  /* Last-Modified, Date: seconds since 1970 */
	uint32_t retry_after_ms;
	char etag[256];	      /* as sent, with quotes; "" when absent or unusable */
	char version_id[256]; /* x-amz-version-id */
	char region[64];      /* x-amz-bucket-region */
	char location[256];   /* Location, cut: only to see whether it is there */
	uint32_t parts;	      /* x-amz-mp-parts-count, 0: it did not come */
	struct offers offers; /* digests of the whole object */
};

/*
 * Takes one line of a head, with or without its line end. A status line clears what
 * was there: only the last head counts (after 100 Continue).
 */
void http_reply_line(struct http_reply *reply, const char *line, size_t len);

#endif /* WFS_HTTP_REPLY_H */
