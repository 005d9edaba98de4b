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
#include "origin_impl.h"
#include "origin_path.h"
#include "s3_request.h"
#include "s3_xml.h"
#include "validator.h"

#define LISTING_MAX (16u << 20)

struct origin_s3 {
	struct origin base;
	struct s3_service service;
	char *prefix; /* of the source, no '/' at its end; "": the bucket */
};

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
		/* 200: the server does not know what partNumber is. */
		if (reply->status != 206 || !reply->has_range || !reply->parts)
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

static const struct origin_ops s3_ops = {
	.stat = s3_stat,
	.list = s3_list,
	.read = s3_read,
	.offers = s3_offers,
	.part = s3_part,
	.credentials = s3_credentials,
	.outdated = s3_outdated,
	.destroy = s3_destroy,
};

/* "s3://bucket/prefix": the prefix is taken as it is, without percent-decoding. */
static int parse_source(struct origin_s3 *s3, const char *source, char *msg, size_t msg_size)
{
	const char *rest = source + strlen("s3://");
	size_t bucket = strcspn(rest, "/"), prefix;

	for (size_t i = 0; i < bucket; i++) {
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_",
			    rest[i])) {
			snprintf(msg, msg_size,
				 "a bucket's name has letters, digits, dots and dashes only: s3://BUCKET/PREFIX");
			return -EINVAL;
		}
	}
	if (!bucket || bucket > 255) {
		snprintf(msg, msg_size, "the source names no bucket: s3://BUCKET/PREFIX");
		return -EINVAL;
	}
	s3->service.bucket = strndup(rest, bucket);
	rest += bucket + (rest[bucket] == '/');
	prefix = strlen(rest);
	if (prefix && rest[prefix - 1] == '/')
		prefix--;
	s3->prefix = strndup(rest, prefix);
	return s3->service.bucket && s3->prefix ? 0 : -ENOMEM;
}

/* What libcurl will not take is said now rather than with the first request. */
static int check_url(const struct s3_service *service, char *msg, size_t msg_size)
{
	CURLU *url = curl_url();
	CURLUcode code = url ? curl_url_set(url, CURLUPART_URL, service->url, CURLU_PATH_AS_IS) :
			       CURLUE_OUT_OF_MEMORY;

	curl_url_cleanup(url);
	if (code == CURLUE_OUT_OF_MEMORY)
		return -ENOMEM;
	if (code) {
		snprintf(msg, msg_size, "the endpoint gives \"%s\", which is no URL: %s",
			 service->url, curl_url_strerror(code));
		return -EINVAL;
	}
	return 0;
}

/* Sets url, host and path from the endpoint. */
static int parse_endpoint(struct s3_service *service, const struct origin_settings *settings,
			  char *msg, size_t msg_size)
{
	bool in_host = settings->virtual_host;
	cleanup_free char *amazon = NULL;
	const char *endpoint = settings->endpoint, *rest, *path;
	size_t host, scheme, path_len;
	int n;

	if (!endpoint || !*endpoint) {
		/* Dots in a bucket's name would not match Amazon's certificate. */
		in_host = !strchr(service->bucket, '.');
		if (asprintf(&amazon, "https://s3.%s.amazonaws.com", service->region) < 0) {
			amazon = NULL;
			return -ENOMEM;
		}
		endpoint = amazon;
	}
	scheme = !strncasecmp(endpoint, "https://", 8) ? 8 :
		 !strncasecmp(endpoint, "http://", 7)  ? 7 :
							 0;
	rest = endpoint + scheme;
	host = strcspn(rest, "/?#");
	path = rest + host;
	path_len = strlen(path);
	while (path_len && path[path_len - 1] == '/')
		path_len--;
	if (!scheme || !host || memchr(rest, '@', host) || strpbrk(path, "?#")) {
		snprintf(msg, msg_size,
			 "endpoint must be of the form http://HOST[:PORT] or https://HOST[:PORT]");
		return -EINVAL;
	}
	/* As libcurl would say it: without a scheme's own port. */
	n = (int)host;
	if (scheme == 8 && host > 4 && !strncmp(rest + host - 4, ":443", 4))
		n -= 4;
	else if (scheme == 7 && host > 3 && !strncmp(rest + host - 3, ":80", 3))
		n -= 3;
	if (asprintf(&service->host, "%s%s%.*s", in_host ? service->bucket : "", in_host ? "." : "",
		     n, rest) < 0) {
		service->host = NULL;
		return -ENOMEM;
	}
	if (asprintf(&service->path, "%.*s%s%s", (int)path_len, path, in_host ? "" : "/",
		     in_host ? "" : service->bucket) < 0) {
		service->path = NULL;
		return -ENOMEM;
	}
	if (asprintf(&service->url, "%.*s%s%s", (int)scheme, endpoint, service->host,
		     service->path) < 0) {
		service->url = NULL;
		return -ENOMEM;
	}
	return check_url(service, msg, msg_size);
}

static int set_region(struct s3_service *service, const struct origin_settings *settings, char *msg,
		      size_t msg_size)
{
	static const char good[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	const char *region = settings->region;

	if (!region || !*region)
		region = credentials_region(service->credentials);
	/* Without an endpoint it becomes part of a host's name. */
	if (region && strspn(region, good) != strlen(region)) {
		snprintf(msg, msg_size, "a region has letters, digits and dashes only");
		return -EINVAL;
	}
	service->region = strdup(region ? region : "us-east-1");
	return service->region ? 0 : -ENOMEM;
}

int origin_s3_create(const char *source, const struct origin_settings *settings,
		     struct origin **ret, char *msg, size_t msg_size)
{
	struct origin_s3 *s3 = calloc(1, sizeof(*s3));
	int err;

	if (!s3) {
		snprintf(msg, msg_size, "out of memory");
		return -ENOMEM;
	}
	s3->base.ops = &s3_ops;
	err = parse_source(s3, source, msg, msg_size);
	if (!err)
		err = credentials_create(settings, &s3->service.credentials, msg, msg_size);
	if (!err)
		err = set_region(&s3->service, settings, msg, msg_size);
	if (!err)
		err = parse_endpoint(&s3->service, settings, msg, msg_size);
	if (!err)
		err = http_client_init(&s3->service.client, &s3->base, settings);
	if (!err && asprintf(&s3->base.identity, "%s/%s %s", s3->service.url, s3->prefix,
			     credentials_identity(s3->service.credentials)) < 0) {
		s3->base.identity = NULL;
		err = -ENOMEM;
	}
	if (err == -ENOMEM)
		snprintf(msg, msg_size, "out of memory");
	if (err) {
		s3_destroy(&s3->base);
		return err;
	}
	*ret = &s3->base;
	return 0;
}
