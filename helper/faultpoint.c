// SPDX-License-Identifier: MIT
#include "faultpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_AREA "fault"
#include "log.h"

static char fault_name[32]; /* written before threads are started */
static atomic_long fault_left;

void faultpoint_setup(void)
{
	const char *text = getenv("WFS_FAULT"), *colon;
	size_t len;

	if (!text || !*text)
		return;
	colon = strchr(text, ':');
	len = colon ? (size_t)(colon - text) : strlen(text);
	if (len >= sizeof(fault_name)) {
		log_warn("WFS_FAULT names no step");
		return;
	}
	memcpy(fault_name, text, len);
	fault_name[len] = '\0';
	fault_left = colon ? strtol(colon + 1, NULL, 10) : 1;
	log_warn("this daemon will be killed when it passes \"%s\" for the %ldth time", fault_name,
		 (long)fault_left);
}

void faultpoint(const char *point)
{
	if (!*fault_name || strcmp(point, fault_name))
		return;
	if (atomic_fetch_sub(&fault_left, 1) == 1)
		kill(getpid(), SIGKILL);
}
