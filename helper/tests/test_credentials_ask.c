// SPDX-License-Identifier: MIT
/* Credentials that are asked for: each source against a server that speaks it, and time. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "query.h"
#include "clock.h"
#include "credentials.h"
#include "faulty.h"
#include "log.h"

#define ROLE  "arn:aws:iam::1:role/reader"
#define ROLES "/latest/meta-data/iam/security-credentials/"

static struct faulty server;
static struct loop *loop;
static char dir[] = "/tmp/wfs-test-XXXXXX";
static char token_file[64], file[64], config[64];

static void write_file(const char *path, const char *text)
{
	char temporary[80];
	FILE *f;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	f = fopen(temporary, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(rename(temporary, path), 0);
}

/* One who wants keys. */
struct want {
	struct loop *loop;
	struct credentials_wait *wait;
	struct credential_keys keys;
	bool done, stop;
	int error;
	bool transient;
	char message[512];
};

static void on_done(void *arg, const struct origin_result *result)
{
	struct want *want = arg;

	assert_false(want->done);
	want->done = true;
	want->wait = NULL;
	want->error = result->error;
	want->transient = result->transient;
	snprintf(want->message, sizeof(want->message), "%s",
		 result->message ? result->message : "");
	assert_null(strstr(want->message, "wfssecret"));
	if (want->stop)
		loop_stop(want->loop);
}

/* Whether they are there at once. */
static bool start(struct credentials *c, const struct credential_keys *refused, struct want *want)
{
	int err;

	*want = (struct want){ .loop = loop };
	err = credentials_get(c, loop, refused, &want->keys, on_done, want, &want->wait);
	/* Never from inside. */
	assert_false(want->done);
	if (err == -EINPROGRESS)
		return false;
	want->done = true;
	want->error = err;
	return true;
}

static void wait_for(struct want *want)
{
	for (int i = 0; i < 6000 && !want->done; i++)
		query_turn(loop, 5);
	assert_true(want->done);
}

static void get(struct credentials *c, const struct credential_keys *refused, struct want *want)
{
	start(c, refused, want);
	wait_for(want);
}

static void keeps(struct credentials *c, const char *access_key)
{
	struct want want;

	get(c, NULL, &want);
	assert_string_equal(want.message, "");
	assert_int_equal(want.error, 0);
	if (access_key) {
		assert_string_equal(want.keys.access_key, access_key);
		assert_non_null(want.keys.secret_key);
		assert_non_null(want.keys.session_token);
	} else {
		assert_null(want.keys.access_key);
	}
	credential_keys_clear(&want.keys);
}

static void fails(struct credentials *c, int error, bool transient, const char *says)
{
	struct want want;

	get(c, NULL, &want);
	assert_int_equal(want.error, error);
	assert_int_equal(want.transient, transient);
	if (!strstr(want.message, says))
		fail_msg("\"%s\" does not say \"%s\"", want.message, says);
}

static int asked(void)
{
	return faulty_count(&server, "POST", "/sts");
}

static struct credentials *create(void)
{
	struct credentials *c;
	char msg[512] = "";

	if (credentials_create(&(struct origin_settings){ 0 }, &c, msg, sizeof(msg)))
		fail_msg("%s", msg);
	return c;
}

static struct credentials *create_web_identity(void)
{
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token_file, 1);
	setenv("AWS_ROLE_ARN", ROLE, 1);
	return create();
}

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(loop_create(&loop, 64), 0);
	faulty_start(&server);
	assert_non_null(mkdtemp(dir));
	snprintf(token_file, sizeof(token_file), "%s/token", dir);
	snprintf(file, sizeof(file), "%s/credentials", dir);
	snprintf(config, sizeof(config), "%s/config", dir);
	log_setup(LOG_LEVEL_ERROR, false);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	faulty_stop(&server);
	loop_destroy(loop);
	unlink(token_file);
	unlink(file);
	unlink(config);
	return rmdir(dir);
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
		"AWS_CONTAINER_AUTHORIZATION_TOKEN",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT",
	};
	char url[80];

	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
	setenv("AWS_CONFIG_FILE", config, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	faulty_clear(&server);
	faulty_issuer(&server, "{\"reset\":true}");
	snprintf(url, sizeof(url), "%s/sts", server.url);
	setenv("AWS_ENDPOINT_URL_STS", url, 1);
	write_file(token_file, "web-wfssecret\n");
	unlink(file);
	unlink(config);
	clock_reset();
	return 0;
}

