/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the module share, grouped by file.
 *
 * super -> names, dir, file -> pages -> folioio -> { node, blockmap, fill, cachefile }
 * -> upcall -> session, device. The upcall layer knows requests, not inodes; the
 * block map knows neither.
 *
 * Locks, outermost first:
 *	wfs_dev.mutex		one descriptor's set-up
 *	session_mutex		beginning and end of sessions
 *	wfs_node.lock		spinlock: block states, live requests of a node
 *	wfs_chan.lock		spinlock: requests, session, parked commands
 *	sums_lock		spinlock: which windows have sums
 * Pins of blocks are atomics and drop without a lock. Nothing of ours is held across a call
 * into the backing filesystem but folio locks.
 */
#ifndef _WFS_INTERNAL_H
#define _WFS_INTERNAL_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/pagemap.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "../uapi/wfs.h"
#include "blockmap.h"
#include "debugfs.h"

struct genl_info;
struct mem_cgroup;
struct seq_file;
struct wfs_memory;
struct wfs_cachefile;
struct wfs_dev;
struct wfs_node;
struct wfs_session;

/* Order of a folio of one unit of checksums. */
#define WFS_UNIT_ORDER (WFS_UNIT_SHIFT - PAGE_SHIFT)

/* ---- options.c, super.c: mounts ---- */

enum wfs_huge { WFS_HUGE_ALWAYS, WFS_HUGE_ADVISE, WFS_HUGE_NEVER };

#define WFS_TTL_NEVER ((u64)-1)

struct wfs_options {
	u32 block_shift;
	u64 ttl_ms; /* WFS_TTL_NEVER: for ever */
	u64 negative_ttl_ms;
	u32 timeout_s; /* 0: for ever */
	u32 name_timeout_s;
	u64 readahead; /* bytes */
	enum wfs_huge huge;
	bool stale;
	bool verify;
	bool prefetch;
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
	umode_t dmode;
};

/**
 * struct wfs_sb - one superblock, one mounted source
 * @refs: the superblock, its nodes and its requests hold one each
 * @id: the mount id of uapi
 * @source: as given to mount
 * @text: the options in their canonical form, "key=value" lines
 * @link: in the list of mounts
 * @sb: valid while !@dying and s_active is held
 * @asked_gen: session that was asked to mount it
 * @dying: no request is accepted any more (under wfs_chan.lock)
 * @names_gen: names and attributes learnt under another value are to be asked again
 * @busy: cache reads and offers in flight, waited for by unmount
 * @locked: bytes of folios locked in flight
 * @prefetches: blocks to be prefetched: not yet asked for, or outstanding
 * @nodes: live nodes
 */
struct wfs_sb {
	refcount_t refs;
	u64 id;
	char *source;
	char *text;
	struct wfs_options opts;
	struct list_head link;
	u64 asked_gen;
	bool dying;
	atomic_t names_gen;
	atomic_t busy;
	atomic64_t locked;
	atomic_t prefetches;
	atomic64_t nodes;
	u64 __percpu *stats;
};

static inline struct wfs_sb *WFS_SB(const struct super_block *sb)
{
	return sb->s_fs_info;
}

int wfs_init_fs_context(struct fs_context *fc);
int wfs_options_show(struct seq_file *m, const struct wfs_sb *wsb);

struct wfs_sb *wfs_sb_get(struct wfs_sb *wsb);
void wfs_sb_put(struct wfs_sb *wsb);
/* Marks work in flight that unmount must wait for; false once the mount is dying. */
bool wfs_sb_busy_get(struct wfs_sb *wsb);
void wfs_sb_busy_put(struct wfs_sb *wsb);
int wfs_get_tree(struct fs_context *fc, const struct wfs_options *opts, char *text);
void wfs_kill_sb(struct super_block *sb);
int wfs_super_init(void);
void wfs_super_exit(void);
/* Mounts, for control: next one whose id is above @id, with a reference, or NULL. */
struct wfs_sb *wfs_sb_next(u64 id);
struct wfs_sb *wfs_sb_find(u64 id);
/* Names must be asked again from now on. */
void wfs_sb_invalidate(struct wfs_sb *wsb);
extern struct file_system_type wfs_fs_type;

/* ---- inode.c: inodes, their attributes ---- */

