// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "config.h"
#include "core.h"
#include "kernel_impl.h"
#include "names.h"
#include "order.h"

#define LOG_AREA "mount"
#include "log.h"

/* mount(8) waits: attempts at an origin that does not answer are made for so long. */
#define MOUNT_BUDGET_MS 10000
/* Longest for one name; the kernel gives up after name_timeout=. */
#define NAME_BUDGET_MS 24000

/* A mount request whose root is being looked at. */
struct mounting {
	struct kernel *kernel;
	struct wfs_request *request;
	struct mount *mount;
};

void mount_unref(struct mount *mount)
{
	if (!mount || atomic_fetch_sub(&mount->refs, 1) > 1)
		return;
	names_unref(mount->names);
	if (mount->origin)
		origin_unref(mount->origin);
	free(mount->source);
	free(mount->options);
	free(mount);
}

int mount_find(struct kernel *kernel, uint64_t id, struct mount **ret)
{
	SCOPED_LOCK(&kernel->lock);
	for (struct mount *mount = kernel->mounts; mount; mount = mount->next) {
		if (mount->id != id)
			continue;
		atomic_fetch_add(&mount->refs, 1);
		*ret = mount;
		return 0;
	}
	return -EIO;
}

struct mount *mount_next(struct kernel *kernel, uint64_t after)
{
	struct mount *found = NULL;

	SCOPED_LOCK(&kernel->lock);
	for (struct mount *mount = kernel->mounts; mount; mount = mount->next)
		if (mount->id > after && (!found || mount->id < found->id))
			found = mount;
	if (found)
		atomic_fetch_add(&found->refs, 1);
	return found;
}

static void mount_remove(struct kernel *kernel, uint64_t id)
{
	struct mount **link, *mount, *other;

	pthread_mutex_lock(&kernel->lock);
	for (link = &kernel->mounts; *link && (*link)->id != id;)
		link = &(*link)->next;
	mount = *link;
	if (mount) {
		*link = mount->next;
		kernel->mount_count--;
	}
	for (other = kernel->mounts; mount && other && other->origin != mount->origin;)
		other = other->next;
	pthread_mutex_unlock(&kernel->lock);
	if (mount) {
		core_mounted(kernel->core, mount->origin, 0);
		if (!other)
			order_unmounted(core_order(kernel->core), origin_identity(mount->origin));
	}
	mount_unref(mount);
}

static void mount_add(struct kernel *kernel, struct mount *mount)
{
	core_mounted(kernel->core, mount->origin, 1);
	/* Told again in this session: the new answer counts. */
	mount_remove(kernel, mount->id);
	SCOPED_LOCK(&kernel->lock);
	atomic_fetch_add(&mount->refs, 1);
	mount->next = kernel->mounts;
	kernel->mounts = mount;
	kernel->mount_count++;
}

uint64_t mount_budget(const struct mount *mount, uint64_t timeout_ms, uint64_t most_ms)
{
	uint64_t budget = timeout_ms ? timeout_ms / 5 * 4 : most_ms;

	if (budget > most_ms)
		budget = most_ms;
	return budget < mount->retry_budget_ms ? budget : mount->retry_budget_ms;
}

void mount_terms(const struct mount *mount, uint64_t ttl_ms, struct names_terms *ret)
{
	*ret = (struct names_terms){
		.max_age_ms = ttl_ms,
		.max_absent_ms = mount->negative_ttl_ms < ttl_ms ? mount->negative_ttl_ms : ttl_ms,
		.budget_ms = mount_budget(mount, mount->name_timeout_ms, NAME_BUDGET_MS),
		.stale = mount->stale,
	};
}

/* The value of one "key=value" line, or NULL. */
static const char *option(const char *options, const char *key, size_t *ret_len)
{
	size_t len = strlen(key);

	while (*options) {
		const char *end = strchrnul(options, '\n');

		if (!strncmp(options, key, len) && options[len] == '=') {
			*ret_len = (size_t)(end - options) - len - 1;
			return options + len + 1;
		}
		options = *end ? end + 1 : end;
	}
	return NULL;
}

static uint64_t option_ms(const char *options, const char *key, uint64_t otherwise_ms)
{
	char text[32];
	uint64_t ms;
	size_t len;
	const char *value = option(options, key, &len);

	if (!value || len >= sizeof(text))
		return otherwise_ms;
	memcpy(text, value, len);
	text[len] = '\0';
	if (!strcmp(text, "never"))
		return NAMES_FOREVER;
	return config_time(text, &ms) ? otherwise_ms : ms;
}

static int names_of(struct kernel *kernel, struct origin *origin, struct names **ret)
{
	SCOPED_LOCK(&kernel->lock);
	for (struct mount *mount = kernel->mounts; mount; mount = mount->next)
		if (mount->origin == origin) {
			*ret = names_ref(mount->names);
			return 0;
		}
	return names_create(origin, 0, ret);
}

static int mount_create(struct kernel *kernel, uint64_t id, const char *source, const char *options,
			struct mount **ret, char *msg, size_t msg_size)
{
	struct mount *mount = calloc(1, sizeof(*mount));
	const char *stale, *prefetch;
	size_t len;
	int r;

	if (!mount)
		return -ENOMEM;
	mount->refs = 1;
	mount->id = id;
	mount->source = strdup(source);
	mount->options = strdup(options);
	r = mount->source && mount->options ? 0 : -ENOMEM;
	if (!r)
		r = core_origin(kernel->core, source, options, &mount->origin, msg, msg_size);
	if (!r)
		r = names_of(kernel, mount->origin, &mount->names);
	if (r) {
		mount_unref(mount);
		return r;
	}
	mount->negative_ttl_ms = option_ms(options, "negative_ttl", 5000);
	mount->name_timeout_ms = option_ms(options, "name_timeout", 30000);
	mount->retry_budget_ms = core_config(kernel->core)->retry_budget_ms;
	mount->timeout_ms = option_ms(options, "timeout", 100000);
	stale = option(options, "stale", &len);
	mount->stale = !stale || strncmp(stale, "off", len);
	prefetch = option(options, "prefetch", &len);
	mount->prefetch = !prefetch || strncmp(prefetch, "off", len);
	*ret = mount;
	return 0;
}

