// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"
#include "http_impl.h"
#include "http_url.h"
#include "validator.h"

#define CONNECT_TIMEOUT_MS 5000
#define STALL_TIMEOUT_MS   10000
#define REDIRECTS_MAX	   8
/* libcurl receives into this much before it hands on. */
#define RECEIVE_BYTES (512L << 10)

int http_client_init(struct http_client *client, struct origin *origin,
		     const struct origin_settings *settings)
{
	*client = (struct http_client){
		.origin = origin,
		.connect_timeout_ms = settings->connect_timeout_ms > 0 ?
					      settings->connect_timeout_ms :
					      CONNECT_TIMEOUT_MS,
		.stall_timeout_ms = settings->stall_timeout_ms > 0 ? settings->stall_timeout_ms :
								     STALL_TIMEOUT_MS,
	};
	if (settings->ca) {
		client->ca = strdup(settings->ca);
		if (!client->ca)
			return -ENOMEM;
	}
	if (settings->proxy) {
		client->proxy = strdup(settings->proxy);
		if (!client->proxy)
			return -ENOMEM;
	}
	return 0;
}

void http_client_clear(struct http_client *client)
{
	free(client->ca);
	free(client->proxy);
	client->ca = NULL;
	client->proxy = NULL;
}

int http_header(struct curl_slist **headers, const char *name, const char *value)
{
	char *line = NULL;
	struct curl_slist *grown;

	if (asprintf(&line, "%s: %s", name, value) < 0)
		return -ENOMEM;
	grown = curl_slist_append(*headers, line);
	explicit_bzero(line, strlen(line));
	free(line);
	if (!grown)
		return -ENOMEM;
	*headers = grown;
	return 0;
}

void http_headers_free(struct curl_slist *headers)
{
	for (struct curl_slist *line = headers; line; line = line->next)
		explicit_bzero(line->data, strlen(line->data));
	curl_slist_free_all(headers);
}

/* The call is not one of its endpoint's any more. */
static void leave(struct http_call *call)
{
	if (call->endpoint)
		call->endpoint->in_flight--;
	call->endpoint = NULL;
}

static void call_free(struct http_call *call)
{
	leave(call);
	loop_timer_stop(call->loop, &call->stall);
	loop_timer_stop(call->loop, &call->report);
	curl_easy_cleanup(call->easy);
	http_headers_free(call->sent);
	http_headers_free(call->headers);
	http_headers_free(call->secrets);
	free(call->body);
	free(call->url);
	free(call->origin_url);
	free(call->what);
	free(call);
}

/* One answer, or the lack of one. */
static void count(struct http_call *call, uint64_t ns, int error)
{
	origin_count(call->client->origin, call->reply.status, ns, error);
	if (call->endpoint) {
		call->endpoint->requests++;
		call->endpoint->errors += error != 0;
	}
}

int http_same_version(struct http_answer *answer, const struct origin_attr *attr)
{
	switch (validator_check(attr, answer->reply)) {
	case VALIDATOR_SAME:
		return 0;
	case VALIDATOR_CHANGED:
		origin_fail(&answer->result, answer->text, -ESTALE, false,
			    "%s changed on the server", answer->what);
		break;
	case VALIDATOR_UNKNOWN:
		origin_fail(&answer->result, answer->text, -ESTALE, false,
			    "%s: the server does not say which version it has", answer->what);
		break;
	}
	return answer->result.error;
}

static int on_socket_made(void *arg, curl_socket_t fd, curlsocktype purpose)
{
	struct http_call *call = arg;

	(void)purpose;
	if (call->endpoint)
		endpoint_connected(call->endpoint, fd);
	return CURL_SOCKOPT_OK;
}

/* The connection is there, the request about to be sent: from now on bytes are due. */
static int on_connected(void *arg, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
	struct http_call *call = arg;

	(void)remote_ip;
	(void)local_ip;
	(void)remote_port;
	(void)local_port;
	call->last_ns = loop_now_ns();
	call->asked_ns = call->last_ns;
	loop_timer_start(call->loop, &call->stall, (uint64_t)call->client->stall_timeout_ms);
	return CURL_PREREQFUNC_OK;
}

/* What an answer means. */

