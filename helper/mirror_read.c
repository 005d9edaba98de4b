// SPDX-License-Identifier: MIT
/*
 * mirror_read: a read from one of several places, and from a second one if it is late.
 *
 * A read leads at one place at a time; what comes from there goes to the caller's memory.
 * A second request for what is missing by then goes to memory of its own, so that nothing
 * is written where bytes are already given out, nor bytes of two answers side by side. If it
 * gets ahead it leads from then on, its bytes are copied, and the other one is given up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "counters.h"
#include "mirror_impl.h"

#define LOG_AREA "mirror"
#include "log.h"

/* What is late and cannot be helped is looked at again, each time after twice as long. */
#define READ_LOOKS_MAX 6

struct mirror_attempt {
	struct mirror_read *read;
	struct origin_call *call; /* NULL: not under way */
	unsigned int place;
	char *scratch;	    /* its bytes go there; NULL: to their place at dst */
	uint64_t from, len; /* within the read */
	uint64_t bytes;	    /* of them, there */
	uint64_t start_ns, first_ns;
};

/* Its loop's thread owns it. */
struct mirror_read {
	struct origin_call base;
	struct mirrors *mirrors; /* a reference */
	struct mirror_object *object;
	struct loop *loop;
	struct origin_get get; /* path and attr: the object's */
	struct mirror_attempt of[2];
	unsigned int lead;
	unsigned int tried;  /* a bit each */
	uint64_t reported;   /* bytes at dst that were told of, or are about to be */
	unsigned int second; /* of the two, that of the last race */
	bool mute;	     /* when it began, the leading one had brought nothing */
	bool capped;
	unsigned int looks; /* how often it was found late, and nothing done */
	bool reporting, cancelled;
	struct loop_timer timer; /* the lead is late; or there is nobody to ask yet */
	struct origin_result result;
	char text[ORIGIN_MESSAGE_MAX];
};

static void read_free(struct mirror_read *read)
{
	struct mirrors *mirrors = read->mirrors;

	loop_timer_stop(read->loop, &read->timer);
	pthread_mutex_lock(&mirrors->lock);
	mirror_join_put(read->object);
	pthread_mutex_unlock(&mirrors->lock);
	for (unsigned int i = 0; i < 2; i++)
		free(read->of[i].scratch);
	free(read);
	origin_unref(&mirrors->base);
}

static struct mirror_attempt *read_other(struct mirror_attempt *attempt)
{
	return &attempt->read->of[attempt == attempt->read->of];
}

static uint64_t read_position(const struct mirror_attempt *attempt)
{
	return attempt->from + attempt->bytes;
}

/* Makes known what the leading attempt has brought. False: the read was cancelled by that. */
static bool read_report(struct mirror_attempt *attempt)
{
	struct mirror_read *read = attempt->read;
	uint64_t position = read_position(attempt);

	if (position <= read->reported)
		return true;
	if (attempt->scratch)
		memcpy((char *)read->get.dst + read->reported,
		       attempt->scratch + (read->reported - attempt->from),
		       position - read->reported);
	read->reported = position;
	if (!read->get.progress)
		return true;
	read->reporting = true;
	read->get.progress(read->get.arg, position);
	read->reporting = false;
	return !read->cancelled;
}

static void read_finish(struct mirror_read *read, const struct origin_result *result)
{
	struct mirrors *mirrors = read->mirrors;

	loop_timer_stop(read->loop, &read->timer);
	if (read->reported) {
		pthread_mutex_lock(&mirrors->lock);
		mirror_hedge_earn(&mirrors->hedge, read->reported);
		pthread_mutex_unlock(&mirrors->lock);
	}
	read->get.done(read->get.arg, result, read->reported);
	read_free(read);
}

/* The race has ended: what one of the two has brought of the part that both were asked for. */
static void read_lost(struct mirror_attempt *attempt)
{
	struct mirror_read *read = attempt->read;
	struct mirrors *mirrors = read->mirrors;
	const struct mirror_attempt *second = &read->of[read->second];
	uint64_t position = read_position(attempt);
	uint64_t lost = position > second->from ? position - second->from : 0;

	counter_add(hedge_lost_bytes, lost);
	free(attempt->scratch);
	attempt->scratch = NULL;
	SCOPED_LOCK(&mirrors->lock);
	mirror_hedge_refund(&mirrors->hedge, second->len - lost);
}

