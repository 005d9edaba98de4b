// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "core.h"
#include "counters.h"
#include "kernel_impl.h"
#include "names.h"

#define LOG_AREA "kernel"
#include "log.h"

/* Longest wait for the channel's commands to come back after DETACH. */
#define DETACH_S       5
#define DETACH_POLL_MS 5

static void session_ended(struct session *session)
{
	struct kernel *kernel = container_of(session, struct kernel, session);

	if (atomic_load(&kernel->detaching) || atomic_exchange(&kernel->ended, true))
		return;
	log_info("session %llu was ended by the kernel: another wfsd has taken over",
		 (unsigned long long)session->id);
	if (kernel->settings.ended)
		kernel->settings.ended(kernel->settings.arg);
}

static int device_open(struct kernel *kernel, char *msg, size_t msg_size)
{
	int r;

	kernel->session.fd = open(WFS_DEVICE, O_RDWR | O_CLOEXEC);
	if (kernel->session.fd >= 0)
		return 0;
	r = -errno;
	if (r == -ENOENT || r == -ENXIO || r == -ENODEV)
		snprintf(msg, msg_size,
			 "%s does not exist: load the kernel module (modprobe wfs) or start with --no-kernel",
			 WFS_DEVICE);
	else
		snprintf(msg, msg_size,
			 "cannot open %s: %s; the daemon runs as root, or as the owner of %s with CAP_SYS_ADMIN (as wfsd.service starts it)",
			 WFS_DEVICE, strerror(-r), WFS_DEVICE);
	return r;
}

static int hello(struct kernel *kernel, char *msg, size_t msg_size)
{
	const char *transport = getenv("WFS_TRANSPORT");
	struct session *session = &kernel->session;
	struct wfs_hello hello = {
		.protocol = WFS_PROTOCOL,
		.flags = kernel->settings.takeover ? WFS_HELLO_TAKEOVER : 0,
		.features = WFS_FEATURES,
	};
	int r;

	if (!transport || !*transport)
		transport = kernel->settings.transport;
	if (transport && strcmp(transport, "ioctl") && strcmp(transport, "io_uring")) {
		snprintf(msg, msg_size, "transport \"%s\" is neither \"io_uring\" nor \"ioctl\"",
			 transport);
		return -EINVAL;
	}
	/* Commands travel on the workers' rings: without those, by ioctl. */
	if ((transport && !strcmp(transport, "ioctl")) ||
	    !loop_commands(core_loop(kernel->core, 0))) {
		session->ioctl = true;
		hello.features &= ~WFS_FEATURE_IOURING;
	}
	if (ioctl(session->fd, WFS_IOC_HELLO, &hello)) {
		r = -errno;
		if (r == -EBUSY)
			snprintf(msg, msg_size,
				 "another wfsd serves the kernel: stop it first, or start this one with --takeover");
		else if (r == -EPROTO)
			snprintf(msg, msg_size,
				 "the kernel module speaks another protocol than this daemon (%d): install both from the same release",
				 WFS_PROTOCOL);
		else if (r == -EPERM)
			snprintf(msg, msg_size,
				 "the kernel module refuses this daemon: it needs CAP_SYS_ADMIN (outside of user namespaces) to begin");
		else
			snprintf(msg, msg_size, "the kernel module refuses this daemon: %s",
				 strerror(-r));
		return r;
	}
	session->id = hello.session;
	session->features = hello.features;
	if (!(hello.features & WFS_FEATURE_IOURING)) {
		if (transport && !session->ioctl)
			log_warn("the kernel module has no io_uring transport: using ioctl");
		session->ioctl = true;
	}
	return 0;
}

static int buffers_register(struct kernel *kernel, char *msg, size_t msg_size)
{
	struct session *session = &kernel->session;
	struct wfs_buffers buffers;
	void *base;
	int r;

	core_memory(kernel->core, &base, &session->len);
	session->base = base;
	buffers.addr = (uintptr_t)base;
	buffers.len = session->len;
	if (!ioctl(session->fd, WFS_IOC_BUFFERS, &buffers))
		return 0;
	r = -errno;
	snprintf(msg, msg_size,
		 "cannot pin %zu MiB of buffer memory: %s; lower [fetch] buffer_memory or raise LimitMEMLOCK",
		 session->len >> 20, strerror(-r));
	return r;
}

