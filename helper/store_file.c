// SPDX-License-Identifier: MIT
/*
 * store_file: data files, one for each object version, and their descriptors.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "store_impl.h"

#define LOG_AREA "store"
#include "log.h"

/* A descriptor is not closed for lack of use before this: the kernel may just be given it. */
#define STORE_IDLE_NS 60000000000ULL

void store_file_path(uint64_t id, char *path, size_t size)
{
	snprintf(path, size, "data/%02x/%016" PRIx64, (unsigned int)(id & 0xff), id);
}

static struct index_hash store_hash(const struct store_key *key)
{
	XXH3_state_t *state = XXH3_createState();
	struct index_hash hash = { 0, 0 };
	XXH128_hash_t digest;

	if (!state)
		return hash;
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, key->identity, strlen(key->identity) + 1);
	XXH3_128bits_update(state, key->path, strlen(key->path) + 1);
	XXH3_128bits_update(state, key->version, strlen(key->version) + 1);
	XXH3_128bits_update(state, &key->size, sizeof(key->size));
	XXH3_128bits_update(state, &key->block_shift, sizeof(key->block_shift));
	digest = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	hash.low = digest.low64;
	hash.high = digest.high64;
	return hash;
}

static bool store_key_equal(const struct store_key *a, const struct store_key *b)
{
	return a->size == b->size && a->block_shift == b->block_shift &&
	       !strcmp(a->path, b->path) && !strcmp(a->version, b->version) &&
	       !strcmp(a->identity, b->identity);
}

static struct store_file *store_file_alloc(struct store *store, const struct store_key *key,
					   const struct index_hash *hash)
{
	size_t identity = strlen(key->identity) + 1, path = strlen(key->path) + 1;
	size_t version = strlen(key->version) + 1;
	struct store_file *file = calloc(1, sizeof(*file));
	char *text = malloc(identity + path + version);

	if (!file || !text) {
		free(file);
		free(text);
		return NULL;
	}
	memcpy(text, key->identity, identity);
	memcpy(text + identity, key->path, path);
	memcpy(text + identity + path, key->version, version);
	file->store = store;
	file->text = text;
	file->key = (struct store_key){ text, text + identity, text + identity + path, key->size,
					key->block_shift };
	file->hash = *hash;
	file->refs = 1;
	file->fd = -1;
	return file;
}

static void store_file_free(struct store_file *file)
{
	if (!file)
		return;
	if (file->fd >= 0)
		close(file->fd);
	free(file->text);
	free(file);
}

/* store->lock held. */
static struct store_file *store_file_known(struct store *store, const struct store_key *key,
					   const struct index_hash *hash)
{
	struct store_file *file = store->files[hash->low % STORE_BUCKETS];

	for (; file; file = file->next)
		if (store_key_equal(&file->key, key)) {
			file->refs++;
			return file;
		}
	return NULL;
}

static void store_file_insert(struct store *store, struct store_file *file)
{
	struct store_file **bucket = &store->files[file->hash.low % STORE_BUCKETS];

	file->next = *bucket;
	*bucket = file;
	if (file->fd >= 0)
		store->open_fds++;
}

/* Size of the data file: whole pages, since direct I/O moves no less. */
static off_t store_file_size(const struct store_key *key)
{
	return (off_t)((key->size + 4095) & ~4095ULL);
}

static int store_file_create(struct store_file *file)
{
	char path[64];
	int fd, err;

	store_file_path(file->id, path, sizeof(path));
	fd = openat(file->dir->fd, path,
		    O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_NOATIME | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Set first: writes that extend a file are done one at a time. */
	if (ftruncate(fd, store_file_size(&file->key))) {
		err = -errno;
		close(fd);
		unlinkat(file->dir->fd, path, 0);
		return err;
	}
	file->fd = fd;
	return 0;
}

static int store_file_reopen(struct store_file *file)
{
	struct stat st;
	char path[64];
	int fd;

	store_file_path(file->id, path, sizeof(path));
	fd = openat(file->dir->fd, path, O_RDWR | O_DIRECT | O_NOATIME | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size != store_file_size(&file->key)) {
		close(fd);
		return -EUCLEAN;
	}
	return fd;
}

struct store_found {
	const struct store_key *key;
	uint64_t id, bytes;
};

static int store_found(void *arg, const struct index_file *record)
{
	struct store_found *found = arg;
	struct store_key key = { record->identity, record->path, record->version, record->size,
				 record->block_shift };

	if (!store_key_equal(&key, found->key))
		return -ENOENT;
	found->id = record->id;
	found->bytes = record->bytes;
	return 0;
}

/* The directory with the most room. */
static struct store_dir *store_file_place(struct store *store)
{
	struct store_dir *best = &store->dirs[0];
	uint64_t best_left = 0;

	SCOPED_LOCK(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];
		uint64_t taken = dir->used + dir->reserved;
		uint64_t left = dir->capacity > taken ? dir->capacity - taken : 0;

		if (dir->rest_ns <= store_now() && left > best_left) {
			best = dir;
			best_left = left;
		}
	}
	return best;
}

