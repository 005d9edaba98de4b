// SPDX-License-Identifier: MIT
/*
 * loop: the ring, timers, posted tasks. libcurl's part is in loop_curl.c.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "container.h"
#include "loop_curl.h"

/* Completions handled before timers and the submission queue get their turn. */
#define BATCH 64

struct completion {
	struct loop_op *op;
	int res;
	uint32_t flags;
};

struct loop {
	struct io_uring ring;
	struct loop_curl *curl;

	/* Sorted by at_ns, both ends in the head. */
	struct loop_timer timers;

	int event_fd;
	struct loop_op event_op;
	bool event_armed;
	bool closing; /* loop_destroy(): nothing is armed again */

	pthread_mutex_t lock; /* tasks */
	struct loop_task *tasks, **tasks_end;
	bool stop; /* atomic */

	/* Taken off the ring while its queues were full, not yet handed on. */
	struct completion *backlog;
	size_t backlog_count, backlog_size;
};

static _Thread_local struct loop *self;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode once_result;

static void global_init(void)
{
	struct sigaction old;

	once_result = curl_global_init(CURL_GLOBAL_DEFAULT);
	/* A peer that closes early is an error of one transfer, not a signal. */
	if (!sigaction(SIGPIPE, NULL, &old) && old.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
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

struct io_uring *loop_ring(struct loop *loop)
{
	return &loop->ring;
}

struct loop_curl *loop_curl(struct loop *loop)
{
	return loop->curl;
}

/*
 * The newest set of flags that this kernel takes. Without 128 byte entries the
 * ring still serves everything but commands on the device.
 */
static int ring_create(struct io_uring *ring, unsigned int entries)
{
	static const unsigned int sets[] = {
		IORING_SETUP_SQE128 | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_SQE128,
		0,
	};
	int err = -EINVAL;

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		struct io_uring_params params = {
			.flags = sets[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
			.cq_entries = entries * 4,
		};

		err = io_uring_queue_init_params(entries, ring, &params);
		if (err != -EINVAL)
			break;
	}
	return err;
}

static void event_arm(struct loop *loop)
{
	struct io_uring_sqe *sqe = loop_sqe(loop, &loop->event_op);

	io_uring_prep_poll_add(sqe, loop->event_fd, POLLIN);
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

static void event_done(struct loop_op *op, int res, uint32_t flags)
{
	struct loop *loop = container_of(op, struct loop, event_op);
	uint64_t count;

	(void)res;
	(void)flags;
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

/* Makes room on the ring while no completion may be handed on. */
static void reap_aside(struct loop *loop)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&loop->ring, &cqe)) {
		if (loop->backlog_count == loop->backlog_size) {
			size_t size = loop->backlog_size ? loop->backlog_size * 2 : 256;
			struct completion *grown;

			grown = reallocarray(loop->backlog, size, sizeof(*grown));
			if (!grown)
				return;
			loop->backlog = grown;
			loop->backlog_size = size;
		}
		loop->backlog[loop->backlog_count++] = (struct completion){
			.op = io_uring_cqe_get_data(cqe),
			.res = cqe->res,
			.flags = cqe->flags,
		};
		io_uring_cqe_seen(&loop->ring, cqe);
	}
}

struct io_uring_sqe *loop_sqe(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe;
	size_t size = sizeof(*sqe);

	while (!(sqe = io_uring_get_sqe(&loop->ring))) {
		if (io_uring_submit(&loop->ring) < 0)
			reap_aside(loop);
	}
	if (loop->ring.flags & IORING_SETUP_SQE128)
		size *= 2;
	memset(sqe, 0, size);
	io_uring_sqe_set_data(sqe, op);
	return sqe;
}

void loop_cancel(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe = loop_sqe(loop, NULL);

	io_uring_prep_cancel(sqe, op, 0);
}

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

static void hand_on(struct loop_op *op, int res, uint32_t flags)
{
	if (op)
		op->done(op, res, flags);
}

static void run_completions(struct loop *loop)
{
	struct completion batch[BATCH];
	struct io_uring_cqe *cqe;
	unsigned int count = 0;

	/* Oldest first: what was put aside came before what is on the ring. */
	while (loop->backlog_count) {
		struct completion *list = loop->backlog;
		size_t n = loop->backlog_count;

		loop->backlog = NULL;
		loop->backlog_count = 0;
		loop->backlog_size = 0;
		for (size_t i = 0; i < n; i++)
			hand_on(list[i].op, list[i].res, list[i].flags);
		free(list);
	}

	while (count < BATCH && !io_uring_peek_cqe(&loop->ring, &cqe)) {
		batch[count++] = (struct completion){
			.op = io_uring_cqe_get_data(cqe),
			.res = cqe->res,
			.flags = cqe->flags,
		};
		io_uring_cqe_seen(&loop->ring, cqe);
	}
	for (unsigned int i = 0; i < count; i++)
		hand_on(batch[i].op, batch[i].res, batch[i].flags);
}

/* Submits what was prepared and sleeps until a completion or the next timer. */
static int wait_some(struct loop *loop)
{
	struct loop_timer *timer = loop->timers.next;
	struct __kernel_timespec ts, *wait = NULL;
	struct io_uring_cqe *cqe;
	uint64_t now, left = 0;
	int err;

	if (loop->backlog_count || io_uring_cq_ready(&loop->ring)) {
		err = io_uring_submit(&loop->ring);
	} else {
		if (timer != &loop->timers) {
			now = loop_now_ns();
			if (timer->at_ns > now)
				left = timer->at_ns - now;
			ts.tv_sec = (long long)(left / 1000000000u);
			ts.tv_nsec = (long long)(left % 1000000000u);
			wait = &ts;
		}
		err = io_uring_submit_and_wait_timeout(&loop->ring, &cqe, 1, wait, NULL);
	}
	if (err == -ETIME || err == -EINTR || err == -EAGAIN || err == -EBUSY)
		return 0;
	return err < 0 ? err : 0;
}

static int turn(struct loop *loop)
{
	int err = wait_some(loop);

	if (err)
		return err;
	run_completions(loop);
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

int loop_create(struct loop **ret, unsigned int entries)
{
	struct loop *loop;
	int err;

	pthread_once(&once, global_init);
	if (once_result != CURLE_OK)
		return -ENOMEM;
	loop = calloc(1, sizeof(*loop));
	if (!loop)
		return -ENOMEM;
	loop->timers.prev = &loop->timers;
	loop->timers.next = &loop->timers;
	loop->tasks_end = &loop->tasks;
	loop->event_op.done = event_done;
	pthread_mutex_init(&loop->lock, NULL);
	loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = loop->event_fd < 0 ? -errno : 0;
	if (err)
		goto free_loop;
	err = ring_create(&loop->ring, entries);
	if (err)
		goto close_event;
	err = loop_curl_create(&loop->curl, loop);
	if (err)
		goto exit_ring;
	event_arm(loop);
	*ret = loop;
	return 0;

exit_ring:
	io_uring_queue_exit(&loop->ring);
close_event:
	close(loop->event_fd);
free_loop:
	pthread_mutex_destroy(&loop->lock);
	free(loop);
	return err;
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
	io_uring_queue_exit(&loop->ring);
	loop_curl_destroy(loop->curl);
	close(loop->event_fd);
	pthread_mutex_destroy(&loop->lock);
	free(loop->backlog);
	free(loop);
}
