/* SPDX-License-Identifier: MIT */
/*
 * ratios: how much was served from near, over all places: page cache, cache file (by the
 * kernel or the daemon), buffer, origin.
 */
#ifndef WFS_RATIOS_H
#define WFS_RATIOS_H

#include <stdbool.h>

struct control_stats;

struct ratios {
	double request_hit; /* reads and faults that no origin was needed for */
	double byte_hit;    /* bytes that came from no origin */
	double local;	    /* reads and faults that the daemon brought nothing for */
	double page_cache;  /* bytes given by read() that were in memory and read before */
};

/*
 * module: the kernel module's counters, NULL: there is none, and what counts are the
 * daemon's requests. The daemon's own counters are taken as they are now. What the kernel
 * had from the daemon counts as near by the share that the daemon had near.
 */
void ratios_now(const struct control_stats *module, struct ratios *ret);

/* Each with its name and what it says; the i-th, false: there is none. */
bool ratios_nth(const struct ratios *ratios, unsigned int i, const char **ret_name,
		const char **ret_help, double *ret_value);

#endif /* WFS_RATIOS_H */
