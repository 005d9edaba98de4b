// SPDX-License-Identifier: MIT
/*
 * s3_xml: a line with the prefix that was asked for, then the document. The input as a
 * whole is also the name in a listing that is made for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "origin_impl.h"
#include "origin_path.h"
#include "s3_xml.h"

static void check_listing(const char *prefix, const char *text, size_t len)
{
	struct s3_listing listing = { 0 }, again = { 0 };
	struct origin_page page = { 0 };
	int err, err_again;

	fuzz_memory_begin();
	err = s3_xml_listing(text, len, prefix, &page, &listing);
	fuzz_memory_check(len);
	fuzz_check(!err || err == -EINVAL);
	fuzz_check_page(&page);
	fuzz_check((page.count + page.skipped) * strlen("<Contents/>") <= len);
	fuzz_check(!err || !listing.next_token);
	/* An empty token would be answered with the first page. */
	fuzz_check(!listing.next_token || *listing.next_token);
	fuzz_check(!listing.next_token || strstr(text, "NextContinuationToken"));
	fuzz_check(!page.count || listing.any);
	/* Entities could fill any memory. */
	fuzz_check(strncmp(text, "<!DOCTYPE", 9) || err);

	err_again = s3_xml_listing(text, len, prefix, NULL, &again);
	fuzz_check(err == err_again && (err || again.any == listing.any));
	fuzz_check(!again.next_token == !listing.next_token);
	origin_page_free(&page);
	free(listing.next_token);
	free(again.next_token);
}

static void check_error(const char *text, size_t len)
{
	char code[16], message[8];

	memset(code, 'x', sizeof(code));
	memset(message, 'x', sizeof(message));
	s3_xml_error(text, len, code, sizeof(code), message, sizeof(message));
	fuzz_check(strnlen(code, sizeof(code)) < sizeof(code));
	fuzz_check(strnlen(message, sizeof(message)) < sizeof(message));
}

/* A name as a server encodes it is found as it was. */
static void check_name(const uint8_t *data, size_t size)
{
	size_t len = size < 300 ? size : 300, used;
	char encoded[ORIGIN_ENCODED_MAX(300)], text[2048];
	bool directory = len && data[len - 1] & 1;
	struct s3_listing listing = { 0 };
	struct origin_page page = { 0 };

	origin_encode(encoded, (const char *)data, len, false);
	used = (size_t)snprintf(text, sizeof(text),
				"<ListBucketResult><EncodingType>url</EncodingType>%sp%%2F%s%s"
				"</ListBucketResult>",
				directory ? "<CommonPrefixes><Prefix>" : "<Contents><Key>", encoded,
				directory ? "%2F</Prefix></CommonPrefixes>" :
					    "</Key><Size>7</Size></Contents>");
	fuzz_check(!s3_xml_listing(text, used, "p/", &page, &listing));
	fuzz_check(listing.any);
	if (fuzz_name_good((const char *)data, len)) {
		fuzz_check(page.count == 1 && !page.skipped);
		fuzz_check(strlen(page.entries[0].name) == len);
		fuzz_check(!memcmp(page.entries[0].name, data, len));
		fuzz_check(page.entries[0].attr.mode == (directory ? S_IFDIR : S_IFREG));
		fuzz_check(page.entries[0].attr.size == (directory ? 0 : 7));
	} else {
		fuzz_check(!page.count && page.skipped == (len || directory ? 1 : 0));
	}
	origin_page_free(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	char *prefix = fuzz_line(&input), *text;
	size_t len;

	text = fuzz_rest(&input, &len);
	check_listing(prefix, text, len);
	check_error(text, len);
	check_name(data, size);
	free(prefix);
	free(text);
	return 0;
}
