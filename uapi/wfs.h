/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * wfs: the interface between the kernel module and the fetch helper.
 *
 * Everything that crosses the boundary is described here and nowhere else.
 * All integers are in host byte order. All structures have a fixed size, are
 * aligned to 64 bits and carry explicit padding; padding and unknown flag bits
 * must be zero and are refused with EINVAL otherwise.
 *
 * Change log
 *   2026-11-30  protocol 1
 *   2026-11-30  counters from WFS_STAT_SERVED_PAGES_READS on; WFS_CMD_DELIVER returns
 *		 the bytes that were waited for
 *   2026-11-30  WFS_EVICT_COLD, WFS_CMD_REOPEN, with a feature bit each
 *   2026-11-30  struct wfs_request.reader in place of padding, WFS_FEATURE_READER
 */
#ifndef _UAPI_WFS_H
#define _UAPI_WFS_H

#include <linux/types.h>
#include <linux/ioctl.h>

#ifdef __KERNEL__
#include <linux/build_bug.h>
#else
#include <assert.h>
#endif

#define WFS_PROTOCOL	1
#define WFS_SUPER_MAGIC 0x77667331 /* "wfs1" */
#define WFS_DEVICE	"/dev/wfs"

/* The unit of delivery and of checksums, in bytes. */
#define WFS_UNIT_SHIFT 16
#define WFS_UNIT_SIZE  (1U << WFS_UNIT_SHIFT)
/* Limits of the block size, a power of two, in bytes. */
#define WFS_BLOCK_MIN	  (1U << 16)
#define WFS_BLOCK_MAX	  (1U << 26)
#define WFS_BLOCK_DEFAULT (1U << 22)
/*
 * A block map request covers one window of this many bytes of a file,
 * whatever the block size; its reply is at most 8192 checksums.
 */
#define WFS_WINDOW_SHIFT 29
#define WFS_WINDOW_UNITS (1U << (WFS_WINDOW_SHIFT - WFS_UNIT_SHIFT))

/* Longest version string, path below the mount, source and message, in bytes. */
#define WFS_VERSION_MAX 255
#define WFS_PATH_MAX	2048
#define WFS_SOURCE_MAX	2048
#define WFS_OPTIONS_MAX 2048
#define WFS_MESSAGE_MAX 512
#define WFS_NAME_MAX	255
#define WFS_TARGET_MAX	4095

/* Most bytes that one deliver or offer command may carry. */
#define WFS_DELIVER_MAX (1U << 20)
/* Most bytes of a reply payload (a page of directory entries, a block map). */
#define WFS_REPLY_MAX (1U << 17)

/**
 * DOC: Sessions
 *
 * A helper opens /dev/wfs (CAP_SYS_ADMIN needed, O_CLOEXEC advised), says
 * WFS_IOC_HELLO and so owns the one live session. Its other threads open the
 * device again and join with WFS_IOC_ATTACH. The session's data memory is
 * registered once with WFS_IOC_BUFFERS; every payload of a command lies in it
 * and is named by its offset from the start of that memory.
 *
 * The session ends by WFS_IOC_DETACH, when the last descriptor that said HELLO
 * is closed by its owner or the process dies, or when another helper takes it
 * over (WFS_HELLO_TAKEOVER). Requests outlive it: they wait and go to the next
 * session. Request ids are never reused; a command that carries the generation
 * of an earlier session fails with ESTALE.
 *
 * A new session first receives a WFS_REQ_MOUNT with WFS_REQ_F_RESUME for every
 * mounted superblock; nothing else comes before all of them are answered. Then come,
 * among others, a WFS_REQ_OPEN with WFS_REQ_F_RESUME for every file that an earlier
 * session opened, and, when all of those have been answered, one WFS_REQ_RESUMED.
 * Until it has seen WFS_REQ_RESUMED a helper must not punch or overwrite any cached
 * block, since files that it does not know yet may be being read.
 *
 * DOC: Transport
 *
 * Commands (struct wfs_cmd) travel as IORING_OP_URING_CMD with the 80 byte
 * payload of a 128 byte SQE (cmd_op is &wfs_cmd.op repeated), or one at a time
 * by WFS_IOC_CMD, with the same meaning. The result of a command is the CQE's
 * res, or the ioctl's return value: 0 or more, or -errno.
 *
 * WFS_CMD_FETCH by io_uring names a slot of the device's mapping (read-only,
 * WFS_SLOT_SIZE bytes each, see WFS_IOC_ATTACH). It completes when at least one
 * request is there: res is the number of requests, which lie in the slot one
 * after the other, each struct wfs_request.size bytes long. The slot belongs to
 * the kernel from submission to completion, then to the helper until it names
 * the slot again. -ECANCELED says that the session, or the thread that submitted the
 * command, has ended; -EBUSY that the slot is still the kernel's.
 * By ioctl the transport is WFS_IOC_FETCH, which copies requests to memory.
 */

