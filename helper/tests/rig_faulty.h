/* SPDX-License-Identifier: MIT */
/*
 * rig_faulty: a rig whose source is the misbehaving origin, which is one for all tests of a
 * group. There is /f on it, of the group's size.
 */
#ifndef WFS_TEST_RIG_FAULTY_H
#define WFS_TEST_RIG_FAULTY_H

#include "faulty.h"
#include "rig.h"

extern struct rig rig;
extern struct faulty faulty;
extern char *bytes; /* of /f */

/* For a group's setup, and its teardown. size 0: without /f. */
int rig_faulty_group(size_t size);
int rig_faulty_group_end(void **state);
/* For a test's: no faults, a rig that has or has not been started, and its end. */
int rig_faulty_create(void **state);
int rig_faulty_start(void **state);
int rig_faulty_end(void **state);

#endif /* WFS_TEST_RIG_FAULTY_H */
