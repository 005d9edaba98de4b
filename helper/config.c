// SPDX-License-Identifier: MIT
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"

enum { RANK_DEFAULT, RANK_FILE, RANK_OPTION };

#define BUFFER_MEMORY_MIN (16ULL << 20)
#define WORKERS_MAX	  64

int config_bytes(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGTP";
	char *end;
	double value, scale = 1;
	const char *unit;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || !isfinite(value))
		return -EINVAL;
	if (*end) {
		/* A space would be the NUL at the end of the units. */
		unit = *end == ' ' ? NULL : strchr(units, *end & ~0x20);
		if (!unit)
			return -EINVAL;
		for (const char *u = units; u <= unit; u++)
			scale *= 1024;
		end++;
		if (!strcmp(end, "iB") || !strcmp(end, "B"))
			end += strlen(end);
		if (*end)
			return -EINVAL;
	}
	if (value * scale >= 9e18)
		return -ERANGE;
	*ret_bytes = (uint64_t)(value * scale);
	return 0;
}

int config_time(const char *text, uint64_t *ret_ms)
{
	char *end;
	double value, scale;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || !isfinite(value))
		return -EINVAL;
	if (!*end || !strcmp(end, "s"))
		scale = 1000;
	else if (!strcmp(end, "ms"))
		scale = 1;
	else if (!strcmp(end, "m"))
		scale = 60000;
	else if (!strcmp(end, "h"))
		scale = 3600000;
	else
		return -EINVAL;
	if (value * scale > 1e15)
		return -ERANGE;
	*ret_ms = (uint64_t)(value * scale);
	return 0;
}

static int config_flag(const char *text, bool *ret_flag)
{
	if (!strcmp(text, "on") || !strcmp(text, "yes") || !strcmp(text, "true") ||
	    !strcmp(text, "1"))
		*ret_flag = true;
	else if (!strcmp(text, "off") || !strcmp(text, "no") || !strcmp(text, "false") ||
		 !strcmp(text, "0"))
		*ret_flag = false;
	else
		return -EINVAL;
	return 0;
}

static int config_number(const char *text, double *ret_number, bool *ret_percent)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || !isfinite(value) || value < 0)
		return -EINVAL;
	*ret_percent = *end == '%';
	if (*ret_percent)
		end++;
	if (*end)
		return -EINVAL;
	*ret_number = value;
	return 0;
}

