// SPDX-License-Identifier: MIT
/*
 * mount.wfs: called by mount(8) as "mount.wfs SOURCE DIR [-sfnv] [-o OPTIONS]".
 *
 * By the system calls of the new mount interface, whose file descriptor carries the
 * kernel's sentence when something is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "version.h"

/* Exit statuses of mount(8). */
#define EXIT_USAGE   1
#define EXIT_SYSTEM  2
#define EXIT_REFUSED 32

struct mounting {
	const char *source, *dir;
	bool sloppy, fake, verbose, remount;
	unsigned int set, clear; /* MOUNT_ATTR_* */
	int fs;			 /* the filesystem context */
};

static const struct {
	const char *name;
	unsigned int attr;
	bool clear;
} attributes[] = {
	{ "nosuid", MOUNT_ATTR_NOSUID, false },		{ "suid", MOUNT_ATTR_NOSUID, true },
	{ "nodev", MOUNT_ATTR_NODEV, false },		{ "dev", MOUNT_ATTR_NODEV, true },
	{ "noexec", MOUNT_ATTR_NOEXEC, false },		{ "exec", MOUNT_ATTR_NOEXEC, true },
	{ "nodiratime", MOUNT_ATTR_NODIRATIME, false }, { "diratime", MOUNT_ATTR_NODIRATIME, true },
};

/* For mount(8), systemd or the boot; nothing for the kernel. A '*' ends a prefix. */
static const char *const ignored[] = {
	"ro",	       "rw",
	"defaults",    "auto",
	"noauto",      "user",
	"nouser",      "users",
	"nousers",     "owner",
	"noowner",     "group",
	"nogroup",     "_netdev",
	"nofail",      "async",
	"sync",	       "dirsync",
	"silent",      "loud",
	"atime",       "noatime",
	"relatime",    "norelatime",
	"strictatime", "nostrictatime",
	"lazytime",    "nolazytime",
	"mand",	       "nomand",
	"iversion",    "noiversion",
	"nosymfollow", "symfollow",
	"_rnetdev",    "x-*",
	"X-*",	       "comment=*",
	"uhelper=*",   "helper=*",
	"user=*",
};

static void usage(FILE *out)
{
	fprintf(out, "usage: mount.wfs SOURCE DIR [-fnsv] [-o OPTIONS]\n"
		     "\n"
		     "Mounts a source of weight files, read-only. Called by mount -t wfs.\n"
		     "\n"
		     "  SOURCE   s3://BUCKET[/PREFIX], http(s)://HOST/PATH/ or file:///PATH\n"
		     "  -f       check the options, mount nothing\n"
		     "  -n       accepted (there is no mtab)\n"
		     "  -s       pass over options that are not known\n"
		     "  -v       say what is done\n"
		     "  -o       options, see wfs(5)\n");
}

/* Prints what the kernel wrote for the last step; false if it wrote nothing. */
static bool print_log(const struct mounting *m, bool print)
{
	char line[1024];
	bool any = false;
	ssize_t n;

	while ((n = read(m->fs, line, sizeof(line) - 1)) > 0) {
		const char *text = line;

		line[n] = '\0';
		line[strcspn(line, "\n")] = '\0';
		/* "e wfs: sentence": a letter for how grave it is. */
		if (n > 2 && line[1] == ' ')
			text += 2;
		if (!strncmp(text, "wfs: ", 5))
			text += 5;
		if (print && (line[0] == 'e' || m->verbose))
			fprintf(stderr, "mount.wfs: %s\n", text);
		any = any || line[0] == 'e';
	}
	return any;
}

static int refuse(const struct mounting *m, const char *what, int err)
{
	if (!print_log(m, true))
		fprintf(stderr, "mount.wfs: %s: %s: %s\n", m->source, what, strerror(err));
	return EXIT_REFUSED;
}

static bool is_ignored(const char *option)
{
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++) {
		size_t len = strlen(ignored[i]);

		if (ignored[i][len - 1] == '*' ? !strncmp(option, ignored[i], len - 1) :
						 !strcmp(option, ignored[i]))
			return true;
	}
	return false;
}

static int set_option(struct mounting *m, char *option)
{
	char *value = strchr(option, '=');
	long r;

	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
		if (strcmp(option, attributes[i].name))
			continue;
		if (attributes[i].clear) {
			m->set &= ~attributes[i].attr;
			m->clear |= attributes[i].attr;
		} else {
			m->set |= attributes[i].attr;
			m->clear &= ~attributes[i].attr;
		}
		return 0;
	}
	if (is_ignored(option))
		return 0;
	if (value)
		*value++ = '\0';
	if (m->verbose)
		fprintf(stderr, "mount.wfs: option %s%s%s\n", option, value ? "=" : "",
			value ? value : "");
	r = value ? syscall(SYS_fsconfig, m->fs, FSCONFIG_SET_STRING, option, value, 0) :
		    syscall(SYS_fsconfig, m->fs, FSCONFIG_SET_FLAG, option, NULL, 0);
	if (!r)
		return 0;
	if (m->sloppy && errno == EINVAL) {
		print_log(m, false);
		return 0;
	}
	return refuse(m, option, errno);
}

