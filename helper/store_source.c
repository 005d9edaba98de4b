// SPDX-License-Identifier: MIT
/*
 * store_source: what shares an identity: whether it is mounted, how much of it is in the
 * cache and may be, and what of it is pinned.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "events.h"
#include "store_impl.h"

#define LOG_AREA "store"
#include "log.h"

struct store_source *store_source_by_hash(struct store *store, const struct index_hash *hash)
{
	struct store_source *source = store->sources;

	while (source && (source->hash.low != hash->low || source->hash.high != hash->high))
		source = source->next;
	return source;
}

struct store_source *store_source_get(struct store *store, const char *identity)
{
	struct index_hash hash = index_hash_source(identity);
	struct store_source *source = store_source_by_hash(store, &hash);

	if (source)
		return source;
	source = calloc(1, sizeof(*source) + store->dir_count * sizeof(source->used[0]));
	if (!source)
		return NULL;
	source->identity = strdup(identity);
	if (!source->identity) {
		free(source);
		return NULL;
	}
	source->hash = hash;
	source->next = store->sources;
	store->sources = source;
	return source;
}

/* The quota of the section that config_source() would choose; prefixes are told apart by it. */
static struct store_quota *source_quota(const struct store *store, const char *name)
{
	struct store_quota *best = NULL;
	size_t best_len = 0;

	for (struct store_quota *quota = store->quotas; name && quota; quota = quota->next) {
		size_t len = strlen(quota->prefix);

		if (config_source_speaks(quota->prefix, name) && (!best || len > best_len)) {
			best = quota;
			best_len = len;
		}
	}
	return best && best->limit ? best : NULL;
}

static struct store_quota *quota_of(struct store *store, const char *prefix)
{
	struct store_quota *quota = store->quotas;

	while (quota && strcmp(quota->prefix, prefix))
		quota = quota->next;
	if (quota)
		return quota;
	quota = calloc(1, sizeof(*quota));
	if (!quota)
		return NULL;
	quota->prefix = strdup(prefix);
	if (!quota->prefix) {
		free(quota);
		return NULL;
	}
	quota->next = store->quotas;
	store->quotas = quota;
	return quota;
}

void store_quota_setup(struct store *store, const struct config *config)
{
	/* Kept when its section is gone: the thread may be looking at it. */
	for (struct store_quota *quota = store->quotas; quota; quota = quota->next)
		quota->limit = 0;
	/* Sections without a quota too: a longer prefix may lift what a shorter one limits. */
	for (const struct config_source *conf = config->sources; conf; conf = conf->next) {
		struct store_quota *quota = quota_of(store, conf->prefix);

		if (quota)
			quota->limit = conf->quota;
		else
			log_error("no memory for the quota of %s", conf->prefix);
	}
	for (struct store_source *source = store->sources; source; source = source->next)
		source->quota = source_quota(store, source->name);
}

uint64_t store_quota_taken(const struct store *store, const struct store_quota *quota)
{
	uint64_t taken = 0;

	for (const struct store_source *source = store->sources; source; source = source->next) {
		if (source->quota != quota)
			continue;
		taken += source->reserved;
		for (size_t i = 0; i < store->dir_count; i++)
			taken += source->used[i];
	}
	return taken;
}

static void source_name(struct store *store, struct store_source *source, const char *name)
{
	char *copy;

	if (source->name && !strcmp(source->name, name))
		return;
	copy = strdup(name);
	if (!copy)
		return;
	free(source->name);
	source->name = copy;
	source->dirty = true;
	source->quota = source_quota(store, name);
}

void store_tell(struct store *store, const char *identity, const char *path, const char *event,
		const char *text)
{
	const struct store_source *source;

	SCOPED_LOCK(&store->lock);
	for (source = store->sources; source && strcmp(source->identity, identity) != 0;)
		source = source->next;
	events_tell(event, source && source->name ? source->name : "", path, text);
}

void store_source(struct store *store, const char *identity, const char *name)
{
	struct store_source *source;

	SCOPED_LOCK(&store->lock);
	source = store_source_get(store, identity);
	if (source)
		source_name(store, source, name);
}

void store_mounted(struct store *store, const char *identity, bool mounted)
{
	struct store_source *source;

	SCOPED_LOCK(&store->lock);
	source = store_source_get(store, identity);
	if (!source || (!mounted && !source->mounts))
		return;
	source->mounts += mounted ? 1 : -1U;
	source->mounted_s = time(NULL);
	source->dirty = true;
	store->mount_change++;
}

bool store_source_left(const struct store_source *source)
{
	return !source->mounts && source->mounted_s;
}

struct source_loading {
	struct store *store;
	struct store_dir *dir;
	size_t pins;
	uint64_t bytes; /* recorded, of all sources */
};

static int source_load_one(void *arg, const struct index_source *record)
{
	const struct source_loading *loading = arg;
	struct store *store = loading->store;
	struct store_source *source;

	SCOPED_LOCK(&store->lock);
	source = store_source_get(store, record->identity);
	if (!source)
		return -ENOMEM;
	if (*record->name && !source->name)
		source_name(store, source, record->name);
	/* No more than there is of all. */
	source->used[loading->dir->number] = record->bytes < loading->bytes ? record->bytes :
									      loading->bytes;
	if (record->mounted_s > source->mounted_s)
		source->mounted_s = record->mounted_s;
	return 0;
}

