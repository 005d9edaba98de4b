// SPDX-License-Identifier: MIT
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "counters.h"
#include "kept.h"
#include "parts.h"

#define LOG_AREA "check"
#include "log.h"

#define CHECK_ALIGN 4096

/* One object being read. */
struct check_pass {
	struct check *check;
	struct check_result *result;
	struct offers offers; /* to be compared */
	struct parts parts;   /* of those that are of parts */
	/* What the index has of them. */
	unsigned char stored[STORE_DIGESTS_MAX];
	size_t stored_len;
	/* NULL: no digest is wanted, or can come of it (any more). */
	struct digest_sum *sum;
	struct parts_sum *parts_sum;
	bool again; /* perhaps the parts are elsewhere */
	int error;  /* that ends it */
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
	if (pass->parts_sum && !pass->error)
		pass->error = parts_sum_add(pass->parts_sum, bytes, len);
	pass->check->progress(pass->check->arg);
	if (check_stopped(pass->check))
		pass->error = -ECANCELED;
	return pass->error;
}

static void check_no_sum(struct check_pass *pass)
{
	digest_sum_free(pass->sum);
	parts_sum_free(pass->parts_sum);
	pass->sum = NULL;
	pass->parts_sum = NULL;
}

static void check_damaged(struct check_pass *pass, struct store_file *file, uint64_t block)
{
	struct check *check = pass->check;
	char text[128];

	snprintf(text, sizeof(text), "block %llu in the cache failed its check",
		 (unsigned long long)block);
	log_warn("%s: %s and is dropped", pass->result->path, text);
	counter_add(blocks_corrupt, 1);
	store_tell(check->store, store_file_key(file)->identity, pass->result->path, "corrupt",
		   text);
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

static void check_compare(struct check_pass *pass, struct store_file *file)
{
	struct digest found[2][DIGEST_ALGOS]; /* of the bytes, of parts */
	struct check_result *result = pass->result;
	unsigned int have[2] = { 0 };

	for (unsigned int i = 0; i < pass->offers.count; i++) {
		const struct offer *offer = &pass->offers.of[i];
		const struct digest *said = &offer->digest;
		char found_text[DIGEST_TEXT], said_text[DIGEST_TEXT];
		bool in_parts = offer->parts;
		struct digest *mine = &found[in_parts][said->algo];

		if (!(have[in_parts] & 1U << said->algo))
			pass->error = in_parts ? parts_sum_end(pass->parts_sum, said->algo, mine) :
						 digest_sum_end(pass->sum, said->algo, mine);
		have[in_parts] |= 1U << said->algo;
		if (pass->error)
			return;
		if (digest_equal(mine, said))
			continue;
		if (in_parts && pass->parts.inferred) {
			pass->again = true;
			return;
		}
		result->digest = CHECK_WRONG;
		snprintf(result->message, sizeof(result->message),
			 "its %s have the %s digest %s, but %s says %s: its cached blocks were dropped",
			 in_parts ? "parts" : "bytes", digest_name(said->algo),
			 digest_text(mine, found_text), offers_from(offer->from),
			 digest_text(said, said_text));
		counter_add(digests_wrong, 1);
		log_warn("%s: %s", result->path, result->message);
		if (file)
			store_tell(pass->check->store, store_file_key(file)->identity, result->path,
				   "digest", result->message);
		if (file)
			check_drop(pass->check, file);
		return;
	}
	result->digest = CHECK_VERIFIED;
	counter_add(digests_verified, 1);
}

static int check_attr(const struct store_key *key, struct origin_attr *ret)
{
	size_t len = strlen(key->version);

	*ret = (struct origin_attr){ .mode = S_IFREG, .size = key->size };
	if (len >= sizeof(ret->version))
		return -ESTALE;
	memcpy(ret->version, key->version, len + 1);
	return 0;
}

/* One more that is said, if it is not said yet. */
static void check_add(struct offers *offers, const struct offer *offer)
{
	for (unsigned int i = 0; i < offers->count; i++)
		if (offers->of[i].parts == offer->parts &&
		    digest_equal(&offers->of[i].digest, &offer->digest))
			return;
	if (offers->count < OFFERS_MAX)
		offers->of[offers->count++] = *offer;
}

/* The origin could not be asked. */
static void check_unasked(struct check *check, struct check_result *result, int err,
			  const char *message)
{
	result->digest = CHECK_UNASKED;
	/* Not of each object anew for as long as an origin is given to answer. */
	check->silent = check->silent || err != -EACCES;
	if (!*check->unasked_message)
		snprintf(check->unasked_message, sizeof(check->unasked_message), "%s",
			 *message ? message : strerror(-err));
}

static int check_ask(struct check_pass *pass, struct origin *origin, const struct store_key *key,
		     char *msg, size_t msg_size)
{
	struct check *check = pass->check;
	struct origin_attr attr;
	int err = check_attr(key, &attr);

	if (check->silent)
		return -EIO;
	return err ? err :
		     ask_offers(check->connection->server->asker, origin, key->path, &attr,
				&pass->offers, msg, msg_size);
}

/* What is known of the digest: kept with the object, said by the origin, and given. */
static int check_offers(struct check_pass *pass, struct origin *origin, const struct store_key *key,
			struct store_file *file)
{
	struct check *check = pass->check;
	char msg[SERVER_MESSAGE] = "";
	struct parts kept_parts = { 0 };
	struct offers kept = { 0 };
	int err = -ENODATA;

	if (file && !store_digests(file, pass->stored, &pass->stored_len))
		kept_decode(pass->stored, pass->stored_len, key->size, &kept, &kept_parts);
	if (check->anew || !kept.count)
		err = check_ask(pass, origin, key, msg, sizeof(msg));
	if (err == -ECANCELED || err == -ENOMEM)
		return err;
	for (unsigned int i = 0; i < kept.count; i++)
		if (err || kept.of[i].from == OFFER_GIVEN)
			check_add(&pass->offers, &kept.of[i]);
	if (err && kept.count)
		pass->parts = kept_parts;
	else if (err && err != -ESTALE && err != -ENOENT)
		check_unasked(check, pass->result, err, msg);
	if (check->given)
		check_add(&pass->offers, &(struct offer){
						 .digest = *check->given,
						 .from = OFFER_GIVEN,
					 });
	return 0;
}

/* What was right is kept with the object. */
static void check_keep(struct check_pass *pass, struct store_file *file)
{
	unsigned char bytes[KEPT_MAX];
	size_t len = kept_encode(&pass->offers, &pass->parts, bytes);
	int err;

	if (!len || (len == pass->stored_len && !memcmp(bytes, pass->stored, len)))
		return;
	err = store_keep_digests(file, bytes, len);
	/* It may be on its way out; and it can be asked for again. */
	if (err && err != -ENOENT)
		log_warn("%s: its digest is not kept: %s", pass->result->path, strerror(-err));
}

struct check_asking {
	struct asker *asker;
	struct origin *origin;
	const struct store_key *key;
	struct origin_attr attr;
	char msg[SERVER_MESSAGE];
};

static int check_ask_part(void *arg, uint32_t number, uint64_t *ret_offset, uint64_t *ret_len,
			  uint32_t *ret_count)
{
	struct check_asking *asking = arg;
	struct origin_part part;
	int err = ask_part(asking->asker, asking->origin, asking->key->path, &asking->attr, number,
			   &part, asking->msg, sizeof(asking->msg));

	if (err)
		return err;
	*ret_offset = part.offset;
	*ret_len = part.len;
	*ret_count = part.count;
	return 0;
}

/* Leaves what is said of parts out, unless it is of so many; 0: in any case. */
static void check_leave_out(struct offers *offers, uint32_t parts)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < offers->count; i++)
		if (!offers->of[i].parts || offers->of[i].parts == parts)
			offers->of[kept++] = offers->of[i];
	offers->count = kept;
}

