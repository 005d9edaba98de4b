/* SPDX-License-Identifier: MIT */
/*
 * profile: in which order the blocks of a model were first needed, a stream for each
 * process that read it.
 *
 * A model is what lies in one directory of a source. A place is one block of one of its
 * files. Each place is in a profile once. Nothing here locks: a profile belongs to whoever
 * made it.
 */
#ifndef WFS_PROFILE_H
#define WFS_PROFILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds of one profile, so that a model of any size costs some MiB at most. */
#define PROFILE_BLOCKS_MAX  (1u << 18)
#define PROFILE_FILES_MAX   4096
#define PROFILE_STREAMS_MAX 64
/* Bytes of its JSON text, and of the text that `wfs profile load` takes. */
#define PROFILE_TEXT_MAX (4u << 20)
#define PROFILE_LOAD_MAX (64u << 20)
/* "version" of the JSON form. */
#define PROFILE_VERSION 1

#define PROFILE_BLOCK_BITS 48

struct profile_file {
	char *name, *version; /* one component; "": not known */
	uint64_t size;
};

struct profile_stream {
	uint64_t *places;
	size_t count, room;
};

struct profile_slot {
	uint64_t place; /* plus one; 0: empty */
	uint32_t stream, position;
};

struct profile {
	char *dir; /* below the source, "": the source itself */
	uint32_t block_shift;
	struct profile_file *files;
	size_t file_count;
	struct profile_stream *streams;
	size_t stream_count;
	size_t count; /* of all places */
	struct profile_slot *slots;
	size_t slot_count;
};

static inline uint64_t profile_place(size_t file, uint64_t block)
{
	return (uint64_t)file << PROFILE_BLOCK_BITS | block;
}

static inline size_t profile_file_at(uint64_t place)
{
	return (size_t)(place >> PROFILE_BLOCK_BITS);
}

static inline uint64_t profile_block_at(uint64_t place)
{
	return place & ((1ULL << PROFILE_BLOCK_BITS) - 1);
}

int profile_create(const char *dir, uint32_t block_shift, struct profile **ret);
void profile_free(struct profile *profile);

/* Blocks of a file. */
uint64_t profile_blocks(const struct profile *profile, size_t file);
/* The file of that name. -ENOENT. */
int profile_find_file(const struct profile *profile, const char *name, size_t *ret_file);
/* The same; it is added where it is not there yet. -E2BIG: there are too many. */
int profile_add_file(struct profile *profile, const char *name, const char *version, uint64_t size,
		     size_t *ret_file);
/* One more stream, empty. */
int profile_add_stream(struct profile *profile, uint32_t *ret_stream);
/* To the end of a stream. -EEXIST: it has the place already; -E2BIG: it is full. */
int profile_add(struct profile *profile, uint32_t stream, uint64_t place);
bool profile_find(const struct profile *profile, uint64_t place, uint32_t *ret_stream,
		  size_t *ret_position);

/* The same order in blocks of another size, or an equal copy. */
int profile_scaled(const struct profile *profile, uint32_t block_shift, struct profile **ret);

/*
 * One model as JSON, see wfs-profile(5); a reference. NULL: no memory, or a name that JSON
 * cannot hold.
 */
json_t *profile_json(const struct profile *profile);
/* -EINVAL with a sentence that says what is wrong with it. */
int profile_parse(const json_t *json, struct profile **ret, char *msg, size_t msg_size);

#endif /* WFS_PROFILE_H */
