// SPDX-License-Identifier: MIT
#include <curl/curl.h>
#include <string.h>
#include <strings.h>

#include "http_reply.h"

/* A longer pause than this is for people to wait for. */
#define RETRY_AFTER_MAX_S 600u

/* Decimal digits only, no sign, no more than a file can be long. Returns the end, or NULL. */
static const char *parse_u64(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;
	const char *c;

	for (c = text; *c >= '0' && *c <= '9'; c++) {
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value) ||
		    value > INT64_MAX)
			return NULL;
	}
	if (c == text)
		return NULL;
	*ret_value = value;
	return c;
}

/* RFC 9110, 14.4: "bytes 0-99/1000", "bytes 0-99" "/" "*", "bytes *" "/1000". */
static void parse_content_range(struct http_reply *reply, const char *value)
{
	uint64_t first, last = 0, total;
	const char *c;

	reply->has_range = false;
	reply->has_total = false;
	if (strncasecmp(value, "bytes ", 6))
		return;
	c = value + 6;
	c += strspn(c, " ");
	if (*c == '*') {
		c++;
	} else {
		c = parse_u64(c, &first);
		if (!c || *c != '-')
			return;
		c = parse_u64(c + 1, &last);
		if (!c || last < first)
			return;
		reply->range_first = first;
		reply->range_last = last;
		reply->has_range = true;
	}
	if (*c != '/') {
		reply->has_range = false;
		return;
	}
	if (c[1] == '*' && !c[2])
		return;
	c = parse_u64(c + 1, &total);
	if (!c || *c || (reply->has_range && last >= total)) {
		reply->has_range = false;
		return;
	}
	reply->total = total;
	reply->has_total = true;
}

static void parse_retry_after(struct http_reply *reply, const char *value)
{
	uint64_t seconds;
	const char *end = parse_u64(value, &seconds);

	/* The form with a date needs clocks that agree; the usual pace serves then. */
	if (!end || *end)
		return;
	if (seconds > RETRY_AFTER_MAX_S)
		seconds = RETRY_AFTER_MAX_S;
	reply->retry_after_ms = (uint32_t)seconds * 1000;
}

static bool parse_date(const char *value, int64_t *ret_time)
{
	time_t t = curl_getdate(value, NULL);

	if (t == (time_t)-1)
		return false;
	*ret_time = t;
	return true;
}

/* Printable ASCII that fits, else nothing: a cut or odd validator proves nothing. */
static void copy_token(char *dst, size_t size, const char *value)
{
	size_t len = strlen(value);

	dst[0] = '\0';
	if (len >= size)
		return;
	for (size_t i = 0; i < len; i++) {
		if (value[i] < '!' || value[i] > '~')
			return;
	}
	memcpy(dst, value, len + 1);
}

static void take_field(struct http_reply *reply, const char *name, const char *value)
{
	const char *end;
	uint64_t parts;

	if (!strcasecmp(name, "Content-Length")) {
		end = parse_u64(value, &reply->length);
		reply->has_length = end && !*end;
	} else if (!strcasecmp(name, "Content-Range")) {
		parse_content_range(reply, value);
	} else if (!strcasecmp(name, "ETag")) {
		copy_token(reply->etag, sizeof(reply->etag), value);
	} else if (!strcasecmp(name, "Last-Modified")) {
		reply->has_modified = parse_date(value, &reply->modified);
	} else if (!strcasecmp(name, "Date")) {
		reply->has_date = parse_date(value, &reply->date);
	} else if (!strcasecmp(name, "Retry-After")) {
		parse_retry_after(reply, value);
	} else if (!strcasecmp(name, "x-amz-version-id")) {
		copy_token(reply->version_id, sizeof(reply->version_id), value);
	} else if (!strcasecmp(name, "x-amz-mp-parts-count")) {
		end = parse_u64(value, &parts);
		reply->parts = end && !*end && parts <= OFFERS_PARTS_MAX ? (uint32_t)parts : 0;
	} else if (!strcasecmp(name, "x-amz-bucket-region")) {
		copy_token(reply->region, sizeof(reply->region), value);
	} else if (!strcasecmp(name, "Location")) {
		strncpy(reply->location, value, sizeof(reply->location) - 1);
	} else {
		offers_field(&reply->offers, name, value);
	}
}

/* "HTTP/1.1 206 Partial Content" */
static unsigned int parse_status(const char *line)
{
	const char *c = strchr(line, ' ');
	uint64_t status;

	if (!c)
		return 0;
	c = parse_u64(c + strspn(c, " "), &status);
	if (!c || (*c && *c != ' ') || status > 999)
		return 0;
	return (unsigned int)status;
}

void http_reply_line(struct http_reply *reply, const char *line, size_t len)
{
	char copy[1024];
	char *value;

	while (len && (line[len - 1] == '\r' || line[len - 1] == '\n' || line[len - 1] == ' ' ||
		       line[len - 1] == '\t'))
		len--;
	/* Nothing that is wanted is as long, and NUL has no place in a head. */
	if (!len || len >= sizeof(copy) || memchr(line, '\0', len))
		return;
	memcpy(copy, line, len);
	copy[len] = '\0';
	if (!strncmp(copy, "HTTP/", 5)) {
		memset(reply, 0, sizeof(*reply));
		reply->status = parse_status(copy);
		return;
	}
	value = strchr(copy, ':');
	if (!value)
		return;
	*value++ = '\0';
	value += strspn(value, " \t");
	take_field(reply, copy, value);
}
