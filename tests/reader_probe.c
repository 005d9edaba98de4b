// SPDX-License-Identifier: MIT
/*
 * reader_probe: random ranges by every way of reading, and what the memory looks like.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "reader.h"

#define LONGEST (3 * MIB)

struct probe {
	struct dataset *set;
	struct data *data;
	int fd, direct;
	int pipe[2], socket[2];
	struct io_uring ring;
	const uint8_t *map;
	uint8_t *buffer;
	unsigned long tried, at_once; /* RWF_NOWAIT */
};

static size_t wanted(const struct probe *probe, uint64_t offset, size_t len)
{
	if (offset >= probe->data->size)
		return 0;
	return len < probe->data->size - offset ? len : probe->data->size - offset;
}

static void must(const struct probe *probe, const char *way, ssize_t got, size_t want,
		 uint64_t offset)
{
	if (got < 0)
		die("%s: %s of %zu bytes at %" PRIu64 ": %s", probe->data->path, way, want, offset,
		    strerror(errno));
	if ((size_t)got != want)
		die("%s: %s at %" PRIu64 " gave %zd of %zu bytes", probe->data->path, way, offset,
		    got, want);
}

static void by_read(struct probe *probe, uint64_t offset, size_t len)
{
	if (lseek(probe->fd, (off_t)offset, SEEK_SET) < 0)
		die("%s: lseek to %" PRIu64 ": %s", probe->data->path, offset, strerror(errno));
	must(probe, "read", read(probe->fd, probe->buffer, len), wanted(probe, offset, len),
	     offset);
}

static void by_pread(struct probe *probe, uint64_t offset, size_t len)
{
	must(probe, "pread", pread(probe->fd, probe->buffer, len, (off_t)offset),
	     wanted(probe, offset, len), offset);
}

/* First without waiting, which may give less or nothing; the rest in two pieces. */
static void by_preadv2(struct probe *probe, uint64_t offset, size_t len)
{
	size_t want = wanted(probe, offset, len), half;
	struct iovec iov[2] = { { probe->buffer, len } };
	ssize_t n = preadv2(probe->fd, iov, 1, (off_t)offset, RWF_NOWAIT);

	probe->tried++;
	if (n < 0 && errno != EAGAIN)
		must(probe, "preadv2 with RWF_NOWAIT", n, want, offset);
	if (n < 0)
		n = 0;
	if (!n && want == 0)
		return;
	if ((size_t)n > want)
		must(probe, "preadv2 with RWF_NOWAIT", n, want, offset);
	if ((size_t)n == want) {
		probe->at_once++;
		return;
	}
	half = (len - n) / 2;
	iov[0] = (struct iovec){ probe->buffer + n, half };
	iov[1] = (struct iovec){ probe->buffer + n + half, len - n - half };
	must(probe, "preadv2", preadv2(probe->fd, iov, 2, (off_t)(offset + n), 0), want - n,
	     offset + n);
}

static void by_mmap(struct probe *probe, uint64_t offset, size_t len)
{
	size_t want = wanted(probe, offset, len);

	if (want)
		memcpy(probe->buffer, probe->map + offset, want);
}

/* Through a pipe, which takes as much as it likes at a time. */
static void by_splice(struct probe *probe, uint64_t offset, size_t len)
{
	size_t done = 0, want = wanted(probe, offset, len);
	off_t at = (off_t)offset;

	while (done < want) {
		ssize_t n = splice(probe->fd, &at, probe->pipe[1], NULL, len - done, 0), left;

		if (n <= 0)
			must(probe, "splice", n, want - done, offset + done);
		for (left = n; left > 0;) {
			ssize_t got = read(probe->pipe[0], probe->buffer + done, left);

			if (got <= 0)
				die("reading the pipe: %s", strerror(errno));
			done += got;
			left -= got;
		}
	}
	must(probe, "splice", done, want, offset);
}

static void by_sendfile(struct probe *probe, uint64_t offset, size_t len)
{
	size_t done = 0, want = wanted(probe, offset, len);
	off_t at = (off_t)offset;

	while (done < want) {
		/* No more than the socket holds: nobody reads it meanwhile. */
		size_t piece = len - done < 32 * KIB ? len - done : 32 * KIB;
		ssize_t n = sendfile(probe->socket[1], probe->fd, &at, piece), left;

		if (n <= 0)
			must(probe, "sendfile", n, want - done, offset + done);
		for (left = n; left > 0;) {
			ssize_t got = read(probe->socket[0], probe->buffer + done, left);

			if (got <= 0)
				die("reading the socket: %s", strerror(errno));
			done += got;
			left -= got;
		}
	}
	must(probe, "sendfile", done, want, offset);
}

