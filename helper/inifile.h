/* SPDX-License-Identifier: MIT */
/* inifile: the AWS profile files: [section], name = value, and comments. */
#ifndef WFS_INIFILE_H
#define WFS_INIFILE_H

/* One value; strings valid inside the callback only. 0 ends the reading. */
typedef int (*inifile_fn)(void *user, const char *section, const char *name, const char *value);

/*
 * Not by inih: Debian's cuts lines at 200 bytes and section names at 50, which session
 * tokens and names of profiles exceed. Comments begin with '#' or ';' at the start of a
 * line, or with ';' after a space. A line that begins with a space below a name is part of
 * its value and handed over by itself.
 *
 * Returns 0, the number of the first bad line (the others are read nevertheless) or of the
 * one that ended the reading, or -errno when the file cannot be read.
 */
int inifile_parse(const char *path, inifile_fn fn, void *user);

#endif /* WFS_INIFILE_H */