static void by_curl(struct http_call *call, CURLcode code)
{
	const char *text = call->curl_text[0] ? call->curl_text : curl_easy_strerror(code);
	bool transient = true;
	int error = -EIO;

	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		origin_fail(&call->result, call->text, -ETIMEDOUT, true,
			    "%s: no connection within %ld ms", call->what,
			    call->client->connect_timeout_ms);
		return;
	case CURLE_PARTIAL_FILE:
		origin_fail(&call->result, call->text, -EIO, true,
			    "%s: the connection closed before the answer was whole", call->what);
		return;
	case CURLE_OUT_OF_MEMORY:
		error = -ENOMEM;
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_ENGINE_NOTFOUND:
	case CURLE_SSL_ENGINE_SETFAILED:
		origin_fail(&call->result, call->text, -EACCES, false,
			    "%s: TLS refused: %s (ca= names the authorities to trust)", call->what,
			    text);
		return;
	case CURLE_URL_MALFORMAT:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_FILESIZE_EXCEEDED:
	case CURLE_BAD_FUNCTION_ARGUMENT:
		transient = false;
		break;
	default:
		/* CURLE_UNSUPPORTED_PROTOCOL too: what is left of an answer that was too long. */
		break;
	}
	/* libcurl's own sentences name hosts and ports, no paths and no headers. */
	origin_fail(&call->result, call->text, error, transient, "%s: %s", call->what, text);
}

static void by_status(struct http_call *call)
{
	const struct http_reply *reply = &call->reply;
	unsigned int status = reply->status;
	bool transient = false;
	int error = -EIO;

	switch (status) {
	case 404:
	case 410:
		/* A version that is read was there: now it is gone. */
		origin_fail(&call->result, call->text, call->ranged ? -ESTALE : -ENOENT, false,
			    "%s: not found", call->what);
		return;
	case 401:
	case 403:
		origin_fail(&call->result, call->text, -EACCES, false,
			    "%s: the server refuses access (%u)", call->what, status);
		return;
	case 407:
		origin_fail(&call->result, call->text, -EACCES, false,
			    "%s: the proxy refuses access (407)", call->what);
		return;
	case 412:
		origin_fail(&call->result, call->text, -ESTALE, false, "%s changed on the server",
			    call->what);
		return;
	case 416:
		/* Asked within the known size: so it is another version, if it says a size. */
		if (call->ranged && (!reply->has_total || reply->total != call->attr.size))
			error = -ESTALE;
		break;
	case 408:
	case 425:
	case 429:
		transient = true;
		break;
	case 501:
	case 505:
		break;
	default:
		transient = status >= 500;
		break;
	}
	origin_fail(&call->result, call->text, error, transient, "%s: the server answered %u",
		    call->what, status);
}

static void by_length(struct http_call *call)
{
	if (call->ranged && call->reply.status == 206 && !call->accepted) {
		/* A body of no bytes never came to http_receive_bytes(). */
		if (!http_receive_accept(call))
			return;
	}
	if (call->ranged && call->got < call->len)
		origin_fail(&call->result, call->text, -EIO, true,
			    "%s: the server sent %" PRIu64 " bytes of %" PRIu64, call->what,
			    call->got, call->len);
}

/* Makes the last callback and frees. */
static void finish(struct http_call *call)
{
	struct http_answer answer;

	loop_timer_stop(call->loop, &call->stall);
	loop_timer_stop(call->loop, &call->report);
	count(call, loop_now_ns() - call->begin_ns, call->result.error);
	/* done() may end the origin. */
	leave(call);
	origin_count_bytes(call->client->origin, call->ranged ? call->got : call->body_len);
	call->result.status = call->reply.status;
	call->result.retry_after_ms = call->reply.retry_after_ms;
	if (call->progress && call->got > call->reported) {
		call->reporting = true;
		call->progress(call->arg, call->got);
		call->reporting = false;
		if (call->cancelled) {
			call_free(call);
			return;
		}
	}
	answer = (struct http_answer){
		.result = call->result,
		.reply = &call->reply,
		.what = call->what,
		.url = call->url,
		.body = call->body ? call->body : "",
		.body_len = call->body_len,
		.body_cut = call->body_cut,
		.to_slash = call->to_slash,
		.redirected = call->origin_url,
		.bytes = call->got,
		.text = call->text,
	};
	call->done(call->arg, &answer);
	call_free(call);
}

