// SPDX-License-Identifier: MIT
/*
 * mirror_names: what there is. The first place says it; of those that it is equal to one does
 * while it is away, as far as that may count.
 *
 * With trust whatever a mirror says counts. Without, a version that is known, of an object that
 * was read, may be confirmed; nothing proves that a name or a listing is the same elsewhere.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "counters.h"
#include "mirror_impl.h"

/* A page of a listing goes on where it began: a mirror's token is told by this, and its number. */
#define NAMES_TOKEN '\1'

/* One question, asked of one place after another. Its loop's thread owns it. */
struct mirror_name {
	struct origin_call base;
	struct mirrors *mirrors; /* a reference */
	struct loop *loop;
	struct origin_call *call;
	char *path, *token;
	unsigned int left; /* places that may be asked yet, a bit each */
	unsigned int last; /* that is asked in any case, and whose error counts */
	unsigned int place;
	bool probe;  /* of that place: whether it is back is found out by this */
	bool absent; /* a mirror that counts says so */
	bool mute;   /* mirrors have no say in it */
	origin_stat_fn stat;
	origin_list_fn list; /* one of the two */
	void *arg;
	struct mirror *doubtful; /* says something else than is known, NULL: nobody */
	const char *why;
	struct origin_result result; /* told if nobody has an answer */
	char text[ORIGIN_MESSAGE_MAX];
};

static void name_free(struct mirror_name *name)
{
	struct mirrors *mirrors = name->mirrors;

	free(name->path);
	free(name->token);
	free(name);
	origin_unref(&mirrors->base);
}

static void name_cancel(struct origin_call *call)
{
	struct mirror_name *name = container_of(call, struct mirror_name, base);
	struct mirrors *mirrors = name->mirrors;

	origin_cancel(name->call);
	if (name->probe) {
		SCOPED_LOCK(&mirrors->lock);
		mirrors->of[name->place].rank.probing = false;
	}
	name_free(name);
}

/* May the place be asked now? One that rests is when that is over, to see whether it is back. */
static bool name_may_ask(struct mirror_name *name, unsigned int place)
{
	struct mirrors *mirrors = name->mirrors;
	struct mirror_rank *rank = &mirrors->of[place].rank;

	if (!(name->left >> place & 1))
		return false;
	name->probe = mirror_rank_probe(rank, mirrors->now());
	return name->probe || !rank->down;
}

/* Whoever comes last in any case may be the first one, if it does not rest. -1: nobody is left. */
static int name_choose(struct mirror_name *name)
{
	struct mirrors *mirrors = name->mirrors;

	SCOPED_LOCK(&mirrors->lock);
	for (unsigned int i = 0; i < mirrors->count; i++)
		if (name_may_ask(name, i))
			return (int)i;
	return name->left >> name->last & 1 ? (int)name->last : -1;
}

static void on_stat(void *arg, const struct origin_result *result, const struct origin_attr *attr);
static void on_list(void *arg, const struct origin_result *result,
		    const struct origin_entry *entries, size_t count, const char *next_token,
		    uint64_t skipped);

static void name_keep(struct mirror_name *name, const struct origin_result *result)
{
	if (name->place != name->last)
		return;
	name->result = *result;
	snprintf(name->text, sizeof(name->text), "%s",
		 result->message ? result->message : strerror(-result->error));
	name->result.message = name->text;
}

static void name_refused(struct mirror_name *name, int error)
{
	const struct origin_result result = {
		.error = error,
		.transient = true,
		.message = "it cannot be asked",
	};

	mirror_heard(name->mirrors, name->place, name->probe, &result);
	name_keep(name, &result);
}

/* 0, or there is nobody left: name->result has an error. */
static int name_ask(struct mirror_name *name)
{
	struct mirrors *mirrors = name->mirrors;
	int place, err;

	while ((place = name_choose(name)) >= 0) {
		struct origin *origin = mirrors->of[place].origin;

		name->place = (unsigned int)place;
		name->left &= ~(1u << place);
		err = name->stat ? origin_stat(origin, name->loop, name->path, on_stat, name,
					       &name->call) :
				   origin_list(origin, name->loop, name->path, name->token, on_list,
					       name, &name->call);
		if (!err)
			return 0;
		name_refused(name, err);
	}
	return name->result.error;
}

static void name_end_stat(struct mirror_name *name, const struct origin_result *result,
			  const struct origin_attr *attr)
{
	name->stat(name->arg, result, attr);
	name_free(name);
}

static void name_end_list(struct mirror_name *name, const struct origin_result *result,
			  const struct origin_entry *entries, size_t count, const char *next_token,
			  uint64_t skipped)
{
	name->list(name->arg, result, entries, count, next_token, skipped);
	name_free(name);
}

/* Nobody has an answer: what is told of that. */
static void name_explain(struct mirror_name *name)
{
	struct mirrors *mirrors = name->mirrors;
	size_t len = strlen(name->text);

	if (name->absent)
		origin_fail(&name->result, name->text, -ENOENT, false, "%s: its mirrors have no %s",
			    mirrors->of[0].name, name->path);
	else if (name->doubtful)
		snprintf(name->text + len, sizeof(name->text) - len, "; the mirror %s: %s",
			 name->doubtful->name, name->why);
	else if (name->mute)
		snprintf(name->text + len, sizeof(name->text) - len,
			 "; mirrors are not asked, without trust, what was not read before");
}

