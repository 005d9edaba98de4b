/* SPDX-License-Identifier: MIT */
/* fake: an origin that answers from arrays, a moment later. */
#ifndef WFS_TEST_FAKE_H
#define WFS_TEST_FAKE_H

#include "origin_impl.h"

struct fake {
	struct origin origin;
	unsigned int stats, lists; /* calls */
	/* The next failures, then success. */
	unsigned int failures;
	int error;
	bool transient;
	/* What stat says. */
	struct origin_attr attr;
	/* What list says: pages of names made by name_at(). */
	unsigned int pages, per_page;
	int token_len; /* at least */
	void (*name_at)(unsigned int i, char *name, size_t size, struct origin_attr *attr);
};

/* All zero but the origin, which has one reference. */
void fake_init(struct fake *fake);

#endif /* WFS_TEST_FAKE_H */
