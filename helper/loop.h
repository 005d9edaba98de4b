/* SPDX-License-Identifier: MIT */
/*
 * loop: one worker's event loop: files, sockets, timers, libcurl.
 *
 * A loop belongs to one thread. Everything here is called from that thread
 * unless it says "any thread". Completions, timers and posted tasks run from
 * loop_run(), one at a time, never from inside a call that starts them.
 *
 * There are two kinds: one on io_uring, and, where that is not to be had, one on
 * epoll with a few threads that read and write files.
 */
#ifndef WFS_LOOP_H
#define WFS_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <curl/curl.h>

struct loop;

/* Work handed over by another thread. Owned by the caller until run() is called. */
struct loop_task {
	void (*run)(struct loop_task *task);
	struct loop_task *next;
};

/* Something under way. Owned by the caller, alive until done() is called. */
struct loop_op {
	/* res as the system call would have returned it, or -errno. */
	void (*done)(struct loop_op *op, int res);
	/* What follows is the loop's. */
	struct loop_op *next;
	struct loop_task task;
	void *bytes;
	uint64_t offset;
	unsigned int len;
	int fd, res;
	bool write, armed;
};

/* A one-shot timer. Zero it before first use; owned by the caller. */
struct loop_timer {
	void (*expired)(struct loop_timer *timer);
	uint64_t at_ns; /* CLOCK_MONOTONIC; 0: not running */
	struct loop_timer *prev, *next;
};

enum loop_kind { LOOP_URING, LOOP_EPOLL };

/*
 * The kind that this process uses, found out at the first call: io_uring if the kernel
 * lets it have a ring; WFS_TRANSPORT=ioctl and =io_uring in the environment force it.
 * *ret_why is a sentence for the log. Any thread.
 */
enum loop_kind loop_kind(const char **ret_why);

/* @entries: operations that can be prepared before the kernel must be told of them. */
int loop_create(struct loop **ret, unsigned int entries);
/* The same of a given kind, for tests. */
int loop_create_kind(struct loop **ret, unsigned int entries, enum loop_kind kind);
/* Frees the loop. No operation, timer or transfer may be under way. */
void loop_destroy(struct loop *loop);
/* Runs until loop_stop(). Returns 0 or -errno of the ring or the epoll set itself. */
int loop_run(struct loop *loop);
/* Any thread. */
void loop_stop(struct loop *loop);

/*
 * Operations. op->done is set by the caller, op otherwise zeroed before its first use.
 * They cannot fail to start: what goes wrong is told to done().
 */

/* Of regular files and block devices; at most INT_MAX bytes, may be short. */
void loop_read(struct loop *loop, struct loop_op *op, int fd, void *bytes, unsigned int len,
	       uint64_t offset);
void loop_write(struct loop *loop, struct loop_op *op, int fd, const void *bytes, unsigned int len,
		uint64_t offset);
/* Once, for POLLIN, POLLOUT. res: what is there, as poll(2) says. One for a descriptor at a time. */
void loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned int events);
/*
 * A command to a device, IORING_OP_URING_CMD: up to 80 bytes, copied. Where loop_commands()
 * says false, it ends with -EOPNOTSUPP.
 */
void loop_command(struct loop *loop, struct loop_op *op, int fd, uint32_t code, const void *command,
		  size_t len);
bool loop_commands(const struct loop *loop);
/* Asks for an operation under way to end early; done() is still called, once. */
void loop_cancel(struct loop *loop, struct loop_op *op);

/*
 * Ties open files to the loop, once in its life: they stay open, with the locks on them,
 * until nothing that the loop has begun is under way, even where the process has died.
 */
int loop_keep_files(struct loop *loop, const int *fds, unsigned int count);

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
