// SPDX-License-Identifier: MIT
/*
 * wfs mounts: what the kernel tells of its mounts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "control.h"
#include "command.h"

struct mount_list {
	json_t *mounts;
};

static void mounts_one(void *arg, const struct control_mount *mount)
{
	cleanup_free char *options = strdup(mount->options);
	struct mount_list *list = arg;

	/* Lines in the protocol, commas for people. */
	for (char *p = options; p && *p; p++)
		if (*p == '\n')
			*p = p[1] ? ',' : '\0';
	json_array_append_new(list->mounts,
			      json_pack("{s:I, s:s, s:s, s:I, s:I, s:I, s:I}", "mount",
					(json_int_t)mount->id, "source", mount->source, "options",
					options ? options : "", "block_size",
					(json_int_t)mount->block_size, "nodes",
					(json_int_t)mount->nodes, "pending",
					(json_int_t)mount->pending, "helper",
					(json_int_t)mount->helper));
}

static void mounts_print(const json_t *mounts, const struct control_stats *stats,
			 const json_t *cache)
{
	char used[32], capacity[32];
	const json_t *mount, *dir;
	size_t i;

	if (stats->helper)
		printf("helper: process %u, session %llu\n", stats->helper,
		       (unsigned long long)stats->session);
	else
		printf("helper: none; cached blocks are served, others wait\n");
	json_array_foreach(cache, i, dir)
		printf("cache: %s: %s of %s in %lld files%s\n",
		       json_string_value(json_object_get(dir, "dir")),
		       human_bytes((uint64_t)json_integer_value(json_object_get(dir, "used")), used,
				   sizeof(used)),
		       human_bytes((uint64_t)json_integer_value(json_object_get(dir, "capacity")),
				   capacity, sizeof(capacity)),
		       (long long)json_integer_value(json_object_get(dir, "files")),
		       json_is_true(json_object_get(dir, "failed")) ? ", out of use" : "");
	json_array_foreach(mounts, i, mount)
		printf("mount %lld: %s (%s), %lld files known, %lld requests waiting\n",
		       (long long)json_integer_value(json_object_get(mount, "mount")),
		       json_string_value(json_object_get(mount, "source")),
		       json_string_value(json_object_get(mount, "options")),
		       (long long)json_integer_value(json_object_get(mount, "nodes")),
		       (long long)json_integer_value(json_object_get(mount, "pending")));
}

/* The daemon's part; without a daemon there is none. */
static json_t *mounts_cache(bool helper)
{
	json_t *result = NULL, *cache = NULL;

	if (helper && !client_request(json_pack("{s:s}", "command", "stat"), NULL, NULL, &result))
		cache = json_incref(json_object_get(result, "cache"));
	json_decref(result);
	return cache ? cache : json_array();
}

static int mounts_run(const struct command *command, int argc, char **argv)
{
	struct mount_list list = { NULL };
	struct control_stats stats = { 0 };
	struct control *control = NULL;
	struct options options;
	json_t *cache;
	int first, status, err;

	status = options_parse(command, argc, argv, "", 0, 0, &options, &first);
	if (status >= 0)
		return status;
	err = control_open(&control);
	if (err)
		return no_control(err);
	list.mounts = json_array();
	err = control_mounts(control, mounts_one, &list);
	if (!err)
		err = control_stats(control, 0, &stats);
	control_close(control);
	if (err) {
		json_decref(list.mounts);
		return failed("the kernel does not tell its mounts: %s", strerror(-err));
	}
	cache = mounts_cache(stats.helper != 0);
	if (options.json) {
		print_json(json_pack("{s:o, s:{s:I, s:I}, s:o}", "mounts", list.mounts, "helper",
				     "pid", (json_int_t)stats.helper, "session",
				     (json_int_t)stats.session, "cache", cache));
	} else {
		mounts_print(list.mounts, &stats, cache);
		json_decref(list.mounts);
		json_decref(cache);
	}
	return 0;
}

const struct command command_mounts = {
	.name = "mounts",
	.args = "[--json]",
	.summary = "mounts, helper state, cache use",
	.help = "All mounts of this machine with what they wait for, whether a daemon serves\n"
		"them, and how full its cache is.\n",
	.run = mounts_run,
};
