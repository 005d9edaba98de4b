// SPDX-License-Identifier: MIT
/*
 * wfs: the command line.
 */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cleanup.h"
#include "config.h"
#include "digest.h"
#include "version.h"

static const struct command *const commands[] = {
	&command_mounts,   &command_stat,    &command_ls,	  &command_fetch, &command_verify,
	&command_prefetch, &command_sync,    &command_invalidate, &command_evict, &command_pin,
	&command_unpin,	   &command_profile, &command_events,
};

static void usage(FILE *out)
{
	fprintf(out, "usage: wfs [--socket PATH] COMMAND [OPTION]... [ARGUMENT]...\n"
		     "\n"
		     "Looks after the wfs filesystem and its cache.\n"
		     "\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
	fprintf(out, "\n"
		     "Each command knows --help and --json. --socket names the daemon's control\n"
		     "socket (default $WFS_SOCKET or " CONFIG_SOCKET ").\n"
		     "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon.\n");
}

static void command_usage(const struct command *command, FILE *out)
{
	fprintf(out, "usage: wfs %s %s\n\n%s\n", command->name, command->args, command->help);
}

int failed(const char *format, ...)
{
	va_list args;

	fputs("wfs: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return WFS_EXIT_FAILED;
}

int no_control(int error)
{
	if (error == -ENOENT)
		return failed("the kernel has no wfs module loaded");
	return failed("cannot ask the kernel: %s", strerror(-error));
}

bool is_source(const char *text)
{
	const char *colon = strstr(text, "://");

	return colon && colon > text && !memchr(text, '/', (size_t)(colon - text));
}

const char *human_bytes(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB" };
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

/* "a=b,c" as the daemon wants it: a line each. */
static int options_mount(struct options *options, const char *text)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", options->mount_options ? options->mount_options : "",
		     options->mount_options ? "\n" : "", text) < 0)
		return -ENOMEM;
	for (char *p = joined; *p; p++)
		if (*p == ',')
			*p = '\n';
	free(options->mount_options);
	options->mount_options = joined;
	return 0;
}

/* URLs, repeatable; the daemon takes those of a line. */
static int options_mirror(struct options *options, const char *text)
{
	const char *before = options->mount_options ? options->mount_options : "";
	const char *last = strrchr(before, '\n');
	bool more = !strncmp(last ? last + 1 : before, "mirror=", 7);
	char *joined;

	if (asprintf(&joined, "%s%s%s%s", before,
		     more    ? "," :
		     *before ? "\n" :
			       "",
		     more ? "" : "mirror=", text) < 0)
		return -ENOMEM;
	free(options->mount_options);
	options->mount_options = joined;
	return 0;
}

/* "HEX" of --sha256, or "ALGORITHM:HEX". -1: as it should be, or an exit status. */
static int options_digest(struct options *options, int opt, const char *text)
{
	struct digest digest;

	if (options->digest) {
		fprintf(stderr, "wfs: one digest is enough\n");
		return WFS_EXIT_USAGE;
	}
	if (asprintf(&options->digest, "%s%s", opt == 'S' ? "sha256:" : "", text) < 0) {
		options->digest = NULL;
		return failed("out of memory");
	}
	if (!digest_parse(options->digest, &digest))
		return -1;
	if (opt == 'S')
		fprintf(stderr, "wfs: --sha256 wants 64 hexadecimal digits\n");
	else
		fprintf(stderr,
			"wfs: --digest wants ALGORITHM:HEX, of sha256, sha512, sha1, crc32, crc32c or crc64nvme\n");
	return WFS_EXIT_USAGE;
}

int options_parse(const struct command *command, int argc, char **argv, const char *accept, int min,
		  int max, struct options *ret, int *ret_first)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ "options", required_argument, NULL, 'o' },
		{ "block", required_argument, NULL, 'b' },
		{ "verify", no_argument, NULL, 'v' },
		{ "wait", no_argument, NULL, 'w' },
		{ "background", no_argument, NULL, 'B' },
		{ "sha256", required_argument, NULL, 'S' },
		{ "digest", required_argument, NULL, 'D' },
		{ "mirror", required_argument, NULL, 'M' },
		{ NULL, 0, NULL, 0 },
	};
	int opt;

	memset(ret, 0, sizeof(*ret));
	optind = 0;
	while ((opt = getopt_long(argc, argv, "jho:b:vw", longs, NULL)) != -1) {
		if (opt == 'h') {
			command_usage(command, stdout);
			return 0;
		}
		if (opt == '?' || (opt != 'j' && !strchr(accept, opt))) {
			if (opt != '?')
				fprintf(stderr, "wfs %s: this option is not for it\n",
					command->name);
			goto wrong;
		}
		switch (opt) {
		case 'j':
			ret->json = true;
			break;
		case 'o':
			if (options_mount(ret, optarg))
				return failed("out of memory");
			break;
		case 'b':
			if (config_bytes(optarg, &ret->block) || !ret->block) {
				fprintf(stderr, "wfs: --block wants a size, as 4M\n");
				goto wrong;
			}
			break;
		case 'v':
			ret->verify = true;
			break;
		case 'w':
			ret->wait = true;
			break;
		case 'M':
			if (options_mirror(ret, optarg))
				return failed("out of memory");
			break;
		case 'B':
			ret->background = true;
			break;
		case 'S':
		case 'D':
			if (options_digest(ret, opt, optarg) >= 0)
				goto wrong;
			break;
		}
	}
	*ret_first = optind;
	if (argc - optind >= min && argc - optind <= max)
		return -1;
wrong:
	command_usage(command, stderr);
	options_free(ret);
	return WFS_EXIT_USAGE;
}

void options_free(struct options *options)
{
	free(options->mount_options);
	free(options->digest);
	options->mount_options = NULL;
	options->digest = NULL;
}

int file_info(const char *path, struct wfs_file_info *ret)
{
	cleanup_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return failed("%s: %s", path, strerror(errno));
	memset(ret, 0, sizeof(*ret));
	if (ioctl(fd, WFS_IOC_FILE_INFO, ret)) {
		if (errno == ENOTTY || errno == EINVAL || errno == EOPNOTSUPP)
			return failed("%s is not in a wfs mount", path);
		return failed("%s: %s", path, strerror(errno));
	}
	/* Strings of the kernel's, cut to what it says. */
	if (ret->path_len >= sizeof(ret->path) || ret->version_len >= sizeof(ret->version))
		return failed("%s: the kernel's answer is not understood", path);
	ret->path[ret->path_len] = '\0';
	ret->version[ret->version_len] = '\0';
	return 0;
}

void print_json(json_t *json)
{
	char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

	if (text)
		puts(text);
	free(text);
	json_decref(json);
}

int main(int argc, char **argv)
{
	int at = 1;

	while (at < argc && argv[at][0] == '-') {
		if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h")) {
			usage(stdout);
			return 0;
		}
		if (!strcmp(argv[at], "--version")) {
			printf("wfs %s\n", WFS_VERSION);
			return 0;
		}
		if (!strncmp(argv[at], "--socket=", 9)) {
			client_set_socket(argv[at] + 9);
		} else if (!strcmp(argv[at], "--socket") && at + 1 < argc) {
			client_set_socket(argv[++at]);
		} else {
			usage(stderr);
			return WFS_EXIT_USAGE;
		}
		at++;
	}
	for (size_t i = 0; at < argc && i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[at], commands[i]->name))
			return commands[i]->run(commands[i], argc - at, argv + at);
	if (at < argc)
		fprintf(stderr, "wfs: %s is not a command\n", argv[at]);
	usage(stderr);
	return WFS_EXIT_USAGE;
}
