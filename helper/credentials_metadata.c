// SPDX-License-Identifier: MIT
/*
 * credentials_metadata: keys from the machine: the endpoint of a container (ECS, EKS) and
 * the metadata service of an instance (EC2), version 2 only. "Container credential
 * provider" and "IMDS credential provider" of the AWS SDKs and Tools Reference Guide.
 *
 * Neither is asked through a proxy: both are of this machine.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"
#include "credentials_impl.h"
#include "http.h"

/* On the machine itself, or not there at all. */
#define CONNECT_MS 1000
#define TOTAL_MS   3000

#define ROLES "/latest/meta-data/iam/security-credentials/"

/* Takes a string out of the object, zeroing what jansson has of it. */
static char *take(json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);
	const char *text = json_string_value(value);
	char *copy = NULL;

	if (text && *text)
		copy = strdup(text);
	if (text)
		explicit_bzero((char *)text, json_string_length(value));
	return copy;
}

/* {"AccessKeyId":, "SecretAccessKey":, "Token":, "Expiration":} */
static bool parse_keys(const char *body, struct credential_keys *ret)
{
	json_t *object = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
	struct credential_keys keys = {
		.access_key = take(object, "AccessKeyId"),
		.secret_key = take(object, "SecretAccessKey"),
		.session_token = take(object, "Token"),
	};
	cleanup_free char *expiration = take(object, "Expiration");
	bool good = keys.access_key && keys.secret_key &&
		    (!expiration || credentials_time(expiration, &keys.expires));

	json_decref(object);
	if (good)
		*ret = keys;
	else
		credential_keys_clear(&keys);
	return good;
}

static void take_answer(struct credentials_run *run, const char *what, unsigned int status,
			const char *body, const char *why, struct credentials_outcome *outcome)
{
	if (!status)
		credentials_fail(outcome, -EIO, true, "%s does not answer: %s", what, why);
	else if (status == 429 || status >= 500)
		credentials_fail(outcome, -EIO, true, "%s answers %u", what, status);
	else if (status / 100 != 2)
		credentials_fail(outcome, -EACCES, false, "%s gives no keys: it answers %u", what,
				 status);
	else if (!parse_keys(body, &outcome->keys))
		credentials_fail(outcome, -EIO, true, "%s gives no keys: its answer has none",
				 what);
	credentials_run_end(run, outcome);
}

/* The endpoint of a container. */

static bool in_network(const char *host, const char *first)
{
	struct in_addr a, b;

	return inet_pton(AF_INET, host, &a) == 1 && inet_pton(AF_INET, first, &b) == 1 &&
	       (ntohl(a.s_addr) >> 24) == (ntohl(b.s_addr) >> 24);
}

/*
 * What may be asked over plain http: addresses that do not leave the machine. A name is
 * not resolved: whoever answers for it could be anybody.
 */
static bool plain_host(const char *host)
{
	static const char *const hosts[] = { "169.254.170.2", "169.254.170.23", "localhost",
					     "[fd00:ec2::23]", "[::1]" };

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++)
		if (!strcasecmp(host, hosts[i]))
			return true;
	return in_network(host, "127.0.0.1");
}

static int check_url(const char *url, const char *variable, char *msg, size_t msg_size)
{
	CURLU *parts = curl_url();
	char *host = NULL, *scheme = NULL, *user = NULL;
	int err = 0;

	if (!parts || curl_url_set(parts, CURLUPART_URL, url, 0) ||
	    curl_url_get(parts, CURLUPART_HOST, &host, 0) ||
	    curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) ||
	    !curl_url_get(parts, CURLUPART_USER, &user, 0) ||
	    (strcmp(scheme, "http") && strcmp(scheme, "https"))) {
		snprintf(msg, msg_size, "%s is no URL of http or https, or has a user in it",
			 variable);
		err = -EINVAL;
	} else if (!strcmp(scheme, "http") && !plain_host(host)) {
		snprintf(msg, msg_size,
			 "%s names %s over plain http, which only addresses of this machine may be asked over (127.0.0.0/8, [::1], 169.254.170.2, 169.254.170.23, [fd00:ec2::23])",
			 variable, host);
		err = -EINVAL;
	}
	curl_free(host);
	curl_free(scheme);
	curl_free(user);
	curl_url_cleanup(parts);
	return err;
}

