// SPDX-License-Identifier: MIT
#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "http_index.h"
#include "origin_impl.h"

/* Longer than any entry with a name of 255 bytes, however it is written. */
#define ENTRY_MAX 65536
/* A million names take some 350 MiB while a listing is read. */
#define ENTRIES_MAX (1u << 20)

/*
 * nginx writes names byte for byte, JSON has to be UTF-8: one name in another encoding
 * would make the whole listing unreadable. Such a byte B travels through the parser as
 * the private character U+10FF00 + B, four bytes long; so do the bytes of such a
 * character itself.
 */
static const unsigned char escape[2] = { 0xf4, 0x8f };
#define ESCAPE_THIRD 0xbc

/* Length of the valid UTF-8 sequence at text, 0: none, or one that stands for a byte. */
static size_t utf8_length(const unsigned char *text, size_t left)
{
	static const struct {
		unsigned char lead_from, lead_to, next_from, next_to;
		size_t len;
	} forms[] = {
		{ 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 },
		{ 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
		{ 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	if (*text < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (*text < forms[i].lead_from || *text > forms[i].lead_to)
			continue;
		if (left < forms[i].len || text[1] < forms[i].next_from ||
		    text[1] > forms[i].next_to)
			return 0;
		for (size_t k = 2; k < forms[i].len; k++) {
			if ((text[k] & 0xc0) != 0x80)
				return 0;
		}
		if (!memcmp(text, escape, sizeof(escape)) && text[2] >= ESCAPE_THIRD)
			return 0;
		return forms[i].len;
	}
	return 0;
}

static char *escape_bytes(const char *text, size_t len, size_t *ret_len)
{
	const unsigned char *from = (const unsigned char *)text;
	unsigned char *copy, *to;
	size_t bad = 0, n;

	for (size_t i = 0; i < len; i += n ? n : 1) {
		n = utf8_length(from + i, len - i);
		if (!n)
			bad++;
	}
	copy = malloc(len + 3 * bad + 1);
	if (!copy)
		return NULL;
	to = copy;
	for (size_t i = 0; i < len; i += n ? n : 1) {
		n = utf8_length(from + i, len - i);
		if (n) {
			to = mempcpy(to, from + i, n);
		} else {
			to = mempcpy(to, escape, sizeof(escape));
			*to++ = ESCAPE_THIRD | from[i] >> 6;
			*to++ = 0x80 | (from[i] & 0x3f);
		}
	}
	*ret_len = (size_t)(to - copy);
	return (char *)copy;
}

static size_t unescape_bytes(char *text, size_t len)
{
	unsigned char *bytes = (unsigned char *)text;
	size_t to = 0;

	for (size_t i = 0; i < len; i++) {
		if (len - i >= 4 && !memcmp(bytes + i, escape, 2) && bytes[i + 2] >= ESCAPE_THIRD) {
			bytes[to++] =
				(unsigned char)((bytes[i + 2] & 3) << 6 | (bytes[i + 3] & 0x3f));
			i += 3;
		} else {
			bytes[to++] = bytes[i];
		}
	}
	return to;
}

static int add_entry(struct origin_page *page, const json_t *item)
{
	const json_t *name = json_object_get(item, "name");
	const char *type = json_string_value(json_object_get(item, "type"));
	const char *mtime = json_string_value(json_object_get(item, "mtime"));
	const json_t *size = json_object_get(item, "size");
	struct origin_attr attr = { 0 };
	cleanup_free char *copy = NULL;
	size_t len;

	if (!json_is_string(name) || !type)
		return -EINVAL;
	if (!strcmp(type, "directory")) {
		attr.mode = S_IFDIR;
	} else if (!strcmp(type, "file") && json_is_integer(size) &&
		   json_integer_value(size) >= 0) {
		attr.mode = S_IFREG;
		attr.size = (uint64_t)json_integer_value(size);
	} else {
		/* Sockets and the like cannot be fetched. */
		page->skipped++;
		return 0;
	}
	if (mtime) {
		time_t t = curl_getdate(mtime, NULL);

		attr.mtime_sec = t == (time_t)-1 ? 0 : t;
	}
	len = json_string_length(name);
	copy = malloc(len + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, json_string_value(name), len + 1);
	len = unescape_bytes(copy, len);
	return origin_page_add(page, copy, len, &attr);
}

/* Length of the object that begins at text, 0: it does not end within len. */
static size_t object_length(const char *text, size_t len)
{
	bool string = false;
	size_t depth = 0;

	for (size_t i = 0; i < len; i++) {
		if (string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			string = !string;
		else if (!string && text[i] == '{')
			depth++;
		else if (!string && text[i] == '}' && !--depth)
			return i + 1;
	}
	return 0;
}

static int parse_entry(struct origin_page *page, const char *text, size_t len)
{
	cleanup_free char *copy = escape_bytes(text, len, &len);
	json_t *item;
	int err;

	if (!copy)
		return -ENOMEM;
	item = json_loadb(copy, len, JSON_ALLOW_NUL, NULL);
	err = item ? add_entry(page, item) : -EINVAL;
	json_decref(item);
	return err;
}

static size_t skip_spaces(const char *text, size_t len, size_t at)
{
	while (at < len && memchr(" \t\r\n", text[at], 4))
		at++;
	return at;
}

/*
 * Entry by entry: as a whole, a listing of small values would take a hundred times the
 * memory of its text.
 */
int http_index_parse(const char *text, size_t len, struct origin_page *page)
{
	size_t at = skip_spaces(text, len, 0), count = 0, n;
	bool more;
	int err;

	if (at == len || text[at] != '[')
		return -EINVAL;
	at = skip_spaces(text, len, at + 1);
	more = at < len && text[at] == '{';
	while (more) {
		n = len - at;
		n = text[at] == '{' ? object_length(text + at, n < ENTRY_MAX ? n : ENTRY_MAX) : 0;
		if (!n)
			return -EINVAL;
		if (++count > ENTRIES_MAX)
			return -EFBIG;
		err = parse_entry(page, text + at, n);
		if (err)
			return err;
		at = skip_spaces(text, len, at + n);
		more = at < len && text[at] == ',';
		if (more)
			at = skip_spaces(text, len, at + 1);
		if (more && at == len)
			return -EINVAL;
	}
	return at < len && text[at] == ']' && skip_spaces(text, len, at + 1) == len ? 0 : -EINVAL;
}
