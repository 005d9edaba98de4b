// SPDX-License-Identifier: MIT
/*
 * mirror: the origin that is made of several, and which of them is asked.
 */
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "mirror_impl.h"

#define LOG_AREA "mirror"
#include "log.h"

/* A place that was not asked for so long is asked again: it may be quicker by now. */
#define MIRROR_EXPLORE_NS 5000000000ULL

static struct mirrors *of(struct origin *origin)
{
	return container_of(origin, struct mirrors, base);
}

/* Which one. */

struct mirror_look {
	struct mirror_tcp tcp;
	uint64_t answers;
};

static void look_add(void *arg, const char *name, const struct endpoint_counters *counters)
{
	struct mirror_look *look = arg;

	(void)name;
	look->tcp.lost += counters->retransmits + counters->out_of_order;
	/* Of several servers behind it, the one that is used most. */
	if (counters->answers < look->answers || !counters->rtts)
		return;
	look->answers = counters->answers;
	look->tcp.rtt_us = (uint32_t)(counters->last_rtt_seconds * 1e6);
	look->tcp.window = (uint32_t)counters->window;
}

void mirror_look(struct mirrors *mirrors, unsigned int place)
{
	struct mirror_look look = { 0 };

	origin_endpoints(mirrors->of[place].origin, look_add, &look);
	SCOPED_LOCK(&mirrors->lock);
	mirror_rank_tcp(&mirrors->of[place].rank, &look.tcp);
}

int mirror_choose(const struct mirrors *mirrors, unsigned int usable, uint64_t len, bool explore)
{
	uint64_t now = mirrors->now(), oldest = UINT64_MAX;
	double best_ns = 0;
	int best = -1;

	for (unsigned int i = 0; explore && i < mirrors->count; i++) {
		uint64_t asked = mirrors->of[i].rank.asked_ns;

		if (!(usable >> i & 1) || (asked && now - asked < MIRROR_EXPLORE_NS))
			continue;
		if (asked < oldest) {
			oldest = asked;
			best = (int)i;
		}
	}
	for (unsigned int i = 0; oldest == UINT64_MAX && i < mirrors->count; i++) {
		double ns = mirror_rank_expect(&mirrors->of[i].rank, len);

		if (!(usable >> i & 1) || (best >= 0 && ns >= best_ns))
			continue;
		best_ns = ns;
		best = (int)i;
	}
	return best;
}

bool mirror_heard(struct mirrors *mirrors, unsigned int place, bool probe,
		  const struct origin_result *result)
{
	struct mirror *mirror = &mirrors->of[place];
	bool answers = !result->error || !result->transient, back = false, gone = false;

	pthread_mutex_lock(&mirrors->lock);
	if (probe)
		back = mirror_rank_probed(&mirror->rank, mirrors->now(), answers);
	else if (!answers)
		gone = mirror_rank_failed(&mirror->rank, mirrors->now(), !result->status,
					  result->retry_after_ms);
	if (gone)
		snprintf(mirror->why, sizeof(mirror->why), "%s", result->message);
	pthread_mutex_unlock(&mirrors->lock);
	if (back)
		log_info("%s answers again", mirror->name);
	if (gone)
		log_warn("%s rests: %s", mirror->name, result->message);
	return answers;
}

/* As an origin: all but reads and names is the first one's. */

static int mirror_readlink(struct origin *origin, struct loop *loop, const char *path,
			   origin_link_fn done, void *arg, struct origin_call **ret_call)
{
	return origin_readlink(of(origin)->of[0].origin, loop, path, done, arg, ret_call);
}

static int mirror_offers(struct origin *origin, struct loop *loop, const char *path,
			 const struct origin_attr *attr, origin_offers_fn done, void *arg,
			 struct origin_call **ret_call)
{
	return origin_offers(of(origin)->of[0].origin, loop, path, attr, done, arg, ret_call);
}

static int mirror_part(struct origin *origin, struct loop *loop, const char *path,
		       const struct origin_attr *attr, uint32_t number, origin_part_fn done,
		       void *arg, struct origin_call **ret_call)
{
	return origin_part(of(origin)->of[0].origin, loop, path, attr, number, done, arg, ret_call);
}

static void mirror_credentials(struct origin *origin, struct origin_credentials *ret)
{
	origin_credentials(of(origin)->of[0].origin, ret);
}

static bool mirror_outdated(struct origin *origin)
{
	struct mirrors *mirrors = of(origin);

	for (unsigned int i = 0; i < mirrors->count; i++)
		if (origin_outdated(mirrors->of[i].origin))
			return true;
	return false;
}

