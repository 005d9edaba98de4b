// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "cleanup.h"
#include "counters.h"
#include "listing.h"
#include "loop.h"
#include "names.h"
#include "names_impl.h"

#define LOG_AREA "names"
#include "log.h"

#define LIMIT_DEFAULT (64u << 20)
/* A listing somebody is half-way through is good for so long, whatever its age. */
#define CONTINUE_NS (600 * UINT64_C(1000000000))
/* After attempts in vain, older answers are given at once for so long. */
#define AWAY_NS (5 * UINT64_C(1000000000))
/* So long are attempts made where there is an older answer. */
#define HASTY_MS 5000

uint64_t names_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

bool names_young(uint64_t stamp_ns, uint64_t max_age_ms)
{
	if (max_age_ms > UINT64_MAX / 1000000)
		return true;
	return names_now() - stamp_ns < max_age_ms * 1000000;
}

int names_create(struct origin *origin, size_t limit, struct names **ret)
{
	struct names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	names->bucket_count = 256;
	names->buckets = calloc(names->bucket_count, sizeof(*names->buckets));
	if (!names->buckets) {
		free(names);
		return -ENOMEM;
	}
	names->refs = 1;
	names->origin = origin_ref(origin);
	names->limit = limit ? limit : LIMIT_DEFAULT;
	names->lru.newer = names->lru.older = &names->lru;
	pthread_mutex_init(&names->lock, NULL);
	*ret = names;
	return 0;
}

struct names *names_ref(struct names *names)
{
	atomic_fetch_add(&names->refs, 1);
	return names;
}

void names_unref(struct names *names)
{
	if (!names || atomic_fetch_sub(&names->refs, 1) > 1)
		return;
	while (names->lru.newer != &names->lru)
		record_remove(names, names->lru.newer);
	free(names->buckets);
	origin_unref(names->origin);
	pthread_mutex_destroy(&names->lock);
	free(names);
}

/* Attributes. */

static void record_keep(struct names *names, const char *path, int error,
			const struct origin_attr *attr)
{
	struct record *record = record_find(names, RECORD_ATTR, path);
	char *version = NULL;

	if (!record)
		record = record_add(names, RECORD_ATTR, path);
	if (!record)
		return;
	if (!error && attr->version[0]) {
		version = strndup(attr->version, ORIGIN_VERSION_MAX);
		if (!version) {
			record_remove(names, record);
			return;
		}
	}
	free(record->version);
	record->version = version;
	record->error = error;
	record->stamp_ns = names_now();
	if (!error) {
		record->mode = attr->mode;
		record->flags = attr->flags;
		record->size = attr->size;
		record->mtime_sec = attr->mtime_sec;
		record->mtime_nsec = attr->mtime_nsec;
	}
	record_resize(names, record);
	names_trim(names);
}

static void record_attr(const struct record *record, struct origin_attr *ret)
{
	*ret = (struct origin_attr){
		.mode = record->mode,
		.flags = record->flags,
		.size = record->size,
		.mtime_sec = record->mtime_sec,
		.mtime_nsec = record->mtime_nsec,
	};
	if (record->version)
		memcpy(ret->version, record->version, strlen(record->version) + 1);
}

/* The listing around a name, of whatever age, or NULL. */
static struct record *around(struct names *names, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	char parent[NAMES_PATH_MAX + 1];
	struct record *record;

	if (!*path)
		return NULL;
	memcpy(parent, path, len);
	parent[len] = '\0';
	record = record_find(names, RECORD_LISTING, parent);
	return record && record->listing ? record : NULL;
}

/*
 * A web server is asked for a name, and answers with the object even if there is a
 * directory of that name, too: of that only the listing tells.
 */
static bool is_double(struct names *names, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct record *dir = around(names, path);

	return dir && listing_double(dir->listing, slash ? slash + 1 : path);
}

