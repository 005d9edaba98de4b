/* SPDX-License-Identifier: MIT */
/* config: wfsd.conf and its command-line overrides. */
#ifndef WFS_CONFIG_H
#define WFS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "origin.h"

#define CONFIG_FILE   "/etc/wfs/wfsd.conf"
#define CONFIG_SOCKET "/run/wfs/wfsd.sock"
#define CONFIG_CACHE  "/var/cache/wfs"

/* Bytes, or a share of what is found. */
struct config_capacity {
	uint64_t bytes; /* 0: percent counts */
	double percent;
};

/* [source PREFIX]: defaults for all sources that begin with PREFIX. */
struct config_source {
	char *prefix;
	char *endpoint, *region, *profile, *access_key, *secret_key, *session_token;
	char *ca, *proxy, *bearer_file;
	char *mirror;	/* as the mount option, of what begins with prefix */
	char **headers; /* NULL-terminated, or NULL */
	size_t header_count;
	bool anon, virtual_host;
	uint64_t quota; /* bytes of this source in the cache, 0: no limit */
	struct config_source *next;
};

struct config {
	/* [cache] */
	char **dirs;
	size_t dir_count;
	int dir_rank; /* of what set them: default, file, option */
	struct config_capacity capacity;
	double low, high; /* percent of capacity */
	uint64_t cleanup_interval_ms;
	/* [fetch] */
	unsigned int workers;
	unsigned int connections_per_host;
	unsigned int max_concurrent_fetches;
	uint64_t buffer_memory;
	uint64_t retry_budget_ms, stall_timeout_ms, connect_timeout_ms;
	/* [prefetch] */
	uint64_t max_rate; /* bytes a second, 0: no limit */
	double max_share;  /* of the connections */
	/* [metrics] */
	char *listen; /* "" : off */
	/* [log] */
	enum log_level log_level;
	bool log_json;
	/* [control] */
	char *socket;
	struct config_source *sources;
};

/* The defaults, as in the man page. */
int config_create(struct config **ret);
void config_free(struct config *config);
/*
 * Reads a file over what is there. A dir in the file replaces the default one.
 * -errno with a sentence that names file and line.
 */
int config_read(struct config *config, const char *path, char *msg, size_t msg_size);
/*
 * One key: section "cache", key "dir", or section "source NAME". Values of a
 * command line come last and win; the first dir set by one replaces those of the file.
 */
int config_set(struct config *config, const char *section, const char *key, const char *value,
	       char *msg, size_t msg_size);
/* Completes what depends on the machine and checks what depends on more than one key. */
int config_finish(struct config *config, char *msg, size_t msg_size);

/* Names a key for a command line: "cache-dir" for [cache] dir. NULL past the last. */
const char *config_option(size_t index);
/* Sets a key by that name. */
int config_set_option(struct config *config, size_t index, const char *value, char *msg,
		      size_t msg_size);
/* What a key is for, for --help. */
const char *config_option_help(size_t index);

/* Does a section of this prefix count for the source? */
bool config_source_speaks(const char *prefix, const char *source);
/* The section with the longest prefix of source, or NULL. */
const struct config_source *config_source(const struct config *config, const char *source);

/* "512M", "4K", "1.5G", plain bytes. */
int config_bytes(const char *text, uint64_t *ret_bytes);
/* "30", "30s", "500ms", "2m" to milliseconds; a plain number is seconds. */
int config_time(const char *text, uint64_t *ret_ms);

#endif /* WFS_CONFIG_H */