static int config_string(char **field, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static int config_append(char ***list, size_t *count, const char *value)
{
	char **longer = reallocarray(*list, *count + 2, sizeof(*longer));

	if (!longer)
		return -ENOMEM;
	*list = longer;
	longer[*count] = strdup(value);
	longer[*count + 1] = NULL;
	if (!longer[*count])
		return -ENOMEM;
	++*count;
	return 0;
}

static void config_free_list(char ***list, size_t *count)
{
	for (size_t i = 0; i < *count; i++)
		free((*list)[i]);
	free(*list);
	*list = NULL;
	*count = 0;
}

enum config_type {
	TYPE_DIR,
	TYPE_CAPACITY,
	TYPE_PERCENT,
	TYPE_TIME,
	TYPE_UINT,
	TYPE_BYTES,
	TYPE_SHARE,
	TYPE_STRING,
	TYPE_LEVEL,
	TYPE_FORMAT,
};

static const struct config_key {
	const char *section, *key, *option;
	enum config_type type;
	size_t offset;
	const char *help;
} config_keys[] = {
#define KEY(section, key, option, type, field, help)                             \
	{                                                                        \
		section, key, option, type, offsetof(struct config, field), help \
	}
	KEY("cache", "dir", "cache-dir", TYPE_DIR, dirs,
	    "cache directory, repeatable (default " CONFIG_CACHE ")"),
	KEY("cache", "capacity", "cache-capacity", TYPE_CAPACITY, capacity,
	    "bytes per directory or % of its free space (default 90%)"),
	KEY("cache", "low", "cache-low", TYPE_PERCENT, low,
	    "evict down to this share of the capacity (default 90%)"),
	KEY("cache", "high", "cache-high", TYPE_PERCENT, high,
	    "evict from this share of the capacity on (default 95%)"),
	KEY("cache", "cleanup_interval", "cache-cleanup-interval", TYPE_TIME, cleanup_interval_ms,
	    "seconds between looks at the free space (default 60)"),
	KEY("fetch", "workers", "fetch-workers", TYPE_UINT, workers,
	    "worker threads (default: processors, at most 8)"),
	KEY("fetch", "connections_per_host", "fetch-connections-per-host", TYPE_UINT,
	    connections_per_host, "transfers at once from one source (default 16)"),
	KEY("fetch", "max_concurrent_fetches", "fetch-max-concurrent-fetches", TYPE_UINT,
	    max_concurrent_fetches, "transfers at once in all (default 64)"),
	KEY("fetch", "buffer_memory", "fetch-buffer-memory", TYPE_BYTES, buffer_memory,
	    "bytes of buffers for blocks on their way (default 512M)"),
	KEY("fetch", "retry_budget", "fetch-retry-budget", TYPE_TIME, retry_budget_ms,
	    "seconds to go on trying (default 60)"),
	KEY("fetch", "stall_timeout", "fetch-stall-timeout", TYPE_TIME, stall_timeout_ms,
	    "seconds without a byte before a transfer is given up (default 10)"),
	KEY("fetch", "connect_timeout", "fetch-connect-timeout", TYPE_TIME, connect_timeout_ms,
	    "seconds to wait for a connection (default 5)"),
	KEY("prefetch", "max_rate", "prefetch-max-rate", TYPE_BYTES, max_rate,
	    "bytes a second of prefetches, 0: no limit (default 0)"),
	KEY("prefetch", "max_share", "prefetch-max-share", TYPE_SHARE, max_share,
	    "share of the transfers that prefetches may take (default 0.5)"),
	KEY("metrics", "listen", "metrics-listen", TYPE_STRING, listen,
	    "address of the metrics, empty for none (default 127.0.0.1:9419)"),
	KEY("log", "level", "log-level", TYPE_LEVEL, log_level,
	    "error, warn, info or debug (default info)"),
	KEY("log", "format", "log-format", TYPE_FORMAT, log_json, "text or json (default text)"),
	KEY("control", "socket", "control-socket", TYPE_STRING, socket,
	    "path of the control socket (default " CONFIG_SOCKET ")"),
#undef KEY
};

static int config_set_field(struct config *config, const struct config_key *key, const char *value,
			    int rank)
{
	void *field = (char *)config + key->offset;
	double number;
	uint64_t bytes;
	bool percent;
	int err;

	switch (key->type) {
	case TYPE_DIR:
		if (*value != '/')
			return -EINVAL;
		if (rank != config->dir_rank)
			config_free_list(&config->dirs, &config->dir_count);
		config->dir_rank = rank;
		return config_append(&config->dirs, &config->dir_count, value);
	case TYPE_CAPACITY:
		if (!config_number(value, &number, &percent) && percent) {
			if (number <= 0 || number > 100)
				return -EINVAL;
			*(struct config_capacity *)field = (struct config_capacity){ 0, number };
			return 0;
		}
		err = config_bytes(value, &bytes);
		if (err || !bytes)
			return -EINVAL;
		*(struct config_capacity *)field = (struct config_capacity){ bytes, 0 };
		return 0;
	case TYPE_PERCENT:
		if (config_number(value, &number, &percent) || number <= 0 || number > 100)
			return -EINVAL;
		*(double *)field = number;
		return 0;
	case TYPE_SHARE:
		if (config_number(value, &number, &percent))
			return -EINVAL;
		if (percent)
			number /= 100;
		if (number <= 0 || number > 1)
			return -EINVAL;
		*(double *)field = number;
		return 0;
	case TYPE_TIME:
		return config_time(value, field);
	case TYPE_BYTES:
		return config_bytes(value, field);
	case TYPE_UINT:
		if (config_number(value, &number, &percent) || percent || number < 1 ||
		    number > 65536 || (double)(unsigned int)number != number)
			return -EINVAL;
		*(unsigned int *)field = (unsigned int)number;
		return 0;
	case TYPE_STRING:
		return config_string(field, value);
	case TYPE_LEVEL:
		return log_level_parse(value, field);
	case TYPE_FORMAT:
		if (strcmp(value, "text") && strcmp(value, "json"))
			return -EINVAL;
		*(bool *)field = !strcmp(value, "json");
		return 0;
	}
	return -EINVAL;
}

static void config_free_secret(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

static void config_free_source(struct config_source *source)
{
	for (size_t i = 0; i < source->header_count; i++)
		explicit_bzero(source->headers[i], strlen(source->headers[i]));
	free(source->prefix);
	free(source->endpoint);
	free(source->region);
	free(source->profile);
	free(source->access_key);
	config_free_secret(source->secret_key);
	config_free_secret(source->session_token);
	free(source->ca);
	free(source->proxy);
	free(source->bearer_file);
	free(source->mirror);
	config_free_list(&source->headers, &source->header_count);
	free(source);
}

/* The key may be repeated, and each may be a list. */
static int config_add_mirror(struct config_source *source, const char *value)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", source->mirror ? source->mirror : "",
		     source->mirror ? "," : "", value) < 0)
		return -ENOMEM;
	free(source->mirror);
	source->mirror = joined;
	return 0;
}