/* The youngest that is known, from a question or from the listing around it. */
static bool known(struct names *names, const char *path, uint64_t max_age_ms,
		  uint64_t max_absent_ms, int *ret_error, struct origin_attr *ret)
{
	struct record *record = record_find(names, RECORD_ATTR, path);
	const char *slash = strrchr(path, '/');
	struct origin_attr attr;
	struct record *dir = around(names, path);

	if (record && !names_young(record->stamp_ns, record->error ? max_absent_ms : max_age_ms))
		record = NULL;
	/* A listing need not tell everything: what it leaves out may still be there. */
	if (dir && names_young(dir->stamp_ns, max_age_ms) &&
	    (!record || dir->stamp_ns > record->stamp_ns) &&
	    listing_find(dir->listing, slash ? slash + 1 : path, &attr) &&
	    (attr.version[0] || !S_ISREG(attr.mode))) {
		*ret = attr;
		*ret_error = 0;
		return true;
	}
	if (!record)
		return false;
	*ret_error = record->error;
	if (!record->error)
		record_attr(record, ret);
	return true;
}

static bool away(const struct names *names)
{
	return names->away_ns && names_now() - names->away_ns < AWAY_NS;
}

int names_lookup(struct names *names, const char *path, const struct names_terms *terms,
		 struct origin_attr *ret_attr, names_attr_fn done, void *arg)
{
	uint64_t budget_ms = terms->budget_ms;
	struct origin_attr older;
	struct waiter *waiter;
	int error;

	if (strlen(path) > NAMES_PATH_MAX)
		return -ENAMETOOLONG;
	SCOPED_LOCK(&names->lock);
	if (known(names, path, terms->max_age_ms, terms->max_absent_ms, &error, ret_attr)) {
		names->counters.hits++;
		return error;
	}
	if (terms->hasty && away(names))
		return -EIO;
	if (terms->stale && known(names, path, NAMES_FOREVER, 0, &error, &older)) {
		if (away(names)) {
			names->counters.stale++;
			*ret_attr = older;
			return 0;
		}
		budget_ms = budget_ms < HASTY_MS ? budget_ms : HASTY_MS;
	}
	if (terms->hasty)
		budget_ms = budget_ms < HASTY_MS ? budget_ms : HASTY_MS;
	names->counters.misses++;
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return -ENOMEM;
	waiter->attr = done;
	waiter->arg = arg;
	waiter->stale = terms->stale;
	error = call_join(names, CALL_STAT, path, budget_ms, waiter);
	if (error) {
		free(waiter);
		return error;
	}
	return -EINPROGRESS;
}

int names_readlink(struct names *names, const char *path, const struct names_terms *terms,
		   names_link_fn done, void *arg)
{
	struct waiter *waiter;
	int r;

	if (strlen(path) > NAMES_PATH_MAX)
		return -ENAMETOOLONG;
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return -ENOMEM;
	waiter->link = done;
	waiter->arg = arg;
	SCOPED_LOCK(&names->lock);
	r = call_join(names, CALL_LINK, path, terms->budget_ms, waiter);
	if (r)
		free(waiter);
	return r;
}

void names_answer_attr(struct names *names, struct call *call, const struct origin_result *result,
		       const struct origin_attr *attr)
{
	const struct origin_attr directory = { .mode = S_IFDIR };
	int error = result->error;
	struct origin_attr answer = { 0 };
	struct waiter *waiters, *next;
	bool old = false;
	int old_error = 0;

	pthread_mutex_lock(&names->lock);
	if (!error && S_ISREG(attr->mode) && is_double(names, call->path))
		attr = &directory;
	if (call->generation == names->generation &&
	    (!error || (error == -ENOENT && !result->transient)))
		record_keep(names, call->path, error, attr);
	if (error && result->transient) {
		names->away_ns = names_now();
		old = known(names, call->path, NAMES_FOREVER, 0, &old_error, &answer) && !old_error;
	} else if (error != -ECANCELED) {
		names->away_ns = 0;
	}
	if (!error)
		answer = *attr;
	waiters = call_end(call);
	for (struct waiter *w = waiters; w; w = w->next)
		names->counters.stale += old && w->stale;
	pthread_mutex_unlock(&names->lock);
	if (old)
		log_warn("%s: the origin does not answer, attributes from earlier are used: %s",
			 call->path, result->message ? result->message : strerror(-error));
	for (; waiters; waiters = next) {
		next = waiters->next;
		if (old && waiters->stale)
			waiters->attr(waiters->arg, 0, NULL, &answer);
		else
			waiters->attr(waiters->arg, error, result->message, &answer);
		free(waiters);
	}
	call_free(call);
}

