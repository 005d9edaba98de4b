// SPDX-License-Identifier: MIT
/*
 * credentials_http: one small request to a service that gives out credentials. Its
 * answers are secrets, so it keeps and logs nothing, and zeroes what it frees.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "credentials_impl.h"
#include "http.h"

/* Answers are a few KiB: tokens of sessions are at most 4 KiB or so. */
#define BODY_MAX (64u << 10)

struct credentials_http {
	struct credentials_run *run;
	struct loop *loop;
	CURL *easy;
	struct curl_slist *headers;
	char *request_body;
	char *body;
	size_t body_len;
	char why[CURL_ERROR_SIZE];
	void (*done)(struct credentials_run *run, unsigned int status, const char *body,
		     const char *why);
};

static void request_free(struct credentials_http *http)
{
	curl_easy_cleanup(http->easy);
	http_headers_free(http->headers);
	credentials_text_free(http->request_body);
	if (http->body)
		explicit_bzero(http->body, http->body_len);
	free(http->body);
	free(http);
}

static size_t on_write(char *data, size_t size, size_t count, void *arg)
{
	struct credentials_http *http = arg;
	size_t len = size * count;
	char *grown;

	if (len > BODY_MAX - http->body_len)
		return CURL_WRITEFUNC_ERROR;
	/* Not realloc(): it would leave a copy behind. */
	grown = malloc(http->body_len + len + 1);
	if (!grown)
		return CURL_WRITEFUNC_ERROR;
	if (http->body) {
		memcpy(grown, http->body, http->body_len);
		explicit_bzero(http->body, http->body_len);
	}
	memcpy(grown + http->body_len, data, len);
	free(http->body);
	http->body = grown;
	http->body_len += len;
	grown[http->body_len] = '\0';
	return len;
}

static void on_done(CURL *easy, CURLcode code, void *arg)
{
	struct credentials_http *http = arg;
	struct credentials_run *run = http->run;
	long status = 0;

	if (code == CURLE_OK)
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	run->http = NULL;
	run->untrusted = code == CURLE_PEER_FAILED_VERIFICATION ||
			 code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR;
	/* The run may be gone afterwards; the texts are http's. */
	http->done(run, (unsigned int)status, http->body ? http->body : "",
		   status	? NULL :
		   http->why[0] ? http->why :
				  curl_easy_strerror(code));
	request_free(http);
}

int credentials_http_start(struct credentials_run *run,
			   const struct credentials_http_request *request)
{
	struct credentials_http *http = calloc(1, sizeof(*http));
	CURLcode code = CURLE_OK;

	if (!http) {
		http_headers_free(request->headers);
		return -ENOMEM;
	}
	http->run = run;
	http->loop = run->loop;
	http->headers = request->headers;
	http->done = request->done;
	http->easy = curl_easy_init();
	if (!http->easy || credentials_text_copy(&http->request_body, request->body)) {
		request_free(http);
		return -ENOMEM;
	}
#define SET(option, value)                                                  \
	do {                                                                \
		if (!code)                                                  \
			code = curl_easy_setopt(http->easy, option, value); \
	} while (0)
	SET(CURLOPT_URL, request->url);
	SET(CURLOPT_HTTPHEADER, http->headers);
	SET(CURLOPT_USERAGENT, "wfs");
	SET(CURLOPT_PROXY, request->proxy ? request->proxy : "");
	if (request->ca)
		SET(CURLOPT_CAINFO, request->ca);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_NOPROGRESS, 1L);
	SET(CURLOPT_CONNECTTIMEOUT_MS, request->connect_ms);
	SET(CURLOPT_TIMEOUT_MS, request->total_ms);
	SET(CURLOPT_ERRORBUFFER, http->why);
	SET(CURLOPT_WRITEFUNCTION, on_write);
	SET(CURLOPT_WRITEDATA, http);
	/* Seldom asked: no connection is kept for the next time. */
	SET(CURLOPT_FORBID_REUSE, 1L);
	if (http->request_body) {
		SET(CURLOPT_POSTFIELDSIZE, (long)strlen(http->request_body));
		SET(CURLOPT_POSTFIELDS, http->request_body);
	}
	SET(CURLOPT_CUSTOMREQUEST, request->method);
#undef SET
	if (code || loop_curl_add(http->loop, http->easy, on_done, http)) {
		request_free(http);
		return -ENOMEM;
	}
	run->http = http;
	return 0;
}

void credentials_http_cancel(struct credentials_http *http)
{
	loop_curl_remove(http->loop, http->easy);
	request_free(http);
}
