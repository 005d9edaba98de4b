// SPDX-License-Identifier: MIT
/* The handlers of the kernel's requests, with a kernel that is made of the test's device. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wfs.h>
#include <xxhash.h>
#include <cmocka.h>

#include "device.h"
#include "kernel.h"
#include "rig.h"

#define SIZE (5 * 65536 + 4321)

static struct rig rig;
static struct kernel *kernel;
static char files[64], source[96];
static uint64_t mount_id;

static struct device_asked *ask_name(uint32_t opcode, const char *path, const char *more)
{
	const struct wfs_request fields = {
		.opcode = opcode,
		.mount = mount_id,
		.mount_ttl = 3600000,
	};

	return device_answer(device_ask(fields, path, more));
}

static struct device_asked *ask_mount(const char *from, const char *options, uint32_t flags)
{
	static uint64_t next = 100;
	const struct wfs_request fields = {
		.opcode = WFS_REQ_MOUNT,
		.mount = ++next,
		.flags = flags,
	};

	mount_id = next;
	return device_answer(device_ask(fields, from, options));
}

static struct device_asked *ask_open(uint64_t node, const char *path, const char *version,
				     uint64_t size)
{
	const struct wfs_request fields = {
		.opcode = WFS_REQ_OPEN,
		.mount = mount_id,
		.node = node,
		.block_shift = DEVICE_SHIFT,
		.file_size = size,
	};

	return device_answer(device_ask(fields, path, version));
}

static uint64_t fill_start(uint64_t node, uint64_t block, uint32_t unit, uint32_t units)
{
	const struct wfs_request fields = {
		.opcode = WFS_REQ_FILL,
		.mount = mount_id,
		.node = node,
		.block = block,
		.unit = unit,
		.units = units,
	};

	return device_ask(fields, NULL, NULL);
}

static struct device_asked *ask_map(uint64_t node, uint32_t window)
{
	const struct wfs_request fields = {
		.opcode = WFS_REQ_MAP,
		.mount = mount_id,
		.node = node,
		.window = window,
	};

	return device_answer(device_ask(fields, NULL, NULL));
}

/* Files. */

static char contents(uint64_t at)
{
	return (char)(at * 31 + at / 4096);
}

static void make_file(const char *name, size_t size)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", files, name);
	f = fopen(path, "w");
	assert_non_null(f);
	for (size_t i = 0; i < size; i++)
		fputc(contents(i), f);
	assert_int_equal(fclose(f), 0);
}

/* The version, as soon as the file is old enough for it to be one. */
static void version_of(const char *path, char *version)
{
	const struct wfs_attr *attr;

	for (int i = 0;; i++) {
		const struct device_asked *asked = ask_name(WFS_REQ_LOOKUP, path, NULL);

		assert_int_equal(asked->status, 0);
		attr = (const struct wfs_attr *)asked->payload;
		if (!(attr->flags & WFS_ATTR_UNCACHED))
			break;
		assert_true(i < 1000);
		rig_pause();
		kernel_invalidate(kernel, mount_id, NULL, "");
	}
	memcpy(version, attr->version, sizeof(attr->version));
}

static int setup(void **state)
{
	char path[128];

	(void)state;
	device_reset();
	snprintf(files, sizeof(files), "/var/tmp/wfs-test-files-XXXXXX");
	assert_non_null(mkdtemp(files));
	snprintf(source, sizeof(source), "file://%s", files);
	make_file("one", SIZE);
	make_file("empty", 0);
	snprintf(path, sizeof(path), "%s/d", files);
	assert_int_equal(mkdir(path, 0755), 0);
	rig_create(&rig);
	return 0;
}

/* As the daemon begins: everything there before the workers run. */
static void begin(void)
{
	char msg[512] = "";
	int r;

	assert_int_equal(config_finish(rig.config, msg, sizeof(msg)), 0);
	r = core_create(rig.config, &rig.core, msg, sizeof(msg));
	if (!r)
		r = core_open(rig.core, msg, sizeof(msg));
	if (!r)
		r = kernel_create(rig.core, NULL, &kernel, msg, sizeof(msg));
	if (r)
		fail_msg("%s: %s", msg, strerror(-r));
	assert_string_equal(kernel_transport(kernel), "ioctl");
	assert_int_equal(kernel_session(kernel), DEVICE_SESSION);
	assert_int_equal(core_start(rig.core, kernel_worker, kernel), 0);
}

