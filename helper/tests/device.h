/* SPDX-License-Identifier: MIT */
/*
 * device: a kernel made of open() and ioctl(), which are wrapped at link time. It speaks the
 * ioctl transport to who opens /dev/wfs, asks what a test tells it to, and remembers the answers.
 */
#ifndef WFS_TEST_DEVICE_H
#define WFS_TEST_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <wfs.h>

#define DEVICE_SESSION 77
#define DEVICE_WAIT_S  60
/* Of all files. */
#define DEVICE_SHIFT 17
#define DEVICE_FDS   1024
#define DEVICE_ASKED 4096

/* A request and what became of it. */
struct device_asked {
	uint64_t id;
	struct wfs_request *record; /* until it is fetched */
	bool answered;
	int status, fd;
	char *payload;
	size_t len;
	char *block; /* FILL: delivered bytes */
	uint64_t delivered;
};

struct device {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool fake[DEVICE_FDS], dead;
	const char *memory;
	uint64_t memory_len;
	struct device_asked asked[DEVICE_ASKED];
	_Atomic unsigned int count, fetched;
	unsigned int stored, dropped;
	unsigned int present; /* of the offered block: units that the page cache has */
	uint64_t sums[1024];
	unsigned int sum_count;
	_Atomic int next_commit; /* refuses the next commit with this errno */
	_Atomic int next_deliver;
};

extern struct device device;

/* As it is before anybody has asked anything. */
void device_reset(void);
/* Asks; the number of the request. a, b: strings of the payload, or NULL. */
uint64_t device_ask_raw(const struct wfs_request *fields, const void *payload, size_t len);
uint64_t device_ask(struct wfs_request fields, const char *a, const char *b);
/* The request of a number; NULL: there is none. */
struct device_asked *device_find(uint64_t id);
/* The same, when it was answered. */
struct device_asked *device_answer(uint64_t id);

/* Waits until the condition, under the device's lock, holds. */
#define DEVICE_UNTIL(condition)                                                                \
	do {                                                                                   \
		struct timespec until_;                                                        \
		clock_gettime(CLOCK_REALTIME, &until_);                                        \
		until_.tv_sec += DEVICE_WAIT_S;                                                \
		pthread_mutex_lock(&device.lock);                                              \
		while (!(condition))                                                           \
			assert_int_equal(pthread_cond_timedwait(&device.changed, &device.lock, \
								&until_),                      \
					 0);                                                   \
		pthread_mutex_unlock(&device.lock);                                            \
	} while (0)

#endif /* WFS_TEST_DEVICE_H */
