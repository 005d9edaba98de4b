// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fake.h"
#include "listing.h"
#include "loop.h"
#include "names.h"

#define FOREVER_MS 3600000

static const struct names_terms fresh = { .budget_ms = 2000 };
static const struct names_terms hour = {
	.max_age_ms = FOREVER_MS,
	.max_absent_ms = FOREVER_MS,
	.budget_ms = 2000,
};

static struct loop *loop;
static struct fake fake;
static struct names *names;

/* Runs a function on the loop until something calls loop_stop(). */
static void on_loop(void (*run)(struct loop_task *task))
{
	struct loop_task task = { .run = run };

	loop_post(loop, &task);
	assert_int_equal(loop_run(loop), 0);
}

/* Answers, counted. */
static struct {
	unsigned int wanted, came;
	int error;
	struct origin_attr attr;
} answers;

static void answered(void *arg, int error, const char *message, const struct origin_attr *attr)
{
	(void)arg;
	(void)message;
	answers.error = error;
	if (!error)
		answers.attr = *attr;
	if (++answers.came == answers.wanted)
		loop_stop(loop);
}

static struct {
	const char *path;
	const struct names_terms *terms;
	unsigned int times;
	int returned;
} question;

static void ask(struct loop_task *task)
{
	(void)task;
	answers.wanted = question.times;
	answers.came = 0;
	for (unsigned int i = 0; i < question.times; i++) {
		struct origin_attr attr;

		question.returned =
			names_lookup(names, question.path, question.terms, &attr, answered, NULL);
		if (question.returned != -EINPROGRESS)
			answered(NULL, question.returned, NULL, &attr);
	}
}

/* Asks so many times at once; returns the last answer's error. */
static int lookup_times(const char *path, const struct names_terms *terms, unsigned int times)
{
	question.path = path;
	question.terms = terms;
	question.times = times;
	on_loop(ask);
	return answers.error;
}

static int lookup(const char *path, const struct names_terms *terms)
{
	return lookup_times(path, terms, 1);
}

/* Listings, collected. */
static struct {
	struct names_part part;
	size_t room, given, total;
	char last[300];
	char all[1 << 16];
	size_t all_len;
	bool disordered, eof;
	int error;
} list;

static bool list_emit(struct names_part *part, const char *name, size_t len, mode_t type)
{
	char key[300];

	(void)part;
	if (list.given == list.room)
		return false;
	snprintf(key, sizeof(key), "%.*s%s", (int)len, name, S_ISDIR(type) ? "/" : "");
	if (strcmp(key, list.last) <= 0)
		list.disordered = true;
	memcpy(list.last, key, sizeof(key));
	if (list.all_len + sizeof(key) + 2 < sizeof(list.all))
		list.all_len += (size_t)snprintf(list.all + list.all_len,
						 sizeof(list.all) - list.all_len, "%s ", key);
	list.given++;
	list.total++;
	return true;
}

static void list_done_fn(struct names_part *part, int error, const char *message, bool eof)
{
	(void)part;
	(void)message;
	list.error = error;
	list.eof = eof;
	loop_stop(loop);
}

static void list_ask(struct loop_task *task)
{
	int r;

	(void)task;
	r = names_readdir(names, &list.part);
	if (r)
		list_done_fn(&list.part, r, NULL, false);
}

/* One part: up to room entries behind after. */
static int readdir_part(const char *path, const char *after, size_t room,
			const struct names_terms *terms)
{
	list.part = (struct names_part){
		.path = path,
		.after = after,
		.terms = *terms,
		.emit = list_emit,
		.done = list_done_fn,
	};
	list.room = room;
	list.given = 0;
	on_loop(list_ask);
	return list.error;
}