static void end(void)
{
	kernel_detach(kernel);
	core_stop(rig.core);
	kernel_destroy(kernel);
	core_destroy(rig.core);
	rig.core = NULL;
	memset(device.fake, 0, sizeof(device.fake));
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	if (rig.core)
		end();
	rig_destroy(&rig);
	snprintf(command, sizeof(command), "rm -rf %s", files);
	return system(command);
}

static void begin_mounted(void)
{
	begin();
	assert_int_equal(ask_mount(source, "ttl=60\nnegative_ttl=5", 0)->status, 0);
}

static void mounted(void **state)
{
	const struct wfs_mount_reply *reply;
	const struct device_asked *asked;
	char text[128];

	(void)state;
	begin();
	asked = ask_mount(source, "", 0);
	assert_int_equal(asked->status, 0);
	assert_int_equal(asked->len, sizeof(*reply));
	reply = (const struct wfs_mount_reply *)asked->payload;
	assert_int_equal(reply->root.mode, S_IFDIR);
	assert_int_equal(reply->root.version_len, 0);
	assert_int_equal(reply->flags, 0);

	snprintf(text, sizeof(text), "%s/one", source);
	asked = ask_mount(text, "", 0);
	assert_int_equal(asked->status, -ENOTDIR);
	assert_non_null(strstr(asked->payload, "single object"));
	assert_non_null(strstr(asked->payload, source));
	snprintf(text, sizeof(text), "%s/nothing", source);
	asked = ask_mount(text, "", 0);
	assert_int_equal(asked->status, -ENOENT);
	assert_non_null(strstr(asked->payload, text));
	asked = ask_mount("gopher://x", "", 0);
	assert_int_equal(asked->status, -EINVAL);
	assert_true(asked->len > 20 && asked->len < WFS_MESSAGE_MAX);
	asked = ask_mount("s3://bucket", "endpoint=http://127.0.0.1:1\nprofile=nowhere", 0);
	assert_int_equal(asked->status, -EACCES);
}

/* A mount that lives goes on whatever has become of its origin. */
static void resumed(void **state)
{
	const struct wfs_request resumed_fields = { .opcode = WFS_REQ_RESUMED };
	const struct wfs_request unmount = { .opcode = WFS_REQ_UNMOUNT, .mount = 500 };

	(void)state;
	begin();
	assert_int_equal(ask_mount("http://127.0.0.1:1/x/", "", WFS_REQ_F_RESUME)->status, 0);
	assert_int_equal(ask_mount(source, "", WFS_REQ_F_RESUME)->status, 0);
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "one", NULL)->status, 0);
	assert_int_equal(device_answer(device_ask(resumed_fields, NULL, NULL))->status, 0);
	assert_int_equal(device_answer(device_ask(unmount, NULL, NULL))->status, 0);
}

/* With nobody there a name is tried for as long as a transfer is, not for name_timeout=. */
static void away(void **state)
{
	struct timespec start, end;

	(void)state;
	rig.config->retry_budget_ms = 500;
	begin();
	assert_int_equal(ask_mount("http://127.0.0.1:1/x/", "", WFS_REQ_F_RESUME)->status, 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "one", NULL)->status, -EIO);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_in_range(end.tv_sec - start.tv_sec, 0, 12);
}

/* All of them, however many there are. */
static void invalidated(void **state)
{
	(void)state;
	begin();
	for (int i = 0; i < 300; i++)
		assert_int_equal(ask_mount(source, "", WFS_REQ_F_RESUME)->status, 0);
	assert_int_equal(kernel_invalidate(kernel, 0, source, ""), 300);
}

