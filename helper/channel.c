// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "channel.h"
#include "cleanup.h"

#define LOG_AREA "channel"
#include "log.h"

#define SLOTS	   4
#define FETCH_MOST 32
/* Room for the requests of one WFS_IOC_FETCH. */
#define FETCH_BYTES (4 * WFS_SLOT_SIZE)
/* A fetch that fails for want of memory is tried again after so long. */
#define PAUSE_MS 100
/* The same for a reply that found no free buffer. */
#define PAYLOAD_PAUSE_MS 2

/* A parked fetch and the place that its requests come to. */
struct slot {
	struct channel_cmd fetch;
	struct loop_timer pause;
	uint64_t committed; /* request that COMMIT_FETCH answered, or 0 */
	void *cell;	    /* payload of that commit */
	bool parked;
	uint16_t index;
};

/* A reply under way, or one that waits for a buffer. */
struct commit {
	struct channel_cmd base;
	struct commit *next;
	void *payload;
	size_t len;
	channel_after_fn after; /* or NULL */
	void *arg;
	char copy[]; /* while there is no buffer */
};

struct channel {
	struct session *session;
	struct loop *loop;
	int fd;
	const char *slots; /* read-only mapping */
	struct slot slot[SLOTS];
	struct slot *merge;	/* its requests are being handled: may take a commit along */
	unsigned int under_way; /* commands on the ring */
	bool started, over;
	struct commit *waiting, **waiting_end;
	struct loop_timer waiting_timer;
	/* The ioctl transport. */
	pthread_t thread;
	bool thread_runs;
	char *fetched; /* owned by the thread, by the loop after the post */
	int count;
	struct loop_task task;
	sem_t handled;
	atomic_bool stop;
};

static _Atomic uint64_t late, refused;

void channel_counters(uint64_t *ret_late, uint64_t *ret_refused)
{
	*ret_late = atomic_load_explicit(&late, memory_order_relaxed);
	*ret_refused = atomic_load_explicit(&refused, memory_order_relaxed);
}

struct loop *channel_loop(const struct channel *channel)
{
	return channel->loop;
}

static struct channel *channel_self(const struct session *session)
{
	struct loop *loop = loop_self();

	for (size_t i = 0; loop && i < CHANNELS_MAX; i++)
		if (session->channels[i] && session->channels[i]->loop == loop)
			return session->channels[i];
	return NULL;
}

static void session_over(struct channel *channel)
{
	channel->over = true;
	channel->session->ended(channel->session);
}

/* Commands. */

static void cmd_done(struct loop_op *op, int res)
{
	struct channel_cmd *cmd = container_of(op, struct channel_cmd, op);

	cmd->channel->under_way--;
	cmd->done(cmd, res);
}

static void cmd_queue(struct channel *channel, struct channel_cmd *cmd)
{
	cmd->channel = channel;
	cmd->op.done = cmd_done;
	channel->under_way++;
	loop_command(channel->loop, &cmd->op, channel->fd, cmd->cmd.op, &cmd->cmd,
		     sizeof(cmd->cmd));
}

