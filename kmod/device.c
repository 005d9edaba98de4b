// SPDX-License-Identifier: GPL-2.0-only
/*
 * device: /dev/wfs, commands by io_uring or by ioctl.
 *
 * A fetch command that finds no request is parked in its session. A request takes
 * the first parked command off and completes it from task work of the thread that
 * submitted it; only there are requests bound to it, so that a thread that dies
 * takes none with it. Whoever takes a command off the list completes it.
 */
#include <linux/cred.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "internal.h"

/**
 * struct wfs_dev - one open descriptor of the device
 * @mutex: set-up
 * @ses: set once, by HELLO or ATTACH
 * @hello: it said HELLO: the session goes with it
 * @slots: memory that requests are written to, mapped by the helper
 * @nslots: number of slots there
 * @busy: slots that belong to the kernel
 */
struct wfs_dev {
	struct mutex mutex; /* set-up */
	struct wfs_session *ses;
	bool hello;
	void *slots;
	u32 nslots;
	unsigned long busy;
};

static_assert(WFS_SLOTS_MAX <= BITS_PER_LONG);

/* A fetch command, in its io_uring_cmd's private room. */
struct parked {
	struct list_head link;
	struct wfs_dev *dev;
	u16 slot;
	u16 max;
};

static_assert(sizeof(struct parked) <= sizeof_field(struct io_uring_cmd, pdu));

static struct parked *to_parked(struct io_uring_cmd *ioucmd)
{
	return (struct parked *)ioucmd->pdu;
}

static struct io_uring_cmd *to_ioucmd(struct parked *p)
{
	return container_of((void *)p, struct io_uring_cmd, pdu);
}

static void end_fetch(struct io_uring_cmd *ioucmd, int res, unsigned int issue_flags)
{
	struct parked *p = to_parked(ioucmd);

	clear_bit_unlock(p->slot, &p->dev->busy);
	io_uring_cmd_done(ioucmd, res, 0, issue_flags);
}

void wfs_end_parked(struct list_head *parked)
{
	struct parked *p;

	for (;;) {
		/* A command that is being cancelled takes itself off this list too. */
		spin_lock(&wfs_chan.lock);
		p = list_first_entry_or_null(parked, struct parked, link);
		if (p)
			list_del_init(&p->link);
		spin_unlock(&wfs_chan.lock);
		if (!p)
			return;
		end_fetch(to_ioucmd(p), -ECANCELED, IO_URING_F_UNLOCKED);
	}
}

/* Task work of the submitter, or of a kernel thread when the submitter is gone. */
static void fetch_task_work(struct io_uring_cmd *ioucmd, unsigned int issue_flags)
{
	struct parked *p = to_parked(ioucmd);
	struct wfs_session *ses = p->dev->ses;
	/* The submitter, or its ring, is going away: no request for it. */
	bool gone = current->flags & (PF_EXITING | PF_KTHREAD) || issue_flags & WFS_TASK_DEAD ||
		    wfs_inject(WFS_INJECT_FETCH);
	int n = -ECANCELED;

	if (!gone) {
		n = wfs_take_requests(ses, p->dev->slots + p->slot * WFS_SLOT_SIZE, WFS_SLOT_SIZE,
				      p->max);
		if (!n)
			n = -ECANCELED;
	}
	spin_lock(&wfs_chan.lock);
	if (n < 0 && !ses->dead && !gone) {
		/* Another took the request: wait for the next. */
		list_add_tail(&p->link, &ses->parked);
		n = 0;
	}
	wfs_kick();
	spin_unlock(&wfs_chan.lock);
	if (n)
		end_fetch(ioucmd, n, issue_flags);
}

void wfs_kick(void)
{
	struct wfs_session *ses = wfs_chan.session;
	struct parked *p;

	lockdep_assert_held(&wfs_chan.lock);
	if (!ses || (list_empty(&wfs_chan.front) && (ses->mounts || list_empty(&wfs_chan.pending))))
		return;
	wake_up(&wfs_chan.wait);
	p = list_first_entry_or_null(&ses->parked, struct parked, link);
	if (p) {
		list_del_init(&p->link);
		io_uring_cmd_complete_in_task(to_ioucmd(p), fetch_task_work);
	}
}

