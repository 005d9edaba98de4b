// SPDX-License-Identifier: MIT
/*
 * store_io: one block to or from its data file, through the loop of a worker.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loop.h"
#include "store_impl.h"

#define STORE_PIECE (8ULL << 20)

struct store_io {
	struct loop_op op;
	struct loop *loop;
	struct store_file *file; /* a reference, its descriptor in use */
	int fd;
	bool write;
	uint64_t offset, left;
	char *bytes;
	store_io_fn done;
	void *arg;
};

static void store_io_end(struct store_io *io, int error)
{
	store_io_fn done = io->done;
	void *arg = io->arg;

	store_file_end(io->file);
	store_file_put(io->file);
	free(io);
	done(arg, error);
}

static void store_io_piece(struct store_io *io)
{
	unsigned int len = (unsigned int)(io->left > STORE_PIECE ? STORE_PIECE : io->left);

	if (io->write)
		loop_write(io->loop, &io->op, io->fd, io->bytes, len, io->offset);
	else
		loop_read(io->loop, &io->op, io->fd, io->bytes, len, io->offset);
}

static void store_io_done(struct loop_op *op, int res)
{
	struct store_io *io = container_of(op, struct store_io, op);

	if (res == -EAGAIN || res == -EINTR) {
		store_io_piece(io);
		return;
	}
	/* A short transfer that direct I/O could not go on from is an error as well. */
	if (res <= 0 || (res & 511)) {
		store_io_end(io, res < 0 ? res : -EIO);
		return;
	}
	io->offset += (uint64_t)res;
	io->bytes += res;
	io->left -= (uint64_t)res;
	if (io->left)
		store_io_piece(io);
	else
		store_io_end(io, 0);
}

int store_io_start(struct store_file *file, struct loop *loop, bool write, uint64_t offset,
		   void *bytes, uint64_t len, store_io_fn done, void *arg)
{
	struct store_io *io = calloc(1, sizeof(*io));
	int fd;

	if (!io)
		return -ENOMEM;
	fd = store_file_begin(file);
	if (fd < 0) {
		free(io);
		return fd;
	}
	io->op.done = store_io_done;
	io->loop = loop;
	io->file = store_file_ref(file);
	io->fd = fd;
	io->write = write;
	io->offset = offset;
	io->bytes = bytes;
	io->left = (len + 4095) & ~4095ULL;
	io->done = done;
	io->arg = arg;
	store_io_piece(io);
	return 0;
}
