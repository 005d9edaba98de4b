// SPDX-License-Identifier: MIT
#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "profile.h"

#define LOG_AREA "plan"
#include "log.h"

/* How far ahead of a reader a stream is fetched, at first and at most: bytes, and blocks. */
#define PLAN_WINDOW_FIRST (32ULL << 20)
#define PLAN_WINDOW_MAX	  (256ULL << 20)
#define PLAN_BLOCKS_FIRST 4
#define PLAN_BLOCKS_MAX	  1024
/* Needed places in a row, from which on a stream is followed. */
#define PLAN_FOLLOW 3
/* Readers are not exact: a place so little ahead of the expected one is as good. */
#define PLAN_SLACK 8
/* A stream is let go of when so many jumps, and one for so many places that fitted, were seen. */
#define PLAN_JUMPS     4
#define PLAN_JUMPS_PER 4
/* Marks in a window; what all of them may keep of the buffer memory is one of so many parts. */
#define PLAN_MARKS	 4
#define PLAN_MARKS_SHARE 8
/* Failures in a row, after which the plan is over. */
#define PLAN_FAILURES 4
/* Bytes on their way of one plan. */
#define PLAN_UNDERWAY_MAX (256ULL << 20)

/*
 * One block on its way. The callback has a reference, and the stream, which lets go of a mark
 * only when it has been asked for.
 */
struct plan_want {
	struct fetch_want want;
	atomic_uint refs;
	void (*wake)(void *arg);
	void *wake_arg;
	struct plan_want *next;
	size_t position;
	uint64_t len;
	bool mark;
	bool sure;	   /* a mark that nobody can have read without asking for it */
	bool asked;	   /* somebody has */
	bool counted;	   /* its end was seen; the plan's thread */
	atomic_bool begun; /* the callback: before it lets go of the want */
	atomic_bool ended; /* and after it, error being set */
	_Atomic int error;
};

struct plan_stream {
	size_t next;	/* the place expected to be needed next */
	size_t planned; /* places before it are on their way, or there */
	size_t grown;	/* next when the window grew last */
	size_t window;	/* blocks */
	size_t marked;	/* behind the last mark */
	unsigned int run;
	uint64_t hits, jumps;
	bool following, dropped;
	size_t count;	   /* of its places, when it was last looked at */
	uint64_t *fetched; /* a bit a place: by this plan, and not needed yet */
	size_t bits;
	struct plan_want *wants, **end;
};

struct plan {
	struct core *core;
	const struct profile *profile;
	struct plan_ops ops;
	struct plan_stream *streams;
	size_t stream_count;
	uint64_t *sums;		 /* of one block, to look it up */
	uint64_t underway_bytes; /* of wants that have not ended */
	uint64_t marked_bytes;	 /* of wants that are, or will be, marks */
	uint64_t hits;
	unsigned int failures;
	bool unmarked; /* no marks are kept now */
};

int plan_create(struct core *core, const struct profile *profile, const struct plan_ops *ops,
		struct plan **ret)
{
	struct plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return -ENOMEM;
	plan->sums =
		calloc(1ULL << (profile->block_shift - BUFFER_UNIT_SHIFT), sizeof(*plan->sums));
	if (!plan->sums) {
		free(plan);
		return -ENOMEM;
	}
	plan->core = core;
	plan->profile = profile;
	plan->ops = *ops;
	*ret = plan;
	return 0;
}

static size_t plan_blocks(const struct plan *plan, uint64_t bytes, size_t most)
{
	size_t blocks = (size_t)(bytes >> plan->profile->block_shift);

	if (!blocks)
		return 1;
	return blocks < most ? blocks : most;
}

/* The profile may have got more streams, and those more places. */
static struct plan_stream *plan_stream(struct plan *plan, uint32_t number)
{
	size_t count = plan->profile->streams[number].count;
	struct plan_stream *stream;

	if (number >= plan->stream_count) {
		struct plan_stream *streams = calloc(plan->profile->stream_count, sizeof(*streams));

		if (!streams)
			return NULL;
		for (size_t i = 0; i < plan->profile->stream_count; i++) {
			if (i < plan->stream_count)
				streams[i] = plan->streams[i];
			if (!streams[i].wants)
				streams[i].end = &streams[i].wants;
		}
		free(plan->streams);
		plan->streams = streams;
		plan->stream_count = plan->profile->stream_count;
	}
	stream = &plan->streams[number];
	stream->count = count;
	if (stream->bits < count) {
		size_t words = (count + 63) / 64, had = stream->bits / 64;
		uint64_t *fetched = reallocarray(stream->fetched, words, sizeof(*fetched));

		if (!fetched)
			return NULL;
		memset(fetched + had, 0, (words - had) * sizeof(*fetched));
		stream->fetched = fetched;
		stream->bits = words * 64;
	}
	return stream;
}

