// SPDX-License-Identifier: MIT
#include "ask.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "core.h"
#include "counters.h"
#include "listing.h"
#include "loop.h"
#include "retry.h"

#define ASK_MESSAGE_MAX 512

struct asker {
	struct core *core;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct question *questions; /* being asked */
	bool cancelled;
	unsigned int turn; /* which worker is asked */
};

/* The asking thread's; the loop's thread works for it until ended. */
struct question {
	struct question *next;
	struct asker *asker;
	struct loop *loop;
	struct loop_task start, cancel;
	struct loop_timer timer;
	struct retry retry;
	struct origin *origin;
	struct origin_call *call;
	const char *path, *token;
	bool list;
	const struct origin_attr *of; /* whose offers, or part, are asked for; else NULL */
	uint32_t number;	      /* of the part; 0: the offers */
	/* The loop's thread until ended, then the asking one. */
	int error;
	char *msg;
	size_t msg_size;
	struct origin_attr attr;
	struct offers offers;
	struct origin_part part;
	struct origin_entry *entries;
	size_t count;
	char *next_token;
	uint64_t skipped;
	/* asker->lock. */
	bool ended, cancel_posted;
	char text[]; /* msg, of one that is not waited for */
};

int asker_create(struct core *core, struct asker **ret)
{
	struct asker *asker = calloc(1, sizeof(*asker));

	if (!asker)
		return -ENOMEM;
	asker->core = core;
	pthread_mutex_init(&asker->lock, NULL);
	pthread_cond_init(&asker->changed, NULL);
	*ret = asker;
	return 0;
}

void asker_destroy(struct asker *asker)
{
	if (!asker)
		return;
	pthread_cond_destroy(&asker->changed);
	pthread_mutex_destroy(&asker->lock);
	free(asker);
}

static void question_end(struct question *question, int error, const char *message)
{
	SCOPED_LOCK(&question->asker->lock);

	question->error = error;
	if (error)
		snprintf(question->msg, question->msg_size, "%s",
			 message ? message : strerror(-error));
	question->ended = true;
	pthread_cond_broadcast(&question->asker->changed);
}

/* True: the attempt has failed, and another one will be made. */
static bool question_again(struct question *question, const struct origin_result *result)
{
	int64_t pause;

	question->call = NULL;
	if (!result->error || !result->transient)
		return false;
	pause = retry_next(&question->retry, result);
	if (pause < 0)
		return false;
	counter_add(retries, 1);
	loop_timer_start(question->loop, &question->timer, (uint64_t)pause);
	return true;
}

static void question_stat(void *arg, const struct origin_result *result,
			  const struct origin_attr *attr)
{
	struct question *question = arg;

	if (question_again(question, result))
		return;
	if (!result->error)
		question->attr = *attr;
	question_end(question, result->error, result->message);
}

static void question_offers(void *arg, const struct origin_result *result,
			    const struct offers *offers)
{
	struct question *question = arg;

	if (question_again(question, result))
		return;
	if (!result->error)
		question->offers = *offers;
	question_end(question, result->error, result->message);
}

static void question_part(void *arg, const struct origin_result *result,
			  const struct origin_part *part)
{
	struct question *question = arg;

	if (question_again(question, result))
		return;
	if (!result->error)
		question->part = *part;
	question_end(question, result->error, result->message);
}

static int question_copy(struct question *question, const struct origin_entry *entries,
			 size_t count, const char *next_token)
{
	question->entries = calloc(count ? count : 1, sizeof(*entries));
	if (!question->entries)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		question->entries[i] = entries[i];
		question->entries[i].name = strdup(entries[i].name);
		if (!question->entries[i].name)
			return -ENOMEM;
		question->count++;
	}
	if (next_token) {
		question->next_token = strdup(next_token);
		if (!question->next_token)
			return -ENOMEM;
	}
	return 0;
}

static void question_list(void *arg, const struct origin_result *result,
			  const struct origin_entry *entries, size_t count, const char *next_token,
			  uint64_t skipped)
{
	struct question *question = arg;
	int err = result->error;

	if (question_again(question, result))
		return;
	if (!err) {
		question->skipped = skipped;
		err = question_copy(question, entries, count, next_token);
	}
	question_end(question, err, result->message);
}

static void question_attempt(struct question *question)
{
	int err;

	if (question->list)
		err = origin_list(question->origin, question->loop, question->path, question->token,
				  question_list, question, &question->call);
	else if (question->number)
		err = origin_part(question->origin, question->loop, question->path, question->of,
				  question->number, question_part, question, &question->call);
	else if (question->of)
		err = origin_offers(question->origin, question->loop, question->path, question->of,
				    question_offers, question, &question->call);
	else
		err = origin_stat(question->origin, question->loop, question->path, question_stat,
				  question, &question->call);
	if (err) {
		question->call = NULL;
		question_end(question, err, NULL);
	}
}

static void question_timer(struct loop_timer *timer)
{
	question_attempt(container_of(timer, struct question, timer));
}

static void question_start(struct loop_task *task)
{
	question_attempt(container_of(task, struct question, start));
}

static void question_cancel(struct loop_task *task)
{
	struct question *question = container_of(task, struct question, cancel);

	pthread_mutex_lock(&question->asker->lock);
	question->cancel_posted = false;
	pthread_cond_broadcast(&question->asker->changed);
	if (question->ended) {
		pthread_mutex_unlock(&question->asker->lock);
		return;
	}
	pthread_mutex_unlock(&question->asker->lock);
	if (question->call)
		origin_cancel(question->call);
	loop_timer_stop(question->loop, &question->timer);
	question_end(question, -ECANCELED, "the daemon is stopping");
}

