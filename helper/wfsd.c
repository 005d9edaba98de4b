// SPDX-License-Identifier: MIT
/*
 * wfsd: the daemon. Options, signals, the order in which parts start and stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "core.h"
#include "cleanup.h"
#include "faultpoint.h"
#include "harden.h"
#include "kernel.h"
#include "loop.h"
#include "metrics.h"
#include "server.h"
#include "store.h"
#include "version.h"

#define LOG_AREA "main"
#include "log.h"

/* The longest that stopping may take; then the process ends as it is. */
#define WFSD_STOP_S 30
/* How long a daemon that was taken over may take for it. */
#define WFSD_TAKEOVER_S 30
/* How long the last writes of a daemon that was killed may keep the cache from others. */
#define WFSD_LAST_WRITES_S 5
#define WFSD_PAUSE_NS	   20000000

struct wfsd {
	struct config *config;
	const char *config_path; /* NULL: the default one, which may be missing */
	bool foreground, no_kernel, takeover;
	unsigned int takeover_s;
	uint64_t until_ns; /* starting: what another daemon holds is waited for until then */
	int ready_fd;	   /* told when all is up, or -1 */
	struct core *core;
	struct kernel *kernel;
	struct server *server;
	struct metrics *metrics;
};

static void wfsd_usage(FILE *out)
{
	fprintf(out,
		"usage: wfsd [OPTION]...\n"
		"\n"
		"The fetch helper of the wfs filesystem: brings blocks of objects from their\n"
		"origin, hands them to the kernel and keeps them in the cache directory.\n"
		"\n"
		"  --config FILE                configuration (default " CONFIG_FILE ")\n"
		"  --foreground                 stay in the foreground\n"
		"  --no-kernel                  cache and origins only, without /dev/wfs\n"
		"  --takeover[=SECONDS]         take over from another wfsd, which ends; it has so\n"
		"                               long to let go of the cache (default %d)\n"
		"  --source NAME:KEY=VALUE      a key of section [source NAME]\n"
		"  --help                       this text\n"
		"  --version                    version\n"
		"\n"
		"Each key of the configuration, with the same units:\n"
		"\n",
		WFSD_TAKEOVER_S);
	for (size_t i = 0; config_option(i); i++)
		fprintf(out, "  --%-26s %s\n", config_option(i), config_option_help(i));
	fprintf(out, "\n"
		     "Signals: TERM and INT stop it, HUP reads the configuration again.\n"
		     "Exit status: 0 stopped, 1 failed, 2 wrong usage.\n");
}

/* "s3://bucket:region=x": the last colon before the first '='. */
static int wfsd_source_option(struct config *config, const char *text, char *msg, size_t size)
{
	const char *equal = strchr(text, '='), *colon = NULL;
	cleanup_free char *section = NULL, *key = NULL;

	for (const char *p = text; equal && p < equal; p++)
		if (*p == ':')
			colon = p;
	if (!colon) {
		snprintf(msg, size, "--source wants NAME:KEY=VALUE");
		return -EINVAL;
	}
	if (asprintf(&section, "source %.*s", (int)(colon - text), text) < 0)
		return -ENOMEM;
	key = strndup(colon + 1, (size_t)(equal - colon - 1));
	if (!key)
		return -ENOMEM;
	return config_set(config, section, key, equal + 1, msg, size);
}

static int wfsd_takeover_option(struct wfsd *wfsd, const char *text, char *msg, size_t size)
{
	char *end;
	unsigned long seconds = WFSD_TAKEOVER_S;

	if (text) {
		seconds = strtoul(text, &end, 10);
		if (end == text || *end || *text == '-' || seconds > 3600) {
			snprintf(msg, size, "--takeover wants seconds, at most 3600: %s", text);
			return -EINVAL;
		}
	}
	wfsd->takeover = true;
	wfsd->takeover_s = (unsigned int)seconds;
	return 0;
}

enum {
	OPT_CONFIG = 256,
	OPT_FOREGROUND,
	OPT_NO_KERNEL,
	OPT_TAKEOVER,
	OPT_SOURCE,
	OPT_HELP,
	OPT_VERSION,
	OPT_KEY
};

#define OPT_KEYS_MAX 64

