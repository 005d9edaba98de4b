// SPDX-License-Identifier: MIT
/*
 * credentials_sts: a role's keys from the Security Token Service: by a web identity
 * token (AssumeRoleWithWebIdentity) or by keys of somebody who may assume it
 * (AssumeRole); "AWS Security Token Service API Reference", version 2011-06-15.
 *
 * The token is in the body of a POST, so that it is in no server's log, and it is read
 * from its file for each request: whoever renews it replaces the file.
 */
#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/sha.h>

#include "cleanup.h"
#include "credentials_impl.h"
#include "http.h"
#include "origin_path.h"
#include "sigv4.h"

#define CONNECT_MS 5000
#define TOTAL_MS   15000
/* Longer than any value that is wanted. */
#define VALUE_MAX (16u << 10)

enum value {
	ACCESS_KEY,
	SECRET_KEY,
	SESSION_TOKEN,
	EXPIRATION,
	CODE,
	VALUES,
};

static const char *const value_names[VALUES] = {
	[ACCESS_KEY] = "AccessKeyId",
	[SECRET_KEY] = "SecretAccessKey",
	[SESSION_TOKEN] = "SessionToken",
	[EXPIRATION] = "Expiration",
	[CODE] = "Code",
};

struct answer {
	XML_Parser parser;
	char *values[VALUES];
	char *into; /* VALUE_MAX bytes, one of them, or NULL */
	size_t len;
	bool failed;
};

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct answer *answer = arg;

	(void)attributes;
	answer->into = NULL;
	for (size_t i = 0; i < VALUES; i++) {
		if (strcmp(name, value_names[i]) || answer->values[i])
			continue;
		answer->values[i] = calloc(1, VALUE_MAX);
		answer->into = answer->values[i];
		answer->len = 0;
		answer->failed = answer->failed || !answer->into;
	}
}

static void on_end(void *arg, const XML_Char *name)
{
	struct answer *answer = arg;

	(void)name;
	answer->into = NULL;
}

static void on_text(void *arg, const XML_Char *text, int len)
{
	struct answer *answer = arg;

	if (!answer->into)
		return;
	if ((size_t)len >= VALUE_MAX - answer->len) {
		answer->failed = true;
		return;
	}
	memcpy(answer->into + answer->len, text, (size_t)len);
	answer->len += (size_t)len;
}

/* Entities could make much out of little. */
static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
		       const XML_Char *public, int internal)
{
	struct answer *answer = arg;

	(void)name;
	(void)system;
	(void)public;
	(void)internal;
	answer->failed = true;
	XML_StopParser(answer->parser, XML_FALSE);
}

static void answer_parse(struct answer *answer, const char *text)
{
	*answer = (struct answer){ .parser = XML_ParserCreate(NULL) };
	if (!answer->parser) {
		answer->failed = true;
		return;
	}
	XML_SetUserData(answer->parser, answer);
	XML_SetElementHandler(answer->parser, on_start, on_end);
	XML_SetCharacterDataHandler(answer->parser, on_text);
	XML_SetStartDoctypeDeclHandler(answer->parser, on_doctype);
	if (XML_Parse(answer->parser, text, (int)strlen(text), XML_TRUE) != XML_STATUS_OK)
		answer->failed = true;
	XML_ParserFree(answer->parser);
}

static void answer_clear(struct answer *answer)
{
	for (size_t i = 0; i < VALUES; i++) {
		if (answer->values[i])
			explicit_bzero(answer->values[i], VALUE_MAX);
		free(answer->values[i]);
	}
}

/* What an error says. Its Message is left out: it may quote the token. */
static void refused(const struct credentials_run *run, unsigned int status, const char *code,
		    struct credentials_outcome *outcome)
{
	static const char *const passing[] = { "Throttling",	       "ThrottlingException",
					       "RequestLimitExceeded", "IDPCommunicationError",
					       "ServiceUnavailable",   "InternalFailure" };
	const struct credentials_role *role = &run->role;
	bool transient = status >= 500 || status == 429;

