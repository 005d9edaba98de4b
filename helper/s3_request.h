/* SPDX-License-Identifier: MIT */
/*
 * s3_request: one signed request to an S3 service, and what its answer means.
 *
 * The keys may have to be waited for first. When they are refused, others are asked for,
 * and if there are any the request is made once more. Threads and callbacks as in http.h.
 */
#ifndef WFS_S3_REQUEST_H
#define WFS_S3_REQUEST_H

#include "http.h"

struct credentials;
struct s3_call;

struct s3_service {
	struct http_client client;
	struct credentials *credentials;
	char *url;  /* of the bucket, no '/' at its end */
	char *host; /* Host line */
	char *path; /* of url, "" if there is none */
	char *region;
	char *bucket;
};

struct s3_request {
	const char *key;   /* NULL: the bucket itself */
	const char *query; /* encoded and sorted, NULL: none */
	bool head;
	bool checksums; /* head: of the object, too */
	/* As in struct http_request. */
	const struct origin_attr *attr;
	void *dst;
	uint64_t offset, len;
	void (*progress)(void *arg, uint64_t bytes);
	size_t body_max;
	void (*done)(void *arg, struct http_answer *answer);
	void *arg;
};

int s3_start(const struct s3_service *service, struct loop *loop, const struct s3_request *request,
	     struct s3_call **ret_call);
void s3_cancel(struct s3_call *call);

#endif /* WFS_S3_REQUEST_H */
