#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
#
# What is counted is what happened: where reads were served from, in wfs stat and at the
# metrics address; ratios, servers, use of blocks; and sync of one mount only.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

size=1048576
port=8097
url=http://127.0.0.1:$port

# read_once FILE: by one call of read().
read_once() {
	dd if="$1" of="$tmp/copy" bs=$size count=1 status=none
	cmp "$tmp/copy" "$root/${1##*/}"
}

# take: the counters as they are now, kept in $tmp/before.
take() {
	wfs stat --json >"$tmp/now" && mv "$tmp/now" "$tmp/before"
}
# module NAME: of the module's, since then.
module() {
	jq -r --arg name "$1" --slurpfile before "$tmp/before" \
		'.module[$name] - $before[0].module[$name]' <(wfs stat --json)
}
ratio() {
	wfs stat --json | jq -r --arg name "$1" '.ratios[$name] * 10000 | round'
}
# metric SERIES: at the metrics address.
metric() {
	curl -sf http://127.0.0.1:9419/metrics | awk -v series="$1" '$1 == series { print $2 }'
}
# served PLACE DESCRIPTION: since take, one read() was served from there and no other place.
served() {
	local place reads=0 bytes=0

	for place in pages nvme helper; do
		[ "$place" = "$1" ] && reads=1 bytes=$size || reads=0 bytes=0
		is "$(module "served_${place}_reads") $(module "served_${place}_bytes")" \
			"$reads $bytes" "$2: $place"
	done
	is "$(module reads) $(module read_bytes)" "1 $size" "$2: one read of all bytes"
}

make_data "$root" one $size mapped $size sparse $((24 * size)) whole $((24 * size))
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M

# ---- reads ---------------------------------------------------------------------------

take
check "cold" read_once "$mnt/one"
served helper "cold"
is "$(module deliver_bytes) $(module fill_requests)" "$size 1" "cold: asked once, all delivered"
is "$(counter origin_bytes)" $size "cold: each byte once from the origin"
is "$(ratio request_hit_ratio) $(ratio byte_hit_ratio) $(ratio local_read_ratio)" "0 0 0" \
	"cold: no hits"
check "it is stored when sync returns" wfs sync "$mnt/one"
is "$(counter blocks_stored)" 1 "one block"

drop_pages
is "$(in_memory "$mnt/one")" 0 "no page is left"
take
check "from NVMe" read_once "$mnt/one"
served nvme "from NVMe"
is "$(module nvme_bytes) $(module fill_requests)" "$size 0" "from NVMe: the daemon is not asked"

take
check "from the page cache" read_once "$mnt/one"
served pages "from the page cache"
is "$(module nvme_reads) $(module fill_requests)" "0 0" "from the page cache: nothing is asked"
is "$(ratio request_hit_ratio) $(ratio byte_hit_ratio) $(ratio local_read_ratio)" \
	"6667 6667 6667" "of three reads two did without the origin, and the daemon"
is "$(ratio page_cache_byte_ratio)" 3333 "and one without NVMe"
is "$(counter duplicate_fetches)" 0 "nothing is fetched twice"

# ---- the same at the metrics address ---------------------------------------------------

id=$(wfs stat --json "$mnt" | jq -r .mount)
for place in pages nvme helper; do
	is "$(metric "wfs_module_served_${place}_bytes_total")" $size "metrics: bytes from $place"
	is "$(metric "wfs_mount_served_${place}_reads_total{mount=\"$id\",source=\"$nginx_url/\"}")" 1 \
		"metrics: reads from $place, by mount"
done
is "$(metric wfs_request_hit_ratio)" 0.666667 "metrics: hit ratio"
is "$(metric wfs_served_origin_bytes_total)" $size "metrics: the daemon's"

# ---- small reads of one folio, read to the end and again ---------------------------------

drop_pages
take
check "in small reads" cmp <(dd if="$mnt/one" bs=4096 count=256 status=none) "$root/one"
is "$(module served_nvme_bytes) $(module served_pages_bytes)" "$size 0" \
	"each byte counts for NVMe the first time"
is "$(module served_nvme_reads)" 256 "and so does each read"
take
check "again" cmp <(dd if="$mnt/one" bs=4096 count=256 status=none) "$root/one"
is "$(module served_nvme_bytes) $(module served_pages_bytes)" "0 $size" \
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

