// SPDX-License-Identifier: MIT
/* What is counted: places, servers, use of blocks, fetches too many; and waiting for a part. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "container.h"
#include "control.h"
#include "counters.h"
#include "endpoint.h"
#include "log.h"
#include "ratios.h"
#include "rig_faulty.h"
#include "store.h"
#include "usage.h"

#define MIB  (1u << 20)
#define SIZE (3 * MIB)

static char msg[512];

static int group_setup(void **state)
{
	(void)state;
	rig_faulty_group(SIZE);
	faulty_put(&faulty, "/d/g?modified=1000000000", bytes, SIZE);
	return 0;
}

static int setup(void **state)
{
	rig_faulty_create(state);
	rig.config->stall_timeout_ms = 60000;
	rig_start(&rig);
	return 0;
}

static struct origin *the_origin(void)
{
	struct origin *origin;

	if (core_origin(rig.core, faulty.url, NULL, &origin, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return origin;
}

static void test_hint(void **state)
{
	struct usage usage = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 15; i++)
		usage_add(&usage, 4 * MIB, 65536);
	/* Not enough is known. */
	assert_int_equal(usage_hint(&usage, 22), 0);
	for (unsigned int i = 0; i < 5; i++)
		usage_add(&usage, 4 * MIB, 65536);
	assert_int_equal(usage.blocks, 20);
	assert_int_equal(usage.bucket[6].blocks, 20);
	assert_int_equal(usage_hint(&usage, 22), 65536);
	/* Smaller ones there are not. */
	assert_int_equal(usage_hint(&usage, 16), 0);

	/* A quarter of each: blocks of a quarter, no smaller ones. */
	memset(&usage, 0, sizeof(usage));
	for (unsigned int i = 0; i < 40; i++)
		usage_add(&usage, 4 * MIB, MIB);
	assert_int_equal(usage_hint(&usage, 22), MIB);

	/* All of it, and all of it but a little. */
	memset(&usage, 0, sizeof(usage));
	for (unsigned int i = 0; i < 1000; i++)
		usage_add(&usage, 4 * MIB, i % 2 ? 4 * MIB : 4 * MIB - 65536);
	assert_int_equal(usage.bucket[0].blocks, 1000);
	assert_int_equal(usage_hint(&usage, 22), 0);

	/* Nothing of them. */
	memset(&usage, 0, sizeof(usage));
	for (unsigned int i = 0; i < 100; i++)
		usage_add(&usage, 4 * MIB, 0);
	assert_int_equal(usage.bucket[USAGE_BUCKETS - 1].blocks, 100);
}

/* One unit of what is brought is really waited for. */
static void use_first(struct fetch_want *want, uint32_t unit, uint32_t units, const void *data,
		      uint32_t len)
{
	(void)units;
	(void)data;
	(void)len;
	if (!unit)
		fetch_used(want, 65536);
}

/* Counted when the block has gone, by file and by origin; what was fetched ahead is not. */
static void test_usage(void **state)
{
	struct object *object = rig_open(&rig, faulty.url, "f", 20);
	struct origin *origin = the_origin();
	struct rig_want want = { .copy = calloc(16, 65536) };
	struct usage usage;

	(void)state;
	want.want = rig_want_of(object, 0, 0, 16, FETCH_DEMAND);
	want.want.data = use_first;
	assert_int_equal(fetch_start(rig.core, &want.want), 0);
	assert_int_equal(rig_wait(&want), 0);
	rig_want_free(&want);
	rig_want(&rig, &want, object, 1, 0, 16, FETCH_PREFETCH);
	assert_int_equal(rig_wait(&want), 0);
	rig_want_free(&want);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	RIG_UNTIL(!counter_get(held_blocks));

	assert_int_equal(usage_of_file(rig.core, origin, "f", object_attr(object), 20, &usage), 0);
	assert_int_equal(usage.blocks, 1);
	assert_int_equal(usage.fetched, MIB);
	assert_int_equal(usage.asked, 65536);
	assert_int_equal(usage.bucket[4].blocks, 1);
	usage_of_origin(rig.core, origin, 20, &usage);
	assert_int_equal(usage.blocks, 1);
	usage_of_origin(rig.core, origin, 22, &usage);
	assert_int_equal(usage.blocks, 0);
	assert_int_equal(usage_of_file(rig.core, origin, "x", object_attr(object), 20, &usage),
			 -ENOENT);
	origin_unref(origin);
	object_unref(object);
}

