// SPDX-License-Identifier: MIT
/*
 * object: the table of object versions and their watches.
 */
#include "object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine.h"
#include "store.h"

#define LOG_AREA "object"
#include "log.h"

static uint64_t object_hash(const char *identity, const char *path, const struct origin_attr *attr,
			    uint32_t block_shift)
{
	uint64_t hash = XXH3_64bits(identity, strlen(identity));

	hash = XXH3_64bits_withSeed(path, strlen(path), hash);
	hash = XXH3_64bits_withSeed(attr->version, strlen(attr->version), hash);
	hash ^= attr->size * 0x9e3779b97f4a7c15ULL;
	return hash + block_shift;
}

static bool object_is(const struct object *object, const char *identity, const char *path,
		      const struct origin_attr *attr, uint32_t block_shift)
{
	/* What one open got of it says nothing about what another one will get. */
	if ((object->attr.flags | attr->flags) & ORIGIN_UNPROVEN)
		return false;
	/* What was read before the version was sure may be of another one. */
	if (object->attr.flags & ~attr->flags & ORIGIN_WEAK)
		return false;
	return object->block_shift == block_shift && object->attr.size == attr->size &&
	       !strcmp(object->path, path) && !strcmp(object->attr.version, attr->version) &&
	       !strcmp(origin_identity(object->origin), identity);
}

/* table_lock held. Leaves out what is on its way out. */
static struct object *object_find(struct core *core, uint64_t hash, const char *identity,
				  const char *path, const struct origin_attr *attr,
				  uint32_t block_shift)
{
	struct object *object = core->objects[hash % OBJECT_BUCKETS];

	for (; object; object = object->table_next)
		if (object->hash == hash && object_is(object, identity, path, attr, block_shift)) {
			object->refs++;
			return object;
		}
	return NULL;
}

static void object_free(struct object *object)
{
	if (object->file)
		store_file_put(object->file);
	if (object->origin)
		origin_unref(object->origin);
	pthread_cond_destroy(&object->calm);
	pthread_mutex_destroy(&object->lock);
	free(object->path);
	free(object);
}

static struct object *object_create(struct core *core, struct origin *origin, const char *path,
				    const struct origin_attr *attr, uint32_t block_shift)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->refs = 1;
	object->core = core;
	pthread_mutex_init(&object->lock, NULL);
	pthread_cond_init(&object->calm, NULL);
	object->origin = origin_ref(origin);
	object->source = core_source(core, origin);
	object->path = strdup(path);
	object->attr = *attr;
	object->block_shift = block_shift;
	if (!object->source || !object->path) {
		object_free(object);
		return NULL;
	}
	return object;
}

struct object *object_known(struct core *core, struct origin *origin, const char *path,
			    const struct origin_attr *attr, uint32_t block_shift)
{
	const char *identity = origin_identity(origin);

	SCOPED_LOCK(&core->table_lock);
	return object_find(core, object_hash(identity, path, attr, block_shift), identity, path,
			   attr, block_shift);
}

int object_open(struct core *core, struct origin *origin, const char *path,
		const struct origin_attr *attr, uint32_t block_shift, struct object **ret)
{
	const char *identity = origin_identity(origin);
	uint64_t hash = object_hash(identity, path, attr, block_shift);
	struct object *object, *other;
	uint64_t longest;

	pthread_mutex_lock(&core->table_lock);
	object = object_find(core, hash, identity, path, attr, block_shift);
	pthread_mutex_unlock(&core->table_lock);
	if (object) {
		*ret = object;
		return 0;
	}
	if (block_shift < SOURCE_SHIFT_MIN || block_shift > SOURCE_SHIFT_MAX)
		return -EINVAL;
	/* No file is as long: a server's word is not taken for it. */
	if (attr->size > INT64_MAX - (1 << 26))
		return -EFBIG;
	longest = attr->size < 1ULL << block_shift ? attr->size : 1ULL << block_shift;
	if (longest >> BUFFER_UNIT_SHIFT > buffers_units(core->buffers) / 2) {
		log_error("%s: two blocks of %llu bytes do not fit into buffer_memory; raise it or use a smaller block=",
			  path, (unsigned long long)longest);
		return -ENOMEM;
	}
	object = object_create(core, origin, path, attr, block_shift);
	if (!object)
		return -ENOMEM;
	object->hash = hash;
	if (core->store && !(attr->flags & ORIGIN_WEAK) && attr->size) {
		struct store_key key = { identity, path, attr->version, attr->size, block_shift };
		int err = store_file_open(core->store, &key, &object->file);

		/* Without its file the object is served all the same. */
		if (err)
			log_warn("%s will not be cached: %s", path, strerror(-err));
	}
	pthread_mutex_lock(&core->table_lock);
	other = object_find(core, hash, identity, path, attr, block_shift);
	if (!other) {
		object->table_next = core->objects[hash % OBJECT_BUCKETS];
		core->objects[hash % OBJECT_BUCKETS] = object;
	}
	pthread_mutex_unlock(&core->table_lock);
	if (other) {
		object_free(object);
		object = other;
	}
	*ret = object;
	return 0;
}

