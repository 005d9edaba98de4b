// SPDX-License-Identifier: MIT
/*
 * job: `wfs fetch`: brings a source, one object or all below a prefix, into the cache.
 */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"
#include "cleanup.h"
#include "config.h"
#include "counters.h"
#include "fetch.h"
#include "job_files.h"
#include "mirror.h"
#include "object.h"
#include "server_impl.h"

#define LOG_AREA "job"
#include "log.h"

#define JOB_WINDOW_SHIFT   29
#define JOB_INFLIGHT_BYTES (128ULL << 20)
#define JOB_INFLIGHT_WANTS 128
#define JOB_PROGRESS_NS	   200000000ULL

struct job {
	struct connection *connection;
	struct core *core;
	uint32_t block_shift;
	bool verify, has_digest;
	struct digest digest; /* said with the command */
	struct check check;   /* with verify */
	struct job_files files;
	struct object *object; /* being checked */
	uint64_t files_done, unkept, missing;
	uint64_t progress_ns, start_ns;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	uint64_t inflight_bytes, inflight;
	uint64_t done, fetched, failed;
	int error;
	char message[SERVER_MESSAGE];
};

struct job_want {
	struct fetch_want want;
	struct job *job;
	uint64_t len;
};

static void job_data(struct fetch_want *want, uint32_t unit, uint32_t units, const void *bytes,
		     uint32_t len)
{
	struct job *job = container_of(want, struct job_want, want)->job;

	(void)unit;
	(void)units;
	(void)bytes;
	SCOPED_LOCK(&job->lock);
	job->done += len;
	job->fetched += len;
}

static void job_done(struct fetch_want *want, int error, const char *message)
{
	struct job_want *mine = container_of(want, struct job_want, want);
	struct job *job = mine->job;

	fetch_release(want);
	SCOPED_LOCK(&job->lock);
	job->inflight--;
	job->inflight_bytes -= mine->len;
	if (error) {
		job->failed++;
		if (!job->error) {
			job->error = error;
			snprintf(job->message, sizeof(job->message), "%s: %s",
				 object_path(want->object), message ? message : strerror(-error));
		}
	}
	pthread_cond_broadcast(&job->changed);
	object_unref(want->object);
	free(mine);
}

static bool job_stopped(const struct job *job)
{
	return job->connection->broken || job->connection->server->stopping;
}

static void job_progress(struct job *job, bool always)
{
	uint64_t now = counter_now(), done, fetched;
	json_t *progress;

	if (!always && now - job->progress_ns < JOB_PROGRESS_NS)
		return;
	job->progress_ns = now;
	pthread_mutex_lock(&job->lock);
	done = job->done;
	fetched = job->fetched;
	pthread_mutex_unlock(&job->lock);
	progress = json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "files",
			     (json_int_t)job->files.count, "files_done",
			     (json_int_t)job->files_done, "bytes", (json_int_t)job->files.bytes,
			     "done", (json_int_t)done, "fetched", (json_int_t)fetched, "seconds",
			     (double)(now - job->start_ns) / 1e9);
	if (job->verify)
		json_object_set_new(progress, "checked", json_integer((json_int_t)job->check.done));
	server_progress(job->connection, progress);
}

/* Waits until so many bytes and one more want fit, 0: until nothing is on its way. */
static void job_wait(struct job *job, uint64_t len)
{
	for (;;) {
		struct timespec until;
		bool fits;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += JOB_PROGRESS_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		pthread_mutex_lock(&job->lock);
		fits = !job->inflight || (len && job->inflight < JOB_INFLIGHT_WANTS &&
					  job->inflight_bytes + len <= JOB_INFLIGHT_BYTES);
		if (!fits)
			pthread_cond_timedwait(&job->changed, &job->lock, &until);
		pthread_mutex_unlock(&job->lock);
		if (fits)
			return;
		job_progress(job, false);
	}
}

static int job_block(struct job *job, struct object *object, uint64_t block, uint64_t len)
{
	struct job_want *mine;
	int err;

	job_wait(job, len);
	mine = calloc(1, sizeof(*mine));
	if (!mine)
		return -ENOMEM;
	mine->job = job;
	mine->len = len;
	mine->want = (struct fetch_want){
		.object = object_ref(object),
		.block = block,
		.units = object_units(object, block),
		.why = FETCH_PREFETCH,
		.bulk = true,
		.data = job_data,
		.done = job_done,
	};
	pthread_mutex_lock(&job->lock);
	job->inflight++;
	job->inflight_bytes += len;
	pthread_mutex_unlock(&job->lock);
	err = fetch_start(job->core, &mine->want);
	if (err) {
		pthread_mutex_lock(&job->lock);
		job->inflight--;
		job->inflight_bytes -= len;
		pthread_mutex_unlock(&job->lock);
		object_unref(object);
		free(mine);
	}
	return err;
}