static void names(void **state)
{
	const struct wfs_attr *attr;
	const struct device_asked *asked;
	char path[128], version[257] = "";

	(void)state;
	begin_mounted();
	asked = ask_name(WFS_REQ_LOOKUP, "one", NULL);
	assert_int_equal(asked->status, 0);
	assert_int_equal(asked->len, sizeof(*attr));
	attr = (const struct wfs_attr *)asked->payload;
	assert_int_equal(attr->mode, S_IFREG);
	assert_int_equal(attr->size, SIZE);
	assert_true(attr->version_len > 0);
	memcpy(version, attr->version, attr->version_len);
	asked = ask_name(WFS_REQ_GETATTR, "one", version);
	assert_int_equal(asked->status, 0);
	assert_memory_equal(((const struct wfs_attr *)asked->payload)->version, version, 256);

	asked = ask_name(WFS_REQ_LOOKUP, "d", NULL);
	attr = (const struct wfs_attr *)asked->payload;
	assert_int_equal(asked->status, 0);
	assert_int_equal(attr->mode, S_IFDIR);
	assert_int_equal(attr->size + attr->version_len + attr->flags, 0);
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "", NULL)->status, 0);
	asked = ask_name(WFS_REQ_LOOKUP, "nothing", NULL);
	assert_int_equal(asked->status, -ENOENT);
	assert_int_equal(asked->len, 0);
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "one/below", NULL)->status, -ENOENT);

	/* Known as absent, until it is invalidated. */
	make_file("nothing", 1);
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "nothing", NULL)->status, -ENOENT);
	assert_int_equal(kernel_invalidate(kernel, 0, source, "nothing"), 1);
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "nothing", NULL)->status, 0);
	assert_int_equal(kernel_invalidate(kernel, 0, "file:///elsewhere", ""), 0);
	assert_int_equal(kernel_invalidate(kernel, mount_id, NULL, ""), 1);

	snprintf(path, sizeof(path), "%s/link", files);
	assert_int_equal(symlink("nowhere/at/all", path), 0);
	asked = ask_name(WFS_REQ_READLINK, "one", NULL);
	assert_true(asked->status < 0);
}

static void malformed(void **state)
{
	const struct wfs_request lookup = { .opcode = WFS_REQ_LOOKUP, .mount = mount_id };
	const struct wfs_request other = { .opcode = WFS_REQ_LOOKUP, .mount = 9999 };
	const struct wfs_request newer = { .opcode = 4000 };
	char path[5000];

	(void)state;
	begin_mounted();
	assert_int_equal(device_answer(device_ask_raw(&lookup, "one", 3))->status, -EINVAL);
	assert_int_equal(device_answer(device_ask_raw(&lookup, "", 0))->status, -EINVAL);
	assert_int_equal(device_answer(device_ask(other, "one", NULL))->status, -EIO);
	assert_int_equal(device_answer(device_ask(newer, NULL, NULL))->status, -EOPNOTSUPP);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, path, NULL)->status, -ENAMETOOLONG);
	assert_int_equal(ask_map(4711, 0)->status, -EIO);
	assert_int_equal(device_answer(fill_start(4711, 0, 0, 1))->status, -EIO);
}

static void listed(void **state)
{
	char after[300] = "", name[32];
	unsigned int total = 0, pages = 0;
	bool eof = false;

	(void)state;
	for (int i = 0; i < 6000; i++) {
		snprintf(name, sizeof(name), "d/some-file-name-%05d", i);
		make_file(name, 0);
	}
	begin_mounted();
	while (!eof) {
		const struct device_asked *asked = ask_name(WFS_REQ_READDIR, "d", after);
		const struct wfs_readdir_reply *page;
		size_t at = sizeof(*page);

		assert_int_equal(asked->status, 0);
		assert_true(asked->len <= WFS_REPLY_MAX);
		page = (const struct wfs_readdir_reply *)asked->payload;
		for (uint32_t i = 0; i < page->count; i++) {
			const struct wfs_dirent *dirent;

			dirent = (const struct wfs_dirent *)(asked->payload + at);
			assert_int_equal(dirent->reclen,
					 (sizeof(*dirent) + dirent->namelen + 7) & ~7UL);
			assert_int_equal(dirent->type, DT_REG);
			snprintf(name, sizeof(name), "some-file-name-%05u", total);
			assert_int_equal(dirent->namelen, strlen(name));
			assert_memory_equal(dirent->name, name, dirent->namelen);
			memcpy(after, dirent->name, dirent->namelen);
			after[dirent->namelen] = '\0';
			at += dirent->reclen;
			total++;
		}
		assert_int_equal(at, asked->len);
		eof = page->flags & WFS_READDIR_EOF;
		pages++;
	}
	assert_int_equal(total, 6000);
	assert_true(pages > 1);
}

static void check_units(const struct device_asked *fill, uint64_t block, uint32_t unit,
			uint64_t bytes)
{
	uint64_t start = (uint64_t)unit << 16;

	assert_int_equal(fill->status, 0);
	assert_int_equal(fill->delivered, bytes);
	for (uint64_t i = start; i < start + bytes; i++)
		if (fill->block[i] != contents((block << DEVICE_SHIFT) + i))
			fail_msg("byte %llu of block %llu is wrong", (unsigned long long)i,
				 (unsigned long long)block);
}