static int pin_add(struct store *store, const char *identity, const char *path)
{
	size_t identity_len = strlen(identity) + 1, path_len = strlen(path) + 1;
	struct store_pin *pin;

	for (pin = store->pins; pin; pin = pin->next)
		if (!strcmp(pin->identity, identity) && !strcmp(pin->path, path))
			return 0;
	pin = calloc(1, sizeof(*pin));
	if (pin)
		pin->identity = malloc(identity_len + path_len);
	if (!pin || !pin->identity) {
		free(pin);
		return -ENOMEM;
	}
	memcpy(pin->identity, identity, identity_len);
	pin->path = pin->identity + identity_len;
	memcpy(pin->path, path, path_len);
	pin->next = store->pins;
	store->pins = pin;
	return 0;
}

static int pin_load_one(void *arg, const char *identity, const char *path)
{
	struct source_loading *loading = arg;

	loading->pins++;
	SCOPED_LOCK(&loading->store->lock);
	return pin_add(loading->store, identity, path);
}

/* On the thread that opens directories, which is the one that pins. */
static int pin_write_all(struct index_txn *txn, void *arg)
{
	const struct store *store = arg;
	int err = 0;

	for (const struct store_pin *pin = store->pins; pin && !err; pin = pin->next)
		err = index_put_pin(txn, pin->identity, pin->path);
	return err;
}

int store_source_load(struct store *store, struct store_dir *dir)
{
	struct source_loading loading = { store, dir, 0, 0 };
	struct index_totals totals;
	size_t pins = 0;
	int err;

	index_totals(dir->index, &totals);
	loading.bytes = totals.bytes;
	err = index_each_source(dir->index, source_load_one, &loading);
	if (!err)
		err = index_each_pin(dir->index, pin_load_one, &loading);
	for (const struct store_pin *pin = store->pins; pin; pin = pin->next)
		pins++;
	/* It was not there when they were made, or it is a new one in place of another. */
	if (!err && loading.pins != pins)
		err = index_update(dir->index, pin_write_all, store);
	SCOPED_LOCK(&store->lock);
	for (struct store_source *source = store->sources; source; source = source->next)
		source->dirty = true;
	store->mount_change++;
	return err;
}

struct source_change {
	const char *identity, *name;
	int64_t mounted_s;
};

static int source_write(struct index_txn *txn, void *arg)
{
	const struct source_change *change = arg;

	return index_put_source(txn, change->identity, change->name, change->mounted_s);
}

void store_source_record(struct store *store)
{
	for (;;) {
		struct source_change change = { 0 };
		struct store_source *source;
		cleanup_free char *name = NULL;

		pthread_mutex_lock(&store->lock);
		for (source = store->sources; source && !source->dirty;)
			source = source->next;
		if (source) {
			source->dirty = false;
			/* The identity stays for as long as the store; the name may change. */
			name = strdup(source->name ? source->name : "");
			change.identity = source->identity;
			change.mounted_s = source->mounted_s;
		}
		pthread_mutex_unlock(&store->lock);
		if (!source)
			return;
		change.name = name;
		/* Not durable in one of them: the others have it, and it is no more than a hint. */
		for (size_t i = 0; i < store->dir_count; i++)
			index_update(store->dirs[i].index, source_write, &change);
	}
}

bool store_is_pinned(const struct store *store, const char *identity, const char *path)
{
	for (const struct store_pin *pin = store->pins; pin; pin = pin->next)
		if (!strcmp(pin->identity, identity) && evict_below(path, pin->path))
			return true;
	return false;
}

static int pin_write(struct index_txn *txn, void *arg)
{
	const struct store_request *request = arg;
	int err;

	if (request->kind == STORE_PIN)
		return index_put_pin(txn, request->identity, request->path);
	err = index_delete_pin(txn, request->identity, request->path);
	return err == -ENOENT ? 0 : err;
}

static bool pin_remove(struct store *store, const struct store_request *request)
{
	struct store_pin **link = &store->pins, *pin;

	while ((pin = *link)) {
		if (!strcmp(pin->identity, request->identity) &&
		    !strcmp(pin->path, request->path)) {
			*link = pin->next;
			free(pin->identity);
			free(pin);
			return true;
		}
		link = &pin->next;
	}
	return false;
}

int store_pin_request(struct store *store, const struct store_request *request)
{
	bool written = false;
	int err = 0;

	/* In all directories: a pin says nothing of where blocks are. */
	for (size_t i = 0; i < store->dir_count; i++) {
		int one = index_update(store->dirs[i].index, pin_write, (void *)request);

		written = written || !one;
		if (one)
			err = one;
	}
	if (!written && err)
		return err;
	SCOPED_LOCK(&store->lock);
	if (request->kind == STORE_PIN)
		return pin_add(store, request->identity, request->path);
	return pin_remove(store, request) ? 0 : -ENOENT;
}

void store_source_free(struct store *store)
{
	while (store->sources) {
		struct store_source *source = store->sources;

		store->sources = source->next;
		free(source->identity);
		free(source->name);
		free(source);
	}
	while (store->quotas) {
		struct store_quota *quota = store->quotas;

		store->quotas = quota->next;
		free(quota->prefix);
		free(quota);
	}
	while (store->pins) {
		struct store_pin *pin = store->pins;

		store->pins = pin->next;
		free(pin->identity);
		free(pin);
	}
}
