// SPDX-License-Identifier: MIT
#include <errno.h>
#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine.h"
#include "events.h"
#include "metrics.h"
#include "server_impl.h"

static struct core core;
static struct server server = { .core = &core };

/* What the client reads in answer to its lines, and how much of it. */
static ssize_t talk(const char *lines, char *answers, size_t size)
{
	struct connection connection = { .server = &server };
	ssize_t used = 0, n;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	connection.fd = fds[1];
	assert_int_equal(send(fds[0], lines, strlen(lines), 0), (ssize_t)strlen(lines));
	assert_int_equal(shutdown(fds[0], SHUT_WR), 0);
	server_talk(&connection);
	close(fds[1]);
	while ((n = recv(fds[0], answers + used, size - 1 - (size_t)used, 0)) > 0)
		used += n;
	answers[used] = '\0';
	close(fds[0]);
	return used;
}

static void requests(void **state)
{
	char answers[4096];

	(void)state;
	talk("{\"command\":\"mounts\"}\n", answers, sizeof(answers));
	assert_string_equal(answers, "{\"mounts\":[],\"ok\":true}\n");
	/* One answer each; what has no end is no request. */
	talk("x\n\n{\"command\":1}\n{\"command\":\"mounts\",\"command\":\"mounts\"}\n{\"command\":",
	     answers, sizeof(answers));
	for (char *line = answers, *end; *line; line = end + 1) {
		end = strchr(line, '\n');
		assert_non_null(end);
		*end = '\0';
		assert_string_equal(line,
				    "{\"error\":\"the request is not understood\",\"errno\":22}");
	}
}

/* A sentence that ends within a character, since a source was long, is still an answer. */
static void long_sentences(void **state)
{
	char line[2048], answers[4096], *end;

	(void)state;
	for (size_t offset = 0; offset < 3; offset++) {
		json_t *answer;

		end = stpcpy(line, "{\"command\":\"ls\",\"source\":\"");
		end = (char *)memset(end, 'x', offset) + offset;
		for (size_t i = 0; i < 300; i++)
			end = stpcpy(end, "\xe2\x82\xac");
		stpcpy(end, "\"}\n");
		assert_true(talk(line, answers, sizeof(answers)) > 0);
		answer = json_loads(answers, 0, NULL);
		assert_int_equal(json_integer_value(json_object_get(answer, "errno")), EINVAL);
		json_decref(answer);
	}
}

static void *talking(void *arg)
{
	server_talk(arg);
	return NULL;
}

/* Whoever follows is told of what is found from then on, until he goes. */
static void follow(void **state)
{
	struct connection connection = { .server = &server };
	char line[1024] = "";
	pthread_t thread;
	json_t *answer, *told;
	FILE *file;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	connection.fd = fds[1];
	events_tell("corrupt", "s3://b", "before", "text");
	assert_int_equal(pthread_create(&thread, NULL, talking, &connection), 0);
	file = fdopen(fds[0], "r+");
	assert_non_null(file);
	fputs("{\"command\":\"events\"}\n", file);
	assert_int_equal(fflush(file), 0);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_string_equal(line, "{\"following\":true}\n");
	/* A name that is no UTF-8, and would break the line. */
	events_tell("corrupt", "s3://b", "dir\n/\xff", "block 3");
	assert_non_null(fgets(line, sizeof(line), file));
	answer = json_loads(line, 0, NULL);
	told = json_object_get(answer, "event");
	assert_string_equal(json_string_value(json_object_get(told, "event")), "corrupt");
	assert_string_equal(json_string_value(json_object_get(told, "source")), "s3://b");
	assert_string_equal(json_string_value(json_object_get(told, "path")), "dir?/?");
	assert_string_equal(json_string_value(json_object_get(told, "text")), "block 3");
	json_decref(answer);
	assert_int_equal(counter_get(event_followers), 1);
	fclose(file);
	pthread_join(thread, NULL);
	assert_int_equal(counter_get(event_followers), 0);
	close(fds[1]);
}

/* Why metrics cannot be served there: an address that is taken, one that is not this machine's. */
static void metrics_address(void **state)
{
	char text[64];
	struct config config = { .listen = text };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct metrics *metrics = NULL;
	char msg[512] = "";

	(void)state;
	assert_int_equal(bind(taken, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(taken, 1), 0);
	assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &len), 0);
	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
	assert_int_equal(metrics_create(&config, &core, NULL, &metrics, msg, sizeof(msg)),
			 -EADDRINUSE);
	assert_non_null(strstr(msg, "another process"));
	close(taken);
	assert_int_equal(metrics_create(&config, &core, NULL, &metrics, msg, sizeof(msg)), 0);
	metrics_destroy(metrics);
	snprintf(text, sizeof(text), "192.0.2.1:9419");
	assert_int_equal(metrics_create(&config, &core, NULL, &metrics, msg, sizeof(msg)),
			 -EADDRNOTAVAIL);
	assert_non_null(strstr(msg, "no such address"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests),
		cmocka_unit_test(long_sentences),
		cmocka_unit_test(follow),
		cmocka_unit_test(metrics_address),
	};
	struct config *config;
	int result;

	if (config_create(&config))
		return 1;
	core.config = config;
	pthread_mutex_init(&core.lock, NULL);
	result = cmocka_run_group_tests_name("server", tests, NULL, NULL);
	config_free(config);
	return result;
}