static void mirror_sum(struct origin *origin, struct origin_counters *ret)
{
	struct mirrors *mirrors = of(origin);
	struct origin_counters sum = { 0 }, one;

	for (unsigned int i = 0; i < mirrors->count; i++) {
		origin_counters(mirrors->of[i].origin, &one);
		sum.requests += one.requests;
		sum.bytes += one.bytes;
		sum.errors += one.errors;
		sum.seconds += one.seconds;
		for (unsigned int j = 0; j < ARRAY_SIZE(sum.status_class); j++)
			sum.status_class[j] += one.status_class[j];
	}
	*ret = sum;
}

static void mirror_endpoints(struct origin *origin, endpoint_fn fn, void *arg)
{
	struct mirrors *mirrors = of(origin);

	for (unsigned int i = 0; i < mirrors->count; i++)
		origin_endpoints(mirrors->of[i].origin, fn, arg);
}

static void mirror_stop(struct origin *origin, struct loop *loop)
{
	mirror_join_stop(of(origin), loop);
}

static void mirror_destroy(struct origin *origin)
{
	struct mirrors *mirrors = of(origin);

	mirror_join_clear(mirrors);
	for (unsigned int i = 0; i < mirrors->count; i++) {
		origin_unref(mirrors->of[i].origin);
		free(mirrors->of[i].name);
	}
	pthread_mutex_destroy(&mirrors->lock);
	free(origin->identity);
	free(mirrors);
}

static const struct origin_ops mirror_ops = {
	.stat = mirror_stat,
	.list = mirror_list,
	.readlink = mirror_readlink,
	.read = mirror_read,
	.offers = mirror_offers,
	.part = mirror_part,
	.credentials = mirror_credentials,
	.outdated = mirror_outdated,
	.counters = mirror_sum,
	.endpoints = mirror_endpoints,
	.stop = mirror_stop,
	.destroy = mirror_destroy,
};

/*
 * That of the first one: what is cached is the same. But not what somebody answers for: those
 * who do not trust these mirrors are not given it.
 */
static char *mirror_identity(const struct mirror_place *places, unsigned int count, bool trust)
{
	const char *first = origin_identity(places[0].origin);
	unsigned char digest[SHA256_DIGEST_LENGTH];
	cleanup_free char *names = NULL;
	char *identity = NULL;
	FILE *stream;
	size_t size;

	if (!trust)
		return strdup(first);
	stream = open_memstream(&names, &size);
	if (!stream)
		return NULL;
	for (unsigned int i = 1; i < count; i++)
		fprintf(stream, "%s\n", places[i].name);
	if (fclose(stream))
		return NULL;
	SHA256((const unsigned char *)names, size, digest);
	if (asprintf(&identity, "%s trust %02x%02x%02x%02x%02x%02x%02x%02x", first, digest[0],
		     digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
		     digest[7]) < 0)
		return NULL;
	return identity;
}

int mirror_create(const struct mirror_place *places, unsigned int count, bool trust,
		  struct origin **ret)
{
	struct mirrors *mirrors;

	if (!count || count > MIRROR_PLACES)
		return -EINVAL;
	mirrors = calloc(1, sizeof(*mirrors));
	if (!mirrors)
		return -ENOMEM;
	origin_init(&mirrors->base, &mirror_ops);
	pthread_mutex_init(&mirrors->lock, NULL);
	mirrors->trust = trust;
	mirrors->now = loop_now_ns;
	mirrors->base.identity = mirror_identity(places, count, trust);
	for (unsigned int i = 0; i < count; i++) {
		mirrors->of[i].origin = origin_ref(places[i].origin);
		mirrors->of[i].name = strdup(places[i].name);
		mirrors->count++;
		if (!mirrors->of[i].name || !mirrors->base.identity) {
			origin_unref(&mirrors->base);
			return -ENOMEM;
		}
	}
	*ret = &mirrors->base;
	return 0;
}

void mirror_each(struct origin *origin, mirror_fn fn, void *arg)
{
	struct mirrors *mirrors = of(origin);

	if (origin->ops != &mirror_ops)
		return;
	SCOPED_LOCK(&mirrors->lock);
	for (unsigned int i = 0; i < mirrors->count; i++) {
		const struct mirror *mirror = &mirrors->of[i];
		const struct mirror_counters counters = {
			.requests = mirror->rank.requests,
			.bytes = mirror->rank.bytes,
			.errors = mirror->rank.errors,
			.in_flight = mirror->rank.in_flight,
			.joined = mirror->joined,
			.refused = mirror->refused,
			.latency_seconds = mirror->rank.first_ns * 1e-9,
			.rtt_seconds = mirror->rank.rtt_us * 1e-6,
			.window = mirror->rank.window,
			.resting = mirror->rank.down,
		};

		fn(arg, mirror->name, &counters, mirror->why[0] ? mirror->why : NULL);
	}
}
