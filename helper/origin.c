// SPDX-License-Identifier: MIT
/* origin: from a source to its kind; checks and counters common to all. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "origin_impl.h"
#include "origin_path.h"

static const struct {
	const char *prefix;
	int (*create)(const char *source, const struct origin_settings *settings,
		      struct origin **ret, char *msg, size_t msg_size);
} kinds[] = {
	{ "s3://", origin_s3_create },
	{ "http://", origin_http_create },
	{ "https://", origin_http_create },
	{ "file://", origin_file_create },
};

/* A log line or a mount message: a name must not break out of it. */
static void make_line(char *text)
{
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	}
}

int origin_create(const char *source, const struct origin_settings *settings, struct origin **ret,
		  char *msg, size_t msg_size)
{
	static const struct origin_settings none;

	if (!settings)
		settings = &none;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct origin *origin;
		int err;

		if (strncmp(source, kinds[i].prefix, strlen(kinds[i].prefix)))
			continue;
		err = kinds[i].create(source, settings, &origin, msg, msg_size);
		if (err) {
			make_line(msg);
			return err;
		}
		origin_init(origin, origin->ops);
		*ret = origin;
		return 0;
	}
	/* What stands before a "://" is shown, never what may hold a password. */
	snprintf(msg, msg_size,
		 "the source must begin with s3://, http://, https:// or file:///, not with \"%.*s\"",
		 (int)strcspn(source, ":/@"), source);
	make_line(msg);
	return -EINVAL;
}

void origin_init(struct origin *origin, const struct origin_ops *ops)
{
	origin->ops = ops;
	atomic_store_explicit(&origin->refs, 1, memory_order_relaxed);
	endpoints_init(&origin->endpoints);
}

struct origin *origin_ref(struct origin *origin)
{
	atomic_fetch_add_explicit(&origin->refs, 1, memory_order_relaxed);
	return origin;
}

void origin_unref(struct origin *origin)
{
	if (origin && atomic_fetch_sub_explicit(&origin->refs, 1, memory_order_acq_rel) == 1) {
		endpoints_clear(&origin->endpoints);
		origin->ops->destroy(origin);
	}
}

bool origin_is_shared(struct origin *origin)
{
	return atomic_load_explicit(&origin->refs, memory_order_acquire) > 1;
}

const char *origin_identity(struct origin *origin)
{
	return origin->identity;
}

int origin_stat(struct origin *origin, struct loop *loop, const char *path, origin_stat_fn done,
		void *arg, struct origin_call **ret_call)
{
	if (!origin_path_valid(path))
		return -EINVAL;
	return origin->ops->stat(origin, loop, path, done, arg, ret_call);
}

int origin_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		origin_list_fn done, void *arg, struct origin_call **ret_call)
{
	if (!origin_path_valid(path))
		return -EINVAL;
	return origin->ops->list(origin, loop, path, token, done, arg, ret_call);
}

int origin_readlink(struct origin *origin, struct loop *loop, const char *path, origin_link_fn done,
		    void *arg, struct origin_call **ret_call)
{
	if (!origin_path_valid(path))
		return -EINVAL;
	if (!origin->ops->readlink)
		return -EINVAL;
	return origin->ops->readlink(origin, loop, path, done, arg, ret_call);
}

int origin_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		struct origin_call **ret_call)
{
	if (!origin_path_valid(get->path) || !get->len || get->offset > get->attr->size ||
	    get->len > get->attr->size - get->offset)
		return -EINVAL;
	return origin->ops->read(origin, loop, get, ret_call);
}

int origin_offers(struct origin *origin, struct loop *loop, const char *path,
		  const struct origin_attr *attr, origin_offers_fn done, void *arg,
		  struct origin_call **ret_call)
{
	if (!origin_path_valid(path))
		return -EINVAL;
	return origin->ops->offers(origin, loop, path, attr, done, arg, ret_call);
}

int origin_part(struct origin *origin, struct loop *loop, const char *path,
		const struct origin_attr *attr, uint32_t number, origin_part_fn done, void *arg,
		struct origin_call **ret_call)
{
	if (!origin_path_valid(path) || !number || number > OFFERS_PARTS_MAX)
		return -EINVAL;
	if (!origin->ops->part)
		return -EOPNOTSUPP;
	return origin->ops->part(origin, loop, path, attr, number, done, arg, ret_call);
}

void origin_cancel(struct origin_call *call)
{
	call->cancel(call);
}

void origin_count(struct origin *origin, unsigned int status, uint64_t ns, int error)
{
	unsigned int class = status / 100 < 6 ? status / 100 : 0;

	atomic_fetch_add_explicit(&origin->requests, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&origin->status_class[class], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&origin->ns, ns, memory_order_relaxed);
	if (error)
		atomic_fetch_add_explicit(&origin->errors, 1, memory_order_relaxed);
}

void origin_count_bytes(struct origin *origin, uint64_t bytes)
{
	atomic_fetch_add_explicit(&origin->bytes, bytes, memory_order_relaxed);
}

void origin_counters(struct origin *origin, struct origin_counters *ret)
{
	struct origin_counters copy = {
		.requests = atomic_load_explicit(&origin->requests, memory_order_relaxed),
		.bytes = atomic_load_explicit(&origin->bytes, memory_order_relaxed),
		.errors = atomic_load_explicit(&origin->errors, memory_order_relaxed),
		.seconds = (double)atomic_load_explicit(&origin->ns, memory_order_relaxed) * 1e-9,
	};

	for (size_t i = 0; i < 6; i++)
		copy.status_class[i] =
			atomic_load_explicit(&origin->status_class[i], memory_order_relaxed);
	if (origin->ops->counters)
		origin->ops->counters(origin, &copy);
	*ret = copy;
}

void origin_endpoints(struct origin *origin, endpoint_fn fn, void *arg)
{
	if (origin->ops->endpoints)
		origin->ops->endpoints(origin, fn, arg);
	else
		endpoints_each(&origin->endpoints, fn, arg);
}

void origin_stop(struct origin *origin, struct loop *loop)
{
	if (origin->ops->stop)
		origin->ops->stop(origin, loop);
}

void origin_credentials(struct origin *origin, struct origin_credentials *ret)
{
	*ret = (struct origin_credentials){ .source = "none" };
	if (origin->ops->credentials)
		origin->ops->credentials(origin, ret);
}

bool origin_outdated(struct origin *origin)
{
	return origin->ops->outdated && origin->ops->outdated(origin);
}

void origin_fail(struct origin_result *result, char *text, int error, bool transient,
		 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, ORIGIN_MESSAGE_MAX, format, args);
	va_end(args);
	make_line(text);
	result->error = error;
	result->transient = transient;
	result->message = text;
}

int origin_page_add(struct origin_page *page, const char *name, size_t len,
		    const struct origin_attr *attr)
{
	struct origin_entry *grown;
	char *copy;

	if (!origin_name_valid(name, len)) {
		page->skipped++;
		return 0;
	}
	if (page->count == page->size) {
		size_t size = page->size ? page->size * 2 : 64;

		grown = reallocarray(page->entries, size, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		page->entries = grown;
		page->size = size;
	}
	copy = strndup(name, len);
	if (!copy)
		return -ENOMEM;
	page->entries[page->count++] = (struct origin_entry){ .name = copy, .attr = *attr };
	return 0;
}

void origin_page_free(struct origin_page *page)
{
	for (size_t i = 0; i < page->count; i++)
		free((char *)page->entries[i].name);
	free(page->entries);
}
