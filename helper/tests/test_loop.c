// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "container.h"
#include "loop.h"

#define SENDERS 4
#define TASKS	1000

static struct loop *loop;

static int set_up(void **state)
{
	(void)state;
	return loop_create(&loop, 8);
}

static int tear_down(void **state)
{
	(void)state;
	loop_destroy(loop);
	return 0;
}

struct note {
	struct loop_timer timer;
	int id;
};

static int order[16];
static size_t expired;

static void on_expired(struct loop_timer *timer)
{
	struct note *note = container_of(timer, struct note, timer);

	order[expired++] = note->id;
	if (!note->id)
		loop_stop(loop);
}

static void timers(void **state)
{
	static const uint64_t ms[] = { 60, 20, 40, 20, 0, 30 };
	struct note notes[6];

	(void)state;
	expired = 0;
	for (int i = 0; i < 6; i++) {
		notes[i] = (struct note){ .timer.expired = on_expired, .id = i };
		loop_timer_start(loop, &notes[i].timer, ms[i]);
	}
	/* Stopped, and started again for another time. */
	loop_timer_stop(loop, &notes[5].timer);
	loop_timer_start(loop, &notes[2].timer, 10);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(expired, 5);
	assert_int_equal(order[0], 4);
	assert_int_equal(order[1], 2);
	assert_int_equal(order[2], 1);
	assert_int_equal(order[3], 3);
	assert_int_equal(order[4], 0);
	assert_int_equal(notes[0].timer.at_ns, 0);
}

struct job {
	struct loop_task task;
	int sender, number;
};

static struct job jobs[SENDERS][TASKS];
static int last[SENDERS];
static int ran;

static void on_job(struct loop_task *task)
{
	struct job *job = container_of(task, struct job, task);

	assert_ptr_equal(loop_self(), loop);
	/* In the order of each sender. */
	assert_int_equal(job->number, last[job->sender] + 1);
	last[job->sender] = job->number;
	if (++ran == SENDERS * TASKS)
		loop_stop(loop);
}

static void *send_jobs(void *arg)
{
	int sender = (int)(intptr_t)arg;

	for (int i = 0; i < TASKS; i++) {
		jobs[sender][i] = (struct job){ .task.run = on_job, .sender = sender, .number = i };
		loop_post(loop, &jobs[sender][i].task);
	}
	return NULL;
}

static void posts(void **state)
{
	pthread_t threads[SENDERS];

	(void)state;
	assert_null(loop_self());
	for (int i = 0; i < SENDERS; i++) {
		last[i] = -1;
		assert_int_equal(pthread_create(&threads[i], NULL, send_jobs, (void *)(intptr_t)i),
				 0);
	}
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(ran, SENDERS * TASKS);
	for (int i = 0; i < SENDERS; i++)
		pthread_join(threads[i], NULL);
}

struct op {
	struct loop_op op;
	int res, calls;
};

static int left;

static void on_op(struct loop_op *op, int res, uint32_t flags)
{
	struct op *o = container_of(op, struct op, op);

	(void)flags;
	o->res = res;
	o->calls++;
	if (!--left)
		loop_stop(loop);
}

/* More than the queue holds, at once. */
static void many_ops(void **state)
{
	static struct op ops[500];

	(void)state;
	left = 500;
	for (int i = 0; i < 500; i++) {
		ops[i].op.done = on_op;
		io_uring_prep_nop(loop_sqe(loop, &ops[i].op));
	}
	assert_int_equal(loop_run(loop), 0);
	for (int i = 0; i < 500; i++) {
		assert_int_equal(ops[i].calls, 1);
		assert_int_equal(ops[i].res, 0);
	}
}

static void cancelled_op(void **state)
{
	struct op op = { .op.done = on_op };
	char byte;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	left = 1;
	io_uring_prep_read(loop_sqe(loop, &op.op), fds[0], &byte, 1, 0);
	loop_cancel(loop, &op.op);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(op.res, -ECANCELED);
	assert_int_equal(op.calls, 1);
	close(fds[0]);
	close(fds[1]);
}

static void on_file(CURL *easy, CURLcode result, void *arg)
{
	(void)easy;
	*(int *)arg = (int)result;
	loop_stop(loop);
}

static void transfer(void **state)
{
	CURL *easy = curl_easy_init();
	int result = -1;

	(void)state;
	/* Nobody listens there. */
	curl_easy_setopt(easy, CURLOPT_URL, "http://127.0.0.1:1/");
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	assert_int_equal(loop_curl_add(loop, easy, on_file, &result), 0);
	assert_int_equal(result, -1);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(result, CURLE_COULDNT_CONNECT);
	/* Taken out again before it did anything. */
	result = -1;
	assert_int_equal(loop_curl_add(loop, easy, on_file, &result), 0);
	loop_curl_remove(loop, easy);
	assert_int_equal(result, -1);
	curl_easy_cleanup(easy);
}

static void destroyed_while_stopping(void **state)
{
	struct loop *other;

	(void)state;
	assert_int_equal(loop_create(&other, 8), 0);
	loop_stop(other);
	loop_destroy(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers),   cmocka_unit_test(posts),
		cmocka_unit_test(many_ops), cmocka_unit_test(cancelled_op),
		cmocka_unit_test(transfer), cmocka_unit_test(destroyed_while_stopping),
	};

	return cmocka_run_group_tests_name("loop", tests, set_up, tear_down);
}
