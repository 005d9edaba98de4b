/* SPDX-License-Identifier: MIT */
/* wfs: what the commands of the command line share. */
#ifndef WFS_COMMAND_H
#define WFS_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <wfs.h>

/* Exit statuses. */
#define WFS_EXIT_FAILED	   1
#define WFS_EXIT_USAGE	   2
#define WFS_EXIT_NO_DAEMON 3

/* One command. Its own options come in args; run() returns an exit status. */
struct command {
	const char *name, *args, *summary, *help;
	int (*run)(const struct command *command, int argc, char **argv);
};

extern const struct command command_mounts, command_stat, command_ls, command_fetch, command_verify,
	command_prefetch, command_sync, command_invalidate, command_evict, command_pin,
	command_unpin, command_profile, command_events;

/* Options that commands share, as options_parse() found them. */
struct options {
	bool json, verify, wait, background;
	char *mount_options; /* -o, as lines */
	char *digest;	     /* --sha256, --digest: "ALGORITHM:HEX" */
	uint64_t block;
};

/*
 * Reads the options named in accept, a set of: 'o' mount options, 'b' --block,
 * 'v' --verify, 'w' --wait, 'B' --background, 'S' --sha256, 'D' --digest, 'M' --mirror; --json and
 * --help always. Operands are then argv[*ret_first]
 * on; fewer than min or more than max are refused. -1 to go on, or an exit status.
 */
int options_parse(const struct command *command, int argc, char **argv, const char *accept, int min,
		  int max, struct options *ret, int *ret_first);
void options_free(struct options *options);

/* Prints a sentence; returns WFS_EXIT_FAILED. */
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says that control_open() failed; returns WFS_EXIT_FAILED. */
int no_control(int error);

/* "s3://..." rather than a path. */
bool is_source(const char *text);
/* "12.3 MiB" into text. */
const char *human_bytes(uint64_t bytes, char *text, size_t size);

/* A request about a source, or about a path in a mount: a reference, or an exit status. */
int request_about(const char *command, const char *what, const struct options *options,
		  json_t **ret);

uint64_t json_number(const json_t *object, const char *key);

/* show: a request whose progress comes as lines: shown, or with --json passed on. */
struct show {
	const struct options *options;
	/* Bytes done and to be done. */
	void (*progress)(const json_t *progress, uint64_t *ret_done, uint64_t *ret_total);
	void (*result)(const json_t *result); /* prints it for people */
	int (*status)(const json_t *result);  /* with sentences of what is wrong */
};
/* Takes the reference; an exit status. */
int show_request(json_t *request, const struct show *show);

/* cmd_verify: what is said of what was checked. */
void check_summary(const json_t *result);
int check_status(const json_t *result);

/* client: the daemon's control socket. */

struct client;
/* 0, or WFS_EXIT_NO_DAEMON or WFS_EXIT_FAILED with a sentence printed. */
int client_open(struct client **ret);
/* The same, and all that is asked then, without a sentence. */
int client_try(struct client **ret);
/* Is there a socket, and may the caller use it? Prints nothing. */
bool client_may_ask(void);
void client_close(struct client *client);
/*
 * Sends a request (takes the reference) and calls line() for what comes before the
 * answer. 0 and *ret (a reference, where asked for), or an exit status with a
 * sentence printed.
 */
typedef void (*client_line_fn)(void *arg, const json_t *line);
int client_ask(struct client *client, json_t *request, client_line_fn line, void *arg,
	       json_t **ret);
/*
 * Connects, asks and closes. Takes the reference; NULL: it could not be made, which is said.
 */
int client_request(json_t *request, client_line_fn line, void *arg, json_t **ret);
/* Where the socket is: --socket, $WFS_SOCKET or the default. */
void client_set_socket(const char *path);

/* file_info: the file, or exit status with a sentence. */
int file_info(const char *path, struct wfs_file_info *ret);

/* progress: a line on a terminal. */
void progress_show(uint64_t done, uint64_t total, double seconds);
void progress_end(void);

void print_json(json_t *json);

#endif /* WFS_COMMAND_H */
