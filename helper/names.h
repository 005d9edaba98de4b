/* SPDX-License-Identifier: MIT */
/*
 * names: what is known of the names of one origin: attributes, absences and
 * listings, each with its age, within bounded memory.
 *
 * Answers come from what is known if that is young enough, else from the origin:
 * one attempt after another within a budget, one question however many ask it.
 * Questions run on the loop of the calling thread; answers are given on the loop
 * of whoever asked first.
 */
#ifndef WFS_NAMES_H
#define WFS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct loop;
struct names;
struct origin;
struct origin_attr;

#define NAMES_FOREVER UINT64_MAX

/* limit: bytes of memory for everything known, 0: 64 MiB. *ret holds one reference. */
int names_create(struct origin *origin, size_t limit, struct names **ret);
struct names *names_ref(struct names *names);
/* Not while a question of the caller is under way. Any thread. */
void names_unref(struct names *names);

/* How old an answer may be and how long it may take, in milliseconds. */
struct names_terms {
	uint64_t max_age_ms;	/* 0: ask; NAMES_FOREVER: any age */
	uint64_t max_absent_ms; /* the same for "there is nothing" */
	uint64_t budget_ms;	/* attempts are made for so long */
	bool stale;		/* an older answer rather than none, the origin being away */
	bool hasty; /* whoever asks has an older answer: say soon that the origin is away */
};

/*
 * error: 0 or -errno. message: a sentence for a person, NULL when error is 0; both
 * it and attr are valid inside the callback only. -ECANCELED: names_cancel().
 */
typedef void (*names_attr_fn)(void *arg, int error, const char *message,
			      const struct origin_attr *attr);
/*
 * What is at path? 0: *ret_attr has it. -EINPROGRESS: done() will be called, never
 * from inside. Other values: that is the answer (-ENOENT: known to be absent).
 */
int names_lookup(struct names *names, const char *path, const struct names_terms *terms,
		 struct origin_attr *ret_attr, names_attr_fn done, void *arg);

typedef void (*names_link_fn)(void *arg, int error, const char *message, const char *target);
/* Target of a symbolic link. 0: done() will be called; else -errno. */
int names_readlink(struct names *names, const char *path, const struct names_terms *terms,
		   names_link_fn done, void *arg);

/*
 * Part of a listing. Owned by the caller, alive until done() is called.
 *
 * The order is that of the bytes of the name, a directory counting as "name/"; it is
 * the same whenever it is listed, so that "after" is enough to go on, also in a new
 * process. emit() is called for each entry that follows "after", with a lock held (it
 * may not call back), until it returns false: no room. done() comes last, on some
 * worker's thread; with no error and eof false, there is more and at least one entry
 * was given.
 */
struct names_part {
	const char *path, *after; /* after "": from the start */
	struct names_terms terms;
	bool (*emit)(struct names_part *part, const char *name, size_t len, mode_t type);
	void (*done)(struct names_part *part, int error, const char *message, bool eof);
	struct names_part *next; /* these are ours */
	bool eof;
};
/* 0: done() will be called, perhaps from inside; else -errno. */
int names_readdir(struct names *names, struct names_part *part);

/* Forgets what is known at and below path ("": everything). Any thread. */
void names_invalidate(struct names *names, const char *path);

/* Ends the questions that run on the calling thread's loop, with -ECANCELED. */
void names_cancel(struct names *names);

struct names_counters {
	uint64_t hits, misses; /* answered from memory, asked of the origin */
	uint64_t stale;	       /* answered past the age asked for, the origin being away */
	uint64_t skipped;      /* keys that cannot be a path, as listings reported them */
	uint64_t bytes;	       /* memory in use */
};
void names_counters(struct names *names, struct names_counters *ret);

#endif /* WFS_NAMES_H */
