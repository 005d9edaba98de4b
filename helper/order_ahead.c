// SPDX-License-Identifier: MIT
/*
 * order_ahead: what is fetched ahead for one load: by an order known from before, or, where
 * there is none, the next shard.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine.h"
#include "order_impl.h"
#include "shard.h"

#define LOG_AREA "order"
#include "log.h"

/* An order is not followed any more when so many blocks, and one for two that fitted, did not fit. */
#define AHEAD_STRAYS	 16
#define AHEAD_STRAYS_PER 2
/* Or when so many blocks that had come before are asked for again. */
#define AHEAD_AGAIN 16
/* Names of a directory that are looked through for the next one. */
#define AHEAD_NAMES_MAX 65536

/* One reference for the caller. -ENOENT: not there, not that size, or not to be kept. */
static int ahead_open(struct load *load, const char *name, uint64_t size, struct object **ret)
{
	struct order *order = load->order;
	struct origin_attr attr;
	char path[PATH_MAX], msg[512];
	size_t file;
	int len, err;

	/* As the reader has it open. */
	if (!profile_find_file(load->recording, name, &file) && file < load->object_count &&
	    load->objects[file].object) {
		if (size && load->recording->files[file].size != size)
			return -ENOENT;
		*ret = object_ref(load->objects[file].object);
		return 0;
	}
	len = snprintf(path, sizeof(path), "%s%s%s", load->dir, *load->dir ? "/" : "", name);
	if (len < 0 || (size_t)len >= sizeof(path))
		return -ENAMETOOLONG;
	err = ask_stat(order->asker, load->origin, path, &attr, msg, sizeof(msg));
	if (err)
		return err;
	if (!S_ISREG(attr.mode) || attr.flags & ORIGIN_WEAK || !attr.size ||
	    (size && attr.size != size))
		return -ENOENT;
	err = object_open(order->core, load->origin, path, &attr, load->block_shift, ret);
	if (!err && !(*ret)->file) {
		object_unref(*ret);
		err = -ENOENT;
	}
	return err;
}

static struct order_object *ahead_slot(struct order_ahead *ahead, size_t file)
{
	if (file >= ahead->object_count) {
		size_t count = ahead->profile->file_count;
		struct order_object *objects =
			reallocarray(ahead->objects, count, sizeof(*objects));

		if (!objects)
			return NULL;
		memset(objects + ahead->object_count, 0,
		       (count - ahead->object_count) * sizeof(*objects));
		ahead->objects = objects;
		ahead->object_count = count;
	}
	return &ahead->objects[file];
}

static int ahead_object(void *arg, size_t file, struct object **ret)
{
	struct order_ahead *ahead = arg;
	const struct profile_file *wanted = &ahead->profile->files[file];
	struct order_object *slot = ahead_slot(ahead, file);
	struct object *object;
	int err;

	if (!slot)
		return -ENOMEM;
	/* Its directory went away: there may be another one by now. */
	if (slot->object && store_file_dead(slot->object->file))
		object_unref(TAKE(slot->object));
	if (!slot->object && !slot->none) {
		err = ahead_open(ahead->load, wanted->name, wanted->size, &object);
		if (err == -ECANCELED)
			return err;
		slot->object = err ? NULL : object;
		slot->none = err != 0;
	}
	if (slot->none)
		return -ENOENT;
	*ret = object_ref(slot->object);
	return 0;
}

static void ahead_passed(void *arg, uint32_t number, size_t from, size_t to)
{
	struct order_ahead *ahead = arg;
	const uint64_t *places = ahead->profile->streams[number].places;

	/* All but the last one, which is being looked at. */
	for (size_t i = from; i + 1 < to; i++) {
		const struct profile_file *file =
			&ahead->profile->files[profile_file_at(places[i])];

		load_record(ahead->load, file->name, file->version, file->size,
			    profile_block_at(places[i]));
	}
}

int ahead_create(struct load *load, struct profile *profile, struct order_ahead *ret)
{
	struct plan_ops ops = { ahead_object, ahead_passed, ret, order_wake, load->order };

	ret->load = load;
	ret->profile = profile;
	return plan_create(load->order->core, profile, &ops, &ret->plan);
}

