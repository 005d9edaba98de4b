// SPDX-License-Identifier: MIT
#include "clock.h"

static time_t clock_ahead_s;

time_t __wrap_time(time_t *ret)
{
	time_t now = __real_time(NULL) + __atomic_load_n(&clock_ahead_s, __ATOMIC_RELAXED);

	if (ret)
		*ret = now;
	return now;
}

uint64_t __wrap_loop_now_ns(void)
{
	return __real_loop_now_ns() +
	       (uint64_t)__atomic_load_n(&clock_ahead_s, __ATOMIC_RELAXED) * 1000000000u;
}

void clock_ahead(time_t seconds)
{
	__atomic_add_fetch(&clock_ahead_s, seconds, __ATOMIC_RELAXED);
}

void clock_reset(void)
{
	__atomic_store_n(&clock_ahead_s, 0, __ATOMIC_RELAXED);
}