struct wfs_listing;

/**
 * struct wfs_inode - one version of one object, or a directory or link
 * @expires: jiffies until which attributes count as fresh; see wfs_inode_fresh()
 * @gen: names_gen of the mount when they were learnt
 * @superseded: the name has another version now
 * @attr_flags: WFS_ATTR_*
 * @path: below the mount, no leading slash; belongs to the inode
 * @version: version string, NUL-terminated; belongs to the inode
 * @node: what requests refer to, files only
 * @target: of a symbolic link, once known
 * @listing: of a directory, under @lock
 * @streak: faults in a row that continued no stream (under @lock)
 * @streams: where the last streams of faults are, in pages (under @lock)
 * @next_stream: the slot that a new stream takes (under @lock)
 */
#define WFS_STREAMS 8

struct wfs_inode {
	struct inode vfs;
	unsigned long expires;
	int gen;
	bool superseded;
	bool opened;
	u32 attr_flags;
	char *path;
	char *version;
	struct wfs_node *node;
	char *target;
	spinlock_t lock; /* listing, streams */
	struct wfs_listing *listing;
	unsigned int streak;
	pgoff_t streams[WFS_STREAMS];
	unsigned int next_stream;
};

static inline struct wfs_inode *WFS_I(const struct inode *inode)
{
	return container_of(inode, struct wfs_inode, vfs);
}

struct inode *wfs_inode_get(struct super_block *sb, const char *path, const struct wfs_attr *attr);
void wfs_inode_refresh(struct inode *inode);
bool wfs_inode_fresh(const struct inode *inode);
bool wfs_inode_same(const struct inode *inode, const struct wfs_attr *attr);
void wfs_inode_supersede(struct inode *inode);
/* jiffies until which something learnt now with a ttl in ms is fresh. */
unsigned long wfs_expiry(u64 ttl_ms);
struct inode *wfs_alloc_inode(struct super_block *sb);
void wfs_free_inode(struct inode *inode);
void wfs_evict_inode(struct inode *inode);
int wfs_drop_inode(struct inode *inode);
int wfs_getattr(struct wfs_idmap *idmap, const struct path *path, struct kstat *stat, u32 mask,
		unsigned int flags);
ssize_t wfs_listxattr(struct dentry *dentry, char *list, size_t size);
void wfs_set_xattr_handlers(struct super_block *sb);
int wfs_inode_init(void);
void wfs_inode_exit(void);

/* ---- names.c: questions about names, asked of the helper ---- */

int wfs_ask_mount(struct wfs_sb *wsb, struct wfs_attr *ret_root, char *message);
int wfs_ask_lookup(struct wfs_sb *wsb, const char *path, struct wfs_attr *ret_attr);
int wfs_ask_getattr(struct wfs_sb *wsb, const char *path, const char *version,
		    struct wfs_attr *ret_attr);
int wfs_ask_readlink(struct wfs_sb *wsb, const char *path, char **ret_target);
/* One page of a directory; *ret_page is kvfree()d by the caller. */
int wfs_ask_readdir(struct wfs_sb *wsb, const char *path, const char *after,
		    struct wfs_readdir_reply **ret_page, u32 *ret_len);
void wfs_tell_unmount(struct wfs_sb *wsb);

/* ---- dir.c: directories and dentries ---- */

extern const struct inode_operations wfs_dir_iops;
extern const struct inode_operations wfs_symlink_iops;
extern const struct file_operations wfs_dir_fops;
extern const struct dentry_operations wfs_dentry_ops;
void wfs_listing_put(struct wfs_listing *listing);

/* ---- file.c, fault.c: files ---- */

extern const struct file_operations wfs_file_fops;
extern const struct inode_operations wfs_file_iops;
int wfs_mmap(struct file *file, struct vm_area_struct *vma);
long wfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

/* ---- pages.c: the page cache ---- */

extern const struct address_space_operations wfs_aops;
unsigned int wfs_stream_window(struct inode *inode, loff_t pos);
/* One folio of at most @order at @index, added locked and being read; 0 or -errno. */
int wfs_page_cache_add(struct inode *inode, pgoff_t index, unsigned int order);