void names_answer_link(struct names *names, struct call *call, const struct origin_result *result,
		       const char *target)
{
	struct waiter *waiters, *next;

	pthread_mutex_lock(&names->lock);
	waiters = call_end(call);
	pthread_mutex_unlock(&names->lock);
	for (; waiters; waiters = next) {
		next = waiters->next;
		waiters->link(waiters->arg, result->error, result->message,
			      result->error ? NULL : target);
		free(waiters);
	}
	call_free(call);
}

/* Listings. */

struct emitter {
	struct names_part *part;
};

static bool emit_part(void *arg, const char *name, size_t len, mode_t type)
{
	struct emitter *emitter = arg;

	return emitter->part->emit(emitter->part, name, len, type);
}

static void parts_done(struct names_part *parts, int error, const char *message)
{
	struct names_part *next;

	for (; parts; parts = next) {
		next = parts->next;
		parts->done(parts, error, message, false);
	}
}

static int listing_begin(struct names *names, struct record *record)
{
	struct listing *fresh = listing_create();

	if (!fresh)
		return -ENOMEM;
	if (record->listing && listing_complete(record->listing)) {
		listing_free(record->old);
		record->old = record->listing;
		record->old_stamp_ns = record->stamp_ns;
	} else {
		listing_free(record->listing);
	}
	record->listing = fresh;
	record->stamp_ns = names_now();
	record_resize(names, record);
	return 0;
}

/* Serves a part from what is there: true. Else *ret_page is needed first. */
static bool part_serve(struct listing *listing, struct names_part *part, bool *ret_eof,
		       size_t *ret_page)
{
	struct emitter emitter = { part };
	enum listing_walk walk = listing_walk(listing, part->after, emit_part, &emitter, ret_page);

	*ret_eof = walk == LISTING_EOF;
	return walk != LISTING_NEED;
}

int names_readdir(struct names *names, struct names_part *part)
{
	const struct names_terms *terms = &part->terms;
	struct record *record;
	bool eof, usable = false;
	size_t page;
	int r;

	part->next = NULL;
	if (strlen(part->path) > NAMES_PATH_MAX)
		return -ENAMETOOLONG;
	pthread_mutex_lock(&names->lock);
	record = record_find(names, RECORD_LISTING, part->path);
	if (record && record->listing)
		usable = names_young(record->stamp_ns, terms->max_age_ms) || record->call ||
			 (*part->after && names_now() - record->stamp_ns < CONTINUE_NS) ||
			 (terms->stale && away(names) && listing_complete(record->listing));
	if (!record)
		record = record_add(names, RECORD_LISTING, part->path);
	r = record ? 0 : -ENOMEM;
	if (!r && !usable)
		r = listing_begin(names, record);
	if (r) {
		pthread_mutex_unlock(&names->lock);
		return r;
	}
	if (part_serve(record->listing, part, &eof, &page)) {
		names->counters.hits++;
		pthread_mutex_unlock(&names->lock);
		part->done(part, 0, NULL, eof);
		return 0;
	}
	names->counters.misses++;
	part->next = record->parts;
	record->parts = part;
	if (!record->call) {
		r = call_list(names, record, page, terms->budget_ms);
		if (r)
			record->parts = part->next;
	}
	pthread_mutex_unlock(&names->lock);
	return r;
}

/* Takes the parts that can be served out of the record; what the others need next. */
static struct names_part *parts_served(struct record *record, size_t *ret_page, bool *ret_need)
{
	struct names_part **link = &record->parts, *served = NULL;

	*ret_need = false;
	while (*link) {
		struct names_part *part = *link;
		size_t page;
		bool eof;

		if (!part_serve(record->listing, part, &eof, &page)) {
			*ret_need = true;
			*ret_page = page;
			link = &part->next;
			continue;
		}
		*link = part->next;
		part->next = served;
		part->eof = eof;
		served = part;
	}
	return served;
}