/* What follows a name, to the end, room entries at a time. */
static void readdir_from(const char *path, const char *from, size_t room,
			 const struct names_terms *terms)
{
	char after[300];

	snprintf(after, sizeof(after), "%s", from);
	memset(&list, 0, sizeof(list));
	do {
		size_t len;

		assert_int_equal(readdir_part(path, after, room, terms), 0);
		memcpy(after, list.last, sizeof(after));
		len = strlen(after);
		if (len && after[len - 1] == '/')
			after[len - 1] = '\0';
	} while (!list.eof);
}

static void readdir_all(const char *path, size_t room, const struct names_terms *terms)
{
	readdir_from(path, "", room, terms);
}

static void name_sorted(unsigned int i, char *name, size_t size, struct origin_attr *attr)
{
	snprintf(name, size, "n%06u", i);
	snprintf(attr->version, sizeof(attr->version), "v%u", i);
}

/* As name_sorted(), without versions. */
static void name_unversioned(unsigned int i, char *name, size_t size, struct origin_attr *attr)
{
	(void)attr;
	snprintf(name, size, "n%06u", i);
}

static void name_backwards(unsigned int i, char *name, size_t size, struct origin_attr *attr)
{
	(void)attr;
	snprintf(name, size, "n%06u", 999999 - i);
}

static void name_odd(unsigned int i, char *name, size_t size, struct origin_attr *attr)
{
	static const char *const odd[] = { "x", "x-1", "x", "..", ".", "a/b", "", "y" };

	snprintf(name, size, "%s", odd[i]);
	if (i == 2)
		attr->mode = S_IFDIR;
}

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	fake.attr = (struct origin_attr){ .mode = S_IFREG, .size = 7, .version = "one" };
	fake.pages = 1;
	fake.per_page = 10;
	fake.name_at = name_sorted;
	if (loop_create(&loop, 64))
		return -1;
	return names_create(&fake.origin, 0, &names);
}

static void cancel_and_stop(struct loop_task *task)
{
	(void)task;
	names_cancel(names);
	loop_stop(loop);
}

static int teardown(void **state)
{
	(void)state;
	on_loop(cancel_and_stop);
	names_unref(names);
	loop_destroy(loop);
	return 0;
}

static void known_answer(void **state)
{
	(void)state;
	assert_int_equal(lookup("a/b", &hour), 0);
	assert_string_equal(answers.attr.version, "one");
	assert_int_equal(fake.stats, 1);
	memcpy(fake.attr.version, "two", 4);
	assert_int_equal(lookup("a/b", &hour), 0);
	assert_string_equal(answers.attr.version, "one");
	assert_int_equal(question.returned, 0);
	assert_int_equal(fake.stats, 1);
	assert_int_equal(lookup("a/b", &fresh), 0);
	assert_string_equal(answers.attr.version, "two");
	assert_int_equal(fake.stats, 2);
}

static void known_absence(void **state)
{
	const struct names_terms absent_asks = { .max_age_ms = FOREVER_MS, .budget_ms = 2000 };

	(void)state;
	fake.failures = 1;
	fake.error = -ENOENT;
	assert_int_equal(lookup("a", &hour), -ENOENT);
	assert_int_equal(lookup("a", &hour), -ENOENT);
	assert_int_equal(fake.stats, 1);
	assert_int_equal(lookup("a", &absent_asks), 0);
	assert_int_equal(fake.stats, 2);
}

static void one_question(void **state)
{
	(void)state;
	assert_int_equal(lookup_times("a", &fresh, 50), 0);
	assert_int_equal(answers.came, 50);
	assert_int_equal(fake.stats, 1);
}

static void tried_again(void **state)
{
	(void)state;
	fake.failures = 3;
	fake.error = -EIO;
	fake.transient = true;
	assert_int_equal(lookup("a", &fresh), 0);
	assert_int_equal(fake.stats, 4);
}

static void not_tried_again(void **state)
{
	(void)state;
	fake.failures = 3;
	fake.error = -EACCES;
	assert_int_equal(lookup("a", &fresh), -EACCES);
	assert_int_equal(fake.stats, 1);
}

