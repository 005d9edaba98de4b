// SPDX-License-Identifier: MIT
/* credentials_text: secrets as strings: copied by hand, zeroed when freed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "credentials_impl.h"

/* A line longer than this is no token. */
#define LINE_MAX_BYTES (32u << 10)

void credentials_text_free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

int credentials_text_copy(char **to, const char *from)
{
	if (!from || !*from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -ENOMEM;
}

void credential_keys_clear(struct credential_keys *keys)
{
	credentials_text_free(keys->access_key);
	credentials_text_free(keys->secret_key);
	credentials_text_free(keys->session_token);
	*keys = (struct credential_keys){ 0 };
}

int credentials_keys_copy(struct credential_keys *to, const struct credential_keys *from)
{
	struct credential_keys copy = { .expires = from->expires };

	if (credentials_text_copy(&copy.access_key, from->access_key) ||
	    credentials_text_copy(&copy.secret_key, from->secret_key) ||
	    credentials_text_copy(&copy.session_token, from->session_token)) {
		credential_keys_clear(&copy);
		return -ENOMEM;
	}
	*to = copy;
	return 0;
}

int credentials_role_copy(struct credentials_role *to, const struct credentials_role *from)
{
	struct credentials_role copy = { 0 };

	if (credentials_text_copy(&copy.arn, from->arn) ||
	    credentials_text_copy(&copy.session, from->session) ||
	    credentials_text_copy(&copy.external_id, from->external_id) ||
	    credentials_text_copy(&copy.token_file, from->token_file) ||
	    credentials_keys_copy(&copy.keys, &from->keys)) {
		credentials_role_clear(&copy);
		return -ENOMEM;
	}
	*to = copy;
	return 0;
}

void credentials_role_clear(struct credentials_role *role)
{
	credential_keys_clear(&role->keys);
	credentials_text_free(role->external_id);
	free(role->arn);
	free(role->session);
	free(role->token_file);
	*role = (struct credentials_role){ 0 };
}

int credentials_file_line(const char *path, char **ret_line)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	char *text;
	ssize_t n;
	int err = 0;

	if (fd < 0)
		return -errno;
	text = malloc(LINE_MAX_BYTES);
	if (!text)
		return -ENOMEM;
	do {
		n = read(fd, text + len, LINE_MAX_BYTES - 1 - len);
		if (n > 0)
			len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		err = -errno;
	text[len] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	/* An empty one is about to be written. */
	if (!err && !*text)
		err = -ENOENT;
	if (!err) {
		*ret_line = strdup(text);
		err = *ret_line ? 0 : -ENOMEM;
	}
	explicit_bzero(text, LINE_MAX_BYTES);
	free(text);
	return err;
}

bool credentials_time(const char *text, int64_t *ret_seconds)
{
	struct tm tm = { 0 };
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	if (end && *end == '.')
		end += 1 + strspn(end + 1, "0123456789");
	if (!end || (strcmp(end, "Z") && strcmp(end, "+00:00")))
		return false;
	*ret_seconds = timegm(&tm);
	return true;
}

const char *credentials_env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}
