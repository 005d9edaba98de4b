// SPDX-License-Identifier: MIT
/*
 * origin_file: a directory of this machine.
 *
 * The path of the source is taken as it is, without percent-decoding. Below it no
 * symlink is followed, each is shown as one; what is neither file, directory nor
 * symlink is not shown. Names are asked of the filesystem at once, on the loop's
 * thread; data is read through the loop.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "origin_impl.h"

#define PAGE_ENTRIES 1024
#define CHUNK_BYTES  (512u << 10)
/* Timestamps advance by ticks of up to 10 ms: a younger file may change unseen. */
#define SETTLED_NS 50000000

struct origin_file {
	struct origin base;
	char *path; /* for people */
	int root;   /* O_PATH */
	char *only; /* the source is this file in root, or NULL */
};

struct file_op {
	struct origin_call base;
	struct origin_file *origin;
	struct loop *loop;
	struct loop_timer answer; /* callbacks are not made from the starting call */
	char *path;
	struct origin_result result;
	char text[ORIGIN_MESSAGE_MAX];
	uint64_t begin_ns;
	void *arg;

	origin_stat_fn stat_done;
	struct origin_attr attr;

	origin_link_fn link_done;
	char target[PATH_MAX];

	origin_list_fn list_done;
	struct origin_page page;
	char token[32];
	bool more;

	origin_offers_fn offers_done;
	struct offers offers;

	struct origin_get get;
	int fd; /* -1: none */
	struct loop_op read;
	void *chunk; /* the loop may write here after a cancel, so never to get.dst */
	uint64_t bytes;
	bool reading, cancelled, reporting;
};

static struct origin_file *of(struct origin *origin)
{
	return container_of(origin, struct origin_file, base);
}

static void op_free(struct file_op *op)
{
	loop_timer_stop(op->loop, &op->answer);
	if (op->fd >= 0)
		close(op->fd);
	origin_page_free(&op->page);
	origin_unref(&op->origin->base);
	free(op->chunk);
	free(op->path);
	free(op);
}

static void op_cancel(struct origin_call *call)
{
	struct file_op *op = container_of(call, struct file_op, base);

	op->cancelled = true;
	if (op->reading)
		loop_cancel(op->loop, &op->read);
	else if (!op->reporting)
		op_free(op);
}

static void op_answer(struct loop_timer *timer)
{
	struct file_op *op = container_of(timer, struct file_op, answer);

	origin_count(&op->origin->base, 0, loop_now_ns() - op->begin_ns, op->result.error);
	if (op->stat_done)
		op->stat_done(op->arg, &op->result, &op->attr);
	else if (op->link_done)
		op->link_done(op->arg, &op->result, op->target);
	else if (op->list_done)
		op->list_done(op->arg, &op->result, op->page.entries, op->page.count,
			      op->more ? op->token : NULL, op->page.skipped);
	else if (op->offers_done)
		op->offers_done(op->arg, &op->result, &op->offers);
	else
		op->get.done(op->get.arg, &op->result, op->bytes);
	op_free(op);
}

static struct file_op *op_create(struct origin *origin, struct loop *loop, const char *path,
				 void *arg)
{
	struct file_op *op = calloc(1, sizeof(*op));
	struct origin_file *file = of(origin);

	if (!op)
		return NULL;
	op->path = strdup(*path || !file->only ? path : file->only);
	if (!op->path) {
		free(op);
		return NULL;
	}
	op->base.cancel = op_cancel;
	op->answer.expired = op_answer;
	op->origin = of(origin_ref(origin));
	op->loop = loop;
	op->fd = -1;
	op->arg = arg;
	op->begin_ns = loop_now_ns();
	return op;
}

