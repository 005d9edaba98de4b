// SPDX-License-Identifier: MIT
#include "offers.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define AMAZON "x-amz-checksum-"

const char *offers_from(enum offer_from from)
{
	static const char *const names[OFFER_FROMS] = {
		[OFFER_S3] = "the S3 checksum",	    [OFFER_REPR_DIGEST] = "Repr-Digest",
		[OFFER_DIGEST] = "Digest",	    [OFFER_FILE] = "the " OFFERS_SUFFIX " file",
		[OFFER_GIVEN] = "the command line",
	};

	return names[from];
}

static void offers_add(struct offers *offers, const struct digest *digest, enum offer_from from,
		       uint32_t parts)
{
	if (offers->count < OFFERS_MAX)
		offers->of[offers->count++] = (struct offer){ *digest, from, parts };
}

/* There are no checksums of the whole: those that came without a number of parts are not. */
static void offers_compose(struct offers *offers)
{
	unsigned int kept = 0;

	offers->composite = true;
	for (unsigned int i = 0; i < offers->count; i++)
		if (offers->of[i].from != OFFER_S3 || offers->of[i].parts)
			offers->of[kept++] = offers->of[i];
	offers->count = kept;
}

/* The number behind "VALUE-"; 0: there is none that could be. */
static uint32_t offers_parts(const char *text)
{
	uint32_t parts = 0;

	for (; isdigit((unsigned char)*text) && parts <= OFFERS_PARTS_MAX; text++)
		parts = parts * 10 + (uint32_t)(*text - '0');
	return *text || parts > OFFERS_PARTS_MAX ? 0 : parts;
}

/* "VALUE", or "VALUE-PARTS" of an upload in parts. */
static void offers_amazon(struct offers *offers, const char *name, const char *value)
{
	const char *dash = strchr(value, '-');
	size_t len = dash ? (size_t)(dash - value) : strlen(value);
	uint32_t parts = dash ? offers_parts(dash + 1) : 0;
	enum digest_algo algo;
	struct digest digest;

	if (digest_by_name(name, strlen(name), &algo))
		return;
	if (dash)
		offers_compose(offers);
	if (dash ? !parts : offers->composite)
		return;
	if (!digest_from_base64(algo, value, len, &digest))
		offers_add(offers, &digest, OFFER_S3, parts);
}

/* "sha-256=:BASE64:, sha-512=:BASE64:"; the older field has no colons. */
static void offers_list(struct offers *offers, const char *value, bool colons, enum offer_from from)
{
	while (*value) {
		size_t len = strcspn(value, ","), name, first, end;
		enum digest_algo algo;
		struct digest digest;

		for (end = len; end && isspace((unsigned char)value[end - 1]);)
			end--;
		name = strcspn(value, "=");
		first = name + 1 + colons;
		if (name < end && first + colons <= end &&
		    (!colons || (value[name + 1] == ':' && value[end - 1] == ':')) &&
		    !digest_by_name(value, name, &algo) &&
		    !digest_from_base64(algo, value + first, end - colons - first, &digest))
			offers_add(offers, &digest, from, 0);
		value += len;
		value += strspn(value, ", \t");
	}
}

void offers_field(struct offers *offers, const char *name, const char *value)
{
	if (!strcasecmp(name, AMAZON "type")) {
		if (!strcasecmp(value, "COMPOSITE"))
			offers_compose(offers);
	} else if (!strncasecmp(name, AMAZON, strlen(AMAZON))) {
		offers_amazon(offers, name + strlen(AMAZON), value);
	} else if (!strcasecmp(name, "Repr-Digest")) {
		offers_list(offers, value, true, OFFER_REPR_DIGEST);
	} else if (!strcasecmp(name, "Digest")) {
		offers_list(offers, value, false, OFFER_DIGEST);
	}
}

/* Is the name in a line the object's? A backslash before the line: it has some in it. */
static bool offers_is_name(const char *text, size_t len, bool escaped, const char *name)
{
	const char *slash = memrchr(text, '/', len);

	if (slash) {
		len -= (size_t)(slash + 1 - text);
		text = slash + 1;
	}
	for (; len; text++, len--, name++) {
		char c = *text;

		if (escaped && c == '\\' && len > 1) {
			text++;
			len--;
			c = *text == 'n' ? '\n' : *text == 'r' ? '\r' : *text;
		}
		if (!*name || c != *name)
			return false;
	}
	return !*name;
}

/* "HEX", "HEX  NAME" or "HEX *NAME". */
static bool offers_line(const char *line, size_t len, const char *name, struct digest *ret)
{
	size_t hex = 2 * digest_size(DIGEST_SHA256);
	bool escaped = len && *line == '\\';

	line += escaped;
	len -= escaped;
	len -= len && line[len - 1] == '\r';
	if (len < hex || digest_from_hex(DIGEST_SHA256, line, hex, ret))
		return false;
	line += hex;
	len -= hex;
	if (len > 2 && line[0] == ' ' && (line[1] == ' ' || line[1] == '*') &&
	    offers_is_name(line + 2, len - 2, escaped, name))
		return true;
	while (len && isspace((unsigned char)line[len - 1]))
		len--;
	return !len;
}

void offers_file(struct offers *offers, const char *text, size_t len, const char *name)
{
	struct digest digest;

	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t line = end ? (size_t)(end - text) : len;

		if (offers_line(text, line, name, &digest)) {
			offers_add(offers, &digest, OFFER_FILE, 0);
			return;
		}
		line += end != NULL;
		text += line;
		len -= line;
	}
}

bool offers_wanted(const char *name)
{
	size_t len = strlen(name), suffix = strlen(OFFERS_SUFFIX);

	return len < suffix || strcmp(name + len - suffix, OFFERS_SUFFIX) != 0;
}