/* Where the parts are that something is said of. all: as parts_learn(). */
static int check_learn(struct check_pass *pass, struct origin *origin, const struct store_key *key,
		       bool all)
{
	struct check_asking asking = {
		.asker = pass->check->connection->server->asker,
		.origin = origin,
		.key = key,
	};
	struct check *check = pass->check;
	uint32_t count = 0;
	int err = 0;

	for (unsigned int i = 0; i < pass->offers.count && !count; i++)
		count = pass->offers.of[i].parts;
	/* Where they are was kept as well. */
	if (count && pass->parts.count == count && !all)
		return 0;
	parts_clear(&pass->parts);
	if (count) {
		err = check_attr(key, &asking.attr);
		if (!err)
			err = parts_learn(key->size, count, all, check_ask_part, &asking,
					  &pass->parts);
		if (err == -ECANCELED || err == -ENOMEM)
			return err;
		if (err == -EPROTO)
			snprintf(asking.msg, sizeof(asking.msg),
				 "what its origin tells of its parts does not add up");
		if (!*check->composite_message)
			snprintf(check->composite_message, sizeof(check->composite_message), "%s",
				 err && *asking.msg ? asking.msg :
				 err		    ? strerror(-err) :
						      "");
	} else if (pass->offers.composite && !*check->composite_message) {
		snprintf(check->composite_message, sizeof(check->composite_message),
			 "s3: the checksum does not say of how many parts it is");
	}
	check_leave_out(&pass->offers, err ? 0 : count);
	if (!pass->offers.count && pass->offers.composite)
		pass->result->digest = CHECK_COMPOSITE;
	return 0;
}