	for (size_t i = 0; i < ARRAY_SIZE(passing); i++)
		transient = transient || !strcmp(code, passing[i]);
	if (!strcmp(code, "ExpiredTokenException") && role->token_file)
		credentials_fail(outcome, -EACCES, false,
				 "STS gives no keys for %s: the token in %s has expired", role->arn,
				 role->token_file);
	else
		credentials_fail(outcome, transient ? -EIO : -EACCES, transient,
				 "STS gives no keys for %s: it answered %u%s%.64s", role->arn,
				 status, *code ? " " : "", code);
}

static void on_answer(struct credentials_run *run, unsigned int status, const char *body,
		      const char *why)
{
	struct credentials_outcome outcome = { 0 };
	struct answer answer = { 0 };
	struct credential_keys found;

	if (!status) {
		credentials_fail(&outcome, run->untrusted ? -EACCES : -EIO, !run->untrusted,
				 "STS gives no keys for %s: %s%s", run->role.arn, why,
				 run->untrusted ? " (ca= names the authorities to trust)" : "");
		credentials_run_end(run, &outcome);
		return;
	}
	answer_parse(&answer, body);
	found = (struct credential_keys){
		.access_key = answer.values[ACCESS_KEY],
		.secret_key = answer.values[SECRET_KEY],
		.session_token = answer.values[SESSION_TOKEN],
	};
	if (status / 100 != 2)
		refused(run, status, answer.values[CODE] ? answer.values[CODE] : "", &outcome);
	else if (answer.failed || !found.access_key || !found.secret_key || !found.session_token ||
		 !answer.values[EXPIRATION] ||
		 !credentials_time(answer.values[EXPIRATION], &found.expires))
		credentials_fail(&outcome, -EIO, true,
				 "STS gives no keys for %s: its answer has none", run->role.arn);
	else if (credentials_keys_copy(&outcome.keys, &found))
		credentials_fail(&outcome, -ENOMEM, true, "out of memory");
	answer_clear(&answer);
	credentials_run_end(run, &outcome);
}

static char *service_url(const struct credentials *credentials)
{
	const char *own = credentials_env("AWS_ENDPOINT_URL_STS");
	const char *region = credentials->sts_region;
	char *url;

	if (own)
		return strdup(own);
	/* "AWS STS Regions and endpoints": China has a domain of its own. */
	if (asprintf(&url, "https://sts%s%s.amazonaws.com%s", region ? "." : "",
		     region ? region : "", region && !strncmp(region, "cn-", 3) ? ".cn" : "") < 0)
		return NULL;
	return url;
}

static void add(FILE *form, const char *name, const char *value)
{
	cleanup_free char *encoded = NULL;

	if (!value)
		return;
	encoded = malloc(ORIGIN_ENCODED_MAX(strlen(value)));
	if (encoded) {
		origin_encode(encoded, value, strlen(value), false);
		fprintf(form, "&%s=%s", name, encoded);
		explicit_bzero(encoded, strlen(encoded));
	}
}

static char *make_form(const struct credentials_role *role, const char *token)
{
	char *text = NULL;
	size_t size;
	FILE *form = open_memstream(&text, &size);

	if (!form)
		return NULL;
	fprintf(form, "Action=AssumeRole%s&Version=2011-06-15", token ? "WithWebIdentity" : "");
	add(form, "RoleArn", role->arn);
	add(form, "RoleSessionName", role->session ? role->session : "wfsd");
	add(form, "ExternalId", token ? NULL : role->external_id);
	add(form, "WebIdentityToken", token);
	if (fclose(form)) {
		credentials_text_free(text);
		return NULL;
	}
	return text;
}

