// SPDX-License-Identifier: MIT
/*
 * store_dir: one cache directory: lock, format, room; and what happens when its disk fails,
 * fills up or goes away, and comes back.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store_impl.h"

#define LOG_AREA "store"
#include "log.h"

#define STORE_FORMAT	 "wfs cache 2\n"
#define STORE_FORMAT_OLD "wfs cache 1\n"
/* Of the filesystem, left to others. */
#define STORE_LEAVE_PERCENT 1
#define STORE_LEAVE_MAX	    (1ULL << 30)
/* How long a directory rests after an error; not longer than from one cleaning to the next. */
#define STORE_REST_MS 5000
/*
 * An index that its disk fails again and again leaves something behind each time: the rest is
 * twice as long each time, so many times, until it is found well.
 */
#define STORE_REST_DOUBLINGS 6

static uint64_t dir_rest(const struct store *store, const struct store_dir *dir)
{
	uint64_t ms = store->cleanup_ms < STORE_REST_MS ? store->cleanup_ms : STORE_REST_MS;
	unsigned int again = dir->faults > 1 ? dir->faults - 1 : 0;

	ms <<= again < STORE_REST_DOUBLINGS ? again : STORE_REST_DOUBLINGS;
	return store_now() + ms * 1000000;
}

static int dir_mkdir(const char *path)
{
	char part[4096];

	if (strlen(path) >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= strlen(path); i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0700) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Something that keeps it from being used now, and need not keep it for ever. */
static bool dir_may_pass(int error)
{
	return error == -EIO || error == -EROFS || error == -ENOSPC || error == -EDQUOT ||
	       error == -ENODEV || error == -ENXIO || error == -ESTALE || error == -ENOMEDIUM;
}

/* Files that a start makes before the format is written. */
static bool dir_is_ours(const char *name)
{
	static const char *const ours[] = { ".", "..", "lock", "format.new", "probe", "lost+found" };

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (!strcmp(name, ours[i]))
			return true;
	return false;
}

/* Is there anything that the store did not put there? Its name, or "". */
static int dir_foreign(int fd, char *name, size_t size)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = again < 0 ? NULL : fdopendir(again);
	struct dirent *entry;

	*name = '\0';
	if (!list) {
		int err = -errno;

		if (again >= 0)
			close(again);
		return err;
	}
	while (!*name && (entry = readdir(list)))
		if (!dir_is_ours(entry->d_name))
			snprintf(name, size, "%s", entry->d_name);
	closedir(list);
	return 0;
}

void store_dir_give(int fd, const char *name)
{
	struct stat st;

	if (geteuid() || fstat(fd, &st) || !st.st_uid)
		return;
	if (fchownat(fd, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW))
		log_debug("%s cannot be given to user %u: %s", name, (unsigned int)st.st_uid,
			  strerror(errno));
}

/* To a message that says permission denied: how that is put right. */
static void dir_say_owner(const struct store_dir *dir, int err, char *msg, size_t msg_size)
{
	size_t len = strlen(msg);
	struct stat st;

	if ((err != -EACCES && err != -EPERM) || !geteuid() || len >= msg_size)
		return;
	if (stat(dir->path, &st))
		snprintf(msg + len, msg_size - len,
			 "; the daemon runs as user %u and must be able to search and own that directory",
			 (unsigned int)geteuid());
	else
		snprintf(msg + len, msg_size - len,
			 "; the directory (of user %u) and all in it must belong to the user of the daemon: with no wfsd running, chown -R %u:%u %s",
			 (unsigned int)st.st_uid, (unsigned int)geteuid(), (unsigned int)getegid(),
			 dir->path);
}

