// SPDX-License-Identifier: MIT
/*
 * origin_s3_create: from a source and its settings to an origin of a bucket.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"
#include "credentials.h"
#include "origin_s3_impl.h"

/* "s3://bucket/prefix": the prefix is taken as it is, without percent-decoding. */
static int parse_source(struct origin_s3 *s3, const char *source, char *msg, size_t msg_size)
{
	const char *rest = source + strlen("s3://");
	size_t bucket = strcspn(rest, "/"), prefix;

	for (size_t i = 0; i < bucket; i++) {
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_",
			    rest[i])) {
			snprintf(msg, msg_size,
				 "a bucket's name has letters, digits, dots and dashes only: s3://BUCKET/PREFIX");
			return -EINVAL;
		}
	}
	if (!bucket || bucket > 255) {
		snprintf(msg, msg_size, "the source names no bucket: s3://BUCKET/PREFIX");
		return -EINVAL;
	}
	s3->service.bucket = strndup(rest, bucket);
	rest += bucket + (rest[bucket] == '/');
	prefix = strlen(rest);
	if (prefix && rest[prefix - 1] == '/')
		prefix--;
	s3->prefix = strndup(rest, prefix);
	return s3->service.bucket && s3->prefix ? 0 : -ENOMEM;
}

/* What libcurl will not take is said now rather than with the first request. */
static int check_url(const struct s3_service *service, char *msg, size_t msg_size)
{
	CURLU *url = curl_url();
	CURLUcode code = url ? curl_url_set(url, CURLUPART_URL, service->url, CURLU_PATH_AS_IS) :
			       CURLUE_OUT_OF_MEMORY;

	curl_url_cleanup(url);
	if (code == CURLUE_OUT_OF_MEMORY)
		return -ENOMEM;
	if (code) {
		snprintf(msg, msg_size, "the endpoint gives \"%s\", which is no URL: %s",
			 service->url, curl_url_strerror(code));
		return -EINVAL;
	}
	return 0;
}

/* Sets url, host and path from the endpoint. */
static int parse_endpoint(struct s3_service *service, const struct origin_settings *settings,
			  char *msg, size_t msg_size)
{
	bool in_host = settings->virtual_host;
	cleanup_free char *amazon = NULL;
	const char *endpoint = settings->endpoint, *rest, *path;
	size_t host, scheme, path_len;
	int n;

	if (!endpoint || !*endpoint) {
		/* Dots in a bucket's name would not match Amazon's certificate. */
		in_host = !strchr(service->bucket, '.');
		if (asprintf(&amazon, "https://s3.%s.amazonaws.com", service->region) < 0) {
			amazon = NULL;
			return -ENOMEM;
		}
		endpoint = amazon;
	}
	scheme = !strncasecmp(endpoint, "https://", 8) ? 8 :
		 !strncasecmp(endpoint, "http://", 7)  ? 7 :
							 0;
	rest = endpoint + scheme;
	host = strcspn(rest, "/?#");
	path = rest + host;
	path_len = strlen(path);
	while (path_len && path[path_len - 1] == '/')
		path_len--;
	if (!scheme || !host || memchr(rest, '@', host) || strpbrk(path, "?#")) {
		snprintf(msg, msg_size,
			 "endpoint must be of the form http://HOST[:PORT] or https://HOST[:PORT]");
		return -EINVAL;
	}
	/* As libcurl would say it: without a scheme's own port. */
	n = (int)host;
	if (scheme == 8 && host > 4 && !strncmp(rest + host - 4, ":443", 4))
		n -= 4;
	else if (scheme == 7 && host > 3 && !strncmp(rest + host - 3, ":80", 3))
		n -= 3;
	if (asprintf(&service->host, "%s%s%.*s", in_host ? service->bucket : "", in_host ? "." : "",
		     n, rest) < 0) {
		service->host = NULL;
		return -ENOMEM;
	}
	if (asprintf(&service->path, "%.*s%s%s", (int)path_len, path, in_host ? "" : "/",
		     in_host ? "" : service->bucket) < 0) {
		service->path = NULL;
		return -ENOMEM;
	}
	if (asprintf(&service->url, "%.*s%s%s", (int)scheme, endpoint, service->host,
		     service->path) < 0) {
		service->url = NULL;
		return -ENOMEM;
	}
	return check_url(service, msg, msg_size);
}

static int set_region(struct s3_service *service, const struct origin_settings *settings, char *msg,
		      size_t msg_size)
{
	static const char good[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	const char *region = settings->region;

	if (!region || !*region)
		region = credentials_region(service->credentials);
	/* Without an endpoint it becomes part of a host's name. */
	if (region && strspn(region, good) != strlen(region)) {
		snprintf(msg, msg_size, "a region has letters, digits and dashes only");
		return -EINVAL;
	}
	service->region = strdup(region ? region : "us-east-1");
	return service->region ? 0 : -ENOMEM;
}

int origin_s3_create(const char *source, const struct origin_settings *settings,
		     struct origin **ret, char *msg, size_t msg_size)
{
	struct origin_s3 *s3 = calloc(1, sizeof(*s3));
	int err;

	if (!s3) {
		snprintf(msg, msg_size, "out of memory");
		return -ENOMEM;
	}
	s3->base.ops = &origin_s3_ops;
	err = parse_source(s3, source, msg, msg_size);
	if (!err)
		err = credentials_create(settings, &s3->service.credentials, msg, msg_size);
	if (!err)
		err = set_region(&s3->service, settings, msg, msg_size);
	if (!err)
		err = parse_endpoint(&s3->service, settings, msg, msg_size);
	if (!err)
		err = http_client_init(&s3->service.client, &s3->base, settings);
	if (!err && asprintf(&s3->base.identity, "%s/%s %s", s3->service.url, s3->prefix,
			     credentials_identity(s3->service.credentials)) < 0) {
		s3->base.identity = NULL;
		err = -ENOMEM;
	}
	if (err == -ENOMEM)
		snprintf(msg, msg_size, "out of memory");
	if (err) {
		origin_s3_ops.destroy(&s3->base);
		return err;
	}
	*ret = &s3->base;
	return 0;
}