/* Size of one request slot in the mapping of the device, in bytes. */
#define WFS_SLOT_SIZE 8192
#define WFS_SLOTS_MAX 64

/* Feature bits, agreed in the hello exchange. */
#define WFS_FEATURE_IOURING (1ULL << 0) /* the io_uring transport */
#define WFS_FEATURE_OFFER   (1ULL << 1) /* WFS_CMD_OFFER is understood */
#define WFS_FEATURE_COLD    (1ULL << 2) /* WFS_EVICT_COLD is understood */
#define WFS_FEATURE_REOPEN  (1ULL << 3) /* WFS_CMD_REOPEN is understood */
#define WFS_FEATURE_READER  (1ULL << 4) /* struct wfs_request.reader is understood */
#define WFS_FEATURES                                                                       \
	(WFS_FEATURE_IOURING | WFS_FEATURE_OFFER | WFS_FEATURE_COLD | WFS_FEATURE_REOPEN | \
	 WFS_FEATURE_READER)

/* struct wfs_hello.flags */
#define WFS_HELLO_TAKEOVER (1U << 0) /* end a live session instead of EBUSY */

/**
 * struct wfs_hello - argument of WFS_IOC_HELLO
 * @protocol: WFS_PROTOCOL; another value is refused with EPROTO
 * @flags: WFS_HELLO_* bits
 * @features: in: bits the helper knows; out: bits both sides know
 * @session: out: generation of the new session, never 0, ever rising
 * @slots: in: number of request slots of this descriptor, 0 to WFS_SLOTS_MAX
 * @pad: zero
 *
 * Errors: EPERM without CAP_SYS_ADMIN in the initial user namespace, EBUSY
 * while another session lives, EPROTO, EINVAL.
 */
struct wfs_hello {
	__u32 protocol;
	__u32 flags;
	__u64 features;
	__u64 session;
	__u32 slots;
	__u32 pad;
};

/**
 * struct wfs_attach - argument of WFS_IOC_ATTACH
 * @session: the session to join; only its owner's process may
 * @slots: number of request slots of this descriptor, 0 to WFS_SLOTS_MAX; the
 *	descriptor may then be mapped, read-only and shared, from offset 0,
 *	@slots * WFS_SLOT_SIZE bytes
 * @pad: zero
 */
struct wfs_attach {
	__u64 session;
	__u32 slots;
	__u32 pad;
};

/**
 * struct wfs_buffers - argument of WFS_IOC_BUFFERS
 * @addr: page-aligned address of anonymous or shared memory
 * @len: its length in bytes, a multiple of the page size, at most 64 GiB
 *
 * Pins the memory for the session, once, on the descriptor that said HELLO;
 * accounted to RLIMIT_MEMLOCK unless CAP_IPC_LOCK. EEXIST the second time.
 */
struct wfs_buffers {
	__u64 addr;
	__u64 len;
};

/**
 * struct wfs_fetch - argument of WFS_IOC_FETCH, the fetch of the ioctl transport
 * @session: generation of the session
 * @addr: where the requests are copied to
 * @len: room there in bytes, at least WFS_SLOT_SIZE
 * @max: most requests wanted, at least 1
 * @flags: WFS_FETCH_NONBLOCK: EAGAIN rather than sleep
 *
 * Sleeps interruptibly. Returns the number of requests. Requests that could not
 * be copied go back to the head of the list (EFAULT).
 */
#define WFS_FETCH_NONBLOCK (1U << 0)
struct wfs_fetch {
	__u64 session;
	__u64 addr;
	__u32 len;
	__u32 max;
	__u32 flags;
	__u32 pad;
};

