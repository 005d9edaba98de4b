// SPDX-License-Identifier: MIT
/*
 * wfs prefetch, wfs sync: fill the cache through a mount, wait for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "command.h"

/* With --wait: give up when nothing has come for so long. */
#define PREFETCH_STALL_S 120

struct prefetch {
	char **files;
	size_t count, size;
	uint64_t bytes, cached;
	unsigned int failed;
};

static int prefetch_keep(struct prefetch *prefetch, const char *path)
{
	if (prefetch->count == prefetch->size) {
		size_t size = prefetch->size ? prefetch->size * 2 : 64;
		char **files = reallocarray(prefetch->files, size, sizeof(*files));

		if (!files)
			return failed("out of memory");
		prefetch->files = files;
		prefetch->size = size;
	}
	prefetch->files[prefetch->count] = strdup(path);
	if (!prefetch->files[prefetch->count])
		return failed("out of memory");
	prefetch->count++;
	return 0;
}

static int prefetch_file(struct prefetch *prefetch, const char *path)
{
	struct wfs_prefetch range = { 0, 0 };
	struct wfs_file_info info;
	cleanup_close int fd = -1;
	int status = file_info(path, &info);

	if (status)
		return status;
	if (!info.size)
		return 0;
	if (info.flags & WFS_ATTR_UNCACHED)
		return failed(
			"%s: its origin gives no proof of its version, so that it cannot be cached",
			path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, WFS_IOC_PREFETCH, &range))
		return failed("%s: %s", path, strerror(errno));
	prefetch->bytes += info.size;
	return prefetch_keep(prefetch, path);
}

static int prefetch_tree(struct prefetch *prefetch, char **paths)
{
	FTS *tree = fts_open(paths, FTS_COMFOLLOW | FTS_PHYSICAL | FTS_XDEV, NULL);
	FTSENT *entry;

	if (!tree)
		return failed("%s: %s", paths[0], strerror(errno));
	while ((entry = fts_read(tree))) {
		switch (entry->fts_info) {
		case FTS_F:
			if (prefetch_file(prefetch, entry->fts_path))
				prefetch->failed++;
			break;
		case FTS_DNR:
		case FTS_ERR:
		case FTS_NS:
			failed("%s: %s", entry->fts_path, strerror(entry->fts_errno));
			prefetch->failed++;
			break;
		default:
			break;
		}
	}
	fts_close(tree);
	return prefetch->failed ? WFS_EXIT_FAILED : 0;
}

static int prefetch_wait(struct prefetch *prefetch, bool quiet)
{
	const struct timespec pause = { .tv_nsec = 100000000 };
	struct timespec start, now, moved;
	uint64_t last = 0;
	size_t first = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	moved = start;
	for (;;) {
		uint64_t cached = prefetch->cached;

		for (size_t i = first; i < prefetch->count; i++) {
			struct wfs_file_info info;
			int status = file_info(prefetch->files[i], &info);

			if (status)
				return status;
			cached += info.cached;
			/* Those at the front that are complete are not asked again. */
			if (i == first && info.cached >= info.size) {
				prefetch->cached += info.cached;
				first++;
			}
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!quiet)
			progress_show(cached, prefetch->bytes,
				      (double)(now.tv_sec - start.tv_sec) +
					      (double)(now.tv_nsec - start.tv_nsec) / 1e9);
		if (first == prefetch->count) {
			progress_end();
			return 0;
		}
		if (cached != last) {
			last = cached;
			moved = now;
		}
		if (now.tv_sec - moved.tv_sec > PREFETCH_STALL_S) {
			progress_end();
			return failed("nothing has come for %d s; %s is not complete",
				      PREFETCH_STALL_S, prefetch->files[first]);
		}
		nanosleep(&pause, NULL);
	}
}

static int prefetch_run(const struct command *command, int argc, char **argv)
{
	struct prefetch prefetch = { 0 };
	struct options options;
	int first, status;

	status = options_parse(command, argc, argv, "w", 1, argc, &options, &first);
	if (status >= 0)
		return status;
	status = prefetch_tree(&prefetch, argv + first);
	if (!status && options.wait)
		status = prefetch_wait(&prefetch, options.json);
	if (options.json)
		print_json(json_pack("{s:I, s:I, s:I}", "files", (json_int_t)prefetch.count,
				     "bytes", (json_int_t)prefetch.bytes, "failed",
				     (json_int_t)prefetch.failed));
	for (size_t i = 0; i < prefetch.count; i++)
		free(prefetch.files[i]);
	free(prefetch.files);
	return status;
}

const struct command command_prefetch = {
	.name = "prefetch",
	.args = "[--wait] [--json] PATH...",
	.summary = "bring files of a mount into the cache",
	.help = "Asks for all blocks of the files, directories with all below them.\n"
		"\n"
		"  --wait   return when they are cached\n"
		"  --json   counts as JSON\n",
	.run = prefetch_run,
};

static int sync_run(const struct command *command, int argc, char **argv)
{
	json_t *request = json_pack("{s:s}", "command", "sync");
	struct wfs_file_info info;
	struct options options;
	int first, status;

	status = options_parse(command, argc, argv, "", 0, 1, &options, &first);
	if (status >= 0) {
		json_decref(request);
		return status;
	}
	status = first < argc ? file_info(argv[first], &info) : 0;
	if (!status && first < argc &&
	    (json_object_set_new(request, "mount", json_integer((json_int_t)info.mount)) ||
	     json_object_set_new(request, "path", json_string((const char *)info.path))))
		status = failed("%s cannot be written as JSON", argv[first]);
	if (!status)
		status = client_request(request, NULL, NULL, NULL);
	else
		json_decref(request);
	if (!status && options.json)
		print_json(json_pack("{s:b}", "synced", 1));
	return status;
}

const struct command command_sync = {
	.name = "sync",
	.args = "[--json] [PATH]",
	.summary = "wait until what was delivered is stored",
	.help = "Returns when all blocks that were delivered are durable in the cache, or\n"
		"given up. With PATH, those of this file, or of all below this directory.\n",
	.run = sync_run,
};
