// SPDX-License-Identifier: MIT
/*
 * mirror_join: which place has which object, the same version of it.
 *
 * Each is asked for the object the first time that it is read; it is joined if its size is
 * that of the first one's, and its validator, or else a digest that both tell. From then on
 * each read from it asks for just that version, so that what changes later is refused by
 * the origin's own check of the answer.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "cleanup.h"
#include "counters.h"
#include "mirror_impl.h"

#define LOG_AREA "mirror"
#include "log.h"

/* Objects that are remembered. */
#define JOIN_OBJECTS 4096
/* After so long a place that was refused is asked again, and one that could not be asked. */
#define JOIN_AGAIN_NS 60000000000ULL
#define JOIN_RETRY_NS 1000000000ULL
/* A refusal of the same place is told in the log once in so long. */
#define JOIN_SAY_NS 10000000000ULL

/* One question to one place about one object, on one loop's thread. */
struct mirror_check {
	struct mirror_check *next, *prev;
	struct mirrors *mirrors; /* a reference */
	struct mirror_object *object;
	struct loop *loop;
	struct origin_call *call;
	unsigned int place;
	bool probe; /* whether the place is back is asked as well */
	bool join;  /* not only that */
	struct origin_attr attr;
	struct offers offers;
};

/* Objects. Lock held. */

static struct mirror_object *const *join_at(const struct mirrors *mirrors, const char *path)
{
	return &mirrors->objects[XXH3_64bits(path, strlen(path)) % MIRROR_BUCKETS];
}

static bool join_is(const struct mirror_object *object, const struct origin_attr *attr)
{
	return object->attr.size == attr->size && object->attr.flags == attr->flags &&
	       !strcmp(object->attr.version, attr->version);
}

static void join_free(struct mirror_object *object)
{
	for (unsigned int i = 0; i < MIRROR_PLACES; i++)
		free(object->of[i].attr);
	free(object->path);
	free(object);
}

/* The one that was used longest ago, of those that nobody has. */
static void join_forget_one(struct mirrors *mirrors)
{
	struct mirror_object **oldest = NULL, *object;

	for (unsigned int i = 0; i < MIRROR_BUCKETS; i++) {
		struct mirror_object **link = &mirrors->objects[i];

		for (; *link; link = &(*link)->next)
			if (!(*link)->refs && (!oldest || (*link)->used < (*oldest)->used))
				oldest = link;
	}
	if (!oldest)
		return;
	object = *oldest;
	*oldest = object->next;
	mirrors->object_count--;
	join_free(object);
}

struct mirror_object *mirror_join_get(struct mirrors *mirrors, const char *path,
				      const struct origin_attr *attr, unsigned int from)
{
	struct mirror_object **bucket = (struct mirror_object **)join_at(mirrors, path), *object;

	for (object = *bucket; object; object = object->next)
		if (!strcmp(object->path, path) && join_is(object, attr))
			break;
	if (!object) {
		if (mirrors->object_count >= JOIN_OBJECTS)
			join_forget_one(mirrors);
		object = calloc(1, sizeof(*object));
		if (!object)
			return NULL;
		object->path = strdup(path);
		if (!object->path) {
			free(object);
			return NULL;
		}
		object->attr = *attr;
		object->from = from;
		object->of[from].state = MIRROR_JOINED;
		mirrors->of[from].joined += from != 0;
		object->said = ++mirrors->clock;
		object->next = *bucket;
		*bucket = object;
		mirrors->object_count++;
	}
	object->refs++;
	object->used = ++mirrors->clock;
	return object;
}

void mirror_join_put(struct mirror_object *object)
{
	object->refs--;
}

/* What there is, as far as is known. */
static struct mirror_object *join_known(const struct mirrors *mirrors, const char *path)
{
	struct mirror_object *known = NULL;

	for (struct mirror_object *object = *join_at(mirrors, path); object; object = object->next)
		if (object->said && !strcmp(object->path, path) &&
		    (!known || object->said > known->said))
			known = object;
	return known;
}

bool mirror_join_knows(const struct mirrors *mirrors, const char *path)
{
	return join_known(mirrors, path) != NULL;
}

