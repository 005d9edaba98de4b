/* SPDX-License-Identifier: MIT */
/*
 * chan: the channel, spoken by hand, for tests that say what a helper would not.
 *
 * Nothing is checked or corrected here. Results are 0 or more, or -errno.
 */
#ifndef WFS_TESTS_CHAN_H
#define WFS_TESTS_CHAN_H

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wfs.h>

struct chan {
	int fd;	 /* said hello */
	int wfd; /* attached: slots, ring */
	uint64_t session;
	char *memory; /* registered */
	size_t memory_len;
	const char *slots;
	unsigned int slot_count;
	struct io_uring ring;
	bool uring;
};

static inline int chan_ioctl(int fd, unsigned long op, void *arg)
{
	int r = ioctl(fd, op, arg);

	return r < 0 ? -errno : r;
}

static inline int chan_open(void)
{
	int fd = open(WFS_DEVICE, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static inline struct wfs_cmd chan_op(uint32_t op, uint64_t session)
{
	return (struct wfs_cmd){ .op = op, .session = session, .fd = -1 };
}

/* One command by ioctl. */
static inline int chan_ioctl_cmd(struct chan *chan, const struct wfs_cmd *cmd)
{
	struct wfs_cmd copy = *cmd;

	return chan_ioctl(chan->wfd >= 0 ? chan->wfd : chan->fd, WFS_IOC_CMD, &copy);
}

/* Queues a command on the ring; user_data comes back with its result. */
static inline int chan_queue_op(struct chan *chan, const struct wfs_cmd *cmd, uint32_t cmd_op,
				uint64_t user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&chan->ring);
	int r;

	if (!sqe)
		return -EBUSY;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = chan->wfd;
	sqe->cmd_op = cmd_op;
	sqe->user_data = user_data;
	memcpy(sqe->cmd, cmd, sizeof(*cmd));
	r = io_uring_submit(&chan->ring);
	return r < 0 ? r : 0;
}

static inline int chan_queue(struct chan *chan, const struct wfs_cmd *cmd, uint64_t user_data)
{
	return chan_queue_op(chan, cmd, cmd->op, user_data);
}

/* The next completion; false: none within ms. */
static inline bool chan_reap(struct chan *chan, unsigned int ms, uint64_t *ret_data, int *ret_res)
{
	struct __kernel_timespec ts = { ms / 1000, (ms % 1000) * 1000000L };
	struct io_uring_cqe *cqe;
	int r;

	do {
		r = io_uring_wait_cqe_timeout(&chan->ring, &cqe, &ts);
	} while (r == -EINTR);
	if (r)
		return false;
	*ret_data = cqe->user_data;
	*ret_res = cqe->res;
	io_uring_cqe_seen(&chan->ring, cqe);
	return true;
}

static inline int chan_hello(struct chan *chan, uint32_t flags)
{
	struct wfs_hello hello = {
		.protocol = WFS_PROTOCOL,
		.flags = flags,
		.features = WFS_FEATURES,
	};
	int r;

	chan->wfd = -1;
	chan->fd = chan_open();
	if (chan->fd < 0)
		return chan->fd;
	r = chan_ioctl(chan->fd, WFS_IOC_HELLO, &hello);
	if (r < 0) {
		close(chan->fd);
		chan->fd = -1;
		return r;
	}
	chan->session = hello.session;
	return 0;
}

static inline int chan_buffers(struct chan *chan, size_t len)
{
	struct wfs_buffers buffers = { .len = len };
	void *memory;

	memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	chan->memory = memory;
	chan->memory_len = len;
	buffers.addr = (uintptr_t)memory;
	return chan_ioctl(chan->fd, WFS_IOC_BUFFERS, &buffers);
}

static inline int chan_attach(struct chan *chan, unsigned int slots)
{
	struct wfs_attach attach = { .session = chan->session, .slots = slots };
	void *map;
	int r;

	chan->wfd = chan_open();
	if (chan->wfd < 0)
		return chan->wfd;
	r = chan_ioctl(chan->wfd, WFS_IOC_ATTACH, &attach);
	if (r < 0 || !slots)
		return r;
	map = mmap(NULL, (size_t)slots * WFS_SLOT_SIZE, PROT_READ, MAP_SHARED, chan->wfd, 0);
	if (map == MAP_FAILED)
		return -errno;
	chan->slots = map;
	chan->slot_count = slots;
	return 0;
}

static inline int chan_ring(struct chan *chan, unsigned int entries)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SQE128 };
	int r = io_uring_queue_init_params(entries, &chan->ring, &params);

	chan->uring = !r;
	return r;
}

static inline int chan_detach(struct chan *chan)
{
	return chan_ioctl(chan->fd, WFS_IOC_DETACH, NULL);
}

#endif /* WFS_TESTS_CHAN_H */