void ahead_free(struct order_ahead *ahead)
{
	plan_destroy(ahead->plan);
	for (size_t i = 0; i < ahead->object_count; i++)
		object_unref(ahead->objects[i].object);
	free(ahead->objects);
	profile_free(ahead->profile);
	*ahead = (struct order_ahead){ 0 };
}

/* Readers do something else than what was recorded, or what comes does not stay. */
static void ahead_depart(struct load *load, const char *why)
{
	log_info("%s: %s, its order is not followed any more", *load->dir ? load->dir : "/", why);
	counter_add(plans_dropped, plan_following(load->learned.plan));
	plan_destroy(TAKE(load->learned.plan));
	load->departed = true;
}

static bool ahead_fits(struct order_ahead *ahead, const char *name, uint64_t size, uint64_t block)
{
	size_t file;

	return !profile_find_file(ahead->profile, name, &file) &&
	       ahead->profile->files[file].size == size &&
	       plan_needed(ahead->plan, profile_place(file, block));
}

void ahead_needed(struct load *load, size_t file, uint64_t block)
{
	/* Copied: what is recorded meanwhile may move the list. */
	const struct profile_file wanted = load->recording->files[file];

	if (load->guess.plan)
		ahead_fits(&load->guess, wanted.name, wanted.size, block);
	if (!load->learned.plan || ahead_fits(&load->learned, wanted.name, wanted.size, block))
		return;
	if (plan_following(load->learned.plan))
		counter_add(plan_misses, 1);
	load->strays++;
}

static void ahead_asked_of(struct order_ahead *ahead, const char *name, uint64_t block)
{
	size_t file;

	if (ahead->plan && !profile_find_file(ahead->profile, name, &file))
		plan_asked(ahead->plan, profile_place(file, block));
}

void ahead_asked(struct load *load, const char *name, uint64_t block)
{
	ahead_asked_of(&load->learned, name, block);
	ahead_asked_of(&load->guess, name, block);
}

/* ---- the next shard ---- */

static int ahead_name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int ahead_name(void *arg, const struct origin_entry *entry)
{
	struct load *load = arg;
	char **names;

	if (!S_ISREG(entry->attr.mode))
		return 0;
	if (load->name_count == AHEAD_NAMES_MAX)
		return -E2BIG;
	names = reallocarray(load->names, load->name_count + 1, sizeof(char *));
	if (!names)
		return -ENOMEM;
	load->names = names;
	names[load->name_count] = strdup(entry->name);
	if (!names[load->name_count])
		return -ENOMEM;
	load->name_count++;
	return 0;
}

/* Lists the directory, once. -ECANCELED: not now. */
static int ahead_list(struct load *load)
{
	uint64_t skipped;
	char msg[512];
	int err;

	if (load->listed)
		return 0;
	err = ask_list(load->order->asker, load->origin, load->dir, ahead_name, load, &skipped, msg,
		       sizeof(msg));
	if (err == -ECANCELED) {
		load_free_names(load);
		return err;
	}
	load->listed = true;
	if (err)
		log_debug("%s cannot be listed: %s", load->dir, msg);
	if (load->name_count)
		qsort(load->names, load->name_count, sizeof(char *), ahead_name_order);
	return 0;
}

/* The file that follows by name, and the one before; NULL: there is none like it. */
static void ahead_around(const struct load *load, const char *name, const char **ret_before,
			 const char **ret_after)
{
	*ret_before = NULL;
	*ret_after = NULL;
	for (size_t i = 0; i < load->name_count; i++) {
		int order = strcmp(load->names[i], name);

		if (!shard_is_alike(load->names[i], name) || !order)
			continue;
		if (order > 0) {
			*ret_after = load->names[i];
			return;
		}
		*ret_before = load->names[i];
	}
}

/*
 * What comes after a file that was read in sequence. A number "of" so many says that it belongs
 * together; by name alone two in a row must have been read so, since of files of experts some
 * are never needed.
 */
