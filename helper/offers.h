/* SPDX-License-Identifier: MIT */
/*
 * offers: what an origin says of an object's digest, in the head of an answer or in a file
 * beside the object.
 *
 * Whatever is not understood is passed over: it is as if it had not been said.
 */
#ifndef WFS_OFFERS_H
#define WFS_OFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "digest.h"

#define OFFERS_MAX 8
/* Parts that an upload to S3 may have. */
#define OFFERS_PARTS_MAX 10000
/* What stands behind an object's name in that of the file beside it; and bytes of the latter. */
#define OFFERS_SUFFIX	".sha256"
#define OFFERS_FILE_MAX (64u << 10)

enum offer_from { OFFER_S3, OFFER_REPR_DIGEST, OFFER_DIGEST, OFFER_FILE, OFFER_GIVEN, OFFER_FROMS };

struct offer {
	struct digest digest;
	enum offer_from from;
	/*
	 * 0: of the bytes. Else the object was uploaded in so many parts, and this is the digest of
	 * their digests, one after the other, as bytes (Amazon S3: a checksum that is COMPOSITE).
	 */
	uint32_t parts;
};

struct offers {
	unsigned int count;
	struct offer of[OFFERS_MAX];
	/* Something is said of parts: what S3 says of the whole is none of its bytes. */
	bool composite;
};

/* Who says it, for people; a constant. */
const char *offers_from(enum offer_from from);

/*
 * Takes a field of a head: x-amz-checksum-ALGORITHM and -type (Amazon S3, "Checking object
 * integrity"), Repr-Digest (RFC 9530), Digest (RFC 3230). Others are passed over.
 */
void offers_field(struct offers *offers, const char *name, const char *value);
/*
 * Takes the text of NAME.sha256: the digest alone, or as sha256sum(1) writes it. name is the
 * last component of the object's; lines about others are passed over.
 */
void offers_file(struct offers *offers, const char *text, size_t len, const char *name);
/* Has the object a file beside it that could tell its digest? Not the file itself. */
bool offers_wanted(const char *name);

#endif /* WFS_OFFERS_H */
