// SPDX-License-Identifier: MIT
/* Mirrors: what is late, what it may cost, which is asked; what names them, whose secrets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>

#include "../ask.h"
#include "cleanup.h"
#include "counters.h"
#include "faulty.h"
#include "mirror_impl.h"
#include "rig.h"

#define MIB	(1u << 20)
#define MS	1000000ULL
#define SECOND	1000000000ULL
#define SIZE	(9 * MIB + 77)
#define UNKNOWN "http://127.0.0.1:1/"

static struct faulty first, second;
static struct rig rig;
static char *bytes, msg[512];

/* Late: nothing is before there are figures; then the tail of those of its size. */
static void test_late(void **state)
{
	struct mirror_hedge hedge = { 0 };

	(void)state;
	for (unsigned int i = 0; i < MIRROR_HEDGE_LEAST; i++) {
		assert_int_equal(mirror_hedge_late_ns(&hedge, MIB), MIRROR_HEDGE_NS);
		mirror_hedge_took(&hedge, MIB, 10 * MS);
	}
	/* All alike: twice as long as they. */
	assert_int_equal(mirror_hedge_late_ns(&hedge, MIB), 20 * MS);
	/* Other sizes have figures of their own. */
	assert_int_equal(mirror_hedge_late_ns(&hedge, 65536), MIRROR_HEDGE_NS);
	assert_int_equal(mirror_hedge_late_ns(&hedge, 64 * MIB), MIRROR_HEDGE_NS);
	/* One of ten takes 100 ms: the 95th percentile is theirs. */
	for (unsigned int i = 0; i < MIRROR_HEDGE_SAMPLES; i++)
		mirror_hedge_took(&hedge, MIB, (i % 10 ? 10 : 100) * MS);
	assert_int_equal(mirror_hedge_late_ns(&hedge, MIB), 100 * MS);
	/* One of fifty: it is not. */
	for (unsigned int i = 0; i < MIRROR_HEDGE_SAMPLES; i++)
		mirror_hedge_took(&hedge, MIB, (i % 50 ? 10 : 100) * MS);
	assert_int_equal(mirror_hedge_late_ns(&hedge, MIB), 20 * MS);
	for (unsigned int i = 0; i < MIRROR_HEDGE_SAMPLES; i++)
		mirror_hedge_took(&hedge, MIB, MS / 100);
	assert_int_equal(mirror_hedge_late_ns(&hedge, MIB), MIRROR_HEDGE_MIN_NS);
}

static unsigned int spend_all(struct mirror_hedge *hedge, uint64_t len)
{
	unsigned int n = 0;

	while (mirror_hedge_spend(hedge, len))
		n++;
	return n;
}

/* One in twenty, of requests and of bytes, and no more than a few at once. */
static void test_cap(void **state)
{
	struct mirror_hedge hedge = { 0 };
	unsigned int sent = 0;

	(void)state;
	assert_false(mirror_hedge_spend(&hedge, 1));
	for (unsigned int i = 1; i <= 10000; i++) {
		mirror_hedge_earn(&hedge, MIB);
		sent += mirror_hedge_spend(&hedge, MIB);
		assert_true(sent * 20 <= i);
	}
	assert_int_equal(sent, 500);
	/* Small reads do not pay for a large one, */
	for (unsigned int i = 0; i < 400; i++)
		mirror_hedge_earn(&hedge, 65536);
	assert_false(mirror_hedge_spend(&hedge, 2 * MIB));
	assert_true(mirror_hedge_spend(&hedge, MIB));
	/* nor do a few large ones for many requests. */
	spend_all(&hedge, 0);
	for (unsigned int i = 0; i < 60; i++)
		mirror_hedge_earn(&hedge, 32 * MIB);
	assert_int_equal(spend_all(&hedge, 65536), 3);
	/* What was not lost may be spent again. */
	hedge = (struct mirror_hedge){ .requests = 60, .bytes = 20 * MIB };
	assert_true(mirror_hedge_spend(&hedge, MIB));
	assert_false(mirror_hedge_spend(&hedge, MIB));
	mirror_hedge_refund(&hedge, MIB);
	assert_true(mirror_hedge_spend(&hedge, MIB));
	/* Nothing is saved up without end. */
	for (unsigned int i = 0; i < 100000; i++)
		mirror_hedge_earn(&hedge, 32 * MIB);
	assert_int_equal(spend_all(&hedge, MIB), MIRROR_HEDGE_BURST);
	for (unsigned int i = 0; i < 100000; i++)
		mirror_hedge_earn(&hedge, 32 * MIB);
	assert_false(mirror_hedge_spend(&hedge, MIRROR_HEDGE_BYTES + 1));
	assert_true(mirror_hedge_spend(&hedge, MIRROR_HEDGE_BYTES));
}

