// SPDX-License-Identifier: MIT
#include "profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define PROFILE_SLOTS_FIRST  256
#define PROFILE_PLACES_FIRST 64

int profile_create(const char *dir, uint32_t block_shift, struct profile **ret)
{
	struct profile *profile = calloc(1, sizeof(*profile));

	if (!profile)
		return -ENOMEM;
	profile->dir = strdup(dir);
	profile->block_shift = block_shift;
	profile->slot_count = PROFILE_SLOTS_FIRST;
	profile->slots = calloc(profile->slot_count, sizeof(*profile->slots));
	if (!profile->dir || !profile->slots) {
		profile_free(profile);
		return -ENOMEM;
	}
	*ret = profile;
	return 0;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	for (size_t i = 0; i < profile->file_count; i++) {
		free(profile->files[i].name);
		free(profile->files[i].version);
	}
	for (size_t i = 0; i < profile->stream_count; i++)
		free(profile->streams[i].places);
	free(profile->files);
	free(profile->streams);
	free(profile->slots);
	free(profile->dir);
	free(profile);
}

uint64_t profile_blocks(const struct profile *profile, size_t file)
{
	uint64_t size = profile->files[file].size;

	return size ? ((size - 1) >> profile->block_shift) + 1 : 0;
}

int profile_find_file(const struct profile *profile, const char *name, size_t *ret_file)
{
	/* The last ones first: those that are being read. */
	for (size_t i = profile->file_count; i--;) {
		if (strcmp(profile->files[i].name, name))
			continue;
		*ret_file = i;
		return 0;
	}
	return -ENOENT;
}

int profile_add_file(struct profile *profile, const char *name, const char *version, uint64_t size,
		     size_t *ret_file)
{
	struct profile_file *files, *file;

	if (!profile_find_file(profile, name, ret_file))
		return 0;
	if (profile->file_count == PROFILE_FILES_MAX)
		return -E2BIG;
	files = reallocarray(profile->files, profile->file_count + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	profile->files = files;
	file = &files[profile->file_count];
	*file = (struct profile_file){ strdup(name), strdup(version), size };
	if (!file->name || !file->version) {
		free(file->name);
		free(file->version);
		return -ENOMEM;
	}
	*ret_file = profile->file_count++;
	return 0;
}

int profile_add_stream(struct profile *profile, uint32_t *ret_stream)
{
	struct profile_stream *streams =
		reallocarray(profile->streams, profile->stream_count + 1, sizeof(*streams));

	if (!streams)
		return -ENOMEM;
	profile->streams = streams;
	streams[profile->stream_count] = (struct profile_stream){ 0 };
	*ret_stream = (uint32_t)profile->stream_count++;
	return 0;
}

static struct profile_slot *profile_slot(struct profile_slot *slots, size_t count, uint64_t place)
{
	size_t i = (size_t)((place * 0x9e3779b97f4a7c15ULL) >> 20) & (count - 1);

	while (slots[i].place && slots[i].place != place + 1)
		i = (i + 1) & (count - 1);
	return &slots[i];
}

bool profile_find(const struct profile *profile, uint64_t place, uint32_t *ret_stream,
		  size_t *ret_position)
{
	const struct profile_slot *slot = profile_slot(profile->slots, profile->slot_count, place);

	if (!slot->place)
		return false;
	*ret_stream = slot->stream;
	*ret_position = slot->position;
	return true;
}

/* At most half of the slots are taken. */
static int profile_grow(struct profile *profile)
{
	size_t count = profile->slot_count * 2;
	struct profile_slot *slots;

	if (profile->count * 2 < profile->slot_count)
		return 0;
	slots = calloc(count, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < profile->slot_count; i++)
		if (profile->slots[i].place)
			*profile_slot(slots, count, profile->slots[i].place - 1) =
				profile->slots[i];
	free(profile->slots);
	profile->slots = slots;
	profile->slot_count = count;
	return 0;
}

int profile_add(struct profile *profile, uint32_t number, uint64_t place)
{
	struct profile_stream *stream = &profile->streams[number];
	uint32_t other;
	size_t at;
	int err;

	if (profile_find(profile, place, &other, &at))
		return -EEXIST;
	if (profile->count == PROFILE_BLOCKS_MAX)
		return -E2BIG;
	err = profile_grow(profile);
	if (err)
		return err;
	if (stream->count == stream->room) {
		size_t room = stream->room ? stream->room * 2 : PROFILE_PLACES_FIRST;
		uint64_t *places = reallocarray(stream->places, room, sizeof(*places));

		if (!places)
			return -ENOMEM;
		stream->places = places;
		stream->room = room;
	}
	*profile_slot(profile->slots, profile->slot_count, place) =
		(struct profile_slot){ place + 1, number, (uint32_t)stream->count };
	stream->places[stream->count++] = place;
	profile->count++;
	return 0;
}

/* One place in blocks of another size. */
static int profile_scale_place(struct profile *to, uint32_t stream, uint64_t place,
			       uint32_t from_shift)
{
	size_t file = profile_file_at(place);
	uint64_t start = profile_block_at(place) << from_shift;
	uint64_t first = start >> to->block_shift;
	uint64_t count = from_shift > to->block_shift ? 1ULL << (from_shift - to->block_shift) : 1;
	uint64_t blocks = profile_blocks(to, file);
	int err = 0;

	for (uint64_t i = 0; !err && i < count && first + i < blocks; i++) {
		err = profile_add(to, stream, profile_place(file, first + i));
		if (err == -EEXIST)
			err = 0;
	}
	return err;
}

int profile_scaled(const struct profile *profile, uint32_t block_shift, struct profile **ret)
{
	struct profile *to;
	int err = profile_create(profile->dir, block_shift, &to);

	if (err)
		return err;
	for (size_t i = 0; !err && i < profile->file_count; i++) {
		const struct profile_file *file = &profile->files[i];
		size_t number;

		err = profile_add_file(to, file->name, file->version, file->size, &number);
	}
	for (size_t i = 0; !err && i < profile->stream_count; i++) {
		const struct profile_stream *stream = &profile->streams[i];
		uint32_t number;

		err = profile_add_stream(to, &number);
		for (size_t j = 0; !err && j < stream->count; j++)
			err = profile_scale_place(to, number, stream->places[j],
						  profile->block_shift);
	}
	/* Smaller blocks may be too many: those that are needed first count. */
	if (err == -E2BIG)
		err = 0;
	if (err)
		profile_free(to);
	else
		*ret = to;
	return err;
}
