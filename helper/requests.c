// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core.h"
#include "kernel_impl.h"

#define LOG_AREA "requests"
#include "log.h"

static const char *const names[OPCODES] = {
	[WFS_REQ_MOUNT] = "mount",     [WFS_REQ_UNMOUNT] = "unmount",
	[WFS_REQ_LOOKUP] = "lookup",   [WFS_REQ_GETATTR] = "getattr",
	[WFS_REQ_READDIR] = "readdir", [WFS_REQ_READLINK] = "readlink",
	[WFS_REQ_OPEN] = "open",       [WFS_REQ_MAP] = "map",
	[WFS_REQ_FILL] = "fill",       [WFS_REQ_FORGET] = "forget",
	[WFS_REQ_RESUMED] = "resumed",
};

int request_errno(int error)
{
	switch (error) {
	case 0:
	case -ENOENT:
	case -EACCES:
	case -ESTALE:
	case -EIO:
	case -ETIMEDOUT:
	case -ENOTDIR:
	case -EISDIR:
	case -EINVAL:
	case -ENOMEM:
	case -ENAMETOOLONG:
	case -ELOOP:
	case -EDEADLK:
	case -EOPNOTSUPP:
		return error;
	case -EPERM:
		return -EACCES;
	default:
		return -EIO;
	}
}

int request_strings(const struct wfs_request *request, const char **ret, size_t count)
{
	const char *at = (const char *)request->payload;
	const char *end = at + request->payload_len;

	for (size_t i = 0; i < count; i++) {
		const char *nul = memchr(at, '\0', (size_t)(end - at));

		if (!nul)
			return -EINVAL;
		ret[i] = at;
		at = nul + 1;
	}
	return 0;
}

void request_reply(struct kernel *kernel, struct wfs_request *request, int status,
		   const void *payload, size_t len)
{
	if (status != -ECANCELED) {
		status = request_errno(status);
		log_debug("request %llu: %s: %s", (unsigned long long)request->id,
			  request->opcode < OPCODES && names[request->opcode] ?
				  names[request->opcode] :
				  "unknown",
			  status ? strerror(-status) : "answered");
		if (status && status != -ENOENT && request->opcode < OPCODES)
			kernel->errors[request->opcode]++;
		channel_commit(&kernel->session, request->id, status, -1, payload, len);
	}
	free(request);
}

void request_attr(const struct origin_attr *attr, struct wfs_attr *ret)
{
	struct wfs_attr out = {
		.mode = attr->mode & S_IFMT,
		.mtime_sec = attr->mtime_sec,
		.mtime_nsec = attr->mtime_nsec < 1000000000 ? attr->mtime_nsec : 0,
	};

	if (!S_ISDIR(attr->mode))
		out.size = attr->size;
	if (S_ISREG(attr->mode)) {
		if (attr->flags & ORIGIN_WEAK)
			out.flags |= WFS_ATTR_UNCACHED;
		if (attr->flags & ORIGIN_UNPROVEN)
			out.flags |= WFS_ATTR_UNPROVEN;
		out.version_len = (uint32_t)strnlen(attr->version, WFS_VERSION_MAX);
		memcpy(out.version, attr->version, out.version_len);
	}
	*ret = out;
}

static void resumed(struct kernel *kernel, struct wfs_request *request)
{
	log_info("all that outlived the last session is known again: %llu mounts, %llu files",
		 (unsigned long long)kernel->mount_count, (unsigned long long)kernel->node_count);
	core_allow_eviction(kernel->core, 1);
	request_reply(kernel, request, 0, NULL, 0);
}

void requests_handle(struct session *session, struct wfs_request *request)
{
	struct kernel *kernel = container_of(session, struct kernel, session);

	if (request->opcode < OPCODES)
		kernel->requests[request->opcode]++;
	log_debug("request %llu: %s, mount %llu, node %llu, block %llu, units %u+%u",
		  (unsigned long long)request->id,
		  request->opcode < OPCODES && names[request->opcode] ? names[request->opcode] :
									"unknown",
		  (unsigned long long)request->mount, (unsigned long long)request->node,
		  (unsigned long long)request->block, request->unit, request->units);
	switch (request->opcode) {
	case WFS_REQ_MOUNT:
		requests_mount(kernel, request);
		break;
	case WFS_REQ_UNMOUNT:
		requests_unmount(kernel, request);
		break;
	case WFS_REQ_LOOKUP:
	case WFS_REQ_GETATTR:
		requests_lookup(kernel, request);
		break;
	case WFS_REQ_READDIR:
		requests_readdir(kernel, request);
		break;
	case WFS_REQ_READLINK:
		requests_readlink(kernel, request);
		break;
	case WFS_REQ_OPEN:
		requests_open(kernel, request);
		break;
	case WFS_REQ_MAP:
		requests_map(kernel, request);
		break;
	case WFS_REQ_FILL:
		requests_fill(kernel, request);
		break;
	case WFS_REQ_FORGET:
		requests_forget(kernel, request);
		break;
	case WFS_REQ_RESUMED:
		resumed(kernel, request);
		break;
	default:
		log_error("request %llu has the unknown code %u: the kernel module is newer",
			  (unsigned long long)request->id, request->opcode);
		request_reply(kernel, request, -EOPNOTSUPP, NULL, 0);
	}
}
