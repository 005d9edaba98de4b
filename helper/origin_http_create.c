// SPDX-License-Identifier: MIT
/*
 * origin_http_create: from a source and its settings to an origin of a web server.
 */
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "origin_http_impl.h"
#include "origin_path.h"

/* Tells apart who fetches: a digest of the header lines, the name of the token's file. */
static int make_identity(struct origin_http *http)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	char hex[17] = "none";

	if (http->headers && http->headers[0]) {
		size_t len = 0, used = 0;
		cleanup_free char *all = NULL;

		for (char **line = http->headers; *line; line++)
			len += strlen(*line) + 1;
		all = malloc(len);
		if (!all)
			return -ENOMEM;
		for (char **line = http->headers; *line; line++) {
			memcpy(all + used, *line, strlen(*line) + 1);
			used += strlen(*line) + 1;
		}
		SHA256((unsigned char *)all, len, digest);
		explicit_bzero(all, len);
		for (size_t i = 0; i < 8; i++)
			snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	}
	if (asprintf(&http->base.identity, "%s%s headers=%s bearer=%s", http->url,
		     http->slash ? "/" : "", hex,
		     http->bearer_file ? http->bearer_file : "none") < 0) {
		http->base.identity = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int copy_headers(struct origin_http *http, const char *const *headers, char *msg,
			size_t msg_size)
{
	size_t count = 0;

	while (headers && headers[count])
		count++;
	http->headers = calloc(count + 1, sizeof(*http->headers));
	if (!http->headers)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const char *colon = strchr(headers[i], ':');

		/* Not shown: the line may hold a secret. */
		if (!colon || colon == headers[i] || strpbrk(headers[i], "\r\n")) {
			snprintf(msg, msg_size,
				 "header line %zu is not of the form \"Name: value\"", i + 1);
			return -EINVAL;
		}
		http->headers[i] = strdup(headers[i]);
		if (!http->headers[i])
			return -ENOMEM;
	}
	return 0;
}

/* Takes the source as a URL; what may not stand in one is encoded, the rest kept. */
static int copy_url(struct origin_http *http, const char *source, char *msg, size_t msg_size)
{
	const char *rest = strstr(source, "://") + 3;
	size_t host = strcspn(rest, "/?#");
	char *end;
	CURLU *url;
	CURLUcode code;

	if (memchr(rest, '@', host)) {
		snprintf(msg, msg_size,
			 "no user or password in a source: put a header line or bearer_file into wfsd.conf");
		return -EINVAL;
	}
	if (strpbrk(source, "?#")) {
		snprintf(msg, msg_size,
			 "the source is a directory's address: \"?\" and \"#\" have no place in it (a name holds them as %%3F and %%23)");
		return -EINVAL;
	}
	http->url = malloc(ORIGIN_ENCODED_MAX(strlen(source)));
	if (!http->url)
		return -ENOMEM;
	end = http->url;
	for (const char *c = source; *c; c++) {
		if (*c > ' ' && *c < 127 && !strchr("\"<>\\^`{|}", *c))
			*end++ = *c;
		else
			end = origin_encode(end, c, 1, false);
	}
	*end = '\0';
	http->slash = !rest[host];
	while (end > http->url + 8 && end[-1] == '/') {
		http->slash = true;
		*--end = '\0';
	}

	url = curl_url();
	code = url ? curl_url_set(url, CURLUPART_URL, http->url, CURLU_PATH_AS_IS) :
		     CURLUE_OUT_OF_MEMORY;
	curl_url_cleanup(url);
	if (!host || code) {
		snprintf(msg, msg_size, "\"%s\" is no URL: %s", source,
			 host ? curl_url_strerror(code) : "no host");
		return -EINVAL;
	}
	return 0;
}

int origin_http_create(const char *source, const struct origin_settings *settings,
		       struct origin **ret, char *msg, size_t msg_size)
{
	struct origin_http *http = calloc(1, sizeof(*http));
	int err;

	if (!http) {
		snprintf(msg, msg_size, "out of memory");
		return -ENOMEM;
	}
	http->base.ops = &origin_http_ops;
	err = copy_url(http, source, msg, msg_size);
	if (!err)
		err = copy_headers(http, settings->headers, msg, msg_size);
	if (!err && settings->bearer_file) {
		http->bearer_file = strdup(settings->bearer_file);
		err = http->bearer_file ? 0 : -ENOMEM;
		if (!err && access(http->bearer_file, R_OK)) {
			snprintf(msg, msg_size, "bearer_file %s: %s", http->bearer_file,
				 strerror(errno));
			err = -EINVAL;
		}
	}
	if (!err)
		err = http_client_init(&http->client, &http->base, settings);
	http->client.follow = true;
	if (!err)
		err = make_identity(http);
	if (err == -ENOMEM)
		snprintf(msg, msg_size, "out of memory");
	if (err) {
		origin_http_ops.destroy(&http->base);
		return err;
	}
	*ret = &http->base;
	return 0;
}
