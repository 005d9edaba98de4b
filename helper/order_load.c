// SPDX-License-Identifier: MIT
/*
 * order_load: one load of a model, and what is kept of its order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "order_impl.h"
#include "profile_file.h"
#include "shard.h"

#define LOG_AREA "order"
#include "log.h"

/* Fewer blocks are no order. */
#define LOAD_LEAST 4

/* Length of the directory's part of a path, and the name behind it. */
static size_t load_split(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	return slash ? (size_t)(slash - path) : 0;
}

bool load_of(const struct load *load, struct object *object)
{
	const char *name;
	size_t len = load_split(object->path, &name);

	return load->origin == object->origin && load->block_shift == object->block_shift &&
	       !strncmp(load->dir, object->path, len) && !load->dir[len];
}

bool load_is(const struct load *load, const char *identity, const char *dir)
{
	size_t len = strlen(dir);

	return !strcmp(origin_identity(load->origin), identity) &&
	       (!len ||
		(!strncmp(load->dir, dir, len) && (!load->dir[len] || load->dir[len] == '/')));
}

/* What an earlier load was like, in blocks of this one's size. */
static void load_learned(struct load *load)
{
	struct store *store = core_store(load->order->core);
	struct profile *found, *scaled;

	if (profile_file_read(store, origin_identity(load->origin), load->dir, &found))
		return;
	if (found->block_shift != load->block_shift) {
		if (profile_scaled(found, load->block_shift, &scaled))
			scaled = NULL;
		profile_free(found);
		found = scaled;
	}
	if (!found)
		return;
	log_debug("%s: an order of %zu blocks in %zu streams is known", load->dir, found->count,
		  found->stream_count);
	if (ahead_create(load, found, &load->learned))
		log_warn("%s: no memory to follow its order", load->dir);
}

int load_create(struct order *order, struct object *object, struct load **ret)
{
	struct load *load = calloc(1, sizeof(*load));
	const char *name;
	int err;

	if (!load)
		return -ENOMEM;
	load->order = order;
	load->origin = origin_ref(object->origin);
	load->block_shift = object->block_shift;
	load->dir = strndup(object->path, load_split(object->path, &name));
	err = load->dir ? profile_create(load->dir, load->block_shift, &load->recording) : -ENOMEM;
	if (!err)
		err = shards_create(&load->shards);
	if (err) {
		load_free(load);
		return err;
	}
	load_learned(load);
	*ret = load;
	return 0;
}

bool load_is_busy(const struct load *load)
{
	return (load->learned.plan && plan_is_busy(load->learned.plan)) ||
	       (load->guess.plan && plan_is_busy(load->guess.plan));
}

void load_free_names(struct load *load)
{
	for (size_t i = 0; i < load->name_count; i++)
		free(load->names[i]);
	free(load->names);
	load->names = NULL;
	load->name_count = 0;
}

void load_free(struct load *load)
{
	ahead_free(&load->learned);
	ahead_free(&load->guess);
	shards_free(load->shards);
	profile_free(load->recording);
	for (size_t i = 0; i < load->object_count; i++)
		object_unref(load->objects[i].object);
	free(load->objects);
	load_free_names(load);
	origin_unref(load->origin);
	free(load->dir);
	free(load);
}

/* The stream of the recording that is the reader's. */
static int load_stream(struct load *load, uint32_t reader, uint32_t *ret)
{
	uint32_t stream;
	int err;

	for (unsigned int i = 0; i < load->reader_count; i++) {
		if (load->readers[i].reader != reader)
			continue;
		*ret = load->readers[i].stream;
		return 0;
	}
	/* More processes than there may be streams share the last one. */
	if (load->recording->stream_count == PROFILE_STREAMS_MAX) {
		*ret = PROFILE_STREAMS_MAX - 1;
		return 0;
	}
	err = profile_add_stream(load->recording, &stream);
	if (err)
		return err;
	load->readers[load->reader_count++] = (struct load_reader){ reader, stream };
	*ret = stream;
	return 0;
}

