// SPDX-License-Identifier: MIT
#include "buffers.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "counters.h"

#define HUGE_PAGE (2UL << 20)
/* Runs up to this many units come from the top, longer ones from the bottom. */
#define BUFFERS_SMALL 16

struct buffers {
	char *base;
	size_t len;
	uint32_t units; /* the first units of base; replies follow */
	size_t reply_size;
	unsigned int replies;
	pthread_mutex_t lock; /* what follows */
	uint32_t free_units;
	uint64_t *used;	  /* a bit a unit */
	void *reply_list; /* free replies, linked through their first word */
};

int buffers_create(uint64_t bytes, unsigned int replies, size_t reply_size, struct buffers **ret)
{
	struct buffers *buffers = calloc(1, sizeof(*buffers));
	size_t mapped;
	char *map, *end;

	if (!buffers)
		return -ENOMEM;
	bytes = (bytes + BUFFER_UNIT - 1) & ~((uint64_t)BUFFER_UNIT - 1);
	buffers->units = (uint32_t)(bytes >> BUFFER_UNIT_SHIFT);
	buffers->free_units = buffers->units;
	buffers->used = calloc(buffers->units / 64 + 1, sizeof(*buffers->used));
	if (!buffers->used) {
		free(buffers);
		return -ENOMEM;
	}
	buffers->len = (bytes + replies * reply_size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	mapped = buffers->len + HUGE_PAGE;
	map = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED) {
		free(buffers->used);
		free(buffers);
		return -ENOMEM;
	}
	buffers->base = (char *)(((uintptr_t)map + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	if (buffers->base > map)
		munmap(map, (size_t)(buffers->base - map));
	end = buffers->base + buffers->len;
	if (map + mapped > end)
		munmap(end, (size_t)(map + mapped - end));
	/* Advice only: the pool works without huge pages as well. */
	madvise(buffers->base, buffers->len, MADV_HUGEPAGE);
	madvise(buffers->base, buffers->len, MADV_DONTDUMP);
	madvise(buffers->base, buffers->len, MADV_DONTFORK);
	buffers->reply_size = reply_size;
	buffers->replies = replies;
	for (unsigned int i = replies; i--;) {
		char *reply = buffers->base + bytes + i * reply_size;

		*(void **)reply = buffers->reply_list;
		buffers->reply_list = reply;
	}
	pthread_mutex_init(&buffers->lock, NULL);
	counter_set(buffer_total_bytes, bytes);
	*ret = buffers;
	return 0;
}

void buffers_destroy(struct buffers *buffers)
{
	if (!buffers)
		return;
	munmap(buffers->base, buffers->len);
	pthread_mutex_destroy(&buffers->lock);
	free(buffers->used);
	free(buffers);
}

static bool buffers_test(const struct buffers *buffers, uint32_t unit)
{
	return buffers->used[unit / 64] >> (unit % 64) & 1;
}

/* The number of free units from unit on, at most want. */
static uint32_t buffers_run(const struct buffers *buffers, uint32_t unit, uint32_t want)
{
	uint32_t n = 0;

	while (n < want && unit + n < buffers->units && !buffers_test(buffers, unit + n))
		n++;
	return n;
}

static int64_t buffers_find(const struct buffers *buffers, uint32_t units)
{
	uint32_t n;

	if (units > buffers->free_units)
		return -1;
	if (units <= BUFFERS_SMALL) {
		n = 0;
		for (uint32_t unit = buffers->units; unit-- > 0;) {
			n = buffers_test(buffers, unit) ? 0 : n + 1;
			if (n == units)
				return unit;
		}
		return -1;
	}
	for (uint32_t unit = 0; unit + units <= buffers->units; unit += n + 1) {
		n = buffers_run(buffers, unit, units);
		if (n == units)
			return unit;
	}
	return -1;
}

void *buffers_get(struct buffers *buffers, uint32_t units)
{
	SCOPED_LOCK(&buffers->lock);
	int64_t first = units ? buffers_find(buffers, units) : -1;

	if (first < 0)
		return NULL;
	for (uint32_t unit = (uint32_t)first; unit < (uint32_t)first + units; unit++)
		buffers->used[unit / 64] |= 1ULL << (unit % 64);
	buffers->free_units -= units;
	counter_add(buffer_used_bytes, (uint64_t)units << BUFFER_UNIT_SHIFT);
	return buffers->base + ((size_t)first << BUFFER_UNIT_SHIFT);
}

void buffers_put(struct buffers *buffers, void *run, uint32_t units)
{
	SCOPED_LOCK(&buffers->lock);
	uint32_t first = (uint32_t)((size_t)((char *)run - buffers->base) >> BUFFER_UNIT_SHIFT);

	for (uint32_t unit = first; unit < first + units; unit++)
		buffers->used[unit / 64] &= ~(1ULL << (unit % 64));
	buffers->free_units += units;
	counter_sub(buffer_used_bytes, (uint64_t)units << BUFFER_UNIT_SHIFT);
}

void *buffers_reply_get(struct buffers *buffers)
{
	SCOPED_LOCK(&buffers->lock);
	void *reply = buffers->reply_list;

	if (reply)
		buffers->reply_list = *(void **)reply;
	return reply;
}

void buffers_reply_put(struct buffers *buffers, void *reply)
{
	SCOPED_LOCK(&buffers->lock);

	if (!reply)
		return;
	*(void **)reply = buffers->reply_list;
	buffers->reply_list = reply;
}

uint32_t buffers_units(const struct buffers *buffers)
{
	return buffers->units;
}

uint32_t buffers_free_units(struct buffers *buffers)
{
	SCOPED_LOCK(&buffers->lock);

	return buffers->free_units;
}

void buffers_memory(const struct buffers *buffers, void **ret_base, size_t *ret_len)
{
	*ret_base = buffers->base;
	*ret_len = buffers->len;
}
