// SPDX-License-Identifier: MIT
/*
 * server_profile: `wfs profile`: orders that were recorded, out to a file and in from one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "counters.h"
#include "order.h"
#include "profile.h"
#include "profile_file.h"
#include "server_impl.h"
#include "store.h"

#define PROFILE_FORMAT	   "wfs-profile"
#define PROFILE_MODELS_MAX 256

/* What a command is about: an origin, and a path below it. */
struct profile_about {
	struct core *core;
	struct store *store;
	struct origin *origin; /* a reference */
	const char *identity, *path;
};

static int profile_about(struct connection *connection, const json_t *request,
			 struct profile_about *ret, char *msg, size_t msg_size)
{
	const char *path = json_string_value(json_object_get(request, "path"));
	int err = server_cached(connection, request, &ret->store, &ret->origin, msg, msg_size);

	if (err)
		return err;
	ret->core = connection->server->core;
	ret->identity = origin_identity(ret->origin);
	ret->path = path ? path : "";
	return 0;
}

/* Of a directory at or below path, what follows path. */
static const char *profile_relative(const char *dir, const char *path)
{
	size_t len = strlen(path);

	return len && dir[len] == '/' ? dir + len + 1 : dir + len;
}

struct profile_saving {
	const struct profile_about *about;
	json_t *models;
};

static int profile_save_one(void *arg, const struct profile_found *found)
{
	struct profile_saving *saving = arg;
	json_t *model = profile_json(found->profile);

	if (!model)
		return -ENOMEM;
	if (json_object_set_new(model, "directory",
				json_string(profile_relative(found->profile->dir,
							     saving->about->path))) ||
	    json_array_append(saving->models, model)) {
		json_decref(model);
		return -ENOMEM;
	}
	json_decref(model);
	return 0;
}

int profile_save(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size)
{
	struct profile_about about;
	struct profile_saving saving = { &about, json_array() };
	char *source = NULL;
	int err = profile_about(connection, request, &about, msg, msg_size);

	if (err) {
		json_decref(saving.models);
		return err;
	}
	/* With what is known of loads that go on. */
	order_settle(core_order(about.core), about.identity, about.path, ORDER_KEEP);
	err = profile_file_each(about.store, about.identity, about.path, profile_save_one, &saving);
	if (!err && !json_array_size(saving.models)) {
		snprintf(msg, msg_size,
			 "no order is known of it: it is recorded when files of a mount of this very source are read that are not cached");
		err = -ENOENT;
	}
	if (!err)
		err = server_source(connection, request, &source, msg, msg_size);
	origin_unref(about.origin);
	if (err) {
		json_decref(saving.models);
		return err;
	}
	*ret_result = json_pack("{s:{s:s, s:i, s:s, s:s, s:o}}", "profile", "format",
				PROFILE_FORMAT, "version", PROFILE_VERSION, "source", source,
				"path", about.path, "models", saving.models);
	free(source);
	return *ret_result ? 0 : -ENOMEM;
}

int profile_part(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size)
{
	const char *part = json_string_value(json_object_get(request, "part"));
	size_t len = part ? strlen(part) : 0;
	char *upload;

	(void)ret_result;
	if (!part)
		return -EINVAL;
	if (len > PROFILE_LOAD_MAX - connection->upload_len) {
		snprintf(msg, msg_size, "a profile has at most %u MiB", PROFILE_LOAD_MAX >> 20);
		return -EFBIG;
	}
	upload = realloc(connection->upload, connection->upload_len + len + 1);
	if (!upload)
		return -ENOMEM;
	memcpy(upload + connection->upload_len, part, len + 1);
	connection->upload = upload;
	connection->upload_len += len;
	return 0;
}

struct profile_list {
	struct profile *profiles[PROFILE_MODELS_MAX];
	size_t count;
};

static void profile_list_free(struct profile_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		profile_free(list->profiles[i]);
}

/* A model of the text, below path. */
static int profile_load_one(struct profile_list *list, const json_t *model, const char *path,
			    char *msg, size_t msg_size)
{
	char why[400] = "";
	struct profile *profile;
	char *dir;
	int err = profile_parse(model, &profile, why, sizeof(why));

	if (err) {
		if (*why)
			snprintf(msg, msg_size, "model %zu of the profile is refused: %s",
				 list->count, why);
		return err;
	}
	if (asprintf(&dir, "%s%s%s", path, *path && *profile->dir ? "/" : "", profile->dir) < 0) {
		profile_free(profile);
		return -ENOMEM;
	}
	free(profile->dir);
	profile->dir = dir;
	list->profiles[list->count++] = profile;
	return 0;
}

