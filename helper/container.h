/* SPDX-License-Identifier: MIT */
#ifndef WFS_CONTAINER_H
#define WFS_CONTAINER_H

#include <stddef.h>

/* The structure that the member pointed to lies in. */
#ifndef container_of
#define container_of(ptr, type, member) ((type *)(((char *)(ptr)) - offsetof(type, member)))
#endif

#endif /* WFS_CONTAINER_H */
