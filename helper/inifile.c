// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "inifile.h"

#define SPACES " \t\r\n\v\f"

struct inifile {
	inifile_fn fn;
	void *user;
	char *section, *name; /* of the last line that had one; allocated */
};

/* Without the spaces around it; in place. */
static char *trim(char *text)
{
	size_t len;

	text += strspn(text, SPACES);
	len = strlen(text);
	while (len && strchr(SPACES, text[len - 1]))
		len--;
	text[len] = '\0';
	return text;
}

static void cut_comment(char *text)
{
	for (char *c = text; *c; c++) {
		if (*c == ';' && c > text && strchr(SPACES, c[-1])) {
			*c = '\0';
			return;
		}
	}
}

static int keep(char **to, const char *text)
{
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

/* 1: go on, 0: the caller has enough, -EINVAL: a bad line, -ENOMEM. */
static int take_line(struct inifile *file, char *line)
{
	bool below = strchr(SPACES, *line) && file->name;
	char *text = line + strspn(line, SPACES), *value;
	int err;

	if (!*text || *text == '#' || *text == ';')
		return 1;
	if (*text == '[') {
		char *end = strchr(text, ']');

		if (!end) {
			/* What follows belongs to no section that is known. */
			keep(&file->name, NULL);
			err = keep(&file->section, "");
			return err ? err : -EINVAL;
		}
		*end = '\0';
		keep(&file->name, NULL);
		err = keep(&file->section, trim(text + 1));
		return err ? err : 1;
	}
	cut_comment(text);
	if (below)
		return file->fn(file->user, file->section, file->name, trim(text)) ? 1 : 0;
	value = text + strcspn(text, "=:");
	if (!*value)
		return -EINVAL;
	*value++ = '\0';
	err = keep(&file->name, trim(text));
	if (err)
		return err;
	return file->fn(file->user, file->section, file->name, trim(value)) ? 1 : 0;
}

/* Length of the byte order mark that some editors begin a file with. */
static size_t skip_mark(const char *line)
{
	static const char mark[] = "\xef\xbb\xbf";

	return strncmp(line, mark, strlen(mark)) ? 0 : strlen(mark);
}

int inifile_parse(const char *path, inifile_fn fn, void *user)
{
	cleanup_file FILE *stream = fopen(path, "re");
	struct inifile file = { .fn = fn, .user = user };
	int number = 0, bad = 0, r;
	char *line = NULL;
	size_t size = 0;

	if (!stream)
		return -errno;
	r = keep(&file.section, "") ? -ENOMEM : 1;
	while (r > 0 || r == -EINVAL) {
		if (getline(&line, &size, stream) < 0)
			break;
		number++;
		r = take_line(&file, number == 1 ? line + skip_mark(line) : line);
		if (r <= 0 && !bad)
			bad = number;
	}
	/* It held secrets. */
	if (line)
		explicit_bzero(line, size);
	free(line);
	free(file.section);
	free(file.name);
	if (r == -ENOMEM)
		return r;
	return ferror(stream) ? -EIO : bad;
}
