// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "listing.h"
#include "origin.h"

#define NAME_LONGEST 255
/* So many pages in order are taken as a sign that all of them will be. */
#define PAGES_ORDERED 8

struct item {
	uint64_t size;
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	uint32_t flags;
	uint32_t mode;
	bool hidden; /* another entry of the same name counts */
	uint8_t name_len, version_len;
	char text[]; /* name, NUL, version, NUL */
};

struct page {
	char *token;	     /* NULL: the first page */
	struct item **items; /* sorted; NULL: dropped */
	char *memory;	     /* that the items lie in */
	size_t count, bytes;
	char *first; /* name of the first item; only page 0 may have none */
	bool first_dir;
	uint64_t used;
};

struct listing {
	struct page *pages;
	size_t count;
	char *next; /* token of the page to come */
	bool complete, ordered, served;
	size_t bytes;
	uint64_t clock;
};

struct key {
	const char *name;
	size_t len;
	bool dir;
};

static int key_at(const struct key *key, size_t i)
{
	if (i < key->len)
		return (unsigned char)key->name[i];
	return i == key->len && key->dir ? '/' : -1;
}

static int key_compare(const struct key *a, const struct key *b)
{
	size_t n = a->len < b->len ? a->len : b->len;
	int r = memcmp(a->name, b->name, n);

	return r ? r : key_at(a, n) - key_at(b, n);
}

static struct key key_of(const struct item *item)
{
	return (struct key){ item->text, item->name_len, S_ISDIR(item->mode) };
}

static struct key key_first(const struct page *page)
{
	const char *name = page->first ? page->first : "";

	return (struct key){ name, strlen(name), page->first_dir };
}

static int item_order(const void *a, const void *b)
{
	const struct key x = key_of(*(struct item *const *)a);
	const struct key y = key_of(*(struct item *const *)b);

	return key_compare(&x, &y);
}

static bool name_good(const char *name)
{
	size_t len = strnlen(name, NAME_LONGEST + 1);

	return len > 0 && len <= NAME_LONGEST && strcmp(name, ".") && strcmp(name, "..") &&
	       !memchr(name, '/', len);
}

static size_t item_bytes(const struct origin_entry *entry)
{
	size_t bytes = sizeof(struct item) + strlen(entry->name) +
		       strnlen(entry->attr.version, ORIGIN_VERSION_MAX) + 2;

	return (bytes + 7) & ~(size_t)7;
}

static void item_set(struct item *item, const struct origin_entry *entry)
{
	const struct origin_attr *attr = &entry->attr;

	item->size = attr->size;
	item->mtime_sec = attr->mtime_sec;
	item->mtime_nsec = attr->mtime_nsec;
	item->flags = attr->flags;
	item->mode = attr->mode & S_IFMT;
	item->hidden = false;
	item->name_len = (uint8_t)strlen(entry->name);
	item->version_len = (uint8_t)strnlen(attr->version, ORIGIN_VERSION_MAX);
	memcpy(item->text, entry->name, item->name_len + 1);
	memcpy(item->text + item->name_len + 1, attr->version, item->version_len);
	item->text[item->name_len + 1 + item->version_len] = '\0';
}

/* Sorts and leaves one of equal keys. */
static void page_sort(struct page *page)
{
	size_t kept = 0;

	if (page->count < 2)
		return;
	qsort(page->items, page->count, sizeof(*page->items), item_order);
	for (size_t i = 1; i < page->count; i++)
		if (item_order(&page->items[kept], &page->items[i]))
			page->items[++kept] = page->items[i];
	page->count = kept + 1;
}

static int page_fill(struct page *page, const struct origin_entry *entries, size_t count)
{
	size_t bytes = 0, n = 0;
	struct item **items;
	char *memory;

	for (size_t i = 0; i < count; i++)
		if (name_good(entries[i].name))
			bytes += item_bytes(&entries[i]);
	items = calloc(count + 1, sizeof(*items));
	memory = malloc(bytes + 1);
	if (!items || !memory) {
		free(items);
		free(memory);
		return -ENOMEM;
	}
	bytes = 0;
	for (size_t i = 0; i < count; i++) {
		if (!name_good(entries[i].name))
			continue;
		items[n] = (struct item *)(memory + bytes);
		item_set(items[n++], &entries[i]);
		bytes += item_bytes(&entries[i]);
	}
	page->items = items;
	page->memory = memory;
	page->count = n;
	page->bytes = bytes + (count + 1) * sizeof(*items);
	page_sort(page);
	return 0;
}

static void page_empty(struct page *page)
{
	free(page->items);
	free(page->memory);
	page->items = NULL;
	page->memory = NULL;
	page->count = 0;
	page->bytes = 0;
}

/* What is left of a page that was dropped: a token may be long. */
static size_t page_rest(const struct page *page)
{
	return sizeof(*page) + (page->token ? strlen(page->token) + 1 : 0) +
	       (page->first ? strlen(page->first) + 1 : 0);
}

