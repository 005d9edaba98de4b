// SPDX-License-Identifier: MIT
#include "ratios.h"

#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "control.h"
#include "counters.h"

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0.0;
}

void ratios_now(const struct control_stats *module, struct ratios *ret)
{
	static const struct control_stats none;
	const uint64_t *k = module ? module->values : none.values;
	uint64_t near = counter_get(served_held_requests) + counter_get(served_nvme_requests);
	uint64_t all = near + counter_get(served_origin_requests);
	uint64_t near_bytes = counter_get(served_held_bytes) + counter_get(served_nvme_bytes);
	uint64_t all_bytes = near_bytes + counter_get(served_origin_bytes);
	uint64_t local = k[WFS_STAT_SERVED_PAGES_READS] + k[WFS_STAT_SERVED_NVME_READS] +
			 k[WFS_STAT_NVME_FAULTS];
	uint64_t asked = k[WFS_STAT_SERVED_HELPER_READS] + k[WFS_STAT_HELPER_FAULTS];
	uint64_t local_bytes = k[WFS_STAT_SERVED_PAGES_BYTES] + k[WFS_STAT_NVME_BYTES];
	uint64_t asked_bytes = k[WFS_STAT_DELIVER_BYTES] + k[WFS_STAT_OFFER_BYTES];

	ret->request_hit = ratio((double)near, (double)all);
	if (local + asked)
		ret->request_hit = ratio((double)local + (double)asked * ret->request_hit,
					 (double)(local + asked));
	ret->byte_hit = ratio((double)near_bytes, (double)all_bytes);
	if (local_bytes + asked_bytes)
		ret->byte_hit = ratio((double)local_bytes + (double)asked_bytes * ret->byte_hit,
				      (double)(local_bytes + asked_bytes));
	ret->local = ratio((double)local, (double)(local + asked));
	ret->page_cache =
		ratio((double)k[WFS_STAT_SERVED_PAGES_BYTES], (double)k[WFS_STAT_READ_BYTES]);
}

bool ratios_nth(const struct ratios *ratios, unsigned int i, const char **ret_name,
		const char **ret_help, double *ret_value)
{
	const struct {
		const char *name, *help;
		double value;
	} all[] = {
		{ "request_hit_ratio", "Reads and faults that no origin was needed for, of all",
		  ratios->request_hit },
		{ "byte_hit_ratio", "Bytes that came from no origin, of all", ratios->byte_hit },
		{ "local_read_ratio",
		  "Reads and faults that the daemon brought nothing for, of all", ratios->local },
		{ "page_cache_byte_ratio",
		  "Bytes given by read that were in memory and read before", ratios->page_cache },
	};

	if (i >= ARRAY_SIZE(all))
		return false;
	*ret_name = all[i].name;
	*ret_help = all[i].help;
	*ret_value = all[i].value;
	return true;
}
