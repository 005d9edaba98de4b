// SPDX-License-Identifier: GPL-2.0-only
/*
 * inject: failures on demand, by name, in debugfs.
 *
 * Only where the kernel has fault injection; elsewhere wfs_inject() is false and costs
 * nothing. Each point is a directory of /sys/kernel/debug/wfs with the files that
 * the kernel's fault-injection.rst describes, and takes part in a task's fail-nth.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fault-inject.h>

#include "internal.h"

#define POINT(file)                                            \
	{                                                      \
		.name = (file), .attr = FAULT_ATTR_INITIALIZER \
	}

static struct {
	const char *name;
	struct fault_attr attr;
} points[WFS_INJECT_MAX] = {
	[WFS_INJECT_REQUEST] = POINT("request"),
	[WFS_INJECT_FOLIO] = POINT("folio"),
	[WFS_INJECT_SUMS] = POINT("sums"),
	[WFS_INJECT_READ_AGAIN] = POINT("read_again"),
	[WFS_INJECT_READ_ERROR] = POINT("read_error"),
	[WFS_INJECT_READ_SHORT] = POINT("read_short"),
	[WFS_INJECT_READ_LATE] = POINT("read_late"),
	[WFS_INJECT_DELIVER] = POINT("deliver"),
	[WFS_INJECT_FETCH] = POINT("fetch"),
	[WFS_INJECT_COMMIT] = POINT("commit_late"),
	[WFS_INJECT_SUBMIT] = POINT("submit_late"),
	[WFS_INJECT_MOUNT] = POINT("mount_late"),
};

/* Any context. */
bool wfs_inject(enum wfs_inject_point point)
{
	return should_fail(&points[point].attr, 1);
}

/**
 * wfs_inject_late() - let others go first
 * @point: where
 * @gen: generation of a session, or 0
 *
 * If it is to be so, waits until another session than @gen lives, for two seconds at most.
 * Context: process, no locks.
 */
void wfs_inject_late(enum wfs_inject_point point, u64 gen)
{
	int i;

	if (!wfs_inject(point))
		return;
	for (i = 0; i < 40; i++) {
		u64 now;

		wfs_session_pid(&now);
		if (gen && now && now != gen)
			return;
		msleep(50);
	}
}

/* Without the files nothing is missing but the means to ask for a failure. */
void wfs_inject_init(struct dentry *dir)
{
	int i;

	for (i = 0; i < WFS_INJECT_MAX; i++) {
		/* Loops over every failure are not to fill the log. */
		points[i].attr.verbose = 0;
		fault_create_debugfs_attr(points[i].name, dir, &points[i].attr);
	}
}
