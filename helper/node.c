// SPDX-License-Identifier: MIT
/*
 * node: objects as the kernel knows them, and what the kernel is told of their blocks.
 *
 * What is told goes by ioctl, synchronously: a block's bytes and sums are good for the
 * length of the callback, and the order of offer, dropped, stored and evicted is kept.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel_impl.h"

#define LOG_AREA "node"
#include "log.h"

static void told(const struct node *node, const char *what, uint64_t block, int r)
{
	/* ENOENT: nobody reads the object any more. ESTALE: the session is over. */
	if (r >= 0 || r == -ENOENT || r == -ESTALE || r == -ECANCELED)
		return;
	log_warn("node %llu, block %llu: the kernel does not take \"%s\": %s",
		 (unsigned long long)node->id, (unsigned long long)block, what, strerror(-r));
}

static struct wfs_cmd node_cmd(const struct node *node, enum wfs_op op, uint64_t block)
{
	struct wfs_cmd cmd = channel_op(op);

	cmd.node = node->id;
	cmd.block = block;
	return cmd;
}

static void watch_stored(struct object_watch *watch, uint64_t block, const uint64_t *sums,
			 uint32_t units)
{
	struct node *node = container_of(watch, struct node, watch);
	struct wfs_cmd cmd = node_cmd(node, WFS_CMD_STORED, block);
	int r = channel_call_with(&node->kernel->session, &cmd, sums, units * sizeof(*sums));

	/* EBUSY: it is cached already, or has no cache file there yet and will be asked for. */
	if (r != -EBUSY)
		told(node, "stored", block, r);
}

static void watch_dropped(struct object_watch *watch, uint64_t block)
{
	struct node *node = container_of(watch, struct node, watch);
	struct wfs_cmd cmd = node_cmd(node, WFS_CMD_DROPPED, block);

	told(node, "dropped", block, channel_call(&node->kernel->session, &cmd));
}

/* In pieces of so many bytes, up to the first of which not all is taken; how many were. */
static uint32_t offer_pieces(struct node *node, struct wfs_cmd *cmd, uint32_t len, uint32_t piece)
{
	uint32_t done = 0;

	while (done < len) {
		int r;

		cmd->len = len - done < piece ? len - done : piece;
		r = channel_call(&node->kernel->session, cmd);
		if (r < (int)cmd->len && piece > WFS_UNIT_SIZE)
			return done;
		if (r < 0) {
			told(node, "offer", cmd->block, r);
			return len;
		}
		cmd->offset += cmd->len;
		cmd->buf += cmd->len;
		done += cmd->len;
	}
	return len;
}

static void watch_offer(struct object_watch *watch, uint64_t block, uint64_t offset,
			const void *bytes, uint32_t len)
{
	struct node *node = container_of(watch, struct node, watch);
	struct session *session = &node->kernel->session;
	struct wfs_cmd cmd = node_cmd(node, WFS_CMD_OFFER, block);
	uint32_t done;

	if (!(session->features & WFS_FEATURE_OFFER))
		return;
	cmd.offset = offset;
	cmd.buf = (uint64_t)((const char *)bytes - session->base);
	done = offer_pieces(node, &cmd, len, WFS_DELIVER_MAX);
	/*
	 * The kernel takes a piece by large folios, and none where a small one is already. Most of
	 * what was read is there, and what follows it is wanted next.
	 */
	offer_pieces(node, &cmd, len - done, WFS_UNIT_SIZE);
}

static int watch_evict(struct object_watch *watch, uint64_t block, bool cold)
{
	struct node *node = container_of(watch, struct node, watch);
	struct wfs_cmd cmd = node_cmd(node, WFS_CMD_EVICT, block);
	int r;

	if (cold && node->kernel->session.features & WFS_FEATURE_COLD)
		cmd.flags = WFS_EVICT_COLD;
	r = channel_call(&node->kernel->session, &cmd);
	if (r == -EAGAIN && cmd.flags)
		return r;
	/* Without a session nobody can say that the block is not being read. */
	return r == 0 || r == -ENOENT ? 0 : -EBUSY;
}

static void watch_evicted(struct object_watch *watch, uint64_t block)
{
	struct node *node = container_of(watch, struct node, watch);
	struct wfs_cmd cmd = node_cmd(node, WFS_CMD_EVICTED, block);

	told(node, "evicted", block, channel_call(&node->kernel->session, &cmd));
}

static void watch_reopen(struct object_watch *watch)
{
	struct node *node = container_of(watch, struct node, watch);
	struct wfs_cmd cmd = channel_op(WFS_CMD_REOPEN);

	if (!(node->kernel->session.features & WFS_FEATURE_REOPEN))
		return;
	cmd.node = node->id;
	told(node, "reopen", 0, channel_call(&node->kernel->session, &cmd));
}

void node_unref(struct node *node)
{
	if (!node || atomic_fetch_sub(&node->refs, 1) > 1)
		return;
	object_unwatch(node->object, &node->watch);
	object_unref(node->object);
	free(node);
}

static struct node **bucket(struct kernel *kernel, uint64_t id)
{
	return &kernel->nodes[id % NODE_BUCKETS];
}

struct node *node_find(struct kernel *kernel, uint64_t id)
{
	struct node *node;

	SCOPED_LOCK(&kernel->lock);
	for (node = *bucket(kernel, id); node && node->id != id;)
		node = node->next;
	if (node)
		atomic_fetch_add(&node->refs, 1);
	return node;
}

void node_forget(struct kernel *kernel, uint64_t id)
{
	struct node **link, *node;

	pthread_mutex_lock(&kernel->lock);
	for (link = bucket(kernel, id); *link && (*link)->id != id;)
		link = &(*link)->next;
	node = *link;
	if (node) {
		*link = node->next;
		kernel->node_count--;
	}
	pthread_mutex_unlock(&kernel->lock);
	/*
	 * At once, though requests may still have it: what is told of its object from now on
	 * might be about another cache file than the kernel is about to get.
	 */
	if (node)
		object_unwatch(node->object, &node->watch);
	node_unref(node);
}

int node_create(struct kernel *kernel, uint64_t id, struct object *object, bool prefetch)
{
	struct node *node = calloc(1, sizeof(*node));
	int r;

	if (!node) {
		object_unref(object);
		return -ENOMEM;
	}
	node->refs = 1;
	node->id = id;
	node->kernel = kernel;
	node->object = object;
	node->prefetch = prefetch;
	node->watch = (struct object_watch){
		.stored = watch_stored,
		.dropped = watch_dropped,
		.offer = watch_offer,
		.evict = watch_evict,
		.evicted = watch_evicted,
		.reopen = watch_reopen,
	};
	r = object_watch(object, &node->watch);
	if (r) {
		node_unref(node);
		return r;
	}
	/* Opened again in this session: the new answer counts. */
	node_forget(kernel, id);
	SCOPED_LOCK(&kernel->lock);
	node->next = *bucket(kernel, id);
	*bucket(kernel, id) = node;
	kernel->node_count++;
	return 0;
}
