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

/*
 * How the blocks of the file, or of the mount for a directory, were used: the daemon's
 * answer, NULL without one. No hint stays in it where what was fetched beyond is read from
 * the cache file afterwards.
 */
static json_t *stat_usage(const struct wfs_file_info *info, const struct control_stats *stats)
{
	struct client *client = NULL;
	json_t *request, *result = NULL;
	json_int_t beyond;

	/* The rest is known to anybody, with a daemon or without. */
	if (!stats->helper || !client_may_ask())
		return NULL;
	request = json_pack("{s:s, s:I, s:s, s:I, s:I}", "command", "stat", "mount",
			    (json_int_t)info->mount, "path", (const char *)info->path, "block",
			    (json_int_t)info->block_size, "size", (json_int_t)info->size);
	if (info->node)
		json_object_set_new(request, "version", json_string((const char *)info->version));
	if (!request || client_open(&client))
		json_decref(request);
	else
		client_ask(client, request, NULL, NULL, &result);
	client_close(client);
	if (!json_object_get(result, "fetched")) {
		json_decref(result);
		return NULL;
	}
	json_object_del(result, "ok");
	beyond = json_integer_value(json_object_get(result, "fetched")) -
		 json_integer_value(json_object_get(result, "asked"));
	if (stats->values[WFS_STAT_NVME_BYTES] >= (uint64_t)beyond)
		json_object_del(result, "hint_block_size");
	return result;
}

static void stat_print_usage(const json_t *usage)
{
	json_int_t fetched = json_integer_value(json_object_get(usage, "fetched"));
	json_int_t asked = json_integer_value(json_object_get(usage, "asked"));
	char text[32];

	if (fetched)
		printf("from the origin: %s for readers, %.1f %% of it asked for\n",
		       human_bytes((uint64_t)fetched, text, sizeof(text)),
		       100.0 * (double)asked / (double)fetched);
}

static int stat_path(const char *path, const struct options *options)
{
	struct control_stats stats = { 0 };
	struct wfs_file_info info;
	char text[32];
	json_t *kernel, *usage;
	json_int_t hint;
	int status = file_info(path, &info);

	if (status)
		return status;
	kernel = stat_kernel(info.mount, &stats);
	usage = stat_usage(&info, &stats);
	hint = json_integer_value(json_object_get(usage, "hint_block_size"));
	if (options->json) {
		json_t *file = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:o}",
					 "mount", (json_int_t)info.mount, "node",
					 (json_int_t)info.node, "path", (const char *)info.path,
					 "version", (const char *)info.version, "size",
					 (json_int_t)info.size, "cached", (json_int_t)info.cached,
					 "resident", (json_int_t)info.resident, "block_size",
					 (json_int_t)info.block_size, "uncached",
					 (info.flags & WFS_ATTR_UNCACHED) != 0, "unproven",
					 (info.flags & WFS_ATTR_UNPROVEN) != 0, "mount_counters",
					 kernel);

		if (!file) {
			json_decref(usage);
			return failed("%s has a name that JSON cannot hold", path);
		}
		if (hint)
			json_object_set_new(file, "hint_block_size", json_integer(hint));
		json_object_del(usage, "hint_block_size");
		json_object_set_new(file, "usage", usage ? usage : json_null());
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
		       info.flags & WFS_ATTR_UNPROVEN ?
			       ", never kept: its origin names no version, each open reads anew" :
		       info.flags & WFS_ATTR_UNCACHED ? ", never kept: no proof of its version" :
							"");
		printf("in memory: %s\n", human_bytes(info.resident, text, sizeof(text)));
	}
	printf("block size: %s\n", human_bytes(info.block_size, text, sizeof(text)));
	stat_print_usage(usage);
	if (hint)
		printf("hint: much of what is fetched is not read; block=%lldK would fetch less\n",
		       (long long)hint / 1024);
	json_decref(usage);
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
		else if (!strcmp(key, "credentials"))
			printf("  %-26s %s\n", key, json_string_value(value));
	}
}

static double stat_number(const json_t *values, const char *key)
{
	return json_number_value(json_object_get(values, key));
}

static void stat_percent(const char *label, double part, double whole)
{
	if (whole > 0)
		printf("  %s %.1f %%", label, 100.0 * part / whole);
}

/* Where what readers were given came from, in one line; mappings are not seen. */
static void stat_places(const json_t *module)
{
	double read = stat_number(module, "read_bytes");
	char text[32];

	if (read <= 0)
		return;
	printf("%-10s %s:", "read", human_bytes((uint64_t)read, text, sizeof(text)));
	stat_percent("page cache", stat_number(module, "served_pages_bytes"), read);
	stat_percent("NVMe", stat_number(module, "served_nvme_bytes"), read);
	stat_percent("daemon", stat_number(module, "served_helper_bytes"), read);
	putchar('\n');
}

