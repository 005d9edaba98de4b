/* SPDX-License-Identifier: MIT */
/* clock: both clocks, moved by a test that is linked with time() and loop_now_ns() wrapped. */
#ifndef WFS_TEST_CLOCK_H
#define WFS_TEST_CLOCK_H

#include <stdint.h>
#include <time.h>

time_t __real_time(time_t *ret);
time_t __wrap_time(time_t *ret);
uint64_t __real_loop_now_ns(void);
uint64_t __wrap_loop_now_ns(void);

/* So much later than before. Any thread. */
void clock_ahead(time_t seconds);
/* As they are. */
void clock_reset(void);

#endif /* WFS_TEST_CLOCK_H */
