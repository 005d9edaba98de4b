// SPDX-License-Identifier: GPL-2.0-only
/*
 * dir: directories: lookup, revalidation, listings, links.
 *
 * A listing is kept with its directory while it is fresh, so that reading it again
 * asks nothing; with no helper it is served past that. A dentry remembers until when
 * it is good (d_time) and which generation of names it was learnt in (d_fsdata).
 */
#include <linux/namei.h>
#include <linux/slab.h>
#include <linux/xxhash.h>

#include "internal.h"

/* How long what could not be revalidated is good before it is tried again. */
#define STALE_RETRY_MS 2000
/* A listing larger than this is not a directory but an attack. */
#define LISTING_MAX (512U << 20)

struct chunk {
	struct list_head link;
	u64 first; /* number of its first entry */
	struct wfs_readdir_reply *page;
	u32 len; /* of the page */
};

/*
 * Belongs to one open file while it grows, under that file's position lock. Once it is
 * whole it is immutable, and shared by the directory and its open files.
 */
struct wfs_listing {
	refcount_t refs;
	struct list_head chunks;
	u64 count;
	u64 bytes;
	bool whole;
	unsigned long expires;
	int gen;
};

static char *join_path(const char *dir, const char *name, size_t len)
{
	size_t n = strlen(dir);
	char *path;

	if (n + 1 + len >= WFS_PATH_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	path = kmalloc(n + len + 2, GFP_KERNEL);
	if (!path)
		return ERR_PTR(-ENOMEM);
	if (n) {
		memcpy(path, dir, n);
		path[n++] = '/';
	}
	memcpy(path + n, name, len);
	path[n + len] = 0;
	return path;
}

static void note_stale(struct wfs_sb *wsb, const char *path)
{
	wfs_count(wsb, WFS_STAT_STALE, 1);
	wfs_event(WFS_EVENT_STALE, wsb->id, 0, path, NULL);
}

/* Nobody can be asked, or whoever was could not say. */
static bool is_unreachable(int err)
{
	return err == -EIO || err == -ETIMEDOUT || err == -ENOMEM;
}

/* ---- lookup ---- */

static void set_good(struct dentry *dentry, u64 ttl_ms, int gen)
{
	WRITE_ONCE(dentry->d_time, wfs_expiry(ttl_ms));
	WRITE_ONCE(dentry->d_fsdata, (void *)(long)gen);
}

static bool negative_fresh(const struct dentry *dentry)
{
	struct wfs_sb *wsb = WFS_SB(dentry->d_sb);

	return (long)READ_ONCE(dentry->d_fsdata) == atomic_read(&wsb->names_gen) &&
	       time_before(jiffies, READ_ONCE(dentry->d_time));
}

static void note_stale_absence(struct dentry *dentry)
{
	struct dentry *parent = dget_parent(dentry);
	struct name_snapshot name;
	char *path;

	take_dentry_name_snapshot(&name, dentry);
	path = join_path(WFS_I(d_inode(parent))->path, name.name.name, name.name.len);
	note_stale(WFS_SB(dentry->d_sb), IS_ERR(path) ? NULL : path);
	if (!IS_ERR(path))
		kfree(path);
	release_dentry_name_snapshot(&name);
	dput(parent);
}

static struct dentry *wfs_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct wfs_sb *wsb = WFS_SB(dir->i_sb);
	int gen = atomic_read(&wsb->names_gen);
	struct inode *inode = NULL;
	struct wfs_attr attr;
	char *path;
	int err;

	if (dentry->d_name.len > WFS_NAME_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	path = join_path(WFS_I(dir)->path, dentry->d_name.name, dentry->d_name.len);
	if (IS_ERR(path))
		return ERR_CAST(path);
	err = wfs_ask_lookup(wsb, path, &attr);
	if (!err) {
		inode = wfs_inode_get(dir->i_sb, path, &attr);
		if (IS_ERR(inode)) {
			err = PTR_ERR(inode);
			inode = NULL;
		}
	}
	kfree(path);
	if (err && err != -ENOENT)
		return ERR_PTR(err);
	if (inode) {
		wfs_inode_refresh(inode);
		WRITE_ONCE(WFS_I(inode)->gen, gen);
	}
	set_good(dentry, wsb->opts.negative_ttl_ms, gen);
	return d_splice_alias(inode, dentry);
}

static int revalidate_positive(struct inode *inode)
{
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);
	int gen = atomic_read(&wsb->names_gen);
	struct wfs_inode *wi = WFS_I(inode);
	struct wfs_attr attr;
	int err = -EIO;

	if (!wsb->opts.stale || wfs_session_live())
		err = wfs_ask_getattr(wsb, wi->path, wi->version, &attr);
	if (!err && wfs_inode_same(inode, &attr)) {
		wfs_inode_refresh(inode);
		WRITE_ONCE(wi->gen, gen);
		return 1;
	}
	if (!err || err == -ENOENT || err == -ENOTDIR) {
		wfs_inode_supersede(inode);
		return 0;
	}
	if (wsb->opts.stale && is_unreachable(err)) {
		note_stale(wsb, wi->path);
		WRITE_ONCE(wi->expires, wfs_expiry(STALE_RETRY_MS));
		WRITE_ONCE(wi->gen, gen);
		return 1;
	}
	return err;
}