static int config_set_source(struct config *config, const char *prefix, const char *key,
			     const char *value)
{
	struct config_source *source;
	char **field = NULL;

	for (source = config->sources; source; source = source->next)
		if (!strcmp(source->prefix, prefix))
			break;
	if (!source) {
		source = calloc(1, sizeof(*source));
		if (!source)
			return -ENOMEM;
		source->prefix = strdup(prefix);
		if (!source->prefix) {
			free(source);
			return -ENOMEM;
		}
		source->next = config->sources;
		config->sources = source;
	}
	if (!strcmp(key, "endpoint"))
		field = &source->endpoint;
	else if (!strcmp(key, "region"))
		field = &source->region;
	else if (!strcmp(key, "profile"))
		field = &source->profile;
	else if (!strcmp(key, "access_key"))
		field = &source->access_key;
	else if (!strcmp(key, "secret_key"))
		field = &source->secret_key;
	else if (!strcmp(key, "session_token"))
		field = &source->session_token;
	else if (!strcmp(key, "ca"))
		field = &source->ca;
	else if (!strcmp(key, "proxy"))
		field = &source->proxy;
	else if (!strcmp(key, "bearer_file"))
		field = &source->bearer_file;
	if (field)
		return config_string(field, value);
	if (!strcmp(key, "header")) {
		if (!strchr(value, ':'))
			return -EINVAL;
		return config_append(&source->headers, &source->header_count, value);
	}
	if (!strcmp(key, "mirror"))
		return config_add_mirror(source, value);
	if (!strcmp(key, "anon"))
		return config_flag(value, &source->anon);
	if (!strcmp(key, "virtual_host"))
		return config_flag(value, &source->virtual_host);
	if (!strcmp(key, "quota"))
		return config_bytes(value, &source->quota);
	return -ENOENT;
}

static int config_set_rank(struct config *config, const char *section, const char *key,
			   const char *value, int rank, char *msg, size_t msg_size)
{
	bool section_known = false;
	int err = -ENOENT;

	if (!strncmp(section, "source ", 7)) {
		const char *prefix = section + 7 + strspn(section + 7, " ");

		section_known = true;
		err = config_set_source(config, prefix, key, value);
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
			if (strcmp(section, config_keys[i].section))
				continue;
			section_known = true;
			if (!strcmp(key, config_keys[i].key)) {
				err = config_set_field(config, &config_keys[i], value, rank);
				break;
			}
		}
	}
	/* The value is not repeated: it may be a secret. */
	if (!section_known)
		snprintf(msg, msg_size, "section [%s] is not known", section);
	else if (err == -ENOENT)
		snprintf(msg, msg_size, "key %s is not known in section [%s]", key, section);
	else if (err == -ENOMEM)
		snprintf(msg, msg_size, "out of memory");
	else if (err)
		snprintf(msg, msg_size, "the value of %s in section [%s] is malformed", key,
			 section);
	return err == -ENOENT ? -EINVAL : err;
}

int config_set(struct config *config, const char *section, const char *key, const char *value,
	       char *msg, size_t msg_size)
{
	return config_set_rank(config, section, key, value, RANK_OPTION, msg, msg_size);
}

const char *config_option(size_t index)
{
	return index < ARRAY_SIZE(config_keys) ? config_keys[index].option : NULL;
}

const char *config_option_help(size_t index)
{
	return index < ARRAY_SIZE(config_keys) ? config_keys[index].help : NULL;
}

int config_set_option(struct config *config, size_t index, const char *value, char *msg,
		      size_t msg_size)
{
	return config_set(config, config_keys[index].section, config_keys[index].key, value, msg,
			  msg_size);
}

