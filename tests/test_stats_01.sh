#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
# timeout: 240
#
# What is counted is what happened: where reads were served from, in wfs stat and at the
# metrics address; ratios, and the servers that were asked.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

size=1048576

# read_once FILE: by one call of read().
read_once() {
	dd if="$1" of="$tmp/copy" bs=$size count=1 status=none
	cmp "$tmp/copy" "$root/${1##*/}"
}

# take: the counters as they are now, kept in $tmp/before.
take() {
	wfs stat --json >"$tmp/now" && mv "$tmp/now" "$tmp/before"
}
# module NAME...: of the module's counters, since then.
module() {
	wfs stat --json | jq -r --slurpfile before "$tmp/before" \
		'. as $now | [$ARGS.positional[] as $n | $now.module[$n] - $before[0].module[$n]] | join(" ")' \
		--args "$@"
}
# ratios NAME...: in ten thousandths.
ratios() {
	wfs stat --json | jq -r '. as $now | [$ARGS.positional[] as $n | $now.ratios[$n] * 10000 | round] | join(" ")' \
		--args "$@"
}
# metrics SERIES...: at the metrics address.
metrics() {
	curl -sf http://127.0.0.1:9419/metrics >"$tmp/metrics"
	for series; do
		awk -v series="$series" '$1 == series { print $2 }' "$tmp/metrics"
	done | xargs
}
# served DESCRIPTION PAGES NVME HELPER: since take, so many reads and bytes from each place.
served() {
	is "$(module served_pages_reads served_pages_bytes served_nvme_reads served_nvme_bytes \
		served_helper_reads served_helper_bytes)" "$2 $3 $4" "$1: by place"
	is "$(module reads read_bytes)" "1 $size" "$1: one read of all bytes"
}

make_data "$root" one $size mapped $size
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M

# ---- reads ---------------------------------------------------------------------------

take
check "cold" read_once "$mnt/one"
served "cold" "0 0" "0 0" "1 $size"
is "$(module deliver_bytes fill_requests)" "$size 1" "cold: asked once, all delivered"
is "$(counter origin_bytes)" $size "cold: each byte once from the origin"
is "$(ratios request_hit_ratio byte_hit_ratio local_read_ratio)" "0 0 0" \
	"cold: no hits"
check "it is stored when sync returns" wfs sync "$mnt/one"
is "$(counter blocks_stored)" 1 "one block"

drop_pages
is "$(in_memory "$mnt/one")" 0 "no page is left"
take
check "from NVMe" read_once "$mnt/one"
served "from NVMe" "0 0" "1 $size" "0 0"
is "$(module nvme_bytes fill_requests)" "$size 0" "from NVMe: the daemon is not asked"
# Where the kernel has folios smaller than a unit, each unit is read by itself.
[[ $(uname -r) == 6.1.* ]] && most=16 || most=4
at_most "$(module nvme_reads)" "$most" "folios that follow each other are read at once: reads of the disk"

take
check "from the page cache" read_once "$mnt/one"
served "from the page cache" "1 $size" "0 0" "0 0"
is "$(module nvme_reads fill_requests)" "0 0" "from the page cache: nothing is asked"
is "$(ratios request_hit_ratio byte_hit_ratio local_read_ratio)" \
	"6667 6667 6667" "of three reads two did without the origin, and the daemon"
is "$(ratios page_cache_byte_ratio)" 3333 "and one without NVMe"
is "$(counter duplicate_fetches)" 0 "nothing is fetched twice"

# ---- the same at the metrics address ---------------------------------------------------

id=$(wfs stat --json "$mnt" | jq -r .mount)
by_mount="{mount=\"$id\",source=\"$nginx_url/\"}"
for place in pages nvme helper; do
	is "$(metrics "wfs_module_served_${place}_bytes_total" \
		"wfs_mount_served_${place}_reads_total$by_mount")" "$size 1" \
		"metrics: bytes from $place, reads by mount"
done
is "$(metrics wfs_request_hit_ratio wfs_served_origin_bytes_total)" "0.666667 $size" \
	"metrics: hit ratio, and what the daemon counts"

# ---- small reads of one folio, read to the end and again ---------------------------------

drop_pages
take
check "in small reads" cmp <(dd if="$mnt/one" bs=4096 count=256 status=none) "$root/one"
is "$(module served_nvme_bytes served_pages_bytes served_nvme_reads)" "$size 0 256" \
	"each byte, and each read, counts for NVMe the first time"
take
check "again" cmp <(dd if="$mnt/one" bs=4096 count=256 status=none) "$root/one"
is "$(module served_nvme_bytes served_pages_bytes)" "0 $size" \
	"and for the page cache the second time"

# ---- mappings ----------------------------------------------------------------------------

take
reading "mapped, cold" st-lazy "$mnt/mapped" "$root/mapped"
at_least "$(module helper_faults)" 1 "faults that the daemon answered"
check "it gets stored" wfs sync "$mnt/mapped"
drop_pages
take
reading "mapped, from NVMe" st-lazy "$mnt/mapped" "$root/mapped"
at_least "$(module nvme_faults)" 1 "faults that cache files answered"
is "$(module helper_faults)" 0 "and none that the daemon did"

# ---- the server ----------------------------------------------------------------------------

endpoint=$(wfs stat --json | jq -r --arg url "$nginx_url" \
	'[.origins[].endpoints[] | select(.endpoint == $url)][0] | [.tcp_retransmits, .errors,
	.tcp_rtt > 0 and .tcp_rtt < 1, .latency > 0 and .latency < 10, .connections > 0] | join(" ")')
is "$endpoint" "0 0 true true true" "no retransmits on loopback; round trips and latency are plausible"
of="{endpoint=\"$nginx_url\"}"
is "$(metrics "wfs_endpoint_tcp_retransmits_total$of" "wfs_endpoint_errors_total$of")" "0 0" \
	"metrics: retransmits and errors"
at_least "$(metrics "wfs_endpoint_tcp_rtt_seconds_count$of")" 1 "metrics: round trips"

wfs stat >"$tmp/text"
check "wfs stat begins with where reads came from" \
	grep -q '^read .*page cache .*NVMe .*daemon' "$tmp/text"
check "and has the server" grep -q "^endpoint *$nginx_url: answers in .* 0 retransmits" "$tmp/text"