typedef int (*job_block_fn)(struct job *job, struct object *object, uint64_t block, uint64_t len);

static int job_cached(struct job *job, struct object *object, uint64_t block, uint64_t len)
{
	(void)object;
	(void)block;
	SCOPED_LOCK(&job->lock);
	job->done += len;
	return 0;
}

static int job_missing(struct job *job, struct object *object, uint64_t block, uint64_t len)
{
	(void)object;
	(void)block;
	(void)len;
	job->missing++;
	return 0;
}

/* Calls one of two for each block. */
static int job_each_block(struct job *job, struct object *object, job_block_fn cached,
			  job_block_fn absent)
{
	uint32_t shift = object_block_shift(object);
	uint64_t size = object_attr(object)->size, window = 1ULL << (JOB_WINDOW_SHIFT - shift);
	uint64_t blocks = size ? ((size - 1) >> shift) + 1 : 0;
	cleanup_free uint64_t *bitmap = calloc(window / 64 + 1, sizeof(*bitmap));
	cleanup_free uint64_t *sums = calloc(1ULL << (JOB_WINDOW_SHIFT - 16), sizeof(*sums));
	int err = bitmap && sums ? 0 : -ENOMEM;

	for (uint64_t first = 0; first < blocks && !err; first += window) {
		uint64_t count = blocks - first < window ? blocks - first : window;
		size_t n;

		err = object_map(object, first, count, bitmap, sums, &n);
		for (uint64_t i = 0; i < count && !err && !job_stopped(job); i++) {
			uint64_t block = first + i, len = 1ULL << shift;
			bool is_cached = bitmap[i / 64] >> (i % 64) & 1;

			if (len > size - (block << shift))
				len = size - (block << shift);
			if (is_cached && cached)
				err = cached(job, object, block, len);
			else if (!is_cached && absent)
				err = absent(job, object, block, len);
		}
	}
	return err;
}

/* The command is to go on, and its caller to see it. */
static int job_listed(void *arg)
{
	struct job *job = arg;

	job_progress(job, false);
	return job_stopped(job) ? -ECANCELED : 0;
}

static int job_open(struct job *job, struct job_file *file, struct object **ret)
{
	struct origin_attr attr;
	char msg[SERVER_MESSAGE] = "";
	int err = job_files_attr(&job->files, file, &attr, msg, sizeof(msg));

	if (!err)
		err = object_open(job->core, job->files.origin, file->path, &attr, job->block_shift,
				  ret);
	if (err) {
		file->failed = true;
		SCOPED_LOCK(&job->lock);
		job->failed++;
		if (!job->error) {
			job->error = err;
			snprintf(job->message, sizeof(job->message), "%s: %s", file->path,
				 *msg ? msg : strerror(-err));
		}
	}
	return err;
}

static void job_run(struct job *job)
{
	for (struct job_file *file = job->files.first; file && !job_stopped(job);
	     file = file->next) {
		struct object *object;

		if (!job_open(job, file, &object)) {
			object_opened(object);
			/* Without a cache file nothing would be left of what is fetched. */
			if (file->attr->size && object_fd(object) < 0)
				job->unkept++;
			else if (job_each_block(job, object, job_cached, job_block))
				job->failed++;
			object_unref(object);
		}
		job->files_done++;
		job_progress(job, false);
	}
	job_wait(job, 0);
}

/* Until what was fetched is stored or given up. */
static int job_sync(struct job *job)
{
	int err = -ETIMEDOUT;

	while (err == -ETIMEDOUT && !job_stopped(job)) {
		err = core_sync(job->core, 1000);
		job_progress(job, false);
	}
	return err;
}

