// SPDX-License-Identifier: MIT
/*
 * mirror_list: the mirrors that an option or a key names.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "mirror.h"

static const char list_trust[] = "trust";

static bool list_is_web(const char *url)
{
	return !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);
}

static bool list_is_s3(const char *url)
{
	return !strncmp(url, "s3://", 5);
}

bool mirror_is_endpoint(const char *source, const char *url)
{
	return list_is_s3(source) && list_is_web(url);
}

/* May something that ends here be followed by what is at text? */
static bool list_begins(const char *text)
{
	size_t trust = sizeof(list_trust) - 1;

	return list_is_web(text) || list_is_s3(text) ||
	       (!strncmp(text, list_trust, trust) &&
		(!text[trust] || text[trust] == ',' || text[trust] == '+'));
}

/* The length of the first item. */
static size_t list_item(const char *text)
{
	size_t len = 0;

	while (text[len] && text[len] != ',' && !(text[len] == '+' && list_begins(text + len + 1)))
		len++;
	return len;
}

/* A URL, with what source has behind base put behind it; allocated. */
static char *list_join(const char *url, size_t len, const char *source, const char *base)
{
	const char *rest = source + strlen(base);
	char *joined;

	rest += strspn(rest, "/");
	/* The slash at its end says that it is a directory, as the source's does. */
	while (*rest && len && url[len - 1] == '/')
		len--;
	if (asprintf(&joined, "%.*s%s%s", (int)len, url, *rest ? "/" : "", rest) < 0)
		return NULL;
	return joined;
}

static int list_add(struct mirror_list *list, const char *url, size_t len, const char *source,
		    const char *base, char *msg, size_t msg_size)
{
	char *copy;

	if (list->count == MIRROR_MAX) {
		snprintf(msg, msg_size, "mirror: there are more than %d", MIRROR_MAX);
		return -EINVAL;
	}
	if (!(list_is_web(source) || list_is_s3(source))) {
		snprintf(msg, msg_size, "mirror: a source of http or s3 has mirrors, not this one");
		return -EINVAL;
	}
	/* What it is instead is not shown: it may hold a password. */
	if (!list_is_web(url) && !(list_is_s3(source) && list_is_s3(url))) {
		snprintf(msg, msg_size, "mirror: %s is the form of a mirror of this source",
			 list_is_s3(source) ?
				 "s3://BUCKET[/PREFIX], or the URL of another endpoint," :
				 "http(s)://HOST/PATH/");
		return -EINVAL;
	}
	if (base && !mirror_is_endpoint(source, url))
		copy = list_join(url, len, source, base);
	else
		copy = strndup(url, len);
	if (!copy)
		return -ENOMEM;
	list->urls[list->count++] = copy;
	return 0;
}

int mirror_list_parse(const char *text, const char *source, const char *base,
		      struct mirror_list *list, char *msg, size_t msg_size)
{
	int err = 0;

	*list = (struct mirror_list){ 0 };
	while (*text && !err) {
		size_t len, end;

		text += strspn(text, " \t");
		len = list_item(text);
		end = len;
		while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
			len--;
		if (len == sizeof(list_trust) - 1 && !strncmp(text, list_trust, len))
			list->trust = true;
		else if (len)
			err = list_add(list, text, len, source, base, msg, msg_size);
		text += end;
		text += *text == ',' || *text == '+';
	}
	if (!err && !list->count) {
		snprintf(msg, msg_size, "mirror: no URL is given");
		err = -EINVAL;
	}
	if (err == -ENOMEM)
		snprintf(msg, msg_size, "out of memory");
	return err;
}

void mirror_list_free(struct mirror_list *list)
{
	for (unsigned int i = 0; i < list->count; i++)
		free(list->urls[i]);
	list->count = 0;
}

char *mirror_list_parents(const char *text, const char *source)
{
	char *parents = NULL;
	size_t size;
	FILE *stream = open_memstream(&parents, &size);

	if (!stream)
		return NULL;
	while (*text) {
		size_t len = list_item(text), keep = len;

		if (list_begins(text) && strncmp(text, list_trust, sizeof(list_trust) - 1) &&
		    !mirror_is_endpoint(source, text)) {
			const char *rest = strstr(text, "://") + 3;

			while (text[keep - 1] != '/')
				keep--;
			/* A host or a bucket alone. */
			if (text + keep <= rest)
				keep = len;
		}
		fprintf(stream, "%.*s", (int)keep, text);
		text += len;
		if (*text)
			fputc(*text++, stream);
	}
	if (fclose(stream)) {
		free(parents);
		return NULL;
	}
	return parents;
}
