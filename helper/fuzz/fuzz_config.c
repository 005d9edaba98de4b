// SPDX-License-Identifier: MIT
/*
 * config, inifile, credentials. The first byte says what the rest is: 'c' a configuration
 * file, 'p' an AWS profile file, else one value.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "credentials.h"
#include "fuzz.h"
#include "inifile.h"

/* Sizes stay below it. */
#define BYTES_MOST 9000000000000000000ULL

static const char spaces[] = " \t\r\n\v\f";

static void check_config(const struct config *config)
{
	fuzz_check(config->dir_count && config->dirs && !config->dirs[config->dir_count]);
	for (size_t i = 0; i < config->dir_count; i++)
		fuzz_check(config->dirs[i][0] == '/');
	fuzz_check(config->capacity.bytes ||
		   (config->capacity.percent > 0 && config->capacity.percent <= 100));
	fuzz_check(config->capacity.bytes < BYTES_MOST);
	fuzz_check(config->low > 0 && config->high <= 100 && config->low <= config->high);
	fuzz_check(config->workers >= 1 && config->workers <= 64);
	fuzz_check(config->connections_per_host >= 1 && config->connections_per_host <= 65536);
	fuzz_check(config->max_concurrent_fetches >= 1 && config->max_concurrent_fetches <= 65536);
	fuzz_check(config->buffer_memory >= (16u << 20) && config->buffer_memory < BYTES_MOST);
	fuzz_check(config->max_share > 0 && config->max_share <= 1);
	/* A loop's clock counts nanoseconds. */
	fuzz_check(config->retry_budget_ms <= UINT64_MAX / 1000000);
	fuzz_check(config->stall_timeout_ms <= UINT64_MAX / 1000000);
	fuzz_check(config->connect_timeout_ms <= UINT64_MAX / 1000000);
	fuzz_check(config->listen && config->socket);
	for (const struct config_source *s = config->sources; s; s = s->next) {
		for (const struct config_source *other = s->next; other; other = other->next)
			fuzz_check(strcmp(s->prefix, other->prefix));
		for (size_t i = 0; i < s->header_count; i++)
			fuzz_check(strchr(s->headers[i], ':'));
		fuzz_check(!s->headers || !s->headers[s->header_count]);
		fuzz_check(config_source(config, s->prefix) == s);
	}
}

/* Does the sentence repeat what stands behind the '=' of the bad line? */
static bool tells_value(const char *whole, const char *msg)
{
	const char *text = whole, *number = strstr(msg, " line ");
	char *end;
	unsigned long line = number ? strtoul(number + 6, &end, 10) : 0;
	const char *equal;
	cleanup_free char *value = NULL;

	for (unsigned long i = 1; i < line && text; i++) {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	equal = line && text ? memchr(text, '=', strcspn(text, "\n")) : NULL;
	if (!equal)
		return false;
	equal += 1 + strspn(equal + 1, " \t");
	value = strndup(equal, strcspn(equal, "\r\n"));
	/* Short ones stand in any sentence, and a section or key may be named like a value. */
	return value && strlen(value) >= 24 && strstr(whole, value) == equal && strstr(end, value);
}

static void config_file(const char *text, size_t len)
{
	const char *path = fuzz_file(0, text, len);
	char msg[512] = "", finish_msg[512] = "";
	struct config *config;
	int err;

	fuzz_check(!config_create(&config));
	err = config_read(config, path, msg, sizeof(msg));
	fuzz_check(!err || err == -EINVAL || err == -ERANGE);
	fuzz_check(!err == !*msg);
	if (err && !memchr(text, '\0', len))
		fuzz_check(!tells_value(text, msg));
	err = config_finish(config, finish_msg, sizeof(finish_msg));
	fuzz_check(!err == !*finish_msg);
	if (!err)
		check_config(config);
	config_free(config);
}

/* What a reader of a profile file was given, one after the other. */
struct seen {
	char *text;
	size_t len;
	FILE *stream;
	char *access_key, *secret_key; /* the last ones of the profile "p" */
};

static bool trimmed(const char *text)
{
	size_t len = strlen(text);

	return !len || (!strchr(spaces, text[0]) && !strchr(spaces, text[len - 1]));
}

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
	struct seen *seen = arg;
	bool mine = !strcmp(section, "p");

	fuzz_check(trimmed(section) && trimmed(name) && trimmed(value));
	fuzz_check(!strchr(section, '\n') && !strchr(name, '\n') && !strchr(value, '\n'));
	fprintf(seen->stream, "%s\n%s\n%s\n", section, name, value);
	if (mine && !strcmp(name, "aws_access_key_id")) {
		free(seen->access_key);
		seen->access_key = strdup(value);
	}
	if (mine && !strcmp(name, "aws_secret_access_key")) {
		free(seen->secret_key);
		seen->secret_key = strdup(value);
	}
	return 1;
}

static int parse(const char *path, struct seen *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->stream = open_memstream(&ret->text, &ret->len);
	r = inifile_parse(path, on_value, ret);
	fclose(ret->stream);
	return r;
}

