/* SPDX-License-Identifier: MIT */
/*
 * credentials: the keys that sign requests to S3, from the first source that has any.
 *
 * Asked in this order: the profile or the keys that the settings name, the environment,
 * the AWS profile files, a web identity token (AWS_WEB_IDENTITY_TOKEN_FILE, exchanged
 * at STS), the endpoint of the container, the metadata service of the instance; where
 * none has keys, requests go unsigned. It is the order of Amazon's SDKs for Rust and
 * C++. Which source it is is settled at creation, but for the last two.
 *
 * Keys that expire are asked for anew ahead of that, and when S3 refuses them. There is
 * one such request at a time, on the loop of one of those who want keys; the others wait
 * for its outcome, or go on with what is still good. Any thread; callbacks on the loop
 * that was named.
 */
#ifndef WFS_CREDENTIALS_H
#define WFS_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct credentials;
struct credentials_wait; /* one who waits for keys; gone when its callback is made */
struct loop;
struct origin_result;
struct origin_settings;

/* One set of keys; credential_keys_clear() when done. All NULL: sign nothing. */
struct credential_keys {
	char *access_key, *secret_key, *session_token;
	int64_t expires; /* seconds since 1970, 0: never, as far as is known */
};

/*
 * Finds the source; asks nothing of the network. -EACCES with a sentence when what is
 * named does not exist, -EINVAL when it makes no sense.
 */
int credentials_create(const struct origin_settings *settings, struct credentials **ret, char *msg,
		       size_t msg_size);
/* Nobody may be waiting any more. */
void credentials_free(struct credentials *credentials);

typedef void (*credentials_fn)(void *arg, const struct origin_result *result);
/*
 * The keys as they are now. refused: the ones that S3 has just refused, or NULL.
 *
 *	0		they are in *ret_keys
 *	-EINPROGRESS	they are asked for: done() will be called on the loop, with
 *			*ret_keys set if there was no error
 *	-EACCES		with refused: there are no others
 *	-ENOMEM
 */
int credentials_get(struct credentials *credentials, struct loop *loop,
		    const struct credential_keys *refused, struct credential_keys *ret_keys,
		    credentials_fn done, void *arg, struct credentials_wait **ret_wait);
/* No callback is made any more. On the wait's loop. */
void credentials_cancel(struct credentials_wait *wait);
/* Zeroes what it frees. */
void credential_keys_clear(struct credential_keys *keys);

/* Where the settings name no region: the environment's or the profile's, or NULL. */
const char *credentials_region(const struct credentials *credentials);
/* Names whose keys they are, with no secret in it; the same as long as it is the same principal. */
const char *credentials_identity(const struct credentials *credentials);
/* "configuration", "environment", "profile", "web-identity", "container", "instance", "none". */
const char *credentials_source(struct credentials *credentials, int64_t *ret_expires);
/* Why requests go unsigned although nobody asked for that; "" if they do not. */
void credentials_absence(struct credentials *credentials, char *text, size_t size);
/* Whether keys come over the network: they are asked for only with good reason. */
bool credentials_renewable(struct credentials *credentials);
/* Whether a source that goes before the one in use has appeared since. */
bool credentials_outdated(struct credentials *credentials);

#endif /* WFS_CREDENTIALS_H */
