// SPDX-License-Identifier: MIT
#include "profile_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "profile.h"
#include "store.h"

#define LOG_AREA "profile"
#include "log.h"

#define FILE_DIR "order"
/* The first line: this, the XXH64 of what follows in hexadecimal, and a line feed. */
#define FILE_MAGIC  "wfs-order 1 "
#define FILE_HEADER (sizeof(FILE_MAGIC) - 1 + 17)
#define FILE_TEXT   (PROFILE_TEXT_MAX + 8192)
/* Of all files. */
#define FILE_COUNT_MAX 256
#define FILE_BYTES_MAX (64ULL << 20)

struct file_name {
	char text[32];
};

static struct file_name file_name_of(const char *identity, const char *dir)
{
	uint64_t hash = XXH3_64bits(identity, strlen(identity) + 1);
	struct file_name name;

	hash = XXH3_64bits_withSeed(dir, strlen(dir), hash);
	snprintf(name.text, sizeof(name.text), "%016llx", (unsigned long long)hash);
	return name;
}

/* The text of a file behind its header, allocated, or NULL. */
static char *file_text(int at, const char *name)
{
	cleanup_close int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *text = NULL;
	unsigned long long sum;
	struct stat st;
	size_t len, got = 0;
	ssize_t n = 1;
	char *end;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)FILE_HEADER ||
	    st.st_size > (off_t)(FILE_HEADER + FILE_TEXT))
		return NULL;
	len = (size_t)st.st_size;
	text = malloc(len + 1);
	while (text && got < len && n > 0) {
		n = read(fd, text + got, len - got);
		got += n > 0 ? (size_t)n : 0;
	}
	if (!text || got < len)
		return NULL;
	text[len] = '\0';
	if (strncmp(text, FILE_MAGIC, sizeof(FILE_MAGIC) - 1) || text[FILE_HEADER - 1] != '\n')
		return NULL;
	sum = strtoull(text + sizeof(FILE_MAGIC) - 1, &end, 16);
	if (end != text + FILE_HEADER - 1 || sum != XXH64(text + FILE_HEADER, len - FILE_HEADER, 0))
		return NULL;
	memmove(text, text + FILE_HEADER, len - FILE_HEADER + 1);
	return TAKE(text);
}

/* 0: both are the caller's. */
static int file_open(int at, const char *name, json_t **ret_json, struct profile **ret)
{
	cleanup_free char *text = file_text(at, name);
	json_t *json = text ? json_loads(text, 0, NULL) : NULL;
	char msg[512];
	int err = -EUCLEAN;

	if (json_is_string(json_object_get(json, "identity")))
		err = profile_parse(json_object_get(json, "model"), ret, msg, sizeof(msg));
	if (err) {
		json_decref(json);
		return err == -ENOMEM ? err : -EUCLEAN;
	}
	*ret_json = json;
	return 0;
}

static const char *file_identity(const json_t *json)
{
	return json_string_value(json_object_get(json, "identity"));
}

int profile_file_read(struct store *store, const char *identity, const char *dir,
		      struct profile **ret)
{
	struct file_name name = file_name_of(identity, dir);
	cleanup_close int at = store_beside(store, FILE_DIR);
	struct profile *profile;
	json_t *json;
	int err;

	if (at < 0)
		return -ENOENT;
	if (faccessat(at, name.text, F_OK, 0))
		return -ENOENT;
	err = file_open(at, name.text, &json, &profile);
	if (err == -EUCLEAN) {
		log_warn("the order recorded of %s/%s is damaged: it is dropped", identity, dir);
		unlinkat(at, name.text, 0);
		return -ENOENT;
	}
	if (err)
		return err;
	/* Two names may have one hash: the other one's order is not for this one. */
	if (strcmp(file_identity(json), identity) || strcmp(profile->dir, dir)) {
		profile_free(profile);
		err = -ENOENT;
	} else {
		*ret = profile;
	}
	json_decref(json);
	return err;
}

struct file_entry {
	struct file_name name;
	int64_t written_s;
	uint64_t bytes;
};

static bool file_is_ours(const char *name)
{
	return strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
}

static int file_newer_first(const void *a, const void *b)
{
	const struct file_entry *one = a, *other = b;

	return (one->written_s < other->written_s) - (one->written_s > other->written_s);
}

