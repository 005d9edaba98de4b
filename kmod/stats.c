// SPDX-License-Identifier: GPL-2.0-only
/* stats: counters, per processor, of the module and of each mount. */
#include <linux/percpu.h>

#include "internal.h"

u64 __percpu *wfs_stats;

/* The sum over all processors; not a snapshot of one moment. */
void wfs_stats_sum(const u64 __percpu *stats, u64 out[WFS_STAT_MAX])
{
	int cpu, i;

	memset(out, 0, WFS_STAT_MAX * sizeof(u64));
	for_each_possible_cpu(cpu) {
		const u64 *at = per_cpu_ptr(stats, cpu);

		for (i = 0; i < WFS_STAT_MAX; i++)
			out[i] += READ_ONCE(at[i]);
	}
}

int wfs_stats_init(void)
{
	wfs_stats = __alloc_percpu(WFS_STAT_MAX * sizeof(u64), sizeof(u64));
	return wfs_stats ? 0 : -ENOMEM;
}

void wfs_stats_exit(void)
{
	free_percpu(wfs_stats);
}
