// SPDX-License-Identifier: MIT
/*
 * loop_pool: threads that read and write files for a loop without a ring, as many as
 * there is work for, at most POOL_THREADS.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop_impl.h"

/* Of each loop: enough to keep a disk busy, with the other workers' ones. */
#define POOL_THREADS 8

struct loop_pool {
	struct loop *loop;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t wake;
	struct loop_op *queue, **queue_end;
	unsigned int queued, idle, count;
	bool stop;
	pthread_t threads[POOL_THREADS];
};

/* lock held. */
static struct loop_op *queue_take(struct loop_pool *pool, struct loop_op **link)
{
	struct loop_op *op = *link;

	*link = op->next;
	if (!*link)
		pool->queue_end = link;
	pool->queued--;
	return op;
}

static void transfer(struct loop_op *op)
{
	ssize_t n;

	do {
		if (op->write)
			n = pwrite(op->fd, op->bytes, op->len, (off_t)op->offset);
		else
			n = pread(op->fd, op->bytes, op->len, (off_t)op->offset);
	} while (n < 0 && errno == EINTR);
	op->res = n < 0 ? -errno : (int)n;
}

static void *pool_thread(void *arg)
{
	struct loop_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct loop_op *op;

		while (!pool->queue && !pool->stop) {
			pool->idle++;
			pthread_cond_wait(&pool->wake, &pool->lock);
			pool->idle--;
		}
		if (!pool->queue)
			break;
		op = queue_take(pool, &pool->queue);
		pthread_mutex_unlock(&pool->lock);
		transfer(op);
		loop_post(pool->loop, &op->task);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* lock held. Signals are for other threads. */
static void pool_grow(struct loop_pool *pool)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!pthread_create(&pool->threads[pool->count], NULL, pool_thread, pool))
		pool->count++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void loop_pool_start(struct loop_pool *pool, struct loop_op *op)
{
	bool alone;

	op->next = NULL;
	pthread_mutex_lock(&pool->lock);
	if (pool->queued >= pool->idle && pool->count < POOL_THREADS)
		pool_grow(pool);
	alone = !pool->count;
	if (!alone) {
		*pool->queue_end = op;
		pool->queue_end = &op->next;
		pool->queued++;
		pthread_cond_signal(&pool->wake);
	}
	pthread_mutex_unlock(&pool->lock);
	if (!alone)
		return;
	/* No thread is to be had: slowly, then. */
	transfer(op);
	loop_post(pool->loop, &op->task);
}

bool loop_pool_take_back(struct loop_pool *pool, struct loop_op *op)
{
	struct loop_op **link;
	bool found;

	pthread_mutex_lock(&pool->lock);
	for (link = &pool->queue; *link && *link != op; link = &(*link)->next)
		;
	found = *link;
	if (found)
		queue_take(pool, link);
	pthread_mutex_unlock(&pool->lock);
	return found;
}

int loop_pool_create(struct loop *loop, struct loop_pool **ret)
{
	struct loop_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->loop = loop;
	pool->queue_end = &pool->queue;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	*ret = pool;
	return 0;
}

void loop_pool_destroy(struct loop_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned int i = 0; i < pool->count; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}
