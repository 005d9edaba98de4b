// SPDX-License-Identifier: MIT
/*
 * credentials_profile: the files that Amazon's programs share, ~/.aws/credentials and
 * ~/.aws/config ("Shared config and credentials files" of the AWS SDKs and Tools
 * Reference Guide).
 */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "credentials_impl.h"
#include "inifile.h"

enum field {
	ACCESS_KEY,
	SECRET_KEY,
	SESSION_TOKEN,
	REGION,
	ROLE_ARN,
	ROLE_SESSION_NAME,
	WEB_IDENTITY_TOKEN_FILE,
	SOURCE_PROFILE,
	EXTERNAL_ID,
	CREDENTIAL_PROCESS,
	CREDENTIAL_SOURCE,
	SSO_SESSION,
	SSO_START_URL,
	FIELDS,
};

static const char *const field_names[FIELDS] = {
	[ACCESS_KEY] = "aws_access_key_id",
	[SECRET_KEY] = "aws_secret_access_key",
	[SESSION_TOKEN] = "aws_session_token",
	[REGION] = "region",
	[ROLE_ARN] = "role_arn",
	[ROLE_SESSION_NAME] = "role_session_name",
	[WEB_IDENTITY_TOKEN_FILE] = "web_identity_token_file",
	[SOURCE_PROFILE] = "source_profile",
	[EXTERNAL_ID] = "external_id",
	[CREDENTIAL_PROCESS] = "credential_process",
	[CREDENTIAL_SOURCE] = "credential_source",
	[SSO_SESSION] = "sso_session",
	[SSO_START_URL] = "sso_start_url",
};

/* The ways to credentials that are not gone here. */
static const enum field not_done[] = { CREDENTIAL_PROCESS, CREDENTIAL_SOURCE, SSO_SESSION,
				       SSO_START_URL };

/* One profile in one file. */
struct reading {
	const char *profile;
	bool config_file; /* its sections are "profile NAME" */
	char *values[FIELDS];
	bool failed;
};

static void reading_clear(struct reading *reading)
{
	for (size_t i = 0; i < FIELDS; i++) {
		credentials_text_free(reading->values[i]);
		reading->values[i] = NULL;
	}
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

	if (!right_section(reading, section))
		return 1;
	for (size_t i = 0; i < FIELDS; i++) {
		if (strcmp(name, field_names[i]))
			continue;
		credentials_text_free(reading->values[i]);
		reading->values[i] = NULL;
		if (credentials_text_copy(&reading->values[i], value))
			reading->failed = true;
	}
	return 1;
}

/* Both files, the credentials file before the configuration file; keys come from one of them. */
static int read_both(const struct credentials_files *files, const char *profile,
		     struct reading *ret)
{
	struct reading other = { .profile = profile, .config_file = true };
	bool failed;

	*ret = (struct reading){ .profile = profile };
	inifile_parse(files->path[0], on_value, ret);
	inifile_parse(files->path[1], on_value, &other);
	for (size_t i = ret->values[ACCESS_KEY] || ret->values[SECRET_KEY] ? REGION : 0; i < FIELDS;
	     i++)
		if (!ret->values[i])
			ret->values[i] = TAKE(other.values[i]);
	failed = ret->failed || other.failed;
	reading_clear(&other);
	if (failed)
		reading_clear(ret);
	return failed ? -ENOMEM : 0;
}

static void take_keys(struct reading *reading, struct credential_keys *keys)
{
	keys->access_key = TAKE(reading->values[ACCESS_KEY]);
	keys->secret_key = TAKE(reading->values[SECRET_KEY]);
	keys->session_token = TAKE(reading->values[SESSION_TOKEN]);
}

/* The keys of the profile that may assume the role. */
static int read_source(const struct credentials_files *files, const char *name,
		       struct credential_keys *keys, char *msg, size_t msg_size)
{
	struct reading source;
	int err = read_both(files, name, &source);

	if (err)
		return err;
	if (source.values[ACCESS_KEY] && source.values[SECRET_KEY]) {
		take_keys(&source, keys);
	} else {
		snprintf(msg, msg_size, "profile \"%s\" has source_profile %s, which has no keys",
			 files->profile, name);
		err = -EINVAL;
	}
	reading_clear(&source);
	return err;
}

static int take_role(const struct credentials_files *files, struct reading *reading,
		     struct credentials_role *role, char *msg, size_t msg_size)
{
	int err = 0;