size_t wfs_page_cache_offer(struct inode *inode, loff_t pos, size_t len,
			    const struct wfs_memory *buffers, u64 buf);

/* ---- direct.c: O_DIRECT ---- */

ssize_t wfs_direct_read(struct kiocb *iocb, struct iov_iter *to);

/* ---- folioio.c: folios in flight ---- */

struct wfs_io;

/**
 * struct wfs_seg - the part of one folio that lies in one block
 * @link: in the list of the request it waits for
 * @io: the folio in flight
 * @block: number of the block
 * @unit: first unit, counted from the start of the block
 * @units: number of units
 */
struct wfs_seg {
	struct list_head link;
	struct wfs_io *io;
	u64 block;
	u32 unit;
	u32 units;
};

enum wfs_io_kind {
	WFS_IO_READ,	 /* a locked folio */
	WFS_IO_PROBE,	 /* somebody wants the block states known, and waits */
	WFS_IO_PREFETCH, /* absent blocks are asked for, nobody waits */
};

/**
 * struct wfs_io - a folio being read, or a question about blocks
 * @refs: one a segment, and the submitter's
 * @reader: the process that asks
 * @left: parts (units of the folio) that have not ended
 * @claimed: bit per part: whoever sets it ends the part; nobody else touches it
 * @error: first error of a part
 * @pos: offset of the folio in the file
 * @bytes: object bytes in it
 * @delivered: the helper brought some of them
 * @nsegs: entries of @segs
 * @done: PROBE
 * @free: for the deferred drop of the inode reference
 */
struct wfs_io {
	refcount_t refs;
	enum wfs_io_kind kind;
	u32 why;
	u32 reader;
	atomic_t left;
	unsigned long claimed;
	int error;
	loff_t pos;
	size_t bytes;
	size_t locked;
	bool delivered;
	struct folio *folio;
	struct inode *inode;
	struct wfs_node *node;
	struct wfs_sb *wsb;
	struct completion *done;
	struct llist_node free;
	u32 nsegs;
	struct wfs_seg segs[];
};

/* Starts to read a locked folio of @inode into it; it is unlocked when that ends. */
void wfs_io_read(struct inode *inode, struct folio *folio, u32 why, struct list_head *segs);
/* Makes block states of a range known, as far as a helper can tell; killable. */
int wfs_io_probe(struct wfs_node *node, u64 pos, u64 len);
/* Asks for absent blocks of a range. */
int wfs_io_prefetch(struct wfs_node *node, u64 pos, u64 len);
/* Finds out what each segment needs and starts it. Sleeps for memory only. */
void wfs_route(struct wfs_node *node, struct list_head *segs);
/* Claims unit @unit of the block for the segment's folio: true: the caller must end it. */
bool wfs_seg_claim(struct wfs_seg *seg, u32 unit);
void wfs_seg_end_unit(struct wfs_seg *seg, int error);
/* Fails all units of the segment that nobody has claimed. */
void wfs_seg_fail(struct wfs_seg *seg, int error);
void wfs_seg_put(struct wfs_seg *seg);
/* Does the folio hold the units of the segment wholly? It is aligned to its size. */
static inline bool wfs_seg_holds_units(const struct wfs_seg *seg)
{
	return folio_size(seg->io->folio) >= WFS_UNIT_SIZE;
}

/* Where the unit's bytes lie: offset in the folio, and how many object bytes. */
size_t wfs_seg_span(const struct wfs_seg *seg, u32 unit, size_t *ret_folio_off,
		    size_t *ret_unit_off);
/* All object bytes of it: offset in the folio, in the file, and how many. */
size_t wfs_seg_range(const struct wfs_seg *seg, size_t *ret_folio_off, loff_t *ret_pos);
void wfs_folioio_exit(void);

/* ---- upcall.c: requests ---- */

struct wfs_req;

/* What the helper answered. The payload is checked and copied by wfs_reply_copy(). */
struct wfs_reply {
	struct wfs_session *session;
	s32 status;
	s32 fd;
	u64 buf;
	u32 len;
};

/**
 * struct wfs_req_ops - what a kind of request does
 * @reply: takes a reply (of any status); -EINVAL: it is malformed, the request still
 *	waits; another -errno: ends with that. NULL: no payload is expected. May sleep.
 * @end: called once, when the request has ended; status 0 or -errno. Process context,
 *	no locks, must not wait.
 * @free: the last reference is gone.
 */