/* Host with port, as libcurl says it, and path of the URL. */
static int split_url(const char *url, char **ret_host, char **ret_path)
{
	CURLU *parts = curl_url();
	char *host = NULL, *port = NULL, *path = NULL;
	int err = -EINVAL;

	if (parts && !curl_url_set(parts, CURLUPART_URL, url, 0) &&
	    !curl_url_get(parts, CURLUPART_HOST, &host, 0) &&
	    !curl_url_get(parts, CURLUPART_PATH, &path, 0)) {
		curl_url_get(parts, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
		if (asprintf(ret_host, "%s%s%s", host, port ? ":" : "", port ? port : "") < 0)
			*ret_host = NULL;
		*ret_path = strdup(path);
		err = *ret_host && *ret_path ? 0 : -ENOMEM;
	}
	curl_free(host);
	curl_free(port);
	curl_free(path);
	curl_url_cleanup(parts);
	return err;
}

/* Adds the lines that AssumeRole is signed with. */
static int sign(const struct credentials_run *run, const char *url, const char *form,
		struct curl_slist **headers)
{
	const struct credential_keys *keys = &run->role.keys;
	const char *region = run->credentials->sts_region;
	unsigned char digest[SHA256_DIGEST_LENGTH];
	char hex[2 * SHA256_DIGEST_LENGTH + 1], date[SIGV4_DATE];
	cleanup_free char *host = NULL, *path = NULL, *authorization = NULL;
	struct sigv4_field fields[] = {
		{ "Host", NULL },
		{ "x-amz-date", date },
		{ "x-amz-security-token", keys->session_token },
	};
	struct sigv4_request request = {
		.method = "POST",
		.normalize = true,
		.fields = fields,
		.field_count = keys->session_token ? 3 : 2,
		.payload_sha256 = hex,
		.date = date,
		.region = region ? region : "us-east-1",
		.service = "sts",
	};
	int err = split_url(url, &host, &path);

	if (err)
		return err;
	fields[0].value = host;
	request.path = path;
	SHA256((const unsigned char *)form, strlen(form), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	sigv4_date((long long)time(NULL), date);
	err = sigv4_authorization(&request, keys->access_key, keys->secret_key, &authorization);
	for (size_t i = 0; i < request.field_count && !err; i++)
		err = http_header(headers, fields[i].name, fields[i].value);
	if (!err)
		err = http_header(headers, "Authorization", authorization);
	return err;
}

int credentials_sts_start(struct credentials_run *run, struct credentials_outcome *outcome)
{
	const struct credentials *credentials = run->credentials;
	const struct credentials_role *role = &run->role;
	cleanup_free char *url = service_url(credentials);
	struct curl_slist *headers = NULL;
	char *token = NULL, *form = NULL;
	int err = url ? 0 : -ENOMEM;

	if (!err && role->token_file) {
		err = credentials_file_line(role->token_file, &token);
		if (err && err != -ENOMEM) {
			/* It may just be replaced. */
			credentials_fail(outcome, -EACCES, err == -ENOENT,
					 "no keys for %s: the web identity token %s: %s", role->arn,
					 role->token_file, strerror(-err));
			return outcome->error;
		}
	}
	if (!err) {
		form = make_form(role, token);
		err = form ? http_header(&headers, "Content-Type",
					 "application/x-www-form-urlencoded") :
			     -ENOMEM;
	}
	if (!err && !role->token_file)
		err = sign(run, url, form, &headers);
	if (!err) {
		/* The authorities of an own service; Amazon's are those of everybody. */
		bool own = credentials_env("AWS_ENDPOINT_URL_STS");

		err = credentials_http_start(run, &(struct credentials_http_request){
							  .method = "POST",
							  .url = url,
							  .headers = TAKE(headers),
							  .body = form,
							  .ca = own ? credentials->ca : NULL,
							  .proxy = credentials->proxy,
							  .connect_ms = CONNECT_MS,
							  .total_ms = TOTAL_MS,
							  .done = on_answer,
						  });
	}
	http_headers_free(headers);
	credentials_text_free(token);
	credentials_text_free(form);
	if (err == -EINVAL)
		credentials_fail(outcome, err, false, "AWS_ENDPOINT_URL_STS is no URL");
	else if (err)
		credentials_fail(outcome, err, true, "out of memory");
	return err;
}
