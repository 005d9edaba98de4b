// SPDX-License-Identifier: MIT
/*
 * loop_epoll: a loop without io_uring: sockets and events by epoll, files by threads
 * (loop_pool.c).
 *
 * A descriptor's place in the epoll set is made by its first poll and stays, disarmed by
 * EPOLLONESHOT, until the descriptor is closed or its poll cancelled.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "loop_impl.h"

#define BATCH 64

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR &&
		       EPOLLHUP == POLLHUP && EPOLLPRI == POLLPRI,
	       "epoll and poll have the same bits");

struct epoll {
	struct loop loop; /* first */
	int fd;
	struct loop_pool *pool;
	/* What has ended, on this thread, and is to be told by dispatch. */
	struct loop_op *ended, **ended_end;
};

static struct epoll *of(struct loop *loop)
{
	return container_of(loop, struct epoll, loop);
}

static void end(struct epoll *e, struct loop_op *op, int res)
{
	op->armed = false;
	op->res = res;
	op->next = NULL;
	*e->ended_end = op;
	e->ended_end = &op->next;
}

static void file_done(struct loop_task *task)
{
	struct loop_op *op = container_of(task, struct loop_op, task);

	op->done(op, op->res);
}

static void epoll_file(struct loop *loop, struct loop_op *op)
{
	op->armed = false;
	op->task.run = file_done;
	loop_pool_start(of(loop)->pool, op);
}

static void epoll_poll(struct loop *loop, struct loop_op *op, unsigned int events)
{
	struct epoll *e = of(loop);
	struct epoll_event event = { .events = events | EPOLLONESHOT, .data.ptr = op };

	op->armed = true;
	if (!epoll_ctl(e->fd, EPOLL_CTL_MOD, op->fd, &event))
		return;
	if (errno == ENOENT && !epoll_ctl(e->fd, EPOLL_CTL_ADD, op->fd, &event))
		return;
	/* A regular file is always ready, and no member of any set. */
	end(e, op, errno == EPERM ? (int)events : -errno);
}

static void epoll_cancel(struct loop *loop, struct loop_op *op)
{
	struct epoll *e = of(loop);

	if (op->armed) {
		/* It fails where the descriptor is closed already: then it has gone by itself. */
		epoll_ctl(e->fd, EPOLL_CTL_DEL, op->fd, NULL);
		end(e, op, -ECANCELED);
	} else if (loop_pool_take_back(e->pool, op)) {
		end(e, op, -ECANCELED);
	}
}

/*
 * Nothing to do: a thread's read or write ends before the process does, and the files
 * that are open stay so until its last thread has gone.
 */
static int epoll_keep_files(struct loop *loop, const int *fds, unsigned int count)
{
	(void)loop;
	(void)fds;
	(void)count;
	return 0;
}

static int epoll_wait_some(struct loop *loop, int64_t ns)
{
	struct epoll *e = of(loop);
	struct epoll_event events[BATCH];
	int64_t ms = ns < 0 ? -1 : (ns + 999999) / 1000000;
	int n;

	if (e->ended)
		ms = 0;
	/* More than the call takes: it is looked at again then. */
	if (ms > 3600000)
		ms = 3600000;
	n = epoll_wait(e->fd, events, BATCH, (int)ms);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	/* All before the first is told: that may cancel another of them. */
	for (int i = 0; i < n; i++)
		end(e, events[i].data.ptr, (int)(events[i].events & 0xffff));
	return 0;
}

static void epoll_dispatch(struct loop *loop)
{
	struct epoll *e = of(loop);
	struct loop_op *op = e->ended, *next;

	e->ended = NULL;
	e->ended_end = &e->ended;
	for (; op; op = next) {
		/* It may be gone, or under way again, once it has been told. */
		next = op->next;
		op->done(op, op->res);
	}
}

static int epoll_create_loop(struct loop **ret, unsigned int entries)
{
	struct epoll *e = calloc(1, sizeof(*e));
	int err;

	(void)entries;
	if (!e)
		return -ENOMEM;
	e->ended_end = &e->ended;
	e->fd = epoll_create1(EPOLL_CLOEXEC);
	err = e->fd < 0 ? -errno : loop_pool_create(&e->loop, &e->pool);
	if (err) {
		if (e->fd >= 0)
			close(e->fd);
		free(e);
		return err;
	}
	*ret = &e->loop;
	return 0;
}

static void epoll_destroy(struct loop *loop)
{
	struct epoll *e = of(loop);

	loop_pool_destroy(e->pool);
	close(e->fd);
}

const struct loop_backend loop_epoll = {
	.create = epoll_create_loop,
	.destroy = epoll_destroy,
	.read = epoll_file,
	.write = epoll_file,
	.poll = epoll_poll,
	.cancel = epoll_cancel,
	.keep_files = epoll_keep_files,
	.wait = epoll_wait_some,
	.dispatch = epoll_dispatch,
};
