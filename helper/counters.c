// SPDX-License-Identifier: MIT
#include "counters.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

_Atomic uint64_t counters[COUNTER_MAX];
struct counter_histogram counter_waits[COUNTER_WAIT_MAX];

static const struct {
	const char *name, *kind, *help;
} counter_table[] = {
#define X(name, kind, what) { #name, #kind, what },
	COUNTERS(X)
#undef X
};

static const struct {
	const char *name, *help;
} counter_wait_table[] = {
#define X(name, what) { #name, what },
	COUNTER_WAITS(X)
#undef X
};

void counters_measure(void)
{
	cleanup_file FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages;

	if (file && fscanf(file, "%*u %lu", &pages) == 1)
		counter_set(resident_bytes, (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

uint64_t counter_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void counter_waited(enum counter_wait wait, uint64_t ns)
{
	uint64_t bound = 100000;
	unsigned int i = 0;

	for (; i < COUNTER_BUCKETS - 1 && ns > bound; i++)
		bound *= 4;
	atomic_fetch_add_explicit(&counter_waits[wait].bucket[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&counter_waits[wait].sum_ns, ns, memory_order_relaxed);
}

const char *counter_name(enum counter counter)
{
	return counter_table[counter].name;
}

const char *counter_kind(enum counter counter)
{
	return counter_table[counter].kind;
}

const char *counter_help(enum counter counter)
{
	return counter_table[counter].help;
}

const char *counter_wait_name(enum counter_wait wait)
{
	return counter_wait_table[wait].name;
}

const char *counter_wait_help(enum counter_wait wait)
{
	return counter_wait_table[wait].help;
}

double counter_bound(unsigned int bucket)
{
	double bound = 100e-6;

	if (bucket >= COUNTER_BUCKETS - 1)
		return (double)INFINITY;
	while (bucket--)
		bound *= 4;
	return bound;
}