/* asker->lock held. */
static void question_drop(struct question *question)
{
	if (question->ended || question->cancel_posted)
		return;
	question->cancel_posted = true;
	loop_post(question->loop, &question->cancel);
}

void asker_cancel(struct asker *asker)
{
	SCOPED_LOCK(&asker->lock);

	asker->cancelled = true;
	for (struct question *question = asker->questions; question; question = question->next)
		question_drop(question);
}

void asker_resume(struct asker *asker)
{
	SCOPED_LOCK(&asker->lock);

	asker->cancelled = false;
}

static void question_begin(struct asker *asker, struct question *question)
{
	question->asker = asker;
	question->start.run = question_start;
	question->cancel.run = question_cancel;
	question->timer.expired = question_timer;
	retry_start(&question->retry, core_config(asker->core)->retry_budget_ms, 1);

	SCOPED_LOCK(&asker->lock);
	/* What is asked alone is asked where the connection of the last one is. */
	if (asker->questions)
		asker->turn++;
	question->loop = core_loop(asker->core, asker->turn % core_workers(asker->core));
	question->next = asker->questions;
	asker->questions = question;
	if (asker->cancelled) {
		snprintf(question->msg, question->msg_size, "the daemon is stopping");
		question->error = -ECANCELED;
		question->ended = true;
		return;
	}
	loop_post(question->loop, &question->start);
}

/* Waits for the end. */
static int question_wait(struct question *question)
{
	struct asker *asker = question->asker;
	struct question **link;

	SCOPED_LOCK(&asker->lock);
	while (!question->ended || question->cancel_posted)
		pthread_cond_wait(&asker->changed, &asker->lock);
	for (link = &asker->questions; *link != question;)
		link = &(*link)->next;
	*link = question->next;
	return question->error;
}

static int question_ask(struct asker *asker, struct question *question)
{
	question_begin(asker, question);
	return question_wait(question);
}

int ask_stat(struct asker *asker, struct origin *origin, const char *path,
	     struct origin_attr *ret_attr, char *msg, size_t msg_size)
{
	struct question question = {
		.origin = origin,
		.path = path,
		.msg = msg,
		.msg_size = msg_size,
	};
	int err = question_ask(asker, &question);

	if (!err)
		*ret_attr = question.attr;
	return err;
}

int ask_stat_begin(struct asker *asker, struct origin *origin, const char *path,
		   struct question **ret)
{
	struct question *question = calloc(1, sizeof(*question) + ASK_MESSAGE_MAX);

	if (!question)
		return -ENOMEM;
	question->origin = origin;
	question->path = path;
	question->msg = question->text;
	question->msg_size = ASK_MESSAGE_MAX;
	question_begin(asker, question);
	*ret = question;
	return 0;
}

int ask_stat_end(struct question *question, struct origin_attr *ret_attr, char *msg,
		 size_t msg_size)
{
	int err = question_wait(question);

	if (err)
		snprintf(msg, msg_size, "%s", question->msg);
	else
		*ret_attr = question->attr;
	free(question);
	return err;
}

void ask_stat_drop(struct question *question)
{
	struct asker *asker = question->asker;

	pthread_mutex_lock(&asker->lock);
	question_drop(question);
	pthread_mutex_unlock(&asker->lock);
	question_wait(question);
	free(question);
}

int ask_offers(struct asker *asker, struct origin *origin, const char *path,
	       const struct origin_attr *attr, struct offers *ret, char *msg, size_t msg_size)
{
	struct question question = {
		.origin = origin,
		.path = path,
		.of = attr,
		.msg = msg,
		.msg_size = msg_size,
	};
	int err = question_ask(asker, &question);

	if (!err)
		*ret = question.offers;
	return err;
}

int ask_part(struct asker *asker, struct origin *origin, const char *path,
	     const struct origin_attr *attr, uint32_t number, struct origin_part *ret, char *msg,
	     size_t msg_size)
{
	struct question question = {
		.origin = origin,
		.path = path,
		.of = attr,
		.number = number,
		.msg = msg,
		.msg_size = msg_size,
	};
	int err = question_ask(asker, &question);

	if (!err)
		*ret = question.part;
	return err;
}

static void question_free_page(struct question *question)
{
	for (size_t i = 0; i < question->count; i++)
		free((char *)question->entries[i].name);
	free(question->entries);
	free(question->next_token);
	question->entries = NULL;
	question->next_token = NULL;
	question->count = 0;
}

int ask_list(struct asker *asker, struct origin *origin, const char *path, ask_entry_fn fn,
	     void *arg, uint64_t *ret_skipped, char *msg, size_t msg_size)
{
	cleanup_free char *token = NULL;
	unsigned int empty = 0;
	uint64_t skipped = 0;
	int err;

	do {
		struct question question = {
			.origin = origin,
			.path = path,
			.token = token,
			.list = true,
			.msg = msg,
			.msg_size = msg_size,
		};

		err = question_ask(asker, &question);
		for (size_t i = 0; !err && i < question.count; i++)
			err = fn(arg, &question.entries[i]);
		skipped += question.skipped;
		empty = question.count || question.skipped ? 0 : empty + 1;
		free(token);
		token = TAKE(question.next_token);
		question_free_page(&question);
		if (!err && token && empty >= LISTING_EMPTY_PAGES) {
			snprintf(msg, msg_size, "%s: %s", *path ? path : "/", LISTING_EMPTY_TEXT);
			err = -EIO;
		}
	} while (!err && token);
	if (!err)
		*ret_skipped = skipped;
	return err;
}
