// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void rewrite_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
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
	static const char *const variables[] = {
		"AWS_ACCESS_KEY_ID",
		"AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN",
		"AWS_PROFILE",
		"AWS_REGION",
		"AWS_DEFAULT_REGION",
		"AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_ROLE_ARN",
		"AWS_ROLE_SESSION_NAME",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
	setenv("AWS_CONFIG_FILE", config, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
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

/* None of these is asked of anybody. */
static int get(struct credentials *c, const struct credential_keys *refused,
	       struct credential_keys *keys)
{
	struct credentials_wait *wait;

	return credentials_get(c, NULL, refused, keys, NULL, NULL, &wait);
}

static void has_keys(struct credentials *c, const char *access, const char *secret,
		     const char *token)
{
	struct credential_keys keys;

	assert_int_equal(get(c, NULL, &keys), 0);
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
	struct credential_keys old, new;
	struct stat st;

	(void)state;
	write_file(file, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n"
			 "aws_session_token=T1\n");
	c = create((struct origin_settings){ 0 });
	assert_string_equal(credentials_identity(c), "profile:default");
	assert_int_equal(get(c, NULL, &old), 0);
	assert_int_equal(get(c, &old, &new), -EACCES);
	write_file(file, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n"
			 "aws_session_token=T2\n");
	assert_int_equal(get(c, &old, &new), 0);
	assert_string_equal(new.session_token, "T2");
	/* Refused, and the file does not look changed: it is read all the same. */
	assert_int_equal(stat(file, &st), 0);
	rewrite_file(file, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n"
			   "aws_session_token=T3\n");
	assert_int_equal(utimensat(AT_FDCWD, file, (struct timespec[]){ st.st_atim, st.st_mtim },
				   0),
			 0);
	has_keys(c, "A1", "S1", "T2");
	credential_keys_clear(&old);
	old = new;
	assert_int_equal(get(c, &old, &new), 0);
	assert_string_equal(new.session_token, "T3");
	credential_keys_clear(&new);
	write_file(file, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n"
			 "aws_session_token=T2\n");
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

static void refused(const char *says, int error, const struct origin_settings *settings)
{
	struct credentials *c;
	char msg[512] = "";

	assert_int_equal(credentials_create(settings, &c, msg, sizeof(msg)), error);
	if (!strstr(msg, says))
		fail_msg("\"%s\" does not say \"%s\"", msg, says);
}

static void none(void **state)
{
	const struct origin_settings nothing = { 0 }, half = { .access_key = "K" };
	const struct origin_settings named = { .profile = "p" }, other = { .profile = "q" };
	struct credential_keys keys;
	struct credentials *c;
	int64_t expires;
	char why[256];

	(void)state;
	refused("one is missing", -EINVAL, &half);
	refused("no profile \"p\"", -EACCES, &named);
	setenv("AWS_PROFILE", "p", 1);
	refused("no profile \"p\"", -EACCES, &nothing);
	unsetenv("AWS_PROFILE");
	write_file(file, "[default]\naws_access_key_id=A3\n[q]\nsso_session=x\n");
	refused("has no aws_secret_access_key", -EACCES, &nothing);
	refused("sso_session, which wfsd does not do", -EACCES, &other);

	/* Nothing anywhere: unsigned, and why is known. */
	unlink(file);
	c = create(nothing);
	assert_int_equal(get(c, NULL, &keys), 0);
	assert_null(keys.access_key);
	assert_int_equal(get(c, &keys, &keys), -EACCES);
	assert_string_equal(credentials_source(c, &expires), "none");
	credentials_absence(c, why, sizeof(why));
	assert_non_null(strstr(why, file));
	assert_false(credentials_outdated(c));
	write_file(file, "[default]\naws_access_key_id=A3\n");
	assert_false(credentials_outdated(c));
	write_file(file, "[default]\naws_access_key_id=A\naws_secret_access_key=S\n");
	assert_true(credentials_outdated(c));
	credentials_free(c);

	/* Asked for: there is nothing to explain. */
	c = create((struct origin_settings){ .anon = true });
	credentials_absence(c, why, sizeof(why));
	assert_string_equal(why, "");
	assert_false(credentials_outdated(c));
	credentials_free(c);
}

/* Which one is used where several could be, without asking any. */
static void sources(void **state)
{
	struct credentials *c;
	int64_t expires;

	(void)state;
#define IS(name, who)                                                       \
	do {                                                                \
		c = create((struct origin_settings){ 0 });                  \
		assert_string_equal(credentials_source(c, &expires), name); \
		assert_string_equal(credentials_identity(c), who);          \
		credentials_free(c);                                        \
	} while (0)
	IS("none", "anonymous");
	unsetenv("AWS_EC2_METADATA_DISABLED");
	IS("instance", "instance");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/v1?x=y", 1);
	IS("container", "container:http://127.0.0.1:1/v1");
	setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/0815", 1);
	IS("container", "container");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent", 1);
	refused("AWS_ROLE_ARN is not", -EINVAL, &(struct origin_settings){ 0 });
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
	IS("web-identity", "role:arn:aws:iam::1:role/r");
	/* A profile that speaks of no credentials is none. */
	write_file(config, "[default]\nregion = r1\n");
	IS("web-identity", "role:arn:aws:iam::1:role/r");
	write_file(config, "[default]\nrole_arn = arn:aws:iam::1:role/p\n"
			   "web_identity_token_file = /nonexistent\n");
	IS("profile", "role:arn:aws:iam::1:role/p");
	write_file(file, "[base]\naws_access_key_id=B\naws_secret_access_key=BS\n");
	write_file(config, "[default]\nrole_arn = arn:aws:iam::1:role/p\nsource_profile = base\n");
	IS("profile", "role:arn:aws:iam::1:role/p");
	write_file(config, "[default]\nrole_arn = arn:aws:iam::1:role/p\nsource_profile = bass\n");
	refused("source_profile bass, which has no keys", -EACCES, &(struct origin_settings){ 0 });
	write_file(config, "[default]\nrole_arn = arn:aws:iam::1:role/p\n");
	refused("neither web_identity_token_file nor source_profile", -EACCES,
		&(struct origin_settings){ 0 });
	write_file(file, "[default]\naws_access_key_id=F\naws_secret_access_key=FS\n");
	unlink(config);
	IS("profile", "profile:default:F");
	setenv("AWS_ACCESS_KEY_ID", "E", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "ES", 1);
	IS("environment", "key:E");
}

/* Whom a container's URL may name over plain http. */
static void container_hosts(void **state)
{
	static const struct {
		const char *url;
		bool good;
	} cases[] = {
		{ "http://127.0.0.1/", true },
		{ "http://127.9.8.7:51679/x", true },
		{ "http://localhost:8080/x", true },
		{ "http://[::1]/x", true },
		{ "http://169.254.170.2/x", true },
		{ "http://169.254.170.23/v1/credentials", true },
		{ "http://[fd00:ec2::23]/v1/credentials", true },
		{ "https://credentials.example/x", true },
		{ "http://credentials.example/x", false },
		{ "http://127.0.0.1.example/x", false },
		{ "http://localhost.example/x", false },
		{ "http://128.0.0.1/x", false },
		{ "http://169.254.170.3/x", false },
		{ "http://169.254.169.254/x", false },
		{ "http://10.0.0.1/x", false },
		{ "http://[fd00:ec2::24]/x", false },
		{ "http://127.0.0.1@10.0.0.1/x", false },
		{ "https://user:wfssecret@host/x", false },
		{ "ftp://127.0.0.1/x", false },
		{ "nothing", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct credentials *c;
		char msg[512] = "";
		int err;

		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", cases[i].url, 1);
		err = credentials_create(&(struct origin_settings){ 0 }, &c, msg, sizeof(msg));
		if (err != (cases[i].good ? 0 : -EINVAL))
			fail_msg("%s: %d %s", cases[i].url, err, msg);
		assert_null(strstr(msg, "wfssecret"));
		if (!err)
			credentials_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(order, each),
		cmocka_unit_test_setup(config_file, each),
		cmocka_unit_test_setup(renewed, each),
		cmocka_unit_test_setup(none, each),
		cmocka_unit_test_setup(sources, each),
		cmocka_unit_test_setup(container_hosts, each),
	};

	return cmocka_run_group_tests_name("credentials", tests, set_up, tear_down);
}
