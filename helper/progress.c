// SPDX-License-Identifier: MIT
/*
 * progress: share, rate and remaining time, on a terminal only.
 */
#include <stdio.h>
#include <unistd.h>

#include "command.h"

static bool progress_shown;

void progress_show(uint64_t done, uint64_t total, double seconds)
{
	char done_text[32], total_text[32], rate_text[32];
	double rate = seconds > 0 ? (double)done / seconds : 0;

	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%3.0f %%  %s of %s  %s/s",
		total ? 100.0 * (double)done / (double)total : 100.0,
		human_bytes(done, done_text, sizeof(done_text)),
		human_bytes(total, total_text, sizeof(total_text)),
		human_bytes((uint64_t)rate, rate_text, sizeof(rate_text)));
	if (rate > 0 && done < total)
		fprintf(stderr, "  %.0f s left", (double)(total - done) / rate);
	fputs("\033[K", stderr);
	fflush(stderr);
	progress_shown = true;
}

void progress_end(void)
{
	if (progress_shown)
		fputc('\n', stderr);
	progress_shown = false;
}
