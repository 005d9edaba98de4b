// SPDX-License-Identifier: MIT
#include "order.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "order_impl.h"

#define LOG_AREA "order"
#include "log.h"

/* What the thread has not come to yet; beyond, something of an order is lost. */
#define ORDER_NOTES_MAX 8192
/* A model that nothing is needed of for so long has been loaded. */
#define ORDER_IDLE_NS 60000000000ULL
/* Marks are kept for a reader that goes on: not for one that has needed nothing for so long. */
#define ORDER_MARKS_NS 5000000000ULL
/* How often that is looked at; and, while marks are kept, whether memory is short. */
#define ORDER_LOOK_MS  1000
#define ORDER_MARKS_MS 100

int order_create(struct core *core, struct order **ret)
{
	struct order *order = calloc(1, sizeof(*order));
	pthread_condattr_t attr;
	int err;

	if (!order)
		return -ENOMEM;
	order->core = core;
	order->notes_end = &order->notes;
	order->calls_end = &order->calls;
	err = asker_create(core, &order->asker);
	if (err) {
		free(order);
		return err;
	}
	pthread_mutex_init(&order->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&order->changed, &attr);
	pthread_cond_init(&order->called, NULL);
	pthread_condattr_destroy(&attr);
	*ret = order;
	return 0;
}

static void order_note_free(struct order_note *note)
{
	object_unref(note->object);
	free(note);
}

void order_destroy(struct order *order)
{
	if (!order)
		return;
	while (order->notes) {
		struct order_note *note = order->notes;

		order->notes = note->next;
		order_note_free(note);
	}
	while (order->calls) {
		struct order_call *call = order->calls;

		order->calls = call->next;
		free(call->text);
		free(call);
	}
	asker_destroy(order->asker);
	pthread_cond_destroy(&order->called);
	pthread_cond_destroy(&order->changed);
	pthread_mutex_destroy(&order->lock);
	free(order);
}

void order_wake(void *arg)
{
	struct order *order = arg;

	SCOPED_LOCK(&order->lock);
	order->woken = true;
	pthread_cond_signal(&order->changed);
}

void order_needed(struct order *order, struct object *object, const struct order_asked *asked)
{
	struct order_note *note;

	/* What is not kept cannot be brought ahead. */
	if (!order || !object->file)
		return;
	note = calloc(1, sizeof(*note));
	if (!note)
		return;
	note->object = object_ref(object);
	note->asked = *asked;
	pthread_mutex_lock(&order->lock);
	if (order->running && !order->stop && order->note_count < ORDER_NOTES_MAX) {
		*order->notes_end = note;
		order->notes_end = &note->next;
		order->note_count++;
		pthread_cond_signal(&order->changed);
		note = NULL;
	}
	pthread_mutex_unlock(&order->lock);
	if (note)
		order_note_free(note);
}

/* Whoever calls does not wait for an origin: the thread stops asking it. order->lock held. */
static void order_interrupt(struct order *order)
{
	asker_cancel(order->asker);
	pthread_cond_signal(&order->changed);
}

/* order->lock held. */
static void order_call(struct order *order, struct order_call *call)
{
	*order->calls_end = call;
	order->calls_end = &call->next;
	order_interrupt(order);
}

bool order_settle(struct order *order, const char *identity, const char *dir,
		  enum order_settle what)
{
	struct order_call call = { .what = what, .identity = identity, .dir = dir };

	if (!order)
		return false;
	SCOPED_LOCK(&order->lock);
	if (!order->running || order->stop)
		return false;
	/* The thread takes it off the list before it says that it is done. */
	/* cppcheck-suppress autoVariables */
	order_call(order, &call);
	while (!call.done)
		pthread_cond_wait(&order->called, &order->lock);
	return call.busy;
}

void order_unmounted(struct order *order, const char *identity)
{
	struct order_call *call = order ? calloc(1, sizeof(*call)) : NULL;

	if (!call)
		return;
	call->what = ORDER_CLOSE;
	call->text = strdup(identity);
	call->identity = call->text;
	call->dir = "";
	pthread_mutex_lock(&order->lock);
	if (call->text && order->running && !order->stop) {
		order_call(order, call);
		call = NULL;
	}
	pthread_mutex_unlock(&order->lock);
	if (call) {
		free(call->text);
		free(call);
	}
}

void order_hurry(struct order *order, bool hurry)
{
	if (!order)
		return;
	SCOPED_LOCK(&order->lock);
	order->hurry += hurry ? 1 : -1;
	order->woken = true;
	if (hurry)
		order_interrupt(order);
	else
		pthread_cond_signal(&order->changed);
}

/* ---- the thread ---- */

