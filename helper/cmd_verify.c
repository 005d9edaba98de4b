// SPDX-License-Identifier: MIT
/*
 * wfs verify: check what is cached; and what `wfs fetch --verify` says of that.
 */
#include <stdio.h>

#include "cleanup.h"
#include "command.h"

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

void check_line(const struct options *options, const json_t *line)
{
	const json_t *bad = json_object_get(line, "bad");
	const char *path = json_string_value(json_object_get(bad, "path"));
	const char *message = json_string_value(json_object_get(bad, "message"));

	if (!path || !message)
		return;
	progress_end();
	if (options->json) {
		json_dumpf(line, stdout, JSON_COMPACT);
		putchar('\n');
	}
	/* The source itself has no path below it. */
	failed("%s%s%s", path, *path ? ": " : "", message);
}

void check_summary(const json_t *result)
{
	const json_t *digests = json_object_get(result, "digests");
	const char *why = json_string_value(json_object_get(result, "unasked"));
	const char *parts = json_string_value(json_object_get(result, "composite"));

	printf("digests: %llu verified, %llu wrong, %llu without a digest",
	       (unsigned long long)number(digests, "verified"),
	       (unsigned long long)number(digests, "wrong"),
	       (unsigned long long)number(digests, "none"));
	if (number(digests, "composite"))
		printf(", %llu composite (not verified: %s)",
		       (unsigned long long)number(digests, "composite"), parts ? parts : "");
	if (number(digests, "partial"))
		printf(", %llu of objects not wholly cached",
		       (unsigned long long)number(digests, "partial"));
	if (number(digests, "unasked"))
		printf(", %llu not to be asked for (%s)",
		       (unsigned long long)number(digests, "unasked"), why ? why : "");
	putchar('\n');
}

int check_status(const json_t *result)
{
	return number(result, "bad") ? WFS_EXIT_FAILED : 0;
}

static void verify_line(void *arg, const json_t *line)
{
	const json_t *progress = json_object_get(line, "progress");
	const struct options *options = arg;

	check_line(options, line);
	if (!progress)
		return;
	if (options->json) {
		json_dumpf(line, stdout, JSON_COMPACT);
		putchar('\n');
		fflush(stdout);
		return;
	}
	progress_show(number(progress, "done"), number(progress, "bytes"),
		      json_real_value(json_object_get(progress, "seconds")));
}

static int verify_run(const struct command *command, int argc, char **argv)
{
	struct client *client = NULL;
	struct options options;
	json_t *result = NULL, *request = NULL;
	char bytes[32];
	int first, status;

	status = options_parse(command, argc, argv, "oDS", 1, 1, &options, &first);
	if (status >= 0)
		return status;
	status = request_about(command->name, argv[first], &options, &request);
	if (!status && options.digest &&
	    json_object_set_new(request, "digest", json_string(options.digest)))
		status = failed("out of memory");
	if (!status)
		status = client_open(&client);
	if (!status)
		status = client_ask(client, request, verify_line, &options, &result);
	else
		json_decref(request);
	if (!status) {
		progress_end();
		if (options.json) {
			json_dumpf(result, stdout, JSON_COMPACT);
			putchar('\n');
		} else {
			printf("%llu files, %s of them right, %llu blocks damaged, in %.1f s\n",
			       (unsigned long long)number(result, "files"),
			       human_bytes(number(result, "checked"), bytes, sizeof(bytes)),
			       (unsigned long long)number(result, "damaged"),
			       json_real_value(json_object_get(result, "seconds")));
			check_summary(result);
		}
		status = check_status(result);
	}
	json_decref(result);
	client_close(client);
	options_free(&options);
	return status;
}

const struct command command_verify = {
	.name = "verify",
	.args = "[-o OPTIONS] [--sha256 HEX | --digest ALGORITHM:HEX] [--json] PATH|SOURCE",
	.summary = "check the cached bytes, and digests where they are known",
	.help = "Reads what is cached at and below PATH, or of SOURCE. A damaged block is dropped,\n"
		"and fetched again when it is read. Of an object that is wholly cached the digest\n"
		"is checked, if its origin tells one; if it is wrong, all of it is dropped. No\n"
		"object is fetched.\n"
		"\n"
		"  -o OPTIONS              as for the mount: endpoint, region, profile, anon, ca\n"
		"  --sha256 HEX            what the one object's SHA-256 must be\n"
		"  --digest ALGORITHM:HEX  the same by sha256, sha512, sha1, crc32, crc32c or\n"
		"                          crc64nvme\n"
		"  --json                  progress, bad objects and result as JSON lines\n",
	.run = verify_run,
};
