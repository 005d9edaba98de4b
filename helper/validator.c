// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "validator.h"

/* Two writes within a second look alike; a minute also covers clocks that differ. */
#define SETTLED_S 60

static bool strong(const char *etag)
{
	size_t len = strlen(etag);

	return len >= 2 && etag[0] == '"' && etag[len - 1] == '"';
}

/* nginx: "hex(mtime)-hex(size)". Strong by its form, time and size by its content. */
static bool time_and_size(const struct http_reply *reply)
{
	char expected[64];

	if (!reply->has_modified || !reply->has_length)
		return false;
	snprintf(expected, sizeof(expected), "\"%llx-%llx\"", (unsigned long long)reply->modified,
		 (unsigned long long)reply->length);
	return !strcmp(expected, reply->etag);
}

static bool settled(const struct http_reply *reply)
{
	return reply->has_modified && reply->has_date && reply->date - reply->modified > SETTLED_S;
}

void validator_attr(const struct http_reply *reply, struct origin_attr *ret_attr)
{
	struct origin_attr attr = {
		.mode = S_IFREG,
		.size = reply->length,
		.mtime_sec = reply->has_modified ? reply->modified : 0,
	};

	/* S3: "null" is what was written while versioning was off, and is overwritten. */
	if (reply->version_id[0] && strcmp(reply->version_id, "null") &&
	    strlen(reply->version_id) < ORIGIN_VERSION_MAX - 3) {
		snprintf(attr.version, sizeof(attr.version), "id:%s", reply->version_id);
	} else if (strong(reply->etag)) {
		memcpy(attr.version, reply->etag, strlen(reply->etag) + 1);
		if (time_and_size(reply) && !settled(reply))
			attr.flags |= ORIGIN_WEAK;
	} else if (reply->has_modified) {
		snprintf(attr.version, sizeof(attr.version), "lm:%lld", (long long)reply->modified);
		if (!settled(reply))
			attr.flags |= ORIGIN_WEAK;
	} else {
		memcpy(attr.version, "size", sizeof("size"));
		attr.flags |= ORIGIN_WEAK | ORIGIN_UNPROVEN;
	}
	*ret_attr = attr;
}

/* RFC 9110, 5.6.7, whatever the locale is. */
static void http_date(time_t t, char *text, size_t size)
{
	static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
					    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	struct tm tm;

	text[0] = '\0';
	if (!gmtime_r(&t, &tm))
		return;
	snprintf(text, size, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday], tm.tm_mday,
		 months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/*
 * The time that is the version. Taken from there: whoever opens a version that is known
 * by its name alone has no other.
 */
static bool by_time(const struct origin_attr *attr, int64_t *ret_time)
{
	char *end;
	long long t;

	if (strncmp(attr->version, "lm:", 3))
		return false;
	errno = 0;
	t = strtoll(attr->version + 3, &end, 10);
	if (errno || end == attr->version + 3 || *end)
		return false;
	*ret_time = t;
	return true;
}

int validator_header(const struct origin_attr *attr, struct curl_slist **headers)
{
	char line[ORIGIN_VERSION_MAX + 32], date[64];
	struct curl_slist *grown;
	int64_t modified;

	if (attr->version[0] == '"') {
		snprintf(line, sizeof(line), "If-Match: %s", attr->version);
	} else if (by_time(attr, &modified)) {
		http_date(modified, date, sizeof(date));
		snprintf(line, sizeof(line), "If-Unmodified-Since: %s", date);
	} else {
		return 0;
	}
	grown = curl_slist_append(*headers, line);
	if (!grown)
		return -ENOMEM;
	*headers = grown;
	return 0;
}

static enum validator_verdict same_time(int64_t modified, const struct http_reply *reply)
{
	if (!reply->has_modified)
		return VALIDATOR_UNKNOWN;
	return reply->modified == modified ? VALIDATOR_SAME : VALIDATOR_CHANGED;
}

enum validator_verdict validator_check(const struct origin_attr *attr,
				       const struct http_reply *reply)
{
	const char *version = attr->version;
	bool has_size = false;
	uint64_t size = 0;
	int64_t modified;

	if (reply->status == 206 && reply->has_total) {
		has_size = true;
		size = reply->total;
	} else if (reply->status == 200 && reply->has_length) {
		has_size = true;
		size = reply->length;
	}
	if (has_size && size != attr->size)
		return VALIDATOR_CHANGED;

	if (!strncmp(version, "id:", 3)) {
		/* Asked for by id: a server that answers names it, or an older one does not. */
		if (!reply->version_id[0] || !strcmp(reply->version_id, version + 3))
			return VALIDATOR_SAME;
		return VALIDATOR_CHANGED;
	}
	if (version[0] == '"') {
		if (!reply->etag[0])
			return attr->mtime_sec ? same_time(attr->mtime_sec, reply) :
						 VALIDATOR_UNKNOWN;
		/*
		 * A server may call an ETag weak while it compresses; its opaque part
		 * then still names the version, but not these bytes.
		 */
		return strcmp(reply->etag, version) ? VALIDATOR_CHANGED : VALIDATOR_SAME;
	}
	if (by_time(attr, &modified))
		return same_time(modified, reply);
	return has_size ? VALIDATOR_SAME : VALIDATOR_UNKNOWN;
}
