// SPDX-License-Identifier: MIT
/* Digests: known values, texts, and what origins say of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "crc.h"
#include "digest.h"
#include "offers.h"

#define ABC_SHA256 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ABC_BASE64 "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="

/* The check values of the catalogue of parametrised CRC algorithms. */
static void checks(void **state)
{
	(void)state;
	assert_int_equal(crc_add(CRC_32, 0, "123456789", 9), 0xcbf43926);
	assert_int_equal(crc_add(CRC_32C, 0, "123456789", 9), 0xe3069283);
	assert_true(crc_add(CRC_64NVME, 0, "123456789", 9) == 0xae8b14860a799888);
	/* RFC 3720, B.4: 32 bytes of zeros. */
	assert_int_equal(crc_add(CRC_32C, 0, (char[32]){ 0 }, 32), 0x8a9136aa);
	assert_int_equal(crc_add(CRC_32, 0, "", 0), 0);
}

/* However the bytes come, the digest is the same. */
static void pieces(void **state)
{
	unsigned int all = (1U << DIGEST_ALGOS) - 1, seed = 7;
	struct digest_sum *whole, *parts;
	size_t size = 100003, at = 0;
	char *bytes = malloc(size);

	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (char)rand_r(&seed);
	assert_int_equal(digest_sum_create(all, &whole), 0);
	assert_int_equal(digest_sum_create(all, &parts), 0);
	assert_int_equal(digest_sum_add(whole, bytes, size), 0);
	for (size_t len = 1; at < size; at += len, len = len * 3 + 1) {
		if (len > size - at)
			len = size - at;
		assert_int_equal(digest_sum_add(parts, bytes + at, len), 0);
	}
	for (int algo = 0; algo < DIGEST_ALGOS; algo++) {
		struct digest a, b;

		assert_int_equal(digest_sum_end(whole, algo, &a), 0);
		assert_int_equal(digest_sum_end(parts, algo, &b), 0);
		assert_true(digest_equal(&a, &b));
	}
	digest_sum_free(whole);
	digest_sum_free(parts);
	free(bytes);
}

static void known(void **state)
{
	static const char *const abc[] = {
		"sha256:" ABC_SHA256,
		"SHA-512:"
		"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
		"2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
		"sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
		"crc32:352441c2",
		"crc32c:364b3fb7",
	};
	struct digest_sum *sum;

	(void)state;
	for (size_t i = 0; i < sizeof(abc) / sizeof(abc[0]); i++) {
		struct digest wanted, found;
		char text[DIGEST_TEXT];

		assert_int_equal(digest_parse(abc[i], &wanted), 0);
		assert_int_equal(digest_sum_create(1U << wanted.algo, &sum), 0);
		assert_int_equal(digest_sum_add(sum, "abc", 3), 0);
		assert_int_equal(digest_sum_end(sum, wanted.algo, &found), 0);
		assert_true(digest_equal(&wanted, &found));
		assert_string_equal(digest_text(&found, text), strchr(abc[i], ':') + 1);
		digest_sum_free(sum);
	}
}

