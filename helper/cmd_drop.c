// SPDX-License-Identifier: MIT
/*
 * wfs invalidate, evict, pin, unpin: drop names, drop or keep cached blocks.
 */
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "command.h"

int request_about(const char *command, const char *what, const struct options *options,
		  json_t **ret)
{
	struct wfs_file_info info;
	int status;

	if (is_source(what)) {
		*ret = json_pack("{s:s, s:s, s:s?}", "command", command, "source", what, "options",
				 options->mount_options);
		return *ret ? 0 : failed("%s cannot be written as JSON", what);
	}
	status = file_info(what, &info);
	if (status)
		return status;
	*ret = json_pack("{s:s, s:I, s:s}", "command", command, "mount", (json_int_t)info.mount,
			 "path", (const char *)info.path);
	return *ret ? 0 : failed("%s cannot be written as JSON", what);
}

static int drop_run(const struct command *command, int argc, char **argv, json_t **ret_result,
		    struct options *options)
{
	json_t *request = NULL;
	int first, status;

	/* Names are asked again whoever asked first; blocks belong to who fetched them. */
	status = options_parse(command, argc, argv, command == &command_evict ? "o" : "", 1, 1,
			       options, &first);
	if (status >= 0)
		return status ? status : -1;
	status = request_about(command->name, argv[first], options, &request);
	if (!status)
		status = client_request(request, NULL, NULL, ret_result);
	options_free(options);
	return status;
}

static int invalidate_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	json_t *result = NULL;
	int status = drop_run(command, argc, argv, &result, &options);

	if (!status && options.json)
		print_json(json_incref(result));
	json_decref(result);
	return status < 0 ? 0 : status;
}

const struct command command_invalidate = {
	.name = "invalidate",
	.args = "[--json] PATH|SOURCE",
	.summary = "ask the origin again about names and versions, now",
	.help = "Names at and below PATH, or of all mounts of SOURCE, are asked of the origin\n"
		"again. Files that are open keep their version.\n",
	.run = invalidate_run,
};

static int evict_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	json_t *result = NULL;
	int status = drop_run(command, argc, argv, &result, &options);
	json_int_t busy = json_integer_value(json_object_get(result, "busy"));
	json_int_t pinned = json_integer_value(json_object_get(result, "pinned"));

	if (!status && options.json)
		print_json(json_incref(result));
	else if (!status)
		printf("%lld blocks evicted\n",
		       (long long)json_integer_value(json_object_get(result, "blocks")));
	if (!status && busy)
		status = failed("%lld blocks are in use and were kept", (long long)busy);
	if (!status && pinned)
		status = failed("%lld blocks are pinned and were kept; see wfs unpin",
				(long long)pinned);
	json_decref(result);
	return status < 0 ? 0 : status;
}

const struct command command_evict = {
	.name = "evict",
	.args = "[-o OPTIONS] [--json] PATH|SOURCE",
	.summary = "drop cached blocks",
	.help = "Removes from the cache what is at and below PATH, or of SOURCE.\n"
		"\n"
		"  -o OPTIONS   as for the mount: endpoint, region, profile, anon, ca\n",
	.run = evict_run,
};

static int pin_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	json_t *result = NULL;
	int status = drop_run(command, argc, argv, &result, &options);

	if (!status && options.json)
		print_json(json_incref(result));
	json_decref(result);
	return status < 0 ? 0 : status;
}

const struct command command_pin = {
	.name = "pin",
	.args = "[-o OPTIONS] [--json] PATH|SOURCE",
	.summary = "keep cached what is cached",
	.help = "What of PATH, or of SOURCE, is in the cache or comes into it is not evicted\n"
		"until wfs unpin. Nothing is fetched; see wfs fetch for that.\n"
		"\n"
		"  -o OPTIONS   as for the mount: endpoint, region, profile, anon, ca\n",
	.run = pin_run,
};

const struct command command_unpin = {
	.name = "unpin",
	.args = "[-o OPTIONS] [--json] PATH|SOURCE",
	.summary = "let go of what was pinned",
	.help = "Ends what wfs pin began, of the same PATH or SOURCE.\n"
		"\n"
		"  -o OPTIONS   as for the mount: endpoint, region, profile, anon, ca\n",
	.run = pin_run,
};
