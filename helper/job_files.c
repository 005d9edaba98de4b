// SPDX-License-Identifier: MIT
#include "job_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ask.h"
#include "cleanup.h"
#include "counters.h"

/* All names are kept until the last is fetched; a server may give new ones for ever. */
#define NAMES_MAX (1u << 22)

void job_files_init(struct job_files *files, struct asker *asker, unsigned int ahead)
{
	*files = (struct job_files){ .asker = asker, .ahead = ahead ? ahead : 1 };
	files->end = &files->first;
}

void job_files_free(struct job_files *files)
{
	while (files->first) {
		struct job_file *file = files->first;

		files->first = file->next;
		if (file->question)
			ask_stat_drop(file->question);
		free(file->path);
		free(file->attr);
		free(file);
	}
	while (files->dir_count)
		free(files->dirs[--files->dir_count]);
	free(files->dirs);
	job_files_from(files, NULL);
}

void job_files_from(struct job_files *files, struct origin *origin)
{
	if (files->origin)
		origin_unref(files->origin);
	files->origin = origin;
}

static struct origin_attr *attr_copy(const struct origin_attr *attr)
{
	size_t size = offsetof(struct origin_attr, version) + strlen(attr->version) + 1;
	struct origin_attr *copy = malloc(size);

	return copy ? memcpy(copy, attr, size) : NULL;
}

int job_files_add(struct job_files *files, const char *path, const struct origin_attr *attr)
{
	struct job_file *file = calloc(1, sizeof(*file));

	if (!file)
		return -ENOMEM;
	file->path = strdup(path);
	file->attr = attr_copy(attr);
	file->asked = *attr->version;
	if (!file->path || !file->attr) {
		free(file->path);
		free(file->attr);
		free(file);
		return -ENOMEM;
	}
	*files->end = file;
	files->end = &file->next;
	if (!files->next)
		files->next = file;
	files->count++;
	files->bytes += attr->size;
	return 0;
}

static int add_dir(struct job_files *files, char *path)
{
	if (files->dir_count == files->dir_size) {
		size_t size = files->dir_size ? files->dir_size * 2 : 16;
		char **dirs = reallocarray(files->dirs, size, sizeof(*dirs));

		if (!dirs)
			return -ENOMEM;
		files->dirs = dirs;
		files->dir_size = size;
	}
	files->dirs[files->dir_count++] = path;
	return 0;
}

static int list_entry(void *arg, const struct origin_entry *entry)
{
	struct job_files *files = arg;
	char *path;
	int err = files->listed(files->arg);

	if (err)
		return err;
	if (++files->names > NAMES_MAX)
		return -E2BIG;
	/* Nor can a program open it. */
	if (strlen(files->dir) + 1 + strlen(entry->name) >= PATH_MAX) {
		counter_add(hidden_keys, 1);
		return 0;
	}
	if (asprintf(&path, "%s%s%s", files->dir, *files->dir ? "/" : "", entry->name) < 0)
		return -ENOMEM;
	if (S_ISDIR(entry->attr.mode)) {
		err = add_dir(files, path);
		if (!err)
			return 0;
	} else if (S_ISREG(entry->attr.mode)) {
		err = job_files_add(files, path, &entry->attr);
	}
	free(path);
	return err;
}

int job_files_list(struct job_files *files, char *msg, size_t msg_size)
{
	char *root = strdup("");
	int err = root ? add_dir(files, root) : -ENOMEM;

	if (err)
		free(root);
	while (files->dir_count && !err) {
		cleanup_free char *dir = files->dirs[--files->dir_count];
		uint64_t skipped = 0;

		files->dir = dir;
		err = ask_list(files->asker, files->origin, dir, list_entry, files, &skipped, msg,
			       msg_size);
		counter_add(hidden_keys, skipped);
	}
	if (err == -E2BIG)
		snprintf(msg, msg_size, "there are more than %u names: fetch a part of them",
			 NAMES_MAX);
	return err;
}

/* Questions for this file, and for those that come next. */
static void ask_ahead(struct job_files *files)
{
	while (files->next && files->asking < files->ahead) {
		struct job_file *file = files->next;

		if (!file->asked) {
			if (ask_stat_begin(files->asker, files->origin, file->path,
					   &file->question))
				return;
			files->asking++;
		}
		files->next = file->next;
	}
}

static int take_answer(struct job_files *files, struct job_file *file, char *msg, size_t msg_size)
{
	struct origin_attr attr, *copy;
	int err;

	files->asking--;
	err = ask_stat_end(file->question, &attr, msg, msg_size);
	file->question = NULL;
	if (err)
		return err;
	copy = attr_copy(&attr);
	if (!copy)
		return -ENOMEM;
	free(file->attr);
	file->attr = copy;
	file->asked = true;
	return 0;
}

int job_files_attr(struct job_files *files, struct job_file *file, struct origin_attr *ret,
		   char *msg, size_t msg_size)
{
	int err = 0;

	ask_ahead(files);
	if (file->question)
		err = take_answer(files, file, msg, msg_size);
	else if (!file->asked)
		err = -ENOMEM;
	ask_ahead(files);
	if (err)
		return err;
	memcpy(ret, file->attr,
	       offsetof(struct origin_attr, version) + strlen(file->attr->version) + 1);
	return 0;
}