static int profile_load_all(const json_t *text, const char *path, struct profile_list *list,
			    char *msg, size_t msg_size)
{
	const char *format = json_string_value(json_object_get(text, "format"));
	const json_t *version = json_object_get(text, "version"), *model;
	const json_t *models = json_object_get(text, "models");
	size_t i;
	int err = 0;

	if (!format || strcmp(format, PROFILE_FORMAT)) {
		snprintf(msg, msg_size, "this is no profile: its \"format\" is not \"%s\"",
			 PROFILE_FORMAT);
		return -EINVAL;
	}
	if (!json_is_integer(version) || json_integer_value(version) != PROFILE_VERSION) {
		snprintf(msg, msg_size,
			 "the profile is of another version than %d, which is the one that is understood",
			 PROFILE_VERSION);
		return -EINVAL;
	}
	if (!json_is_array(models) || !json_array_size(models) ||
	    json_array_size(models) > PROFILE_MODELS_MAX) {
		snprintf(msg, msg_size, "the profile has no list of 1 to %d \"models\"",
			 PROFILE_MODELS_MAX);
		return -EINVAL;
	}
	json_array_foreach(models, i, model)
		if (!err)
			err = profile_load_one(list, model, path, msg, msg_size);
	return err;
}

/* All are good: they replace what is known of the same directories. */
static int profile_load_write(const struct profile_about *about, const struct profile_list *list,
			      char *msg, size_t msg_size)
{
	int err = 0;

	for (size_t i = 0; !err && i < list->count; i++) {
		order_settle(core_order(about->core), about->identity, list->profiles[i]->dir,
			     ORDER_DISCARD);
		err = profile_file_write(about->store, about->identity, list->profiles[i]);
		if (!err)
			counter_add(order_profiles, 1);
	}
	if (err)
		snprintf(msg, msg_size, "the profile cannot be kept in the cache: %s",
			 strerror(-err));
	return err;
}

int profile_load(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size)
{
	cleanup_free char *upload = TAKE(connection->upload);
	struct profile_list list = { .count = 0 };
	struct profile_about about;
	json_error_t error;
	json_t *text;
	int err;

	connection->upload_len = 0;
	text = upload ? json_loads(upload, JSON_REJECT_DUPLICATES, &error) : NULL;
	if (!text) {
		snprintf(msg, msg_size, "this is no profile: %s", upload ? error.text : "no text");
		return -EINVAL;
	}
	err = profile_about(connection, request, &about, msg, msg_size);
	if (err) {
		json_decref(text);
		return err;
	}
	err = profile_load_all(text, about.path, &list, msg, msg_size);
	if (!err)
		err = profile_load_write(&about, &list, msg, msg_size);
	if (!err)
		*ret_result = json_pack("{s:I}", "models", (json_int_t)list.count);
	profile_list_free(&list);
	origin_unref(about.origin);
	json_decref(text);
	return err;
}

static int profile_list_one(void *arg, const struct profile_found *found)
{
	const struct profile *profile = found->profile;
	struct connection *connection = arg;
	uint64_t bytes = 0;
	size_t streams = 0;

	for (size_t i = 0; i < profile->stream_count; i++) {
		const struct profile_stream *stream = &profile->streams[i];

		streams += stream->count > 0;
		for (size_t j = 0; j < stream->count; j++) {
			uint64_t size = profile->files[profile_file_at(stream->places[j])].size;
			uint64_t start = profile_block_at(stream->places[j])
					 << profile->block_shift;
			uint64_t len = 1ULL << profile->block_shift;

			bytes += len < size - start ? len : size - start;
		}
	}
	server_send(connection,
		    json_pack("{s:{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}}", "model", "origin",
			      found->identity, "directory", profile->dir, "block_size",
			      (json_int_t)1 << profile->block_shift, "files",
			      (json_int_t)profile->file_count, "streams", (json_int_t)streams,
			      "blocks", (json_int_t)profile->count, "bytes", (json_int_t)bytes,
			      "written", (json_int_t)found->written_s));
	return connection->broken ? -EPIPE : 0;
}

int profile_list(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size)
{
	struct store *store = core_store(connection->server->core);
	struct profile_about about;
	int err;

	(void)ret_result;
	if (!json_object_get(request, "mount") && !json_object_get(request, "source")) {
		if (store)
			return profile_file_each(store, NULL, "", profile_list_one, connection);
		snprintf(msg, msg_size, "the daemon has no cache directory");
		return -ENODEV;
	}
	err = profile_about(connection, request, &about, msg, msg_size);
	if (err)
		return err;
	err = profile_file_each(about.store, about.identity, about.path, profile_list_one,
				connection);
	origin_unref(about.origin);
	return err;
}

int profile_drop(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size)
{
	struct profile_about about;
	unsigned int count;
	int err = profile_about(connection, request, &about, msg, msg_size);

	if (err)
		return err;
	order_settle(core_order(about.core), about.identity, about.path, ORDER_DISCARD);
	err = profile_file_drop(about.store, about.identity, about.path, &count);
	origin_unref(about.origin);
	if (!err)
		*ret_result = json_pack("{s:I}", "models", (json_int_t)count);
	return err;
}