int config_create(struct config **ret)
{
	struct config *config = calloc(1, sizeof(*config));

	if (!config)
		return -ENOMEM;
	config->capacity.percent = 90;
	config->low = 90;
	config->high = 95;
	config->cleanup_interval_ms = 60000;
	config->connections_per_host = 16;
	config->max_concurrent_fetches = 64;
	config->buffer_memory = 512ULL << 20;
	config->retry_budget_ms = 60000;
	config->stall_timeout_ms = 10000;
	config->connect_timeout_ms = 5000;
	config->max_share = 0.5;
	config->log_level = LOG_LEVEL_INFO;
	config->listen = strdup("127.0.0.1:9419");
	config->socket = strdup(CONFIG_SOCKET);
	if (!config->listen || !config->socket ||
	    config_append(&config->dirs, &config->dir_count, CONFIG_CACHE)) {
		config_free(config);
		return -ENOMEM;
	}
	*ret = config;
	return 0;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	config_free_list(&config->dirs, &config->dir_count);
	free(config->listen);
	free(config->socket);
	while (config->sources) {
		struct config_source *source = config->sources;

		config->sources = source->next;
		config_free_source(source);
	}
	free(config);
}

struct config_parse {
	struct config *config;
	char section[2100];
	char why[256];
};

/*
 * One line. Not by inih: it cuts section names at 50 bytes and lines at 200, while a
 * section is named by a source, which may be as long as a mount's.
 */
static int config_line(struct config_parse *parse, char *line)
{
	char *key = line + strspn(line, " \t"), *equal, *value, *end;

	line[strcspn(line, "\r\n")] = '\0';
	for (end = key + strlen(key); end > key && strchr(" \t", end[-1]); end--)
		end[-1] = '\0';
	if (!*key || *key == '#' || *key == ';')
		return 0;
	if (*key == '[') {
		if (end[-1] != ']' || (size_t)(end - key) > sizeof(parse->section))
			return -EINVAL;
		end[-1] = '\0';
		memcpy(parse->section, key + 1, (size_t)(end - key) - 1);
		return 0;
	}
	equal = strchr(key, '=');
	if (!equal || equal == key)
		return -EINVAL;
	value = equal + 1 + strspn(equal + 1, " \t");
	for (end = equal; end > key && strchr(" \t", end[-1]); end--)
		;
	*end = '\0';
	return config_set_rank(parse->config, parse->section, key, value, RANK_FILE, parse->why,
			       sizeof(parse->why));
}

int config_read(struct config *config, const char *path, char *msg, size_t msg_size)
{
	struct config_parse parse = { .config = config };
	cleanup_file FILE *file = fopen(path, "re");
	cleanup_free char *line = NULL;
	size_t size = 0;
	unsigned int number = 0;

	if (!file) {
		int err = -errno;

		snprintf(msg, msg_size, "cannot read the configuration file %s: %s", path,
			 strerror(-err));
		if (err == -EACCES)
			snprintf(msg, msg_size,
				 "cannot read the configuration file %s as user %u: let its group have it (chown root:wfs, chmod 640)",
				 path, (unsigned int)geteuid());
		return err;
	}
	while (getline(&line, &size, file) >= 0) {
		int err;

		number++;
		snprintf(parse.why, sizeof(parse.why), "is neither [section] nor key = value");
		err = config_line(&parse, line);
		if (err) {
			snprintf(msg, msg_size, "%s line %u: %s", path, number, parse.why);
			return err;
		}
	}
	return 0;
}

int config_finish(struct config *config, char *msg, size_t msg_size)
{
	if (!config->workers) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);

		config->workers = n < 1 ? 1 : n > 8 ? 8 : (unsigned int)n;
	}
	if (config->workers > WORKERS_MAX) {
		snprintf(msg, msg_size, "workers is above %d", WORKERS_MAX);
		return -EINVAL;
	}
	if (config->buffer_memory < BUFFER_MEMORY_MIN) {
		snprintf(msg, msg_size, "buffer_memory is below 16M");
		return -EINVAL;
	}
	if (config->low > config->high) {
		snprintf(msg, msg_size, "low is above high in section [cache]");
		return -EINVAL;
	}
	return 0;
}

bool config_source_speaks(const char *prefix, const char *source)
{
	size_t len = strlen(prefix);

	/* "s3://models" speaks for s3://models/x, not for s3://models-2. */
	return !strncmp(source, prefix, len) &&
	       (!len || prefix[len - 1] == '/' || !source[len] || source[len] == '/');
}

const struct config_source *config_source(const struct config *config, const char *source)
{
	const struct config_source *best = NULL;
	size_t best_len = 0;

	for (const struct config_source *s = config->sources; s; s = s->next) {
		size_t len = strlen(s->prefix);

		if (config_source_speaks(s->prefix, source) && (!best || len > best_len)) {
			best = s;
			best_len = len;
		}
	}
	return best;
}
