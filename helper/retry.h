/* SPDX-License-Identifier: MIT */
/* retry: the pace of further attempts: exponential backoff with full jitter inside a budget. */
#ifndef WFS_RETRY_H
#define WFS_RETRY_H

#include <stdint.h>

struct origin_result;

struct retry {
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	unsigned int attempt, least;
};

/* least: so many further attempts are made, even if the first one has used the budget up. */
void retry_start(struct retry *retry, uint64_t budget_ms, unsigned int least);
/* Milliseconds to wait before the next attempt, or -1: give up. */
int64_t retry_next(struct retry *retry, const struct origin_result *result);

#endif /* WFS_RETRY_H */
