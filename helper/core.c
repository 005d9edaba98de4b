// SPDX-License-Identifier: MIT
/*
 * core: the workers' threads, and the sources they fetch from.
 */
#include "core.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <wfs.h>

#include "engine.h"
#include "order.h"
#include "store.h"

#define LOG_AREA "core"
#include "log.h"

#define CORE_REPLIES	  64
#define CORE_LOOP_ENTRIES 256
/* How long core_stop() waits for writes that have begun. */
#define CORE_STOP_S 10
/* Sources that nobody uses are remembered, with their connections and credentials: so many. */
#define CORE_SOURCES_IDLE 64

static _Thread_local int core_worker = -1;

int core_self(void)
{
	return core_worker;
}

static void core_task(struct loop_task *task)
{
	struct worker *worker = container_of(task, struct worker, task);

	pthread_mutex_lock(&worker->core->lock);
	worker->posted = false;
	pthread_mutex_unlock(&worker->core->lock);
	fetch_worker_run(worker);
}

void core_kick(struct core *core, struct worker *worker)
{
	(void)core;
	if (worker->posted || !worker->loop)
		return;
	worker->posted = true;
	loop_post(worker->loop, &worker->task);
}

static void core_starved(struct loop_timer *timer)
{
	fetch_worker_run(container_of(timer, struct worker, starved));
}

static void core_pulsed(struct loop_task *task)
{
	struct worker *worker = container_of(task, struct worker, pulse);

	atomic_store(&worker->pulsing, false);
}

bool core_alive(struct core *core)
{
	bool alive = true;

	for (unsigned int i = 0; i < core->worker_count; i++) {
		struct worker *worker = &core->workers[i];

		if (atomic_exchange(&worker->pulsing, true)) {
			alive = false;
			continue;
		}
		worker->pulse.run = core_pulsed;
		loop_post(worker->loop, &worker->pulse);
	}
	return alive;
}

/* The store's requests, on its thread. */

/*
 * The eviction of the block has ended. Who has asked for it meanwhile has it from the
 * cache file if it is still there: it must not be fetched again.
 */
static void core_evict_ended(struct core *core, struct store_file *file, struct block *block,
			     bool removed)
{
	/* Nobody else looks at the sums of a block in this state. */
	bool kept = !removed && !store_lookup_kept(file, block->nr, block->sums, block->units);

	SCOPED_LOCK(&core->lock);
	fetch_evicted(block, kept);
}

static int core_evict(void *arg, struct store_file *file, uint64_t nr, bool cold)
{
	struct core *core = arg;
	struct object *object = object_of_file(core, file);
	struct block *block = NULL;
	bool in_use;
	int err;

	if (!object)
		return 0;
	/* What is left of a data file that could not be used any more. */
	if (object->file != file) {
		object_unref(object);
		return 0;
	}
	pthread_mutex_lock(&core->lock);
	/* Wanted, on its way, waiting to be written or to be told of. */
	in_use = block_find(object, nr);
	if (!in_use)
		block = block_create(object, nr);
	if (block)
		block->state = BLOCK_EVICTING;
	pthread_mutex_unlock(&core->lock);
	if (!block) {
		object_unref(object);
		return in_use ? -EINPROGRESS : -EBUSY;
	}
	err = object_tell_evict(object, nr, cold);
	if (err) {
		core_evict_ended(core, file, block, false);
		if (err != -EAGAIN)
			err = -EBUSY;
	}
	object_unref(object);
	return err;
}

static void core_evicted(void *arg, struct store_file *file, uint64_t nr, bool removed)
{
	struct core *core = arg;
	struct object *object = object_of_file(core, file);
	struct block *block;

	if (!object)
		return;
	/*
	 * The block keeps its object from going away, so that this is the one of
	 * core_evict(); an object that came later has no such block.
	 */
	pthread_mutex_lock(&core->lock);
	block = object->file == file ? block_find(object, nr) : NULL;
	if (block && block->state != BLOCK_EVICTING)
		block = NULL;
	pthread_mutex_unlock(&core->lock);
	if (block) {
		/* Told even if it was not removed: it is asked for again and found. */
		object_tell_evicted(object, nr);
		core_evict_ended(core, file, block, removed);
	}
	object_unref(object);
}

static void core_space(void *arg)
{
	struct core *core = arg;

	SCOPED_LOCK(&core->lock);
	core_kick(core, &core->workers[0]);
}

