// SPDX-License-Identifier: MIT
#include <sys/random.h>

#include "loop.h"
#include "origin.h"
#include "retry.h"

#define FIRST_MS   50u
#define LONGEST_MS 10000u

void retry_start(struct retry *retry, uint64_t budget_ms, unsigned int least)
{
	retry->deadline_ns = loop_now_ns() + budget_ms * 1000000u;
	retry->attempt = 0;
	retry->least = least;
}

/* Uniform in [0, limit]. */
static uint64_t random_up_to(uint64_t limit)
{
	uint64_t value = 0;

	/* Small requests are never cut short; without entropy there is no jitter. */
	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) < 0)
		return limit;
	return value % (limit + 1);
}

int64_t retry_next(struct retry *retry, const struct origin_result *result)
{
	uint64_t now = loop_now_ns(), left_ms, limit = LONGEST_MS, wait;

	if (!result->transient || (now >= retry->deadline_ns && retry->attempt >= retry->least))
		return -1;
	if (retry->attempt < 16 && (FIRST_MS << retry->attempt) < LONGEST_MS)
		limit = FIRST_MS << retry->attempt;
	retry->attempt++;
	wait = random_up_to(limit);
	if (now >= retry->deadline_ns)
		return (int64_t)wait;
	left_ms = (retry->deadline_ns - now) / 1000000u + 1;
	if (result->retry_after_ms > wait)
		wait = result->retry_after_ms;
	/* The last attempt is made at the deadline, so that the budget is used. */
	return (int64_t)(wait < left_ms ? wait : left_ms);
}
