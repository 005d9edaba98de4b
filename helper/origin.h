/* SPDX-License-Identifier: MIT */
/*
 * origin: where objects come from (s3, http, file), behind one interface.
 *
 *	origin_create -> { origin_stat | origin_list | origin_readlink | origin_get |
 *		origin_offers | origin_part }* -> origin_unref
 *
 * An origin is shared by all threads. Each call runs on one loop, on which its
 * callbacks are made; it makes one attempt and reports whether another one is
 * worth while (retry.h has the pace). Callbacks are never made from inside the
 * call that starts them.
 */
#ifndef WFS_ORIGIN_H
#define WFS_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "endpoint.h"
#include "offers.h"

struct loop;
struct origin;
struct origin_call; /* one call under way; gone when its callback returns */

#define ORIGIN_VERSION_MAX 255

/* Settings of one source; strings may be NULL. Copied by origin_create(). */
struct origin_settings {
	const char *endpoint; /* s3: URL of the service */
	const char *region;   /* s3: default us-east-1 */
	const char *profile;  /* s3: section of the AWS profile files */
	const char *access_key, *secret_key, *session_token; /* s3, from configuration */
	bool anon;					     /* s3: sign nothing */
	bool virtual_host;	    /* s3: bucket in the host name rather than in the path */
	const char *ca;		    /* file of PEM certificates */
	const char *proxy;	    /* URL */
	const char *bearer_file;    /* http: file that holds a token */
	const char *const *headers; /* http: "Name: value" lines, NULL-terminated */
	long connect_timeout_ms;    /* 0: 5000 */
	long stall_timeout_ms;	    /* no byte for so long; 0: 10000 */
};

/* origin_attr.flags. No proof of a version: nothing may be kept on NVMe (WFS_ATTR_UNCACHED). */
#define ORIGIN_WEAK (1u << 0)
/* With ORIGIN_WEAK: not even a hint. Each open is read anew (WFS_ATTR_UNPROVEN). */
#define ORIGIN_UNPROVEN (1u << 1)

struct origin_attr {
	mode_t mode; /* S_IFREG, S_IFDIR, S_IFLNK */
	unsigned int flags;
	uint64_t size;
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	/*
	 * Printable; names the version together with path and size, and holds what
	 * origin_get() needs to ask for just that version (a strong ETag, a version
	 * id, or Last-Modified). Empty for directories.
	 */
	char version[ORIGIN_VERSION_MAX + 1];
};

struct origin_entry {
	const char *name;	 /* one component, valid as a file name */
	struct origin_attr attr; /* version empty where a listing does not tell it */
};

/* How a call ended. */
struct origin_result {
	int error;	/* 0 or -errno: ENOENT, EACCES, ESTALE (version changed), EIO, ... */
	bool transient; /* try again: 5xx, 429, reset, stall, timeout */
	uint32_t retry_after_ms; /* as the server asked, 0: it did not */
	unsigned int status;	 /* HTTP status of the last answer, 0: none */
	/* A sentence without secrets, NULL when error is 0; valid in the callback. */
	const char *message;
};

/*
 * Parses "s3://bucket/prefix", "http(s)://host/path/", "file:///path". On failure
 * returns -errno with a sentence in msg. *ret holds one reference.
 */
int origin_create(const char *source, const struct origin_settings *settings, struct origin **ret,
		  char *msg, size_t msg_size);
struct origin *origin_ref(struct origin *origin);
void origin_unref(struct origin *origin);
/* Has anybody a reference but the one who asks, who has one? */
bool origin_is_shared(struct origin *origin);

/*
 * A string that tells apart what is stored under one path: endpoint, bucket and
 * prefix, and the identity whose credentials fetch it, with no secret in it.
 * Part of the key of cached blocks. Valid while the origin is.
 */
const char *origin_identity(struct origin *origin);

