/* SPDX-License-Identifier: MIT */
/* control: the command's side of the generic netlink family of wfs.ko. */
#ifndef WFS_CONTROL_H
#define WFS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include <wfs.h>

struct control;

/* -ENOENT: the module is not loaded. */
int control_open(struct control **ret);
void control_close(struct control *control);

/* Strings valid inside the callback only. */
struct control_mount {
	uint64_t id;
	const char *source, *options;
	uint32_t block_size;
	uint64_t nodes, pending;
	uint32_t helper; /* pid, 0: none */
};
typedef void (*control_mount_fn)(void *arg, const struct control_mount *mount);
int control_mounts(struct control *control, control_mount_fn fn, void *arg);

struct control_stats {
	uint32_t helper;
	uint64_t session;
	uint64_t values[WFS_STAT_MAX]; /* 0 where the module does not count it */
};
/* mount 0: of the module. */
int control_stats(struct control *control, uint64_t mount, struct control_stats *ret);
const char *control_stat_name(unsigned int stat);
const char *control_stat_help(unsigned int stat);
/* False: it is a state rather than a count. */
bool control_stat_rises(unsigned int stat);

int control_invalidate(struct control *control, uint64_t mount, const char *path);

struct control_event {
	uint32_t event;
	uint64_t mount, session; /* 0: none */
	const char *path, *text; /* NULL: none */
};
/* Follows events until fn returns false. */
typedef bool (*control_event_fn)(void *arg, const struct control_event *event);
int control_events(struct control *control, control_event_fn fn, void *arg);
const char *control_event_name(uint32_t event);

#endif /* WFS_CONTROL_H */
