/* SPDX-License-Identifier: MIT */
/*
 * sigv4: AWS signature version 4, in the Authorization header.
 *
 * "Create a signed AWS API request" and "Authenticating Requests (AWS Signature
 * Version 4)" of Amazon's documentation say how. libcurl's own (7.88) signs an
 * unsorted query and leaves x-amz-content-sha256 out.
 */
#ifndef WFS_SIGV4_H
#define WFS_SIGV4_H

#include <stdbool.h>
#include <stddef.h>

/* SHA-256 of nothing, in hex: the payload of GET and HEAD. */
#define SIGV4_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
/* "20150830T123600Z" with its NUL. */
#define SIGV4_DATE 17

struct sigv4_field {
	const char *name, *value;
};

struct sigv4_request {
	const char *method;
	const char *path;  /* from '/' on, encoded or not */
	const char *query; /* without '?', encoded or not, in any order; NULL: none */
	bool normalize;	   /* "." and ".." are resolved: services other than S3 */
	/* The headers to be signed; one at least must be Host. Same names in order. */
	const struct sigv4_field *fields;
	size_t field_count;
	const char *payload_sha256; /* hex */
	const char *date;	    /* of sigv4_date() */
	const char *region, *service;
};

/* ISO 8601 basic format, UTC. */
void sigv4_date(long long seconds, char text[SIGV4_DATE]);

/* The canonical request, for tests. Allocated. 0, -EINVAL or -ENOMEM. */
int sigv4_canonical(const struct sigv4_request *request, char **ret_text);
/* The value of the Authorization header. Allocated. 0, -EINVAL or -ENOMEM. */
int sigv4_authorization(const struct sigv4_request *request, const char *access_key,
			const char *secret_key, char **ret_value);

#endif /* WFS_SIGV4_H */
