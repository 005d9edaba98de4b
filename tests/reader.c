// SPDX-License-Identifier: MIT
/*
 * reader: read as programs that load weights do, and compare.
 *
 *	reader PATTERN PATH REFERENCE [OPTION]...
 *
 * PATH and REFERENCE are directories, or files. Prints one line,
 *
 *	PATTERN bytes=N touched=N blocks=N seconds=S [...]
 *
 * bytes were compared in all; touched counts each block that holds any of them once.
 * The exit status is 0 when every byte was right.
 *
 * With --stamps checking takes next to no time: of each page that is read one word is looked
 * at, which make_data, given the same path as REFERENCE, must have written. With --measure
 * the line has the figures of meter_print as well. --repeat N reads as often in one go.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reader.h"

static const struct pattern {
	const char *name;
	void (*run)(struct dataset *set, const struct options *options);
	const char *what;
} patterns[] = {
	{ "st-lazy", load_st_lazy, "safetensors: private mapping, tensors by name" },
	{ "st-two-region", load_st_two_region, "a weight, then its scale from another region" },
	{ "tp8", load_tp8, "eight processes, column and row shards" },
	{ "shared-fd", load_shared_fd, "threads and processes share one descriptor" },
	{ "vllm-prefetch", load_vllm_prefetch, "8 x 8 readers of 16 MiB beside st-lazy" },
	{ "eager", load_eager, "each file by one read()" },
	{ "runai", load_runai, "16 threads, bytes split evenly, lseek and 2 MiB read()" },
	{ "fast-st", load_fast_st, "a thread a file, 16 MiB pread() from an odd offset" },
	{ "llama-mmap", load_llama_mmap, "shared and populated, WILLNEED, mapped twice" },
	{ "llama-dio", load_llama_dio, "O_DIRECT, tensors by falling size" },
	{ "moe-rows", pick_moe_rows, "MADV_RANDOM, some rows of an eighth of the experts" },
	{ "tail-first", pick_tail_first, "head, last 64 KiB, directory, then records" },
	{ "gguf-header", pick_gguf_header, "thousands of small touches, then tensors" },
	{ "cow", pick_cow, "a private mapping is written to" },
	{ "drop", pick_drop, "FADV_DONTNEED after reading, then read again" },
	{ "wds", pick_wds, "tar shards, four workers, two epochs" },
	{ "wds-random", pick_wds_random, "random members, two epochs" },
	{ "rowgroup", pick_rowgroup, "footer, chosen column chunks, a second query" },
	{ "seek", pick_seek, "runs of 1 to 8 MiB at far offsets" },
	{ "huge-file", pick_huge_file, "both ends and the middle" },
	{ "meta", pick_meta, "names, links, locks; nothing is read" },
	{ "random", probe_random, "random ranges by every way of reading (--ways)" },
	{ "touch", probe_touch, "one page with MADV_RANDOM; resident=N" },
	{ "scan", probe_scan, "mapping in order; faults=N pmd=N" },
	{ "many", probe_many, "--count processes read one block at --offset at once" },
	{ "time", probe_time, "read() in order without comparing; rate=MB/s" },
	{ "read1m", rate_read1m, "read() of 1 MiB in order" },
	{ "read8", rate_read8, "8 threads, an eighth of each file each, read() of 2 MiB" },
	{ "mmap-scan", rate_mmap_scan, "a byte of each page of a private mapping; pmd=BYTES" },
	{ "direct4m", rate_direct4m, "O_DIRECT, 4 MiB in order" },
	{ "rand-pread", rate_rand_pread, "--count pages anywhere by pread()" },
	{ "rand-mmap", rate_rand_mmap, "--count pages anywhere of a mapping, MADV_RANDOM" },
	{ "sums", rate_sums, "XXH64 of 64 KiB units in memory; hashed=BYTES" },
};

static void usage(void)
{
	size_t i;

	fputs("usage: reader PATTERN PATH REFERENCE [--seed N] [--count N] [--block BYTES]\n"
	      "              [--offset N] [--ways NAME,...] [--shared] [--sequential]\n"
	      "              [--measure] [--stamps] [--repeat N]\n",
	      stderr);
	for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		fprintf(stderr, "  %-14s %s\n", patterns[i].name, patterns[i].what);
	exit(2);
}

static uint64_t number(const char *text)
{
	uint64_t value;
	char *end;

	value = strtoull(text, &end, 0);
	switch (*end) {
	case 'K':
		return value * KIB;
	case 'M':
		return value * MIB;
	case '\0':
		return value;
	default:
		die("no number: %s", text);
	}
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "block", required_argument, NULL, 'b' },
		{ "offset", required_argument, NULL, 'o' },
		{ "ways", required_argument, NULL, 'w' },
		{ "shared", no_argument, NULL, 'S' },
		{ "sequential", no_argument, NULL, 'q' },
		{ "measure", no_argument, NULL, 'm' },
		{ "stamps", no_argument, NULL, 't' },
		{ "repeat", required_argument, NULL, 'r' },
		{},
	};
	struct options options = { .seed = 1, .block = 4 * MIB, .repeat = 1 };
	const struct pattern *pattern = NULL;
	struct dataset set;
	uint64_t blocks, touched;
	double begin;
	size_t i;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			options.seed = number(optarg);
			break;
		case 'n':
			options.count = number(optarg);
			break;
		case 'b':
			options.block = number(optarg);
			break;
		case 'o':
			options.offset = number(optarg);
			break;
		case 'w':
			options.ways = optarg;
			break;
		case 'S':
			options.shared = true;
			break;
		case 'q':
			options.sequential = true;
			break;
		case 'm':
			options.measure = true;
			break;
		case 't':
			options.stamps = true;
			break;
		case 'r':
			options.repeat = number(optarg);
			break;
		default:
			usage();
		}
	}
	if (argc - optind != 3 || !options.block)
		usage();
	for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strcmp(patterns[i].name, argv[optind]))
			pattern = &patterns[i];
	if (!pattern)
		usage();
	dataset_open(&set, argv[optind + 1], argv[optind + 2], options.block);
	set.stamps = options.stamps;
	begin = now();
	/* A pattern may add figures of its own. */
	printf("%s", pattern->name);
	fflush(stdout);
	for (i = 0; i < options.repeat; i++) {
		meter_start();
		pattern->run(&set, &options);
		meter_stop();
	}
	if (options.measure)
		meter_print();
	touched = dataset_touched(&set, &blocks);
	printf(" bytes=%" PRIu64 " touched=%" PRIu64 " blocks=%" PRIu64 " seconds=%.2f\n",
	       *set.compared, touched, blocks, now() - begin);
	return 0;
}
