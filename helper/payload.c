// SPDX-License-Identifier: MIT
/*
 * payload: memory for replies, inside the session's registered memory.
 *
 * Most replies are attributes of some 300 bytes: they take cells of 8 KiB out of a few
 * of the core's reply buffers. Larger ones take a whole reply buffer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "channel.h"
#include "cleanup.h"
#include "core.h"

#define CELLS_PER_REPLY (WFS_REPLY_MAX / PAYLOAD_CELL)
#define REPLIES_MAX	4

struct payloads {
	struct core *core;
	pthread_mutex_t lock;	    /* for the free cells */
	void *replies[REPLIES_MAX]; /* cut into cells */
	unsigned int reply_count;
	void *cells[REPLIES_MAX * CELLS_PER_REPLY];
	unsigned int free;
	pthread_mutex_t held_lock; /* owns the held cell */
	void *held;
};

int payloads_create(struct core *core, struct payloads **ret)
{
	struct payloads *payloads = calloc(1, sizeof(*payloads));

	if (!payloads)
		return -ENOMEM;
	payloads->core = core;
	pthread_mutex_init(&payloads->lock, NULL);
	pthread_mutex_init(&payloads->held_lock, NULL);
	while (payloads->reply_count < REPLIES_MAX) {
		char *reply = core_reply_get(core);

		if (!reply)
			break;
		payloads->replies[payloads->reply_count++] = reply;
		for (unsigned int i = 0; i < CELLS_PER_REPLY; i++)
			payloads->cells[payloads->free++] = reply + (size_t)i * PAYLOAD_CELL;
	}
	if (!payloads->free) {
		payloads_destroy(payloads);
		return -ENOMEM;
	}
	payloads->held = payloads->cells[--payloads->free];
	*ret = payloads;
	return 0;
}

void payloads_destroy(struct payloads *payloads)
{
	if (!payloads)
		return;
	for (unsigned int i = 0; i < payloads->reply_count; i++)
		core_reply_put(payloads->core, payloads->replies[i]);
	pthread_mutex_destroy(&payloads->lock);
	pthread_mutex_destroy(&payloads->held_lock);
	free(payloads);
}

static bool is_cell(const struct payloads *payloads, const void *payload)
{
	for (unsigned int i = 0; i < payloads->reply_count; i++) {
		const char *reply = payloads->replies[i];

		if ((const char *)payload >= reply && (const char *)payload < reply + WFS_REPLY_MAX)
			return true;
	}
	return false;
}

void *payload_get(struct payloads *payloads, size_t len)
{
	if (len > WFS_REPLY_MAX)
		return NULL;
	if (len <= PAYLOAD_CELL) {
		SCOPED_LOCK(&payloads->lock);
		if (payloads->free)
			return payloads->cells[--payloads->free];
	}
	return core_reply_get(payloads->core);
}

void payload_put(struct payloads *payloads, void *payload)
{
	if (!payload)
		return;
	if (!is_cell(payloads, payload)) {
		core_reply_put(payloads->core, payload);
		return;
	}
	SCOPED_LOCK(&payloads->lock);
	payloads->cells[payloads->free++] = payload;
}

void *payload_hold(struct payloads *payloads)
{
	pthread_mutex_lock(&payloads->held_lock);
	return payloads->held;
}

void payload_release(struct payloads *payloads)
{
	pthread_mutex_unlock(&payloads->held_lock);
}
