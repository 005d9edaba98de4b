// SPDX-License-Identifier: GPL-2.0-only
/* main: loading and unloading, in order and in reverse. */
#include <linux/module.h>
#include <linux/workqueue.h>

#include "internal.h"

struct workqueue_struct *wfs_wq;

static int __init wfs_init(void)
{
	int err;

	wfs_wq = alloc_workqueue("wfs", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!wfs_wq)
		return -ENOMEM;
	err = wfs_stats_init();
	if (err)
		goto no_stats;
	err = wfs_blockmap_init();
	if (err)
		goto no_blockmap;
	err = wfs_inode_init();
	if (err)
		goto no_inode;
	err = wfs_cachefile_init();
	if (err)
		goto no_cachefile;
	wfs_upcall_init();
	err = wfs_control_init();
	if (err)
		goto no_control;
	err = wfs_device_init();
	if (err)
		goto no_device;
	err = wfs_super_init();
	if (err)
		goto no_super;
	wfs_debugfs_init();
	return 0;

no_super:
	wfs_device_exit();
no_device:
	wfs_control_exit();
no_control:
	wfs_cachefile_exit();
no_cachefile:
	wfs_inode_exit();
no_inode:
	wfs_blockmap_exit();
no_blockmap:
	wfs_stats_exit();
no_stats:
	destroy_workqueue(wfs_wq);
	return err;
}

static void __exit wfs_exit(void)
{
	wfs_debugfs_exit();
	wfs_super_exit();
	wfs_device_exit();
	wfs_upcall_exit();
	wfs_folioio_exit();
	wfs_control_exit();
	wfs_cachefile_exit();
	wfs_inode_exit();
	wfs_blockmap_exit();
	wfs_stats_exit();
	destroy_workqueue(wfs_wq);
}

module_init(wfs_init);
module_exit(wfs_exit);

MODULE_DESCRIPTION("Read-only filesystem for AI weight files");
MODULE_AUTHOR("The wfs developers");
MODULE_LICENSE("GPL");