/**
 * enum wfs_opcode - what the kernel asks
 * @WFS_REQ_MOUNT: is this source with these options fit to be mounted?
 *	Payload: source, NUL, options as "key=value" lines separated by '\n', NUL.
 *	Options that only the kernel needs are sent too. Reply payload: struct
 *	wfs_mount_reply. On failure the reply payload is a sentence for a person.
 * @WFS_REQ_UNMOUNT: the superblock is gone. To be committed with status 0.
 * @WFS_REQ_LOOKUP: what is at this path? Payload: path below the mount without
 *	leading slash ("" is the root), NUL. Reply payload: struct wfs_attr; or
 *	status -ENOENT (cached for negative_ttl).
 * @WFS_REQ_GETATTR: the same, asked to revalidate a path known under @version;
 *	the helper answers from nothing older than the mount's ttl.
 *	Payload: path, NUL, version, NUL.
 * @WFS_REQ_READDIR: entries of a directory. Payload: path, NUL, name after which to
 *	go on ("" from the start), NUL. Reply payload: struct wfs_readdir_reply. The
 *	order is the helper's, the same for the continuation of one listing.
 * @WFS_REQ_READLINK: target of a symbolic link. Payload: path, NUL.
 *	Reply payload: the target, without NUL, at most WFS_TARGET_MAX bytes.
 * @WFS_REQ_OPEN: open the cache file of one version of one object.
 *	Payload: path, NUL, version, NUL. Fields @node, @size, @block_shift. The
 *	commit carries a descriptor of the cache file (O_RDWR or O_RDONLY with O_DIRECT), or
 *	-1: nothing of this object will be cached. Other requests of the node follow
 *	only after it is answered in this session.
 * @WFS_REQ_MAP: which blocks of the window @window are cached, and their sums?
 *	Reply payload: struct wfs_map_reply. One window is 512 MiB of the file.
 * @WFS_REQ_FILL: bring units [@unit, @unit + @units) of block @block of @node.
 *	Answered by any number of WFS_CMD_DELIVER in any order that together cover
 *	the range, then a commit. The whole block is asked first; later requests for
 *	parts of the block that were already delivered are to be answered from the
 *	helper's buffer while it has it. @why says who waits.
 * @WFS_REQ_FORGET: the kernel forgot @node. To be committed with status 0.
 * @WFS_REQ_RESUMED: all that outlived the last session has been told.
 *	To be committed with status 0.
 */
enum wfs_opcode {
	WFS_REQ_MOUNT = 1,
	WFS_REQ_UNMOUNT = 2,
	WFS_REQ_LOOKUP = 3,
	WFS_REQ_GETATTR = 4,
	WFS_REQ_READDIR = 5,
	WFS_REQ_READLINK = 6,
	WFS_REQ_OPEN = 7,
	WFS_REQ_MAP = 8,
	WFS_REQ_FILL = 9,
	WFS_REQ_FORGET = 10,
	WFS_REQ_RESUMED = 11,
};

/* struct wfs_request.flags */
#define WFS_REQ_F_RESUME (1U << 0) /* outlived the session that knew it */
#define WFS_REQ_F_WHOLE	 (1U << 1) /* FILL: the first request for the block */
#define WFS_REQ_F_BAD	 (1U << 2) /* FILL: the cached copy is wrong: drop it, fetch afresh */

/* Why a block is wanted, most urgent first (struct wfs_request.why). */
#define WFS_WHY_DEMAND	  0 /* a reader sleeps on it */
#define WFS_WHY_READAHEAD 1
#define WFS_WHY_PREFETCH  2 /* advice: WILLNEED, wfs prefetch */

/**
 * struct wfs_request - one request, as it lies in a slot
 * @size: bytes of this record with its payload, a multiple of 8
 * @opcode: enum wfs_opcode
 * @id: names the request in replies; unique for the life of the module
 * @session: generation of the session that it was given to
 * @mount: which superblock; ids are never reused
 * @node: which version of which object (OPEN and later), else 0
 * @flags: WFS_REQ_F_* bits
 * @why: WFS_WHY_*, for FILL
 * @block: FILL: number of the block
 * @unit: FILL: first unit wanted, counted from the start of the block
 * @units: FILL: number of units wanted
 * @window: MAP: number of the window
 * @block_shift: OPEN: log2 of the block size
 * @mount_ttl: ttl of the mount in ms, ~0: for ever; of interest to LOOKUP, GETATTR, READDIR
 * @file_size: OPEN: size of the object in bytes
 * @payload_len: bytes of @payload in use
 * @reader: FILL, with WFS_FEATURE_READER: number of the process that asked first, in the
 *	initial pid namespace, so that those of one process can be told from another's; else zero
 * @payload: strings as said at enum wfs_opcode, padded with zeros to 8 bytes
 */
