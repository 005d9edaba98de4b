// SPDX-License-Identifier: MIT
#include "events.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t events_changed = PTHREAD_COND_INITIALIZER;
/* events_lock. Number n is in kept[n % EVENTS_KEPT]; NULL: it was lost for want of memory. */
static struct event *events_kept[EVENTS_KEPT];
static uint64_t events_count, events_woken;

static struct event *event_make(const char *name, const char *source, const char *path,
				const char *text)
{
	size_t sizes[] = { strlen(source) + 1, strlen(path) + 1, strlen(text) + 1 };
	struct event *event = malloc(sizeof(*event) + sizes[0] + sizes[1] + sizes[2]);

	if (!event)
		return NULL;
	event->time_s = time(NULL);
	event->name = name;
	event->source = memcpy(event->bytes, source, sizes[0]);
	event->path = memcpy(event->bytes + sizes[0], path, sizes[1]);
	event->text = memcpy(event->bytes + sizes[0] + sizes[1], text, sizes[2]);
	return event;
}

void events_tell(const char *name, const char *source, const char *path, const char *text)
{
	struct event *event = event_make(name, source, path, text), **kept;

	SCOPED_LOCK(&events_lock);
	kept = &events_kept[events_count++ % EVENTS_KEPT];
	free(*kept);
	*kept = event;
	pthread_cond_broadcast(&events_changed);
}

uint64_t events_next(void)
{
	SCOPED_LOCK(&events_lock);

	return events_count;
}

int events_wait(uint64_t *number, uint64_t timeout_ms, struct event **ret)
{
	const struct event *event;
	struct timespec until;
	uint64_t woken;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(timeout_ms / 1000);
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}

	SCOPED_LOCK(&events_lock);
	woken = events_woken;
	while (*number >= events_count && woken == events_woken && !err)
		err = pthread_cond_clockwait(&events_changed, &events_lock, CLOCK_MONOTONIC,
					     &until);
	if (*number >= events_count)
		return -EAGAIN;
	if (events_count - *number > EVENTS_KEPT) {
		*number = events_count - EVENTS_KEPT;
		return -EOVERFLOW;
	}
	event = events_kept[(*number)++ % EVENTS_KEPT];
	if (!event)
		return -EOVERFLOW;
	*ret = event_make(event->name, event->source, event->path, event->text);
	if (!*ret)
		return -ENOMEM;
	(*ret)->time_s = event->time_s;
	return 0;
}

void events_wake(void)
{
	SCOPED_LOCK(&events_lock);

	events_woken++;
	pthread_cond_broadcast(&events_changed);
}
