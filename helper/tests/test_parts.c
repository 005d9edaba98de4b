// SPDX-License-Identifier: MIT
/* Parts of an upload: where they are, and digests of their digests. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "parts.h"

#define SIZE 100003

static unsigned char bytes[SIZE];

static int prepare(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(i * 31 + (i >> 8));
	return 0;
}

/* An upload as a server tells of it. */
struct upload {
	uint64_t lens[8];
	uint32_t count;
	unsigned int asked;
	int error;     /* of the last part */
	uint64_t skip; /* bytes left out before the second part */
};

static int upload_ask(void *arg, uint32_t number, uint64_t *ret_offset, uint64_t *ret_len,
		      uint32_t *ret_count)
{
	struct upload *upload = arg;

	assert_true(number && number <= upload->count);
	upload->asked++;
	if (number == upload->count && upload->error)
		return upload->error;
	*ret_offset = number > 1 ? upload->skip : 0;
	for (uint32_t i = 0; i + 1 < number; i++)
		*ret_offset += upload->lens[i];
	*ret_len = upload->lens[number - 1];
	*ret_count = upload->count;
	return 0;
}

/* Adds the bytes in pieces that have nothing to do with the parts. */
static void sum_up(const struct parts *parts, size_t step, const char *wanted_text)
{
	struct digest wanted, found;
	struct parts_sum *sum;

	assert_int_equal(digest_parse(wanted_text, &wanted), 0);
	assert_int_equal(parts_sum_create(parts, SIZE, 1U << wanted.algo, &sum), 0);
	for (size_t at = 0; at < SIZE; at += step)
		assert_int_equal(parts_sum_add(sum, bytes + at,
					       SIZE - at < step ? SIZE - at : step),
				 0);
	assert_int_equal(parts_sum_end(sum, wanted.algo, &found), 0);
	assert_true(digest_equal(&wanted, &found));
	parts_sum_free(sum);
	/* One bit, in the last byte of a part. */
	bytes[39999] ^= 1;
	assert_int_equal(parts_sum_create(parts, SIZE, 1U << wanted.algo, &sum), 0);
	assert_int_equal(parts_sum_add(sum, bytes, SIZE), 0);
	assert_int_equal(parts_sum_end(sum, wanted.algo, &found), 0);
	assert_false(digest_equal(&wanted, &found));
	parts_sum_free(sum);
	bytes[39999] ^= 1;
}

/* Computed by Python's hashlib and zlib, and for two of them by the tables of their polynomials. */
static void even(void **state)
{
	static const char *const wanted[] = {
		"sha256:256b7b5a7c4b1020553e7a3f2ae2608f031e48c055e49826ee43759ccce0dd82",
		"sha1:1ab49762cc8506f9ced5ce469d1d701d38696e6a",
		"crc32:e77ab43d",
		"crc32c:ea9e4677",
		"crc64nvme:31eb0e3982bfb532",
	};
	struct upload upload = { .lens = { 40000, 40000, 20003 }, .count = 3 };
	struct parts parts;

	(void)state;
	assert_int_equal(parts_learn(SIZE, 3, false, upload_ask, &upload, &parts), 0);
	assert_int_equal(upload.asked, 2);
	assert_true(parts.even == 40000 && parts.inferred && !parts.ends);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		for (size_t step = 1; step < 200000; step = step * 7 + 13)
			sum_up(&parts, step, wanted[i]);
	parts_clear(&parts);
	/* The same when each of them is asked for. */
	assert_int_equal(parts_learn(SIZE, 3, true, upload_ask, &upload, &parts), 0);
	assert_int_equal(upload.asked, 5);
	assert_false(parts.inferred);
	sum_up(&parts, 777, wanted[0]);
	parts_clear(&parts);
}