static bool plan_test(const struct plan_stream *stream, size_t position)
{
	return position < stream->bits && stream->fetched[position / 64] >> (position % 64) & 1;
}

static void plan_flip(struct plan_stream *stream, size_t position)
{
	stream->fetched[position / 64] ^= 1ULL << (position % 64);
}

static void plan_data(struct fetch_want *want, uint32_t unit, uint32_t units, const void *bytes,
		      uint32_t len)
{
	(void)want;
	(void)unit;
	(void)units;
	(void)bytes;
	(void)len;
}

static void plan_want_unref(struct plan_want *mine)
{
	if (atomic_fetch_sub(&mine->refs, 1) == 1)
		free(mine);
}

static void plan_done(struct fetch_want *want, int error, const char *message)
{
	struct plan_want *mine = container_of(want, struct plan_want, want);

	(void)message;
	atomic_store(&mine->error, error);
	atomic_store(&mine->begun, true);
	if (!mine->mark)
		fetch_release(want);
	atomic_store(&mine->ended, true);
	mine->wake(mine->wake_arg);
	plan_want_unref(mine);
}

/* Ends a want that is in no list any more, whether it has ended by itself or not. */
static void plan_want_end(struct plan *plan, struct plan_want *mine)
{
	struct object *object = mine->want.object;

	if (!mine->counted)
		plan->underway_bytes -= mine->len;
	if (mine->mark)
		plan->marked_bytes -= mine->len;
	fetch_release(&mine->want);
	/* Taken back before: there will be no callback. */
	if (!atomic_load(&mine->begun))
		plan_want_unref(mine);
	plan_want_unref(mine);
	object_unref(object);
}

static void plan_count(struct plan *plan, struct plan_stream *stream, struct plan_want *mine,
		       int error)
{
	mine->counted = true;
	plan->underway_bytes -= mine->len;
	if (!error) {
		counter_add(plan_fetched_blocks, 1);
		plan->failures = 0;
		mine->sure = mine->mark && object_is_watched(mine->want.object);
		return;
	}
	plan->failures++;
	if (plan_test(stream, mine->position))
		plan_flip(stream, mine->position);
}

/*
 * The reader is past the mark. Had it read all that was expected, it would have asked for it: it
 * goes elsewhere. The module may have been told of blocks of files that nobody had open, though.
 */
static void plan_unmark(struct plan_stream *stream, struct plan_want *mine)
{
	if (mine->sure && !mine->asked && mine->position < stream->next)
		stream->jumps++;
}

/* What has ended, and is no mark or one that was passed. */
static void plan_settle(struct plan *plan, struct plan_stream *stream)
{
	struct plan_want **link = &stream->wants, *mine;

	while ((mine = *link)) {
		bool ended = atomic_load(&mine->ended);

		if (ended && !mine->counted)
			plan_count(plan, stream, mine, atomic_load(&mine->error));
		if (!ended || (mine->mark && !mine->asked && !plan->unmarked && !stream->dropped &&
			       !atomic_load(&mine->error) && mine->position >= stream->next)) {
			link = &mine->next;
			continue;
		}
		*link = mine->next;
		plan_unmark(stream, mine);
		plan_want_end(plan, mine);
	}
	stream->end = link;
}

/* Has it been asked of the origin, so that it comes, wanted or not? */
static bool plan_is_begun(struct plan *plan, const struct plan_want *mine)
{
	struct block *block;

	SCOPED_LOCK(&plan->core->lock);
	block = block_find(mine->want.object, mine->want.block);
	return block && (block->state == BLOCK_FETCHING || block->state == BLOCK_HELD);
}

/* Nothing more of the stream is fetched, and what is queued is taken back. */
static void plan_drop(struct plan *plan, struct plan_stream *stream)
{
	struct plan_want *mine;

	stream->dropped = true;
	stream->following = false;
	while ((mine = stream->wants)) {
		stream->wants = mine->next;
		if (atomic_load(&mine->ended) && !mine->counted)
			plan_count(plan, stream, mine, atomic_load(&mine->error));
		else if (!mine->counted)
			plan_count(plan, stream, mine, plan_is_begun(plan, mine) ? 0 : -ECANCELED);
		plan_want_end(plan, mine);
	}
	stream->end = &stream->wants;
}

void plan_destroy(struct plan *plan)
{
	if (!plan)
		return;
	for (size_t i = 0; i < plan->stream_count; i++) {
		struct plan_stream *stream = &plan->streams[i];

		plan_drop(plan, stream);
		for (size_t j = 0; j < stream->bits / 64; j++)
			counter_add(plan_wasted_blocks, __builtin_popcountll(stream->fetched[j]));
		free(stream->fetched);
	}
	free(plan->streams);
	free(plan->sums);
	free(plan);
}

