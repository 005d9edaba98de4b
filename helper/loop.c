// SPDX-License-Identifier: MIT
/*
 * loop: what both kinds have in common: timers, posted tasks, the order of a turn.
 * libcurl's part is in loop_curl.c.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "loop_impl.h"

static _Thread_local struct loop *self;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode once_result;

static pthread_once_t chosen = PTHREAD_ONCE_INIT;
static enum loop_kind choice;
static char choice_why[160];

static void global_init(void)
{
	struct sigaction old;

	once_result = curl_global_init(CURL_GLOBAL_DEFAULT);
	/* A peer that closes early is an error of one transfer, not a signal. */
	if (!sigaction(SIGPIPE, NULL, &old) && old.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
}

static void choose(void)
{
	const char *forced = getenv("WFS_TRANSPORT");
	int err;

	if (forced && !strcmp(forced, "ioctl")) {
		choice = LOOP_EPOLL;
		snprintf(choice_why, sizeof(choice_why),
			 "epoll and threads, as WFS_TRANSPORT says");
		return;
	}
	choice = LOOP_URING;
	if (forced && !strcmp(forced, "io_uring")) {
		snprintf(choice_why, sizeof(choice_why), "io_uring, as WFS_TRANSPORT says");
		return;
	}
	err = loop_uring_probe();
	if (!err) {
		snprintf(choice_why, sizeof(choice_why), "io_uring");
		return;
	}
	choice = LOOP_EPOLL;
	snprintf(choice_why, sizeof(choice_why),
		 "epoll and threads: the kernel gives no io_uring ring (%s%s)", strerror(-err),
		 err == -EPERM ? "; kernel.io_uring_disabled or seccomp" : "");
}

enum loop_kind loop_kind(const char **ret_why)
{
	pthread_once(&chosen, choose);
	*ret_why = choice_why;
	return choice;
}

uint64_t loop_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct loop *loop_self(void)
{
	return self;
}

struct loop_curl *loop_curl(struct loop *loop)
{
	return loop->curl;
}

/* Operations. */

void loop_read(struct loop *loop, struct loop_op *op, int fd, void *bytes, unsigned int len,
	       uint64_t offset)
{
	op->fd = fd;
	op->bytes = bytes;
	op->len = len;
	op->offset = offset;
	op->write = false;
	loop->backend->read(loop, op);
}

void loop_write(struct loop *loop, struct loop_op *op, int fd, const void *bytes, unsigned int len,
		uint64_t offset)
{
	op->fd = fd;
	op->bytes = (void *)(uintptr_t)bytes;
	op->len = len;
	op->offset = offset;
	op->write = true;
	loop->backend->write(loop, op);
}

void loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned int events)
{
	op->fd = fd;
	loop->backend->poll(loop, op, events);
}

bool loop_commands(const struct loop *loop)
{
	return loop->commands;
}

static void unsupported(struct loop_task *task)
{
	struct loop_op *op = container_of(task, struct loop_op, task);

	op->done(op, -EOPNOTSUPP);
}

void loop_command(struct loop *loop, struct loop_op *op, int fd, uint32_t code, const void *command,
		  size_t len)
{
	op->fd = fd;
	if (loop->commands) {
		loop->backend->command(loop, op, code, command, len);
		return;
	}
	op->task.run = unsupported;
	loop_post(loop, &op->task);
}

void loop_cancel(struct loop *loop, struct loop_op *op)
{
	loop->backend->cancel(loop, op);
}

int loop_keep_files(struct loop *loop, const int *fds, unsigned int count)
{
	return loop->backend->keep_files(loop, fds, count);
}

/* Tasks of other threads. */

static void event_arm(struct loop *loop)
{
	loop_poll(loop, &loop->event_op, loop->event_fd, POLLIN);
	loop->event_armed = true;
}

static void run_tasks(struct loop *loop)
{
	struct loop_task *task, *next;

	pthread_mutex_lock(&loop->lock);
	task = loop->tasks;
	loop->tasks = NULL;
	loop->tasks_end = &loop->tasks;
	pthread_mutex_unlock(&loop->lock);

	for (; task; task = next) {
		/* The task may be gone, or posted again, once it has run. */
		next = task->next;
		task->run(task);
	}
}

