// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "credentials.h"
#include "inifile.h"
#include "origin.h"

/* What tells that a file was replaced or written. */
struct stamp {
	struct timespec mtime;
	off_t size;
	ino_t ino;
};

struct credentials {
	pthread_mutex_t lock; /* keys, stamps */
	struct credential_keys keys;
	char *profile; /* NULL: the keys do not come from files */
	/* The credentials file goes before the configuration file. */
	char *path[2];
	struct stamp stamp[2];
	char *region, *identity;
};

/* Collects one profile while a file is read. */
struct reading {
	const char *profile;
	bool config_file; /* its sections are "profile NAME" */
	struct credential_keys keys;
	char *region;
	bool failed;
};

static void secret_free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void credential_keys_clear(struct credential_keys *keys)
{
	secret_free(keys->access_key);
	secret_free(keys->secret_key);
	secret_free(keys->session_token);
	*keys = (struct credential_keys){ 0 };
}

static int copy_text(char **to, const char *from)
{
	if (!from || !*from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -ENOMEM;
}

static int copy_keys(struct credential_keys *to, const char *access_key, const char *secret_key,
		     const char *session_token)
{
	struct credential_keys copy = { 0 };

	if (copy_text(&copy.access_key, access_key) || copy_text(&copy.secret_key, secret_key) ||
	    copy_text(&copy.session_token, session_token)) {
		credential_keys_clear(&copy);
		return -ENOMEM;
	}
	*to = copy;
	return 0;
}

static bool text_equal(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool right_section(const struct reading *reading, const char *section)
{
	if (reading->config_file && !strncmp(section, "profile ", 8)) {
		section += 8;
		section += strspn(section, " \t");
	}
	return !strcmp(section, reading->profile);
}

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
	struct reading *reading = arg;
	char **to = NULL;

	if (!right_section(reading, section))
		return 1;
	if (!strcmp(name, "aws_access_key_id"))
		to = &reading->keys.access_key;
	else if (!strcmp(name, "aws_secret_access_key"))
		to = &reading->keys.secret_key;
	else if (!strcmp(name, "aws_session_token"))
		to = &reading->keys.session_token;
	else if (!strcmp(name, "region"))
		to = &reading->region;
	if (to) {
		secret_free(*to);
		*to = NULL;
		if (copy_text(to, value))
			reading->failed = true;
	}
	return 1;
}

static struct stamp stamp_of(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return (struct stamp){ 0 };
	return (struct stamp){ .mtime = st.st_mtim, .size = st.st_size, .ino = st.st_ino };
}

static bool stamp_equal(const struct stamp *a, const struct stamp *b)
{
	return a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec &&
	       a->size == b->size && a->ino == b->ino;
}

/*
 * Reads the profile anew if a file is another one than last time, or if forced. A file
 * caught half-written leaves the keys as they were: the next look finds it changed.
 */
static int refresh(struct credentials *c, bool force)
{
	struct reading reading = { .profile = c->profile };
	struct stamp now[2] = { stamp_of(c->path[0]), stamp_of(c->path[1]) };

	if (!force && stamp_equal(&now[0], &c->stamp[0]) && stamp_equal(&now[1], &c->stamp[1]))
		return 0;
	for (size_t i = 0; i < 2 && !reading.keys.access_key; i++) {
		reading.config_file = i;
		inifile_parse(c->path[i], on_value, &reading);
	}
	/* The region stands in the configuration file, whoever has the keys. */
	if (!c->region && !reading.region && !reading.config_file) {
		struct reading again = { .profile = c->profile, .config_file = true };

		inifile_parse(c->path[1], on_value, &again);
		reading.region = TAKE(again.region);
		credential_keys_clear(&again.keys);
	}
	if (!c->region)
		c->region = TAKE(reading.region);
	free(reading.region);
	if (reading.failed || !reading.keys.access_key || !reading.keys.secret_key) {
		credential_keys_clear(&reading.keys);
		return reading.failed ? -ENOMEM : -EACCES;
	}
	credential_keys_clear(&c->keys);
	c->keys = reading.keys;
	c->stamp[0] = now[0];
	c->stamp[1] = now[1];
	return 0;
}

int credentials_get(struct credentials *c, struct credential_keys *ret_keys)
{
	SCOPED_LOCK(&c->lock);

	if (c->profile && refresh(c, false) == -ENOMEM)
		return -ENOMEM;
	return copy_keys(ret_keys, c->keys.access_key, c->keys.secret_key, c->keys.session_token);
}

bool credentials_renewed(struct credentials *c, const struct credential_keys *refused)
{
	SCOPED_LOCK(&c->lock);

	if (c->profile)
		refresh(c, true);
	return !text_equal(c->keys.access_key, refused->access_key) ||
	       !text_equal(c->keys.secret_key, refused->secret_key) ||
	       !text_equal(c->keys.session_token, refused->session_token);
}

const char *credentials_region(const struct credentials *c)
{
	return c->region;
}

const char *credentials_identity(const struct credentials *c)
{
	return c->identity;
}

/* Where the environment says, or in ~/.aws. */
static char *file_path(const char *variable, const char *name)
{
	const char *set = getenv(variable), *home = getenv("HOME");
	char *path;

	if (set && *set)
		return strdup(set);
	if (!home || !*home) {
		const struct passwd *user = getpwuid(getuid());

		home = user ? user->pw_dir : "/";
	}
	return asprintf(&path, "%s/.aws/%s", home, name) < 0 ? NULL : path;
}

static int from_files(struct credentials *c, const char *profile, char *msg, size_t msg_size)
{
	int err;

	if (!profile)
		profile = getenv("AWS_PROFILE");
	if (!profile || !*profile)
		profile = "default";
	c->profile = strdup(profile);
	c->path[0] = file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
	c->path[1] = file_path("AWS_CONFIG_FILE", "config");
	if (!c->profile || !c->path[0] || !c->path[1])
		return -ENOMEM;
	err = refresh(c, true);
	if (err == -EACCES)
		snprintf(msg, msg_size,
			 "no S3 credentials: no keys in the configuration or the environment, no profile \"%s\" in %s (anon needs none)",
			 c->profile, c->path[0]);
	return err;
}

static int find_keys(struct credentials *c, const struct origin_settings *settings, char *msg,
		     size_t msg_size)
{
	const char *access_key = getenv("AWS_ACCESS_KEY_ID");
	const char *secret_key = getenv("AWS_SECRET_ACCESS_KEY");
	int err;

	if (settings->anon)
		return copy_text(&c->identity, "anonymous");
	if (settings->access_key && settings->secret_key) {
		err = copy_keys(&c->keys, settings->access_key, settings->secret_key,
				settings->session_token);
	} else if (settings->access_key || settings->secret_key) {
		snprintf(msg, msg_size, "access_key and secret_key go together: one is missing");
		return -EINVAL;
	} else if (!settings->profile && access_key && secret_key) {
		err = copy_keys(&c->keys, access_key, secret_key, getenv("AWS_SESSION_TOKEN"));
	} else {
		err = from_files(c, settings->profile, msg, msg_size);
	}
	if (err)
		return err;
	/* Keys that come with a token change with each renewal: the profile stays. */
	if (c->profile)
		err = asprintf(&c->identity, "profile:%s%s%s", c->profile,
			       c->keys.session_token ? "" : ":",
			       c->keys.session_token ? "" : c->keys.access_key);
	else
		err = asprintf(&c->identity, "key:%s", c->keys.access_key);
	if (err < 0) {
		c->identity = NULL;
		return -ENOMEM;
	}
	return 0;
}

int credentials_create(const struct origin_settings *settings, struct credentials **ret, char *msg,
		       size_t msg_size)
{
	struct credentials *c = calloc(1, sizeof(*c));
	const char *region = getenv("AWS_REGION");
	int err;

	if (!c) {
		snprintf(msg, msg_size, "out of memory");
		return -ENOMEM;
	}
	pthread_mutex_init(&c->lock, NULL);
	if (!region || !*region)
		region = getenv("AWS_DEFAULT_REGION");
	err = copy_text(&c->region, region);
	if (!err)
		err = find_keys(c, settings, msg, msg_size);
	if (err) {
		if (err == -ENOMEM)
			snprintf(msg, msg_size, "out of memory");
		credentials_free(c);
		return err;
	}
	*ret = c;
	return 0;
}

void credentials_free(struct credentials *c)
{
	if (!c)
		return;
	credential_keys_clear(&c->keys);
	pthread_mutex_destroy(&c->lock);
	free(c->profile);
	free(c->path[0]);
	free(c->path[1]);
	free(c->region);
	free(c->identity);
	free(c);
}