/* When it was asked, how long it rests after that, in seconds. */
static uint64_t rests(const struct mirror_rank *rank, uint64_t now)
{
	return rank->down && rank->rest_ns > now ? (rank->rest_ns - now) / SECOND : 0;
}

static void test_rest(void **state)
{
	static const uint64_t pauses[] = { 2, 4, 8, 16, 32, 60, 60 };
	struct mirror_rank rank = { 0 };
	uint64_t now = SECOND;

	(void)state;
	assert_false(mirror_rank_probe(&rank, now));
	assert_true(mirror_rank_failed(&rank, now, true, 0));
	assert_int_equal(rests(&rank, now), 1);
	/* Those that were under way to it as well make it rest no longer. */
	assert_false(mirror_rank_failed(&rank, now + SECOND / 2, true, 0));
	assert_int_equal(rests(&rank, now), 1);
	for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
		assert_false(mirror_rank_probe(&rank, rank.rest_ns - 1));
		now = rank.rest_ns;
		assert_true(mirror_rank_probe(&rank, now));
		/* One at a time. */
		assert_false(mirror_rank_probe(&rank, now));
		assert_false(mirror_rank_probed(&rank, now, false));
		assert_int_equal(rests(&rank, now), pauses[i]);
	}
	now = rank.rest_ns;
	assert_true(mirror_rank_probe(&rank, now));
	assert_true(mirror_rank_probed(&rank, now, true));
	assert_false(rank.down);
	/* That it answers a question does not say that it can be read from. */
	assert_true(mirror_rank_failed(&rank, now, true, 0));
	assert_int_equal(rests(&rank, now), 60);
	mirror_rank_answered(&rank, MIB, MS, 2 * MS);
	assert_false(rank.down);
	assert_true(mirror_rank_failed(&rank, now, true, 0));
	assert_int_equal(rests(&rank, now), 1);
}

/* One that answers, with errors: three in a row; it may say how long. */
static void test_refusals(void **state)
{
	struct mirror_rank rank = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 10; i++) {
		assert_false(mirror_rank_failed(&rank, SECOND, false, 0));
		assert_false(mirror_rank_failed(&rank, SECOND, false, 0));
		mirror_rank_answered(&rank, MIB, MS, 2 * MS);
	}
	assert_false(mirror_rank_failed(&rank, SECOND, false, 0));
	assert_false(mirror_rank_failed(&rank, SECOND, false, 0));
	assert_true(mirror_rank_failed(&rank, SECOND, false, 30000));
	assert_int_equal(rests(&rank, SECOND), 30);
}

static uint64_t clock_ns;

static uint64_t clock_now(void)
{
	return clock_ns;
}

static struct mirror_rank rank_of(uint64_t first_ms)
{
	struct mirror_rank rank = { .asked_ns = clock_ns };

	for (unsigned int i = 0; i < 50; i++)
		mirror_rank_answered(&rank, MIB, first_ms * MS, first_ms * MS + MS);
	return rank;
}

