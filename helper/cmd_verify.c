// SPDX-License-Identifier: MIT
/*
 * wfs verify: check what is cached; and what `wfs fetch --verify` says of that.
 */
#include <stdio.h>

#include "cleanup.h"
#include "command.h"

void check_summary(const json_t *result)
{
	const json_t *digests = json_object_get(result, "digests");
	const char *why = json_string_value(json_object_get(result, "unasked"));
	const char *parts = json_string_value(json_object_get(result, "composite"));

	printf("digests: %llu verified, %llu wrong, %llu without a digest",
	       (unsigned long long)json_number(digests, "verified"),
	       (unsigned long long)json_number(digests, "wrong"),
	       (unsigned long long)json_number(digests, "none"));
	if (json_number(digests, "composite"))
		printf(", %llu composite (not verified: %s)",
		       (unsigned long long)json_number(digests, "composite"), parts ? parts : "");
	if (json_number(digests, "partial"))
		printf(", %llu of objects not wholly cached",
		       (unsigned long long)json_number(digests, "partial"));
	if (json_number(digests, "unasked"))
		printf(", %llu not to be asked for (%s)",
		       (unsigned long long)json_number(digests, "unasked"), why ? why : "");
	putchar('\n');
}

int check_status(const json_t *result)
{
	return json_number(result, "bad") ? WFS_EXIT_FAILED : 0;
}

static void verify_progress(const json_t *progress, uint64_t *ret_done, uint64_t *ret_total)
{
	*ret_done = json_number(progress, "done");
	*ret_total = json_number(progress, "bytes");
}

static void verify_result(const json_t *result)
{
	char bytes[32];

	printf("%llu files, %s of them right, %llu blocks damaged, in %.1f s\n",
	       (unsigned long long)json_number(result, "files"),
	       human_bytes(json_number(result, "checked"), bytes, sizeof(bytes)),
	       (unsigned long long)json_number(result, "damaged"),
	       json_real_value(json_object_get(result, "seconds")));
	check_summary(result);
}

static int verify_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	const struct show show = { &options, verify_progress, verify_result, check_status };
	json_t *request = NULL;
	int first, status;

	status = options_parse(command, argc, argv, "oDS", 1, 1, &options, &first);
	if (status >= 0)
		return status;
	status = request_about(command->name, argv[first], &options, &request);
	if (!status && options.digest &&
	    json_object_set_new(request, "digest", json_string(options.digest)))
		status = failed("out of memory");
	if (!status)
		status = show_request(request, &show);
	else
		json_decref(request);
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