static void stat_origins(const json_t *counters)
{
	double bytes = stat_number(counters, "origin_bytes");
	char text[32];

	printf("%-10s %s in %.0f reads", "origins",
	       human_bytes((uint64_t)bytes, text, sizeof(text)),
	       stat_number(counters, "origin_fetches"));
	if (bytes > 0)
		printf(", %.1f %% beyond what was asked",
		       100.0 * stat_number(counters, "beyond_bytes") / bytes);
	printf(", %.0f retries, %.0f stalls\n", stat_number(counters, "retries"),
	       stat_number(counters, "stalls"));
}

static void stat_endpoints(const json_t *origin)
{
	const json_t *endpoint;
	size_t i;

	json_array_foreach(json_object_get(origin, "endpoints"), i, endpoint)
		printf("%-10s %s: answers in %.1f ms, round trip %.2f ms, %.0f retransmits, %.0f of %.0f requests failed\n",
		       "endpoint", json_string_value(json_object_get(endpoint, "endpoint")),
		       1e3 * stat_number(endpoint, "latency"),
		       1e3 * stat_number(endpoint, "tcp_rtt"),
		       stat_number(endpoint, "tcp_retransmits"), stat_number(endpoint, "errors"),
		       stat_number(endpoint, "requests"));
}

static void stat_mirrors(const json_t *origin)
{
	const json_t *mirror;
	size_t i;

	json_array_foreach(json_object_get(origin, "mirrors"), i, mirror) {
		const char *why = json_string_value(json_object_get(mirror, "why"));
		bool resting = json_is_true(json_object_get(mirror, "resting"));
		double refused = stat_number(mirror, "refused");

		printf("%-10s %s: %s, %.0f requests, first byte in %.1f ms",
		       i ? "mirror" : "mirrored",
		       json_string_value(json_object_get(mirror, "mirror")),
		       resting ? "resting" : "in use", stat_number(mirror, "requests"),
		       1e3 * stat_number(mirror, "latency"));
		if (i)
			printf(", %.0f objects agree, %.0f did not", stat_number(mirror, "joined"),
			       refused);
		if (why && (resting || refused > 0))
			printf(": %s", why);
		putchar('\n');
	}
}

static void stat_headlines(const json_t *result, const json_t *module)
{
	const json_t *ratios = json_object_get(result, "ratios");
	const json_t *counters = json_object_get(result, "counters"), *origin;
	double used = stat_number(counters, "cache_used_bytes");
	double capacity = stat_number(counters, "cache_capacity_bytes");
	char text[32], of[32];
	size_t i;

	stat_places(module);
	printf("%-10s", "hits");
	stat_percent("requests", stat_number(ratios, "request_hit_ratio"), 1);
	stat_percent("bytes", stat_number(ratios, "byte_hit_ratio"), 1);
	if (json_is_object(module))
		stat_percent("reads without the daemon", stat_number(ratios, "local_read_ratio"),
			     1);
	putchar('\n');
	stat_origins(counters);
	printf("%-10s %s of %s", "cache", human_bytes((uint64_t)used, text, sizeof(text)),
	       human_bytes((uint64_t)capacity, of, sizeof(of)));
	printf(", %.0f blocks stored, %.0f evicted (%.0f within a minute)\n",
	       stat_number(counters, "blocks_stored"), stat_number(counters, "blocks_evicted"),
	       stat_number(counters, "blocks_evicted_young"));
	json_array_foreach(json_object_get(result, "origins"), i, origin)
		stat_endpoints(origin);
	json_array_foreach(json_object_get(result, "origins"), i, origin)
		stat_mirrors(origin);
	putchar('\n');
}

static int stat_run(const struct command *command, int argc, char **argv)
{
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
	status = client_request(json_pack("{s:s}", "command", "stat"), NULL, NULL, &result);
	if (status)
		return status;
	kernel = stat_kernel(0, NULL);
	if (options.json) {
		json_object_del(result, "ok");
		json_object_set_new(result, "module", kernel);
		print_json(result);
		return 0;
	}
	stat_headlines(result, kernel);
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
	.help = "Without PATH: where reads were served from, and the counters of the daemon and\n"
		"the kernel module that are not zero (--json: all of them). With PATH, a file of\n"
		"a mount: version, size, how much of it is cached and in memory, and whether\n"
		"another block size would fetch less; a directory: the same for its mount.\n",
	.run = stat_run,
};
