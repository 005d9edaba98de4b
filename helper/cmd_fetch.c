// SPDX-License-Identifier: MIT
/*
 * wfs fetch, wfs ls: what is asked of a source without mounting it.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "command.h"

static void fetch_progress(const json_t *progress, uint64_t *ret_done, uint64_t *ret_total)
{
	/* What is to be checked is read once more. */
	unsigned int times = json_object_get(progress, "checked") ? 2 : 1;

	*ret_done = json_number(progress, "done") + json_number(progress, "checked");
	*ret_total = times * json_number(progress, "bytes");
}

static void fetch_result(const json_t *result)
{
	char bytes[32], fetched[32];

	printf("%llu files, %s, of which %s were fetched in %.1f s\n",
	       (unsigned long long)json_number(result, "files"),
	       human_bytes(json_number(result, "bytes"), bytes, sizeof(bytes)),
	       human_bytes(json_number(result, "fetched"), fetched, sizeof(fetched)),
	       json_real_value(json_object_get(result, "seconds")));
	if (json_object_get(result, "digests"))
		check_summary(result);
}

/* Who wants it verified is told if that could not be done. */
static int fetch_status(const json_t *result)
{
	const json_t *digests = json_object_get(result, "digests");
	const char *why = json_string_value(json_object_get(result, "unasked"));
	int status = check_status(result);

	if (json_number(digests, "unasked"))
		status = failed("not all digests could be asked for: %s", why ? why : "");
	if (json_number(digests, "partial"))
		status =
			failed("%llu objects are not wholly in the cache any more and were not verified",
			       (unsigned long long)json_number(digests, "partial"));
	return status;
}

static int fetch_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	const struct show show = { &options, fetch_progress, fetch_result, fetch_status };
	int first, status;

	status = options_parse(command, argc, argv, "obvDSM", 1, 1, &options, &first);
	if (status >= 0)
		return status;
	status = show_request(json_pack("{s:s, s:s, s:s?, s:I, s:b, s:s?}", "command", "fetch",
					"source", argv[first], "options", options.mount_options,
					"block", (json_int_t)options.block, "verify",
					(int)options.verify, "digest", options.digest),
			      &show);
	options_free(&options);
	return status;
}

const struct command command_fetch = {
	.name = "fetch",
	.args = "[-o OPTIONS] [--mirror URL]... [--block SIZE] [--verify]\n"
		"                 [--sha256 HEX | --digest ALGORITHM:HEX] [--json] SOURCE",
	.summary = "fill the cache from a source, no mount needed",
	.help = "Brings an object, or all objects below a prefix, into the cache.\n"
		"\n"
		"  -o OPTIONS              as for the mount: endpoint, region, profile, anon, ca\n"
		"  --mirror URL            the same objects elsewhere, repeatable; \"trust\" as in wfs(5)\n"
		"  --block SIZE            block size of the mount that is to use them (default 4M)\n"
		"  --verify                then read it back from the cache and check it, also by the\n"
		"                          digest of each object if its origin tells one\n"
		"  --sha256 HEX            the same, and what the one object's SHA-256 must be\n"
		"  --digest ALGORITHM:HEX  the same by sha256, sha512, sha1, crc32, crc32c or\n"
		"                          crc64nvme\n"
		"  --json                  progress, bad objects and result as JSON lines\n",
	.run = fetch_run,
};

static void ls_line(void *arg, const json_t *line)
{
	const json_t *entry = json_object_get(line, "entry");
	const char *name = json_string_value(json_object_get(entry, "name"));
	const char *type = json_string_value(json_object_get(entry, "type"));
	const struct options *options = arg;
	time_t mtime = (time_t)json_number(entry, "mtime");
	char stamp[32] = "-";
	struct tm tm;

	if (!name || !type)
		return;
	if (options->json) {
		json_dumpf(entry, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	if (mtime && gmtime_r(&mtime, &tm))
		strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &tm);
	printf("%14llu %-20s ", (unsigned long long)json_number(entry, "size"), stamp);
	/* A name may hold anything but NUL and a slash. */
	for (const char *p = name; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
			printf("\\%03o", (unsigned char)*p);
		else
			putchar(*p);
	}
	puts(!strcmp(type, "directory") ? "/" : "");
}

static int ls_run(const struct command *command, int argc, char **argv)
{
	struct options options;
	json_t *result = NULL;
	int first, status;

	status = options_parse(command, argc, argv, "o", 1, 1, &options, &first);
	if (status >= 0)
		return status;
	status = client_request(json_pack("{s:s, s:s, s:s?}", "command", "ls", "source",
					  argv[first], "options", options.mount_options),
				ls_line, &options, &result);
	if (!status && json_number(result, "skipped"))
		fprintf(stderr, "wfs: %llu keys cannot be a path and are not shown\n",
			(unsigned long long)json_number(result, "skipped"));
	json_decref(result);
	options_free(&options);
	return status;
}

const struct command command_ls = {
	.name = "ls",
	.args = "[-o OPTIONS] [--json] SOURCE",
	.summary = "list a source without mounting",
	.help = "Size, time of change and name of what is in a source.\n"
		"\n"
		"  -o OPTIONS   as for the mount: endpoint, region, profile, anon, ca\n"
		"  --json       one JSON object a line, with the version where it is listed\n",
	.run = ls_run,
};