/* Sets the result after a system call that failed with error (negative). */
static void op_fail(struct file_op *op, int error)
{
	const char *why = strerror(-error);
	bool transient = false;

	switch (error) {
	case -ENOENT:
	case -ENOTDIR:
	case -ELOOP:
	case -ENAMETOOLONG:
	case -EXDEV:
		error = -ENOENT;
		why = "not found";
		break;
	case -EACCES:
	case -EPERM:
		error = -EACCES;
		break;
	case -ESTALE:
		why = "changed";
		break;
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -EAGAIN:
		transient = true;
		break;
	case -EINVAL:
	case -EDEADLK:
		break;
	default:
		error = -EIO;
		break;
	}
	origin_fail(&op->result, op->text, error, transient, "%s/%s: %s", op->origin->path,
		    op->path, why);
}

/* The last component may be a symlink only with O_PATH | O_NOFOLLOW. */
static int open_below(int root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned int)(flags | O_CLOEXEC | O_NOFOLLOW),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do {
		fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

static int64_t stamp_ns(const struct statx_timestamp *stamp)
{
	return stamp->tv_sec * INT64_C(1000000000) + stamp->tv_nsec;
}

/* -ENOENT for what is not shown. */
static int attr_of(int fd, const char *name, struct origin_attr *ret_attr)
{
	struct statx stx;
	struct timespec now;
	struct origin_attr attr = { 0 };

	if (statx(fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx))
		return -errno;
	attr.mode = stx.stx_mode & S_IFMT;
	if (attr.mode != S_IFREG && attr.mode != S_IFDIR && attr.mode != S_IFLNK)
		return -ENOENT;
	attr.mtime_sec = stx.stx_mtime.tv_sec;
	attr.mtime_nsec = stx.stx_mtime.tv_nsec;
	if (attr.mode != S_IFDIR) {
		attr.size = stx.stx_size;
		snprintf(attr.version, sizeof(attr.version), "%llu-%" PRId64 "-%" PRId64 "-%llu",
			 stx.stx_size, stamp_ns(&stx.stx_mtime), stamp_ns(&stx.stx_ctime),
			 stx.stx_ino);
		clock_gettime(CLOCK_REALTIME, &now);
		if (now.tv_sec * INT64_C(1000000000) + now.tv_nsec - stamp_ns(&stx.stx_ctime) <
		    SETTLED_NS)
			attr.flags |= ORIGIN_WEAK;
	}
	*ret_attr = attr;
	return 0;
}

static int file_stat(struct origin *origin, struct loop *loop, const char *path,
		     origin_stat_fn done, void *arg, struct origin_call **ret_call)
{
	struct file_op *op = op_create(origin, loop, path, arg);
	int err;

	if (!op)
		return -ENOMEM;
	op->stat_done = done;
	op->fd = open_below(op->origin->root, op->path, O_PATH);
	err = op->fd < 0 ? op->fd : attr_of(op->fd, "", &op->attr);
	if (err)
		op_fail(op, err);
	loop_timer_start(loop, &op->answer, 0);
	*ret_call = &op->base;
	return 0;
}

static int file_readlink(struct origin *origin, struct loop *loop, const char *path,
			 origin_link_fn done, void *arg, struct origin_call **ret_call)
{
	struct file_op *op = op_create(origin, loop, path, arg);
	ssize_t n = -1;

	if (!op)
		return -ENOMEM;
	op->link_done = done;
	op->fd = open_below(op->origin->root, op->path, O_PATH);
	if (op->fd < 0) {
		op_fail(op, op->fd);
	} else {
		n = readlinkat(op->fd, "", op->target, sizeof(op->target) - 1);
		/* With no name, a descriptor of something else gives ENOENT. */
		if (n < 0)
			op_fail(op, errno == ENOENT ? -EINVAL : -errno);
	}
	loop_timer_start(loop, &op->answer, 0);
	*ret_call = &op->base;
	return 0;
}

static int fill_page(struct file_op *op, DIR *dir)
{
	struct origin_attr attr;
	struct dirent *entry;
	int err;

	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return -errno;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		err = attr_of(dirfd(dir), entry->d_name, &attr);
		if (err) {
			/* Gone meanwhile, or not shown. */
			if (err == -ENOENT && entry->d_type != DT_REG && entry->d_type != DT_DIR)
				op->page.skipped++;
		} else {
			attr.version[0] = '\0';
			err = origin_page_add(&op->page, entry->d_name, strlen(entry->d_name),
					      &attr);
			if (err)
				return err;
		}
		if (op->page.count >= PAGE_ENTRIES) {
			snprintf(op->token, sizeof(op->token), "%lld", (long long)entry->d_off);
			op->more = true;
			return 0;
		}
	}
}