int plan_follow(struct plan *plan, uint32_t number)
{
	struct plan_stream *stream = plan_stream(plan, number);

	if (!stream)
		return -ENOMEM;
	if (stream->following || stream->dropped)
		return 0;
	stream->following = true;
	stream->window = plan_blocks(plan, PLAN_WINDOW_FIRST, PLAN_BLOCKS_FIRST);
	stream->grown = stream->next;
	if (stream->planned < stream->next)
		stream->planned = stream->next;
	return 0;
}

/* If it is a mark, it was not passed over, and need not be kept. */
static void plan_asked_at(struct plan_stream *stream, size_t position)
{
	for (struct plan_want *mine = stream->wants; mine; mine = mine->next)
		if (mine->position == position)
			mine->asked = true;
}

void plan_asked(struct plan *plan, uint64_t place)
{
	size_t position;
	uint32_t number;

	if (profile_find(plan->profile, place, &number, &position) && number < plan->stream_count)
		plan_asked_at(&plan->streams[number], position);
}

/* The reader has come past these places. */
static void plan_pass(struct plan *plan, struct plan_stream *stream, size_t to)
{
	size_t most = plan_blocks(plan, PLAN_WINDOW_MAX, PLAN_BLOCKS_MAX);

	for (size_t i = stream->next; i < to; i++) {
		if (!plan_test(stream, i))
			continue;
		plan_flip(stream, i);
		counter_add(plan_used_blocks, 1);
	}
	stream->next = to;
	if (stream->planned < to)
		stream->planned = to;
	if (stream->following && stream->next - stream->grown >= (stream->window + 1) / 2) {
		stream->grown = stream->next;
		stream->window = stream->window * 2 < most ? stream->window * 2 : most;
	}
}

static bool plan_fits(const struct plan_stream *stream, size_t position)
{
	size_t expected = stream->planned > stream->next ? stream->planned : stream->next;

	return position <= expected + PLAN_SLACK;
}

bool plan_needed(struct plan *plan, uint64_t place)
{
	struct plan_stream *stream;
	size_t position, from;
	uint32_t number;

	if (!profile_find(plan->profile, place, &number, &position))
		return false;
	stream = plan_stream(plan, number);
	if (!stream)
		return false;
	plan_asked_at(stream, position);
	/* Late, or once more: no sign of anything. */
	if (position < stream->next) {
		if (plan_test(stream, position)) {
			plan_flip(stream, position);
			counter_add(plan_used_blocks, 1);
		}
		return true;
	}
	if (plan_fits(stream, position)) {
		stream->run++;
		stream->hits++;
		plan->hits++;
		from = stream->next;
		plan_pass(plan, stream, position + 1);
		if (stream->run >= PLAN_FOLLOW && !stream->dropped && !stream->following &&
		    !plan_follow(plan, number))
			counter_add(plans, 1);
		plan->ops.passed(plan->ops.arg, number, from, position + 1);
		return true;
	}
	stream->run = 1;
	/* One that begins in the middle has not departed from anything. */
	if (stream->hits)
		stream->jumps++;
	stream->hits += !stream->hits;
	stream->next = position + 1;
	if (stream->planned < stream->next)
		stream->planned = stream->next;
	stream->grown = stream->next;
	stream->window = plan_blocks(plan, PLAN_WINDOW_FIRST, PLAN_BLOCKS_FIRST);
	return stream->jumps == 0;
}

/* Those that go elsewhere all the time are not read ahead of. */
static void plan_leave(struct plan *plan, uint32_t number, struct plan_stream *stream)
{
	if (!stream->following || stream->jumps <= PLAN_JUMPS + stream->hits / PLAN_JUMPS_PER)
		return;
	log_info("%s, stream %u: its readers go elsewhere, it is not followed any more",
		 *plan->profile->dir ? plan->profile->dir : "/", number);
	counter_add(plans_dropped, 1);
	plan_drop(plan, stream);
}

/* Is it there already, or on its way for somebody? */
static bool plan_has(struct plan *plan, struct object *object, uint64_t nr)
{
	struct block *block;
	bool has;

	pthread_mutex_lock(&plan->core->lock);
	block = block_find(object, nr);
	has = block && block->state != BLOCK_EVICTING;
	pthread_mutex_unlock(&plan->core->lock);
	return has || !store_lookup(object->file, nr, plan->sums, object_units(object, nr));
}

/* Bytes that the cache takes of this object without evicting anything. */
static uint64_t plan_room(struct plan *plan, struct object *object)
{
	uint64_t room = store_room(object->file), taken = plan->underway_bytes;

	SCOPED_LOCK(&plan->core->lock);
	taken += plan->core->backlog_bytes;
	return room > taken ? room - taken : 0;
}

