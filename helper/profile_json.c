// SPDX-License-Identifier: MIT
/*
 * profile_json: profiles as JSON. A stream is a text of "FILE:BLOCK" or "FILE:BLOCK+COUNT",
 * separated by spaces.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "profile.h"

static json_t *profile_stream_json(const struct profile_stream *stream)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	json_t *json;

	if (!out)
		return NULL;
	for (size_t i = 0, run; i < stream->count; i += run) {
		uint64_t place = stream->places[i];

		for (run = 1; i + run < stream->count && stream->places[i + run] == place + run;)
			run++;
		fprintf(out, "%s%zu:%llu", i ? " " : "", profile_file_at(place),
			(unsigned long long)profile_block_at(place));
		if (run > 1)
			fprintf(out, "+%zu", run);
	}
	json = fclose(out) ? NULL : json_string(text);
	free(text);
	return json;
}

json_t *profile_json(const struct profile *profile)
{
	json_t *files = json_array(), *streams = json_array(), *all;
	int err = 0;

	for (size_t i = 0; i < profile->file_count; i++) {
		const struct profile_file *file = &profile->files[i];

		err |= json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", file->name,
							      "size", (json_int_t)file->size,
							      "version", file->version));
	}
	for (size_t i = 0; i < profile->stream_count; i++)
		if (profile->streams[i].count)
			err |= json_array_append_new(streams,
						     profile_stream_json(&profile->streams[i]));
	all = json_pack("{s:s, s:I, s:o, s:o}", "directory", profile->dir, "block_size",
			(json_int_t)1 << profile->block_shift, "files", files, "streams", streams);
	if (all && err) {
		json_decref(all);
		all = NULL;
	}
	return all;
}

struct profile_reading {
	struct profile *profile;
	char *msg;
	size_t msg_size;
};

static int profile_wrong(const struct profile_reading *reading, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int profile_wrong(const struct profile_reading *reading, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reading->msg, reading->msg_size, format, args);
	va_end(args);
	return -EINVAL;
}

static bool profile_name_is_fit(const char *name)
{
	return *name && strlen(name) <= 255 && !strchr(name, '/') && strcmp(name, ".") &&
	       strcmp(name, "..");
}

/* "" or components that could be names. */
static bool profile_dir_is_fit(const char *dir)
{
	cleanup_free char *copy = strdup(dir);
	char *at = copy, *slash;

	if (!copy || strlen(dir) >= 4096)
		return false;
	if (!*dir)
		return true;
	do {
		slash = strchr(at, '/');
		if (slash)
			*slash = '\0';
		if (!profile_name_is_fit(at))
			return false;
		at = slash ? slash + 1 : NULL;
	} while (at);
	return true;
}

static int profile_read_file(struct profile_reading *reading, size_t i, const json_t *json)
{
	const char *name = json_string_value(json_object_get(json, "name"));
	const char *version = json_string_value(json_object_get(json, "version"));
	const json_t *size = json_object_get(json, "size");
	size_t number;
	int err;

	if (!name || !profile_name_is_fit(name))
		return profile_wrong(reading, "file %zu has no \"name\" that is one", i);
	if (json_object_get(json, "version") && (!version || strlen(version) > 255))
		return profile_wrong(reading, "\"version\" of %s is no text of up to 255 bytes",
				     name);
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return profile_wrong(reading, "%s has no \"size\" in bytes", name);
	err = profile_add_file(reading->profile, name, version ? version : "",
			       (uint64_t)json_integer_value(size), &number);
	if (!err && number != i)
		return profile_wrong(reading, "%s is named twice", name);
	if (err == -E2BIG)
		return profile_wrong(reading, "there are more than %u files", PROFILE_FILES_MAX);
	return err;
}

/* A number of digits alone; *at moves behind it. */
static bool profile_number(const char **at, uint64_t *ret)
{
	const char *start = *at;
	uint64_t n = 0;

	for (; **at >= '0' && **at <= '9'; (*at)++) {
		if (n > (UINT64_MAX - 9) / 10)
			return false;
		n = n * 10 + (uint64_t)(**at - '0');
	}
	*ret = n;
	return *at > start;
}

