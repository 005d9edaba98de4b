#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
# timeout: 300
#
# The cache's disk becomes read-only, full, slow, and its directory goes away: reads go on, and
# files are kept again when that is over, by itself. What is never kept is fetched once.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

# There is no udev to make the nodes of devices.
export DM_DISABLE_UDEV=1
disk=/mnt/disk
cache=$disk/cache
sectors=$((320 * 2048))
# Not on a disk: all of those are made read-only below.
memory=/dev/shm/wfs-test
mkdir -p "$memory"
wfsd_log=$memory/wfsd.log
cleanup_disk() {
	umount "$mnt" 2>/dev/null
	stop_wfsd
	umount "$disk" 2>/dev/null
	dmsetup remove cache 2>/dev/null
	losetup -D
	rm -rf "$memory"
}
trap 'status=$?; cleanup_disk; (exit "$status"); tap_end' EXIT

make_data "$root" one 6291457 two 5242880 three 4194304 big 50331648
require start_nginx "$root" "location = /bare {
	alias $root/big;
	etag off;
	if_modified_since off;
	add_header Last-Modified '';
}"
modprobe -q loop
require modprobe dm-delay
require truncate -s "$((sectors * 512))" "$memory/disk"
loop=$(losetup -f --show "$memory/disk")
require dmsetup create cache --table "0 $sectors linear $loop 0"
require mkfs.xfs -q /dev/mapper/cache
mkdir -p "$disk"
require mount /dev/mapper/cache "$disk"
configure "[cache]
dir = $cache
capacity = 200M
cleanup_interval = 1
[fetch]
buffer_memory = 16M"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M

# kept NAME: read again, it is in the cache.
kept() {
	drop_pages
	cat "$mnt/$1" >/dev/null || return
	wfs sync
	all_cached "$mnt/$1"
}
# device TABLE: what is below the cache from now on.
device() {
	dmsetup reload cache --table "0 $sectors $1" && dmsetup resume cache
}
# mounted PATH ro|rw
mounted() {
	grep -q "^[^ ]* $1 [^ ]* $2," /proc/mounts
}

# ---- read-only: as by the kernel after an error, whoever has files open
reading "a file is read" eager "$mnt/one" "$root/one"
check "and kept" stored "$mnt/one"
# Of all disks, that of this script's own files among them.
echo u >/proc/sysrq-trigger
for each in "$disk" / /var/cache/wfs; do
	soon 20 mounted "$each" ro
done
mount -o remount,rw /
require mount -o remount,rw /var/cache/wfs
check "the disk is read-only" mounted "$disk" ro
drop_pages
: >"$nginx_log"
reading "read-only: what was kept is read" eager "$mnt/one" "$root/one"
is "$(bytes_sent)" 0 "from the cache"
reading "read-only: reads go on" eager "$mnt/two" "$root/two"
is "$(cached "$mnt/two")" 0 "nothing is kept"
require mount -o remount,rw "$disk"
check "writable: kept again" soon 30 kept two
reading "and right" drop "$mnt/two" "$root/two"

# ---- full
require wfs evict "$mnt"
require fallocate -l "$(($(df -m --output=avail "$disk" | tail -n 1) - 1))M" "$disk/else"
dd if=/dev/zero of="$disk/more" bs=4k 2>/dev/null
reading "full: reads go on" eager "$mnt/three" "$root/three"
is "$(cached "$mnt/three")" 0 "nothing is kept"
rm "$disk/else" "$disk/more"
check "with room again: kept" soon 30 kept three
reading "and right" drop "$mnt/three" "$root/three"

# ---- removed
require mv "$cache" "$disk/gone"
rm -rf "$disk/gone"
check "removed: that is noticed" soon 20 grep -q "$cache is gone" "$wfsd_log"
reading "removed: reads go on" drop "$mnt/three" "$root/three"
check "made anew: kept again" soon 30 kept three
reading "and right" drop "$mnt/three" "$root/three"

# ---- slow: two seconds for each write, where all is read in less than it takes to write a part
dropped=$(counter blocks_dropped)
stored=$(counter blocks_stored)
: >"$nginx_log"
require device "delay $loop 0 0 $loop 0 2000"
reading "slow: three times the memory for blocks is read" eager "$mnt/big" "$root/big"
stored=$(($(counter blocks_stored) - stored))
dropped=$(($(counter blocks_dropped) - dropped))
require device "linear $loop 0"
is "$(bytes_sent)" 50331648 "slow: each byte came once"
at_most "$stored" 24 "slow: blocks that were stored meanwhile, of 48"
at_least "$dropped" 24 "slow: blocks that were given up rather than waited for"
check "fast again: kept" soon 30 kept big
reading "and right" drop "$mnt/big" "$root/big"

# ---- never kept, for want of anything that says which version it is
: >"$nginx_log"
check "what proves no version is read" cmp "$mnt/bare" "$root/big"
is "$(cached "$mnt/bare")" 0 "and not kept"
share "$(bytes_sent)" 50331648 "never kept, read in order"

check "nothing is stuck" nothing_stuck
require umount "$mnt"
check "the daemon ends" stop_wfsd
check "the module unloads" unload_module
