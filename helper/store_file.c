// SPDX-License-Identifier: MIT
/*
 * store_file: data files, one for each object version, and their descriptors.
 */
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

#include "faultpoint.h"
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

static struct store_file *store_file_alloc(struct store *store, struct store_source *source,
					   const struct store_key *key,
					   const struct index_hash *hash)
{
	size_t identity = strlen(key->identity) + 1, path = strlen(key->path) + 1;
	size_t version = strlen(key->version) + 1;
	struct store_file *file = calloc(1, sizeof(*file));
	char *text = malloc(identity + path + version);

	if (!file || !text || !source) {
		free(file);
		free(text);
		return NULL;
	}
	memcpy(text, key->identity, identity);
	memcpy(text + identity, key->path, path);
	memcpy(text + identity + path, key->version, version);
	file->store = store;
	file->source = source;
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
	free(file->touched);
	free(file->text);
	free(file);
}

/* store->lock held. */
static struct store_file *store_file_known(struct store *store, const struct store_key *key,
					   const struct index_hash *hash)
{
	struct store_file *file = store->files[hash->low % STORE_BUCKETS];

	for (; file; file = file->next)
		if (!file->dead && !file->dying && store_key_equal(&file->key, key)) {
			file->refs++;
			return file;
		}
	return NULL;
}

/* store->lock held. */
static void store_file_remove(struct store *store, struct store_file *file)
{
	struct store_file **link = &store->files[file->hash.low % STORE_BUCKETS];

	while (*link != file)
		link = &(*link)->next;
	*link = file->next;
	store->files_left++;
	if (file->fd >= 0)
		store->open_fds--;
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
	store_dir_give(file->dir->fd, path);
	/* Set first: writes that extend a file are done one at a time. */
	if (ftruncate(fd, store_file_size(&file->key))) {
		err = -errno;
		close(fd);
		unlinkat(file->dir->fd, path, 0);
		return err;
	}
	file->fd = fd;
	faultpoint(FAULT_CREATED);
	return 0;
}

static int store_file_reopen(struct store_file *file)
{
	struct stat st;
	char path[64];
	int fd;

	store_file_path(file->id, path, sizeof(path));
	fd = openat(file->dir->fd, path, O_RDWR | O_DIRECT | O_NOATIME | O_NOFOLLOW | O_CLOEXEC);
	/* Something else in its place. */
	if (fd < 0)
		return errno == ELOOP || errno == EISDIR || errno == EINVAL ? -EUCLEAN : -errno;
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

/* The directory with the most room; NULL: none can be used now. */
static struct store_dir *store_file_place(struct store *store)
{
	struct store_dir *best = NULL;
	uint64_t best_left = 0;

	SCOPED_LOCK(&store->lock);
	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_dir *dir = &store->dirs[i];
		uint64_t taken = dir->used + dir->reserved;
		uint64_t left = dir->capacity > taken ? dir->capacity - taken : 0;

		if (!dir->lost && !dir->rest_ns && (!best || left > best_left)) {
			best = dir;
			best_left = left;
		}
	}
	return best;
}

/* For the store's thread. Without memory the note is lost, which costs a moment's quality. */
static void store_note(struct store *store, struct store_dir *dir, uint64_t id, int64_t opened_s)
{
	struct store_note *note = calloc(1, sizeof(*note));

	if (!note)
		return;
	note->dir = dir;
	note->id = id;
	note->opened_s = opened_s;
	SCOPED_LOCK(&store->lock);
	note->next = store->notes;
	store->notes = note;
	if (!opened_s)
		pthread_cond_signal(&store->wake);
}

/*
 * 0: found and opened. -ENOENT: there is none. Another error: there may be one, but
 * what says so, or it, cannot be read now.
 */
