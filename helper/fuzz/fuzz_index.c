// SPDX-License-Identifier: MIT
/*
 * store_index: an index of two files, whose records are changed as the input says before
 * it is opened: what a disk, or somebody else, has made of it.
 */
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
/* Rather than linked: to open an index anew for each input takes a hundred times as long. */
#include "store_index.c"

#define CHANGES_MAX 16
#define FILES_MAX   8

enum { FILES, BLOCKS, ORDER, KEYS, META, SOURCES, PINS, DIGESTS, DATABASES };

static struct index_file files[] = {
	{ .id = 1,
	  .size = 300000,
	  .block_shift = 16,
	  .hash = { 1, 2 },
	  .identity = "http://h/ headers=none",
	  .path = "dir/file",
	  .version = "\"v1\"" },
	{ .id = 2,
	  .size = 10000000,
	  .block_shift = 22,
	  .hash = { 3, 4 },
	  .identity = "",
	  .path = "b",
	  .version = "" },
};

/* Written down once more, for comparison. */
static uint32_t units_of(const struct index_file *file, uint64_t block)
{
	uint64_t start = block << file->block_shift, len = file->size - start;

	if (start >= file->size)
		return 0;
	if (len > 1ULL << file->block_shift)
		len = 1ULL << file->block_shift;
	return (uint32_t)((len + 65535) >> 16);
}

static uint64_t length_of(const struct index_file *file, uint64_t block)
{
	uint64_t start = block << file->block_shift, len = file->size - start;

	return len > 1ULL << file->block_shift ? 1ULL << file->block_shift : len;
}

static uint64_t blocks_of(const struct index_file *file)
{
	return ((file->size - 1) >> file->block_shift) + 1;
}

struct put {
	const struct index_file *file;
	uint64_t block, first_sum;
};

static int put_block(struct index_txn *txn, void *arg)
{
	const struct put *put = arg;
	uint32_t units = units_of(put->file, put->block);
	cleanup_free uint64_t *sums = calloc(units, sizeof(*sums));
	bool new;

	sums[0] = put->first_sum;
	/* Every third is past probation at once. */
	return index_put_block(txn, put->file, put->block, length_of(put->file, put->block), sums,
			       units, put->block % 3 == 2, &new);
}

static int put_all(struct index_txn *txn, void *arg)
{
	int err = 0;

	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(files) && !err; i++)
		err = index_put_source(txn, files[i].identity, "http://h/", 1);
	if (!err)
		err = index_put_pin(txn, files[0].identity, files[0].path);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		for (uint64_t block = 0; block < blocks_of(&files[i]) && !err; block++)
			err = put_block(txn, &(struct put){ &files[i], block, block });
	if (!err)
		err = index_put_digests(txn, files[0].id, (const unsigned char *)"digests", 7);
	return err;
}

static char dir[64];
static struct index *index_used;

static MDB_dbi database(size_t number)
{
	const MDB_dbi dbis[DATABASES] = { index_used->files, index_used->blocks,
					  index_used->order, index_used->keys,
					  index_used->meta,  index_used->sources,
					  index_used->pins,  index_used->digests };

	return dbis[number];
}

