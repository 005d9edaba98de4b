/* SPDX-License-Identifier: MIT */
/* query: an origin's calls, waited for. Failures to answer end the test. */
#ifndef WFS_TEST_QUERY_H
#define WFS_TEST_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "loop.h"
#include "origin.h"

/* What a call ended with. */
struct query {
	int error;
	bool transient;
	uint32_t retry_after_ms;
	unsigned int status;
	char message[512];

	struct origin_attr attr; /* stat; list: of the first one */
	uint64_t bytes;		 /* read */
	uint64_t progressed;	 /* read: the last of progress() */

	char names[4096]; /* list: "name name/ " in order, directories with a slash */
	size_t count;
	uint64_t skipped;
	char token[1024]; /* "": no more */
	struct offers offers;
	struct origin_part part;
	char target[512]; /* readlink */
};

/* Runs the loop until the answer; how long a loop may take at most is bounded. */
void query_stat(struct loop *loop, struct origin *origin, const char *path, struct query *ret);
void query_list(struct loop *loop, struct origin *origin, const char *path, const char *token,
		struct query *ret);
void query_readlink(struct loop *loop, struct origin *origin, const char *path, struct query *ret);
void query_read(struct loop *loop, struct origin *origin, const char *path,
		const struct origin_attr *attr, uint64_t offset, uint64_t len, void *dst,
		struct query *ret);
void query_offers(struct loop *loop, struct origin *origin, const char *path,
		  const struct origin_attr *attr, struct query *ret);
void query_part(struct loop *loop, struct origin *origin, const char *path,
		const struct origin_attr *attr, uint32_t number, struct query *ret);
/* Runs the loop for a moment, with nothing to wait for. */
void query_turn(struct loop *loop, uint64_t ms);

#endif /* WFS_TEST_QUERY_H */
