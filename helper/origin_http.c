// SPDX-License-Identifier: MIT
/*
 * origin_http: files of a web server.
 *
 * A file is what answers HEAD (or, where the server knows no HEAD, GET of its first
 * byte); a directory is what redirects to itself with a slash, or ends in one, and
 * answers GET with nginx's autoindex in JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "http_index.h"
#include "origin_http_impl.h"
#include "origin_path.h"
#include "validator.h"

#define LISTING_MAX (64u << 20)
#define TOKEN_MAX   16384

/* One call: at most two requests one after the other. */
struct http_op {
	struct origin_call base;
	struct origin_http *origin;
	struct loop *loop;
	struct http_call *http;
	char *path;
	int (*send)(struct http_op *op); /* the request under way, again */
	char *token;			 /* that it had, of bearer_file */
	bool renewed;			 /* it was made again with another one */
	bool probed;			 /* stat: HEAD was not enough */
	origin_stat_fn stat_done;
	origin_list_fn list_done;
	struct origin_get get;
	struct origin_attr attr;
	origin_offers_fn offers_done;
	struct offers offers;
	const char *suffix; /* of what is asked for, to the path's name */
	void *arg;
};

static struct origin_http *of(struct origin *origin)
{
	return container_of(origin, struct origin_http, base);
}

static void token_free(char *token)
{
	if (token)
		explicit_bzero(token, strlen(token));
	free(token);
}

static void op_free(struct http_op *op)
{
	origin_unref(&op->origin->base);
	token_free(op->token);
	free(op->path);
	free(op);
}

static void op_cancel(struct origin_call *call)
{
	struct http_op *op = container_of(call, struct http_op, base);

	http_cancel(op->http);
	op_free(op);
}

static struct http_op *op_create(struct origin *origin, struct loop *loop, const char *path)
{
	struct http_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->path = strdup(path);
	if (!op->path) {
		free(op);
		return NULL;
	}
	op->base.cancel = op_cancel;
	op->suffix = "";
	op->origin = of(origin_ref(origin));
	op->loop = loop;
	return op;
}

/* The URL of the op's path, or its name for people. */
static char *url_of(const struct http_op *op, bool encode, bool slash)
{
	const struct origin_http *origin = op->origin;
	const char *path = op->path;
	size_t base = strlen(origin->url), len = strlen(path);
	char *url = malloc(base + ORIGIN_ENCODED_MAX(len) + strlen(op->suffix) + 2), *end;

	if (!url)
		return NULL;
	end = mempcpy(url, origin->url, base);
	if (*path) {
		*end++ = '/';
		if (encode)
			end = origin_encode(end, path, len, true);
		else
			end = mempcpy(end, path, len);
	} else {
		slash = slash || origin->slash;
	}
	if (slash)
		*end++ = '/';
	memcpy(end, op->suffix, strlen(op->suffix) + 1);
	return url;
}

/* The token as it is now, allocated: whoever renews it replaces the file. */
static int read_token(const struct origin_http *origin, char **ret)
{
	cleanup_close int fd = open(origin->bearer_file, O_RDONLY | O_CLOEXEC);
	char token[TOKEN_MAX];
	ssize_t n;

	if (fd < 0)
		return -EACCES;
	n = read(fd, token, sizeof(token) - 1);
	if (n < 0)
		return -EACCES;
	token[n] = '\0';
	token[strcspn(token, "\r\n")] = '\0';
	*ret = strdup(token);
	explicit_bzero(token, sizeof(token));
	return *ret ? 0 : -ENOMEM;
}

static int add_bearer(struct http_op *op, struct curl_slist **headers)
{
	char value[TOKEN_MAX + 8];
	int err;

	token_free(op->token);
	op->token = NULL;
	err = read_token(op->origin, &op->token);
	if (err)
		return err;
	snprintf(value, sizeof(value), "Bearer %s", op->token);
	err = http_header(headers, "Authorization", value);
	explicit_bzero(value, sizeof(value));
	return err;
}

static int secrets_of(struct http_op *op, struct curl_slist **ret)
{
	const struct origin_http *origin = op->origin;
	struct curl_slist *headers = NULL, *grown;
	int err = 0;

	for (char **line = origin->headers; line && *line && !err; line++) {
		grown = curl_slist_append(headers, *line);
		if (grown)
			headers = grown;
		else
			err = -ENOMEM;
	}
	if (!err && origin->bearer_file)
		err = add_bearer(op, &headers);
	if (err) {
		http_headers_free(headers);
		return err;
	}
	*ret = headers;
	return 0;
}

/* Completes and starts a request for the op's path. */
static int op_send(struct http_op *op, struct http_request *request, bool slash)
{
	cleanup_free char *url = url_of(op, true, slash);
	cleanup_free char *what = url_of(op, false, slash);
	int err = url && what ? secrets_of(op, &request->secrets) : -ENOMEM;

	if (err) {
		curl_slist_free_all(request->headers);
		return err;
	}
	request->url = url;
	request->what = what;
	request->arg = op;
	return http_start(&op->origin->client, op->loop, request, &op->http);
}