struct wfs_request {
	__u32 size;
	__u32 opcode;
	__u64 id;
	__u64 session;
	__u64 mount;
	__u64 node;
	__u32 flags;
	__u32 why;
	__u64 block;
	__u32 unit;
	__u32 units;
	__u32 window;
	__u32 block_shift;
	__u64 mount_ttl;
	__u64 file_size;
	__u32 payload_len;
	__u32 reader;
	__u8 payload[];
};

/* struct wfs_attr.flags */
#define WFS_ATTR_UNCACHED (1U << 0) /* no usable validator: never on NVMe */
/* No validator at all: each open() reads anew. Only with WFS_ATTR_UNCACHED. */
#define WFS_ATTR_UNPROVEN (1U << 1)

/**
 * struct wfs_attr - what a name is
 * @mode: S_IFREG, S_IFDIR or S_IFLNK, no other bits
 * @flags: WFS_ATTR_* bits
 * @size: bytes of a file, length of a link's target, 0 for a directory
 * @mtime_sec: modification time, seconds since 1970
 * @mtime_nsec: its nanoseconds, 0 to 999999999
 * @version_len: bytes of @version in use
 * @version: names the version of the object: opaque to the kernel, printable,
 *	no NUL; two answers with the same path, version and size are the same
 *	bytes. Empty for a directory. Padded with zeros.
 */
struct wfs_attr {
	__u32 mode;
	__u32 flags;
	__u64 size;
	__s64 mtime_sec;
	__u32 mtime_nsec;
	__u32 version_len;
	__u8 version[256];
};

/**
 * struct wfs_mount_reply - reply payload of WFS_REQ_MOUNT
 * @root: attributes of the root, a directory (or a single file's: refused)
 * @flags: zero
 */
struct wfs_mount_reply {
	struct wfs_attr root;
	__u64 flags;
};

/* struct wfs_readdir_reply.flags */
#define WFS_READDIR_EOF (1U << 0) /* no entry follows these */

/**
 * struct wfs_dirent - one entry in a reply to WFS_REQ_READDIR
 * @reclen: bytes of this record, a multiple of 8
 * @type: DT_REG, DT_DIR or DT_LNK
 * @namelen: bytes of @name, 1 to WFS_NAME_MAX
 * @pad: zero
 * @name: no NUL, no slash, not "." or ".."; padded with zeros to 8 bytes
 */
struct wfs_dirent {
	__u16 reclen;
	__u8 type;
	__u8 namelen;
	__u32 pad;
	__u8 name[];
};

/**
 * struct wfs_readdir_reply - reply payload of WFS_REQ_READDIR
 * @count: number of entries that follow
 * @flags: WFS_READDIR_*; without EOF @count must not be 0
 */
struct wfs_readdir_reply {
	__u32 count;
	__u32 flags;
	/* struct wfs_dirent entries[] */
};

/**
 * struct wfs_map_reply - reply payload of WFS_REQ_MAP
 * @blocks: number of blocks of the window that the file has, as the kernel counts
 * @pad: zero
 *
 * Followed by the bitmap of cached blocks (least significant bit of 64-bit words
 * first, whole words), followed by the sums of the cached blocks one after the
 * other: one __u64 XXH64 (seed 0) per unit of the block, the last unit of the
 * file summed over its object bytes only.
 */
struct wfs_map_reply {
	__u32 blocks;
	__u32 pad;
	/* __u64 bitmap[DIV_ROUND_UP(blocks, 64)]; __u64 sums[] */
};