static void older_answer(void **state)
{
	const struct names_terms stale = { .budget_ms = 100, .stale = true };
	const struct names_terms strict = { .budget_ms = 100 };
	const struct names_terms hasty = { .budget_ms = 10000, .hasty = true };
	unsigned int before;

	(void)state;
	assert_int_equal(lookup("a", &hour), 0);
	fake.failures = 1000000;
	fake.error = -EIO;
	fake.transient = true;
	assert_int_equal(lookup("a", &strict), -EIO);
	before = fake.stats;
	/* The origin is known to be away: at once, without a question. */
	assert_int_equal(lookup("a", &stale), 0);
	assert_string_equal(answers.attr.version, "one");
	assert_int_equal(lookup("a", &hasty), -EIO);
	assert_int_equal(fake.stats, before);
	/* Nothing older is known of this one. */
	assert_int_equal(lookup("b", &stale), -EIO);
}

static void older_answer_after_attempts(void **state)
{
	const struct names_terms stale = { .budget_ms = 100, .stale = true };
	struct names_counters counters;

	(void)state;
	assert_int_equal(lookup("a", &hour), 0);
	fake.failures = 1000000;
	fake.error = -EIO;
	fake.transient = true;
	assert_int_equal(lookup("a", &stale), 0);
	assert_true(fake.stats > 1);
	names_counters(names, &counters);
	assert_int_equal(counters.stale, 1);
}

static void listed(void **state)
{
	(void)state;
	fake.pages = 3;
	readdir_all("d", 4, &hour);
	assert_int_equal(list.total, 30);
	assert_false(list.disordered);
	assert_int_equal(fake.lists, 3);
	readdir_all("d", 1000, &hour);
	assert_int_equal(list.total, 30);
	assert_int_equal(fake.lists, 3);
	readdir_all("d", 1000, &fresh);
	assert_int_equal(fake.lists, 6);
}

static void listed_nothing(void **state)
{
	(void)state;
	fake.per_page = 0;
	fake.pages = 4;
	readdir_all("", 10, &hour);
	assert_int_equal(list.total, 0);
}

/* Nothing, and more to come, for ever: an error, and not asked for ever. */
static void listed_nothing_for_ever(void **state)
{
	(void)state;
	fake.per_page = 0;
	fake.pages = 4000;
	assert_int_equal(readdir_part("d", "", 10, &hour), -EIO);
	assert_int_equal(fake.lists, LISTING_EMPTY_PAGES);
}

static void continued_elsewhere(void **state)
{
	(void)state;
	fake.pages = 20;
	readdir_from("d", "n000123", 1000, &hour);
	assert_string_equal(list.last, "n000199");
	assert_int_equal(list.total, 76);
	/* A name that is gone: what follows its place. */
	memset(&list, 0, sizeof(list));
	assert_int_equal(readdir_part("d", "n000123x", 1, &hour), 0);
	assert_string_equal(list.last, "n000124");
}

static void sorted(void **state)
{
	(void)state;
	fake.pages = 30;
	fake.name_at = name_backwards;
	readdir_all("d", 7, &hour);
	assert_int_equal(list.total, 300);
	assert_false(list.disordered);
}

static void odd_names(void **state)
{
	(void)state;
	fake.per_page = 8;
	fake.name_at = name_odd;
	readdir_all("d", 2, &hour);
	assert_string_equal(list.all, "x-1 x/ y ");
}

static void large(void **state)
{
	struct names_counters counters;

	(void)state;
	names_unref(names);
	assert_int_equal(names_create(&fake.origin, 1 << 20, &names), 0);
	fake.pages = 100;
	fake.per_page = 1000;
	readdir_all("d", 1500, &hour);
	assert_int_equal(list.total, 100000);
	assert_false(list.disordered);
	names_counters(names, &counters);
	assert_true(counters.bytes <= 1 << 20);
}

