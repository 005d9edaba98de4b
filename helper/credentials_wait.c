// SPDX-License-Identifier: MIT
/*
 * credentials_wait: keys as they are now, and how they are kept fresh.
 *
 * One request for keys at a time: it runs on the loop of the wait that leads it. When
 * that one is cancelled, the next takes over. As in Amazon's SDKs, keys are asked for
 * anew five minutes ahead of their end, which the leader alone waits for; in the last
 * minute everybody does. Keys that never live as long have smaller margins. An attempt
 * that fails leaves keys in use as long as they are good.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "credentials_impl.h"

#define LOG_AREA "credentials"
#include "log.h"

/* Seconds before the end; at most a third and a sixth of the whole life. */
#define EARLY_S 300
#define LATE_S	60
/* Between attempts while there are good keys, and while the machine has no role. */
#define AGAIN_NS  10000000000ull
#define ABSENT_NS 60000000000ull
/* Keys that are refused as soon as they come are not asked for again and again. */
#define FORCED_NS 1000000000ull

/*
 * Freed by its own loop's thread. next, posted, error, transient: credentials->lock;
 * cancelled: its own thread.
 */
struct credentials_wait {
	struct credentials *credentials;
	struct loop *loop;
	struct loop_task task;
	credentials_fn done;
	void *arg;
	struct credential_keys *ret_keys;
	struct credentials_wait *next;
	struct credentials_run *run; /* the leader's, under way */
	bool forced;		     /* keys were refused: the same are no use */
	bool posted;		     /* the task will run, and has the wait */
	bool cancelled;
	int error;
	bool transient;
	char message[ORIGIN_MESSAGE_MAX];
};

enum need {
	NEED_NOTHING,
	NEED_SOON, /* what is there is good enough for all but one */
	NEED_NOW,
};

void credentials_fail(struct credentials_outcome *outcome, int error, bool transient,
		      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(outcome->message, sizeof(outcome->message), format, args);
	va_end(args);
	outcome->error = error;
	outcome->transient = transient;
}