/**
 * enum wfs_op - commands of the helper
 * @WFS_CMD_FETCH: wait for requests (io_uring only). @slot, @max.
 * @WFS_CMD_COMMIT: answer request @id: @status, @fd, payload [@buf, @buf + @len).
 *	Returns 0; ENOENT if nobody waits any more (ended, timed out, unmounted),
 *	which is no error of the helper's; ESTALE; EINVAL for a malformed reply,
 *	after which the request still waits.
 * @WFS_CMD_COMMIT_FETCH: WFS_CMD_COMMIT, its result ignored unless EINVAL, then
 *	WFS_CMD_FETCH (io_uring only).
 * @WFS_CMD_DELIVER: bytes of the block of FILL request @id: @offset is in bytes from
 *	the start of the block and a multiple of the unit, [@buf, @buf + @len) holds
 *	them; @len is a multiple of the unit, or ends at the end of the file.
 *	Repeats are ignored. Returns the bytes that somebody waited for, which tells
 *	what blocks are too large for their readers. ENOENT as with COMMIT.
 * @WFS_CMD_STORED: block @block of @node is durable in the cache file; the payload
 *	is its sums, one __u64 per unit. ENOENT if the node is forgotten; EBUSY if the
 *	block is in no state to be stored.
 * @WFS_CMD_DROPPED: block @block of @node will not be stored, its buffer is going away.
 * @WFS_CMD_EVICT: may block @block of @node be dropped from the cache file? 0: it is
 *	now evicting and no read of it is in flight; EBUSY: it is being read, later;
 *	ENOENT: the kernel does not know the node, so that nobody reads it. With
 *	WFS_EVICT_COLD in @flags, EAGAIN: the block was read from the cache file since
 *	it was stored or since this was last asked; it stays, and that is forgotten.
 * @WFS_CMD_EVICTED: the block is gone from index and file.
 * @WFS_CMD_OFFER: bytes of a held block for the page cache before it is dropped:
 *	@node, @block, @offset, payload as with DELIVER. Taken as far as memory
 *	allows; returns the bytes taken.
 * @WFS_CMD_INVALIDATE: names at and below a path of @node (here a mount id) must be
 *	asked again. Payload: path, no NUL; empty for all. The kernel asks again for all
 *	names of the mount, of which the helper answers those that it still knows.
 * @WFS_CMD_REOPEN: @node has, or may have, another cache file than was given: the kernel
 *	asks WFS_REQ_OPEN once more. Until that is answered it goes on with the one it has.
 */
enum wfs_op {
	WFS_CMD_FETCH = 1,
	WFS_CMD_COMMIT = 2,
	WFS_CMD_COMMIT_FETCH = 3,
	WFS_CMD_DELIVER = 4,
	WFS_CMD_STORED = 5,
	WFS_CMD_DROPPED = 6,
	WFS_CMD_EVICT = 7,
	WFS_CMD_EVICTED = 8,
	WFS_CMD_OFFER = 9,
	WFS_CMD_INVALIDATE = 10,
	WFS_CMD_REOPEN = 11,
};

/* struct wfs_cmd.flags, EVICT */
#define WFS_EVICT_COLD (1U << 0) /* not if it was read since this was last asked */

/**
 * struct wfs_cmd - one command
 * @op: enum wfs_op
 * @flags: WFS_EVICT_COLD for EVICT, else zero
 * @session: generation of the session
 * @id: request id (COMMIT, DELIVER)
 * @node: node (STORED to OFFER, REOPEN), mount (INVALIDATE)
 * @block: number of the block
 * @offset: DELIVER, OFFER: bytes from the start of the block
 * @buf: payload: offset in the session's buffers, a multiple of 8
 * @len: payload: bytes
 * @status: COMMIT: 0 or a negative errno from the list in protocol.rst
 * @fd: COMMIT of OPEN: descriptor of the cache file or -1, else -1
 * @slot: FETCH: slot of this descriptor's mapping
 * @max: FETCH: most requests wanted, at least 1
 * @pad: zero
 *
 * Fields that a command does not use must be zero (@fd: -1).
 */
struct wfs_cmd {
	__u32 op;
	__u32 flags;
	__u64 session;
	__u64 id;
	__u64 node;
	__u64 block;
	__u64 offset;
	__u64 buf;
	__u32 len;
	__s32 status;
	__s32 fd;
	__u16 slot;
	__u16 max;
	__u64 pad;
};

#define WFS_IOC_MAGIC	'w'
#define WFS_IOC_HELLO	_IOWR(WFS_IOC_MAGIC, 0x60, struct wfs_hello)
#define WFS_IOC_ATTACH	_IOW(WFS_IOC_MAGIC, 0x61, struct wfs_attach)
#define WFS_IOC_BUFFERS _IOW(WFS_IOC_MAGIC, 0x62, struct wfs_buffers)
#define WFS_IOC_DETACH	_IO(WFS_IOC_MAGIC, 0x63)
#define WFS_IOC_FETCH	_IOW(WFS_IOC_MAGIC, 0x64, struct wfs_fetch)
#define WFS_IOC_CMD	_IOW(WFS_IOC_MAGIC, 0x65, struct wfs_cmd)