/* All that are there, newest first, allocated. */
static int file_list(int at, struct file_entry **ret, size_t *ret_count)
{
	int again = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = again < 0 ? NULL : fdopendir(again);
	struct file_entry *entries = NULL;
	size_t count = 0, room = 0;
	struct dirent *entry;
	int err = 0;

	if (!list) {
		err = -errno;
		if (again >= 0)
			close(again);
		return err;
	}
	while (!err && (entry = readdir(list))) {
		struct stat st;

		if (!file_is_ours(entry->d_name) ||
		    fstatat(at, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		if (count == room) {
			size_t more = room ? room * 2 : 64;
			struct file_entry *grown = reallocarray(entries, more, sizeof(*grown));

			if (!grown) {
				err = -ENOMEM;
				break;
			}
			entries = grown;
			room = more;
		}
		snprintf(entries[count].name.text, sizeof(entries[count].name.text), "%.16s",
			 entry->d_name);
		entries[count].written_s = st.st_mtime;
		entries[count++].bytes = (uint64_t)st.st_size;
	}
	closedir(list);
	if (err) {
		free(entries);
		return err;
	}
	if (count)
		qsort(entries, count, sizeof(*entries), file_newer_first);
	*ret = entries;
	*ret_count = count;
	return 0;
}

/* What is too much goes, the oldest first. */
static void file_trim(int at)
{
	cleanup_free struct file_entry *entries = NULL;
	uint64_t bytes = 0;
	size_t count;

	if (file_list(at, &entries, &count))
		return;
	for (size_t i = 0; i < count; i++) {
		bytes += entries[i].bytes;
		if (i >= FILE_COUNT_MAX || bytes > FILE_BYTES_MAX)
			unlinkat(at, entries[i].name.text, 0);
	}
}

static int file_write(int at, const char *name, const char *text)
{
	cleanup_close int fd = -1;
	size_t len = strlen(text);
	cleanup_file FILE *out = NULL;

	fd = openat(at, "new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	store_dir_give(at, "new");
	out = fdopen(fd, "w");
	if (!out)
		return -errno;
	fd = -1;
	if (fprintf(out, FILE_MAGIC "%016llx\n", (unsigned long long)XXH64(text, len, 0)) < 0 ||
	    fwrite(text, 1, len, out) != len || fflush(out) || fsync(fileno(out)) ||
	    renameat(at, "new", at, name) || fsync(at))
		return errno ? -errno : -EIO;
	return 0;
}

int profile_file_write(struct store *store, const char *identity, const struct profile *profile)
{
	struct file_name name = file_name_of(identity, profile->dir);
	cleanup_close int at = store_beside(store, FILE_DIR);
	json_t *model, *json;
	cleanup_free char *text = NULL;
	int err;

	if (at < 0)
		return at;
	model = profile_json(profile);
	json = model ? json_pack("{s:s, s:o}", "identity", identity, "model", model) : NULL;
	text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	if (!text)
		return -EINVAL;
	if (strlen(text) > FILE_TEXT)
		return -E2BIG;
	err = file_write(at, name.text, text);
	if (!err)
		file_trim(at);
	else
		unlinkat(at, "new", 0);
	return err;
}

static bool file_is_below(const char *dir, const char *top)
{
	size_t len = strlen(top);

	return !len || (!strncmp(dir, top, len) && (!dir[len] || dir[len] == '/'));
}

/* The same with the name of the file, for whoever removes it. */
static int file_each(int at, const char *identity, const char *path,
		     int (*fn)(void *arg, int at, const char *name,
			       const struct profile_found *found),
		     void *arg)
{
	cleanup_free struct file_entry *entries = NULL;
	size_t count;
	int err = file_list(at, &entries, &count);

	for (size_t i = 0; !err && i < count; i++) {
		struct profile_found found = { .written_s = entries[i].written_s };
		struct profile *profile;
		json_t *json;

		if (file_open(at, entries[i].name.text, &json, &profile))
			continue;
		found.identity = file_identity(json);
		found.profile = profile;
		if ((!identity || !strcmp(identity, found.identity)) &&
		    file_is_below(profile->dir, path))
			err = fn(arg, at, entries[i].name.text, &found);
		profile_free(profile);
		json_decref(json);
	}
	return err;
}

struct file_telling {
	int (*fn)(void *arg, const struct profile_found *found);
	void *arg;
};

static int file_tell(void *arg, int at, const char *name, const struct profile_found *found)
{
	struct file_telling *telling = arg;

	(void)at;
	(void)name;
	return telling->fn(telling->arg, found);
}

int profile_file_each(struct store *store, const char *identity, const char *path,
		      int (*fn)(void *arg, const struct profile_found *found), void *arg)
{
	cleanup_close int at = store_beside(store, FILE_DIR);
	struct file_telling telling = { fn, arg };

	return at < 0 ? at : file_each(at, identity, path, file_tell, &telling);
}

static int file_remove(void *arg, int at, const char *name, const struct profile_found *found)
{
	unsigned int *count = arg;

	(void)found;
	if (unlinkat(at, name, 0) && errno != ENOENT)
		return -errno;
	(*count)++;
	return 0;
}

int profile_file_drop(struct store *store, const char *identity, const char *path,
		      unsigned int *ret_count)
{
	cleanup_close int at = store_beside(store, FILE_DIR);

	*ret_count = 0;
	return at < 0 ? at : file_each(at, identity, path, file_remove, ret_count);
}
