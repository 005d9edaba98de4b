/* SPDX-License-Identifier: MIT */
/*
 * harden: what others may see of the process, and what it may do once it has begun.
 */
#ifndef WFS_HARDEN_H
#define WFS_HARDEN_H

/*
 * No dumps, no look inside by others of the same user, files for nobody else; as many open
 * files as are allowed. First thing in main(), with no thread running.
 */
void harden_process(void);

/*
 * Secrets go from where /proc/PID/environ and /proc/PID/cmdline show them; getenv() and
 * argv give them as before, from other memory. Before getenv() is called, which may keep
 * pointers, and with no thread running. 0 or -ENOMEM.
 */
int harden_secrets(int argc, char **argv);

/*
 * Gives up what only beginning a session with the kernel needs (CAP_SYS_ADMIN), for good;
 * root stays as it is. Called with no other thread running, since each has its own
 * capabilities; those that are made afterwards have none. 0 or -errno.
 */
int harden_begun(void);

#endif
