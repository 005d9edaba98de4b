/* SPDX-License-Identifier: MIT */
/*
 * buffers: the one piece of memory that all object bytes and replies pass through.
 *
 * Runs of 64 KiB units, contiguous, taken and given back in any pieces. Nobody who
 * holds a run waits for another one, so that whoever waits gets his turn. Any thread.
 */
#ifndef WFS_BUFFERS_H
#define WFS_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#define BUFFER_UNIT_SHIFT 16
#define BUFFER_UNIT	  (1U << BUFFER_UNIT_SHIFT)

struct buffers;

/* @bytes: for runs; @replies: number of reply buffers of @reply_size bytes beside them. */
int buffers_create(uint64_t bytes, unsigned int replies, size_t reply_size, struct buffers **ret);
void buffers_destroy(struct buffers *buffers);

/* A run of units, 4 KiB aligned, or NULL. Contents are undefined. */
void *buffers_get(struct buffers *buffers, uint32_t units);
/* Any whole units of a run. */
void buffers_put(struct buffers *buffers, void *run, uint32_t units);

void *buffers_reply_get(struct buffers *buffers);
void buffers_reply_put(struct buffers *buffers, void *reply);

/* Units in all and units free. */
uint32_t buffers_units(const struct buffers *buffers);
uint32_t buffers_free_units(struct buffers *buffers);

/* All of it, for registration with the kernel. */
void buffers_memory(const struct buffers *buffers, void **ret_base, size_t *ret_len);

#endif /* WFS_BUFFERS_H */
