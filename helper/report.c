// SPDX-License-Identifier: MIT
/*
 * report: the daemon's counters as JSON, for `wfs stat`.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "control.h"
#include "counters.h"
#include "mirror.h"
#include "origin.h"
#include "ratios.h"
#include "server_impl.h"
#include "store.h"
#include "usage.h"
#include "version.h"

static json_t *report_counters(void)
{
	json_t *all = json_object();

	counters_measure();
	for (unsigned int i = 0; i < COUNTER_MAX; i++)
		json_object_set_new(all, counter_name(i), json_integer((json_int_t)counters[i]));
	return all;
}

static json_t *report_waits(void)
{
	json_t *all = json_object();

	for (unsigned int i = 0; i < COUNTER_WAIT_MAX; i++) {
		json_t *buckets = json_array();
		uint64_t count = 0;

		for (unsigned int j = 0; j < COUNTER_BUCKETS; j++) {
			double bound = counter_bound(j);

			count += counter_waits[i].bucket[j];
			json_array_append_new(buckets,
					      json_pack("{s:o, s:I}", "upto",
							isinf(bound) ? json_null() :
								       json_real(bound),
							"count",
							(json_int_t)counter_waits[i].bucket[j]));
		}
		json_object_set_new(all, counter_wait_name(i),
				    json_pack("{s:I, s:f, s:o}", "count", (json_int_t)count,
					      "seconds", (double)counter_waits[i].sum_ns / 1e9,
					      "buckets", buckets));
	}
	return all;
}

static void report_endpoint(void *arg, const char *name, const struct endpoint_counters *c)
{
	json_array_append_new(arg,
			      json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I}",
					"endpoint", name, "requests", (json_int_t)c->requests,
					"errors", (json_int_t)c->errors, "in_flight",
					(json_int_t)c->in_flight, "connections",
					(json_int_t)c->connections, "latency",
					c->answers ? c->latency_seconds / (double)c->answers : 0.0,
					"tcp_rtt", c->rtts ? c->rtt_seconds / (double)c->rtts : 0.0,
					"tcp_rtt_last", c->last_rtt_seconds, "tcp_retransmits",
					(json_int_t)c->retransmits, "tcp_out_of_order",
					(json_int_t)c->out_of_order, "tcp_window",
					(json_int_t)c->window));
}

static void report_mirror(void *arg, const char *name, const struct mirror_counters *c,
			  const char *why)
{
	json_array_append_new(arg,
			      json_pack("{s:s, s:b, s:I, s:I, s:s?, s:I, s:I, s:I, s:I, s:f, s:f}",
					"mirror", name, "resting", (int)c->resting, "joined",
					(json_int_t)c->joined, "refused", (json_int_t)c->refused,
					"why", why, "requests", (json_int_t)c->requests, "bytes",
					(json_int_t)c->bytes, "errors", (json_int_t)c->errors,
					"in_flight", (json_int_t)c->in_flight, "latency",
					c->latency_seconds, "tcp_rtt", c->rtt_seconds));
}

static void report_origin(void *arg, struct origin *origin)
{
	struct origin_credentials credentials;
	struct origin_counters c;
	json_t *list = arg, *classes = json_array(), *endpoints = json_array();
	json_t *mirrors = json_array();

	origin_credentials(origin, &credentials);
	origin_counters(origin, &c);
	origin_endpoints(origin, report_endpoint, endpoints);
	mirror_each(origin, report_mirror, mirrors);
	for (unsigned int i = 0; i < 6; i++)
		json_array_append_new(classes, json_integer((json_int_t)c.status_class[i]));
	json_array_append_new(list,
			      json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o}",
					"origin", origin_identity(origin), "credentials",
					credentials.source, "credentials_expire",
					credentials.expires ? json_integer(credentials.expires) :
							      json_null(),
					"requests", (json_int_t)c.requests, "bytes",
					(json_int_t)c.bytes, "errors", (json_int_t)c.errors,
					"seconds", c.seconds, "latency",
					c.requests ? c.seconds / (double)c.requests : 0.0,
					"status_class", classes, "endpoints", endpoints, "mirrors",
					mirrors));
}

static void report_dir(void *arg, const struct store_dir_info *info)
{
	json_array_append_new(arg,
			      json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}", "dir", info->path,
					"capacity", (json_int_t)info->capacity, "used",
					(json_int_t)info->used, "files", (json_int_t)info->files,
					"index_bytes", (json_int_t)info->index_bytes, "failed",
					(int)info->failed));
}

static json_t *report_module(const struct control_stats *stats)
{
	json_t *all = json_object();

	for (unsigned int i = 0; i < WFS_STAT_MAX; i++)
		json_object_set_new(all, control_stat_name(i),
				    json_integer((json_int_t)stats->values[i]));
	json_object_set_new(all, "helper", json_integer(stats->helper));
	json_object_set_new(all, "session", json_integer((json_int_t)stats->session));
	return all;
}

static json_t *report_ratios(const struct control_stats *module)
{
	json_t *all = json_object();
	const char *name, *help;
	struct ratios ratios;
	double value;

	ratios_now(module, &ratios);
	for (unsigned int i = 0; ratios_nth(&ratios, i, &name, &help, &value); i++)
		json_object_set_new(all, name, json_real(value));
	return all;
}

/* The module's counters, if it is there and the daemon serves it. */
static bool report_ask_module(struct kernel *kernel, struct control_stats *ret)
{
	struct control *control;
	int err;

	if (!kernel || control_open(&control))
		return false;
	err = control_stats(control, 0, ret);
	control_close(control);
	return !err;
}

