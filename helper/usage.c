// SPDX-License-Identifier: MIT
#include "usage.h"

#include <errno.h>
#include <string.h>

#include "engine.h"

/* So much must be known, and have been fetched for nothing, in blocks. */
#define USAGE_ENOUGH 16

void usage_add(struct usage *usage, uint64_t fetched, uint64_t asked)
{
	unsigned int i = 0;

	if (asked > fetched)
		asked = fetched;
	while (i < USAGE_BUCKETS - 1 && asked <= fetched >> (i + 1))
		i++;
	usage->blocks++;
	usage->fetched += fetched;
	usage->asked += asked;
	usage->bucket[i].blocks++;
	usage->bucket[i].bytes += fetched;
}

/* Bytes that blocks of 1/2^halvings of the size would have fetched, at the least. */
static uint64_t usage_fetched(const struct usage *usage, unsigned int halvings)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < USAGE_BUCKETS; i++)
		bytes += usage->bucket[i].bytes >> (i < halvings ? i : halvings);
	return bytes;
}

uint32_t usage_hint(const struct usage *usage, uint32_t block_shift)
{
	uint64_t before = usage->fetched;
	unsigned int halvings = 0;

	if (usage->blocks < USAGE_ENOUGH || usage->fetched - usage->asked < (uint64_t)USAGE_ENOUGH
										    << block_shift)
		return 0;
	while (block_shift - halvings > 16) {
		uint64_t after = usage_fetched(usage, halvings + 1);

		if (after > before / 4 * 3)
			break;
		before = after;
		halvings++;
	}
	return before < usage->fetched / 2 ? 1u << (block_shift - halvings) : 0;
}

int usage_of_file(struct core *core, struct origin *origin, const char *path,
		  const struct origin_attr *attr, uint32_t block_shift, struct usage *ret)
{
	struct object *object = object_known(core, origin, path, attr, block_shift);

	if (!object)
		return -ENOENT;
	pthread_mutex_lock(&core->lock);
	*ret = object->usage;
	pthread_mutex_unlock(&core->lock);
	object_unref(object);
	return 0;
}

void usage_of_origin(struct core *core, struct origin *origin, uint32_t block_shift,
		     struct usage *ret)
{
	struct source *source = core_source(core, origin);

	memset(ret, 0, sizeof(*ret));
	if (!source || block_shift < SOURCE_SHIFT_MIN || block_shift > SOURCE_SHIFT_MAX)
		return;
	SCOPED_LOCK(&core->lock);
	*ret = source->usage[block_shift - SOURCE_SHIFT_MIN];
}