int credentials_container_url(char **ret_url, char *msg, size_t msg_size)
{
	const char *relative = credentials_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = credentials_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	char *url = NULL;
	int err;

	if (relative) {
		if (asprintf(&url, "http://169.254.170.2%s%s", *relative == '/' ? "" : "/",
			     relative) < 0)
			return -ENOMEM;
	} else if (full) {
		err = check_url(full, "AWS_CONTAINER_CREDENTIALS_FULL_URI", msg, msg_size);
		if (err)
			return err;
		url = strdup(full);
		if (!url)
			return -ENOMEM;
	} else {
		return -ENOENT;
	}
	*ret_url = url;
	return 0;
}

static void on_container(struct credentials_run *run, unsigned int status, const char *body,
			 const char *why)
{
	struct credentials_outcome outcome = { 0 };

	take_answer(run, "the container's credential endpoint", status, body, why, &outcome);
}

/* The token as it is now: a file, which is renewed, goes before the variable. */
static int add_token(struct curl_slist **headers, struct credentials_outcome *outcome)
{
	const char *file = credentials_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *set = credentials_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	char *token = NULL;
	int err = 0;

	if (file) {
		err = credentials_file_line(file, &token);
		if (err && err != -ENOMEM) {
			credentials_fail(outcome, -EACCES, err == -ENOENT,
					 "the container's authorization token %s: %s", file,
					 strerror(-err));
			return outcome->error;
		}
	} else if (set && strpbrk(set, "\r\n")) {
		credentials_fail(outcome, -EINVAL, false,
				 "AWS_CONTAINER_AUTHORIZATION_TOKEN has more than one line");
		return -EINVAL;
	} else {
		err = credentials_text_copy(&token, set);
	}
	if (!err && token)
		err = http_header(headers, "Authorization", token);
	credentials_text_free(token);
	return err;
}

int credentials_container_start(struct credentials_run *run, struct credentials_outcome *outcome)
{
	struct curl_slist *headers = NULL;
	int err = add_token(&headers, outcome);

	if (!err)
		err = credentials_http_start(run, &(struct credentials_http_request){
							  .method = "GET",
							  .url = run->credentials->url,
							  .headers = TAKE(headers),
							  .connect_ms = CONNECT_MS,
							  .total_ms = TOTAL_MS,
							  .done = on_container,
						  });
	http_headers_free(headers);
	if (err && !outcome->error)
		credentials_fail(outcome, err, true, "out of memory");
	return err;
}

/* The metadata service of an instance: a token, the role's name, its keys. */

int credentials_instance_url(char **ret_url, char *msg, size_t msg_size)
{
	const char *disabled = credentials_env("AWS_EC2_METADATA_DISABLED");
	const char *own = credentials_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = credentials_env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	char *url;
	size_t len;

	if (disabled && !strcasecmp(disabled, "true"))
		return -ENOENT;
	if (own && strncasecmp(own, "http://", 7) && strncasecmp(own, "https://", 8)) {
		snprintf(msg, msg_size,
			 "AWS_EC2_METADATA_SERVICE_ENDPOINT is no URL of http or https");
		return -EINVAL;
	}
	if (!own)
		own = mode && !strcasecmp(mode, "ipv6") ? "http://[fd00:ec2::254]" :
							  "http://169.254.169.254";
	url = strdup(own);
	if (!url)
		return -ENOMEM;
	len = strlen(url);
	while (len && url[len - 1] == '/')
		url[--len] = '\0';
	*ret_url = url;
	return 0;
}

