/* SPDX-License-Identifier: MIT */
/*
 * profile_file: profiles on disk, beside the blocks: a file each, replaced as a whole, with a
 * version and a checksum. What cannot be read is as good as not there.
 *
 * All of them take some tens of MiB at most: the ones not written for longest go first. Any
 * thread; two may not write the same profile at once.
 */
#ifndef WFS_PROFILE_FILE_H
#define WFS_PROFILE_FILE_H

#include <stddef.h>
#include <stdint.h>

struct profile;
struct store;

/* The profile of a directory of an origin. -ENOENT: there is none. */
int profile_file_read(struct store *store, const char *identity, const char *dir,
		      struct profile **ret);
/* Durable when it returns 0. -E2BIG: its text would be too long. */
int profile_file_write(struct store *store, const char *identity, const struct profile *profile);

/* One profile; valid inside the callback. */
struct profile_found {
	const char *identity;
	const struct profile *profile;
	int64_t written_s; /* seconds since 1970 */
};
/*
 * Calls fn for each profile of an identity (NULL: of all) at or below path ("": all), until it
 * returns other than 0, which is then returned.
 */
int profile_file_each(struct store *store, const char *identity, const char *path,
		      int (*fn)(void *arg, const struct profile_found *found), void *arg);
/* Removes those; *ret_count: how many. */
int profile_file_drop(struct store *store, const char *identity, const char *path,
		      unsigned int *ret_count);

#endif /* WFS_PROFILE_FILE_H */
