// SPDX-License-Identifier: MIT
/*
 * reader_load: loading a whole checkpoint, as the loaders named do it. Each pattern
 * compares every byte of every file at least once.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reader.h"

#define MEAN_TENSOR (300 * KIB)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The JSON header of a shard with many tensors. */
static uint64_t header_of(const struct data *data)
{
	return min_u64(data->size, 73 * KIB + 8);
}

static void st_lazy_file(struct dataset *set, struct data *data, uint64_t seed)
{
	int fd = data_open(data, 0), second;
	const uint8_t *header, *map;
	struct parts parts;
	size_t i;

	header = data_map(data, fd, PROT_READ, MAP_PRIVATE);
	data_check(set, data, 0, header, min_u64(8, data->size));
	data_check(set, data, 0, header, header_of(data));
	second = data_open(data, 0);
	map = data_map(data, second, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	data_unmap(data, header);
	close(fd);
	parts_cut(&parts, data, header_of(data), MEAN_TENSOR, seed);
	for (i = 0; i < parts.count; i++)
		data_check(set, data, parts.list[i].offset, map + parts.list[i].offset,
			   parts.list[i].size);
	parts_free(&parts);
	data_unmap(data, map);
	close(second);
}

void load_st_lazy(struct dataset *set, const struct options *options)
{
	size_t f;

	for (f = 0; f < set->count; f++)
		st_lazy_file(set, &set->files[f], options->seed + f);
}

/* Weights fill seven eighths of a file, their scales the last one. */
void load_st_two_region(struct dataset *set, const struct options *options)
{
	size_t f;

	(void)options;
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		uint64_t scales = data->size / 8 * 7 + 5, weight, scale, n, i;
		const uint8_t *map;
		int fd;

		if (data->size < 64)
			continue;
		n = data->size / (1 * MIB) + 1;
		weight = scales / n + 1;
		scale = (data->size - scales) / n + 1;
		fd = data_open(data, 0);
		map = data_map(data, fd, PROT_READ, MAP_PRIVATE);
		for (i = 0; i < n; i++) {
			uint64_t w = i * weight, s = scales + i * scale;

			if (w < scales)
				data_check(set, data, w, map + w, min_u64(weight, scales - w));
			if (s < data->size)
				data_check(set, data, s, map + s, min_u64(scale, data->size - s));
		}
		data_unmap(data, map);
		close(fd);
	}
}

static void tp8_rank(struct dataset *set, void *arg, unsigned int rank)
{
	const struct options *options = arg;
	size_t f, i;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		const uint8_t *map = data_map(data, fd, PROT_READ, MAP_PRIVATE);
		struct parts parts;

		data_check(set, data, 0, map, header_of(data));
		parts_cut(&parts, data, header_of(data), 2 * MEAN_TENSOR, options->seed + f);
		for (i = 0; i < parts.count; i++) {
			struct part *part = &parts.list[i];
			uint64_t eighth = part->size / 8 + 1, from = rank * eighth, row;

			if (i % 2) {
				if (from < part->size)
					data_check(set, data, part->offset + from,
						   map + part->offset + from,
						   min_u64(eighth, part->size - from));
				continue;
			}
			for (row = rank * 2 * KIB; row < part->size; row += 16 * KIB)
				data_check(set, data, part->offset + row, map + part->offset + row,
					   min_u64(2 * KIB, part->size - row));
		}
		parts_free(&parts);
		data_unmap(data, map);
		close(fd);
	}
}

void load_tp8(struct dataset *set, const struct options *options)
{
	in_processes(set, 8, tp8_rank, (void *)options);
}

struct shared_fd {
	struct data *data;
	int fd;
	const uint8_t *map;
	struct parts parts;
	size_t *next; /* shared by processes */
};

static void shared_fd_worker(struct dataset *set, void *arg, unsigned int index)
{
	struct shared_fd *shared = arg;
	size_t i;

	for (;;) {
		struct part *part;

		i = __atomic_fetch_add(shared->next, 1, __ATOMIC_RELAXED);
		if (i >= shared->parts.count)
			return;
		part = &shared->parts.list[i];
		if (index % 2) {
			data_check(set, part->data, part->offset, shared->map + part->offset,
				   part->size);
		} else {
			void *buffer = allocate(part->size);

			data_pread(set, part->data, shared->fd, buffer, part->size, part->offset);
			free(buffer);
		}
	}
}

