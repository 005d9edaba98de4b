// SPDX-License-Identifier: MIT
/* credentials: which source it is. How its keys are kept fresh is in credentials_wait.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "credentials_impl.h"

const char *credentials_region(const struct credentials *c)
{
	return c->region;
}

const char *credentials_identity(const struct credentials *c)
{
	return c->identity;
}

static const char *const kind_names[] = {
	[CREDENTIALS_NONE] = "none",
	[CREDENTIALS_CONFIG] = "configuration",
	[CREDENTIALS_ENVIRONMENT] = "environment",
	[CREDENTIALS_PROFILE] = "profile",
	[CREDENTIALS_WEB_IDENTITY] = "web-identity",
	[CREDENTIALS_CONTAINER] = "container",
	[CREDENTIALS_INSTANCE] = "instance",
};

const char *credentials_source(struct credentials *c, int64_t *ret_expires)
{
	SCOPED_LOCK(&c->lock);

	*ret_expires = c->keys.expires;
	return kind_names[c->absent ? CREDENTIALS_NONE : c->kind];
}

void credentials_absence(struct credentials *c, char *text, size_t size)
{
	SCOPED_LOCK(&c->lock);

	*text = '\0';
	if (c->wanted_none || !c->absent)
		return;
	snprintf(text, size,
		 "there are no credentials in the configuration, the environment and profile \"%s\" in %s%s%s",
		 c->files.profile, c->files.path[0],
		 c->kind == CREDENTIALS_INSTANCE ?
			 ", and no role from an instance metadata service at " :
			 "",
		 c->kind == CREDENTIALS_INSTANCE ? c->url : "");
}

bool credentials_outdated(struct credentials *c)
{
	struct credentials_profile profile;
	char msg[ORIGIN_MESSAGE_MAX];

	SCOPED_LOCK(&c->lock);
	if (c->wanted_none || (c->kind != CREDENTIALS_NONE && c->kind != CREDENTIALS_INSTANCE) ||
	    !credentials_files_changed(&c->files))
		return false;
	if (credentials_profile_read(&c->files, &profile, msg, sizeof(msg)))
		return false;
	credentials_profile_clear(&profile);
	return true;
}

/* The sources, in their order; each returns -ENOENT when it is not this one. */

static int from_settings(struct credentials *c, const struct origin_settings *settings, char *msg,
			 size_t msg_size)
{
	const struct credential_keys keys = {
		.access_key = (char *)settings->access_key,
		.secret_key = (char *)settings->secret_key,
		.session_token = (char *)settings->session_token,
	};

	if (settings->anon) {
		c->wanted_none = true;
		return 0;
	}
	if (!keys.access_key && !keys.secret_key)
		return -ENOENT;
	if (!keys.access_key || !keys.secret_key) {
		snprintf(msg, msg_size, "access_key and secret_key go together: one is missing");
		return -EINVAL;
	}
	c->kind = CREDENTIALS_CONFIG;
	return credentials_keys_copy(&c->keys, &keys);
}

static int from_environment(struct credentials *c)
{
	const struct credential_keys keys = {
		.access_key = (char *)credentials_env("AWS_ACCESS_KEY_ID"),
		.secret_key = (char *)credentials_env("AWS_SECRET_ACCESS_KEY"),
		.session_token = (char *)credentials_env("AWS_SESSION_TOKEN"),
	};

	if (!keys.access_key || !keys.secret_key)
		return -ENOENT;
	c->kind = CREDENTIALS_ENVIRONMENT;
	return credentials_keys_copy(&c->keys, &keys);
}

static int from_profile(struct credentials *c, bool named, char *msg, size_t msg_size)
{
	struct credentials_profile profile = { 0 };
	int err;

	credentials_files_changed(&c->files);
	err = credentials_profile_read(&c->files, &profile, msg, msg_size);
	/* The region stands there, whoever has the keys. */
	if ((!err || err == -ENOENT) && !c->region)
		c->region = TAKE(profile.region);
	if (!err) {
		c->kind = CREDENTIALS_PROFILE;
		c->keys = profile.keys;
		c->role = profile.role;
		profile.keys = (struct credential_keys){ 0 };
		profile.role = (struct credentials_role){ 0 };
	}
	credentials_profile_clear(&profile);
	if (err == -ENOENT && named)
		return -EACCES;
	return err == -EINVAL ? -EACCES : err;
}