/*
 * Reads the command line; with config NULL only what has no key. Returns -1 to go on,
 * or an exit status.
 */
static int wfsd_options(struct wfsd *wfsd, int argc, char **argv, struct config *config)
{
	struct option options[OPT_KEYS_MAX] = {
		{ "config", required_argument, NULL, OPT_CONFIG },
		{ "foreground", no_argument, NULL, OPT_FOREGROUND },
		{ "no-kernel", no_argument, NULL, OPT_NO_KERNEL },
		{ "takeover", optional_argument, NULL, OPT_TAKEOVER },
		{ "source", required_argument, NULL, OPT_SOURCE },
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
	};
	char msg[512];
	size_t n = 7;
	int opt, err;

	for (size_t i = 0; config_option(i) && n < OPT_KEYS_MAX - 1; i++)
		options[n++] = (struct option){ config_option(i), required_argument, NULL,
						OPT_KEY + (int)i };
	optind = 0;
	while ((opt = getopt_long(argc, argv, "c:fh", options, NULL)) != -1) {
		err = 0;
		switch (opt) {
		case 'c':
		case OPT_CONFIG:
			wfsd->config_path = optarg;
			break;
		case 'f':
		case OPT_FOREGROUND:
			wfsd->foreground = true;
			break;
		case OPT_NO_KERNEL:
			wfsd->no_kernel = true;
			break;
		case OPT_TAKEOVER:
			err = wfsd_takeover_option(wfsd, optarg, msg, sizeof(msg));
			break;
		case 'h':
		case OPT_HELP:
			wfsd_usage(stdout);
			return 0;
		case OPT_VERSION:
			printf("wfsd %s\n", WFS_VERSION);
			return 0;
		case OPT_SOURCE:
			err = config ? wfsd_source_option(config, optarg, msg, sizeof(msg)) : 0;
			break;
		case '?':
			fprintf(stderr, "wfsd: see wfsd --help\n");
			return 2;
		default:
			err = config ? config_set_option(config, (size_t)(opt - OPT_KEY), optarg,
							 msg, sizeof(msg)) :
				       0;
		}
		if (err) {
			fprintf(stderr, "wfsd: %s\n", err == -ENOMEM ? "out of memory" : msg);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "wfsd: %s is not an option; see wfsd --help\n", argv[optind]);
		return 2;
	}
	return -1;
}

/* Defaults, file, command line. Returns -1 to go on, or an exit status. */
static int wfsd_configure(struct wfsd *wfsd, int argc, char **argv, struct config **ret)
{
	struct config *config = NULL;
	char msg[512] = "out of memory";
	int status = wfsd_options(wfsd, argc, argv, NULL);
	const char *path = wfsd->config_path ? wfsd->config_path : CONFIG_FILE;
	int err;

	if (status >= 0)
		return status;
	err = config_create(&config);
	if (!err)
		err = config_read(config, path, msg, sizeof(msg));
	if (err == -ENOENT && !wfsd->config_path)
		err = 0;
	if (!err) {
		status = wfsd_options(wfsd, argc, argv, config);
		if (status >= 0) {
			config_free(config);
			return status;
		}
		err = config_finish(config, msg, sizeof(msg));
	}
	if (err) {
		fprintf(stderr, "wfsd: %s\n", msg);
		config_free(config);
		return err == -EINVAL ? 2 : 1;
	}
	*ret = config;
	return -1;
}

/*
 * Into the background; the parent waits until all is up. Before any ring or thread is
 * made: those stay with the process that made them.
 */
static int wfsd_background(struct wfsd *wfsd)
{
	int fds[2], null;
	char status = 1;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		close(fds[1]);
		if (read(fds[0], &status, 1) != 1)
			status = 1;
		_exit(status);
	}
	close(fds[0]);
	setsid();
	if (chdir("/"))
		return -errno;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		close(null);
	}
	wfsd->ready_fd = fds[1];
	return 0;
}