/*
 * Nothing proves a version of it: each open reads anew, if there is anybody to ask. Who
 * opened it before goes on with what they have; so does what is mounted on it.
 */
static bool wants_anew(const struct dentry *dentry, const struct inode *inode, unsigned int flags)
{
	const struct wfs_inode *wi = WFS_I(inode);
	const struct wfs_sb *wsb = WFS_SB(inode->i_sb);

	if (wsb->opts.stale && !wfs_session_live())
		return false;
	return flags & LOOKUP_OPEN && wi->attr_flags & WFS_ATTR_UNPROVEN && READ_ONCE(wi->opened) &&
	       !d_mountpoint(dentry);
}

static int wfs_d_revalidate(struct dentry *dentry, unsigned int flags)
{
	struct wfs_sb *wsb = WFS_SB(dentry->d_sb);
	struct inode *inode;

	inode = flags & LOOKUP_RCU ? d_inode_rcu(dentry) : d_inode(dentry);
	if (inode && wants_anew(dentry, inode, flags)) {
		if (flags & LOOKUP_RCU)
			return -ECHILD;
		wfs_inode_supersede(inode);
		return 0;
	}
	if (inode ? wfs_inode_fresh(inode) : negative_fresh(dentry))
		return 1;
	if (flags & LOOKUP_RCU)
		return -ECHILD;
	if (inode)
		return READ_ONCE(WFS_I(inode)->superseded) ? 0 : revalidate_positive(inode);
	/* Looked up again by the VFS, unless there is nobody to ask. */
	if (!wsb->opts.stale || wfs_session_live())
		return 0;
	note_stale_absence(dentry);
	set_good(dentry, STALE_RETRY_MS, atomic_read(&wsb->names_gen));
	return 1;
}

const struct dentry_operations wfs_dentry_ops = {
	.d_revalidate = wfs_d_revalidate,
};

/* ---- links ---- */

static const char *wfs_get_link(struct dentry *dentry, struct inode *inode,
				struct delayed_call *done)
{
	struct wfs_inode *wi = WFS_I(inode);
	/* Pairs with the release below. */
	char *target = smp_load_acquire(&wi->target);
	int err;

	if (target)
		return target;
	if (!dentry)
		return ERR_PTR(-ECHILD);
	err = wfs_ask_readlink(WFS_SB(inode->i_sb), wi->path, &target);
	if (err)
		return ERR_PTR(err);
	/* Kept for the life of the inode, which is one version of the link. */
	if (cmpxchg_release(&wi->target, NULL, target))
		kvfree(target);
	return wi->target;
}