static void test_ratios(void **state)
{
	static struct control_stats module; /* zero */
	struct ratios ratios;
	const char *name, *help;
	unsigned int n = 0;
	double value;

	(void)state;
	counter_set(served_origin_requests, 3);
	counter_set(served_held_requests, 1);
	counter_set(served_nvme_requests, 0);
	counter_set(served_origin_bytes, 300);
	counter_set(served_held_bytes, 50);
	counter_set(served_nvme_bytes, 50);
	ratios_now(NULL, &ratios);
	assert_float_equal(ratios.request_hit, 0.25, 1e-9);
	assert_float_equal(ratios.byte_hit, 0.25, 1e-9);
	assert_float_equal(ratios.local, 0, 1e-9);

	/* Of ten reads and faults the daemon had to bring four; of those one was near. */
	module.values[WFS_STAT_SERVED_PAGES_READS] = 3;
	module.values[WFS_STAT_SERVED_NVME_READS] = 2;
	module.values[WFS_STAT_NVME_FAULTS] = 1;
	module.values[WFS_STAT_SERVED_HELPER_READS] = 3;
	module.values[WFS_STAT_HELPER_FAULTS] = 1;
	module.values[WFS_STAT_READ_BYTES] = 4000;
	module.values[WFS_STAT_SERVED_PAGES_BYTES] = 1000;
	module.values[WFS_STAT_NVME_BYTES] = 5000;
	module.values[WFS_STAT_DELIVER_BYTES] = 4000;
	ratios_now(&module, &ratios);
	assert_float_equal(ratios.local, 0.6, 1e-9);
	assert_float_equal(ratios.request_hit, 0.7, 1e-9);
	assert_float_equal(ratios.byte_hit, 0.7, 1e-9);
	assert_float_equal(ratios.page_cache, 0.25, 1e-9);
	while (ratios_nth(&ratios, n, &name, &help, &value))
		n++;
	assert_int_equal(n, 4);
}

static struct endpoint_counters found;
static char found_name[128];
static unsigned int found_count;

static void find(void *arg, const char *name, const struct endpoint_counters *counts)
{
	const char *wanted = arg;

	found_count++;
	if (wanted && strcmp(name, wanted))
		return;
	found = *counts;
	snprintf(found_name, sizeof(found_name), "%s", name);
}

static void test_endpoint_names(void **state)
{
	struct endpoints endpoints;
	struct endpoint *first;
	char url[64];

	(void)state;
	endpoints_init(&endpoints);
	first = endpoint_of(&endpoints, "https://user:secret@host:8443/a/b@c?d=e");
	assert_string_equal(first->name, "https://host:8443");
	assert_ptr_equal(endpoint_of(&endpoints, "https://host:8443"), first);
	assert_ptr_equal(endpoint_of(&endpoints, "https://host:8443/else"), first);
	assert_ptr_not_equal(endpoint_of(&endpoints, "http://host:8443/"), first);
	for (unsigned int i = 0; i < 100; i++) {
		snprintf(url, sizeof(url), "http://host%u/", i);
		assert_non_null(endpoint_of(&endpoints, url));
	}
	assert_string_equal(endpoint_of(&endpoints, "http://host99/")->name, "others");
	assert_ptr_equal(endpoint_of(&endpoints, "https://host:8443/"), first);
	found_count = 0;
	endpoints_each(&endpoints, find, NULL);
	assert_int_equal(found_count, ENDPOINT_MAX + 1);
	endpoints_clear(&endpoints);
}

/* A connection is looked at again and again: what it sums up is counted once. */
static void test_endpoint_tcp(void **state)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int listening = socket(AF_INET, SOCK_STREAM, 0), ours, theirs;
	struct endpoints endpoints;
	struct endpoint *endpoint;
	char byte;

	(void)state;
	endpoints_init(&endpoints);
	endpoint = endpoint_of(&endpoints, "http://127.0.0.1/");
	assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &len), 0);
	ours = socket(AF_INET, SOCK_STREAM, 0);
	endpoint_connected(endpoint, ours);
	assert_int_equal(connect(ours, (struct sockaddr *)&address, sizeof(address)), 0);
	theirs = accept(listening, NULL, NULL);
	assert_int_equal(send(ours, "x", 1, 0), 1);
	assert_int_equal(recv(theirs, &byte, 1, 0), 1);
	endpoint_look(endpoint, ours);
	endpoint_look(endpoint, ours);
	/* No connection, or none of TCP's. */
	endpoint_look(endpoint, -1);
	endpoint_look(endpoint, STDIN_FILENO);
	endpoints_each(&endpoints, find, NULL);
	assert_int_equal(found.connections, 1);
	assert_int_equal(found.rtts, 2);
	assert_true(found.rtt_seconds > 0 && found.rtt_seconds < 2);
	assert_int_equal(found.retransmits, 0);
	close(ours);
	close(theirs);
	close(listening);
	endpoints_clear(&endpoints);
}

/* Requests, failed ones and time to the first byte, at the server that was asked. */
static void test_endpoint_http(void **state)
{
	struct object *object = rig_open(&rig, faulty.url, "f", 22);
	struct origin *origin = the_origin();
	char name[128];

	(void)state;
	faulty_fault(&faulty,
		     "{\"path\": \"/f\", \"method\": \"GET\", \"kind\": \"status\", \"code\": 503,"
		     " \"times\": 1}");
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	snprintf(name, sizeof(name), "%.*s", (int)(strlen(faulty.url) - 1), faulty.url);
	if (faulty.url[strlen(faulty.url) - 1] != '/')
		snprintf(name, sizeof(name), "%s", faulty.url);
	found_name[0] = '\0';
	/* The last is counted when its callback has been made. */
	RIG_UNTIL((origin_endpoints(origin, find, name), found.requests >= 3));
	assert_string_equal(found_name, name);
	assert_int_equal(found.requests, 3);
	assert_int_equal(found.errors, 1);
	assert_int_equal(found.answers, 3);
	assert_true(found.latency_seconds > 0);
	assert_in_range(found.connections, 1, 3);
	assert_true(found.rtts > 0 && found.rtt_seconds > 0);
	assert_int_equal(found.retransmits, 0);
	origin_unref(origin);
	object_unref(object);
}

