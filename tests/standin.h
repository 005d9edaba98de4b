/* SPDX-License-Identifier: MIT */
/* standin: a helper for tests with files made of arithmetic, that does wrong when told. */
#ifndef WFS_TESTS_STANDIN_H
#define WFS_TESTS_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct file {
	struct file *next;
	char *path;
	mode_t mode;
	uint64_t size;
	char *version; /* or the target of a link */
	bool weak;
	bool gone; /* superseded or removed: known by node only */
};

/* What to do wrong, to which request. */
struct fault {
	struct fault *next;
	char *request, *action, *arg, *path;
	unsigned long skip, times;
	bool final; /* no right answer after the wrong one */
};

struct script {
	struct file *files;
	struct fault *faults;
	char *cache; /* directory of cache files, NULL: none */
	bool store;  /* tell blocks as stored */
	size_t page; /* names in a page of a listing, 0: as many as there is room for */
	bool verbose;
};

/* One line of a script: 0 or -errno. Unknown lines: -ENOSYS. */
int script_line(struct script *script, const char *line);
struct file *script_find(struct script *script, const char *path);
/* The fault that is due for a request of this name, NULL: none. It is counted. */
struct fault *script_fault(struct script *script, const char *request, const char *path);

/* Bytes [offset, offset + len) of one version of a file. offset is a multiple of 8. */
void content(const char *path, const char *version, uint64_t offset, void *to, size_t len);

/* Words of a line, in place; returns their number. */
size_t words(char *line, char **ret, size_t max);

#endif /* WFS_TESTS_STANDIN_H */
