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

/* When nothing has come for so long, what is missing is asked for again, and given up. */
#define PREFETCH_AGAIN_S 10
#define PREFETCH_STALL_S 120
#define PREFETCH_LOOK_NS 100000000
/*
 * Blocks asked for and not there yet. The module leaves out what is beyond 4096 of a mount,
 * which others have a share of.
 */
#define PREFETCH_BLOCKS 2048

struct prefetch_file {
	char *path;
	uint64_t size, block_size;
	uint64_t asked;	 /* up to there */
	uint64_t cached; /* when it was last looked at */
};

struct prefetch {
	struct prefetch_file *files;
	size_t count, room;
	size_t whole; /* files at the front that are cached */
	size_t next;  /* the file to be asked for next */
	uint64_t bytes, cached;
	unsigned int failed;
	bool quiet;
	struct timespec start, moved, asked;
};

static int prefetch_keep(struct prefetch *prefetch, const char *path,
			 const struct wfs_file_info *info)
{
	struct prefetch_file *file;

	if (prefetch->count == prefetch->room) {
		size_t room = prefetch->room ? prefetch->room * 2 : 64;
		struct prefetch_file *files = reallocarray(prefetch->files, room, sizeof(*files));

		if (!files)
			return failed("out of memory");
		prefetch->files = files;
		prefetch->room = room;
	}
	file = &prefetch->files[prefetch->count];
	*file = (struct prefetch_file){
		.path = strdup(path),
		.size = info->size,
		.block_size = info->block_size,
	};
	if (!file->path)
		return failed("out of memory");
	prefetch->count++;
	prefetch->bytes += info->size;
	return 0;
}

static int prefetch_file(struct prefetch *prefetch, const char *path)
{
	struct wfs_file_info info;
	int status = file_info(path, &info);

	if (status)
		return status;
	if (!info.size)
		return 0;
	if (info.flags & WFS_ATTR_UNCACHED)
		return failed(
			"%s: its origin gives no proof of its version, so that it cannot be cached",
			path);
	return prefetch_keep(prefetch, path, &info);
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

/* Asks for [from, from + len) of a file. */
static int prefetch_ask(const struct prefetch_file *file, uint64_t from, uint64_t len)
{
	struct wfs_prefetch range = { from, len };
	cleanup_close int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, WFS_IOC_PREFETCH, &range))
		return failed("%s: %s", file->path, strerror(errno));
	return 0;
}

/* How much of what was asked for is not there. */
static uint64_t prefetch_missing(const struct prefetch *prefetch)
{
	uint64_t missing = 0;

	for (size_t i = prefetch->whole; i < prefetch->count && i <= prefetch->next; i++) {
		const struct prefetch_file *file = &prefetch->files[i];

		missing += file->asked > file->cached ? file->asked - file->cached : 0;
	}
	return missing;
}

/* As much as may be asked for now. */
static int prefetch_feed(struct prefetch *prefetch)
{
	uint64_t missing = prefetch_missing(prefetch);

	while (prefetch->next < prefetch->count) {
		struct prefetch_file *file = &prefetch->files[prefetch->next];
		uint64_t most = PREFETCH_BLOCKS * file->block_size, len = file->size - file->asked;
		int status;

		if (missing >= most)
			return 0;
		if (len > most - missing)
			len = most - missing;
		status = prefetch_ask(file, file->asked, len);
		if (status)
			return status;
		file->asked += len;
		missing += len;
		if (file->asked == file->size)
			prefetch->next++;
	}
	return 0;
}

/* What failed, or was left out, is asked for once more. */
static int prefetch_again(struct prefetch *prefetch)
{
	for (size_t i = prefetch->whole; i < prefetch->count && i <= prefetch->next; i++) {
		const struct prefetch_file *file = &prefetch->files[i];
		int status = file->asked && file->cached < file->asked ?
				     prefetch_ask(file, 0, file->asked) :
				     0;

		if (status)
			return status;
	}
	return 0;
}

