// SPDX-License-Identifier: MIT
/*
 * reader_data: the files under test, their reference, and comparing the two.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "reader.h"

#define PAGE 4096ULL

void die(const char *format, ...)
{
	va_list ap;

	fputs("\nreader: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	/* Not exit(): threads and children of this program end here too. */
	_exit(1);
}

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* splitmix64: the same numbers for the same seed, everywhere. */
uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

uint64_t random_below(uint64_t *state, uint64_t limit)
{
	return limit ? random_next(state) % limit : 0;
}

/* Aligned as direct I/O wants it. */
void *allocate(size_t size)
{
	void *memory = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);

	if (!memory)
		die("no memory for %zu bytes", size);
	return memory;
}

static void *shared(size_t size)
{
	void *memory = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory for %zu bytes", size);
	return memory;
}

static char *join(const char *dir, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		die("no memory");
	return path;
}

static void data_init(struct dataset *set, struct data *data, const char *name, const char *path,
		      const char *reference)
{
	struct stat st;
	void *map;
	int fd;

	fd = open(reference, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die("%s: %s", reference, strerror(errno));
	data->name = strdup(name);
	data->path = strdup(path);
	if (!data->name || !data->path)
		die("no memory");
	data->size = st.st_size;
	data->seed = XXH64(reference, strlen(reference), 0);
	if (data->size) {
		map = mmap(NULL, data->size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
		if (map == MAP_FAILED)
			die("cannot map %s: %s", reference, strerror(errno));
		data->golden = map;
		data->blocks = shared(data->size / set->block + 1);
	}
	close(fd);
	set->bytes += data->size;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct data *)a)->name, ((const struct data *)b)->name);
}

void dataset_open(struct dataset *set, const char *path, const char *reference, uint64_t block)
{
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	memset(set, 0, sizeof(*set));
	set->dir = path;
	set->reference = reference;
	set->block = block;
	set->compared = shared(sizeof(*set->compared));
	if (stat(reference, &st))
		die("%s: %s", reference, strerror(errno));
	if (!S_ISDIR(st.st_mode)) {
		const char *slash = strrchr(path, '/');

		set->files = calloc(1, sizeof(*set->files));
		if (!set->files)
			die("no memory");
		set->count = 1;
		data_init(set, set->files, slash ? slash + 1 : path, path, reference);
		return;
	}
	dir = opendir(reference);
	if (!dir)
		die("%s: %s", reference, strerror(errno));
	while ((entry = readdir(dir))) {
		char *one = join(path, entry->d_name), *other = join(reference, entry->d_name);

		if (!lstat(other, &st) && S_ISREG(st.st_mode)) {
			set->files = reallocarray(set->files, set->count + 1, sizeof(*set->files));
			if (!set->files)
				die("no memory");
			memset(&set->files[set->count], 0, sizeof(*set->files));
			data_init(set, &set->files[set->count++], entry->d_name, one, other);
		}
		free(one);
		free(other);
	}
	closedir(dir);
	if (!set->count)
		die("%s holds no file", reference);
	qsort(set->files, set->count, sizeof(*set->files), by_name);
}

uint64_t dataset_touched(const struct dataset *set, uint64_t *ret_blocks)
{
	uint64_t bytes = 0, blocks = 0, i;
	size_t f;

	for (f = 0; f < set->count; f++) {
		const struct data *data = &set->files[f];

		for (i = 0; i * set->block < data->size; i++) {
			uint64_t left = data->size - i * set->block;

			if (!data->blocks[i])
				continue;
			blocks++;
			bytes += left < set->block ? left : set->block;
		}
	}
	*ret_blocks = blocks;
	return bytes;
}

