// SPDX-License-Identifier: MIT
/*
 * wfs profile: orders of loads, to a file and from one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "command.h"

/* Of a profile's text in one request; quotes and the like take two bytes there. */
#define PROFILE_PART 30000

/* A request about a source, or about the directory that a path of a mount is, or is in. */
static int profile_request(const char *command, const char *what, const struct options *options,
			   json_t **ret)
{
	struct wfs_file_info info;
	char *slash;
	int status;

	if (is_source(what))
		return request_about(command, what, options, ret);
	status = file_info(what, &info);
	if (status)
		return status;
	if (info.node) {
		slash = strrchr((char *)info.path, '/');
		*(slash ? slash : (char *)info.path) = '\0';
	}
	*ret = json_pack("{s:s, s:I, s:s}", "command", command, "mount", (json_int_t)info.mount,
			 "path", (const char *)info.path);
	return *ret ? 0 : failed("%s cannot be written as JSON", what);
}

/* Asks the daemon; takes the request. */
static int profile_ask(json_t *request, client_line_fn line, void *arg, json_t **ret)
{
	struct client *client = NULL;
	int status = client_open(&client);

	if (!status)
		status = client_ask(client, request, line, arg, ret);
	else
		json_decref(request);
	client_close(client);
	return status;
}

/* As a whole, or not at all. */
static int profile_write(const json_t *profile, const char *path)
{
	const size_t flags = JSON_INDENT(1) | JSON_PRESERVE_ORDER;
	cleanup_free char *name = NULL;
	cleanup_file FILE *out = NULL;
	mode_t mask;
	int fd;

	if (!strcmp(path, "-"))
		return json_dumpf(profile, stdout, flags) || putchar('\n') == EOF ||
				       fflush(stdout) ?
			       failed("the profile cannot be written: %s", strerror(errno)) :
			       0;
	if (asprintf(&name, "%s.XXXXXX", path) < 0) {
		name = NULL;
		return failed("out of memory");
	}
	fd = mkostemp(name, O_CLOEXEC);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out) {
		if (fd >= 0)
			close(fd);
		return failed("%s cannot be written: %s", path, strerror(errno));
	}
	mask = umask(0);
	umask(mask);
	if (json_dumpf(profile, out, flags) || fputc('\n', out) == EOF || fflush(out) ||
	    fchmod(fd, 0666 & ~mask) || fsync(fd) || rename(name, path)) {
		int err = errno;

		unlink(name);
		return failed("%s cannot be written: %s", path, strerror(err));
	}
	return 0;
}

static int profile_save(const char *what, const char *path, const struct options *options)
{
	json_t *request = NULL, *result = NULL;
	const json_t *profile, *models, *model;
	json_int_t streams = 0;
	size_t i;
	int status = profile_request("profile-save", what, options, &request);

	if (!status)
		status = profile_ask(request, NULL, NULL, &result);
	if (status)
		return status;
	profile = json_object_get(result, "profile");
	models = json_object_get(profile, "models");
	json_array_foreach(models, i, model)
		streams += (json_int_t)json_array_size(json_object_get(model, "streams"));
	status = profile_write(profile, path);
	if (!status && options->json && strcmp(path, "-"))
		print_json(json_pack("{s:I, s:I}", "models", (json_int_t)json_array_size(models),
				     "streams", streams));
	json_decref(result);
	return status;
}

/* The text of a file, without what is not part of JSON. */
static int profile_read(const char *path, json_t **ret)
{
	const size_t flags = JSON_REJECT_DUPLICATES;
	json_error_t error;

	if (!strcmp(path, "-")) {
		*ret = json_loadf(stdin, flags, &error);
	} else {
		if (access(path, R_OK))
			return failed("%s: %s", path, strerror(errno));
		*ret = json_load_file(path, flags, &error);
	}
	if (!*ret)
		return failed("%s is no JSON: line %d: %s", path, error.line, error.text);
	return 0;
}

/* Where to: as said, else as the file says it was saved from. */
static int profile_target(const json_t *profile, const char *path, const char *what,
			  const struct options *options, json_t **ret)
{
	const char *source = json_string_value(json_object_get(profile, "source"));
	const char *below = json_string_value(json_object_get(profile, "path"));

	if (what)
		return profile_request("profile-load", what, options, ret);
	if (!source)
		return failed("%s is no profile that names its \"source\"; say which it is for",
			      path);
	*ret = json_pack("{s:s, s:s, s:s?, s:s}", "command", "profile-load", "source", source,
			 "options", options->mount_options, "path", below ? below : "");
	return *ret ? 0 : failed("out of memory");
}

