/* SPDX-License-Identifier: MIT */
/*
 * digest: digests of whole objects: their names, their texts, and computing them.
 *
 *	digest_sum_create -> digest_sum_add* -> digest_sum_end* -> digest_sum_free
 */
#ifndef WFS_DIGEST_H
#define WFS_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

/* An index has their numbers: new ones come last. */
enum digest_algo {
	DIGEST_SHA256,
	DIGEST_SHA512,
	DIGEST_SHA1,
	DIGEST_CRC32,
	DIGEST_CRC32C,
	DIGEST_CRC64NVME,
	DIGEST_ALGOS,
};

/* Bytes of the longest, and of its text in hexadecimal with its NUL. */
#define DIGEST_MAX  64
#define DIGEST_TEXT (2 * DIGEST_MAX + 1)

struct digest {
	enum digest_algo algo;
	unsigned char value[DIGEST_MAX]; /* the first byte of a check is its highest */
};

/* "sha256", "crc64nvme"; a constant. */
const char *digest_name(enum digest_algo algo);
/* The algorithm of a name of len bytes; "sha-256" is one as well. -EINVAL: none of these. */
int digest_by_name(const char *name, size_t len, enum digest_algo *ret);
/* Bytes of its value. */
size_t digest_size(enum digest_algo algo);
bool digest_equal(const struct digest *a, const struct digest *b);

/* From len characters, no more and no less than it takes. -EINVAL. */
int digest_from_hex(enum digest_algo algo, const char *text, size_t len, struct digest *ret);
int digest_from_base64(enum digest_algo algo, const char *text, size_t len, struct digest *ret);
/* "ALGORITHM:HEX", as on a command line. -EINVAL. */
int digest_parse(const char *text, struct digest *ret);
/* In hexadecimal. */
const char *digest_text(const struct digest *digest, char text[DIGEST_TEXT]);

/* Several digests of the same bytes. Of one thread. */
struct digest_sum;
/* algos: a bit for each, by its number. 0, -ENOMEM, or -EOPNOTSUPP: OpenSSL lacks one. */
int digest_sum_create(unsigned int algos, struct digest_sum **ret);
int digest_sum_add(struct digest_sum *sum, const void *bytes, size_t len);
/* The digest of all that was added, which was asked for; nothing is added any more. */
int digest_sum_end(struct digest_sum *sum, enum digest_algo algo, struct digest *ret);
void digest_sum_free(struct digest_sum *sum);

#endif /* WFS_DIGEST_H */