/* The eight bytes that make_data put at offset, a multiple of eight. */
static uint64_t stamp_at(const struct data *data, uint64_t offset)
{
	uint64_t z = data->seed + (offset / 8 + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ULL;
	return z ^ (z >> 32);
}

/* The first whole word of each page; a page with none is touched. */
static void check_stamps(const struct data *data, uint64_t offset, const uint8_t *got, size_t len)
{
	uint64_t at = (offset + 7) & ~7ULL, end = offset + len, word;

	if (at + 8 > end)
		(void)*(const volatile uint8_t *)got;
	for (; at + 8 <= end; at = (at / PAGE + 1) * PAGE) {
		memcpy(&word, got + (at - offset), sizeof(word));
		if (word != stamp_at(data, at))
			die("%s: wrong bytes at %" PRIu64 ": got %#" PRIx64 ", wanted %#" PRIx64,
			    data->path, at, word, stamp_at(data, at));
	}
}

void data_check(const struct dataset *set, const struct data *data, uint64_t offset,
		const void *bytes, size_t len)
{
	const uint8_t *got = bytes;
	uint64_t i;
	size_t at;

	if (!len)
		return;
	if (offset + len > data->size)
		die("%s: %zu bytes at %" PRIu64 " are beyond its end at %" PRIu64, data->path, len,
		    offset, data->size);
	if (set->stamps) {
		check_stamps(data, offset, got, len);
	} else if (memcmp(got, data->golden + offset, len)) {
		for (at = 0; at < len && got[at] == data->golden[offset + at]; at++)
			;
		if (at == len)
			die("%s: bytes at %" PRIu64 " changed while they were compared", data->path,
			    offset);
		die("%s: wrong byte at %" PRIu64 " (%zu into %zu bytes read at %" PRIu64
		    "): got %#x, wanted %#x",
		    data->path, offset + at, at, len, offset, got[at], data->golden[offset + at]);
	}
	for (i = offset / set->block; i <= (offset + len - 1) / set->block; i++)
		data->blocks[i] = 1;
	__atomic_fetch_add(set->compared, len, __ATOMIC_RELAXED);
}

int data_open(const struct data *data, int flags)
{
	struct stat st;
	int fd = open(data->path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0)
		die("cannot open %s: %s", data->path, strerror(errno));
	if (fstat(fd, &st))
		die("%s: %s", data->path, strerror(errno));
	if ((uint64_t)st.st_size != data->size)
		die("%s has %" PRIu64 " bytes, wanted %" PRIu64, data->path, (uint64_t)st.st_size,
		    data->size);
	return fd;
}

void data_pread(const struct dataset *set, const struct data *data, int fd, void *buffer,
		size_t len, uint64_t offset)
{
	ssize_t n = pread(fd, buffer, len, (off_t)offset);

	if (n < 0)
		die("%s: pread of %zu bytes at %" PRIu64 ": %s", data->path, len, offset,
		    strerror(errno));
	if ((size_t)n != len)
		die("%s: short pread at %" PRIu64 ": %zd of %zu bytes", data->path, offset, n, len);
	data_check(set, data, offset, buffer, len);
}

const uint8_t *data_map(const struct data *data, int fd, int prot, int flags)
{
	void *map;

	if (!data->size)
		return NULL;
	map = mmap(NULL, data->size, prot, flags, fd, 0);
	if (map == MAP_FAILED)
		die("cannot map %s: %s", data->path, strerror(errno));
	return map;
}

void data_unmap(const struct data *data, const uint8_t *map)
{
	if (map && munmap((void *)map, data->size))
		die("munmap of %s: %s", data->path, strerror(errno));
}

uint64_t map_resident(const void *map, size_t len)
{
	size_t pages = (len + 4095) / 4096, i, resident = 0;
	unsigned char *vec = allocate(pages);

	if (mincore((void *)map, len, vec))
		die("mincore: %s", strerror(errno));
	for (i = 0; i < pages; i++)
		resident += vec[i] & 1;
	free(vec);
	return resident * 4096;
}

void parts_cut(struct parts *parts, struct data *data, uint64_t head, uint64_t mean, uint64_t seed)
{
	uint64_t state = seed ^ 0x7061727473ULL, offset = head;
	size_t i;

	parts->list = NULL;
	parts->count = 0;
	while (offset < data->size) {
		/* As tensors are: a few large, many small. */
		uint64_t size = random_below(&state, 4) ? random_below(&state, 2 * mean) + 1 :
							  random_below(&state, 4096) + 1;

		if (size > data->size - offset)
			size = data->size - offset;
		parts->list = reallocarray(parts->list, parts->count + 1, sizeof(*parts->list));
		if (!parts->list)
			die("no memory");
		parts->list[parts->count++] =
			(struct part){ .data = data, .offset = offset, .size = size };
		offset += size;
	}
	for (i = parts->count; i > 1; i--) {
		size_t j = random_below(&state, i);
		struct part swap = parts->list[i - 1];

		parts->list[i - 1] = parts->list[j];
		parts->list[j] = swap;
	}
}

void parts_free(struct parts *parts)
{
	free(parts->list);
	parts->list = NULL;
	parts->count = 0;
}

void in_processes(struct dataset *set, unsigned int count, work_fn work, void *arg)
{
	unsigned int i;
	int gate[2], status, failed = 0;
	char byte;

	/* All begin when the write end is closed. */
	if (pipe(gate))
		die("pipe: %s", strerror(errno));
	fflush(NULL);
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork: %s", strerror(errno));
		if (!pid) {
			close(gate[1]);
			if (read(gate[0], &byte, 1))
				die("the gate is broken");
			work(set, arg, i);
			_exit(0);
		}
	}
	close(gate[0]);
	close(gate[1]);
	for (i = 0; i < count; i++)
		if (wait(&status) < 0 || status)
			failed++;
	if (failed)
		die("%d of %u processes failed", failed, count);
}

struct thread {
	struct dataset *set;
	work_fn work;
	void *arg;
	unsigned int index;
	pthread_t id;
};

static void *thread_main(void *arg)
{
	struct thread *thread = arg;

	thread->work(thread->set, thread->arg, thread->index);
	return NULL;
}

void in_threads(struct dataset *set, unsigned int count, work_fn work, void *arg)
{
	struct thread *threads = calloc(count, sizeof(*threads));
	unsigned int i;
	int error;

	if (!threads)
		die("no memory");
	for (i = 0; i < count; i++) {
		threads[i] = (struct thread){ .set = set, .work = work, .arg = arg, .index = i };
		error = pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
		if (error)
			die("no thread: %s", strerror(error));
	}
	for (i = 0; i < count; i++)
		pthread_join(threads[i].id, NULL);
	free(threads);
}