/* Every so many, and the last one, by which all before it are known to be used. */
static bool plan_is_mark(struct plan *plan, const struct plan_stream *stream, size_t position,
			 uint64_t len)
{
	uint64_t most = ((uint64_t)buffers_units(plan->core->buffers) << BUFFER_UNIT_SHIFT) /
			PLAN_MARKS_SHARE;
	size_t every = stream->window / PLAN_MARKS ? stream->window / PLAN_MARKS : 1;

	return !plan->unmarked && plan->marked_bytes + len <= most &&
	       (position + 1 >= stream->marked + every || position < stream->marked ||
		position + 1 == stream->count);
}

/* Whoever opens the file later is not told that the block is cached, either. */
static void plan_show(struct plan *plan, const struct plan_want *mine)
{
	struct block *block;

	SCOPED_LOCK(&plan->core->lock);
	block = block_find(mine->want.object, mine->want.block);
	if (block)
		block->mark = true;
}

/* 1: begun, 0: left out, -EAGAIN: not now. Takes the reference. */
static int plan_start(struct plan *plan, struct plan_stream *stream, size_t position,
		      struct object *object, uint64_t nr)
{
	uint64_t start = nr << object->block_shift, len = 1ULL << object->block_shift;
	struct plan_want *mine;

	if (len > object->attr.size - start)
		len = object->attr.size - start;
	if (plan_has(plan, object, nr)) {
		object_unref(object);
		return 0;
	}
	mine = len <= plan_room(plan, object) ? calloc(1, sizeof(*mine)) : NULL;
	if (!mine) {
		object_unref(object);
		return -EAGAIN;
	}
	atomic_init(&mine->refs, 2);
	mine->wake = plan->ops.wake;
	mine->wake_arg = plan->ops.wake_arg;
	mine->position = position;
	mine->len = len;
	mine->mark = plan_is_mark(plan, stream, position, len);
	mine->want = (struct fetch_want){
		.object = object,
		.block = nr,
		.units = object_units(object, nr),
		.why = FETCH_PREFETCH,
		.data = plan_data,
		.done = plan_done,
	};
	if (mine->mark) {
		stream->marked = position + 1;
		plan->marked_bytes += len;
	}
	plan->underway_bytes += len;
	*stream->end = mine;
	stream->end = &mine->next;
	plan_flip(stream, position);
	counter_add(plan_blocks, 1);
	if (fetch_start(plan->core, &mine->want)) {
		atomic_store(&mine->error, -EAGAIN);
		atomic_store(&mine->ended, true);
	} else if (mine->mark) {
		plan_show(plan, mine);
	}
	return 1;
}

/* The next place of a stream: 1: goes on, 0: nothing more now. */
static int plan_next(struct plan *plan, uint32_t number)
{
	struct plan_stream *stream = plan_stream(plan, number);
	struct object *object;
	uint64_t place;
	int r = 0;

	if (!stream || !stream->following || stream->planned - stream->next >= stream->window ||
	    stream->planned >= plan->profile->streams[number].count ||
	    plan->underway_bytes >= PLAN_UNDERWAY_MAX)
		return 0;
	place = plan->profile->streams[number].places[stream->planned];
	if (!plan_test(stream, stream->planned)) {
		r = plan->ops.object(plan->ops.arg, profile_file_at(place), &object);
		if (!r)
			r = plan_start(plan, stream, stream->planned, object,
				       profile_block_at(place));
		else if (r != -ECANCELED)
			r = 0;
	}
	if (r < 0)
		return 0;
	stream->planned++;
	return 1;
}

void plan_pump(struct plan *plan)
{
	int begun;

	for (size_t i = 0; i < plan->stream_count; i++) {
		plan_settle(plan, &plan->streams[i]);
		plan_leave(plan, (uint32_t)i, &plan->streams[i]);
	}
	/* In turn, so that no stream's window is filled before the others have anything. */
	do {
		begun = 0;
		for (size_t i = 0; i < plan->stream_count && !plan_is_over(plan); i++)
			begun |= plan_next(plan, (uint32_t)i);
	} while (begun);
}

void plan_mark(struct plan *plan, bool keep)
{
	plan->unmarked = !keep;
	for (size_t i = 0; !keep && i < plan->stream_count; i++)
		plan_settle(plan, &plan->streams[i]);
}

bool plan_is_busy(const struct plan *plan)
{
	for (size_t i = 0; i < plan->stream_count; i++)
		if (plan->streams[i].wants)
			return true;
	return false;
}

bool plan_has_marks(const struct plan *plan)
{
	return plan->marked_bytes > 0;
}

size_t plan_following(const struct plan *plan)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->stream_count; i++)
		n += plan->streams[i].following;
	return n;
}

uint64_t plan_hits(const struct plan *plan)
{
	return plan->hits;
}

bool plan_is_over(const struct plan *plan)
{
	return plan->failures >= PLAN_FAILURES;
}
