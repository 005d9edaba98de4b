// SPDX-License-Identifier: MIT
/* http_receive: an answer as it comes in, head and body: callbacks of libcurl's. */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http_impl.h"
#include "validator.h"

#define ERROR_BODY_MAX (64u << 10)
/* A server that ignores Range sends the head of the file as well: so much is skipped. */
#define SKIP_MAX (64u << 20)
/* How often TCP is asked during one transfer; once after each head in any case. */
#define LOOK_NS 200000000u

void http_receive_look(struct http_call *call)
{
	call->look_ns = loop_now_ns();
	if (call->endpoint)
		endpoint_look(call->endpoint, loop_curl_fd(call->easy));
}

bool http_receive_accept(struct http_call *call)
{
	const struct http_reply *reply = &call->reply;

	if (reply->status == 206) {
		uint64_t announced;

		if (!reply->has_range || reply->range_first != call->offset ||
		    reply->range_last - reply->range_first >= call->len) {
			origin_fail(&call->result, call->text, -EIO, true,
				    "%s: the server sent another range than bytes %" PRIu64
				    " to %" PRIu64,
				    call->what, call->offset, call->offset + call->len - 1);
			return false;
		}
		announced = reply->range_last - reply->range_first + 1;
		if (reply->has_length && reply->length != announced) {
			origin_fail(&call->result, call->text, -EIO, true,
				    "%s: the server announced %" PRIu64
				    " bytes for a range of %" PRIu64,
				    call->what, reply->length, announced);
			return false;
		}
		/* Less than asked is the server's right; the caller asks for the rest. */
		call->len = announced;
	} else {
		call->skip = call->offset;
	}

	switch (validator_check(&call->attr, reply)) {
	case VALIDATOR_SAME:
		break;
	case VALIDATOR_CHANGED:
		origin_fail(&call->result, call->text, -ESTALE, false, "%s changed on the server",
			    call->what);
		return false;
	case VALIDATOR_UNKNOWN:
		origin_fail(&call->result, call->text, -EIO, false,
			    "%s: the server does not say which version it sent", call->what);
		return false;
	}

	if (reply->status != 206 && call->offset + call->len > SKIP_MAX) {
		origin_fail(&call->result, call->text, -EIO, false,
			    "%s: the server does not answer ranged requests, which files beyond %u MiB need",
			    call->what, SKIP_MAX >> 20);
		return false;
	}
	return true;
}

static size_t to_dst(struct http_call *call, const char *data, size_t len)
{
	size_t n = len, copied = 0;

	if (!call->accepted) {
		if (!http_receive_accept(call))
			return CURL_WRITEFUNC_ERROR;
		call->accepted = true;
	}
	if (call->skip) {
		size_t skipped = call->skip < n ? (size_t)call->skip : n;

		call->skip -= skipped;
		data += skipped;
		n -= skipped;
	}
	if (call->got + n > call->len) {
		if (call->reply.status == 206) {
			origin_fail(&call->result, call->text, -EIO, true,
				    "%s: the server sent more than the range of %" PRIu64 " bytes",
				    call->what, call->len);
			/* None of it is trusted. */
			call->got = 0;
			return CURL_WRITEFUNC_ERROR;
		}
		n = (size_t)(call->len - call->got);
		call->complete = true;
	}
	copied = n;
	memcpy(call->dst + call->got, data, copied);
	call->got += copied;
	/* Bytes are reported, in one go, once libcurl has returned. */
	/* Without a length the end is yet to show whether the answer is what it says. */
	if (copied && call->progress && call->reply.has_length && !call->report.at_ns)
		loop_timer_start(call->loop, &call->report, 0);
	return call->complete ? CURL_WRITEFUNC_ERROR : len;
}

static size_t to_body(struct http_call *call, const char *data, size_t len, size_t limit)
{
	if (len > limit - call->body_len) {
		call->body_cut = true;
		call->complete = true;
		return CURL_WRITEFUNC_ERROR;
	}
	if (call->body_len + len + 1 > call->body_size) {
		size_t size = call->body_size ? call->body_size : 4096;
		char *grown;

		while (size < call->body_len + len + 1)
			size *= 2;
		grown = realloc(call->body, size);
		if (!grown) {
			origin_fail(&call->result, call->text, -ENOMEM, true, "out of memory");
			return CURL_WRITEFUNC_ERROR;
		}
		call->body = grown;
		call->body_size = size;
	}
	memcpy(call->body + call->body_len, data, len);
	call->body_len += len;
	call->body[call->body_len] = '\0';
	return len;
}

size_t http_receive_bytes(char *data, size_t size, size_t items, void *arg)
{
	struct http_call *call = arg;
	size_t len = size * items;

	call->in_body = true;
	call->last_ns = loop_now_ns();
	if (call->last_ns - call->look_ns > LOOK_NS)
		http_receive_look(call);
	if (call->reply.status / 100 == 3)
		return len;
	if (call->reply.status / 100 != 2)
		return to_body(call, data, len, ERROR_BODY_MAX);
	if (call->ranged)
		return to_dst(call, data, len);
	return to_body(call, data, len, call->body_max);
}

/*
 * A server that sends head and body apart, with Nagle's algorithm on, holds the body
 * until the head is acknowledged: radosgw does so as it comes. At once, then, rather
 * than after the 40 ms of a delayed acknowledgement.
 */
static void acknowledge(struct http_call *call)
{
	int fd = loop_curl_fd(call->easy), on = 1;

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
}

size_t http_receive_header(char *data, size_t size, size_t items, void *arg)
{
	struct http_call *call = arg;

	call->last_ns = loop_now_ns();
	if (call->endpoint && call->asked_ns) {
		call->endpoint->answers++;
		call->endpoint->latency_ns += call->last_ns - call->asked_ns;
	}
	call->asked_ns = 0;
	if (!call->in_body)
		http_reply_line(&call->reply, data, size * items);
	if (size * items <= 2) {
		acknowledge(call);
		http_receive_look(call);
	}
	return size * items;
}
