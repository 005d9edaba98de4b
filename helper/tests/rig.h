/* SPDX-License-Identifier: MIT */
/* rig: a core with a cache directory of its own, and wants that are waited for. */
#ifndef WFS_TEST_RIG_H
#define WFS_TEST_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "core.h"
#include "fetch.h"
#include "object.h"
#include "store.h"

struct rig {
	char dir[64];
	struct config *config;
	struct core *core;
	struct asker *asker;
};

/* A configuration with a fresh directory; change it, then rig_start(). */
void rig_create(struct rig *rig);
void rig_start(struct rig *rig);
/* Stops the core; the directory stays for another rig_start(). */
void rig_stop(struct rig *rig);
/* Removes everything. */
void rig_destroy(struct rig *rig);

struct object *rig_open(struct rig *rig, const char *source, const char *path,
			uint32_t block_shift);

/* So many bytes that look like chance, by a number; allocated. */
char *rig_bytes(size_t size, unsigned int seed);
/* A directory of files to be a source, for all tests of a group. */
struct rig_source {
	char dir[64], url[80];
};
void rig_source_create(struct rig_source *source);
/* name may have directories in front, which are made. */
void rig_source_file(const struct rig_source *source, const char *name, size_t size,
		     unsigned int seed);
/* 0 or an error. */
int rig_source_remove(const struct rig_source *source);

/* Reads an object and waits until that is settled; the bytes' XXH64. */
uint64_t rig_fetch(struct rig *rig, const char *source, const char *path, uint32_t block_shift);
/* How many of its first 32 blocks are in the cache. */
unsigned int rig_cached_of(struct object *object);
unsigned int rig_cached(struct rig *rig, const char *source, const char *path,
			uint32_t block_shift);
/* What the store says of its directories, in the order of the configuration. */
struct store_dir_info rig_dir(struct rig *rig, unsigned int number);
/* Data files in the (first) directory, and what they take of the disk. */
size_t rig_data_files(struct rig *rig, uint64_t *ret_bytes);

/* Somebody who wants a range and copies it. */
struct rig_want {
	struct fetch_want want;
	char *copy;
	uint64_t got;
	_Atomic int done; /* 1: done() was called, and the want released from there */
	int error;
};
/* To be started by fetch_start(), as part of a rig_want with room in copy. */
struct fetch_want rig_want_of(struct object *object, uint64_t block, uint32_t unit, uint32_t units,
			      enum fetch_why why);
void rig_want(struct rig *rig, struct rig_want *want, struct object *object, uint64_t block,
	      uint32_t unit, uint32_t units, enum fetch_why why);
/* Waits for the end. Returns the error. */
int rig_wait(struct rig_want *want);
void rig_want_free(struct rig_want *want);

/* Reads the whole object, all blocks at once; the bytes' XXH64. Fails the test on errors. */
uint64_t rig_read(struct rig *rig, struct object *object);
/* Waits, at most 30 s, until the condition holds. */
#define RIG_UNTIL(condition)                           \
	do {                                           \
		int rounds_ = 0;                       \
		while (!(condition)) {                 \
			assert_true(rounds_++ < 3000); \
			rig_pause();                   \
		}                                      \
	} while (0)
void rig_pause(void);

#endif /* WFS_TEST_RIG_H */
