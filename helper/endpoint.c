// SPDX-License-Identifier: MIT
#include "endpoint.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cleanup.h"

/* Connections with a higher descriptor are not looked at. */
#define ENDPOINT_FDS 16384

/* What the last look at a descriptor's connection said; its thread's only. */
static struct {
	uint32_t retransmits, out_of_order;
} endpoint_seen[ENDPOINT_FDS];

void endpoints_init(struct endpoints *endpoints)
{
	*endpoints = (struct endpoints){ .lock = PTHREAD_MUTEX_INITIALIZER };
}

void endpoints_clear(struct endpoints *endpoints)
{
	while (endpoints->first) {
		struct endpoint *endpoint = endpoints->first;

		endpoints->first = endpoint->next;
		free(endpoint->name);
		free(endpoint);
	}
	pthread_mutex_destroy(&endpoints->lock);
}

/* "https://host:port" of a URL: where in it, and its length. The start is the scheme's. */
static size_t endpoint_cut(const char *url, const char **ret_host)
{
	const char *sep = strstr(url, "://");
	const char *host = sep ? sep + 3 : url;
	size_t len = strcspn(host, "/?#");
	const char *at = memrchr(host, '@', len);

	/* Who asks is nobody's business. */
	if (at) {
		len -= (size_t)(at + 1 - host);
		host = at + 1;
	}
	*ret_host = host;
	return len;
}

static bool endpoint_is(const struct endpoint *endpoint, const char *url, size_t scheme,
			const char *host, size_t len)
{
	return strlen(endpoint->name) == scheme + len && !memcmp(endpoint->name, url, scheme) &&
	       !memcmp(endpoint->name + scheme, host, len);
}

static struct endpoint *endpoint_new(const char *url, size_t scheme, const char *host, size_t len)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));

	if (!endpoint)
		return NULL;
	endpoint->name = malloc(scheme + len + 1);
	if (!endpoint->name) {
		free(endpoint);
		return NULL;
	}
	memcpy(endpoint->name, url, scheme);
	memcpy(endpoint->name + scheme, host, len);
	endpoint->name[scheme + len] = '\0';
	return endpoint;
}

struct endpoint *endpoint_of(struct endpoints *endpoints, const char *url)
{
	const char *sep = strstr(url, "://"), *host;
	size_t scheme = sep ? (size_t)(sep + 3 - url) : 0;
	size_t len = endpoint_cut(url, &host);
	struct endpoint *endpoint;

	SCOPED_LOCK(&endpoints->lock);
	if (endpoints->count >= ENDPOINT_MAX) {
		for (endpoint = endpoints->first; endpoint; endpoint = endpoint->next)
			if (endpoint_is(endpoint, url, scheme, host, len))
				return endpoint;
		url = "others";
		host = url;
		scheme = 0;
		len = strlen(url);
	}
	for (endpoint = endpoints->first; endpoint; endpoint = endpoint->next)
		if (endpoint_is(endpoint, url, scheme, host, len))
			return endpoint;
	endpoint = endpoint_new(url, scheme, host, len);
	if (!endpoint)
		return NULL;
	endpoint->next = endpoints->first;
	endpoints->first = endpoint;
	endpoints->count++;
	return endpoint;
}

void endpoint_connected(struct endpoint *endpoint, int fd)
{
	endpoint->connections++;
	if (fd >= 0 && fd < ENDPOINT_FDS) {
		endpoint_seen[fd].retransmits = 0;
		endpoint_seen[fd].out_of_order = 0;
	}
}

void endpoint_look(struct endpoint *endpoint, int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (fd < 0 || fd >= ENDPOINT_FDS || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    len < offsetof(struct tcp_info, tcpi_pacing_rate))
		return;
	if (info.tcpi_rtt) {
		endpoint->rtts++;
		endpoint->rtt_us += info.tcpi_rtt;
		endpoint->last_rtt_us = info.tcpi_rtt;
	}
	endpoint->window = info.tcpi_snd_cwnd;
	/* Older kernels leave the latter at 0. */
	endpoint->retransmits += info.tcpi_total_retrans - endpoint_seen[fd].retransmits;
	endpoint->out_of_order += info.tcpi_rcv_ooopack - endpoint_seen[fd].out_of_order;
	endpoint_seen[fd].retransmits = info.tcpi_total_retrans;
	endpoint_seen[fd].out_of_order = info.tcpi_rcv_ooopack;
}

void endpoints_each(struct endpoints *endpoints, endpoint_fn fn, void *arg)
{
	SCOPED_LOCK(&endpoints->lock);

	for (struct endpoint *e = endpoints->first; e; e = e->next) {
		const struct endpoint_counters counters = {
			.requests = e->requests,
			.errors = e->errors,
			.in_flight = e->in_flight,
			.answers = e->answers,
			.connections = e->connections,
			.rtts = e->rtts,
			.retransmits = e->retransmits,
			.out_of_order = e->out_of_order,
			.window = e->window,
			.latency_seconds = (double)e->latency_ns * 1e-9,
			.rtt_seconds = (double)e->rtt_us * 1e-6,
			.last_rtt_seconds = (double)e->last_rtt_us * 1e-6,
		};

		fn(arg, e->name, &counters);
	}
}
