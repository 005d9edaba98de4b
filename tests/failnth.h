/* SPDX-License-Identifier: MIT */
/*
 * failnth: lets the kernel fail the Nth thing that can fail in what this thread does.
 *
 * Where the kernel has fault injection; the kernel's fault-injection.rst has the rest.
 */
#ifndef WFS_TESTS_FAILNTH_H
#define WFS_TESTS_FAILNTH_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* Of the calling thread: a descriptor or -errno. */
static inline int failnth_open(void)
{
	int fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static inline void failnth_begin(int fd, unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(fd, text, (size_t)len, 0) != len)
		perror("fail-nth");
}

/* Has anything failed since? What this call itself uses can be the Nth, and does not count. */
static inline bool failnth_end(int fd)
{
	char text[16] = "";
	bool failed = pread(fd, text, sizeof(text) - 1, 0) > 0 && text[0] == '0';

	if (!failed && pwrite(fd, "0", 1, 0) != 1 && errno != EFAULT)
		perror("fail-nth");
	return failed;
}

#endif /* WFS_TESTS_FAILNTH_H */
