// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "cleanup.h"
#include "origin_path.h"
#include "sigv4.h"

#define SHA256_LEN 32
#define HEX_LEN	   (2 * SHA256_LEN + 1)

struct pair {
	char *name, *value;
};

void sigv4_date(long long seconds, char text[SIGV4_DATE])
{
	time_t t = (time_t)seconds;
	struct tm tm = { 0 };

	gmtime_r(&t, &tm);
	strftime(text, SIGV4_DATE, "%Y%m%dT%H%M%SZ", &tm);
}

static void to_hex(const unsigned char *bytes, char text[HEX_LEN])
{
	for (size_t i = 0; i < SHA256_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Percent-encoding undone, if there is any, and done again the one right way. */
static char *recode(const char *text, size_t len, bool slash)
{
	cleanup_free char *plain = strndup(text, len);
	char *encoded;

	if (!plain)
		return NULL;
	len = origin_decode(plain);
	encoded = malloc(ORIGIN_ENCODED_MAX(len));
	if (encoded)
		origin_encode(encoded, plain, len, slash);
	return encoded;
}

/* RFC 3986, 5.2.4, and runs of '/' become one. In place. */
static void resolve_dots(char *path)
{
	char *to = path;
	const char *from = path;

	while (*from) {
		size_t len;

		while (*from == '/')
			from++;
		len = strcspn(from, "/");
		if (len == 2 && from[0] == '.' && from[1] == '.') {
			while (to > path && *--to != '/')
				;
		} else if (len && !(len == 1 && from[0] == '.')) {
			*to++ = '/';
			memmove(to, from, len);
			to += len;
		}
		from += len;
	}
	if (to == path || from[-1] == '/')
		*to++ = '/';
	*to = '\0';
}

static int put_path(FILE *out, const struct sigv4_request *request)
{
	cleanup_free char *path = recode(request->path, strlen(request->path), true);

	if (!path)
		return -ENOMEM;
	if (request->normalize)
		resolve_dots(path);
	fprintf(out, "%s\n", path);
	return 0;
}

static int pair_order(const void *a, const void *b)
{
	const struct pair *pa = a, *pb = b;
	int order = strcmp(pa->name, pb->name);

	return order ? order : strcmp(pa->value, pb->value);
}

static void pairs_free(struct pair *pairs, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(pairs[i].name);
		free(pairs[i].value);
	}
	free(pairs);
}

static int put_query(FILE *out, const char *query)
{
	size_t count = 0, size = 1;
	struct pair *pairs;
	int err = 0;

	for (const char *c = query; *c; c++)
		size += *c == '&';
	pairs = calloc(size, sizeof(*pairs));
	if (!pairs)
		return -ENOMEM;
	while (*query && !err) {
		size_t len = strcspn(query, "&"), name = strcspn(query, "=&");
		size_t value = name < len ? name + 1 : len;

		if (len) {
			pairs[count].name = recode(query, name, false);
			pairs[count].value = recode(query + value, len - value, false);
			if (!pairs[count].name || !pairs[count].value)
				err = -ENOMEM;
			count++;
		}
		query += len + (query[len] == '&');
	}
	if (!err)
		qsort(pairs, count, sizeof(*pairs), pair_order);
	for (size_t i = 0; i < count && !err; i++)
		fprintf(out, "%s%s=%s", i ? "&" : "", pairs[i].name, pairs[i].value);
	fputc('\n', out);
	pairs_free(pairs, count);
	return err;
}

/* Leading and trailing space goes, inner runs become one. */
static void put_value(FILE *out, const char *value)
{
	bool space = false, first = true;

	for (; *value; value++) {
		if (*value == ' ' || *value == '\t' || *value == '\n' || *value == '\r') {
			space = true;
			continue;
		}
		if (space && !first)
			fputc(' ', out);
		fputc(*value, out);
		space = false;
		first = false;
	}
}

static int field_order(const void *a, const void *b)
{
	const struct sigv4_field *fa = *(const struct sigv4_field *const *)a;
	const struct sigv4_field *fb = *(const struct sigv4_field *const *)b;
	int order = strcasecmp(fa->name, fb->name);

	/* Pointers into one array: same names keep their order. */
	return order ? order : (fa > fb) - (fa < fb);
}

static void put_lower(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(tolower((unsigned char)*text), out);
}

static const struct sigv4_field **sorted_fields(const struct sigv4_request *request)
{
	const struct sigv4_field **sorted = calloc(request->field_count + 1, sizeof(*sorted));

	if (!sorted)
		return NULL;
	for (size_t i = 0; i < request->field_count; i++)
		sorted[i] = &request->fields[i];
	qsort(sorted, request->field_count, sizeof(*sorted), field_order);
	return sorted;
}

static bool same_name(const struct sigv4_field *const *sorted, size_t i)
{
	return i && !strcasecmp(sorted[i]->name, sorted[i - 1]->name);
}

static void put_fields(FILE *out, const struct sigv4_field *const *sorted)
{
	for (size_t i = 0; sorted[i]; i++) {
		if (same_name(sorted, i)) {
			fputc(',', out);
		} else {
			if (i)
				fputc('\n', out);
			put_lower(out, sorted[i]->name);
			fputc(':', out);
		}
		put_value(out, sorted[i]->value);
	}
	fputs("\n\n", out);
}

static void put_names(FILE *out, const struct sigv4_field *const *sorted)
{
	for (size_t i = 0; sorted[i]; i++) {
		if (same_name(sorted, i))
			continue;
		if (i)
			fputc(';', out);
		put_lower(out, sorted[i]->name);
	}
}

int sigv4_canonical(const struct sigv4_request *request, char **ret_text)
{
	cleanup_free const struct sigv4_field **sorted = NULL;
	cleanup_free char *text = NULL;
	size_t len;
	FILE *out;
	int err;

	if (!request->field_count || request->path[0] != '/')
		return -EINVAL;
	sorted = sorted_fields(request);
	out = sorted ? open_memstream(&text, &len) : NULL;
	if (!out)
		return -ENOMEM;
	fprintf(out, "%s\n", request->method);
	err = put_path(out, request);
	if (!err)
		err = put_query(out, request->query ? request->query : "");
	put_fields(out, sorted);
	put_names(out, sorted);
	fprintf(out, "\n%s", request->payload_sha256);
	if (fclose(out) && !err)
		err = -ENOMEM;
	if (err)
		return err;
	*ret_text = TAKE(text);
	return 0;
}

static int hmac(const unsigned char *key, size_t key_len, const char *text,
		unsigned char ret[SHA256_LEN])
{
	return HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), ret,
		    NULL) ?
		       0 :
		       -ENOMEM;
}

