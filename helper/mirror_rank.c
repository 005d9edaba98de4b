// SPDX-License-Identifier: MIT
/*
 * mirror_rank: what is known of one place.
 */
#include "mirror_impl.h"

/* Weight of the newest figure in a smoothed one. */
#define RANK_NEW (1.0 / 8)
/* What is expected of a place that has never answered. */
#define RANK_FIRST_NS 10e6
/* Failures in a row, of a place that does answer, after which it rests. */
#define RANK_FAILURES 3
/* The first rest; each one after it is twice as long, up to the last. */
#define RANK_REST_MS	 1000u
#define RANK_REST_MAX_MS 60000u
/* TCP's window, in segments, after a loss that only a timer found. */
#define RANK_WINDOW_LOST 2

static void rank_smooth(double *figure, double sample)
{
	*figure += (sample - *figure) * RANK_NEW;
}

void mirror_rank_asked(struct mirror_rank *rank, uint64_t now)
{
	rank->asked_ns = now;
	rank->requests++;
	rank->in_flight++;
}

void mirror_rank_ended(struct mirror_rank *rank, uint64_t bytes)
{
	rank->in_flight--;
	rank->bytes += bytes;
}

void mirror_rank_answered(struct mirror_rank *rank, uint64_t bytes, uint64_t first_ns,
			  uint64_t took_ns)
{
	double byte_ns = bytes ? (double)(took_ns - first_ns) / (double)bytes : 0;

	if (!rank->answers++) {
		rank->first_ns = (double)first_ns;
		rank->byte_ns = byte_ns;
	}
	rank_smooth(&rank->first_ns, (double)first_ns);
	rank_smooth(&rank->byte_ns, byte_ns);
	rank_smooth(&rank->failing, 0);
	rank->failures = 0;
	rank->rests = 0;
	rank->down = false;
}

void mirror_rank_late(struct mirror_rank *rank, uint64_t waited_ns)
{
	/* It would have taken longer still: a sample only if it is worse than what is known. */
	if (!rank->answers++)
		rank->first_ns = (double)waited_ns > RANK_FIRST_NS ? (double)waited_ns :
								     RANK_FIRST_NS;
	else if ((double)waited_ns > rank->first_ns)
		rank_smooth(&rank->first_ns, (double)waited_ns);
}

static void rank_rest(struct mirror_rank *rank, uint64_t now, uint32_t least_ms)
{
	uint32_t ms = RANK_REST_MAX_MS;

	if (rank->rests < 6)
		ms = RANK_REST_MS << rank->rests;
	rank->rests++;
	if (ms > RANK_REST_MAX_MS)
		ms = RANK_REST_MAX_MS;
	if (ms < least_ms)
		ms = least_ms;
	rank->down = true;
	rank->rest_ns = now + ms * 1000000ULL;
}

bool mirror_rank_failed(struct mirror_rank *rank, uint64_t now, bool unreached,
			uint32_t retry_after_ms)
{
	rank->errors++;
	rank->failures++;
	rank_smooth(&rank->failing, 1);
	/* Others that were under way when it went say nothing new. */
	if (rank->down || (!unreached && rank->failures < RANK_FAILURES))
		return false;
	rank_rest(rank, now, retry_after_ms);
	return true;
}

bool mirror_rank_probe(struct mirror_rank *rank, uint64_t now)
{
	if (!rank->down || rank->probing || now < rank->rest_ns)
		return false;
	rank->probing = true;
	return true;
}

bool mirror_rank_probed(struct mirror_rank *rank, uint64_t now, bool answers)
{
	rank->probing = false;
	if (!rank->down)
		return false;
	if (!answers) {
		rank_rest(rank, now, 0);
		return false;
	}
	rank->down = false;
	rank->failures = 0;
	return true;
}

void mirror_rank_tcp(struct mirror_rank *rank, const struct mirror_tcp *tcp)
{
	if (tcp->lost >= rank->lost)
		rank_smooth(&rank->losses, (double)(tcp->lost - rank->lost));
	rank->lost = tcp->lost;
	rank->rtt_us = tcp->rtt_us;
	rank->window = tcp->window;
}

double mirror_rank_expect(const struct mirror_rank *rank, uint64_t len)
{
	double rtt_ns = (double)rank->rtt_us * 1000, ns;

	ns = rank->answers ? rank->first_ns : RANK_FIRST_NS;
	/* Nothing is there sooner than a round trip takes. */
	if (ns < rtt_ns)
		ns = rtt_ns;
	ns += rank->byte_ns * (double)len;
	/* Each loss costs a round trip at least. */
	ns += rank->losses * rtt_ns;
	if (rank->window && rank->window <= RANK_WINDOW_LOST)
		ns *= 2;
	/* What is under way there goes before; what failed is to be asked again elsewhere. */
	return ns * (double)(1 + rank->in_flight) * (1 + 4 * rank->failing);
}