static int file_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		     origin_list_fn done, void *arg, struct origin_call **ret_call)
{
	struct file_op *op;
	long position = 0;
	char *end;
	DIR *dir;
	int err, fd;

	if (token) {
		errno = 0;
		position = strtol(token, &end, 10);
		if (errno || end == token || *end)
			return -EINVAL;
	}
	op = op_create(origin, loop, path, arg);
	if (!op)
		return -ENOMEM;
	op->list_done = done;
	fd = open_below(op->origin->root, op->path, O_RDONLY | O_DIRECTORY);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (dir) {
		if (token)
			seekdir(dir, position);
		err = fill_page(op, dir);
		closedir(dir);
	} else if (fd >= 0) {
		err = -errno;
		close(fd);
	} else {
		err = fd;
	}
	if (err)
		op_fail(op, err);
	loop_timer_start(loop, &op->answer, 0);
	*ret_call = &op->base;
	return 0;
}

/* Data: a chunk at a time; each counts only if the file was still the same after it. */

static bool same_version(const struct file_op *op)
{
	struct origin_attr now;

	return !attr_of(op->fd, "", &now) && now.mode == S_IFREG &&
	       !strcmp(now.version, op->attr.version);
}

static void read_next(struct file_op *op)
{
	uint64_t left = op->get.len - op->bytes;

	op->reading = true;
	loop_read(op->loop, &op->read, op->fd, op->chunk,
		  (unsigned int)(left < CHUNK_BYTES ? left : CHUNK_BYTES),
		  op->get.offset + op->bytes);
}

static void on_chunk(struct loop_op *read_op, int res)
{
	struct file_op *op = container_of(read_op, struct file_op, read);

	op->reading = false;
	if (op->cancelled) {
		op_free(op);
		return;
	}
	if (res == -EINTR || res == -EAGAIN) {
		read_next(op);
		return;
	}
	if (res < 0) {
		op_fail(op, res);
	} else if (!res || !same_version(op)) {
		op_fail(op, -ESTALE);
	} else {
		memcpy((char *)op->get.dst + op->bytes, op->chunk, (size_t)res);
		op->bytes += (uint64_t)res;
		origin_count_bytes(&op->origin->base, (uint64_t)res);
		if (op->get.progress) {
			op->reporting = true;
			op->get.progress(op->get.arg, op->bytes);
			op->reporting = false;
			if (op->cancelled) {
				op_free(op);
				return;
			}
		}
		if (op->bytes < op->get.len) {
			read_next(op);
			return;
		}
	}
	op_answer(&op->answer);
}

static int file_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		     struct origin_call **ret_call)
{
	struct file_op *op = op_create(origin, loop, get->path, get->arg);

	if (!op)
		return -ENOMEM;
	op->get = *get;
	op->attr = *get->attr;
	op->get.path = NULL;
	op->get.attr = &op->attr;
	op->read.done = on_chunk;
	op->chunk = malloc(get->len < CHUNK_BYTES ? (size_t)get->len : CHUNK_BYTES);
	if (!op->chunk) {
		op_free(op);
		return -ENOMEM;
	}
	/* O_NONBLOCK: opening what has become a FIFO must not wait. */
	op->fd = open_below(op->origin->root, op->path, O_RDONLY | O_NONBLOCK);
	/* A version that is read was there: now it is gone. */
	if (op->fd == -ENOENT)
		op_fail(op, -ESTALE);
	else if (op->fd < 0)
		op_fail(op, op->fd);
	else if (!same_version(op))
		op_fail(op, -ESTALE);
	/* io_uring would take it for "do not wait" where a filesystem cannot promise that. */
	else if (fcntl(op->fd, F_SETFL, 0))
		op_fail(op, -errno);
	if (op->result.error)
		loop_timer_start(loop, &op->answer, 0);
	else
		read_next(op);
	*ret_call = &op->base;
	return 0;
}

