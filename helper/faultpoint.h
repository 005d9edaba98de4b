/* SPDX-License-Identifier: MIT */
/*
 * faultpoint: ends the process at a named step, so that a test can see what the next start
 * makes of it.
 *
 * WFS_FAULT=POINT[:N] in the environment: SIGKILL when the point is passed for the Nth time
 * (1 if not said). Unset, a point costs one comparison.
 */
#ifndef WFS_FAULTPOINT_H
#define WFS_FAULTPOINT_H

/* Points, in the order in which a block passes them. */
#define FAULT_WRITTEN	 "written"    /* its data is written, not synced */
#define FAULT_SYNC	 "sync"	      /* before the data is synced */
#define FAULT_SYNCED	 "synced"     /* data and name are durable, nothing is recorded */
#define FAULT_COMMIT	 "commit"     /* inside the index transaction, before its commit */
#define FAULT_COMMITTED	 "committed"  /* recorded durably, nobody has been told */
#define FAULT_TOLD	 "told"	      /* the kernel was told of the stored block */
#define FAULT_GRANTED	 "granted"    /* eviction: the kernel lets go of the block */
#define FAULT_UNRECORDED "unrecorded" /* the record is gone durably, the bytes are there */
#define FAULT_PUNCHED	 "punched"    /* the bytes are gone, the kernel was not told */
#define FAULT_FORGOTTEN	 "forgotten"  /* the record of a bad block is gone */
#define FAULT_CREATED	 "created"    /* a data file is made, nothing is in it */
#define FAULT_REMOVED	 "removed"    /* a data file is removed */
#define FAULT_COLLECTED	 "collected"  /* something that was left behind is removed */

/* Any thread. */
void faultpoint(const char *point);
/* Reads the environment. Before threads are started; a warning where it is set. */
void faultpoint_setup(void);

#endif /* WFS_FAULTPOINT_H */