static void wfsd_ready(struct wfsd *wfsd)
{
	char status = 0;
	int null;

	sd_notify(0, "READY=1");
	if (wfsd->ready_fd < 0)
		return;
	if (write(wfsd->ready_fd, &status, 1) != 1)
		log_warn("the process that started this one has gone");
	close(wfsd->ready_fd);
	wfsd->ready_fd = -1;
	/* A terminal does not belong to a process in the background. */
	if (isatty(STDERR_FILENO)) {
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null >= 0) {
			dup2(null, STDERR_FILENO);
			close(null);
		}
	}
}

/* Another daemon has taken the session over, and waits for what this one holds. */
static void wfsd_ended(void *arg)
{
	(void)arg;
	kill(getpid(), SIGTERM);
}

/* How long another daemon may keep what this one needs, from now on. */
static void wfsd_patience(struct wfsd *wfsd, unsigned int seconds)
{
	wfsd->until_ns = loop_now_ns() + seconds * 1000000000ULL;
}

/* Pauses. False: the time is up, or this daemon is to stop. */
static bool wfsd_wait(const struct wfsd *wfsd)
{
	const struct timespec pause = { .tv_nsec = WFSD_PAUSE_NS };
	sigset_t pending;

	if (loop_now_ns() >= wfsd->until_ns)
		return false;
	nanosleep(&pause, NULL);
	return !sigpending(&pending) && !sigismember(&pending, SIGTERM) &&
	       !sigismember(&pending, SIGINT);
}

static int wfsd_open_cache(struct wfsd *wfsd, char *msg, size_t msg_size)
{
	bool told = false;
	int err;

	while ((err = core_open(wfsd->core, msg, msg_size)) == -EBUSY) {
		if (!told)
			log_info("%s: waiting for it", msg);
		told = true;
		if (!wfsd_wait(wfsd))
			break;
	}
	return err;
}

/*
 * HELLO ends the session of the daemon that is taken over; it learns so from its next fetch,
 * and lets go of all that it holds, the cache last. Requests wait until the workers start.
 */
static int wfsd_take_over(struct wfsd *wfsd, char *msg, size_t msg_size)
{
	char why[512];
	int err;

	wfsd_patience(wfsd, wfsd->takeover_s);
	err = wfsd_open_cache(wfsd, msg, msg_size);
	if (err == -EBUSY && loop_now_ns() >= wfsd->until_ns) {
		snprintf(why, sizeof(why), "%s", msg);
		snprintf(msg, msg_size,
			 "%s, which was taken over but has not ended within %u s: end it and start this one again; requests wait in the kernel",
			 why, wfsd->takeover_s);
	}
	/* What is not in the cache's directory is let go of before. */
	wfsd_patience(wfsd, WFSD_LAST_WRITES_S);
	return err;
}

/* An address that the daemon taken over had: pauses, and says whether to try again. */
static bool wfsd_still_in_use(const struct wfsd *wfsd, int err)
{
	return err == -EADDRINUSE && wfsd->takeover && wfsd_wait(wfsd);
}

static int wfsd_start(struct wfsd *wfsd)
{
	struct kernel_settings settings = { .takeover = wfsd->takeover, .ended = wfsd_ended };
	char msg[1024] = "out of memory";
	int err = core_create(wfsd->config, &wfsd->core, msg, sizeof(msg));

	wfsd_patience(wfsd, WFSD_LAST_WRITES_S);
	if (!err && !wfsd->takeover)
		err = wfsd_open_cache(wfsd, msg, sizeof(msg));
	if (!err && !wfsd->no_kernel)
		err = kernel_create(wfsd->core, &settings, &wfsd->kernel, msg, sizeof(msg));
	/* No thread runs yet. */
	if (!err) {
		err = harden_begun();
		if (err)
			snprintf(msg, sizeof(msg), "capabilities cannot be given up: %s",
				 strerror(-err));
	}
	if (!err && wfsd->takeover)
		err = wfsd_take_over(wfsd, msg, sizeof(msg));
	if (!err) {
		do {
			err = server_create(wfsd->config, wfsd->core, wfsd->kernel, &wfsd->server,
					    msg, sizeof(msg));
		} while (wfsd_still_in_use(wfsd, err));
	}
	if (!err) {
		do {
			err = metrics_create(wfsd->config, wfsd->core, wfsd->kernel, &wfsd->metrics,
					     msg, sizeof(msg));
		} while (wfsd_still_in_use(wfsd, err));
	}
	if (!err) {
		err = core_start(wfsd->core, wfsd->kernel ? kernel_worker : NULL, wfsd->kernel);
		if (err)
			snprintf(msg, sizeof(msg), "the workers cannot be started: %s",
				 strerror(-err));
	}
	if (!err) {
		if (!wfsd->kernel)
			core_allow_eviction(wfsd->core, 1);
		err = server_start(wfsd->server);
		if (err)
			snprintf(msg, sizeof(msg), "the control socket cannot be served: %s",
				 strerror(-err));
	}
	if (err)
		log_error("%s", msg);
	return err;
}