static int dir_write_format(int fd)
{
	cleanup_close int file =
		openat(fd, "format.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t len = (ssize_t)strlen(STORE_FORMAT), n;

	if (file < 0)
		return -errno;
	store_dir_give(fd, "format.new");
	n = write(file, STORE_FORMAT, (size_t)len);
	if (n != len)
		return n < 0 ? -errno : -ENOSPC;
	if (fsync(file) || renameat(fd, "format.new", fd, "format") || fsync(fd))
		return -errno;
	return 0;
}

/* Its index is not understood any more; its data files are nobody's then. */
static int dir_discard(int fd)
{
	if ((unlinkat(fd, "index/data.mdb", 0) && errno != ENOENT) ||
	    (unlinkat(fd, "index/lock.mdb", 0) && errno != ENOENT))
		return -errno;
	return 0;
}

/*
 * Where the disk of a running daemon is gone, its mount point is left: no cache is begun
 * there, on a filesystem that is not meant to hold one.
 */
static bool dir_is_elsewhere(const struct store_dir *dir, int fd)
{
	struct stat st;

	return dir->fd >= 0 && (fstat(fd, &st) || st.st_dev != dir->dev);
}

static int dir_check_format(const struct store_dir *dir, int fd, char *msg, size_t msg_size)
{
	char text[64], name[NAME_MAX + 1];
	const char *path = dir->path;
	cleanup_close int file = openat(fd, "format", O_RDONLY | O_CLOEXEC);
	ssize_t len;
	int err;

	if (file < 0 && errno == ENOENT) {
		if (dir_is_elsewhere(dir, fd)) {
			snprintf(msg, msg_size, "cache directory %s is on another filesystem now",
				 path);
			return -ENODEV;
		}
		err = dir_foreign(fd, name, sizeof(name));
		if (!err && *name) {
			snprintf(msg, msg_size,
				 "cache directory %s is not empty (\"%s\") and no cache of wfs; name another directory, or empty this one",
				 path, name);
			return -ENOTEMPTY;
		}
		if (!err)
			err = dir_write_format(fd);
		if (err)
			snprintf(msg, msg_size, "%s/format cannot be written: %s", path,
				 strerror(-err));
		return err;
	}
	len = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
	if (len < 0) {
		err = -errno;
		snprintf(msg, msg_size, "%s/format cannot be read: %s", path, strerror(-err));
		return err;
	}
	text[len] = '\0';
	if (!strcmp(text, STORE_FORMAT))
		return 0;
	if (!strcmp(text, STORE_FORMAT_OLD)) {
		log_warn("cache directory %s was made by an earlier version: what is in it is dropped",
			 path);
		err = dir_discard(fd);
		if (!err)
			err = dir_write_format(fd);
		if (err)
			snprintf(msg, msg_size, "cache directory %s cannot be emptied: %s", path,
				 strerror(-err));
		return err;
	}
	text[strcspn(text, "\n")] = '\0';
	snprintf(msg, msg_size,
		 "cache directory %s has a format that this version does not know (\"%s\"); name another directory, or empty this one",
		 path, text);
	return -EPROTONOSUPPORT;
}

/* Who has the lock, as far as is known: its process wrote it there. */
static void dir_lock_owner(int lock, char *text, size_t size)
{
	char pid[16] = "";
	ssize_t len = pread(lock, pid, sizeof(pid) - 1, 0);

	pid[len < 0 ? 0 : len] = '\0';
	pid[strspn(pid, "0123456789")] = '\0';
	snprintf(text, size, *pid ? " (process %s)" : "%s", pid);
}

/* The lock that is held already, of a directory that was lost and is found again? */
static bool dir_has_lock(const struct store_dir *dir, int lock)
{
	struct stat held, named;

	return dir->lock_fd >= 0 && !fstat(dir->lock_fd, &held) && !fstat(lock, &named) &&
	       held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

static int dir_lock(const struct store_dir *dir, int lock, char *msg, size_t msg_size)
{
	char owner[40];
	int err;

	if (flock(lock, LOCK_EX | LOCK_NB)) {
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
		dir_lock_owner(lock, owner, sizeof(owner));
		if (err == -EBUSY)
			snprintf(msg, msg_size, "cache directory %s is in use by another wfsd%s",
				 dir->path, owner);
		else
			snprintf(msg, msg_size, "%s/lock cannot be locked: %s", dir->path,
				 strerror(-err));
		return err;
	}
	/* For messages only: it may fail. */
	if (!ftruncate(lock, 0))
		dprintf(lock, "%d\n", (int)getpid());
	return 0;
}

/* *ret_lock is -1 where the lock is held already. */
static int dir_open_locked(const struct store_dir *dir, int *ret_fd, int *ret_lock, char *msg,
			   size_t msg_size)
{
	int fd = -1, lock = -1;
	int err = dir_mkdir(dir->path);

	if (!err) {
		fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		err = fd < 0 ? -errno : 0;
	}
	if (err) {
		snprintf(msg, msg_size, "cache directory %s cannot be opened: %s", dir->path,
			 strerror(-err));
		return err;
	}
	lock = openat(fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0) {
		err = -errno;
		snprintf(msg, msg_size, "%s/lock cannot be opened: %s", dir->path, strerror(-err));
	} else if (dir_has_lock(dir, lock)) {
		close(lock);
		lock = -1;
	} else {
		store_dir_give(fd, "lock");
		err = dir_lock(dir, lock, msg, msg_size);
	}
	if (err) {
		if (lock >= 0)
			close(lock);
		close(fd);
		return err;
	}
	*ret_fd = fd;
	*ret_lock = lock;
	return 0;
}

/* Data files are read and written past the page cache, and have holes. */
static int dir_probe(const char *path, int fd, char *msg, size_t msg_size)
{
	cleanup_close int file = openat(fd, "probe", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	cleanup_free void *page = NULL;
	int err = file < 0 ? -errno : 0;
	ssize_t n;

	if (!err && posix_memalign(&page, 4096, 4096))
		err = -ENOMEM;
	if (!err) {
		memset(page, 0, 4096);
		n = pwrite(file, page, 4096, 0);
		if (n != 4096)
			err = n < 0 ? -errno : -ENOSPC;
	}
	if (!err && (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) ||
		     fdatasync(file)))
		err = -errno;
	unlinkat(fd, "probe", 0);
	if (err == -EINVAL || err == -EOPNOTSUPP)
		snprintf(msg, msg_size,
			 "cache directory %s is on a filesystem without direct I/O or holes; use XFS or ext4",
			 path);
	else if (err)
		snprintf(msg, msg_size, "cache directory %s cannot be written: %s", path,
			 strerror(-err));
	return err;
}

static int dir_make(int fd, const char *name)
{
	if (mkdirat(fd, name, 0700))
		return errno == EEXIST ? 0 : -errno;
	store_dir_give(fd, name);
	return 0;
}

static int dir_make_parts(const char *path, int fd, char *msg, size_t msg_size)
{
	char name[16];
	int err = dir_make(fd, "index");

	if (!err)
		err = dir_make(fd, "data");
	for (unsigned int i = 0; !err && i < STORE_SUBDIRS; i++) {
		snprintf(name, sizeof(name), "data/%02x", i);
		err = dir_make(fd, name);
	}
	if (err)
		snprintf(msg, msg_size, "cannot make directories in %s: %s", path, strerror(-err));
	return err;
}

/* The largest id among the data files there. What no start can have made is none. */
static uint64_t dir_largest_id(int fd)
{
	uint64_t largest = 0;

	for (unsigned int i = 0; i < STORE_SUBDIRS; i++) {
		struct dirent *entry;
		char name[16];
		DIR *list;
		int sub;

		snprintf(name, sizeof(name), "data/%02x", i);
		sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		list = sub < 0 ? NULL : fdopendir(sub);
		if (!list) {
			if (sub >= 0)
				close(sub);
			continue;
		}
		while ((entry = readdir(list))) {
			char *end;
			uint64_t id = strtoull(entry->d_name, &end, 16);

			if (entry->d_name[0] != '.' && !*end && id > largest &&
			    id >> 40 < INDEX_STARTS_MAX)
				largest = id;
		}
		closedir(list);
	}
	return largest;
}

/*
 * No id is ever used twice, so that what a lost start left behind is nobody's. An index that
 * was made anew beside old data files goes on behind the ids of those.
 */
static int dir_begin_ids(struct store_dir *dir, int fd)
{
	uint64_t starts = index_starts(dir->index);
	int err = 0;

	if (starts == 1) {
		starts = (dir_largest_id(fd) >> 40) + 1;
		if (starts > 1)
			err = index_skip_starts(dir->index, starts);
	}
	dir->first_id = starts << 40;
	dir->next_id = dir->first_id;
	return err;
}

void store_dir_measure(struct store *store, struct store_dir *dir)
{
	struct statvfs vfs;
	uint64_t free_bytes, leave, limit;

	if (dir->fd < 0 || fstatvfs(dir->fd, &vfs))
		return;
	free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	leave = (uint64_t)vfs.f_blocks * vfs.f_frsize / 100 * STORE_LEAVE_PERCENT;
	if (leave > STORE_LEAVE_MAX)
		leave = STORE_LEAVE_MAX;
	SCOPED_LOCK(&store->lock);
	limit = dir->used + (free_bytes > leave ? free_bytes - leave : 0);
	if (!dir->configured)
		dir->configured = store->capacity.bytes ?
					  store->capacity.bytes :
					  (uint64_t)((double)(dir->used + free_bytes) *
						     store->capacity.percent / 100);
	dir->capacity = dir->configured < limit ? dir->configured : limit;
}

/* The descriptor takes the place of the one before, which others may be using just now. */
static int dir_replace_fd(int *fd, int fresh)
{
	int err = 0;

	if (*fd < 0) {
		*fd = fresh;
		return 0;
	}
	if (dup3(fresh, *fd, O_CLOEXEC) < 0)
		err = -errno;
	close(fresh);
	return err;
}

static int dir_attach(struct store *store, struct store_dir *dir, int fd, char *msg,
		      size_t msg_size)
{
	struct index_totals totals;
	char path[4096 + 16];
	int err = dir_make_parts(dir->path, fd, msg, msg_size);

	snprintf(path, sizeof(path), "%s/index", dir->path);
	if (!err)
		err = index_attach(dir->index, path, msg, msg_size);
	if (err)
		return err;
	store_dir_give(fd, "index/data.mdb");
	store_dir_give(fd, "index/lock.mdb");
	err = dir_begin_ids(dir, fd);
	if (!err)
		err = store_source_load(store, dir);
	if (err) {
		index_detach(dir->index);
		snprintf(msg, msg_size,
			 "the index of %s cannot be used: %s; remove the cache directory",
			 dir->path, strerror(-err));
		return err;
	}
	index_totals(dir->index, &totals);
	pthread_mutex_lock(&store->lock);
	dir->used = totals.bytes;
	dir->lost = false;
	dir->left_change = 0;
	pthread_mutex_unlock(&store->lock);
	dir->collected = 0;
	return 0;
}

static int dir_use(struct store *store, struct store_dir *dir, int fd, char *msg, size_t msg_size)
{
	int err = dir_check_format(dir, fd, msg, msg_size);

	if (!err)
		err = dir_probe(dir->path, fd, msg, msg_size);
	if (!err)
		err = dir_attach(store, dir, fd, msg, msg_size);
	return err;
}

/* One that was lost. */
static int dir_reopen(struct store *store, struct store_dir *dir, char *msg, size_t msg_size)
{
	int fd = -1, lock = -1;
	int err = dir_open_locked(dir, &fd, &lock, msg, msg_size);
	struct stat st;

	if (err)
		return err;
	err = dir_use(store, dir, fd, msg, msg_size);
	if (err) {
		if (lock >= 0)
			close(lock);
		close(fd);
		return err;
	}
	if (!fstat(fd, &st))
		dir->dev = st.st_dev;
	err = dir_replace_fd(&dir->fd, fd);
	if (!err && lock >= 0)
		err = dir_replace_fd(&dir->lock_fd, lock);
	else if (lock >= 0)
		close(lock);
	if (err)
		snprintf(msg, msg_size, "cache directory %s: %s", dir->path, strerror(-err));
	return err;
}

/* Its disk does not let it be used: tried again later. Before anybody uses it. */
static void dir_put_off(struct store *store, struct store_dir *dir, const char *msg)
{
	log_error("%s; nothing is kept there until that has passed", msg);
	if (dir->fd >= 0)
		close(dir->fd);
	if (dir->lock_fd >= 0)
		close(dir->lock_fd);
	dir->fd = -1;
	dir->lock_fd = -1;
	dir->lost = true;
	dir->ailing = true;
	dir->rest_ns = dir_rest(store, dir);
}

int store_dir_lock(struct store *store, struct store_dir *dir, char *msg, size_t msg_size)
{
	int err = dir_open_locked(dir, &dir->fd, &dir->lock_fd, msg, msg_size);
	struct stat st;

	if (!err && !fstat(dir->fd, &st))
		dir->dev = st.st_dev;
	dir_say_owner(dir, err, msg, msg_size);
	if (!err || !dir_may_pass(err))
		return err;
	dir_put_off(store, dir, msg);
	return 0;
}

int store_dir_open(struct store *store, struct store_dir *dir, char *msg, size_t msg_size)
{
	int err = dir->lost ? 0 : dir_use(store, dir, dir->fd, msg, msg_size);

	dir_say_owner(dir, err, msg, msg_size);
	if (err && !dir_may_pass(err))
		return err;
	if (err)
		dir_put_off(store, dir, msg);
	if (dir->lost)
		return 0;
	store_dir_measure(store, dir);
	log_info("cache %s: %llu MiB, capacity %llu MiB", dir->path,
		 (unsigned long long)dir->used >> 20, (unsigned long long)dir->capacity >> 20);
	return 0;
}

void store_dir_close(struct store_dir *dir)
{
	index_close(dir->index);
	if (dir->fd >= 0)
		close(dir->fd);
	/* Explicitly: a ring may keep the file for a moment longer. */
	if (dir->lock_fd >= 0) {
		flock(dir->lock_fd, LOCK_UN);
		close(dir->lock_fd);
	}
	free(dir->path);
	free(dir->left);
	free(dir->ghosts);
}

void store_dir_rest(struct store *store, struct store_dir *dir, int error, const char *what)
{
	if (!dir->ailing)
		log_warn("cache %s: %s (%s): nothing is stored there until that has passed",
			 dir->path, what, strerror(-error));
	dir->ailing = true;
	dir->rest_ns = dir_rest(store, dir);
	/* Somebody else's data may have filled the disk: the thread measures it. */
	store->evict = true;
	pthread_cond_signal(&store->wake);
}

/* Is what the path names now, with its index, what was opened? */
static bool dir_is_there(const struct store_dir *dir)
{
	struct stat opened, named;

	return !fstat(dir->fd, &opened) && !stat(dir->path, &named) &&
	       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino &&
	       !fstatat(dir->fd, "index/data.mdb", &named, 0) &&
	       !fstatat(dir->fd, "data/00", &named, 0);
}

static void dir_lose(struct store *store, struct store_dir *dir)
{
	bool broken = index_is_broken(dir->index);

	pthread_mutex_lock(&store->lock);
	if (!dir->lost)
		log_warn(broken ?
				 "cache %s: the index cannot be read or written: nothing is kept there until that has passed" :
				 "cache %s is gone: nothing is kept there until it is back",
			 dir->path);
	dir->lost = true;
	dir->ailing = true;
	store_files_die(store, dir);
	dir->used = 0;
	for (struct store_source *source = store->sources; source; source = source->next)
		source->used[dir->number] = 0;
	pthread_mutex_unlock(&store->lock);
	dir->refused = false;
	dir->faults += broken;
	index_detach(dir->index);
}

bool store_dir_is_failed(const struct store_dir *dir)
{
	return !dir->lost && index_is_broken(dir->index);
}

/* Was lost: opens it again, unless its index has failed only a moment ago. */
static int dir_return(struct store *store, struct store_dir *dir, bool failed, char *msg,
		      size_t msg_size)
{
	int err;

	if (failed && dir->faults > 1) {
		snprintf(msg, msg_size, "its index has failed again");
		return -EIO;
	}
	err = dir_reopen(store, dir, msg, msg_size);
	if (err && !dir->refused && !dir_may_pass(err))
		log_error("%s", msg);
	dir->refused = err;
	return err;
}

bool store_dir_check(struct store *store, struct store_dir *dir)
{
	char msg[4096 + 512] = "";
	bool lost, ailing, failed = false;
	int err = 0;

	pthread_mutex_lock(&store->lock);
	lost = dir->lost;
	ailing = dir->ailing;
	pthread_mutex_unlock(&store->lock);
	if (!lost && (!dir_is_there(dir) || index_is_broken(dir->index))) {
		failed = index_is_broken(dir->index);
		dir_lose(store, dir);
		lost = ailing = true;
	}
	if (lost)
		err = dir_return(store, dir, failed, msg, sizeof(msg));
	else if (ailing)
		err = dir_probe(dir->path, dir->fd, msg, sizeof(msg));
	else
		dir->faults = 0;
	if (!err)
		store_dir_measure(store, dir);
	pthread_mutex_lock(&store->lock);
	/* A full disk is as bad as one that fails, until there is room for something. */
	if (!err && ailing && !dir->used && !dir->capacity)
		err = -ENOSPC;
	dir->rest_ns = err ? dir_rest(store, dir) : 0;
	if (!err && ailing)
		log_info("cache %s: stores again", dir->path);
	if (!err)
		dir->ailing = false;
	pthread_mutex_unlock(&store->lock);
	if (err)
		log_debug("cache %s: %s", dir->path, msg);
	return !err;
}
