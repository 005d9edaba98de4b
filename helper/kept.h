/* SPDX-License-Identifier: MIT */
/*
 * kept: digests of an object that its bytes have had, as a cache's index keeps them with it: so
 * that nobody need be asked again.
 */
#ifndef WFS_KEPT_H
#define WFS_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "offers.h"
#include "parts.h"

/* Bytes of one digest, and of as many as there may be. */
#define KEPT_ONE 80
#define KEPT_MAX (OFFERS_MAX * KEPT_ONE)

/*
 * Into bytes; their number, 0: there is nothing to keep. parts: of the offers that are of parts,
 * which are left out if those are of several lengths.
 */
size_t kept_encode(const struct offers *offers, const struct parts *parts,
		   unsigned char bytes[KEPT_MAX]);
/*
 * Out of them, for an object of size bytes. What cannot be is passed over: a disk errs. ret_parts:
 * of the offers that are of parts, if there are any; to be cleared.
 */
void kept_decode(const unsigned char *bytes, size_t len, uint64_t size, struct offers *ret,
		 struct parts *ret_parts);

#endif /* WFS_KEPT_H */
