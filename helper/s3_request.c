// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "credentials.h"
#include "origin_impl.h"
#include "origin_path.h"
#include "s3_request.h"
#include "s3_xml.h"
#include "sigv4.h"

struct s3_call {
	const struct s3_service *service;
	struct loop *loop;
	/* One of them: the keys are waited for, or the request is under way. */
	struct credentials_wait *wait;
	struct http_call *http;
	struct s3_request request; /* key and query: copies; attr: to below */
	struct origin_attr attr;
	char *key, *query;
	struct credential_keys keys; /* that the request was signed with */
	bool again;
};

static void call_free(struct s3_call *call)
{
	credential_keys_clear(&call->keys);
	free(call->key);
	free(call->query);
	free(call);
}

/* "/bucket/a%20key", with what stands before it in the endpoint. */
static char *path_of(const struct s3_service *service, const char *key)
{
	size_t base = strlen(service->path), len = key ? strlen(key) : 0;
	char *path = malloc(base + ORIGIN_ENCODED_MAX(len) + 1), *end;

	if (!path)
		return NULL;
	end = mempcpy(path, service->path, base);
	*end++ = '/';
	*end = '\0';
	if (key)
		origin_encode(end, key, len, true);
	return path;
}

/* Asks for what HEAD does not tell by itself. */
#define CHECKSUM_MODE	 "x-amz-checksum-mode"
#define CHECKSUM_ENABLED "ENABLED"

/* Adds the x-amz lines and Authorization to headers. */
static int sign(struct s3_call *call, const char *path, struct curl_slist **headers)
{
	const struct s3_service *service = call->service;
	char date[SIGV4_DATE];
	struct sigv4_field fields[5] = {
		{ "Host", service->host },
		{ "x-amz-content-sha256", SIGV4_EMPTY },
		{ "x-amz-date", date },
	};
	struct sigv4_request request = {
		.method = call->request.head ? "HEAD" : "GET",
		.path = path,
		.query = call->query,
		.fields = fields,
		.field_count = 3,
		.payload_sha256 = SIGV4_EMPTY,
		.date = date,
		.region = service->region,
		.service = "s3",
	};
	cleanup_free char *authorization = NULL;
	int err;

	if (call->keys.session_token)
		fields[request.field_count++] = (struct sigv4_field){
			"x-amz-security-token",
			call->keys.session_token,
		};
	if (call->request.checksums)
		fields[request.field_count++] = (struct sigv4_field){
			CHECKSUM_MODE,
			CHECKSUM_ENABLED,
		};
	sigv4_date((long long)time(NULL), date);
	err = sigv4_authorization(&request, call->keys.access_key, call->keys.secret_key,
				  &authorization);
	for (size_t i = 0; i < request.field_count && !err; i++)
		err = http_header(headers, fields[i].name, fields[i].value);
	if (!err)
		err = http_header(headers, "Authorization", authorization);
	return err;
}

static void on_answer(void *arg, struct http_answer *answer);

static void on_progress(void *arg, uint64_t bytes)
{
	struct s3_call *call = arg;

	call->request.progress(call->request.arg, bytes);
}

/* Sends the request, signed with call->keys. */
static int send_request(struct s3_call *call)
{
	const struct s3_service *service = call->service;
	cleanup_free char *path = path_of(service, call->key), *url = NULL, *what = NULL;
	struct curl_slist *headers = NULL;
	int err = path ? 0 : -ENOMEM;

	if (!err && asprintf(&url, "%.*s%s%s%s",
			     (int)(strlen(service->url) - strlen(service->path)), service->url,
			     path, call->query ? "?" : "", call->query ? call->query : "") < 0) {
		url = NULL;
		err = -ENOMEM;
	}
	if (!err &&
	    asprintf(&what, "s3://%s/%s", service->bucket, call->key ? call->key : "") < 0) {
		what = NULL;
		err = -ENOMEM;
	}
	if (!err && call->keys.access_key)
		err = sign(call, path, &headers);
	else if (!err && call->request.checksums)
		err = http_header(&headers, CHECKSUM_MODE, CHECKSUM_ENABLED);
	if (err) {
		http_headers_free(headers);
		return err;
	}
	return http_start(&service->client, call->loop,
			  &(struct http_request){
				  .url = url,
				  .what = what,
				  .head = call->request.head,
				  .secrets = headers,
				  .attr = call->request.attr,
				  .dst = call->request.dst,
				  .offset = call->request.offset,
				  .len = call->request.len,
				  .progress = call->request.progress ? on_progress : NULL,
				  .body_max = call->request.body_max,
				  .done = on_answer,
				  .arg = call,
			  },
			  &call->http);
}