/*
 * Questions about one file, on any descriptor inside a mount (O_PATH excepted);
 * no privilege needed.
 */

/**
 * struct wfs_file_info - result of WFS_IOC_FILE_INFO
 * @mount: id of the superblock
 * @node: id of the version, 0 for a directory
 * @size: bytes
 * @cached: bytes of it known to be cached on NVMe (0 for a directory)
 * @resident: bytes of it in the page cache
 * @block_size: bytes
 * @flags: WFS_ATTR_* bits
 * @path_len: bytes of @path in use
 * @version_len: bytes of @version in use
 * @path: path below the mount, no leading slash
 * @version: version string
 */
struct wfs_file_info {
	__u64 mount;
	__u64 node;
	__u64 size;
	__u64 cached;
	__u64 resident;
	__u32 block_size;
	__u32 flags;
	__u32 path_len;
	__u32 version_len;
	__u8 path[2048];
	__u8 version[256];
};

/**
 * struct wfs_prefetch - argument of WFS_IOC_PREFETCH
 * @offset: first byte
 * @len: bytes, 0: to the end of the file
 *
 * Asks for every absent block of the range, without waiting and without page-cache
 * memory. Returns 0; EINVAL beyond the end.
 */
struct wfs_prefetch {
	__u64 offset;
	__u64 len;
};

#define WFS_IOC_FILE_INFO _IOR(WFS_IOC_MAGIC, 0x70, struct wfs_file_info)
#define WFS_IOC_PREFETCH  _IOW(WFS_IOC_MAGIC, 0x71, struct wfs_prefetch)

/*
 * Generic netlink family: control, never data. Initial network namespace only.
 * Changes (INVALIDATE) need CAP_NET_ADMIN, and so does joining the group, whose events name files.
 */
#define WFS_GENL_NAME	 "wfs"
#define WFS_GENL_VERSION 1
#define WFS_GENL_GROUP	 "events"

/**
 * enum wfs_genl_cmd - commands and notifications
 * @WFS_GENL_CMD_MOUNTS: dump: one message a superblock (MOUNT_ID, SOURCE, OPTIONS,
 *	BLOCK_SIZE, NODES, PENDING, HELPER)
 * @WFS_GENL_CMD_STATS: do: counters of the module (nested STATS), of one superblock with
 *	MOUNT_ID; HELPER and SESSION always
 * @WFS_GENL_CMD_INVALIDATE: do, MOUNT_ID and PATH: names must be asked again
 * @WFS_GENL_CMD_EVENT: notification (EVENT, MOUNT_ID or SESSION, PATH, TEXT as known)
 */
enum wfs_genl_cmd {
	WFS_GENL_CMD_UNSPEC,
	WFS_GENL_CMD_MOUNTS,
	WFS_GENL_CMD_STATS,
	WFS_GENL_CMD_INVALIDATE,
	WFS_GENL_CMD_EVENT,
};

/* Netlink attributes; the comment is the type. */
enum wfs_genl_attr {
	WFS_GENL_ATTR_UNSPEC,
	WFS_GENL_ATTR_PAD,
	WFS_GENL_ATTR_MOUNT_ID,	  /* u64 */
	WFS_GENL_ATTR_SOURCE,	  /* string */
	WFS_GENL_ATTR_OPTIONS,	  /* string */
	WFS_GENL_ATTR_BLOCK_SIZE, /* u32, bytes */
	WFS_GENL_ATTR_NODES,	  /* u64, live nodes */
	WFS_GENL_ATTR_PENDING,	  /* u64, outstanding requests */
	WFS_GENL_ATTR_HELPER,	  /* u32, pid of the helper, 0: none */
	WFS_GENL_ATTR_SESSION,	  /* u64 */
	WFS_GENL_ATTR_STATS,	  /* binary, u64[WFS_STAT_MAX], see enum wfs_stat */
	WFS_GENL_ATTR_PATH,	  /* string */
	WFS_GENL_ATTR_EVENT,	  /* u32, enum wfs_event */
	WFS_GENL_ATTR_TEXT,	  /* string */
	__WFS_GENL_ATTR_MAX,
};

#define WFS_GENL_ATTR_MAX (__WFS_GENL_ATTR_MAX - 1)

