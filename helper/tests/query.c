// SPDX-License-Identifier: MIT
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "query.h"
#include "container.h"

#define BOUND_MS 60000

struct waiting {
	struct query *query;
	struct loop *loop;
	struct loop_timer bound;
	bool answered, in_start;
};

static void on_bound(struct loop_timer *timer)
{
	struct waiting *w = container_of(timer, struct waiting, bound);

	loop_stop(w->loop);
}

static void begin(struct waiting *w, struct loop *loop, struct query *query)
{
	memset(query, 0, sizeof(*query));
	*w = (struct waiting){ .query = query, .loop = loop, .in_start = true };
	w->bound.expired = on_bound;
}

static void wait_for(struct waiting *w, int err)
{
	w->in_start = false;
	assert_int_equal(err, 0);
	loop_timer_start(w->loop, &w->bound, BOUND_MS);
	assert_int_equal(loop_run(w->loop), 0);
	loop_timer_stop(w->loop, &w->bound);
	assert_true(w->answered);
}

static void take(struct waiting *w, const struct origin_result *result)
{
	/* Never from inside the call that starts it, and once. */
	assert_false(w->in_start);
	assert_false(w->answered);
	w->answered = true;
	w->query->error = result->error;
	w->query->transient = result->transient;
	w->query->retry_after_ms = result->retry_after_ms;
	w->query->status = result->status;
	assert_int_equal(!!result->error, !!result->message);
	if (result->message)
		snprintf(w->query->message, sizeof(w->query->message), "%s", result->message);
	loop_stop(w->loop);
}

static void on_stat(void *arg, const struct origin_result *result, const struct origin_attr *attr)
{
	struct waiting *w = arg;

	if (!result->error)
		w->query->attr = *attr;
	take(w, result);
}

void query_stat(struct loop *loop, struct origin *origin, const char *path, struct query *ret)
{
	struct origin_call *call;
	struct waiting w;

	begin(&w, loop, ret);
	wait_for(&w, origin_stat(origin, loop, path, on_stat, &w, &call));
}

static void on_list(void *arg, const struct origin_result *result,
		    const struct origin_entry *entries, size_t count, const char *next_token,
		    uint64_t skipped)
{
	struct waiting *w = arg;
	size_t len = 0;

	for (size_t i = 0; i < count && len < sizeof(w->query->names); i++)
		len += (size_t)snprintf(w->query->names + len, sizeof(w->query->names) - len,
					"%s%s ", entries[i].name,
					S_ISDIR(entries[i].attr.mode) ? "/" : "");
	if (count)
		w->query->attr = entries[0].attr;
	w->query->count = count;
	w->query->skipped = skipped;
	if (next_token)
		snprintf(w->query->token, sizeof(w->query->token), "%s", next_token);
	take(w, result);
}

void query_list(struct loop *loop, struct origin *origin, const char *path, const char *token,
		struct query *ret)
{
	struct origin_call *call;
	struct waiting w;
	char copy[1024];

	if (token)
		snprintf(copy, sizeof(copy), "%s", token);
	begin(&w, loop, ret);
	wait_for(&w, origin_list(origin, loop, path, token ? copy : NULL, on_list, &w, &call));
}

static void on_link(void *arg, const struct origin_result *result, const char *target)
{
	struct waiting *w = arg;

	if (!result->error)
		snprintf(w->query->target, sizeof(w->query->target), "%s", target);
	take(w, result);
}

void query_readlink(struct loop *loop, struct origin *origin, const char *path, struct query *ret)
{
	struct origin_call *call;
	struct waiting w;

	begin(&w, loop, ret);
	wait_for(&w, origin_readlink(origin, loop, path, on_link, &w, &call));
}

static void on_progress(void *arg, uint64_t bytes)
{
	struct waiting *w = arg;

	assert_false(w->in_start);
	assert_false(w->answered);
	assert_true(bytes > w->query->progressed);
	w->query->progressed = bytes;
}

static void on_read(void *arg, const struct origin_result *result, uint64_t bytes)
{
	struct waiting *w = arg;

	assert_int_equal(w->query->progressed, bytes);
	w->query->bytes = bytes;
	take(w, result);
}

void query_read(struct loop *loop, struct origin *origin, const char *path,
		const struct origin_attr *attr, uint64_t offset, uint64_t len, void *dst,
		struct query *ret)
{
	struct origin_call *call;
	struct waiting w;
	struct origin_get get = {
		.path = path,
		.attr = attr,
		.offset = offset,
		.len = len,
		.dst = dst,
		.progress = on_progress,
		.done = on_read,
		.arg = &w,
	};

	begin(&w, loop, ret);
	wait_for(&w, origin_read(origin, loop, &get, &call));
}

static void on_turned(struct loop_timer *timer)
{
	struct waiting *w = container_of(timer, struct waiting, bound);

	loop_stop(w->loop);
}

static void on_offers(void *arg, const struct origin_result *result, const struct offers *offers)
{
	struct waiting *w = arg;

	if (!result->error)
		w->query->offers = *offers;
	take(w, result);
}

void query_offers(struct loop *loop, struct origin *origin, const char *path,
		  const struct origin_attr *attr, struct query *ret)
{
	struct origin_call *call;
	struct waiting w;

	begin(&w, loop, ret);
	wait_for(&w, origin_offers(origin, loop, path, attr, on_offers, &w, &call));
}

static void on_part(void *arg, const struct origin_result *result, const struct origin_part *part)
{
	struct waiting *w = arg;

	if (!result->error)
		w->query->part = *part;
	take(w, result);
}

void query_part(struct loop *loop, struct origin *origin, const char *path,
		const struct origin_attr *attr, uint32_t number, struct query *ret)
{
	struct origin_call *call;
	struct waiting w;

	begin(&w, loop, ret);
	wait_for(&w, origin_part(origin, loop, path, attr, number, on_part, &w, &call));
}

void query_turn(struct loop *loop, uint64_t ms)
{
	struct waiting w = { .loop = loop, .bound = { .expired = on_turned } };

	loop_timer_start(loop, &w.bound, ms);
	assert_int_equal(loop_run(loop), 0);
}