static void texts(void **state)
{
	struct digest a, b;

	(void)state;
	assert_int_equal(digest_from_hex(DIGEST_SHA256, ABC_SHA256, 64, &a), 0);
	assert_int_equal(digest_from_base64(DIGEST_SHA256, ABC_BASE64, 44, &b), 0);
	assert_true(digest_equal(&a, &b));
	assert_int_equal(digest_from_base64(DIGEST_CRC32, "NSRBwg==", 8, &b), 0);
	assert_false(digest_equal(&a, &b));
	assert_int_equal(digest_from_hex(DIGEST_SHA256, ABC_SHA256, 63, &a), -EINVAL);
	assert_int_equal(digest_parse("sha256:" ABC_SHA256 "0", &a), -EINVAL);
	assert_int_equal(digest_parse("sha256:g" ABC_SHA256, &a), -EINVAL);
	assert_int_equal(digest_parse("sha255:" ABC_SHA256, &a), -EINVAL);
	assert_int_equal(digest_parse(ABC_SHA256, &a), -EINVAL);
	assert_int_equal(digest_parse("crc32:35244 c2", &a), -EINVAL);
	/* Padding where there is none, spaces, a digest of another length. */
	assert_int_equal(digest_from_base64(DIGEST_SHA256, ABC_BASE64, 43, &b), -EINVAL);
	assert_int_equal(digest_from_base64(DIGEST_CRC32, "NSRBwgA=", 8, &b), -EINVAL);
	assert_int_equal(digest_from_base64(DIGEST_CRC32, " SRBwg==", 8, &b), -EINVAL);
	assert_int_equal(digest_from_base64(DIGEST_CRC64NVME, "NSRBwg==", 8, &b), -EINVAL);
}

static struct offers offers;

static int nothing(void **state)
{
	(void)state;
	memset(&offers, 0, sizeof(offers));
	return 0;
}

static void offered(unsigned int i, enum digest_algo algo)
{
	struct digest abc;

	assert_true(i < offers.count);
	assert_int_equal(offers.of[i].digest.algo, algo);
	if (algo != DIGEST_SHA256)
		return;
	assert_int_equal(digest_parse("sha256:" ABC_SHA256, &abc), 0);
	assert_true(digest_equal(&offers.of[i].digest, &abc));
}

static void amazon(void **state)
{
	(void)state;
	offers_field(&offers, "X-Amz-Checksum-SHA256", ABC_BASE64);
	offers_field(&offers, "x-amz-checksum-crc32", "NSRBwg==");
	offers_field(&offers, "x-amz-checksum-type", "FULL_OBJECT");
	assert_int_equal(offers.count, 2);
	offered(0, DIGEST_SHA256);
	offered(1, DIGEST_CRC32);
	assert_false(offers.composite);
	/* What nobody knows, or what is none. */
	offers_field(&offers, "x-amz-checksum-xxhash", ABC_BASE64);
	offers_field(&offers, "x-amz-checksum-sha256", "");
	offers_field(&offers, "x-amz-checksum-sha256", "ungWv48Bz");
	assert_int_equal(offers.count, 2);
}

/* Of the parts of an upload: not to be taken for one of the whole, whatever comes first. */
static void composite(void **state)
{
	(void)state;
	offers_field(&offers, "Repr-Digest", "sha-256=:" ABC_BASE64 ":");
	offers_field(&offers, "x-amz-checksum-sha256", ABC_BASE64);
	offers_field(&offers, "x-amz-checksum-type", "COMPOSITE");
	assert_int_equal(offers.count, 1);
	assert_int_equal(offers.of[0].from, OFFER_REPR_DIGEST);
	assert_string_equal(offers_from(offers.of[0].from), "Repr-Digest");
	assert_true(offers.composite);
	offers_field(&offers, "x-amz-checksum-crc32", "NSRBwg==");
	assert_int_equal(offers.count, 1);

	nothing(NULL);
	offers_field(&offers, "x-amz-checksum-sha256", ABC_BASE64 "-3");
	offers_field(&offers, "x-amz-checksum-type", "COMPOSITE");
	offers_field(&offers, "x-amz-checksum-crc32", "NSRBwg==-10000");
	assert_true(offers.composite);
	assert_int_equal(offers.count, 2);
	offered(0, DIGEST_SHA256);
	assert_int_equal(offers.of[0].parts, 3);
	assert_int_equal(offers.of[1].parts, 10000);
	/* So many parts there are not. */
	for (const char *const *bad = (const char *const[]){ "-0", "-", "-10001", "-3x", "--3",
							     "-99999999999999999999", NULL };
	     *bad; bad++) {
		char text[128];

		nothing(NULL);
		snprintf(text, sizeof(text), "%s%s", ABC_BASE64, *bad);
		offers_field(&offers, "x-amz-checksum-sha256", text);
		assert_int_equal(offers.count, 0);
		assert_true(offers.composite);
	}
}