/* The place that was asked is of no use: on to the next one, or that is the answer. */
static void name_go_on(struct mirror_name *name, const struct origin_result *result)
{
	if (result->error) {
		/* Who says that a known version is not there is no mirror of it. */
		if (name->place && !result->transient && result->error == -ENOENT) {
			SCOPED_LOCK(&name->mirrors->lock);
			name->absent = name->mirrors->trust &&
				       !mirror_join_knows(name->mirrors, name->path);
		}
		name_keep(name, result);
	}
	if (!name_ask(name))
		return;
	name_explain(name);
	if (name->stat)
		name_end_stat(name, &name->result, NULL);
	else
		name_end_list(name, &name->result, NULL, 0, NULL, 0);
}

static bool name_heard(struct mirror_name *name, const struct origin_result *result)
{
	name->call = NULL;
	return mirror_heard(name->mirrors, name->place, name->probe, result);
}

static void on_stat(void *arg, const struct origin_result *result, const struct origin_attr *attr)
{
	struct mirror_name *name = arg;
	struct mirrors *mirrors = name->mirrors;
	struct origin_attr known;

	if (!name_heard(name, result)) {
		name_go_on(name, result);
	} else if (!name->place) {
		if (!result->error || result->error == -ENOENT)
			mirror_join_said(mirrors, name->path,
					 !result->error && S_ISREG(attr->mode) ? attr : NULL);
		name_end_stat(name, result, attr);
	} else if (result->error) {
		name_go_on(name, result);
	} else if (mirror_join_agrees(mirrors, name->path, name->place, attr, &known, &name->why)) {
		counter_add(mirror_names, 1);
		name_end_stat(name, result, &known);
	} else {
		name->doubtful = &mirrors->of[name->place];
		name_go_on(name, result);
	}
}

/* A mirror's page. Servers tell no versions there: each is asked for, and told as it is known. */
static void name_pass_list(struct mirror_name *name, const struct origin_result *result,
			   const struct origin_entry *entries, size_t count, const char *next_token,
			   uint64_t skipped)
{
	cleanup_free char *token = NULL;
	struct origin_result failed;

	if ((next_token &&
	     asprintf(&token, "%c%c%s", NAMES_TOKEN, (char)('0' + name->place), next_token) < 0)) {
		origin_fail(&failed, name->text, -ENOMEM, false, "no memory for a listing");
		name_end_list(name, &failed, NULL, 0, NULL, 0);
		return;
	}
	counter_add(mirror_names, count);
	name_end_list(name, result, entries, count, token, skipped);
}

static void on_list(void *arg, const struct origin_result *result,
		    const struct origin_entry *entries, size_t count, const char *next_token,
		    uint64_t skipped)
{
	struct mirror_name *name = arg;

	if (!name_heard(name, result))
		name_go_on(name, result);
	else if (!name->place)
		name_end_list(name, result, entries, count, next_token, skipped);
	else if (result->error)
		name_go_on(name, result);
	else
		name_pass_list(name, result, entries, count, next_token, skipped);
}

static struct mirror_name *name_create(struct mirrors *mirrors, struct loop *loop, const char *path)
{
	struct mirror_name *name = calloc(1, sizeof(*name));

	if (!name)
		return NULL;
	name->path = strdup(path);
	if (!name->path) {
		free(name);
		return NULL;
	}
	name->base.cancel = name_cancel;
	name->mirrors = mirrors;
	origin_ref(&mirrors->base);
	name->loop = loop;
	return name;
}

static int name_start(struct mirror_name *name, struct origin_call **ret_call)
{
	int err = name_ask(name);

	if (err) {
		name_free(name);
		return err;
	}
	*ret_call = &name->base;
	return 0;
}

int mirror_stat(struct origin *origin, struct loop *loop, const char *path, origin_stat_fn done,
		void *arg, struct origin_call **ret_call)
{
	struct mirrors *mirrors = container_of(origin, struct mirrors, base);
	struct mirror_name *name = name_create(mirrors, loop, path);

	if (!name)
		return -ENOMEM;
	name->stat = done;
	name->arg = arg;
	pthread_mutex_lock(&mirrors->lock);
	name->mute = !mirrors->trust && !mirror_join_knows(mirrors, path);
	pthread_mutex_unlock(&mirrors->lock);
	name->left = name->mute ? 1 : (1u << mirrors->count) - 1;
	return name_start(name, ret_call);
}

/* Who is asked for the page of a listing that the token is of. */
static int name_of_token(struct mirror_name *name, const char *token)
{
	name->mute = !name->mirrors->trust;
	if (!token) {
		name->left = name->mute ? 1 : (1u << name->mirrors->count) - 1;
		return 0;
	}
	if (token[0] == NAMES_TOKEN) {
		name->last = (unsigned int)(token[1] - '0');
		if (name->last >= name->mirrors->count)
			return -EINVAL;
		token += 2;
	}
	name->left = 1u << name->last;
	name->token = strdup(token);
	return name->token ? 0 : -ENOMEM;
}

int mirror_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		origin_list_fn done, void *arg, struct origin_call **ret_call)
{
	struct mirrors *mirrors = container_of(origin, struct mirrors, base);
	struct mirror_name *name = name_create(mirrors, loop, path);
	int err;

	if (!name)
		return -ENOMEM;
	name->list = done;
	name->arg = arg;
	err = name_of_token(name, token);
	if (err) {
		name_free(name);
		return err;
	}
	return name_start(name, ret_call);
}