static void large_in_disorder(void **state)
{
	(void)state;
	names_unref(names);
	assert_int_equal(names_create(&fake.origin, 1 << 20, &names), 0);
	fake.pages = 100;
	fake.per_page = 1000;
	fake.name_at = name_backwards;
	assert_int_equal(readdir_part("d", "", 10, &hour), -ENOMEM);
}

/* Pages can be dropped, their tokens cannot. */
static void long_tokens(void **state)
{
	(void)state;
	names_unref(names);
	assert_int_equal(names_create(&fake.origin, 1 << 20, &names), 0);
	fake.pages = 1000;
	fake.per_page = 1;
	assert_int_equal(readdir_part("d", "n000998", 10, &hour), 0);
	assert_string_equal(list.last, "n000999");
	fake.token_len = 4000;
	assert_int_equal(readdir_part("e", "n000998", 10, &hour), -ENOMEM);
	assert_true(fake.lists < 1500);
}

static void answered_by_listing(void **state)
{
	(void)state;
	readdir_all("d", 100, &hour);
	assert_int_equal(lookup("d/n000005", &hour), 0);
	assert_string_equal(answers.attr.version, "v5");
	assert_int_equal(fake.stats, 0);
	/* What a listing does not show may be there all the same. */
	assert_int_equal(lookup("d/other", &hour), 0);
	assert_int_equal(fake.stats, 1);
	/* The younger answer counts. */
	assert_int_equal(lookup("d/n000006", &fresh), 0);
	assert_string_equal(answers.attr.version, "one");
	assert_int_equal(lookup("d/n000006", &hour), 0);
	assert_string_equal(answers.attr.version, "one");
	readdir_all("d", 100, &fresh);
	assert_int_equal(lookup("d/n000006", &hour), 0);
	assert_string_equal(answers.attr.version, "v6");
}

static void not_answered_by_listing(void **state)
{
	(void)state;
	fake.name_at = name_unversioned;
	readdir_all("d", 100, &hour);
	assert_int_equal(lookup("d/n000005", &hour), 0);
	assert_int_equal(fake.stats, 1);
}

static void listing_fails(void **state)
{
	(void)state;
	fake.failures = 1;
	fake.error = -EACCES;
	assert_int_equal(readdir_part("d", "", 10, &hour), -EACCES);
	readdir_all("d", 100, &hour);
	assert_int_equal(list.total, 10);
	fake.failures = 2;
	fake.error = -EIO;
	fake.transient = true;
	readdir_all("d", 100, &fresh);
	assert_int_equal(list.total, 10);
}

static void older_listing(void **state)
{
	const struct names_terms stale = { .budget_ms = 100, .stale = true };

	(void)state;
	readdir_all("d", 100, &hour);
	fake.failures = 1000000;
	fake.error = -EIO;
	fake.transient = true;
	readdir_all("d", 100, &stale);
	assert_int_equal(list.total, 10);
}

static void forgotten(void **state)
{
	(void)state;
	readdir_all("d", 100, &hour);
	assert_int_equal(lookup("d/x", &hour), 0);
	assert_int_equal(lookup("e", &hour), 0);
	assert_int_equal(fake.stats, 2);
	names_invalidate(names, "d");
	assert_int_equal(lookup("e", &hour), 0);
	assert_int_equal(fake.stats, 2);
	assert_int_equal(lookup("d/x", &hour), 0);
	assert_int_equal(fake.stats, 3);
	readdir_all("d", 100, &hour);
	assert_int_equal(fake.lists, 2);
	/* A name below takes the listing around it along. */
	names_invalidate(names, "d/n000001");
	readdir_all("d", 100, &hour);
	assert_int_equal(fake.lists, 3);
	names_invalidate(names, "");
	assert_int_equal(lookup("e", &hour), 0);
	assert_int_equal(fake.stats, 4);
}