static int ahead_next_name(struct load *load, size_t file, char *next, size_t size)
{
	const char *name = load->recording->files[file].name, *before, *after;
	size_t other;
	int err;

	if (!shard_numbered(name, next, size))
		return 0;
	if (strstr(name, "-of-"))
		return -ENOENT;
	err = ahead_list(load);
	if (err)
		return err;
	ahead_around(load, name, &before, &after);
	if (!before || !after || strlen(after) >= size ||
	    profile_find_file(load->recording, before, &other) ||
	    !shards_was_read(load->shards, other))
		return -ENOENT;
	memcpy(next, after, strlen(after) + 1);
	return 0;
}

static int ahead_guess(struct load *load)
{
	struct profile *profile;
	int err;

	if (load->guess.plan)
		return 0;
	err = profile_create(load->dir, load->block_shift, &profile);
	if (err)
		return err;
	err = ahead_create(load, profile, &load->guess);
	if (err)
		ahead_free(&load->guess);
	return err;
}

/* All blocks of a file in their order are a stream that is followed. */
static int ahead_shard(struct load *load, const char *name)
{
	struct order_ahead *ahead = &load->guess;
	struct order_object *slot;
	struct object *object;
	uint32_t stream;
	size_t file;
	int err = ahead_guess(load);

	if (!err && !profile_find_file(ahead->profile, name, &file))
		return -EEXIST;
	if (!err)
		err = ahead_open(load, name, 0, &object);
	if (err)
		return err;
	err = profile_add_file(ahead->profile, name, object->attr.version, object->attr.size,
			       &file);
	slot = err ? NULL : ahead_slot(ahead, file);
	if (!slot) {
		object_unref(object);
		return err ? err : -ENOMEM;
	}
	slot->object = object;
	err = profile_add_stream(ahead->profile, &stream);
	for (uint64_t i = 0; !err && i < object_blocks(object); i++)
		err = profile_add(ahead->profile, stream, profile_place(file, i));
	if (err && err != -E2BIG)
		return err;
	return plan_follow(ahead->plan, stream);
}

void ahead_count(struct load *load, size_t file, uint64_t block)
{
	if (shards_needed(load->shards, file, profile_blocks(load->recording, file), block,
			  load->note->asked.reader) &&
	    load->read_count < LOAD_READ_MAX)
		load->read[load->read_count++] = file;
}

/* Begins what comes after the files that were read in sequence. */
static void ahead_follow_up(struct load *load)
{
	char next[NAME_MAX + 1];
	unsigned int later = 0;

	for (unsigned int i = 0; i < load->read_count; i++) {
		size_t file = load->read[i];
		int err;

		if (load->learned.plan)
			continue;
		err = ahead_next_name(load, file, next, sizeof(next));
		if (!err)
			err = ahead_shard(load, next);
		if (err == -ECANCELED)
			load->read[later++] = file;
		if (err)
			continue;
		counter_add(next_shards, 1);
		log_debug("%s was read in sequence: %s is begun", load->recording->files[file].name,
			  next);
	}
	load->read_count = later;
}

/* Do blocks that are fetched ahead stay until they are needed? */
static bool ahead_stays(const struct load *load)
{
	return load->again <= AHEAD_AGAIN;
}

void ahead_mark(struct load *load, bool keep)
{
	if (load->learned.plan)
		plan_mark(load->learned.plan, keep);
	if (load->guess.plan)
		plan_mark(load->guess.plan, keep && ahead_stays(load));
}

void ahead_pump(struct load *load)
{
	struct plan *learned = load->learned.plan;

	if (learned && plan_is_over(learned))
		ahead_depart(load, "its origin does not give its blocks");
	else if (learned && load->strays > AHEAD_STRAYS + plan_hits(learned) / AHEAD_STRAYS_PER)
		ahead_depart(load, "its readers go elsewhere");
	else if (learned && !ahead_stays(load))
		ahead_depart(load, "its blocks do not stay in the cache");
	ahead_follow_up(load);
	if (load->learned.plan)
		plan_pump(load->learned.plan);
	if (load->guess.plan && ahead_stays(load))
		plan_pump(load->guess.plan);
}

bool ahead_has_marks(const struct load *load)
{
	return (load->guess.plan && plan_has_marks(load->guess.plan)) ||
	       (load->learned.plan && plan_has_marks(load->learned.plan));
}