static int cancel_fetch(struct io_uring_cmd *ioucmd, unsigned int issue_flags)
{
	struct parked *p = to_parked(ioucmd);
	bool mine;

	spin_lock(&wfs_chan.lock);
	mine = !list_empty(&p->link);
	list_del_init(&p->link);
	spin_unlock(&wfs_chan.lock);
	if (mine)
		end_fetch(ioucmd, -ECANCELED, issue_flags);
	return 0;
}

static int fetch(struct wfs_dev *dev, struct io_uring_cmd *ioucmd, const struct wfs_cmd *cmd,
		 unsigned int issue_flags)
{
	struct parked *p = to_parked(ioucmd);
	struct wfs_session *ses = dev->ses;
	int n;

	/* A parked command may hold nothing of its ring that others wait for. */
	if (cmd->slot >= dev->nslots || !cmd->max || ioucmd->flags & IORING_URING_CMD_FIXED)
		return -EINVAL;
	if (test_and_set_bit_lock(cmd->slot, &dev->busy))
		return -EBUSY;
	n = wfs_take_requests(ses, dev->slots + cmd->slot * WFS_SLOT_SIZE, WFS_SLOT_SIZE, cmd->max);
	if (n) {
		clear_bit_unlock(cmd->slot, &dev->busy);
		return n;
	}

	INIT_LIST_HEAD(&p->link);
	p->dev = dev;
	p->slot = cmd->slot;
	p->max = cmd->max;
	io_uring_cmd_mark_cancelable(ioucmd, issue_flags);
	spin_lock(&wfs_chan.lock);
	if (ses->dead) {
		spin_unlock(&wfs_chan.lock);
		end_fetch(ioucmd, -ECANCELED, issue_flags);
		return -EIOCBQUEUED;
	}
	list_add_tail(&p->link, &ses->parked);
	wfs_kick();
	spin_unlock(&wfs_chan.lock);
	return -EIOCBQUEUED;
}

/* Fields of struct wfs_cmd that a command may use. */
#define F_ID	 BIT(0)
#define F_NODE	 BIT(1)
#define F_BLOCK	 BIT(2)
#define F_OFFSET BIT(3)
#define F_BUF	 BIT(4)
#define F_STATUS BIT(5)
#define F_FETCH	 BIT(6)

static const u32 cmd_fields[] = {
	[WFS_CMD_FETCH] = F_FETCH,
	[WFS_CMD_COMMIT] = F_ID | F_BUF | F_STATUS,
	[WFS_CMD_COMMIT_FETCH] = F_ID | F_BUF | F_STATUS | F_FETCH,
	[WFS_CMD_DELIVER] = F_ID | F_OFFSET | F_BUF,
	[WFS_CMD_STORED] = F_NODE | F_BLOCK | F_BUF,
	[WFS_CMD_DROPPED] = F_NODE | F_BLOCK,
	[WFS_CMD_EVICT] = F_NODE | F_BLOCK,
	[WFS_CMD_EVICTED] = F_NODE | F_BLOCK,
	[WFS_CMD_OFFER] = F_NODE | F_BLOCK | F_OFFSET | F_BUF,
	[WFS_CMD_INVALIDATE] = F_NODE | F_BUF,
	[WFS_CMD_REOPEN] = F_NODE,
};

static int check_cmd(const struct wfs_dev *dev, const struct wfs_cmd *cmd)
{
	/* Pairs with the release in HELLO and ATTACH. */
	const struct wfs_session *ses = smp_load_acquire(&dev->ses);
	u32 f;

	if (!ses)
		return -ENOTCONN;
	if (!cmd->op || cmd->op >= ARRAY_SIZE(cmd_fields))
		return -EOPNOTSUPP;
	f = cmd_fields[cmd->op];
	if ((cmd->op == WFS_CMD_EVICT ? cmd->flags & ~WFS_EVICT_COLD : cmd->flags) || cmd->pad ||
	    (!(f & F_ID) && cmd->id) || (!(f & F_NODE) && cmd->node) ||
	    (!(f & F_BLOCK) && cmd->block) || (!(f & F_OFFSET) && cmd->offset) ||
	    (!(f & F_BUF) && (cmd->buf || cmd->len)) || (!(f & F_STATUS) && cmd->status) ||
	    ((!(f & F_STATUS) || cmd->fd < -1) && cmd->fd != -1) ||
	    (!(f & F_FETCH) && (cmd->slot || cmd->max)))
		return -EINVAL;
	if (ses->pid != task_tgid(current))
		return -EPERM;
	if (cmd->session != ses->gen || READ_ONCE(ses->dead))
		return -ESTALE;
	if (cmd->len && !wfs_buffers_valid(READ_ONCE(ses->buffers), cmd->buf, cmd->len))
		return -EINVAL;
	return 0;
}

