// SPDX-License-Identifier: MIT
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "loop.h"

struct fake_call {
	struct origin_call call;
	struct loop_timer timer;
	struct fake *fake;
	struct loop *loop;
	origin_stat_fn stat;
	origin_list_fn list;
	unsigned int page;
	void *arg;
};

static void fake_answer_list(struct fake_call *call, const struct origin_result *result)
{
	struct fake *f = call->fake;
	struct origin_entry *entries = calloc(f->per_page + 1, sizeof(*entries));
	char(*text)[300] = calloc(f->per_page + 1, sizeof(*text));
	char token[8192];

	assert_non_null(entries);
	assert_non_null(text);
	for (unsigned int i = 0; i < f->per_page; i++) {
		entries[i].name = text[i];
		entries[i].attr = (struct origin_attr){ .mode = S_IFREG, .size = i };
		f->name_at(call->page * f->per_page + i, text[i], sizeof(text[i]),
			   &entries[i].attr);
	}
	snprintf(token, sizeof(token), "%-*u", f->token_len, call->page + 1);
	call->list(call->arg, result, entries, f->per_page,
		   call->page + 1 < f->pages ? token : NULL, 0);
	free(entries);
	free(text);
}

static void fake_expired(struct loop_timer *timer)
{
	struct fake_call *call =
		(struct fake_call *)((char *)timer - offsetof(struct fake_call, timer));
	struct fake *f = call->fake;
	struct origin_result result = { 0 };

	if (f->failures) {
		f->failures--;
		result.error = f->error;
		result.transient = f->transient;
		result.message = "the fake fails";
	}
	if (call->stat)
		call->stat(call->arg, &result, result.error ? NULL : &f->attr);
	else if (result.error)
		call->list(call->arg, &result, NULL, 0, NULL, 0);
	else
		fake_answer_list(call, &result);
	free(call);
}

static void fake_cancel(struct origin_call *origin_call)
{
	struct fake_call *call = (struct fake_call *)origin_call;

	loop_timer_stop(call->loop, &call->timer);
	free(call);
}

static struct fake_call *fake_start(struct origin *origin, struct loop *on, void *arg,
				    struct origin_call **ret_call)
{
	struct fake_call *call = calloc(1, sizeof(*call));

	assert_non_null(call);
	call->call.cancel = fake_cancel;
	call->fake = (struct fake *)origin;
	call->loop = on;
	call->arg = arg;
	call->timer.expired = fake_expired;
	loop_timer_start(on, &call->timer, 1);
	*ret_call = &call->call;
	return call;
}

static int fake_stat(struct origin *origin, struct loop *on, const char *path, origin_stat_fn done,
		     void *arg, struct origin_call **ret_call)
{
	(void)path;
	((struct fake *)origin)->stats++;
	fake_start(origin, on, arg, ret_call)->stat = done;
	return 0;
}

static int fake_list(struct origin *origin, struct loop *on, const char *path, const char *token,
		     origin_list_fn done, void *arg, struct origin_call **ret_call)
{
	struct fake_call *call = fake_start(origin, on, arg, ret_call);

	(void)path;
	((struct fake *)origin)->lists++;
	call->list = done;
	call->page = token ? (unsigned int)strtoul(token, NULL, 10) : 0;
	return 0;
}

static void fake_destroy(struct origin *origin)
{
	(void)origin;
}

static const struct origin_ops fake_ops = {
	.stat = fake_stat,
	.list = fake_list,
	.destroy = fake_destroy,
};

void fake_init(struct fake *fake)
{
	memset(fake, 0, sizeof(*fake));
	fake->origin.ops = &fake_ops;
	fake->origin.refs = 1;
}
