// SPDX-License-Identifier: MIT
/* The signer against what AWS published. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sigv4.h"
#include "sigv4_vectors.h"

static size_t fields_of(const struct vector *v)
{
	size_t n = 0;

	while (n < 8 && v->fields[n].name)
		n++;
	return n;
}

static void check(const struct vector *v, struct sigv4_request *request, const char *key,
		  const char *secret)
{
	char *text, *lines, *path, *query, *signature;

	request->method = v->method;
	request->path = v->path;
	request->query = v->query;
	request->fields = v->fields;
	request->field_count = fields_of(v);
	request->payload_sha256 = v->payload;

	assert_int_equal(sigv4_canonical(request, &text), 0);
	lines = text;
	assert_string_equal(strsep(&lines, "\n"), v->method);
	path = strsep(&lines, "\n");
	assert_string_equal(path, v->canonical_path);
	query = strsep(&lines, "\n");
	assert_string_equal(query, v->canonical_query);
	free(text);

	assert_int_equal(sigv4_authorization(request, key, secret, &text), 0);
	signature = strstr(text, "Signature=");
	assert_non_null(signature);
	if (strcmp(signature + 10, v->signature))
		fail_msg("%s: %s", v->name, text);
	free(text);
}

static void test_suite(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]); i++) {
		struct sigv4_request request = {
			.normalize = true,
			.date = "20150830T123600Z",
			.region = "us-east-1",
			.service = "service",
		};

		check(&suite[i], &request, "AKIDEXAMPLE",
		      "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
	}
}

static void test_s3(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(s3_examples) / sizeof(s3_examples[0]); i++) {
		struct sigv4_request request = {
			.date = "20130524T000000Z",
			.region = "us-east-1",
			.service = "s3",
		};

		check(&s3_examples[i], &request, "AKIAIOSFODNN7EXAMPLE",
		      "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
	}
}

/* The whole header, as the documentation prints it. */
static void test_header(void **state)
{
	const struct vector *v = &s3_examples[0];
	const struct sigv4_request request = {
		.method = v->method,
		.path = v->path,
		.fields = v->fields,
		.field_count = fields_of(v),
		.payload_sha256 = SIGV4_EMPTY,
		.date = "20130524T000000Z",
		.region = "us-east-1",
		.service = "s3",
	};
	char *text;

	(void)state;
	assert_int_equal(sigv4_authorization(&request, "AKIAIOSFODNN7EXAMPLE",
					     "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", &text),
			 0);
	assert_string_equal(
		text, "AWS4-HMAC-SHA256 "
		      "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
		      "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
		      "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
	free(text);
}

/* S3's keys are no paths: what looks like one stays. An encoded one is not encoded again. */
static void test_s3_path(void **state)
{
	static const char *const paths[][2] = {
		{ "/a/../b", "/a/../b" },
		{ "/a//b/./", "/a//b/./" },
		{ "/a%2Bb%20c%25", "/a%2Bb%20c%25" },
		{ "/\xc3\xa9", "/%C3%A9" },
	};
	const struct sigv4_field field = { "Host", "h" };

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		const struct sigv4_request request = {
			.method = "GET",
			.path = paths[i][0],
			.fields = &field,
			.field_count = 1,
			.payload_sha256 = SIGV4_EMPTY,
			.date = "20130524T000000Z",
			.region = "r",
			.service = "s3",
		};
		char *text, *lines;

		assert_int_equal(sigv4_canonical(&request, &text), 0);
		lines = text;
		strsep(&lines, "\n");
		assert_string_equal(strsep(&lines, "\n"), paths[i][1]);
		free(text);
	}
}

static void test_date(void **state)
{
	char text[SIGV4_DATE];

	(void)state;
	sigv4_date(1440938160, text);
	assert_string_equal(text, "20150830T123600Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_suite),  cmocka_unit_test(test_s3),
		cmocka_unit_test(test_header), cmocka_unit_test(test_s3_path),
		cmocka_unit_test(test_date),
	};

	return cmocka_run_group_tests_name("sigv4", tests, NULL, NULL);
}
