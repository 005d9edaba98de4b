// SPDX-License-Identifier: MIT
/*
 * uapi_race: helpers that take over from each other while their parked fetches are cancelled,
 * their rings closed, their descriptors closed, or they die. The kernel must say nothing.
 *
 *	uapi_race PROCESSES TIMES
 *
 * Exit status 1 if a fetch does not end, or ends twice.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include "chan.h"

#define SLOTS 4

static void park(struct chan *chan)
{
	for (uint16_t slot = 0; slot < SLOTS; slot++) {
		struct wfs_cmd cmd = chan_op(WFS_CMD_FETCH, chan->session);

		cmd.slot = slot;
		cmd.max = 1;
		chan_queue(chan, &cmd, 1ULL << slot);
	}
}

static void cancel(struct chan *chan)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&chan->ring);

		if (!sqe)
			return;
		memset(sqe, 0, 2 * sizeof(*sqe));
		sqe->opcode = IORING_OP_ASYNC_CANCEL;
		sqe->addr = 1ULL << slot;
		sqe->user_data = 1ULL << (slot + 32);
		io_uring_submit(&chan->ring);
	}
}

/* Each fetch must end once: by cancelling, or with the request that says all is resumed. */
static int reap(struct chan *chan)
{
	const uint64_t all = (1ULL << SLOTS) - 1;
	bool detached = false;
	uint64_t data, seen = 0;
	int res;

	while ((seen & all) != all) {
		if (!chan_reap(chan, detached ? 20000 : 500, &data, &res)) {
			if (detached) {
				printf("fetches do not end, %llx did\n", (unsigned long long)seen);
				return 1;
			}
			/* Nobody takes over any more. */
			chan_detach(chan);
			detached = true;
			continue;
		}
		if (seen & data) {
			printf("fetch %llx ended with %d\n", (unsigned long long)data, res);
			return 1;
		}
		seen |= data;
	}
	return 0;
}

static int serve(unsigned int how)
{
	struct chan chan;
	int r;

	if (chan_hello(&chan, WFS_HELLO_TAKEOVER) < 0)
		return 0;
	/* Taken over already: as good as any. */
	if (chan_attach(&chan, SLOTS) < 0) {
		close(chan.fd);
		if (chan.wfd >= 0)
			close(chan.wfd);
		return 0;
	}
	r = chan_ring(&chan, 16);
	if (r < 0) {
		printf("no ring: %s\n", strerror(-r));
		return 1;
	}
	park(&chan);
	switch (how % 4) {
	case 0:
		cancel(&chan);
		r = reap(&chan);
		break;
	case 1:
		r = chan_detach(&chan) == -EPERM ? 1 : reap(&chan);
		break;
	case 2:
		break; /* the ring goes with what is parked */
	default:
		r = reap(&chan); /* until somebody takes over, or this is killed */
		break;
	}
	io_uring_queue_exit(&chan.ring);
	munmap((void *)chan.slots, (size_t)SLOTS * WFS_SLOT_SIZE);
	close(chan.wfd);
	close(chan.fd);
	return r;
}

int main(int argc, char **argv)
{
	unsigned long processes, times, running = 0;
	int failed = 0;

	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	processes = strtoul(argv[1], NULL, 0);
	times = strtoul(argv[2], NULL, 0);
	for (unsigned long i = 0; i < processes; i++) {
		if (!fork()) {
			int r = 0;

			for (unsigned long n = 0; n < times && !r; n++) {
				r = serve((unsigned int)(i + n * 7 / 3));
				/* Once in a while one dies with all it has. */
				if (n % 16 == 15 && !fork()) {
					struct chan chan;

					if (!chan_hello(&chan, WFS_HELLO_TAKEOVER) &&
					    chan_attach(&chan, SLOTS) >= 0 && !chan_ring(&chan, 16))
						park(&chan);
					kill(getpid(), SIGKILL);
				}
				while (waitpid(-1, NULL, WNOHANG) > 0)
					;
			}
			_exit(r);
		}
		running++;
	}
	while (running--) {
		int status;

		wait(&status);
		failed |= !WIFEXITED(status) || WEXITSTATUS(status);
	}
	return failed;
}
