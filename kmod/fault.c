// SPDX-License-Identifier: GPL-2.0-only
/*
 * fault: mappings.
 *
 * VM_HUGEPAGE makes the generic code read 2 MiB folios on a miss, which is right for
 * streams; but it does so for random touches too, since it looks at that flag before
 * VM_RAND_READ. So a random miss is given one small folio before the generic code looks,
 * which then finds it.
 */
#include <linux/log2.h>
#include <linux/mm.h>

#include "internal.h"

/* Faults that continued no stream, after which a file counts as read at random. */
#define RANDOM_STREAK 8
/* How far ahead of its last miss a stream's next one may lie, in pages. */
#define STREAM_AHEAD (SZ_8M >> PAGE_SHIFT)

/*
 * Streams are kept per inode, not per descriptor or mapping, since threads and
 * processes share those. A miss just after that of one of the last few streams
 * continues it; several in a row that continue none mean random access.
 */
static bool looks_random(struct wfs_inode *wi, pgoff_t index, bool *ret_goes_on)
{
	bool random;
	int i;

	spin_lock(&wi->lock);
	for (i = 0; i < WFS_STREAMS; i++)
		if (index >= wi->streams[i] && index - wi->streams[i] <= STREAM_AHEAD)
			break;
	*ret_goes_on = i < WFS_STREAMS && index - wi->streams[i] <= 1U << WFS_UNIT_ORDER;
	if (i < WFS_STREAMS) {
		wi->streak = 0;
	} else {
		i = wi->next_stream++ % WFS_STREAMS;
		wi->streak++;
	}
	wi->streams[i] = index;
	random = wi->streak >= RANDOM_STREAK;
	spin_unlock(&wi->lock);
	return random;
}

static bool resident(struct address_space *mapping, pgoff_t index)
{
	void *entry = xa_load(&mapping->i_pages, index);

	/* What reclaim has left behind is no folio. */
	return entry && !xa_is_value(entry);
}

/*
 * The folio for a random touch: a unit, which is what can be checked and what is delivered. A
 * program that says that it reads at random has a single page where neither is so; more, up to
 * a unit, if it goes on from there, as with rows.
 */
static unsigned int random_order(const struct vm_fault *vmf, struct wfs_node *node, bool goes_on)
{
	if (!(vmf->vma->vm_flags & VM_RAND_READ) || node->wsb->opts.verify ||
	    !wfs_node_cached_at(node, (loff_t)vmf->pgoff << PAGE_SHIFT))
		return WFS_UNIT_ORDER;
	/* Not over the page before, which is there. */
	return goes_on && vmf->pgoff ? min_t(unsigned int, __ffs(vmf->pgoff), WFS_UNIT_ORDER) : 0;
}

static vm_fault_t wfs_fault(struct vm_fault *vmf)
{
	struct file *file = vmf->vma->vm_file;
	struct inode *inode = file_inode(file);
	struct wfs_inode *wi = WFS_I(inode);
	loff_t size = i_size_read(inode);
	pgoff_t index = vmf->pgoff;
	vm_fault_t ret;

	if (((loff_t)vmf->pgoff << PAGE_SHIFT) >= size)
		return VM_FAULT_SIGBUS;
	if (!resident(file->f_mapping, vmf->pgoff)) {
		unsigned int window = wfs_stream_window(inode, (loff_t)vmf->pgoff << PAGE_SHIFT);
		struct wfs_sb *wsb = WFS_SB(inode->i_sb);
		bool goes_on, random;

		if (wfs_is_helper())
			return VM_FAULT_SIGBUS;
		wfs_count(wsb, WFS_STAT_FAULTS, 1);
		WRITE_ONCE(file->f_ra.ra_pages, window);
		random = looks_random(wi, vmf->pgoff, &goes_on);
		if (vmf->vma->vm_flags & VM_RAND_READ || random) {
			wfs_count(wsb, WFS_STAT_RANDOM_FAULTS, 1);
			wfs_page_cache_add(inode, vmf->pgoff, random_order(vmf, wi->node, goes_on));
		} else if (window < HPAGE_PMD_NR) {
			/* The generic code would lock 4 MiB: more than this reader may. */
			wfs_page_cache_add(inode, vmf->pgoff, ilog2(window));
		}
		/* While it waits the mapping may go, and the file with it. */
		get_file(file);
		ret = filemap_fault(vmf);
		wfs_served_fault(inode, index);
		fput(file);
		return ret;
	}
	return filemap_fault(vmf);
}

static const struct vm_operations_struct wfs_vm_ops = {
	.fault = wfs_fault,
	.map_pages = filemap_map_pages,
};

int wfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct wfs_sb *wsb = WFS_SB(file_inode(file)->i_sb);

	file_accessed(file);
	vma->vm_ops = &wfs_vm_ops;
	/* With "advise" MADV_HUGEPAGE takes the refusal back. */
	vm_flags_set(vma, wsb->opts.huge == WFS_HUGE_ALWAYS ? VM_HUGEPAGE : VM_NOHUGEPAGE);
	return 0;
}
