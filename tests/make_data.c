// SPDX-License-Identifier: MIT
/*
 * make_data: files for the tests. The same bytes for the same seed, never compressible.
 *
 *	make_data DIRECTORY NAME BYTES [NAME BYTES]...	old enough for their version to be sure;
 *							the seed is the file's path
 *	make_data -s SEED PATH BYTES			one, written now
 *
 * Directories are made as needed. Status 1, with a sentence, where something fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define ROOM (1u << 18)
/* 2020-01-01 00:00:00 UTC */
#define LONG_AGO 1577836800

static int failed(const char *what, const char *path)
{
	fprintf(stderr, "make_data: cannot %s %s: %s\n", what, path, strerror(errno));
	return 1;
}

static int make_parents(const char *path)
{
	char at[PATH_MAX];

	if ((size_t)snprintf(at, sizeof(at), "%s", path) >= sizeof(at)) {
		errno = ENAMETOOLONG;
		return failed("make", path);
	}
	for (char *slash = at + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(at, 0777) && errno != EEXIST)
			return failed("make", at);
		*slash = '/';
	}
	return 0;
}

static int make_file(const char *path, uint64_t bytes, const char *seed, bool old)
{
	static uint64_t room[ROOM / sizeof(uint64_t)];
	const struct timespec times[2] = { { .tv_sec = LONG_AGO }, { .tv_sec = LONG_AGO } };
	uint64_t state = XXH64(seed, strlen(seed), 0);
	int fd;

	if (make_parents(path))
		return 1;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return failed("create", path);
	while (bytes) {
		size_t n = bytes < ROOM ? bytes : ROOM, done = 0;

		for (size_t i = 0; i < (n + 7) / 8; i++) {
			uint64_t z = (state += 0x9e3779b97f4a7c15ULL);

			z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ULL;
			room[i] = z ^ (z >> 32);
		}
		while (done < n) {
			ssize_t r = write(fd, (char *)room + done, n - done);

			if (r < 0)
				return failed("write", path);
			done += (size_t)r;
		}
		bytes -= n;
	}
	if (old && futimens(fd, times))
		return failed("set the time of", path);
	return close(fd) ? failed("close", path) : 0;
}

static bool number(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno || *end || end == text) {
		fprintf(stderr, "make_data: \"%s\" is no number of bytes\n", text);
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	char path[PATH_MAX];
	uint64_t bytes;

	if (argc == 5 && !strcmp(argv[1], "-s"))
		return !number(argv[4], &bytes) || make_file(argv[3], bytes, argv[2], false);
	if (argc < 4 || argc % 2) {
		fputs("usage: make_data DIRECTORY NAME BYTES... | make_data -s SEED PATH BYTES\n",
		      stderr);
		return 2;
	}
	for (int i = 2; i < argc; i += 2) {
		snprintf(path, sizeof(path), "%s/%s", argv[1], argv[i]);
		if (!number(argv[i + 1], &bytes) || make_file(path, bytes, path, true))
			return 1;
	}
	return 0;
}
