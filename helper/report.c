// SPDX-License-Identifier: MIT
/*
 * report: the daemon's counters as JSON, for `wfs stat`.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "counters.h"
#include "origin.h"
#include "server_impl.h"
#include "store.h"
#include "version.h"

static json_t *report_counters(void)
{
	json_t *all = json_object();

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

static void report_origin(void *arg, struct origin *origin)
{
	struct origin_counters c;
	json_t *list = arg, *classes = json_array();

	origin_counters(origin, &c);
	for (unsigned int i = 0; i < 6; i++)
		json_array_append_new(classes, json_integer((json_int_t)c.status_class[i]));
	json_array_append_new(list,
			      json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:o}", "origin",
					origin_identity(origin), "requests", (json_int_t)c.requests,
					"bytes", (json_int_t)c.bytes, "errors",
					(json_int_t)c.errors, "seconds", c.seconds, "latency",
					c.requests ? c.seconds / (double)c.requests : 0.0,
					"status_class", classes));
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

static double report_ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0.0;
}

/* Of what reaches the helper; the kernel counts what does not. */
static json_t *report_ratios(void)
{
	uint64_t held = counter_get(served_held_requests), nvme = counter_get(served_nvme_requests);
	uint64_t origin = counter_get(served_origin_requests);
	uint64_t local_bytes = counter_get(served_held_bytes) + counter_get(served_nvme_bytes);
	uint64_t all_bytes = local_bytes + counter_get(served_origin_bytes);

	return json_pack("{s:f, s:f}", "request_hit_ratio",
			 report_ratio(held + nvme, held + nvme + origin), "byte_hit_ratio",
			 report_ratio(local_bytes, all_bytes));
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

json_t *report_json(struct core *core, struct kernel *kernel)
{
	json_t *report = json_object(), *origins = json_array(), *dirs = json_array();

	core_each_origin(core, report_origin, origins);
	if (core_store(core))
		store_each_dir(core_store(core), report_dir, dirs);
	json_object_set_new(report, "version", json_string(WFS_VERSION));
	json_object_set_new(report, "pid", json_integer(getpid()));
	json_object_set_new(report, "counters", report_counters());
	json_object_set_new(report, "ratios", report_ratios());
	json_object_set_new(report, "waits", report_waits());
	json_object_set_new(report, "origins", origins);
	json_object_set_new(report, "cache", dirs);
	json_object_set_new(report, "kernel", kernel ? report_kernel(kernel) : json_null());
	return report;
}