const struct inode_operations wfs_symlink_iops = {
	.get_link = wfs_get_link,
	.getattr = wfs_getattr,
};

/* ---- listings ---- */

void wfs_listing_put(struct wfs_listing *listing)
{
	struct chunk *chunk, *next;

	if (!refcount_dec_and_test(&listing->refs))
		return;
	list_for_each_entry_safe(chunk, next, &listing->chunks, link) {
		wfs_held(WFS_HELD_LISTINGS, -(long)(sizeof(*chunk) + chunk->len));
		kvfree(chunk->page);
		kfree(chunk);
	}
	kfree(listing);
}

static const struct wfs_dirent *first_entry(const struct chunk *chunk)
{
	return (const void *)(chunk->page + 1);
}

static const struct wfs_dirent *next_entry(const struct wfs_dirent *ent)
{
	return (const void *)ent + ent->reclen;
}

static struct wfs_listing *new_listing(struct inode *dir)
{
	struct wfs_listing *listing = kzalloc(sizeof(*listing), GFP_KERNEL_ACCOUNT);

	if (!listing)
		return ERR_PTR(-ENOMEM);
	refcount_set(&listing->refs, 1);
	INIT_LIST_HEAD(&listing->chunks);
	listing->gen = atomic_read(&WFS_SB(dir->i_sb)->names_gen);
	return listing;
}

/* The name of the last entry so far, or "", where the next page goes on. */
static void last_name(const struct wfs_listing *listing, char *name)
{
	const struct wfs_dirent *ent;
	const struct chunk *chunk;
	u32 i;

	name[0] = 0;
	if (list_empty(&listing->chunks))
		return;
	chunk = list_last_entry(&listing->chunks, struct chunk, link);
	ent = first_entry(chunk);
	for (i = 1; i < chunk->page->count; i++)
		ent = next_entry(ent);
	memcpy(name, ent->name, ent->namelen);
	name[ent->namelen] = 0;
}

/*
 * Asks for the next page, which has an entry or is the last. The directory is locked
 * meanwhile, and who wants it exclusively cannot be killed: so it is one at a time, below
 * name_timeout=, and never all of a long listing.
 */
static int grow_listing(struct inode *dir, struct wfs_listing *listing)
{
	char after[WFS_NAME_MAX + 1];
	struct chunk *chunk;
	int err;

	if (listing->bytes > LISTING_MAX)
		return -EFBIG;
	chunk = kzalloc(sizeof(*chunk), GFP_KERNEL_ACCOUNT);
	if (!chunk)
		return -ENOMEM;
	last_name(listing, after);
	err = wfs_ask_readdir(WFS_SB(dir->i_sb), WFS_I(dir)->path, after, &chunk->page,
			      &chunk->len);
	if (err) {
		kfree(chunk);
		return err;
	}
	wfs_held(WFS_HELD_LISTINGS, sizeof(*chunk) + chunk->len);
	chunk->first = listing->count;
	list_add_tail(&chunk->link, &listing->chunks);
	listing->count += chunk->page->count;
	listing->bytes += sizeof(*chunk) + chunk->len;
	if (chunk->page->flags & WFS_READDIR_EOF) {
		listing->whole = true;
		listing->expires = wfs_expiry(WFS_SB(dir->i_sb)->opts.ttl_ms);
	}
	return 0;
}

static struct wfs_listing *cached_listing(struct inode *dir)
{
	struct wfs_inode *wi = WFS_I(dir);
	struct wfs_listing *listing;

	spin_lock(&wi->lock);
	listing = wi->listing;
	if (listing)
		refcount_inc(&listing->refs);
	spin_unlock(&wi->lock);
	return listing;
}

static void keep_listing(struct inode *dir, struct wfs_listing *listing)
{
	struct wfs_inode *wi = WFS_I(dir);
	struct wfs_listing *old;

	refcount_inc(&listing->refs);
	spin_lock(&wi->lock);
	old = wi->listing;
	wi->listing = listing;
	spin_unlock(&wi->lock);
	if (old)
		wfs_listing_put(old);
}

