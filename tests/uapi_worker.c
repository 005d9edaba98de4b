// SPDX-License-Identifier: MIT
/*
 * uapi_worker: a helper whose threads die, which is forked, or which asks itself.
 *
 *	uapi_worker DIRECTORY	an empty directory to mount on; as root, with no helper running
 */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "chan.h"
#include "tap.h"

#define MEMORY	(4u << 20)
#define DATA	(1u << 20)
#define SLOTS	4
#define WAIT_MS 60000
#define SIZE	100000

static struct chan chan;
static const char *directory;

/* Answers as a helper with one file, "f", would. */
static void answer(const struct wfs_request *request)
{
	struct wfs_cmd cmd = chan_op(WFS_CMD_COMMIT, chan.session);
	struct wfs_mount_reply *mount = (struct wfs_mount_reply *)chan.memory;
	struct wfs_attr *attr = (struct wfs_attr *)chan.memory;
	struct wfs_readdir_reply *page = (struct wfs_readdir_reply *)chan.memory;

	cmd.id = request->id;
	switch (request->opcode) {
	case WFS_REQ_MOUNT:
		*mount = (struct wfs_mount_reply){ .root = { .mode = S_IFDIR } };
		cmd.len = sizeof(*mount);
		break;
	case WFS_REQ_LOOKUP:
	case WFS_REQ_GETATTR:
		if (strcmp((const char *)request->payload, "f")) {
			cmd.status = -ENOENT;
			break;
		}
		*attr = (struct wfs_attr){
			.mode = S_IFREG,
			.size = SIZE,
			.version_len = 1,
			.version = "1",
		};
		cmd.len = sizeof(*attr);
		break;
	case WFS_REQ_READDIR:
		*page = (struct wfs_readdir_reply){ .flags = WFS_READDIR_EOF };
		cmd.len = sizeof(*page);
		break;
	case WFS_REQ_FILL: {
		struct wfs_cmd deliver = chan_op(WFS_CMD_DELIVER, chan.session);

		memset(chan.memory + DATA, 'x', SIZE);
		deliver.id = request->id;
		deliver.buf = DATA;
		deliver.len = SIZE;
		chan_ioctl_cmd(&chan, &deliver);
		break;
	}
	default:
		break;
	}
	chan_ioctl_cmd(&chan, &cmd);
}

/* Serves by ioctl what there is now. */
static void serve_some(void)
{
	static _Alignas(8) char room[WFS_SLOT_SIZE];
	struct wfs_fetch fetch = {
		.session = chan.session,
		.addr = (uintptr_t)room,
		.len = sizeof(room),
		.max = 1,
		.flags = WFS_FETCH_NONBLOCK,
	};

	while (chan_ioctl(chan.fd, WFS_IOC_FETCH, &fetch) == 1)
		answer((const struct wfs_request *)room);
}

/* Another process does it, as no helper; its result. */
static pid_t start(int (*f)(void), int *ret_pipe)
{
	int pipes[2], result;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC))
		bail("pipe: %s", strerror(errno));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		result = f();
		_exit(write(pipes[1], &result, sizeof(result)) != sizeof(result));
	}
	close(pipes[1]);
	*ret_pipe = pipes[0];
	return pid;
}

static bool finished(int fd, int ms, int *ret_result)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, ms) == 1 &&
	       read(fd, ret_result, sizeof(*ret_result)) == sizeof(*ret_result);
}

/* Serves until that process has its result. */
static int served(int (*f)(void))
{
	int fd, result = -ETIME;
	pid_t pid = start(f, &fd);

	for (int i = 0; i < WAIT_MS / 10; i++) {
		serve_some();
		if (finished(fd, 10, &result))
			break;
	}
	close(fd);
	waitpid(pid, NULL, 0);
	return result;
}

static int do_mount(void)
{
	return mount("file:///x", directory, "wfs", MS_RDONLY, "") ? -errno : 0;
}