static int store_file_find(struct store *store, struct store_file *file)
{
	int failed = -ENOENT;

	for (size_t i = 0; i < store->dir_count; i++) {
		struct store_found found = { &file->key, 0, 0 };
		struct store_dir *dir = &store->dirs[i];
		int fd, err = index_find(dir->index, &file->hash, store_found, &found);

		/* A directory that is lost has nothing; the others go on. */
		if (err == -ENOENT || err == -ENODEV)
			continue;
		if (err) {
			log_warn("cache %s: the index cannot be read: %s", dir->path,
				 strerror(-err));
			store_index_error(store, dir);
			/* What is damaged stays so: this object starts anew. */
			if (err != -EUCLEAN)
				failed = err;
			continue;
		}
		file->dir = dir;
		file->id = found.id;
		file->cached = found.bytes;
		file->named = true;
		fd = store_file_reopen(file);
		if (fd >= 0) {
			file->fd = fd;
			return 0;
		}
		log_warn("cache %s: data file %016" PRIx64 " cannot be used: %s", dir->path,
			 found.id, strerror(-fd));
		/* Gone or something else: what is recorded of it goes, this object starts anew. */
		if (fd == -ENOENT || fd == -EUCLEAN)
			store_note(store, dir, found.id, 0);
		else
			failed = fd;
	}
	return failed;
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

/* A new data file, in the first directory that takes it. */
static int store_file_make(struct store *store, struct store_file *file)
{
	struct store_dir *dir;
	int err = -ENOSPC;

	file->cached = 0;
	file->named = false;
	while ((dir = store_file_place(store))) {
		do {
			pthread_mutex_lock(&store->lock);
			file->dir = dir;
			file->id = dir->next_id++;
			pthread_mutex_unlock(&store->lock);
			err = store_file_create(file);
		} while (err == -EEXIST);
		/* The process's own want of descriptors is no fault of the disk's. */
		if (!err || err == -EMFILE || err == -ENFILE || err == -ENOMEM)
			break;
		SCOPED_LOCK(&store->lock);
		store_dir_rest(store, dir, err, "a data file cannot be made");
	}
	return err;
}

/* No lock held. What is recorded of it. */
static uint64_t store_file_bytes(const struct store_file *file)
{
	struct store_found found = { &file->key, 0, 0 };

	if (index_find(file->dir->index, &file->hash, store_found, &found) || found.id != file->id)
		return 0;
	return found.bytes;
}

/*
 * store->lock held. A file that was found may have lost its last block, and its name, since:
 * then it is nobody's any more.
 */
static bool store_file_still(struct store *store, struct store_file *file)
{
	const struct store_file *other = store->files[file->hash.low % STORE_BUCKETS];
	struct stat st;

	for (; other; other = other->next)
		if (other->dir == file->dir && other->id == file->id && !other->dead)
			return false;
	return !fstat(file->fd, &st) && st.st_nlink;
}

/* Puts the file into the table. NULL: it is there; else the one that came before, referenced. */
static struct store_file *store_file_settle(struct store *store, struct store_file *file,
					    bool *ret_lost)
{
	struct store_file *other;
	uint64_t left;

	SCOPED_LOCK(&store->lock);
	/*
	 * What is recorded of it is known exactly: whoever changes that has it in the table until
	 * it is changed. The index is not read with this lock held.
	 */
	do {
		left = store->files_left;
		pthread_mutex_unlock(&store->lock);
		file->cached = file->named ? store_file_bytes(file) : 0;
		pthread_mutex_lock(&store->lock);
	} while (file->named && left != store->files_left);
	*ret_lost = false;
	other = store_file_known(store, &file->key, &file->hash);
	if (other)
		return other;
	/* The directory may have been lost meanwhile, too. */
	*ret_lost = file->dir->lost || (file->named && !store_file_still(store, file));
	if (!*ret_lost)
		store_file_insert(store, file);
	return NULL;
}

/* Undoes store_file_find() or store_file_make(). */
static void store_file_let_go(struct store_file *file)
{
	char path[64];

	store_file_path(file->id, path, sizeof(path));
	if (!file->named)
		unlinkat(file->dir->fd, path, 0);
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

int store_file_open(struct store *store, const struct store_key *key, struct store_file **ret)
{
	struct index_hash hash = store_hash(key);
	struct store_file *file, *other = NULL;
	struct store_source *source;
	bool lost = true;
	int err;

	pthread_mutex_lock(&store->lock);
	file = store_file_known(store, key, &hash);
	source = store_source_get(store, key->identity);
	pthread_mutex_unlock(&store->lock);
	if (file) {
		*ret = file;
		return 0;
	}
	file = store_file_alloc(store, source, key, &hash);
	if (!file)
		return -ENOMEM;
	err = store_file_find(store, file);
	if (!err) {
		other = store_file_settle(store, file, &lost);
		if (other || lost)
			store_file_let_go(file);
	}
	if (err == -ENOENT || (!err && !other && lost)) {
		err = store_file_make(store, file);
		if (!err) {
			other = store_file_settle(store, file, &lost);
			if (other || lost)
				store_file_let_go(file);
			if (!other && lost)
				err = -ENODEV;
		}
	}
	if (err) {
		SCOPED_LOCK(&store->lock);
		store->homeless = true;
	}
	if (err || other)
		store_file_free(file);
	if (!err)
		*ret = other ? other : file;
	return err;
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
		if (file->dir == dir && file->id == record->id && !file->dead && !file->dying) {
			file->refs++;
			return file;
		}
	/*
	 * Not in use. (If another file of the same key is, this record is what is
	 * left of one that could not be opened.)
	 */
	file = store_file_alloc(store, store_source_get(store, key.identity), &key, &record->hash);
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
	char path[64];

	pthread_mutex_lock(&store->lock);
	if (--file->refs) {
		pthread_mutex_unlock(&store->lock);
		return;
	}
	/* Nothing is recorded of it: nobody will ask for it again. */
	file->dying = !file->cached && !file->dead;
	if (file->dying) {
		/* Stays in the table meanwhile, so that who has just found it notices. */
		pthread_mutex_unlock(&store->lock);
		store_file_path(file->id, path, sizeof(path));
		unlinkat(file->dir->fd, path, 0);
		faultpoint(FAULT_REMOVED);
		pthread_mutex_lock(&store->lock);
	}
	store_file_remove(store, file);
	pthread_mutex_unlock(&store->lock);
	store_file_free(file);
}

void store_files_die(struct store *store, const struct store_dir *dir)
{
	for (size_t i = 0; i < STORE_BUCKETS; i++)
		for (struct store_file *file = store->files[i]; file; file = file->next)
			if (file->dir == dir && !file->dying) {
				file->dead = true;
				store->homeless = true;
			}
}

bool store_file_dead(struct store_file *file)
{
	SCOPED_LOCK(&file->store->lock);

	return file->dead;
}

void store_file_opened(struct store_file *file)
{
	int64_t now = time(NULL);
	bool note;

	pthread_mutex_lock(&file->store->lock);
	note = file->cached && !file->dead && file->opened_s != now;
	file->opened_s = now;
	pthread_mutex_unlock(&file->store->lock);
	if (note)
		store_note(file->store, file->dir, file->id, now);
}

void store_file_used(struct store_file *file, uint64_t block)
{
	uint64_t words = (file->key.size >> file->key.block_shift) / 64 + 1;

	SCOPED_LOCK(&file->store->lock);
	if (!file->touched)
		file->touched = calloc(words, sizeof(*file->touched));
	if (file->touched && block / 64 < words)
		file->touched[block / 64] |= 1ULL << (block % 64);
}

bool store_file_touched(struct store_file *file, uint64_t block)
{
	uint64_t bit = 1ULL << (block % 64);
	bool touched = file->touched && (file->touched[block / 64] & bit);

	if (touched)
		file->touched[block / 64] &= ~bit;
	return touched;
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