/* enum wfs_event - what a notification is about (WFS_GENL_ATTR_EVENT) */
enum wfs_event {
	WFS_EVENT_MOUNT = 1,
	WFS_EVENT_UNMOUNT = 2,
	WFS_EVENT_SESSION = 3, /* a helper said hello */
	WFS_EVENT_SESSION_END = 4,
	WFS_EVENT_CORRUPT = 5, /* a cached block failed its check */
	WFS_EVENT_TIMEOUT = 6, /* a request ended by its deadline */
	WFS_EVENT_STALE = 7,   /* something known was served past its ttl */
};

/**
 * enum wfs_stat - counters, in the order of WFS_GENL_ATTR_STATS
 *
 * Append only. Bytes unless said.
 */
enum wfs_stat {
	WFS_STAT_READ_BYTES, /* given to read() and splice() */
	WFS_STAT_READS,	     /* calls, also those that gave nothing */
	WFS_STAT_NVME_READS, /* reads of cache files */
	WFS_STAT_NVME_BYTES,
	WFS_STAT_FILL_REQUESTS,
	WFS_STAT_FILL_AGAIN,	 /* requests for units delivered before */
	WFS_STAT_DELIVER_BYTES,	 /* copied into folios */
	WFS_STAT_DELIVER_UNUSED, /* of deliveries that nobody waited for at all */
	WFS_STAT_OFFER_BYTES,	 /* offered and taken */
	WFS_STAT_STORED,	 /* blocks */
	WFS_STAT_DROPPED,	 /* commands */
	WFS_STAT_EVICTED,	 /* commands */
	WFS_STAT_CORRUPT,	 /* units that failed their check */
	WFS_STAT_FAULTS,	 /* faults that missed the page cache */
	WFS_STAT_RANDOM_FAULTS,	 /* of those, served with one small folio */
	WFS_STAT_LOOKUPS,	 /* name requests: lookup, revalidation */
	WFS_STAT_READDIRS,	 /* directory pages asked */
	WFS_STAT_STALE,		 /* names served past their ttl */
	WFS_STAT_TIMEOUTS,	 /* requests ended by their deadline */
	WFS_STAT_ERRORS,	 /* folios failed */
	WFS_STAT_SESSIONS,	 /* helper sessions since load */
	WFS_STAT_LOCKED_BYTES,	 /* now: folios locked in flight */
	/*
	 * What read() and splice() gave, by place. Bytes count for whoever brought them
	 * into the page cache when they are read for the first time, for the page cache
	 * afterwards; a call counts for the farthest place that bytes of it came from.
	 */
	WFS_STAT_SERVED_PAGES_READS, /* calls: all from the page cache */
	WFS_STAT_SERVED_PAGES_BYTES,
	WFS_STAT_SERVED_NVME_READS, /* calls: from cache files, too */
	WFS_STAT_SERVED_NVME_BYTES,
	WFS_STAT_SERVED_HELPER_READS, /* calls: from the helper, too */
	WFS_STAT_SERVED_HELPER_BYTES,
	WFS_STAT_NVME_FAULTS,	/* faults that missed the page cache: cache files had it */
	WFS_STAT_HELPER_FAULTS, /* the same: the helper brought it */
	WFS_STAT_MAX,
};

#define WFS_ASSERT_SIZE(type, bytes) \
	static_assert(sizeof(type) == (bytes), #type " has another size than protocol 1 says")

WFS_ASSERT_SIZE(struct wfs_hello, 32);
WFS_ASSERT_SIZE(struct wfs_attach, 16);
WFS_ASSERT_SIZE(struct wfs_buffers, 16);
WFS_ASSERT_SIZE(struct wfs_fetch, 32);
WFS_ASSERT_SIZE(struct wfs_request, 96);
WFS_ASSERT_SIZE(struct wfs_attr, 288);
WFS_ASSERT_SIZE(struct wfs_mount_reply, 296);
WFS_ASSERT_SIZE(struct wfs_dirent, 8);
WFS_ASSERT_SIZE(struct wfs_readdir_reply, 8);
WFS_ASSERT_SIZE(struct wfs_map_reply, 8);
WFS_ASSERT_SIZE(struct wfs_cmd, 80);
WFS_ASSERT_SIZE(struct wfs_file_info, 2360);
WFS_ASSERT_SIZE(struct wfs_prefetch, 16);

#endif /* _UAPI_WFS_H */
