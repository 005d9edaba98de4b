/* SPDX-License-Identifier: MIT */
/*
 * credentials: keys for S3, from the configuration, the environment or the AWS
 * profile files, in this order; a profile named in the settings goes before the
 * environment. Files are read again when they have changed. Any thread.
 */
#ifndef WFS_CREDENTIALS_H
#define WFS_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

struct credentials;
struct origin_settings;

/* One set of keys; credential_keys_clear() when done. All NULL: anonymous. */
struct credential_keys {
	char *access_key, *secret_key, *session_token;
};

/* -EACCES with a sentence when there are none. */
int credentials_create(const struct origin_settings *settings, struct credentials **ret, char *msg,
		       size_t msg_size);
void credentials_free(struct credentials *credentials);

/* The keys as they are now. 0, -ENOMEM or -EACCES. */
int credentials_get(struct credentials *credentials, struct credential_keys *ret_keys);
/* Whether there are other keys by now than those that were refused. */
bool credentials_renewed(struct credentials *credentials, const struct credential_keys *refused);
void credential_keys_clear(struct credential_keys *keys);

/* Where the settings name no region: the environment's or the profile's, or NULL. */
const char *credentials_region(const struct credentials *credentials);
/* Names whose keys they are, with no secret in it. */
const char *credentials_identity(const struct credentials *credentials);

#endif /* WFS_CREDENTIALS_H */
