/* SPDX-License-Identifier: MIT */
/* credentials_impl: what the sources of credentials share among themselves. Not for others. */
#ifndef WFS_CREDENTIALS_IMPL_H
#define WFS_CREDENTIALS_IMPL_H

#include <curl/curl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "credentials.h"
#include "origin_impl.h"

struct credentials_http;

enum credentials_kind {
	CREDENTIALS_NONE, /* asked for, or nothing was found */
	CREDENTIALS_CONFIG,
	CREDENTIALS_ENVIRONMENT,
	CREDENTIALS_PROFILE,	  /* keys or a role */
	CREDENTIALS_WEB_IDENTITY, /* a role */
	CREDENTIALS_CONTAINER,
	CREDENTIALS_INSTANCE,
};

/* A role that STS is asked for: by a token, or by keys of somebody else. */
struct credentials_role {
	char *arn, *session, *external_id;
	char *token_file; /* NULL: the request is signed with keys */
	struct credential_keys keys;
};

/* What a profile says: keys or a role. */
struct credentials_profile {
	struct credential_keys keys;
	struct credentials_role role;
	char *region;
};

/* What tells that a file was replaced or written. */
struct credentials_stamp {
	struct timespec mtime;
	off_t size;
	ino_t ino;
};

struct credentials_files {
	char *profile;
	char *path[2]; /* credentials, configuration */
	struct credentials_stamp stamp[2];
};

struct credentials {
	/* Set at creation. */
	enum credentials_kind kind;
	bool wanted_none; /* the settings ask for unsigned requests */
	char *region, *sts_region, *identity, *ca, *proxy;
	char *url;			/* container, instance */
	struct credentials_files files; /* stamps: lock */

	pthread_mutex_t lock;	      /* what follows */
	struct credentials_role role; /* arn NULL: none */
	struct credential_keys keys;
	int64_t lifetime;		  /* of keys when they came, in seconds */
	bool absent;			  /* the instance has no role, or it is none: unsigned */
	bool stale;			  /* the profile is another one than keys are from */
	uint64_t again_ns;		  /* no attempt before, while keys are good */
	bool forcing;			  /* keys have been refused since they came */
	uint64_t forced_ns;		  /* when keys came in place of refused ones */
	bool failing;			  /* it has been logged */
	struct credentials_wait *leader;  /* its run is under way, or about to be */
	struct credentials_wait *waiters; /* for that */
};

/* How an attempt to get keys ended. */
struct credentials_outcome {
	int error;
	bool transient;
	bool absent; /* with error: the source does not exist here */
	struct credential_keys keys;
	char message[ORIGIN_MESSAGE_MAX];
};

/* One attempt. Everything on the thread of its loop. */
struct credentials_run {
	struct credentials *credentials;
	struct loop *loop;
	struct credentials_wait *leader;
	struct credentials_http *http; /* under way, or NULL */
	struct credentials_role role;  /* a copy */
	char *token;		       /* of the metadata service */
	bool untrusted;		       /* TLS refused the server: status 0, and it will stay so */
};

/* Ends the attempt, frees it and tells those who wait; outcome's keys are taken over. */
void credentials_run_end(struct credentials_run *run, struct credentials_outcome *outcome);
void credentials_fail(struct credentials_outcome *outcome, int error, bool transient,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * The sources that are asked over the network. They end with credentials_run_end(),
 * never from inside start; what goes wrong there is in outcome, and -errno returned.
 */
int credentials_sts_start(struct credentials_run *run, struct credentials_outcome *outcome);
int credentials_container_start(struct credentials_run *run, struct credentials_outcome *outcome);
int credentials_instance_start(struct credentials_run *run, struct credentials_outcome *outcome);
/* Allocated URLs from the environment. -ENOENT: not set; -EINVAL with a sentence. */
int credentials_container_url(char **ret_url, char *msg, size_t msg_size);
int credentials_instance_url(char **ret_url, char *msg, size_t msg_size);

/*
 * Reads the profile. -ENOENT: there is none, or it speaks of no credentials (its region
 * may be set all the same); -EINVAL with a sentence: it is not whole, or wants what is
 * not done here; -ENOMEM.
 */
int credentials_profile_read(const struct credentials_files *files,
			     struct credentials_profile *ret_profile, char *msg, size_t msg_size);
void credentials_profile_clear(struct credentials_profile *profile);
/* Paths and name from the environment; name NULL: AWS_PROFILE or "default". 0 or -ENOMEM. */
int credentials_files_init(struct credentials_files *files, const char *name);
void credentials_files_clear(struct credentials_files *files);
/* Whether a file is another one than at the last call. */
bool credentials_files_changed(struct credentials_files *files);

/* One small HTTP request, without redirects. Texts are copied, and zeroed afterwards. */
struct credentials_http_request {
	const char *method, *url;
	struct curl_slist *headers; /* taken over, also on failure */
	const char *body;	    /* NULL: none */
	const char *ca, *proxy;	    /* or NULL */
	long connect_ms, total_ms;
	/* status 0: no answer, why says so. On the loop, outside of libcurl. */
	void (*done)(struct credentials_run *run, unsigned int status, const char *body,
		     const char *why);
};

/* Sets run->http until done() is called. 0 or -ENOMEM. */
int credentials_http_start(struct credentials_run *run,
			   const struct credentials_http_request *request);
void credentials_http_cancel(struct credentials_http *http);
void credentials_text_free(char *text);
/* Copies a text that is not empty; 0 or -ENOMEM. */
int credentials_text_copy(char **to, const char *from);
int credentials_keys_copy(struct credential_keys *to, const struct credential_keys *from);
int credentials_role_copy(struct credentials_role *to, const struct credentials_role *from);
void credentials_role_clear(struct credentials_role *role);
/* The first line of a file, allocated. 0 or -errno. */
int credentials_file_line(const char *path, char **ret_line);
/* "2016-02-25T06:03:31Z"; false: it is no time. */
bool credentials_time(const char *text, int64_t *ret_seconds);
/* The variable, NULL if it is unset or empty. */
const char *credentials_env(const char *name);

#endif /* WFS_CREDENTIALS_IMPL_H */
