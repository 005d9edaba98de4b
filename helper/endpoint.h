/* SPDX-License-Identifier: MIT */
/*
 * endpoint: what is known of the servers that an origin is reached at: how long they take
 * to answer, and what TCP says of the way there.
 *
 * One list an origin, of the scheme, host and port of each server that was asked, those
 * behind redirects included. Any thread.
 */
#ifndef WFS_ENDPOINT_H
#define WFS_ENDPOINT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* More servers than this of one origin count as one, named "others". */
#define ENDPOINT_MAX 16

struct endpoint {
	struct endpoint *next;
	char *name; /* "https://host:port" as in the URL, no user, no path */
	_Atomic uint64_t requests, errors;
	_Atomic uint64_t in_flight;
	_Atomic uint64_t answers, latency_ns; /* from the request to the first byte of its answer */
	_Atomic uint64_t connections;
	_Atomic uint64_t rtts, rtt_us; /* looks at a connection, and the sum of what it said */
	_Atomic uint64_t last_rtt_us;  /* smoothed by TCP */
	_Atomic uint64_t window; /* congestion window from here, in segments, at the last look */
	_Atomic uint64_t retransmits;  /* segments that were sent again from here */
	_Atomic uint64_t out_of_order; /* that came out of order: lost or overtaken on their way */
};

/* Zero it first; entries live as long as the list. */
struct endpoints {
	pthread_mutex_t lock;
	struct endpoint *first;
	unsigned int count;
};

void endpoints_init(struct endpoints *endpoints);
void endpoints_clear(struct endpoints *endpoints);
/* The server that a URL names, new if need be; NULL: no memory. */
struct endpoint *endpoint_of(struct endpoints *endpoints, const char *url);

/* Connections are told by their descriptor: to be called when it is new, before it connects. */
void endpoint_connected(struct endpoint *endpoint, int fd);
/*
 * Asks TCP, and adds what came since the last look at this connection. Only while fd is
 * sure to be that connection, on the thread that has it.
 */
void endpoint_look(struct endpoint *endpoint, int fd);

/* A copy of the figures. */
struct endpoint_counters {
	uint64_t requests, errors, in_flight, answers, connections, rtts, retransmits, out_of_order;
	uint64_t window;
	double latency_seconds, rtt_seconds; /* sums over answers and rtts */
	double last_rtt_seconds;
};
/* Calls fn for each. fn may not ask for endpoints. */
typedef void (*endpoint_fn)(void *arg, const char *name, const struct endpoint_counters *counters);
void endpoints_each(struct endpoints *endpoints, endpoint_fn fn, void *arg);

#endif /* WFS_ENDPOINT_H */