struct listing *listing_create(void)
{
	struct listing *listing = calloc(1, sizeof(*listing));

	if (listing)
		listing->ordered = true;
	return listing;
}

void listing_free(struct listing *listing)
{
	if (!listing)
		return;
	for (size_t i = 0; i < listing->count; i++) {
		page_empty(&listing->pages[i]);
		free(listing->pages[i].token);
		free(listing->pages[i].first);
	}
	free(listing->pages);
	free(listing->next);
	free(listing);
}

/* The page that the key belongs to: the last that begins at or before it, else the first. */
static size_t page_of(const struct listing *listing, const struct key *key)
{
	size_t low = 0, high = listing->count;

	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;
		struct key first = key_first(&listing->pages[mid]);

		if (key_compare(&first, key) <= 0)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* Index of the first item whose key is greater than, or with equal also not less than, key. */
static size_t page_bound(const struct page *page, const struct key *key, bool equal)
{
	size_t low = 0, high = page->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct key at = key_of(page->items[mid]);
		int r = key_compare(&at, key);

		if (r < 0 || (r == 0 && !equal))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct item *item_find(struct listing *listing, const struct key *key)
{
	struct page *page;
	struct key at;
	size_t i;

	if (!listing->count)
		return NULL;
	page = &listing->pages[page_of(listing, key)];
	if (!page->items)
		return NULL;
	i = page_bound(page, key, true);
	if (i == page->count)
		return NULL;
	at = key_of(page->items[i]);
	page->used = ++listing->clock;
	return key_compare(&at, key) ? NULL : page->items[i];
}

/*
 * One entry a name: the directory counts where an object has the same name, unless
 * the object may have been shown already.
 */
static void hide_doubles(struct listing *listing, struct page *page)
{
	for (size_t i = 0; i < page->count; i++) {
		struct item *item = page->items[i], *file;
		struct key key = key_of(item);

		if (!key.dir)
			continue;
		key.dir = false;
		file = item_find(listing, &key);
		if (!file)
			continue;
		if (listing->served)
			item->hidden = true;
		else
			file->hidden = true;
	}
}

/* All pages become one: they were in no order. */
static int merge(struct listing *listing)
{
	size_t count = 0, bytes = 0, n = 0, at = 0;
	struct item **items;
	char *memory, *first = NULL;

	for (size_t i = 0; i < listing->count; i++) {
		count += listing->pages[i].count;
		bytes += listing->pages[i].bytes;
	}
	items = calloc(count + 1, sizeof(*items));
	memory = malloc(bytes + 1);
	if (!items || !memory) {
		free(items);
		free(memory);
		return -ENOMEM;
	}
	for (size_t i = 0; i < listing->count; i++) {
		const struct page *page = &listing->pages[i];

		for (size_t k = 0; k < page->count; k++) {
			const struct item *item = page->items[k];
			size_t len = sizeof(*item) + item->name_len + item->version_len + 2;

			memcpy(memory + at, item, len);
			items[n++] = (struct item *)(memory + at);
			at += (len + 7) & ~(size_t)7;
		}
	}
	for (size_t i = 0; i < listing->count; i++) {
		page_empty(&listing->pages[i]);
		free(listing->pages[i].token);
		free(listing->pages[i].first);
	}
	listing->count = 1;
	listing->pages[0] = (struct page){ .items = items, .memory = memory, .count = n };
	listing->pages[0].bytes = at + (count + 1) * sizeof(*items);
	page_sort(&listing->pages[0]);
	if (n)
		first = strdup(items[0]->text);
	listing->pages[0].first = first;
	listing->pages[0].first_dir = n && S_ISDIR(items[0]->mode);
	listing->bytes = listing->pages[0].bytes + page_rest(&listing->pages[0]);
	return n && !first ? -ENOMEM : 0;
}

static bool follows(const struct listing *listing, const struct page *page)
{
	const struct page *before = listing->count ? &listing->pages[listing->count - 1] : NULL;
	struct key last, first;

	if (!before || !before->count || !page->count)
		return true;
	last = key_of(before->items[before->count - 1]);
	first = key_of(page->items[0]);
	return key_compare(&last, &first) < 0;
}

int listing_add(struct listing *listing, const struct origin_entry *entries, size_t count,
		const char *next_token)
{
	char *next = next_token ? strdup(next_token) : NULL;
	struct page page = { 0 }, *pages;
	int r;

	if (next_token && !next)
		return -ENOMEM;
	r = page_fill(&page, entries, count);
	if (!r && page.count) {
		page.first = strdup(page.items[0]->text);
		page.first_dir = S_ISDIR(page.items[0]->mode);
		if (!page.first)
			r = -ENOMEM;
	}
	if (!r && !page.count && listing->count && next) {
		/* Nothing in it: only its token goes on. */
		page_empty(&page);
		free(listing->next);
		listing->next = next;
		return 0;
	}
	pages = r ? NULL : reallocarray(listing->pages, listing->count + 1, sizeof(*pages));
	if (!pages) {
		page_empty(&page);
		free(page.first);
		free(next);
		return -ENOMEM;
	}
	listing->pages = pages;
	if (!follows(listing, &page))
		listing->ordered = false;
	page.token = listing->next;
	page.used = ++listing->clock;
	listing->next = next;
	listing->complete = !next;
	pages[listing->count++] = page;
	listing->bytes += page.bytes + page_rest(&page);
	if (listing->complete && !listing->ordered) {
		r = merge(listing);
		if (r)
			return r;
		listing->ordered = true;
	}
	if (listing->ordered)
		hide_doubles(listing, &listing->pages[listing->count - 1]);
	return 0;
}

int listing_refill(struct listing *listing, size_t index, const struct origin_entry *entries,
		   size_t count)
{
	struct page *page = &listing->pages[index];
	int r;

	if (index >= listing->count || page->items)
		return 0;
	r = page_fill(page, entries, count);
	if (r)
		return r;
	page->used = ++listing->clock;
	listing->bytes += page->bytes;
	hide_doubles(listing, page);
	return 0;
}

bool listing_complete(const struct listing *listing)
{
	return listing->complete;
}

size_t listing_pages(const struct listing *listing)
{
	return listing->count;
}

const char *listing_token(const struct listing *listing, size_t page)
{
	return page < listing->count ? listing->pages[page].token : listing->next;
}

size_t listing_bytes(const struct listing *listing)
{
	return listing->bytes;
}

bool listing_drop(struct listing *listing)
{
	struct page *oldest = NULL;

	if (!listing->ordered || listing->count < 2)
		return false;
	for (size_t i = 0; i + 1 < listing->count; i++) {
		struct page *page = &listing->pages[i];

		if (page->items && (!oldest || page->used < oldest->used))
			oldest = page;
	}
	if (!oldest || oldest->used == listing->clock)
		return false;
	listing->bytes -= oldest->bytes;
	page_empty(oldest);
	return true;
}

bool listing_find(struct listing *listing, const char *name, struct origin_attr *ret)
{
	struct key key = { name, strlen(name), true };
	const struct item *item;

	if (!listing->complete)
		return false;
	item = item_find(listing, &key);
	if (!item || item->hidden) {
		key.dir = false;
		item = item_find(listing, &key);
	}
	if (!item || item->hidden)
		return false;
	*ret = (struct origin_attr){
		.mode = item->mode,
		.flags = item->flags,
		.size = item->size,
		.mtime_sec = item->mtime_sec,
		.mtime_nsec = item->mtime_nsec,
	};
	memcpy(ret->version, item->text + item->name_len + 1, item->version_len);
	return true;
}

bool listing_double(struct listing *listing, const char *name)
{
	struct key key = { name, strlen(name), true };
	const struct item *dir, *file;

	if (!listing->complete)
		return false;
	dir = item_find(listing, &key);
	key.dir = false;
	file = item_find(listing, &key);
	return dir && !dir->hidden && file && file->hidden;
}

/*
 * Where does the name stand? It was given out before, as one or the other; when it is
 * gone meanwhile, its place as a file is the earlier one. False: *ret_page is needed.
 */
static bool place(struct listing *listing, const char *after, struct key *ret_key, size_t *ret_page)
{
	struct key key = { after, strlen(after), true };

	for (int dir = 1; dir >= 0; dir--) {
		const struct item *item;
		size_t page;

		key.dir = dir;
		page = page_of(listing, &key);
		if (!listing->pages[page].items) {
			*ret_page = page;
			return false;
		}
		item = item_find(listing, &key);
		if (item && !item->hidden)
			break;
		key.dir = false;
	}
	*ret_key = key;
	return true;
}

enum listing_walk listing_walk(struct listing *listing, const char *after,
			       bool (*emit)(void *arg, const char *name, size_t len, mode_t type),
			       void *arg, size_t *ret_page)
{
	size_t page = 0, at = 0, emitted = 0;
	struct key key = { 0 };

	if (!listing->complete && (!listing->ordered || listing->count < PAGES_ORDERED)) {
		*ret_page = listing->count;
		return LISTING_NEED;
	}
	if (*after) {
		if (!place(listing, after, &key, ret_page))
			return LISTING_NEED;
		page = page_of(listing, &key);
		at = page_bound(&listing->pages[page], &key, false);
	}
	for (; page < listing->count; page++, at = 0) {
		struct page *this = &listing->pages[page];

		if (!this->items) {
			*ret_page = page;
			return emitted ? LISTING_MORE : LISTING_NEED;
		}
		this->used = ++listing->clock;
		for (; at < this->count; at++) {
			const struct item *item = this->items[at];

			if (item->hidden)
				continue;
			listing->served = true;
			if (!emit(arg, item->text, item->name_len, item->mode))
				return LISTING_MORE;
			emitted++;
		}
	}
	if (listing->complete)
		return LISTING_EOF;
	*ret_page = listing->count;
	return emitted ? LISTING_MORE : LISTING_NEED;
}
