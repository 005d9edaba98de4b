/* SPDX-License-Identifier: MIT */
/* standin_fault: the wrongs that the stand-in can do. */
#ifndef WFS_TESTS_STANDIN_FAULT_H
#define WFS_TESTS_STANDIN_FAULT_H

#include <wfs.h>
#include "standin.h"

struct reply {
	int status, fd;
	char *payload; /* in the registered memory */
	size_t len;
};

int standin_send(const struct wfs_cmd *cmd);
char *standin_memory(size_t *ret_len);
uint64_t standin_session(void);
int standin_deliver(const struct wfs_request *request, uint32_t unit, uint32_t units);
/* Object bytes in the block of a FILL. */
uint64_t standin_block_bytes(const struct wfs_request *request);

/* Commits; descriptors that a fault opened are the caller's. */
int reply_send(const struct reply *reply, const struct wfs_request *request);
/* Does it, with the right reply at hand. Returns the kernel's result. */
int fault_do(const struct fault *fault, const struct wfs_request *request, struct reply *reply);
/* Is the request answered, once this fault was accepted? */
bool fault_answers(const struct fault *fault);

#endif /* WFS_TESTS_STANDIN_FAULT_H */