static int from_web_identity(struct credentials *c, char *msg, size_t msg_size)
{
	const char *file = credentials_env("AWS_WEB_IDENTITY_TOKEN_FILE");
	const char *arn = credentials_env("AWS_ROLE_ARN");

	if (!file)
		return -ENOENT;
	if (!arn) {
		snprintf(msg, msg_size,
			 "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not: they go together");
		return -EINVAL;
	}
	c->kind = CREDENTIALS_WEB_IDENTITY;
	if (credentials_text_copy(&c->role.token_file, file) ||
	    credentials_text_copy(&c->role.arn, arn) ||
	    credentials_text_copy(&c->role.session, credentials_env("AWS_ROLE_SESSION_NAME")))
		return -ENOMEM;
	return 0;
}

static int from_machine(struct credentials *c, char *msg, size_t msg_size)
{
	int err = credentials_container_url(&c->url, msg, msg_size);

	if (err != -ENOENT) {
		c->kind = CREDENTIALS_CONTAINER;
		return err;
	}
	err = credentials_instance_url(&c->url, msg, msg_size);
	if (err != -ENOENT)
		c->kind = CREDENTIALS_INSTANCE;
	return err;
}

static int find(struct credentials *c, const struct origin_settings *settings, char *msg,
		size_t msg_size)
{
	/* One that is named says what is wrong with it; another one is passed over. */
	bool named = settings->profile || credentials_env("AWS_PROFILE");
	int err = from_settings(c, settings, msg, msg_size);

	if (err == -ENOENT && !settings->profile)
		err = from_environment(c);
	if (err == -ENOENT)
		err = from_profile(c, named, msg, msg_size);
	if (err == -ENOENT)
		err = from_web_identity(c, msg, msg_size);
	if (err == -ENOENT)
		err = from_machine(c, msg, msg_size);
	if (err == -ENOENT) {
		c->absent = true;
		err = 0;
	}
	return err;
}

/*
 * Whose keys they are: part of the key of cached blocks. What changes with each session
 * must not be in it, what tells principals apart must:
 *
 *	anonymous		nobody's: what is public
 *	key:ID			keys of the configuration or the environment
 *	profile:NAME:ID		a profile with keys of its own
 *	profile:NAME		one with a session token: ID and token change with each renewal
 *	role:ARN		a role from STS, however it is asked for
 *	container:URL		the role that the container has, by its endpoint; that of ECS
 *	container		has a number for each task in it, which is left out
 *	instance		the role that the instance has
 */
static int make_identity(struct credentials *c)
{
	int n;

	switch (c->kind) {
	case CREDENTIALS_CONFIG:
	case CREDENTIALS_ENVIRONMENT:
		n = asprintf(&c->identity, "key:%s", c->keys.access_key);
		break;
	case CREDENTIALS_PROFILE:
	case CREDENTIALS_WEB_IDENTITY:
		if (c->role.arn)
			n = asprintf(&c->identity, "role:%s", c->role.arn);
		else
			n = asprintf(&c->identity, "profile:%s%s%s", c->files.profile,
				     c->keys.session_token ? "" : ":",
				     c->keys.session_token ? "" : c->keys.access_key);
		break;
	case CREDENTIALS_CONTAINER:
		if (credentials_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"))
			n = asprintf(&c->identity, "container");
		else
			n = asprintf(&c->identity, "container:%.*s", (int)strcspn(c->url, "?#"),
				     c->url);
		break;
	case CREDENTIALS_INSTANCE:
		n = asprintf(&c->identity, "instance");
		break;
	default:
		n = asprintf(&c->identity, "anonymous");
		break;
	}
	if (n < 0)
		c->identity = NULL;
	return n < 0 ? -ENOMEM : 0;
}

int credentials_create(const struct origin_settings *settings, struct credentials **ret, char *msg,
		       size_t msg_size)
{
	struct credentials *c = calloc(1, sizeof(*c));
	const char *region = credentials_env("AWS_REGION");
	int err;

	if (!c) {
		snprintf(msg, msg_size, "out of memory");
		return -ENOMEM;
	}
	pthread_mutex_init(&c->lock, NULL);
	if (!region)
		region = credentials_env("AWS_DEFAULT_REGION");
	err = credentials_text_copy(&c->region, region);
	if (!err)
		err = credentials_files_init(&c->files, settings->profile);
	if (!err)
		err = credentials_text_copy(&c->ca, settings->ca);
	if (!err)
		err = credentials_text_copy(&c->proxy, settings->proxy);
	if (!err)
		err = find(c, settings, msg, msg_size);
	if (!err)
		err = credentials_text_copy(&c->sts_region,
					    settings->region ? settings->region : c->region);
	if (!err)
		err = make_identity(c);
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
	credentials_role_clear(&c->role);
	credentials_files_clear(&c->files);
	pthread_mutex_destroy(&c->lock);
	free(c->region);
	free(c->sts_region);
	free(c->identity);
	free(c->ca);
	free(c->proxy);
	free(c->url);
	free(c);
}