void load_record(struct load *load, const char *name, const char *version, uint64_t size,
		 uint64_t block)
{
	uint32_t stream;
	size_t file;

	if (profile_add_file(load->recording, name, version, size, &file) ||
	    load_stream(load, load->note->asked.reader, &stream))
		return;
	if (block < profile_blocks(load->recording, file) &&
	    !profile_add(load->recording, stream, profile_place(file, block))) {
		counter_add(order_blocks, 1);
		ahead_count(load, file, block);
	}
}

/* The object of a file of the recording, for those who fetch ahead. */
static void load_remember(struct load *load, size_t file, struct object *object)
{
	if (file >= load->object_count) {
		struct order_object *objects =
			reallocarray(load->objects, file + 1, sizeof(*objects));

		if (!objects)
			return;
		memset(objects + load->object_count, 0,
		       (file + 1 - load->object_count) * sizeof(*objects));
		load->objects = objects;
		load->object_count = file + 1;
	}
	if (load->objects[file].object == object)
		return;
	object_unref(load->objects[file].object);
	load->objects[file].object = object_ref(object);
}

void load_needed(struct load *load, const struct order_note *note)
{
	struct object *object = note->object;
	uint32_t stream;
	const char *name;
	size_t file, at;

	load_split(object->path, &name);
	if (note->asked.advice) {
		ahead_asked(load, name, note->asked.block);
		return;
	}
	load->note = note;
	if (profile_add_file(load->recording, name, object->attr.version, object->attr.size, &file))
		return;
	/* Another version than at the start of this load, which is another file. */
	if (load->recording->files[file].size != object->attr.size)
		return;
	load_remember(load, file, object);
	/* Asked for afresh: what came of it did not stay. */
	if (note->asked.first &&
	    profile_find(load->recording, profile_place(file, note->asked.block), &stream, &at))
		load->again++;
	ahead_needed(load, file, note->asked.block);
	load_record(load, name, object->attr.version, object->attr.size, note->asked.block);
	load->note = NULL;
}

/* One stream of what was recorded, to where its neighbours are in the order known before. */
static size_t load_merge_stream(struct load *load, const struct profile_stream *from, int *err)
{
	struct profile *known = load->learned.profile;
	uint32_t stream = UINT32_MAX;
	size_t added = 0;

	for (size_t i = 0; i < from->count && !*err; i++) {
		const struct profile_file *file =
			&load->recording->files[profile_file_at(from->places[i])];
		uint64_t block = profile_block_at(from->places[i]);
		uint32_t other;
		size_t number, at;

		*err = profile_add_file(known, file->name, file->version, file->size, &number);
		if (*err || known->files[number].size != file->size)
			continue;
		if (profile_find(known, profile_place(number, block), &other, &at)) {
			stream = other;
			continue;
		}
		if (stream == UINT32_MAX && known->stream_count < PROFILE_STREAMS_MAX)
			*err = profile_add_stream(known, &stream);
		else if (stream == UINT32_MAX)
			stream = PROFILE_STREAMS_MAX - 1;
		if (!*err)
			*err = profile_add(known, stream, profile_place(number, block));
		added += !*err;
	}
	return added;
}

/* What this load needed beyond what is known. */
static size_t load_merge(struct load *load)
{
	size_t added = 0;
	int err = 0;

	for (size_t i = 0; i < load->recording->stream_count; i++)
		added += load_merge_stream(load, &load->recording->streams[i], &err);
	return added;
}

void load_keep(struct load *load)
{
	const struct profile *known = load->learned.profile, *keep = load->recording;
	int err;

	if (load->kept == load->recording->count)
		return;
	load->kept = load->recording->count;
	if (known && !load->departed) {
		if (!load_merge(load))
			return;
		keep = known;
	} else if (keep->count < LOAD_LEAST || (known && keep->count < known->count / 2)) {
		/* A glance at some of the files does not replace the order of a load. */
		return;
	}
	err = profile_file_write(core_store(load->order->core), origin_identity(load->origin),
				 keep);
	if (err) {
		log_warn("the order of %s/%s is not kept: %s", origin_identity(load->origin),
			 load->dir, strerror(-err));
		return;
	}
	counter_add(order_profiles, 1);
	log_info("the order of %zu blocks in %zu streams is kept of %s/%s", keep->count,
		 keep->stream_count, origin_identity(load->origin), load->dir);
}
