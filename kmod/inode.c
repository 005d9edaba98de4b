// SPDX-License-Identifier: GPL-2.0-only
/*
 * inode: one inode per version of an object.
 *
 * A version never changes under a reader: another version is another inode. The
 * superseded one answers from what it was until its last user closes it.
 */
#include <linux/slab.h>
#include <linux/xattr.h>
#include <linux/xxhash.h>

#include "internal.h"

static struct kmem_cache *inode_cache;

struct inode *wfs_alloc_inode(struct super_block *sb)
{
	struct wfs_inode *wi = alloc_inode_sb(sb, inode_cache, GFP_KERNEL);

	if (!wi)
		return NULL;
	wi->expires = 0;
	wi->gen = 0;
	wi->superseded = false;
	wi->opened = false;
	wi->attr_flags = 0;
	wi->path = NULL;
	wi->version = NULL;
	wi->node = NULL;
	wi->target = NULL;
	wi->listing = NULL;
	wi->streak = 0;
	wi->next_stream = 0;
	memset(wi->streams, 0xff, sizeof(wi->streams));
	spin_lock_init(&wi->lock);
	return &wi->vfs;
}

/* After a grace period: a link's target may be in use under RCU. */
void wfs_free_inode(struct inode *inode)
{
	struct wfs_inode *wi = WFS_I(inode);

	kfree(wi->path);
	kfree(wi->version);
	kvfree(wi->target);
	kmem_cache_free(inode_cache, wi);
}

void wfs_evict_inode(struct inode *inode)
{
	struct wfs_inode *wi = WFS_I(inode);

	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	if (wi->listing)
		wfs_listing_put(wi->listing);
	wi->listing = NULL;
	if (wi->node)
		wfs_node_evict(wi->node);
	wi->node = NULL;
}

int wfs_drop_inode(struct inode *inode)
{
	return WFS_I(inode)->superseded || generic_drop_inode(inode);
}

unsigned long wfs_expiry(u64 ttl_ms)
{
	u64 max = MAX_JIFFY_OFFSET / 2;

	if (ttl_ms == WFS_TTL_NEVER)
		return jiffies + max;
	/* msecs_to_jiffies() takes 32 bits. */
	return jiffies +
	       min_t(u64,
		     div_u64(ttl_ms, MSEC_PER_SEC) * HZ + msecs_to_jiffies(ttl_ms % MSEC_PER_SEC),
		     max);
}

void wfs_inode_refresh(struct inode *inode)
{
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);

	WRITE_ONCE(WFS_I(inode)->expires, wfs_expiry(wsb->opts.ttl_ms));
}

bool wfs_inode_fresh(const struct inode *inode)
{
	const struct wfs_inode *wi = WFS_I(inode);
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);

	return READ_ONCE(wi->gen) == atomic_read(&wsb->names_gen) && !READ_ONCE(wi->superseded) &&
	       time_before(jiffies, READ_ONCE(wi->expires));
}

/* What identifies an inode. Strings change hands if a new inode takes them. */
struct inode_key {
	umode_t type;
	loff_t size;
	u32 flags;
	char *path;
	char *version;
	bool taken;
};

/*
 * What was read while nothing proved the version may be of another one that looked the
 * same: once the version is sure, that is another inode.
 */
static bool same(const struct inode *inode, umode_t type, loff_t size, u32 flags, const char *path,
		 const char *version)
{
	const struct wfs_inode *wi = WFS_I(inode);

	return (inode->i_mode & S_IFMT) == type && inode->i_size == size &&
	       !(wi->attr_flags & WFS_ATTR_UNCACHED & ~flags) && !strcmp(wi->path, path) &&
	       !strcmp(wi->version, version);
}

static int test_inode(struct inode *inode, void *data)
{
	const struct inode_key *key = data;

	return !READ_ONCE(WFS_I(inode)->superseded) &&
	       same(inode, key->type, key->size, key->flags, key->path, key->version);
}

static int set_inode(struct inode *inode, void *data)
{
	struct wfs_inode *wi = WFS_I(inode);
	struct inode_key *key = data;

	wi->path = key->path;
	wi->version = key->version;
	inode->i_mode = key->type;
	inode->i_size = key->size;
	wi->attr_flags = key->flags;
	key->taken = true;
	return 0;
}

/* Does the answer describe the version that the inode is? */
bool wfs_inode_same(const struct inode *inode, const struct wfs_attr *attr)
{
	return same(inode, attr->mode, attr->size, attr->flags, WFS_I(inode)->path,
		    (const char *)attr->version);
}

