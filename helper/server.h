/* SPDX-License-Identifier: MIT */
/*
 * server: the control socket. JSON lines: one request a line, answered by any number
 * of lines that say what comes, then one with "ok" or "error".
 */
#ifndef WFS_SERVER_H
#define WFS_SERVER_H

#include <stddef.h>

struct config;
struct core;
struct kernel;
struct server;

/* Binds the socket. kernel may be NULL. */
int server_create(const struct config *config, struct core *core, struct kernel *kernel,
		  struct server **ret, char *msg, size_t msg_size);
int server_start(struct server *server);
/* Takes no more requests and ends those under way. */
void server_stop(struct server *server);
/* After core_stop(), which ends what requests may wait for. */
void server_destroy(struct server *server);

#endif /* WFS_SERVER_H */