/* What S3's code says better than the status. "Error responses" of Amazon's documentation. */
static const struct {
	const char *code;
	int error;
	bool transient;
	const char *advice;
} codes[] = {
	{ "SignatureDoesNotMatch", -EACCES, false, "the secret key is wrong" },
	{ "InvalidAccessKeyId", -EACCES, false, "the server does not know the access key" },
	{ "AccessDenied", -EACCES, false, "the server refuses access with these credentials" },
	{ "ExpiredToken", -EACCES, false, "the session token has expired" },
	{ "TokenRefreshRequired", -EACCES, false, "the session token has expired" },
	{ "InvalidToken", -EACCES, false, "the session token is not valid" },
	{ "RequestExpired", -EACCES, false, "the credentials have expired" },
	{ "RequestTimeTooSkewed", -EACCES, false, "the clock of this machine is wrong" },
	{ "NoSuchBucket", -ENOENT, false, "there is no such bucket" },
	{ "NoSuchVersion", -ESTALE, false, "this version is gone" },
	{ "SlowDown", -EIO, true, "the server asks to slow down" },
	{ "RequestTimeout", -EIO, true, "the server timed out" },
	{ "InternalError", -EIO, true, "the server has an internal error" },
};

/* An answer that says so of the keys, rather than of what they may do. */
static bool says_expired(const char *code)
{
	static const char *const expired[] = { "ExpiredToken", "ExpiredTokenException",
					       "TokenRefreshRequired", "InvalidToken",
					       "RequestExpired" };

	for (size_t i = 0; i < ARRAY_SIZE(expired); i++)
		if (!strcmp(code, expired[i]))
			return true;
	return false;
}

/*
 * Whether other keys may help. 400 is how Amazon says that a token has expired. HEAD has
 * no body to say why; and servers that forget the keys of a session with its end do not
 * know them any more.
 */
static bool keys_refused(const struct s3_call *call, const struct http_answer *answer)
{
	unsigned int status = answer->reply->status;
	char code[64], message[128];

	if (status != 400 && status != 401 && status != 403)
		return false;
	if (answer->reply->region[0] && strcmp(answer->reply->region, call->service->region))
		return false;
	s3_xml_error(answer->body, answer->body_len, code, sizeof(code), message, sizeof(message));
	return !code[0] || says_expired(code) ||
	       !credentials_renewable(call->service->credentials) ||
	       (call->keys.session_token && !strcmp(code, "InvalidAccessKeyId"));
}

/* Unsigned for want of credentials: that is what is wrong. */
static bool judge_unsigned(struct s3_call *call, struct http_answer *answer)
{
	char why[256];

	if (call->keys.access_key || answer->result.error != -EACCES)
		return false;
	credentials_absence(call->service->credentials, why, sizeof(why));
	if (!why[0])
		return false;
	origin_fail(&answer->result, answer->text, -EACCES, false,
		    "s3://%s/%s: the server refuses access without credentials (%u), and %s",
		    call->service->bucket, call->key ? call->key : "", answer->result.status, why);
	return true;
}

