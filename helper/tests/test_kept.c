// SPDX-License-Identifier: MIT
/* Digests as an index keeps them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kept.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static struct offers offers;
static struct parts parts;
static unsigned char bytes[KEPT_MAX];

static void offer(const char *text, enum offer_from from, uint32_t count)
{
	struct offer *one = &offers.of[offers.count++];

	*one = (struct offer){ .from = from, .parts = count };
	assert_int_equal(digest_parse(text, &one->digest), 0);
}

static int nothing(void **state)
{
	(void)state;
	memset(&offers, 0, sizeof(offers));
	parts_clear(&parts);
	return 0;
}

static void round_trip(void **state)
{
	struct parts found_parts;
	struct offers found;
	size_t len;

	(void)state;
	offer("sha256:" ABC, OFFER_GIVEN, 0);
	offer("crc32:01020304", OFFER_S3, 4);
	offer("sha1:a9993e364706816aba3e25717850c26c9cd0d89d", OFFER_S3, 4);
	assert_int_equal(parts_of_even(1000, 4, 300, &parts), 0);
	len = kept_encode(&offers, &parts, bytes);
	assert_int_equal(len, 3 * KEPT_ONE);
	kept_decode(bytes, len, 1000, &found, &found_parts);
	assert_int_equal(found.count, 3);
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(digest_equal(&found.of[i].digest, &offers.of[i].digest));
		assert_int_equal(found.of[i].from, offers.of[i].from);
		assert_int_equal(found.of[i].parts, offers.of[i].parts);
	}
	assert_int_equal(found_parts.count, 4);
	assert_int_equal(found_parts.even, 300);
	assert_false(found_parts.inferred);
	/* Of an object of another length its parts cannot be. */
	kept_decode(bytes, len, 1300, &found, &found_parts);
	assert_int_equal(found.count, 1);
	assert_int_equal(found_parts.count, 0);
}

/* Parts of several lengths would take much room: they are asked for again. */
static void uneven(void **state)
{
	uint64_t ends[] = { 1, 1000 };
	const struct parts odd = { .count = 2, .ends = ends };

	(void)state;
	offer("crc32:01020304", OFFER_S3, 2);
	assert_int_equal(kept_encode(&offers, &odd, bytes), 0);
	offer("sha256:" ABC, OFFER_FILE, 0);
	assert_int_equal(kept_encode(&offers, &odd, bytes), KEPT_ONE);
}

static void damaged(void **state)
{
	struct parts found_parts;
	struct offers found;
	size_t len;

	(void)state;
	offer("sha256:" ABC, OFFER_GIVEN, 0);
	offer("crc32:01020304", OFFER_S3, 0);
	len = kept_encode(&offers, &parts, bytes);
	assert_int_equal(len, 2 * KEPT_ONE);
	/* An algorithm, and a voice, that there are not; a record that is cut. */
	bytes[0] = DIGEST_ALGOS;
	kept_decode(bytes, len, 1000, &found, &found_parts);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.of[0].digest.algo, DIGEST_CRC32);
	bytes[KEPT_ONE + 1] = OFFER_FROMS;
	kept_decode(bytes, len, 1000, &found, &found_parts);
	assert_int_equal(found.count, 0);
	bytes[0] = DIGEST_SHA256;
	kept_decode(bytes, KEPT_ONE - 1, 1000, &found, &found_parts);
	assert_int_equal(found.count, 0);
	/* As many parts as there cannot be. */
	memset(bytes + 4, 0xff, 4);
	kept_decode(bytes, len, 1000, &found, &found_parts);
	assert_int_equal(found.count, 0);
	/* More records than are taken. */
	nothing(NULL);
	for (unsigned int i = 0; i < OFFERS_MAX; i++)
		offer("crc32:01020304", OFFER_S3, 0);
	len = kept_encode(&offers, &parts, bytes);
	assert_int_equal(len, KEPT_MAX);
	kept_decode(bytes, len, 1000, &found, &found_parts);
	assert_int_equal(found.count, OFFERS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(round_trip, nothing),
		cmocka_unit_test_setup(uneven, nothing),
		cmocka_unit_test_setup(damaged, nothing),
	};

	return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
