// SPDX-License-Identifier: MIT
#include "metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "config.h"
#include "control.h"
#include "core.h"
#include "counters.h"
#include "kernel.h"
#include "origin.h"
#include "ratios.h"

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

/* Figures of one server, of all origins that use it. */
struct metrics_endpoint {
	char *name;
	struct endpoint_counters sum;
};

struct metrics_endpoints {
	struct metrics_endpoint *all;
	size_t count, size;
};

static struct metrics_endpoint *metrics_endpoint(struct metrics_endpoints *endpoints,
						 const char *name)
{
	struct metrics_endpoint *grown;
	char *copy;

	for (size_t i = 0; i < endpoints->count; i++)
		if (!strcmp(endpoints->all[i].name, name))
			return &endpoints->all[i];
	if (endpoints->count == endpoints->size) {
		size_t size = endpoints->size ? endpoints->size * 2 : 16;

		grown = reallocarray(endpoints->all, size, sizeof(*grown));
		if (!grown)
			return NULL;
		endpoints->all = grown;
		endpoints->size = size;
	}
	copy = strdup(name);
	if (!copy)
		return NULL;
	endpoints->all[endpoints->count] = (struct metrics_endpoint){ .name = copy };
	return &endpoints->all[endpoints->count++];
}

static void metrics_endpoint_add(void *arg, const char *name, const struct endpoint_counters *c)
{
	struct metrics_endpoint *endpoint = metrics_endpoint(arg, name);

	if (!endpoint)
		return;
	endpoint->sum.requests += c->requests;
	endpoint->sum.errors += c->errors;
	endpoint->sum.in_flight += c->in_flight;
	endpoint->sum.window = c->window;
	endpoint->sum.answers += c->answers;
	endpoint->sum.connections += c->connections;
	endpoint->sum.rtts += c->rtts;
	endpoint->sum.retransmits += c->retransmits;
	endpoint->sum.out_of_order += c->out_of_order;
	endpoint->sum.latency_seconds += c->latency_seconds;
	endpoint->sum.rtt_seconds += c->rtt_seconds;
}

static void metrics_endpoints_of(void *arg, struct origin *origin)
{
	origin_endpoints(origin, metrics_endpoint_add, arg);
}

static void metrics_endpoint_value(FILE *out, const char *metric, const char *endpoint, int digits,
				   double value)
{
	fprintf(out, "wfs_endpoint_%s{endpoint=\"", metric);
	metrics_label(out, endpoint);
	fprintf(out, "\"} %.*f\n", digits, value);
}