static int profile_read_run(struct profile_reading *reading, uint32_t stream, const char **at)
{
	struct profile *profile = reading->profile;
	uint64_t file, block, count = 1;
	int err = 0;

	if (!profile_number(at, &file) || *(*at)++ != ':' || !profile_number(at, &block))
		return profile_wrong(reading, "stream %u is not made of FILE:BLOCK+COUNT", stream);
	if (**at == '+') {
		(*at)++;
		if (!profile_number(at, &count) || !count)
			return profile_wrong(reading, "stream %u is not made of FILE:BLOCK+COUNT",
					     stream);
	}
	if (file >= profile->file_count)
		return profile_wrong(reading, "stream %u names file %llu of %zu", stream,
				     (unsigned long long)file, profile->file_count);
	if (block >= profile_blocks(profile, file) || count > profile_blocks(profile, file) - block)
		return profile_wrong(reading, "stream %u goes past the end of %s", stream,
				     profile->files[file].name);
	for (uint64_t i = 0; !err && i < count; i++)
		err = profile_add(profile, stream, profile_place(file, block + i));
	if (err == -EEXIST)
		return profile_wrong(reading, "a block of %s is there twice",
				     profile->files[file].name);
	if (err == -E2BIG)
		return profile_wrong(reading, "there are more than %u blocks", PROFILE_BLOCKS_MAX);
	return err;
}

static int profile_read_stream(struct profile_reading *reading, const json_t *json)
{
	const char *at = json_string_value(json);
	uint32_t stream;
	int err = profile_add_stream(reading->profile, &stream);

	if (err)
		return err;
	if (!at)
		return profile_wrong(reading, "stream %u is no text", stream);
	while (!err && *at) {
		err = profile_read_run(reading, stream, &at);
		if (!err && *at && (*at++ != ' ' || !*at))
			return profile_wrong(reading, "stream %u is not made of FILE:BLOCK+COUNT",
					     stream);
	}
	return err;
}

int profile_parse(const json_t *json, struct profile **ret, char *msg, size_t msg_size)
{
	struct profile_reading reading = { .msg = msg, .msg_size = msg_size };
	const char *dir = json_string_value(json_object_get(json, "directory"));
	json_int_t block = json_integer_value(json_object_get(json, "block_size"));
	const json_t *files = json_object_get(json, "files"), *one;
	const json_t *streams = json_object_get(json, "streams");
	size_t i;
	int err;

	if (!dir || !profile_dir_is_fit(dir))
		return profile_wrong(&reading, "a model has no \"directory\" below its source");
	if (block < 65536 || block > 67108864 || block & (block - 1))
		return profile_wrong(&reading,
				     "\"block_size\" of %.200s is no power of two from 64 KiB to 64 MiB",
				     *dir ? dir : "the source");
	if (!json_is_array(files) || !json_is_array(streams))
		return profile_wrong(&reading, "%.200s has no lists of \"files\" and \"streams\"",
				     *dir ? dir : "the source");
	if (json_array_size(streams) > PROFILE_STREAMS_MAX)
		return profile_wrong(&reading, "there are more than %u streams",
				     PROFILE_STREAMS_MAX);
	err = profile_create(dir, (uint32_t)__builtin_ctzll((unsigned long long)block),
			     &reading.profile);
	if (err)
		return err;
	json_array_foreach(files, i, one)
		if (!err)
			err = profile_read_file(&reading, i, one);
	json_array_foreach(streams, i, one)
		if (!err)
			err = profile_read_stream(&reading, one);
	if (!err && !reading.profile->count)
		err = profile_wrong(&reading, "it has no blocks");
	if (err) {
		profile_free(reading.profile);
		return err;
	}
	*ret = reading.profile;
	return 0;
}