static void wfsd_stop(struct wfsd *wfsd)
{
	sd_notify(0, "STOPPING=1");
	/* A disk or an origin that never answers must not keep the process. */
	alarm(WFSD_STOP_S);
	metrics_destroy(wfsd->metrics);
	if (wfsd->server)
		server_stop(wfsd->server);
	if (wfsd->kernel)
		kernel_detach(wfsd->kernel);
	if (wfsd->core)
		core_stop(wfsd->core);
	server_destroy(wfsd->server);
	if (wfsd->kernel)
		kernel_destroy(wfsd->kernel);
	core_destroy(wfsd->core);
}

/* Of a configuration read again, what can change while running. */
static void wfsd_reload(struct wfsd *wfsd, int argc, char **argv)
{
	struct config *fresh = NULL;

	sd_notify(0, "RELOADING=1");
	if (wfsd_configure(wfsd, argc, argv, &fresh) >= 0) {
		log_error("the configuration is left as it was");
	} else {
		log_setup(fresh->log_level, fresh->log_json);
		if (core_store(wfsd->core))
			store_reload(core_store(wfsd->core), fresh);
		log_info("configuration read again: log, capacity and marks are new");
		config_free(fresh);
	}
	sd_notify(0, "READY=1");
}

static void wfsd_run(struct wfsd *wfsd, const sigset_t *signals, int argc, char **argv)
{
	uint64_t watchdog_us = 0;
	struct timespec wait = { .tv_sec = 3600 };

	if (sd_watchdog_enabled(0, &watchdog_us) > 0 && watchdog_us) {
		wait.tv_sec = (time_t)(watchdog_us / 4000000);
		wait.tv_nsec = (long)(watchdog_us / 4 % 1000000) * 1000;
	}
	for (;;) {
		int sig = sigtimedwait(signals, NULL, &wait);

		/* It is the workers that must be alive: this thread has nothing to do. */
		if (sig < 0) {
			if (watchdog_us && core_alive(wfsd->core))
				sd_notify(0, "WATCHDOG=1");
			continue;
		}
		if (sig != SIGHUP) {
			log_info("stopping");
			return;
		}
		wfsd_reload(wfsd, argc, argv);
	}
}

int main(int argc, char **argv)
{
	struct wfsd wfsd = { .ready_fd = -1 };
	sigset_t signals;
	int status, err;

	harden_process();
	err = harden_secrets(argc, argv);
	if (err) {
		fprintf(stderr, "wfsd: out of memory\n");
		return 1;
	}
	status = wfsd_configure(&wfsd, argc, argv, &wfsd.config);
	if (status >= 0)
		return status;
	if (wfsd.takeover && wfsd.no_kernel) {
		fprintf(stderr, "wfsd: --takeover is about the kernel: leave out --no-kernel\n");
		config_free(wfsd.config);
		return 2;
	}
	log_setup(wfsd.config->log_level, wfsd.config->log_json);
	faultpoint_setup();
	if (!wfsd.foreground) {
		err = wfsd_background(&wfsd);
		if (err) {
			log_error("cannot go into the background: %s", strerror(-err));
			return 1;
		}
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);

	err = wfsd_start(&wfsd);
	if (!err) {
		log_info("wfsd %s is ready%s", WFS_VERSION,
			 wfsd.kernel ? "" : ", without the kernel");
		wfsd_ready(&wfsd);
		wfsd_run(&wfsd, &signals, argc, argv);
	}
	wfsd_stop(&wfsd);
	config_free(wfsd.config);
	return err ? 1 : 0;
}
