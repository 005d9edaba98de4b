// SPDX-License-Identifier: MIT
/*
 * loop_uring: a loop on an io_uring ring.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "loop_impl.h"

/* Completions handled before timers and the submission queue get their turn. */
#define BATCH 64

struct completion {
	struct loop_op *op;
	int res;
};

struct uring {
	struct loop loop; /* first */
	struct io_uring ring;
	/* Taken off the ring while its queues were full, not yet handed on. */
	struct completion *backlog;
	size_t backlog_count, backlog_size;
};

static struct uring *of(struct loop *loop)
{
	return container_of(loop, struct uring, loop);
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

/* A filter of system calls may let a ring be made and not be used. */
int loop_uring_probe(void)
{
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int err = ring_create(&ring, 1);

	if (err)
		return err;
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_nop(sqe);
	err = io_uring_submit_and_wait(&ring, 1);
	if (err >= 0)
		err = io_uring_peek_cqe(&ring, &cqe);
	io_uring_queue_exit(&ring);
	return err;
}

/* Makes room on the ring while no completion may be handed on. */
static void reap_aside(struct uring *u)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&u->ring, &cqe)) {
		if (u->backlog_count == u->backlog_size) {
			size_t size = u->backlog_size ? u->backlog_size * 2 : 256;
			struct completion *grown;

			grown = reallocarray(u->backlog, size, sizeof(*grown));
			if (!grown)
				return;
			u->backlog = grown;
			u->backlog_size = size;
		}
		u->backlog[u->backlog_count++] = (struct completion){
			.op = io_uring_cqe_get_data(cqe),
			.res = cqe->res,
		};
		io_uring_cqe_seen(&u->ring, cqe);
	}
}

/*
 * A zeroed SQE. Never NULL: a full queue is submitted first. What was prepared is
 * submitted before the loop waits. Its data is set last: liburing's io_uring_prep_*()
 * of some versions clear it.
 */
static struct io_uring_sqe *entry(struct uring *u)
{
	struct io_uring_sqe *sqe;
	size_t size = sizeof(*sqe);

	while (!(sqe = io_uring_get_sqe(&u->ring))) {
		if (io_uring_submit(&u->ring) < 0)
			reap_aside(u);
	}
	if (u->ring.flags & IORING_SETUP_SQE128)
		size *= 2;
	memset(sqe, 0, size);
	return sqe;
}

static void uring_read(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe = entry(of(loop));

	io_uring_prep_read(sqe, op->fd, op->bytes, op->len, op->offset);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_write(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe = entry(of(loop));

	io_uring_prep_write(sqe, op->fd, op->bytes, op->len, op->offset);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_poll(struct loop *loop, struct loop_op *op, unsigned int events)
{
	struct io_uring_sqe *sqe = entry(of(loop));

	io_uring_prep_poll_add(sqe, op->fd, events);
	io_uring_sqe_set_data(sqe, op);
}

/* No fixed file and no fixed buffer: a parked command would block the release of later ones. */
static void uring_command(struct loop *loop, struct loop_op *op, uint32_t code, const void *command,
			  size_t len)
{
	struct io_uring_sqe *sqe = entry(of(loop));

	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = op->fd;
	sqe->cmd_op = code;
	memcpy(sqe->cmd, command, len);
	io_uring_sqe_set_data(sqe, op);
}

static void uring_cancel(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe = entry(of(loop));

	io_uring_prep_cancel(sqe, op, 0);
	io_uring_sqe_set_data(sqe, NULL);
}

/* What is on its way outlives the process, and the ring with it: so do its files. */
static int uring_keep_files(struct loop *loop, const int *fds, unsigned int count)
{
	return io_uring_register_files(&of(loop)->ring, fds, count);
}

/* Submits what was prepared, too. */
static int uring_wait(struct loop *loop, int64_t ns)
{
	struct uring *u = of(loop);
	struct __kernel_timespec ts = {
		.tv_sec = ns / 1000000000,
		.tv_nsec = ns % 1000000000,
	};
	struct io_uring_cqe *cqe;
	int err;

	if (u->backlog_count || io_uring_cq_ready(&u->ring))
		err = io_uring_submit(&u->ring);
	else
		err = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, ns < 0 ? NULL : &ts,
						       NULL);
	if (err == -ETIME || err == -EINTR || err == -EAGAIN || err == -EBUSY)
		return 0;
	return err < 0 ? err : 0;
}

static void hand_on(const struct completion *completion)
{
	if (completion->op)
		completion->op->done(completion->op, completion->res);
}

static void uring_dispatch(struct loop *loop)
{
	struct uring *u = of(loop);
	struct completion batch[BATCH];
	struct io_uring_cqe *cqe;
	unsigned int count = 0;

	/* Oldest first: what was put aside came before what is on the ring. */
	while (u->backlog_count) {
		struct completion *list = u->backlog;
		size_t n = u->backlog_count;

		u->backlog = NULL;
		u->backlog_count = 0;
		u->backlog_size = 0;
		for (size_t i = 0; i < n; i++)
			hand_on(&list[i]);
		free(list);
	}

	while (count < BATCH && !io_uring_peek_cqe(&u->ring, &cqe)) {
		batch[count++] = (struct completion){
			.op = io_uring_cqe_get_data(cqe),
			.res = cqe->res,
		};
		io_uring_cqe_seen(&u->ring, cqe);
	}
	for (unsigned int i = 0; i < count; i++)
		hand_on(&batch[i]);
}

static int uring_create(struct loop **ret, unsigned int entries)
{
	struct uring *u = calloc(1, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	err = ring_create(&u->ring, entries);
	if (err) {
		free(u);
		return err;
	}
	u->loop.commands = u->ring.flags & IORING_SETUP_SQE128;
	*ret = &u->loop;
	return 0;
}

static void uring_destroy(struct loop *loop)
{
	struct uring *u = of(loop);

	io_uring_queue_exit(&u->ring);
	free(u->backlog);
}

const struct loop_backend loop_uring = {
	.create = uring_create,
	.destroy = uring_destroy,
	.read = uring_read,
	.write = uring_write,
	.poll = uring_poll,
	.command = uring_command,
	.cancel = uring_cancel,
	.keep_files = uring_keep_files,
	.wait = uring_wait,
	.dispatch = uring_dispatch,
};