static int store_file_find(struct store *store, struct store_file *file)
{
	struct store_found found = { &file->key, 0, 0 };
	int fd;

	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];

		if (index_find(dir->index, &file->hash, store_found, &found))
			continue;
		file->dir = dir;
		file->id = found.id;
		file->cached = found.bytes;
		file->named = true;
		fd = store_file_reopen(file);
		if (fd >= 0) {
			file->fd = fd;
			return 0;
		}
		/* Its blocks are evicted in their turn; this object starts anew. */
		log_warn("cache %s: data file %016" PRIx64 " cannot be used: %s", dir->path,
			 found.id, strerror(-fd));
	}
	return -ENOENT;
}

bool store_file_recorded(struct store *store, const struct store_key *key)
{
	struct index_hash hash = store_hash(key);
	struct store_found found = { key, 0, 0 };

	for (size_t i = 0; i < store->dir_count; i++)
		if (!index_find(store->dirs[i].index, &hash, store_found, &found))
			return true;
	return false;
}

int store_file_open(struct store *store, const struct store_key *key, struct store_file **ret)
{
	struct index_hash hash = store_hash(key);
	struct store_file *file, *other;
	int err;

	pthread_mutex_lock(&store->lock);
	file = store_file_known(store, key, &hash);
	if (file)
		file->opened_s = time(NULL);
	pthread_mutex_unlock(&store->lock);
	if (file) {
		*ret = file;
		return 0;
	}
	file = store_file_alloc(store, key, &hash);
	if (!file)
		return -ENOMEM;
	if (store_file_find(store, file)) {
		file->dir = store_file_place(store);
		file->cached = 0;
		file->named = false;
		pthread_mutex_lock(&store->lock);
		file->id = file->dir->next_id++;
		pthread_mutex_unlock(&store->lock);
		err = store_file_create(file);
		if (err) {
			store_file_free(file);
			return err;
		}
	}
	file->opened_s = time(NULL);
	pthread_mutex_lock(&store->lock);
	other = store_file_known(store, key, &hash);
	if (other)
		other->opened_s = file->opened_s;
	else
		store_file_insert(store, file);
	pthread_mutex_unlock(&store->lock);
	if (other) {
		char path[64];

		store_file_path(file->id, path, sizeof(path));
		if (!file->named)
			unlinkat(file->dir->fd, path, 0);
		store_file_free(file);
		file = other;
	}
	*ret = file;
	return 0;
}

struct store_file *store_file_of(struct store *store, struct store_dir *dir,
				 const struct index_file *record)
{
	struct store_key key = { record->identity, record->path, record->version, record->size,
				 record->block_shift };
	struct store_file *file;

	SCOPED_LOCK(&store->lock);
	file = store->files[record->hash.low % STORE_BUCKETS];
	for (; file; file = file->next)
		if (file->dir == dir && file->id == record->id) {
			file->refs++;
			return file;
		}
	/*
	 * Not in use. (If another file of the same key is, this record is what is
	 * left of one that could not be opened.)
	 */
	file = store_file_alloc(store, &key, &record->hash);
	if (!file)
		return NULL;
	file->dir = dir;
	file->id = record->id;
	file->cached = record->bytes;
	file->named = true;
	store_file_insert(store, file);
	return file;
}

struct store_file *store_file_ref(struct store_file *file)
{
	SCOPED_LOCK(&file->store->lock);

	file->refs++;
	return file;
}

void store_file_put(struct store_file *file)
{
	struct store *store = file->store;
	struct store_file **link;
	char path[64];

	SCOPED_LOCK(&store->lock);
	if (--file->refs)
		return;
	for (link = &store->files[file->hash.low % STORE_BUCKETS]; *link != file;)
		link = &(*link)->next;
	*link = file->next;
	if (file->fd >= 0)
		store->open_fds--;
	/* Nothing is recorded of it: nobody will ask for it again. */
	if (!file->cached) {
		store_file_path(file->id, path, sizeof(path));
		unlinkat(file->dir->fd, path, 0);
	}
	store_file_free(file);
}

