// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
static enum loop_kind kind;

static int set_up(void **state)
{
	(void)state;
	return loop_create_kind(&loop, 8, kind);
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

static void on_op(struct loop_op *op, int res)
{
	struct op *o = container_of(op, struct op, op);

	assert_ptr_equal(loop_self(), loop);
	o->res = res;
	o->calls++;
	if (!--left)
		loop_stop(loop);
}

/* More than a queue holds, at once; each ends once, with its own bytes. */
static void many_ops(void **state)
{
	static struct op ops[500];
	static char bytes[500][16];
	char name[] = "/var/tmp/wfs-test-loop-XXXXXX", text[17];
	int fd = mkstemp(name);

	(void)state;
	assert_true(fd >= 0);
	unlink(name);
	memset(ops, 0, sizeof(ops));
	for (int pass = 0; pass < 2; pass++) {
		left = 500;
		for (int i = 0; i < 500; i++) {
			ops[i].op.done = on_op;
			ops[i].calls = 0;
			snprintf(text, sizeof(text), "%016d", i);
			if (pass) {
				memset(bytes[i], 0, 16);
				loop_read(loop, &ops[i].op, fd, bytes[i], 16, (uint64_t)i * 16);
			} else {
				memcpy(bytes[i], text, 16);
				loop_write(loop, &ops[i].op, fd, bytes[i], 16, (uint64_t)i * 16);
			}
			assert_int_equal(ops[i].calls, 0);
		}
		assert_int_equal(loop_run(loop), 0);
		for (int i = 0; i < 500; i++) {
			snprintf(text, sizeof(text), "%016d", i);
			assert_int_equal(ops[i].calls, 1);
			assert_int_equal(ops[i].res, 16);
			assert_memory_equal(bytes[i], text, 16);
		}
	}
	/* Behind the end, and what cannot be. */
	left = 2;
	loop_read(loop, &ops[0].op, fd, bytes[0], 16, 500 * 16 - 4);
	loop_read(loop, &ops[1].op, -1, bytes[1], 16, 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(ops[0].res, 4);
	assert_int_equal(ops[1].res, -EBADF);
	close(fd);
}

static void polls(void **state)
{
	struct op in = { .op.done = on_op }, out = { .op.done = on_op };
	char byte;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	for (int i = 0; i < 3; i++) {
		left = 1;
		loop_poll(loop, &in.op, fds[0], POLLIN);
		loop_poll(loop, &out.op, fds[1], POLLOUT);
		assert_int_equal(loop_run(loop), 0);
		assert_int_equal(out.res, POLLOUT);
		assert_int_equal(out.calls, i + 1);
		/* Once only, although it still can be written. */
		assert_int_equal(in.calls, i);
		left = 1;
		assert_int_equal(write(fds[1], "x", 1), 1);
		assert_int_equal(loop_run(loop), 0);
		assert_int_equal(in.res, POLLIN);
		assert_int_equal(in.calls, i + 1);
		assert_int_equal(out.calls, i + 1);
		assert_int_equal(read(fds[0], &byte, 1), 1);
	}
	close(fds[0]);
	left = 1;
	loop_poll(loop, &out.op, fds[1], POLLIN);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(out.res, POLLERR);
	close(fds[1]);
}

static void cancelled_op(void **state)
{
	struct op op = { .op.done = on_op };
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	left = 1;
	loop_poll(loop, &op.op, fds[0], POLLIN);
	loop_cancel(loop, &op.op);
	assert_int_equal(op.calls, 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(op.res, -ECANCELED);
	assert_int_equal(op.calls, 1);
	/* The descriptor can be polled again. */
	left = 1;
	loop_poll(loop, &op.op, fds[0], POLLIN);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(op.res, POLLIN);
	assert_int_equal(op.calls, 2);
	close(fds[0]);
	close(fds[1]);
}

static struct op pair[2];

static void on_first(struct loop_op *op, int res)
{
	struct op *o = container_of(op, struct op, op);

	if (!pair[0].calls && !pair[1].calls)
		loop_cancel(loop, &pair[o == &pair[0]].op);
	on_op(op, res);
}

/* Two have ended together, and the first to be told cancels the other. */
static void cancelled_when_ended(void **state)
{
	int fds[2][2];

	(void)state;
	memset(pair, 0, sizeof(pair));
	left = 2;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pipe(fds[i]), 0);
		assert_int_equal(write(fds[i][1], "x", 1), 1);
		pair[i].op.done = on_first;
		loop_poll(loop, &pair[i].op, fds[i][0], POLLIN);
	}
	assert_int_equal(loop_run(loop), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair[i].calls, 1);
		assert_true(pair[i].res == POLLIN || pair[i].res == -ECANCELED);
		close(fds[i][0]);
		close(fds[i][1]);
	}
}

/* A thread's read that has not begun is taken back; one that has ends as it would have. */
static void cancelled_reads(void **state)
{
	static struct op ops[64];
	static char bytes[64][65536];
	int fd = open("/proc/self/exe", O_RDONLY);

	(void)state;
	assert_true(fd >= 0);
	memset(ops, 0, sizeof(ops));
	left = 64;
	for (int i = 0; i < 64; i++) {
		ops[i].op.done = on_op;
		loop_read(loop, &ops[i].op, fd, bytes[i], 65536, 0);
	}
	for (int i = 63; i >= 0; i--)
		loop_cancel(loop, &ops[i].op);
	assert_int_equal(loop_run(loop), 0);
	for (int i = 0; i < 64; i++) {
		assert_int_equal(ops[i].calls, 1);
		assert_true(ops[i].res == 65536 || ops[i].res == -ECANCELED);
	}
	close(fd);
}

/* A command that the device does not know, or the loop cannot send. */
static void command(void **state)
{
	struct op op = { .op.done = on_op };
	char bytes[80] = "";
	int fd = open("/dev/null", O_RDWR);

	(void)state;
	assert_int_equal(loop_commands(loop), kind == LOOP_URING);
	left = 1;
	loop_command(loop, &op.op, fd, 1, bytes, sizeof(bytes));
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(op.calls, 1);
	/* /dev/null takes any command, if its kernel is not old. */
	assert_true(op.res == -EOPNOTSUPP || (kind == LOOP_URING && !op.res));
	close(fd);
}

static void kept_files(void **state)
{
	int fds[2] = { 0, 1 };

	(void)state;
	assert_int_equal(loop_keep_files(loop, fds, 2), 0);
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
	assert_int_equal(loop_create_kind(&other, 8, kind), 0);
	loop_stop(other);
	loop_destroy(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers),
		cmocka_unit_test(posts),
		cmocka_unit_test(many_ops),
		cmocka_unit_test(polls),
		cmocka_unit_test(cancelled_op),
		cmocka_unit_test(cancelled_when_ended),
		cmocka_unit_test(cancelled_reads),
		cmocka_unit_test(command),
		cmocka_unit_test(kept_files),
		cmocka_unit_test(transfer),
		cmocka_unit_test(destroyed_while_stopping),
	};
	const char *why;
	int failed = 0;

	/* A machine without io_uring has the other kind to try. */
	kind = LOOP_URING;
	if (loop_kind(&why) == LOOP_URING)
		failed += cmocka_run_group_tests_name("loop, io_uring", tests, set_up, tear_down);
	kind = LOOP_EPOLL;
	ran = 0;
	failed += cmocka_run_group_tests_name("loop, epoll", tests, set_up, tear_down);
	return failed;
}
