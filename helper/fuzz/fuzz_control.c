// SPDX-License-Identifier: MIT
/*
 * server, server_command, server_profile: the input is what somebody writes to the control socket. What
 * the commands ask is answered from here.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "fuzz.h"
#include "order.h"
#include "origin_impl.h"
#include "profile.h"
#include "profile_file.h"
#include "server_impl.h"
#include "store.h"

/* As many answers as fit into the socket. */
#define LINES_MAX 64

static void destroy_nothing(struct origin *origin)
{
	(void)origin;
}

static const struct origin_ops ops = { .destroy = destroy_nothing };
static struct origin origin = { .ops = &ops, .refs = 1u << 30, .identity = "x" };

int asker_create(struct core *core, struct asker **ret)
{
	(void)core;
	*ret = NULL;
	return 0;
}

void asker_destroy(struct asker *asker)
{
	(void)asker;
}

void asker_cancel(struct asker *asker)
{
	(void)asker;
}

int ask_stat(struct asker *asker, struct origin *from, const char *path,
	     struct origin_attr *ret_attr, char *msg, size_t msg_size)
{
	(void)asker;
	fuzz_check(from == &origin);
	if (*path && strcmp(path, "a")) {
		snprintf(msg, msg_size, "%s: not found", path);
		return -ENOENT;
	}
	*ret_attr = (struct origin_attr){ .mode = *path ? S_IFREG : S_IFDIR, .size = 5 };
	return 0;
}

int ask_list(struct asker *asker, struct origin *from, const char *path, ask_entry_fn fn, void *arg,
	     uint64_t *ret_skipped, char *msg, size_t msg_size)
{
	static const struct origin_entry entries[] = {
		{ "a", { .mode = S_IFREG, .size = 5 } },
		{ "\xff\xfe", { .mode = S_IFREG, .size = INT64_MAX } },
		{ "\xe2\x82\xac\n\"", { .mode = S_IFDIR } },
	};
	int err = 0;

	(void)asker;
	(void)from;
	(void)path;
	(void)msg;
	(void)msg_size;
	for (size_t i = 0; i < ARRAY_SIZE(entries) && !err; i++)
		err = fn(arg, &entries[i]);
	*ret_skipped = 1;
	return err;
}

int core_origin(struct core *core, const char *source, const char *options, struct origin **ret,
		char *msg, size_t msg_size)
{
	(void)core;
	(void)options;
	if (strncmp(source, "file:", 5)) {
		snprintf(msg, msg_size, "\"%s\" is no source", source);
		return -EINVAL;
	}
	*ret = origin_ref(&origin);
	return 0;
}

struct store *core_store(const struct core *core)
{
	return (struct store *)core;
}

int core_sync_below(struct core *core, const struct core_below *what, uint64_t timeout_ms)
{
	(void)core;
	fuzz_check(!what || (!strcmp(what->identity, "x") && what->path));
	return timeout_ms ? 0 : -ETIMEDOUT;
}

int store_evict(struct store *store, const char *identity, const char *path, uint64_t *ret_blocks,
		uint64_t *ret_busy, uint64_t *ret_pinned)
{
	(void)store;
	fuzz_check(!strcmp(identity, "x"));
	*ret_blocks = strlen(path);
	*ret_busy = 0;
	*ret_pinned = 1;
	return 0;
}

int store_pin(struct store *store, const char *identity, const char *path)
{
	(void)store;
	fuzz_check(!strcmp(identity, "x"));
	return *path ? 0 : -ENOSPC;
}

int store_unpin(struct store *store, const char *identity, const char *path)
{
	(void)store;
	fuzz_check(!strcmp(identity, "x"));
	return *path ? 0 : -ENOENT;
}

struct order *core_order(const struct core *core)
{
	(void)core;
	return NULL;
}

bool order_settle(struct order *order, const char *identity, const char *dir,
		  enum order_settle what)
{
	(void)order;
	(void)what;
	fuzz_check(!strcmp(identity, "x") && dir);
	return false;
}