static void web_identity(void **state)
{
	struct credentials *c = create_web_identity();
	int64_t expires;

	(void)state;
	keeps(c, "ISSUED1");
	keeps(c, "ISSUED1");
	assert_int_equal(asked(), 1);
	assert_string_equal(credentials_source(c, &expires), "web-identity");
	assert_true(expires >= time(NULL) + 3500 && expires <= time(NULL) + 3600);
	assert_string_equal(credentials_identity(c), "role:" ROLE);
	credentials_free(c);
}

static void wrong_token(void **state)
{
	struct credentials *c = create_web_identity();

	(void)state;
	faulty_issuer(&server, "{\"token\":\"newer-wfssecret\"}");
	fails(c, -EACCES, false, "has expired");
	assert_int_equal(asked(), 1);
	/* The file as it is then. */
	write_file(token_file, "newer-wfssecret");
	keeps(c, "ISSUED1");
	credentials_free(c);

	c = create_web_identity();
	unlink(token_file);
	fails(c, -EACCES, true, token_file);
	write_file(token_file, "");
	fails(c, -EACCES, true, token_file);
	credentials_free(c);
}

static void unwell(void **state)
{
	struct credentials *c = create_web_identity();

	(void)state;
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":503}");
	fails(c, -EIO, true, "503");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":400,\"body\":"
			      "\"<E><Code>IDPCommunicationError</Code></E>\"}");
	fails(c, -EIO, true, "IDPCommunicationError");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":403,\"body\":"
			      "\"<E><Code>AccessDenied</Code></E>\"}");
	fails(c, -EACCES, false, "AccessDenied");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":200,\"body\":"
			      "\"<E><AccessKeyId>A</AccessKeyId></E>\"}");
	fails(c, -EIO, true, "its answer has none");
	faulty_clear(&server);
	/* Keys that come too late are none. */
	faulty_issuer(&server, "{\"lifetime\":-5}");
	fails(c, -EIO, true, "expired already");
	/* A redirect is not followed. */
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"redirect\",\"to\":\"/else\"}");
	fails(c, -EACCES, false, "302");
	assert_int_equal(faulty_count(&server, "POST", "/else"), 0);
	assert_int_equal(faulty_count(&server, "GET", "/else"), 0);
	credentials_free(c);
	setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1/", 1);
	c = create_web_identity();
	fails(c, -EIO, true, "STS gives no keys for " ROLE);
	credentials_free(c);
}

static void profiles(void **state)
{
	struct credentials *c;
	char text[512];

	(void)state;
	snprintf(text, sizeof(text),
		 "[default]\nrole_arn=" ROLE "\nweb_identity_token_file=%s\n"
		 "role_session_name = me\n",
		 token_file);
	write_file(config, text);
	c = create();
	keeps(c, "ISSUED1");
	/* Another role on disk: what the old one gave is not used any more. */
	snprintf(text, sizeof(text), "[default]\nrole_arn=" ROLE "2\nweb_identity_token_file=%s\n",
		 token_file);
	write_file(config, text);
	keeps(c, "ISSUED2");
	/* Touched only: nothing is asked. */
	write_file(config, text);
	keeps(c, "ISSUED2");
	credentials_free(c);

	/* By the keys of another profile, signed. */
	faulty_issuer(&server, "{\"callers\":{\"CALLER\":\"caller-wfssecret\"}}");
	write_file(file, "[base]\naws_access_key_id=CALLER\n"
			 "aws_secret_access_key=caller-wfssecret\n");
	write_file(config, "[profile p]\nrole_arn=" ROLE "\nsource_profile=base\n"
			   "external_id = x&y\n[profile base]\nregion=r9\n");
	setenv("AWS_PROFILE", "p", 1);
	c = create();
	keeps(c, "ISSUED3");
	credentials_free(c);
	write_file(file, "[base]\naws_access_key_id=CALLER\naws_secret_access_key=wrong\n");
	c = create();
	fails(c, -EACCES, false, "SignatureDoesNotMatch");
	credentials_free(c);
}

