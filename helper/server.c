// SPDX-License-Identifier: MIT
/*
 * server: accepts connections, a thread for each, and reads requests.
 */
#include "server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "config.h"
#include "events.h"
#include "server_impl.h"

#define LOG_AREA "server"
#include "log.h"

#define SERVER_CONNECTIONS 32
#define SERVER_LINE_MAX	   65536

static int server_mkdir(const struct sockaddr_un *address)
{
	char dir[sizeof(address->sun_path)];
	char *slash;

	memcpy(dir, address->sun_path, sizeof(dir));
	slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return 0;
	*slash = '\0';
	if (mkdir(dir, 0755) && errno != EEXIST)
		return -errno;
	return 0;
}

/* Is somebody serving this socket? A process that is stopped may have a full queue: EAGAIN. */
static bool server_alive(const struct sockaddr_un *address)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd >= 0 && (!connect(fd, (const struct sockaddr *)address, sizeof(*address)) ||
			   errno == EAGAIN);
}

/* Takes the socket's name away, unless another daemon has put its own there. */
static void server_unlink(const struct server *server)
{
	struct stat st;

	if (!lstat(server->path, &st) && st.st_dev == server->dev && st.st_ino == server->ino)
		unlink(server->path);
}

int server_create(const struct config *config, struct core *core, struct kernel *kernel,
		  struct server **ret, char *msg, size_t msg_size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct server *server = calloc(1, sizeof(*server));
	struct stat st;
	int err;

	if (!server)
		return -ENOMEM;
	server->core = core;
	server->kernel = kernel;
	server->fd = -1;
	server->stop_fd = -1;
	pthread_mutex_init(&server->lock, NULL);
	err = asker_create(core, &server->asker);
	if (!err && strlen(config->socket) >= sizeof(address.sun_path))
		err = -ENAMETOOLONG;
	if (!err) {
		memcpy(address.sun_path, config->socket, strlen(config->socket) + 1);
		err = server_mkdir(&address);
	}
	if (!err) {
		server->stop_fd = eventfd(0, EFD_CLOEXEC);
		server->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		err = server->fd < 0 || server->stop_fd < 0 ? -errno : 0;
	}
	if (!err && server_alive(&address))
		err = -EADDRINUSE;
	if (!err) {
		/* What a daemon left behind that was killed. */
		unlink(config->socket);
		err = bind(server->fd, (struct sockaddr *)&address, sizeof(address)) ||
				      listen(server->fd, 16) ?
			      -errno :
			      0;
	}
	/* To its group, too: of wfs, for the daemon of the unit. */
	if (!err && chmod(config->socket, 0660))
		err = -errno;
	if (!err && !lstat(config->socket, &st)) {
		server->dev = st.st_dev;
		server->ino = st.st_ino;
		server->path = strdup(config->socket);
		err = server->path ? 0 : -ENOMEM;
	}
	if (err) {
		snprintf(msg, msg_size, "cannot serve the control socket %s: %s", config->socket,
			 err == -EADDRINUSE ? "another wfsd serves it" : strerror(-err));
		server_destroy(server);
		return err;
	}
	*ret = server;
	return 0;
}

void server_send(struct connection *connection, json_t *line)
{
	cleanup_free char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
	size_t len, done = 0;

	json_decref(line);
	if (!text || connection->broken) {
		connection->broken = true;
		return;
	}
	len = strlen(text);
	/* Ends with a line feed in place of the NUL. */
	text[len++] = '\n';
	while (done < len) {
		ssize_t n = send(connection->fd, text + done, len - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			connection->broken = true;
			return;
		}
		done += (size_t)n;
	}
}

void server_printable(char *text)
{
	json_t *json = json_string(text);

	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127 || (!json && (unsigned char)*c > 127))
			*c = '?';
	json_decref(json);
}

void server_progress(struct connection *connection, json_t *progress)
{
	server_send(connection, json_pack("{s:o}", "progress", progress));
}

static json_t *server_error(char *msg, int err)
{
	json_t *line = json_pack("{s:s, s:i}", "error", msg, "errno", -err);

	if (line)
		return line;
	/* A name that is no UTF-8, or was cut off in the middle of a character. */
	for (char *c = msg; *c; c++)
		if ((unsigned char)*c > 127)
			*c = '?';
	return json_pack("{s:s, s:i}", "error", msg, "errno", -err);
}

