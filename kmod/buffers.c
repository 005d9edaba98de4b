// SPDX-License-Identifier: GPL-2.0-only
/*
 * buffers: the memory that a session's payloads lie in.
 *
 * Pinned once by the helper, shared by all its threads and both transports, so
 * that copying from it cannot fault, least of all on a wfs mapping. User space can
 * change it at any time: what is copied is checked after the copy.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "internal.h"

#define BUFFERS_MAX (64ULL << 30)

struct wfs_memory {
	struct mm_struct *mm;
	u64 len;
	unsigned long npages;
	struct page **pages;
};

static void unpin(struct page **pages, unsigned long npages)
{
	unsigned long i;

	/* Read only by us: never dirty. In steps, since there may be millions. */
	for (i = 0; i < npages; i += 1024) {
		unpin_user_pages(pages + i, min(npages - i, 1024UL));
		cond_resched();
	}
}

/**
 * wfs_buffers_pin() - pin the caller's memory
 * @ret: the buffers, to be freed with wfs_buffers_free()
 * @addr: page-aligned address in the caller's memory
 * @len: bytes, a multiple of the page size
 *
 * Context: process. Return: 0, -EINVAL, -ENOMEM (also beyond RLIMIT_MEMLOCK), -EFAULT.
 */
int wfs_buffers_pin(struct wfs_memory **ret, u64 addr, u64 len)
{
	struct wfs_memory *b;
	unsigned long done = 0;
	int err;

	if (!len || !PAGE_ALIGNED(addr) || !PAGE_ALIGNED(len) || len > BUFFERS_MAX ||
	    addr + len < addr || addr + len > TASK_SIZE_MAX)
		return -EINVAL;
	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	b->len = len;
	b->npages = len >> PAGE_SHIFT;
	b->pages = kvcalloc(b->npages, sizeof(*b->pages), GFP_KERNEL_ACCOUNT);
	if (!b->pages) {
		err = -ENOMEM;
		goto free;
	}
	err = account_locked_vm(current->mm, b->npages, true);
	if (err)
		goto free_pages;
	while (done < b->npages) {
		int n = min(b->npages - done, 4096UL);

		if (fatal_signal_pending(current)) {
			err = -EINTR;
			goto unpin;
		}
		/* For writing, or untouched memory would be pinned as the zero page. */
		n = pin_user_pages_fast(addr + (done << PAGE_SHIFT), n, FOLL_WRITE | FOLL_LONGTERM,
					b->pages + done);
		if (n <= 0) {
			err = n ?: -EFAULT;
			goto unpin;
		}
		done += n;
		cond_resched();
	}
	b->mm = current->mm;
	mmgrab(b->mm);
	*ret = b;
	return 0;

unpin:
	unpin(b->pages, done);
	account_locked_vm(current->mm, b->npages, false);
free_pages:
	kvfree(b->pages);
free:
	kfree(b);
	return err;
}

/* Context: process. */
void wfs_buffers_free(struct wfs_memory *b)
{
	if (!b)
		return;
	unpin(b->pages, b->npages);
	account_locked_vm(b->mm, b->npages, false);
	mmdrop(b->mm);
	kvfree(b->pages);
	kfree(b);
}

bool wfs_buffers_valid(const struct wfs_memory *b, u64 off, u64 len)
{
	return b && IS_ALIGNED(off, 8) && off <= b->len && len <= b->len - off;
}

/* The range must be valid, and inside the folio. Any context. */
void wfs_buffers_to_folio(const struct wfs_memory *b, u64 off, struct folio *folio,
			  size_t folio_off, size_t len)
{
	while (len) {
		size_t from = offset_in_page(off), to = offset_in_page(folio_off);
		size_t n = min3(len, PAGE_SIZE - from, PAGE_SIZE - to);

		memcpy_page(folio_page(folio, folio_off >> PAGE_SHIFT), to,
			    b->pages[off >> PAGE_SHIFT], from, n);
		off += n;
		folio_off += n;
		len -= n;
	}
}

void wfs_buffers_copy(const struct wfs_memory *b, u64 off, void *to, size_t len)
{
	while (len) {
		size_t from = offset_in_page(off);
		size_t n = min(len, PAGE_SIZE - from);

		memcpy_from_page(to, b->pages[off >> PAGE_SHIFT], from, n);
		to += n;
		off += n;
		len -= n;
	}
}

/**
 * wfs_reply_copy() - copy the payload of a reply
 * @reply: the reply
 * @to: where to
 * @len: bytes wanted, at most the payload's
 *
 * Return: 0, or -EINVAL if the payload is shorter or not in the buffers.
 */
int wfs_reply_copy(const struct wfs_reply *reply, void *to, size_t len)
{
	const struct wfs_memory *b = READ_ONCE(reply->session->buffers);

	if (len > reply->len || !wfs_buffers_valid(b, reply->buf, reply->len))
		return -EINVAL;
	wfs_buffers_copy(b, reply->buf, to, len);
	return 0;
}
