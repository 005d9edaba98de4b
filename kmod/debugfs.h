/* SPDX-License-Identifier: GPL-2.0-only */
/* debugfs: what the module holds, and failures on demand; for every file, by internal.h. */
#ifndef _WFS_DEBUGFS_H
#define _WFS_DEBUGFS_H

#include <linux/types.h>

struct dentry;

/* ---- debugfs.c: what the module holds ---- */

enum wfs_held {
	WFS_HELD_NODES,
	WFS_HELD_REQUESTS,
	WFS_HELD_FOLIOS, /* descriptions of folios in flight, not the folios */
	WFS_HELD_STATES, /* block states */
	WFS_HELD_SUMS,
	WFS_HELD_LISTINGS,
	WFS_HELD_MAX,
};

void wfs_debugfs_init(void);
void wfs_debugfs_exit(void);
void wfs_held(enum wfs_held what, long bytes);

/* ---- inject.c: failures on demand, where the kernel has fault injection ---- */

enum wfs_inject_point {
	WFS_INJECT_REQUEST,    /* no memory for a request */
	WFS_INJECT_FOLIO,      /* no folio for what is added to the page cache by ourselves */
	WFS_INJECT_SUMS,       /* no memory to keep the sums of a stored block */
	WFS_INJECT_READ_AGAIN, /* reading the cache file would block */
	WFS_INJECT_READ_ERROR, /* ... fails with EIO */
	WFS_INJECT_READ_SHORT, /* ... ends early */
	WFS_INJECT_READ_LATE,  /* ... takes long */
	WFS_INJECT_DELIVER,    /* DELIVER copies nothing and fails with ENOMEM */
	WFS_INJECT_FETCH,      /* the thread that fetches requests counts as dying */
	WFS_INJECT_COMMIT,     /* an answer is taken late: after the next session began */
	WFS_INJECT_SUBMIT,     /* a request that waits for an eviction is submitted late */
	WFS_INJECT_MOUNT,      /* a mount is listed late: after the next session began */
	WFS_INJECT_MAX,
};

#ifdef CONFIG_FAULT_INJECTION
bool wfs_inject(enum wfs_inject_point point);
void wfs_inject_late(enum wfs_inject_point point, u64 gen);
void wfs_inject_init(struct dentry *dir);
#else
static inline bool wfs_inject(enum wfs_inject_point point)
{
	return false;
}

static inline void wfs_inject_late(enum wfs_inject_point point, u64 gen)
{
}

static inline void wfs_inject_init(struct dentry *dir)
{
}
#endif

#endif /* _WFS_DEBUGFS_H */