static int profile_send(struct client *client, const char *text)
{
	size_t len = strlen(text);
	int status = 0;

	for (size_t at = 0; at < len && !status; at += PROFILE_PART) {
		size_t part = len - at < PROFILE_PART ? len - at : PROFILE_PART;

		status = client_ask(client,
				    json_pack("{s:s, s:s%}", "command", "profile-part", "part",
					      text + at, part),
				    NULL, NULL, NULL);
	}
	return status;
}

static int profile_load(const char *path, const char *what, const struct options *options)
{
	json_t *profile = NULL, *request = NULL, *result = NULL;
	cleanup_free char *text = NULL;
	struct client *client = NULL;
	int status = profile_read(path, &profile);

	if (!status)
		status = profile_target(profile, path, what, options, &request);
	if (!status) {
		/* So that it can be cut anywhere. */
		text = json_dumps(profile, JSON_COMPACT | JSON_ENSURE_ASCII);
		status = text ? client_open(&client) : failed("out of memory");
	}
	json_decref(profile);
	if (!status)
		status = profile_send(client, text);
	if (!status)
		status = client_ask(client, request, NULL, NULL, &result);
	else
		json_decref(request);
	client_close(client);
	if (!status && options->json) {
		json_object_del(result, "ok");
		print_json(json_incref(result));
	}
	json_decref(result);
	return status;
}

static void profile_line(void *arg, const json_t *line)
{
	const struct options *options = arg;
	json_t *model = json_object_get(line, "model");
	json_int_t written = json_integer_value(json_object_get(model, "written"));
	const char *dir = json_string_value(json_object_get(model, "directory"));
	time_t at = (time_t)written;
	char bytes[32], when[32] = "";
	struct tm tm;

	if (!model)
		return;
	if (options->json) {
		json_dumpf(model, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	if (localtime_r(&at, &tm))
		strftime(when, sizeof(when), "%F %H:%M", &tm);
	printf("%s  %lld blocks, %s, %lld streams, %lld files  %s  %s\n", when,
	       (long long)json_integer_value(json_object_get(model, "blocks")),
	       human_bytes((uint64_t)json_integer_value(json_object_get(model, "bytes")), bytes,
			   sizeof(bytes)),
	       (long long)json_integer_value(json_object_get(model, "streams")),
	       (long long)json_integer_value(json_object_get(model, "files")),
	       json_string_value(json_object_get(model, "origin")), dir && *dir ? dir : ".");
}

static int profile_list(const char *what, struct options *options)
{
	json_t *request = NULL;
	int status = 0;

	if (what)
		status = profile_request("profile-list", what, options, &request);
	else
		request = json_pack("{s:s}", "command", "profile-list");
	return status ? status : profile_ask(request, profile_line, options, NULL);
}

static int profile_drop(const char *what, const struct options *options)
{
	json_t *request = NULL, *result = NULL;
	int status = profile_request("profile-drop", what, options, &request);

	if (!status)
		status = profile_ask(request, NULL, NULL, &result);
	if (!status && options->json) {
		json_object_del(result, "ok");
		print_json(json_incref(result));
	} else if (!status) {
		printf("%lld dropped\n",
		       (long long)json_integer_value(json_object_get(result, "models")));
	}
	json_decref(result);
	return status;
}

static int profile_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	int first, status = options_parse(command, argc, argv, "o", 1, 3, &options, &first);
	const char *what, *one, *other;
	int count;

	if (status >= 0)
		return status;
	what = argv[first];
	count = argc - first - 1;
	one = count > 0 ? argv[first + 1] : NULL;
	other = count > 1 ? argv[first + 2] : NULL;
	if (!strcmp(what, "save") && count == 2) {
		status = profile_save(one, other, &options);
	} else if (!strcmp(what, "load") && count >= 1) {
		status = profile_load(one, other, &options);
	} else if (!strcmp(what, "list") && count <= 1) {
		status = profile_list(one, &options);
	} else if (!strcmp(what, "drop") && count == 1) {
		status = profile_drop(one, &options);
	} else {
		fprintf(stderr, "usage: wfs %s %s\n", command->name, command->args);
		status = WFS_EXIT_USAGE;
	}
	options_free(&options);
	return status;
}

const struct command command_profile = {
	.name = "profile",
	.args = "save|load|list|drop [-o OPTIONS] [--json] [ARGUMENT]...",
	.summary = "the order in which models are loaded, to another machine",
	.help = "  save SOURCE|PATH FILE    writes what is known of the directories at and below\n"
		"  load FILE [SOURCE|PATH]  takes it, for where it was saved from or for another\n"
		"                           source; replaces what is known of the same\n"
		"  list [SOURCE|PATH]       what is known\n"
		"  drop SOURCE|PATH         forgets it\n"
		"\n"
		"FILE is JSON, see wfs-profile in wfs(1); - is standard output or input.\n"
		"\n"
		"  -o OPTIONS   as for the mount: endpoint, region, profile, anon, ca\n",
	.run = profile_run,
};