static void core_back(void *arg)
{
	object_reopen_all(arg);
}

int core_create(const struct config *config, struct core **ret, char *msg, size_t msg_size)
{
	struct core *core = calloc(1, sizeof(*core));
	pthread_condattr_t attr;
	const char *how;
	int err;

	if (!core)
		return -ENOMEM;
	core->config = config;
	pthread_mutex_init(&core->lock, NULL);
	pthread_mutex_init(&core->table_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&core->changed, &attr);
	pthread_condattr_destroy(&attr);
	core->worker_count = config->workers;
	core->workers = calloc(config->workers, sizeof(*core->workers));
	core->objects = calloc(OBJECT_BUCKETS, sizeof(struct object *));
	err = core->workers && core->objects ? 0 : -ENOMEM;
	loop_kind(&how);
	log_info("sockets and files are served by %s", how);
	for (unsigned int i = 0; !err && i < core->worker_count; i++) {
		struct worker *worker = &core->workers[i];

		worker->core = core;
		worker->index = i;
		worker->task.run = core_task;
		worker->starved.expired = core_starved;
		worker->linger.expired = hold_linger_over;
		worker->pending_end = &worker->pending;
		err = loop_create(&worker->loop, CORE_LOOP_ENTRIES);
		if (err)
			snprintf(msg, msg_size, "cannot make the event loop of a worker (%s): %s",
				 how, strerror(-err));
		else
			/* The scheduler counts reads itself; names must not wait for them. */
			loop_curl_limit(worker->loop, 2 * (long)config->connections_per_host + 8);
	}
	if (!err) {
		err = buffers_create(config->buffer_memory, CORE_REPLIES, WFS_REPLY_MAX,
				     &core->buffers);
		if (err)
			snprintf(msg, msg_size, "cannot map %llu bytes of buffer_memory: %s",
				 (unsigned long long)config->buffer_memory, strerror(-err));
	}
	if (err) {
		core_destroy(core);
		return err;
	}
	*ret = core;
	return 0;
}

int core_open(struct core *core, char *msg, size_t msg_size)
{
	struct store_ops ops = { core_evict, core_evicted, core_space, core_back, core };
	int err;

	if (!core->config->dir_count)
		return 0;
	err = store_create(core->config, &ops, &core->store, msg, msg_size);
	for (unsigned int i = 0; !err && i < core->worker_count; i++) {
		err = store_register(core->store, core->workers[i].loop);
		if (err)
			snprintf(msg, msg_size, "the locks of the cache cannot be kept: %s",
				 strerror(-err));
	}
	if (!err && !core->order) {
		err = order_create(core, &core->order);
		if (err)
			snprintf(msg, msg_size, "out of memory");
	}
	return err;
}

static void *core_thread(void *arg)
{
	struct worker *worker = arg;
	int err;

	core_worker = (int)worker->index;
	err = loop_run(worker->loop);
	if (err)
		log_error("worker %u stopped: %s", worker->index, strerror(-err));
	return NULL;
}

int core_start(struct core *core,
	       int (*before_run)(struct core *core, unsigned int worker, struct loop *loop,
				 void *arg),
	       void *arg)
{
	int err = core->store ? store_start(core->store) : 0;

	for (unsigned int i = 0; !err && before_run && i < core->worker_count; i++)
		err = before_run(core, i, core->workers[i].loop, arg);
	for (unsigned int i = 0; !err && i < core->worker_count; i++) {
		struct worker *worker = &core->workers[i];
		sigset_t all, old;

		/* Signals are for the main thread. */
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &old);
		err = -pthread_create(&worker->thread, NULL, core_thread, worker);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		worker->running = !err;
	}
	if (!err && core->order)
		err = order_start(core->order);
	if (err)
		core_stop(core);
	return err;
}

