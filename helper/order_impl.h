/* SPDX-License-Identifier: MIT */
/* order_impl: what order's files share. All of it on the order's thread, no lock held. */
#ifndef WFS_ORDER_IMPL_H
#define WFS_ORDER_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ask.h"
#include "core.h"
#include "object.h"
#include "order.h"
#include "plan.h"
#include "profile.h"

/* Loads that are told apart at one time. */
#define ORDER_LOADS_MAX 4
#define LOAD_READ_MAX	16

struct order_note {
	struct order_note *next;
	struct object *object; /* a reference */
	struct order_asked asked;
};

struct order_call {
	struct order_call *next;
	enum order_settle what;
	const char *identity, *dir;
	char *text; /* with its own memory: nobody waits */
	bool done, busy;
};

struct order {
	struct core *core;
	struct asker *asker;
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed, called;
	bool stop, woken;
	unsigned int hurry;
	struct order_note *notes, **notes_end;
	unsigned int note_count;
	struct order_call *calls, **calls_end;
	/* The thread's. */
	struct load *loads;
};

/* A plan with the objects of its profile's files. */
struct order_ahead {
	struct load *load;
	struct profile *profile;
	struct plan *plan;
	struct order_object {
		struct object *object; /* a reference; NULL: not asked for, or none */
		bool none;
	} * objects;
	size_t object_count;
};

struct load_reader {
	uint32_t reader, stream;
};

/* One load of one model. */
struct load {
	struct load *next;
	struct order *order;
	struct origin *origin; /* a reference */
	char *dir;
	uint32_t block_shift;
	uint64_t noted_ns;	   /* when a block was last needed */
	struct profile *recording; /* of this load */
	size_t kept;		   /* blocks of it when it was last kept */
	struct load_reader readers[PROFILE_STREAMS_MAX];
	unsigned int reader_count;
	struct order_object *objects; /* by the recording's files */
	size_t object_count;
	const struct order_note *note; /* being looked at */
	/* By an earlier order, or NULL. */
	struct order_ahead learned;
	bool departed; /* from that */
	uint64_t strays, again;
	/* By the next shard. */
	struct shards *shards;
	struct order_ahead guess;
	size_t read[LOAD_READ_MAX]; /* files that were read in sequence, to be looked at */
	unsigned int read_count;
	char **names; /* of the directory, in their order; NULL: not listed */
	size_t name_count;
	bool listed;
};

/* order.c: any thread. */
void order_wake(void *order);

/* order_load. */
bool load_is(const struct load *load, const char *identity, const char *dir);
/* Of the directory that the object lies in. */
int load_create(struct order *order, struct object *object, struct load **ret);
bool load_of(const struct load *load, struct object *object);
void load_needed(struct load *load, const struct order_note *note);
/* To the end of the recording, for the reader of the note being looked at. */
void load_record(struct load *load, const char *name, const char *version, uint64_t size,
		 uint64_t block);
/* Writes what is new to the cache. */
void load_keep(struct load *load);
/* Is anything fetched ahead for it on its way? */
bool load_is_busy(const struct load *load);
void load_free_names(struct load *load);
void load_free(struct load *load);

/* order_ahead. */
/* Takes the profile: what it has is fetched ahead of who follows it. */
int ahead_create(struct load *load, struct profile *profile, struct order_ahead *ret);
void ahead_free(struct order_ahead *ahead);
/* A block of a file of the recording was needed: is it, with what was passed, as expected? */
void ahead_needed(struct load *load, size_t file, uint64_t block);
/* Somebody has asked for it, though it is not needed yet. */
void ahead_asked(struct load *load, const char *name, uint64_t block);
/* Counts for what comes next: needed, or passed by a plan. */
void ahead_count(struct load *load, size_t file, uint64_t block);
/* May marks be kept from now on? Those that there are go if not. */
void ahead_mark(struct load *load, bool keep);
/* Fetches what is to be fetched. May wait for the origin, until the asker is cancelled. */
void ahead_pump(struct load *load);
bool ahead_has_marks(const struct load *load);

#endif /* WFS_ORDER_IMPL_H */