static int instance_get(struct credentials_run *run, const char *role,
			void (*done)(struct credentials_run *run, unsigned int status,
				     const char *body, const char *why))
{
	cleanup_free char *url = NULL;
	struct curl_slist *headers = NULL;
	int err;

	if (asprintf(&url, "%s" ROLES "%s", run->credentials->url, role) < 0) {
		url = NULL;
		return -ENOMEM;
	}
	err = http_header(&headers, "X-aws-ec2-metadata-token", run->token);
	if (err) {
		http_headers_free(headers);
		return err;
	}
	return credentials_http_start(run, &(struct credentials_http_request){
						   .method = "GET",
						   .url = url,
						   .headers = headers,
						   .connect_ms = CONNECT_MS,
						   .total_ms = TOTAL_MS,
						   .done = done,
					   });
}

static void on_keys(struct credentials_run *run, unsigned int status, const char *body,
		    const char *why)
{
	struct credentials_outcome outcome = { 0 };

	take_answer(run, "the instance's metadata service", status, body, why, &outcome);
}

static void on_roles(struct credentials_run *run, unsigned int status, const char *body,
		     const char *why)
{
	struct credentials_outcome outcome = { 0 };
	char role[128];
	size_t len = strcspn(body, "\r\n");

	if (status / 100 != 2 || !len || len >= sizeof(role) ||
	    strspn(body, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-") <
		    len) {
		if (status == 404 || (status / 100 == 2 && !len)) {
			credentials_fail(&outcome, -EACCES, false,
					 "the instance has no role, says its metadata service");
			outcome.absent = true;
		} else if (status / 100 == 2) {
			credentials_fail(&outcome, -EIO, true,
					 "the instance's metadata service names no role");
		} else {
			take_answer(run, "the instance's metadata service", status, "", why,
				    &outcome);
			return;
		}
		credentials_run_end(run, &outcome);
		return;
	}
	memcpy(role, body, len);
	role[len] = '\0';
	if (instance_get(run, role, on_keys)) {
		credentials_fail(&outcome, -ENOMEM, true, "out of memory");
		credentials_run_end(run, &outcome);
	}
}

static void on_token(struct credentials_run *run, unsigned int status, const char *body,
		     const char *why)
{
	struct credentials_outcome outcome = { 0 };

	if (status / 100 != 2 || strpbrk(body, "\r\n") || !*body) {
		if (!status)
			credentials_fail(&outcome, -EIO, true,
					 "no instance metadata service answers at %s: %s",
					 run->credentials->url, why);
		else
			credentials_fail(&outcome, -EIO, status >= 500,
					 "the instance's metadata service gives no token: it answers %u",
					 status);
		/* Whatever is there, it is not that service; unless it is unwell. */
		outcome.absent = status < 500 && status != 429;
		credentials_run_end(run, &outcome);
		return;
	}
	if (credentials_text_copy(&run->token, body) || instance_get(run, "", on_roles)) {
		credentials_fail(&outcome, -ENOMEM, true, "out of memory");
		credentials_run_end(run, &outcome);
	}
}

int credentials_instance_start(struct credentials_run *run, struct credentials_outcome *outcome)
{
	cleanup_free char *url = NULL;
	struct curl_slist *headers = NULL;
	int err = 0;

	if (asprintf(&url, "%s/latest/api/token", run->credentials->url) < 0) {
		url = NULL;
		err = -ENOMEM;
	}
	if (!err)
		err = http_header(&headers, "X-aws-ec2-metadata-token-ttl-seconds", "300");
	if (!err)
		err = credentials_http_start(run, &(struct credentials_http_request){
							  .method = "PUT",
							  .url = url,
							  .headers = TAKE(headers),
							  .connect_ms = CONNECT_MS,
							  .total_ms = TOTAL_MS,
							  .done = on_token,
						  });
	http_headers_free(headers);
	if (err)
		credentials_fail(outcome, err, true, "out of memory");
	return err;
}
