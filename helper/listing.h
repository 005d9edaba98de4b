/* SPDX-License-Identifier: MIT */
/*
 * listing: the entries of one directory, page by page as the origin gave them.
 *
 * Order: bytes of the name, a directory counting as "name/" (that is S3's order, so
 * that pages can be passed on before the last one is there). Where the origin's pages
 * are not in this order, nothing is passed on before all are there. Pages of a large
 * listing may be dropped from memory; their tokens stay, to ask for them again.
 *
 * No locks, no requests: names.c owns both.
 */
#ifndef WFS_LISTING_H
#define WFS_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* So many pages in a row with nothing in them, and there are said to be more: it never ends. */
#define LISTING_EMPTY_PAGES 1000
#define LISTING_EMPTY_TEXT  "the server goes on sending pages of the listing with nothing in them"

struct listing;
struct origin_attr;
struct origin_entry;

struct listing *listing_create(void);
void listing_free(struct listing *listing);

/*
 * Appends the page asked for with listing_token(), or puts a dropped one back
 * (listing_refill()). -ENOMEM.
 */
int listing_add(struct listing *listing, const struct origin_entry *entries, size_t count,
		const char *next_token);
int listing_refill(struct listing *listing, size_t page, const struct origin_entry *entries,
		   size_t count);

bool listing_complete(const struct listing *listing);
size_t listing_pages(const struct listing *listing);
/* Token of a page; page == listing_pages(): of the next one. NULL: the first. */
const char *listing_token(const struct listing *listing, size_t page);
size_t listing_bytes(const struct listing *listing);
/* Drops the page that was not used for longest, never the last. False: none can go. */
bool listing_drop(struct listing *listing);

/* Looks in a complete listing. */
bool listing_find(struct listing *listing, const char *name, struct origin_attr *ret);

/* Does a complete listing have an object of this name hidden behind a directory? */
bool listing_double(struct listing *listing, const char *name);

enum listing_walk {
	LISTING_EOF,  /* nothing follows what was emitted */
	LISTING_MORE, /* at least one was emitted, others follow */
	LISTING_NEED, /* *ret_page must be there first */
};
/* Emits what follows the name after ("" from the start) until emit() says false. */
enum listing_walk listing_walk(struct listing *listing, const char *after,
			       bool (*emit)(void *arg, const char *name, size_t len, mode_t type),
			       void *arg, size_t *ret_page);

#endif /* WFS_LISTING_H */
