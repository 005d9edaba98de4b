// SPDX-License-Identifier: MIT
#include "parts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct parts_sum {
	const struct parts *parts;
	uint64_t size, at; /* bytes of the object, and of them added */
	unsigned int algos;
	uint32_t part;				/* being added to; from 0 */
	struct digest_sum *inner;		/* of its bytes */
	struct digest_sum *outer[DIGEST_ALGOS]; /* of the digests of those before it */
};

/* Where a part, from 0, ends. */
static uint64_t parts_end(const struct parts *parts, uint64_t size, uint32_t part)
{
	if (parts->ends)
		return parts->ends[part];
	return part + 1 == parts->count ? size : (part + 1) * parts->even;
}

int parts_of_even(uint64_t size, uint32_t count, uint64_t even, struct parts *ret)
{
	uint64_t before;

	/* The last one has between one byte and as many as the others. */
	if (!count || !even || __builtin_mul_overflow(even, (uint64_t)(count - 1), &before) ||
	    before >= size || size - before > even)
		return -EINVAL;
	*ret = (struct parts){ .count = count, .even = even };
	return 0;
}

static int parts_learn_each(uint64_t size, uint32_t count, parts_ask_fn ask, void *arg,
			    struct parts *ret)
{
	struct parts parts = { .count = count };
	uint64_t end = 0;
	int err = 0;

	parts.ends = calloc(count, sizeof(*parts.ends));
	if (!parts.ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < count && !err; i++) {
		uint64_t offset, len;
		uint32_t said;

		err = ask(arg, i + 1, &offset, &len, &said);
		if (!err && (said != count || offset != end || len > size - end))
			err = -EPROTO;
		if (err)
			break;
		end += len;
		parts.ends[i] = end;
	}
	if (!err && end != size)
		err = -EPROTO;
	if (err) {
		parts_clear(&parts);
		return err;
	}
	*ret = parts;
	return 0;
}

int parts_learn(uint64_t size, uint32_t count, bool all, parts_ask_fn ask, void *arg,
		struct parts *ret)
{
	uint64_t offset, len, last_offset, last_len;
	struct parts parts;
	uint32_t said;
	int err;

	if (!count)
		return -EINVAL;
	/* Nothing to ask: it is all of the object, which may be empty. */
	if (count == 1) {
		*ret = (struct parts){ .count = 1, .even = size };
		return 0;
	}
	if (all)
		return parts_learn_each(size, count, ask, arg, ret);
	err = ask(arg, 1, &offset, &len, &said);
	if (!err && (said != count || offset))
		err = -EPROTO;
	if (!err)
		err = ask(arg, count, &last_offset, &last_len, &said);
	if (err)
		return err;
	if (parts_of_even(size, count, len, &parts) || last_offset != len * (count - 1) ||
	    last_len != size - last_offset)
		return parts_learn_each(size, count, ask, arg, ret);
	parts.inferred = count > 2;
	*ret = parts;
	return 0;
}

void parts_clear(struct parts *parts)
{
	free(parts->ends);
	*parts = (struct parts){ 0 };
}

int parts_sum_create(const struct parts *parts, uint64_t size, unsigned int algos,
		     struct parts_sum **ret)
{
	struct parts_sum *sum = calloc(1, sizeof(*sum));
	int err;

	if (!sum)
		return -ENOMEM;
	sum->parts = parts;
	sum->size = size;
	sum->algos = algos;
	err = digest_sum_create(algos, &sum->inner);
	for (int algo = 0; algo < DIGEST_ALGOS && !err; algo++)
		if (algos & 1U << algo)
			err = digest_sum_create(1U << algo, &sum->outer[algo]);
	if (err) {
		parts_sum_free(sum);
		return err;
	}
	*ret = sum;
	return 0;
}

/* A part is whole: its digests are what counts of it. */
static int parts_sum_next(struct parts_sum *sum)
{
	int err = 0;

	for (int algo = 0; algo < DIGEST_ALGOS && !err; algo++) {
		struct digest digest;

		if (!(sum->algos & 1U << algo))
			continue;
		err = digest_sum_end(sum->inner, algo, &digest);
		if (!err)
			err = digest_sum_add(sum->outer[algo], digest.value, digest_size(algo));
	}
	digest_sum_free(sum->inner);
	sum->inner = NULL;
	sum->part++;
	if (!err && sum->part < sum->parts->count)
		err = digest_sum_create(sum->algos, &sum->inner);
	return err;
}

int parts_sum_add(struct parts_sum *sum, const void *bytes, size_t len)
{
	const char *from = bytes;
	int err = 0;

	while (len && !err) {
		uint64_t left;
		size_t n;

		if (sum->part >= sum->parts->count)
			return -EINVAL;
		left = parts_end(sum->parts, sum->size, sum->part) - sum->at;
		n = len < left ? len : (size_t)left;
		if (n)
			err = digest_sum_add(sum->inner, from, n);
		from += n;
		len -= n;
		sum->at += n;
		if (!err && n == left)
			err = parts_sum_next(sum);
	}
	return err;
}

int parts_sum_end(struct parts_sum *sum, enum digest_algo algo, struct digest *ret)
{
	int err = 0;

	/* Parts of no bytes may be left, which follow the last byte. */
	while (!err && sum->part < sum->parts->count) {
		if (parts_end(sum->parts, sum->size, sum->part) != sum->at)
			return -EINVAL;
		err = parts_sum_next(sum);
	}
	return err ? err : digest_sum_end(sum->outer[algo], algo, ret);
}

void parts_sum_free(struct parts_sum *sum)
{
	if (!sum)
		return;
	digest_sum_free(sum->inner);
	for (int algo = 0; algo < DIGEST_ALGOS; algo++)
		digest_sum_free(sum->outer[algo]);
	free(sum);
}
