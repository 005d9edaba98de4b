// SPDX-License-Identifier: MIT
/*
 * reader_pick: reading parts of files, reading again, and reading nothing but names.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reader.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* pread of a range that may reach past the end. */
static void range(struct dataset *set, struct data *data, int fd, uint64_t offset, uint64_t len)
{
	void *buffer;

	if (offset >= data->size)
		return;
	len = min_u64(len, data->size - offset);
	buffer = allocate(len);
	data_pread(set, data, fd, buffer, len, offset);
	free(buffer);
}

/* Rows of an eighth of each file, the first of them most often. */
void pick_moe_rows(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed, count = options->count ? options->count : 200, i;
	size_t f;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		uint64_t experts = data->size / 8;
		int fd = data_open(data, 0);
		const uint8_t *map = data_map(data, fd, PROT_READ, MAP_PRIVATE);

		if (map && madvise((void *)map, data->size, MADV_RANDOM))
			die("%s: MADV_RANDOM: %s", data->path, strerror(errno));
		for (i = 0; map && i < count; i++) {
			uint64_t len = (4 + random_below(&state, 61)) * KIB;
			/* Near to a Zipf distribution: the product of two even ones. */
			uint64_t at = random_below(&state, random_below(&state, experts) + 1);

			data_check(set, data, at, map + at, min_u64(len, data->size - at));
		}
		data_unmap(data, map);
		close(fd);
	}
}

void pick_tail_first(struct dataset *set, const struct options *options)
{
	size_t f, i;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		uint64_t tail = min_u64(64 * KIB, data->size);
		uint64_t directory = min_u64(300 * KIB, data->size), at = 0;

		range(set, data, fd, 0, 8);
		range(set, data, fd, data->size - tail, tail);
		range(set, data, fd, data->size - directory, directory);
		/* --count records, or all of them. */
		for (i = 0; at < data->size && (!options->count || i < options->count); i++) {
			range(set, data, fd, at, 700 * KIB + 13);
			at += 700 * KIB + 13;
		}
		close(fd);
	}
}

void pick_gguf_header(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed;
	size_t f, i;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		uint64_t head = min_u64(2 * MIB, data->size), at;
		int fd = data_open(data, 0);
		const uint8_t *map = data_map(data, fd, PROT_READ, MAP_SHARED);
		struct parts parts;

		for (at = 0; at < head;) {
			uint64_t len = min_u64(4 + random_below(&state, 61), head - at);

			data_check(set, data, at, map + at, len);
			at += len + random_below(&state, 900);
		}
		/* --count 1: nothing but the header is wanted. */
		if (!options->count) {
			parts_cut(&parts, data, 0, 300 * KIB, options->seed);
			for (i = 0; i < parts.count; i++)
				data_check(set, data, parts.list[i].offset,
					   map + parts.list[i].offset, parts.list[i].size);
			parts_free(&parts);
		}
		data_unmap(data, map);
		close(fd);
	}
}

void pick_cow(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed;
	size_t f;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		uint64_t pages = (data->size + 4095) / 4096, i, at;
		int fd = data_open(data, 0);
		uint8_t *map = (uint8_t *)data_map(data, fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
		uint8_t *written = calloc(pages + 1, 1);
		const uint8_t *other;

		if (!written)
			die("no memory");
		if (!map) {
			free(written);
			close(fd);
			continue;
		}
		/* Half before it is ever read, half after. */
		for (i = 0; i < pages / 200 + 1; i++) {
			at = random_below(&state, pages);
			written[at] = 1;
			map[at * 4096] = ~data->golden[at * 4096];
		}
		for (i = 0; i < pages; i++)
			if (!written[i])
				data_check(set, data, i * 4096, map + i * 4096,
					   min_u64(4096, data->size - i * 4096));
		for (i = 0; i < pages / 200 + 1; i++) {
			at = random_below(&state, pages);
			written[at] = 1;
			map[at * 4096] = ~data->golden[at * 4096];
		}
		for (i = 0; i < pages; i++)
			if (written[i] && map[i * 4096] == data->golden[i * 4096])
				die("%s: what was written to page %" PRIu64 " is lost", data->path,
				    i);
		/* Nobody else sees it. */
		other = data_map(data, fd, PROT_READ, MAP_SHARED);
		data_check(set, data, 0, other, data->size);
		data_unmap(data, other);
		range(set, data, fd, 0, data->size);
		data_unmap(data, map);
		free(written);
		close(fd);
	}
}

void pick_drop(struct dataset *set, const struct options *options)
{
	uint64_t before = 0, after = 0;
	int round;
	size_t f;

	(void)options;
	for (round = 0; round < 2; round++) {
		for (f = 0; f < set->count; f++) {
			struct data *data = &set->files[f];
			int fd = data_open(data, 0), error;
			const uint8_t *map = data_map(data, fd, PROT_READ, MAP_SHARED);
			uint64_t at;

			for (at = 0; at < data->size; at += 1 * MIB)
				range(set, data, fd, at, 1 * MIB);
			if (map)
				before += map_resident(map, data->size);
			error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			if (error)
				die("%s: FADV_DONTNEED: %s", data->path, strerror(error));
			if (map)
				after += map_resident(map, data->size);
			data_unmap(data, map);
			close(fd);
		}
	}
	printf(" resident=%" PRIu64 " left=%" PRIu64, before, after);
}

static void drop_file(struct data *data, int fd)
{
	int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);

	if (error)
		die("%s: FADV_DONTNEED: %s", data->path, strerror(error));
}