int channel_call(struct session *session, const struct wfs_cmd *cmd)
{
	struct wfs_cmd copy = *cmd;
	int r;

	copy.session = session->id;
	do {
		r = ioctl(session->fd, WFS_IOC_CMD, &copy);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

int channel_call_with(struct session *session, const struct wfs_cmd *cmd, const void *payload,
		      size_t len)
{
	struct wfs_cmd copy = *cmd;
	char *cell;
	int r;

	if (len > PAYLOAD_CELL)
		return -EMSGSIZE;
	cell = payload_hold(session->payloads);
	memcpy(cell, payload, len);
	copy.buf = (uint64_t)(cell - session->base);
	copy.len = (uint32_t)len;
	r = channel_call(session, &copy);
	payload_release(session->payloads);
	return r;
}

void channel_send(struct session *session, struct channel_cmd *cmd)
{
	struct channel *channel = channel_self(session);

	cmd->cmd.session = session->id;
	if (session->ioctl || !channel || channel->over)
		cmd->done(cmd, channel_call(session, &cmd->cmd));
	else
		cmd_queue(channel, cmd);
}

/* Commits. */

static void commit_result(struct session *session, uint64_t id, int res)
{
	if (res == -ENOENT) {
		atomic_fetch_add_explicit(&late, 1, memory_order_relaxed);
		log_debug("request %llu: nobody waits for the answer any more",
			  (unsigned long long)id);
	} else if (res == -EINVAL) {
		atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
		log_error("request %llu: the kernel refused the answer as malformed; it gets EIO",
			  (unsigned long long)id);
		channel_commit(session, id, -EIO, -1, NULL, 0);
	} else if (res < 0 && res != -ESTALE && res != -ECANCELED) {
		log_error("request %llu: cannot be answered: %s", (unsigned long long)id,
			  strerror(-res));
	}
}

static void commits_resume(struct channel *channel);

static void commit_done(struct channel_cmd *cmd, int res)
{
	struct commit *commit = container_of(cmd, struct commit, base);
	struct channel *channel = cmd->channel;
	struct session *session = channel->session;
	/* A refused EIO is not answered once more: it has no payload to be wrong. */
	bool plain = !cmd->cmd.len && cmd->cmd.status == -EIO;

	payload_put(session->payloads, commit->payload);
	if (commit->after)
		commit->after(commit->arg, res);
	if (res == -EINVAL && plain)
		log_error("request %llu: the kernel refused even an error",
			  (unsigned long long)cmd->cmd.id);
	else
		commit_result(session, cmd->cmd.id, res);
	free(commit);
	commits_resume(channel);
}

static void commit_send(struct channel *channel, struct commit *commit)
{
	struct session *session = channel->session;

	if (commit->payload) {
		commit->base.cmd.buf = (uint64_t)((char *)commit->payload - session->base);
		commit->base.cmd.len = (uint32_t)commit->len;
	}
	commit->base.cmd.session = session->id;
	if (session->ioctl || channel->over)
		commit_done(&commit->base, channel_call(session, &commit->base.cmd));
	else
		cmd_queue(channel, &commit->base);
}

/* Sends what waited for a buffer, in order. */
static void commits_resume(struct channel *channel)
{
	while (channel->waiting) {
		struct commit *commit = channel->waiting;

		commit->payload = payload_get(channel->session->payloads, commit->len);
		if (!commit->payload) {
			if (!channel->over)
				loop_timer_start(channel->loop, &channel->waiting_timer,
						 PAYLOAD_PAUSE_MS);
			return;
		}
		channel->waiting = commit->next;
		if (!channel->waiting)
			channel->waiting_end = &channel->waiting;
		memcpy(commit->payload, commit->copy, commit->len);
		commit_send(channel, commit);
	}
}

static void waiting_expired(struct loop_timer *timer)
{
	commits_resume(container_of(timer, struct channel, waiting_timer));
}

/* Lets the fetch that is about to be parked carry the answer: one command less. */
static bool commit_merge(struct channel *channel, const struct wfs_cmd *cmd, const void *payload,
			 size_t len)
{
	struct slot *slot = channel->merge;

	if (!slot || len > PAYLOAD_CELL)
		return false;
	if (len && !slot->cell)
		slot->cell = payload_get(channel->session->payloads, PAYLOAD_CELL);
	if (len && !slot->cell)
		return false;
	channel->merge = NULL;
	slot->fetch.cmd = *cmd;
	slot->fetch.cmd.op = WFS_CMD_COMMIT_FETCH;
	if (len) {
		memcpy(slot->cell, payload, len);
		slot->fetch.cmd.buf = (uint64_t)((char *)slot->cell - channel->session->base);
		slot->fetch.cmd.len = (uint32_t)len;
	}
	slot->committed = cmd->id;
	return true;
}

void channel_commit(struct session *session, uint64_t id, int status, int fd, const void *payload,
		    size_t len)
{
	channel_commit_then(session, id, status, fd, payload, len, NULL, NULL);
}

void channel_commit_then(struct session *session, uint64_t id, int status, int fd,
			 const void *payload, size_t len, channel_after_fn after, void *arg)
{
	struct channel *channel = channel_self(session);
	struct wfs_cmd cmd = channel_op(WFS_CMD_COMMIT);
	struct commit *commit;
	void *to = NULL;
	int r;

	cmd.id = id;
	cmd.status = status;
	cmd.fd = fd;
	if (!channel) {
		/* Not on a worker's thread, against the contract: still better than silence. */
		r = channel_call_with(session, &cmd, payload, len);
		commit_result(session, id, r);
		if (after)
			after(arg, r);
		return;
	}
	/* A fetch that carries the answer does not tell what became of it. */
	if (!session->ioctl && !after && commit_merge(channel, &cmd, payload, len))
		return;
	if (len)
		to = payload_get(session->payloads, len);
	commit = calloc(1, sizeof(*commit) + (len && !to ? len : 0));
	if (!commit) {
		payload_put(session->payloads, to);
		cmd.status = status ? status : -ENOMEM;
		cmd.fd = -1;
		r = channel_call(session, &cmd);
		if (after)
			after(arg, status ? r : -ENOMEM);
		return;
	}
	commit->after = after;
	commit->arg = arg;
	commit->base.cmd = cmd;
	commit->base.channel = channel;
	commit->base.done = commit_done;
	commit->payload = to;
	commit->len = len;
	if (len && !to) {
		memcpy(commit->copy, payload, len);
		*channel->waiting_end = commit;
		channel->waiting_end = &commit->next;
		loop_timer_start(channel->loop, &channel->waiting_timer, PAYLOAD_PAUSE_MS);
		return;
	}
	if (len)
		memcpy(to, payload, len);
	commit_send(channel, commit);
}

/* Requests. */

/* Is there a whole request at *at? Returns a copy with its strings ended, NULL at a malformed one. */
static struct wfs_request *request_copy(const char *at, size_t room)
{
	struct wfs_request head, *request;

	if (room < sizeof(head))
		return NULL;
	memcpy(&head, at, sizeof(head));
	if (head.size < sizeof(head) || head.size > room || head.size % 8 ||
	    head.payload_len > head.size - sizeof(head))
		return NULL;
	request = calloc(1, head.size + 1);
	if (!request)
		return NULL;
	memcpy(request, &head, sizeof(head));
	memcpy(request->payload, at + sizeof(head), head.payload_len);
	return request;
}

/* Copies up to count requests out of a slot, then handles them. */
static void requests_take(struct channel *channel, const char *at, size_t room, int count,
			  struct slot *slot)
{
	struct wfs_request *requests[FETCH_MOST];
	int n = 0;

	while (n < count && n < FETCH_MOST) {
		requests[n] = request_copy(at, room);
		if (!requests[n]) {
			log_error("request %d of %d in one fetch is malformed or there is no memory for it",
				  n + 1, count);
			break;
		}
		at += requests[n]->size;
		room -= requests[n]->size;
		n++;
	}
	for (int i = 0; i < n; i++) {
		/* Only the last may take a commit along: the fetch is parked right after it. */
		channel->merge = i == n - 1 ? slot : NULL;
		channel->session->handle(channel->session, requests[i]);
	}
	channel->merge = NULL;
}

static void slot_park(struct channel *channel, struct slot *slot)
{
	if (channel->over)
		return;
	if (!slot->committed)
		slot->fetch.cmd = channel_op(WFS_CMD_FETCH);
	slot->fetch.cmd.session = channel->session->id;
	slot->fetch.cmd.slot = slot->index;
	slot->fetch.cmd.max = FETCH_MOST;
	slot->parked = true;
	cmd_queue(channel, &slot->fetch);
}

static void slot_paused(struct loop_timer *timer)
{
	struct slot *slot = container_of(timer, struct slot, pause);

	slot_park(slot->fetch.channel, slot);
}

static void slot_done(struct channel_cmd *cmd, int res)
{
	struct slot *slot = container_of(cmd, struct slot, fetch);
	struct channel *channel = cmd->channel;
	uint64_t committed = slot->committed;

	slot->parked = false;
	slot->committed = 0;
	if (res == -ECANCELED || res == -ESTALE) {
		session_over(channel);
		return;
	}
	if (res == -EINVAL && committed) {
		commit_result(channel->session, committed, res);
		slot_park(channel, slot);
		return;
	}
	if (res > 0) {
		requests_take(channel, channel->slots + (size_t)slot->index * WFS_SLOT_SIZE,
			      WFS_SLOT_SIZE, res, slot);
		slot_park(channel, slot);
	} else if (res == 0 || res == -EAGAIN) {
		slot_park(channel, slot);
	} else {
		log_error("cannot fetch requests: %s", strerror(-res));
		loop_timer_start(channel->loop, &slot->pause, PAUSE_MS);
	}
}

/* The ioctl transport. */

static void fetched_run(struct loop_task *task)
{
	struct channel *channel = container_of(task, struct channel, task);

	if (channel->count < 0)
		session_over(channel);
	else
		requests_take(channel, channel->fetched, FETCH_BYTES, channel->count, NULL);
	sem_post(&channel->handled);
}

static void *fetch_thread(void *arg)
{
	struct channel *channel = arg;
	struct wfs_fetch fetch = {
		.session = channel->session->id,
		.addr = (uintptr_t)channel->fetched,
		.len = FETCH_BYTES,
		.max = FETCH_MOST,
	};

	while (!atomic_load(&channel->stop)) {
		const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000 };
		int n = ioctl(channel->fd, WFS_IOC_FETCH, &fetch);

		if (n < 0) {
			int error = errno;

			if (error == EINTR || error == EAGAIN)
				continue;
			if (error != ECANCELED && error != ESTALE) {
				log_error("cannot fetch requests: %s", strerror(error));
				nanosleep(&pause, NULL);
				continue;
			}
			n = -1;
		}
		channel->count = n;
		loop_post(channel->loop, &channel->task);
		while (sem_wait(&channel->handled) && errno == EINTR)
			;
		if (n < 0)
			break;
	}
	return NULL;
}

/* Signals are for the other threads. */
static int thread_start(struct channel *channel)
{
	sigset_t all, before;
	int r;

	channel->fetched = malloc(FETCH_BYTES);
	if (!channel->fetched)
		return -ENOMEM;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&channel->thread, NULL, fetch_thread, channel);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	channel->thread_runs = !r;
	return -r;
}

