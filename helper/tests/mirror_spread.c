// SPDX-License-Identifier: MIT
/* Not a test: how far the slowest reads are from the usual ones, see tests/bench/mirror. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "loop.h"
#include "mirror_rig.h"

#define SPREAD_READS 2000
#define SPREAD_LEN   (256u << 10)

enum spread_how { SPREAD_IN_TURN, SPREAD_HEDGED, SPREAD_CHOICE, SPREAD_ALL };

static int spread_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Prints one line; what is left of the distance, in milliseconds. */
static double spread_of(enum spread_how how, const char *name, double base)
{
	static double ms[SPREAD_READS];
	double p50, p99;

	memcpy(before, (const void *)counters, sizeof(before));
	for (unsigned int i = 0; i < SPREAD_READS; i++) {
		uint64_t offset = (uint64_t)(i % (SIZE / SPREAD_LEN)) * SPREAD_LEN, start;
		struct origin *from = how == SPREAD_IN_TURN ? mirrors->of[i % PLACES].origin :
							      origin;

		if (how == SPREAD_CHOICE)
			mirrors->hedge.requests = 0;
		for (unsigned int j = 0; how == SPREAD_HEDGED && j < PLACES; j++)
			mirrors->of[j].rank = (struct mirror_rank){
				.asked_ns = loop_now_ns(),
				.answers = 1,
				.first_ns = j == i % PLACES ? 1 : MS,
			};
		start = loop_now_ns();
		query_read(loop, from, "f", &attr, offset, SPREAD_LEN, dst, &ask);
		ms[i] = (double)(loop_now_ns() - start) * 1e-6;
		assert_int_equal(ask.error, 0);
		assert_memory_equal(dst, body + offset, SPREAD_LEN);
	}
	qsort(ms, SPREAD_READS, sizeof(*ms), spread_compare);
	p50 = ms[SPREAD_READS / 2];
	p99 = ms[SPREAD_READS * 99 / 100];
	printf("  %-28s p50 %7.2f ms  p99 %7.2f ms  p99/p50 %6.1f", name, p50, p99, p99 / p50);
	if (base > 0)
		printf("  distance cut by %5.1f %%  %llu of %d asked twice (%llu won), %.2f %% of the bytes lost",
		       100 * (1 - (p99 - p50) / base), (unsigned long long)rose(hedges_sent),
		       SPREAD_READS, (unsigned long long)rose(hedges_won),
		       100.0 * (double)rose(hedge_lost_bytes) /
			       ((double)SPREAD_READS * SPREAD_LEN));
	putchar('\n');
	return p99 - p50;
}

static void spread(void **state)
{
	static const char slow[] = SLOW("\"delay\", \"seconds\": 0.5, \"every\": 20");
	double base;

	(void)state;
	for (unsigned int slow_ones = 1; slow_ones <= PLACES; slow_ones += PLACES - 1) {
		mirror_rig_make_of(PLACES, false);
		mirrors->now = loop_now_ns;
		for (unsigned int i = 0; i < slow_ones; i++)
			mirror_rig_fault(i, slow);
		mirror_rig_join();
		printf("%u of %d mirrors: 5 %% of the answers 500 ms later\n", slow_ones, PLACES);
		base = spread_of(SPREAD_IN_TURN, "in turn, no second requests", 0);
		spread_of(SPREAD_HEDGED, "in turn, second requests", base);
		spread_of(SPREAD_CHOICE, "chosen, no second requests", base);
		spread_of(SPREAD_ALL, "as installed", base);
		if (slow_ones == PLACES)
			return;
		for (unsigned int i = 0; i < PLACES; i++)
			faulty_clear(&servers[i]);
		mirror_rig_drop();
	}
}

int main(void)
{
	const struct CMUnitTest measure[] = {
		cmocka_unit_test_setup_teardown(spread, mirror_rig_each, mirror_rig_end),
	};

	return cmocka_run_group_tests(measure, mirror_rig_group, mirror_rig_group_end);
}