/* Paths are below the source, no leading slash; "" is the source itself. */
typedef void (*origin_stat_fn)(void *arg, const struct origin_result *result,
			       const struct origin_attr *attr);
int origin_stat(struct origin *origin, struct loop *loop, const char *path, origin_stat_fn done,
		void *arg, struct origin_call **ret_call);

/*
 * One page of a directory. token NULL: from the start; else the next_token of the
 * page before (NULL there: no more). skipped counts keys that cannot be a path.
 */
typedef void (*origin_list_fn)(void *arg, const struct origin_result *result,
			       const struct origin_entry *entries, size_t count,
			       const char *next_token, uint64_t skipped);
int origin_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		origin_list_fn done, void *arg, struct origin_call **ret_call);

typedef void (*origin_link_fn)(void *arg, const struct origin_result *result, const char *target);
int origin_readlink(struct origin *origin, struct loop *loop, const char *path, origin_link_fn done,
		    void *arg, struct origin_call **ret_call);

/*
 * Reads [offset, offset + len) of one version into dst (4 KiB aligned where the
 * caller can). progress() says how many bytes from offset on are there, ever
 * rising; done() comes last, also after an error: what arrived before it is right
 * and may be kept (resume from there).
 */
struct origin_get {
	const char *path;
	const struct origin_attr *attr; /* the version wanted */
	uint64_t offset, len;		/* within attr->size */
	void *dst;
	void (*progress)(void *arg, uint64_t bytes);
	void (*done)(void *arg, const struct origin_result *result, uint64_t bytes);
	void *arg;
};
/* *get and what it points to (but dst) is copied. */
int origin_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		struct origin_call **ret_call);

/*
 * What is said of the digest of one version: with the object, and in a file beside it with
 * OFFERS_SUFFIX to its name. -ESTALE, -ENOENT: the version is not the one there is. That
 * nothing is said is no error.
 */
typedef void (*origin_offers_fn)(void *arg, const struct origin_result *result,
				 const struct offers *offers);
int origin_offers(struct origin *origin, struct loop *loop, const char *path,
		  const struct origin_attr *attr, origin_offers_fn done, void *arg,
		  struct origin_call **ret_call);

/* One part of an object that was uploaded in parts, to S3. */
struct origin_part {
	uint64_t offset, len;
	uint32_t count; /* of its parts */
};
typedef void (*origin_part_fn)(void *arg, const struct origin_result *result,
			       const struct origin_part *part);
/*
 * Where part number 1 to OFFERS_PARTS_MAX of a version lies. Errors as of origin_offers();
 * -EOPNOTSUPP: it is not told.
 */
int origin_part(struct origin *origin, struct loop *loop, const char *path,
		const struct origin_attr *attr, uint32_t number, origin_part_fn done, void *arg,
		struct origin_call **ret_call);

/* Ends a call; its callback is not made. On the call's loop only. */
void origin_cancel(struct origin_call *call);
/* Ends what the origin itself has begun on the loop, which is about to go. On its thread. */
void origin_stop(struct origin *origin, struct loop *loop);

/* Counters of one origin, for metrics; read by any thread. */
struct origin_counters {
	uint64_t requests, bytes, errors;
	uint64_t status_class[6]; /* [2]: 2xx, ... [0]: no answer */
	double seconds;
};
void origin_counters(struct origin *origin, struct origin_counters *ret);
/* The servers that it was reached at, those that it redirected to included. Any thread. */
void origin_endpoints(struct origin *origin, endpoint_fn fn, void *arg);

/* Where the credentials come from, without any secret. */
struct origin_credentials {
	const char *source; /* as in wfs(1), stat; a constant */
	int64_t expires;    /* seconds since 1970; 0: never, as far as is known */
};
/* Any thread. */
void origin_credentials(struct origin *origin, struct origin_credentials *ret);
/* Whether another origin, with other credentials, would be made by now. Any thread. */
bool origin_outdated(struct origin *origin);

#endif /* WFS_ORIGIN_H */