static void seen_free(struct seen *seen)
{
	free(seen->text);
	free(seen->access_key);
	free(seen->secret_key);
}

/* The same with a long comment behind each line, and below it: it means the same. */
static char *with_comments(const char *text, size_t len, size_t *ret_len)
{
	char *copy = NULL, filler[301];
	FILE *stream = open_memstream(&copy, ret_len);

	memset(filler, 'x', sizeof(filler) - 1);
	filler[sizeof(filler) - 1] = '\0';
	for (size_t i = 0; i < len; i++) {
		const char *end = memchr(text + i, '\n', len - i);
		size_t line = end ? (size_t)(end - text) - i : len - i;

		fprintf(stream, "%.*s ; %s\n#%s\n", (int)line, text + i, filler, filler);
		i += line;
	}
	fclose(stream);
	return copy;
}

/* Whoever gets the keys gets those that stand in the profile, both of them. */
static void check_credentials(const struct seen *seen)
{
	struct origin_settings settings = { .profile = "p" };
	struct credentials *credentials;
	struct credential_keys keys;
	int64_t expires;
	char msg[512];

	/* Where there are none, others are looked for. */
	if (!seen->access_key || !*seen->access_key || !seen->secret_key || !*seen->secret_key)
		return;
	/* Other ways that a profile may name are not gone here. */
	if (credentials_create(&settings, &credentials, msg, sizeof(msg)))
		return;
	if (strcmp(credentials_source(credentials, &expires), "profile") ||
	    credentials_renewable(credentials)) {
		credentials_free(credentials);
		return;
	}
	fuzz_check(!credentials_get(credentials, NULL, NULL, &keys, NULL, NULL, NULL));
	fuzz_check(!strcmp(keys.access_key, seen->access_key));
	fuzz_check(!strcmp(keys.secret_key, seen->secret_key));
	fuzz_check(credentials_identity(credentials));
	credential_keys_clear(&keys);
	credentials_free(credentials);
}

static void profile_file(const char *text, size_t len)
{
	size_t longer_len;
	cleanup_free char *longer = NULL;
	struct seen seen, again;
	const char *path = fuzz_file(0, text, len);
	int r = parse(path, &seen);

	fuzz_check(r >= 0);
	setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
	check_credentials(&seen);
	if (!memchr(text, '\0', len)) {
		longer = with_comments(text, len, &longer_len);
		fuzz_check(!parse(fuzz_file(1, longer, longer_len), &again) == !r);
		fuzz_check(seen.len == again.len && !memcmp(seen.text, again.text, seen.len));
		seen_free(&again);
	}
	seen_free(&seen);
}

/* "12", "1.5": what the others are made of. Length, 0: no number. */
static size_t decimal(const char *text, long double *ret)
{
	size_t n = strspn(text, "0123456789"), more = 0;

	if (n && text[n] == '.')
		more = 1 + strspn(text + n + 1, "0123456789");
	*ret = n ? strtold(text, NULL) : 0;
	return n ? n + more : 0;
}

/* By the grammar of the man page; other forms of numbers (1e3, 0x10) are not judged. */
static void one_value(const char *text)
{
	static const char units[] = "KMGTP";
	uint64_t got = 0;
	long double want;
	size_t n = decimal(text, &want);
	const char *rest = text + n, *unit;
	int err = config_bytes(text, &got);

	fuzz_check(!err || err == -EINVAL || err == -ERANGE);
	fuzz_check(err || got < BYTES_MOST);
	if (*rest && strchr("xXeE", *rest))
		return;
	unit = *rest ? strchr(units, *rest & ~0x20) : NULL;
	if (unit && *unit && (*rest == *unit || *rest == (*unit | 0x20))) {
		for (const char *u = units; u <= unit; u++)
			want *= 1024;
		rest++;
		if (!strcmp(rest, "B") || !strcmp(rest, "iB"))
			rest += strlen(rest);
	}
	fuzz_check(!err || !n || *rest || want >= 8.9e18L || err == -ERANGE);
	if (!err) {
		fuzz_check(n && !*rest);
		fuzz_check(fabsl(want - (long double)got) <= want / 1e12L + 1);
	}
	err = config_time(text, &got);
	fuzz_check(!err || err == -EINVAL || err == -ERANGE);
	if (!err) {
		n = decimal(text, &want);
		rest = text + n;
		want *= !strcmp(rest, "ms") ? 1 :
			!strcmp(rest, "m")  ? 60000 :
			!strcmp(rest, "h")  ? 3600000 :
					      1000;
		fuzz_check(n && (!*rest || !strcmp(rest, "s") || !strcmp(rest, "ms") ||
				 !strcmp(rest, "m") || !strcmp(rest, "h")));
		fuzz_check(fabsl(want - (long double)got) <= want / 1e12L + 1);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	clearenv();
	setenv("HOME", "/nonexistent", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	char kind = (char)fuzz_byte(&input);
	size_t len;
	char *text = fuzz_rest(&input, &len);

	if (kind == 'c')
		config_file(text, len);
	else if (kind == 'p')
		profile_file(text, len);
	else
		one_value(text);
	free(text);
	return 0;
}