/* Refused, and the token in the file is another one by now: true, it is on its way again. */
static bool op_again(struct http_op *op, const struct http_answer *answer)
{
	char *token = NULL;
	bool other;

	if (answer->reply->status != 401 || op->renewed || !op->token ||
	    read_token(op->origin, &token))
		return false;
	other = strcmp(token, op->token) != 0;
	token_free(token);
	if (!other)
		return false;
	op->renewed = true;
	return !op->send(op);
}

/* stat */

static void stat_end(struct http_op *op, const struct origin_result *result)
{
	op->stat_done(op->arg, result, &op->attr);
	op_free(op);
}

static void on_stat(void *arg, struct http_answer *answer);

/*
 * HEAD told no length, is not known, or is not what a signed URL was made for: the
 * answer to GET of the first byte has the length in Content-Range.
 */
static int probe(struct http_op *op)
{
	struct http_request request = { .stop_at_slash = true, .body_max = 4096, .done = on_stat };
	int err = http_header(&request.headers, "Range", "bytes=0-0");

	op->probed = true;
	op->send = probe;
	if (err) {
		curl_slist_free_all(request.headers);
		return err;
	}
	return op_send(op, &request, false);
}

static void on_stat(void *arg, struct http_answer *answer)
{
	struct http_op *op = arg;
	struct origin_result *result = &answer->result;
	struct http_reply reply = *answer->reply;
	bool directory = answer->to_slash || (!result->error && !*op->path && op->origin->slash);

	if (op_again(op, answer))
		return;
	if (directory) {
		*result = (struct origin_result){ .status = reply.status };
		op->attr = (struct origin_attr){ .mode = S_IFDIR };
		stat_end(op, result);
		return;
	}
	if (!op->probed && (reply.status == 405 || reply.status == 501 ||
			    (answer->redirected && result->error == -EACCES) ||
			    (!result->error && !reply.has_length))) {
		int err = probe(op);

		if (!err)
			return;
		origin_fail(result, answer->text, err, true, "out of memory");
	}
	if (op->probed && reply.has_total && (reply.status == 206 || reply.status == 416)) {
		if (reply.status == 416 && !reply.total)
			*result = (struct origin_result){ .status = reply.status };
		reply.length = reply.total;
		reply.has_length = true;
	}
	if (!result->error && !reply.has_length)
		origin_fail(result, answer->text, -EIO, false,
			    "%s/%s: the server does not say how long it is", op->origin->url,
			    op->path);
	if (!result->error)
		validator_attr(&reply, &op->attr);
	stat_end(op, result);
}

static int send_stat(struct http_op *op)
{
	struct http_request request = { .head = true, .stop_at_slash = true, .done = on_stat };

	return op_send(op, &request, false);
}

