// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "origin_impl.h"
#include "s3_xml.h"

static struct origin_page page;
static struct s3_listing listing;

static int each(void **state)
{
	(void)state;
	origin_page_free(&page);
	free(listing.next_token);
	page = (struct origin_page){ 0 };
	listing = (struct s3_listing){ 0 };
	return 0;
}

static int parse(const char *text, const char *prefix)
{
	each(NULL);
	return s3_xml_listing(text, strlen(text), prefix, &page, &listing);
}

#define HEAD \
	"<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define URL  "<EncodingType>url</EncodingType>"
#define TAIL "</ListBucketResult>"
#define OBJECT(key)                                                                         \
	"<Contents><Key>" key "</Key><LastModified>2020-09-13T12:26:40.123Z</LastModified>" \
	"<ETag>&quot;x&quot;</ETag><Size>12</Size><Owner><ID>Key</ID></Owner></Contents>"
#define BELOW(prefix) "<CommonPrefixes><Prefix>" prefix "</Prefix></CommonPrefixes>"

static void entries(void **state)
{
	(void)state;
	assert_int_equal(parse(HEAD
			       "<Prefix>p%2F</Prefix><IsTruncated>true</IsTruncated>"
			       "<NextContinuationToken>a&amp;b=</NextContinuationToken>" OBJECT(
				       "p%2F") OBJECT("p%2Fa+b%2B%25%0A") OBJECT("p%2F%C3%A9")
				       BELOW("p%2Fsub%2F") URL TAIL,
			       "p/"),
			 0);
	assert_true(listing.any);
	assert_string_equal(listing.next_token, "a&b=");
	assert_int_equal(page.count, 3);
	assert_int_equal(page.skipped, 0);
	assert_string_equal(page.entries[0].name, "a b+%\n");
	assert_int_equal(page.entries[0].attr.mode, S_IFREG);
	assert_int_equal(page.entries[0].attr.size, 12);
	assert_int_equal(page.entries[0].attr.mtime_sec, 1600000000);
	assert_string_equal(page.entries[0].attr.version, "");
	assert_string_equal(page.entries[1].name, "\xc3\xa9");
	assert_string_equal(page.entries[2].name, "sub");
	assert_int_equal(page.entries[2].attr.mode, S_IFDIR);

	/* A service that does not encode. */
	assert_int_equal(parse(HEAD OBJECT("a+b%2B&lt;") TAIL, ""), 0);
	assert_string_equal(page.entries[0].name, "a+b%2B<");
	assert_null(listing.next_token);
}

static void odd_keys(void **state)
{
	(void)state;
	assert_int_equal(parse(HEAD OBJECT("..") BELOW("./") BELOW("../") BELOW("/") OBJECT("a%00b")
				       OBJECT("ok") URL TAIL,
			       ""),
			 0);
	assert_int_equal(page.count, 1);
	assert_int_equal(page.skipped, 5);
	/* Not below the prefix: a server that forgot it. */
	assert_int_equal(parse(HEAD OBJECT("other") BELOW("p/x") TAIL, "p/"), 0);
	assert_int_equal(page.count, 0);
	assert_int_equal(page.skipped, 2);
}

static void emptiness(void **state)
{
	(void)state;
	assert_int_equal(parse(HEAD TAIL, ""), 0);
	assert_false(listing.any);
	assert_int_equal(parse(HEAD OBJECT("d/") TAIL, "d/"), 0);
	assert_true(listing.any);
	assert_int_equal(page.count, 0);
	assert_int_equal(page.skipped, 0);
}

static void others(void **state)
{
	static const char *const texts[] = {
		"",
		"not xml",
		HEAD,
		"<Error><Code>x</Code></Error>",
		"<html></html>",
		HEAD "<Contents><Key>a</Key><Size>-1</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size>x</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size> -1</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size>+1</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size>9223372036854775808</Size></Contents>" TAIL,
		/* Cut off without a way to go on. */
		HEAD "<IsTruncated>true</IsTruncated>" TAIL,
		/* The first page would come again and again. */
		HEAD "<IsTruncated>true</IsTruncated><NextContinuationToken/>" TAIL,
		"<!DOCTYPE x [<!ENTITY a \"b\">]>" HEAD TAIL,
		"<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(parse(texts[i], ""), -EINVAL);
}

/* What a server could fill memory with, or what would not be all of it. */
static void limits(void **state)
{
	static const char one[] = "<Contents/>";
	const size_t many = 60000;
	char *text = malloc(many * strlen(one) + 6000), *end;

	(void)state;
	assert_non_null(text);
	for (size_t count = 1000; count <= many; count += many - 1000) {
		end = stpcpy(text, HEAD);
		for (size_t i = 0; i < count; i++)
			end = mempcpy(end, one, strlen(one));
		memcpy(end, TAIL, sizeof(TAIL));
		assert_int_equal(parse(text, ""), count == 1000 ? 0 : -EINVAL);
	}
	/* Half a token leads elsewhere; the second part alone would fit. */
	end = stpcpy(text, HEAD "<IsTruncated>true</IsTruncated><NextContinuationToken>");
	end = (char *)memset(end, 'x', 5000) + 5000;
	memcpy(stpcpy(end, "&amp;y</NextContinuationToken>"), TAIL, sizeof(TAIL));
	assert_int_equal(parse(text, ""), -EINVAL);
	free(text);
	assert_int_equal(parse(HEAD "<NextContinuationToken/>" TAIL, ""), 0);
	assert_null(listing.next_token);
	/* What is said of an object does not stick to a directory. */
	assert_int_equal(parse(HEAD "<CommonPrefixes><Contents><Size>5</Size></Contents>"
				    "<Prefix>d/</Prefix></CommonPrefixes>" TAIL,
			       ""),
			 0);
	assert_int_equal(page.entries[0].attr.mode, S_IFDIR);
	assert_int_equal(page.entries[0].attr.size, 0);
}

static void errors(void **state)
{
	char code[8], message[64];
	static const char text[] =
		"<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>";

	(void)state;
	s3_xml_error(text, strlen(text), code, sizeof(code), message, sizeof(message));
	assert_string_equal(code, "NoSuchB");
	assert_string_equal(message, "none");
	/* A listing is none; what was kept of it is given back. */
	s3_xml_error(HEAD "<NextContinuationToken>x</NextContinuationToken>" TAIL,
		     strlen(HEAD "<NextContinuationToken>x</NextContinuationToken>" TAIL), code,
		     sizeof(code), message, sizeof(message));
	assert_string_equal(code, "");
	s3_xml_error("<html>", 6, code, sizeof(code), message, sizeof(message));
	assert_string_equal(code, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(entries, each, each),
		cmocka_unit_test_setup_teardown(odd_keys, each, each),
		cmocka_unit_test_setup_teardown(emptiness, each, each),
		cmocka_unit_test_setup_teardown(others, each, each),
		cmocka_unit_test_setup_teardown(limits, each, each),
		cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests_name("s3_xml", tests, NULL, NULL);
}
