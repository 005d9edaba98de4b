// SPDX-License-Identifier: MIT
/*
 * server_command: what the control socket is asked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "counters.h"
#include "events.h"
#include "order.h"
#include "server_impl.h"
#include "store.h"

#define SYNC_LOOK_MS   1000
#define SYNC_TIMEOUT_S 600
/* How soon it is seen that nobody follows any more. */
#define EVENTS_LOOK_MS 500
/* How long an eviction waits for what was brought ahead. */
#define EVICT_SETTLE_MS 5000

static const char *command_string(const json_t *request, const char *key)
{
	return json_string_value(json_object_get(request, key));
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

/* Source and options of "mount", or those of the request. -errno and a sentence. */
static int command_names(struct connection *connection, const json_t *request,
			 struct command_mount *ret, char *msg, size_t msg_size)
{
	struct server *server = connection->server;
	const char *source = command_string(request, "source");
	const char *options = command_string(request, "options");

	*ret = (struct command_mount){
		.id = (uint64_t)json_integer_value(json_object_get(request, "mount")),
	};
	if (!ret->id) {
		ret->source = source ? strdup(source) : NULL;
		ret->options = options ? strdup(options) : NULL;
		if (!source)
			return -EINVAL;
		return ret->source && (!options || ret->options) ? 0 : -ENOMEM;
	}
	if (server->kernel)
		kernel_each_mount(server->kernel, command_find_mount, ret);
	if (ret->source && ret->options)
		return 0;
	snprintf(msg, msg_size, "the daemon does not know this mount");
	return -ENOENT;
}

/* The origin of "mount", or of "source" with "options". A reference, or -errno and a sentence. */
static int command_origin(struct connection *connection, const json_t *request, struct origin **ret,
			  char *msg, size_t msg_size)
{
	struct command_mount names;
	int err = command_names(connection, request, &names, msg, msg_size);

	if (!err)
		err = core_origin(connection->server->core, names.source, names.options, ret, msg,
				  msg_size);
	free(names.source);
	free(names.options);
	return err;
}

int server_source(struct connection *connection, const json_t *request, char **ret, char *msg,
		  size_t msg_size)
{
	struct command_mount names;
	int err = command_names(connection, request, &names, msg, msg_size);

	if (err)
		free(names.source);
	else
		*ret = names.source;
	free(names.options);
	return err;
}

/* Of the daemon; with "mount", "path" and "block", how its blocks are used. */
static int command_stat(struct connection *connection, const json_t *request, json_t **ret_result,
			char *msg, size_t msg_size)
{
	struct core *core = connection->server->core;
	const char *path = command_string(request, "path");
	const char *version = command_string(request, "version");
	json_int_t block = json_integer_value(json_object_get(request, "block"));
	struct origin_attr attr = {
		.size = (uint64_t)json_integer_value(json_object_get(request, "size")),
	};
	struct origin *origin;
	int err;

	if (!json_object_get(request, "mount")) {
		*ret_result = report_json(core, connection->server->kernel);
		return *ret_result ? 0 : -ENOMEM;
	}
	if (!path || block <= 0 || block > UINT32_MAX ||
	    (version && strlen(version) >= sizeof(attr.version)))
		return -EINVAL;
	err = command_origin(connection, request, &origin, msg, msg_size);
	if (err)
		return err;
	if (version)
		memcpy(attr.version, version, strlen(version) + 1);
	*ret_result = report_usage(core, origin, version ? path : NULL, &attr, (uint32_t)block);
	origin_unref(origin);
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

/* Of everything; with "mount" and "path", of what is there and below. */
static int command_sync(struct connection *connection, const json_t *request, json_t **ret_result,
			char *msg, size_t msg_size)
{
	struct server *server = connection->server;
	const char *path = command_string(request, "path");
	struct core_below below = { .path = path ? path : "" };
	struct origin *origin = NULL;
	int err = 0;

	(void)ret_result;
	if (json_object_get(request, "mount"))
		err = command_origin(connection, request, &origin, msg, msg_size);
	if (err)
		return err;
	if (origin)
		below.identity = origin_identity(origin);
	err = -ETIMEDOUT;
	for (unsigned int i = 0; i < SYNC_TIMEOUT_S && err == -ETIMEDOUT; i++) {
		if (server->stopping) {
			snprintf(msg, msg_size, "the daemon is stopping");
			err = -ECANCELED;
			break;
		}
		err = core_sync_below(server->core, origin ? &below : NULL, SYNC_LOOK_MS);
	}
	if (err == -ETIMEDOUT)
		snprintf(msg, msg_size, "blocks are still waiting to be stored after %d s",
			 SYNC_TIMEOUT_S);
	origin_unref(origin);
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

int server_cached(struct connection *connection, const json_t *request, struct store **ret_store,
		  struct origin **ret_origin, char *msg, size_t msg_size)
{
	*ret_store = core_store(connection->server->core);
	if (!*ret_store) {
		snprintf(msg, msg_size, "the daemon has no cache directory");
		return -ENODEV;
	}
	return command_origin(connection, request, ret_origin, msg, msg_size);
}

static int command_evict(struct connection *connection, const json_t *request, json_t **ret_result,
			 char *msg, size_t msg_size)
{
	const char *path = command_string(request, "path");
	struct core *core = connection->server->core;
	struct core_below below = { .path = path ? path : "" };
	uint64_t blocks = 0, busy = 0, pinned = 0;
	struct origin *origin;
	struct store *store;
	int err = server_cached(connection, request, &store, &origin, msg, msg_size);

	if (err)
		return err;
	/* What is brought ahead is in nobody's use. */
	below.identity = origin_identity(origin);
	if (order_settle(core_order(core), below.identity, below.path, ORDER_CLOSE))
		core_sync_below(core, &below, EVICT_SETTLE_MS);
	err = store_evict(store, origin_identity(origin), path ? path : "", &blocks, &busy,
			  &pinned);
	if (err == -EAGAIN)
		snprintf(msg, msg_size, "the kernel has not told yet what it reads; try again");
	origin_unref(origin);
	if (!err)
		*ret_result = json_pack("{s:I, s:I, s:I}", "blocks", (json_int_t)blocks, "busy",
					(json_int_t)busy, "pinned", (json_int_t)pinned);
	return err;
}

static int command_pin(struct connection *connection, const json_t *request, json_t **ret_result,
		       char *msg, size_t msg_size)
{
	bool pin = !strcmp(command_string(request, "command"), "pin");
	const char *path = command_string(request, "path");
	struct origin *origin;
	struct store *store;
	int err = server_cached(connection, request, &store, &origin, msg, msg_size);

	if (err)
		return err;
	if (pin)
		err = store_pin(store, origin_identity(origin), path ? path : "");
	else
		err = store_unpin(store, origin_identity(origin), path ? path : "");
	origin_unref(origin);
	if (err == -ENOENT)
		snprintf(msg, msg_size, "it is not pinned");
	else if (err)
		snprintf(msg, msg_size, "it cannot be recorded: %s", strerror(-err));
	else
		*ret_result = json_pack("{s:b}", "pinned", (int)pin);
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

/* Has the other side gone? It has nothing more to say. */
static bool command_is_left(struct connection *connection)
{
	ssize_t n;
	char c;

	n = recv(connection->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		connection->broken = true;
	return connection->broken || connection->server->stopping;
}

static void command_send_event(struct connection *connection, const struct event *event)
{
	cleanup_free char *source = strdup(event->source), *path = strdup(event->path);
	json_t *line;

	if (!source || !path)
		return;
	server_printable(source);
	server_printable(path);
	line = json_pack("{s:{s:I, s:s, s:s, s:s, s:s}}", "event", "time",
			 (json_int_t)event->time_s, "event", event->name, "source", source, "path",
			 path, "text", event->text);
	/* The text may have an odd name in it. */
	if (line)
		server_send(connection, line);
}

/* What is found from now on, until the other side goes. */
static int command_events(struct connection *connection, const json_t *request, json_t **ret_result,
			  char *msg, size_t msg_size)
{
	uint64_t number = events_next();

	(void)request;
	(void)ret_result;
	(void)msg;
	(void)msg_size;
	server_send(connection, json_pack("{s:b}", "following", 1));
	counter_add(event_followers, 1);
	while (!command_is_left(connection)) {
		struct event *event;
		int err = events_wait(&number, EVENTS_LOOK_MS, &event);

		if (err == -EOVERFLOW)
			server_send(connection, json_pack("{s:b}", "lost", 1));
		if (err)
			continue;
		command_send_event(connection, event);
		free(event);
	}
	counter_sub(event_followers, 1);
	return 0;
}

static const struct {
	const char *name;
	server_command_fn fn;
} commands[] = {
	{ "stat", command_stat },	  { "ls", command_ls },
	{ "fetch", job_fetch },		  { "verify", verify_run },
	{ "sync", command_sync },	  { "invalidate", command_invalidate },
	{ "evict", command_evict },	  { "pin", command_pin },
	{ "unpin", command_pin },	  { "mounts", command_mounts },
	{ "events", command_events },	  { "profile-save", profile_save },
	{ "profile-part", profile_part }, { "profile-load", profile_load },
	{ "profile-list", profile_list }, { "profile-drop", profile_drop },
};

server_command_fn server_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].fn;
	return NULL;
}