void mirror_join_said(struct mirrors *mirrors, const char *path, const struct origin_attr *attr)
{
	struct mirror_object *known, *object;

	SCOPED_LOCK(&mirrors->lock);
	known = join_known(mirrors, path);
	/* What nobody has read is not kept in mind. */
	if (!known || (attr && join_is(known, attr)))
		return;
	for (; known; known = join_known(mirrors, path))
		known->said = 0;
	object = attr ? mirror_join_get(mirrors, path, attr, 0) : NULL;
	if (!object)
		return;
	object->said = ++mirrors->clock;
	mirror_join_put(object);
}

/* Is what a place has the version that is known? Lock held. */
static bool join_same(const struct mirrors *mirrors, const struct mirror_object *known,
		      unsigned int place, const struct origin_attr *attr)
{
	const struct mirror_member *member = &known->of[place];

	if (attr->size != known->attr.size)
		return false;
	if (mirrors->trust)
		return true;
	if ((attr->flags | known->attr.flags) & ORIGIN_WEAK)
		return false;
	if (member->state == MIRROR_JOINED && member->attr)
		return !strcmp(attr->version, member->attr->version);
	return !strcmp(attr->version, known->attr.version);
}

bool mirror_join_agrees(struct mirrors *mirrors, const char *path, unsigned int place,
			const struct origin_attr *attr, struct origin_attr *ret, const char **why)
{
	struct mirror_object *known, *object;
	bool same;

	SCOPED_LOCK(&mirrors->lock);
	known = join_known(mirrors, path);
	if (!known && !mirrors->trust) {
		*why = "no version of it is known";
		return false;
	}
	if (known) {
		same = S_ISREG(attr->mode) && join_same(mirrors, known, place, attr);
		if (same)
			*ret = known->attr;
		else
			*why = "it has another version";
		return same;
	}
	*ret = *attr;
	if (!S_ISREG(attr->mode))
		return true;
	object = mirror_join_get(mirrors, path, attr, place);
	if (object)
		mirror_join_put(object);
	return true;
}

unsigned int mirror_join_usable(const struct mirrors *mirrors, const struct mirror_object *object)
{
	unsigned int usable = 0;

	for (unsigned int i = 0; i < mirrors->count; i++)
		if (!mirrors->of[i].rank.down && object->of[i].state == MIRROR_JOINED)
			usable |= 1u << i;
	return usable;
}

bool mirror_join_asking(const struct mirrors *mirrors, const struct mirror_object *object)
{
	for (unsigned int i = 0; i < mirrors->count; i++)
		if (object->of[i].state == MIRROR_CHECKING)
			return true;
	return false;
}

/* What was found. */

static void join_set(struct mirrors *mirrors, struct mirror_object *object, unsigned int place,
		     enum mirror_state state)
{
	struct mirror_member *member = &object->of[place];

	if (state == MIRROR_JOINED && member->state != MIRROR_JOINED)
		mirrors->of[place].joined++;
	if (state != MIRROR_JOINED && member->state == MIRROR_JOINED)
		mirrors->of[place].joined--;
	if (state == MIRROR_REFUSED)
		mirrors->of[place].refused++;
	member->state = state;
	member->since_ns = mirrors->now();
}

void mirror_join_refuse(struct mirrors *mirrors, struct mirror_object *object, unsigned int place,
			const char *why)
{
	struct mirror *mirror = &mirrors->of[place];
	uint64_t now = mirrors->now();
	bool say;

	pthread_mutex_lock(&mirrors->lock);
	/* Several reads may have found it out. */
	if (object->of[place].state == MIRROR_REFUSED) {
		pthread_mutex_unlock(&mirrors->lock);
		return;
	}
	join_set(mirrors, object, place, MIRROR_REFUSED);
	snprintf(mirror->why, sizeof(mirror->why), "%s", why);
	say = !mirror->said_ns || now - mirror->said_ns >= JOIN_SAY_NS;
	if (say)
		mirror->said_ns = now;
	pthread_mutex_unlock(&mirrors->lock);
	counter_add(mirrors_refused, 1);
	log_write(say ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, LOG_AREA,
		  "%s is not read from the mirror %s: %s", object->path, mirror->name, why);
}

