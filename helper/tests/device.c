// SPDX-License-Identifier: MIT
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <cmocka.h>

#include "kernel.h"

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long op, ...);
int __wrap_ioctl(int fd, unsigned long op, ...);

struct device device = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;
	int fd;

	va_start(ap, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	if (strcmp(path, WFS_DEVICE))
		return __real_open(path, flags, mode);
	fd = __real_open("/dev/null", flags, mode);
	if (fd >= 0 && fd < DEVICE_FDS)
		device.fake[fd] = true;
	return fd;
}

struct device_asked *device_find(uint64_t id)
{
	return id && id <= device.count ? &device.asked[id - 1] : NULL;
}

static int device_fetch(const struct wfs_fetch *fetch)
{
	char *to = (char *)(uintptr_t)fetch->addr;
	size_t room = fetch->len;
	int n = 0;

	while (!device.dead && device.fetched == device.count)
		pthread_cond_wait(&device.changed, &device.lock);
	if (device.dead)
		return -ESTALE;
	while (device.fetched < device.count && (unsigned int)n < fetch->max) {
		struct device_asked *asked = &device.asked[device.fetched];

		if (asked->record->size > room)
			break;
		memcpy(to, asked->record, asked->record->size);
		to += asked->record->size;
		room -= asked->record->size;
		device.fetched++;
		n++;
	}
	return n;
}

static int device_commit(const struct wfs_cmd *cmd)
{
	struct device_asked *asked = device_find(cmd->id);
	int r = device.next_commit;

	device.next_commit = 0;
	if (r)
		return r;
	if (!asked || asked->answered)
		return -ENOENT;
	asked->answered = true;
	asked->status = cmd->status;
	asked->fd = cmd->fd;
	asked->len = cmd->len;
	asked->payload = malloc(cmd->len + 1);
	memcpy(asked->payload, device.memory + cmd->buf, cmd->len);
	asked->payload[cmd->len] = '\0';
	pthread_cond_broadcast(&device.changed);
	return 0;
}

static int device_deliver(const struct wfs_cmd *cmd)
{
	struct device_asked *asked = device_find(cmd->id);
	int r = device.next_deliver;

	device.next_deliver = 0;
	if (r)
		return r;
	if (!asked || asked->answered || !asked->block)
		return -ENOENT;
	if (!cmd->len || cmd->len > WFS_DELIVER_MAX || cmd->offset % WFS_UNIT_SIZE ||
	    cmd->offset + cmd->len > 1U << DEVICE_SHIFT)
		return -EINVAL;
	memcpy(asked->block + cmd->offset, device.memory + cmd->buf, cmd->len);
	asked->delivered += cmd->len;
	return 0;
}

/* By the largest folio that fits, which is not taken if something is there already. */
static int device_offer(const struct wfs_cmd *cmd)
{
	unsigned int units = (cmd->len + WFS_UNIT_SIZE - 1) >> WFS_UNIT_SHIFT;
	unsigned int bits = ((1U << units) - 1) << (cmd->offset >> WFS_UNIT_SHIFT);

	if (device.present & bits)
		return 0;
	device.present |= bits;
	return (int)cmd->len;
}

static int device_cmd(const struct wfs_cmd *cmd)
{
	if (device.dead || cmd->session != DEVICE_SESSION)
		return -ESTALE;
	if (cmd->buf % 8 || cmd->buf > device.memory_len || cmd->len > device.memory_len - cmd->buf)
		return -EINVAL;
	switch (cmd->op) {
	case WFS_CMD_COMMIT:
		return device_commit(cmd);
	case WFS_CMD_DELIVER:
		return device_deliver(cmd);
	case WFS_CMD_STORED:
		device.stored++;
		device.sum_count = cmd->len / sizeof(uint64_t);
		memcpy(device.sums, device.memory + cmd->buf, cmd->len);
		pthread_cond_broadcast(&device.changed);
		return 0;
	case WFS_CMD_DROPPED:
		device.dropped++;
		pthread_cond_broadcast(&device.changed);
		return 0;
	case WFS_CMD_OFFER:
		return device_offer(cmd);
	default:
		return 0;
	}
}

static int device_ioctl(unsigned long op, void *arg)
{
	struct wfs_hello *hello = arg;
	struct wfs_buffers *buffers = arg;

	switch (op) {
	case WFS_IOC_HELLO:
		hello->session = DEVICE_SESSION;
		hello->features &= WFS_FEATURES & ~WFS_FEATURE_IOURING;
		return 0;
	case WFS_IOC_BUFFERS:
		device.memory = (const char *)(uintptr_t)buffers->addr;
		device.memory_len = buffers->len;
		return 0;
	case WFS_IOC_ATTACH:
		return 0;
	case WFS_IOC_DETACH:
		device.dead = true;
		pthread_cond_broadcast(&device.changed);
		return 0;
	case WFS_IOC_FETCH:
		return device_fetch(arg);
	case WFS_IOC_CMD:
		return device_cmd(arg);
	}
	return -ENOTTY;
}

int __wrap_ioctl(int fd, unsigned long op, ...)
{
	va_list ap;
	void *arg;
	int r;

	va_start(ap, op);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (fd < 0 || fd >= DEVICE_FDS || !device.fake[fd])
		return __real_ioctl(fd, op, arg);
	pthread_mutex_lock(&device.lock);
	r = device_ioctl(op, arg);
	pthread_mutex_unlock(&device.lock);
	if (r >= 0)
		return r;
	errno = -r;
	return -1;
}

void device_reset(void)
{
	for (unsigned int i = 0; i < device.count; i++) {
		free(device.asked[i].record);
		free(device.asked[i].payload);
		free(device.asked[i].block);
	}
	device.count = 0;
	device.fetched = 0;
	device.dead = false;
	device.stored = 0;
	device.dropped = 0;
	device.present = 0;
	device.next_commit = 0;
	device.next_deliver = 0;
	memset(device.fake, 0, sizeof(device.fake));
}

uint64_t device_ask_raw(const struct wfs_request *fields, const void *payload, size_t len)
{
	size_t size = (sizeof(*fields) + len + 7) & ~(size_t)7;
	struct wfs_request *record = calloc(1, size);
	struct device_asked *asked;
	uint64_t id;

	assert_non_null(record);
	*record = *fields;
	record->size = (uint32_t)size;
	record->session = DEVICE_SESSION;
	record->payload_len = (uint32_t)len;
	memcpy(record->payload, payload, len);
	pthread_mutex_lock(&device.lock);
	assert_true(device.count < DEVICE_ASKED);
	asked = &device.asked[device.count++];
	id = device.count;
	record->id = id;
	*asked = (struct device_asked){ .id = id, .record = record };
	if (fields->opcode == WFS_REQ_FILL)
		asked->block = calloc(1, 1U << DEVICE_SHIFT);
	pthread_cond_broadcast(&device.changed);
	pthread_mutex_unlock(&device.lock);
	return id;
}

uint64_t device_ask(struct wfs_request fields, const char *a, const char *b)
{
	char payload[8192];
	size_t len = 0;

	if (a) {
		len = strlen(a) + 1;
		memcpy(payload, a, len);
	}
	if (b) {
		memcpy(payload + len, b, strlen(b) + 1);
		len += strlen(b) + 1;
	}
	return device_ask_raw(&fields, payload, len);
}

struct device_asked *device_answer(uint64_t id)
{
	struct device_asked *asked = device_find(id);

	DEVICE_UNTIL(asked->answered);
	return asked;
}
