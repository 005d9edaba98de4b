// SPDX-License-Identifier: GPL-2.0-only
/*
 * file: open files: reads, advice, questions.
 */
#include <linux/fadvise.h>
#include <linux/fs.h>
#include <linux/huge_mm.h>
#include <linux/mount.h>
#include <linux/slab.h>
#include <linux/splice.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "internal.h"

static int wfs_file_open(struct inode *inode, struct file *file)
{
	/*
	 * The name has another version by now: the VFS looks it up again, once. A mount of
	 * the file itself has no name to look up: it keeps its version.
	 */
	if (READ_ONCE(WFS_I(inode)->superseded) &&
	    file->f_path.dentry != file->f_path.mnt->mnt_root)
		return -EOPENSTALE;
	if (!wfs_opened_by_overlay(inode, file))
		WRITE_ONCE(WFS_I(inode)->opened, true);
	else if (WFS_I(inode)->attr_flags & WFS_ATTR_UNPROVEN)
		/* An overlay cannot do with another inode: at least no unused page of before. */
		invalidate_mapping_pages(inode->i_mapping, 0, -1);
	file->f_mode |= FMODE_NOWAIT | FMODE_CAN_ODIRECT | WFS_FMODE_BUF_RASYNC;
	return 0;
}

/* The page cache makes EIO of every failure: say what it was, if it is still known. */
static ssize_t real_error(struct inode *inode, loff_t pos, size_t len, ssize_t ret)
{
	if (ret == -EIO)
		return wfs_node_recent_error(WFS_I(inode)->node, pos, len) ?: -EIO;
	return ret;
}

static void count_read(struct inode *inode, loff_t pos, ssize_t ret)
{
	wfs_count(WFS_SB(inode->i_sb), WFS_STAT_READS, 1);
	if (ret > 0) {
		wfs_count(WFS_SB(inode->i_sb), WFS_STAT_READ_BYTES, ret);
		wfs_served_read(inode, pos, ret);
	}
}

/* Checked and coherent; also what is asked for with O_DIRECT. */
static ssize_t read_pages(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	size_t len = iov_iter_count(to);
	loff_t pos = iocb->ki_pos;
	ssize_t ret;

	iocb->ki_flags &= ~IOCB_DIRECT;
	if (pos < i_size_read(inode))
		WRITE_ONCE(iocb->ki_filp->f_ra.ra_pages, wfs_stream_window(inode, pos));
	ret = filemap_read(iocb, to, 0);
	count_read(inode, pos, ret);
	return real_error(inode, pos, len, ret);
}

static ssize_t wfs_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	ssize_t direct = 0, ret = 0;

	if (iocb->ki_flags & IOCB_DIRECT) {
		direct = wfs_direct_read(iocb, to);
		if (direct < 0)
			return direct;
	}
	/* The last bytes of a file are no whole sector; and what the disk would not give. */
	if (!direct || iov_iter_count(to))
		ret = read_pages(iocb, to);
	else
		wfs_count(WFS_SB(file_inode(iocb->ki_filp)->i_sb), WFS_STAT_READS, 1);
	return direct ? direct + max_t(ssize_t, ret, 0) : ret;
}

static ssize_t wfs_splice_read(struct file *file, loff_t *ppos, struct pipe_inode_info *pipe,
			       size_t len, unsigned int flags)
{
	struct inode *inode = file_inode(file);
	loff_t pos = *ppos;
	ssize_t ret;

	if (pos < i_size_read(inode))
		WRITE_ONCE(file->f_ra.ra_pages, wfs_stream_window(inode, pos));
	ret = filemap_splice_read(file, ppos, pipe, len, flags);
	if (!WFS_SPLICE_CALLS_READ_ITER)
		count_read(inode, pos, ret);
	return real_error(inode, pos, len, ret);
}

