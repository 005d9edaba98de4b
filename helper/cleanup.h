/* SPDX-License-Identifier: MIT */
/* cleanup: what a scope gives back by itself. */
#ifndef WFS_CLEANUP_H
#define WFS_CLEANUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "container.h"

static inline void cleanup_free_fn(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close_fn(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file_fn(FILE *const *f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_unlock_fn(pthread_mutex_t *const *lock)
{
	if (*lock)
		pthread_mutex_unlock(*lock);
}

static inline pthread_mutex_t *cleanup_lock(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	return lock;
}

#define cleanup_free  __attribute__((cleanup(cleanup_free_fn)))
#define cleanup_close __attribute__((cleanup(cleanup_close_fn)))
#define cleanup_file  __attribute__((cleanup(cleanup_file_fn)))

/* Holds a mutex to the end of the scope. */
#define SCOPED_LOCK(lock)             \
	pthread_mutex_t *scoped_lock_ \
		__attribute__((cleanup(cleanup_unlock_fn), unused)) = cleanup_lock(lock)

/* Hands an owned pointer on. */
#define TAKE(p)                             \
	({                                  \
		__typeof__(p) taken_ = (p); \
		(p) = NULL;                 \
		taken_;                     \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif /* WFS_CLEANUP_H */
