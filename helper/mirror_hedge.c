// SPDX-License-Identifier: MIT
/*
 * mirror_hedge: when a read is late, and what second requests may cost.
 */
#include <stdlib.h>
#include <string.h>

#include "mirror_impl.h"

/* How many new samples make it worth while to sort them again. */
#define HEDGE_RESORT 16

static unsigned int hedge_size(uint64_t len)
{
	unsigned int size = 0;

	for (uint64_t limit = 64 << 10; size < MIRROR_HEDGE_SIZES - 1 && len > limit; limit *= 4)
		size++;
	return size;
}

static int hedge_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void hedge_sort(struct mirror_times *times)
{
	uint32_t sorted[MIRROR_HEDGE_SAMPLES];
	size_t n = times->count < MIRROR_HEDGE_SAMPLES ? times->count : MIRROR_HEDGE_SAMPLES;
	uint64_t tail, twice;

	memcpy(sorted, times->us, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), hedge_compare);
	tail = sorted[n * 95 / 100];
	twice = 2 * (uint64_t)sorted[n / 2];
	times->tail_ns = (tail > twice ? tail : twice) * 1000;
}

void mirror_hedge_took(struct mirror_hedge *hedge, uint64_t len, uint64_t ns)
{
	struct mirror_times *times = &hedge->sizes[hedge_size(len)];
	uint64_t us = ns / 1000;

	times->us[times->count++ % MIRROR_HEDGE_SAMPLES] = us < UINT32_MAX ? (uint32_t)us :
									     UINT32_MAX;
	if (times->count >= MIRROR_HEDGE_LEAST && times->count % HEDGE_RESORT == 0)
		hedge_sort(times);
}

uint64_t mirror_hedge_late_ns(const struct mirror_hedge *hedge, uint64_t len)
{
	const struct mirror_times *times = &hedge->sizes[hedge_size(len)];

	if (times->count < MIRROR_HEDGE_LEAST)
		return MIRROR_HEDGE_NS;
	return times->tail_ns > MIRROR_HEDGE_MIN_NS ? times->tail_ns : MIRROR_HEDGE_MIN_NS;
}

void mirror_hedge_earn(struct mirror_hedge *hedge, uint64_t bytes)
{
	const uint64_t most = MIRROR_HEDGE_CAP * MIRROR_HEDGE_BYTES;

	if (hedge->requests < MIRROR_HEDGE_CAP * MIRROR_HEDGE_BURST)
		hedge->requests++;
	hedge->bytes = bytes < most - hedge->bytes ? hedge->bytes + bytes : most;
}

bool mirror_hedge_spend(struct mirror_hedge *hedge, uint64_t bytes)
{
	if (hedge->requests < MIRROR_HEDGE_CAP || hedge->bytes / MIRROR_HEDGE_CAP < bytes)
		return false;
	hedge->requests -= MIRROR_HEDGE_CAP;
	hedge->bytes -= MIRROR_HEDGE_CAP * bytes;
	return true;
}

void mirror_hedge_refund(struct mirror_hedge *hedge, uint64_t bytes)
{
	const uint64_t most = MIRROR_HEDGE_CAP * MIRROR_HEDGE_BYTES;

	bytes *= MIRROR_HEDGE_CAP;
	hedge->bytes = bytes < most - hedge->bytes ? hedge->bytes + bytes : most;
}