struct wfs_req_ops {
	int (*reply)(struct wfs_req *req, const struct wfs_reply *reply);
	void (*end)(struct wfs_req *req, int status);
	void (*free)(struct wfs_req *req);
};

enum wfs_req_state {
	WFS_REQ_NEW,
	WFS_REQ_HELD,	 /* not to be sent yet */
	WFS_REQ_PENDING, /* in the list of the channel */
	WFS_REQ_SENT,
	WFS_REQ_BUSY, /* a reply is being taken */
	WFS_REQ_ENDED,
};

/**
 * struct wfs_req - one request
 * @hash, @all: among the live requests of the channel, the latter by rising id
 * @link: in wfs_chan.front or .pending, or in the node's list of held requests
 * @session: generation that it was sent to
 * @deadline: jiffies, 0: none
 * @answer_s: deadline in seconds from when a helper gets it, 0: @deadline is as submitted
 * @released: to be sent at once although submitted as held
 * @kill: ended with this while a reply was being taken
 * @born: when it was submitted, for tracing
 * @node: keeps a reference, but for FORGET
 * @node_id: id of the node
 * @reader: FILL: the process that asked first
 * @str1, @str2: strings of the payload, alive while the request is
 */
struct wfs_req {
	refcount_t refs;
	const struct wfs_req_ops *ops;
	struct hlist_node hash;
	struct list_head all;
	struct list_head link;
	enum wfs_req_state state;
	u32 opcode;
	u32 flags;
	u32 why;
	u64 id;
	u64 session;
	unsigned long deadline;
	u32 answer_s;
	ktime_t born;
	bool released;
	int kill;
	struct wfs_sb *wsb;
	struct wfs_node *node;
	u64 node_id;
	u64 block;
	u32 unit;
	u32 units;
	u32 window;
	u32 reader;
	const char *str1;
	const char *str2;
};

void wfs_req_init(struct wfs_req *req, const struct wfs_req_ops *ops, u32 opcode,
		  struct wfs_sb *wsb, struct wfs_node *node);
struct wfs_req *wfs_req_get(struct wfs_req *req);
void wfs_req_put(struct wfs_req *req);
/*
 * As wfs_req_submit(), to be sent before all others. The time begins when a helper gets it:
 * one that takes over may have to wait for the other first.
 */
void wfs_req_submit_front(struct wfs_req *req, u32 answer_s);
/* Queues a request with its deadline in seconds (0: none). Its end is sure to come. */
void wfs_req_submit(struct wfs_req *req, u32 timeout_s);
/* As wfs_req_submit(), but sent only after wfs_req_release(). */
void wfs_req_submit_held(struct wfs_req *req, u32 timeout_s);
void wfs_req_release(struct wfs_req *req);
/* Takes back what a dead session was given (session.c). */
void wfs_reqs_session_ended(struct wfs_session *ses);
/* Ends a request nobody wants any more; end() is called unless it was already. */
void wfs_req_cancel(struct wfs_req *req, int status);
/* Ends every request of a mount, and refuses further ones. */
void wfs_req_abort_mount(struct wfs_sb *wsb, bool dying);
/* A request of the current session by id, with a reference, or NULL. */
struct wfs_req *wfs_req_find(struct wfs_session *ses, u64 id, u32 opcode);
u64 wfs_req_outstanding(struct wfs_sb *wsb);
/* The node was opened in this session: its held requests go on. */
bool wfs_req_node_opened(struct wfs_node *node, u64 gen, int status);

int wfs_commit(struct wfs_session *ses, const struct wfs_cmd *cmd);
/* Copies requests into @to, at most @max in @room bytes; the number. */
unsigned int wfs_take_requests(struct wfs_session *ses, void *to, size_t room, unsigned int max);
/* Puts requests back that were taken but could not be handed over. */
void wfs_untake_requests(struct wfs_session *ses, const void *from, unsigned int count);
void wfs_upcall_init(void);
void wfs_upcall_exit(void);

/* ---- session.c: the helper's presence ---- */