/* Whole pages around the range; the result is moved to the front of the buffer. */
static void by_direct(struct probe *probe, uint64_t offset, size_t len)
{
	uint64_t from = offset & ~4095ULL, end = (offset + len + 4095) & ~4095ULL;
	size_t want = wanted(probe, from, end - from);

	must(probe, "direct pread", pread(probe->direct, probe->buffer, end - from, (off_t)from),
	     want, from);
	if (offset - from < want)
		memmove(probe->buffer, probe->buffer + (offset - from), want - (offset - from));
}

static void by_uring(struct probe *probe, uint64_t offset, size_t len)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&probe->ring);
	struct io_uring_cqe *cqe;
	int error;

	io_uring_prep_read(sqe, probe->fd, probe->buffer, len, offset);
	error = io_uring_submit(&probe->ring);
	if (error == 1)
		error = io_uring_wait_cqe(&probe->ring, &cqe);
	if (error < 0)
		die("io_uring: %s", strerror(-error));
	if (cqe->res < 0)
		errno = -cqe->res;
	must(probe, "io_uring read", cqe->res, wanted(probe, offset, len), offset);
	io_uring_cqe_seen(&probe->ring, cqe);
}

static const struct way {
	const char *name;
	void (*read)(struct probe *probe, uint64_t offset, size_t len);
} ways[] = {
	{ "read", by_read },	 { "pread", by_pread },	  { "preadv2", by_preadv2 },
	{ "mmap", by_mmap },	 { "splice", by_splice }, { "sendfile", by_sendfile },
	{ "direct", by_direct }, { "uring", by_uring },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* Is name among the comma-separated names of list? */
static bool listed(const char *list, const char *name)
{
	size_t len = strlen(name);
	const char *at;

	if (!list)
		return true;
	for (at = list; (at = strstr(at, name)); at += len)
		if ((at == list || at[-1] == ',') && (at[len] == ',' || !at[len]))
			return true;
	return false;
}

/* Mostly small ranges anywhere; some at borders of blocks and at the end. */
static uint64_t pick(uint64_t *state, const struct options *options, uint64_t size, size_t *ret_len)
{
	uint64_t offset, len;

	switch (random_below(state, 8)) {
	case 0:
		len = random_below(state, LONGEST) + 1;
		break;
	case 1:
		len = 1;
		break;
	default:
		len = random_below(state, 70 * KIB) + 1;
		break;
	}
	switch (random_below(state, 4)) {
	case 0: /* across a border of blocks */
		offset = random_below(state, size / options->block + 1) * options->block;
		offset -= random_below(state, len < offset ? len + 1 : offset + 1);
		break;
	case 1: /* near the end, and beyond */
		offset = size - random_below(state, size < 100 * KIB ? size + 1 : 100 * KIB) +
			 random_below(state, 3);
		break;
	default:
		offset = random_below(state, size);
		break;
	}
	*ret_len = len;
	return offset;
}

void probe_random(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed, count = options->count ? options->count : 500, i;
	size_t f, n = 0, w[WAYS];
	struct probe probe = { .set = set };

	for (i = 0; i < WAYS; i++)
		if (listed(options->ways, ways[i].name))
			w[n++] = i;
	if (!n)
		die("none of the ways is known: %s", options->ways);
	probe.buffer = allocate(LONGEST + 8192);
	if (pipe(probe.pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, probe.socket))
		die("no pipe: %s", strerror(errno));
	if (io_uring_queue_init(8, &probe.ring, 0) < 0)
		die("no io_uring");
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];

		probe.data = data;
		probe.fd = data_open(data, 0);
		probe.direct = listed(options->ways, "direct") ? data_open(data, O_DIRECT) : -1;
		probe.map = data_map(data, probe.fd, PROT_READ, MAP_SHARED);
		for (i = 0; i < count; i++) {
			const struct way *way = &ways[w[random_below(&state, n)]];
			size_t len, want;
			uint64_t offset = pick(&state, options, data->size, &len);

			memset(probe.buffer, 0xa5, len);
			way->read(&probe, offset, len);
			want = wanted(&probe, offset, len);
			data_check(set, data, offset, probe.buffer, want);
			if (want < len && way->read != by_direct && probe.buffer[want] != 0xa5)
				die("%s: %s at %" PRIu64 " wrote beyond the end of the file",
				    data->path, way->name, offset);
		}
		data_unmap(data, probe.map);
		close(probe.fd);
		if (probe.direct >= 0)
			close(probe.direct);
	}
	io_uring_queue_exit(&probe.ring);
	free(probe.buffer);
	printf(" nowait=%lu of=%lu", probe.at_once, probe.tried);
}