static void ask_and_forget(struct loop_task *task)
{
	ask(task);
	names_invalidate(names, "");
}

static void not_kept(void **state)
{
	(void)state;
	question.path = "a";
	question.terms = &hour;
	question.times = 1;
	on_loop(ask_and_forget);
	assert_int_equal(answers.error, 0);
	assert_int_equal(lookup("a", &hour), 0);
	assert_int_equal(fake.stats, 2);
}

static void ask_and_cancel(struct loop_task *task)
{
	ask(task);
	names_cancel(names);
}

static void list_and_cancel(struct loop_task *task)
{
	list_ask(task);
	names_cancel(names);
}

static void cancelled(void **state)
{
	(void)state;
	question.path = "a";
	question.terms = &hour;
	question.times = 3;
	on_loop(ask_and_cancel);
	assert_int_equal(answers.came, 3);
	assert_int_equal(answers.error, -ECANCELED);
	list.part = (struct names_part){
		.path = "d",
		.after = "",
		.terms = hour,
		.emit = list_emit,
		.done = list_done_fn,
	};
	on_loop(list_and_cancel);
	assert_int_equal(list.error, -ECANCELED);
}

static void bounded(void **state)
{
	struct names_counters counters;
	char path[64];

	(void)state;
	names_unref(names);
	assert_int_equal(names_create(&fake.origin, 64 << 10, &names), 0);
	for (int i = 0; i < 2000; i++) {
		snprintf(path, sizeof(path), "directory/number-%d", i);
		assert_int_equal(lookup(path, &hour), 0);
	}
	names_counters(names, &counters);
	assert_true(counters.bytes <= 64 << 10);
	/* The latest is known, the first is not. */
	assert_int_equal(lookup(path, &hour), 0);
	assert_int_equal(fake.stats, 2000);
	assert_int_equal(lookup("directory/number-0", &hour), 0);
	assert_int_equal(fake.stats, 2001);
}

static void files(void **state)
{
	char dir[] = "/tmp/wfs-names-XXXXXX", path[128], source[128], msg[256];
	struct origin *origin;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < 300; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/file-%d", dir, i);
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		assert_true(fd >= 0);
		assert_int_equal(write(fd, "some", 4), 4);
		close(fd);
	}
	snprintf(path, sizeof(path), "%s/file-7.d", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(source, sizeof(source), "file://%s", dir);
	assert_int_equal(origin_create(source, NULL, &origin, msg, sizeof(msg)), 0);
	names_unref(names);
	assert_int_equal(names_create(origin, 0, &names), 0);
	readdir_all("", 9, &hour);
	assert_int_equal(list.total, 301);
	assert_false(list.disordered);
	assert_int_equal(lookup("file-12", &hour), 0);
	assert_int_equal(answers.attr.size, 4);
	assert_int_equal(lookup("nothing", &hour), -ENOENT);
	assert_int_equal(lookup("file-7.d", &hour), 0);
	assert_true(S_ISDIR(answers.attr.mode));
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s/file-%d", dir, i);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/file-7.d", dir);
	rmdir(path);
	rmdir(dir);
	origin_unref(origin);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(known_answer),
		CASE(known_absence),
		CASE(one_question),
		CASE(tried_again),
		CASE(not_tried_again),
		CASE(older_answer),
		CASE(older_answer_after_attempts),
		CASE(listed),
		CASE(listed_nothing),
		CASE(listed_nothing_for_ever),
		CASE(continued_elsewhere),
		CASE(sorted),
		CASE(odd_names),
		CASE(large),
		CASE(large_in_disorder),
		CASE(long_tokens),
		CASE(answered_by_listing),
		CASE(not_answered_by_listing),
		CASE(listing_fails),
		CASE(older_listing),
		CASE(forgotten),
		CASE(not_kept),
		CASE(cancelled),
		CASE(bounded),
		CASE(files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
