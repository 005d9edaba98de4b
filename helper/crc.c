// SPDX-License-Identifier: MIT
#include "crc.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

/* Bytes taken at once, each with a table of its own ("slicing by 8"). */
#define CRC_SLICES 8

/* Polynomials, the lowest power in the highest bit, and what inverts a remainder. */
static const struct {
	uint64_t polynomial, ones;
} crcs[CRC_KINDS] = {
	[CRC_32] = { 0xedb88320, UINT32_MAX },
	[CRC_32C] = { 0x82f63b78, UINT32_MAX },
	[CRC_64NVME] = { 0x9a6c9329ac4bc9b5, UINT64_MAX },
};

static uint64_t crc_tables[CRC_KINDS][CRC_SLICES][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_prepare(void)
{
	for (int kind = 0; kind < CRC_KINDS; kind++) {
		uint64_t(*tables)[256] = crc_tables[kind];

		for (unsigned int byte = 0; byte < 256; byte++) {
			uint64_t rest = byte;

			for (int bit = 0; bit < 8; bit++)
				rest = rest >> 1 ^ (rest & 1 ? crcs[kind].polynomial : 0);
			tables[0][byte] = rest;
		}
		/* The same byte with so many zeros behind it. */
		for (int slice = 1; slice < CRC_SLICES; slice++)
			for (unsigned int byte = 0; byte < 256; byte++) {
				uint64_t rest = tables[slice - 1][byte];

				tables[slice][byte] = rest >> 8 ^ tables[0][rest & 0xff];
			}
	}
}

uint64_t crc_add(enum crc_kind kind, uint64_t crc, const void *bytes, size_t len)
{
	const unsigned char *at = bytes;
	uint64_t(*tables)[256] = crc_tables[kind];

	pthread_once(&crc_once, crc_prepare);
	crc ^= crcs[kind].ones;
	for (; len >= CRC_SLICES; len -= CRC_SLICES, at += CRC_SLICES) {
		uint64_t word;

		memcpy(&word, at, sizeof(word));
		word = le64toh(word) ^ crc;
		crc = 0;
		for (int slice = 0; slice < CRC_SLICES; slice++)
			crc ^= tables[CRC_SLICES - 1 - slice][word >> (8 * slice) & 0xff];
	}
	for (; len; len--, at++)
		crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xff];
	return crc ^ crcs[kind].ones;
}
