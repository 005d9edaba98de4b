// SPDX-License-Identifier: MIT
#include <errno.h>
#include <expat.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cleanup.h"
#include "origin_impl.h"
#include "origin_path.h"
#include "s3_xml.h"

/* A key is at most 1024 bytes, three times as long when encoded. */
#define TEXT_MAX  4096
#define DEPTH_MAX 16
/* A page has at most 1000 keys, of some ten elements each: who sends more wants memory. */
#define ELEMENTS_MAX 50000

enum element {
	OTHER,
	RESULT,
	CONTENTS,
	COMMON_PREFIXES,
	KEY,
	SIZE,
	MODIFIED,
	ETAG,
	PREFIX,
	TRUNCATED,
	NEXT,
	ENCODING,
	ERROR,
	CODE,
	MESSAGE,
};

static const struct {
	const char *name;
	enum element element;
} elements[] = {
	{ "ListBucketResult", RESULT },
	{ "Contents", CONTENTS },
	{ "CommonPrefixes", COMMON_PREFIXES },
	{ "Key", KEY },
	{ "Size", SIZE },
	{ "LastModified", MODIFIED },
	{ "ETag", ETAG },
	{ "Prefix", PREFIX },
	{ "IsTruncated", TRUNCATED },
	{ "NextContinuationToken", NEXT },
	{ "EncodingType", ENCODING },
	{ "Error", ERROR },
	{ "Code", CODE },
	{ "Message", MESSAGE },
};

struct entry {
	struct entry *next;
	bool object; /* Contents, else a common prefix */
	struct origin_attr attr;
	size_t len;
	char name[]; /* as in the document */
};

struct parse {
	XML_Parser parser;
	enum element stack[DEPTH_MAX];
	size_t depth, elements;
	char text[TEXT_MAX];
	size_t len;
	bool too_long;

	const char *prefix;
	struct origin_page *page;
	struct s3_listing listing;
	bool is_listing, truncated, encoded;
	/* EncodingType may stand after the entries. */
	struct entry *first, **last;
	/* The one being read. */
	struct origin_attr attr;
	char name[TEXT_MAX];
	size_t name_len;
	int error;

	char code[128], message[256];
};

/* Cut at the end if it does not fit. */
static void copy_text(char *to, size_t size, const char *from)
{
	size_t len = strnlen(from, size - 1);

	memcpy(to, from, len);
	to[len] = '\0';
}

static enum element element_of(const char *name)
{
	const char *colon = strrchr(name, ':');

	if (colon)
		name = colon + 1;
	for (size_t i = 0; i < ARRAY_SIZE(elements); i++) {
		if (!strcmp(name, elements[i].name))
			return elements[i].element;
	}
	return OTHER;
}

static enum element parent(const struct parse *p)
{
	return p->depth >= 2 ? p->stack[p->depth - 2] : OTHER;
}

static void stop(struct parse *p, int error)
{
	p->error = error;
	XML_StopParser(p->parser, XML_FALSE);
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct parse *p = arg;
	enum element element = element_of(name);

	(void)attributes;
	p->len = 0;
	p->too_long = false;
	if (p->depth == DEPTH_MAX || ++p->elements > ELEMENTS_MAX) {
		stop(p, -EINVAL);
		return;
	}
	p->stack[p->depth++] = element;
	if (element == RESULT && p->depth == 1)
		p->is_listing = true;
	if (element == CONTENTS || element == COMMON_PREFIXES) {
		memset(&p->attr, 0, sizeof(p->attr));
		p->name_len = 0;
	}
}

static void XMLCALL on_text(void *arg, const XML_Char *text, int len)
{
	struct parse *p = arg;

	if (p->too_long || p->len + (size_t)len >= sizeof(p->text)) {
		p->too_long = true;
		return;
	}
	memcpy(p->text + p->len, text, (size_t)len);
	p->len += (size_t)len;
}

/* "2009-10-12T17:50:30.000Z" */
static void parse_time(const char *text, struct origin_attr *attr)
{
	struct tm tm = { 0 };
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t t = rest ? timegm(&tm) : (time_t)-1;

	if (t != (time_t)-1)
		attr->mtime_sec = t;
}

static bool parse_bytes(const char *text, uint64_t *ret)
{
	char *end;

	/* strtoull() takes signs and spaces as well. */
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && !*end && *ret <= INT64_MAX;
}

static void keep_entry(struct parse *p, bool object)
{
	struct entry *entry;

	p->listing.any = true;
	if (!p->page)
		return;
	entry = calloc(1, sizeof(*entry) + p->name_len + 1);
	if (!entry) {
		stop(p, -ENOMEM);
		return;
	}
	entry->object = object;
	if (object)
		entry->attr = p->attr;
	entry->attr.mode = object ? S_IFREG : S_IFDIR;
	entry->len = p->name_len;
	memcpy(entry->name, p->name, p->name_len);
	*p->last = entry;
	p->last = &entry->next;
}

static void take_name(struct parse *p)
{
	p->name_len = p->too_long ? 0 : p->len;
	memcpy(p->name, p->text, p->name_len);
}