static void filled(void **state)
{
	const struct wfs_request forget = { .opcode = WFS_REQ_FORGET, .node = 1 };
	const struct wfs_map_reply *map;
	struct device_asked *asked;
	const uint64_t *bits;
	char version[257] = "", unit[65536];

	(void)state;
	begin_mounted();
	version_of("one", version);
	asked = ask_open(1, "one", version, SIZE);
	assert_int_equal(asked->status, 0);
	assert_true(asked->fd >= 0);
	asked = ask_map(1, 0);
	map = (const struct wfs_map_reply *)asked->payload;
	assert_int_equal(asked->status, 0);
	assert_int_equal(map->blocks, 3);
	assert_int_equal(asked->len, sizeof(*map) + 8);
	assert_int_equal(*(const uint64_t *)(map + 1), 0);
	assert_int_equal(ask_map(1, 1)->status, -EINVAL);

	check_units(device_answer(fill_start(1, 0, 0, 2)), 0, 0, 131072);
	check_units(device_answer(fill_start(1, 2, 0, 2)), 2, 0, SIZE - 2 * 131072);
	DEVICE_UNTIL(device.stored == 2);
	check_units(device_answer(fill_start(1, 0, 1, 1)), 0, 1, 65536);
	asked = ask_map(1, 0);
	map = (const struct wfs_map_reply *)asked->payload;
	bits = (const uint64_t *)(map + 1);
	assert_int_equal(*bits, 5);
	assert_int_equal(asked->len, sizeof(*map) + 8 + 4 * sizeof(uint64_t));
	for (int i = 0; i < 65536; i++)
		unit[i] = contents((uint64_t)i);
	assert_true(bits[1] == XXH64(unit, 65536, 0));
	/* The last unit, over its object bytes only. */
	for (int i = 0; i < 4321; i++)
		unit[i] = contents(5 * 65536 + (uint64_t)i);
	assert_true(bits[4] == XXH64(unit, 4321, 0));

	assert_int_equal(device_answer(fill_start(1, 0, 0, 3))->status, -EINVAL);
	assert_int_equal(device_answer(fill_start(1, 0, 2, 1))->status, -EINVAL);
	assert_int_equal(device_answer(fill_start(1, 0, 0, 0))->status, -EINVAL);
	assert_int_equal(device_answer(fill_start(1, 3, 0, 1))->status, -EINVAL);
	assert_int_equal(device_answer(fill_start(1, 1, 1, ~0U))->status, -EINVAL);
	assert_int_equal(device_answer(device_ask(forget, NULL, NULL))->status, 0);
	assert_int_equal(device_answer(fill_start(1, 0, 0, 1))->status, -EIO);
}

/* What is not kept goes to the page cache, beside what a reader has brought there already. */
static void offered(void **state)
{
	char version[257] = "";

	(void)state;
	rig.config->capacity.bytes = 1;
	begin_mounted();
	version_of("one", version);
	assert_int_equal(ask_open(1, "one", version, SIZE)->status, 0);
	device.present = 1;
	check_units(device_answer(fill_start(1, 0, 0, 1)), 0, 0, 65536);
	DEVICE_UNTIL(device.dropped == 1);
	assert_int_equal(device.present, 3);
}

/* Two nodes of one object, as two mounts have them, and many readers of both. */
static void shared(void **state)
{
	char version[257] = "";
	uint64_t ids[60];

	(void)state;
	begin_mounted();
	version_of("one", version);
	assert_int_equal(ask_open(1, "one", version, SIZE)->status, 0);
	assert_int_equal(ask_open(2, "one", version, SIZE)->status, 0);
	for (int i = 0; i < 60; i++)
		ids[i] = fill_start(1 + (uint64_t)i % 2, 1, 0, 2);
	for (int i = 0; i < 60; i++)
		check_units(device_answer(ids[i]), 1, 0, 131072);
	DEVICE_UNTIL(device.stored >= 2);
}

