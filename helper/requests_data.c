// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core.h"
#include "fetch.h"
#include "kernel_impl.h"
#include "names.h"
#include "order.h"

#define LOG_AREA "data"
#include "log.h"

/* OPEN: the cache file of an object. */

struct opening {
	struct kernel *kernel;
	struct wfs_request *request;
	struct mount *mount;
	const char *path, *version; /* in the request */
};

/*
 * The descriptor is named while it is surely open: by ioctl, which returns when the
 * kernel has its own reference.
 */
static void open_commit(struct kernel *kernel, struct wfs_request *request, int status, int fd)
{
	struct wfs_cmd cmd = channel_op(WFS_CMD_COMMIT);
	int r;

	cmd.id = request->id;
	cmd.status = request_errno(status);
	cmd.fd = status ? -1 : fd;
	if (status)
		kernel->errors[request->opcode]++;
	r = channel_call(&kernel->session, &cmd);
	if (r == -EINVAL && cmd.fd >= 0) {
		log_error("node %llu: the kernel refuses the cache file; the object is served without",
			  (unsigned long long)request->node);
		cmd.fd = -1;
		channel_call(&kernel->session, &cmd);
	} else if (r < 0 && r != -ENOENT && r != -ESTALE && r != -ECANCELED) {
		log_error("node %llu: cannot be opened: %s", (unsigned long long)request->node,
			  strerror(-r));
	}
	free(request);
}

static struct origin_attr open_attr(const struct opening *opening, unsigned int flags)
{
	struct origin_attr attr = {
		.mode = S_IFREG,
		.flags = flags,
		.size = opening->request->file_size,
	};

	memcpy(attr.version, opening->version, strlen(opening->version) + 1);
	return attr;
}

static void open_object(struct opening *opening, unsigned int flags)
{
	struct wfs_request *request = opening->request;
	struct kernel *kernel = opening->kernel;
	const struct origin_attr attr = open_attr(opening, flags);
	struct object *object = NULL;
	int fd = -1, r;

	if (flags & ORIGIN_UNPROVEN && !atomic_exchange(&opening->mount->unproven, true))
		log_warn("%s/%s: the origin names no version of it (no ETag, no Last-Modified): it is not kept, and each open reads it anew",
			 opening->mount->source, opening->path);
	r = object_open(kernel->core, opening->mount->origin, opening->path, &attr,
			request->block_shift, &object);
	if (!r)
		r = node_create(kernel, request->node, object_ref(object),
				opening->mount->prefetch);
	if (!r && !(flags & ORIGIN_WEAK))
		fd = object_fd(object);
	if (!r && !(request->flags & WFS_REQ_F_RESUME))
		object_opened(object);
	if (r && r != -ENOMEM)
		log_error("%s: cannot be opened: %s", opening->path, strerror(-r));
	open_commit(kernel, request, r, fd);
	object_unref(object);
	mount_unref(opening->mount);
	free(opening);
}

static void open_known(void *arg, int error, const char *message, const struct origin_attr *attr)
{
	struct opening *opening = arg;

	(void)message;
	if (error == -ECANCELED) {
		request_reply(opening->kernel, opening->request, error, NULL, 0);
		mount_unref(opening->mount);
		free(opening);
		return;
	}
	/*
	 * Whether this version may be kept is known with the name. Where the name has
	 * another version by now, or none, nothing is proved: it is not kept.
	 */
	if (!error && attr->size == opening->request->file_size &&
	    !strcmp(attr->version, opening->version))
		open_object(opening, attr->flags);
	else
		open_object(opening, ORIGIN_WEAK);
}

void requests_open(struct kernel *kernel, struct wfs_request *request)
{
	struct opening *opening = calloc(1, sizeof(*opening));
	const char *strings[2];
	struct names_terms terms;
	struct origin_attr attr;
	int r = opening ? request_strings(request, strings, 2) : -ENOMEM;

	if (!r && strlen(strings[1]) > ORIGIN_VERSION_MAX)
		r = -EINVAL;
	if (!r)
		r = mount_find(kernel, request->mount, &opening->mount);
	if (r) {
		free(opening);
		request_reply(kernel, request, r, NULL, 0);
		return;
	}
	opening->kernel = kernel;
	opening->request = request;
	opening->path = strings[0];
	opening->version = strings[1];
	mount_terms(opening->mount, NAMES_FOREVER, &terms);
	if (request->flags & WFS_REQ_F_RESUME) {
		attr = open_attr(opening, 0);
		/* It was found fit to be kept; otherwise that is asked again, not for long. */
		if (object_recorded(kernel->core, opening->mount->origin, opening->path, &attr,
				    request->block_shift)) {
			open_object(opening, 0);
			return;
		}
		terms.hasty = true;
	}
	terms.max_absent_ms = 0;
	r = names_lookup(opening->mount->names, opening->path, &terms, &attr, open_known, opening);
	if (r != -EINPROGRESS)
		open_known(opening, r, NULL, &attr);
}

void requests_forget(struct kernel *kernel, struct wfs_request *request)
{
	node_forget(kernel, request->node);
	request_reply(kernel, request, 0, NULL, 0);
}