static void uneven(void **state)
{
	static const char *const wanted[] = {
		"sha256:62abbd7ddbaa3821f76bcebb193a13531ef80ade68fc0b5ce3f3bd642ce30219",
		"sha1:64d044afde0fe38f44611990d0d12c8cdfd21fa7",
		"crc32:4e8aa6e9",
		"crc32c:25ea5f9b",
	};
	struct upload upload = { .lens = { 1, 50000, 50002 }, .count = 3 };
	struct parts parts;

	(void)state;
	assert_int_equal(parts_learn(SIZE, 3, false, upload_ask, &upload, &parts), 0);
	assert_false(parts.inferred);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		sum_up(&parts, 1000, wanted[i]);
	parts_clear(&parts);
	/* All but the first could be as long as the last. */
	upload = (struct upload){ .lens = { 40000, 30000, 30003 }, .count = 3 };
	assert_int_equal(parts_learn(SIZE, 3, false, upload_ask, &upload, &parts), 0);
	assert_false(parts.inferred);
	assert_true(parts.ends[1] == 70000);
	parts_clear(&parts);
	/* First and last look as if all were even. */
	upload = (struct upload){ .lens = { 30000, 20000, 40000, 10003 }, .count = 4 };
	assert_int_equal(parts_learn(SIZE, 4, false, upload_ask, &upload, &parts), 0);
	assert_true(parts.inferred);
	parts_clear(&parts);
	assert_int_equal(parts_learn(SIZE, 4, true, upload_ask, &upload, &parts), 0);
	assert_false(parts.inferred);
	assert_true(parts.ends[1] == 50000 && parts.ends[3] == SIZE);
	parts_clear(&parts);
}

/* Of one part nothing need be asked, and two are what they are. */
static void few(void **state)
{
	struct upload upload = { .lens = { 60000, 40003 }, .count = 2 };
	struct digest wanted, found;
	struct parts_sum *sum;
	struct parts parts;

	(void)state;
	assert_int_equal(parts_learn(SIZE, 1, false, upload_ask, &upload, &parts), 0);
	assert_int_equal(upload.asked, 0);
	sum_up(&parts, 999,
	       "sha256:a2eee6170e264465331f6f2237e086248545196bf8d762522e8f5874168b5640");
	parts_clear(&parts);
	assert_int_equal(parts_learn(SIZE, 2, false, upload_ask, &upload, &parts), 0);
	assert_false(parts.inferred);
	parts_clear(&parts);
	/* No bytes at all, in one part. */
	assert_int_equal(parts_learn(0, 1, false, upload_ask, &upload, &parts), 0);
	assert_int_equal(parts_sum_create(&parts, 0, 1U << DIGEST_SHA256, &sum), 0);
	assert_int_equal(parts_sum_end(sum, DIGEST_SHA256, &found), 0);
	digest_parse("sha256:5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456",
		     &wanted);
	assert_true(digest_equal(&wanted, &found));
	parts_sum_free(sum);
	parts_clear(&parts);
}

/* What does not add up is not believed. */
static void wrong(void **state)
{
	struct upload upload = { .lens = { 40000, 40000, 20003 }, .count = 3 };
	struct parts_sum *sum;
	struct parts parts;
	struct digest found;

	(void)state;
	for (int all = 0; all < 2; all++) {
		upload.error = 0;
		upload.skip = 0;
		assert_int_equal(parts_learn(SIZE, 2, all, upload_ask, &upload, &parts), -EPROTO);
		assert_int_equal(parts_learn(SIZE + 1, 3, all, upload_ask, &upload, &parts),
				 -EPROTO);
		assert_int_equal(parts_learn(SIZE - 1, 3, all, upload_ask, &upload, &parts),
				 -EPROTO);
		upload.skip = 1;
		assert_int_equal(parts_learn(SIZE, 3, all, upload_ask, &upload, &parts), -EPROTO);
		upload.error = -EACCES;
		upload.skip = 0;
		assert_int_equal(parts_learn(SIZE, 3, all, upload_ask, &upload, &parts), -EACCES);
	}
	assert_int_equal(parts_learn(SIZE, 0, false, upload_ask, &upload, &parts), -EINVAL);
	assert_int_equal(parts_of_even(SIZE, 3, 50002, &parts), -EINVAL);
	assert_int_equal(parts_of_even(SIZE, 3, 33335, &parts), 0);
	assert_int_equal(parts_of_even(SIZE, 3, 33334, &parts), -EINVAL);
	assert_int_equal(parts_of_even(SIZE, 3, UINT64_MAX, &parts), -EINVAL);
	/* More bytes than there are parts for, and fewer. */
	assert_int_equal(parts_of_even(SIZE, 3, 40000, &parts), 0);
	assert_int_equal(parts_sum_create(&parts, SIZE, 1U << DIGEST_CRC32, &sum), 0);
	assert_int_equal(parts_sum_add(sum, bytes, SIZE - 1), 0);
	assert_int_equal(parts_sum_end(sum, DIGEST_CRC32, &found), -EINVAL);
	assert_int_equal(parts_sum_add(sum, bytes, 2), -EINVAL);
	parts_sum_free(sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(even),
		cmocka_unit_test(uneven),
		cmocka_unit_test(few),
		cmocka_unit_test(wrong),
	};

	return cmocka_run_group_tests_name("parts", tests, prepare, NULL);
}
