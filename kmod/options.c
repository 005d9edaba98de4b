// SPDX-License-Identifier: GPL-2.0-only
/*
 * options: what a mount is asked for.
 *
 * Options that only the helper needs are kept as they are; all of them together, in a
 * fixed order and with defaults filled in, are the text that tells mounts apart and
 * that the helper is sent.
 */
#include <linux/ctype.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/log2.h>
#include <linux/seq_buf.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "internal.h"

/* Those the module acts on. */
enum {
	OPT_BLOCK,
	OPT_TTL,
	OPT_NEGATIVE_TTL,
	OPT_STALE,
	OPT_TIMEOUT,
	OPT_NAME_TIMEOUT,
	OPT_VERIFY,
	OPT_HUGE,
	OPT_PREFETCH,
	OPT_READAHEAD,
	OPT_UID,
	OPT_GID,
	OPT_MODE,
	OPT_DMODE,
	OPT_HELPER,
};

/* Those passed on: endpoint and credentials by name, never secrets. */
static const char *const helper_keys[] = {
	"endpoint", "region", "profile", "anon", "ca", "mirror", "virtual_host",
};

static const struct fs_parameter_spec wfs_parameters[] = {
	fsparam_string("block", OPT_BLOCK),
	fsparam_string("ttl", OPT_TTL),
	fsparam_string("negative_ttl", OPT_NEGATIVE_TTL),
	fsparam_string("stale", OPT_STALE),
	fsparam_string("timeout", OPT_TIMEOUT),
	fsparam_string("name_timeout", OPT_NAME_TIMEOUT),
	fsparam_string("verify", OPT_VERIFY),
	fsparam_string("huge", OPT_HUGE),
	fsparam_string("prefetch", OPT_PREFETCH),
	fsparam_string("readahead", OPT_READAHEAD),
	fsparam_string("uid", OPT_UID),
	fsparam_string("gid", OPT_GID),
	fsparam_string("mode", OPT_MODE),
	fsparam_string("dmode", OPT_DMODE),
	fsparam_string("endpoint", OPT_HELPER),
	fsparam_string("region", OPT_HELPER),
	fsparam_string("profile", OPT_HELPER),
	fsparam_string("ca", OPT_HELPER),
	fsparam_string("mirror", OPT_HELPER),
	fsparam_string("anon", OPT_HELPER),
	fsparam_flag("anon", OPT_HELPER),
	fsparam_string("virtual_host", OPT_HELPER),
	fsparam_flag("virtual_host", OPT_HELPER),
	{}
};

struct context {
	struct wfs_options opts;
	char *helper[ARRAY_SIZE(helper_keys)];
};

static void set_defaults(struct wfs_options *opts)
{
	opts->block_shift = ilog2(WFS_BLOCK_DEFAULT);
	opts->ttl_ms = 60 * MSEC_PER_SEC;
	opts->negative_ttl_ms = 5 * MSEC_PER_SEC;
	opts->timeout_s = 100;
	opts->name_timeout_s = 30;
	opts->readahead = SZ_32M;
	opts->huge = WFS_HUGE_ALWAYS;
	opts->stale = true;
	opts->verify = true;
	opts->prefetch = true;
	opts->uid = GLOBAL_ROOT_UID;
	opts->gid = GLOBAL_ROOT_GID;
	opts->mode = 0444;
	opts->dmode = 0555;
}

/* A number of bytes with an optional K, M or G. */
static int parse_bytes(const char *s, u64 *ret)
{
	char *end;

	if (!isdigit(*s))
		return -EINVAL;
	*ret = memparse(s, &end);
	return *end ? -EINVAL : 0;
}

static int parse_ttl(struct fs_context *fc, const struct fs_parameter *param, u64 *ret_ms)
{
	unsigned int s;

	if (!strcmp(param->string, "never")) {
		*ret_ms = WFS_TTL_NEVER;
		return 0;
	}
	if (kstrtouint(param->string, 10, &s) || s > 365 * 86400)
		return invalf(fc, "wfs: %s=%s: give whole seconds, at most a year, or \"never\"",
			      param->key, param->string);
	*ret_ms = (u64)s * MSEC_PER_SEC;
	return 0;
}

