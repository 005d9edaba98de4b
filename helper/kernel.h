/* SPDX-License-Identifier: MIT */
/*
 * kernel: the helper's half of the channel to wfs.ko.
 *
 *	core_create -> core_open -> kernel_create -> core_start(core, kernel_worker, kernel)
 *	  ... -> kernel_detach -> core_stop -> kernel_destroy -> core_destroy
 *
 * With takeover, core_open() comes after kernel_create(): the helper that has the cache
 * directories lets go of them when its session ends. Requests wait meanwhile.
 *
 * kernel_create() opens /dev/wfs, says hello and registers the buffers; every
 * worker joins the session with a descriptor of its own. Descriptors are
 * O_CLOEXEC, never duplicated and, once a session is made, never closed before
 * it has ended. kernel_detach() must also come before an exec: an exec with
 * parked commands never returns.
 */
#ifndef WFS_KERNEL_H
#define WFS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core;
struct kernel;
struct loop;

struct kernel_settings {
	/* End the session of another living helper instead of failing with EBUSY. */
	bool takeover;
	/* "io_uring", "ioctl", or NULL: io_uring where the kernel has it. WFS_TRANSPORT overrides. */
	const char *transport;
	/*
	 * The session was ended by the kernel (another helper took it over); the
	 * daemon should stop. Called once, on any thread, not by kernel_detach().
	 */
	void (*ended)(void *arg);
	void *arg;
};

/*
 * Begins the session, the descriptors of all workers included: what needs CAP_SYS_ADMIN.
 * Makes no thread. On failure returns -errno with a sentence in msg.
 */
int kernel_create(struct core *core, const struct kernel_settings *settings, struct kernel **ret,
		  char *msg, size_t msg_size);
/* For core_start(); kernel is the struct kernel. On the worker's thread or before it runs. */
int kernel_worker(struct core *core, unsigned int worker, struct loop *loop, void *kernel);
/*
 * Ends the session; requests stay with the kernel for the next helper. Waits (at
 * most some seconds) until nothing of the channel is under way on any worker. Not
 * on a worker's thread.
 */
void kernel_detach(struct kernel *kernel);
void kernel_destroy(struct kernel *kernel);

/* Generation of the session, and "io_uring" or "ioctl". Any thread. */
uint64_t kernel_session(const struct kernel *kernel);
const char *kernel_transport(const struct kernel *kernel);

/* A mount as the helper knows it; strings valid inside the callback only. */
struct kernel_mount {
	uint64_t id;
	const char *source;
	const char *options; /* "key=value" lines */
};
/* Calls fn for every mount, with a lock held: fn may not call back. Any thread. */
void kernel_each_mount(struct kernel *kernel,
		       void (*fn)(void *arg, const struct kernel_mount *mount), void *arg);

/*
 * Names at and below path ("" for all) of a mount (id 0: of every mount of source,
 * or of all mounts where source is NULL too) are asked of the origin again. Returns
 * the number of mounts it concerned. Any thread.
 */
int kernel_invalidate(struct kernel *kernel, uint64_t mount, const char *source, const char *path);

/* Counters for metrics, read by any thread. */
struct kernel_counters {
	uint64_t requests[16]; /* by enum wfs_opcode */
	uint64_t errors[16];   /* answered with an error other than ENOENT, likewise */
	uint64_t late;	       /* answers that nobody waited for any more */
	uint64_t refused;      /* answers that the kernel refused as malformed */
	uint64_t delivers, deliver_bytes;
	uint64_t stale_names;	/* names answered past their age, the origin being away */
	uint64_t mounts, nodes; /* now */
};
void kernel_counters(const struct kernel *kernel, struct kernel_counters *ret);

#endif /* WFS_KERNEL_H */
