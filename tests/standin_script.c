// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>
#include "standin.h"

#define WORDS 16

static char *copy(const char *text)
{
	char *s = strdup(text);

	if (!s) {
		fputs("standin: no memory\n", stderr);
		exit(1);
	}
	return s;
}

size_t words(char *line, char **ret, size_t max)
{
	size_t n = 0;

	while (n < max) {
		line += strspn(line, " \t\n");
		if (!*line)
			break;
		ret[n++] = line;
		line += strcspn(line, " \t\n");
		if (*line)
			*line++ = '\0';
	}
	return n;
}

struct file *script_find(struct script *script, const char *path)
{
	struct file *file;

	for (file = script->files; file; file = file->next)
		if (!file->gone && !strcmp(file->path, path))
			return file;
	return NULL;
}

static struct file *put(struct script *script, const char *path, mode_t mode, uint64_t size,
			const char *version)
{
	struct file *old = script_find(script, path), *file = calloc(1, sizeof(*file));

	if (!file)
		exit(1);
	if (old)
		old->gone = true;
	file->path = copy(path);
	file->mode = mode;
	file->size = size;
	file->version = copy(version);
	file->next = script->files;
	script->files = file;
	return file;
}

static int add_fault(struct script *script, char **word, size_t n)
{
	struct fault *fault = calloc(1, sizeof(*fault)), **end = &script->faults;

	if (!fault)
		exit(1);
	fault->request = copy(word[1]);
	fault->action = copy(word[2]);
	fault->times = 1;
	for (size_t i = 3; i < n; i++) {
		bool more = i + 1 < n;

		if (!strcmp(word[i], "final"))
			fault->final = true;
		else if (more && !strcmp(word[i], "times"))
			fault->times = strtoul(word[++i], NULL, 0);
		else if (more && !strcmp(word[i], "skip"))
			fault->skip = strtoul(word[++i], NULL, 0);
		else if (more && !strcmp(word[i], "path"))
			fault->path = copy(word[++i]);
		else
			fault->arg = copy(word[i]);
	}
	while (*end)
		end = &(*end)->next;
	*end = fault;
	return 0;
}

/*
 *	file PATH SIZE [VERSION] | dir PATH | link PATH TARGET | weak PATH SIZE [VERSION]
 *	remove PATH
 *	cache DIRECTORY | store on|off | page NAMES | verbose
 *	fault REQUEST ACTION [ARG] [times N] [skip N] [path PATH] [final]
 */
int script_line(struct script *script, const char *text)
{
	char *line = copy(text), *word[WORDS] = { 0 };
	size_t n = words(line, word, WORDS);
	struct file *file;
	int r = 0;

	if (!n || word[0][0] == '#') {
		r = 0;
	} else if ((!strcmp(word[0], "file") || !strcmp(word[0], "weak")) && n >= 3) {
		file = put(script, word[1], S_IFREG, strtoull(word[2], NULL, 0),
			   n > 3 ? word[3] : "v1");
		file->weak = word[0][0] == 'w';
	} else if (!strcmp(word[0], "dir") && n >= 2) {
		put(script, strcmp(word[1], ".") ? word[1] : "", S_IFDIR, 0, "");
	} else if (!strcmp(word[0], "link") && n >= 3) {
		put(script, word[1], S_IFLNK, strlen(word[2]), word[2]);
	} else if (!strcmp(word[0], "remove") && n >= 2) {
		file = script_find(script, word[1]);
		if (file)
			file->gone = true;
		else
			r = -ENOENT;
	} else if (!strcmp(word[0], "cache") && n >= 2) {
		script->cache = copy(word[1]);
		script->store = true;
	} else if (!strcmp(word[0], "store") && n >= 2) {
		script->store = !strcmp(word[1], "on");
	} else if (!strcmp(word[0], "page") && n >= 2) {
		script->page = strtoul(word[1], NULL, 0);
	} else if (!strcmp(word[0], "verbose")) {
		script->verbose = true;
	} else if (!strcmp(word[0], "fault") && n >= 3) {
		r = add_fault(script, word, n);
	} else {
		r = -ENOSYS;
	}
	free(line);
	return r;
}

struct fault *script_fault(struct script *script, const char *request, const char *path)
{
	for (struct fault *fault = script->faults; fault; fault = fault->next) {
		if (!fault->times || strcmp(fault->request, request) ||
		    (fault->path && strcmp(fault->path, path)))
			continue;
		if (fault->skip) {
			fault->skip--;
			continue;
		}
		fault->times--;
		return fault;
	}
	return NULL;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

void content(const char *path, const char *version, uint64_t offset, void *to, size_t len)
{
	uint64_t seed = XXH64(path, strlen(path), XXH64(version, strlen(version), 0));
	uint64_t word = offset / 8;
	char *at = to;

	while (len) {
		uint64_t value = mix(seed + word++);
		size_t n = len < sizeof(value) ? len : sizeof(value);

		memcpy(at, &value, n);
		at += n;
		len -= n;
	}
}