void core_stop(struct core *core)
{
	struct timespec until;
	bool busy;

	order_stop(core->order);
	pthread_mutex_lock(&core->lock);
	core->stopping = true;
	for (unsigned int i = 0; i < core->worker_count; i++)
		if (core->workers[i].running)
			core_kick(core, &core->workers[i]);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CORE_STOP_S;
	do {
		busy = core->writing > 0;
		for (unsigned int i = 0; i < core->worker_count; i++)
			busy = busy || (core->workers[i].running && !core->workers[i].cancelled);
	} while (busy && !pthread_cond_timedwait(&core->changed, &core->lock, &until));
	if (busy)
		log_warn("stopping although the cache disk has not answered for %d s", CORE_STOP_S);
	pthread_mutex_unlock(&core->lock);
	/* Its callbacks post to the workers: first the store, then the loops. */
	if (core->store)
		store_stop(core->store);
	for (unsigned int i = 0; i < core->worker_count; i++) {
		struct worker *worker = &core->workers[i];

		if (!worker->running)
			continue;
		loop_stop(worker->loop);
		pthread_join(worker->thread, NULL);
		worker->running = false;
		/* What was posted last. */
		fetch_worker_run(worker);
	}
}

static void core_source_free(struct source *source)
{
	origin_unref(source->origin);
	free(source->key);
	free(source);
}

void core_destroy(struct core *core)
{
	if (!core)
		return;
	for (unsigned int i = 0; core->workers && i < core->worker_count; i++)
		if (core->workers[i].loop)
			loop_destroy(core->workers[i].loop);
	while (core->sources) {
		struct source *source = core->sources;

		core->sources = source->next;
		core_source_free(source);
	}
	order_destroy(core->order);
	if (core->store)
		store_destroy(core->store);
	buffers_destroy(core->buffers);
	free(core->workers);
	free(core->objects);
	pthread_cond_destroy(&core->changed);
	pthread_mutex_destroy(&core->table_lock);
	pthread_mutex_destroy(&core->lock);
	free(core);
}

unsigned int core_workers(const struct core *core)
{
	return core->worker_count;
}

struct loop *core_loop(const struct core *core, unsigned int worker)
{
	return core->workers[worker].loop;
}

const struct config *core_config(const struct core *core)
{
	return core->config;
}

struct store *core_store(const struct core *core)
{
	return core->store;
}

struct order *core_order(const struct core *core)
{
	return core->order;
}

void core_memory(const struct core *core, void **ret_base, size_t *ret_len)
{
	buffers_memory(core->buffers, ret_base, ret_len);
}

void *core_reply_get(struct core *core)
{
	return buffers_reply_get(core->buffers);
}

void core_reply_put(struct core *core, void *reply)
{
	buffers_reply_put(core->buffers, reply);
}

void core_allow_eviction(struct core *core, int allowed)
{
	if (core->store)
		store_allow_eviction(core->store, allowed != 0);
}

void core_mounted(struct core *core, struct origin *origin, int mounted)
{
	if (core->store)
		store_mounted(core->store, origin_identity(origin), mounted != 0);
}

int core_sync(struct core *core, uint64_t timeout_ms)
{
	return core_sync_below(core, NULL, timeout_ms);
}

int core_sync_below(struct core *core, const struct core_below *what, uint64_t timeout_ms)
{
	int err;

	order_hurry(core->order, true);
	err = hold_sync(core, what, timeout_ms);
	order_hurry(core->order, false);
	return err;
}

/* Options that say how a source is reached, by enum core_value; the others are the kernel's. */
static const char *const core_options[CORE_VALUES] = {
	[CORE_ENDPOINT] = "endpoint",
	[CORE_REGION] = "region",
	[CORE_PROFILE] = "profile",
	[CORE_ANON] = "anon",
	[CORE_CA] = "ca",
	[CORE_VIRTUAL_HOST] = "virtual_host",
	[CORE_MIRROR] = "mirror",
};

/* The value of an option in "key=value" lines, allocated; NULL: it is not there, or no memory. */
static char *core_option(const char *options, const char *key)
{
	size_t len = strlen(key);

	while (options && *options) {
		size_t line = strcspn(options, "\n");

		if (!strncmp(options, key, len) && (options[len] == '=' || len == line))
			return options[len] == '=' ? strndup(options + len + 1, line - len - 1) :
						     strdup("");
		options += line + (options[line] == '\n');
	}
	return NULL;
}

/* Source and the settings that tell one origin from another. */
static char *core_key(const char *source, char *const *values)
{
	char *key = NULL;
	size_t size;
	FILE *stream = open_memstream(&key, &size);

	if (!stream)
		return NULL;
	fprintf(stream, "%s", source);
	for (size_t i = 0; i < ARRAY_SIZE(core_options); i++)
		if (values[i])
			fprintf(stream, "\n%s=%s", core_options[i], values[i]);
	if (fclose(stream)) {
		free(key);
		return NULL;
	}
	return key;
}

