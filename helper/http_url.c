// SPDX-License-Identifier: MIT
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"
#include "http_url.h"
#include "origin_path.h"

bool http_url_same_host(const char *a, const char *b)
{
	static const CURLUPart parts[] = { CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT };
	CURLU *ua = curl_url(), *ub = curl_url();
	bool same = ua && ub && !curl_url_set(ua, CURLUPART_URL, a, 0) &&
		    !curl_url_set(ub, CURLUPART_URL, b, 0);

	for (size_t i = 0; same && i < ARRAY_SIZE(parts); i++) {
		char *pa = NULL, *pb = NULL;

		same = !curl_url_get(ua, parts[i], &pa, CURLU_DEFAULT_PORT) &&
		       !curl_url_get(ub, parts[i], &pb, CURLU_DEFAULT_PORT) && !strcasecmp(pa, pb);
		curl_free(pa);
		curl_free(pb);
	}
	curl_url_cleanup(ua);
	curl_url_cleanup(ub);
	return same;
}

/* The decoded path of a URL, or NULL. */
static char *url_path(const char *text)
{
	CURLU *url = curl_url();
	char *part = NULL, *path = NULL;

	if (url && !curl_url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) &&
	    !curl_url_get(url, CURLUPART_PATH, &part, 0)) {
		path = strdup(part);
		if (path)
			origin_decode(path);
	}
	curl_free(part);
	curl_url_cleanup(url);
	return path;
}

bool http_url_adds_slash(const char *from, const char *to)
{
	cleanup_free char *a = url_path(from), *b = url_path(to);
	size_t len = a ? strlen(a) : 0;

	return a && b && strlen(b) == len + 1 && !memcmp(a, b, len) && b[len] == '/';
}
