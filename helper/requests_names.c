// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "kernel_impl.h"
#include "names.h"

/* A request about a name that the origin is asked for. */
struct asking {
	struct kernel *kernel;
	struct wfs_request *request;
	struct mount *mount;
};

static void asking_end(struct asking *asking, int status, const void *payload, size_t len)
{
	request_reply(asking->kernel, asking->request, status, payload, len);
	mount_unref(asking->mount);
	free(asking);
}

/* Takes the request: NULL, and it is answered, if it cannot be asked. */
static struct asking *asking_create(struct kernel *kernel, struct wfs_request *request,
				    const char **ret_strings, size_t count)
{
	struct asking *asking = calloc(1, sizeof(*asking));
	int r = asking ? request_strings(request, ret_strings, count) : -ENOMEM;

	if (!r)
		r = mount_find(kernel, request->mount, &asking->mount);
	if (r) {
		free(asking);
		request_reply(kernel, request, r, NULL, 0);
		return NULL;
	}
	asking->kernel = kernel;
	asking->request = request;
	return asking;
}

static void lookup_done(void *arg, int error, const char *message, const struct origin_attr *attr)
{
	struct wfs_attr reply;

	(void)message;
	if (error) {
		asking_end(arg, error, NULL, 0);
		return;
	}
	request_attr(attr, &reply);
	asking_end(arg, 0, &reply, sizeof(reply));
}

void requests_lookup(struct kernel *kernel, struct wfs_request *request)
{
	struct names_terms terms;
	struct origin_attr attr;
	struct asking *asking;
	const char *path;
	int r;

	asking = asking_create(kernel, request, &path, 1);
	if (!asking)
		return;
	mount_terms(asking->mount, request->mount_ttl, &terms);
	if (request->opcode == WFS_REQ_GETATTR) {
		/* The kernel has an older answer and decides itself whether it will do. */
		terms.hasty = terms.stale;
		terms.stale = false;
	}
	r = names_lookup(asking->mount->names, path, &terms, &attr, lookup_done, asking);
	if (r != -EINPROGRESS)
		lookup_done(asking, r, NULL, &attr);
}

static void link_done(void *arg, int error, const char *message, const char *target)
{
	size_t len = error ? 0 : strlen(target);

	(void)message;
	if (!error && (!len || len > WFS_TARGET_MAX))
		error = len ? -ENAMETOOLONG : -EIO;
	asking_end(arg, error, target, error ? 0 : len);
}

void requests_readlink(struct kernel *kernel, struct wfs_request *request)
{
	struct names_terms terms;
	struct asking *asking;
	const char *path;
	int r;

	asking = asking_create(kernel, request, &path, 1);
	if (!asking)
		return;
	mount_terms(asking->mount, request->mount_ttl, &terms);
	r = names_readlink(asking->mount->names, path, &terms, link_done, asking);
	if (r)
		asking_end(asking, r, NULL, 0);
}

/* A page of a directory, as it is being filled. */
struct listing_reply {
	struct names_part part;
	struct asking *asking;
	size_t len;
	_Alignas(8) char bytes[WFS_REPLY_MAX];
};

static uint8_t dirent_type(mode_t mode)
{
	return S_ISDIR(mode) ? DT_DIR : S_ISLNK(mode) ? DT_LNK : DT_REG;
}

static bool listing_emit(struct names_part *part, const char *name, size_t len, mode_t mode)
{
	struct listing_reply *reply = container_of(part, struct listing_reply, part);
	size_t reclen = (sizeof(struct wfs_dirent) + len + 7) & ~(size_t)7;
	struct wfs_readdir_reply *head = (struct wfs_readdir_reply *)reply->bytes;
	struct wfs_dirent *dirent;

	if (reply->len + reclen > sizeof(reply->bytes))
		return false;
	dirent = (struct wfs_dirent *)(reply->bytes + reply->len);
	memset(dirent, 0, reclen);
	dirent->reclen = (uint16_t)reclen;
	dirent->type = dirent_type(mode);
	dirent->namelen = (uint8_t)len;
	memcpy(dirent->name, name, len);
	reply->len += reclen;
	head->count++;
	return true;
}

static void listing_done(struct names_part *part, int error, const char *message, bool eof)
{
	struct listing_reply *reply = container_of(part, struct listing_reply, part);
	struct wfs_readdir_reply *head = (struct wfs_readdir_reply *)reply->bytes;

	(void)message;
	head->flags = eof ? WFS_READDIR_EOF : 0;
	asking_end(reply->asking, error, reply->bytes, error ? 0 : reply->len);
	free(reply);
}

void requests_readdir(struct kernel *kernel, struct wfs_request *request)
{
	struct listing_reply *reply;
	struct asking *asking;
	const char *strings[2];
	int r;

	asking = asking_create(kernel, request, strings, 2);
	if (!asking)
		return;
	reply = malloc(sizeof(*reply));
	if (!reply) {
		asking_end(asking, -ENOMEM, NULL, 0);
		return;
	}
	memset(&reply->part, 0, sizeof(reply->part));
	memset(reply->bytes, 0, sizeof(struct wfs_readdir_reply));
	reply->asking = asking;
	reply->len = sizeof(struct wfs_readdir_reply);
	reply->part.path = strings[0];
	reply->part.after = strings[1];
	reply->part.emit = listing_emit;
	reply->part.done = listing_done;
	mount_terms(asking->mount, request->mount_ttl, &reply->part.terms);
	r = names_readdir(asking->mount->names, &reply->part);
	if (r) {
		asking_end(asking, r, NULL, 0);
		free(reply);
	}
}
