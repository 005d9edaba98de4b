// SPDX-License-Identifier: MIT
/*
 * verify: `wfs verify`: checks what is cached of a source, or at and below a path of a mount.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cleanup.h"
#include "counters.h"

#define VERIFY_PROGRESS_NS 200000000ULL
/* A source that is one object may be cached as itself, and as part of its directory. */
#define VERIFY_PLACES 2

struct verify_place {
	struct origin *origin; /* a reference */
	char *path;
};

struct verify {
	struct check check;
	struct verify_place places[VERIFY_PLACES];
	unsigned int place_count;
	const struct verify_place *place; /* being looked at */
	uint64_t files, files_done, bytes;
	uint64_t begin_ns, progress_ns;
	bool others; /* there is something below a path */
};

static void verify_progress(void *arg)
{
	struct verify *verify = arg;
	uint64_t now = counter_now();

	if (now - verify->progress_ns < VERIFY_PROGRESS_NS)
		return;
	verify->progress_ns = now;
	server_progress(verify->check.connection,
			json_pack("{s:I, s:I, s:I, s:I, s:f}", "files", (json_int_t)verify->files,
				  "files_done", (json_int_t)verify->files_done, "bytes",
				  (json_int_t)verify->bytes, "done", (json_int_t)verify->check.done,
				  "seconds", (double)(now - verify->begin_ns) / 1e9));
}

static int verify_add_place(struct verify *verify, struct origin *origin, const char *path)
{
	struct verify_place *place = &verify->places[verify->place_count];

	place->path = strdup(path);
	place->origin = origin;
	verify->place_count++;
	return place->path ? 0 : -ENOMEM;
}

static int verify_prepare(struct verify *verify, const json_t *request, char *msg, size_t msg_size)
{
	const char *source = json_string_value(json_object_get(request, "source"));
	const char *options = json_string_value(json_object_get(request, "options"));
	const char *path = json_string_value(json_object_get(request, "path"));
	struct connection *connection = verify->check.connection;
	cleanup_free char *parent = NULL, *name = NULL;
	char unused[SERVER_MESSAGE];
	struct origin *origin;
	struct store *store;
	int err = server_cached(connection, request, &store, &origin, msg, msg_size);

	if (!err)
		err = verify_add_place(verify, origin, path ? path : "");
	if (err || !source || job_split(source, &parent, &name))
		return err;
	if (!core_origin(connection->server->core, parent, options, &origin, unused,
			 sizeof(unused)))
		err = verify_add_place(verify, origin, name);
	return err;
}

static int verify_count(void *arg, const struct store_object *object)
{
	struct verify *verify = arg;

	verify->files++;
	verify->bytes += object->bytes;
	verify->others = verify->others || strcmp(object->key.path, verify->place->path) != 0;
	return check_stopped(&verify->check) ? -ECANCELED : 0;
}

static int verify_one(void *arg, const struct store_object *object)
{
	struct verify *verify = arg;
	struct check_result result;
	int err = check_object(&verify->check, verify->place->origin, &object->key,
			       object->lost ? object->blocks : 0, &result);

	if (err == -ECANCELED || err == -ENOMEM)
		return err;
	if (err)
		snprintf(result.message, sizeof(result.message), "it cannot be read: %s",
			 strerror(-err));
	check_count(&verify->check, &result);
	verify->files_done++;
	verify_progress(verify);
	return 0;
}

static int verify_each(struct verify *verify,
		       int (*fn)(void *arg, const struct store_object *object))
{
	int err = 0;

	for (unsigned int i = 0; i < verify->place_count && !err; i++) {
		verify->place = &verify->places[i];
		err = store_each_object(verify->check.store, origin_identity(verify->place->origin),
					verify->place->path, fn, verify);
	}
	return err;
}

int verify_run(struct connection *connection, const json_t *request, json_t **ret_result, char *msg,
	       size_t msg_size)
{
	struct verify verify = {
		.check = { .progress = verify_progress },
		.begin_ns = counter_now(),
	};
	struct digest given;
	bool is_given;
	int err;

	verify.check.arg = &verify;
	err = job_given(request, &given, &is_given);
	if (!err)
		err = check_begin(&verify.check, connection, is_given ? &given : NULL);
	if (!err)
		err = verify_prepare(&verify, request, msg, msg_size);
	if (!err)
		err = verify_each(&verify, verify_count);
	if (!err && is_given && verify.others) {
		snprintf(msg, msg_size, "a digest is that of one object, not of a directory");
		err = -EISDIR;
	}
	if (!err)
		err = verify_each(&verify, verify_one);
	if (!err) {
		*ret_result = json_pack("{s:I, s:f}", "files", (json_int_t)verify.check.files,
					"seconds", (double)(counter_now() - verify.begin_ns) / 1e9);
		err = *ret_result ? check_report(&verify.check, *ret_result) : -ENOMEM;
	}
	if (err == -ECANCELED)
		snprintf(msg, msg_size, "ended before all was checked");
	for (unsigned int i = 0; i < verify.place_count; i++) {
		origin_unref(verify.places[i].origin);
		free(verify.places[i].path);
	}
	check_end(&verify.check);
	return err;
}
