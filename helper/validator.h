/* SPDX-License-Identifier: MIT */
/*
 * validator: what an HTTP answer proves of a version (RFC 9110, 8.8 and 13).
 *
 * The version string of origin_attr is one of
 *	"abc"		a strong ETag, with its quotes
 *	id:abc		an S3 version id
 *	lm:1700000000	Last-Modified, where there is no strong ETag
 *	size		nothing but the size
 */
#ifndef WFS_VALIDATOR_H
#define WFS_VALIDATOR_H

#include <curl/curl.h>

#include "http_reply.h"
#include "origin.h"

/* Size, time, version and ORIGIN_WEAK of a regular file, from the answer to HEAD. */
void validator_attr(const struct http_reply *reply, struct origin_attr *ret_attr);

/*
 * Appends the header line that asks for just this version (If-Match or
 * If-Unmodified-Since; none for a version id). 0 or -ENOMEM.
 */
int validator_header(const struct origin_attr *attr, struct curl_slist **headers);

enum validator_verdict {
	VALIDATOR_SAME,
	VALIDATOR_CHANGED, /* another version */
	VALIDATOR_UNKNOWN, /* the answer does not say */
};

/* Is an answer of 200 or 206 the version of attr? */
enum validator_verdict validator_check(const struct origin_attr *attr,
				       const struct http_reply *reply);

#endif /* WFS_VALIDATOR_H */