static int grow_and_keep(struct inode *dir, struct wfs_listing *listing)
{
	int err = grow_listing(dir, listing);

	if (!err && listing->whole)
		keep_listing(dir, listing);
	return err;
}

/* A listing with a reference: the kept one while it is good, else the beginning of a new one. */
static struct wfs_listing *get_listing(struct inode *dir)
{
	struct wfs_sb *wsb = WFS_SB(dir->i_sb);
	struct wfs_listing *old = cached_listing(dir), *listing;
	int err;

	if (old && old->gen == atomic_read(&wsb->names_gen) && time_before(jiffies, old->expires))
		return old;
	if (old && wsb->opts.stale && !wfs_session_live()) {
		note_stale(wsb, WFS_I(dir)->path);
		return old;
	}
	listing = new_listing(dir);
	err = PTR_ERR_OR_ZERO(listing);
	if (!err) {
		err = grow_and_keep(dir, listing);
		if (err)
			wfs_listing_put(listing);
	}
	if (err && old && wsb->opts.stale && is_unreachable(err)) {
		note_stale(wsb, WFS_I(dir)->path);
		return old;
	}
	if (old)
		wfs_listing_put(old);
	return err ? ERR_PTR(err) : listing;
}

static u64 entry_ino(const char *dir, const struct wfs_dirent *ent)
{
	char *path = join_path(dir, ent->name, ent->namelen);
	u64 ino;

	if (IS_ERR(path))
		return 2;
	ino = xxh64(path, strlen(path), 0) | 2;
	kfree(path);
	return ino;
}

/* Entries from number ctx->pos - 2 on, as far as the caller takes them. */
static void emit_listing(struct inode *dir, struct wfs_listing *listing, struct dir_context *ctx)
{
	u64 want = ctx->pos - 2;
	struct chunk *chunk;

	list_for_each_entry(chunk, &listing->chunks, link) {
		const struct wfs_dirent *ent = first_entry(chunk);
		u64 number = chunk->first;
		u64 end = number + chunk->page->count;

		if (want >= end)
			continue;
		for (; number < end; number++, ent = next_entry(ent)) {
			if (number < want)
				continue;
			if (!dir_emit(ctx, ent->name, ent->namelen,
				      entry_ino(WFS_I(dir)->path, ent), ent->type))
				return;
			ctx->pos++;
		}
	}
}

/* An open directory sees one listing from its start to its end, and a new one after a rewind. */
static int wfs_iterate(struct file *file, struct dir_context *ctx)
{
	struct inode *dir = file_inode(file);
	struct wfs_listing *listing = file->private_data;
	loff_t begin;

	if (!listing || !ctx->pos) {
		struct wfs_listing *fresh = get_listing(dir);

		if (IS_ERR(fresh))
			return PTR_ERR(fresh);
		/* Shared callers: the descriptor's position lock is held for directories. */
		file->private_data = fresh;
		if (listing)
			wfs_listing_put(listing);
		listing = fresh;
	}
	if (!dir_emit_dots(file, ctx))
		return 0;
	/* To user space with what there is, before more is asked for. */
	begin = ctx->pos;
	for (;;) {
		int err;

		emit_listing(dir, listing, ctx);
		if (ctx->pos != begin || listing->whole || ctx->pos - 2 < listing->count)
			return 0;
		err = grow_and_keep(dir, listing);
		if (err)
			return err;
	}
}

static int wfs_dir_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		wfs_listing_put(file->private_data);
	return 0;
}

const struct file_operations wfs_dir_fops = {
	.owner = THIS_MODULE,
	.iterate_shared = wfs_iterate,
	.release = wfs_dir_release,
	.read = generic_read_dir,
	.llseek = generic_file_llseek,
	.unlocked_ioctl = wfs_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

const struct inode_operations wfs_dir_iops = {
	.lookup = wfs_lookup,
	.getattr = wfs_getattr,
};
