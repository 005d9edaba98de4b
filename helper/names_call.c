// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "listing.h"
#include "names_impl.h"

/* Another attempt, if there is to be one. */
static bool again(struct call *call, const struct origin_result *result)
{
	int64_t wait_ms;

	call->under_way = NULL;
	if (!result->error || !result->transient)
		return false;
	wait_ms = retry_next(&call->retry, result);
	if (wait_ms < 0)
		return false;
	loop_timer_start(call->loop, &call->timer, (uint64_t)wait_ms);
	return true;
}

static void stat_done(void *arg, const struct origin_result *result, const struct origin_attr *attr)
{
	struct call *call = arg;

	if (!again(call, result))
		names_answer_attr(call->names, call, result, attr);
}

static void link_done(void *arg, const struct origin_result *result, const char *target)
{
	struct call *call = arg;

	if (!again(call, result))
		names_answer_link(call->names, call, result, target);
}

static void list_done(void *arg, const struct origin_result *result,
		      const struct origin_entry *entries, size_t count, const char *next_token,
		      uint64_t skipped)
{
	struct call *call = arg;

	if (!again(call, result))
		names_answer_list(call->names, call, result, entries, count, next_token, skipped);
}

static void answer_error(struct call *call, const struct origin_result *result)
{
	switch (call->kind) {
	case CALL_STAT:
		names_answer_attr(call->names, call, result, NULL);
		break;
	case CALL_LINK:
		names_answer_link(call->names, call, result, NULL);
		break;
	case CALL_LIST:
		names_answer_list(call->names, call, result, NULL, 0, NULL, 0);
		break;
	}
}

static int attempt(struct call *call)
{
	struct origin *origin = call->names->origin;

	switch (call->kind) {
	case CALL_STAT:
		return origin_stat(origin, call->loop, call->path, stat_done, call,
				   &call->under_way);
	case CALL_LINK:
		return origin_readlink(origin, call->loop, call->path, link_done, call,
				       &call->under_way);
	case CALL_LIST:
		return origin_list(origin, call->loop, call->path,
				   listing_token(call->record->listing, call->page), list_done,
				   call, &call->under_way);
	}
	return -EINVAL;
}

static void timer_expired(struct loop_timer *timer)
{
	struct call *call = container_of(timer, struct call, timer);
	int r = call->refused;

	if (!r)
		r = attempt(call);
	if (r) {
		struct origin_result result = { .error = r, .message = strerror(-r) };

		answer_error(call, &result);
	}
}

/* Never answers from inside: what goes wrong at once is told by the timer. */
static void call_start(struct call *call)
{
	retry_start(&call->retry, call->budget_ms, 0);
	call->refused = attempt(call);
	if (call->refused)
		loop_timer_start(call->loop, &call->timer, 0);
}

static struct call *call_create(struct names *names, enum call_kind kind, const char *path,
				uint64_t budget_ms)
{
	size_t len = strlen(path);
	struct call *call = calloc(1, sizeof(*call) + len + 1);

	if (!call)
		return NULL;
	memcpy(call->path, path, len + 1);
	call->names = names_ref(names);
	call->kind = kind;
	call->loop = loop_self();
	call->generation = names->generation;
	call->budget_ms = budget_ms;
	call->timer.expired = timer_expired;
	call->next = names->calls;
	if (call->next)
		call->next->prev = call;
	names->calls = call;
	return call;
}

int call_join(struct names *names, enum call_kind kind, const char *path, uint64_t budget_ms,
	      struct waiter *waiter)
{
	struct call *call;

	for (call = names->calls; call; call = call->next)
		if (call->kind == kind && call->generation == names->generation &&
		    !strcmp(call->path, path))
			break;
	if (call) {
		waiter->next = call->waiters;
		call->waiters = waiter;
		return 0;
	}
	call = call_create(names, kind, path, budget_ms);
	if (!call)
		return -ENOMEM;
	call->waiters = waiter;
	call_start(call);
	return 0;
}

int call_list(struct names *names, struct record *record, size_t page, uint64_t budget_ms)
{
	struct call *call = call_create(names, CALL_LIST, record->path, budget_ms);

	if (!call)
		return -ENOMEM;
	call->record = record;
	call->page = page;
	record->call = call;
	call_start(call);
	return 0;
}

void call_page(struct call *call, size_t page)
{
	call->page = page;
	call_start(call);
}

struct waiter *call_end(struct call *call)
{
	struct waiter *waiters = TAKE(call->waiters);

	if (call->next)
		call->next->prev = call->prev;
	if (call->prev)
		call->prev->next = call->next;
	else
		call->names->calls = call->next;
	return waiters;
}

void call_free(struct call *call)
{
	names_unref(call->names);
	free(call);
}

void names_cancel(struct names *names)
{
	const struct origin_result result = { .error = -ECANCELED };
	struct loop *loop = loop_self();
	struct call *call;

	names_ref(names);
	do {
		pthread_mutex_lock(&names->lock);
		for (call = names->calls; call && call->loop != loop; call = call->next)
			;
		pthread_mutex_unlock(&names->lock);
		if (call) {
			/* It is this thread's, so that it cannot end meanwhile. */
			loop_timer_stop(loop, &call->timer);
			if (call->under_way)
				origin_cancel(call->under_way);
			answer_error(call, &result);
		}
	} while (call);
	names_unref(names);
}
