/* SPDX-License-Identifier: MIT */
/*
 * ask: questions to an origin from a thread that may wait: the control socket's.
 *
 * Retried within the retry budget. Not on a worker's thread.
 */
#ifndef WFS_ASK_H
#define WFS_ASK_H

#include <stddef.h>
#include "origin.h"

struct asker;
struct core;

int asker_create(struct core *core, struct asker **ret);
/* Ends what is being asked, with -ECANCELED, now and from now on. */
void asker_cancel(struct asker *asker);
/* Questions are asked again from now on. */
void asker_resume(struct asker *asker);
/* Nobody may be asking. */
void asker_destroy(struct asker *asker);

/* 0 or -errno with a sentence. */
int ask_stat(struct asker *asker, struct origin *origin, const char *path,
	     struct origin_attr *ret_attr, char *msg, size_t msg_size);

/*
 * The same without waiting. What was begun is ended, or dropped, once; path and origin stay as
 * they are until then.
 */
struct question;
int ask_stat_begin(struct asker *asker, struct origin *origin, const char *path,
		   struct question **ret);
int ask_stat_end(struct question *question, struct origin_attr *ret_attr, char *msg,
		 size_t msg_size);
void ask_stat_drop(struct question *question);

/* All entries of a directory, page by page; fn on the calling thread. Its error ends it. */
typedef int (*ask_entry_fn)(void *arg, const struct origin_entry *entry);
int ask_list(struct asker *asker, struct origin *origin, const char *path, ask_entry_fn fn,
	     void *arg, uint64_t *ret_skipped, char *msg, size_t msg_size);

/* What is said of a version's digest, as origin_offers(). */
int ask_offers(struct asker *asker, struct origin *origin, const char *path,
	       const struct origin_attr *attr, struct offers *ret, char *msg, size_t msg_size);

/* Where one part of a version lies, as origin_part(). */
int ask_part(struct asker *asker, struct origin *origin, const char *path,
	     const struct origin_attr *attr, uint32_t number, struct origin_part *ret, char *msg,
	     size_t msg_size);

#endif /* WFS_ASK_H */