static void list_failed(struct names *names, struct call *call, const struct origin_result *result)
{
	struct record *record = call->record;
	struct names_part *failed = NULL, *served = NULL, **link = &record->parts;

	pthread_mutex_lock(&names->lock);
	if (result->transient)
		names->away_ns = names_now();
	if (record->old && result->transient) {
		struct listing *old = TAKE(record->old);

		listing_free(record->listing);
		record->listing = old;
		record->stamp_ns = record->old_stamp_ns;
		while (*link) {
			struct names_part *part = *link;
			size_t page;

			if (part->terms.stale && part_serve(old, part, &part->eof, &page)) {
				*link = part->next;
				part->next = served;
				served = part;
				names->counters.stale++;
			} else {
				link = &part->next;
			}
		}
	}
	failed = TAKE(record->parts);
	record->call = NULL;
	call_end(call);
	if (record->removed)
		record_release(record);
	else if (!listing_complete(record->listing) &&
		 (!result->transient || !listing_pages(record->listing)))
		record_remove(names, record);
	else
		record_resize(names, record);
	pthread_mutex_unlock(&names->lock);
	for (struct names_part *part = served, *next; part; part = next) {
		next = part->next;
		part->done(part, 0, NULL, part->eof);
	}
	parts_done(failed, result->error, result->message);
	call_free(call);
}

void names_answer_list(struct names *names, struct call *call, const struct origin_result *result,
		       const struct origin_entry *entries, size_t count, const char *next_token,
		       uint64_t skipped)
{
	struct record *record = call->record;
	struct listing *listing = record->listing;
	struct names_part *served;
	size_t page;
	bool need;
	int r;

	if (result->error) {
		list_failed(names, call, result);
		return;
	}
	pthread_mutex_lock(&names->lock);
	names->away_ns = 0;
	if (call->page < listing_pages(listing)) {
		r = listing_refill(listing, call->page, entries, count);
	} else {
		names->counters.skipped += skipped;
		counter_add(hidden_keys, skipped);
		if (skipped)
			log_warn("%s/: %llu keys cannot be a path and are not shown", call->path,
				 (unsigned long long)skipped);
		r = listing_add(listing, entries, count, next_token);
	}
	while (!r && listing_bytes(listing) > names->limit / 2 && listing_drop(listing))
		;
	if (!r && !listing_complete(listing) && listing_bytes(listing) > names->limit)
		r = -ENOMEM; /* in no order and too large */
	call->empty = count || skipped ? 0 : call->empty + 1;
	if (!r && next_token && call->empty >= LISTING_EMPTY_PAGES)
		r = -EIO;
	if (r) {
		struct origin_result failed = {
			.error = r,
			.message =
				r == -EIO ?
					LISTING_EMPTY_TEXT :
					"the directory is too large to be listed in the memory for names",
		};

		pthread_mutex_unlock(&names->lock);
		list_failed(names, call, &failed);
		return;
	}
	if (listing_complete(listing)) {
		listing_free(record->old);
		record->old = NULL;
	}
	served = parts_served(record, &page, &need);
	if (!need && !listing_complete(listing) && listing_bytes(listing) < names->limit / 2) {
		need = true; /* somebody began to list: go on to the end */
		page = listing_pages(listing);
	}
	if (!record->removed)
		record_resize(names, record);
	if (need && !(record->removed && !record->parts)) {
		call_page(call, page);
	} else {
		record->call = NULL;
		call_end(call);
		record_release(record);
		need = false;
	}
	names_trim(names);
	pthread_mutex_unlock(&names->lock);
	for (struct names_part *part = served, *next; part; part = next) {
		next = part->next;
		part->done(part, 0, NULL, part->eof);
	}
	if (!need)
		call_free(call);
}

void names_invalidate(struct names *names, const char *path)
{
	size_t len = strlen(path);
	const char *slash = strrchr(path, '/');
	size_t parent = slash ? (size_t)(slash - path) : 0;
	struct record *record, *next;

	SCOPED_LOCK(&names->lock);
	names->generation++;
	for (record = names->lru.newer; record != &names->lru; record = next) {
		bool below = !strncmp(record->path, path, len) &&
			     (!len || record->path[len] == '/' || !record->path[len]);
		bool around = len && record->kind == RECORD_LISTING &&
			      strlen(record->path) == parent &&
			      !strncmp(record->path, path, parent);

		next = record->newer;
		if (below || around)
			record_remove(names, record);
	}
}

void names_counters(struct names *names, struct names_counters *ret)
{
	SCOPED_LOCK(&names->lock);
	*ret = names->counters;
	ret->bytes = names->bytes;
}