static int parse_seconds(struct fs_context *fc, const struct fs_parameter *param, u32 min, u32 max,
			 u32 *ret)
{
	u32 s;

	if (kstrtou32(param->string, 10, &s) || s < min || s > max)
		return invalf(fc, "wfs: %s=%s: give whole seconds from %u to %u", param->key,
			      param->string, min, max);
	*ret = s;
	return 0;
}

static int parse_switch(struct fs_context *fc, const struct fs_parameter *param, const char *yes,
			const char *no, bool *ret)
{
	if (!strcmp(param->string, yes))
		*ret = true;
	else if (!strcmp(param->string, no))
		*ret = false;
	else
		return invalf(fc, "wfs: %s=%s: give \"%s\" or \"%s\"", param->key, param->string,
			      yes, no);
	return 0;
}

static int parse_block(struct fs_context *fc, const struct fs_parameter *param, u32 *ret_shift)
{
	u64 bytes;

	if (parse_bytes(param->string, &bytes) || !is_power_of_2(bytes) || bytes < WFS_BLOCK_MIN ||
	    bytes > WFS_BLOCK_MAX)
		return invalf(fc, "wfs: block=%s: give a power of two from 64K to 64M",
			      param->string);
	*ret_shift = ilog2(bytes);
	return 0;
}

static int parse_id(struct fs_context *fc, const struct fs_parameter *param,
		    struct wfs_options *opts)
{
	u32 id;

	if (kstrtou32(param->string, 10, &id) || id == (u32)-1)
		return invalf(fc, "wfs: %s=%s: give a number", param->key, param->string);
	if (param->key[0] == 'u')
		opts->uid = make_kuid(&init_user_ns, id);
	else
		opts->gid = make_kgid(&init_user_ns, id);
	return 0;
}

static int parse_mode(struct fs_context *fc, const struct fs_parameter *param, umode_t *ret)
{
	u16 mode;

	if (kstrtou16(param->string, 8, &mode) || mode & ~0777)
		return invalf(fc, "wfs: %s=%s: give permissions in octal, at most 0777", param->key,
			      param->string);
	/* Nothing is writable, whatever the bits say. */
	*ret = mode;
	return 0;
}

static int parse_readahead(struct fs_context *fc, const struct fs_parameter *param, u64 *ret)
{
	u64 bytes;

	if (parse_bytes(param->string, &bytes) || bytes < SZ_128K || bytes > SZ_1G)
		return invalf(fc, "wfs: readahead=%s: give bytes from 128K to 1G", param->string);
	*ret = bytes;
	return 0;
}

/* A value must not look like another line of the text, nor like another option. */
static int keep_helper_option(struct fs_context *fc, const struct fs_parameter *param)
{
	struct context *ctx = fc->fs_private;
	const char *value = param->type == fs_value_is_string ? param->string : "on";
	const char *c;
	int i;

	for (c = value; *c; c++)
		if (iscntrl(*c))
			return invalf(fc, "wfs: %s: the value holds a control character",
				      param->key);
	for (i = 0; i < ARRAY_SIZE(helper_keys); i++) {
		char *copy;

		if (strcmp(param->key, helper_keys[i]))
			continue;
		copy = kstrdup(value, GFP_KERNEL);
		if (!copy)
			return -ENOMEM;
		kfree(ctx->helper[i]);
		ctx->helper[i] = copy;
		return 0;
	}
	return -ENOPARAM;
}

static int parse_source(struct fs_context *fc, struct fs_parameter *param)
{
	static const char *const schemes[] = { "s3://", "http://", "https://", "file:///" };
	const char *s = param->string, *rest = NULL, *c;
	int i;

	if (param->type != fs_value_is_string || !s)
		return invalf(fc, "wfs: the source must be a string");
	if (fc->source)
		return invalf(fc, "wfs: give one source");
	if (strlen(s) >= WFS_SOURCE_MAX)
		return invalf(fc, "wfs: the source is longer than %d bytes", WFS_SOURCE_MAX - 1);
	for (i = 0; i < ARRAY_SIZE(schemes); i++)
		if (!strncmp(s, schemes[i], strlen(schemes[i])))
			rest = s + strlen(schemes[i]);
	if (!rest || (!*rest && s[0] != 'f'))
		return invalf(fc, "wfs: source \"%s\": give s3://, http(s):// or file:///PATH", s);
	for (c = s; *c; c++)
		if (iscntrl(*c))
			return invalf(fc, "wfs: the source holds a control character");
	/* It is seen by everybody in /proc/mounts. */
	c = strpbrk(rest, "/?#@");
	if (c && *c == '@')
		return invalf(fc,
			      "wfs: the source holds a user name; put credentials into wfsd.conf");
	fc->source = param->string;
	param->string = NULL;
	return 0;
}

