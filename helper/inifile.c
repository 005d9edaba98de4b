// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "inifile.h"

/* Well below inih's limit, with room for the leading space. */
#define PIECE 128

/*
 * A long line is passed to inih in pieces that look like continued values, and its
 * value put together again before the caller sees it.
 */
struct file {
	FILE *stream;
	char *line;
	size_t line_size, line_len, line_at;
	bool piece; /* what inih got last goes on with a long line */

	ini_handler handler;
	void *user;
	char *section, *name, *value; /* not yet handed over */
	int error;
};

static bool next_line(struct file *file)
{
	ssize_t n = getline(&file->line, &file->line_size, file->stream);

	if (n < 0)
		return false;
	while (n && (file->line[n - 1] == '\n' || file->line[n - 1] == '\r'))
		n--;
	file->line_len = (size_t)n;
	file->line_at = 0;
	return true;
}

/* As fgets(). */
static char *read_line(char *text, int size, void *arg)
{
	struct file *file = arg;
	size_t n;

	(void)size;
	file->piece = file->line_at < file->line_len;
	if (!file->piece && !next_line(file))
		return NULL;
	n = file->line_len - file->line_at;
	if (n > PIECE)
		n = PIECE;
	snprintf(text, PIECE + 3, "%s%.*s\n", file->piece ? " " : "", (int)n,
		 file->line + file->line_at);
	file->line_at += n;
	return text;
}

static int hand_over(struct file *file)
{
	int ok = 1;

	if (file->name)
		ok = file->handler(file->user, file->section, file->name, file->value);
	free(file->section);
	free(file->name);
	free(file->value);
	file->section = NULL;
	file->name = NULL;
	file->value = NULL;
	return ok;
}

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
	struct file *file = arg;
	int ok;

	if (file->piece && file->value) {
		size_t len = strlen(file->value), more = strlen(value) + 1;
		char *grown = realloc(file->value, len + more);

		if (!grown) {
			file->error = -ENOMEM;
			return 0;
		}
		memcpy(grown + len, value, more);
		file->value = grown;
		return 1;
	}
	ok = hand_over(file);
	file->section = strdup(section);
	file->name = strdup(name);
	file->value = strdup(value);
	if (!file->section || !file->name || !file->value) {
		file->error = -ENOMEM;
		return 0;
	}
	return ok;
}

int inifile_parse(const char *path, ini_handler handler, void *user)
{
	cleanup_file FILE *stream = fopen(path, "re");
	struct file file = { .stream = stream, .handler = handler, .user = user };
	int bad;

	if (!stream)
		return -errno;
	bad = ini_parse_stream(read_line, &file, on_value, &file);
	if (!file.error && !hand_over(&file) && !bad)
		bad = 1;
	if (file.line)
		explicit_bzero(file.line, file.line_size);
	free(file.line);
	free(file.section);
	free(file.name);
	free(file.value);
	if (!file.error && ferror(stream))
		file.error = -EIO;
	return file.error ? file.error : bad;
}
