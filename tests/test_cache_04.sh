#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
# timeout: 400
#
# What is read stays in the cache beside scans, pinned or not; damage of a cache file is
# found; a cache directory that fills up or goes away costs nothing but speed, and files that
# are open are kept again when it is back.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

cache=/var/cache/wfs/cache
make_data "$root" hot 4194304 pinned 4194304 one 33554432 two 33554433 new 4194304
require start_nginx "$root"
configure "[cache]
dir = $cache
capacity = 48M
cleanup_interval = 1"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M

# MiB of the data files.
used() {
	find "$cache/data" -type f -printf '%b\n' | awk '{ n += $1 } END { print int(n / 2048) }'
}

# scan: of more than the capacity.
scan() {
	reading "scan" eager "$mnt/one" "$root/one"
	reading "  of another file" eager "$mnt/two" "$root/two"
	wfs sync "$mnt"
	at_most "$(used)" 48 "  the cache keeps its bound (MiB)"
	drop_pages
}

# from_nvme NAME: read it from the cache file.
from_nvme() {
	drop_pages
	reading "$1 is read from NVMe" eager "$mnt/$1" "$root/$1"
}

# ---- hot blocks, pins

reading "a file to be hot" eager "$mnt/hot" "$root/hot"
check "it gets stored" stored "$mnt/hot"
from_nvme hot
: >"$nginx_log"
scan
from_nvme hot
scan
from_nvme hot
is "$(count_gets /hot)" 0 "scans have not pushed out what is read"

reading "a file to be pinned" eager "$mnt/pinned" "$root/pinned"
check "it gets stored" stored "$mnt/pinned"
check "wfs pin PATH" wfs pin "$mnt/pinned"
: >"$nginx_log"
scan
scan
from_nvme pinned
is "$(count_gets /pinned)" 0 "nor what is pinned"
check_fails "wfs evict keeps it, and says so" "pinned" wfs evict "$mnt"
is "$(cached "$mnt/pinned")" 4194304 "it is there"
check "wfs unpin SOURCE" wfs unpin "$mnt/pinned"
check_fails "  once" "not pinned" wfs unpin "$mnt/pinned"
check "wfs evict" wfs evict "$mnt"
is "$(cached "$mnt/pinned")" 0 "it is gone"

# ---- damage

# data_file BYTES: of the object of that size.
data_file() {
	find "$cache/data" -type f -size "$(((($1 + 4095) / 4096) * 8))b"
}

reading "a file to be damaged" eager "$mnt/one" "$root/one"
check "it gets stored" stored "$mnt/one"
file=$(data_file 33554432)
exec 9<"$mnt/one"
wfs events >"$tmp/events" &
events=$!
for damage in "dd if=/dev/urandom of=$file bs=1 count=1 seek=1234567 conv=notrunc" \
	"fallocate -p -o 2M -l 1M $file" "truncate -s 8M $file"; do
	: >"$nginx_log"
	require eval "$damage"
	sync
	from_nvme one
	at_least "$(count_gets /one)" 1 "${damage%% *}: what was bad is fetched again"
	wfs sync
	: >"$nginx_log"
	from_nvme one
	is "$(count_gets /one)" 0 "  for good"
done
at_least "$(counter blocks_corrupt)" 3 "it was counted"
check "and told" soon 10 grep -q corrupt "$tmp/events"
kill "$events"
exec 9<&-

# ---- somebody else's data, removal

# kept_again NAME: it is open, and was opened when nothing could be kept.
kept_again() {
	posix_drop 9
	cat <&9 >/dev/null
	wfs sync
	[ "$(cached "$mnt/$1")" = "$(stat -c %s "$mnt/$1")" ]
}
posix_drop() {
	python3 -c 'import os, sys
fd = int(sys.argv[1])
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
os.lseek(fd, 0, os.SEEK_SET)' "$1"
}

require wfs evict "$mnt"
free=$(df -m --output=avail /var/cache/wfs | tail -n 1)
fallocate -l "$((free - 1))M" /var/cache/wfs/else
# To the last block.
dd if=/dev/zero of=/var/cache/wfs/more bs=4k 2>/dev/null
exec 9<"$mnt/new"
reading "a full disk: reads go on" eager "$mnt/new" "$root/new"
reading "  of other files, too" eager "$mnt/one" "$root/one"
is "$(cached "$mnt/new")" 0 "nothing is kept"
rm /var/cache/wfs/else /var/cache/wfs/more
check "with room again, it is kept, open as it is" soon 60 kept_again new
reading "and right" drop "$mnt/new" "$root/new"

mv "$cache" "$cache.gone"
rm -rf "$cache.gone"
gone_noticed() {
	grep -q "$cache is gone" "$wfsd_log"
}
check "a directory that is removed is noticed" soon 20 gone_noticed
reading "reads go on" drop "$mnt/new" "$root/new"
check "a new one is made, and what is open is kept there" soon 60 kept_again new
is "$(stat -c %a "$cache")" 700 "it is there"
reading "and right" drop "$mnt/new" "$root/new"
exec 9<&-
check "nothing is stuck" nothing_stuck
require umount "$mnt"
check "the daemon ends" stop_wfsd
check "the module unloads" unload_module