/**
 * struct wfs_session - one life of a helper
 * @gen: generation, never 0
 * @features: WFS_FEATURE_* that both sides know
 * @owner: current->files at HELLO, for flush
 * @pid: the helper's process
 * @dead: ended (under wfs_chan.lock)
 * @parked: fetch commands waiting for requests (under wfs_chan.lock)
 * @end_parked: ends them after the session
 * @mounts: resumed mounts not answered yet; other requests wait for them
 * @opens: resumed files not answered yet, and one while they are being queued
 */
struct wfs_session {
	refcount_t refs;
	u64 gen;
	fl_owner_t owner;
	struct pid *pid;
	u64 features;
	struct wfs_memory *buffers;
	struct list_head parked;
	struct work_struct end_parked;
	bool dead;
	unsigned int mounts;
	unsigned int opens;
};

/**
 * struct wfs_chan - the one channel
 * @lock: requests, session, parked commands
 * @front: requests that a new session must see before all others
 * @pending: requests to be sent, oldest first
 * @reqs: all live requests by id
 * @all: the same, by rising id
 * @told: nodes that some helper was told of
 * @wait: FETCH of the ioctl transport
 */
struct wfs_chan {
	spinlock_t lock; /* everything here */
	struct wfs_session *session;
	struct list_head front;
	struct list_head pending;
	DECLARE_HASHTABLE(reqs, 10);
	struct list_head all;
	struct list_head told;
	u64 next_id;
	u64 next_gen;
	wait_queue_head_t wait;
	struct delayed_work deadlines;
};

extern struct wfs_chan wfs_chan;

int wfs_session_hello(struct wfs_dev *dev, struct wfs_hello *hello, struct wfs_session **ret);
int wfs_session_attach(u64 gen, struct wfs_session **ret);
void wfs_session_end(struct wfs_session *ses, const char *why);
struct wfs_session *wfs_session_get(struct wfs_session *ses);
void wfs_session_put(struct wfs_session *ses);
bool wfs_session_live(void);
/* Whether the live session, if any, is that generation; may change at once. */
bool wfs_session_is(u64 gen);
/* A mount has been listed: tells the session, if it is another than was asked. */
void wfs_session_add_mount(struct wfs_sb *wsb);
pid_t wfs_session_pid(u64 *ret_gen);
/* Is the caller the helper itself, which would wait for itself? */
bool wfs_is_helper(void);
/* A resumed mount or file was answered; after the last, RESUMED is sent. */
void wfs_session_mount_resumed(u64 gen);
void wfs_session_open_resumed(u64 gen);

/* ---- device.c: /dev/wfs, the two transports ---- */

int wfs_device_init(void);
void wfs_device_exit(void);
/* Wakes a waiting fetch, if any; wfs_chan.lock held. */
void wfs_kick(void);
/* Ends every fetch in the list (taken from wfs_session.parked), no lock held. */
void wfs_end_parked(struct list_head *parked);

/* ---- buffers.c: the helper's pinned memory ---- */

int wfs_buffers_pin(struct wfs_memory **ret, u64 addr, u64 len);
void wfs_buffers_free(struct wfs_memory *buffers);
bool wfs_buffers_valid(const struct wfs_memory *buffers, u64 off, u64 len);
void wfs_buffers_to_folio(const struct wfs_memory *buffers, u64 off, struct folio *folio,
			  size_t folio_off, size_t len);
void wfs_buffers_copy(const struct wfs_memory *buffers, u64 off, void *to, size_t len);
/* A reply payload: checked against the session's buffers, then copied. */
int wfs_reply_copy(const struct wfs_reply *reply, void *to, size_t len);

/* ---- node.c: versions of objects, as the channel knows them ---- */

/* A request of a node, and the segments that wait for it. */
struct wfs_nreq {
	struct wfs_req req;
	struct list_head segs;	  /* under wfs_node.lock, append-only */
	struct list_head link;	  /* wfs_node.reqs */
	struct wfs_cachefile *cf; /* OPEN: what the answer brought */
	int status;		  /* FILL: how it ended */
	unsigned long delivered[BITS_TO_LONGS(WFS_BLOCK_MAX >> WFS_UNIT_SHIFT)];
};

#define WFS_NODE_ERRORS 4