/* The one of two that is not wanted any more, under way or not. */
static void read_drop(struct mirror_attempt *attempt)
{
	struct mirrors *mirrors = attempt->read->mirrors;
	struct mirror_rank *rank = &mirrors->of[attempt->place].rank;
	uint64_t now = mirrors->now();

	if (attempt->call) {
		mirror_look(mirrors, attempt->place);
		origin_cancel(attempt->call);
		attempt->call = NULL;
		pthread_mutex_lock(&mirrors->lock);
		if (!attempt->bytes)
			mirror_rank_late(rank, now - attempt->start_ns);
		mirror_rank_ended(rank, attempt->bytes);
		pthread_mutex_unlock(&mirrors->lock);
	}
	read_lost(attempt);
}

static bool read_races(const struct mirror_read *read)
{
	return read->of[0].call && read->of[1].call;
}

static void read_arm(struct mirror_read *read);

/* One is left. It may be late again. */
static void read_settled(struct mirror_read *read)
{
	if (read->looks < READ_LOOKS_MAX)
		read->looks++;
	read_arm(read);
}

/* The second request was the right thing to do. */
static void read_overtaken(struct mirror_attempt *attempt)
{
	struct mirror_read *read = attempt->read;

	counter_add(hedges_won, 1);
	read->lead = (unsigned int)(attempt - read->of);
	read_drop(read_other(attempt));
	read_settled(read);
}

static void on_progress(void *arg, uint64_t bytes)
{
	struct mirror_attempt *attempt = arg;
	struct mirror_read *read = attempt->read;
	struct mirror_attempt *other = read_other(attempt);

	attempt->bytes = bytes;
	if (!attempt->first_ns)
		attempt->first_ns = read->mirrors->now();
	if (read_races(read)) {
		if (attempt == &read->of[read->lead]) {
			/* What it was waited for has come after all. */
			if (read->mute) {
				read_drop(other);
				read->tried &= ~(1u << other->place);
				read_settled(read);
			}
		} else if (read_position(attempt) > read_position(other)) {
			read_overtaken(attempt);
		} else {
			return;
		}
	}
	if (!read_report(attempt))
		read_free(read);
}

static void on_done(void *arg, const struct origin_result *result, uint64_t bytes);

/* Asks a place for what is missing. second: beside the one that leads. */
static int read_ask(struct mirror_read *read, struct mirror_attempt *attempt, unsigned int place,
		    bool second)
{
	struct mirrors *mirrors = read->mirrors;
	struct origin_attr attr = read->object->attr;
	struct origin_get get = {
		.path = read->object->path,
		.attr = &attr,
		.offset = read->get.offset + read->reported,
		.len = read->get.len - read->reported,
		.dst = (char *)read->get.dst + read->reported,
		.progress = on_progress,
		.done = on_done,
		.arg = attempt,
	};
	int err;

	*attempt = (struct mirror_attempt){
		.read = read,
		.place = place,
		.from = read->reported,
		.len = get.len,
		.start_ns = mirrors->now(),
	};
	if (second) {
		attempt->scratch = malloc(get.len);
		if (!attempt->scratch)
			return -ENOMEM;
		get.dst = attempt->scratch;
	}
	read->tried |= 1u << place;
	pthread_mutex_lock(&mirrors->lock);
	if (read->object->of[place].attr)
		attr = *read->object->of[place].attr;
	mirror_rank_asked(&mirrors->of[place].rank, attempt->start_ns);
	pthread_mutex_unlock(&mirrors->lock);
	err = origin_read(mirrors->of[place].origin, read->loop, &get, &attempt->call);
	if (!err)
		return 0;
	attempt->call = NULL;
	free(attempt->scratch);
	attempt->scratch = NULL;
	pthread_mutex_lock(&mirrors->lock);
	mirror_rank_ended(&mirrors->of[place].rank, 0);
	pthread_mutex_unlock(&mirrors->lock);
	return err;
}

static void read_arm(struct mirror_read *read)
{
	struct mirrors *mirrors = read->mirrors;
	uint64_t ns;

	if (read_races(read))
		return;
	pthread_mutex_lock(&mirrors->lock);
	ns = mirror_hedge_late_ns(&mirrors->hedge, read->of[read->lead].len);
	pthread_mutex_unlock(&mirrors->lock);
	loop_timer_start(read->loop, &read->timer, ((ns + 999999) / 1000000) << read->looks);
}

