// SPDX-License-Identifier: MIT
/*
 * store_index_fault: the index is read through a map of its file, so that a disk that fails
 * shows as SIGBUS, in the middle of LMDB. Whoever was at it then leaves at once.
 *
 * What LMDB was doing stays as it is: a reader has let go of everything but its slot, which
 * nobody else needs; a change keeps LMDB's lock for changes for ever. So that environment is
 * not used any more: the index is broken until it is attached anew. The only other map is that
 * of LMDB's locks. Those are in memory here, since a fault inside them would leave a lock with
 * somebody who is not there any more, and whoever asks for it next would wait for ever.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"
#include "store_index_impl.h"

/* Where the thread is to go on if the map fails it; NULL: it is not reading the map. */
static _Thread_local sigjmp_buf *fault_exit;
static _Thread_local bool fault_heard; /* SIGBUS is not blocked in this thread */

/* Environments that a change was left in the middle of. They cannot be closed. */
static struct index_wreck {
	struct index_wreck *next;
	MDB_env *env;
} * wrecks;
static pthread_mutex_t wrecks_lock = PTHREAD_MUTEX_INITIALIZER;

static void fault_caught(int number, siginfo_t *info, void *context)
{
	sigjmp_buf *leave = fault_exit;

	(void)context;
	/* Not one that somebody sent. */
	if (leave && info->si_code > 0)
		siglongjmp(*leave, 1);
	/* What it would have been: an access is made again and fails again. */
	signal(number, SIG_DFL);
	if (info->si_code <= 0)
		raise(number);
}

void index_fault_setup(void)
{
	struct sigaction action = { .sa_sigaction = fault_caught,
				    /* It is left by a jump that restores no mask. */
				    .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}

/* The kernel ends a process that a fault comes to while its thread has the signal blocked. */
static void fault_hear(void)
{
	sigset_t set;

	if (fault_heard)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	fault_heard = !pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int index_guard(struct index *index, int (*fn)(void *arg), void *arg, bool *ret_left)
{
	sigjmp_buf *const before = fault_exit;
	sigjmp_buf leave;
	int err;

	fault_hear();
	if (sigsetjmp(leave, 0)) {
		fault_exit = before;
		/* A library between the kernel and the handler may have blocked it. */
		fault_heard = false;
		index->broken = true;
		*ret_left = true;
		return -EIO;
	}
	fault_exit = &leave;
	err = fn(arg);
	fault_exit = before;
	return err;
}

void index_wreck(MDB_env *env)
{
	struct index_wreck *wreck = calloc(1, sizeof(*wreck));

	if (!wreck)
		return;
	wreck->env = env;
	SCOPED_LOCK(&wrecks_lock);
	wreck->next = wrecks;
	wrecks = wreck;
}

static int locks_name(const char *path, char *name, size_t size)
{
	return (size_t)snprintf(name, size, "%s/lock.mdb", path) < size ? 0 : -ENAMETOOLONG;
}

int index_locks_begin(const char *path, int *ret_fd)
{
	char name[4096 + 32], target[64];
	int fd, err = locks_name(path, name, sizeof(name));

	if (err)
		return err;
	fd = memfd_create("wfs-index-locks", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	snprintf(target, sizeof(target), "/proc/self/fd/%d", fd);
	/* What is there is of a process that has ended: the directory is locked. */
	if ((unlink(name) && errno != ENOENT) || symlink(target, name)) {
		err = -errno;
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

void index_locks_end(const char *path, int fd)
{
	char name[4096 + 32];

	if (!locks_name(path, name, sizeof(name)))
		unlink(name);
	close(fd);
}
