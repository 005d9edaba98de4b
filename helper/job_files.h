/* SPDX-License-Identifier: MIT */
/*
 * job_files: the files below a source, and which version of each is meant: as the listing says,
 * else as its origin is asked, some files ahead of the one that is looked at.
 *
 * One thread, which may wait.
 */
#ifndef WFS_JOB_FILES_H
#define WFS_JOB_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "origin.h"

struct asker;
struct question;

struct job_file {
	struct job_file *next;
	char *path;
	struct origin_attr *attr; /* allocated to fit, its version cut to its length */
	struct question *question;
	bool asked, failed;
};

struct job_files {
	struct asker *asker;
	struct origin *origin; /* a reference */
	unsigned int ahead;    /* questions at once */
	struct job_file *first, **end;
	struct job_file *next; /* the first that was not asked for */
	unsigned int asking;
	uint64_t count, bytes;
	uint64_t names;	 /* files and directories */
	const char *dir; /* being listed */
	char **dirs;	 /* to be listed */
	size_t dir_count, dir_size;
	/* Called for each name; an error ends the listing. */
	int (*listed)(void *arg);
	void *arg;
};

void job_files_init(struct job_files *files, struct asker *asker, unsigned int ahead);
void job_files_free(struct job_files *files);
/* Takes the reference; the one before goes. Nothing was asked of it. */
void job_files_from(struct job_files *files, struct origin *origin);
int job_files_add(struct job_files *files, const char *path, const struct origin_attr *attr);
/* Adds all below the source. -errno with a sentence. */
int job_files_list(struct job_files *files, char *msg, size_t msg_size);
/* Its version: always the same. -errno with a sentence. */
int job_files_attr(struct job_files *files, struct job_file *file, struct origin_attr *ret,
		   char *msg, size_t msg_size);

#endif /* WFS_JOB_FILES_H */