/* What is open stays, whatever becomes of the target. */
static void remove_dir(void)
{
	static const char *const names[] = { "data.mdb", "lock.mdb" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

/* As if it were opened. */
static int set_up(void)
{
	index_used->seq = 0;
	index_used->files_count = 0;
	index_used->bytes_count = 0;
	index_used->young_bytes = 0;
	return index_update(index_used, index_setup, index_used);
}

/* The index as it is before it is changed; the first time, a new one. */
static void make_base(void)
{
	const char *where = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	char msg[256];
	MDB_txn *txn;

	if (!index_used) {
		snprintf(dir, sizeof(dir), "%s/wfs-fuzz-XXXXXX", where);
		if (!mkdtemp(dir))
			abort();
		for (size_t i = 0; i < ARRAY_SIZE(files); i++)
			files[i].source = index_hash_source(files[i].identity);
		fuzz_check(!index_open(dir, &index_used, msg, sizeof(msg)));
		remove_dir();
		fuzz_check(!mdb_env_set_flags(index_used->env, MDB_NOSYNC, 1));
	}
	if (mdb_txn_begin(index_used->env, NULL, 0, &txn))
		abort();
	for (size_t i = 0; i < DATABASES; i++)
		if (mdb_drop(txn, database(i), 0))
			abort();
	if (mdb_txn_commit(txn))
		abort();
	fuzz_check(!set_up());
	fuzz_check(!index_update(index_used, put_all, NULL));
}

/* The records, changed behind the index's back. */

static int find_record(MDB_cursor *cursor, unsigned int number, MDB_val *key, MDB_val *value)
{
	int rc = mdb_cursor_get(cursor, key, value, MDB_FIRST);

	while (!rc && number--)
		rc = mdb_cursor_get(cursor, key, value, MDB_NEXT);
	return rc;
}

static void put_raw(MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_len, const void *value,
		    size_t value_len)
{
	MDB_val k = { key_len, (void *)key }, v = { value_len, (void *)value };

	/* What LMDB itself refuses cannot be there. */
	mdb_put(txn, dbi, &k, &v, 0);
}

static void change_record(struct fuzz_input *input, MDB_txn *txn, MDB_dbi dbi, bool integer)
{
	unsigned int kind = fuzz_byte(input) % 6, number = fuzz_byte(input);
	unsigned int a = fuzz_byte(input), b = kind == 3 ? 0 : fuzz_byte(input);
	char key_copy[512], value_copy[1024] = { 0 };
	MDB_val key, value;
	MDB_cursor *cursor;
	size_t len;

	if (mdb_cursor_open(txn, dbi, &cursor))
		abort();
	if (kind == 4) {
		cleanup_free char *raw_key = fuzz_bytes(input, integer ? 8 : a % 64, &len);
		cleanup_free char *raw_value = fuzz_bytes(input, b, &value.mv_size);

		/* Numbers of another length are against LMDB's rules, not merely wrong. */
		if (!integer || len == 8)
			put_raw(txn, dbi, raw_key, len, raw_value, value.mv_size);
		mdb_cursor_close(cursor);
		return;
	}
	if (find_record(cursor, number % 16, &key, &value) || key.mv_size > sizeof(key_copy) ||
	    value.mv_size > sizeof(value_copy) - 256) {
		mdb_cursor_close(cursor);
		return;
	}
	len = value.mv_size;
	memcpy(key_copy, key.mv_data, key.mv_size);
	memcpy(value_copy, value.mv_data, len);
	key.mv_data = key_copy;
	switch (kind) {
	case 0:
		if (len)
			value_copy[a % len] = (char)b;
		break;
	case 1:
		len = len ? a % len : 0;
		break;
	case 2:
		memset(value_copy + len, (int)b, a);
		len += a;
		break;
	default:
		mdb_cursor_del(cursor, 0);
		break;
	}
	if (kind == 5)
		key_copy[a % key.mv_size] ^= (char)b;
	if (kind != 3)
		put_raw(txn, dbi, key_copy, key.mv_size, value_copy, len);
	mdb_cursor_close(cursor);
}

static void change_records(struct fuzz_input *input)
{
	MDB_txn *txn;

	if (mdb_txn_begin(index_used->env, NULL, 0, &txn))
		abort();
	for (unsigned int i = 0; i < CHANGES_MAX && input->left; i++) {
		size_t number = fuzz_byte(input) % DATABASES;

		change_record(input, txn, database(number),
			      number == FILES || number == ORDER || number == DIGESTS);
	}
	if (mdb_txn_commit(txn))
		abort();
}

/* What is found in it. */

struct found {
	struct index_file files[FILES_MAX];
	size_t count;
};

static int keep_file(void *arg, const struct index_file *file)
{
	struct found *found = arg;

	/* Whoever shifts by it, or makes a path of the strings, does not look again. */
	fuzz_check(file->block_shift >= 16 && file->block_shift <= 26);
	fuzz_check(file->size <= INT64_MAX && file->bytes <= file->size && file->opened_s >= 0);
	fuzz_check(file->path == file->identity + strlen(file->identity) + 1);
	fuzz_check(file->version == file->path + strlen(file->path) + 1);
	if (found->count < FILES_MAX) {
		found->files[found->count] = *file;
		/* Valid only while the transaction lasts. */
		found->files[found->count].identity = "i";
		found->files[found->count].path = "p";
		found->files[found->count++].version = "v";
	}
	return 0;
}

static uint32_t units_for(void *arg, uint64_t block)
{
	return units_of(arg, block);
}

static void check_map(struct index *index, const struct index_file *file, uint64_t first,
		      uint64_t count)
{
	uint64_t units = 0;
	cleanup_free uint64_t *bitmap = NULL, *sums = NULL;
	size_t got;

	for (uint64_t i = 0; i < count; i++)
		units += units_of(file, first + i);
	bitmap = calloc((count + 63) / 64, sizeof(*bitmap));
	sums = malloc(units * sizeof(*sums));
	if (index_map(index, file->id, first, count, units_for, (void *)file, bitmap, sums, &got))
		return;
	units = 0;
	for (uint64_t i = 0; i < count; i++)
		units += bitmap[i / 64] >> (i % 64) & 1 ? units_of(file, first + i) : 0;
	fuzz_check(units == got);
}

static void check_blocks(struct index *index, const struct index_file *file)
{
	uint64_t blocks = file->size ? blocks_of(file) : 0, next = 0;
	int n;

	for (uint64_t i = 0; i < blocks && i < 6; i++) {
		uint32_t units = units_of(file, i);
		cleanup_free uint64_t *sums = malloc(units * sizeof(*sums));

		fuzz_check(index_block(index, file->id, i, sums, units) <= 0);
	}
	if (blocks)
		check_map(index, file, 0, blocks < 70 ? blocks : 70);
	if (blocks > 3)
		check_map(index, file, 2, 2);
	do {
		cleanup_free struct index_block *list = calloc(2, sizeof(*list));

		n = index_file_blocks(index, file->id, next, list, 2);
		fuzz_check(n <= 2);
		for (int i = 0; i < n; i++) {
			fuzz_check(list[i].id == file->id && list[i].block >= next);
			fuzz_check(list[i].stored_s >= 0 && list[i].seen_s >= 0);
			next = list[i].block + 1;
		}
	} while (n > 0 && next);
}

/* seq: 0 or INDEX_MAIN, and what follows is of its kind. */
static size_t check_order(struct index *index, uint64_t seq, struct index_block *blocks, size_t max)
{
	uint64_t kind = seq;
	size_t used = 0;
	int n;

	do {
		cleanup_free struct index_block *list = calloc(3, sizeof(*list));

		n = index_oldest(index, seq, list, 3);
		fuzz_check(n <= 3);
		for (int i = 0; i < n; i++) {
			fuzz_check(list[i].seq > seq && !((list[i].seq ^ kind) & INDEX_MAIN));
			seq = list[i].seq;
			if (used < max)
				blocks[used++] = list[i];
		}
	} while (n > 0);
	return used;
}

static int rotate_block(struct index_txn *txn, void *arg)
{
	return index_rotate(txn, arg, 65536);
}

static int touch_file(struct index_txn *txn, void *arg)
{
	(void)arg;
	return index_touch(txn, 1, 77);
}

static int put_names(struct index_txn *txn, void *arg)
{
	int err = index_put_source(txn, files[0].identity, NULL, 2);

	(void)arg;
	if (!err)
		err = index_put_pin(txn, files[1].identity, files[1].path);
	if (!err)
		err = index_delete_pin(txn, files[0].identity, files[0].path);
	return err == -ENOENT ? 0 : err;
}

static int keep_source(void *arg, const struct index_source *source)
{
	(void)arg;
	fuzz_check(source->bytes <= INT64_MAX && source->mounted_s >= 0);
	fuzz_check(source->name == source->identity + strlen(source->identity) + 1);
	return strlen(source->name) > UINT16_MAX;
}

static int keep_pin(void *arg, const char *identity, const char *path)
{
	(void)arg;
	fuzz_check(path == identity + strlen(identity) + 1);
	return strlen(path) > 65536;
}

static int delete_block(struct index_txn *txn, void *arg)
{
	const struct index_block *block = arg;

	return index_delete_block(txn, block->id, block->block, 65536);
}

/* A block that is stored anew is there, whatever was there before. */
static void check_put(struct index *index, const struct index_file *file, uint64_t block)
{
	int err = index_update(index, put_block, &(struct put){ file, block, 77 });
	uint32_t units = units_of(file, block);
	uint64_t *sums = calloc(units, sizeof(*sums));

	if (!err) {
		fuzz_check(!index_block(index, file->id, block, sums, units));
		fuzz_check(sums[0] == 77);
	}
	free(sums);
}

static void use_index(struct index *index)
{
	struct found found = { .count = 0 };
	struct index_block blocks[16];
	struct index_totals totals;
	size_t count;

	index_each_source(index, keep_source, NULL);
	index_each_pin(index, keep_pin, NULL);
	fuzz_check(index_each_file(index, keep_file, &found) <= 0);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		index_find(index, &files[i].hash, keep_file, &found);
		index_file(index, files[i].id, keep_file, &found);
		check_blocks(index, &files[i]);
	}
	for (size_t i = 0; i < found.count; i++)
		check_blocks(index, &found.files[i]);
	count = check_order(index, 0, blocks, 8);
	count += check_order(index, INDEX_MAIN, blocks + count, 8);
	if (count)
		index_update(index, rotate_block, &blocks[0]);
	index_update(index, rotate_block, &(struct index_block){ .id = 1, .block = 2 });
	index_update(index, touch_file, NULL);
	/* Whatever was there before. */
	fuzz_check(!index_update(index, put_names, NULL));
	check_put(index, &files[0], 1);
	check_put(index, &files[1], 0);
	for (size_t i = 0; i < count; i++)
		index_update(index, delete_block, &blocks[i]);
	check_order(index, 0, blocks, ARRAY_SIZE(blocks));
	check_order(index, INDEX_MAIN, blocks, ARRAY_SIZE(blocks));
	/* None has wrapped. */
	index_totals(index, &totals);
	fuzz_check(totals.files < 1ULL << 63 && totals.bytes < UINT64_MAX - (1ULL << 62) &&
		   totals.young < UINT64_MAX - (1ULL << 62));
	found.count = 0;
	index_each_file(index, keep_file, &found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };

	make_base();
	change_records(&input);
	/* What is done when it is opened. */
	if (!set_up())
		use_index(index_used);
	return 0;
}