static bool text_equal(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool keys_equal(const struct credential_keys *a, const struct credential_keys *b)
{
	return text_equal(a->access_key, b->access_key) &&
	       text_equal(a->secret_key, b->secret_key) &&
	       text_equal(a->session_token, b->session_token);
}

static bool role_equal(const struct credentials_role *a, const struct credentials_role *b)
{
	return text_equal(a->arn, b->arn) && text_equal(a->session, b->session) &&
	       text_equal(a->external_id, b->external_id) &&
	       text_equal(a->token_file, b->token_file) && keys_equal(&a->keys, &b->keys);
}

/* Whether there is anybody to be asked. */
static bool can_ask(const struct credentials *c)
{
	return c->role.arn || c->kind == CREDENTIALS_CONTAINER || c->kind == CREDENTIALS_INSTANCE;
}

bool credentials_renewable(struct credentials *c)
{
	SCOPED_LOCK(&c->lock);

	return can_ask(c);
}

static bool keys_good(const struct credentials *c)
{
	return c->keys.access_key && !c->stale &&
	       (!c->keys.expires || time(NULL) < c->keys.expires);
}

static enum need need_of(const struct credentials *c)
{
	int64_t left, early, late;

	if (!can_ask(c))
		return NEED_NOTHING;
	if (c->absent)
		return loop_now_ns() < c->again_ns ? NEED_NOTHING : NEED_SOON;
	if (!keys_good(c))
		return NEED_NOW;
	if (!c->keys.expires || loop_now_ns() < c->again_ns)
		return NEED_NOTHING;
	left = c->keys.expires - time(NULL);
	early = c->lifetime / 3 < EARLY_S ? c->lifetime / 3 : EARLY_S;
	late = c->lifetime / 6 < LATE_S ? c->lifetime / 6 : LATE_S;
	return left <= late ? NEED_NOW : left <= early ? NEED_SOON : NEED_NOTHING;
}

/*
 * The profile again, if a file is another one than last time, or always. A file caught
 * half-written leaves all as it was: the next look finds it changed.
 */
static int read_profile(struct credentials *c, bool always)
{
	struct credentials_profile profile;
	char msg[ORIGIN_MESSAGE_MAX];
	int err;

	if (c->kind != CREDENTIALS_PROFILE || (!credentials_files_changed(&c->files) && !always))
		return 0;
	err = credentials_profile_read(&c->files, &profile, msg, sizeof(msg));
	if (err == -ENOMEM)
		return err;
	if (err) {
		if (err == -ENOENT)
			credentials_profile_clear(&profile);
		return 0;
	}
	if (profile.keys.access_key) {
		credential_keys_clear(&c->keys);
		c->keys = profile.keys;
		profile.keys = (struct credential_keys){ 0 };
		c->stale = false;
	} else if (!role_equal(&profile.role, &c->role)) {
		c->stale = true;
	}
	credentials_role_clear(&c->role);
	c->role = profile.role;
	profile.role = (struct credentials_role){ 0 };
	credentials_profile_clear(&profile);
	return 0;
}

/* The last callback. On the wait's loop, no lock held. */
static void deliver(struct credentials_wait *wait)
{
	struct credentials *c = wait->credentials;
	struct origin_result result = { 0 };

	pthread_mutex_lock(&c->lock);
	if (!wait->error && credentials_keys_copy(wait->ret_keys, &c->keys)) {
		wait->error = -ENOMEM;
		wait->transient = true;
		snprintf(wait->message, sizeof(wait->message), "out of memory");
	}
	pthread_mutex_unlock(&c->lock);
	if (wait->error) {
		result.error = wait->error;
		result.transient = wait->transient;
		result.message = wait->message;
	}
	wait->done(wait->arg, &result);
	free(wait);
}

static void run_free(struct credentials_run *run)
{
	credentials_role_clear(&run->role);
	credentials_text_free(run->token);
	free(run);
}

/* Puts the outcome into credentials, and says in the log what nobody else is told. */
static void take_outcome(struct credentials *c, struct credentials_outcome *outcome)
{
	int64_t now = time(NULL);

	if (!outcome->error && outcome->keys.expires && outcome->keys.expires <= now) {
		credential_keys_clear(&outcome->keys);
		credentials_fail(outcome, -EIO, true, "the keys that came have expired already");
	}
	if (!outcome->error) {
		if (c->failing)
			log_info("%s: credentials are renewed again", c->identity);
		log_debug("%s: credentials for %lld s", c->identity,
			  outcome->keys.expires ? (long long)(outcome->keys.expires - now) : 0);
		credential_keys_clear(&c->keys);
		c->keys = outcome->keys;
		outcome->keys = (struct credential_keys){ 0 };
		c->lifetime = c->keys.expires ? c->keys.expires - now : 0;
		c->absent = false;
		c->stale = false;
		c->failing = false;
		c->again_ns = 0;
		if (c->forcing)
			c->forced_ns = loop_now_ns();
		c->forcing = false;
		return;
	}
	if (outcome->absent && !c->keys.access_key) {
		if (!c->absent)
			log_info("no credentials: %s; requests go unsigned", outcome->message);
		c->absent = true;
		c->again_ns = loop_now_ns() + ABSENT_NS;
		outcome->error = 0;
		return;
	}
	c->again_ns = loop_now_ns() + AGAIN_NS;
	if (!c->failing && keys_good(c) && c->keys.expires)
		log_warn("%s: credentials cannot be renewed: %s; those that there are end in %lld s",
			 c->identity, outcome->message, (long long)(c->keys.expires - now));
	else if (!c->failing)
		log_warn("%s: no credentials: %s", c->identity, outcome->message);
	c->failing = true;
}

static void settle(const struct credentials *c, struct credentials_wait *wait,
		   const struct credentials_outcome *outcome)
{
	if (!outcome->error || (keys_good(c) && !wait->forced))
		return;
	wait->error = outcome->error;
	wait->transient = outcome->transient;
	memcpy(wait->message, outcome->message, sizeof(wait->message));
}

/* deferred: the leader's callback is not made from here. */
static void end(struct credentials *c, struct credentials_wait *leader,
		struct credentials_outcome *outcome, bool deferred)
{
	struct credentials_wait *wait, *next;

	pthread_mutex_lock(&c->lock);
	take_outcome(c, outcome);
	wait = TAKE(c->waiters);
	c->leader = NULL;
	settle(c, leader, outcome);
	leader->posted = deferred;
	for (struct credentials_wait *w = wait; w; w = w->next) {
		settle(c, w, outcome);
		w->posted = true;
	}
	/* From then on each is its own loop's; the list is gone with the first. */
	for (; wait; wait = next) {
		next = wait->next;
		loop_post(wait->loop, &wait->task);
	}
	pthread_mutex_unlock(&c->lock);
	if (deferred)
		loop_post(leader->loop, &leader->task);
	else
		deliver(leader);
}

void credentials_run_end(struct credentials_run *run, struct credentials_outcome *outcome)
{
	struct credentials *c = run->credentials;
	struct credentials_wait *leader = run->leader;
	bool changed;

	pthread_mutex_lock(&c->lock);
	changed = !role_equal(&run->role, &c->role);
	pthread_mutex_unlock(&c->lock);
	run_free(run);
	leader->run = NULL;
	if (changed) {
		credential_keys_clear(&outcome->keys);
		credentials_fail(outcome, -EIO, true, "the profile has changed meanwhile");
	}
	end(c, leader, outcome, false);
}

/* The leader asks. On its loop, no lock held. */
static void ask(struct credentials_wait *leader)
{
	struct credentials *c = leader->credentials;
	struct credentials_run *run = calloc(1, sizeof(*run));
	struct credentials_outcome outcome = { 0 };
	int err = run ? 0 : -ENOMEM;

	if (!err) {
		SCOPED_LOCK(&c->lock);

		run->credentials = c;
		run->loop = leader->loop;
		run->leader = leader;
		err = credentials_role_copy(&run->role, &c->role);
	}
	if (err) {
		credentials_fail(&outcome, err, true, "out of memory");
	} else {
		leader->run = run;
		if (run->role.arn)
			err = credentials_sts_start(run, &outcome);
		else if (c->kind == CREDENTIALS_CONTAINER)
			err = credentials_container_start(run, &outcome);
		else
			err = credentials_instance_start(run, &outcome);
	}
	if (!err)
		return;
	leader->run = NULL;
	if (run)
		run_free(run);
	end(c, leader, &outcome, true);
}

static void on_task(struct loop_task *task)
{
	struct credentials_wait *wait = container_of(task, struct credentials_wait, task);
	struct credentials *c = wait->credentials;
	bool leads;

	/* The credentials may be gone by now. */
	if (wait->cancelled) {
		free(wait);
		return;
	}
	pthread_mutex_lock(&c->lock);
	wait->posted = false;
	leads = c->leader == wait;
	pthread_mutex_unlock(&c->lock);
	if (leads)
		ask(wait);
	else
		deliver(wait);
}

/* Joins those who wait, as the leader if there is none. Lock held. */
static struct credentials_wait *join(struct credentials *c, struct loop *loop, bool forced)
{
	struct credentials_wait *wait = calloc(1, sizeof(*wait));

	if (!wait)
		return NULL;
	wait->credentials = c;
	wait->loop = loop;
	wait->task.run = on_task;
	wait->forced = forced;
	if (!c->leader) {
		c->leader = wait;
	} else {
		wait->next = c->waiters;
		c->waiters = wait;
	}
	return wait;
}

/* Whether keys that were refused can be asked for anew. Lock held. */
static bool may_force(struct credentials *c)
{
	uint64_t now = loop_now_ns();

	if (!can_ask(c))
		return false;
	if ((c->absent && now < c->again_ns) || (c->forced_ns && now - c->forced_ns < FORCED_NS))
		return false;
	c->forcing = true;
	return true;
}

int credentials_get(struct credentials *c, struct loop *loop, const struct credential_keys *refused,
		    struct credential_keys *ret_keys, credentials_fn done, void *arg,
		    struct credentials_wait **ret_wait)
{
	struct credentials_wait *wait;
	bool forced = false, leads;

	pthread_mutex_lock(&c->lock);
	if (read_profile(c, refused != NULL)) {
		pthread_mutex_unlock(&c->lock);
		return -ENOMEM;
	}
	forced = refused && keys_equal(refused, &c->keys);
	if (forced && !may_force(c)) {
		pthread_mutex_unlock(&c->lock);
		return -EACCES;
	}
	if (!forced) {
		enum need need = need_of(c);

		if (need == NEED_NOTHING || (need == NEED_SOON && c->leader)) {
			int err = credentials_keys_copy(ret_keys, &c->keys);

			pthread_mutex_unlock(&c->lock);
			return err;
		}
	}
	wait = join(c, loop, forced);
	leads = wait && c->leader == wait;
	if (wait) {
		wait->done = done;
		wait->arg = arg;
		wait->ret_keys = ret_keys;
	}
	pthread_mutex_unlock(&c->lock);
	if (!wait)
		return -ENOMEM;
	*ret_wait = wait;
	if (leads)
		ask(wait);
	return -EINPROGRESS;
}

void credentials_cancel(struct credentials_wait *wait)
{
	struct credentials *c = wait->credentials;
	struct credentials_wait **link;
	bool posted;

	pthread_mutex_lock(&c->lock);
	posted = wait->posted;
	if (c->leader == wait) {
		struct credentials_wait *next = c->waiters;

		c->leader = next;
		if (next) {
			c->waiters = next->next;
			next->posted = true;
			loop_post(next->loop, &next->task);
		}
	} else if (!posted) {
		for (link = &c->waiters; *link != wait; link = &(*link)->next)
			;
		*link = wait->next;
	}
	pthread_mutex_unlock(&c->lock);
	if (wait->run) {
		if (wait->run->http)
			credentials_http_cancel(wait->run->http);
		run_free(wait->run);
		wait->run = NULL;
	}
	/* Its task will free it. */
	if (posted)
		wait->cancelled = true;
	else
		free(wait);
}
