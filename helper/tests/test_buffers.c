// SPDX-License-Identifier: MIT
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buffers.h"

#define UNITS 256

static struct buffers *buffers;

static int setup(void **state)
{
	(void)state;
	return buffers_create((uint64_t)UNITS * BUFFER_UNIT, 4, 131072, &buffers);
}

static int teardown(void **state)
{
	(void)state;
	buffers_destroy(buffers);
	return 0;
}

static void test_inside(void **state)
{
	char *run = buffers_get(buffers, UNITS);
	void *base;
	size_t len;

	(void)state;
	buffers_memory(buffers, &base, &len);
	assert_int_equal((uintptr_t)base % (2 << 20), 0);
	assert_int_equal(len % 4096, 0);
	assert_non_null(run);
	assert_true(run >= (char *)base && run + (size_t)UNITS * BUFFER_UNIT <= (char *)base + len);
	memset(run, 1, (size_t)UNITS * BUFFER_UNIT);
	assert_int_equal(buffers_free_units(buffers), 0);
	assert_null(buffers_get(buffers, 1));
	buffers_put(buffers, run, UNITS);
	assert_int_equal(buffers_free_units(buffers), UNITS);
}

static void test_pieces(void **state)
{
	char *run = buffers_get(buffers, 64), *other;

	(void)state;
	/* Given back in pieces, taken again as one. */
	buffers_put(buffers, run + 16 * BUFFER_UNIT, 16);
	buffers_put(buffers, run, 16);
	buffers_put(buffers, run + 32 * BUFFER_UNIT, 32);
	assert_int_equal(buffers_free_units(buffers), UNITS);
	other = buffers_get(buffers, UNITS);
	assert_non_null(other);
	buffers_put(buffers, other, UNITS);
}

/* Small runs do not stand in the way of a long one. */
static void test_small_and_large(void **state)
{
	char *small[16], *large;

	(void)state;
	for (size_t i = 0; i < 16; i++) {
		small[i] = buffers_get(buffers, 1);
		assert_non_null(small[i]);
	}
	for (size_t i = 0; i < 16; i += 2)
		buffers_put(buffers, small[i], 1);
	large = buffers_get(buffers, UNITS - 16);
	assert_non_null(large);
	buffers_put(buffers, large, UNITS - 16);
	for (size_t i = 1; i < 16; i += 2)
		buffers_put(buffers, small[i], 1);
}

static void test_random(void **state)
{
	struct {
		unsigned char *run;
		uint32_t units;
	} held[64] = { 0 };
	unsigned int seed = 7;

	(void)state;
	for (unsigned int round = 0; round < 20000; round++) {
		size_t i = (size_t)rand_r(&seed) % 64;

		if (held[i].run) {
			/* Nobody else was given the same memory. */
			for (uint32_t u = 0; u < held[i].units; u++)
				assert_int_equal(held[i].run[(size_t)u * BUFFER_UNIT], i);
			buffers_put(buffers, held[i].run, held[i].units);
			held[i].run = NULL;
			continue;
		}
		held[i].units = 1u << (rand_r(&seed) % 6);
		held[i].run = buffers_get(buffers, held[i].units);
		for (uint32_t u = 0; held[i].run && u < held[i].units; u++)
			held[i].run[(size_t)u * BUFFER_UNIT] = (unsigned char)i;
	}
	for (size_t i = 0; i < 64; i++)
		if (held[i].run)
			buffers_put(buffers, held[i].run, held[i].units);
	assert_int_equal(buffers_free_units(buffers), UNITS);
}

static void test_replies(void **state)
{
	char *replies[4], *base;
	size_t len;

	(void)state;
	buffers_memory(buffers, (void **)&base, &len);
	for (size_t i = 0; i < 4; i++) {
		replies[i] = buffers_reply_get(buffers);
		assert_non_null(replies[i]);
		assert_true(replies[i] >= base && replies[i] + 131072 <= base + len);
		memset(replies[i], (int)i, 131072);
	}
	assert_null(buffers_reply_get(buffers));
	for (size_t i = 0; i < 4; i++)
		buffers_reply_put(buffers, replies[i]);
	assert_non_null(buffers_reply_get(buffers));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_inside, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_small_and_large, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replies, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
