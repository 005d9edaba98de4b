// SPDX-License-Identifier: MIT
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "counters.h"

#define LOG_AREA "check"
#include "log.h"

#define CHECK_ALIGN 4096

/* One object being read. */
struct check_pass {
	struct check *check;
	struct check_result *result;
	struct digest_sum *sum; /* NULL: no digest can come of it (any more) */
	int error;		/* that ends it */
};

int check_begin(struct check *check, struct connection *connection, const struct digest *given)
{
	check->connection = connection;
	check->store = core_store(connection->server->core);
	check->given = given;
	check->buffer = aligned_alloc(CHECK_ALIGN, STORE_READ_BYTES);
	return check->buffer ? 0 : -ENOMEM;
}

void check_end(struct check *check)
{
	free(check->buffer);
}

bool check_stopped(const struct check *check)
{
	return check->connection->broken || check->connection->server->stopping;
}

static int check_piece(void *arg, const void *bytes, uint64_t len)
{
	struct check_pass *pass = arg;

	pass->result->bytes += len;
	pass->check->done += len;
	if (pass->sum)
		pass->error = digest_sum_add(pass->sum, bytes, len);
	pass->check->progress(pass->check->arg);
	if (check_stopped(pass->check))
		pass->error = -ECANCELED;
	return pass->error;
}

static void check_no_sum(struct check_pass *pass)
{
	digest_sum_free(pass->sum);
	pass->sum = NULL;
}

static void check_damaged(struct check_pass *pass, struct store_file *file, uint64_t block)
{
	struct check *check = pass->check;

	log_warn("%s: block %llu in the cache failed its check and is dropped", pass->result->path,
		 (unsigned long long)block);
	counter_add(blocks_corrupt, 1);
	store_forget(file, block);
	pass->result->damaged++;
	if (check->damaged)
		check->damaged(check->arg, block);
}

/* Reads what is recorded; the sum is there afterwards if that was all of the object. */
static int check_blocks(struct check_pass *pass, struct store_file *file)
{
	const struct store_key *key = store_file_key(file);
	uint64_t blocks = ((key->size - 1) >> key->block_shift) + 1, next = 0, block;
	int err;

	while (!(err = store_next_block(file, next, &block))) {
		if (block != next)
			check_no_sum(pass);
		next = block + 1;
		err = store_read_block(file, block, pass->check->buffer, check_piece, pass);
		if (pass->error)
			return pass->error;
		if (!err)
			continue;
		check_no_sum(pass);
		if (err == -EUCLEAN || err == -EIO)
			check_damaged(pass, file, block);
		else if (err != -ENOENT)
			return err;
	}
	if (err != -ENOENT)
		return err;
	if (next != blocks)
		check_no_sum(pass);
	return 0;
}

/* Drops all that is recorded of it, pinned or not. */
static void check_drop(struct check *check, struct store_file *file)
{
	const struct store_key *key = store_file_key(file);
	uint64_t gone, busy, pinned, next = 0, block;
	int err = store_evict(check->store, key->identity, key->path, &gone, &busy, &pinned);

	if (err)
		log_debug("%s: it is dropped block by block: %s", key->path, strerror(-err));
	while (!store_next_block(file, next, &block)) {
		store_forget(file, block);
		next = block + 1;
	}
}

static void check_compare(struct check_pass *pass, const struct offers *offers,
			  struct store_file *file)
{
	struct check_result *result = pass->result;
	struct digest found[DIGEST_ALGOS];
	unsigned int have = 0;

	for (unsigned int i = 0; i < offers->count; i++) {
		const struct digest *said = &offers->of[i].digest;
		char found_text[DIGEST_TEXT], said_text[DIGEST_TEXT];

		if (!(have & 1U << said->algo))
			pass->error = digest_sum_end(pass->sum, said->algo, &found[said->algo]);
		have |= 1U << said->algo;
		if (pass->error)
			return;
		if (digest_equal(&found[said->algo], said))
			continue;
		result->digest = CHECK_WRONG;
		snprintf(result->message, sizeof(result->message),
			 "its bytes have the %s digest %s, but %s says %s: its cached blocks were dropped",
			 digest_name(said->algo), digest_text(&found[said->algo], found_text),
			 offers->of[i].from, digest_text(said, said_text));
		counter_add(digests_wrong, 1);
		log_warn("%s: %s", result->path, result->message);
		if (file)
			check_drop(pass->check, file);
		return;
	}
	result->digest = CHECK_VERIFIED;
	counter_add(digests_verified, 1);
}

/* What is known of the digest. */
static int check_ask(struct check *check, struct origin *origin, const struct store_key *key,
		     struct check_result *result, struct offers *ret)
{
	struct origin_attr attr = { .mode = S_IFREG, .size = key->size };
	char msg[SERVER_MESSAGE] = "";
	size_t len = strlen(key->version);
	int err = -ESTALE;