int kernel_create(struct core *core, const struct kernel_settings *settings, struct kernel **ret,
		  char *msg, size_t msg_size)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));
	int r;

	if (!kernel) {
		snprintf(msg, msg_size, "no memory");
		return -ENOMEM;
	}
	kernel->core = core;
	if (settings)
		kernel->settings = *settings;
	pthread_mutex_init(&kernel->lock, NULL);
	kernel->session.core = core;
	kernel->session.handle = requests_handle;
	kernel->session.ended = session_ended;
	r = device_open(kernel, msg, msg_size);
	if (!r) {
		/* From hello on the kernel may hold readers of cached blocks of the last session. */
		core_allow_eviction(core, 0);
		r = hello(kernel, msg, msg_size);
	}
	if (!r)
		r = buffers_register(kernel, msg, msg_size);
	if (!r) {
		r = payloads_create(core, &kernel->session.payloads);
		if (r)
			snprintf(msg, msg_size, "no memory for replies");
	}
	for (unsigned int i = 0; !r && i < core_workers(core); i++)
		r = channel_create(&kernel->session, i, core_loop(core, i), msg, msg_size);
	if (r) {
		kernel_destroy(kernel);
		return r;
	}
	counter_add(helper_sessions, 1);
	log_info("session %llu with the kernel, by %s", (unsigned long long)kernel->session.id,
		 kernel_transport(kernel));
	*ret = kernel;
	return 0;
}

int kernel_worker(struct core *core, unsigned int worker, struct loop *loop, void *arg)
{
	struct kernel *kernel = arg;
	char msg[256] = "";
	int r;

	(void)core;
	(void)loop;
	r = channel_start(kernel->session.channels[worker], msg, sizeof(msg));
	if (r)
		log_error("worker %u: %s", worker, *msg ? msg : strerror(-r));
	return r;
}

/* Ends what a worker has under way for the channel, and says so. */
struct quiesce {
	struct loop_task task;
	struct loop_timer timer;
	struct kernel *kernel;
	struct channel *channel;
	struct quiesced *quiesced;
};

struct quiesced {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int left;
};

static void quiesce_check(struct quiesce *quiesce)
{
	struct quiesced *quiesced = quiesce->quiesced;

	if (!channel_idle(quiesce->channel)) {
		loop_timer_start(channel_loop(quiesce->channel), &quiesce->timer, DETACH_POLL_MS);
		return;
	}
	channel_end(quiesce->channel);
	SCOPED_LOCK(&quiesced->lock);
	quiesced->left--;
	pthread_cond_signal(&quiesced->changed);
}

static void quiesce_expired(struct loop_timer *timer)
{
	quiesce_check(container_of(timer, struct quiesce, timer));
}

static void quiesce_run(struct loop_task *task)
{
	struct quiesce *quiesce = container_of(task, struct quiesce, task);
	struct kernel *kernel = quiesce->kernel;
	uint64_t after = 0;
	struct mount *mount;

	channel_end(quiesce->channel);
	while ((mount = mount_next(kernel, after))) {
		after = mount->id;
		names_cancel(mount->names);
		mount_unref(mount);
	}
	quiesce_check(quiesce);
}