static int invalidate(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	struct wfs_sb *wsb;

	if (cmd->len > WFS_PATH_MAX)
		return -EINVAL;
	wsb = wfs_sb_find(cmd->node);
	if (!wsb)
		return -ENOENT;
	wfs_sb_invalidate(wsb);
	wfs_sb_put(wsb);
	return 0;
}

/* Everything but fetching; never waits for anybody. */
static int run_cmd(struct wfs_session *ses, const struct wfs_cmd *cmd)
{
	switch (cmd->op) {
	case WFS_CMD_COMMIT:
	case WFS_CMD_COMMIT_FETCH:
		return wfs_commit(ses, cmd);
	case WFS_CMD_DELIVER:
		return wfs_deliver(ses, cmd);
	case WFS_CMD_STORED:
		return wfs_stored(ses, cmd);
	case WFS_CMD_DROPPED:
		return wfs_dropped(ses, cmd);
	case WFS_CMD_EVICT:
		return wfs_evict(ses, cmd);
	case WFS_CMD_EVICTED:
		return wfs_evicted(ses, cmd);
	case WFS_CMD_OFFER:
		return wfs_offer(ses, cmd);
	case WFS_CMD_REOPEN:
		return wfs_reopen(ses, cmd);
	case WFS_CMD_INVALIDATE:
		return invalidate(ses, cmd);
	default:
		return -EOPNOTSUPP;
	}
}

static int wfs_dev_uring_cmd(struct io_uring_cmd *ioucmd, unsigned int issue_flags)
{
	struct wfs_dev *dev = ioucmd->file->private_data;
	struct wfs_cmd cmd;
	int err;

	/* Cancel calls carry no other flag that says what they are. */
	if (issue_flags & IO_URING_F_CANCEL)
		return cancel_fetch(ioucmd, issue_flags);
	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	/* Shared memory: copied once, then checked. */
	memcpy(&cmd, wfs_uring_payload(ioucmd), sizeof(cmd));
	barrier();
	if (cmd.op != ioucmd->cmd_op)
		return -EINVAL;
	err = check_cmd(dev, &cmd);
	if (err)
		return err;
	if (cmd.op == WFS_CMD_FETCH)
		return fetch(dev, ioucmd, &cmd, issue_flags);
	err = run_cmd(dev->ses, &cmd);
	if (cmd.op == WFS_CMD_COMMIT_FETCH && err != -EINVAL)
		return fetch(dev, ioucmd, &cmd, issue_flags);
	if (err == -EAGAIN) {
		/* Returned, it would make io_uring run the command again; it is the answer. */
		io_uring_cmd_done(ioucmd, err, 0, issue_flags);
		return -EIOCBQUEUED;
	}
	return err;
}

static int set_slots(struct wfs_dev *dev, u32 nslots)
{
	if (nslots) {
		dev->slots = vmalloc_user(nslots * WFS_SLOT_SIZE);
		if (!dev->slots)
			return -ENOMEM;
		dev->nslots = nslots;
	}
	return 0;
}

static void drop_slots(struct wfs_dev *dev)
{
	vfree(dev->slots);
	dev->slots = NULL;
	dev->nslots = 0;
}

static bool may_serve(struct file *file)
{
	return capable(CAP_SYS_ADMIN) && file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN);
}