/* MAP: cached blocks of a window and their sums. */

void requests_map(struct kernel *kernel, struct wfs_request *request)
{
	struct node *node = node_find(kernel, request->node);
	cleanup_free char *bytes = NULL;
	uint64_t first, blocks, count;
	struct wfs_map_reply *reply;
	unsigned int shift;
	uint64_t *bitmap;
	size_t words, sums = 0;
	int r;

	if (!node) {
		request_reply(kernel, request, -EIO, NULL, 0);
		return;
	}
	shift = object_block_shift(node->object);
	blocks = (object_attr(node->object)->size + (UINT64_C(1) << shift) - 1) >> shift;
	first = (uint64_t)request->window << (WFS_WINDOW_SHIFT - shift);
	count = UINT64_C(1) << (WFS_WINDOW_SHIFT - shift);
	if (first >= blocks) {
		node_unref(node);
		request_reply(kernel, request, -EINVAL, NULL, 0);
		return;
	}
	if (count > blocks - first)
		count = blocks - first;
	words = (size_t)(count + 63) / 64;
	bytes = calloc(1, sizeof(*reply) + (words + WFS_WINDOW_UNITS) * sizeof(uint64_t));
	if (!bytes) {
		node_unref(node);
		request_reply(kernel, request, -ENOMEM, NULL, 0);
		return;
	}
	reply = (struct wfs_map_reply *)bytes;
	reply->blocks = (uint32_t)count;
	bitmap = (uint64_t *)(bytes + sizeof(*reply));
	r = object_map(node->object, first, count, bitmap, bitmap + words, &sums);
	if (r) {
		/* Without the index nothing counts as cached. */
		log_warn("%s: its cached blocks are not known: %s", object_path(node->object),
			 strerror(-r));
		memset(bitmap, 0, words * sizeof(*bitmap));
		sums = 0;
	}
	node_unref(node);
	request_reply(kernel, request, 0, bytes,
		      sizeof(*reply) + (words + sums) * sizeof(uint64_t));
}

/* FILL: bytes of a block. */

/*
 * Alive until the scheduler is through and every deliver has come back: one count
 * each, the last one commits.
 */
struct fill {
	struct fetch_want want;
	struct kernel *kernel;
	struct wfs_request *request;
	struct node *node;
	struct fill *next, **link; /* kernel->fills; kernel->lock */
	struct fill *cancelling;
	atomic_uint pending;
	_Atomic int error;
	_Atomic uint64_t used; /* bytes that somebody in the kernel waited for */
	atomic_bool unwanted;  /* the kernel said so: no more delivers */
	atomic_bool unmounted;
};

struct deliver {
	struct channel_cmd base;
	struct fill *fill;
};

/* False: its mount is gone, the request for it having been overtaken by that for its end. */
static bool fill_list(struct kernel *kernel, struct fill *fill)
{
	const struct mount *mount;

	SCOPED_LOCK(&kernel->lock);
	for (mount = kernel->mounts; mount && mount->id != fill->request->mount;)
		mount = mount->next;
	if (!mount)
		return false;
	fill->next = kernel->fills;
	fill->link = &kernel->fills;
	if (fill->next)
		fill->next->link = &fill->next;
	kernel->fills = fill;
	return true;
}

static void fill_unlist(struct fill *fill)
{
	SCOPED_LOCK(&fill->kernel->lock);
	*fill->link = fill->next;
	if (fill->next)
		fill->next->link = fill->link;
}

static void fill_put(struct fill *fill)
{
	struct kernel *kernel = fill->kernel;
	struct node *node = fill->node;

	if (atomic_fetch_sub(&fill->pending, 1) > 1)
		return;
	fill_unlist(fill);
	fetch_used(&fill->want, fill->used);
	fetch_release(&fill->want);
	request_reply(kernel, fill->request, atomic_load(&fill->error), NULL, 0);
	free(fill);
	node_unref(node);
}

static void deliver_result(struct fill *fill, uint32_t len, int res)
{
	struct kernel *kernel = fill->kernel;

	if (res >= 0) {
		kernel->delivers++;
		kernel->deliver_bytes += len;
		fill->used += (uint64_t)res;
	} else if (res == -ENOENT || res == -ESTALE || res == -ECANCELED) {
		atomic_store(&fill->unwanted, true);
	} else {
		log_error("request %llu: the kernel refuses %u bytes: %s",
			  (unsigned long long)fill->request->id, len, strerror(-res));
		atomic_store(&fill->error, -EIO);
	}
}

static void deliver_done(struct channel_cmd *cmd, int res)
{
	struct deliver *deliver = container_of(cmd, struct deliver, base);
	struct fill *fill = deliver->fill;

	deliver_result(fill, cmd->cmd.len, res);
	free(deliver);
	fill_put(fill);
}