static void wds_worker(struct dataset *set, void *arg, unsigned int index)
{
	int epoch;
	size_t f;

	(void)arg;
	for (epoch = 0; epoch < 2; epoch++) {
		for (f = index; f < set->count; f += 4) {
			struct data *data = &set->files[f];
			int fd = data_open(data, 0);
			uint64_t at;

			/* A tar header, then its member, as tarfile reads a stream. */
			for (at = 0; at < data->size; at += 10 * KIB + 100 * KIB) {
				range(set, data, fd, at, 10 * KIB);
				range(set, data, fd, at + 10 * KIB, 100 * KIB);
			}
			drop_file(data, fd);
			close(fd);
		}
	}
}

void pick_wds(struct dataset *set, const struct options *options)
{
	in_processes(set, 4, wds_worker, (void *)options);
}

void pick_wds_random(struct dataset *set, const struct options *options)
{
	uint64_t count = options->count ? options->count : 100, i;
	int epoch;
	size_t f;

	for (epoch = 0; epoch < 2; epoch++) {
		uint64_t state = options->seed;

		for (i = 0; i < count; i++) {
			struct data *data = &set->files[random_below(&state, set->count)];
			uint64_t at = random_below(&state, data->size);
			uint64_t len = (4 * KIB) << random_below(&state, 9);
			int fd = data_open(data, 0);

			range(set, data, fd, at, len);
			close(fd);
		}
		for (f = 0; f < set->count; f++) {
			int fd = data_open(&set->files[f], 0);

			drop_file(&set->files[f], fd);
			close(fd);
		}
	}
}

/* Sixteen row groups of eight columns; a query reads three columns of two groups. */
static void query(struct dataset *set, struct data *data)
{
	static const unsigned int groups[] = { 3, 11 }, columns[] = { 1, 2, 6 };
	uint64_t group = data->size / 16, column = group / 8;
	int fd = data_open(data, 0);
	size_t g, c;

	range(set, data, fd, data->size - min_u64(8, data->size), 8);
	range(set, data, fd, data->size - min_u64(48 * KIB, data->size), 48 * KIB);
	for (g = 0; g < 2; g++)
		for (c = 0; c < 3; c++)
			range(set, data, fd, groups[g] * group + columns[c] * column, column);
	close(fd);
}

void pick_rowgroup(struct dataset *set, const struct options *options)
{
	int round;
	size_t f;

	(void)options;
	for (round = 0; round < 2; round++)
		for (f = 0; f < set->count; f++)
			query(set, &set->files[f]);
}

void pick_seek(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed, count = options->count ? options->count : 3, i;
	size_t f;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);

		range(set, data, fd, 0, 64 * KIB);
		for (i = 0; i < count; i++) {
			uint64_t at = random_below(&state, data->size);
			uint64_t end =
				min_u64(data->size, at + MIB + random_below(&state, 7 * MIB));

			for (; at < end; at += 128 * KIB)
				range(set, data, fd, at, min_u64(128 * KIB, end - at));
		}
		close(fd);
	}
}

void pick_huge_file(struct dataset *set, const struct options *options)
{
	size_t f;

	(void)options;
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		const uint8_t *map = data_map(data, fd, PROT_READ, MAP_PRIVATE);
		uint64_t tail = min_u64(data->size, 100 * KIB + 1), middle = data->size / 2 - 100;

		if (data->size < MIB)
			die("%s is not huge", data->path);
		range(set, data, fd, 0, 100 * KIB);
		range(set, data, fd, middle, 100 * KIB);
		range(set, data, fd, data->size - tail, tail);
		if (map) {
			data_check(set, data, 0, map, min_u64(4096, data->size));
			data_check(set, data, middle, map + middle, 4096);
			data_check(set, data, data->size - tail, map + data->size - tail, tail);
		}
		data_unmap(data, map);
		close(fd);
	}
}

static void refused(const char *what, const char *path, int result, int wanted)
{
	if (result != -1 || errno != wanted)
		die("%s: %s: got %s, wanted %s", path, what,
		    result == -1 ? strerror(errno) : "success", strerror(wanted));
}

void pick_meta(struct dataset *set, const struct options *options)
{
	char path[PATH_MAX], resolved[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	size_t seen = 0, f;
	DIR *dir;
	int fd;

	(void)options;
	dir = opendir(set->dir);
	if (!dir)
		die("%s: %s", set->dir, strerror(errno));
	while ((entry = readdir(dir))) {
		for (f = 0; f < set->count; f++)
			if (!strcmp(set->files[f].name, entry->d_name))
				seen++;
	}
	closedir(dir);
	if (seen != set->count)
		die("%s lists %zu of %zu files", set->dir, seen, set->count);
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];

		if (stat(data->path, &st))
			die("%s: %s", data->path, strerror(errno));
		if ((uint64_t)st.st_size != data->size)
			die("%s has %" PRIu64 " bytes, wanted %" PRIu64, data->path,
			    (uint64_t)st.st_size, data->size);
		if (st.st_nlink != 1)
			die("%s has %lu links", data->path, (unsigned long)st.st_nlink);
		if (!realpath(data->path, resolved))
			die("%s: realpath: %s", data->path, strerror(errno));
		fd = data_open(data, 0);
		if (flock(fd, LOCK_SH) || flock(fd, LOCK_UN) || flock(fd, LOCK_EX | LOCK_NB))
			die("%s: flock: %s", data->path, strerror(errno));
		close(fd);
		refused("open for writing", data->path, open(data->path, O_RDWR), EROFS);
		refused("truncate", data->path, truncate(data->path, 0), EROFS);
		refused("unlink", data->path, unlink(data->path), EROFS);
	}
	snprintf(path, sizeof(path), "%s/.wfs-new", set->dir);
	refused("create", path, open(path, O_CREAT | O_WRONLY, 0600), EROFS);
	refused("mkdir", path, mkdir(path, 0700), EROFS);
}
