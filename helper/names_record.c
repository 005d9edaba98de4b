// SPDX-License-Identifier: MIT
/* names_record: the table of what is known, within its limit. All under names->lock. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "listing.h"
#include "names_impl.h"

static size_t record_hash(enum record_kind kind, const char *path)
{
	return XXH3_64bits_withSeed(path, strlen(path), kind);
}

struct record *record_find(struct names *names, enum record_kind kind, const char *path)
{
	struct record *record = names->buckets[record_hash(kind, path) & (names->bucket_count - 1)];

	while (record && (record->kind != kind || strcmp(record->path, path)))
		record = record->next;
	if (record) {
		record->older->newer = record->newer;
		record->newer->older = record->older;
		record->newer = names->lru.newer;
		record->older = &names->lru;
		record->newer->older = record;
		names->lru.newer = record;
	}
	return record;
}

static void table_grow(struct names *names)
{
	size_t count = names->bucket_count * 2;
	struct record **buckets = calloc(count, sizeof(*buckets));

	if (!buckets)
		return; /* longer chains, nothing worse */
	for (size_t i = 0; i < names->bucket_count; i++) {
		struct record *record, *next;

		for (record = names->buckets[i]; record; record = next) {
			size_t at = record_hash(record->kind, record->path) & (count - 1);

			next = record->next;
			record->next = buckets[at];
			buckets[at] = record;
		}
	}
	free(names->buckets);
	names->buckets = buckets;
	names->bucket_count = count;
}

struct record *record_add(struct names *names, enum record_kind kind, const char *path)
{
	size_t len = strlen(path);
	struct record *record = calloc(1, sizeof(*record) + len + 1);
	size_t at;

	if (!record)
		return NULL;
	memcpy(record->path, path, len + 1);
	record->kind = kind;
	record->bytes = sizeof(*record) + len + 1;
	record->stamp_ns = names_now();
	if (names->record_count > names->bucket_count)
		table_grow(names);
	at = record_hash(kind, path) & (names->bucket_count - 1);
	record->next = names->buckets[at];
	names->buckets[at] = record;
	record->newer = names->lru.newer;
	record->older = &names->lru;
	record->newer->older = record;
	names->lru.newer = record;
	names->record_count++;
	names->bytes += record->bytes;
	return record;
}

void record_resize(struct names *names, struct record *record)
{
	size_t bytes = sizeof(*record) + strlen(record->path) + 1;

	if (record->version)
		bytes += strlen(record->version) + 1;
	if (record->listing)
		bytes += listing_bytes(record->listing);
	if (record->old)
		bytes += listing_bytes(record->old);
	names->bytes += bytes - record->bytes;
	record->bytes = bytes;
}

static void record_free(struct record *record)
{
	listing_free(record->listing);
	listing_free(record->old);
	free(record->version);
	free(record);
}

void record_remove(struct names *names, struct record *record)
{
	struct record **link =
		&names->buckets[record_hash(record->kind, record->path) & (names->bucket_count - 1)];

	while (*link != record)
		link = &(*link)->next;
	*link = record->next;
	record->older->newer = record->newer;
	record->newer->older = record->older;
	names->record_count--;
	names->bytes -= record->bytes;
	if (record->call) {
		/* Who waits is still answered; the call frees it. */
		record->removed = true;
		return;
	}
	record_free(record);
}

void record_release(struct record *record)
{
	if (record->removed)
		record_free(record);
}

void names_trim(struct names *names)
{
	struct record *record = names->lru.older, *newer;

	for (; names->bytes > names->limit && record != &names->lru; record = newer) {
		newer = record->older;
		if (!record->call && record != names->lru.newer)
			record_remove(names, record);
	}
}