static void test_choose(void **state)
{
	struct mirrors m = { .count = 3, .now = clock_now };
	struct mirror_tcp tcp = { .rtt_us = 100 };

	(void)state;
	clock_ns = 100 * SECOND;
	m.of[0].rank = rank_of(10);
	m.of[1].rank = rank_of(5);
	m.of[2].rank = rank_of(20);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 1);
	assert_int_equal(mirror_choose(&m, 5, MIB, true), 0);
	assert_int_equal(mirror_choose(&m, 4, MIB, true), 2);
	assert_int_equal(mirror_choose(&m, 0, MIB, true), -1);
	/* What is under way there counts, */
	mirror_rank_asked(&m.of[1].rank, clock_ns);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	mirror_rank_ended(&m.of[1].rank, MIB);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 1);
	/* and so does what failed, until it is long ago; */
	for (unsigned int i = 0; i < 2; i++)
		mirror_rank_failed(&m.of[1].rank, clock_ns, false, 0);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	for (unsigned int i = 0; i < 20; i++)
		mirror_rank_answered(&m.of[1].rank, MIB, 5 * MS, 6 * MS);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 1);
	/* that it was late, */
	for (unsigned int i = 0; i < 8; i++)
		mirror_rank_late(&m.of[1].rank, 100 * MS);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	/* (though not that one that is not known was given up soon), */
	m.of[1].rank = (struct mirror_rank){ .asked_ns = clock_ns };
	mirror_rank_late(&m.of[1].rank, MS);
	m.of[0].rank = rank_of(8);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	m.of[0].rank = rank_of(10);
	m.of[1].rank = rank_of(5);
	/* the rate, for what is large; */
	for (unsigned int i = 0; i < 50; i++)
		mirror_rank_answered(&m.of[1].rank, MIB, 5 * MS, 25 * MS);
	assert_int_equal(mirror_choose(&m, 7, 65536, true), 1);
	assert_int_equal(mirror_choose(&m, 7, 4 * MIB, true), 0);
	m.of[1].rank = rank_of(5);
	/* and what TCP says: round trips, losses, a window that has fallen. */
	for (unsigned int i = 0; i < 3; i++)
		mirror_rank_tcp(&m.of[i].rank, &tcp);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 1);
	tcp = (struct mirror_tcp){ .rtt_us = 30000 };
	mirror_rank_tcp(&m.of[1].rank, &tcp);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	m.of[1].rank = rank_of(5);
	tcp = (struct mirror_tcp){ .rtt_us = 4000 };
	for (unsigned int i = 0; i < 30; i++) {
		tcp.lost += 3;
		mirror_rank_tcp(&m.of[1].rank, &tcp);
	}
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	m.of[1].rank = rank_of(5);
	tcp = (struct mirror_tcp){ .rtt_us = 100, .window = 10 };
	mirror_rank_tcp(&m.of[1].rank, &tcp);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 1);
	tcp.window = 1;
	mirror_rank_tcp(&m.of[1].rank, &tcp);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 0);
	m.of[1].rank = rank_of(5);

	/* One that was not asked for a while is, once, but not as a second one. */
	clock_ns += 6 * SECOND;
	m.of[0].rank.asked_ns = m.of[1].rank.asked_ns = clock_ns;
	assert_int_equal(mirror_choose(&m, 7, MIB, false), 1);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 2);
	mirror_rank_asked(&m.of[2].rank, clock_ns);
	assert_int_equal(mirror_choose(&m, 7, MIB, true), 1);
}

static int parse(const char *text, const char *source, const char *base, struct mirror_list *list)
{
	msg[0] = '\0';
	return mirror_list_parse(text, source, base, list, msg, sizeof(msg));
}

static void check_list(const char *text, const char *source, const char *base, bool trust,
		       const char *wanted)
{
	struct mirror_list list;
	char joined[1024] = "";

	assert_int_equal(parse(text, source, base, &list), 0);
	for (unsigned int i = 0; i < list.count; i++) {
		strncat(joined, list.urls[i], 200);
		strncat(joined, " ", 2);
	}
	assert_string_equal(joined, wanted);
	assert_int_equal(list.trust, trust);
	mirror_list_free(&list);
}

static void check_refused(const char *text, const char *source, const char *says)
{
	struct mirror_list list;

	assert_int_equal(parse(text, source, NULL, &list), -EINVAL);
	assert_non_null(strstr(msg, says));
	mirror_list_free(&list);
}

static void test_list(void **state)
{
	char *parents;

	(void)state;
	check_list("http://b/w/", "http://a/w/", NULL, false, "http://b/w/ ");
	check_list("http://b/w/+https://c/x", "http://a/w/", NULL, false,
		   "http://b/w/ https://c/x ");
	check_list(" http://b/w/ , https://c/x,trust", "http://a/w/", NULL, true,
		   "http://b/w/ https://c/x ");
	/* A '+' that is part of a URL. */
	check_list("http://b/c++/w+x+trust", "http://a/w/", NULL, true, "http://b/c++/w+x ");
	check_list("http://b/trust+trustee/", "http://a/w/", NULL, false,
		   "http://b/trust+trustee/ ");
	check_list("s3://b/k+https://s3.b:9000", "s3://a", NULL, false,
		   "s3://b/k https://s3.b:9000 ");
	/* Of a section: what the source has behind its prefix; an endpoint stays what it is. */
	check_list("http://b/w/,http://c", "http://a/x/y/", "http://a", false,
		   "http://b/w/x/y/ http://c/x/y/ ");
	check_list("http://b/w", "http://a/", "http://a/", false, "http://b/w ");
	check_list("s3://b/k,http://e", "s3://a/x", "s3://a", false, "s3://b/k/x http://e ");
	check_refused("", "http://a/", "no URL");
	check_refused("trust", "http://a/", "no URL");
	check_refused("s3://b", "http://a/", "http(s)://HOST/PATH/");
	check_refused("ftp://user:secret@b", "s3://a", "the URL of another endpoint");
	assert_null(strstr(msg, "secret"));
	check_refused("http://b/", "file:///a", "not this one");
	check_refused("http://1,http://2,http://3,http://4,http://5,http://6,http://7,http://8",
		      "http://a/", "more than");

	parents = mirror_list_parents("http://b/w/f+http://c/f,trust", "http://a/w/f");
	assert_string_equal(parents, "http://b/w/+http://c/,trust");
	free(parents);
	parents = mirror_list_parents("s3://b/f+s3://c+http://e/x", "s3://a/f");
	assert_string_equal(parents, "s3://b/+s3://c+http://e/x");
	free(parents);
}

