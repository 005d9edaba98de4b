#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.12
# timeout: 240
#
# How blocks are used, and what is said of their size; sync of a part; a daemon without the
# module.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

size=1048576
blocks=20
port=8097
url=http://127.0.0.1:$port

# metric SERIES: at the metrics address.
metric() {
	curl -sf http://127.0.0.1:9419/metrics | awk -v series="$1" '$1 == series { print $2 }'
}

# ---- how blocks are used -----------------------------------------------------------------

hint() {
	wfs stat --json "$1" | jq -r '.hint_block_size // "none"'
}
used() {
	wfs stat --json "$1" | jq -r "[.usage.blocks, .usage.fetched] | @tsv" | xargs
}
make_data "$root" one $size sparse $((blocks * size)) whole $((blocks * size))
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M
exec {kept}<"$mnt/sparse" {kept_too}<"$mnt/whole"
check "a little of each block" python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
for block in range(int(sys.argv[2])):
    assert len(os.pread(fd, 4096, block << 20)) == 4096' "$mnt/sparse" "$blocks"
check "it gets stored" wfs sync "$mnt/sparse"
used_up() {
	[ "$(used "$1")" = "$blocks $((blocks * size))" ]
}
check "all blocks were used" soon 10 used_up "$mnt/sparse"
is "$(hint "$mnt/sparse")" 65536 "a hint for the file: the smallest blocks"
is "$(hint "$mnt")" 65536 "a hint for the mount"
check "in words, too" grep -q 'block=64K would fetch less' <(wfs stat "$mnt/sparse")
reading "all of each block" eager "$mnt/whole" "$root/whole"
check "it gets stored" wfs sync "$mnt/whole"
check "all blocks were used" soon 10 used_up "$mnt/whole"
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