	if (reading->values[WEB_IDENTITY_TOKEN_FILE]) {
		role->token_file = TAKE(reading->values[WEB_IDENTITY_TOKEN_FILE]);
	} else if (reading->values[SOURCE_PROFILE]) {
		err = read_source(files, reading->values[SOURCE_PROFILE], &role->keys, msg,
				  msg_size);
	} else {
		snprintf(msg, msg_size,
			 "profile \"%s\" has role_arn, but neither web_identity_token_file nor source_profile",
			 files->profile);
		err = -EINVAL;
	}
	if (err)
		return err;
	role->arn = TAKE(reading->values[ROLE_ARN]);
	role->session = TAKE(reading->values[ROLE_SESSION_NAME]);
	role->external_id = TAKE(reading->values[EXTERNAL_ID]);
	return 0;
}

static int take_profile(const struct credentials_files *files, struct reading *reading,
			struct credentials_profile *profile, char *msg, size_t msg_size)
{
	if (reading->values[ROLE_ARN])
		return take_role(files, reading, &profile->role, msg, msg_size);
	if (reading->values[ACCESS_KEY] && reading->values[SECRET_KEY]) {
		take_keys(reading, &profile->keys);
		return 0;
	}
	if (reading->values[ACCESS_KEY] || reading->values[SECRET_KEY]) {
		snprintf(msg, msg_size, "profile \"%s\" in %s has no %s", files->profile,
			 files->path[0],
			 field_names[reading->values[ACCESS_KEY] ? SECRET_KEY : ACCESS_KEY]);
		return -EINVAL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(not_done); i++) {
		if (!reading->values[not_done[i]])
			continue;
		snprintf(msg, msg_size,
			 "profile \"%s\" has %s, which wfsd does not do: it takes keys, or a role with web_identity_token_file or source_profile",
			 files->profile, field_names[not_done[i]]);
		return -EINVAL;
	}
	snprintf(msg, msg_size, "there is no profile \"%s\" with keys in %s", files->profile,
		 files->path[0]);
	return -ENOENT;
}

int credentials_profile_read(const struct credentials_files *files,
			     struct credentials_profile *ret_profile, char *msg, size_t msg_size)
{
	struct credentials_profile profile = { 0 };
	struct reading reading;
	int err = read_both(files, files->profile, &reading);

	if (err)
		return err;
	profile.region = TAKE(reading.values[REGION]);
	err = take_profile(files, &reading, &profile, msg, msg_size);
	reading_clear(&reading);
	if (err && err != -ENOENT)
		credentials_profile_clear(&profile);
	else
		*ret_profile = profile;
	return err;
}

void credentials_profile_clear(struct credentials_profile *profile)
{
	credential_keys_clear(&profile->keys);
	credentials_role_clear(&profile->role);
	free(profile->region);
	profile->region = NULL;
}

/* Where the environment says, or in ~/.aws. */
static char *file_path(const char *variable, const char *name)
{
	const char *set = credentials_env(variable), *home = credentials_env("HOME");
	char *path;

	if (set)
		return strdup(set);
	if (!home) {
		const struct passwd *user = getpwuid(getuid());

		home = user ? user->pw_dir : "/";
	}
	return asprintf(&path, "%s/.aws/%s", home, name) < 0 ? NULL : path;
}

int credentials_files_init(struct credentials_files *files, const char *name)
{
	if (!name)
		name = credentials_env("AWS_PROFILE");
	*files = (struct credentials_files){
		.profile = strdup(name && *name ? name : "default"),
		.path = { file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
			  file_path("AWS_CONFIG_FILE", "config") },
	};
	return files->profile && files->path[0] && files->path[1] ? 0 : -ENOMEM;
}

void credentials_files_clear(struct credentials_files *files)
{
	free(files->profile);
	free(files->path[0]);
	free(files->path[1]);
	*files = (struct credentials_files){ 0 };
}

static struct credentials_stamp stamp_of(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return (struct credentials_stamp){ 0 };
	return (struct credentials_stamp){
		.mtime = st.st_mtim,
		.size = st.st_size,
		.ino = st.st_ino,
	};
}

static bool stamp_equal(const struct credentials_stamp *a, const struct credentials_stamp *b)
{
	return a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec &&
	       a->size == b->size && a->ino == b->ino;
}

bool credentials_files_changed(struct credentials_files *files)
{
	struct credentials_stamp now[2] = { stamp_of(files->path[0]), stamp_of(files->path[1]) };
	bool changed = !stamp_equal(&now[0], &files->stamp[0]) ||
		       !stamp_equal(&now[1], &files->stamp[1]);

	files->stamp[0] = now[0];
	files->stamp[1] = now[1];
	return changed;
}