static json_t *report_kernel(struct kernel *kernel)
{
	struct kernel_counters c;
	json_t *requests = json_array(), *errors = json_array();

	kernel_counters(kernel, &c);
	for (unsigned int i = 0; i < 16; i++) {
		json_array_append_new(requests, json_integer((json_int_t)c.requests[i]));
		json_array_append_new(errors, json_integer((json_int_t)c.errors[i]));
	}
	return json_pack("{s:I, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "session",
			 (json_int_t)kernel_session(kernel), "transport", kernel_transport(kernel),
			 "requests", requests, "errors", errors, "late", (json_int_t)c.late,
			 "refused", (json_int_t)c.refused, "delivers", (json_int_t)c.delivers,
			 "deliver_bytes", (json_int_t)c.deliver_bytes, "stale_names",
			 (json_int_t)c.stale_names, "mounts", (json_int_t)c.mounts, "nodes",
			 (json_int_t)c.nodes);
}

json_t *report_usage(struct core *core, struct origin *origin, const char *path,
		     const struct origin_attr *attr, uint32_t block_size)
{
	uint32_t shift = block_size ? (uint32_t)__builtin_ctz(block_size) : 0, hint;
	json_t *report, *buckets;
	struct usage usage = { 0 };

	if (!path)
		usage_of_origin(core, origin, shift, &usage);
	else if (usage_of_file(core, origin, path, attr, shift, &usage))
		return json_object();
	buckets = json_array();
	for (unsigned int i = 0; i < USAGE_BUCKETS; i++)
		json_array_append_new(buckets,
				      json_pack("{s:f, s:I}", "upto", 1.0 / (1u << i), "blocks",
						(json_int_t)usage.bucket[i].blocks));
	report = json_pack("{s:I, s:I, s:I, s:o}", "blocks", (json_int_t)usage.blocks, "fetched",
			   (json_int_t)usage.fetched, "asked", (json_int_t)usage.asked, "histogram",
			   buckets);
	hint = usage_hint(&usage, shift);
	if (hint)
		json_object_set_new(report, "hint_block_size", json_integer(hint));
	return report;
}

json_t *report_json(struct core *core, struct kernel *kernel)
{
	json_t *report = json_object(), *origins = json_array(), *dirs = json_array();

	struct control_stats module;
	bool there = report_ask_module(kernel, &module);

	core_each_origin(core, report_origin, origins);
	if (core_store(core))
		store_each_dir(core_store(core), report_dir, dirs);
	json_object_set_new(report, "version", json_string(WFS_VERSION));
	json_object_set_new(report, "pid", json_integer(getpid()));
	json_object_set_new(report, "counters", report_counters());
	json_object_set_new(report, "ratios", report_ratios(there ? &module : NULL));
	json_object_set_new(report, "waits", report_waits());
	json_object_set_new(report, "origins", origins);
	json_object_set_new(report, "cache", dirs);
	json_object_set_new(report, "kernel", kernel ? report_kernel(kernel) : json_null());
	json_object_set_new(report, "module", there ? report_module(&module) : json_null());
	return report;
}
