/* SPDX-License-Identifier: MIT */
/* inifile: INI files by inih, with lines of any length. */
#ifndef WFS_INIFILE_H
#define WFS_INIFILE_H

#include <ini.h>

/*
 * As ini_parse(): Debian's inih cuts lines at 200 bytes, which session tokens exceed.
 * Lines that continue a value (they begin with a space) are handed over one by one.
 * Returns 0, the number of the first bad line, or -errno when the file cannot be read.
 */
int inifile_parse(const char *path, ini_handler handler, void *user);

#endif /* WFS_INIFILE_H */