static int attach(struct channel *channel, char *msg, size_t msg_size)
{
	struct wfs_attach attach = {
		.session = channel->session->id,
		.slots = channel->session->ioctl ? 0 : SLOTS,
	};
	void *slots;
	int r;

	channel->fd = open(WFS_DEVICE, O_RDWR | O_CLOEXEC);
	if (channel->fd < 0) {
		r = -errno;
		snprintf(msg, msg_size, "cannot open %s for a worker: %s", WFS_DEVICE,
			 strerror(-r));
		return r;
	}
	if (ioctl(channel->fd, WFS_IOC_ATTACH, &attach)) {
		r = -errno;
		snprintf(msg, msg_size, "a worker cannot join the session with the kernel: %s",
			 strerror(-r));
		return r;
	}
	if (channel->session->ioctl)
		return 0;
	slots = mmap(NULL, SLOTS * WFS_SLOT_SIZE, PROT_READ, MAP_SHARED, channel->fd, 0);
	if (slots == MAP_FAILED) {
		r = -errno;
		snprintf(msg, msg_size, "cannot map the request slots of %s: %s", WFS_DEVICE,
			 strerror(-r));
		return r;
	}
	channel->slots = slots;
	return 0;
}

int channel_create(struct session *session, unsigned int worker, struct loop *loop, char *msg,
		   size_t msg_size)
{
	struct channel *channel;

	if (worker >= CHANNELS_MAX)
		return -E2BIG;
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return -ENOMEM;
	channel->session = session;
	channel->loop = loop;
	channel->fd = -1;
	channel->waiting_end = &channel->waiting;
	channel->waiting_timer.expired = waiting_expired;
	channel->task.run = fetched_run;
	sem_init(&channel->handled, 0, 0);
	for (uint16_t i = 0; i < SLOTS; i++) {
		channel->slot[i].index = i;
		channel->slot[i].fetch.done = slot_done;
		channel->slot[i].fetch.channel = channel;
		channel->slot[i].pause.expired = slot_paused;
	}
	session->channels[worker] = channel;
	return attach(channel, msg, msg_size);
}