static void on_contents(struct parse *p, enum element element)
{
	switch (element) {
	case KEY:
		take_name(p);
		break;
	case SIZE:
		if (p->too_long || !parse_bytes(p->text, &p->attr.size))
			stop(p, -EINVAL);
		break;
	case MODIFIED:
		parse_time(p->text, &p->attr);
		break;
	default:
		break;
	}
}

static void on_result(struct parse *p, enum element element)
{
	switch (element) {
	case TRUNCATED:
		p->truncated = !strcmp(p->text, "true");
		break;
	case NEXT:
		free(p->listing.next_token);
		/* With an empty one the listing would begin again. */
		p->listing.next_token = *p->text ? strdup(p->text) : NULL;
		if (p->too_long)
			stop(p, -EINVAL);
		else if (*p->text && !p->listing.next_token)
			stop(p, -ENOMEM);
		break;
	case ENCODING:
		p->encoded = !strcmp(p->text, "url");
		break;
	case CONTENTS:
		keep_entry(p, true);
		break;
	case COMMON_PREFIXES:
		keep_entry(p, false);
		break;
	default:
		break;
	}
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
	struct parse *p = arg;
	enum element element = p->stack[p->depth - 1];

	(void)name;
	p->text[p->len] = '\0';
	if (parent(p) == CONTENTS)
		on_contents(p, element);
	else if (parent(p) == COMMON_PREFIXES && element == PREFIX)
		take_name(p);
	else if (parent(p) == RESULT)
		on_result(p, element);
	else if (parent(p) == ERROR && element == CODE)
		copy_text(p->code, sizeof(p->code), p->text);
	else if (parent(p) == ERROR && element == MESSAGE)
		copy_text(p->message, sizeof(p->message), p->text);
	p->depth--;
	p->len = 0;
}

/* Entities that refer to each other could fill any memory: S3 declares none. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
			       const XML_Char *public_id, int internal)
{
	struct parse *p = arg;

	(void)name;
	(void)system_id;
	(void)public_id;
	(void)internal;
	stop(p, -EINVAL);
}

static int run(struct parse *p, const char *text, size_t len)
{
	enum XML_Status status;

	p->last = &p->first;
	p->parser = XML_ParserCreate(NULL);
	if (!p->parser)
		return -ENOMEM;
	XML_SetUserData(p->parser, p);
	XML_SetElementHandler(p->parser, on_start, on_end);
	XML_SetCharacterDataHandler(p->parser, on_text);
	XML_SetStartDoctypeDeclHandler(p->parser, on_doctype);
	status = len > INT32_MAX ? XML_STATUS_ERROR :
				   XML_Parse(p->parser, text, (int)len, XML_TRUE);
	if (status != XML_STATUS_OK && !p->error)
		p->error = XML_GetErrorCode(p->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EINVAL;
	XML_ParserFree(p->parser);
	return p->error;
}

/* In application/x-www-form-urlencoded, as S3 has it, '+' is a space. */
static size_t decode_form(char *text)
{
	for (char *c = text; *c; c++) {
		if (*c == '+')
			*c = ' ';
	}
	return origin_decode(text);
}

static int add_entry(struct parse *p, struct entry *entry)
{
	size_t prefix = strlen(p->prefix), len = entry->len;
	char *name = entry->name;

	if (p->encoded)
		len = decode_form(name);
	if (len < prefix || memcmp(name, p->prefix, prefix)) {
		p->page->skipped++;
		return 0;
	}
	name += prefix;
	len -= prefix;
	/* The marker of the directory itself. */
	if (entry->object && !len)
		return 0;
	if (!entry->object) {
		if (!len || name[len - 1] != '/') {
			p->page->skipped++;
			return 0;
		}
		len--;
	}
	return origin_page_add(p->page, name, len, &entry->attr);
}

int s3_xml_listing(const char *text, size_t len, const char *prefix, struct origin_page *page,
		   struct s3_listing *ret_listing)
{
	cleanup_free struct parse *p = calloc(1, sizeof(*p));
	struct entry *entry, *next;
	int err;

	if (!p)
		return -ENOMEM;
	p->prefix = prefix;
	p->page = page;
	err = run(p, text, len);
	if (!err && !p->is_listing)
		err = -EINVAL;
	/* Cut off with no way to go on: better an error than a part taken for the whole. */
	if (!err && p->truncated && !p->listing.next_token)
		err = -EINVAL;
	for (entry = p->first; entry; entry = next) {
		next = entry->next;
		if (!err)
			err = add_entry(p, entry);
		free(entry);
	}
	if (err || !p->truncated) {
		free(p->listing.next_token);
		p->listing.next_token = NULL;
	}
	*ret_listing = p->listing;
	return err;
}

void s3_xml_error(const char *text, size_t len, char *code, size_t code_size, char *message,
		  size_t message_size)
{
	cleanup_free struct parse *p = calloc(1, sizeof(*p));

	*code = '\0';
	*message = '\0';
	if (!p)
		return;
	p->prefix = "";
	if (!run(p, text, len)) {
		copy_text(code, code_size, p->code);
		copy_text(message, message_size, p->message);
	}
	free(p->listing.next_token);
}