static int in_directory(const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int do_open(void)
{
	int fd = in_directory("f");

	return fd < 0 ? -errno : 0;
}

static int do_read(void)
{
	int fd = in_directory("f");
	char c;

	if (fd < 0)
		return -errno;
	return pread(fd, &c, 1, 0) == 1 && c == 'x' ? 0 : -errno;
}

/* Parks fetches on a ring of its own and ends. */
static void *short_lived(void *arg)
{
	struct chan *mine = arg;

	for (uint16_t slot = 0; slot < SLOTS; slot++) {
		struct wfs_cmd cmd = chan_op(WFS_CMD_FETCH, mine->session);

		cmd.slot = slot;
		cmd.max = 1;
		if (chan_queue(mine, &cmd, slot))
			return "cannot park";
	}
	return NULL;
}

/*
 * What is given to a thread that has ended comes back to those that live. By ring: the
 * living thread's fetch is parked behind the dead one's.
 */
static void dead_thread(void)
{
	struct chan dead = chan, living = chan;
	struct wfs_cmd cmd = chan_op(WFS_CMD_FETCH, chan.session);
	uint64_t data = 0;
	pthread_t thread;
	int fd, res = 0, result = 0;
	void *failed;
	pid_t pid;

	if (chan_attach(&dead, SLOTS) || chan_attach(&living, SLOTS) || chan_ring(&living, 8) ||
	    chan_ring(&dead, 8))
		bail("cannot join the session");
	if (pthread_create(&thread, NULL, short_lived, &dead) || pthread_join(thread, &failed) ||
	    failed)
		bail("the short-lived thread failed");
	cmd.max = 1;
	chan_queue(&living, &cmd, 7);
	pid = start(do_mount, &fd);
	ok(chan_reap(&living, WAIT_MS, &data, &res) && data == 7 && res == 1,
	   "a request passes by the fetches of a thread that has ended");
	answer((const struct wfs_request *)living.slots);
	for (int i = 0; i < WAIT_MS / 10 && !finished(fd, 10, &result); i++)
		serve_some();
	is(result, 0, "  and is answered");
	close(fd);
	waitpid(pid, NULL, 0);
	io_uring_queue_exit(&living.ring);
	io_uring_queue_exit(&dead.ring);
	close(living.wfd);
	close(dead.wfd);
	is(served(do_open), 0, "the session goes on without their rings");
}

static sigjmp_buf fault_jump;

static void on_sigbus(int sig)
{
	(void)sig;
	siglongjmp(fault_jump, 1);
}

/* The helper would wait for itself. */
static void asks_itself(void)
{
	volatile bool faulted = false;
	struct stat st;
	volatile char *map;
	DIR *dir;
	char c;
	int fd;

	is(served(do_open), 0, "a file is known to others");
	ok(mount("file:///y", directory, "wfs", MS_RDONLY, "") && errno == EDEADLK,
	   "the helper mounts: EDEADLK");
	fd = in_directory("other");
	ok(fd < 0 && errno == EDEADLK, "  looks a name up: EDEADLK");
	dir = opendir(directory);
	errno = 0;
	ok(dir && !readdir(dir) && errno == EDEADLK, "  lists a directory: EDEADLK");
	if (dir)
		closedir(dir);
	fd = in_directory("f");
	ok(fd >= 0 && !fstat(fd, &st) && st.st_size == SIZE, "  opens what is known already");
	ok(pread(fd, &c, 1, 0) < 0 && errno == EDEADLK, "  reads what is not there: EDEADLK");
	map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	signal(SIGBUS, on_sigbus);
	if (!sigsetjmp(fault_jump, 1))
		c = map[5000];
	else
		faulted = true;
	signal(SIGBUS, SIG_DFL);
	ok(faulted, "  touches it in a mapping: SIGBUS");
	is(served(do_read), 0, "others read it");
	ok(pread(fd, &c, 1, 0) == 1 && c == 'x',
	   "  after which the helper can, from the page cache");
	munmap((void *)map, SIZE);
	close(fd);
}

/* Nothing but "." and what is cached: another process unmounts. */
static int do_umount(void)
{
	return umount(directory) ? -errno : 0;
}

static void duplicated(void)
{
	struct wfs_cmd cmd = chan_op(WFS_CMD_COMMIT, chan.session);
	int copy = dup(chan.fd);

	close(copy);
	is(chan_ioctl_cmd(&chan, &cmd), -ESTALE,
	   "a duplicate's close by the owner ends the session: never duplicate");
}

int main(int argc, char **argv)
{
	int r;

	if (argc != 2) {
		fprintf(stderr, "usage: uapi_worker DIRECTORY\n");
		return 2;
	}
	directory = argv[1];
	tap_begin();
	r = chan_hello(&chan, 0);
	if (!r)
		r = chan_buffers(&chan, MEMORY);
	if (r)
		bail("HELLO: %s", strerror(-r));
	serve_some();
	dead_thread();
	asks_itself();
	is(served(do_umount), 0, "umount");
	duplicated();
	return tap_end();
}
