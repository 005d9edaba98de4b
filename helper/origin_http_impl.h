/* SPDX-License-Identifier: MIT */
/* origin_http_impl: what the two files of origin_http share. Not for others. */
#ifndef WFS_ORIGIN_HTTP_IMPL_H
#define WFS_ORIGIN_HTTP_IMPL_H

#include "http.h"
#include "origin_impl.h"

struct origin_http {
	struct origin base;
	struct http_client client;
	char *url;  /* of the source, no '/' at its end */
	bool slash; /* the source had one: it is a directory */
	char **headers;
	char *bearer_file;
};

extern const struct origin_ops origin_http_ops;

#endif /* WFS_ORIGIN_HTTP_IMPL_H */
