// SPDX-License-Identifier: MIT
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "loop.h"
#include "origin.h"
#include "retry.h"

static const struct origin_result transient = { .error = -5, .transient = true };
static const struct origin_result final = { .error = -2 };

static void paces(void **state)
{
	struct retry retry;
	int64_t wait, limit = 50;

	(void)state;
	retry_start(&retry, 1000000, 0);
	for (int i = 0; i < 30; i++) {
		wait = retry_next(&retry, &transient);
		assert_true(wait >= 0 && wait <= limit);
		limit = limit * 2 < 10000 ? limit * 2 : 10000;
	}
}

/* Two helpers that failed together do not come back together. */
static void jitter(void **state)
{
	struct retry a, b;
	int same = 0;

	(void)state;
	retry_start(&a, 1000000, 0);
	retry_start(&b, 1000000, 0);
	for (int i = 0; i < 12; i++)
		same += retry_next(&a, &transient) == retry_next(&b, &transient);
	assert_true(same < 8);
}

static void final_is_final(void **state)
{
	struct retry retry;

	(void)state;
	retry_start(&retry, 1000000, 0);
	assert_int_equal(retry_next(&retry, &final), -1);
}

static void budget(void **state)
{
	struct retry retry;
	int64_t wait;

	(void)state;
	retry_start(&retry, 0, 0);
	assert_int_equal(retry_next(&retry, &transient), -1);
	/* What is left is used, and no more. */
	retry_start(&retry, 1000, 0);
	retry.attempt = 10;
	for (int i = 0; i < 20; i++) {
		wait = retry_next(&retry, &transient);
		assert_true(wait >= 0 && wait <= 1001);
	}
	retry.deadline_ns = loop_now_ns() - 1;
	assert_int_equal(retry_next(&retry, &transient), -1);
}

/* An attempt that takes longer than the budget is not the only one. */
static void at_least(void **state)
{
	struct retry retry;
	int64_t wait;

	(void)state;
	retry_start(&retry, 0, 2);
	for (int i = 0; i < 2; i++) {
		wait = retry_next(&retry, &transient);
		assert_in_range(wait, 0, 100);
	}
	assert_int_equal(retry_next(&retry, &transient), -1);
	retry_start(&retry, 0, 1);
	assert_int_equal(retry_next(&retry, &final), -1);
}

static void asked_for(void **state)
{
	struct origin_result result = transient;
	struct retry retry;

	(void)state;
	result.retry_after_ms = 3000;
	retry_start(&retry, 60000, 0);
	assert_true(retry_next(&retry, &result) >= 3000);
	retry_start(&retry, 1000, 0);
	assert_true(retry_next(&retry, &result) <= 1001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paces),	  cmocka_unit_test(jitter),
		cmocka_unit_test(final_is_final), cmocka_unit_test(budget),
		cmocka_unit_test(asked_for),	  cmocka_unit_test(at_least),
	};

	return cmocka_run_group_tests_name("retry", tests, NULL, NULL);
}