void probe_touch(struct dataset *set, const struct options *options)
{
	uint64_t state = options->seed, at;
	struct data *data = &set->files[0];
	int fd = data_open(data, 0);
	const uint8_t *map =
		data_map(data, fd, PROT_READ, options->shared ? MAP_SHARED : MAP_PRIVATE);

	if (!map)
		die("%s is empty", data->path);
	if (!options->sequential && madvise((void *)map, data->size, MADV_RANDOM))
		die("MADV_RANDOM: %s", strerror(errno));
	at = options->offset ? options->offset : random_below(&state, data->size / 4096) * 4096;
	data_check(set, data, at, map + at, data->size - at < 4096 ? data->size - at : 4096);
	printf(" resident=%" PRIu64, map_resident(map, data->size));
	data_unmap(data, map);
	close(fd);
}

uint64_t map_pmd(const void *map)
{
	char line[512], start[32];
	uint64_t kib, found = 0;
	bool here = false;
	FILE *smaps = fopen("/proc/self/smaps", "re");

	if (!smaps)
		die("smaps: %s", strerror(errno));
	snprintf(start, sizeof(start), "%lx-", (unsigned long)map);
	while (fgets(line, sizeof(line), smaps)) {
		if (!strncmp(line, start, strlen(start)))
			here = true;
		else if (here && sscanf(line, "FilePmdMapped: %" SCNu64, &kib) == 1) {
			found = kib * KIB;
			break;
		}
	}
	fclose(smaps);
	return found;
}

/* One byte of each page first, as the loaders' copies fault; then every byte is compared. */
void probe_scan(struct dataset *set, const struct options *options)
{
	struct rusage before, after;
	uint64_t pmd = 0;
	long faults = 0;
	double begin, seconds = 0;
	size_t f;

	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		const volatile uint8_t *map =
			data_map(data, fd, PROT_READ, options->shared ? MAP_SHARED : MAP_PRIVATE);
		uint64_t at;

		if (!map) {
			close(fd);
			continue;
		}
		getrusage(RUSAGE_SELF, &before);
		begin = now();
		for (at = 0; at < data->size; at += 4096)
			(void)map[at];
		seconds += now() - begin;
		getrusage(RUSAGE_SELF, &after);
		faults += after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt;
		pmd += map_pmd((const void *)map);
		data_check(set, data, 0, (const void *)map, data->size);
		data_unmap(data, (const void *)map);
		close(fd);
	}
	printf(" faults=%ld pmd=%" PRIu64 " scan=%.3f", faults, pmd, seconds);
}

static void many_reader(struct dataset *set, void *arg, unsigned int index)
{
	const struct options *options = arg;
	struct data *data = &set->files[0];
	size_t len = options->block;
	uint8_t *buffer;
	int fd = data_open(data, 0);

	(void)index;
	if (options->offset >= data->size)
		die("%s ends before %" PRIu64, data->path, options->offset);
	if (len > data->size - options->offset)
		len = data->size - options->offset;
	buffer = allocate(len);
	data_pread(set, data, fd, buffer, len, options->offset);
	free(buffer);
	close(fd);
}

void probe_many(struct dataset *set, const struct options *options)
{
	in_processes(set, options->count ? options->count : 64, many_reader, (void *)options);
}

void probe_time(struct dataset *set, const struct options *options)
{
	size_t len = options->block < MIB ? options->block : MIB, f;
	uint8_t *buffer = allocate(len);
	uint64_t bytes = 0;
	double begin, seconds = 0;

	memset(buffer, 1, len);
	for (f = 0; f < set->count; f++) {
		struct data *data = &set->files[f];
		int fd = data_open(data, 0);
		ssize_t n;

		begin = now();
		while ((n = read(fd, buffer, len)) > 0)
			bytes += n;
		seconds += now() - begin;
		if (n < 0)
			die("%s: read: %s", data->path, strerror(errno));
		close(fd);
	}
	if (bytes != set->bytes)
		die("read %" PRIu64 " of %" PRIu64 " bytes", bytes, set->bytes);
	free(buffer);
	printf(" rate=%.0f", (double)bytes / seconds / 1e6);
}
