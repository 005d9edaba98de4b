// SPDX-License-Identifier: MIT
/*
 * loop_curl: libcurl says which sockets and which time-out it waits for; here
 * they become polls of the loop and a timer.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "container.h"
#include "loop_curl.h"

struct loop_curl {
	struct loop *loop;
	CURLM *multi;
	CURLSH *share;
	struct loop_timer timer;
	unsigned int polls; /* armed ones */
};

/* A socket of libcurl's. Freed when libcurl has let go of it and no poll is armed. */
struct socket {
	struct loop_op op;
	struct loop_curl *lc;
	curl_socket_t fd;
	unsigned int armed; /* POLLIN, POLLOUT of the poll under way; 0: none */
	unsigned int wanted;
	bool gone;
	bool busy; /* in poll_done(), which frees */
};

/* A transfer in the multi handle, as CURLOPT_PRIVATE. */
struct transfer {
	loop_curl_fn done;
	void *arg;
	curl_socket_t fd; /* as libcurl last told, -1: not yet */
};

static struct loop_curl *of_timer(struct loop_timer *timer)
{
	return container_of(timer, struct loop_curl, timer);
}

/* Takes the handle out. What is left of it is the caller's. */
static struct transfer detach(struct loop_curl *lc, CURL *easy)
{
	struct transfer *transfer = NULL, copy;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
	curl_multi_remove_handle(lc->multi, easy);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, NULL);
	curl_easy_setopt(easy, CURLOPT_SHARE, NULL);
	copy = *transfer;
	free(transfer);
	return copy;
}

static void collect(struct loop_curl *lc)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(lc->multi, &left))) {
		struct transfer transfer;
		CURLcode result;
		CURL *easy;

		if (msg->msg != CURLMSG_DONE)
			continue;
		/* The message does not outlive the handle's removal. */
		easy = msg->easy_handle;
		result = msg->data.result;
		transfer = detach(lc, easy);
		transfer.done(easy, result, transfer.arg);
	}
}

static void action(struct loop_curl *lc, curl_socket_t fd, int events)
{
	int running;

	curl_multi_socket_action(lc->multi, fd, events, &running);
	collect(lc);
}

static void timer_expired(struct loop_timer *timer)
{
	action(of_timer(timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct loop_curl *lc = arg;

	(void)multi;
	if (timeout_ms < 0)
		loop_timer_stop(lc->loop, &lc->timer);
	else
		loop_timer_start(lc->loop, &lc->timer, (uint64_t)timeout_ms);
	return 0;
}

static void poll_arm(struct socket *s)
{
	loop_poll(s->lc->loop, &s->op, s->fd, s->wanted);
	s->armed = s->wanted;
	s->lc->polls++;
}

static void poll_done(struct loop_op *op, int res)
{
	struct socket *s = container_of(op, struct socket, op);
	struct loop_curl *lc = s->lc;
	int events = 0;

	s->armed = 0;
	lc->polls--;
	if (!s->gone && res != -ECANCELED) {
		if (res < 0 || (res & (POLLERR | POLLNVAL)))
			events |= CURL_CSELECT_ERR;
		if (res > 0 && (res & (POLLIN | POLLHUP)))
			events |= CURL_CSELECT_IN;
		if (res > 0 && (res & POLLOUT))
			events |= CURL_CSELECT_OUT;
		s->busy = true;
		action(lc, s->fd, events);
		s->busy = false;
	}
	if (s->gone)
		free(s);
	else if (s->wanted && !s->armed)
		poll_arm(s);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct loop_curl *lc = arg;
	struct socket *s = socket_arg;
	struct transfer *transfer = NULL;

	if (!curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer) && transfer)
		transfer->fd = what == CURL_POLL_REMOVE ? CURL_SOCKET_BAD : fd;
	if (what == CURL_POLL_REMOVE) {
		if (!s)
			return 0;
		curl_multi_assign(lc->multi, fd, NULL);
		s->gone = true;
		if (s->armed)
			loop_cancel(lc->loop, &s->op);
		else if (!s->busy)
			free(s);
		return 0;
	}
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -1;
		s->op.done = poll_done;
		s->lc = lc;
		s->fd = fd;
		curl_multi_assign(lc->multi, fd, s);
	}
	s->wanted = (what & CURL_POLL_IN ? POLLIN : 0u) | (what & CURL_POLL_OUT ? POLLOUT : 0u);
	if (s->armed) {
		/* poll_done() arms it anew. */
		if (s->armed != s->wanted)
			loop_cancel(lc->loop, &s->op);
	} else if (s->wanted && !s->busy) {
		poll_arm(s);
	}
	return 0;
}

int loop_curl_add(struct loop *loop, CURL *easy, loop_curl_fn done, void *arg)
{
	struct loop_curl *lc = loop_curl(loop);
	struct transfer *transfer = malloc(sizeof(*transfer));

	if (!transfer)
		return -ENOMEM;
	*transfer = (struct transfer){ .done = done, .arg = arg, .fd = CURL_SOCKET_BAD };
	curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
	curl_easy_setopt(easy, CURLOPT_SHARE, lc->share);
	if (curl_multi_add_handle(lc->multi, easy) != CURLM_OK) {
		curl_easy_setopt(easy, CURLOPT_PRIVATE, NULL);
		curl_easy_setopt(easy, CURLOPT_SHARE, NULL);
		free(transfer);
		return -ENOMEM;
	}
	return 0;
}

void loop_curl_remove(struct loop *loop, CURL *easy)
{
	detach(loop_curl(loop), easy);
}

int loop_curl_fd(CURL *easy)
{
	struct transfer *transfer = NULL;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
	return transfer ? transfer->fd : -1;
}

void loop_curl_limit(struct loop *loop, long connections_per_host)
{
	CURLM *multi = loop_curl(loop)->multi;

	/* A few more, so that a name does not queue behind data. */
	curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, connections_per_host + 4);
	/* Idle ones that are kept: the default grows with the number of transfers. */
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 4 * connections_per_host);
}

int loop_curl_create(struct loop_curl **ret, struct loop *loop)
{
	struct loop_curl *lc = calloc(1, sizeof(*lc));

	if (!lc)
		return -ENOMEM;
	lc->loop = loop;
	lc->timer.expired = timer_expired;
	lc->multi = curl_multi_init();
	/* TLS sessions are resumed across transfers; one thread, so no locks. */
	lc->share = curl_share_init();
	if (!lc->multi || !lc->share) {
		curl_multi_cleanup(lc->multi);
		curl_share_cleanup(lc->share);
		free(lc);
		return -ENOMEM;
	}
	curl_share_setopt(lc->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
	curl_multi_setopt(lc->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(lc->multi, CURLMOPT_SOCKETDATA, lc);
	curl_multi_setopt(lc->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(lc->multi, CURLMOPT_TIMERDATA, lc);
	curl_multi_setopt(lc->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	*ret = lc;
	return 0;
}

void loop_curl_close(struct loop_curl *lc)
{
	curl_multi_cleanup(lc->multi);
	lc->multi = NULL;
	loop_timer_stop(lc->loop, &lc->timer);
	curl_share_cleanup(lc->share);
	lc->share = NULL;
}

unsigned int loop_curl_polls(const struct loop_curl *lc)
{
	return lc->polls;
}

void loop_curl_destroy(struct loop_curl *lc)
{
	free(lc);
}