/**
 * struct wfs_node - one version of one object
 * @refs: the inode, its requests and its reads hold one each
 * @id: node id of uapi
 * @geo: size and block size
 * @path, @version: belong to the node
 * @inode: NULL once evicted, under @lock
 * @opened: an OPEN was answered once; @cf and the map are valid
 * @cf: cache file, or NULL: nothing is cached; under @lock
 * @windows: struct wfs_window by number; entries live as long as the node
 * @epoch: of what their states have to be, under @lock; wfs_node_window_now() sees to it
 * @reqs: live MAP and FILL requests (under @lock)
 * @opening: an OPEN is under way (under @lock)
 * @again: its answer may be out of date: another follows (under @lock)
 * @owed: session that is told RESUMED only after it has answered it, or 0 (under @lock)
 * @open_segs: segments that wait for the first OPEN (under @lock)
 * @open_gen: session in which it was opened last, under wfs_chan.lock
 * @held: requests that wait for that, under wfs_chan.lock
 * @resume_gen: session whose resuming has come by the node, or that it is new to
 * @told: a helper knows the node, under wfs_chan.lock
 * @link: in the list of told nodes, under wfs_chan.lock
 * @hash: in the table of nodes
 * @forget: tells the helper that the node is gone; frees it
 * @memcg: of the last reader that missed, for what is offered (under @lock)
 * @errors: recent failures, by ranges of blocks, for read_folio and read_iter
 * @last_error: the newest of them
 * @locked: bytes of folios locked in flight
 */
struct wfs_node {
	refcount_t refs;
	u64 id;
	struct wfs_sb *wsb;
	struct wfs_geometry geo;
	char *path;
	char *version;
	spinlock_t lock; /* block states, live requests */
	struct inode *inode;
	bool opened;
	bool opening;
	bool again;
	u64 owed;
	struct wfs_cachefile *cf;
	struct xarray windows;
	struct wfs_epoch epoch;
	struct list_head reqs;
	struct list_head open_segs;
	u64 open_gen;
	u64 resume_gen;
	struct list_head held;
	bool told;
	struct list_head link;
	struct hlist_node hash;
	struct wfs_req forget;
	struct mem_cgroup *memcg;
	struct {
		u64 first;
		u64 last;
		unsigned long until;
		int error;
	} errors[WFS_NODE_ERRORS];
	unsigned int last_error;
	atomic64_t locked;
};

int wfs_node_create(struct inode *inode, const char *path, const char *version,
		    struct wfs_node **ret);
struct wfs_node *wfs_node_get(struct wfs_node *node);
void wfs_node_put(struct wfs_node *node);
/* The inode goes: tells the helper, drops the inode's reference. Does not allocate. */
void wfs_node_evict(struct wfs_node *node);
struct wfs_node *wfs_node_find(u64 id);
void wfs_node_charge_to(struct wfs_node *node, struct task_struct *task);
/* Tells a new session of all nodes that an earlier one knew. */
void wfs_node_resume_all(struct wfs_session *ses);
/* Starts an OPEN; node->opening was set by the caller. */
void wfs_node_open(struct wfs_node *node);
/* Asks OPEN of it once more, now or after the one under way; 0 or -ENOMEM. */
int wfs_node_reopen(struct wfs_node *node, gfp_t gfp);
/* The window, made if need be; NULL: no memory. */
struct wfs_window *wfs_node_window(struct wfs_node *node, u32 window);
struct wfs_window *wfs_node_window_now(struct wfs_node *node, u32 window);
struct mem_cgroup *wfs_node_memcg(struct wfs_node *node);
struct wfs_nreq *wfs_nreq_alloc(void);

/* Puts a segment into the list of a request, node->lock held. */
static inline void wfs_nreq_join(struct wfs_nreq *nreq, struct wfs_seg *seg)
{
	list_add_tail(&seg->link, &nreq->segs);
}

void wfs_nreq_free(struct wfs_req *req);
void wfs_node_ask_map(struct wfs_node *node, struct wfs_nreq *nreq, u32 window);
void wfs_node_note_error(struct wfs_node *node, u64 block, int error);
int wfs_node_recent_error(struct wfs_node *node, loff_t pos, u64 len);
u64 wfs_node_cached_bytes(struct wfs_node *node);
/* Is the block at a position cached, as far as is known? A hint: a look without a lock. */
bool wfs_node_cached_at(struct wfs_node *node, loff_t pos);
void wfs_segs_fail(struct list_head *segs, int error);