/* The lead is late: once more elsewhere, if the cap allows it. */
static void on_late(struct loop_timer *timer)
{
	struct mirror_read *read = container_of(timer, struct mirror_read, timer);
	struct mirrors *mirrors = read->mirrors;
	struct mirror_attempt *lead = &read->of[read->lead];
	uint64_t missing = read->get.len - read->reported;
	bool paid = false;
	int place;

	/* All is there; the end of the answer is on its way. */
	if (!missing)
		return;
	pthread_mutex_lock(&mirrors->lock);
	place = mirror_choose(mirrors, mirror_join_usable(mirrors, read->object) & ~read->tried,
			      missing, false);
	if (place >= 0)
		paid = mirror_hedge_spend(&mirrors->hedge, missing);
	pthread_mutex_unlock(&mirrors->lock);
	if (!paid) {
		if (place >= 0 && !read->capped) {
			read->capped = true;
			counter_add(hedges_capped, 1);
		}
		read_settled(read);
		return;
	}
	read->second = !read->lead;
	read->mute = !lead->bytes;
	if (read_ask(read, &read->of[read->second], (unsigned int)place, true)) {
		pthread_mutex_lock(&mirrors->lock);
		mirror_hedge_refund(&mirrors->hedge, missing);
		pthread_mutex_unlock(&mirrors->lock);
		return;
	}
	counter_add(hedges_sent, 1);
	log_debug("%s at %llu: late at %s, asked of %s as well", read->object->path,
		  (unsigned long long)(read->get.offset + read->reported),
		  mirrors->of[lead->place].name, mirrors->of[place].name);
}

/* Goes on at another place. 0, or there is none. */
static int read_elsewhere(struct mirror_read *read)
{
	struct mirrors *mirrors = read->mirrors;

	for (;;) {
		int place;

		pthread_mutex_lock(&mirrors->lock);
		place = mirror_choose(mirrors,
				      mirror_join_usable(mirrors, read->object) & ~read->tried,
				      read->get.len - read->reported, false);
		pthread_mutex_unlock(&mirrors->lock);
		if (place < 0)
			return -ENOENT;
		if (!read_ask(read, &read->of[read->lead], (unsigned int)place, false))
			break;
	}
	counter_add(mirror_failovers, 1);
	read_arm(read);
	return 0;
}

/* What the end of an attempt says of its place. */
static void read_learn(struct mirror_attempt *attempt, const struct origin_result *result)
{
	struct mirrors *mirrors = attempt->read->mirrors;
	struct mirror *mirror = &mirrors->of[attempt->place];
	uint64_t now = mirrors->now(), took = now - attempt->start_ns;
	bool gone = false;

	mirror_look(mirrors, attempt->place);
	pthread_mutex_lock(&mirrors->lock);
	mirror_rank_ended(&mirror->rank, attempt->bytes);
	if (!result->error) {
		mirror_rank_answered(&mirror->rank, attempt->bytes,
				     attempt->first_ns - attempt->start_ns, took);
		if (read_position(attempt) == attempt->read->get.len)
			mirror_hedge_took(&mirrors->hedge, attempt->len, took);
	} else if (result->transient) {
		gone = mirror_rank_failed(&mirror->rank, now, !result->status && !attempt->bytes,
					  result->retry_after_ms);
	} else {
		mirror->rank.errors++;
	}
	if (gone)
		snprintf(mirror->why, sizeof(mirror->why), "%s", result->message);
	pthread_mutex_unlock(&mirrors->lock);
	if (gone)
		log_warn("%s rests: %s", mirror->name, result->message);
	/* It had the object once; what it says now is not what is wanted. */
	if (result->error && !result->transient && attempt->place != attempt->read->object->from)
		mirror_join_refuse(mirrors, attempt->read->object, attempt->place, result->message);
}

/* An error to be told if nobody else can help: the word of who named the version counts most. */
static void read_keep(struct mirror_attempt *attempt, const struct origin_result *result)
{
	struct mirror_read *read = attempt->read;
	bool named = attempt->place == read->object->from;

	if (read->result.error && (!named || !result->error))
		return;
	read->result = *result;
	/* The caller asks again, and then perhaps of another one. */
	if (!named)
		read->result.transient = true;
	snprintf(read->text, sizeof(read->text), "%s", result->message ? result->message : "");
	read->result.message = result->error ? read->text : NULL;
}

