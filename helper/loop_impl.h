/* SPDX-License-Identifier: MIT */
/* loop_impl: what the loop's files share. Not for others. */
#ifndef WFS_LOOP_IMPL_H
#define WFS_LOOP_IMPL_H

#include <pthread.h>

#include "container.h"
#include "loop_curl.h"

/* How a kind of loop does what loop.h says. On the loop's thread. */
struct loop_backend {
	/* Allocates, and sets up what is its own and commands. */
	int (*create)(struct loop **ret, unsigned int entries);
	/* Undoes create(), but for the memory of the structure. */
	void (*destroy)(struct loop *loop);
	void (*read)(struct loop *loop, struct loop_op *op);
	void (*write)(struct loop *loop, struct loop_op *op);
	void (*poll)(struct loop *loop, struct loop_op *op, unsigned int events);
	/* NULL: there are none. */
	void (*command)(struct loop *loop, struct loop_op *op, uint32_t code, const void *command,
			size_t len);
	void (*cancel)(struct loop *loop, struct loop_op *op);
	int (*keep_files)(struct loop *loop, const int *fds, unsigned int count);
	/* Sleeps until something is there, at most ns; < 0: for as long as it takes. */
	int (*wait)(struct loop *loop, int64_t ns);
	/* Calls done() of what has ended; some of it, where there is much. */
	void (*dispatch)(struct loop *loop);
};

extern const struct loop_backend loop_uring, loop_epoll;

/* The first member of each kind's own structure, freed through it. */
struct loop {
	const struct loop_backend *backend;
	bool commands;
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
};

/* Can this process have a ring, and use it? 0 or -errno. */
int loop_uring_probe(void);

/* loop_pool: threads that read and write for one loop. */
struct loop_pool;
int loop_pool_create(struct loop *loop, struct loop_pool **ret);
/* Waits for what has begun. */
void loop_pool_destroy(struct loop_pool *pool);
/* Reads or writes as op says; op->task is then posted to the loop, with op->res. */
void loop_pool_start(struct loop_pool *pool, struct loop_op *op);
/* False: it has begun, or ended. Else it is the caller's again. */
bool loop_pool_take_back(struct loop_pool *pool, struct loop_op *op);

#endif /* WFS_LOOP_IMPL_H */
