/* SPDX-License-Identifier: MIT */
#ifndef WFS_VERSION_H
#define WFS_VERSION_H

#define WFS_VERSION "0.1"

#endif /* WFS_VERSION_H */