/* The file beside it, as far as it can be one that tells a digest. */
static int read_offers(struct file_op *op)
{
	const char *slash = strrchr(op->path, '/');
	cleanup_free char *beside = NULL, *text = NULL;
	cleanup_close int fd = -1;
	struct stat st;
	ssize_t n;

	if (asprintf(&beside, "%s" OFFERS_SUFFIX, op->path) < 0) {
		beside = NULL;
		return -ENOMEM;
	}
	fd = open_below(op->origin->root, beside, O_RDONLY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return fd == -ENOMEM || fd == -EMFILE || fd == -ENFILE ? fd : 0;
	text = malloc(OFFERS_FILE_MAX + 1);
	n = text ? read(fd, text, OFFERS_FILE_MAX + 1) : -1;
	if (n >= 0 && n <= (ssize_t)OFFERS_FILE_MAX)
		offers_file(&op->offers, text, (size_t)n, slash ? slash + 1 : op->path);
	return n < 0 ? -errno : 0;
}

static int file_offers(struct origin *origin, struct loop *loop, const char *path,
		       const struct origin_attr *attr, origin_offers_fn done, void *arg,
		       struct origin_call **ret_call)
{
	struct file_op *op = op_create(origin, loop, path, arg);
	int err = 0;

	if (!op)
		return -ENOMEM;
	op->offers_done = done;
	op->attr = *attr;
	op->fd = open_below(op->origin->root, op->path, O_PATH);
	if (op->fd < 0)
		err = op->fd;
	else if (!same_version(op))
		err = -ESTALE;
	else if (offers_wanted(op->path))
		err = read_offers(op);
	if (err)
		op_fail(op, err);
	loop_timer_start(loop, &op->answer, 0);
	*ret_call = &op->base;
	return 0;
}

static void file_destroy(struct origin *origin)
{
	struct origin_file *file = of(origin);

	if (file->root >= 0)
		close(file->root);
	free(file->only);
	free(file->path);
	free(origin->identity);
	free(file);
}

static const struct origin_ops file_ops = {
	.stat = file_stat,
	.list = file_list,
	.readlink = file_readlink,
	.read = file_read,
	.offers = file_offers,
	.destroy = file_destroy,
};

/* Opens the directory, or the directory that the one file is in. */
static int open_root(struct origin_file *file)
{
	struct stat st;
	char *slash;

	file->root = open(file->path, O_PATH | O_CLOEXEC);
	if (file->root < 0 || fstat(file->root, &st))
		return -errno;
	if (S_ISDIR(st.st_mode))
		return 0;
	slash = strrchr(file->path, '/');
	file->only = strdup(slash + 1);
	if (!file->only)
		return -ENOMEM;
	close(file->root);
	slash[slash == file->path] = '\0';
	file->root = open(file->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return file->root < 0 ? -errno : 0;
}

int origin_file_create(const char *source, const struct origin_settings *settings,
		       struct origin **ret, char *msg, size_t msg_size)
{
	const char *path = source + strlen("file://");
	struct origin_file *file;
	size_t len = strlen(path);
	int err;

	(void)settings;
	if (*path != '/') {
		snprintf(msg, msg_size,
			 "a file source needs an absolute path: file:///PATH, with three slashes");
		return -EINVAL;
	}
	while (len > 1 && path[len - 1] == '/')
		len--;
	file = calloc(1, sizeof(*file));
	if (!file) {
		snprintf(msg, msg_size, "out of memory");
		return -ENOMEM;
	}
	file->base.ops = &file_ops;
	file->root = -1;
	file->path = strndup(path, len);
	err = file->path ? 0 : -ENOMEM;
	if (!err && asprintf(&file->base.identity, "file://%s", file->path) < 0) {
		file->base.identity = NULL;
		err = -ENOMEM;
	}
	if (!err)
		err = open_root(file);
	if (err) {
		snprintf(msg, msg_size, "%s: %s", path, strerror(-err));
		file_destroy(&file->base);
		return err;
	}
	*ret = &file->base;
	return 0;
}
