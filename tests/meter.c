// SPDX-License-Identifier: MIT
/*
 * meter: what a piece of reading cost: time, page faults, and CPU seconds, those of this
 * program and those of the whole machine, in which daemons and kernel threads are.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "reader.h"

struct figures {
	double seconds, machine, own;
	long minor, major;
};

static struct figures total, begun;
static bool running;

/* Seconds in which a processor did anything, since boot. */
static double machine_seconds(void)
{
	uint64_t user, nice, system, idle, iowait, irq, softirq;
	FILE *stat = fopen("/proc/stat", "re");

	if (!stat)
		die("/proc/stat: %s", strerror(errno));
	if (fscanf(stat,
		   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64,
		   &user, &nice, &system, &idle, &iowait, &irq, &softirq) != 7)
		die("/proc/stat is not understood");
	fclose(stat);
	return (double)(user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
}

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static struct figures look(void)
{
	struct figures figures = { .machine = machine_seconds() };
	static const int whose[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
	struct rusage usage;
	size_t i;

	for (i = 0; i < 2; i++) {
		getrusage(whose[i], &usage);
		figures.own += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
		figures.minor += usage.ru_minflt;
		figures.major += usage.ru_majflt;
	}
	figures.seconds = now();
	return figures;
}

void meter_start(void)
{
	begun = look();
	running = true;
}

void meter_stop(void)
{
	double end = now();
	struct figures figures;

	if (!running)
		return;
	running = false;
	figures = look();
	total.seconds += end - begun.seconds;
	total.machine += figures.machine - begun.machine;
	total.own += figures.own - begun.own;
	total.minor += figures.minor - begun.minor;
	total.major += figures.major - begun.major;
}

void meter_print(void)
{
	printf(" ns=%.0f cpu=%.3f own=%.4f minor=%ld major=%ld", total.seconds * 1e9, total.machine,
	       total.own, total.minor, total.major);
}