static void container(void **state)
{
	struct credentials *c;
	char url[96];

	(void)state;
	snprintf(url, sizeof(url), "%s/container/keys?x=1", server.url);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	c = create();
	keeps(c, "ISSUED1");
	credentials_free(c);

	faulty_issuer(&server, "{\"authorization\":\"first-wfssecret\"}");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "first-wfssecret", 1);
	c = create();
	keeps(c, "ISSUED2");
	credentials_free(c);

	/* The file goes before the variable, as it is now. */
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token_file, 1);
	c = create();
	fails(c, -EACCES, false, "401");
	write_file(token_file, "first-wfssecret\n");
	keeps(c, "ISSUED3");
	credentials_free(c);

	c = create();
	faulty_fault(&server, "{\"path\":\"/container/*\",\"kind\":\"status\",\"code\":500}");
	fails(c, -EIO, true, "500");
	faulty_clear(&server);
	faulty_fault(&server, "{\"path\":\"/container/*\",\"kind\":\"status\",\"code\":200,"
			      "\"body\":\"[]\"}");
	fails(c, -EIO, true, "its answer has none");
	credentials_free(c);
}

static void instance(void **state)
{
	struct credentials *c;
	char why[256];
	int64_t expires;

	(void)state;
	unsetenv("AWS_EC2_METADATA_DISABLED");
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url, 1);
	c = create();
	keeps(c, "ISSUED1");
	keeps(c, "ISSUED1");
	assert_int_equal(faulty_count(&server, "PUT", "/latest/api/token"), 1);
	assert_int_equal(faulty_count(&server, "GET", ROLES), 1);
	assert_int_equal(faulty_count(&server, "GET", ROLES "wfs-role"), 1);
	assert_string_equal(credentials_source(c, &expires), "instance");
	credentials_absence(c, why, sizeof(why));
	assert_string_equal(why, "");
	credentials_free(c);

	/* Unwell is not absent. */
	c = create();
	faulty_fault(&server, "{\"path\":\"/latest/*\",\"kind\":\"status\",\"code\":503}");
	fails(c, -EIO, true, "503");
	faulty_clear(&server);
	keeps(c, "ISSUED2");
	credentials_free(c);

	/* Without a role requests go unsigned, and it is asked again a minute later. */
	c = create();
	faulty_issuer(&server, "{\"role\":null}");
	faulty_clear(&server);
	keeps(c, NULL);
	keeps(c, NULL);
	assert_int_equal(faulty_count(&server, "GET", ROLES), 1);
	assert_string_equal(credentials_source(c, &expires), "none");
	credentials_absence(c, why, sizeof(why));
	assert_non_null(strstr(why, server.url));
	faulty_issuer(&server, "{\"role\":\"late\"}");
	keeps(c, NULL);
	clock_ahead(61);
	keeps(c, "ISSUED3");
	credentials_free(c);

	/* Nobody there. */
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
	c = create();
	keeps(c, NULL);
	credentials_free(c);
}

/* Ahead of the end, by one, while the others go on; in the end by all. */
static void renewed_ahead(void **state)
{
	struct credentials *c = create_web_identity();
	struct want first, second, third;

	(void)state;
	keeps(c, "ISSUED1");
	clock_ahead(3600 - 301 - 5);
	keeps(c, "ISSUED1");
	assert_int_equal(asked(), 1);
	clock_ahead(10);
	assert_false(start(c, NULL, &first));
	assert_true(start(c, NULL, &second));
	assert_string_equal(second.keys.access_key, "ISSUED1");
	wait_for(&first);
	assert_string_equal(first.keys.access_key, "ISSUED2");
	assert_int_equal(asked(), 2);
	credential_keys_clear(&first.keys);
	credential_keys_clear(&second.keys);
	credentials_free(c);

	/* The server's clock does not move: what it gives ends sooner from here. */
	clock_reset();
	c = create_web_identity();
	keeps(c, "ISSUED3");
	clock_ahead(3600 - 55);
	faulty_issuer(&server, "{\"lifetime\":7200}");
	assert_false(start(c, NULL, &first));
	assert_false(start(c, NULL, &second));
	assert_false(start(c, NULL, &third));
	wait_for(&first);
	wait_for(&second);
	wait_for(&third);
	assert_string_equal(first.keys.access_key, "ISSUED4");
	assert_string_equal(second.keys.access_key, "ISSUED4");
	assert_string_equal(third.keys.access_key, "ISSUED4");
	assert_int_equal(asked(), 4);
	credential_keys_clear(&first.keys);
	credential_keys_clear(&second.keys);
	credential_keys_clear(&third.keys);
	credentials_free(c);
}

