// SPDX-License-Identifier: MIT
/*
 * server_command: what the control socket is asked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "server_impl.h"
#include "store.h"

#define SYNC_LOOK_MS   1000
#define SYNC_TIMEOUT_S 600

static const char *command_string(const json_t *request, const char *key)
{
	return json_string_value(json_object_get(request, key));
}

static int command_stat(struct connection *connection, const json_t *request, json_t **ret_result,
			char *msg, size_t msg_size)
{
	(void)request;
	(void)msg;
	(void)msg_size;
	*ret_result = report_json(connection->server->core, connection->server->kernel);
	return *ret_result ? 0 : -ENOMEM;
}

static const char *command_type(mode_t mode)
{
	return S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "symlink" : "file";
}

static int command_entry(void *arg, const struct origin_entry *entry)
{
	struct connection *connection = arg;
	json_t *line = json_pack("{s:{s:s%, s:s, s:I, s:I, s:s}}", "entry", "name", entry->name,
				 strlen(entry->name), "type", command_type(entry->attr.mode),
				 "size", (json_int_t)entry->attr.size, "mtime",
				 (json_int_t)entry->attr.mtime_sec, "version", entry->attr.version);

	/* A name that is no UTF-8 has no JSON: it is shown with a mark. */
	if (!line)
		line = json_pack("{s:{s:s, s:s, s:I}}", "entry", "name", "?", "type",
				 command_type(entry->attr.mode), "size",
				 (json_int_t)entry->attr.size);
	server_send(connection, line);
	return connection->broken ? -EPIPE : 0;
}

static int command_ls(struct connection *connection, const json_t *request, json_t **ret_result,
		      char *msg, size_t msg_size)
{
	struct server *server = connection->server;
	const char *source = command_string(request, "source");
	const char *path = command_string(request, "path");
	struct origin_attr attr;
	struct origin *origin;
	uint64_t skipped = 0;
	int err;

	if (!source)
		return -EINVAL;
	if (!path)
		path = "";
	err = core_origin(server->core, source, command_string(request, "options"), &origin, msg,
			  msg_size);
	if (err)
		return err;
	err = ask_stat(server->asker, origin, path, &attr, msg, msg_size);
	if (!err && S_ISDIR(attr.mode)) {
		err = ask_list(server->asker, origin, path, command_entry, connection, &skipped,
			       msg, msg_size);
	} else if (!err) {
		const char *name = strrchr(*path ? path : source, '/');
		struct origin_entry entry = { name ? name + 1 : source, attr };

		err = command_entry(connection, &entry);
	}
	origin_unref(origin);
	if (!err)
		*ret_result = json_pack("{s:I}", "skipped", (json_int_t)skipped);
	return err;
}

static int command_sync(struct connection *connection, const json_t *request, json_t **ret_result,
			char *msg, size_t msg_size)
{
	struct server *server = connection->server;
	int err = -ETIMEDOUT;

	(void)request;
	(void)ret_result;
	for (unsigned int i = 0; i < SYNC_TIMEOUT_S && err == -ETIMEDOUT; i++) {
		if (server->stopping) {
			snprintf(msg, msg_size, "the daemon is stopping");
			return -ECANCELED;
		}
		err = core_sync(server->core, SYNC_LOOK_MS);
	}
	if (err)
		snprintf(msg, msg_size, "blocks are still waiting to be stored after %d s",
			 SYNC_TIMEOUT_S);
	return err;
}

/* "mount": id, with "path"; or "source", with or without. */
static int command_invalidate(struct connection *connection, const json_t *request,
			      json_t **ret_result, char *msg, size_t msg_size)
{
	struct server *server = connection->server;
	json_int_t mount = json_integer_value(json_object_get(request, "mount"));
	const char *source = command_string(request, "source");
	const char *path = command_string(request, "path");
	int count = 0;

	if (server->kernel)
		count = kernel_invalidate(server->kernel, (uint64_t)mount, source,
					  path ? path : "");
	if (count < 0)
		return count;
	if (!count && (mount || source)) {
		snprintf(msg, msg_size, "nothing is mounted from %s", source ? source : "there");
		return -ENOENT;
	}
	*ret_result = json_pack("{s:i}", "mounts", count);
	return 0;
}

struct command_mount {
	uint64_t id;
	char *source, *options;
};

static void command_find_mount(void *arg, const struct kernel_mount *mount)
{
	struct command_mount *found = arg;

	if (mount->id != found->id || found->source)
		return;
	found->source = strdup(mount->source);
	found->options = strdup(mount->options ? mount->options : "");
}

static int command_evict(struct connection *connection, const json_t *request, json_t **ret_result,
			 char *msg, size_t msg_size)
{
	struct server *server = connection->server;
	struct store *store = core_store(server->core);
	json_int_t id = json_integer_value(json_object_get(request, "mount"));
	const char *source = command_string(request, "source");
	const char *options = command_string(request, "options");
	const char *path = command_string(request, "path");
	struct command_mount mount = { .id = (uint64_t)id };
	uint64_t blocks = 0, busy = 0;
	struct origin *origin;
	int err;

	if (!store) {
		snprintf(msg, msg_size, "the daemon has no cache directory");
		return -ENODEV;
	}
	if (id && server->kernel)
		kernel_each_mount(server->kernel, command_find_mount, &mount);
	if (id && (!mount.source || !mount.options)) {
		free(mount.source);
		free(mount.options);
		snprintf(msg, msg_size, "the daemon does not know this mount");
		return -ENOENT;
	}
	if (id) {
		source = mount.source;
		options = mount.options;
	}
	err = source ? core_origin(server->core, source, options, &origin, msg, msg_size) : -EINVAL;
	if (!err) {
		err = store_evict(store, origin_identity(origin), path ? path : "", &blocks, &busy);
		if (err == -EAGAIN)
			snprintf(msg, msg_size,
				 "the kernel has not told yet what it reads; try again");
		origin_unref(origin);
	}
	free(mount.source);
	free(mount.options);
	if (!err)
		*ret_result = json_pack("{s:I, s:I}", "blocks", (json_int_t)blocks, "busy",
					(json_int_t)busy);
	return err;
}

static void command_add_mount(void *arg, const struct kernel_mount *mount)
{
	json_t *list = arg;

	json_array_append_new(list, json_pack("{s:I, s:s, s:s}", "mount", (json_int_t)mount->id,
					      "source", mount->source, "options",
					      mount->options ? mount->options : ""));
}

static int command_mounts(struct connection *connection, const json_t *request, json_t **ret_result,
			  char *msg, size_t msg_size)
{
	json_t *list = json_array();

	(void)request;
	(void)msg;
	(void)msg_size;
	if (connection->server->kernel)
		kernel_each_mount(connection->server->kernel, command_add_mount, list);
	*ret_result = json_pack("{s:o}", "mounts", list);
	return *ret_result ? 0 : -ENOMEM;
}

static const struct {
	const char *name;
	server_command_fn fn;
} commands[] = {
	{ "stat", command_stat },
	{ "ls", command_ls },
	{ "fetch", job_fetch },
	{ "sync", command_sync },
	{ "invalidate", command_invalidate },
	{ "evict", command_evict },
	{ "mounts", command_mounts },
};

server_command_fn server_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].fn;
	return NULL;
}
