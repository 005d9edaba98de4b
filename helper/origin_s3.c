// SPDX-License-Identifier: MIT
/*
 * origin_s3: objects of a bucket, as files of a tree.
 *
 * '/' separates. A name is a directory when a key begins with "name/", be it a marker
 * "name/" or anything below, even if there is an object "name" as well: so each name
 * is asked about twice at once, by HEAD and by a listing of one key.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "credentials.h"
#include "origin_path.h"
#include "origin_s3_impl.h"
#include "s3_xml.h"
#include "validator.h"

#define LISTING_MAX (16u << 20)

struct s3_op {
	struct origin_call base;
	struct origin_s3 *origin;
	struct loop *loop;
	char *key;			    /* prefix and path */
	struct s3_call *head, *list, *read; /* under way */

	origin_stat_fn stat_done;
	struct origin_result head_result, list_result;
	char head_text[ORIGIN_MESSAGE_MAX], list_text[ORIGIN_MESSAGE_MAX];
	struct origin_attr attr;
	bool any;

	origin_list_fn list_done;
	char *token; /* of the page asked for, or NULL */
	struct origin_get get;
	origin_offers_fn offers_done;
	struct offers offers;
	origin_part_fn part_done;
	void *arg;
};

static struct origin_s3 *of(struct origin *origin)
{
	return container_of(origin, struct origin_s3, base);
}

static void op_free(struct s3_op *op)
{
	origin_unref(&op->origin->base);
	free(op->key);
	free(op->token);
	free(op);
}

static void op_cancel(struct origin_call *call)
{
	struct s3_op *op = container_of(call, struct s3_op, base);

	if (op->head)
		s3_cancel(op->head);
	if (op->list)
		s3_cancel(op->list);
	if (op->read)
		s3_cancel(op->read);
	op_free(op);
}

static struct s3_op *op_create(struct origin *origin, struct loop *loop, const char *path)
{
	struct s3_op *op = calloc(1, sizeof(*op));
	const char *prefix = of(origin)->prefix;

	if (!op)
		return NULL;
	if (asprintf(&op->key, "%s%s%s", prefix, *prefix && *path ? "/" : "", path) < 0) {
		free(op);
		return NULL;
	}
	op->base.cancel = op_cancel;
	op->origin = of(origin_ref(origin));
	op->loop = loop;
	return op;
}

/* The parameters of ListObjectsV2 for what is below key, in the order of their names. */
static char *list_query(const char *key, const char *token, unsigned int max_keys)
{
	size_t key_len = strlen(key), token_len = token ? strlen(token) : 0;
	cleanup_free char *encoded_key = malloc(ORIGIN_ENCODED_MAX(key_len + 1));
	cleanup_free char *encoded_token = malloc(ORIGIN_ENCODED_MAX(token_len));
	char *query, *end;

	if (!encoded_key || !encoded_token)
		return NULL;
	end = origin_encode(encoded_key, key, key_len, false);
	if (key_len)
		origin_encode(end, "/", 1, false);
	origin_encode(encoded_token, token ? token : "", token_len, false);
	if (asprintf(&query,
		     "%s%s%sdelimiter=%%2F&encoding-type=url&list-type=2&max-keys=%u&prefix=%s",
		     token ? "continuation-token=" : "", encoded_token, token ? "&" : "", max_keys,
		     encoded_key) < 0)
		return NULL;
	return query;
}

/* What the names in a listing begin with. */
static char *list_prefix(const char *key)
{
	char *prefix;

	return asprintf(&prefix, "%s%s", key, *key ? "/" : "") < 0 ? NULL : prefix;
}

static int start_list(struct s3_op *op, const char *token, unsigned int max_keys,
		      void (*done)(void *arg, struct http_answer *answer))
{
	cleanup_free char *query = list_query(op->key, token, max_keys);

	if (!query)
		return -ENOMEM;
	return s3_start(&op->origin->service, op->loop,
			&(struct s3_request){
				.query = query,
				.body_max = LISTING_MAX,
				.done = done,
				.arg = op,
			},
			&op->list);
}

