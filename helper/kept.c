// SPDX-License-Identifier: MIT
#include "kept.h"

#include <assert.h>
#include <string.h>

/* The numbers of enum digest_algo and enum offer_from are part of the format. */
struct kept_record {
	uint8_t algo, from;
	uint16_t pad;
	uint32_t parts;
	uint64_t even; /* with parts: the length of each but the last */
	unsigned char value[DIGEST_MAX];
};
static_assert(sizeof(struct kept_record) == KEPT_ONE, "part of the format of an index");

size_t kept_encode(const struct offers *offers, const struct parts *parts,
		   unsigned char bytes[KEPT_MAX])
{
	size_t len = 0;

	for (unsigned int i = 0; i < offers->count; i++) {
		const struct offer *offer = &offers->of[i];
		struct kept_record record = {
			.algo = (uint8_t)offer->digest.algo,
			.from = (uint8_t)offer->from,
			.parts = offer->parts,
		};

		if (offer->parts && (parts->count != offer->parts || !parts->even))
			continue;
		record.even = offer->parts ? parts->even : 0;
		memcpy(record.value, offer->digest.value, digest_size(offer->digest.algo));
		memcpy(bytes + len, &record, sizeof(record));
		len += sizeof(record);
	}
	return len;
}

static bool kept_is_possible(const struct kept_record *record)
{
	return record->algo < DIGEST_ALGOS && record->from < OFFER_FROMS &&
	       record->parts <= OFFERS_PARTS_MAX;
}

void kept_decode(const unsigned char *bytes, size_t len, uint64_t size, struct offers *ret,
		 struct parts *ret_parts)
{
	*ret = (struct offers){ 0 };
	*ret_parts = (struct parts){ 0 };
	for (; len >= KEPT_ONE && ret->count < OFFERS_MAX; bytes += KEPT_ONE, len -= KEPT_ONE) {
		struct kept_record record;
		struct offer *offer = &ret->of[ret->count];

		memcpy(&record, bytes, sizeof(record));
		if (!kept_is_possible(&record))
			continue;
		/* All that are of parts are of the same. */
		if (record.parts && !ret_parts->count &&
		    parts_of_even(size, record.parts, record.even, ret_parts))
			continue;
		if (record.parts &&
		    (record.parts != ret_parts->count || record.even != ret_parts->even))
			continue;
		*offer = (struct offer){
			.digest.algo = record.algo,
			.from = record.from,
			.parts = record.parts,
		};
		memcpy(offer->digest.value, record.value, digest_size(offer->digest.algo));
		ret->count++;
	}
}
