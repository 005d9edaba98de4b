/* SPDX-License-Identifier: MIT */
/* origin_s3_impl: what the two files of origin_s3 share. Not for others. */
#ifndef WFS_ORIGIN_S3_IMPL_H
#define WFS_ORIGIN_S3_IMPL_H

#include "origin_impl.h"
#include "s3_request.h"

struct origin_s3 {
	struct origin base;
	struct s3_service service;
	char *prefix; /* of the source, no '/' at its end; "": the bucket */
};

extern const struct origin_ops origin_s3_ops;

#endif /* WFS_ORIGIN_S3_IMPL_H */