void load_shared_fd(struct dataset *set, const struct options *options)
{
	size_t *next = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t f;

	if (next == MAP_FAILED)
		die("no memory");
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		struct shared_fd shared = { .data = data, .fd = data_open(data, 0), .next = next };

		shared.map = data_map(data, shared.fd, PROT_READ, MAP_SHARED);
		parts_cut(&shared.parts, data, 0, MEAN_TENSOR, options->seed + f);
		*next = 0;
		if (f % 2)
			in_processes(set, 32, shared_fd_worker, &shared);
		else
			in_threads(set, 32, shared_fd_worker, &shared);
		parts_free(&shared.parts);
		data_unmap(data, shared.map);
		close(shared.fd);
	}
	munmap(next, 4096);
}

/* All of a file by read() of chunk bytes; only the last may be short. */
static void read_all(struct dataset *set, struct data *data, size_t chunk)
{
	void *buffer = allocate(chunk);
	int fd = data_open(data, 0);
	uint64_t at = 0;

	for (;;) {
		size_t want = min_u64(chunk, data->size - at);
		ssize_t n = read(fd, buffer, chunk);

		if (n < 0)
			die("%s: read at %" PRIu64 ": %s", data->path, at, strerror(errno));
		if ((size_t)n != want)
			die("%s: short read at %" PRIu64 ": %zd of %zu bytes", data->path, at, n,
			    want);
		if (!n)
			break;
		data_check(set, data, at, buffer, n);
		at += n;
	}
	close(fd);
	free(buffer);
}

/* Rank of 8, thread of 8: its files are those of both numbers. */
static void prefetch_thread(struct dataset *set, void *arg, unsigned int index)
{
	unsigned int rank = *(unsigned int *)arg;
	size_t f;

	for (f = rank + 8 * (size_t)index; f < set->count; f += 64)
		read_all(set, &set->files[f], 16 * MIB);
}

static void prefetch_rank(struct dataset *set, void *arg, unsigned int index)
{
	/* The last process is the model's own loading. */
	if (index == 8)
		load_st_lazy(set, arg);
	else
		in_threads(set, 8, prefetch_thread, &index);
}

void load_vllm_prefetch(struct dataset *set, const struct options *options)
{
	in_processes(set, 9, prefetch_rank, (void *)options);
}

void load_eager(struct dataset *set, const struct options *options)
{
	size_t f;

	(void)options;
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];

		read_all(set, data, min_u64(data->size + 1, 0x7ffff000));
	}
}

static void runai_thread(struct dataset *set, void *arg, unsigned int index)
{
	uint64_t share = set->bytes / 16 + 1, from = share * index, end = from + share, base = 0;
	uint8_t *buffer = allocate(2 * MIB);
	size_t f;

	(void)arg;
	for (f = 0; f < set->count; base += set->files[f].size, f++) {
		struct data *data = &set->files[f];
		uint64_t at, stop;
		int fd;

		if (base + data->size <= from || base >= end)
			continue;
		at = from > base ? from - base : 0;
		stop = min_u64(data->size, end - base);
		fd = data_open(data, 0);
		if (lseek(fd, (off_t)at, SEEK_SET) < 0)
			die("%s: lseek: %s", data->path, strerror(errno));
		while (at < stop) {
			size_t want = min_u64(2 * MIB, stop - at);
			ssize_t n = read(fd, buffer, want);

			if (n < 0 || (size_t)n != want)
				die("%s: read at %" PRIu64 ": %zd of %zu bytes: %s", data->path, at,
				    n, want, n < 0 ? strerror(errno) : "short");
			data_check(set, data, at, buffer, n);
			at += n;
		}
		close(fd);
	}
	free(buffer);
}

void load_runai(struct dataset *set, const struct options *options)
{
	in_threads(set, 16, runai_thread, (void *)options);
}