const struct store_key *store_file_key(const struct store_file *file)
{
	return &file->key;
}

/* store->lock held. */
static int store_file_have(struct store_file *file)
{
	int fd;

	file->used_ns = store_now();
	if (file->fd >= 0)
		return file->fd;
	fd = store_file_reopen(file);
	if (fd >= 0) {
		file->fd = fd;
		file->store->open_fds++;
	}
	return fd;
}

int store_file_fd(struct store_file *file)
{
	SCOPED_LOCK(&file->store->lock);

	return store_file_have(file);
}

int store_file_begin(struct store_file *file)
{
	int fd;

	SCOPED_LOCK(&file->store->lock);
	fd = store_file_have(file);
	if (fd >= 0)
		file->io++;
	return fd;
}

void store_file_end(struct store_file *file)
{
	SCOPED_LOCK(&file->store->lock);

	file->io--;
}

uint64_t store_file_cached(struct store_file *file)
{
	SCOPED_LOCK(&file->store->lock);

	return file->cached;
}

void store_close_idle(struct store *store)
{
	uint64_t now = store_now();

	SCOPED_LOCK(&store->lock);
	if (store->open_fds < store->fd_limit)
		return;
	for (size_t i = 0; i < STORE_BUCKETS; i++) {
		for (struct store_file *file = store->files[i]; file; file = file->next) {
			if (file->fd < 0 || file->io || now - file->used_ns < STORE_IDLE_NS)
				continue;
			close(file->fd);
			file->fd = -1;
			store->open_fds--;
		}
	}
}

struct collect {
	struct store *store;
	struct store_dir *dir;
	struct index_file record; /* no strings */
};

static int collect_found(void *arg, const struct index_file *record)
{
	struct collect *collect = arg;

	collect->record = *record;
	return 0;
}

/* store->lock held: somebody has the file open or evicts from it. */
static bool collect_in_use(const struct collect *collect)
{
	const struct store_file *file =
		collect->store->files[collect->record.hash.low % STORE_BUCKETS];

	for (; file; file = file->next)
		if (file->dir == collect->dir && file->id == collect->record.id)
			return true;
	return false;
}

/* Everything between the blocks that are recorded. */
static void collect_punch(const struct collect *collect, int fd)
{
	const struct index_file *record = &collect->record;
	uint64_t end = (record->size + 4095) & ~4095ULL, at = 0, next = 0;
	struct index_block blocks[64];
	int n;

	do {
		n = index_file_blocks(collect->dir->index, record->id, next, blocks, 64);
		for (int i = 0; i < n; i++) {
			uint64_t start = blocks[i].block << record->block_shift;

			/* Beyond the file: a damaged record, by which nothing is punched. */
			if (blocks[i].block > record->size >> record->block_shift)
				return;
			if (start > at)
				fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
					  (off_t)(start - at));
			at = start + (1ULL << record->block_shift);
			next = blocks[i].block + 1;
		}
	} while (n > 0);
	if (!n && at < end)
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			  (off_t)(end - at));
}

/* Written, but not recorded when an earlier daemon was killed. */
static void collect_excess(struct collect *collect, int dir_fd, const char *name)
{
	/* Tails of blocks, and what the filesystem needs for itself. */
	uint64_t expected = collect->record.bytes + (collect->record.blocks + 32) * 4096;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    (uint64_t)st.st_blocks * 512 <= expected)
		return;
	/* With the lock, nobody can begin to use the file. */
	SCOPED_LOCK(&collect->store->lock);
	cleanup_close int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && !collect_in_use(collect))
		collect_punch(collect, fd);
}

void store_collect(struct store *store, struct store_dir *dir, unsigned int sub)
{
	struct collect collect = { .store = store, .dir = dir };
	struct dirent *entry;
	char path[16];
	DIR *list;
	int fd;

	snprintf(path, sizeof(path), "data/%02x", sub);
	fd = openat(dir->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = fd < 0 ? NULL : fdopendir(fd);
	if (!list) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(list))) {
		char *end;
		uint64_t id;
		int err;

		if (entry->d_name[0] == '.')
			continue;
		id = strtoull(entry->d_name, &end, 16);
		/* Files of this start are not recorded yet. */
		if (*end || id >= dir->first_id)
			continue;
		err = index_file(dir->index, id, collect_found, &collect);
		if (!err)
			collect_excess(&collect, dirfd(list), entry->d_name);
		else if (err == -ENOENT)
			unlinkat(dirfd(list), entry->d_name, 0);
	}
	closedir(list);
}