static int check_sums(struct check_pass *pass, const struct store_key *key)
{
	unsigned int algos = 0, of_parts = 0;
	int err = 0;

	for (unsigned int i = 0; i < pass->offers.count; i++)
		*(pass->offers.of[i].parts ? &of_parts : &algos) |=
			1U << pass->offers.of[i].digest.algo;
	if (algos)
		err = digest_sum_create(algos, &pass->sum);
	if (!err && of_parts)
		err = parts_sum_create(&pass->parts, key->size, of_parts, &pass->parts_sum);
	return err;
}

/* Reads it once, and compares. */
static int check_read(struct check_pass *pass, const struct store_key *key, struct store_file *file)
{
	int err = check_sums(pass, key);

	if (!err && file)
		err = check_blocks(pass, file);
	if (!err && !pass->sum && !pass->parts_sum && pass->offers.count)
		pass->result->digest = CHECK_PARTIAL;
	else if (!err && pass->offers.count)
		check_compare(pass, file);
	if (!err && file && pass->result->digest == CHECK_VERIFIED)
		check_keep(pass, file);
	check_no_sum(pass);
	return err ? err : pass->error;
}

static int check_file(struct check *check, struct origin *origin, const struct store_key *key,
		      struct store_file *file, struct check_result *result)
{
	struct check_pass pass = { .check = check, .result = result };
	int err = 0;

	if (file && store_file_cached(file) < key->size)
		result->digest = CHECK_PARTIAL;
	else
		err = check_offers(&pass, origin, key, file);
	if (!err)
		err = check_learn(&pass, origin, key, false);
	if (!err)
		err = check_read(&pass, key, file);
	if (!err && pass.again) {
		/* Before bytes are called wrong, each part is asked for. */
		check->done -= result->bytes;
		result->bytes = 0;
		err = check_learn(&pass, origin, key, true);
		if (!err)
			err = check_read(&pass, key, file);
	}
	parts_clear(&pass.parts);
	return err;
}

/* Its data file is not there: nor can anybody read it who opens it from now on. */
static void check_lost(struct check *check, struct store_file *file, uint64_t blocks,
		       struct check_result *result)
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
	/* Else the store, which has looked for it, tells. */
	if (next)
		store_tell(check->store, store_file_key(file)->identity, result->path, "corrupt",
			   result->message);
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
		check_lost(check, file, lost, ret);
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

static void check_say(struct check *check, const struct check_result *result)
{
	cleanup_free char *path = strdup(result->path);

	if (!path)
		return;
	server_printable(path);
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

static int check_why(json_t *result, const char *name, const char *message)
{
	cleanup_free char *why = strdup(message);

	if (!why)
		return -ENOMEM;
	server_printable(why);
	return !*why || !json_object_set_new(result, name, json_string(why)) ? 0 : -ENOMEM;
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
	int err = mine && !json_object_update(result, mine) ? 0 : -ENOMEM;

	json_decref(mine);
	if (!err)
		err = check_why(result, "unasked", check->unasked_message);
	if (!err)
		err = check_why(result, "composite", check->composite_message);
	return err;
}