static void fill_data(struct fetch_want *want, uint32_t unit, uint32_t units, const void *bytes,
		      uint32_t len)
{
	struct fill *fill = container_of(want, struct fill, want);
	struct session *session = &fill->kernel->session;
	struct wfs_cmd cmd = channel_op(WFS_CMD_DELIVER);
	uint32_t done = 0;

	(void)units;
	cmd.id = fill->request->id;
	while (done < len && !atomic_load(&fill->unwanted)) {
		struct deliver *deliver = calloc(1, sizeof(*deliver));

		cmd.offset = ((uint64_t)unit << WFS_UNIT_SHIFT) + done;
		cmd.buf = (uint64_t)((const char *)bytes + done - session->base);
		cmd.len = len - done < WFS_DELIVER_MAX ? len - done : WFS_DELIVER_MAX;
		done += cmd.len;
		if (!deliver) {
			deliver_result(fill, cmd.len, channel_call(session, &cmd));
			continue;
		}
		deliver->fill = fill;
		deliver->base.cmd = cmd;
		deliver->base.done = deliver_done;
		atomic_fetch_add(&fill->pending, 1);
		channel_send(session, &deliver->base);
	}
}

static void fill_done(struct fetch_want *want, int error, const char *message)
{
	struct fill *fill = container_of(want, struct fill, want);

	if (error) {
		atomic_store(&fill->error, error);
		if (error != -ECANCELED)
			log_warn("request %llu: %s, block %llu: %s",
				 (unsigned long long)fill->request->id, object_path(want->object),
				 (unsigned long long)want->block,
				 message ? message : strerror(-error));
	}
	fill_put(fill);
}

/* The caller has a reference. */
static void fill_cancel(struct fill *fill)
{
	if (!fetch_cancel(&fill->want))
		return;
	atomic_store(&fill->error, -ECANCELED);
	/* The scheduler's. */
	fill_put(fill);
}

static enum fetch_why fill_why(uint32_t why)
{
	switch (why) {
	case WFS_WHY_DEMAND:
		return FETCH_DEMAND;
	case WFS_WHY_READAHEAD:
		return FETCH_READAHEAD;
	default:
		return FETCH_PREFETCH;
	}
}

void requests_fill(struct kernel *kernel, struct wfs_request *request)
{
	struct node *node = node_find(kernel, request->node);
	struct object *object;
	struct order_asked asked;
	struct fill *fill;
	uint32_t units;
	bool learn;
	int r;

	if (!node) {
		request_reply(kernel, request, -EIO, NULL, 0);
		return;
	}
	units = object_units(node->object, request->block);
	if (!request->units || request->unit >= units || request->units > units - request->unit) {
		log_error("request %llu: units %u+%u of a block of %u",
			  (unsigned long long)request->id, request->unit, request->units, units);
		node_unref(node);
		request_reply(kernel, request, -EINVAL, NULL, 0);
		return;
	}
	/* Not read from there once more, where it might seem right this time. */
	if (request->flags & WFS_REQ_F_BAD)
		log_warn("%s: block %llu in the cache failed the kernel's check",
			 object_path(node->object), (unsigned long long)request->block);
	fill = calloc(1, sizeof(*fill));
	if (!fill) {
		node_unref(node);
		request_reply(kernel, request, -ENOMEM, NULL, 0);
		return;
	}
	fill->want = (struct fetch_want){
		.object = node->object,
		.block = request->block,
		.unit = request->unit,
		.units = request->units,
		.why = fill_why(request->why),
		.bad = request->flags & WFS_REQ_F_BAD,
		.data = fill_data,
		.done = fill_done,
	};
	fill->kernel = kernel;
	fill->request = request;
	fill->node = node;
	/* The scheduler's, and ours. */
	fill->pending = 2;
	learn = node->prefetch;
	asked = (struct order_asked){
		.block = request->block,
		.reader = request->reader,
		.first = request->flags & WFS_REQ_F_WHOLE,
		.advice = fill->want.why == FETCH_PREFETCH,
	};
	object = object_ref(node->object);
	if (!fill_list(kernel, fill)) {
		node_unref(node);
		free(fill);
		request_reply(kernel, request, -EIO, NULL, 0);
		object_unref(object);
		return;
	}
	r = fetch_start(kernel->core, &fill->want);
	if (r) {
		atomic_store(&fill->error, r);
		fill_put(fill);
	} else if (atomic_load(&fill->unmounted)) {
		fill_cancel(fill);
	} else if (learn) {
		order_needed(core_order(kernel->core), object, &asked);
	}
	fill_put(fill);
	object_unref(object);
}

/* One reference more, unless the last one has gone. */
static bool fill_get(struct fill *fill)
{
	unsigned int pending = atomic_load(&fill->pending);

	while (pending && !atomic_compare_exchange_weak(&fill->pending, &pending, pending + 1))
		;
	return pending;
}

void requests_cancel_fills(struct kernel *kernel, uint64_t mount)
{
	struct fill *list = NULL, *fill;

	pthread_mutex_lock(&kernel->lock);
	for (fill = kernel->fills; fill; fill = fill->next) {
		if (fill->request->mount != mount || !fill_get(fill))
			continue;
		fill->cancelling = list;
		list = fill;
	}
	pthread_mutex_unlock(&kernel->lock);
	while ((fill = list)) {
		list = fill->cancelling;
		atomic_store(&fill->unmounted, true);
		fill_cancel(fill);
		fill_put(fill);
	}
}
