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

#include "digest.h"

#define OFFERS_MAX 8
/* What stands behind an object's name in that of the file beside it; and bytes of the latter. */
#define OFFERS_SUFFIX	".sha256"
#define OFFERS_FILE_MAX (64u << 10)

struct offer {
	struct digest digest;
	const char *from; /* for people; a constant */
	bool amazon;	  /* among those that a COMPOSITE type is about */
};

struct offers {
	unsigned int count;
	struct offer of[OFFERS_MAX];
	/* There are checksums of parts, or of checksums of parts: not of the bytes as a whole. */
	bool composite;
};

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
