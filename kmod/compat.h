/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compat: interfaces that differ between kernels, in the newest kernel's terms.
 *
 * Included before every file. Kbuild probes for the features.
 */
#ifndef _WFS_COMPAT_H
#define _WFS_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/shrinker.h>

#ifdef WFS_HAVE_URING_CMD_H
#include <linux/io_uring/cmd.h>
#define wfs_uring_payload(ioucmd) io_uring_sqe_cmd((ioucmd)->sqe)
#else
#include <linux/io_uring.h>
#define wfs_uring_payload(ioucmd) ((ioucmd)->cmd)
#endif

#ifdef WFS_HAVE_TASK_DEAD
#define WFS_TASK_DEAD IO_URING_F_TASK_DEAD
#else
#define WFS_TASK_DEAD 0
#endif

#ifndef WFS_HAVE_CANCELABLE
/* Commands cannot be cancelled: flush and release of the device end them. */
#define IO_URING_F_CANCEL 0
static inline void io_uring_cmd_mark_cancelable(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
}
#endif

#ifndef WFS_HAVE_FOLIO_END_READ
static inline void folio_end_read(struct folio *folio, bool success)
{
	if (success)
		folio_mark_uptodate(folio);
	folio_unlock(folio);
}
#endif

/* Folios no smaller than @min where the kernel can promise it; order 0 elsewhere. */
#ifdef WFS_HAVE_ORDER_RANGE
#define wfs_mapping_min_order(mapping) mapping_min_folio_order(mapping)
#define wfs_mapping_max_order(mapping) mapping_max_folio_order(mapping)
static inline void wfs_mapping_set_orders(struct address_space *mapping, unsigned int min,
					  unsigned int max)
{
	mapping_set_folio_order_range(mapping, min, max);
}
#else
static inline unsigned int wfs_mapping_min_order(struct address_space *mapping)
{
	return 0;
}

static inline unsigned int wfs_mapping_max_order(struct address_space *mapping)
{
	return mapping_large_folio_support(mapping) ? HPAGE_PMD_ORDER : 0;
}

static inline void wfs_mapping_set_orders(struct address_space *mapping, unsigned int min,
					  unsigned int max)
{
	if (max >= HPAGE_PMD_ORDER)
		mapping_set_large_folios(mapping);
}
#endif

#ifdef WFS_HAVE_FILEMAP_SPLICE_READ
#define WFS_SPLICE_CALLS_READ_ITER false
#else
#define filemap_splice_read	   generic_file_splice_read
#define WFS_SPLICE_CALLS_READ_ITER true
#endif

#ifdef WFS_HAVE_MNT_IDMAP
#define wfs_idmap			       mnt_idmap
#define wfs_fillattr(idmap, mask, inode, stat) generic_fillattr(idmap, mask, inode, stat)
#else
#define wfs_idmap user_namespace
static inline void wfs_fillattr(struct user_namespace *idmap, u32 mask, struct inode *inode,
				struct kstat *stat)
{
	generic_fillattr(idmap, inode, stat);
}
#endif

#ifndef WFS_HAVE_MTIME_ACCESSORS
static inline struct timespec64 inode_set_mtime_to_ts(struct inode *inode, struct timespec64 ts)
{
	return inode->i_mtime = ts;
}

static inline struct timespec64 inode_set_atime_to_ts(struct inode *inode, struct timespec64 ts)
{
	return inode->i_atime = ts;
}
#endif

#ifdef WFS_HAVE_CONST_XATTR
#define WFS_XATTR_TABLE static const struct xattr_handler *const
#else
#define WFS_XATTR_TABLE static const struct xattr_handler *
#endif

/* Work on the processor that queues it: after the interrupt, or by a thread soon. */
#ifdef WFS_HAVE_WQ_BH
#define WFS_WQ_AT_ONCE WQ_BH
#else
#define WFS_WQ_AT_ONCE (WQ_MEM_RECLAIM | WQ_HIGHPRI)
#endif

#ifdef WFS_HAVE_FOP_FLAGS
#define WFS_FOP_BUFFER_RASYNC .fop_flags = FOP_BUFFER_RASYNC,
#define WFS_FMODE_BUF_RASYNC  0
#else
#define WFS_FOP_BUFFER_RASYNC
#define WFS_FMODE_BUF_RASYNC FMODE_BUF_RASYNC
#endif

#ifndef WFS_HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* One shrinker, registered for the life of the module. */
#ifdef WFS_HAVE_SHRINKER_ALLOC
static inline struct shrinker *
wfs_shrinker_register(unsigned long (*count)(struct shrinker *, struct shrink_control *),
		      unsigned long (*scan)(struct shrinker *, struct shrink_control *))
{
	struct shrinker *shrinker = shrinker_alloc(0, "wfs-sums");

	if (shrinker) {
		shrinker->count_objects = count;
		shrinker->scan_objects = scan;
		shrinker_register(shrinker);
	}
	return shrinker;
}

#define wfs_shrinker_unregister shrinker_free
#else
static inline struct shrinker *
wfs_shrinker_register(unsigned long (*count)(struct shrinker *, struct shrink_control *),
		      unsigned long (*scan)(struct shrinker *, struct shrink_control *))
{
	static struct shrinker shrinker;

	shrinker.count_objects = count;
	shrinker.scan_objects = scan;
	shrinker.seeks = DEFAULT_SEEKS;
	return register_shrinker(&shrinker, "wfs-sums") ? NULL : &shrinker;
}

#define wfs_shrinker_unregister unregister_shrinker
#endif

/* Opened for a file of an overlay, whose name is another one. */
static inline bool wfs_opened_by_overlay(const struct inode *inode, const struct file *file)
{
#ifdef FMODE_BACKING
	if (file->f_mode & FMODE_BACKING)
		return true;
#endif
	return d_inode(file->f_path.dentry) != inode;
}

#endif /* _WFS_COMPAT_H */
