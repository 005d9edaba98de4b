// SPDX-License-Identifier: MIT
/*
 * wfs stat: counters; for a path also what is known of the file.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "control.h"
#include "command.h"

static json_t *stat_kernel(uint64_t mount, struct control_stats *ret)
{
	struct control *control = NULL;
	struct control_stats stats;
	json_t *all;
	int err;

	if (control_open(&control))
		return json_null();
	err = control_stats(control, mount, &stats);
	control_close(control);
	if (err)
		return json_null();
	all = json_object();
	for (unsigned int i = 0; i < WFS_STAT_MAX; i++)
		json_object_set_new(all, control_stat_name(i),
				    json_integer((json_int_t)stats.values[i]));
	json_object_set_new(all, "helper", json_integer(stats.helper));
	json_object_set_new(all, "session", json_integer((json_int_t)stats.session));
	if (ret)
		*ret = stats;
	return all;
}

/* Bytes that were fetched ahead on purpose, as the daemon counts them. */
static uint64_t stat_prefetched(void)
{
	struct client *client = NULL;
	json_t *result = NULL;
	json_int_t bytes = 0;

	if (!client_open(&client) &&
	    !client_ask(client, json_pack("{s:s}", "command", "stat"), NULL, NULL, &result))
		bytes = json_integer_value(
			json_object_get(json_object_get(result, "counters"), "prefetch_bytes"));
	json_decref(result);
	client_close(client);
	return (uint64_t)bytes;
}

/*
 * What was delivered and nobody waited for speaks for smaller blocks, if it is more than
 * what was waited for, and was not fetched ahead.
 */
static uint32_t stat_hint(const struct wfs_file_info *info, const struct control_stats *stats)
{
	uint64_t used = stats->values[WFS_STAT_DELIVER_BYTES];
	uint64_t unused = stats->values[WFS_STAT_DELIVER_UNUSED], ahead, share;
	uint32_t block = info->block_size;

	/* Without a daemon there is nobody to ask; the answer would be a guess. */
	if (!stats->helper || !used || unused < 16ULL * block || unused < used)
		return 0;
	ahead = stat_prefetched();
	unused = unused > ahead ? unused - ahead : 0;
	for (share = (used + unused) / used; share >= 2 && block > WFS_BLOCK_MIN; share /= 2)
		block /= 2;
	return block < info->block_size ? block : 0;
}

static int stat_path(const char *path, const struct options *options)
{
	struct control_stats stats = { 0 };
	struct wfs_file_info info;
	char text[32];
	json_t *kernel;
	uint32_t hint;
	int status = file_info(path, &info);

	if (status)
		return status;
	kernel = stat_kernel(info.mount, &stats);
	hint = stat_hint(&info, &stats);
	if (options->json) {
		json_t *file =
			json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:o}", "mount",
				  (json_int_t)info.mount, "node", (json_int_t)info.node, "path",
				  (const char *)info.path, "version", (const char *)info.version,
				  "size", (json_int_t)info.size, "cached", (json_int_t)info.cached,
				  "resident", (json_int_t)info.resident, "block_size",
				  (json_int_t)info.block_size, "uncached",
				  (info.flags & WFS_ATTR_UNCACHED) != 0, "mount_counters", kernel);

		if (!file)
			return failed("%s has a name that JSON cannot hold", path);
		if (hint)
			json_object_set_new(file, "hint_block_size", json_integer(hint));
		print_json(file);
		return 0;
	}
	json_decref(kernel);
	printf("path: /%s (mount %llu)\n", (const char *)info.path, (unsigned long long)info.mount);
	if (info.node) {
		printf("version: %s\n", (const char *)info.version);
		printf("size: %llu bytes\n", (unsigned long long)info.size);
		printf("cached: %s (%.1f %%)%s\n", human_bytes(info.cached, text, sizeof(text)),
		       info.size ? 100.0 * (double)info.cached / (double)info.size : 100.0,
		       info.flags & WFS_ATTR_UNCACHED ? ", never kept: no proof of its version" :
							"");
		printf("in memory: %s\n", human_bytes(info.resident, text, sizeof(text)));
	}
	printf("block size: %s\n", human_bytes(info.block_size, text, sizeof(text)));
	if (hint)
		printf("hint: much of what is fetched is not read; block=%uK would fetch less\n",
		       hint / 1024);
	return 0;
}

static void stat_print(const char *title, const json_t *values)
{
	const char *key;
	json_t *value;

	if (!json_is_object(values))
		return;
	printf("%s\n", title);
	json_object_foreach((json_t *)values, key, value) {
		if (json_is_integer(value) && json_integer_value(value))
			printf("  %-26s %lld\n", key, (long long)json_integer_value(value));
		else if (json_is_real(value))
			printf("  %-26s %.3f\n", key, json_real_value(value));
	}
}

static int stat_run(const struct command *command, int argc, char **argv)
{
	struct client *client = NULL;
	struct options options;
	json_t *result = NULL, *kernel;
	const json_t *origin;
	size_t i;
	int first, status;

	status = options_parse(command, argc, argv, "", 0, 1, &options, &first);
	if (status >= 0)
		return status;
	if (first < argc)
		return stat_path(argv[first], &options);
	status = client_open(&client);
	if (!status)
		status = client_ask(client, json_pack("{s:s}", "command", "stat"), NULL, NULL,
				    &result);
	client_close(client);
	if (status)
		return status;
	kernel = stat_kernel(0, NULL);
	if (options.json) {
		json_object_del(result, "ok");
		json_object_set_new(result, "module", kernel);
		print_json(result);
		return 0;
	}
	stat_print("daemon", json_object_get(result, "counters"));
	stat_print("ratios", json_object_get(result, "ratios"));
	json_array_foreach(json_object_get(result, "origins"), i, origin)
		stat_print(json_string_value(json_object_get(origin, "origin")), origin);
	stat_print("kernel module", kernel);
	json_decref(kernel);
	json_decref(result);
	return 0;
}

const struct command command_stat = {
	.name = "stat",
	.args = "[--json] [PATH]",
	.summary = "counters; for a path its version, size and cached share",
	.help = "Without PATH: counters of the daemon and the kernel module that are not zero\n"
		"(--json: all of them). With PATH, a file of a mount: version, size, how much of\n"
		"it is cached and in memory, and whether another block size would fetch less.\n",
	.run = stat_run,
};