/* What could not be stored after all. */
static int job_settle(struct job *job, char *msg, size_t msg_size)
{
	int err = job_sync(job);

	for (struct job_file *file = job->files.first; file && !err && !job_stopped(job);
	     file = file->next) {
		struct object *object;

		if (file->failed || job_open(job, file, &object))
			continue;
		if (!file->attr->size || object_fd(object) >= 0)
			job_each_block(job, object, NULL, job_missing);
		object_unref(object);
	}
	if (job_stopped(job)) {
		snprintf(msg, msg_size, "ended before all was fetched");
		return -ECANCELED;
	}
	if (job->error) {
		snprintf(msg, msg_size, "%s", job->message);
		return job->error;
	}
	if (job->unkept) {
		snprintf(msg, msg_size,
			 "%llu of %llu files cannot be kept: their origin gives no proof of their version, or the cache is out of use",
			 (unsigned long long)job->unkept, (unsigned long long)job->files.count);
		return -EOPNOTSUPP;
	}
	if (job->missing) {
		snprintf(msg, msg_size,
			 "%llu blocks were fetched but are not in the cache: it is full, or its disk is too slow",
			 (unsigned long long)job->missing);
		return -ENOSPC;
	}
	return job->failed ? -EIO : 0;
}

static void job_checking(void *arg)
{
	job_progress(arg, false);
}

/* A damaged block was dropped: its origin has it. */
static void job_repair(void *arg, uint64_t block)
{
	struct job *job = arg;
	uint32_t shift = object_block_shift(job->object);
	uint64_t left = object_attr(job->object)->size - (block << shift), len = 1ULL << shift;

	if (job_block(job, job->object, block, left < len ? left : len)) {
		SCOPED_LOCK(&job->lock);
		job->failed++;
	}
}

/* Reads an object back; what is damaged is fetched again, once, and read again. */
static int job_check(struct job *job, struct check_result *ret)
{
	const struct store_key key = {
		.identity = origin_identity(job->files.origin),
		.path = object_path(job->object),
		.version = object_attr(job->object)->version,
		.size = object_attr(job->object)->size,
		.block_shift = object_block_shift(job->object),
	};
	int err = check_object(&job->check, job->files.origin, &key, 0, ret);

	if (err || !ret->damaged)
		return err;
	job->check.damaged_blocks += ret->damaged;
	job_wait(job, 0);
	err = job_sync(job);
	if (err)
		return job_stopped(job) ? -ECANCELED : err;
	job->check.done -= ret->bytes;
	return check_object(&job->check, job->files.origin, &key, 0, ret);
}

/* All objects are in the cache. */
static int job_verify(struct job *job, char *msg, size_t msg_size)
{
	int err = 0;

	job->check.progress = job_checking;
	job->check.damaged = job_repair;
	job->check.arg = job;
	for (struct job_file *file = job->files.first; file && !err; file = file->next) {
		struct check_result result;

		err = job_stopped(job) ? -ECANCELED : job_open(job, file, &job->object);
		if (err)
			break;
		err = job_check(job, &result);
		if (!err)
			check_count(&job->check, &result);
		object_unref(job->object);
	}
	job_wait(job, 0);
	if (job->error) {
		snprintf(msg, msg_size, "%s", job->message);
		return job->error;
	}
	if (err == -ECANCELED)
		snprintf(msg, msg_size, "ended before all was checked");
	return err;
}

/* The name in a path: in a URL it is encoded. */
static char *job_plain(const char *name, bool encoded)
{
	char *plain, *copy;

	if (!encoded)
		return strdup(name);
	plain = curl_easy_unescape(NULL, name, 0, NULL);
	copy = plain ? strdup(plain) : NULL;
	curl_free(plain);
	return copy;
}

int job_split(const char *source, char **ret_parent, char **ret_name)
{
	const char *slash = strrchr(source, '/');

	if (!slash || !slash[1] || slash - source < 8)
		return -EINVAL;
	*ret_parent = strndup(source, (size_t)(slash - source) + 1);
	*ret_name = job_plain(slash + 1, !strncmp(source, "http", 4));
	return *ret_parent && *ret_name ? 0 : -ENOMEM;
}

int job_given(const json_t *request, struct digest *ret, bool *ret_given)
{
	const char *text = json_string_value(json_object_get(request, "digest"));

	*ret_given = text;
	return text ? digest_parse(text, ret) : 0;
}

/* Options for the directory that source is in: what they name as its mirrors goes up as well. */
static int job_options_above(const char *source, const char *options, char **ret)
{
	size_t size;
	FILE *stream;

	if (!options)
		return 0;
	stream = open_memstream(ret, &size);
	if (!stream)
		return -ENOMEM;
	while (*options) {
		size_t len = strcspn(options, "\n");
		cleanup_free char *line = strndup(options, len), *parents = NULL;

		if (line && !strncmp(line, "mirror=", 7)) {
			parents = mirror_list_parents(line + 7, source);
			fprintf(stream, "mirror=%s\n", parents ? parents : "");
		} else if (line) {
			fprintf(stream, "%s\n", line);
		}
		options += len + (options[len] == '\n');
	}
	return fclose(stream) ? -ENOMEM : 0;
}

