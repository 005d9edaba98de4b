/* SPDX-License-Identifier: MIT */
/*
 * check: what is cached of objects, against the sums of its blocks and the objects' digests.
 *
 *	check_begin -> { check_object -> check_count }* -> check_end
 *
 * For `wfs verify` and `wfs fetch --verify`, on the thread of their connection.
 */
#ifndef WFS_CHECK_H
#define WFS_CHECK_H

#include "digest.h"
#include "server_impl.h"
#include "store.h"

/* What came of an object's digest. */
enum check_digest {
	CHECK_NONE,	 /* nobody offers one of this version */
	CHECK_PARTIAL,	 /* not all of the object is cached */
	CHECK_COMPOSITE, /* only ones of parts, of which it is not known where they are */
	CHECK_UNASKED,	 /* the origin could not be asked */
	CHECK_VERIFIED,
	CHECK_WRONG,
};

/* Of one version of an object. */
struct check_result {
	const char *path; /* the key's, for people */
	uint64_t bytes;	  /* read and right */
	uint64_t damaged; /* blocks, dropped */
	enum check_digest digest;
	char message[SERVER_MESSAGE]; /* why something is wrong; "" */
};

struct check {
	struct connection *connection;
	struct store *store;
	const struct digest *given; /* on the command line, or NULL */
	void *buffer;
	/* Called as bytes are read. */
	void (*progress)(void *arg);
	/* A block was found damaged and dropped; NULL: nothing more is to be done. */
	void (*damaged)(void *arg, uint64_t block);
	void *arg;
	bool anew;   /* the origin is asked also of what is known */
	bool silent; /* the origin did not answer: it is not asked any more */
	/* What was read by now, and what was counted. */
	uint64_t done;
	uint64_t files, bytes, damaged_blocks, bad;
	uint64_t verified, wrong, none, partial, composite, unasked;
	/* Why the first of those could not be asked for, or verified; "". */
	char unasked_message[SERVER_MESSAGE], composite_message[SERVER_MESSAGE];
};

/* Sets what is not the caller's. 0 or -ENOMEM; check_end() in any case. */
int check_begin(struct check *check, struct connection *connection, const struct digest *given);
void check_end(struct check *check);
/* The client has gone, or the daemon stops. */
bool check_stopped(const struct check *check);
/*
 * Reads all blocks that are recorded, drops those that are damaged, and all of them if the
 * digest is wrong. lost: as in struct store_object, with so many blocks. 0 whatever was
 * found; -errno: it could not be looked at.
 */
int check_object(struct check *check, struct origin *origin, const struct store_key *key,
		 uint64_t lost, struct check_result *ret);
/* Adds the result to the counts; what is wrong is told to the client. */
void check_count(struct check *check, const struct check_result *result);
/* Adds the counts to what the client is told last. */
int check_report(const struct check *check, json_t *result);

#endif /* WFS_CHECK_H */
