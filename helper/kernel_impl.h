/* SPDX-License-Identifier: MIT */
/* kernel, inside: the tables of mounts and nodes, and the handlers of requests. */
#ifndef WFS_KERNEL_IMPL_H
#define WFS_KERNEL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include "channel.h"
#include "cleanup.h"
#include "kernel.h"
#include "object.h"
#include "origin.h"

#define NODE_BUCKETS 4096
#define OPCODES	     16

struct names;
struct names_terms;

/* One superblock. Refcounted: the table's reference ends with WFS_REQ_UNMOUNT. */
struct mount {
	atomic_uint refs;
	uint64_t id;
	char *source, *options;
	struct origin *origin;
	struct names *names;				       /* shared by mounts of one origin */
	uint64_t negative_ttl_ms, timeout_ms, name_timeout_ms; /* 0: for ever */
	uint64_t retry_budget_ms;
	bool stale;
	bool prefetch;	      /* orders are learned and followed */
	atomic_bool unproven; /* said that its origin names no versions */
	struct mount *next;
};

/* One version of one object, as the kernel opened it. The table's reference ends with FORGET. */
struct node {
	atomic_uint refs;
	uint64_t id;
	struct kernel *kernel;
	struct object *object;
	bool prefetch; /* of its mount */
	struct object_watch watch;
	struct node *next;
};

struct fill;

struct kernel {
	struct session session; /* first: handlers get a pointer to it */
	struct core *core;
	struct kernel_settings settings;
	atomic_bool ended, detaching;
	pthread_mutex_t lock; /* for the tables */
	struct mount *mounts;
	struct node *nodes[NODE_BUCKETS];
	struct fill *fills; /* being answered */
	uint64_t mount_count, node_count;
	_Atomic uint64_t requests[OPCODES], errors[OPCODES];
	_Atomic uint64_t delivers, deliver_bytes;
};

/* One of the errors of protocol.rst; what is not among them is EIO. */
int request_errno(int error);
/* The strings of a request's payload, each ended by NUL. -EINVAL: there are fewer. */
int request_strings(const struct wfs_request *request, const char **ret, size_t count);
/*
 * Answers with a status and no descriptor, and frees the request. -ECANCELED answers
 * nothing: the request is for the next session.
 */
void request_reply(struct kernel *kernel, struct wfs_request *request, int status,
		   const void *payload, size_t len);
/* -EIO where the mount is not known (it could not be resumed). One reference. */
int mount_find(struct kernel *kernel, uint64_t id, struct mount **ret);
/* The mount with the smallest id above after, or NULL. One reference. */
struct mount *mount_next(struct kernel *kernel, uint64_t after);
void mount_unref(struct mount *mount);
/* What a name request of this mount may cost. */
/* How long to try what the kernel waits for so long (0: for ever), at most most_ms. */
uint64_t mount_budget(const struct mount *mount, uint64_t timeout_ms, uint64_t most_ms);
void mount_terms(const struct mount *mount, uint64_t ttl_ms, struct names_terms *ret);
/* The wire form of attributes. */
void request_attr(const struct origin_attr *attr, struct wfs_attr *ret);

/* requests.c */
void requests_handle(struct session *session, struct wfs_request *request);
void requests_destroy(struct kernel *kernel);
/* requests_mount.c; all of these own the request from here on. */
void requests_mount(struct kernel *kernel, struct wfs_request *request);
void requests_unmount(struct kernel *kernel, struct wfs_request *request);
/* requests_names.c */
void requests_lookup(struct kernel *kernel, struct wfs_request *request);
void requests_readdir(struct kernel *kernel, struct wfs_request *request);
void requests_readlink(struct kernel *kernel, struct wfs_request *request);
/* requests_data.c */
void requests_open(struct kernel *kernel, struct wfs_request *request);
void requests_map(struct kernel *kernel, struct wfs_request *request);
void requests_fill(struct kernel *kernel, struct wfs_request *request);
void requests_forget(struct kernel *kernel, struct wfs_request *request);
/* The mount is gone: what is queued for it and for nobody else is not asked of the origin. */
void requests_cancel_fills(struct kernel *kernel, uint64_t mount);

/* node.c */
struct node *node_find(struct kernel *kernel, uint64_t id);
/* A new node of the object (whose reference it takes), watched, in the table. */
int node_create(struct kernel *kernel, uint64_t id, struct object *object, bool prefetch);
void node_unref(struct node *node);
void node_forget(struct kernel *kernel, uint64_t id);

#endif /* WFS_KERNEL_IMPL_H */
