// SPDX-License-Identifier: MIT
#include "metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config.h"
#include "core.h"
#include "counters.h"
#include "kernel.h"
#include "origin.h"

struct metrics {
	struct core *core;
	struct kernel *kernel;
	struct MHD_Daemon *daemon;
};

/* A label's value: quotes, backslashes and line feeds escaped. */
static void metrics_label(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		if (*text == '\n')
			fputs("\\n", out);
		else
			fputc(*text, out);
	}
}

static void metrics_histogram(FILE *out, enum counter_wait wait)
{
	const char *name = counter_wait_name(wait);
	uint64_t total = 0;

	fprintf(out, "# HELP wfs_wait_%s_seconds %s\n# TYPE wfs_wait_%s_seconds histogram\n", name,
		counter_wait_help(wait), name);
	for (unsigned int i = 0; i < COUNTER_BUCKETS; i++) {
		double bound = counter_bound(i);

		total += counter_waits[wait].bucket[i];
		if (isinf(bound))
			fprintf(out, "wfs_wait_%s_seconds_bucket{le=\"+Inf\"} %llu\n", name,
				(unsigned long long)total);
		else
			fprintf(out, "wfs_wait_%s_seconds_bucket{le=\"%g\"} %llu\n", name, bound,
				(unsigned long long)total);
	}
	fprintf(out, "wfs_wait_%s_seconds_sum %.6f\nwfs_wait_%s_seconds_count %llu\n", name,
		(double)counter_waits[wait].sum_ns / 1e9, name, (unsigned long long)total);
}

struct metrics_origins {
	FILE *out;
	const char *what;
};

static void metrics_origin(void *arg, struct origin *origin)
{
	struct metrics_origins *origins = arg;
	FILE *out = origins->out;
	struct origin_counters c;
	const char *what = origins->what;

	origin_counters(origin, &c);
	for (unsigned int i = 0; i < (strcmp(what, "requests") ? 1 : ARRAY_SIZE(c.status_class));
	     i++) {
		fprintf(out, "wfs_origin_%s_total{origin=\"", what);
		metrics_label(out, origin_identity(origin));
		if (!strcmp(what, "requests"))
			fprintf(out, "\",status=\"%uxx\"} %llu\n", i,
				(unsigned long long)c.status_class[i]);
		else if (!strcmp(what, "bytes"))
			fprintf(out, "\"} %llu\n", (unsigned long long)c.bytes);
		else if (!strcmp(what, "errors"))
			fprintf(out, "\"} %llu\n", (unsigned long long)c.errors);
		else
			fprintf(out, "\"} %.6f\n", c.seconds);
	}
}

