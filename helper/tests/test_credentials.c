// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "credentials.h"
#include "origin.h"

static char dir[] = "/tmp/wfs-test-XXXXXX";
static char file[64], config[64];

static void write_file(const char *path, const char *text)
{
	char temporary[80];
	FILE *f;

	/* Replaced, as tools that renew credentials do. */
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	f = fopen(temporary, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(rename(temporary, path), 0);
}

static int set_up(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/credentials", dir);
	snprintf(config, sizeof(config), "%s/config", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(file);
	unlink(config);
	rmdir(dir);
	return 0;
}

static int each(void **state)
{
	static const char *const variables[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
						 "AWS_SESSION_TOKEN", "AWS_PROFILE",
						 "AWS_REGION",	      "AWS_DEFAULT_REGION" };

	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
	setenv("AWS_CONFIG_FILE", config, 1);
	unlink(file);
	unlink(config);
	return 0;
}

static struct credentials *create(struct origin_settings settings)
{
	struct credentials *c;
	char msg[512] = "";

	if (credentials_create(&settings, &c, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return c;
}

static void has_keys(struct credentials *c, const char *access, const char *secret,
		     const char *token)
{
	struct credential_keys keys;

	assert_int_equal(credentials_get(c, &keys), 0);
	assert_string_equal(keys.access_key, access);
	assert_string_equal(keys.secret_key, secret);
	if (token)
		assert_string_equal(keys.session_token, token);
	else
		assert_null(keys.session_token);
	credential_keys_clear(&keys);
}

static void order(void **state)
{
	struct credentials *c;

	(void)state;
	write_file(file, "[default]\naws_access_key_id=F\naws_secret_access_key=FS\n"
			 "[other]\naws_access_key_id=O\naws_secret_access_key=OS\n");
	c = create((struct origin_settings){ 0 });
	has_keys(c, "F", "FS", NULL);
	assert_string_equal(credentials_identity(c), "profile:default:F");
	credentials_free(c);

	setenv("AWS_PROFILE", "other", 1);
	c = create((struct origin_settings){ 0 });
	has_keys(c, "O", "OS", NULL);
	credentials_free(c);

	setenv("AWS_ACCESS_KEY_ID", "E", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "ES", 1);
	setenv("AWS_SESSION_TOKEN", "ET", 1);
	c = create((struct origin_settings){ 0 });
	has_keys(c, "E", "ES", "ET");
	assert_string_equal(credentials_identity(c), "key:E");
	credentials_free(c);

	/* Named in the settings: before the environment. */
	c = create((struct origin_settings){ .profile = "default" });
	has_keys(c, "F", "FS", NULL);
	credentials_free(c);

	c = create((struct origin_settings){ .access_key = "C", .secret_key = "CS" });
	has_keys(c, "C", "CS", NULL);
	credentials_free(c);

	c = create((struct origin_settings){ .anon = true, .access_key = "C" });
	assert_string_equal(credentials_identity(c), "anonymous");
	credentials_free(c);
}

static void config_file(void **state)
{
	struct credentials *c;

	(void)state;
	write_file(file, "[p]\naws_access_key_id=F\naws_secret_access_key=FS\n");
	write_file(config, "[profile p]\nregion = eu-central-1\n"
			   "[profile q]\naws_access_key_id=Q\naws_secret_access_key=QS\n"
			   "region = r2\n");
	c = create((struct origin_settings){ .profile = "p" });
	has_keys(c, "F", "FS", NULL);
	assert_string_equal(credentials_region(c), "eu-central-1");
	credentials_free(c);
	c = create((struct origin_settings){ .profile = "q" });
	has_keys(c, "Q", "QS", NULL);
	assert_string_equal(credentials_region(c), "r2");
	credentials_free(c);
	setenv("AWS_REGION", "env", 1);
	c = create((struct origin_settings){ .profile = "q" });
	assert_string_equal(credentials_region(c), "env");
	credentials_free(c);
}

static void renewed(void **state)
{
	struct credentials *c;
	struct credential_keys old;

	(void)state;
	write_file(file, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n"
			 "aws_session_token=T1\n");
	c = create((struct origin_settings){ 0 });
	assert_string_equal(credentials_identity(c), "profile:default");
	assert_int_equal(credentials_get(c, &old), 0);
	assert_false(credentials_renewed(c, &old));
	write_file(file, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n"
			 "aws_session_token=T2\n");
	assert_true(credentials_renewed(c, &old));
	has_keys(c, "A1", "S1", "T2");
	/* Gone or half-written: what was known stays. */
	write_file(file, "[default]\naws_access_key_id=A3\n");
	has_keys(c, "A1", "S1", "T2");
	unlink(file);
	has_keys(c, "A1", "S1", "T2");
	write_file(file, "[default]\naws_access_key_id=A4\naws_secret_access_key=S4\n");
	has_keys(c, "A4", "S4", NULL);
	credential_keys_clear(&old);
	credentials_free(c);
}

static void none(void **state)
{
	const struct origin_settings nothing = { 0 }, half = { .access_key = "K" };
	struct credentials *c;
	char msg[512] = "";

	(void)state;
	assert_int_equal(credentials_create(&nothing, &c, msg, sizeof(msg)), -EACCES);
	assert_non_null(strstr(msg, "no S3 credentials"));
	assert_int_equal(credentials_create(&half, &c, msg, sizeof(msg)), -EINVAL);
	write_file(file, "[default]\naws_access_key_id=A3\n");
	assert_int_equal(credentials_create(&nothing, &c, msg, sizeof(msg)), -EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(order, each),
		cmocka_unit_test_setup(config_file, each),
		cmocka_unit_test_setup(renewed, each),
		cmocka_unit_test_setup(none, each),
	};

	return cmocka_run_group_tests_name("credentials", tests, set_up, tear_down);
}
