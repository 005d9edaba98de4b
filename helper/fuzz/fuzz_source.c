// SPDX-License-Identifier: MIT
/*
 * core_origin and what it calls, origin_path, http_url: a line with a source, then options
 * as a mount has them, a line each.
 */
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "fuzz.h"
#include "http_url.h"
#include "origin_path.h"

#define SECRET "S3CRET"

static struct config *config;

static void set(const char *section, const char *key, const char *value)
{
	char msg[256];

	fuzz_check(!config_set(config, section, key, value, msg, sizeof(msg)));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	clearenv();
	setenv("HOME", "/nonexistent", 1);
	setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE", 1);
	setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
	/* Nothing is asked over the network. */
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	fuzz_check(!config_create(&config));
	set("source s3://models", "access_key", "AKIAOTHER");
	set("source s3://models", "secret_key", SECRET);
	set("source http://h/", "header", "Authorization: " SECRET);
	return 0;
}

/* Where requests go: a host, and nobody's name and password. */
static void check_url(const char *url)
{
	const char *host = strstr(url, "://") + 3;
	cleanup_free char *site = strndup(url, (size_t)(host - url) + strcspn(host, "/ "));
	char *part = NULL;
	CURLU *handle = curl_url();

	fuzz_check(!curl_url_set(handle, CURLUPART_URL, site, 0));
	fuzz_check(!curl_url_get(handle, CURLUPART_HOST, &part, 0) && *part);
	curl_free(part);
	fuzz_check(curl_url_get(handle, CURLUPART_USER, &part, 0) == CURLUE_NO_USER);
	fuzz_check(curl_url_get(handle, CURLUPART_PASSWORD, &part, 0) == CURLUE_NO_PASSWORD);
	curl_url_cleanup(handle);
	fuzz_check(http_url_same_host(url, site) || strchr(url, ' '));
}

static void check_origin(struct core *core, const char *source, const char *options,
			 struct origin *origin)
{
	const char *identity = origin_identity(origin);
	cleanup_free char *more = NULL;
	struct origin *again;
	char msg[512];

	/* The key of what is cached. */
	fuzz_check(identity && *identity);
	fuzz_check(strstr(source, SECRET) || strstr(options, SECRET) || !strstr(identity, SECRET));
	if (strncmp(identity, "file://", 7))
		check_url(identity);
	/* What is for the kernel does not change it. */
	if (asprintf(&more, "%s\nblock=64k", options) < 0)
		abort();
	fuzz_check(!core_origin(core, source, more, &again, msg, sizeof(msg)));
	fuzz_check(again == origin);
	origin_unref(again);
}

/* A sentence of one line, without what may be a password. */
static void check_message(const char *source, const char *msg)
{
	const char *host = strstr(source, "://");
	size_t len = host ? strcspn(host + 3, "/?#") : 0;
	const char *at = len ? memchr(host + 3, '@', len) : NULL;
	const char *secret = strstr(source, SECRET);

	fuzz_check(*msg);
	for (const char *c = msg; *c; c++)
		fuzz_check((unsigned char)*c >= ' ' && *c != 127);
	if (at && secret > host && secret < at)
		fuzz_check(!strstr(msg, SECRET));
}

static void check_source(const char *source, const char *options)
{
	struct core *core = calloc(1, sizeof(*core));
	struct origin *origin;
	char msg[512] = "";
	int err;

	core->config = config;
	pthread_mutex_init(&core->lock, NULL);
	err = core_origin(core, source, options, &origin, msg, sizeof(msg));
	fuzz_check(err <= 0);
	if (err) {
		check_message(source, msg);
	} else {
		check_origin(core, source, options, origin);
		origin_unref(origin);
	}
	core_destroy(core);
}

/* The same once more, the long way. */
static bool path_good(const char *path)
{
	cleanup_free char *copy = strdup(path);
	char *rest = copy, *name;
	bool good = true;

	while (*path && (name = strsep(&rest, "/")))
		good = good && fuzz_name_good(name, strlen(name));
	return good;
}

static void check_path(const char *path, size_t len)
{
	cleanup_free char *encoded = malloc(ORIGIN_ENCODED_MAX(len)), *copy = strdup(path);
	char *end = origin_encode(encoded, path, len, true);

	fuzz_check(origin_path_valid(path) == path_good(path));
	fuzz_check(end == encoded + strlen(encoded));
	fuzz_check(strspn(encoded,
			  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%/") ==
		   strlen(encoded));
	fuzz_check(origin_decode(encoded) == len && !memcmp(encoded, path, len));
	fuzz_check(origin_decode(copy) <= len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	char *source = fuzz_line(&input), *options = fuzz_rest(&input, NULL);

	check_source(source, options);
	check_path(source, strlen(source));
	fuzz_check(!http_url_adds_slash(source, source));
	free(source);
	free(options);
	return 0;
}
