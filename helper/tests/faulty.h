/* SPDX-License-Identifier: MIT */
/* faulty: tests/faulty_origin.py as a child of a test. Failures end the test. */
#ifndef WFS_TEST_FAULTY_H
#define WFS_TEST_FAULTY_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

struct faulty {
	pid_t pid;
	int stdin_fd; /* the server ends when it is closed */
	char url[64]; /* http://127.0.0.1:PORT */
	char ca[64];  /* with TLS: file of the certificate, "" otherwise */
};

void faulty_start(struct faulty *faulty);
/* The same with https, by a certificate made for it. */
void faulty_start_tls(struct faulty *faulty);
void faulty_stop(struct faulty *faulty);

/* path as in a URL, from '/' on, with "?size=..." as faulty_origin.py says. */
void faulty_put(struct faulty *faulty, const char *path, const void *body, size_t len);
/* So many empty files, with a number of six digits behind the prefix. */
void faulty_many(struct faulty *faulty, const char *prefix, unsigned int count);
void faulty_delete(struct faulty *faulty, const char *path);
/* JSON of POST /_/fault and POST /_/s3. */
void faulty_fault(struct faulty *faulty, const char *json);
void faulty_s3(struct faulty *faulty, const char *json);
/* JSON of POST /_/issuer. */
void faulty_issuer(struct faulty *faulty, const char *json);
/* No faults, no log. Files stay. */
void faulty_clear(struct faulty *faulty);
/* How often it was asked; path in plain characters. */
int faulty_count(struct faulty *faulty, const char *method, const char *path);
/* The log, one reference. */
json_t *faulty_log(struct faulty *faulty);

#endif /* WFS_TEST_FAULTY_H */