static void fields(void **state)
{
	(void)state;
	offers_field(&offers, "repr-digest", "unixsum=:30637:, sha-256=:" ABC_BASE64 ": ,sha=::");
	assert_int_equal(offers.count, 1);
	offered(0, DIGEST_SHA256);
	offers_field(&offers, "Digest", "SHA-256=" ABC_BASE64 ",id-sha-256=" ABC_BASE64);
	assert_int_equal(offers.count, 2);
	offered(1, DIGEST_SHA256);
	/* That of the content is not that of the object. */
	offers_field(&offers, "Content-Digest", "sha-256=:" ABC_BASE64 ":");
	for (const char *const *bad =
		     (const char *const[]){ "", "=", "sha-256", "sha-256=", "sha-256=:",
					    "sha-256=::", ",,=,", "sha-256=" ABC_BASE64, NULL };
	     *bad; bad++)
		offers_field(&offers, "Repr-Digest", *bad);
	assert_int_equal(offers.count, 2);
	/* More than there is room for. */
	for (int i = 0; i < 2 * OFFERS_MAX; i++)
		offers_field(&offers, "Digest", "sha-256=" ABC_BASE64);
	assert_int_equal(offers.count, OFFERS_MAX);
}

static unsigned int of_file(const char *text, const char *name)
{
	nothing(NULL);
	offers_file(&offers, text, strlen(text), name);
	if (offers.count)
		offered(0, DIGEST_SHA256);
	return offers.count;
}

static void files(void **state)
{
	(void)state;
	assert_int_equal(of_file(ABC_SHA256, "x"), 1);
	assert_int_equal(of_file(ABC_SHA256 "\n", "x"), 1);
	assert_int_equal(of_file(ABC_SHA256 " \r\n", "x"), 1);
	assert_int_equal(of_file(ABC_SHA256 "  x\n", "x"), 1);
	assert_int_equal(of_file(ABC_SHA256 " *x", "x"), 1);
	assert_int_equal(of_file(ABC_SHA256 "  ./dir/x\r\n", "x"), 1);
	assert_int_equal(of_file("\\" ABC_SHA256 "  a\\\\b\\nc\n", "a\\b\nc"), 1);
	assert_int_equal(of_file(ABC_SHA256 "  a\\nc\n", "a\\nc"), 1);
	/* The line of its name among others. */
	assert_int_equal(of_file("0" ABC_SHA256 "\nnonsense\n" ABC_SHA256 "  x\n", "x"), 1);
	/* Of something else, or nothing. */
	assert_int_equal(of_file(ABC_SHA256 "  y\n", "x"), 0);
	assert_int_equal(of_file(ABC_SHA256 "  xx\n", "x"), 0);
	assert_int_equal(of_file(ABC_SHA256 "  x\n", "xx"), 0);
	assert_int_equal(of_file(ABC_SHA256 "  y/\n", "x"), 0);
	assert_int_equal(of_file(ABC_SHA256 "x\n", "x"), 0);
	assert_int_equal(of_file("0" ABC_SHA256 "\n", "x"), 0);
	assert_int_equal(of_file("<html></html>", "x"), 0);
	assert_int_equal(of_file("", "x"), 0);
	assert_int_equal(of_file("\\", "x"), 0);
	assert_true(offers_wanted("x"));
	assert_true(offers_wanted(".sha25"));
	assert_false(offers_wanted("x.sha256"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checks),
		cmocka_unit_test(pieces),
		cmocka_unit_test(known),
		cmocka_unit_test(texts),
		cmocka_unit_test_setup(amazon, nothing),
		cmocka_unit_test_setup(composite, nothing),
		cmocka_unit_test_setup(fields, nothing),
		cmocka_unit_test_setup(files, nothing),
	};

	return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