void object_opened(struct object *object)
{
	if (object->file)
		store_file_opened(object->file);
	else
		hold_forget(object);
}

bool object_recorded(struct core *core, struct origin *origin, const char *path,
		     const struct origin_attr *attr, uint32_t block_shift)
{
	const struct store_key key = { origin_identity(origin), path, attr->version, attr->size,
				       block_shift };

	return core->store && store_file_recorded(core->store, &key);
}

struct object *object_ref(struct object *object)
{
	object->refs++;
	return object;
}

void object_unref(struct object *object)
{
	struct core *core;
	struct object **link;

	if (!object)
		return;
	core = object->core;
	pthread_mutex_lock(&core->table_lock);
	if (--object->refs) {
		pthread_mutex_unlock(&core->table_lock);
		return;
	}
	if (!object->replaced) {
		for (link = &core->objects[object->hash % OBJECT_BUCKETS]; *link != object;)
			link = &(*link)->table_next;
		*link = object->table_next;
	}
	pthread_mutex_unlock(&core->table_lock);
	object_free(object);
}

struct object *object_of_file(struct core *core, struct store_file *file)
{
	const struct store_key *key = store_file_key(file);
	struct origin_attr attr = { .size = key->size };
	struct object *object;
	uint64_t hash;

	if (strlen(key->version) >= sizeof(attr.version))
		return NULL;
	memcpy(attr.version, key->version, strlen(key->version) + 1);
	hash = object_hash(key->identity, key->path, &attr, key->block_shift);
	pthread_mutex_lock(&core->table_lock);
	object = object_find(core, hash, key->identity, key->path, &attr, key->block_shift);
	pthread_mutex_unlock(&core->table_lock);
	return object;
}

int object_watch(struct object *object, struct object_watch *watch)
{
	struct object_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	slot->watch = watch;
	pthread_mutex_lock(&object->lock);
	slot->next = object->slots;
	object->slots = slot;
	pthread_mutex_unlock(&object->lock);
	return 0;
}

void object_unwatch(struct object *object, struct object_watch *watch)
{
	struct object_slot **link, *slot;

	SCOPED_LOCK(&object->lock);
	for (slot = object->slots; slot && slot->watch != watch; slot = slot->next)
		;
	if (!slot)
		return;
	slot->dead = true;
	while (slot->calls)
		pthread_cond_wait(&object->calm, &object->lock);
	for (link = &object->slots; *link != slot;)
		link = &(*link)->next;
	*link = slot->next;
	free(slot);
}

bool object_is_watched(struct object *object)
{
	SCOPED_LOCK(&object->lock);
	return object->slots;
}

/*
 * The slots one after the other, each kept while its watch is called:
 * object_unwatch() waits for calls to end.
 */
static struct object_slot *object_next_slot(struct object *object, struct object_slot *slot)
{
	struct object_slot *next;

	SCOPED_LOCK(&object->lock);
	next = slot ? slot->next : object->slots;
	while (next && next->dead)
		next = next->next;
	if (next)
		next->calls++;
	if (slot && !--slot->calls && slot->dead)
		pthread_cond_broadcast(&object->calm);
	return next;
}

void object_tell_stored(struct object *object, struct block *block)
{
	struct object_slot *slot = NULL;

	while ((slot = object_next_slot(object, slot)))
		if (slot->watch->stored)
			slot->watch->stored(slot->watch, block->nr, block->sums, block->units);
}

void object_offer(struct object *object, struct block *block)
{
	struct object_slot *slot = NULL;
	const uint32_t step = 16;

	while ((slot = object_next_slot(object, slot))) {
		for (uint32_t unit = 0; slot->watch->offer && unit < block->units; unit += step) {
			uint32_t n = block->units - unit < step ? block->units - unit : step;

			slot->watch->offer(slot->watch, block->nr,
					   (uint64_t)unit << BUFFER_UNIT_SHIFT,
					   block_unit(block, unit), block_bytes(block, unit, n));
		}
	}
}