static void order_close(struct load **link, bool keep)
{
	struct load *load = *link;

	*link = load->next;
	if (keep)
		load_keep(load);
	load_free(load);
}

/* The load that the note is about; it moves to the front. */
static struct load *order_load(struct order *order, const struct order_note *note)
{
	struct load **link = &order->loads, *load;
	unsigned int count = 0;

	for (; (load = *link) && !load_of(load, note->object); link = &load->next)
		if (++count == ORDER_LOADS_MAX && !note->asked.advice) {
			/* The one that was needed least lately. */
			order_close(link, true);
			load = NULL;
			break;
		}
	if (load)
		*link = load->next;
	else if (note->asked.advice || load_create(order, note->object, &load))
		return NULL;
	load->next = order->loads;
	order->loads = load;
	return load;
}

static void order_take(struct order *order, struct order_note *notes)
{
	uint64_t now = counter_now();

	while (notes) {
		struct order_note *note = notes;
		struct load *load = order_load(order, note);

		notes = note->next;
		if (load) {
			if (!note->asked.advice)
				load->noted_ns = now;
			load_needed(load, note);
		}
		order_note_free(note);
	}
}

static void order_answer(struct order *order, struct order_call *call)
{
	for (struct load **link = &order->loads; *link;) {
		struct load *load = *link;

		if (load_is(load, call->identity, call->dir)) {
			if (call->what != ORDER_KEEP) {
				call->busy = call->busy || load_is_busy(load);
				order_close(link, call->what == ORDER_CLOSE);
				continue;
			}
			load_keep(load);
		}
		link = &load->next;
	}
	if (call->text) {
		free(call->text);
		free(call);
		return;
	}
	SCOPED_LOCK(&order->lock);
	call->done = true;
	pthread_cond_broadcast(&order->called);
}

/* Waits until there is something to do. order->lock held. */
static void order_wait(struct order *order, bool marks)
{
	struct timespec until;
	unsigned int ms = marks ? ORDER_MARKS_MS : ORDER_LOOK_MS;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (!err && !order->notes && !order->calls && !order->woken && !order->stop)
		err = order->loads ? pthread_cond_timedwait(&order->changed, &order->lock, &until) :
				     pthread_cond_wait(&order->changed, &order->lock);
	order->woken = false;
}

static bool order_is_starved(struct order *order)
{
	SCOPED_LOCK(&order->core->lock);
	return order->core->starved_ns != 0;
}

static bool order_turn(struct order *order, bool *marks)
{
	struct order_note *notes;
	struct order_call *calls;
	bool stop, keep;
	uint64_t now;

	pthread_mutex_lock(&order->lock);
	order_wait(order, *marks);
	notes = TAKE(order->notes);
	order->notes_end = &order->notes;
	order->note_count = 0;
	calls = TAKE(order->calls);
	order->calls_end = &order->calls;
	keep = !order->hurry;
	stop = order->stop;
	/* While somebody waits for blocks to settle, what has come is let go of at once. */
	if (keep && !stop)
		asker_resume(order->asker);
	pthread_mutex_unlock(&order->lock);

	order_take(order, notes);
	while (calls) {
		struct order_call *call = calls;

		calls = call->next;
		order_answer(order, call);
	}
	keep = keep && !order_is_starved(order);
	now = counter_now();
	for (struct load **link = &order->loads; *link;) {
		struct load *load = *link;

		if (stop || now - load->noted_ns >= ORDER_IDLE_NS) {
			order_close(link, true);
			continue;
		}
		ahead_mark(load, keep && now - load->noted_ns < ORDER_MARKS_NS);
		link = &load->next;
	}
	/* May wait for an origin, which is no reason to keep marks. */
	for (struct load *load = order->loads; load; load = load->next)
		ahead_pump(load);
	*marks = false;
	for (const struct load *load = order->loads; load; load = load->next)
		*marks = *marks || ahead_has_marks(load);
	return !stop;
}

static void *order_thread(void *arg)
{
	bool marks = false;

	while (order_turn(arg, &marks))
		;
	return NULL;
}

int order_start(struct order *order)
{
	sigset_t all, old;
	int err;

	/* Signals are for the main thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = -pthread_create(&order->thread, NULL, order_thread, order);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	SCOPED_LOCK(&order->lock);
	order->running = !err;
	return err;
}

void order_stop(struct order *order)
{
	bool running;

	if (!order)
		return;
	pthread_mutex_lock(&order->lock);
	running = order->running && !order->stop;
	order->stop = true;
	order_interrupt(order);
	pthread_mutex_unlock(&order->lock);
	if (!running)
		return;
	pthread_join(order->thread, NULL);
}