/* An attempt that fails takes nothing away, and is not made each time. */
static void cannot_be_renewed(void **state)
{
	struct credentials *c = create_web_identity();

	(void)state;
	keeps(c, "ISSUED1");
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":503}");
	clock_ahead(3600 - 30);
	keeps(c, "ISSUED1");
	assert_int_equal(asked(), 2);
	keeps(c, "ISSUED1");
	keeps(c, "ISSUED1");
	assert_int_equal(asked(), 2);
	clock_ahead(11);
	keeps(c, "ISSUED1");
	assert_int_equal(asked(), 3);
	clock_ahead(60);
	fails(c, -EIO, true, "503");
	faulty_clear(&server);
	faulty_issuer(&server, "{\"lifetime\":7200}");
	keeps(c, "ISSUED2");
	credentials_free(c);
}

/* After a refusal: asked once, whatever the clock says. */
static void forced(void **state)
{
	struct credentials *c = create_web_identity();
	struct credential_keys old, unlike = { .access_key = (char *)"before" };
	struct want first, second;

	(void)state;
	get(c, NULL, &first);
	old = first.keys;
	/* Keys from before: there are others already. */
	get(c, &unlike, &first);
	assert_string_equal(first.keys.access_key, "ISSUED1");
	credential_keys_clear(&first.keys);
	assert_int_equal(asked(), 1);

	assert_false(start(c, &old, &first));
	assert_false(start(c, &old, &second));
	wait_for(&first);
	wait_for(&second);
	assert_string_equal(first.keys.access_key, "ISSUED2");
	assert_string_equal(second.keys.access_key, "ISSUED2");
	assert_int_equal(asked(), 2);
	credential_keys_clear(&second.keys);

	/* Refused as soon as they came: not again and again. */
	get(c, &first.keys, &second);
	assert_int_equal(second.error, -EACCES);
	assert_int_equal(asked(), 2);
	clock_ahead(2);
	/* What fails is said to the one whose keys are no use, not to others. */
	faulty_fault(&server, "{\"path\":\"/sts\",\"kind\":\"status\",\"code\":503}");
	get(c, &first.keys, &second);
	assert_int_equal(second.error, -EIO);
	assert_true(second.transient);
	keeps(c, "ISSUED2");
	credential_keys_clear(&first.keys);
	credential_keys_clear(&old);
	credentials_free(c);

	/* Keys of a configuration are what they are. */
	setenv("AWS_ACCESS_KEY_ID", "E", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "ES", 1);
	c = create();
	assert_true(start(c, NULL, &first));
	assert_true(start(c, &first.keys, &second));
	assert_int_equal(second.error, -EACCES);
	credential_keys_clear(&first.keys);
	credentials_free(c);
}

