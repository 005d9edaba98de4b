/* SPDX-License-Identifier: MIT */
/*
 * loop: one worker's event loop, an io_uring ring that also drives libcurl.
 *
 * A loop belongs to one thread. Everything here is called from that thread
 * unless it says "any thread". Completions, timers and posted tasks run from
 * loop_run(), one at a time, never from inside a call that starts them.
 */
#ifndef WFS_LOOP_H
#define WFS_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <curl/curl.h>
#include <liburing.h>

struct loop;

/* One submission. Owned by the caller, alive until done() is called. */
struct loop_op {
	/* res and flags as in the CQE. */
	void (*done)(struct loop_op *op, int res, uint32_t flags);
};

/* A one-shot timer. Zero it before first use; owned by the caller. */
struct loop_timer {
	void (*expired)(struct loop_timer *timer);
	uint64_t at_ns; /* CLOCK_MONOTONIC; 0: not running */
	struct loop_timer *prev, *next;
};

/* Work handed over by another thread. Owned by the caller until run() is called. */
struct loop_task {
	void (*run)(struct loop_task *task);
	struct loop_task *next;
};

/* @entries: submission queue entries (128 bytes each). */
int loop_create(struct loop **ret, unsigned int entries);
/* Frees the loop. No operation, timer or transfer may be under way. */
void loop_destroy(struct loop *loop);
/* Runs until loop_stop(). Returns 0 or -errno of the ring itself. */
int loop_run(struct loop *loop);
/* Any thread. */
void loop_stop(struct loop *loop);

/*
 * A zeroed 128 byte SQE whose completion calls op->done. Never NULL: a full
 * queue is submitted first. What was prepared is submitted before the loop waits.
 */
struct io_uring_sqe *loop_sqe(struct loop *loop, struct loop_op *op);
/* Asks the kernel to cancel op; done() is still called, once. */
void loop_cancel(struct loop *loop, struct loop_op *op);
/* The ring itself, for registrations. */
struct io_uring *loop_ring(struct loop *loop);

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t ms);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

/* Any thread: run task->run(task) on the loop's thread. */
void loop_post(struct loop *loop, struct loop_task *task);

/*
 * Starts a transfer. done() is called once with the transfer's result; the
 * handle is then out of the multi handle and the caller's again. To cancel,
 * loop_curl_remove(): done() is then not called. CURLOPT_PRIVATE and
 * CURLOPT_SHARE belong to the loop meanwhile. Neither function may be called from
 * inside one of libcurl's own callbacks (write, header); start a 0 ms timer there.
 */
typedef void (*loop_curl_fn)(CURL *easy, CURLcode result, void *arg);
int loop_curl_add(struct loop *loop, CURL *easy, loop_curl_fn done, void *arg);
void loop_curl_remove(struct loop *loop, CURL *easy);
/* The socket that a transfer under way uses, or -1: not known. Its callbacks may ask. */
int loop_curl_fd(CURL *easy);
/* Limits the connections to one host: so many for data, and a few more for names. */
void loop_curl_limit(struct loop *loop, long connections_per_host);

/* CLOCK_MONOTONIC. Any thread. */
uint64_t loop_now_ns(void);

/* The loop of the calling thread, NULL outside of loop_run(). */
struct loop *loop_self(void);

#endif /* WFS_LOOP_H */
