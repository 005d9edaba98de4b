// SPDX-License-Identifier: GPL-2.0-only
/*
 * super: mounts, from the first question to the last reference.
 *
 * The helper is asked before a superblock exists: whoever waits inside one hangs
 * sync() for the whole machine. Unmounting fails what is outstanding, waits for disk
 * reads (never for the helper), and only then lets the VFS evict inodes.
 */
#include <linux/backing-dev.h>
#include <linux/fs_context.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include <linux/wait_bit.h>

#include "internal.h"

static LIST_HEAD(mounts);
static DEFINE_SPINLOCK(mounts_lock);
static atomic64_t next_mount_id;

struct wfs_sb *wfs_sb_get(struct wfs_sb *wsb)
{
	refcount_inc(&wsb->refs);
	return wsb;
}

/* Any process context. */
void wfs_sb_put(struct wfs_sb *wsb)
{
	if (!refcount_dec_and_test(&wsb->refs))
		return;
	free_percpu(wsb->stats);
	kfree(wsb->source);
	kfree(wsb->text);
	kfree(wsb);
}

bool wfs_sb_busy_get(struct wfs_sb *wsb)
{
	atomic_inc(&wsb->busy);
	/* Pairs with the barrier in wfs_kill_sb(): it sees the count, or we see dying. */
	smp_mb__after_atomic();
	if (!READ_ONCE(wsb->dying))
		return true;
	wfs_sb_busy_put(wsb);
	return false;
}

void wfs_sb_busy_put(struct wfs_sb *wsb)
{
	if (atomic_dec_and_test(&wsb->busy))
		wake_up_var(&wsb->busy);
}

struct wfs_sb *wfs_sb_next(u64 id)
{
	struct wfs_sb *wsb, *found = NULL;

	/* Ids are given out before the helper is asked, so the list is not sorted. */
	spin_lock(&mounts_lock);
	list_for_each_entry(wsb, &mounts, link)
		if (wsb->id > id && (!found || wsb->id < found->id))
			found = wsb;
	if (found)
		wfs_sb_get(found);
	spin_unlock(&mounts_lock);
	return found;
}

struct wfs_sb *wfs_sb_find(u64 id)
{
	struct wfs_sb *wsb = id ? wfs_sb_next(id - 1) : NULL;

	if (wsb && wsb->id != id) {
		wfs_sb_put(wsb);
		wsb = NULL;
	}
	return wsb;
}

void wfs_sb_invalidate(struct wfs_sb *wsb)
{
	atomic_inc(&wsb->names_gen);
}

static int wfs_statfs(struct dentry *dentry, struct kstatfs *st)
{
	struct super_block *sb = dentry->d_sb;

	/* An object store has no size that means anything here. */
	st->f_type = WFS_SUPER_MAGIC;
	st->f_bsize = PAGE_SIZE;
	st->f_namelen = WFS_NAME_MAX;
	st->f_fsid = u64_to_fsid(huge_encode_dev(sb->s_dev));
	return 0;
}

static int wfs_show_options(struct seq_file *m, struct dentry *root)
{
	return wfs_options_show(m, WFS_SB(root->d_sb));
}

/* umount -f: readers get an error now rather than data later. */
static void wfs_umount_begin(struct super_block *sb)
{
	wfs_req_abort_mount(WFS_SB(sb), false);
}

static const struct super_operations wfs_sops = {
	.alloc_inode = wfs_alloc_inode,
	.free_inode = wfs_free_inode,
	.drop_inode = wfs_drop_inode,
	.evict_inode = wfs_evict_inode,
	.statfs = wfs_statfs,
	.show_options = wfs_show_options,
	.umount_begin = wfs_umount_begin,
};

static struct wfs_sb *alloc_sb(const char *source, const struct wfs_options *opts, char *text)
{
	struct wfs_sb *wsb = kzalloc(sizeof(*wsb), GFP_KERNEL);

	if (!wsb)
		return NULL;
	wsb->source = kstrdup(source, GFP_KERNEL);
	wsb->stats = __alloc_percpu(WFS_STAT_MAX * sizeof(u64), sizeof(u64));
	if (!wsb->source || !wsb->stats) {
		kfree(wsb->source);
		free_percpu(wsb->stats);
		kfree(wsb);
		return NULL;
	}
	refcount_set(&wsb->refs, 1);
	wsb->id = atomic64_inc_return(&next_mount_id);
	wsb->text = text;
	wsb->opts = *opts;
	INIT_LIST_HEAD(&wsb->link);
	return wsb;
}