static void cancelled(void **state)
{
	struct credentials *c = create_web_identity();
	struct want wants[4];

	(void)state;
	/* The one who asks: another takes over. */
	for (size_t i = 0; i < 4; i++)
		assert_false(start(c, NULL, &wants[i]));
	credentials_cancel(wants[0].wait);
	credentials_cancel(wants[2].wait);
	wait_for(&wants[1]);
	wait_for(&wants[3]);
	assert_false(wants[0].done);
	assert_false(wants[2].done);
	assert_string_equal(wants[1].keys.access_key, wants[3].keys.access_key);
	credential_keys_clear(&wants[1].keys);
	credential_keys_clear(&wants[3].keys);
	credentials_free(c);

	/* All of them, the one that is to take over included; and another begins. */
	c = create_web_identity();
	for (size_t i = 0; i < 4; i++)
		assert_false(start(c, NULL, &wants[i]));
	for (size_t i = 0; i < 4; i++)
		credentials_cancel(wants[i].wait);
	keeps(c, "ISSUED2");
	credentials_free(c);

	/* With its outcome on the way already, and the credentials gone. */
	c = create_web_identity();
	unlink(token_file);
	assert_false(start(c, NULL, &wants[0]));
	credentials_cancel(wants[0].wait);
	credentials_free(c);
	query_turn(loop, 10);
	assert_false(wants[0].done);
}

#define THREADS 6
#define ROUNDS	40

struct thread {
	pthread_t id;
	struct credentials *c;
	struct loop *loop;
	unsigned int seed;
	unsigned int got, gone;
};

/* Asks, and now and then changes its mind. */
static void *run_thread(void *arg)
{
	struct thread *thread = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct want want = { .loop = thread->loop, .stop = true };
		int err = credentials_get(thread->c, thread->loop, NULL, &want.keys, on_done, &want,
					  &want.wait);

		if (err == -EINPROGRESS && rand_r(&thread->seed) % 4 == 0) {
			credentials_cancel(want.wait);
			thread->gone++;
			continue;
		}
		if (err == -EINPROGRESS)
			loop_run(thread->loop);
		thread->got += want.keys.access_key != NULL;
		credential_keys_clear(&want.keys);
	}
	/* What was posted last. */
	query_turn(thread->loop, 20);
	return NULL;
}

static void many_threads(void **state)
{
	struct thread threads[THREADS] = { 0 };
	struct credentials *c = create_web_identity();
	unsigned int gone = 0;
	struct want want;
	int count;

	(void)state;
	for (unsigned int i = 0; i < THREADS; i++) {
		threads[i].c = c;
		threads[i].seed = i;
		assert_int_equal(loop_create(&threads[i].loop, 64), 0);
		assert_int_equal(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(threads[i].id, NULL);
		assert_int_equal(threads[i].got + threads[i].gone, ROUNDS);
		gone += threads[i].gone;
		loop_destroy(threads[i].loop);
	}
	/* One attempt succeeded; those before it were cancelled. */
	count = asked();
	assert_true(count >= 1 && (unsigned int)count <= gone + 1);
	assert_true(start(c, NULL, &want));
	assert_non_null(want.keys.access_key);
	credential_keys_clear(&want.keys);
	assert_int_equal(asked(), count);
	credentials_free(c);
}

/* Only authorities that are trusted are told the token. */
static void tls(void **state)
{
	struct faulty secure;
	struct credentials *c;
	char url[80], msg[512];

	(void)state;
	faulty_start_tls(&secure);
	snprintf(url, sizeof(url), "%s/sts", secure.url);
	setenv("AWS_ENDPOINT_URL_STS", url, 1);
	c = create_web_identity();
	fails(c, -EACCES, false, "ca=");
	credentials_free(c);
	assert_int_equal(faulty_count(&secure, "POST", "/sts"), 0);
	assert_int_equal(credentials_create(&(struct origin_settings){ .ca = secure.ca }, &c, msg,
					    sizeof(msg)),
			 0);
	keeps(c, "ISSUED1");
	credentials_free(c);
	faulty_stop(&secure);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(web_identity, each),
		cmocka_unit_test_setup(wrong_token, each),
		cmocka_unit_test_setup(unwell, each),
		cmocka_unit_test_setup(profiles, each),
		cmocka_unit_test_setup(container, each),
		cmocka_unit_test_setup(instance, each),
		cmocka_unit_test_setup(renewed_ahead, each),
		cmocka_unit_test_setup(cannot_be_renewed, each),
		cmocka_unit_test_setup(forced, each),
		cmocka_unit_test_setup(cancelled, each),
		cmocka_unit_test_setup(many_threads, each),
		cmocka_unit_test_setup(tls, each),
	};

	return cmocka_run_group_tests_name("credentials_ask", tests, set_up, tear_down);
}