static const char *advice(int error)
{
	switch (error) {
	case -EACCES:
		return "check the credentials (profile=, the source's section in wfsd.conf) and what they permit";
	case -ENOENT:
		return "check how the source is spelled, and that something is stored there";
	case -EIO:
	case -ETIMEDOUT:
		return "check that the server runs and can be reached from this machine (endpoint=, proxy)";
	case -ENOMEM:
		return "the machine is short of memory";
	default:
		return "see the daemon's log";
	}
}

/* What happened, to what, what to do; one line for mount(8). */
static void refuse(struct kernel *kernel, struct wfs_request *request, const char *source,
		   int error, const char *what, const char *advice)
{
	char sentence[WFS_MESSAGE_MAX];
	int len = (int)strlen(what);

	if (error == -ECANCELED) {
		request_reply(kernel, request, error, NULL, 0);
		return;
	}
	while (len > 0 && (what[len - 1] == '.' || what[len - 1] == '\n'))
		len--;
	error = request_errno(error);
	snprintf(sentence, sizeof(sentence), "%s cannot be mounted: %.*s%s%s", source, len, what,
		 *advice ? "; " : "", advice);
	log_warn("%s", sentence);
	request_reply(kernel, request, error, sentence, strlen(sentence));
}

/* Was it taken? Otherwise mount(8) was killed meanwhile, and no unmount will be told. */
static void mount_answered(void *arg, int res)
{
	struct mounting *mounting = arg;

	if (res)
		mount_remove(mounting->kernel, mounting->mount->id);
	mount_unref(mounting->mount);
	free(mounting->request);
	free(mounting);
}

static void root_known(void *arg, int error, const char *message, const struct origin_attr *attr)
{
	struct mounting *mounting = arg;
	struct kernel *kernel = mounting->kernel;
	struct mount *mount = mounting->mount;
	struct wfs_mount_reply reply = { 0 };
	char what[WFS_MESSAGE_MAX];

	if (error) {
		snprintf(what, sizeof(what), "%s", message ? message : strerror(-error));
		refuse(kernel, mounting->request, mount->source, error, what, advice(error));
	} else if (!S_ISDIR(attr->mode)) {
		const char *slash = strrchr(mount->source, '/');

		snprintf(what, sizeof(what),
			 "it is a single object, not a directory; mount %.*s and open the file below it",
			 slash ? (int)(slash - mount->source) + 1 : 0, mount->source);
		refuse(kernel, mounting->request, mount->source, -ENOTDIR, what, "");
	} else {
		request_attr(attr, &reply.root);
		mount_add(kernel, mount);
		log_info("mount %llu: %s", (unsigned long long)mount->id, mount->source);
		channel_commit_then(&kernel->session, mounting->request->id, 0, -1, &reply,
				    sizeof(reply), mount_answered, mounting);
		return;
	}
	mount_unref(mount);
	free(mounting);
}

/* The mount lives already: nothing is asked of the origin, which may be away. */
static void resume(struct kernel *kernel, struct wfs_request *request, struct mount *mount)
{
	struct wfs_mount_reply reply = { .root = { .mode = S_IFDIR } };

	mount_add(kernel, mount);
	log_info("mount %llu goes on: %s", (unsigned long long)mount->id, mount->source);
	mount_unref(mount);
	request_reply(kernel, request, 0, &reply, sizeof(reply));
}

void requests_mount(struct kernel *kernel, struct wfs_request *request)
{
	const struct names_terms terms = { .budget_ms = MOUNT_BUDGET_MS };
	char msg[WFS_MESSAGE_MAX] = "";
	struct mounting *mounting;
	struct origin_attr attr;
	const char *strings[2];
	struct mount *mount;
	int r = request_strings(request, strings, 2);

	if (r) {
		request_reply(kernel, request, r, NULL, 0);
		return;
	}
	r = mount_create(kernel, request->mount, strings[0], strings[1], &mount, msg, sizeof(msg));
	if (r) {
		refuse(kernel, request, strings[0], r, *msg ? msg : strerror(-r),
		       r == -EINVAL ? "" : advice(r));
		return;
	}
	if (request->flags & WFS_REQ_F_RESUME) {
		resume(kernel, request, mount);
		return;
	}
	mounting = calloc(1, sizeof(*mounting));
	if (!mounting) {
		mount_unref(mount);
		request_reply(kernel, request, -ENOMEM, NULL, 0);
		return;
	}
	*mounting = (struct mounting){ kernel, request, mount };
	r = names_lookup(mount->names, "", &terms, &attr, root_known, mounting);
	if (r != -EINPROGRESS)
		root_known(mounting, r, r ? strerror(-r) : NULL, &attr);
}

void requests_unmount(struct kernel *kernel, struct wfs_request *request)
{
	log_info("mount %llu is gone", (unsigned long long)request->mount);
	mount_remove(kernel, request->mount);
	requests_cancel_fills(kernel, request->mount);
	request_reply(kernel, request, 0, NULL, 0);
}

void requests_destroy(struct kernel *kernel)
{
	for (size_t i = 0; i < NODE_BUCKETS; i++)
		while (kernel->nodes[i])
			node_forget(kernel, kernel->nodes[i]->id);
	while (kernel->mounts)
		mount_remove(kernel, kernel->mounts->id);
}
