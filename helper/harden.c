// SPDX-License-Identifier: MIT
#include "harden.h"

#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"

/* Variables of wfsd(8) that are secrets, or may have one in them. */
static const char *const harden_variables[] = { "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
						"AWS_CONTAINER_AUTHORIZATION_TOKEN",
						"AWS_CONTAINER_CREDENTIALS_FULL_URI" };
/* Keys of a source, as --source NAME:KEY=VALUE has them. */
static const char *const harden_keys[] = { ":secret_key=", ":session_token=", ":header=" };

void harden_process(void)
{
	struct rlimit none = { 0, 0 }, files;

	/* Keys pass through memory, and a dump would hold up the kernel's notice of our end. */
	setrlimit(RLIMIT_CORE, &none);
#ifndef __SANITIZE_ADDRESS__
	prctl(PR_SET_DUMPABLE, 0);
#endif
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	umask(077);
}

static int harden_variable(const char *name)
{
	/* On the stack that the kernel made: what /proc shows. */
	char *shown = getenv(name);

	if (!shown)
		return 0;
	if (setenv(name, shown, 1))
		return -errno;
	if (getenv(name) != shown)
		explicit_bzero(shown, strlen(shown));
	return 0;
}

static int harden_argument(char **arg)
{
	char *value = NULL, *copy;

	for (size_t i = 0; !value && i < ARRAY_SIZE(harden_keys); i++) {
		value = strstr(*arg, harden_keys[i]);
		if (value)
			value += strlen(harden_keys[i]);
	}
	if (!value)
		return 0;
	copy = strdup(*arg);
	if (!copy)
		return -ENOMEM;
	/* Not to NUL: what is left would look like more arguments. */
	memset(value, '*', strlen(value));
	*arg = copy;
	return 0;
}

int harden_secrets(int argc, char **argv)
{
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(harden_variables); i++)
		err = harden_variable(harden_variables[i]);
	for (int i = 1; !err && i < argc; i++)
		err = harden_argument(&argv[i]);
	return err;
}

int harden_begun(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	const unsigned int i = CAP_TO_INDEX(CAP_SYS_ADMIN), bit = CAP_TO_MASK(CAP_SYS_ADMIN);

	if (!geteuid())
		return 0;
	if (syscall(SYS_capget, &header, data))
		return -errno;
	if (!((data[i].effective | data[i].permitted | data[i].inheritable) & bit))
		return 0;
	/* It leaves the ambient set with these. */
	data[i].effective &= ~bit;
	data[i].permitted &= ~bit;
	data[i].inheritable &= ~bit;
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}
