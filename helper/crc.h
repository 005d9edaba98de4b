/* SPDX-License-Identifier: MIT */
/*
 * crc: the cyclic redundancy checks that S3 offers as checksums of objects.
 *
 * No library in Debian has CRC-64/NVME, and the routine that computes it computes the
 * shorter ones as well: all three are reflected, begin and end inverted.
 */
#ifndef WFS_CRC_H
#define WFS_CRC_H

#include <stddef.h>
#include <stdint.h>

enum crc_kind {
	CRC_32,	    /* ISO-HDLC, as zlib's */
	CRC_32C,    /* Castagnoli: RFC 3720, appendix B.4 */
	CRC_64NVME, /* NVM Express NVM Command Set Specification 1.0, 5.2.1.3.4 */
	CRC_KINDS,
};

/* The check of what was summed to crc, 0 at first, and then of bytes. Any thread. */
uint64_t crc_add(enum crc_kind kind, uint64_t crc, const void *bytes, size_t len);

#endif /* WFS_CRC_H */
