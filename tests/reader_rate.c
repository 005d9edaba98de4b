// SPDX-License-Identifier: MIT
/*
 * reader_rate: plain ways of reading, whose rates are compared by the benchmark.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "reader.h"

#define PAGE 4096ULL
#define UNIT (64 * KIB)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The bytes from at to end by read() of chunk bytes. */
static void read_range(struct dataset *set, struct data *data, int fd, uint8_t *buffer,
		       size_t chunk, uint64_t at, uint64_t end)
{
	if (lseek(fd, (off_t)at, SEEK_SET) < 0)
		die("%s: lseek: %s", data->path, strerror(errno));
	while (at < end) {
		size_t want = min_u64(chunk, end - at);
		ssize_t n = read(fd, buffer, want);

		if (n < 0 || (size_t)n != want)
			die("%s: read at %" PRIu64 ": %zd of %zu bytes: %s", data->path, at, n,
			    want, n < 0 ? strerror(errno) : "short");
		data_check(set, data, at, buffer, n);
		at += n;
	}
}

void rate_read1m(struct dataset *set, const struct options *options)
{
	uint8_t *buffer = allocate(MIB);
	size_t f;

	(void)options;
	for (f = 0; f < set->count; f++) {
		int fd = data_open(&set->files[f], 0);

		read_range(set, &set->files[f], fd, buffer, MIB, 0, set->files[f].size);
		close(fd);
	}
	free(buffer);
}

static void read8_thread(struct dataset *set, void *arg, unsigned int index)
{
	uint8_t *buffer = allocate(2 * MIB);
	size_t f;

	(void)arg;
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		uint64_t share = data->size / 8 + 1;
		uint64_t from = min_u64(index * share, data->size);
		int fd = data_open(data, 0);

		read_range(set, data, fd, buffer, 2 * MIB, from, min_u64(from + share, data->size));
		close(fd);
	}
	free(buffer);
}

void rate_read8(struct dataset *set, const struct options *options)
{
	in_threads(set, 8, read8_thread, (void *)options);
}

/* The touches alone are measured: checking costs more than a fault that maps 2 MiB. */
void rate_mmap_scan(struct dataset *set, const struct options *options)
{
	uint64_t pmd = 0;
	size_t f;

	(void)options;
	meter_stop();
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		const volatile uint8_t *map;
		int fd = data_open(data, 0);
		uint64_t at;

		meter_start();
		map = data_map(data, fd, PROT_READ, MAP_PRIVATE);
		for (at = 0; at < data->size; at += PAGE)
			(void)map[at];
		meter_stop();
		pmd += map_pmd((const void *)map);
		data_check(set, data, 0, (const void *)map, data->size);
		data_unmap(data, (const void *)map);
		close(fd);
	}
	printf(" pmd=%" PRIu64, pmd);
}

void rate_direct4m(struct dataset *set, const struct options *options)
{
	uint8_t *buffer = allocate(4 * MIB);
	size_t f;

	(void)options;
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, O_DIRECT);
		uint64_t at;

		for (at = 0; at < data->size; at += 4 * MIB) {
			size_t want = min_u64(4 * MIB, data->size - at);
			ssize_t n = pread(fd, buffer, 4 * MIB, (off_t)at);

			if (n < 0 || (size_t)n != want)
				die("%s: direct pread at %" PRIu64 ": %zd of %zu bytes: %s",
				    data->path, at, n, want, n < 0 ? strerror(errno) : "short");
			data_check(set, data, at, buffer, n);
		}
		close(fd);
	}
	free(buffer);
}

static uint64_t any_page(uint64_t *state, const struct data *data)
{
	return random_below(state, data->size / PAGE) * PAGE;
}

void rate_rand_pread(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed, count = options->count ? options->count : 1000, i;
	uint8_t *buffer = allocate(PAGE);
	size_t f;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);

		for (i = 0; i < count; i++)
			data_pread(set, data, fd, buffer, PAGE, any_page(&state, data));
		close(fd);
	}
	free(buffer);
}

void rate_rand_mmap(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed, count = options->count ? options->count : 1000, i, at;
	size_t f;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		const uint8_t *map = data_map(data, fd, PROT_READ, MAP_PRIVATE);

		if (map && madvise((void *)map, data->size, MADV_RANDOM))
			die("%s: MADV_RANDOM: %s", data->path, strerror(errno));
		for (i = 0; map && i < count; i++) {
			at = any_page(&state, data);
			data_check(set, data, at, map + at, PAGE);
		}
		data_unmap(data, map);
		close(fd);
	}
}

/* As the checks of cached bytes do it; the files are in memory before it is measured. */
void rate_sums(struct dataset *set, const struct options *options)
{
	uint64_t hashed = 0, at, sum = 0;
	uint8_t *buffer;
	size_t f;

	(void)options;
	meter_stop();
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);

		buffer = allocate(data->size + 1);
		data_pread(set, data, fd, buffer, data->size, 0);
		meter_start();
		for (at = 0; at < data->size; at += UNIT)
			sum ^= XXH64(buffer + at, min_u64(UNIT, data->size - at), 0);
		meter_stop();
		hashed += data->size;
		free(buffer);
		close(fd);
	}
	printf(" hashed=%" PRIu64 " sum=%" PRIx64, hashed, sum);
}