/* A comma inside double quotes is part of the value. */
static int set_options(struct mounting *m, char *options)
{
	int status = 0;

	while (*options && !status) {
		char *out = options, *in = options;
		bool quoted = false, more;

		for (; *in && (quoted || *in != ','); in++) {
			if (*in == '"')
				quoted = !quoted;
			else
				*out++ = *in;
		}
		more = *in == ',';
		*out = '\0';
		if (*options && strcmp(options, "remount"))
			status = set_option(m, options);
		options = in + more;
	}
	return status;
}

static bool wants_remount(const char *options)
{
	for (const char *p = options; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, "remount", 7) && (!p[7] || p[7] == ','))
			return true;
	}
	return false;
}

static int attach(const struct mounting *m)
{
	/* Nothing in a mount can be a device or set-user-ID; it shows. */
	const unsigned int usual = (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) & ~m->clear;
	cleanup_close int fd = (int)syscall(SYS_fsmount, m->fs, FSMOUNT_CLOEXEC,
					    MOUNT_ATTR_RDONLY | usual | m->set);

	if (fd < 0)
		return refuse(m, "cannot be mounted", errno);
	if (syscall(SYS_move_mount, fd, "", AT_FDCWD, m->dir, MOVE_MOUNT_F_EMPTY_PATH)) {
		fprintf(stderr, "mount.wfs: %s: %s\n", m->dir, strerror(errno));
		return EXIT_REFUSED;
	}
	return 0;
}

static int mount_new(struct mounting *m, char *options)
{
	int status;

	m->fs = (int)syscall(SYS_fsopen, "wfs", FSOPEN_CLOEXEC);
	if (m->fs < 0 && errno == ENODEV) {
		fprintf(stderr,
			"mount.wfs: the kernel does not know wfs: load its module (modprobe wfs)\n");
		return EXIT_REFUSED;
	}
	if (m->fs < 0) {
		fprintf(stderr, "mount.wfs: cannot mount: %s\n", strerror(errno));
		return EXIT_REFUSED;
	}
	if (syscall(SYS_fsconfig, m->fs, FSCONFIG_SET_STRING, "source", m->source, 0))
		return refuse(m, "this source is refused", errno);
	status = set_options(m, options);
	if (status || m->fake)
		return status;
	if (syscall(SYS_fsconfig, m->fs, FSCONFIG_SET_FLAG, "ro", NULL, 0))
		return refuse(m, "ro", errno);
	if (syscall(SYS_fsconfig, m->fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return refuse(m, "cannot be mounted", errno);
	print_log(m, true);
	return attach(m);
}

static int mount_again(struct mounting *m, char *options)
{
	struct mount_attr attr = { 0 };
	int status;

	m->fs = (int)syscall(SYS_fspick, AT_FDCWD, m->dir, FSPICK_CLOEXEC | FSPICK_NO_AUTOMOUNT);
	if (m->fs < 0) {
		fprintf(stderr, "mount.wfs: %s is not mounted: %s\n", m->dir, strerror(errno));
		return EXIT_REFUSED;
	}
	status = set_options(m, options);
	if (status || m->fake)
		return status;
	if (syscall(SYS_fsconfig, m->fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0))
		return refuse(m, "the mount cannot be changed", errno);
	attr.attr_set = m->set;
	attr.attr_clr = m->clear;
	if ((m->set || m->clear) &&
	    syscall(SYS_mount_setattr, AT_FDCWD, m->dir, 0, &attr, sizeof(attr))) {
		fprintf(stderr, "mount.wfs: %s: %s\n", m->dir, strerror(errno));
		return EXIT_REFUSED;
	}
	return 0;
}

static int add_options(char **all, const char *more)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", *all ? *all : "", *all ? "," : "", more) < 0)
		return -ENOMEM;
	free(*all);
	*all = joined;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	cleanup_free char *options = NULL, *dir = NULL;
	struct mounting m = { .fs = -1 };
	int opt, status;

	while ((opt = getopt_long(argc, argv, "o:fnsvt:N:hV", longs, NULL)) != -1) {
		switch (opt) {
		case 'o':
			if (add_options(&options, optarg))
				return EXIT_SYSTEM;
			break;
		case 'f':
			m.fake = true;
			break;
		case 's':
			m.sloppy = true;
			break;
		case 'v':
			m.verbose = true;
			break;
		case 'n':
		case 't':
			break;
		case 'N':
			fprintf(stderr,
				"mount.wfs: mounting in another namespace is left to mount(8): use nsenter\n");
			return EXIT_USAGE;
		case 'h':
			usage(stdout);
			return 0;
		case 'V':
			printf("mount.wfs %s\n", WFS_VERSION);
			return 0;
		default:
			usage(stderr);
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (!options && add_options(&options, ""))
		return EXIT_SYSTEM;
	m.source = argv[optind];
	dir = realpath(argv[optind + 1], NULL);
	if (!dir) {
		fprintf(stderr, "mount.wfs: %s: %s\n", argv[optind + 1], strerror(errno));
		return EXIT_REFUSED;
	}
	m.dir = dir;
	m.remount = wants_remount(options);
	status = m.remount ? mount_again(&m, options) : mount_new(&m, options);
	if (m.fs >= 0)
		close(m.fs);
	return status;
}
