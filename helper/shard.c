// SPDX-License-Identifier: MIT
#include "shard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

/* A file of fewer blocks says nothing about how it is read. */
#define SHARD_BLOCKS_LEAST 4
/* In eighths: of its blocks that must have been needed, and of those that may step back. */
#define SHARD_NEEDED 7
#define SHARD_BACK   1
/* Requests overtake each other on their way: so many blocks back are no step back. */
#define SHARD_SLACK 8
/* Readers of a file that are told apart; more share. */
#define SHARD_READERS 16

struct shard {
	uint64_t needed, back;
	bool was_read;
	struct {
		uint32_t reader;
		uint64_t next;
	} readers[SHARD_READERS];
	unsigned int reader_count;
};

struct shards {
	struct shard **files;
	size_t count;
};

int shards_create(struct shards **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void shards_free(struct shards *shards)
{
	if (!shards)
		return;
	for (size_t i = 0; i < shards->count; i++)
		free(shards->files[i]);
	free(shards->files);
	free(shards);
}

static struct shard *shard_of(struct shards *shards, size_t file)
{
	if (file >= shards->count) {
		struct shard **files =
			reallocarray(shards->files, file + 1, sizeof(struct shard *));

		if (!files)
			return NULL;
		memset(files + shards->count, 0,
		       (file + 1 - shards->count) * sizeof(struct shard *));
		shards->files = files;
		shards->count = file + 1;
	}
	if (!shards->files[file])
		shards->files[file] = calloc(1, sizeof(*shards->files[file]));
	return shards->files[file];
}

/* Where the reader is expected next: *ret. */
static uint64_t *shard_next(struct shard *shard, uint32_t reader)
{
	unsigned int i;

	for (i = 0; i < shard->reader_count; i++)
		if (shard->readers[i].reader == reader)
			return &shard->readers[i].next;
	if (i == SHARD_READERS)
		return &shard->readers[reader % SHARD_READERS].next;
	shard->readers[i].reader = reader;
	shard->reader_count++;
	return &shard->readers[i].next;
}

bool shards_needed(struct shards *shards, size_t file, uint64_t blocks, uint64_t block,
		   uint32_t reader)
{
	struct shard *shard = blocks >= SHARD_BLOCKS_LEAST ? shard_of(shards, file) : NULL;
	uint64_t *next;

	if (!shard || shard->was_read)
		return false;
	next = shard_next(shard, reader);
	shard->back += block + SHARD_SLACK < *next;
	if (*next <= block || block + SHARD_SLACK < *next)
		*next = block + 1;
	shard->needed++;
	shard->was_read = shard->needed * 8 >= blocks * SHARD_NEEDED &&
			  shard->back * 8 <= shard->needed * SHARD_BACK;
	return shard->was_read;
}

bool shards_was_read(const struct shards *shards, size_t file)
{
	return file < shards->count && shards->files[file] && shards->files[file]->was_read;
}

static size_t shard_digits(const char *at)
{
	return strspn(at, "0123456789");
}

int shard_numbered(const char *name, char *next, size_t size)
{
	const char *of = NULL, *start;
	unsigned long number, last;
	int len;

	for (const char *at = name; (at = strstr(at, "-of-")); at++)
		of = at;
	if (!of)
		return -ENOENT;
	for (start = of; start > name && start[-1] >= '0' && start[-1] <= '9'; start--)
		;
	if (start == of || of - start > 9 || !shard_digits(of + 4) || shard_digits(of + 4) > 9)
		return -ENOENT;
	number = strtoul(start, NULL, 10) + 1;
	last = strtoul(of + 4, NULL, 10);
	if (number > last)
		return -ENOENT;
	len = snprintf(next, size, "%.*s%0*lu%s", (int)(start - name), name, (int)(of - start),
		       number, of);
	return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

bool shard_is_alike(const char *name, const char *other)
{
	const char *end = strrchr(name, '.'), *other_end = strrchr(other, '.');

	return !strcmp(end ? end : "", other_end ? other_end : "");
}
