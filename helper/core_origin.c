// SPDX-License-Identifier: MIT
/*
 * core_origin: from a source, its options and the configuration to its origin.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "mirror.h"

static bool core_origin_flag(const char *value)
{
	return strcmp(value, "off") && strcmp(value, "no") && strcmp(value, "0") &&
	       strcmp(value, "false");
}

/* What the configuration says, conf being the section that speaks for it, or NULL. */
static struct origin_settings core_origin_settings(const struct core *core,
						   const struct config_source *conf)
{
	struct origin_settings settings = {
		.connect_timeout_ms = (long)core->config->connect_timeout_ms,
		.stall_timeout_ms = (long)core->config->stall_timeout_ms,
	};

	if (!conf)
		return settings;
	settings.endpoint = conf->endpoint;
	settings.region = conf->region;
	settings.profile = conf->profile;
	settings.access_key = conf->access_key;
	settings.secret_key = conf->secret_key;
	settings.session_token = conf->session_token;
	settings.anon = conf->anon;
	settings.virtual_host = conf->virtual_host;
	settings.ca = conf->ca;
	settings.proxy = conf->proxy;
	settings.bearer_file = conf->bearer_file;
	settings.headers = (const char *const *)conf->headers;
	return settings;
}

static void core_origin_options(struct origin_settings *settings, char *const *values)
{
	if (values[CORE_ENDPOINT])
		settings->endpoint = values[CORE_ENDPOINT];
	if (values[CORE_REGION])
		settings->region = values[CORE_REGION];
	if (values[CORE_PROFILE]) {
		/* The mount names whose credentials count: those of the section do not. */
		settings->profile = values[CORE_PROFILE];
		settings->access_key = NULL;
		settings->secret_key = NULL;
		settings->session_token = NULL;
		settings->anon = false;
	}
	if (values[CORE_ANON])
		settings->anon = core_origin_flag(values[CORE_ANON]);
	if (values[CORE_CA])
		settings->ca = values[CORE_CA];
	if (values[CORE_VIRTUAL_HOST])
		settings->virtual_host = core_origin_flag(values[CORE_VIRTUAL_HOST]);
}

/*
 * One mirror. Its settings are those of its own section: whoever names it in an option gets
 * none of the source's credentials sent there.
 */
static int core_origin_mirror(const struct core *core, const char *source, const char *url,
			      const struct origin_settings *first, struct origin **ret, char *msg,
			      size_t msg_size)
{
	const struct config_source *conf = config_source(core->config, url);
	struct origin_settings settings = core_origin_settings(core, conf);

	if (!mirror_is_endpoint(source, url))
		return origin_create(url, &settings, ret, msg, msg_size);
	settings.endpoint = url;
	if (!settings.region)
		settings.region = first->region;
	settings.virtual_host = settings.virtual_host || first->virtual_host;
	/* Nor those of the daemon's environment, which are meant for the source's service. */
	if (!conf)
		settings.anon = true;
	return origin_create(source, &settings, ret, msg, msg_size);
}

static int core_origin_join(const struct core *core, const char *source,
			    const struct mirror_list *list, const struct origin_settings *first,
			    struct origin *origin, struct origin **ret, char *msg, size_t msg_size)
{
	struct mirror_place places[MIRROR_PLACES] = { { origin, source } };
	unsigned int count = 1;
	int err = 0;

	while (!err && count <= list->count) {
		const char *url = list->urls[count - 1];
		char why[512] = "";

		err = core_origin_mirror(core, source, url, first, &places[count].origin, why,
					 sizeof(why));
		if (err) {
			snprintf(msg, msg_size, "mirror: %s", why);
			break;
		}
		places[count++].name = url;
	}
	if (!err)
		err = mirror_create(places, count, list->trust, ret);
	while (--count)
		origin_unref(places[count].origin);
	return err;
}

int core_origin_create(struct core *core, const char *source, char *const *values,
		       struct origin **ret, char *msg, size_t msg_size)
{
	const struct config_source *conf = config_source(core->config, source);
	struct origin_settings settings = core_origin_settings(core, conf);
	const char *mirrors = conf ? conf->mirror : NULL, *base = conf ? conf->prefix : NULL;
	struct mirror_list list;
	struct origin *origin;
	int err;

	core_origin_options(&settings, values);
	if (values[CORE_MIRROR]) {
		mirrors = values[CORE_MIRROR];
		base = NULL;
	}
	err = origin_create(source, &settings, &origin, msg, msg_size);
	if (err)
		return err;
	if (!mirrors || !strcmp(mirrors, "none")) {
		*ret = origin;
		return 0;
	}
	err = mirror_list_parse(mirrors, source, base, &list, msg, msg_size);
	if (!err)
		err = core_origin_join(core, source, &list, &settings, origin, ret, msg, msg_size);
	mirror_list_free(&list);
	origin_unref(origin);
	return err;
}