static void event_done(struct loop_op *op, int res)
{
	struct loop *loop = container_of(op, struct loop, event_op);
	uint64_t count;

	(void)res;
	loop->event_armed = false;
	if (loop->closing)
		return;
	if (read(loop->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	event_arm(loop);
	run_tasks(loop);
}

static void event_ring(struct loop *loop)
{
	uint64_t one = 1;
	ssize_t n;

	/* EAGAIN: the counter is full, so it is readable already. */
	do {
		n = write(loop->event_fd, &one, sizeof(one));
	} while (n < 0 && errno == EINTR);
}

void loop_post(struct loop *loop, struct loop_task *task)
{
	bool first;

	task->next = NULL;
	pthread_mutex_lock(&loop->lock);
	first = !loop->tasks;
	*loop->tasks_end = task;
	loop->tasks_end = &task->next;
	pthread_mutex_unlock(&loop->lock);
	if (first)
		event_ring(loop);
}

void loop_stop(struct loop *loop)
{
	__atomic_store_n(&loop->stop, true, __ATOMIC_RELEASE);
	event_ring(loop);
}

/* Timers. */

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t ms)
{
	struct loop_timer *at;

	loop_timer_stop(loop, timer);
	timer->at_ns = loop_now_ns() + ms * 1000000u;
	/* Most timers are later than those already there. */
	for (at = loop->timers.prev; at != &loop->timers; at = at->prev) {
		if (at->at_ns <= timer->at_ns)
			break;
	}
	timer->prev = at;
	timer->next = at->next;
	at->next->prev = timer;
	at->next = timer;
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer)
{
	(void)loop;
	if (!timer->at_ns)
		return;
	timer->prev->next = timer->next;
	timer->next->prev = timer->prev;
	timer->at_ns = 0;
}

static void run_timers(struct loop *loop)
{
	struct loop_timer *timer = loop->timers.next;
	uint64_t now;

	if (timer == &loop->timers)
		return;
	/* Read once: a timer that starts itself again at 0 ms waits its turn. */
	now = loop_now_ns();
	while ((timer = loop->timers.next) != &loop->timers && timer->at_ns <= now) {
		loop_timer_stop(loop, timer);
		timer->expired(timer);
	}
}

/* Running. */

static int turn(struct loop *loop)
{
	struct loop_timer *timer = loop->timers.next;
	int64_t ns = -1;
	int err;

	if (timer != &loop->timers) {
		uint64_t now = loop_now_ns();

		ns = timer->at_ns > now ? (int64_t)(timer->at_ns - now) : 0;
	}
	err = loop->backend->wait(loop, ns);
	if (err)
		return err;
	loop->backend->dispatch(loop);
	/* A call that nobody ended is left alone: whoever waits for it has gone. */
	if (!loop->closing)
		run_timers(loop);
	return 0;
}

int loop_run(struct loop *loop)
{
	int err = 0;

	self = loop;
	while (!err && !__atomic_load_n(&loop->stop, __ATOMIC_ACQUIRE))
		err = turn(loop);
	__atomic_store_n(&loop->stop, false, __ATOMIC_RELEASE);
	self = NULL;
	return err;
}

int loop_create_kind(struct loop **ret, unsigned int entries, enum loop_kind kind)
{
	const struct loop_backend *backend = kind == LOOP_URING ? &loop_uring : &loop_epoll;
	struct loop *loop;
	int err;

	pthread_once(&once, global_init);
	if (once_result != CURLE_OK)
		return -ENOMEM;
	err = backend->create(&loop, entries);
	if (err)
		return err;
	loop->backend = backend;
	loop->timers.prev = &loop->timers;
	loop->timers.next = &loop->timers;
	loop->tasks_end = &loop->tasks;
	loop->event_op.done = event_done;
	pthread_mutex_init(&loop->lock, NULL);
	loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = loop->event_fd < 0 ? -errno : loop_curl_create(&loop->curl, loop);
	if (err) {
		backend->destroy(loop);
		if (loop->event_fd >= 0)
			close(loop->event_fd);
		pthread_mutex_destroy(&loop->lock);
		free(loop);
		return err;
	}
	event_arm(loop);
	*ret = loop;
	return 0;
}

int loop_create(struct loop **ret, unsigned int entries)
{
	const char *why;

	return loop_create_kind(ret, entries, loop_kind(&why));
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	loop->closing = true;
	loop_curl_close(loop->curl);
	if (loop->event_armed)
		loop_cancel(loop, &loop->event_op);
	/* Polls that were cancelled still complete, into memory of ours. */
	while (loop->event_armed || loop_curl_polls(loop->curl)) {
		if (turn(loop))
			break;
	}
	loop_curl_destroy(loop->curl);
	/* Its threads may still post. */
	loop->backend->destroy(loop);
	close(loop->event_fd);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}