static void metrics_origins(FILE *out, struct core *core)
{
	static const char *const names[][2] = {
		{ "requests", "Requests by class of status, 0: no answer" },
		{ "bytes", "Object bytes" },
		{ "errors", "Requests that failed" },
		{ "seconds", "Time that requests took" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct metrics_origins origins = { out, names[i][0] };

		fprintf(out, "# HELP wfs_origin_%s_total %s\n# TYPE wfs_origin_%s_total counter\n",
			names[i][0], names[i][1], names[i][0]);
		core_each_origin(core, metrics_origin, &origins);
	}
}

static void metrics_kernel(FILE *out, struct kernel *kernel)
{
	struct kernel_counters c;
	uint64_t requests = 0, errors = 0;

	kernel_counters(kernel, &c);
	for (size_t i = 0; i < ARRAY_SIZE(c.requests); i++) {
		requests += c.requests[i];
		errors += c.errors[i];
	}
	fprintf(out,
		"# TYPE wfs_kernel_requests_total counter\nwfs_kernel_requests_total %llu\n"
		"# TYPE wfs_kernel_errors_total counter\nwfs_kernel_errors_total %llu\n"
		"# TYPE wfs_kernel_delivers_total counter\nwfs_kernel_delivers_total %llu\n"
		"# TYPE wfs_kernel_deliver_bytes_total counter\nwfs_kernel_deliver_bytes_total %llu\n"
		"# TYPE wfs_kernel_late_total counter\nwfs_kernel_late_total %llu\n"
		"# TYPE wfs_kernel_refused_total counter\nwfs_kernel_refused_total %llu\n"
		"# TYPE wfs_stale_names_total counter\nwfs_stale_names_total %llu\n"
		"# TYPE wfs_mounts gauge\nwfs_mounts %llu\n"
		"# TYPE wfs_nodes gauge\nwfs_nodes %llu\n",
		(unsigned long long)requests, (unsigned long long)errors,
		(unsigned long long)c.delivers, (unsigned long long)c.deliver_bytes,
		(unsigned long long)c.late, (unsigned long long)c.refused,
		(unsigned long long)c.stale_names, (unsigned long long)c.mounts,
		(unsigned long long)c.nodes);
}

static char *metrics_text(struct metrics *metrics, size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);

	if (!out)
		return NULL;
	for (unsigned int i = 0; i < COUNTER_MAX; i++) {
		const char *suffix = strcmp(counter_kind(i), "counter") ? "" : "_total";

		fprintf(out, "# HELP wfs_%s%s %s\n# TYPE wfs_%s%s %s\nwfs_%s%s %llu\n",
			counter_name(i), suffix, counter_help(i), counter_name(i), suffix,
			counter_kind(i), counter_name(i), suffix, (unsigned long long)counters[i]);
	}
	for (unsigned int i = 0; i < COUNTER_WAIT_MAX; i++)
		metrics_histogram(out, i);
	metrics_origins(out, metrics->core);
	if (metrics->kernel)
		metrics_kernel(out, metrics->kernel);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

static enum MHD_Result metrics_answer(void *arg, struct MHD_Connection *connection, const char *url,
				      const char *method, const char *version, const char *data,
				      size_t *data_size, void **state)
{
	struct MHD_Response *response;
	enum MHD_Result result;
	unsigned int status = MHD_HTTP_OK;
	size_t len = 0;
	char *text;

	(void)version;
	(void)data;
	(void)data_size;
	(void)state;
	if (strcmp(method, "GET"))
		return MHD_NO;
	if (!strcmp(url, "/metrics")) {
		text = metrics_text(arg, &len);
	} else {
		status = MHD_HTTP_NOT_FOUND;
		text = strdup("see /metrics\n");
		len = text ? strlen(text) : 0;
	}
	if (!text)
		return MHD_NO;
	response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

/* "127.0.0.1:9419", "[::1]:9419". */
static int metrics_address(const char *text, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	const char *colon = strrchr(text, ':');
	char host[64], *end;
	unsigned long port;

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (*end || end == colon + 1 || !port || port > 65535)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return 0;
	}
	if (host[0] != '[' || colon[-1] != ']')
		return -EINVAL;
	host[colon - text - 1] = '\0';
	if (inet_pton(AF_INET6, host + 1, &in6->sin6_addr) != 1)
		return -EINVAL;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	return 0;
}

int metrics_create(const struct config *config, struct core *core, struct kernel *kernel,
		   struct metrics **ret, char *msg, size_t msg_size)
{
	struct sockaddr_storage address;
	unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL;
	struct metrics *metrics;

	*ret = NULL;
	if (!*config->listen)
		return 0;
	if (metrics_address(config->listen, &address)) {
		snprintf(msg, msg_size, "[metrics] listen is not ADDRESS:PORT: %s", config->listen);
		return -EINVAL;
	}
	metrics = calloc(1, sizeof(*metrics));
	if (!metrics)
		return -ENOMEM;
	metrics->core = core;
	metrics->kernel = kernel;
	if (address.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	metrics->daemon = MHD_start_daemon(flags, 0, NULL, NULL, metrics_answer, metrics,
					   MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address,
					   MHD_OPTION_CONNECTION_LIMIT, 16u,
					   MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
	if (!metrics->daemon) {
		snprintf(msg, msg_size, "cannot serve metrics at %s: %s", config->listen,
			 strerror(errno));
		free(metrics);
		return -EADDRINUSE;
	}
	*ret = metrics;
	return 0;
}

void metrics_destroy(struct metrics *metrics)
{
	if (!metrics)
		return;
	MHD_stop_daemon(metrics->daemon);
	free(metrics);
}