static void on_report(struct loop_timer *timer)
{
	struct http_call *call = container_of(timer, struct http_call, report);

	call->reported = call->got;
	call->reporting = true;
	call->progress(call->arg, call->got);
	call->reporting = false;
	if (call->cancelled)
		call_free(call);
}

static void on_stall(struct loop_timer *timer)
{
	struct http_call *call = container_of(timer, struct http_call, stall);
	uint64_t idle_ms = (loop_now_ns() - call->last_ns) / 1000000u;
	uint64_t limit_ms = (uint64_t)call->client->stall_timeout_ms;

	if (idle_ms < limit_ms) {
		loop_timer_start(call->loop, timer, limit_ms - idle_ms);
		return;
	}
	http_receive_look(call);
	loop_curl_remove(call->loop, call->easy);
	call->in_multi = false;
	origin_fail(&call->result, call->text, -ETIMEDOUT, true,
		    "%s: the server sent no byte for %ld ms", call->what,
		    call->client->stall_timeout_ms);
	finish(call);
}

/* Sending. */

static int add_lines(struct curl_slist **to, const struct curl_slist *from)
{
	for (; from; from = from->next) {
		struct curl_slist *grown = curl_slist_append(*to, from->data);

		if (!grown)
			return -ENOMEM;
		*to = grown;
	}
	return 0;
}

static void on_done(CURL *easy, CURLcode code, void *arg);

/* Puts call->url on the way, on a handle of its own. */
static int send_request(struct http_call *call)
{
	char range[64];
	bool secret = !call->origin_url || http_url_same_host(call->origin_url, call->url);
	int err;

	http_headers_free(call->sent);
	call->sent = NULL;
	err = add_lines(&call->sent, call->headers);
	if (!err && secret)
		err = add_lines(&call->sent, call->secrets);
	if (err)
		return err;
	if (!call->easy)
		call->easy = curl_easy_init();
	if (!call->easy)
		return -ENOMEM;
	curl_easy_reset(call->easy);
	memset(&call->reply, 0, sizeof(call->reply));
	call->in_body = false;
	call->curl_text[0] = '\0';
	leave(call);
	call->endpoint = endpoint_of(&call->client->origin->endpoints, call->url);
	if (call->endpoint)
		call->endpoint->in_flight++;

#define SET(option, value) curl_easy_setopt(call->easy, option, value)
	if (SET(CURLOPT_URL, call->url) || SET(CURLOPT_HTTPHEADER, call->sent) ||
	    SET(CURLOPT_USERAGENT, "wfs") ||
	    /* "" also sets aside what the environment says. */
	    SET(CURLOPT_PROXY, call->client->proxy ? call->client->proxy : ""))
		return -ENOMEM;
	if (call->client->ca && SET(CURLOPT_CAINFO, call->client->ca))
		return -ENOMEM;
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_NOPROGRESS, 1L);
	SET(CURLOPT_HTTP_CONTENT_DECODING, 0L);
	SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
	SET(CURLOPT_CONNECTTIMEOUT_MS, call->client->connect_timeout_ms);
	SET(CURLOPT_ERRORBUFFER, call->curl_text);
	SET(CURLOPT_HEADERFUNCTION, http_receive_header);
	SET(CURLOPT_HEADERDATA, call);
	SET(CURLOPT_WRITEFUNCTION, http_receive_bytes);
	SET(CURLOPT_WRITEDATA, call);
	SET(CURLOPT_PREREQFUNCTION, on_connected);
	SET(CURLOPT_PREREQDATA, call);
	SET(CURLOPT_SOCKOPTFUNCTION, on_socket_made);
	SET(CURLOPT_SOCKOPTDATA, call);
	if (call->head)
		SET(CURLOPT_NOBODY, 1L);
	if (call->ranged) {
		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, call->offset,
			 call->offset + call->len - 1);
		if (SET(CURLOPT_RANGE, range))
			return -ENOMEM;
	}
#undef SET
	err = loop_curl_add(call->loop, call->easy, on_done, call);
	call->in_multi = !err;
	return err;
}

