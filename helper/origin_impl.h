/* SPDX-License-Identifier: MIT */
/* origin_impl: what the kinds of origins share among themselves. Not for others. */
#ifndef WFS_ORIGIN_IMPL_H
#define WFS_ORIGIN_IMPL_H

#include <stdatomic.h>

#include "endpoint.h"
#include "loop.h"
#include "origin.h"

#define ORIGIN_MESSAGE_MAX 512

/* The first member of each kind's own structure. */
struct origin {
	const struct origin_ops *ops;
	_Atomic unsigned int refs;
	char *identity; /* allocated by the kind */
	_Atomic uint64_t requests, bytes, errors;
	_Atomic uint64_t status_class[6];
	_Atomic uint64_t ns;
	struct endpoints endpoints; /* servers that were asked; none of a directory */
};

/* As in origin.h; paths have been checked by then. */
struct origin_ops {
	int (*stat)(struct origin *origin, struct loop *loop, const char *path, origin_stat_fn done,
		    void *arg, struct origin_call **ret_call);
	int (*list)(struct origin *origin, struct loop *loop, const char *path, const char *token,
		    origin_list_fn done, void *arg, struct origin_call **ret_call);
	int (*readlink)(struct origin *origin, struct loop *loop, const char *path,
			origin_link_fn done, void *arg, struct origin_call **ret_call);
	int (*read)(struct origin *origin, struct loop *loop, const struct origin_get *get,
		    struct origin_call **ret_call);
	int (*offers)(struct origin *origin, struct loop *loop, const char *path,
		      const struct origin_attr *attr, origin_offers_fn done, void *arg,
		      struct origin_call **ret_call);
	/* May be NULL: it knows no parts. */
	int (*part)(struct origin *origin, struct loop *loop, const char *path,
		    const struct origin_attr *attr, uint32_t number, origin_part_fn done, void *arg,
		    struct origin_call **ret_call);
	/* Either may be NULL: none, and never. */
	void (*credentials)(struct origin *origin, struct origin_credentials *ret);
	bool (*outdated)(struct origin *origin);
	/* NULL: what is in struct origin; and there is nothing. */
	void (*counters)(struct origin *origin, struct origin_counters *ret);
	void (*endpoints)(struct origin *origin, endpoint_fn fn, void *arg);
	void (*stop)(struct origin *origin, struct loop *loop);
	void (*destroy)(struct origin *origin);
};

/* The first member of each kind's call. */
struct origin_call {
	void (*cancel)(struct origin_call *call);
};

/* origin_create() sets ops aside, counts the first reference and frees what they allocated. */
int origin_http_create(const char *source, const struct origin_settings *settings,
		       struct origin **ret, char *msg, size_t msg_size);
int origin_s3_create(const char *source, const struct origin_settings *settings,
		     struct origin **ret, char *msg, size_t msg_size);
int origin_file_create(const char *source, const struct origin_settings *settings,
		       struct origin **ret, char *msg, size_t msg_size);

/* For one that is not made by origin_create(): its first reference. */
void origin_init(struct origin *origin, const struct origin_ops *ops);

/* One answer, or the lack of one (status 0), for the counters. */
void origin_count(struct origin *origin, unsigned int status, uint64_t ns, int error);
void origin_count_bytes(struct origin *origin, uint64_t bytes);

/* Sets result (error: -errno) and its sentence, kept in text (ORIGIN_MESSAGE_MAX bytes). */
void origin_fail(struct origin_result *result, char *text, int error, bool transient,
		 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Entries being collected for one page of a listing. Zero it first. */
struct origin_page {
	struct origin_entry *entries;
	size_t count, size;
	uint64_t skipped;
};

/* Copies the name. A name that cannot be a file's is counted as skipped. 0 or -ENOMEM. */
int origin_page_add(struct origin_page *page, const char *name, size_t len,
		    const struct origin_attr *attr);
void origin_page_free(struct origin_page *page);

#endif /* WFS_ORIGIN_IMPL_H */
