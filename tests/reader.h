/* SPDX-License-Identifier: MIT */
/*
 * reader: reads files as programs that load weights do, and compares every byte with
 * a reference copy. Whatever is wrong ends the program with status 1 and a sentence.
 * With --stamps it looks at one word of each page it reads, and at no reference.
 */
#ifndef WFS_TESTS_READER_H
#define WFS_TESTS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB 1024ULL
#define MIB (1024 * KIB)

/* One file under test and its reference. */
struct data {
	char *name;
	char *path;
	uint64_t size;
	const uint8_t *golden; /* NULL when empty */
	uint64_t seed;	       /* of make_data, from the path of the reference */
	uint8_t *blocks;       /* one per block: was compared; shared by processes */
};

/* All files of a directory, by name; or one file. */
struct dataset {
	const char *dir, *reference;
	struct data *files;
	size_t count;
	uint64_t bytes;
	uint64_t block;	    /* the unit of counting what was touched */
	uint64_t *compared; /* bytes; shared by processes */
	bool stamps;	    /* check the first word of each page only, by make_data's rule */
};

/* A run of bytes that is read as one: a tensor, a record, a row. */
struct part {
	struct data *data;
	uint64_t offset;
	uint64_t size;
};

struct parts {
	struct part *list;
	size_t count;
};

struct options {
	uint64_t seed, count, block, offset, repeat;
	const char *ways;
	bool shared, sequential, quiet, measure, stamps;
};

__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);

/* ---- reader_data.c ---- */

void dataset_open(struct dataset *set, const char *path, const char *reference, uint64_t block);
/* Distinct bytes compared so far, in whole blocks but for the tails. */
uint64_t dataset_touched(const struct dataset *set, uint64_t *ret_blocks);
/* len bytes of the file at offset are just these. May be called by threads and children. */
void data_check(const struct dataset *set, const struct data *data, uint64_t offset,
		const void *bytes, size_t len);
int data_open(const struct data *data, int flags);
/* All of len or an error: a short read is one. */
void data_pread(const struct dataset *set, const struct data *data, int fd, void *buffer,
		size_t len, uint64_t offset);
/* Maps all of a file; NULL for an empty one. */
const uint8_t *data_map(const struct data *data, int fd, int prot, int flags);
void data_unmap(const struct data *data, const uint8_t *map);
/* Bytes of a mapping that are in the page cache. */
uint64_t map_resident(const void *map, size_t len);

/*
 * Cuts a file into parts of about mean bytes, misaligned, that together with a head
 * of head bytes cover it; in the order of their names, which is not that of offsets.
 */
void parts_cut(struct parts *parts, struct data *data, uint64_t head, uint64_t mean, uint64_t seed);
void parts_free(struct parts *parts);

uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t limit);
void *allocate(size_t size);
double now(void);

/* Runs work(set, arg, index) in count children or threads at once; any failure is ours. */
typedef void (*work_fn)(struct dataset *set, void *arg, unsigned int index);
void in_processes(struct dataset *set, unsigned int count, work_fn work, void *arg);
void in_threads(struct dataset *set, unsigned int count, work_fn work, void *arg);

/* ---- patterns: what one does is in the table of reader.c ---- */

void load_st_lazy(struct dataset *set, const struct options *options);
void load_st_two_region(struct dataset *set, const struct options *options);
void load_tp8(struct dataset *set, const struct options *options);
void load_shared_fd(struct dataset *set, const struct options *options);
void load_vllm_prefetch(struct dataset *set, const struct options *options);
void load_eager(struct dataset *set, const struct options *options);
void load_runai(struct dataset *set, const struct options *options);
void load_fast_st(struct dataset *set, const struct options *options);
void load_llama_mmap(struct dataset *set, const struct options *options);
void load_llama_dio(struct dataset *set, const struct options *options);

void pick_moe_rows(struct dataset *set, const struct options *options);
void pick_tail_first(struct dataset *set, const struct options *options);
void pick_gguf_header(struct dataset *set, const struct options *options);
void pick_cow(struct dataset *set, const struct options *options);
void pick_drop(struct dataset *set, const struct options *options);
void pick_wds(struct dataset *set, const struct options *options);
void pick_wds_random(struct dataset *set, const struct options *options);
void pick_rowgroup(struct dataset *set, const struct options *options);
void pick_seek(struct dataset *set, const struct options *options);
void pick_huge_file(struct dataset *set, const struct options *options);
void pick_meta(struct dataset *set, const struct options *options);

void probe_random(struct dataset *set, const struct options *options);
void probe_touch(struct dataset *set, const struct options *options);
void probe_scan(struct dataset *set, const struct options *options);
void probe_many(struct dataset *set, const struct options *options);
void probe_time(struct dataset *set, const struct options *options);
/* Bytes of a mapping that are mapped by huge pages: FilePmdMapped. */
uint64_t map_pmd(const void *map);

void rate_read1m(struct dataset *set, const struct options *options);
void rate_read8(struct dataset *set, const struct options *options);
void rate_mmap_scan(struct dataset *set, const struct options *options);
void rate_direct4m(struct dataset *set, const struct options *options);
void rate_rand_pread(struct dataset *set, const struct options *options);
void rate_rand_mmap(struct dataset *set, const struct options *options);
void rate_sums(struct dataset *set, const struct options *options);

/* ---- meter.c: seconds, faults, and CPU seconds of the whole machine ---- */

/* What passes between the two is counted, any number of times. */
void meter_start(void);
/* Nothing happens when it does not run. */
void meter_stop(void);
/* " ns=N cpu=SECONDS own=SECONDS minor=N major=N"; faults of children count once they ended. */
void meter_print(void);

#endif /* WFS_TESTS_READER_H */
