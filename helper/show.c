// SPDX-License-Identifier: MIT
/*
 * show: what the daemon says while it does what takes its time, and in the end.
 */
#include <stdio.h>

#include "command.h"

uint64_t json_number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void show_json(const json_t *line)
{
	json_dumpf(line, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
}

/* An object that is not what it should be. */
static void show_bad(const struct show *show, const json_t *line)
{
	const json_t *bad = json_object_get(line, "bad");
	const char *path = json_string_value(json_object_get(bad, "path"));
	const char *message = json_string_value(json_object_get(bad, "message"));

	if (!path || !message)
		return;
	progress_end();
	if (show->options->json)
		show_json(line);
	/* The source itself has no path below it. */
	failed("%s%s%s", path, *path ? ": " : "", message);
}

static void show_line(void *arg, const json_t *line)
{
	const json_t *progress = json_object_get(line, "progress");
	const struct show *show = arg;
	uint64_t done, total;

	show_bad(show, line);
	if (!progress)
		return;
	if (show->options->json) {
		show_json(line);
		return;
	}
	show->progress(progress, &done, &total);
	progress_show(done, total, json_real_value(json_object_get(progress, "seconds")));
}

int show_request(json_t *request, const struct show *show)
{
	json_t *result = NULL;
	int status = client_request(request, show_line, (void *)show, &result);

	if (!status) {
		progress_end();
		if (show->options->json)
			show_json(result);
		else
			show->result(result);
		status = show->status(result);
	}
	json_decref(result);
	return status;
}
