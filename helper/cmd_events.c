// SPDX-License-Identifier: MIT
/*
 * wfs events: what the kernel tells, and what the daemon finds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "control.h"
#include "command.h"

/* How often a daemon that is not there is looked for. */
#define EVENTS_LOOK_S 1

/* One line at a time: the kernel and the daemon are followed by a thread each. */
static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;

static void events_stamp(time_t when, char stamp[32])
{
	struct tm tm;

	stamp[0] = '\0';
	if (gmtime_r(&when, &tm))
		strftime(stamp, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* Takes the reference. False: nobody reads it. */
static bool events_json(json_t *line)
{
	if (line)
		json_dumpf(line, stdout, JSON_COMPACT);
	json_decref(line);
	putchar('\n');
	return !fflush(stdout);
}

static bool events_kernel_one(void *arg, const struct control_event *event)
{
	const struct options *options = arg;
	char stamp[32];

	SCOPED_LOCK(&events_lock);
	events_stamp(time(NULL), stamp);
	if (options->json)
		return events_json(json_pack("{s:s, s:s, s:I, s:I, s:s?, s:s?}", "time", stamp,
					     "event", control_event_name(event->event), "mount",
					     (json_int_t)event->mount, "session",
					     (json_int_t)event->session, "path", event->path,
					     "text", event->text));
	printf("%s %s", stamp, control_event_name(event->event));
	if (event->mount)
		printf(" mount=%llu", (unsigned long long)event->mount);
	if (event->session)
		printf(" session=%llu", (unsigned long long)event->session);
	if (event->path)
		printf(" path=%s", event->path);
	if (event->text)
		printf(" %s", event->text);
	putchar('\n');
	/* Whoever reads has gone: so do we. */
	return !fflush(stdout);
}

static const char *events_member(const json_t *event, const char *key)
{
	const char *text = json_string_value(json_object_get(event, key));

	return text ? text : "";
}

static void events_daemon_one(void *arg, const json_t *line)
{
	const json_t *event = json_object_get(line, "event");
	const struct options *options = arg;
	char stamp[32];
	bool read = true;

	SCOPED_LOCK(&events_lock);
	events_stamp(event ? (time_t)json_integer_value(json_object_get(event, "time")) :
			     time(NULL),
		     stamp);
	if (options->json && event)
		read = events_json(json_pack("{s:s, s:s, s:s, s:s, s:s}", "time", stamp, "event",
					     events_member(event, "event"), "source",
					     events_member(event, "source"), "path",
					     events_member(event, "path"), "text",
					     events_member(event, "text")));
	else if (options->json && json_object_get(line, "lost"))
		read = events_json(json_pack("{s:s, s:s}", "time", stamp, "event", "lost"));
	else if (event)
		printf("%s %s source=%s path=%s %s\n", stamp, events_member(event, "event"),
		       events_member(event, "source"), events_member(event, "path"),
		       events_member(event, "text"));
	else if (json_object_get(line, "lost"))
		printf("%s lost\n", stamp);
	if (!read || fflush(stdout))
		exit(0);
}

/* Follows the daemon until it goes; an exit status. */
static int events_daemon(struct options *options)
{
	struct client *client;
	int status = client_try(&client);

	if (status)
		return status;
	status = client_ask(client, json_pack("{s:s}", "command", "events"), events_daemon_one,
			    options, NULL);
	client_close(client);
	return status;
}

/* Whichever daemon there is, now or later. */
static void *events_daemons(void *arg)
{
	/* One that does not know what events are is not asked for ever. */
	while (events_daemon(arg) == WFS_EXIT_NO_DAEMON)
		sleep(EVENTS_LOOK_S);
	return NULL;
}

static int events_kernel(struct control *control, struct options *options)
{
	int err = control_events(control, events_kernel_one, options);

	if (err == -EPERM || err == -EACCES)
		return failed(
			"events name files, so that only root may follow them (CAP_NET_ADMIN)");
	return err ? failed("events cannot be followed: %s", strerror(-err)) : 0;
}

static int events_run(const struct command *command, int argc, char **argv)
{
	struct control *control = NULL;
	struct options options;
	pthread_t thread;
	int first, status, err;

	status = options_parse(command, argc, argv, "", 0, 0, &options, &first);
	if (status >= 0)
		return status;
	err = control_open(&control);
	/* A daemon without the kernel is followed as long as it is there. */
	if (err == -ENOENT && client_may_ask()) {
		status = events_daemon(&options);
		if (status == WFS_EXIT_NO_DAEMON)
			failed("the daemon has gone");
		return status;
	}
	if (err)
		return no_control(err);
	if (pthread_create(&thread, NULL, events_daemons, &options)) {
		control_close(control);
		return failed("cannot make a thread to follow the daemon with");
	}
	status = events_kernel(control, &options);
	control_close(control);
	/* The thread goes with the process: it has nothing that is to be kept. */
	exit(status);
}

const struct command command_events = {
	.name = "events",
	.args = "[--json]",
	.summary = "follow events, one a line",
	.help = "Mounts and unmounts, sessions of the daemon, blocks that failed their check,\n"
		"requests that timed out, names served past their time; and what the daemon\n"
		"finds wrong with the cache. Until interrupted.\n",
	.run = events_run,
};