static void fast_st_thread(struct dataset *set, void *arg, unsigned int index)
{
	struct data *data = &set->files[index];
	uint64_t at = min_u64(data->size, 73 * KIB + 11);
	uint8_t *buffer = allocate(16 * MIB);
	int fd = data_open(data, 0);

	(void)arg;
	data_pread(set, data, fd, buffer, at, 0);
	while (at < data->size) {
		size_t len = min_u64(16 * MIB, data->size - at);

		data_pread(set, data, fd, buffer, len, at);
		at += len;
	}
	close(fd);
	free(buffer);
}

void load_fast_st(struct dataset *set, const struct options *options)
{
	in_threads(set, set->count, fast_st_thread, (void *)options);
}

static void llama_map(struct dataset *set, void *arg, unsigned int index)
{
	const struct options *options = arg;
	size_t f, i;

	(void)index;
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		const uint8_t *map;
		struct parts parts;
		int error;

		error = posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		if (error)
			die("%s: FADV_SEQUENTIAL: %s", data->path, strerror(error));
		map = data_map(data, fd, PROT_READ, MAP_SHARED | MAP_POPULATE);
		if (!map) {
			close(fd);
			continue;
		}
		if (madvise((void *)map, data->size, MADV_WILLNEED))
			die("%s: MADV_WILLNEED: %s", data->path, strerror(errno));
		parts_cut(&parts, data, 0, MEAN_TENSOR, options->seed + f);
		for (i = 0; i < parts.count; i++)
			data_check(set, data, parts.list[i].offset, map + parts.list[i].offset,
				   parts.list[i].size);
		/* Fragments that were copied elsewhere are let go, the rest stays in use. */
		if (data->size > 8 * MIB) {
			if (munmap((void *)(map + 1 * MIB), 3 * MIB))
				die("%s: munmap: %s", data->path, strerror(errno));
			data_check(set, data, 4 * MIB, map + 4 * MIB, data->size - 4 * MIB);
		}
		munmap((void *)map, data->size);
		parts_free(&parts);
		close(fd);
	}
}

void load_llama_mmap(struct dataset *set, const struct options *options)
{
	in_processes(set, 1, llama_map, (void *)options);
	in_processes(set, 1, llama_map, (void *)options);
}

static int larger_first(const void *a, const void *b)
{
	const struct part *one = a, *other = b;

	return one->size < other->size ? 1 : one->size > other->size ? -1 : 0;
}

void load_llama_dio(struct dataset *set, const struct options *options)
{
	size_t f, i;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, O_DIRECT);
		struct parts parts;
		uint64_t align;
		struct stat st;

		if (fstat(fd, &st))
			die("%s: %s", data->path, strerror(errno));
		align = st.st_blksize;
		if (!align || align & (align - 1) || align > 16 * MIB)
			die("%s: st_blksize %" PRIu64 " is no alignment", data->path, align);
		parts_cut(&parts, data, 0, 3 * MEAN_TENSOR, options->seed + f);
		qsort(parts.list, parts.count, sizeof(*parts.list), larger_first);
		for (i = 0; i < parts.count; i++) {
			struct part *part = &parts.list[i];
			uint64_t from = part->offset & ~(align - 1);
			uint64_t end = (part->offset + part->size + align - 1) & ~(align - 1);

			for (; from < end;) {
				size_t len = min_u64(64 * MIB, end - from);
				size_t want = min_u64(len, data->size - min_u64(from, data->size));
				void *buffer;
				ssize_t n;

				if (posix_memalign(&buffer, align < 4096 ? 4096 : align, len))
					die("no memory");
				n = pread(fd, buffer, len, (off_t)from);
				if (n < 0)
					die("%s: direct pread of %zu bytes at %" PRIu64 ": %s",
					    data->path, len, from, strerror(errno));
				if ((size_t)n != want)
					die("%s: direct pread at %" PRIu64 ": %zd of %zu bytes",
					    data->path, from, n, want);
				data_check(set, data, from, buffer, n);
				free(buffer);
				from += len;
			}
		}
		parts_free(&parts);
		close(fd);
	}
}