/*
 * A source that is one object is looked at from its directory, as a mount of that
 * would, so that both find the same cached blocks.
 */
static int job_single(struct job *job, const char *source, const char *options, char *msg,
		      size_t msg_size)
{
	struct asker *asker = job->files.asker;
	cleanup_free char *parent = NULL, *name = NULL;
	struct origin_attr attr;
	struct origin *origin;
	cleanup_free char *above = NULL;
	int err = job_split(source, &parent, &name);

	if (!err)
		err = job_options_above(source, options, &above);
	if (err)
		return err;
	err = core_origin(job->core, parent, above, &origin, msg, msg_size);
	if (err)
		return err;
	err = ask_stat(asker, origin, name, &attr, msg, msg_size);
	if (err || !S_ISREG(attr.mode)) {
		origin_unref(origin);
		return err ? err : -EISDIR;
	}
	job_files_from(&job->files, origin);
	return job_files_add(&job->files, name, &attr);
}

/* Which files there are. */
static int job_find(struct job *job, const char *source, const char *options, char *msg,
		    size_t msg_size)
{
	struct job_files *files = &job->files;
	bool listed = source[strlen(source) - 1] == '/' && !job->has_digest;
	struct origin_attr attr;
	int err;

	/* It is a directory then, and need not be asked what it is unless it has nothing. */
	if (listed) {
		err = job_files_list(files, msg, msg_size);
		if (err || files->names)
			return err;
	}
	err = ask_stat(files->asker, files->origin, "", &attr, msg, msg_size);
	if (err)
		return err;
	if (!S_ISDIR(attr.mode)) {
		if (!job_single(job, source, options, msg, msg_size))
			return 0;
		return job_files_add(files, "", &attr);
	}
	if (job->has_digest) {
		snprintf(msg, msg_size, "a digest is that of one object, not of a directory");
		return -EISDIR;
	}
	return listed ? 0 : job_files_list(files, msg, msg_size);
}

static int job_prepare(struct job *job, const json_t *request, char *msg, size_t msg_size)
{
	const char *source = json_string_value(json_object_get(request, "source"));
	const char *options = json_string_value(json_object_get(request, "options"));
	json_int_t block = json_integer_value(json_object_get(request, "block"));
	struct origin *origin;
	int err;

	if (!source)
		return -EINVAL;
	job->block_shift = 22;
	if (block) {
		for (job->block_shift = 16; job->block_shift < 26; job->block_shift++)
			if (1LL << job->block_shift >= block)
				break;
		if (1LL << job->block_shift != block) {
			snprintf(msg, msg_size, "the block size is a power of two from 64K to 64M");
			return -EINVAL;
		}
	}
	job->verify = json_is_true(json_object_get(request, "verify"));
	err = job_given(request, &job->digest, &job->has_digest);
	job->verify = job->verify || job->has_digest;
	if (!err && job->verify)
		err = check_begin(&job->check, job->connection,
				  job->has_digest ? &job->digest : NULL);
	job->check.anew = true;
	if (!err)
		err = core_origin(job->core, source, options, &origin, msg, msg_size);
	if (err)
		return err;
	job_files_from(&job->files, origin);
	return job_find(job, source, options, msg, msg_size);
}

static void job_free(struct job *job)
{
	job_files_free(&job->files);
	check_end(&job->check);
	pthread_cond_destroy(&job->changed);
	pthread_mutex_destroy(&job->lock);
}

int job_fetch(struct connection *connection, const json_t *request, json_t **ret_result, char *msg,
	      size_t msg_size)
{
	struct job job = {
		.connection = connection,
		.core = connection->server->core,
		.start_ns = counter_now(),
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};
	int err;

	job_files_init(&job.files, connection->server->asker,
		       core_config(job.core)->connections_per_host);
	job.files.listed = job_listed;
	job.files.arg = &job;
	err = job_prepare(&job, request, msg, msg_size);
	if (!err) {
		job_run(&job);
		err = job_settle(&job, msg, msg_size);
		if (!err && job.verify)
			err = job_verify(&job, msg, msg_size);
		job_progress(&job, true);
	}
	if (!err)
		*ret_result = json_pack("{s:I, s:I, s:I, s:f}", "files",
					(json_int_t)job.files.count, "bytes",
					(json_int_t)job.files.bytes, "fetched",
					(json_int_t)job.fetched, "seconds",
					(double)(counter_now() - job.start_ns) / 1e9);
	if (!err && job.verify)
		err = check_report(&job.check, *ret_result);
	job_free(&job);
	return err;
}
