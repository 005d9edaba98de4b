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
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <curl/curl.h>

#include "faulty.h"

static void start(struct faulty *faulty, const char *key)
{
	int in[2], out[2];
	unsigned int port = 0;
	FILE *stream;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	faulty->pid = fork();
	assert_true(faulty->pid >= 0);
	if (!faulty->pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		if (key)
			execlp("python3", "python3", FAULTY_ORIGIN, "--parent-stdin", "--tls",
			       faulty->ca, key, NULL);
		else
			execlp("python3", "python3", FAULTY_ORIGIN, "--parent-stdin", NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	faulty->stdin_fd = in[1];
	stream = fdopen(out[0], "r");
	assert_non_null(stream);
	assert_int_equal(fscanf(stream, "port %u", &port), 1);
	fclose(stream);
	snprintf(faulty->url, sizeof(faulty->url), "http%s://127.0.0.1:%u", key ? "s" : "", port);
}

void faulty_start(struct faulty *faulty)
{
	faulty->ca[0] = '\0';
	start(faulty, NULL);
}

void faulty_start_tls(struct faulty *faulty)
{
	char key[] = "/tmp/wfs-test-key-XXXXXX", command[512];
	int fd = mkstemp(key);

	assert_true(fd >= 0);
	close(fd);
	snprintf(faulty->ca, sizeof(faulty->ca), "/tmp/wfs-test-ca-XXXXXX");
	fd = mkstemp(faulty->ca);
	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
		 "-subj /CN=test -addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s 2>/dev/null",
		 key, faulty->ca);
	assert_int_equal(system(command), 0);
	start(faulty, key);
	unlink(key);
}

void faulty_stop(struct faulty *faulty)
{
	int status;

	close(faulty->stdin_fd);
	if (faulty->ca[0])
		unlink(faulty->ca);
	waitpid(faulty->pid, &status, 0);
}

struct answer {
	char *text;
	size_t len;
};

static size_t on_write(char *data, size_t size, size_t count, void *arg)
{
	struct answer *answer = arg;
	size_t len = size * count;
	char *grown = realloc(answer->text, answer->len + len + 1);

	if (!grown)
		return 0;
	memcpy(grown + answer->len, data, len);
	answer->text = grown;
	answer->len += len;
	grown[answer->len] = '\0';
	return len;
}

/* One control request; the answer is the caller's to free. */
static char *control(struct faulty *faulty, const char *method, const char *path, const void *body,
		     size_t len)
{
	struct answer answer = { 0 };
	CURL *easy = curl_easy_init();
	char url[4096];
	long status = 0;

	assert_non_null(easy);
	snprintf(url, sizeof(url), "%s/_/%s", faulty->url, path);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	if (faulty->ca[0])
		curl_easy_setopt(easy, CURLOPT_CAINFO, faulty->ca);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT, 20L);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
	if (body) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	}
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
	assert_int_equal(curl_easy_perform(easy), CURLE_OK);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	assert_int_equal(status / 100, 2);
	curl_easy_cleanup(easy);
	return answer.text;
}

void faulty_put(struct faulty *faulty, const char *path, const void *body, size_t len)
{
	char target[2048];

	snprintf(target, sizeof(target), "file%s", path);
	free(control(faulty, "PUT", target, body ? body : "", len));
}

void faulty_many(struct faulty *faulty, const char *prefix, unsigned int count)
{
	char target[2048];

	snprintf(target, sizeof(target), "many%s?count=%u", prefix, count);
	free(control(faulty, "PUT", target, "", 0));
}

void faulty_delete(struct faulty *faulty, const char *path)
{
	char target[2048];

	snprintf(target, sizeof(target), "file%s", path);
	free(control(faulty, "DELETE", target, NULL, 0));
}

void faulty_fault(struct faulty *faulty, const char *json)
{
	free(control(faulty, "POST", "fault", json, strlen(json)));
}

void faulty_s3(struct faulty *faulty, const char *json)
{
	free(control(faulty, "POST", "s3", json, strlen(json)));
}

void faulty_issuer(struct faulty *faulty, const char *json)
{
	free(control(faulty, "POST", "issuer", json, strlen(json)));
}

void faulty_clear(struct faulty *faulty)
{
	free(control(faulty, "DELETE", "fault", NULL, 0));
	free(control(faulty, "DELETE", "log", NULL, 0));
}

json_t *faulty_log(struct faulty *faulty)
{
	char *text = control(faulty, "GET", "log", NULL, 0);
	json_t *log = json_loads(text, 0, NULL);

	free(text);
	assert_true(json_is_array(log));
	return log;
}

int faulty_count(struct faulty *faulty, const char *method, const char *path)
{
	json_t *log = faulty_log(faulty), *entry;
	int count = 0;
	size_t i;

	json_array_foreach(log, i, entry) {
		if (!strcmp(json_string_value(json_object_get(entry, "method")), method) &&
		    !strcmp(json_string_value(json_object_get(entry, "path")), path))
			count++;
	}
	json_decref(log);
	return count;
}
