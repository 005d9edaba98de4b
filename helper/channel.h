/* SPDX-License-Identifier: MIT */
/*
 * channel: one worker's way to the kernel and back.
 *
 * By io_uring: fetch commands are parked on the worker's ring, one a slot; a slot's
 * requests are copied out before it is parked again. By ioctl: a thread waits and
 * hands what it got to the worker's loop; commands are ioctls. Either way requests
 * are handled on the worker's thread, one at a time, and no command uses a fixed file or
 * a fixed buffer (a parked one would block the release of what is registered later).
 */
#ifndef WFS_CHANNEL_H
#define WFS_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wfs.h>
#include "loop.h"

struct channel;
struct core;

#define CHANNELS_MAX 64

/* What the workers' channels share: the session. Owned by kernel.c. */
struct session {
	struct core *core;
	int fd; /* that said hello */
	uint64_t id;
	uint64_t features;
	bool ioctl;	  /* the transport */
	const char *base; /* of the registered memory */
	size_t len;
	struct payloads *payloads;
	struct channel *channels[CHANNELS_MAX]; /* one a worker; set before its loop runs */
	/*
	 * A request with its strings, each ended by NUL. Owned by the handler, to be
	 * freed. On the worker's thread.
	 */
	void (*handle)(struct session *session, struct wfs_request *request);
	/* The kernel has ended the session. Any worker's thread, more than once. */
	void (*ended)(struct session *session);
};

/*
 * Joins the session: descriptor, mapping of slots; needs CAP_SYS_ADMIN as hello does. The
 * device descriptor stays open until channel_destroy().
 */
int channel_create(struct session *session, unsigned int worker, struct loop *loop, char *msg,
		   size_t msg_size);
/* Starts to fetch. Before the loop runs, or on its thread. */
int channel_start(struct channel *channel, char *msg, size_t msg_size);
/* Else its loop has nothing of it, and may not run. Not while it is being started. */
bool channel_started(const struct channel *channel);
/* On the channel's thread, the session being over: is no command of it under way? */
bool channel_idle(const struct channel *channel);
struct loop *channel_loop(const struct channel *channel);
/* On the channel's thread, the session being over: nothing is begun any more. */
void channel_end(struct channel *channel);
/* From another thread, the session being over: ends the thread of the ioctl transport. */
void channel_join(struct channel *channel);
/* After the loop has ended. */
void channel_destroy(struct channel *channel);

/* One command. Owned by the caller until done(), which may come from inside the call. */
struct channel_cmd {
	struct loop_op op;
	struct channel *channel;
	struct wfs_cmd cmd; /* session is filled in */
	void (*done)(struct channel_cmd *cmd, int res);
};
void channel_send(struct session *session, struct channel_cmd *cmd);

/* The same, waiting for the result. Any thread. */
int channel_call(struct session *session, const struct wfs_cmd *cmd);
/* With a payload of at most 8 KiB, copied. Any thread. */
int channel_call_with(struct session *session, const struct wfs_cmd *cmd, const void *payload,
		      size_t len);

/*
 * Answers a request: status 0 or -errno, fd a descriptor or -1, payload copied. On a
 * worker's thread.
 */
void channel_commit(struct session *session, uint64_t id, int status, int fd, const void *payload,
		    size_t len);
/* The same; after() is told the kernel's result, perhaps from inside the call. */
typedef void (*channel_after_fn)(void *arg, int res);
void channel_commit_then(struct session *session, uint64_t id, int status, int fd,
			 const void *payload, size_t len, channel_after_fn after, void *arg);

/* A command with nothing in it but its name. */
static inline struct wfs_cmd channel_op(enum wfs_op op)
{
	return (struct wfs_cmd){ .op = op, .fd = -1 };
}

/* Answers that nobody waited for, and answers refused as malformed. */
void channel_counters(uint64_t *ret_late, uint64_t *ret_refused);

/* Where replies lie until the kernel has read them: payload.c. */
struct payloads;
#define PAYLOAD_CELL 8192
int payloads_create(struct core *core, struct payloads **ret);
void payloads_destroy(struct payloads *payloads);
/* Room for len bytes, at most WFS_REPLY_MAX, or NULL: none is free now. Any thread. */
void *payload_get(struct payloads *payloads, size_t len);
void payload_put(struct payloads *payloads, void *payload);
/* A cell that is held for one synchronous command at a time; waits for it. */
void *payload_hold(struct payloads *payloads);
void payload_release(struct payloads *payloads);

#endif /* WFS_CHANNEL_H */
