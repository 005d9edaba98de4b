// SPDX-License-Identifier: MIT
/*
 * http_index: the input is the listing. Its bytes are also names in a listing that is
 * made for them, as nginx would write it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "http_index.h"
#include "origin_impl.h"

static void check_listing(const char *text, size_t len)
{
	struct origin_page page = { 0 };
	int err;

	fuzz_memory_begin();
	err = http_index_parse(text, len, &page);
	fuzz_memory_check(len);
	fuzz_check(!err || err == -EINVAL);
	fuzz_check_page(&page);
	/* An entry has a name and a type. */
	fuzz_check((page.count + page.skipped) * strlen("{\"name\":\"\",\"type\":\"\"}") <= len);
	fuzz_check(err || (memchr(text, '[', len) && memchr(text, ']', len)));
	origin_page_free(&page);
}

/* As ngx_escape_json(): all else is copied byte for byte. */
static size_t write_name(char *to, const uint8_t *name, size_t len)
{
	char *start = to;

	for (size_t i = 0; i < len; i++) {
		if (name[i] == '"' || name[i] == '\\') {
			*to++ = '\\';
			*to++ = (char)name[i];
		} else if (name[i] < 0x20) {
			to += snprintf(to, 7, "\\u00%02X", name[i]);
		} else {
			*to++ = (char)name[i];
		}
	}
	return (size_t)(to - start);
}

static void check_name(const uint8_t *name, size_t len)
{
	static const char before[] = "[\n{ \"name\":\"", after[] =
								 "\", \"type\":\"file\", "
								 "\"mtime\":\"Sun, 13 Sep 2020 "
								 "12:26:40 GMT\", \"size\":42 }\n]";
	char text[4096];
	size_t used = sizeof(before) - 1;
	struct origin_page page = { 0 };

	memcpy(text, before, used);
	used += write_name(text + used, name, len);
	memcpy(text + used, after, sizeof(after) - 1);
	used += sizeof(after) - 1;
	fuzz_check(!http_index_parse(text, used, &page));
	if (fuzz_name_good((const char *)name, len)) {
		fuzz_check(page.count == 1 && !page.skipped);
		fuzz_check(strlen(page.entries[0].name) == len);
		fuzz_check(!memcmp(page.entries[0].name, name, len));
		fuzz_check(page.entries[0].attr.size == 42);
		fuzz_check(page.entries[0].attr.mtime_sec == 1600000000);
	} else {
		fuzz_check(!page.count && page.skipped == 1);
	}
	origin_page_free(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	size_t len;
	char *text = fuzz_rest(&input, &len);

	check_listing(text, len);
	check_name(data, size < 300 ? size : 300);
	free(text);
	return 0;
}