static void judge(struct s3_call *call, struct http_answer *answer)
{
	struct origin_result *result = &answer->result;
	const char *key = call->key ? call->key : "";
	const char *bucket = call->service->bucket, *region = answer->reply->region;
	char code[64], message[128];

	if (!result->error || !answer->reply->status || answer->reply->status / 100 == 2)
		return;
	if (region[0] && strcmp(region, call->service->region) &&
	    (result->status == 301 || result->status == 307 || result->status == 400)) {
		origin_fail(result, answer->text, -EINVAL, false,
			    "s3://%s/%s: the bucket is in region %s, not %s: set region=%s", bucket,
			    key, region, call->service->region, region);
		return;
	}
	if (judge_unsigned(call, answer))
		return;
	s3_xml_error(answer->body, answer->body_len, code, sizeof(code), message, sizeof(message));
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (strcmp(code, codes[i].code))
			continue;
		origin_fail(result, answer->text, codes[i].error, codes[i].transient,
			    "s3://%s/%s: %s (%u %s)", bucket, key, codes[i].advice, result->status,
			    code);
		return;
	}
	if (code[0] && result->error == -EIO)
		origin_fail(result, answer->text, -EIO, result->transient,
			    "s3://%s/%s: the server answered %u %s", bucket, key, result->status,
			    code);
}

/* Ends a call that no answer of the server's ends. */
static void fail(struct s3_call *call, int error, bool transient, const char *why)
{
	static const struct http_reply none;
	char text[ORIGIN_MESSAGE_MAX];
	struct http_answer answer = { .reply = &none, .url = "", .body = "", .text = text };

	origin_fail(&answer.result, text, error, transient, "s3://%s/%s: %s", call->service->bucket,
		    call->key ? call->key : "", why);
	call->request.done(call->request.arg, &answer);
	call_free(call);
}

static void on_keys(void *arg, const struct origin_result *result)
{
	struct s3_call *call = arg;

	call->wait = NULL;
	if (result->error)
		fail(call, result->error, result->transient, result->message);
	else if (send_request(call))
		fail(call, -ENOMEM, true, "out of memory");
}

/* Asks for keys, other ones than those that were refused, and sends the request. */
static int start(struct s3_call *call, bool refused)
{
	struct credential_keys old = call->keys;
	int err;

	call->http = NULL;
	call->keys = (struct credential_keys){ 0 };
	err = credentials_get(call->service->credentials, call->loop, refused ? &old : NULL,
			      &call->keys, on_keys, call, &call->wait);
	if (err && err != -EINPROGRESS)
		call->keys = old;
	else
		credential_keys_clear(&old);
	if (err == -EINPROGRESS)
		return 0;
	return err ? err : send_request(call);
}

static void on_answer(void *arg, struct http_answer *answer)
{
	struct s3_call *call = arg;

	if (!call->again && keys_refused(call, answer)) {
		call->again = true;
		if (!start(call, true))
			return;
	}
	judge(call, answer);
	call->request.done(call->request.arg, answer);
	call_free(call);
}

int s3_start(const struct s3_service *service, struct loop *loop, const struct s3_request *request,
	     struct s3_call **ret_call)
{
	struct s3_call *call = calloc(1, sizeof(*call));
	int err = 0;

	if (!call)
		return -ENOMEM;
	call->service = service;
	call->loop = loop;
	call->request = *request;
	if (request->attr) {
		call->attr = *request->attr;
		call->request.attr = &call->attr;
	}
	if (request->key) {
		call->key = strdup(request->key);
		err = call->key ? err : -ENOMEM;
	}
	if (request->query) {
		call->query = strdup(request->query);
		err = call->query ? err : -ENOMEM;
	}
	if (!err)
		err = start(call, false);
	if (err) {
		call_free(call);
		return err;
	}
	*ret_call = call;
	return 0;
}

void s3_cancel(struct s3_call *call)
{
	if (call->wait)
		credentials_cancel(call->wait);
	if (call->http)
		http_cancel(call->http);
	call_free(call);
}