/* True: another request is on its way. */
static bool follow(struct http_call *call)
{
	char *target = NULL, *copy;

	curl_easy_getinfo(call->easy, CURLINFO_REDIRECT_URL, &target);
	if (!call->client->follow || !target)
		return false;
	if (call->stop_at_slash && http_url_adds_slash(call->url, target)) {
		call->to_slash = true;
		return false;
	}
	if (++call->redirects > REDIRECTS_MAX) {
		origin_fail(&call->result, call->text, -EIO, false, "%s: more than %d redirects",
			    call->what, REDIRECTS_MAX);
		return false;
	}
	if (!strncasecmp(call->url, "https:", 6) && strncasecmp(target, "https:", 6)) {
		origin_fail(&call->result, call->text, -EACCES, false,
			    "%s: the server redirects from https to plain http", call->what);
		return false;
	}
	copy = strdup(target);
	if (!copy)
		return false;
	if (!call->origin_url)
		call->origin_url = call->url;
	else
		free(call->url);
	call->url = copy;
	loop_timer_stop(call->loop, &call->stall);
	count(call, 0, 0);
	return !send_request(call);
}

/*
 * A place that was redirected to refuses: its signature may have run out between the
 * two requests. Asked once more from the start. True: it is on its way.
 */
static bool resolve_again(struct http_call *call)
{
	unsigned int status = call->reply.status;

	if (!call->origin_url || call->resolved_again ||
	    (status != 400 && status != 401 && status != 403))
		return false;
	call->resolved_again = true;
	free(call->url);
	call->url = call->origin_url;
	call->origin_url = NULL;
	call->redirects = 0;
	call->body_len = 0;
	count(call, 0, -EACCES);
	return !send_request(call);
}

static void on_done(CURL *easy, CURLcode code, void *arg)
{
	struct http_call *call = arg;
	unsigned int class = call->reply.status / 100;

	(void)easy;
	call->in_multi = false;
	loop_timer_stop(call->loop, &call->stall);
	if (code == CURLE_OK && class == 3 && follow(call))
		return;
	if (code == CURLE_OK && class == 4 && resolve_again(call))
		return;
	if (call->result.error || call->to_slash)
		; /* all is said */
	else if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && call->complete))
		by_curl(call, code);
	else if (class != 2)
		by_status(call);
	else
		by_length(call);
	finish(call);
}

int http_start(const struct http_client *client, struct loop *loop,
	       const struct http_request *request, struct http_call **ret_call)
{
	struct http_call *call = calloc(1, sizeof(*call));
	int err;

	if (!call) {
		http_headers_free(request->headers);
		http_headers_free(request->secrets);
		return -ENOMEM;
	}
	call->client = client;
	call->loop = loop;
	call->headers = request->headers;
	call->secrets = request->secrets;
	call->head = request->head;
	call->stop_at_slash = request->stop_at_slash;
	call->progress = request->progress;
	call->done = request->done;
	call->arg = request->arg;
	call->dst = request->dst;
	call->offset = request->offset;
	call->len = request->len;
	call->ranged = request->dst;
	call->body_max = request->body_max;
	call->stall.expired = on_stall;
	call->report.expired = on_report;
	call->begin_ns = loop_now_ns();
	call->url = strdup(request->url);
	call->what = strdup(request->what);
	err = call->url && call->what ? 0 : -ENOMEM;
	/* Bytes as they are stored: a compressed transfer has other ranges. */
	if (!err)
		err = http_header(&call->headers, "Accept-Encoding", "identity");
	if (!err && call->ranged) {
		call->attr = *request->attr;
		err = validator_header(&call->attr, &call->headers);
	}
	if (!err)
		err = send_request(call);
	if (err) {
		call_free(call);
		return err;
	}
	*ret_call = call;
	return 0;
}

void http_cancel(struct http_call *call)
{
	/* Its origin may end before the call does. */
	leave(call);
	if (call->in_multi) {
		loop_curl_remove(call->loop, call->easy);
		call->in_multi = false;
	}
	/* Inside its own progress(): freed on return from there. */
	if (call->reporting)
		call->cancelled = true;
	else
		call_free(call);
}
