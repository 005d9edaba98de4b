// SPDX-License-Identifier: MIT
/*
 * part: bytes of an open file.
 *
 *	part DESCRIPTOR OFFSET BYTES
 *
 * Writes them to standard output, fewer where the file ends; the name of the error on standard
 * error, and status 1, if it cannot be read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char room[1 << 18];
	unsigned long long left;
	off_t at;
	int fd;

	if (argc != 4) {
		fputs("usage: part DESCRIPTOR OFFSET BYTES\n", stderr);
		return 2;
	}
	fd = (int)strtol(argv[1], NULL, 10);
	at = (off_t)strtoull(argv[2], NULL, 10);
	left = strtoull(argv[3], NULL, 10);
	while (left) {
		ssize_t n = pread(fd, room, left < sizeof(room) ? left : sizeof(room), at);

		if (n < 0) {
			fprintf(stderr, "%s\n", strerrorname_np(errno));
			return 1;
		}
		if (!n)
			break;
		if (fwrite(room, 1, (size_t)n, stdout) != (size_t)n)
			return 1;
		at += n;
		left -= (unsigned long long)n;
	}
	return fflush(stdout) ? 1 : 0;
}
