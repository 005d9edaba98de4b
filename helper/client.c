// SPDX-License-Identifier: MIT
/*
 * client: asks the daemon over its control socket.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "config.h"
#include "command.h"

struct client {
	FILE *file;
	bool quiet; /* says nothing of what goes wrong */
};

static const char *client_socket;

void client_set_socket(const char *path)
{
	client_socket = path;
}

static const char *client_path(void)
{
	const char *path = client_socket ? client_socket : getenv("WFS_SOCKET");

	return path && *path ? path : CONFIG_SOCKET;
}

bool client_may_ask(void)
{
	return !access(client_path(), W_OK);
}

/* A connection, or -errno. */
static int client_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, err;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static int client_create(int fd, bool quiet, struct client **ret)
{
	struct client *client = calloc(1, sizeof(*client));

	if (client)
		client->file = fdopen(fd, "r+");
	if (!client || !client->file) {
		free(client);
		close(fd);
		return -ENOMEM;
	}
	client->quiet = quiet;
	*ret = client;
	return 0;
}

int client_open(struct client **ret)
{
	const char *path = client_path();
	int fd = client_connect(path), err;

	err = fd < 0 ? fd : client_create(fd, false, ret);
	if (err == -ENOENT || err == -ECONNREFUSED) {
		failed("no daemon is running (nobody serves %s): start wfsd", path);
		return WFS_EXIT_NO_DAEMON;
	}
	return err ? failed("cannot reach the daemon at %s: %s%s", path, strerror(-err),
			    err == -EACCES ? "; root may, and the group of the socket" : "") :
		     0;
}

int client_try(struct client **ret)
{
	int fd = client_connect(client_path());

	return fd < 0 || client_create(fd, true, ret) ? WFS_EXIT_NO_DAEMON : 0;
}

void client_close(struct client *client)
{
	if (!client)
		return;
	fclose(client->file);
	free(client);
}

int client_ask(struct client *client, json_t *request, client_line_fn line, void *arg, json_t **ret)
{
	cleanup_free char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	cleanup_free char *buffer = NULL;
	size_t size = 0;

	json_decref(request);
	if (!text)
		return failed("the request cannot be written as JSON (a name that is no UTF-8?)");
	if (fprintf(client->file, "%s\n", text) < 0 || fflush(client->file)) {
		if (!client->quiet)
			failed("the daemon has gone");
		return WFS_EXIT_NO_DAEMON;
	}
	while (getline(&buffer, &size, client->file) > 0) {
		json_error_t error;
		json_t *answer = json_loads(buffer, 0, &error);
		int status = WFS_EXIT_FAILED;
		const char *sentence;

		if (!answer)
			return failed("the daemon's answer is not understood");
		sentence = json_string_value(json_object_get(answer, "error"));
		if (sentence) {
			progress_end();
			if (!client->quiet)
				failed("%s", sentence);
			/* A directory where one object is wanted. */
			if (json_integer_value(json_object_get(answer, "errno")) == EISDIR)
				status = WFS_EXIT_USAGE;
			json_decref(answer);
			return status;
		}
		if (json_is_true(json_object_get(answer, "ok"))) {
			if (ret)
				*ret = answer;
			else
				json_decref(answer);
			return 0;
		}
		if (line)
			line(arg, answer);
		json_decref(answer);
	}
	progress_end();
	if (!client->quiet)
		failed("the daemon has gone in the middle of it");
	return WFS_EXIT_NO_DAEMON;
}

int client_request(json_t *request, client_line_fn line, void *arg, json_t **ret)
{
	struct client *client = NULL;
	int status = client_open(&client);

	if (status)
		json_decref(request);
	else
		status = client_ask(client, request, line, arg, ret);
	client_close(client);
	return status;
}