int channel_start(struct channel *channel, char *msg, size_t msg_size)
{
	int r;

	channel->started = true;
	if (channel->session->ioctl) {
		r = thread_start(channel);
		if (r)
			snprintf(msg, msg_size, "cannot start a thread: %s", strerror(-r));
		return r;
	}
	for (int i = 0; i < SLOTS; i++)
		slot_park(channel, &channel->slot[i]);
	return 0;
}

bool channel_started(const struct channel *channel)
{
	return channel->started;
}

bool channel_idle(const struct channel *channel)
{
	return !channel->under_way;
}

void channel_end(struct channel *channel)
{
	channel->over = true;
	loop_timer_stop(channel->loop, &channel->waiting_timer);
	for (int i = 0; i < SLOTS; i++)
		loop_timer_stop(channel->loop, &channel->slot[i].pause);
}

void channel_join(struct channel *channel)
{
	if (!channel->thread_runs)
		return;
	atomic_store(&channel->stop, true);
	/* Its loop may have stopped already: then nobody else would let it go on. */
	sem_post(&channel->handled);
	pthread_join(channel->thread, NULL);
	channel->thread_runs = false;
}

void channel_destroy(struct channel *channel)
{
	if (!channel)
		return;
	channel_join(channel);
	while (channel->waiting) {
		struct commit *commit = channel->waiting;

		channel->waiting = commit->next;
		free(commit);
	}
	for (int i = 0; i < SLOTS; i++)
		payload_put(channel->session->payloads, channel->slot[i].cell);
	if (channel->slots)
		munmap((void *)(uintptr_t)channel->slots, SLOTS * WFS_SLOT_SIZE);
	if (channel->fd >= 0)
		close(channel->fd);
	sem_destroy(&channel->handled);
	free(channel->fetched);
	free(channel);
}