	if (check->silent)
		err = -EIO;
	else if (len < sizeof(attr.version)) {
		memcpy(attr.version, key->version, len + 1);
		err = ask_offers(check->connection->server->asker, origin, key->path, &attr, ret,
				 msg, sizeof(msg));
	}
	if (err == -ECANCELED || err == -ENOMEM)
		return err;
	if (err && err != -ESTALE && err != -ENOENT) {
		result->digest = CHECK_UNASKED;
		/* Not of each object anew for as long as an origin is given to answer. */
		check->silent = check->silent || err != -EACCES;
		if (!*check->unasked_message)
			snprintf(check->unasked_message, sizeof(check->unasked_message), "%s",
				 *msg ? msg : strerror(-err));
	}
	if (check->given && ret->count < OFFERS_MAX)
		ret->of[ret->count++] = (struct offer){
			.digest = *check->given,
			.from = "the command line",
		};
	if (!ret->count && ret->composite)
		result->digest = CHECK_COMPOSITE;
	return 0;
}

static int check_file(struct check *check, struct origin *origin, const struct store_key *key,
		      struct store_file *file, struct check_result *result)
{
	struct check_pass pass = { .check = check, .result = result };
	struct offers offers = { 0 };
	unsigned int algos = 0;
	int err = 0;

	if (file && store_file_cached(file) < key->size)
		result->digest = CHECK_PARTIAL;
	else
		err = check_ask(check, origin, key, result, &offers);
	for (unsigned int i = 0; i < offers.count; i++)
		algos |= 1U << offers.of[i].digest.algo;
	if (!err && algos)
		err = digest_sum_create(algos, &pass.sum);
	if (!err && file)
		err = check_blocks(&pass, file);
	if (!err && pass.sum)
		check_compare(&pass, &offers, file);
	else if (!err && algos)
		result->digest = CHECK_PARTIAL;
	check_no_sum(&pass);
	return err ? err : pass.error;
}

/* Its data file is not there: nor can anybody read it who opens it from now on. */
static void check_lost(struct store_file *file, uint64_t blocks, struct check_result *result)
{
	uint64_t next = 0, block;

	/* Somebody may have had it open before. */
	while (!store_next_block(file, next, &block)) {
		counter_add(blocks_corrupt, 1);
		store_forget(file, block);
		next = block + 1;
	}
	result->damaged = blocks;
	result->digest = CHECK_PARTIAL;
	snprintf(result->message, sizeof(result->message),
		 "its data file in the cache is gone; its blocks were dropped");
	log_warn("%s: %s", result->path, result->message);
}

int check_object(struct check *check, struct origin *origin, const struct store_key *key,
		 uint64_t lost, struct check_result *ret)
{
	struct store_file *file = NULL;
	int err;

	*ret = (struct check_result){ .path = key->path };
	err = key->size ? store_file_open(check->store, key, &file) : 0;
	if (err)
		return err;
	if (lost)
		check_lost(file, lost, ret);
	else
		err = check_file(check, origin, key, file, ret);
	if (file)
		store_file_put(file);
	if (!err && ret->damaged && !*ret->message)
		snprintf(ret->message, sizeof(ret->message),
			 "%llu of its cached blocks were damaged and dropped",
			 (unsigned long long)ret->damaged);
	return err;
}

/* A name may be no UTF-8, or would break a line on a terminal. */
static void check_printable(char *text)
{
	json_t *json = json_string(text);

	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127 || (!json && (unsigned char)*c > 127))
			*c = '?';
	json_decref(json);
}

static void check_say(struct check *check, const struct check_result *result)
{
	cleanup_free char *path = strdup(result->path);

	if (!path)
		return;
	check_printable(path);
	server_send(check->connection,
		    json_pack("{s:{s:s, s:s}}", "bad", "path", path, "message", result->message));
}

void check_count(struct check *check, const struct check_result *result)
{
	check->files++;
	check->bytes += result->bytes;
	check->damaged_blocks += result->damaged;
	check->none += result->digest == CHECK_NONE;
	check->partial += result->digest == CHECK_PARTIAL;
	check->composite += result->digest == CHECK_COMPOSITE;
	check->unasked += result->digest == CHECK_UNASKED;
	check->verified += result->digest == CHECK_VERIFIED;
	check->wrong += result->digest == CHECK_WRONG;
	if (!*result->message)
		return;
	check->bad++;
	check_say(check, result);
}

int check_report(const struct check *check, json_t *result)
{
	json_t *digests = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "verified",
				    (json_int_t)check->verified, "wrong", (json_int_t)check->wrong,
				    "composite", (json_int_t)check->composite, "none",
				    (json_int_t)check->none, "partial", (json_int_t)check->partial,
				    "unasked", (json_int_t)check->unasked);
	json_t *mine = json_pack("{s:I, s:I, s:I, s:o}", "checked", (json_int_t)check->bytes,
				 "damaged", (json_int_t)check->damaged_blocks, "bad",
				 (json_int_t)check->bad, "digests", digests);
	cleanup_free char *why = strdup(check->unasked_message);
	int err = mine && why && !json_object_update(result, mine) ? 0 : -ENOMEM;

	json_decref(mine);
	if (!err && *why) {
		check_printable(why);
		json_object_set_new(result, "unasked", json_string(why));
	}
	return err;
}