int profile_file_write(struct store *store, const char *identity, const struct profile *profile)
{
	json_t *json = profile_json(profile);

	(void)store;
	fuzz_check(!strcmp(identity, "x"));
	/* What was understood can be said again. */
	fuzz_check(json_is_object(json));
	json_decref(json);
	return 0;
}

int profile_file_each(struct store *store, const char *identity, const char *path,
		      int (*fn)(void *arg, const struct profile_found *found), void *arg)
{
	(void)store;
	(void)path;
	(void)fn;
	(void)arg;
	fuzz_check(!identity || !strcmp(identity, "x"));
	return 0;
}

int profile_file_drop(struct store *store, const char *identity, const char *path,
		      unsigned int *ret_count)
{
	(void)store;
	fuzz_check(!strcmp(identity, "x"));
	*ret_count = *path ? 1 : 0;
	return 0;
}

int kernel_invalidate(struct kernel *kernel, uint64_t mount, const char *source, const char *path)
{
	(void)kernel;
	(void)source;
	return mount == 1 ? 1 + !*path : 0;
}

void kernel_each_mount(struct kernel *kernel,
		       void (*fn)(void *arg, const struct kernel_mount *mount), void *arg)
{
	(void)kernel;
	fn(arg, &(struct kernel_mount){ .id = 1, .source = "file:///x", .options = "anon" });
	fn(arg, &(struct kernel_mount){ .id = 2, .source = "s3://\xff" });
}

int job_fetch(struct connection *connection, const json_t *request, json_t **ret_result, char *msg,
	      size_t msg_size)
{
	(void)request;
	server_progress(connection, json_pack("{s:i}", "files", 1));
	*ret_result = NULL;
	snprintf(msg, msg_size, "nothing can be fetched");
	return json_object_get(request, "block") ? -EIO : 0;
}

int verify_run(struct connection *connection, const json_t *request, json_t **ret_result, char *msg,
	       size_t msg_size)
{
	struct origin *from;
	struct store *store;
	int err = server_cached(connection, request, &store, &from, msg, msg_size);

	(void)ret_result;
	if (!err)
		origin_unref(from);
	return err;
}

json_t *report_json(struct core *core, struct kernel *kernel)
{
	(void)core;
	(void)kernel;
	return json_pack("{s:i}", "x", 1);
}

json_t *report_usage(struct core *core, struct origin *from, const char *path,
		     const struct origin_attr *attr, uint32_t block_size)
{
	(void)core;
	fuzz_check(from == &origin && block_size);
	fuzz_check(!path || strnlen(attr->version, sizeof(attr->version)) < sizeof(attr->version));
	return json_pack("{s:i}", "blocks", 1);
}

/* Each line is JSON that `wfs` understands; returns how many requests were answered. */
static size_t check_answers(int fd)
{
	size_t answers = 0;
	char *line = NULL;
	size_t size = 0;
	FILE *stream = fdopen(fd, "r");

	while (getline(&line, &size, stream) > 0) {
		json_t *answer = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		const char *error = json_string_value(json_object_get(answer, "error"));
		bool ok = json_is_true(json_object_get(answer, "ok"));

		fuzz_check(json_is_object(answer));
		fuzz_check(!error || (*error && !ok));
		fuzz_check(!error || json_integer_value(json_object_get(answer, "errno")) > 0);
		fuzz_check(error || ok || json_object_get(answer, "entry") ||
			   json_object_get(answer, "progress"));
		answers += error || ok;
		json_decref(answer);
	}
	free(line);
	fclose(stream);
	return answers;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { .core = (struct core *)&origin,
				 .kernel = (struct kernel *)&origin };
	struct connection connection = { .server = &server };
	size_t lines = 0;
	int fds[2];

	for (size_t i = 0; i < size; i++) {
		lines += data[i] == '\n';
		if (lines == LINES_MAX)
			size = i + 1;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ||
	    send(fds[0], data, size, 0) != (ssize_t)size || shutdown(fds[0], SHUT_WR))
		abort();
	connection.fd = fds[1];
	server_talk(&connection);
	close(fds[1]);
	/* Nobody waits for an answer in vain. */
	fuzz_check(check_answers(fds[0]) == lines);
	return 0;
}