static void join_accept(struct mirror_check *check, const struct origin_attr *attr)
{
	struct mirrors *mirrors = check->mirrors;
	struct mirror_member *member = &check->object->of[check->place];
	struct origin_attr *copy = NULL;

	if (attr) {
		copy = malloc(sizeof(*copy));
		if (copy)
			*copy = *attr;
	}
	SCOPED_LOCK(&mirrors->lock);
	free(member->attr);
	member->attr = copy;
	join_set(mirrors, check->object, check->place,
		 !attr || copy ? MIRROR_JOINED : MIRROR_UNKNOWN);
}

/* Questions. */

/* Ends it; what it has found has been said. */
static void join_end(struct mirror_check *check)
{
	struct mirrors *mirrors = check->mirrors;

	pthread_mutex_lock(&mirrors->lock);
	if (check->next)
		check->next->prev = check->prev;
	if (check->prev)
		check->prev->next = check->next;
	else
		mirrors->checks = check->next;
	if (check->object->of[check->place].state == MIRROR_CHECKING)
		join_set(mirrors, check->object, check->place, MIRROR_UNKNOWN);
	mirror_join_put(check->object);
	pthread_mutex_unlock(&mirrors->lock);
	free(check);
	origin_unref(&mirrors->base);
}

static void join_refuse(struct mirror_check *check, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void join_refuse(struct mirror_check *check, const char *format, ...)
{
	char why[ORIGIN_MESSAGE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	mirror_join_refuse(check->mirrors, check->object, check->place, why);
	join_end(check);
}

/* Is it one that nobody can make another object for? */
static bool join_proves(const struct offers *offers, const struct offer *offer)
{
	if (offers->composite && offer->from == OFFER_S3 && !offer->parts)
		return false;
	return offer->digest.algo == DIGEST_SHA256 || offer->digest.algo == DIGEST_SHA512;
}

/* Is one of a's digests one of b's, of the whole or of as many parts? */
static bool join_same_digest(const struct offers *a, const struct offers *b)
{
	for (unsigned int i = 0; i < a->count; i++)
		for (unsigned int j = 0; j < b->count; j++)
			if (join_proves(a, &a->of[i]) && join_proves(b, &b->of[j]) &&
			    a->of[i].parts == b->of[j].parts &&
			    digest_equal(&a->of[i].digest, &b->of[j].digest))
				return true;
	return false;
}

static bool join_heard(struct mirror_check *check, const struct origin_result *result)
{
	bool probe = check->probe;

	check->probe = false;
	return mirror_heard(check->mirrors, check->place, probe, result);
}

static void join_refuse_version(struct mirror_check *check)
{
	join_refuse(check, "it has another version, %s, and no digest says that it is the same",
		    check->attr.version);
}

static void join_on_theirs(void *arg, const struct origin_result *result,
			   const struct offers *offers)
{
	struct mirror_check *check = arg;

	check->call = NULL;
	if (!result->error && join_same_digest(offers, &check->offers)) {
		join_accept(check, &check->attr);
		join_end(check);
	} else if (result->error && result->transient) {
		join_end(check);
	} else {
		join_refuse_version(check);
	}
}

static void join_on_first(void *arg, const struct origin_result *result,
			  const struct offers *offers)
{
	struct mirror_check *check = arg;
	struct mirror *mirror = &check->mirrors->of[check->place];

	check->call = NULL;
	if (result->error) {
		join_end(check);
		return;
	}
	if (!offers->count) {
		join_refuse_version(check);
		return;
	}
	check->offers = *offers;
	if (origin_offers(mirror->origin, check->loop, check->object->path, &check->attr,
			  join_on_theirs, check, &check->call)) {
		check->call = NULL;
		join_end(check);
	}
}

static void join_on_stat(void *arg, const struct origin_result *result,
			 const struct origin_attr *attr)
{
	struct mirror_check *check = arg;
	struct mirrors *mirrors = check->mirrors;
	const struct mirror_object *object = check->object;
	bool same;

	check->call = NULL;
	if (!join_heard(check, result) || !check->join) {
		join_end(check);
		return;
	}
	if (result->error) {
		join_refuse(check, "%s", result->message);
		return;
	}
	if (!S_ISREG(attr->mode)) {
		join_refuse(check, "it is no file there");
		return;
	}
	if (attr->size != object->attr.size) {
		join_refuse(check, "it has %" PRIu64 " bytes there, not %" PRIu64, attr->size,
			    object->attr.size);
		return;
	}
	same = !strcmp(attr->version, object->attr.version);
	if (mirrors->trust) {
		join_accept(check, same ? NULL : attr);
		join_end(check);
		return;
	}
	/* Nobody knows what else is called by that. */
	if ((attr->flags | object->attr.flags) & ORIGIN_WEAK) {
		join_refuse(check, "nothing proves that its version is the same");
		return;
	}
	if (same) {
		join_accept(check, NULL);
		join_end(check);
		return;
	}
	check->attr = *attr;
	if (origin_offers(mirrors->of[0].origin, check->loop, object->path, &object->attr,
			  join_on_first, check, &check->call)) {
		check->call = NULL;
		join_end(check);
	}
}

/* Is the place to be asked about the object now? Lock held. */
static struct mirror_check *join_due(struct mirrors *mirrors, struct mirror_object *object,
				     unsigned int place)
{
	struct mirror_member *member = &object->of[place];
	uint64_t now = mirrors->now(), age = now - member->since_ns;
	struct mirror_rank *rank = &mirrors->of[place].rank;
	bool probe = mirror_rank_probe(rank, now);
	bool join =
		place != object->from && (probe || !rank->down) &&
		((member->state == MIRROR_UNKNOWN && (!member->since_ns || age >= JOIN_RETRY_NS)) ||
		 (member->state == MIRROR_REFUSED && age >= JOIN_AGAIN_NS));
	struct mirror_check *check;

	if (!probe && !join)
		return NULL;
	check = calloc(1, sizeof(*check));
	if (!check) {
		rank->probing = rank->probing && !probe;
		return NULL;
	}
	check->place = place;
	check->probe = probe;
	check->join = join;
	if (join)
		join_set(mirrors, object, place, MIRROR_CHECKING);
	check->mirrors = mirrors;
	origin_ref(&mirrors->base);
	check->object = object;
	object->refs++;
	check->next = mirrors->checks;
	if (check->next)
		check->next->prev = check;
	mirrors->checks = check;
	return check;
}

void mirror_join_begin(struct mirrors *mirrors, struct mirror_object *object, struct loop *loop)
{
	for (unsigned int i = 0; i < mirrors->count; i++) {
		struct mirror_check *check;
		int err;

		pthread_mutex_lock(&mirrors->lock);
		check = join_due(mirrors, object, i);
		if (check)
			check->loop = loop;
		pthread_mutex_unlock(&mirrors->lock);
		if (!check)
			continue;
		err = origin_stat(mirrors->of[i].origin, loop, object->path, join_on_stat, check,
				  &check->call);
		if (err) {
			const struct origin_result result = {
				.error = err,
				.transient = true,
				.message = "it cannot be asked",
			};

			check->call = NULL;
			join_heard(check, &result);
			join_end(check);
		}
	}
}

void mirror_join_stop(struct mirrors *mirrors, struct loop *loop)
{
	for (;;) {
		struct mirror_check *check;

		pthread_mutex_lock(&mirrors->lock);
		for (check = mirrors->checks; check && check->loop != loop; check = check->next)
			;
		if (check && check->probe)
			mirrors->of[check->place].rank.probing = false;
		pthread_mutex_unlock(&mirrors->lock);
		/* Of this loop, so that nobody else ends it. */
		if (!check)
			return;
		if (check->call)
			origin_cancel(check->call);
		join_end(check);
	}
}

void mirror_join_clear(struct mirrors *mirrors)
{
	for (unsigned int i = 0; i < MIRROR_BUCKETS; i++) {
		while (mirrors->objects[i]) {
			struct mirror_object *object = mirrors->objects[i];

			mirrors->objects[i] = object->next;
			join_free(object);
		}
	}
}