static void metrics_endpoint_counts(FILE *out, const struct metrics_endpoints *endpoints)
{
	static const struct {
		const char *name, *kind, *help;
		size_t offset;
	} counts[] = {
		{ "requests_total", "counter", "Requests",
		  offsetof(struct endpoint_counters, requests) },
		{ "errors_total", "counter", "Requests that failed",
		  offsetof(struct endpoint_counters, errors) },
		{ "in_flight", "gauge", "Requests under way",
		  offsetof(struct endpoint_counters, in_flight) },
		{ "connections_total", "counter", "Connections made",
		  offsetof(struct endpoint_counters, connections) },
		{ "tcp_retransmits_total", "counter", "Segments sent again from here",
		  offsetof(struct endpoint_counters, retransmits) },
		{ "tcp_out_of_order_total", "counter", "Segments that came out of order",
		  offsetof(struct endpoint_counters, out_of_order) },
		{ "tcp_window_segments", "gauge",
		  "Congestion window of the connection that was looked at last",
		  offsetof(struct endpoint_counters, window) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		fprintf(out, "# HELP wfs_endpoint_%s %s\n# TYPE wfs_endpoint_%s %s\n",
			counts[i].name, counts[i].help, counts[i].name, counts[i].kind);
		for (size_t j = 0; j < endpoints->count; j++) {
			const char *sum = (const char *)&endpoints->all[j].sum;
			uint64_t value;

			memcpy(&value, sum + counts[i].offset, sizeof(value));
			metrics_endpoint_value(out, counts[i].name, endpoints->all[j].name, 0,
					       (double)value);
		}
	}
}

static void metrics_endpoints(FILE *out, struct core *core)
{
	struct metrics_endpoints endpoints = { 0 };

	core_each_origin(core, metrics_endpoints_of, &endpoints);
	metrics_endpoint_counts(out, &endpoints);
	fputs("# HELP wfs_endpoint_latency_seconds Time from a request to the first byte of its answer\n"
	      "# TYPE wfs_endpoint_latency_seconds summary\n",
	      out);
	for (size_t i = 0; i < endpoints.count; i++) {
		const struct metrics_endpoint *e = &endpoints.all[i];

		metrics_endpoint_value(out, "latency_seconds_sum", e->name, 6,
				       e->sum.latency_seconds);
		metrics_endpoint_value(out, "latency_seconds_count", e->name, 0,
				       (double)e->sum.answers);
	}
	fputs("# HELP wfs_endpoint_tcp_rtt_seconds Round trips as TCP measured them, looked at during transfers\n"
	      "# TYPE wfs_endpoint_tcp_rtt_seconds summary\n",
	      out);
	for (size_t i = 0; i < endpoints.count; i++) {
		const struct metrics_endpoint *e = &endpoints.all[i];

		metrics_endpoint_value(out, "tcp_rtt_seconds_sum", e->name, 6, e->sum.rtt_seconds);
		metrics_endpoint_value(out, "tcp_rtt_seconds_count", e->name, 0,
				       (double)e->sum.rtts);
		free(e->name);
	}
	free(endpoints.all);
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

/* The mounts that there are, with their counters. */
struct metrics_mount {
	uint64_t id;
	char *source;
	struct control_stats stats;
};

struct metrics_mounts {
	struct metrics_mount *mounts;
	size_t count, size;
};

static void metrics_mount_add(void *arg, const struct control_mount *mount)
{
	struct metrics_mounts *all = arg;
	char *source;

	if (all->count == all->size) {
		size_t size = all->size ? all->size * 2 : 16;
		struct metrics_mount *grown = reallocarray(all->mounts, size, sizeof(*grown));

		if (!grown)
			return;
		all->mounts = grown;
		all->size = size;
	}
	source = strdup(mount->source);
	if (source)
		all->mounts[all->count++] =
			(struct metrics_mount){ .id = mount->id, .source = source };
}

static void metrics_mount_values(FILE *out, const struct metrics_mounts *all, unsigned int stat)
{
	const char *name = control_stat_name(stat), *suffix, *kind;

	suffix = control_stat_rises(stat) ? "_total" : "";
	kind = control_stat_rises(stat) ? "counter" : "gauge";
	fprintf(out, "# HELP wfs_mount_%s%s %s\n# TYPE wfs_mount_%s%s %s\n", name, suffix,
		control_stat_help(stat), name, suffix, kind);
	for (size_t i = 0; i < all->count; i++) {
		fprintf(out, "wfs_mount_%s%s{mount=\"%llu\",source=\"", name, suffix,
			(unsigned long long)all->mounts[i].id);
		metrics_label(out, all->mounts[i].source);
		fprintf(out, "\"} %llu\n", (unsigned long long)all->mounts[i].stats.values[stat]);
	}
}

/* Sources hold no secret: those that do are refused when they are mounted. */
static void metrics_mounts(FILE *out, struct control *control)
{
	struct metrics_mounts all = { 0 };
	size_t kept = 0;

	control_mounts(control, metrics_mount_add, &all);
	for (size_t i = 0; i < all.count; i++) {
		/* Unmounted since then. */
		if (control_stats(control, all.mounts[i].id, &all.mounts[i].stats))
			free(all.mounts[i].source);
		else
			all.mounts[kept++] = all.mounts[i];
	}
	all.count = kept;
	for (unsigned int i = 0; all.count && i < WFS_STAT_MAX; i++)
		/* Sessions are the module's. */
		if (i != WFS_STAT_SESSIONS)
			metrics_mount_values(out, &all, i);
	for (size_t i = 0; i < all.count; i++)
		free(all.mounts[i].source);
	free(all.mounts);
}

/* What the kernel module counts, of all mounts that there were and of each that there is. */
static bool metrics_module(FILE *out, struct control_stats *ret)
{
	struct control *control;
	int err = control_open(&control);

	if (err)
		return false;
	err = control_stats(control, 0, ret);
	for (unsigned int i = 0; !err && i < WFS_STAT_MAX; i++) {
		const char *name = control_stat_name(i);
		const char *suffix = control_stat_rises(i) ? "_total" : "";

		fprintf(out, "# HELP wfs_module_%s%s %s\n# TYPE wfs_module_%s%s %s\n", name, suffix,
			control_stat_help(i), name, suffix,
			control_stat_rises(i) ? "counter" : "gauge");
		fprintf(out, "wfs_module_%s%s %llu\n", name, suffix,
			(unsigned long long)ret->values[i]);
	}
	if (!err)
		metrics_mounts(out, control);
	control_close(control);
	return !err;
}

static void metrics_ratios(FILE *out, const struct control_stats *module)
{
	const char *name, *help;
	struct ratios ratios;
	double value;

	ratios_now(module, &ratios);
	for (unsigned int i = 0; ratios_nth(&ratios, i, &name, &help, &value); i++)
		fprintf(out, "# HELP wfs_%s %s\n# TYPE wfs_%s gauge\nwfs_%s %.6f\n", name, help,
			name, name, value);
}

static char *metrics_text(struct metrics *metrics, size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);
	struct control_stats module;
	bool there = false;

	if (!out)
		return NULL;
	counters_measure();
	for (unsigned int i = 0; i < COUNTER_MAX; i++) {
		const char *suffix = strcmp(counter_kind(i), "counter") ? "" : "_total";

		fprintf(out, "# HELP wfs_%s%s %s\n# TYPE wfs_%s%s %s\nwfs_%s%s %llu\n",
			counter_name(i), suffix, counter_help(i), counter_name(i), suffix,
			counter_kind(i), counter_name(i), suffix, (unsigned long long)counters[i]);
	}
	for (unsigned int i = 0; i < COUNTER_WAIT_MAX; i++)
		metrics_histogram(out, i);
	metrics_origins(out, metrics->core);
	metrics_endpoints(out, metrics->core);
	if (metrics->kernel) {
		metrics_kernel(out, metrics->kernel);
		there = metrics_module(out, &module);
	}
	metrics_ratios(out, there ? &module : NULL);
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

/* By ourselves: of what keeps it from being served the library says nothing. */
static int metrics_listen(const struct sockaddr_storage *address, int *ret_fd)
{
	bool six = address->ss_family == AF_INET6;
	socklen_t len = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;

	if (fd < 0)
		return -errno;
	/* Connections of a daemon before this one may linger. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    (six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on))) ||
	    bind(fd, (const struct sockaddr *)address, len) || listen(fd, SOMAXCONN)) {
		int err = -errno;

		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

static const char *metrics_advice(int error)
{
	switch (error) {
	case -EADDRINUSE:
		return "; another process listens there: stop it or change [metrics] listen";
	case -EADDRNOTAVAIL:
		return "; this machine has no such address: change [metrics] listen";
	case -EACCES:
		return "; ports below 1024 are not for everybody: choose another one in [metrics] listen";
	default:
		return "";
	}
}

int metrics_create(const struct config *config, struct core *core, struct kernel *kernel,
		   struct metrics **ret, char *msg, size_t msg_size)
{
	struct sockaddr_storage address;
	unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL;
	struct metrics *metrics;
	int fd = -1, err;

	*ret = NULL;
	if (!*config->listen)
		return 0;
	if (metrics_address(config->listen, &address)) {
		snprintf(msg, msg_size, "[metrics] listen is not ADDRESS:PORT: %s", config->listen);
		return -EINVAL;
	}
	err = metrics_listen(&address, &fd);
	if (err) {
		snprintf(msg, msg_size, "cannot serve metrics at %s: %s%s", config->listen,
			 strerror(-err), metrics_advice(err));
		return err;
	}
	metrics = calloc(1, sizeof(*metrics));
	if (!metrics) {
		close(fd);
		return -ENOMEM;
	}
	metrics->core = core;
	metrics->kernel = kernel;
	if (address.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	/* Takes the descriptor. */
	metrics->daemon = MHD_start_daemon(flags, 0, NULL, NULL, metrics_answer, metrics,
					   MHD_OPTION_LISTEN_SOCKET, fd,
					   MHD_OPTION_CONNECTION_LIMIT, 16u,
					   MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
	if (!metrics->daemon) {
		snprintf(msg, msg_size, "cannot serve metrics at %s: its thread cannot be started",
			 config->listen);
		free(metrics);
		return -EAGAIN;
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
