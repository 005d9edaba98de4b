/* SPDX-License-Identifier: MIT */
/*
 * http: one HTTP request on a loop by libcurl, and what its answer means.
 *
 *	http_start -> progress()* -> done()	or	http_cancel
 *
 * One attempt; redirects are followed. Everything on the loop's thread; callbacks
 * are made outside of libcurl, so they may start and cancel requests.
 */
#ifndef WFS_HTTP_H
#define WFS_HTTP_H

#include <curl/curl.h>

#include "http_reply.h"
#include "origin.h"

struct http_call;
struct loop;
struct origin;

/* What all requests of an origin have in common; alive as long as its requests. */
struct http_client {
	struct origin *origin; /* for its counters */
	char *ca, *proxy;      /* or NULL */
	long connect_timeout_ms, stall_timeout_ms;
	bool follow; /* redirects */
};

/* Copies from settings, with the defaults. 0 or -ENOMEM; http_client_clear() in any case. */
int http_client_init(struct http_client *client, struct origin *origin,
		     const struct origin_settings *settings);
void http_client_clear(struct http_client *client);

/* How a request ended; valid in done(). */
struct http_answer {
	struct origin_result result; /* by status and transport; the caller may judge anew */
	const struct http_reply *reply;
	const char *what; /* as in the request */
	const char *url;  /* that answered, after redirects; may hold a signature: not for people */
	const char *body; /* NUL-terminated: the body, or that of an error answer */
	size_t body_len;
	bool to_slash;	 /* redirected to the same path with '/': a directory */
	bool redirected; /* it is not the first URL that answered */
	bool body_cut;	 /* longer than body_max */
	uint64_t bytes;	 /* at dst */
	char *text;	 /* ORIGIN_MESSAGE_MAX bytes for a sentence in result */
};

struct http_request {
	const char *url;
	const char *what; /* names the object to people, without secrets */
	bool head;
	bool stop_at_slash;	    /* do not follow a redirect that only adds '/': see to_slash */
	struct curl_slist *headers; /* taken over, also on failure */
	struct curl_slist *secrets; /* the same; not sent to another host after a redirect */
	/*
	 * A ranged read: [offset, offset + len) of the version in attr goes to dst,
	 * or nothing does. NULL dst: the body is kept, up to body_max bytes.
	 */
	const struct origin_attr *attr; /* copied */
	void *dst;
	uint64_t offset, len;
	/* Bytes at dst so far; may be NULL. */
	void (*progress)(void *arg, uint64_t bytes);
	size_t body_max;
	void (*done)(void *arg, struct http_answer *answer);
	void *arg;
};

/* Strings are copied. The Range line and validators are added here. */
int http_start(const struct http_client *client, struct loop *loop,
	       const struct http_request *request, struct http_call **ret_call);
/* No callback is made any more. */
void http_cancel(struct http_call *call);

/* Is it the version of attr? If not, or if it does not say, -errno, and its result is set. */
int http_same_version(struct http_answer *answer, const struct origin_attr *attr);

/* Appends "name: value" to a list. 0 or -ENOMEM. */
int http_header(struct curl_slist **headers, const char *name, const char *value);
/* Zeroes the lines, which may hold secrets. */
void http_headers_free(struct curl_slist *headers);

#endif /* WFS_HTTP_H */
