// SPDX-License-Identifier: MIT
/*
 * http_reply, validator: two heads of answers, separated by a line "--". The first is the
 * answer to HEAD, the second to a later GET. And all of it is the file that tells the digest
 * of an object "x".
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "http_reply.h"
#include "origin_impl.h"
#include "validator.h"

/* Lines with what ends them, as libcurl hands them over. */
static void read_head(struct fuzz_input *input, struct http_reply *reply)
{
	memset(reply, 0, sizeof(*reply));
	while (input->left) {
		const uint8_t *end = memchr(input->at, '\n', input->left);
		size_t len = end ? (size_t)(end + 1 - input->at) : input->left;
		/* No NUL follows in libcurl's buffer: what is read beyond its end is seen. */
		char *line = malloc(len);
		bool last = len == 3 && !memcmp(input->at, "--\n", len);

		if (!line)
			abort();
		memcpy(line, input->at, len);
		input->at += len;
		input->left -= len;
		if (!last)
			http_reply_line(reply, line, len);
		free(line);
		if (last)
			break;
	}
}

static void check_offers(const struct offers *offers)
{
	fuzz_check(offers->count <= OFFERS_MAX);
	for (unsigned int i = 0; i < offers->count; i++) {
		fuzz_check((unsigned int)offers->of[i].digest.algo < DIGEST_ALGOS);
		fuzz_check((unsigned int)offers->of[i].from < OFFER_FROMS);
		fuzz_check(offers->of[i].parts <= OFFERS_PARTS_MAX);
		fuzz_check(offers->of[i].from == OFFER_S3 ?
				   !offers->composite || offers->of[i].parts :
				   !offers->of[i].parts);
	}
}

static void read_beside(const uint8_t *data, size_t size)
{
	struct offers offers = { 0 };
	char *text = malloc(size ? size : 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	offers_file(&offers, text, size, "x");
	check_offers(&offers);
	fuzz_check(offers.count <= 1);
	free(text);
}

static void check_reply(const struct http_reply *reply)
{
	fuzz_check(reply->status <= 999);
	fuzz_check(!reply->has_range || reply->range_first <= reply->range_last);
	fuzz_check(!reply->has_range || !reply->has_total || reply->range_last < reply->total);
	fuzz_check(!reply->has_length || reply->length <= INT64_MAX);
	fuzz_check(!reply->has_total || reply->total <= INT64_MAX);
	fuzz_check(reply->retry_after_ms <= 600000);
	check_offers(&reply->offers);
	fuzz_check_printable(reply->etag, sizeof(reply->etag));
	fuzz_check_printable(reply->version_id, sizeof(reply->version_id));
	fuzz_check_printable(reply->region, sizeof(reply->region));
	fuzz_check(strnlen(reply->location, sizeof(reply->location)) < sizeof(reply->location));
}

static void check_attr(const struct origin_attr *attr)
{
	struct curl_slist *headers = NULL;
	const char *version = attr->version;

	fuzz_check(attr->mode == S_IFREG);
	fuzz_check_printable(version, sizeof(attr->version));
	fuzz_check(version[0] == '"' || !strncmp(version, "id:", 3) ||
		   !strncmp(version, "lm:", 3) || !strcmp(version, "size"));
	/* What nothing proves may not be kept. */
	fuzz_check(strcmp(version, "size") || (attr->flags & ORIGIN_WEAK));
	fuzz_check(!validator_header(attr, &headers));
	fuzz_check(!headers == (version[0] != '"' && strncmp(version, "lm:", 3)));
	/* One line, that asks for this version and nothing else. */
	if (headers) {
		fuzz_check(!headers->next && !strpbrk(headers->data, "\r\n"));
		fuzz_check(!strncmp(headers->data, "If-", 3));
	}
	curl_slist_free_all(headers);
}

/* The same answer is the same version; one that differs in what tells versions apart is not. */
static void check_versions(const struct http_reply *reply, const struct origin_attr *attr)
{
	struct http_reply other = *reply;

	other.status = 200;
	fuzz_check(validator_check(attr, &other) == VALIDATOR_SAME);
	other.length ^= 1;
	fuzz_check(validator_check(attr, &other) == VALIDATOR_CHANGED);
	other.length ^= 1;
	other.status = 206;
	other.has_total = true;
	other.total = reply->length ^ 1;
	fuzz_check(validator_check(attr, &other) == VALIDATOR_CHANGED);
	other.total = reply->length;
	fuzz_check(validator_check(attr, &other) == VALIDATOR_SAME);
	other.etag[0] ^= 1;
	other.version_id[0] ^= 1;
	other.modified ^= 1;
	if (attr->version[0] == '"' || !strncmp(attr->version, "lm:", 3) ||
	    (!strncmp(attr->version, "id:", 3) && other.version_id[0]))
		fuzz_check(validator_check(attr, &other) == VALIDATOR_CHANGED);
}

static void check_later(const struct origin_attr *attr, const struct http_reply *later)
{
	enum validator_verdict verdict = validator_check(attr, later);

	if (verdict != VALIDATOR_SAME)
		return;
	fuzz_check(later->status != 206 || !later->has_total || later->total == attr->size);
	fuzz_check(later->status != 200 || !later->has_length || later->length == attr->size);
	if (attr->version[0] == '"' && later->etag[0])
		fuzz_check(!strcmp(later->etag, attr->version));
	if (!strncmp(attr->version, "id:", 3) && later->version_id[0])
		fuzz_check(!strcmp(later->version_id, attr->version + 3));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	struct http_reply reply, later;
	struct origin_attr attr;

	read_beside(data, size);
	read_head(&input, &reply);
	check_reply(&reply);
	/* Without a length there are no attributes. */
	if (!reply.has_length)
		return 0;
	validator_attr(&reply, &attr);
	check_attr(&attr);
	check_versions(&reply, &attr);
	read_head(&input, &later);
	check_reply(&later);
	check_later(&attr, &later);
	return 0;
}