endpoint() {
	wfs stat --json | jq -r --arg url "$nginx_url" \
		"[.origins[].endpoints[] | select(.endpoint == \$url)][0] | $1"
}
is "$(endpoint '.tcp_retransmits, .errors' | xargs)" "0 0" "no retransmits and no errors on loopback"
is "$(endpoint '.tcp_rtt > 0 and .tcp_rtt < 1 and .latency > 0 and .latency < 10')" true \
	"round trips and latency are measured"
at_least "$(endpoint .connections)" 1 "connections"
is "$(metric "wfs_endpoint_tcp_retransmits_total{endpoint=\"$nginx_url\"}")" 0 "metrics: retransmits"
at_least "$(metric "wfs_endpoint_tcp_rtt_seconds_count{endpoint=\"$nginx_url\"}")" 1 \
	"metrics: round trips"

check "wfs stat begins with where reads came from" \
	grep -q '^read .*page cache .*NVMe .*daemon' <(wfs stat)
check "and has the server" grep -q "^endpoint *$nginx_url: answers in .* 0 retransmits" <(wfs stat)

# ---- how blocks are used -----------------------------------------------------------------

hint() {
	wfs stat --json "$1" | jq -r '.hint_block_size // "none"'
}
used() {
	wfs stat --json "$1" | jq -r "[.usage.blocks, .usage.fetched] | @tsv" | xargs
}
# So that what follows is of a mount of its own, by counters too.
require umount "$mnt"
stop_wfsd
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M
exec {kept}<"$mnt/sparse" {kept_too}<"$mnt/whole"
check "a little of each block" python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
for block in range(24):
    assert len(os.pread(fd, 4096, block << 20)) == 4096' "$mnt/sparse"
check "it gets stored" wfs sync "$mnt/sparse"
used_up() {
	[ "$(used "$1")" = "24 $((24 * size))" ]
}
check "24 blocks were used" soon 10 used_up "$mnt/sparse"
is "$(hint "$mnt/sparse")" 65536 "a hint for the file: the smallest blocks"
is "$(hint "$mnt")" 65536 "a hint for the mount"
check "in words, too" grep -q 'block=64K would fetch less' <(wfs stat "$mnt/sparse")
reading "all of each block" eager "$mnt/whole" "$root/whole"
check "it gets stored" wfs sync "$mnt/whole"
check "24 blocks were used" soon 10 used_up "$mnt/whole"
is "$(hint "$mnt/whole")" none "no hint for that file"
exec {kept}<&- {kept_too}<&-

# ---- sync of a part --------------------------------------------------------------------------

require start_server "$port" python3 "$tests/faulty_origin.py" --port "$port"
require curl -sf -X PUT "$url/_/file/d/stuck?size=$size&seed=1&modified=1600000000"
require curl -sf -d '{"path": "/d/stuck", "method": "GET", "kind": "stall", "after": 0}' "$url/_/fault"
require mount_wfs "$url/d/" "$mnt.stuck" block=1M
cat "$mnt.stuck/stuck" >"$tmp/copy" &
reader=$!
fetching() {
	[ "$(counter active_fetches)" -gt 0 ]
}
check "a block is stuck" soon 20 fetching
wfs sync &
all=$!
wfs sync "$mnt.stuck/stuck" &
part=$!
reading "the other mount is read" eager "$mnt/one" "$root/one"
check "sync of its file returns" timeout 60 wfs sync "$mnt/one"
check "sync of the other mount returns" timeout 60 wfs sync "$mnt"
check "sync of all waits" kill -0 "$all"
check "sync of what is stuck waits" kill -0 "$part"
require curl -sf -X DELETE "$url/_/fault"
check "no longer: the reader is served" wait_for "$reader" 60
check "sync of all returns" wait_for "$all" 60
check "sync of that file returns" wait_for "$part" 60

# ---- options ---------------------------------------------------------------------------------

check_fails "invalidate takes no -o" "not for it" wfs invalidate -o anon "$nginx_url/"
check "invalidate of a source" wfs invalidate "$nginx_url/"

# No module: the rest is there.
require umount "$mnt" "$mnt.stuck"
stop_wfsd
check "the module unloads" unload_module
wfsd --foreground --no-kernel >>"$wfsd_log" 2>&1 &
wfsd_pid=$!
require soon 30 answering
is "$(wfs stat --json | jq -r .module)" null "without the module none of its counters"
is "$(metric wfs_module_reads_total)" "" "nor at the metrics address"
is "$(metric wfs_byte_hit_ratio)" 0.000000 "what the daemon counts is there"
stop_wfsd
