// SPDX-License-Identifier: MIT
/*
 * uapi_misuse: one case for each input that the channel must refuse.
 *
 *	uapi_misuse		as root, with no helper running
 */
#include <sched.h>
#include <sys/wait.h>
#include "chan.h"
#include "tap.h"

#define MEMORY	(4u << 20)
#define SLOTS	4
#define NOBODY	65534
#define WAIT_MS 20000

enum transport { BY_IOCTL, BY_URING };

static struct chan chan;

/* The result of f in a child: another process, with other descriptors of its own. */
static int in_child(int (*f)(void))
{
	int status, result, pipes[2];
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC))
		bail("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid) {
		result = f();
		if (write(pipes[1], &result, sizeof(result)) != sizeof(result))
			_exit(1);
		_exit(0);
	}
	close(pipes[1]);
	if (read(pipes[0], &result, sizeof(result)) != sizeof(result))
		bail("a child said nothing");
	close(pipes[0]);
	waitpid(pid, &status, 0);
	return result;
}

static struct wfs_hello hello_good(void)
{
	return (struct wfs_hello){ .protocol = WFS_PROTOCOL, .features = WFS_FEATURES };
}

/* Says hello on a descriptor of its own, which it closes. */
static int hello_with(struct wfs_hello hello)
{
	int fd = chan_open(), r;

	if (fd < 0)
		return fd;
	r = chan_ioctl(fd, WFS_IOC_HELLO, &hello);
	close(fd);
	return r;
}

static int hello_unprivileged(void)
{
	struct wfs_hello hello = hello_good();
	int fd = chan_open();

	if (fd < 0)
		return fd;
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		return -errno;
	return chan_ioctl(fd, WFS_IOC_HELLO, &hello);
}

static int open_unprivileged(void)
{
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		return -errno;
	return chan_open();
}

static int hello_user_namespace(void)
{
	struct wfs_hello hello = hello_good();
	int fd = chan_open();

	if (fd < 0)
		return fd;
	/* All capabilities there, none that count here. */
	if (unshare(CLONE_NEWUSER))
		return -EPERM;
	return chan_ioctl(fd, WFS_IOC_HELLO, &hello);
}

static int hello_other(void)
{
	return hello_with(hello_good());
}

