// SPDX-License-Identifier: MIT
/* The HTTP origin against nginx. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "query.h"

#define SIZE 3000000

static struct loop *loop;
static struct origin *origin;
static char dir[] = "/tmp/wfs-test-XXXXXX";
static char body[SIZE], dst[SIZE];
static struct query ask;
static pid_t nginx;
static unsigned int tls_port;

static unsigned int free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static void put(const char *name, const void *bytes, size_t len, time_t age)
{
	struct timespec times[2] = { { .tv_sec = time(NULL) - age },
				     { .tv_sec = time(NULL) - age } };
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

static void make_certificate(void)
{
	assert_int_equal(system("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
				"-nodes -days 2 -subj /CN=test -addext "
				"subjectAltName=IP:127.0.0.1 -keyout key.pem -out ca.pem "
				"2>/dev/null"),
			 0);
}

static void start_nginx(unsigned int port)
{
	FILE *f = fopen("nginx.conf", "w");

	assert_non_null(f);
	fprintf(f,
		"daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
		"events {}\n"
		"http { access_log off; client_body_temp_path t1; proxy_temp_path t2;\n"
		"fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n"
		"server { listen 127.0.0.1:%u; root %s/www; autoindex on; autoindex_format json;\n"
		"location /plain/ { autoindex off; } }\n"
		"server { listen 127.0.0.1:%u ssl; root %s/www; ssl_certificate ca.pem;\n"
		"ssl_certificate_key key.pem; location /down/ {\n"
		"return 302 http://127.0.0.1:%u/; } } }\n",
		port, dir, tls_port, dir, port);
	fclose(f);
	nginx = fork();
	assert_true(nginx >= 0);
	if (!nginx) {
		execlp("nginx", "nginx", "-p", dir, "-e", "error.log", "-c", "nginx.conf", NULL);
		execl("/usr/sbin/nginx", "nginx", "-p", dir, "-e", "error.log", "-c", "nginx.conf",
		      NULL);
		_exit(127);
	}
}

static int set_up(void **state)
{
	unsigned int port = free_port();
	char source[64], msg[512];

	(void)state;
	for (size_t i = 0; i < SIZE; i++)
		body[i] = (char)(i * 7 + i / 251);
	assert_int_equal(loop_create(&loop, 64), 0);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("www", 0755), 0);
	put("www/x", body, SIZE, 3600);
	put("www/young", body, 10, 0);
	put("www/empty", "", 0, 3600);
	put("www/odd #?%25+&\xc3\xa9\n\xff\"\\", "odd", 3, 3600);
	assert_int_equal(mkdir("www/sub", 0755), 0);
	assert_int_equal(mkdir("www/plain", 0755), 0);
	make_certificate();
	tls_port = free_port();
	start_nginx(port);
	snprintf(source, sizeof(source), "http://127.0.0.1:%u/", port);
	assert_int_equal(origin_create(source, NULL, &origin, msg, sizeof(msg)), 0);
	for (int i = 0; i < 500; i++) {
		query_stat(loop, origin, "x", &ask);
		if (!ask.error)
			return 0;
		query_turn(loop, 20);
	}
	fail_msg("nginx does not answer: %s", ask.message);
	return 1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	kill(nginx, SIGTERM);
	waitpid(nginx, NULL, 0);
	origin_unref(origin);
	loop_destroy(loop);
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct origin_attr attr_of(const char *path)
{
	query_stat(loop, origin, path, &ask);
	assert_string_equal(ask.message, "");
	return ask.attr;
}

static void names(void **state)
{
	(void)state;
	assert_int_equal(attr_of("").mode, S_IFDIR);
	assert_int_equal(attr_of("sub").mode, S_IFDIR);
	assert_int_equal(attr_of("empty").size, 0);
	assert_int_equal(attr_of("x").size, SIZE);
	query_stat(loop, origin, "nope", &ask);
	assert_int_equal(ask.error, -ENOENT);
	query_stat(loop, origin, "x/y", &ask);
	assert_int_equal(ask.error, -ENOENT);
	query_list(loop, origin, "", NULL, &ask);
	assert_string_equal(ask.message, "");
	assert_int_equal(ask.count, 6);
	assert_non_null(strstr(ask.names, "sub/ "));
	assert_non_null(strstr(ask.names, "odd #?%25+&\xc3\xa9\n\xff\"\\ "));
	query_list(loop, origin, "sub", NULL, &ask);
	assert_int_equal(ask.error, 0);
	assert_int_equal(ask.count, 0);
	query_list(loop, origin, "plain", NULL, &ask);
	assert_int_equal(ask.error, -EACCES);
}

static void reads(void **state)
{
	struct origin_attr attr = attr_of("x");

	(void)state;
	assert_int_equal(attr.flags, 0);
	query_read(loop, origin, "x", &attr, 0, SIZE, dst, &ask);
	assert_string_equal(ask.message, "");
	assert_memory_equal(dst, body, SIZE);
	query_read(loop, origin, "x", &attr, SIZE - 7, 7, dst, &ask);
	assert_memory_equal(dst, body + SIZE - 7, 7);
	attr = attr_of("odd #?%25+&\xc3\xa9\n\xff\"\\");
	query_read(loop, origin, "odd #?%25+&\xc3\xa9\n\xff\"\\", &attr, 0, 3, dst, &ask);
	assert_memory_equal(dst, "odd", 3);
}

/* Its ETag is time and size. */
static void freshness(void **state)
{
	struct origin_attr attr = attr_of("young");

	(void)state;
	assert_int_equal(attr.flags, ORIGIN_WEAK);
	attr = attr_of("x");
	put("www/x", body, SIZE, 1800);
	query_read(loop, origin, "x", &attr, 0, 100, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	assert_int_equal(ask.status, 412);
	put("www/x", body, SIZE - 1, 3600);
	query_read(loop, origin, "x", &attr, 0, 100, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	assert_int_equal(unlink("www/x"), 0);
	query_read(loop, origin, "x", &attr, 0, 100, dst, &ask);
	assert_int_equal(ask.error, -ESTALE);
	put("www/x", body, SIZE, 3600);
}

/* Whoever signed its own certificate is believed when ca= names it, and not before. */
static void tls(void **state)
{
	const char *headers[] = { "X-Key: key-wfssecret", NULL };
	struct origin_settings settings = { .headers = headers };
	struct origin *secure;
	struct origin_attr attr;
	char source[64], msg[512];

	(void)state;
	snprintf(source, sizeof(source), "https://127.0.0.1:%u/", tls_port);
	assert_int_equal(origin_create(source, &settings, &secure, msg, sizeof(msg)), 0);
	query_stat(loop, secure, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_false(ask.transient);
	assert_non_null(strstr(ask.message, "ca="));
	origin_unref(secure);

	settings.ca = "ca.pem";
	assert_int_equal(origin_create(source, &settings, &secure, msg, sizeof(msg)), 0);
	query_stat(loop, secure, "x", &ask);
	assert_string_equal(ask.message, "");
	attr = ask.attr;
	query_read(loop, secure, "x", &attr, 5, 1000, dst, &ask);
	assert_string_equal(ask.message, "");
	assert_memory_equal(dst, body + 5, 1000);
	/* From https to http leads no redirect. */
	query_stat(loop, secure, "down/x", &ask);
	assert_int_equal(ask.error, -EACCES);
	assert_non_null(strstr(ask.message, "plain http"));
	origin_unref(secure);

	/* For a name that is not in the certificate it is no use. */
	snprintf(source, sizeof(source), "https://localhost:%u/", tls_port);
	assert_int_equal(origin_create(source, &settings, &secure, msg, sizeof(msg)), 0);
	query_stat(loop, secure, "x", &ask);
	assert_int_equal(ask.error, -EACCES);
	origin_unref(secure);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(reads),
		cmocka_unit_test(freshness),
		cmocka_unit_test(tls),
	};

	return cmocka_run_group_tests_name("origin_nginx", tests, set_up, tear_down);
}