static double prefetch_since(const struct timespec *from, const struct timespec *to)
{
	return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

/* Looks at what is there now. */
static int prefetch_look(struct prefetch *prefetch)
{
	uint64_t cached = 0;
	struct timespec now;

	for (size_t i = 0; i < prefetch->count; i++) {
		struct prefetch_file *file = &prefetch->files[i];
		struct wfs_file_info info;

		/* Those at the front that are complete are not asked again. */
		if (i >= prefetch->whole) {
			int status = file_info(file->path, &info);

			if (status)
				return status;
			file->cached = info.cached;
		}
		cached += file->cached;
		if (i == prefetch->whole && file->cached >= file->size)
			prefetch->whole++;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (cached != prefetch->cached) {
		prefetch->moved = now;
		prefetch->asked = now;
	}
	prefetch->cached = cached;
	if (!prefetch->quiet)
		progress_show(cached, prefetch->bytes, prefetch_since(&prefetch->start, &now));
	if (prefetch_since(&prefetch->moved, &now) > PREFETCH_STALL_S) {
		progress_end();
		return failed("nothing has come for %d s; %s is not complete", PREFETCH_STALL_S,
			      prefetch->files[prefetch->whole].path);
	}
	if (prefetch_since(&prefetch->asked, &now) > PREFETCH_AGAIN_S) {
		prefetch->asked = now;
		return prefetch_again(prefetch);
	}
	return 0;
}

/* Until all is asked for; with wait, until all is there. */
static int prefetch_bring(struct prefetch *prefetch, bool wait)
{
	const struct timespec pause = { .tv_nsec = PREFETCH_LOOK_NS };
	int status;

	clock_gettime(CLOCK_MONOTONIC, &prefetch->start);
	prefetch->moved = prefetch->start;
	prefetch->asked = prefetch->start;
	for (;;) {
		status = prefetch_feed(prefetch);
		if (!status && (wait || prefetch->next < prefetch->count))
			status = prefetch_look(prefetch);
		if (status || (prefetch->next == prefetch->count &&
			       (!wait || prefetch->whole == prefetch->count)))
			break;
		nanosleep(&pause, NULL);
	}
	if (!prefetch->quiet)
		progress_end();
	return status;
}

/* The parent: its number; the child: 0. Or an exit status below zero. */
static pid_t prefetch_background(void)
{
	pid_t pid = fork();
	int null;

	if (pid) {
		if (pid < 0)
			failed("cannot go into the background: %s", strerror(errno));
		return pid;
	}
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
	}
	return 0;
}

static void prefetch_print(const struct prefetch *prefetch, pid_t pid)
{
	json_t *json = json_pack("{s:I, s:I, s:I}", "files", (json_int_t)prefetch->count, "bytes",
				 (json_int_t)prefetch->bytes, "failed",
				 (json_int_t)prefetch->failed);

	if (pid > 0)
		json_object_set_new(json, "pid", json_integer(pid));
	print_json(json);
}

static int prefetch_run(const struct command *command, int argc, char **argv)
{
	struct prefetch prefetch = { 0 };
	struct options options;
	pid_t pid = -1;
	int first, status;

	status = options_parse(command, argc, argv, "wB", 1, argc, &options, &first);
	if (status >= 0)
		return status;
	if (options.wait && options.background) {
		fprintf(stderr, "wfs prefetch: --wait or --background, not both\n");
		return WFS_EXIT_USAGE;
	}
	status = prefetch_tree(&prefetch, argv + first);
	if (options.background && prefetch.count) {
		pid = prefetch_background();
		if (pid < 0)
			status = WFS_EXIT_FAILED;
	}
	prefetch.quiet = options.json || pid == 0;
	/* Nothing that is missing keeps the rest from coming. */
	if (pid < 0 && !(options.background && prefetch.count)) {
		int brought = prefetch_bring(&prefetch, options.wait);

		status = status ? status : brought;
	} else if (pid == 0) {
		status = prefetch_bring(&prefetch, true);
	}
	if (options.json && pid)
		prefetch_print(&prefetch, pid);
	for (size_t i = 0; i < prefetch.count; i++)
		free(prefetch.files[i].path);
	free(prefetch.files);
	return status;
}

const struct command command_prefetch = {
	.name = "prefetch",
	.args = "[--wait | --background] [--json] PATH...",
	.summary = "bring files of a mount into the cache",
	.help = "Asks for all blocks of the files, directories with all below them, and returns\n"
		"when all are asked for. Share, rate and remaining time are shown on a terminal.\n"
		"\n"
		"  --wait         return when they are cached\n"
		"  --background   return at once; a process of its own goes on until they are\n"
		"  --json         counts as JSON, and the number of that process\n",
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
