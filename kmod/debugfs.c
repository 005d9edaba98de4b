// SPDX-License-Identifier: GPL-2.0-only
/*
 * debugfs: /sys/kernel/debug/wfs: what the module holds, and failures on demand.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "internal.h"

static struct {
	const char *name;
	atomic_long_t count;
	atomic_long_t bytes;
} held[WFS_HELD_MAX] = {
	[WFS_HELD_NODES] = { .name = "nodes" },	  [WFS_HELD_REQUESTS] = { .name = "requests" },
	[WFS_HELD_FOLIOS] = { .name = "folios" }, [WFS_HELD_STATES] = { .name = "states" },
	[WFS_HELD_SUMS] = { .name = "sums" },	  [WFS_HELD_LISTINGS] = { .name = "listings" },
};

static struct dentry *dir;

/**
 * wfs_held() - something was allocated or freed
 * @what: what it belongs to
 * @bytes: its size, or the size with a minus sign when it is freed
 *
 * Context: any.
 */
void wfs_held(enum wfs_held what, long bytes)
{
	atomic_long_add(bytes < 0 ? -1 : 1, &held[what].count);
	atomic_long_add(bytes, &held[what].bytes);
}

/* A line each: what, how many, bytes. */
static int memory_show(struct seq_file *m, void *v)
{
	int i;

	for (i = 0; i < WFS_HELD_MAX; i++)
		seq_printf(m, "%s %ld %ld\n", held[i].name, atomic_long_read(&held[i].count),
			   atomic_long_read(&held[i].bytes));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(memory);

/* Without debugfs, or memory for it, there is nothing to see; the rest works. */
void wfs_debugfs_init(void)
{
	dir = debugfs_create_dir("wfs", NULL);
	debugfs_create_file("memory", 0400, dir, NULL, &memory_fops);
	wfs_inject_init(dir);
}

void wfs_debugfs_exit(void)
{
	debugfs_remove_recursive(dir);
}
