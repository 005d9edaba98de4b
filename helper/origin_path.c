// SPDX-License-Identifier: MIT
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "origin_path.h"

bool origin_name_valid(const char *name, size_t len)
{
	if (!len || len > NAME_MAX)
		return false;
	if (memchr(name, '/', len) || memchr(name, '\0', len))
		return false;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return false;
	return true;
}

bool origin_path_valid(const char *path)
{
	if (!*path)
		return true;
	for (;;) {
		size_t len = strcspn(path, "/");

		if (!origin_name_valid(path, len))
			return false;
		if (!path[len])
			return true;
		path += len + 1;
	}
}

static bool unreserved(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

char *origin_encode(char *dst, const char *src, size_t len, bool slash)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)src[i];

		if (unreserved(c) || (slash && c == '/')) {
			*dst++ = (char)c;
		} else {
			*dst++ = '%';
			*dst++ = digits[c >> 4];
			*dst++ = digits[c & 15];
		}
	}
	*dst = '\0';
	return dst;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

size_t origin_decode(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int high = *from == '%' ? hex_value(from[1]) : -1;
		int low = high >= 0 ? hex_value(from[2]) : -1;

		if (low >= 0) {
			*to++ = (char)(high << 4 | low);
			from += 2;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
	return (size_t)(to - text);
}
