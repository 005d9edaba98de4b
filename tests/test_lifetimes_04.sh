#!/bin/bash
# SPDX-License-Identifier: MIT
# group: lifetimes
# kernels: 6.1 6.12
# timeout: 400
#
# Bounds: a cache smaller than what is read, a disk that somebody else fills, a small
# memory cgroup; blocks evicted while they are read.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" one 67108864 two 50331651 three 16777216
require start_nginx "$root"
configure "[cache]
capacity = 48M"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M

used() {
	du -sm /var/cache/wfs | cut -f1
}
reading "C5: read three times the capacity" eager "$mnt" "$root"
wfs sync "$mnt"
at_most "$(used)" 64 "C5: the cache keeps its bound (MiB)"
drop_caches
reading "and again, in another order" st-lazy "$mnt" "$root"
at_most "$(used)" 64 "C5: the cache keeps its bound (MiB)"
at_least "$(counter blocks_evicted)" 1 "blocks were evicted"

# Evicted under a reader, again and again.
reading_on reader eager "$mnt/two" "$root/two"
until gone "$reader"; do
	wfs evict "$mnt/two" >/dev/null 2>&1
	drop_pages
done
check "a file evicted while it is read, every byte right" wait "$reader"
reading "and after it" random "$mnt/two" "$root/two"
require umount "$mnt"
check "the daemon ends" stop_wfsd

# Somebody else's data.
rm -rf /var/cache/wfs/* /etc/wfs/wfsd.conf
free=$(df -m --output=avail /var/cache/wfs | tail -n 1)
require fallocate -l $((free - 24))M /var/cache/wfs/else
configure "[cache]
dir = /var/cache/wfs/cache"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"
reading "C6: a full disk: reads go on" eager "$mnt" "$root"
rm /var/cache/wfs/else
require umount "$mnt"

# Locked folios cannot be reclaimed: reading must work in little memory.
require mount_wfs "$nginx_url/" "$mnt"
small=/sys/fs/cgroup/wfs-small
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir "$small"
echo 40M >"$small/memory.max"
for pattern in eager st-lazy fast-st; do
	drop_caches
	check "$pattern within a memory cgroup of 40 MiB" sh -c "echo \$\$ >$small/cgroup.procs &&
		exec '$bin/reader' $([ "$pattern" = eager ] && echo runai || echo "$pattern") '$mnt/three' '$root/three'"
done
is "$(awk '$1 == "oom_kill" { print $2 }' "$small/memory.events")" 0 "nobody was killed for memory"

# A stream's read-ahead is bounded by what the reader's cgroup can bear.
port=8098
require start_server "$port" python3 "$tests/faulty_origin.py" --port "$port"
curl -sf -o "$tmp/reply" -X PUT "http://127.0.0.1:$port/_/file/stream?size=16777216"
curl -sf -o "$tmp/reply" -d '{"path": "/stream", "method": "GET", "kind": "stall", "after": 0}' \
	"http://127.0.0.1:$port/_/fault"
require umount "$mnt"
require mount_wfs "http://127.0.0.1:$port/" "$mnt" block=64K
asked() {
	curl -sf "http://127.0.0.1:$port/_/log" | python3 -c 'import json, sys
ranges = [entry["range"] for entry in json.load(sys.stdin) if entry["range"]]
ends = [map(int, text.split("=")[1].split("-")) for text in ranges]
print(sum(last - first + 1 for first, last in ends))'
}
background reader sh -c "echo \$\$ >$small/cgroup.procs && exec dd if='$mnt/stream' of='$tmp/stream' bs=8M count=1" 2>/dev/null
check "a reader in a small cgroup waits for its origin" soon 20 waits "$reader"
check "  which is asked" soon 20 eval '[ "$(asked)" -gt 0 ]'
at_most "$(asked)" 2097152 "  for no more than a part of that memory: bytes"
kill "$reader"
wait "$reader" 2>/dev/null || true
curl -sf -o "$tmp/reply" -X DELETE "http://127.0.0.1:$port/_/fault"
wait_until 10 rmdir "$small" 2>/dev/null
require umount "$mnt"

# What is known of the blocks of a large file is charged to who reads it.
mkdir "$tmp/sparse"
truncate -s 16G "$tmp/sparse/file"
require mount_wfs "file://$tmp/sparse" "$mnt" block=64K
reader=/sys/fs/cgroup/wfs-reader
mkdir "$reader"
kernel_bytes() {
	awk '$1 == "kernel" { print $2 }' "$reader/memory.stat"
}
before=$(kernel_bytes)
check "one page of each 512 MiB" sh -c "echo \$\$ >$reader/cgroup.procs &&
	exec python3 -c 'import os
fd = os.open(\"$mnt/file\", os.O_RDONLY)
for at in range(32):
	assert os.pread(fd, 4096, at << 29) == bytes(4096)'"
states=$(awk '$1 == "states" { print $3 }' /sys/kernel/debug/wfs/memory)
at_least "$states" 1048576 "states of 8192 blocks each: bytes"
at_least $(($(kernel_bytes) - before)) "$states" "which the cgroup of the reader has been charged"
require umount "$mnt"
wait_until 10 rmdir "$reader" 2>/dev/null
check "nothing is stuck" nothing_stuck