/* core->lock held. To the front: the last ones are those that were asked for longest ago. */
static void core_source_asked(struct core *core, struct source *source)
{
	struct source **link = &core->sources;

	if (core->pumping)
		return;
	while (*link != source)
		link = &(*link)->next;
	*link = source->next;
	source->next = core->sources;
	core->sources = source;
}

static struct source *core_source_add(struct core *core, struct origin *origin, char *key)
{
	struct source *source = calloc(1, sizeof(*source));

	if (!source)
		return NULL;
	source->origin = origin_ref(origin);
	source->key = key;
	source->next = core->sources;
	core->sources = source;
	return source;
}

/*
 * Those beyond CORE_SOURCES_IDLE, and all that are not handed out any more, whose origin nobody
 * else has: neither mount, nor command, nor object, so that nothing is queued or under way.
 * New references come by core->lock only. Without it: an origin's end may take a while.
 */
static void core_sources_trim(struct core *core)
{
	struct source **link, *source, *gone = NULL;
	unsigned int idle = 0;

	pthread_mutex_lock(&core->lock);
	for (link = &core->sources; !core->pumping && (source = *link);) {
		if (!origin_is_shared(source->origin) &&
		    (!source->key || ++idle > CORE_SOURCES_IDLE)) {
			*link = source->next;
			source->next = gone;
			gone = source;
			continue;
		}
		link = &source->next;
	}
	pthread_mutex_unlock(&core->lock);
	while ((source = gone)) {
		gone = source->next;
		core_source_free(source);
	}
}

struct source *core_source(struct core *core, struct origin *origin)
{
	SCOPED_LOCK(&core->lock);
	struct source *source;

	for (source = core->sources; source; source = source->next)
		if (source->origin == origin)
			return source;
	return core_source_add(core, origin, NULL);
}

static struct source *core_source_by_key(struct core *core, const char *key)
{
	struct source *found;

	for (found = core->sources; found; found = found->next)
		if (found->key && !strcmp(found->key, key))
			return found;
	return NULL;
}

/* Who has the origin keeps it; it is not handed out any more. */
static void core_origin_retire(struct core *core, struct origin *origin, const char *key)
{
	SCOPED_LOCK(&core->lock);
	struct source *found = core_source_by_key(core, key);

	if (!found || found->origin != origin)
		return;
	free(found->key);
	found->key = NULL;
}

int core_origin(struct core *core, const char *source, const char *options, struct origin **ret,
		char *msg, size_t msg_size)
{
	char *values[ARRAY_SIZE(core_options)];
	struct origin *origin = NULL;
	struct source *found;
	char *key;
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(core_options); i++)
		values[i] = core_option(options, core_options[i]);
	key = core_key(source, values);
	if (!key)
		err = -ENOMEM;
	if (!err) {
		pthread_mutex_lock(&core->lock);
		found = core_source_by_key(core, key);
		if (found) {
			origin = origin_ref(found->origin);
			core_source_asked(core, found);
		}
		pthread_mutex_unlock(&core->lock);
	}
	if (origin && origin_outdated(origin)) {
		core_origin_retire(core, origin, key);
		origin_unref(origin);
		origin = NULL;
	}
	if (!err && !origin) {
		core_sources_trim(core);
		err = core_origin_create(core, source, values, &origin, msg, msg_size);
	}
	if (!err) {
		SCOPED_LOCK(&core->lock);

		/* Another thread may have made it meanwhile: its one is shared. */
		found = core_source_by_key(core, key);
		if (found && found->origin != origin) {
			origin_unref(origin);
			origin = origin_ref(found->origin);
		} else if (!found) {
			found = core_source_add(core, origin, key);
			if (found)
				key = NULL;
			else
				err = -ENOMEM;
		}
		if (!err && core->store)
			store_source(core->store, origin_identity(origin), source);
		if (err)
			origin_unref(origin);
		else
			*ret = origin;
	}
	if (err == -ENOMEM)
		snprintf(msg, msg_size, "out of memory");
	for (size_t i = 0; i < ARRAY_SIZE(core_options); i++)
		free(values[i]);
	free(key);
	return err;
}

void core_each_origin(struct core *core, void (*fn)(void *arg, struct origin *origin), void *arg)
{
	SCOPED_LOCK(&core->lock);

	for (struct source *source = core->sources; source; source = source->next)
		fn(arg, source->origin);
}