static void server_request(struct connection *connection, const char *line)
{
	char msg[SERVER_MESSAGE] = "";
	json_error_t error;
	json_t *request = json_loads(line, JSON_REJECT_DUPLICATES, &error), *result = NULL;
	const char *name = json_string_value(json_object_get(request, "command"));
	server_command_fn command = name ? server_command(name) : NULL;
	int err;

	if (!command) {
		snprintf(msg, sizeof(msg), "the request is not understood");
		err = -EINVAL;
	} else {
		err = command(connection, request, &result, msg, sizeof(msg));
	}
	json_decref(request);
	if (err) {
		json_decref(result);
		if (!*msg)
			snprintf(msg, sizeof(msg), "%s", strerror(-err));
		server_send(connection, server_error(msg, err));
		return;
	}
	if (!result)
		result = json_object();
	json_object_set_new(result, "ok", json_true());
	server_send(connection, result);
}

void server_talk(struct connection *connection)
{
	struct server *server = connection->server;
	cleanup_free char *line = malloc(SERVER_LINE_MAX);
	size_t used = 0;

	while (line && !connection->broken && !server->stopping) {
		char *end;
		ssize_t n = recv(connection->fd, line + used, SERVER_LINE_MAX - 1 - used, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
		line[used] = '\0';
		while ((end = memchr(line, '\n', used))) {
			*end = '\0';
			server_request(connection, line);
			used -= (size_t)(end + 1 - line);
			memmove(line, end + 1, used + 1);
		}
		if (used == SERVER_LINE_MAX - 1)
			break;
	}
	free(TAKE(connection->upload));
}

static void *server_connection(void *arg)
{
	struct connection *connection = arg;
	struct server *server = connection->server;

	server_talk(connection);
	pthread_mutex_lock(&server->lock);
	connection->ended = true;
	pthread_mutex_unlock(&server->lock);
	return NULL;
}

/* Joins the threads that have ended; with all, waits for the others. */
static void server_join(struct server *server, bool all)
{
	struct connection **link, *connection;

	pthread_mutex_lock(&server->lock);
	for (link = &server->connections; (connection = *link);) {
		if (!connection->ended && !all) {
			link = &connection->next;
			continue;
		}
		*link = connection->next;
		server->connection_count--;
		pthread_mutex_unlock(&server->lock);
		pthread_join(connection->thread, NULL);
		close(connection->fd);
		free(connection);
		pthread_mutex_lock(&server->lock);
		link = &server->connections;
	}
	pthread_mutex_unlock(&server->lock);
}

static void server_accept(struct server *server)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0 || !connection || server->connection_count >= SERVER_CONNECTIONS) {
		if (fd >= 0)
			close(fd);
		free(connection);
		return;
	}
	connection->server = server;
	connection->fd = fd;
	pthread_mutex_lock(&server->lock);
	if (pthread_create(&connection->thread, NULL, server_connection, connection)) {
		close(fd);
		free(connection);
	} else {
		connection->next = server->connections;
		server->connections = connection;
		server->connection_count++;
	}
	pthread_mutex_unlock(&server->lock);
}

static void *server_thread(void *arg)
{
	struct server *server = arg;
	struct pollfd fds[2] = {
		{ .fd = server->fd, .events = POLLIN },
		{ .fd = server->stop_fd, .events = POLLIN },
	};

	while (!server->stopping) {
		if (poll(fds, 2, 1000) > 0 && (fds[0].revents & POLLIN))
			server_accept(server);
		server_join(server, false);
	}
	return NULL;
}

int server_start(struct server *server)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = -pthread_create(&server->thread, NULL, server_thread, server);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	server->running = !err;
	return err;
}

void server_stop(struct server *server)
{
	uint64_t one = 1;

	server->stopping = true;
	events_wake();
	if (server->running) {
		if (write(server->stop_fd, &one, sizeof(one)) < 0)
			log_warn("the control socket stops with its next look");
		pthread_join(server->thread, NULL);
		server->running = false;
	}
	if (server->path)
		server_unlink(server);
	asker_cancel(server->asker);
	pthread_mutex_lock(&server->lock);
	for (struct connection *c = server->connections; c; c = c->next)
		if (!c->ended)
			shutdown(c->fd, SHUT_RDWR);
	pthread_mutex_unlock(&server->lock);
}

void server_destroy(struct server *server)
{
	if (!server)
		return;
	server_join(server, true);
	if (server->fd >= 0)
		close(server->fd);
	if (server->stop_fd >= 0)
		close(server->stop_fd);
	asker_destroy(server->asker);
	pthread_mutex_destroy(&server->lock);
	free(server->path);
	free(server);
}