static long ioctl_hello(struct file *file, void __user *arg)
{
	struct wfs_dev *dev = file->private_data;
	struct wfs_session *ses;
	struct wfs_hello hello;
	int err;

	if (!may_serve(file))
		return -EPERM;
	if (copy_from_user(&hello, arg, sizeof(hello)))
		return -EFAULT;
	if (hello.protocol != WFS_PROTOCOL)
		return -EPROTO;
	if (hello.flags & ~WFS_HELLO_TAKEOVER || hello.pad || hello.session ||
	    hello.slots > WFS_SLOTS_MAX || dev->ses)
		return -EINVAL;
	err = set_slots(dev, hello.slots);
	if (err)
		return err;
	err = wfs_session_hello(dev, &hello, &ses);
	if (err) {
		drop_slots(dev);
		return err;
	}
	dev->hello = true;
	/* Whoever sees the session sees hello and slots. */
	smp_store_release(&dev->ses, ses);
	if (copy_to_user(arg, &hello, sizeof(hello))) {
		wfs_session_end(ses, "hello failed");
		return -EFAULT;
	}
	return 0;
}

static long ioctl_attach(struct file *file, void __user *arg)
{
	struct wfs_dev *dev = file->private_data;
	struct wfs_session *ses;
	struct wfs_attach attach;
	int err;

	if (!may_serve(file))
		return -EPERM;
	if (copy_from_user(&attach, arg, sizeof(attach)))
		return -EFAULT;
	if (attach.pad || attach.slots > WFS_SLOTS_MAX || dev->ses)
		return -EINVAL;
	err = set_slots(dev, attach.slots);
	if (err)
		return err;
	err = wfs_session_attach(attach.session, &ses);
	if (err) {
		drop_slots(dev);
		return err;
	}
	/* Whoever sees the session sees the slots. */
	smp_store_release(&dev->ses, ses);
	return 0;
}

static long ioctl_buffers(struct wfs_dev *dev, void __user *arg)
{
	struct wfs_memory *buffers;
	struct wfs_buffers in;
	int err;

	if (copy_from_user(&in, arg, sizeof(in)))
		return -EFAULT;
	if (!dev->hello)
		return -EINVAL;
	if (dev->ses->pid != task_tgid(current))
		return -EPERM;
	if (dev->ses->buffers)
		return -EEXIST;
	err = wfs_buffers_pin(&buffers, in.addr, in.len);
	if (err)
		return err;
	/* Commands look at the buffers without the mutex. */
	smp_store_release(&dev->ses->buffers, buffers);
	return 0;
}

static long ioctl_fetch(struct wfs_dev *dev, void __user *arg)
{
	struct wfs_session *ses = dev->ses;
	struct wfs_fetch req;
	void *records;
	unsigned int n;
	long err;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	if (req.flags & ~WFS_FETCH_NONBLOCK || req.pad || !req.max || req.len < WFS_SLOT_SIZE)
		return -EINVAL;
	if (ses->pid != task_tgid(current))
		return -EPERM;
	if (req.session != ses->gen)
		return -ESTALE;
	records = kvzalloc(WFS_SLOT_SIZE, GFP_KERNEL);
	if (!records)
		return -ENOMEM;
	n = wfs_take_requests(ses, records, WFS_SLOT_SIZE, req.max);
	if (!n && !(req.flags & WFS_FETCH_NONBLOCK))
		err = wait_event_interruptible(wfs_chan.wait,
					       (n = wfs_take_requests(ses, records, WFS_SLOT_SIZE,
								      req.max)) ||
						       READ_ONCE(ses->dead));
	else
		err = n ? 0 : -EAGAIN;
	if (n) {
		const struct wfs_request *last = records;
		unsigned int i;

		for (i = 0; i < n; i++)
			last = (const void *)last + last->size;
		if (copy_to_user(u64_to_user_ptr(req.addr), records, (void *)last - records)) {
			wfs_untake_requests(ses, records, n);
			err = -EFAULT;
		} else {
			err = n;
		}
	} else if (READ_ONCE(ses->dead)) {
		err = -ESTALE;
	}
	kvfree(records);
	return err;
}