static void on_done(void *arg, const struct origin_result *result, uint64_t bytes)
{
	struct mirror_attempt *attempt = arg;
	struct mirror_read *read = attempt->read;
	struct mirror_attempt *other = read_other(attempt);
	bool raced = read_races(read), leads = attempt == &read->of[read->lead];
	bool whole;

	attempt->call = NULL;
	attempt->bytes = bytes;
	if (!attempt->first_ns)
		attempt->first_ns = read->mirrors->now();
	read_learn(attempt, result);
	whole = !result->error && read_position(attempt) == read->get.len;
	if (raced && !whole) {
		/* The other one goes on, alone. */
		if (leads) {
			if (!read_report(attempt)) {
				read_free(read);
				return;
			}
			read->lead = (unsigned int)(other - read->of);
			counter_add(hedges_won, 1);
			read_lost(attempt);
			read_settled(read);
			if (!read_report(other))
				read_free(read);
		} else {
			read_drop(attempt);
			read_settled(read);
		}
		return;
	}
	if (raced) {
		if (leads)
			read_drop(other);
		else
			read_overtaken(attempt);
	}
	if (!read_report(attempt)) {
		read_free(read);
		return;
	}
	if (!result->error) {
		read_finish(read, result);
		return;
	}
	read_keep(attempt, result);
	free(attempt->scratch);
	attempt->scratch = NULL;
	loop_timer_stop(read->loop, &read->timer);
	if (attempt->place == read->object->from && !result->transient)
		read_finish(read, result);
	else if (read_elsewhere(read))
		read_finish(read, &read->result);
}

/* Nobody can be asked, but somebody soon: the caller comes again. */
static void on_nobody(struct loop_timer *timer)
{
	struct mirror_read *read = container_of(timer, struct mirror_read, timer);
	struct mirrors *mirrors = read->mirrors;

	pthread_mutex_lock(&mirrors->lock);
	origin_fail(&read->result, read->text, -EIO, true, "%s; others are yet to be asked for %s",
		    mirrors->of[read->object->from].why, read->object->path);
	pthread_mutex_unlock(&mirrors->lock);
	read_finish(read, &read->result);
}

static void read_cancel(struct origin_call *call)
{
	struct mirror_read *read = container_of(call, struct mirror_read, base);
	struct mirrors *mirrors = read->mirrors;

	for (unsigned int i = 0; i < 2; i++) {
		struct mirror_attempt *attempt = &read->of[i];

		if (!attempt->call)
			continue;
		origin_cancel(attempt->call);
		attempt->call = NULL;
		pthread_mutex_lock(&mirrors->lock);
		mirror_rank_ended(&mirrors->of[attempt->place].rank, attempt->bytes);
		pthread_mutex_unlock(&mirrors->lock);
	}
	/* Inside its own progress(): freed on return from there. */
	if (read->reporting)
		read->cancelled = true;
	else
		read_free(read);
}

int mirror_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		struct origin_call **ret_call)
{
	struct mirrors *mirrors = container_of(origin, struct mirrors, base);
	struct mirror_read *read = calloc(1, sizeof(*read));
	bool asking;
	int place, err = 0;

	if (!read)
		return -ENOMEM;
	pthread_mutex_lock(&mirrors->lock);
	read->object = mirror_join_get(mirrors, get->path, get->attr, 0);
	pthread_mutex_unlock(&mirrors->lock);
	if (!read->object) {
		free(read);
		return -ENOMEM;
	}
	origin_ref(origin);
	read->base.cancel = read_cancel;
	read->mirrors = mirrors;
	read->loop = loop;
	read->get = *get;
	read->get.path = read->object->path;
	read->get.attr = &read->object->attr;
	mirror_join_begin(mirrors, read->object, loop);
	pthread_mutex_lock(&mirrors->lock);
	place = mirror_choose(mirrors, mirror_join_usable(mirrors, read->object), get->len, true);
	asking = place < 0 && mirror_join_asking(mirrors, read->object);
	pthread_mutex_unlock(&mirrors->lock);
	if (asking) {
		read->timer.expired = on_nobody;
		loop_timer_start(loop, &read->timer, 0);
	} else {
		read->timer.expired = on_late;
		err = read_ask(read, read->of, place < 0 ? read->object->from : (unsigned int)place,
			       false);
		if (!err)
			read_arm(read);
	}
	if (err) {
		read_free(read);
		return err;
	}
	*ret_call = &read->base;
	return 0;
}