/* ---- fill.c: blocks on their way in and out ---- */

/* Makes @nreq the FILL request for a range of a block; node->lock held. */
void wfs_fill_init(struct wfs_nreq *nreq, struct wfs_node *node, u64 block, u32 unit, u32 units,
		   u32 why, u32 flags);
bool wfs_fill_joinable(const struct wfs_nreq *nreq, u64 block, u32 unit, u32 units, u32 why);
int wfs_deliver(struct wfs_session *ses, const struct wfs_cmd *cmd);
int wfs_stored(struct wfs_session *ses, const struct wfs_cmd *cmd);
int wfs_dropped(struct wfs_session *ses, const struct wfs_cmd *cmd);
int wfs_evict(struct wfs_session *ses, const struct wfs_cmd *cmd);
int wfs_evicted(struct wfs_session *ses, const struct wfs_cmd *cmd);
int wfs_reopen(struct wfs_session *ses, const struct wfs_cmd *cmd);
int wfs_offer(struct wfs_session *ses, const struct wfs_cmd *cmd);

/* ---- cachefile.c: checked reads of the cache file ---- */

int wfs_cachefile_open(int fd, struct wfs_cachefile **ret);
struct wfs_cachefile *wfs_cachefile_get(struct wfs_cachefile *cf);
void wfs_cachefile_put(struct wfs_cachefile *cf);
ssize_t wfs_cachefile_read(struct wfs_cachefile *cf, struct kiocb *iocb, struct iov_iter *to);
bool wfs_cachefile_same(const struct wfs_cachefile *a, const struct wfs_cachefile *b);
/* One read has at most so many units and segments: what the largest folio has. */
#define WFS_CREAD_UNITS 32
#define WFS_CREAD_SEGS	32
/*
 * Reads the segments' part of a pinned block: either segments that follow each other, or
 * what small folios want of one unit. Takes over the pin, the segments and the
 * reference to @cf. @sums: of the units from the first segment's on, or NULL: unchecked.
 */
struct wfs_cread *wfs_cread_alloc(void);
void wfs_cread_start(struct wfs_cread *cr, struct wfs_node *node, struct wfs_cachefile *cf,
		     struct wfs_window *win, u32 index, struct list_head *segs);
u64 *wfs_cread_sums(struct wfs_cread *cr);
void wfs_cread_free(struct wfs_cread *cr);
int wfs_cachefile_init(void);
void wfs_cachefile_exit(void);

/* ---- control.c: generic netlink ---- */

int wfs_control_init(void);
void wfs_control_exit(void);
void wfs_event(enum wfs_event event, u64 mount, u64 session, const char *path, const char *text);

/* ---- stats.c: counters ---- */

extern u64 __percpu *wfs_stats;
int wfs_stats_init(void);
void wfs_stats_exit(void);
void wfs_stats_sum(const u64 __percpu *stats, u64 out[WFS_STAT_MAX]);

/* Adds to a counter of a mount (NULL: of the module only) and of the module. */
static inline void wfs_count(struct wfs_sb *wsb, enum wfs_stat stat, u64 n)
{
	this_cpu_add(wfs_stats[stat], n);
	if (wsb)
		this_cpu_add(wsb->stats[stat], n);
}

/* ---- served.c: where the bytes that readers are given came from ---- */

/* By distance; the counters WFS_STAT_SERVED_* are in this order. */
enum wfs_served {
	WFS_SERVED_PAGES,  /* the page cache */
	WFS_SERVED_NVME,   /* the cache file, read by the kernel */
	WFS_SERVED_HELPER, /* delivered or offered by the helper */
	WFS_SERVED_MAX,
};

void wfs_served_mark(struct folio *folio, enum wfs_served from);
void wfs_served_read(struct inode *inode, loff_t pos, size_t len);
/* Bytes that came from NVMe and past the page cache. */
void wfs_served_direct(struct wfs_sb *wsb, size_t len);
void wfs_served_fault(struct inode *inode, pgoff_t index);

extern struct workqueue_struct *wfs_wq;

#endif /* _WFS_INTERNAL_H */