void object_tell_dropped(struct object *object, struct block *block)
{
	struct object_slot *slot = NULL;

	while ((slot = object_next_slot(object, slot)))
		if (slot->watch->dropped)
			slot->watch->dropped(slot->watch, block->nr);
}

int object_tell_evict(struct object *object, uint64_t block, bool cold)
{
	struct object_slot *slot = NULL, *granted = NULL;
	bool refused = false, past = false;
	int err = 0;

	while ((slot = object_next_slot(object, slot))) {
		if (refused || !slot->watch->evict)
			continue;
		err = slot->watch->evict(slot->watch, block, cold);
		refused = err != 0;
		if (!refused)
			granted = slot;
	}
	if (!refused || !granted)
		return err;
	/* Those that agreed before another one refused are not left in between. */
	while ((slot = object_next_slot(object, slot))) {
		if (!past && slot->watch->evict && slot->watch->evicted)
			slot->watch->evicted(slot->watch, block);
		past = past || slot == granted;
	}
	return err;
}

void object_tell_evicted(struct object *object, uint64_t block)
{
	struct object_slot *slot = NULL;

	while ((slot = object_next_slot(object, slot)))
		if (slot->watch->evicted)
			slot->watch->evicted(slot->watch, block);
}

/* Has no data file, or one that is lost, and could have one. */
static bool object_is_homeless(struct object *object)
{
	if (object->file)
		return store_file_dead(object->file);
	return !(object->attr.flags & ORIGIN_WEAK) && object->attr.size;
}

void object_reopen_all(struct core *core)
{
	struct object *homeless = NULL, **link, *object;

	pthread_mutex_lock(&core->table_lock);
	for (size_t i = 0; i < OBJECT_BUCKETS; i++) {
		for (link = &core->objects[i]; (object = *link);) {
			if (!object_is_homeless(object)) {
				link = &object->table_next;
				continue;
			}
			/* Whoever opens it from now on makes another one. */
			*link = object->table_next;
			object->replaced = true;
			object->refs++;
			object->table_next = homeless;
			homeless = object;
		}
	}
	pthread_mutex_unlock(&core->table_lock);
	while ((object = homeless)) {
		struct object_slot *slot = NULL;

		homeless = object->table_next;
		while ((slot = object_next_slot(object, slot)))
			if (slot->watch->reopen)
				slot->watch->reopen(slot->watch);
		object_unref(object);
	}
}

int object_fd(const struct object *object)
{
	int fd = object->file ? store_file_fd(object->file) : -1;

	return fd < 0 ? -1 : fd;
}

const struct origin_attr *object_attr(const struct object *object)
{
	return &object->attr;
}

const char *object_path(const struct object *object)
{
	return object->path;
}

uint32_t object_block_shift(const struct object *object)
{
	return object->block_shift;
}

uint64_t object_blocks(const struct object *object)
{
	uint64_t size = object->attr.size;

	return size ? ((size - 1) >> object->block_shift) + 1 : 0;
}

uint32_t object_units(const struct object *object, uint64_t block)
{
	uint64_t start = block << object->block_shift;
	uint64_t len;

	if (block >= object_blocks(object))
		return 0;
	len = object->attr.size - start;
	if (len > 1ULL << object->block_shift)
		len = 1ULL << object->block_shift;
	return (uint32_t)((len + BUFFER_UNIT - 1) >> BUFFER_UNIT_SHIFT);
}

/* What is kept in its buffer until a reader asks for it is told when it has. */
static void object_unmap_marks(struct object *object, uint64_t first, uint64_t count,
			       uint64_t *bitmap, uint64_t *sums, size_t *ret_sums)
{
	SCOPED_LOCK(&object->core->lock);
	for (size_t i = 0; i < BLOCK_BUCKETS; i++) {
		for (const struct block *block = object->blocks[i]; block;
		     block = block->hash_next) {
			uint64_t bit = block->nr - first;

			if (block->mark && block->wants && bit < count &&
			    bitmap[bit / 64] >> (bit % 64) & 1)
				store_unmap(store_file_key(object->file), first, bit, bitmap, sums,
					    ret_sums);
		}
	}
}

int object_map(struct object *object, uint64_t first, uint64_t count, uint64_t *bitmap,
	       uint64_t *sums, size_t *ret_sums)
{
	int err;

	memset(bitmap, 0, (count + 63) / 64 * sizeof(*bitmap));
	*ret_sums = 0;
	if (!object->file)
		return 0;
	err = store_map(object->file, first, count, bitmap, sums, ret_sums);
	if (!err)
		object_unmap_marks(object, first, count, bitmap, sums, ret_sums);
	return err;
}