static void changed(void **state)
{
	char version[257] = "";
	struct device_asked *asked;

	(void)state;
	begin_mounted();
	version_of("one", version);
	/* A version that the name does not have is served, if it can be, but not kept. */
	asked = ask_open(1, "one", "another", SIZE);
	assert_int_equal(asked->status, 0);
	assert_int_equal(asked->fd, -1);
	assert_int_equal(device_answer(fill_start(1, 0, 0, 1))->status, -ESTALE);
	make_file("one", SIZE - 1);
	assert_int_equal(ask_open(2, "one", version, SIZE)->status, 0);
	assert_int_equal(device_answer(fill_start(2, 0, 0, 2))->status, -ESTALE);
}

static void refused(void **state)
{
	char version[257] = "";
	uint64_t id;

	(void)state;
	begin_mounted();
	version_of("one", version);
	assert_int_equal(ask_open(1, "one", version, SIZE)->status, 0);
	/* A malformed answer becomes EIO rather than silence. */
	device.next_commit = -EINVAL;
	assert_int_equal(ask_name(WFS_REQ_LOOKUP, "d", NULL)->status, -EIO);
	device.next_deliver = -EINVAL;
	assert_int_equal(device_answer(fill_start(1, 0, 0, 1))->status, -EIO);
	/* Nobody waits any more. */
	device.next_deliver = -ENOENT;
	id = fill_start(1, 0, 0, 2);
	assert_int_equal(device_answer(id)->status, 0);
	assert_int_equal(device_find(id)->delivered % 65536, 0);
	/* A mount(8) that was killed: the mount is forgotten. */
	device.next_commit = -ENOENT;
	device_ask((struct wfs_request){ .opcode = WFS_REQ_MOUNT, .mount = 900 }, source, "");
	RIG_UNTIL(!device.next_commit);
	mount_id = 900;
	for (int i = 0; ask_name(WFS_REQ_LOOKUP, "one", NULL)->status != -EIO; i++)
		assert_true(i < 1000);
}

static void many(void **state)
{
	const char *const paths[] = { "one", "empty", "d", "nothing" };
	const int wanted[] = { 0, 0, 0, -ENOENT };
	uint64_t ids[1000];

	(void)state;
	begin_mounted();
	for (int i = 0; i < 1000; i++)
		ids[i] = device_ask((struct wfs_request){ .opcode = WFS_REQ_LOOKUP,
							  .mount = mount_id },
				    paths[i % 4], NULL);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(device_answer(ids[i])->status, wanted[i % 4]);
}

/* The origin takes connections and says nothing: what waits is left to the next session. */
static void detached(void **state)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(address);
	char url[64];
	time_t before;
	uint64_t lookup, list, opening, resumed_open;

	(void)state;
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(sock, 64), 0);
	assert_int_equal(getsockname(sock, (struct sockaddr *)&address, &len), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/", ntohs(address.sin_port));
	rig.config->stall_timeout_ms = 60000;
	begin();
	assert_int_equal(ask_mount(url, "", WFS_REQ_F_RESUME)->status, 0);
	lookup = device_ask((struct wfs_request){ .opcode = WFS_REQ_LOOKUP, .mount = mount_id },
			    "a", NULL);
	list = device_ask((struct wfs_request){ .opcode = WFS_REQ_READDIR, .mount = mount_id }, "",
			  "");
	opening = device_ask((struct wfs_request){ .opcode = WFS_REQ_OPEN,
						   .mount = mount_id,
						   .node = 5,
						   .block_shift = DEVICE_SHIFT,
						   .file_size = SIZE },
			     "b", "\"v\"");
	resumed_open = device_ask((struct wfs_request){ .opcode = WFS_REQ_OPEN,
							.mount = mount_id,
							.node = 6,
							.flags = WFS_REQ_F_RESUME,
							.block_shift = DEVICE_SHIFT,
							.file_size = SIZE },
				  "c", "\"v\"");
	RIG_UNTIL(device.fetched == device.count);
	before = time(NULL);
	end();
	assert_true(time(NULL) - before < 10);
	assert_false(device_find(lookup)->answered);
	assert_false(device_find(list)->answered);
	assert_false(device_find(opening)->answered);
	assert_false(device_find(resumed_open)->answered);
	close(sock);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(mounted),	 CASE(resumed), CASE(names),  CASE(away),     CASE(invalidated),
		CASE(malformed), CASE(listed),	CASE(filled), CASE(offered),  CASE(shared),
		CASE(changed),	 CASE(refused), CASE(many),   CASE(detached),
	};

	/* Nobody's credentials: neither of who runs this nor of the machine. */
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
