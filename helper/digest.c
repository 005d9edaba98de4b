// SPDX-License-Identifier: MIT
#include "digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "crc.h"

static const struct {
	const char *name, *alias;
	size_t size;
	const EVP_MD *(*evp)(void); /* NULL: a check */
	enum crc_kind crc;
} algorithms[DIGEST_ALGOS] = {
	[DIGEST_SHA256] = { "sha256", "sha-256", 32, EVP_sha256, 0 },
	[DIGEST_SHA512] = { "sha512", "sha-512", 64, EVP_sha512, 0 },
	[DIGEST_SHA1] = { "sha1", "sha", 20, EVP_sha1, 0 },
	[DIGEST_CRC32] = { "crc32", "crc32", 4, NULL, CRC_32 },
	[DIGEST_CRC32C] = { "crc32c", "crc32c", 4, NULL, CRC_32C },
	[DIGEST_CRC64NVME] = { "crc64nvme", "crc64nvme", 8, NULL, CRC_64NVME },
};

struct digest_sum {
	EVP_MD_CTX *evp[DIGEST_ALGOS];
	bool crc[DIGEST_ALGOS];
	uint64_t rest[DIGEST_ALGOS];
};

const char *digest_name(enum digest_algo algo)
{
	return algorithms[algo].name;
}

int digest_by_name(const char *name, size_t len, enum digest_algo *ret)
{
	for (int algo = 0; algo < DIGEST_ALGOS; algo++) {
		const char *full = algorithms[algo].name, *alias = algorithms[algo].alias;

		if ((strlen(full) == len && !strncasecmp(name, full, len)) ||
		    (strlen(alias) == len && !strncasecmp(name, alias, len))) {
			*ret = algo;
			return 0;
		}
	}
	return -EINVAL;
}

size_t digest_size(enum digest_algo algo)
{
	return algorithms[algo].size;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
	return a->algo == b->algo && !memcmp(a->value, b->value, digest_size(a->algo));
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int digest_from_hex(enum digest_algo algo, const char *text, size_t len, struct digest *ret)
{
	struct digest digest = { .algo = algo };
	size_t size = digest_size(algo);

	if (len != 2 * size)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		digest.value[i] = (unsigned char)(high << 4 | low);
	}
	*ret = digest;
	return 0;
}

int digest_from_base64(enum digest_algo algo, const char *text, size_t len, struct digest *ret)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t size = digest_size(algo), padding = (3 - size % 3) % 3;
	unsigned char bytes[DIGEST_MAX + 3];
	struct digest digest = { .algo = algo };

	if (len != (size + 2) / 3 * 4)
		return -EINVAL;
	/* EVP_DecodeBlock() passes over spaces, and takes padding for zeros. */
	for (size_t i = 0; i < len; i++)
		if (i < len - padding ? !text[i] || !strchr(digits, text[i]) : text[i] != '=')
			return -EINVAL;
	if (EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)len) != (int)(size + padding))
		return -EINVAL;
	memcpy(digest.value, bytes, size);
	*ret = digest;
	return 0;
}

int digest_parse(const char *text, struct digest *ret)
{
	const char *colon = strchr(text, ':');
	enum digest_algo algo;

	if (!colon || digest_by_name(text, (size_t)(colon - text), &algo))
		return -EINVAL;
	return digest_from_hex(algo, colon + 1, strlen(colon + 1), ret);
}

const char *digest_text(const struct digest *digest, char text[DIGEST_TEXT])
{
	for (size_t i = 0; i < digest_size(digest->algo); i++)
		snprintf(text + 2 * i, 3, "%02x", digest->value[i]);
	return text;
}

int digest_sum_create(unsigned int algos, struct digest_sum **ret)
{
	struct digest_sum *sum = calloc(1, sizeof(*sum));

	if (!sum)
		return -ENOMEM;
	for (int algo = 0; algo < DIGEST_ALGOS; algo++) {
		if (!(algos & 1U << algo))
			continue;
		if (!algorithms[algo].evp) {
			sum->crc[algo] = true;
			continue;
		}
		sum->evp[algo] = EVP_MD_CTX_new();
		if (!sum->evp[algo] ||
		    !EVP_DigestInit_ex(sum->evp[algo], algorithms[algo].evp(), NULL)) {
			int err = sum->evp[algo] ? -EOPNOTSUPP : -ENOMEM;

			digest_sum_free(sum);
			return err;
		}
	}
	*ret = sum;
	return 0;
}

int digest_sum_add(struct digest_sum *sum, const void *bytes, size_t len)
{
	for (int algo = 0; algo < DIGEST_ALGOS; algo++) {
		if (sum->crc[algo])
			sum->rest[algo] =
				crc_add(algorithms[algo].crc, sum->rest[algo], bytes, len);
		if (sum->evp[algo] && !EVP_DigestUpdate(sum->evp[algo], bytes, len))
			return -EIO;
	}
	return 0;
}

int digest_sum_end(struct digest_sum *sum, enum digest_algo algo, struct digest *ret)
{
	struct digest digest = { .algo = algo };
	size_t size = digest_size(algo);

	if (sum->evp[algo] && !EVP_DigestFinal_ex(sum->evp[algo], digest.value, NULL))
		return -EIO;
	for (size_t i = 0; sum->crc[algo] && i < size; i++)
		digest.value[i] = (unsigned char)(sum->rest[algo] >> (8 * (size - 1 - i)));
	*ret = digest;
	return 0;
}

void digest_sum_free(struct digest_sum *sum)
{
	if (!sum)
		return;
	for (int algo = 0; algo < DIGEST_ALGOS; algo++)
		EVP_MD_CTX_free(sum->evp[algo]);
	free(sum);
}