static int wfs_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct context *ctx = fc->fs_private;
	struct wfs_options *opts = &ctx->opts;
	struct fs_parse_result result;
	int opt;

	if (!strcmp(param->key, "source"))
		return parse_source(fc, param);
	opt = fs_parse(fc, wfs_parameters, param, &result);
	if (opt < 0)
		return opt;
	if (opt != OPT_HELPER && !*param->string)
		return invalf(fc, "wfs: %s= has no value", param->key);
	switch (opt) {
	case OPT_BLOCK:
		return parse_block(fc, param, &opts->block_shift);
	case OPT_TTL:
		return parse_ttl(fc, param, &opts->ttl_ms);
	case OPT_NEGATIVE_TTL:
		return parse_ttl(fc, param, &opts->negative_ttl_ms);
	case OPT_STALE:
		return parse_switch(fc, param, "on", "off", &opts->stale);
	case OPT_TIMEOUT:
		return parse_seconds(fc, param, 0, 86400, &opts->timeout_s);
	case OPT_NAME_TIMEOUT:
		/* Some of these waits are uninterruptible: below the hung-task limit. */
		return parse_seconds(fc, param, 1, 110, &opts->name_timeout_s);
	case OPT_VERIFY:
		return parse_switch(fc, param, "on", "off", &opts->verify);
	case OPT_HUGE:
		if (!strcmp(param->string, "always"))
			opts->huge = WFS_HUGE_ALWAYS;
		else if (!strcmp(param->string, "advise"))
			opts->huge = WFS_HUGE_ADVISE;
		else if (!strcmp(param->string, "never"))
			opts->huge = WFS_HUGE_NEVER;
		else
			return invalf(fc, "wfs: huge=%s: give \"always\", \"advise\" or \"never\"",
				      param->string);
		return 0;
	case OPT_PREFETCH:
		return parse_switch(fc, param, "auto", "off", &opts->prefetch);
	case OPT_READAHEAD:
		return parse_readahead(fc, param, &opts->readahead);
	case OPT_UID:
	case OPT_GID:
		return parse_id(fc, param, opts);
	case OPT_MODE:
		return parse_mode(fc, param, &opts->mode);
	case OPT_DMODE:
		return parse_mode(fc, param, &opts->dmode);
	case OPT_HELPER:
		return keep_helper_option(fc, param);
	}
	return -ENOPARAM;
}

static const char *const huge_names[] = { "always", "advise", "never" };

static void put_ttl(struct seq_buf *s, const char *key, u64 ms)
{
	if (ms == WFS_TTL_NEVER)
		seq_buf_printf(s, "%s=never\n", key);
	else
		seq_buf_printf(s, "%s=%llu\n", key, ms / MSEC_PER_SEC);
}

/* The canonical text of all options; NULL: no memory, or too long. */
static char *options_text(const struct context *ctx)
{
	const struct wfs_options *o = &ctx->opts;
	char *text = kmalloc(WFS_OPTIONS_MAX, GFP_KERNEL);
	struct seq_buf s;
	int i;

	if (!text)
		return NULL;
	seq_buf_init(&s, text, WFS_OPTIONS_MAX);
	seq_buf_printf(&s, "block=%u\n", 1U << o->block_shift);
	put_ttl(&s, "ttl", o->ttl_ms);
	put_ttl(&s, "negative_ttl", o->negative_ttl_ms);
	seq_buf_printf(&s,
		       "stale=%s\ntimeout=%u\nname_timeout=%u\nverify=%s\nhuge=%s\n"
		       "prefetch=%s\nreadahead=%llu\nuid=%u\ngid=%u\nmode=%04o\ndmode=%04o\n",
		       o->stale ? "on" : "off", o->timeout_s, o->name_timeout_s,
		       o->verify ? "on" : "off", huge_names[o->huge], o->prefetch ? "auto" : "off",
		       o->readahead, from_kuid(&init_user_ns, o->uid),
		       from_kgid(&init_user_ns, o->gid), o->mode, o->dmode);
	for (i = 0; i < ARRAY_SIZE(helper_keys); i++)
		if (ctx->helper[i])
			seq_buf_printf(&s, "%s=%s\n", helper_keys[i], ctx->helper[i]);
	if (seq_buf_has_overflowed(&s) || s.len >= WFS_OPTIONS_MAX) {
		kfree(text);
		return NULL;
	}
	text[s.len] = 0;
	return text;
}