void kernel_detach(struct kernel *kernel)
{
	/* Static: should a worker hang, its task may still run after the wait was given up. */
	static struct quiesce quiesce[CHANNELS_MAX];
	static struct quiesced quiesced = {
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};
	struct timespec until;

	if (atomic_exchange(&kernel->detaching, true))
		return;
	if (ioctl(kernel->session.fd, WFS_IOC_DETACH) && errno != ESTALE)
		log_warn("cannot end the session with the kernel: %s", strerror(errno));
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += DETACH_S;
	pthread_mutex_lock(&quiesced.lock);
	for (size_t i = 0; i < CHANNELS_MAX; i++) {
		if (!kernel->session.channels[i] || !channel_started(kernel->session.channels[i]))
			continue;
		quiesce[i].task.run = quiesce_run;
		quiesce[i].timer.expired = quiesce_expired;
		quiesce[i].kernel = kernel;
		quiesce[i].channel = kernel->session.channels[i];
		quiesce[i].quiesced = &quiesced;
		quiesced.left++;
		loop_post(channel_loop(quiesce[i].channel), &quiesce[i].task);
	}
	while (quiesced.left)
		if (pthread_cond_timedwait(&quiesced.changed, &quiesced.lock, &until))
			break;
	if (quiesced.left)
		log_error("%u workers did not come to rest within %d s", quiesced.left, DETACH_S);
	pthread_mutex_unlock(&quiesced.lock);
	for (size_t i = 0; i < CHANNELS_MAX; i++)
		if (kernel->session.channels[i])
			channel_join(kernel->session.channels[i]);
}

void kernel_destroy(struct kernel *kernel)
{
	if (!kernel)
		return;
	requests_destroy(kernel);
	for (size_t i = 0; i < CHANNELS_MAX; i++)
		channel_destroy(kernel->session.channels[i]);
	payloads_destroy(kernel->session.payloads);
	if (kernel->session.fd >= 0)
		close(kernel->session.fd);
	pthread_mutex_destroy(&kernel->lock);
	free(kernel);
}

uint64_t kernel_session(const struct kernel *kernel)
{
	return kernel->session.id;
}

const char *kernel_transport(const struct kernel *kernel)
{
	return kernel->session.ioctl ? "ioctl" : "io_uring";
}

void kernel_each_mount(struct kernel *kernel,
		       void (*fn)(void *arg, const struct kernel_mount *mount), void *arg)
{
	SCOPED_LOCK(&kernel->lock);
	for (struct mount *mount = kernel->mounts; mount; mount = mount->next) {
		const struct kernel_mount told = { mount->id, mount->source, mount->options };

		fn(arg, &told);
	}
}

int kernel_invalidate(struct kernel *kernel, uint64_t id, const char *source, const char *path)
{
	struct mount *mount;
	uint64_t after = 0;
	int count = 0;

	while ((mount = mount_next(kernel, after))) {
		struct wfs_cmd cmd = channel_op(WFS_CMD_INVALIDATE);
		int r;

		after = mount->id;
		if (id ? mount->id != id : source && strcmp(mount->source, source)) {
			mount_unref(mount);
			continue;
		}
		/* Ours first: the kernel asks again for what it forgets. */
		names_invalidate(mount->names, path);
		cmd.node = mount->id;
		r = channel_call_with(&kernel->session, &cmd, path, strlen(path));
		if (r < 0 && r != -ENOENT)
			log_warn("mount %llu: names could not be invalidated: %s",
				 (unsigned long long)mount->id, strerror(-r));
		mount_unref(mount);
		count++;
	}
	return count;
}

void kernel_counters(const struct kernel *kernel, struct kernel_counters *ret)
{
	/* The lock is no part of what the caller may see change. */
	struct kernel *k = (struct kernel *)(uintptr_t)kernel;
	struct kernel_counters sum = { 0 };
	struct mount *mount, *before;

	for (size_t i = 0; i < OPCODES; i++) {
		sum.requests[i] = atomic_load(&kernel->requests[i]);
		sum.errors[i] = atomic_load(&kernel->errors[i]);
	}
	channel_counters(&sum.late, &sum.refused);
	sum.delivers = atomic_load(&kernel->delivers);
	sum.deliver_bytes = atomic_load(&kernel->deliver_bytes);
	SCOPED_LOCK(&k->lock);
	sum.mounts = kernel->mount_count;
	sum.nodes = kernel->node_count;
	for (mount = kernel->mounts; mount; mount = mount->next) {
		struct names_counters names;

		for (before = kernel->mounts; before->names != mount->names; before = before->next)
			;
		if (before != mount)
			continue; /* shared, counted already */
		names_counters(mount->names, &names);
		sum.stale_names += names.stale;
	}
	*ret = sum;
}