static void before_hello(void)
{
	struct wfs_buffers buffers = { .addr = 0x10000, .len = 0x1000 };
	struct wfs_fetch fetch = { .len = WFS_SLOT_SIZE, .max = 1 };
	struct wfs_cmd cmd = chan_op(WFS_CMD_COMMIT, 1);
	int fd = chan_open();

	if (fd < 0)
		bail("cannot open %s: %s", WFS_DEVICE, strerror(-fd));
	is(chan_ioctl(fd, WFS_IOC_BUFFERS, &buffers), -ENOTCONN, "BUFFERS before HELLO");
	is(chan_ioctl(fd, WFS_IOC_FETCH, &fetch), -ENOTCONN, "FETCH before HELLO");
	is(chan_ioctl(fd, WFS_IOC_CMD, &cmd), -ENOTCONN, "CMD before HELLO");
	is(chan_ioctl(fd, WFS_IOC_DETACH, NULL), -ENOTCONN, "DETACH before HELLO");
	ok(mmap(NULL, WFS_SLOT_SIZE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED &&
		   errno == ENOTCONN,
	   "mmap before HELLO");
	close(fd);
}

static void hello_cases(void)
{
	struct wfs_hello hello;
	int fd;

	is(in_child(open_unprivileged), -EACCES, "open by nobody");
	is(in_child(hello_unprivileged), -EPERM, "HELLO without CAP_SYS_ADMIN");
	is(in_child(hello_user_namespace), -EPERM, "HELLO from a user namespace");
	hello = hello_good();
	hello.protocol = WFS_PROTOCOL + 1;
	is(hello_with(hello), -EPROTO, "HELLO with a later protocol");
	hello.protocol = 0;
	is(hello_with(hello), -EPROTO, "HELLO with protocol 0");
	hello = hello_good();
	hello.flags = ~WFS_HELLO_TAKEOVER;
	is(hello_with(hello), -EINVAL, "HELLO with unknown flags");
	hello = hello_good();
	hello.pad = 1;
	is(hello_with(hello), -EINVAL, "HELLO with padding");
	hello = hello_good();
	hello.session = 1;
	is(hello_with(hello), -EINVAL, "HELLO that names a session");
	hello = hello_good();
	hello.slots = WFS_SLOTS_MAX + 1;
	is(hello_with(hello), -EINVAL, "HELLO with too many slots");
	fd = chan_open();
	is(chan_ioctl(fd, WFS_IOC_HELLO, (void *)8), -EFAULT, "HELLO with a bad address");
	hello = hello_good();
	hello.features = ~0ULL;
	is(chan_ioctl(fd, WFS_IOC_HELLO, &hello), 0, "HELLO with unknown features");
	is((long)(hello.features & ~WFS_FEATURES), 0, "  of which only known ones are agreed");
	ok(hello.session != 0, "  in a session that is not 0");
	hello = hello_good();
	is(chan_ioctl(fd, WFS_IOC_HELLO, &hello), -EINVAL, "a second HELLO on one descriptor");
	close(fd);
}

static int attach_with(uint64_t session, uint32_t slots, uint32_t pad)
{
	struct wfs_attach attach = { .session = session, .slots = slots, .pad = pad };
	int fd = chan_open(), r;

	if (fd < 0)
		return fd;
	r = chan_ioctl(fd, WFS_IOC_ATTACH, &attach);
	close(fd);
	return r;
}

static int attach_other(void)
{
	return attach_with(chan.session, 0, 0);
}

static void attach_cases(void)
{
	struct wfs_attach attach = { .session = chan.session };
	int fd = chan_open();

	is(attach_with(chan.session + 1, 0, 0), -ESTALE, "ATTACH to a session that is not yet");
	is(attach_with(chan.session - 1, 0, 0), -ESTALE, "ATTACH to a session that was");
	is(attach_with(chan.session, WFS_SLOTS_MAX + 1, 0), -EINVAL, "ATTACH with too many slots");
	is(attach_with(chan.session, 0, 1), -EINVAL, "ATTACH with padding");
	is(chan_ioctl(fd, WFS_IOC_ATTACH, (void *)8), -EFAULT, "ATTACH with a bad address");
	is(chan_ioctl(fd, WFS_IOC_ATTACH, &attach), 0, "ATTACH without slots");
	is(chan_ioctl(fd, WFS_IOC_ATTACH, &attach), -EINVAL, "ATTACH twice");
	is(chan_ioctl(chan.fd, WFS_IOC_ATTACH, &attach), -EINVAL, "ATTACH where HELLO was said");
	is(in_child(attach_other), -EPERM, "ATTACH by another process");
	is(chan_ioctl(fd, _IO(WFS_IOC_MAGIC, 0x7f), NULL), -ENOTTY, "an unknown ioctl");
	is(chan_ioctl(fd, WFS_IOC_DETACH, NULL), -EPERM, "DETACH where HELLO was not said");
	close(fd);
	is(in_child(hello_other), -EBUSY, "HELLO while a session lives");
}

static int buffers_with(const void *addr, uint64_t len)
{
	struct wfs_buffers buffers = { .addr = (uintptr_t)addr, .len = len };

	return chan_ioctl(chan.fd, WFS_IOC_BUFFERS, &buffers);
}

static int buffers_other(void)
{
	static _Alignas(4096) char memory[4096];

	return buffers_with(memory, sizeof(memory));
}

static void buffers_cases(void)
{
	struct wfs_buffers buffers = { 0 };
	char *memory, *readonly;

	memory = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	readonly = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || readonly == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	munmap(memory + 2 * 4096, 4096);
	is(chan_ioctl(chan.fd, WFS_IOC_BUFFERS, (void *)8), -EFAULT, "BUFFERS with a bad address");
	is(buffers_with(memory + 8, 4096), -EINVAL, "BUFFERS not aligned to a page");
	is(buffers_with(memory, 4095), -EINVAL, "BUFFERS that end inside a page");
	is(buffers_with(memory, 0), -EINVAL, "BUFFERS of no length");
	is(buffers_with(memory, (64ULL << 30) + 4096), -EINVAL, "BUFFERS above 64 GiB");
	is(buffers_with((void *)~0xfffULL, 8192), -EINVAL, "BUFFERS around the end of memory");
	is(buffers_with(memory, 4 * 4096), -EFAULT, "BUFFERS with a hole");
	is(buffers_with(readonly, 4096), -EFAULT, "BUFFERS that cannot be written");
	buffers.addr = (uintptr_t)memory;
	buffers.len = 4096;
	is(chan_ioctl(chan.wfd, WFS_IOC_BUFFERS, &buffers), -EINVAL,
	   "BUFFERS where HELLO was not said");
	is(in_child(buffers_other), -EPERM, "BUFFERS by another process");
	is(chan_buffers(&chan, MEMORY), 0, "BUFFERS as they should be");
	is(buffers_with(memory, 4096), -EEXIST, "BUFFERS a second time");
	munmap(memory, 4 * 4096);
	munmap(readonly, 4096);
}

static bool map_refused(int fd, size_t len, int prot, int flags, off_t offset, int error)
{
	void *map = mmap(NULL, len, prot, flags, fd, offset);

	if (map != MAP_FAILED) {
		munmap(map, len);
		return false;
	}
	return errno == error;
}

static void map_cases(void)
{
	const size_t all = SLOTS * WFS_SLOT_SIZE;
	void *slots = (void *)(uintptr_t)chan.slots;

	ok(map_refused(chan.wfd, all, PROT_READ | PROT_WRITE, MAP_SHARED, 0, EPERM),
	   "mmap for writing");
	ok(map_refused(chan.wfd, all, PROT_READ | PROT_EXEC, MAP_SHARED, 0, EPERM),
	   "mmap for execution");
	ok(map_refused(chan.wfd, all, PROT_READ, MAP_PRIVATE, 0, EPERM), "private mmap");
	ok(map_refused(chan.wfd, all + 4096, PROT_READ, MAP_SHARED, 0, EINVAL),
	   "mmap beyond the slots");
	ok(map_refused(chan.wfd, 4096, PROT_READ, MAP_SHARED, 4096, EINVAL),
	   "mmap not from the start");
	ok(map_refused(chan.fd, WFS_SLOT_SIZE, PROT_READ, MAP_SHARED, 0, EINVAL),
	   "mmap of a descriptor without slots");
	ok(mprotect(slots, all, PROT_READ | PROT_WRITE) && errno == EACCES,
	   "mprotect of slots for writing");
}

static int fetch_with(struct wfs_fetch fetch)
{
	return chan_ioctl(chan.wfd >= 0 ? chan.wfd : chan.fd, WFS_IOC_FETCH, &fetch);
}

static int fetch_other(void)
{
	static char room[WFS_SLOT_SIZE];
	struct wfs_fetch fetch = {
		.session = chan.session,
		.addr = (uintptr_t)room,
		.len = sizeof(room),
		.max = 1,
		.flags = WFS_FETCH_NONBLOCK,
	};

	return fetch_with(fetch);
}

/* The session's first request is RESUMED: it tells that a failed fetch loses nothing. */
static void fetch_cases(void)
{
	static _Alignas(8) char room[WFS_SLOT_SIZE];
	const struct wfs_request *request = (const void *)room;
	const struct wfs_fetch good = {
		.session = chan.session,
		.addr = (uintptr_t)room,
		.len = sizeof(room),
		.max = 1,
		.flags = WFS_FETCH_NONBLOCK,
	};
	struct wfs_cmd cmd = chan_op(WFS_CMD_COMMIT, chan.session);
	struct wfs_fetch fetch;
	uint64_t id;

	fetch = good;
	fetch.max = 0;
	is(fetch_with(fetch), -EINVAL, "FETCH of no request");
	fetch = good;
	fetch.len = WFS_SLOT_SIZE - 8;
	is(fetch_with(fetch), -EINVAL, "FETCH into too little room");
	fetch = good;
	fetch.flags = ~WFS_FETCH_NONBLOCK;
	is(fetch_with(fetch), -EINVAL, "FETCH with unknown flags");
	fetch = good;
	fetch.pad = 1;
	is(fetch_with(fetch), -EINVAL, "FETCH with padding");
	fetch = good;
	fetch.session++;
	is(fetch_with(fetch), -ESTALE, "FETCH for another session");
	is(chan_ioctl(chan.wfd, WFS_IOC_FETCH, (void *)8), -EFAULT, "FETCH with a bad argument");
	is(in_child(fetch_other), -EPERM, "FETCH by another process");
	fetch = good;
	fetch.addr = 8;
	is(fetch_with(fetch), -EFAULT, "FETCH to a bad address");
	is(fetch_with(good), 1, "  after which the request is still there");
	is(request->opcode, WFS_REQ_RESUMED, "  it is RESUMED");
	ok(request->size == sizeof(*request) && request->session == chan.session &&
		   !request->payload_len && !request->reader && !request->mount && !request->node,
	   "  and its record is as the header says");
	id = request->id;
	is(fetch_with(good), -EAGAIN, "FETCH without waiting, with nothing there");
	cmd.id = id + 1;
	is(chan_ioctl_cmd(&chan, &cmd), -ENOENT, "COMMIT of a request that is not there");
	cmd.id = id;
	cmd.len = 8;
	is(chan_ioctl_cmd(&chan, &cmd), -EINVAL, "COMMIT with a payload that nobody wants");
	cmd.len = 0;
	cmd.fd = 0;
	is(chan_ioctl_cmd(&chan, &cmd), -EINVAL, "COMMIT with a descriptor that nobody wants");
	cmd.fd = -1;
	cmd.status = 1;
	is(chan_ioctl_cmd(&chan, &cmd), -EINVAL, "COMMIT with a positive status");
	cmd.status = 0;
	is(chan_ioctl_cmd(&chan, &cmd), 0, "  after all of which it can be answered");
	is(chan_ioctl_cmd(&chan, &cmd), -ENOENT, "COMMIT a second time");
}

/* Sends one command; results of parked fetches are not waited for. */
static int send_cmd(enum transport transport, const struct wfs_cmd *cmd)
{
	uint64_t data;
	int r, res;

	if (transport == BY_IOCTL)
		return chan_ioctl_cmd(&chan, cmd);
	r = chan_queue(&chan, cmd, 1);
	if (r < 0)
		return r;
	if (!chan_reap(&chan, WAIT_MS, &data, &res))
		bail("command %u: no completion", cmd->op);
	return res;
}

static const char *const op_names[] = {
	[WFS_CMD_FETCH] = "FETCH",
	[WFS_CMD_COMMIT] = "COMMIT",
	[WFS_CMD_COMMIT_FETCH] = "COMMIT_FETCH",
	[WFS_CMD_DELIVER] = "DELIVER",
	[WFS_CMD_STORED] = "STORED",
	[WFS_CMD_DROPPED] = "DROPPED",
	[WFS_CMD_EVICT] = "EVICT",
	[WFS_CMD_EVICTED] = "EVICTED",
	[WFS_CMD_OFFER] = "OFFER",
	[WFS_CMD_INVALIDATE] = "INVALIDATE",
	[WFS_CMD_REOPEN] = "REOPEN",
};

/* Which fields a command uses. */
enum { ID = 1, NODE = 2, BLOCK = 4, OFFSET = 8, PAYLOAD = 16, STATUS = 32, SLOT = 64 };

static const unsigned int op_fields[] = {
	[WFS_CMD_FETCH] = SLOT,
	[WFS_CMD_COMMIT] = ID | PAYLOAD | STATUS,
	[WFS_CMD_COMMIT_FETCH] = ID | PAYLOAD | STATUS | SLOT,
	[WFS_CMD_DELIVER] = ID | OFFSET | PAYLOAD,
	[WFS_CMD_STORED] = NODE | BLOCK | PAYLOAD,
	[WFS_CMD_DROPPED] = NODE | BLOCK,
	[WFS_CMD_EVICT] = NODE | BLOCK,
	[WFS_CMD_EVICTED] = NODE | BLOCK,
	[WFS_CMD_OFFER] = NODE | BLOCK | OFFSET | PAYLOAD,
	[WFS_CMD_INVALIDATE] = NODE | PAYLOAD,
	[WFS_CMD_REOPEN] = NODE,
};

/* A command that is right in form and names nothing that exists. */
static struct wfs_cmd op_good(uint32_t op)
{
	struct wfs_cmd cmd = chan_op(op, chan.session);
	unsigned int fields = op_fields[op];

	if (fields & ID)
		cmd.id = ~0ULL;
	if (fields & NODE)
		cmd.node = ~0ULL;
	if (fields & PAYLOAD && op != WFS_CMD_COMMIT && op != WFS_CMD_COMMIT_FETCH)
		cmd.len = 8;
	if (op == WFS_CMD_DELIVER || op == WFS_CMD_OFFER)
		cmd.len = WFS_UNIT_SIZE;
	if (fields & SLOT)
		cmd.max = 1;
	return cmd;
}

static void unused_fields(enum transport transport, uint32_t op, const char *by)
{
	const unsigned int fields = op_fields[op];
	struct wfs_cmd cmd;

#define UNUSED(field, set, what)                                                                 \
	do {                                                                                     \
		cmd = op_good(op);                                                               \
		cmd.set;                                                                         \
		if (!(fields & (field)))                                                         \
			is(send_cmd(transport, &cmd), -EINVAL, "%s%s with %s", op_names[op], by, \
			   what);                                                                \
	} while (0)
	/* EVICT has one that means something. */
	UNUSED(0, flags = op == WFS_CMD_EVICT ? ~WFS_EVICT_COLD : 1, "flags");
	UNUSED(0, pad = 1, "padding");
	UNUSED(ID, id = 1, "an id");
	UNUSED(NODE, node = 1, "a node");
	UNUSED(BLOCK, block = 1, "a block");
	UNUSED(OFFSET, offset = WFS_UNIT_SIZE, "an offset");
	UNUSED(PAYLOAD, buf = 8, "a payload's place");
	UNUSED(PAYLOAD, len = 8, "a payload's length");
	UNUSED(STATUS, status = -5, "a status");
	UNUSED(STATUS, fd = 0, "a descriptor");
	UNUSED(SLOT, slot = 1, "a slot");
	UNUSED(SLOT, max = 1, "a number of requests");
#undef UNUSED
}

static void payload_cases(enum transport transport, uint32_t op, const char *by)
{
	struct wfs_cmd cmd;

	cmd = op_good(op);
	cmd.len = 8;
	cmd.buf = MEMORY;
	is(send_cmd(transport, &cmd), -EINVAL, "%s%s with a payload behind the buffers",
	   op_names[op], by);
	cmd.buf = MEMORY - 8;
	cmd.len = 16;
	is(send_cmd(transport, &cmd), -EINVAL, "%s%s with a payload over their end", op_names[op],
	   by);
	cmd.buf = ~7ULL;
	is(send_cmd(transport, &cmd), -EINVAL, "%s%s with a payload that wraps around",
	   op_names[op], by);
	cmd.buf = 4;
	cmd.len = 8;
	is(send_cmd(transport, &cmd), -EINVAL, "%s%s with an unaligned payload", op_names[op], by);
}

static void cmd_cases(enum transport transport)
{
	const char *by = transport == BY_IOCTL ? " by ioctl" : "";
	struct wfs_cmd cmd;

	for (uint32_t op = WFS_CMD_FETCH; op <= WFS_CMD_REOPEN; op++) {
		if (transport == BY_IOCTL && op_fields[op] & SLOT) {
			cmd = op_good(op);
			is(send_cmd(transport, &cmd), -EOPNOTSUPP, "%s by ioctl", op_names[op]);
			continue;
		}
		unused_fields(transport, op, by);
		if (op_fields[op] & PAYLOAD)
			payload_cases(transport, op, by);
		cmd = op_good(op);
		cmd.session++;
		is(send_cmd(transport, &cmd), -ESTALE, "%s%s for a session that is not yet",
		   op_names[op], by);
		cmd.session = chan.session - 1;
		is(send_cmd(transport, &cmd), -ESTALE, "%s%s for a session that was", op_names[op],
		   by);
		if (op_fields[op] & SLOT)
			continue;
		cmd = op_good(op);
		is(send_cmd(transport, &cmd), -ENOENT, "%s%s that names nothing known",
		   op_names[op], by);
	}
	cmd = chan_op(0, chan.session);
	is(send_cmd(transport, &cmd), -EOPNOTSUPP, "command 0%s", by);
	cmd = chan_op(WFS_CMD_REOPEN + 1, chan.session);
	is(send_cmd(transport, &cmd), -EOPNOTSUPP, "an unknown command%s", by);
	cmd = op_good(WFS_CMD_COMMIT);
	cmd.status = 5;
	is(send_cmd(transport, &cmd), -EINVAL, "COMMIT%s with a positive status", by);
	cmd = op_good(WFS_CMD_COMMIT);
	cmd.fd = -2;
	is(send_cmd(transport, &cmd), -EINVAL, "COMMIT%s with descriptor -2", by);
	cmd = op_good(WFS_CMD_COMMIT);
	cmd.len = WFS_REPLY_MAX + 8;
	is(send_cmd(transport, &cmd), -EINVAL, "COMMIT%s with a payload too large", by);
	cmd = op_good(WFS_CMD_INVALIDATE);
	cmd.len = WFS_PATH_MAX + 8;
	is(send_cmd(transport, &cmd), -EINVAL, "INVALIDATE%s of too long a path", by);
}

static void ring_cases(void)
{
	struct wfs_cmd cmd = op_good(WFS_CMD_COMMIT);
	struct wfs_cmd fetch = op_good(WFS_CMD_FETCH);
	struct chan narrow = chan;
	int wfd = chan.wfd;
	struct io_uring_params params = { 0 };
	struct io_uring_sqe *sqe;
	uint64_t data;
	int res = 0;

	chan_queue_op(&chan, &cmd, WFS_CMD_DROPPED, 1);
	ok(chan_reap(&chan, WAIT_MS, &data, &res) && res == -EINVAL,
	   "a command whose two codes differ");

	if (io_uring_queue_init_params(4, &narrow.ring, &params))
		bail("no ring");
	sqe = io_uring_get_sqe(&narrow.ring);
	if (!sqe)
		bail("no room in the ring");
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = chan.wfd;
	sqe->cmd_op = WFS_CMD_COMMIT;
	io_uring_submit(&narrow.ring);
	ok(chan_reap(&narrow, WAIT_MS, &data, &res) && res == -EINVAL,
	   "a command on a ring of 64 byte entries");
	io_uring_queue_exit(&narrow.ring);

	fetch.slot = SLOTS;
	is(send_cmd(BY_URING, &fetch), -EINVAL, "FETCH into a slot that is not there");
	fetch.slot = 0;
	fetch.max = 0;
	is(send_cmd(BY_URING, &fetch), -EINVAL, "FETCH of no request");
	fetch.max = 1;
	chan.wfd = chan.fd;
	chan_queue(&chan, &fetch, 1);
	chan.wfd = wfd;
	ok(chan_reap(&chan, WAIT_MS, &data, &res) && res == -EINVAL,
	   "FETCH on a descriptor without slots");

	/* Parked until the session ends. */
	chan_queue(&chan, &fetch, 100);
	ok(!chan_reap(&chan, 0, &data, &res), "FETCH with nothing there is parked");
	is(send_cmd(BY_URING, &fetch), -EBUSY, "FETCH into a slot that is in use");
	cmd = op_good(WFS_CMD_COMMIT_FETCH);
	is(send_cmd(BY_URING, &cmd), -EBUSY, "COMMIT_FETCH into a slot that is in use");
	cmd.slot = 1;
	chan_queue(&chan, &cmd, 101);
	ok(!chan_reap(&chan, 0, &data, &res),
	   "COMMIT_FETCH of a request that nobody waits for is parked all the same");
}

/* A child has the descriptors too: what it does with them ends nothing. */
static int child_closes(void)
{
	close(chan.wfd);
	close(chan.fd);
	return 0;
}

static int child_commands(void)
{
	struct wfs_cmd cmd = op_good(WFS_CMD_COMMIT);

	return chan_ioctl_cmd(&chan, &cmd);
}

static int child_detaches(void)
{
	return chan_detach(&chan);
}

static int child_takes_over(void)
{
	struct chan mine = { 0 };

	return chan_hello(&mine, WFS_HELLO_TAKEOVER);
}

static void session_cases(void)
{
	struct wfs_cmd cmd = op_good(WFS_CMD_COMMIT);
	uint64_t before = chan.session, data;
	int res = 0, ended = 0;

	is(in_child(child_commands), -EPERM, "a command by a child, with the parent's descriptor");
	is(in_child(child_detaches), -EPERM, "DETACH by a child");
	in_child(child_closes);
	is(chan_ioctl_cmd(&chan, &cmd), -ENOENT, "a child's close does not end the session");
	is(in_child(child_takes_over), 0, "HELLO with takeover");
	while (ended < 2 && chan_reap(&chan, WAIT_MS, &data, &res))
		ended += data >= 100 && res == -ECANCELED;
	is(ended, 2, "  parked commands of the old session are given back with ECANCELED");
	is(chan_ioctl_cmd(&chan, &cmd), -ESTALE, "  its commands are refused");
	is(send_cmd(BY_URING, &cmd), -ESTALE, "  by ring as well");
	is(fetch_other(), -ESTALE, "  its FETCH too");
	is(attach_with(before, 0, 0), -ESTALE, "  nobody can join it");
	is(chan_detach(&chan), 0, "  DETACH of what has ended is no error");
	io_uring_queue_exit(&chan.ring);
	munmap((void *)(uintptr_t)chan.slots, SLOTS * WFS_SLOT_SIZE);
	close(chan.wfd);
	close(chan.fd);
	is(chan_hello(&chan, 0), 0, "HELLO after the other process's death");
	ok(chan.session > before, "  generations rise");
	is(chan_detach(&chan), 0, "DETACH");
	is(fetch_other(), -ESTALE, "  after which the session is over");
	close(chan.fd);
	is(chan_hello(&chan, 0), 0, "HELLO once more");
	close(chan.fd);
	is(chan_hello(&chan, 0), 0, "a close of the descriptor ends the session");
	close(chan.fd);
}

int main(void)
{
	int r;

	tap_begin();
	before_hello();
	hello_cases();
	r = chan_hello(&chan, 0);
	if (r)
		bail("HELLO: %s", strerror(-r));
	attach_cases();
	r = chan_attach(&chan, SLOTS);
	if (r)
		bail("ATTACH: %s", strerror(-r));
	buffers_cases();
	map_cases();
	fetch_cases();
	cmd_cases(BY_IOCTL);
	r = chan_ring(&chan, 16);
	if (r)
		bail("no ring of 128 byte entries: %s", strerror(-r));
	cmd_cases(BY_URING);
	ring_cases();
	session_cases();
	return tap_end();
}