/* WILLNEED brings the blocks of the whole range near; the rest is as everywhere. */
static int wfs_fadvise(struct file *file, loff_t offset, loff_t len, int advice)
{
	struct inode *inode = file_inode(file);
	loff_t size = i_size_read(inode);

	if (advice == POSIX_FADV_WILLNEED && offset >= 0 && len >= 0 && offset < size &&
	    !wfs_is_helper())
		return wfs_io_prefetch(WFS_I(inode)->node, offset,
				       len && len < size - offset ? len : size - offset);
	return generic_fadvise(file, offset, len, advice);
}

static u64 resident_bytes(struct inode *inode)
{
	return min_t(u64, (u64)inode->i_mapping->nrpages << PAGE_SHIFT,
		     round_up(i_size_read(inode), PAGE_SIZE));
}

static long ioctl_file_info(struct file *file, void __user *arg)
{
	struct inode *inode = file_inode(file);
	struct wfs_inode *wi = WFS_I(inode);
	struct wfs_sb *wsb = WFS_SB(inode->i_sb);
	struct wfs_file_info *info;
	long err = 0;

	info = kzalloc(sizeof(*info), GFP_KERNEL);
	if (!info)
		return -ENOMEM;
	info->mount = wsb->id;
	info->block_size = 1U << wsb->opts.block_shift;
	info->flags = wi->attr_flags;
	info->path_len = strlen(wi->path);
	info->version_len = strlen(wi->version);
	memcpy(info->path, wi->path, info->path_len);
	memcpy(info->version, wi->version, info->version_len);
	if (wi->node) {
		if (wfs_session_live() && !wfs_is_helper())
			err = wfs_io_probe(wi->node, 0, U64_MAX);
		info->node = wi->node->id;
		info->size = i_size_read(inode);
		info->cached = wfs_node_cached_bytes(wi->node);
		info->resident = resident_bytes(inode);
	}
	if (err != -EINTR && err != -ERESTARTSYS)
		err = copy_to_user(arg, info, sizeof(*info)) ? -EFAULT : 0;
	kfree(info);
	return err;
}

static long ioctl_prefetch(struct file *file, void __user *arg)
{
	struct inode *inode = file_inode(file);
	u64 size = i_size_read(inode);
	struct wfs_prefetch range;

	if (copy_from_user(&range, arg, sizeof(range)))
		return -EFAULT;
	if (!S_ISREG(inode->i_mode))
		return -EISDIR;
	if (range.offset > size || range.len > size - range.offset)
		return -EINVAL;
	if (wfs_is_helper())
		return -EDEADLK;
	if (!range.len)
		range.len = size - range.offset;
	return range.len ? wfs_io_prefetch(WFS_I(inode)->node, range.offset, range.len) : 0;
}

/* Files and directories alike. */
long wfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case WFS_IOC_FILE_INFO:
		return ioctl_file_info(file, (void __user *)arg);
	case WFS_IOC_PREFETCH:
		return ioctl_prefetch(file, (void __user *)arg);
	}
	return -ENOTTY;
}

static unsigned long wfs_get_unmapped_area(struct file *file, unsigned long addr, unsigned long len,
					   unsigned long pgoff, unsigned long flags)
{
	return thp_get_unmapped_area(file, addr, len, pgoff, flags);
}

const struct file_operations wfs_file_fops = {
	.owner = THIS_MODULE,
	.open = wfs_file_open,
	.llseek = generic_file_llseek,
	.read_iter = wfs_read_iter,
	.splice_read = wfs_splice_read,
	.mmap = wfs_mmap,
	.get_unmapped_area = wfs_get_unmapped_area,
	.fadvise = wfs_fadvise,
	.unlocked_ioctl = wfs_ioctl,
	WFS_FOP_BUFFER_RASYNC.compat_ioctl = compat_ptr_ioctl,
};

const struct inode_operations wfs_file_iops = {
	.getattr = wfs_getattr,
	.listxattr = wfs_listxattr,
};
