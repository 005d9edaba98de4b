/* SPDX-License-Identifier: MIT */
/* s3_xml: what S3 answers in XML: listings (ListObjectsV2) and errors. */
#ifndef WFS_S3_XML_H
#define WFS_S3_XML_H

#include <stdbool.h>
#include <stddef.h>

struct origin_page;

struct s3_listing {
	bool any;	  /* something has the prefix, be it a marker or a key that is not shown */
	char *next_token; /* NULL: no more */
};

/*
 * Parses a ListBucketResult that was asked for with encoding-type=url. Names are what
 * follows the prefix. page may be NULL: only whether there is anything. Both are the
 * caller's to free, also on failure. -EINVAL: it is something else; -ENOMEM.
 */
int s3_xml_listing(const char *text, size_t len, const char *prefix, struct origin_page *page,
		   struct s3_listing *ret_listing);

/* Code and Message of an Error document, "" where there are none. */
void s3_xml_error(const char *text, size_t len, char *code, size_t code_size, char *message,
		  size_t message_size);

#endif /* WFS_S3_XML_H */