static int fill_super(struct super_block *sb, const struct wfs_attr *attr)
{
	struct wfs_sb *wsb = WFS_SB(sb);
	struct inode *root;
	int err;

	sb->s_magic = WFS_SUPER_MAGIC;
	sb->s_op = &wfs_sops;
	sb->s_d_op = &wfs_dentry_ops;
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_time_gran = 1;
	sb->s_stack_depth = 1; /* the cache files' filesystem */
	sb->s_flags |= SB_RDONLY | SB_NOATIME;
	sb->s_iflags |= SB_I_NODEV;
	wfs_set_xattr_handlers(sb);
	err = super_setup_bdi(sb);
	if (err)
		return err;
	/*
	 * A block at a time and the next one behind it: a wider window would bring blocks
	 * behind short runs that nobody reads. 4 MiB where blocks are small, for the disk.
	 */
	sb->s_bdi->ra_pages =
		min_t(u64, wsb->opts.readahead, max_t(u64, 1ULL << wsb->opts.block_shift, SZ_4M)) >>
		PAGE_SHIFT;
	/* A read larger than the stream's window is no reason to lock more at once. */
	sb->s_bdi->io_pages = 0;

	root = wfs_inode_get(sb, "", attr);
	if (IS_ERR(root))
		return PTR_ERR(root);
	wfs_inode_refresh(root);
	WRITE_ONCE(WFS_I(root)->gen, atomic_read(&wsb->names_gen));
	sb->s_root = d_make_root(root);
	if (!sb->s_root)
		return -ENOMEM;
	wfs_inject_late(WFS_INJECT_MOUNT, wsb->asked_gen);
	spin_lock(&mounts_lock);
	list_add_tail(&wsb->link, &mounts);
	spin_unlock(&mounts_lock);
	/* A session that began since the answer has walked the list without this mount. */
	wfs_session_add_mount(wsb);
	wfs_event(WFS_EVENT_MOUNT, wsb->id, 0, NULL, wsb->source);
	return 0;
}

/* The same source with the same options shares inodes and pages. */
static int same_mount(struct super_block *sb, struct fs_context *fc)
{
	const struct wfs_sb *old = WFS_SB(sb), *new = fc->s_fs_info;

	return !strcmp(old->source, new->source) && !strcmp(old->text, new->text);
}

/**
 * wfs_get_tree() - mount
 * @fc: with the source
 * @opts: checked options
 * @text: their canonical text; taken over
 *
 * Context: process, no locks; waits killably for the helper.
 */
int wfs_get_tree(struct fs_context *fc, const struct wfs_options *opts, char *text)
{
	struct wfs_sb *wsb = alloc_sb(fc->source, opts, text);
	struct wfs_attr root;
	struct super_block *sb;
	char *message;
	int err;

	if (!wsb) {
		kfree(text);
		return -ENOMEM;
	}
	fc->s_fs_info = wsb; /* dropped with the context, unless a superblock takes it */
	if (!wfs_session_live()) {
		errorf(fc, "wfs: no wfsd is running; start it (systemctl start wfsd), mount again");
		return -ENOTCONN;
	}
	message = kmalloc(WFS_MESSAGE_MAX, GFP_KERNEL);
	if (!message)
		return -ENOMEM;
	err = wfs_ask_mount(wsb, &root, message);
	if (err == -EDEADLK)
		errorf(fc, "wfs: wfsd cannot mount its own filesystem");
	else if (err == -ETIMEDOUT)
		errorf(fc, "wfs: wfsd did not answer for \"%s\" within %u s", fc->source,
		       opts->timeout_s);
	else if (err && err != -EINTR && err != -ERESTARTSYS)
		errorf(fc, "wfs: %s", message[0] ? message : "wfsd refused the source");
	kfree(message);
	if (err)
		return err == -ERESTARTSYS ? -EINTR : err;

	fc->sb_flags |= SB_RDONLY;
	sb = sget_fc(fc, same_mount, set_anon_super_fc);
	if (IS_ERR(sb)) {
		wfs_tell_unmount(wsb);
		return PTR_ERR(sb);
	}
	if (sb->s_root) {
		/* Shared: the one that was just asked for is not needed. */
		wfs_tell_unmount(wsb);
	} else {
		err = fill_super(sb, &root);
		if (err) {
			deactivate_locked_super(sb);
			return err;
		}
		sb->s_flags |= SB_ACTIVE;
	}
	fc->root = dget(sb->s_root);
	return 0;
}

void wfs_kill_sb(struct super_block *sb)
{
	struct wfs_sb *wsb = WFS_SB(sb);
	bool listed;

	if (!wsb) {
		kill_anon_super(sb);
		return;
	}
	spin_lock(&mounts_lock);
	listed = !list_empty(&wsb->link);
	list_del_init(&wsb->link);
	spin_unlock(&mounts_lock);

	wfs_req_abort_mount(wsb, true);
	smp_mb(); /* pairs with wfs_sb_busy_get() */
	wait_var_event(&wsb->busy, !atomic_read(&wsb->busy));
	kill_anon_super(sb);

	wfs_tell_unmount(wsb);
	if (listed)
		wfs_event(WFS_EVENT_UNMOUNT, wsb->id, 0, NULL, wsb->source);
	wfs_sb_put(wsb);
}

struct file_system_type wfs_fs_type = {
	.owner = THIS_MODULE,
	.name = "wfs",
	.init_fs_context = wfs_init_fs_context,
	.kill_sb = wfs_kill_sb,
};
MODULE_ALIAS_FS("wfs");

int wfs_super_init(void)
{
	return register_filesystem(&wfs_fs_type);
}

void wfs_super_exit(void)
{
	unregister_filesystem(&wfs_fs_type);
}