static void test_sync_below(void **state)
{
	struct object *stuck = rig_open(&rig, faulty.url, "d/g", 20);
	struct object *object = rig_open(&rig, faulty.url, "f", 20);
	struct origin *origin = the_origin();
	struct core_below below = { origin_identity(origin), "f" };
	struct rig_want want;
	uint64_t bitmap, sums[SIZE / 65536];
	size_t n;

	(void)state;
	faulty_fault(&faulty,
		     "{\"path\": \"/d/g\", \"method\": \"GET\", \"kind\": \"stall\", \"after\": 0}");
	rig_want(&rig, &want, stuck, 1, 0, 16, FETCH_DEMAND);
	RIG_UNTIL(counter_get(active_fetches));
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(core_sync_below(rig.core, &below, 30000), 0);
	assert_int_equal(object_map(object, 0, 3, &bitmap, sums, &n), 0);
	assert_int_equal(bitmap, 7);
	assert_int_equal(core_sync(rig.core, 10), -ETIMEDOUT);
	below.path = "d";
	assert_int_equal(core_sync_below(rig.core, &below, 10), -ETIMEDOUT);
	below.path = "d/g";
	assert_int_equal(core_sync_below(rig.core, &below, 10), -ETIMEDOUT);
	below.path = "";
	assert_int_equal(core_sync_below(rig.core, &below, 10), -ETIMEDOUT);
	/* Whose name only begins alike, and what is another origin's. */
	below.path = "d/gg";
	assert_int_equal(core_sync_below(rig.core, &below, 10), 0);
	below = (struct core_below){ "file:///d", "d" };
	assert_int_equal(core_sync_below(rig.core, &below, 10), 0);
	faulty_clear(&faulty);
	fetch_release(&want.want);
	rig_want_free(&want);
	origin_unref(origin);
	object_unref(object);
	object_unref(stuck);
}

/* Refuses an eviction, and wants the block at that moment. */
struct refuser {
	struct object_watch watch;
	struct object *object;
	struct rig_want want;
	int refused;
};

static int refuse(struct object_watch *watch, uint64_t block, bool cold)
{
	struct refuser *refuser = container_of(watch, struct refuser, watch);

	(void)cold;
	if (!refuser->refused++)
		rig_want(&rig, &refuser->want, refuser->object, block, 0, 16, FETCH_DEMAND);
	return -EBUSY;
}

/* Whoever asks for a block whose eviction is refused then has it from the cache file. */
static void test_no_duplicates(void **state)
{
	struct refuser refuser = { .watch = { .evict = refuse } };
	struct object *object = rig_open(&rig, faulty.url, "f", 20);
	struct origin *origin = the_origin();
	uint64_t fetches, duplicates = counter_get(duplicate_fetches);
	uint64_t near = counter_get(served_nvme_requests), gone, busy, pinned;

	(void)state;
	assert_true(rig_read(&rig, object) == XXH64(bytes, SIZE, 0));
	assert_int_equal(core_sync(rig.core, 30000), 0);
	RIG_UNTIL(!counter_get(held_blocks));
	refuser.object = object;
	assert_int_equal(object_watch(object, &refuser.watch), 0);
	fetches = counter_get(origin_fetches);
	assert_int_equal(store_evict(core_store(rig.core), origin_identity(origin), "", &gone,
				     &busy, &pinned),
			 0);
	assert_int_equal(gone, 0);
	assert_int_equal(busy, 3);
	assert_int_equal(rig_wait(&refuser.want), 0);
	assert_memory_equal(refuser.want.copy, bytes, MIB);
	assert_int_equal(core_sync(rig.core, 30000), 0);
	RIG_UNTIL(!counter_get(held_blocks));
	assert_int_equal(counter_get(origin_fetches) - fetches, 0);
	assert_int_equal(counter_get(served_nvme_requests) - near, 1);
	assert_int_equal(counter_get(duplicate_fetches) - duplicates, 0);
	object_unwatch(object, &refuser.watch);
	rig_want_free(&refuser.want);
	origin_unref(origin);
	object_unref(object);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, rig_faulty_end)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hint),
		cmocka_unit_test(test_ratios),
		cmocka_unit_test(test_endpoint_names),
		cmocka_unit_test(test_endpoint_tcp),
		TEST(test_usage),
		TEST(test_endpoint_http),
		TEST(test_sync_below),
		TEST(test_no_duplicates),
	};

	log_setup(LOG_LEVEL_ERROR, false);
	return cmocka_run_group_tests(tests, group_setup, rig_faulty_group_end);
}