static int http_stat(struct origin *origin, struct loop *loop, const char *path,
		     origin_stat_fn done, void *arg, struct origin_call **ret_call)
{
	struct http_op *op = op_create(origin, loop, path);
	int err;

	if (!op)
		return -ENOMEM;
	op->stat_done = done;
	op->arg = arg;
	op->send = send_stat;
	err = op->send(op);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* list */

static void on_list(void *arg, struct http_answer *answer)
{
	struct http_op *op = arg;
	struct origin_result *result = &answer->result;
	struct origin_page page = { 0 };

	if (op_again(op, answer))
		return;
	if (!result->error && answer->body_cut) {
		origin_fail(result, answer->text, -EFBIG, false,
			    "%s/%s/: the listing is longer than %u MiB", op->origin->url, op->path,
			    LISTING_MAX >> 20);
	} else if (!result->error) {
		int err = http_index_parse(answer->body, answer->body_len, &page);

		if (err == -ENOMEM)
			origin_fail(result, answer->text, err, true, "out of memory");
		else if (err == -EFBIG)
			origin_fail(result, answer->text, err, false,
				    "%s/%s/: the listing has more than a million names",
				    op->origin->url, op->path);
		else if (err)
			origin_fail(result, answer->text, -EIO, false,
				    "%s/%s/: no listing in JSON (nginx: autoindex on; autoindex_format json)",
				    op->origin->url, op->path);
	}
	if (result->error)
		op->list_done(op->arg, result, NULL, 0, NULL, 0);
	else
		op->list_done(op->arg, result, page.entries, page.count, NULL, page.skipped);
	origin_page_free(&page);
	op_free(op);
}

static int send_list(struct http_op *op)
{
	struct http_request request = { .body_max = LISTING_MAX, .done = on_list };

	return op_send(op, &request, true);
}

static int http_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		     origin_list_fn done, void *arg, struct origin_call **ret_call)
{
	struct http_op *op;
	int err;

	/* A listing comes in one piece. */
	if (token)
		return -EINVAL;
	op = op_create(origin, loop, path);
	if (!op)
		return -ENOMEM;
	op->list_done = done;
	op->arg = arg;
	op->send = send_list;
	err = op->send(op);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* read */

static void on_progress(void *arg, uint64_t bytes)
{
	struct http_op *op = arg;

	op->get.progress(op->get.arg, bytes);
}

static void on_read(void *arg, struct http_answer *answer)
{
	struct http_op *op = arg;

	if (op_again(op, answer))
		return;
	op->get.done(op->get.arg, &answer->result, answer->bytes);
	op_free(op);
}

static int send_read(struct http_op *op)
{
	struct http_request request = {
		.attr = &op->attr,
		.dst = op->get.dst,
		.offset = op->get.offset,
		.len = op->get.len,
		.progress = op->get.progress ? on_progress : NULL,
		.done = on_read,
	};

	return op_send(op, &request, false);
}

static int http_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		     struct origin_call **ret_call)
{
	struct http_op *op = op_create(origin, loop, get->path);
	int err;

	if (!op)
		return -ENOMEM;
	op->get = *get;
	/* The caller's is not kept: the request may be made again. */
	op->attr = *get->attr;
	op->send = send_read;
	err = op->send(op);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* offers */

static void offers_end(struct http_op *op, const struct origin_result *result)
{
	op->offers_done(op->arg, result, &op->offers);
	op_free(op);
}

static void on_offers_file(void *arg, struct http_answer *answer)
{
	struct http_op *op = arg;
	const char *path = *op->path ? op->path : op->origin->url, *slash = strrchr(path, '/');
	cleanup_free char *name = NULL;
	int error = answer->result.error;

	if (op_again(op, answer))
		return;
	name = strdup(slash ? slash + 1 : path);
	if (name && !*op->path)
		origin_decode(name);
	if (error == -ENOENT || error == -EACCES || answer->to_slash)
		answer->result = (struct origin_result){ .status = answer->result.status };
	else if (name && !error && !answer->body_cut)
		offers_file(&op->offers, answer->body, answer->body_len, name);
	offers_end(op, &answer->result);
}

static int send_offers_file(struct http_op *op)
{
	struct http_request request = {
		.stop_at_slash = true,
		.body_max = OFFERS_FILE_MAX,
		.done = on_offers_file,
	};

	op->suffix = OFFERS_SUFFIX;
	return op_send(op, &request, false);
}

static void on_offers_head(void *arg, struct http_answer *answer)
{
	struct http_op *op = arg;
	unsigned int status = answer->reply->status;

	if (op_again(op, answer))
		return;
	/* A server that knows no HEAD may have the file all the same. */
	if (status == 405 || status == 501)
		answer->result = (struct origin_result){ .status = status };
	else if (!answer->result.error && !http_same_version(answer, &op->attr))
		op->offers = answer->reply->offers;
	if (!answer->result.error && offers_wanted(*op->path ? op->path : op->origin->url)) {
		op->send = send_offers_file;
		op->renewed = false;
		if (!op->send(op))
			return;
		origin_fail(&answer->result, answer->text, -ENOMEM, true, "out of memory");
	}
	offers_end(op, &answer->result);
}

static int send_offers_head(struct http_op *op)
{
	struct http_request request = { .head = true, .done = on_offers_head };
	int err = http_header(&request.headers, "Want-Repr-Digest", "sha-256=10, sha-512=5");

	if (!err)
		err = http_header(&request.headers, "Want-Digest", "sha-256, sha-512;q=0.5");
	if (err) {
		curl_slist_free_all(request.headers);
		return err;
	}
	return op_send(op, &request, false);
}

static int http_offers(struct origin *origin, struct loop *loop, const char *path,
		       const struct origin_attr *attr, origin_offers_fn done, void *arg,
		       struct origin_call **ret_call)
{
	struct http_op *op = op_create(origin, loop, path);
	int err;

	if (!op)
		return -ENOMEM;
	op->offers_done = done;
	op->arg = arg;
	op->attr = *attr;
	op->send = send_offers_head;
	err = op->send(op);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* The origin itself. */

static void http_destroy(struct origin *origin)
{
	struct origin_http *http = of(origin);

	http_client_clear(&http->client);
	for (char **line = http->headers; line && *line; line++) {
		explicit_bzero(*line, strlen(*line));
		free(*line);
	}
	free(http->headers);
	free(http->bearer_file);
	free(http->url);
	free(origin->identity);
	free(http);
}

static void http_credentials(struct origin *origin, struct origin_credentials *ret)
{
	const struct origin_http *http = of(origin);

	if (http->bearer_file)
		ret->source = "bearer_file";
	else if (http->headers && http->headers[0])
		ret->source = "header";
}

const struct origin_ops origin_http_ops = {
	.stat = http_stat,
	.list = http_list,
	.read = http_read,
	.offers = http_offers,
	.credentials = http_credentials,
	.destroy = http_destroy,
};