/**
 * wfs_options_show() - the options in /proc/mounts
 * @m: where to
 * @wsb: the mount
 *
 * All but those the VFS shows; no option is a secret.
 */
int wfs_options_show(struct seq_file *m, const struct wfs_sb *wsb)
{
	const char *line = wsb->text, *end;

	while ((end = strchr(line, '\n'))) {
		seq_putc(m, ',');
		for (; line < end; line++) {
			/* As the kernel's own escaping of such values. */
			if (strchr(" \t\n\\,#", *line))
				seq_printf(m, "\\%03o", *line);
			else
				seq_putc(m, *line);
		}
		line = end + 1;
	}
	return 0;
}

static int wfs_get_tree_checked(struct fs_context *fc)
{
	struct context *ctx = fc->fs_private;
	char *text;

	if (!fc->source)
		return invalf(fc, "wfs: no source given");
	text = options_text(ctx);
	if (!text)
		return invalf(fc, "wfs: the options together are longer than %d bytes",
			      WFS_OPTIONS_MAX);
	return wfs_get_tree(fc, &ctx->opts, text);
}

static int wfs_reconfigure(struct fs_context *fc)
{
	struct wfs_sb *wsb = WFS_SB(fc->root->d_sb);
	char *text = options_text(fc->fs_private);
	bool same = text && !strcmp(text, wsb->text);

	kfree(text);
	if (!same)
		return invalf(fc, "wfs: options cannot be changed while mounted; unmount first");
	if (fc->sb_flags_mask & SB_RDONLY && !(fc->sb_flags & SB_RDONLY)) {
		errorf(fc, "wfs: is read-only and cannot be mounted for writing");
		return -EROFS;
	}
	fc->sb_flags |= SB_RDONLY;
	return 0;
}

static void wfs_free_fc(struct fs_context *fc)
{
	struct context *ctx = fc->fs_private;
	int i;

	if (!ctx)
		return;
	if (fc->s_fs_info)
		wfs_sb_put(fc->s_fs_info);
	for (i = 0; i < ARRAY_SIZE(helper_keys); i++)
		kfree(ctx->helper[i]);
	kfree(ctx);
}

static const struct fs_context_operations wfs_context_ops = {
	.parse_param = wfs_parse_param,
	.get_tree = wfs_get_tree_checked,
	.reconfigure = wfs_reconfigure,
	.free = wfs_free_fc,
};

/* A remount starts from what is set: the helper's options are in the text only. */
static int copy_helper_options(struct context *ctx, const char *text)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(helper_keys); i++) {
		size_t n = strlen(helper_keys[i]);
		const char *line;

		for (line = text; line && *line; line = strchr(line, '\n') + 1) {
			if (strncmp(line, helper_keys[i], n) || line[n] != '=')
				continue;
			line += n + 1;
			ctx->helper[i] = kstrndup(line, strcspn(line, "\n"), GFP_KERNEL);
			if (!ctx->helper[i])
				return -ENOMEM;
		}
	}
	return 0;
}

int wfs_init_fs_context(struct fs_context *fc)
{
	struct context *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	int err;

	if (!ctx)
		return -ENOMEM;
	set_defaults(&ctx->opts);
	fc->fs_private = ctx;
	fc->ops = &wfs_context_ops;
	if (fc->purpose == FS_CONTEXT_FOR_RECONFIGURE) {
		struct wfs_sb *wsb = WFS_SB(fc->root->d_sb);

		ctx->opts = wsb->opts;
		err = copy_helper_options(ctx, wsb->text);
		if (err) {
			wfs_free_fc(fc);
			fc->fs_private = NULL;
			return err;
		}
	}
	return 0;
}
