/* SPDX-License-Identifier: MIT */
/* metrics: the counters in Prometheus' text form, over HTTP. */
#ifndef WFS_METRICS_H
#define WFS_METRICS_H

#include <stddef.h>

struct config;
struct core;
struct kernel;
struct metrics;

/* *ret is NULL where [metrics] listen is empty. */
int metrics_create(const struct config *config, struct core *core, struct kernel *kernel,
		   struct metrics **ret, char *msg, size_t msg_size);
void metrics_destroy(struct metrics *metrics);

#endif /* WFS_METRICS_H */