/* With a core: what a section and an option name, and who is given whose secrets. */

static int group_setup(void **state)
{
	(void)state;
	bytes = rig_bytes(SIZE, 3);
	faulty_start(&first);
	faulty_start(&second);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	faulty_stop(&first);
	faulty_stop(&second);
	free(bytes);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	faulty_clear(&first);
	faulty_clear(&second);
	for (unsigned int i = 0; i < 2; i++) {
		struct faulty *faulty = i ? &second : &first;

		faulty_put(faulty, "/d/f", bytes, SIZE);
		faulty_put(faulty, "/bucket/f", bytes, SIZE);
	}
	rig_create(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_destroy(&rig);
	return 0;
}

static void set(const char *section, const char *key, const char *value)
{
	if (config_set(rig.config, section, key, value, msg, sizeof(msg)))
		fail_msg("%s", msg);
}

static void set_source(const char *prefix, const char *key, const char *value)
{
	char section[256];

	snprintf(section, sizeof(section), "source %s", prefix);
	set(section, key, value);
}

struct seen {
	unsigned int places;
	uint64_t joined, refused;
	char why[512];
};

static void see(void *arg, const char *name, const struct mirror_counters *figures, const char *why)
{
	struct seen *seen = arg;

	(void)name;
	seen->places++;
	seen->joined += figures->joined;
	seen->refused += figures->refused;
	if (why)
		snprintf(seen->why, sizeof(seen->why), "%s", why);
}

static struct seen seen_of(struct origin *origin)
{
	struct seen seen = { 0 };

	mirror_each(origin, see, &seen);
	return seen;
}

static struct origin *origin_of(const char *source, const char *options)
{
	struct origin *origin;

	if (core_origin(rig.core, source, options, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

static bool is_asked(struct origin *origin)
{
	struct seen seen = seen_of(origin);

	return seen.joined || seen.refused;
}

/*
 * Reads f, in blocks of that size, of which none may be in the cache; then waits until the
 * mirror is known to have it or not.
 */
static void read_f(struct origin *origin, uint32_t block_shift)
{
	struct origin_attr attr;
	struct object *object;

	if (ask_stat(rig.asker, origin, "f", &attr, msg, sizeof(msg)))
		fail_msg("%s", msg);
	assert_int_equal(object_open(rig.core, origin, "f", &attr, block_shift, &object), 0);
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	object_unref(object);
	RIG_UNTIL(is_asked(origin));
}

/* How many requests had this line; "": none of that name. */
static unsigned int with_header(struct faulty *faulty, const char *name, const char *begins)
{
	json_t *log = faulty_log(faulty), *entry;
	unsigned int count = 0;
	size_t i;

	json_array_foreach(log, i, entry) {
		const char *value =
			json_string_value(json_object_get(json_object_get(entry, "headers"), name));

		count += value ? *begins && !strncmp(value, begins, strlen(begins)) : !*begins;
	}
	json_decref(log);
	return count;
}

static unsigned int asked(struct faulty *faulty)
{
	json_t *log = faulty_log(faulty);
	size_t count = json_array_size(log);

	json_decref(log);
	return (unsigned int)count;
}

static void test_section(void **state)
{
	char source[128], other[128], options[256];
	struct origin *origin, *alone;

	(void)state;
	snprintf(source, sizeof(source), "%s/d/", first.url);
	set_source(first.url, "mirror", second.url);
	rig_start(&rig);
	origin = origin_of(source, NULL);
	assert_int_equal(seen_of(origin).places, 2);
	read_f(origin, 20);
	assert_int_equal(seen_of(origin).joined, 1);
	assert_true(faulty_count(&second, "HEAD", "/d/f") == 1);
	/* What is cached is the same with and without; the mount's word goes before. */
	alone = origin_of(source, "mirror=none");
	assert_int_equal(seen_of(alone).places, 0);
	assert_string_equal(origin_identity(alone), origin_identity(origin));
	origin_unref(alone);
	/* But not what only somebody's word stands for. */
	snprintf(options, sizeof(options), "mirror=%s/d/+trust", second.url);
	alone = origin_of(source, options);
	assert_string_not_equal(origin_identity(alone), origin_identity(origin));
	origin_unref(alone);
	snprintf(options, sizeof(options), "ttl=60\nmirror=%s+%s\n", UNKNOWN, second.url);
	alone = origin_of(source, options);
	assert_int_equal(seen_of(alone).places, 3);
	origin_unref(alone);
	snprintf(other, sizeof(other), "mirror=s3://b");
	assert_int_equal(core_origin(rig.core, source, other, &alone, msg, sizeof(msg)), -EINVAL);
	assert_non_null(strstr(msg, "mirror: "));
	origin_unref(origin);
}

/* Header lines of one host are not told to another. */
static void test_secrets_http(void **state)
{
	char source[128], options[128];
	struct origin *origin;

	(void)state;
	snprintf(source, sizeof(source), "%s/d/", first.url);
	snprintf(options, sizeof(options), "mirror=%s/d/", second.url);
	set_source(first.url, "header", "X-Key: of-first");
	rig_start(&rig);
	origin = origin_of(source, options);
	read_f(origin, 20);
	read_f(origin, 19);
	origin_unref(origin);
	assert_int_equal(with_header(&first, "x-key", "of-first"), asked(&first));
	assert_true(asked(&second) > 1);
	assert_int_equal(with_header(&second, "x-key", ""), asked(&second));
	rig_stop(&rig);

	set_source(second.url, "header", "X-Key: of-second");
	faulty_clear(&first);
	faulty_clear(&second);
	rig_start(&rig);
	origin = origin_of(source, options);
	read_f(origin, 18);
	read_f(origin, 17);
	origin_unref(origin);
	assert_int_equal(with_header(&first, "x-key", "of-first"), asked(&first));
	assert_int_equal(with_header(&second, "x-key", "of-second"), asked(&second));
}

static void test_secrets_s3(void **state)
{
	char options[256];
	struct origin *origin;

	(void)state;
	faulty_s3(&first, "{\"bucket\": \"bucket\", \"key\": \"one\", \"secret\": \"s1\"}");
	faulty_s3(&second, "{\"bucket\": \"bucket\", \"key\": \"two\", \"secret\": \"s2\"}");
	set_source("s3://bucket", "endpoint", first.url);
	set_source("s3://bucket", "access_key", "one");
	set_source("s3://bucket", "secret_key", "s1");
	/* Which nobody who names an endpoint in an option may have sent there. */
	setenv("AWS_ACCESS_KEY_ID", "environment", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s3", 1);
	rig_start(&rig);
	snprintf(options, sizeof(options), "mirror=%s", second.url);
	origin = origin_of("s3://bucket", options);
	read_f(origin, 20);
	assert_int_equal(seen_of(origin).refused, 1);
	assert_non_null(strstr(seen_of(origin).why, "refuses access"));
	origin_unref(origin);
	assert_int_equal(with_header(&second, "authorization", ""), asked(&second));
	rig_stop(&rig);

	/* A section of its own, and the bucket is the same. */
	set_source(second.url, "access_key", "two");
	set_source(second.url, "secret_key", "s2");
	rig_start(&rig);
	faulty_clear(&second);
	origin = origin_of("s3://bucket", options);
	read_f(origin, 19);
	read_f(origin, 18);
	assert_int_equal(seen_of(origin).joined, 1);
	origin_unref(origin);
	assert_true(asked(&second) > 0);
	assert_int_equal(with_header(&second, "authorization", "AWS4-HMAC-SHA256 Credential=two/"),
			 asked(&second));
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_cap),
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_choose),
		cmocka_unit_test(test_list),
		cmocka_unit_test_setup_teardown(test_section, setup, teardown),
		cmocka_unit_test_setup_teardown(test_secrets_http, setup, teardown),
		cmocka_unit_test_setup_teardown(test_secrets_s3, setup, teardown),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