/* The key of one day, region and service. */
static int signing_key(const struct sigv4_request *request, const char *day, const char *secret_key,
		       unsigned char ret[SHA256_LEN])
{
	const char *const steps[] = { day, request->region, request->service, "aws4_request" };
	cleanup_free char *first = NULL;
	int err;

	if (asprintf(&first, "AWS4%s", secret_key) < 0) {
		first = NULL;
		return -ENOMEM;
	}
	err = hmac((unsigned char *)first, strlen(first), steps[0], ret);
	for (size_t i = 1; i < ARRAY_SIZE(steps) && !err; i++)
		err = hmac(ret, SHA256_LEN, steps[i], ret);
	explicit_bzero(first, strlen(first));
	return err;
}

static int sign(const struct sigv4_request *request, const char *scope, const char *day,
		const char *secret_key, char hex[HEX_LEN])
{
	cleanup_free char *canonical = NULL, *text = NULL;
	unsigned char digest[EVP_MAX_MD_SIZE], key[SHA256_LEN];
	int err = sigv4_canonical(request, &canonical);

	if (err)
		return err;
	if (!EVP_Digest(canonical, strlen(canonical), digest, NULL, EVP_sha256(), NULL))
		return -ENOMEM;
	to_hex(digest, hex);
	if (asprintf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", request->date, scope, hex) < 0) {
		text = NULL;
		return -ENOMEM;
	}
	err = signing_key(request, day, secret_key, key);
	if (!err)
		err = hmac(key, sizeof(key), text, digest);
	explicit_bzero(key, sizeof(key));
	if (!err)
		to_hex(digest, hex);
	return err;
}

int sigv4_authorization(const struct sigv4_request *request, const char *access_key,
			const char *secret_key, char **ret_value)
{
	cleanup_free const struct sigv4_field **sorted = sorted_fields(request);
	cleanup_free char *scope = NULL, *text = NULL;
	char day[9], hex[HEX_LEN];
	size_t len;
	FILE *out;
	int err;

	if (!sorted)
		return -ENOMEM;
	if (strlen(request->date) != SIGV4_DATE - 1)
		return -EINVAL;
	snprintf(day, sizeof(day), "%.8s", request->date);
	if (asprintf(&scope, "%s/%s/%s/aws4_request", day, request->region, request->service) < 0) {
		scope = NULL;
		return -ENOMEM;
	}
	err = sign(request, scope, day, secret_key, hex);
	if (err)
		return err;
	out = open_memstream(&text, &len);
	if (!out)
		return -ENOMEM;
	fprintf(out, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", access_key, scope);
	put_names(out, sorted);
	fprintf(out, ", Signature=%s", hex);
	if (fclose(out))
		return -ENOMEM;
	*ret_value = TAKE(text);
	return 0;
}