/* Parses a listing's answer; a failure is put into its result. page: see s3_xml.h. */
static void parse_list(struct s3_op *op, struct http_answer *answer, struct origin_page *page,
		       struct s3_listing *listing)
{
	cleanup_free char *prefix = list_prefix(op->key);
	int err;

	if (answer->result.error)
		return;
	err = prefix ? s3_xml_listing(answer->body, answer->body_len, prefix, page, listing) :
		       -ENOMEM;
	if (err || answer->body_cut)
		origin_fail(&answer->result, answer->text, err == -ENOMEM ? err : -EIO,
			    err == -ENOMEM, "s3://%s/%s: the answer is no listing of S3",
			    op->origin->service.bucket, op->key);
}

/* stat */

static void keep_result(struct origin_result *result, char *text, const struct http_answer *answer)
{
	*result = answer->result;
	if (result->message) {
		snprintf(text, ORIGIN_MESSAGE_MAX, "%s", result->message);
		result->message = text;
	}
}

/* Answers once both requests have, or as soon as the other one cannot matter. */
static void stat_step(struct s3_op *op)
{
	struct origin_result *result = &op->head_result;

	if (!op->list && op->any) {
		if (op->head)
			s3_cancel(op->head);
		op->head = NULL;
		op->attr = (struct origin_attr){ .mode = S_IFDIR };
		result = &op->list_result;
	} else if (op->head || op->list) {
		return;
	} else if (op->list_result.error && (op->list_result.transient || !*op->key)) {
		result = &op->list_result;
	} else if (!*op->key) {
		/* An empty bucket. */
		op->attr = (struct origin_attr){ .mode = S_IFDIR };
		result = &op->list_result;
	} else if (op->list_result.error &&
		   (result->error == -ENOENT ||
		    (result->error == -EACCES && op->list_result.error == -EACCES))) {
		/* Who may not list is not told what is missing. HEAD does not say why it refuses. */
		result = &op->list_result;
	}
	op->stat_done(op->arg, result, &op->attr);
	op_free(op);
}

static void on_head(void *arg, struct http_answer *answer)
{
	struct s3_op *op = arg;

	op->head = NULL;
	keep_result(&op->head_result, op->head_text, answer);
	if (!answer->result.error && !answer->reply->has_length)
		origin_fail(&op->head_result, op->head_text, -EIO, false,
			    "s3://%s/%s: the server does not say how long it is",
			    op->origin->service.bucket, op->key);
	if (!op->head_result.error)
		validator_attr(answer->reply, &op->attr);
	stat_step(op);
}

static void on_stat_list(void *arg, struct http_answer *answer)
{
	struct s3_op *op = arg;
	struct s3_listing listing = { 0 };

	op->list = NULL;
	parse_list(op, answer, NULL, &listing);
	free(listing.next_token);
	op->any = !answer->result.error && listing.any;
	keep_result(&op->list_result, op->list_text, answer);
	stat_step(op);
}

