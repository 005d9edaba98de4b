/* SPDX-License-Identifier: MIT */
/*
 * shard: which files of a directory were read in sequence, and what comes after one.
 *
 * A file was read in sequence when nearly all its blocks were needed, by each reader in
 * rising order. Nothing here locks or waits.
 */
#ifndef WFS_SHARD_H
#define WFS_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shards;

int shards_create(struct shards **ret);
void shards_free(struct shards *shards);
/*
 * A block of a file of so many was needed, for the first time. True, once a file: with it the
 * file was read in sequence.
 */
bool shards_needed(struct shards *shards, size_t file, uint64_t blocks, uint64_t block,
		   uint32_t reader);
bool shards_was_read(const struct shards *shards, size_t file);

/* "m-00002-of-00030.x" for "m-00001-of-00030.x". -ENOENT: it has no such number, or the last. */
int shard_numbered(const char *name, char *next, size_t size);
/* Do both names end in the same way, as in ".safetensors"? */
bool shard_is_alike(const char *name, const char *other);

#endif /* WFS_SHARD_H */
