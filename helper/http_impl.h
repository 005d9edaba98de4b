/* SPDX-License-Identifier: MIT */
/* http_impl: a request under way, for http and http_receive. Not for others. */
#ifndef WFS_HTTP_IMPL_H
#define WFS_HTTP_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "endpoint.h"
#include "http.h"
#include "loop.h"
#include "origin_impl.h"

struct http_call {
	const struct http_client *client;
	struct loop *loop;
	CURL *easy;
	char *url, *what;
	char *origin_url; /* of the first request, for comparison; NULL: not redirected */
	struct curl_slist *headers, *secrets, *sent;
	bool head, ranged, in_multi, stop_at_slash, to_slash, resolved_again;
	struct origin_attr attr;
	void (*progress)(void *arg, uint64_t bytes);
	void (*done)(void *arg, struct http_answer *answer);
	void *arg;

	char *dst;
	uint64_t offset, len;
	uint64_t got;	   /* bytes at dst */
	uint64_t skip;	   /* bytes to pass over first: the server ignored Range */
	uint64_t reported; /* by progress() */
	bool accepted;	   /* the head was found good for dst */
	bool complete;	   /* the rest of the body is not wanted */

	char *body;
	size_t body_len, body_size, body_max;
	bool body_cut;

	struct http_reply reply;
	bool in_body;		     /* trailers are no headers */
	struct origin_result result; /* set while receiving: ends the transfer */
	char text[ORIGIN_MESSAGE_MAX];
	char curl_text[CURL_ERROR_SIZE];

	unsigned int redirects;
	struct endpoint *endpoint; /* of url; NULL: no memory */
	uint64_t begin_ns;
	uint64_t asked_ns; /* when the request was sent; 0: its answer has begun */
	uint64_t look_ns;  /* when TCP was asked last */
	uint64_t last_ns;  /* of the last byte; 0: not connected */
	struct loop_timer stall, report;
	bool reporting, cancelled;
};

/* http_receive: on the loop's thread, from inside libcurl. arg is the call. */
size_t http_receive_header(char *data, size_t size, size_t items, void *arg);
size_t http_receive_bytes(char *data, size_t size, size_t items, void *arg);
/* Whether the head that came goes with what was asked; false: result says why not. */
bool http_receive_accept(struct http_call *call);
/* Asks TCP. Only while libcurl has the connection, so that it is surely this one. */
void http_receive_look(struct http_call *call);

#endif /* WFS_HTTP_IMPL_H */