static int s3_stat(struct origin *origin, struct loop *loop, const char *path, origin_stat_fn done,
		   void *arg, struct origin_call **ret_call)
{
	struct s3_op *op = op_create(origin, loop, path);
	int err;

	if (!op)
		return -ENOMEM;
	op->stat_done = done;
	op->arg = arg;
	err = start_list(op, NULL, 1, on_stat_list);
	if (!err && *op->key)
		err = s3_start(&op->origin->service, loop,
			       &(struct s3_request){
				       .key = op->key,
				       .head = true,
				       .done = on_head,
				       .arg = op,
			       },
			       &op->head);
	if (err) {
		op_cancel(&op->base);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* list */

static void on_list(void *arg, struct http_answer *answer)
{
	struct s3_op *op = arg;
	struct s3_listing listing = { 0 };
	struct origin_page page = { 0 };

	op->list = NULL;
	parse_list(op, answer, &page, &listing);
	if (!answer->result.error && listing.next_token && op->token &&
	    !strcmp(listing.next_token, op->token))
		origin_fail(&answer->result, answer->text, -EIO, false,
			    "s3://%s/%s: the server gives the same page of the listing for ever",
			    op->origin->service.bucket, op->key);
	if (answer->result.error)
		op->list_done(op->arg, &answer->result, NULL, 0, NULL, 0);
	else
		op->list_done(op->arg, &answer->result, page.entries, page.count,
			      listing.next_token, page.skipped);
	free(listing.next_token);
	origin_page_free(&page);
	op_free(op);
}

static int s3_list(struct origin *origin, struct loop *loop, const char *path, const char *token,
		   origin_list_fn done, void *arg, struct origin_call **ret_call)
{
	struct s3_op *op = op_create(origin, loop, path);
	int err;

	if (!op)
		return -ENOMEM;
	op->list_done = done;
	op->arg = arg;
	op->token = token ? strdup(token) : NULL;
	err = token && !op->token ? -ENOMEM : start_list(op, token, 1000, on_list);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* read */

#define VERSION_QUERY (ORIGIN_ENCODED_MAX(ORIGIN_VERSION_MAX) + 16)

/* The parameter that asks for just this version; NULL: the version is no id. */
static const char *version_query(const struct origin_attr *attr, char query[VERSION_QUERY])
{
	if (strncmp(attr->version, "id:", 3))
		return NULL;
	origin_encode(mempcpy(query, "versionId=", 10), attr->version + 3,
		      strlen(attr->version + 3), false);
	return query;
}

static void on_progress(void *arg, uint64_t bytes)
{
	struct s3_op *op = arg;

	op->get.progress(op->get.arg, bytes);
}

static void on_read(void *arg, struct http_answer *answer)
{
	struct s3_op *op = arg;

	op->get.done(op->get.arg, &answer->result, answer->bytes);
	op_free(op);
}

static int s3_read(struct origin *origin, struct loop *loop, const struct origin_get *get,
		   struct origin_call **ret_call)
{
	struct s3_op *op = op_create(origin, loop, get->path);
	char query[VERSION_QUERY];
	int err;

	if (!op)
		return -ENOMEM;
	op->get = *get;
	err = s3_start(&op->origin->service, loop,
		       &(struct s3_request){
			       .key = op->key,
			       .query = version_query(get->attr, query),
			       .attr = get->attr,
			       .dst = get->dst,
			       .offset = get->offset,
			       .len = get->len,
			       .progress = get->progress ? on_progress : NULL,
			       .done = on_read,
			       .arg = op,
		       },
		       &op->read);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* offers */

static void offers_end(struct s3_op *op, const struct origin_result *result)
{
	op->offers_done(op->arg, result, &op->offers);
	op_free(op);
}

static void on_offers_file(void *arg, struct http_answer *answer)
{
	struct s3_op *op = arg;
	const char *slash = strrchr(op->key, '/');

	op->read = NULL;
	/* Who may not list is refused what is not there. */
	if (answer->result.error == -ENOENT || answer->result.error == -EACCES)
		answer->result = (struct origin_result){ .status = answer->result.status };
	else if (!answer->result.error && !answer->body_cut)
		offers_file(&op->offers, answer->body, answer->body_len,
			    slash ? slash + 1 : op->key);
	offers_end(op, &answer->result);
}

static int send_offers_file(struct s3_op *op)
{
	cleanup_free char *key = NULL;

	if (asprintf(&key, "%s" OFFERS_SUFFIX, op->key) < 0) {
		key = NULL;
		return -ENOMEM;
	}
	return s3_start(&op->origin->service, op->loop,
			&(struct s3_request){
				.key = key,
				.body_max = OFFERS_FILE_MAX,
				.done = on_offers_file,
				.arg = op,
			},
			&op->read);
}

static void on_offers_head(void *arg, struct http_answer *answer)
{
	struct s3_op *op = arg;

	op->head = NULL;
	if (!answer->result.error && !http_same_version(answer, &op->attr)) {
		op->offers = answer->reply->offers;
		if (offers_wanted(op->key)) {
			if (!send_offers_file(op))
				return;
			origin_fail(&answer->result, answer->text, -ENOMEM, true, "out of memory");
		}
	}
	offers_end(op, &answer->result);
}

static int s3_offers(struct origin *origin, struct loop *loop, const char *path,
		     const struct origin_attr *attr, origin_offers_fn done, void *arg,
		     struct origin_call **ret_call)
{
	struct s3_op *op = op_create(origin, loop, path);
	char query[VERSION_QUERY];
	int err;

	if (!op)
		return -ENOMEM;
	op->offers_done = done;
	op->arg = arg;
	op->attr = *attr;
	err = s3_start(&op->origin->service, loop,
		       &(struct s3_request){
			       .key = op->key,
			       .query = version_query(attr, query),
			       .head = true,
			       .checksums = true,
			       .done = on_offers_head,
			       .arg = op,
		       },
		       &op->head);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* parts */

static void on_part(void *arg, struct http_answer *answer)
{
	const struct http_reply *reply = answer->reply;
	struct s3_op *op = arg;
	struct origin_part part = { 0 };

	op->head = NULL;
	if (!answer->result.error && !http_same_version(answer, &op->attr)) {
		part = (struct origin_part){
			.offset = reply->range_first,
			.len = reply->range_last - reply->range_first + 1,
			.count = reply->parts,
		};
		/* None of it: the server does not know what partNumber is. */
		if (!reply->has_range || !reply->parts)
			origin_fail(&answer->result, answer->text, -EOPNOTSUPP, false,
				    "s3://%s/%s: the server does not tell where its parts are",
				    op->origin->service.bucket, op->key);
	}
	op->part_done(op->arg, &answer->result, &part);
	op_free(op);
}

static int s3_part(struct origin *origin, struct loop *loop, const char *path,
		   const struct origin_attr *attr, uint32_t number, origin_part_fn done, void *arg,
		   struct origin_call **ret_call)
{
	struct s3_op *op = op_create(origin, loop, path);
	char version[VERSION_QUERY], query[VERSION_QUERY + 32];
	const char *id = version_query(attr, version);
	int err;

	if (!op)
		return -ENOMEM;
	op->part_done = done;
	op->arg = arg;
	op->attr = *attr;
	snprintf(query, sizeof(query), "partNumber=%" PRIu32 "%s%s", number, id ? "&" : "",
		 id ? id : "");
	err = s3_start(&op->origin->service, loop,
		       &(struct s3_request){
			       .key = op->key,
			       .query = query,
			       .head = true,
			       .done = on_part,
			       .arg = op,
		       },
		       &op->head);
	if (err) {
		op_free(op);
		return err;
	}
	*ret_call = &op->base;
	return 0;
}

/* The origin itself. */

static void s3_destroy(struct origin *origin)
{
	struct origin_s3 *s3 = of(origin);
	struct s3_service *service = &s3->service;

	http_client_clear(&service->client);
	credentials_free(service->credentials);
	free(service->url);
	free(service->host);
	free(service->path);
	free(service->region);
	free(service->bucket);
	free(s3->prefix);
	free(origin->identity);
	free(s3);
}

static void s3_credentials(struct origin *origin, struct origin_credentials *ret)
{
	ret->source = credentials_source(of(origin)->service.credentials, &ret->expires);
}

static bool s3_outdated(struct origin *origin)
{
	return credentials_outdated(of(origin)->service.credentials);
}

const struct origin_ops origin_s3_ops = {
	.stat = s3_stat,
	.list = s3_list,
	.read = s3_read,
	.offers = s3_offers,
	.part = s3_part,
	.credentials = s3_credentials,
	.outdated = s3_outdated,
	.destroy = s3_destroy,
};