static long ioctl_cmd(struct wfs_dev *dev, void __user *arg)
{
	struct wfs_cmd cmd;
	int err;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;
	err = check_cmd(dev, &cmd);
	if (err)
		return err;
	if (cmd_fields[cmd.op] & F_FETCH)
		return -EOPNOTSUPP;
	return run_cmd(dev->ses, &cmd);
}

static long wfs_dev_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct wfs_dev *dev = file->private_data;
	void __user *uarg = (void __user *)arg;
	long err;

	switch (cmd) {
	case WFS_IOC_HELLO:
	case WFS_IOC_ATTACH:
		mutex_lock(&dev->mutex);
		err = cmd == WFS_IOC_HELLO ? ioctl_hello(file, uarg) : ioctl_attach(file, uarg);
		mutex_unlock(&dev->mutex);
		return err;
	}
	/* Pairs with the release in HELLO and ATTACH, as below. */
	if (!smp_load_acquire(&dev->ses))
		return -ENOTCONN;
	switch (cmd) {
	case WFS_IOC_BUFFERS:
		mutex_lock(&dev->mutex);
		err = ioctl_buffers(dev, uarg);
		mutex_unlock(&dev->mutex);
		return err;
	case WFS_IOC_DETACH:
		if (!dev->hello || dev->ses->pid != task_tgid(current))
			return -EPERM;
		wfs_session_end(dev->ses, "detached");
		return 0;
	case WFS_IOC_FETCH:
		return ioctl_fetch(dev, uarg);
	case WFS_IOC_CMD:
		return ioctl_cmd(dev, uarg);
	}
	return -ENOTTY;
}

static int wfs_dev_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct wfs_dev *dev = file->private_data;

	/* Pairs with the release in HELLO and ATTACH. */
	if (!smp_load_acquire(&dev->ses))
		return -ENOTCONN;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC) || !(vma->vm_flags & VM_SHARED))
		return -EPERM;
	if (!dev->slots || vma->vm_pgoff ||
	    vma->vm_end - vma->vm_start > (unsigned long)dev->nslots * WFS_SLOT_SIZE)
		return -EINVAL;
	vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
	return remap_vmalloc_range(vma, dev->slots, 0);
}

static int wfs_dev_open(struct inode *inode, struct file *file)
{
	struct wfs_dev *dev;

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	mutex_init(&dev->mutex);
	file->private_data = dev;
	return stream_open(inode, file);
}

/* In its owner's name: the process closes it, or dies. A forked child's close is not. */
static int wfs_dev_flush(struct file *file, fl_owner_t id)
{
	struct wfs_dev *dev = file->private_data;
	/* Pairs with the release in HELLO and ATTACH. */
	struct wfs_session *ses = smp_load_acquire(&dev->ses);
	struct parked *p, *next;
	LIST_HEAD(parked);

	if (!ses || ses->owner != id)
		return 0;
	if (dev->hello) {
		ses->owner = NULL; /* the pointer may be reused */
		wfs_session_end(ses, "closed");
		return 0;
	}
	spin_lock(&wfs_chan.lock);
	list_for_each_entry_safe(p, next, &ses->parked, link)
		if (p->dev == dev)
			list_move_tail(&p->link, &parked);
	spin_unlock(&wfs_chan.lock);
	wfs_end_parked(&parked);
	return 0;
}

static int wfs_dev_release(struct inode *inode, struct file *file)
{
	struct wfs_dev *dev = file->private_data;

	if (dev->ses) {
		if (dev->hello)
			wfs_session_end(dev->ses, "released");
		wfs_session_put(dev->ses);
	}
	drop_slots(dev);
	kfree(dev);
	return 0;
}

static const struct file_operations wfs_dev_fops = {
	.owner = THIS_MODULE,
	.open = wfs_dev_open,
	.flush = wfs_dev_flush,
	.release = wfs_dev_release,
	.unlocked_ioctl = wfs_dev_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = wfs_dev_mmap,
	.uring_cmd = wfs_dev_uring_cmd,
};

static struct miscdevice wfs_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "wfs",
	.mode = 0600,
	.fops = &wfs_dev_fops,
};

int wfs_device_init(void)
{
	return misc_register(&wfs_misc);
}

void wfs_device_exit(void)
{
	misc_deregister(&wfs_misc);
}