static int fill_inode(struct inode *inode, const struct wfs_attr *attr, u64 ino)
{
	struct timespec64 mtime = { .tv_sec = attr->mtime_sec, .tv_nsec = attr->mtime_nsec };
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);
	struct wfs_inode *wi = WFS_I(inode);

	inode->i_ino = ino;
	inode->i_uid = wsb->opts.uid;
	inode->i_gid = wsb->opts.gid;
	inode->i_flags |= S_NOATIME | S_NOCMTIME;
	set_nlink(inode, 1);
	inode_set_mtime_to_ts(inode, mtime);
	inode_set_atime_to_ts(inode, mtime);
	inode_set_ctime_to_ts(inode, mtime);
	inode->i_blocks = DIV_ROUND_UP(attr->size, 512);
	switch (attr->mode) {
	case S_IFDIR:
		inode->i_mode |= wsb->opts.dmode;
		inode->i_op = &wfs_dir_iops;
		inode->i_fop = &wfs_dir_fops;
		return 0;
	case S_IFLNK:
		inode->i_mode |= 0777;
		inode->i_op = &wfs_symlink_iops;
		return 0;
	default:
		inode->i_mode |= wsb->opts.mode;
		inode->i_op = &wfs_file_iops;
		inode->i_fop = &wfs_file_fops;
		inode->i_data.a_ops = &wfs_aops;
		wfs_mapping_set_orders(&inode->i_data, wsb->opts.verify ? WFS_UNIT_ORDER : 0,
				       wsb->opts.huge == WFS_HUGE_NEVER ? WFS_UNIT_ORDER :
									  HPAGE_PMD_ORDER);
		return wfs_node_create(inode, wi->path, wi->version, &wi->node);
	}
}

/**
 * wfs_inode_get() - the inode of a version of an object
 * @sb: the superblock
 * @path: below the mount
 * @attr: checked attributes
 *
 * Return: the inode with a reference, its freshness untouched, or ERR_PTR.
 */
struct inode *wfs_inode_get(struct super_block *sb, const char *path, const struct wfs_attr *attr)
{
	const char *version = (const char *)attr->version;
	struct inode_key key = {
		.type = attr->mode,
		.size = attr->size,
		.flags = attr->flags,
		.path = kstrdup(path, GFP_KERNEL_ACCOUNT),
		.version = kstrdup(version, GFP_KERNEL_ACCOUNT),
	};
	u64 ino = xxh64(path, strlen(path), 0);
	struct inode *inode = NULL;
	int err;

	/* Directories keep their number; another version of a file is another file. */
	if (attr->mode == S_IFREG)
		ino = xxh64(version, strlen(version), ino);
	ino |= 2; /* neither 0 nor 1 */
	if (key.path && key.version)
		inode = iget5_locked(sb, ino, test_inode, set_inode, &key);
	if (!key.taken) {
		kfree(key.path);
		kfree(key.version);
	}
	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (!(inode->i_state & I_NEW))
		return inode;
	err = fill_inode(inode, attr, ino);
	if (err) {
		iget_failed(inode);
		return ERR_PTR(err);
	}
	unlock_new_inode(inode);
	return inode;
}

/* The name means something else now: no lookup finds this inode again. */
void wfs_inode_supersede(struct inode *inode)
{
	WRITE_ONCE(WFS_I(inode)->superseded, true);
	remove_inode_hash(inode);
}

int wfs_getattr(struct wfs_idmap *idmap, const struct path *path, struct kstat *stat, u32 mask,
		unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);

	/* Path walks have revalidated; an open file is the version it was opened as. */
	wfs_fillattr(idmap, mask, inode, stat);
	/* Also the alignment of direct reads, for those who take it from here. */
	stat->blksize = S_ISREG(inode->i_mode) ? WFS_UNIT_SIZE : PAGE_SIZE;
	return 0;
}

static int give(void *buffer, size_t size, const char *value, size_t len)
{
	if (size) {
		if (len > size)
			return -ERANGE;
		memcpy(buffer, value, len);
	}
	return len;
}

static int xattr_version(const struct xattr_handler *handler, struct dentry *dentry,
			 struct inode *inode, const char *name, void *buffer, size_t size)
{
	const struct wfs_inode *wi = WFS_I(inode);

	if (!wi->node)
		return -ENODATA;
	return give(buffer, size, wi->version, strlen(wi->version));
}

static int xattr_cached(const struct xattr_handler *handler, struct dentry *dentry,
			struct inode *inode, const char *name, void *buffer, size_t size)
{
	struct wfs_node *node = WFS_I(inode)->node;
	char text[24];
	int err;

	if (!node)
		return -ENODATA;
	/* Without a helper, as far as is known. */
	if (wfs_session_live() && !wfs_is_helper()) {
		err = wfs_io_probe(node, 0, U64_MAX);
		if (err == -EINTR || err == -ERESTARTSYS)
			return err;
	}
	return give(buffer, size, text,
		    snprintf(text, sizeof(text), "%llu", wfs_node_cached_bytes(node)));
}

static const struct xattr_handler version_handler = {
	.name = "user.wfs.version",
	.get = xattr_version,
};

static const struct xattr_handler cached_handler = {
	.name = "user.wfs.cached",
	.get = xattr_cached,
};

WFS_XATTR_TABLE xattr_handlers[] = { &version_handler, &cached_handler, NULL };

void wfs_set_xattr_handlers(struct super_block *sb)
{
	sb->s_xattr = xattr_handlers;
}

ssize_t wfs_listxattr(struct dentry *dentry, char *list, size_t size)
{
	static const char names[] = "user.wfs.version\0user.wfs.cached";

	return give(list, size, names, sizeof(names));
}

static void init_once(void *obj)
{
	struct wfs_inode *wi = obj;

	inode_init_once(&wi->vfs);
}

int wfs_inode_init(void)
{
	inode_cache = kmem_cache_create("wfs_inode", sizeof(struct wfs_inode), 0,
					SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, init_once);
	return inode_cache ? 0 : -ENOMEM;
}

void wfs_inode_exit(void)
{
	rcu_barrier(); /* inodes are freed after a grace period */
	kmem_cache_destroy(inode_cache);
}
