/* SPDX-License-Identifier: MIT */
/* server_impl: what the control socket's files share. Not for others. */
#ifndef WFS_SERVER_IMPL_H
#define WFS_SERVER_IMPL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "ask.h"
#include "core.h"
#include "digest.h"
#include "kernel.h"
#include "server.h"

#define SERVER_MESSAGE 512

struct connection {
	struct connection *next;
	struct server *server;
	pthread_t thread;
	int fd;
	bool ended;   /* server->lock: the thread can be joined */
	bool broken;  /* nobody reads what is sent */
	char *upload; /* text that comes in parts, allocated */
	size_t upload_len;
};

struct server {
	struct core *core;
	struct kernel *kernel; /* NULL: --no-kernel */
	struct asker *asker;
	char *path;
	dev_t dev; /* with ino: which socket has that path */
	ino_t ino;
	int fd;
	int stop_fd; /* an eventfd */
	pthread_t thread;
	bool running;
	_Atomic bool stopping;
	pthread_mutex_t lock;
	struct connection *connections;
	unsigned int connection_count;
};

/* Reads requests, a line each, and answers them, until the other side has ended. */
void server_talk(struct connection *connection);
/* Sends a line; takes the reference. Sets connection->broken if nobody listens. */
void server_send(struct connection *connection, json_t *line);
/* The same for what is on its way: {"progress": ...}. */
void server_progress(struct connection *connection, json_t *progress);
/* A name may be no UTF-8, or would break a line on a terminal: that is made '?'. */
void server_printable(char *text);

/*
 * One command. 0: *ret_result is what is sent beside "ok" (or NULL); -errno with a
 * sentence.
 */
typedef int (*server_command_fn)(struct connection *connection, const json_t *request,
				 json_t **ret_result, char *msg, size_t msg_size);
server_command_fn server_command(const char *name);

/*
 * The store and the origin of a command about what is cached, which names a mount, or a source
 * with options. A reference, or -errno with a sentence.
 */
int server_cached(struct connection *connection, const json_t *request, struct store **ret_store,
		  struct origin **ret_origin, char *msg, size_t msg_size);

/* The source that a command names, or that its mount has; allocated. */
int server_source(struct connection *connection, const json_t *request, char **ret, char *msg,
		  size_t msg_size);

/* server_profile: `wfs profile`. */
int profile_save(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size);
/* A part of the text for profile_load(), which is longer than a line may be. */
int profile_part(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size);
int profile_load(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size);
int profile_list(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size);
int profile_drop(struct connection *connection, const json_t *request, json_t **ret_result,
		 char *msg, size_t msg_size);

/* job: `wfs fetch`. */
int job_fetch(struct connection *connection, const json_t *request, json_t **ret_result, char *msg,
	      size_t msg_size);
/*
 * Source and name of the directory that a source lies in, allocated (with an error too).
 * -EINVAL: it lies in none.
 */
int job_split(const char *source, char **ret_parent, char **ret_name);
/* "digest" of a request: ALGORITHM:HEX, if there is one. -EINVAL. */
int job_given(const json_t *request, struct digest *ret, bool *ret_given);

/* verify: `wfs verify`. */
int verify_run(struct connection *connection, const json_t *request, json_t **ret_result, char *msg,
	       size_t msg_size);

/* report: `wfs stat`. */
json_t *report_json(struct core *core, struct kernel *kernel);
/* How blocks of a file that is open were used, NULL path: of all the origin's; {} if not known. */
json_t *report_usage(struct core *core, struct origin *origin, const char *path,
		     const struct origin_attr *attr, uint32_t block_size);

#endif /* WFS_SERVER_IMPL_H */
