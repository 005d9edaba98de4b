#!/bin/bash
# SPDX-License-Identifier: MIT
# group: crash
# kernels: 6.12
# timeout: 1200
#
# Power cuts: all writes to the cache's disk are recorded while it is filled and blocks are
# evicted, and replayed to random flush points. From each the daemon starts, and what it
# then serves from the cache is right: no byte is wrong, and none fails its check.
#
# WFS_CRASH_SEED: which points.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

# There is no udev to make the nodes of devices.
export DM_DISABLE_UDEV=1
points=$(long 4 60)
seed=${WFS_CRASH_SEED:-$RANDOM}
disks=/var/tmp/wfs-crash
disk=/mnt/disk
cleanup_disks() {
	umount "$mnt" "$disk" 2>/dev/null
	stop_wfsd
	umount "$disk" 2>/dev/null
	dmsetup remove point 2>/dev/null
	dmsetup remove recorded 2>/dev/null
	losetup -D
	rm -rf "$disks"
}
trap 'status=$?; cleanup_disks; (exit "$status"); tap_end' EXIT

make_data "$root" one 12000001 two 9437184 three 6291456 four 70000 five 33000000
require start_nginx "$root"
mkdir -p "$disks" "$disk"
configure "[cache]
dir = $disk/cache
capacity = 40M"

# attach NAME MIB: a loop device of that size; the variable NAME says which.
attach() {
	rm -f "$disks/$1"
	truncate -s "$2M" "$disks/$1" && printf -v "$1" '%s' "$(losetup -f --show "$disks/$1")"
}
modprobe -q loop
require modprobe dm-log-writes
require modprobe dm-snapshot
size=320
require attach live "$size"
require attach log 4096
# The filesystem is made on the recorded device, so that a replay needs nothing else.
sectors=$((size * 2048))
require dmsetup create recorded --table "0 $sectors log-writes $live $log"
require mkfs.xfs -q /dev/mapper/recorded
require mount /dev/mapper/recorded "$disk"
mkdir -p "$disk/cache"

require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=256K
for round in 1 2; do
	for file in one two three four five; do
		drop_pages
		reading "recorded, round $round: $file" eager "$mnt/$file" "$root/$file"
		[ "$file" != three ] || wfs evict "$mnt/two" >/dev/null
		wfs sync "$mnt"
	done
done
at_least "$(counter blocks_stored)" 200 "blocks were stored"
at_least "$(counter blocks_evicted)" 50 "blocks were evicted"
require umount "$mnt"
require stop_wfsd
require umount "$disk"
require dmsetup remove recorded

total=$("$tests/replay_log.py" points "$log")
at_least "$total" 100 "flush points were recorded"
diag "seed $seed: $points of $total flush points"
require attach replayed "$size"

# What the file of the daemon's log says of blocks that failed their check.
served=0
while read -r point; do
	require "$tests/replay_log.py" replay "$log" "$disks/state" "$replayed" "$point"
	require attach changes 256
	require dmsetup create point --table "0 $sectors snapshot $replayed $changes N 8"
	# Before the filesystem was whole there is none to mount.
	if ! mount -o nouuid /dev/mapper/point "$disk" 2>/dev/null; then
		at_most "$point" 20 "flush point $point: nothing to mount yet"
	else
		mkdir -p "$disk/cache"
		require start_wfsd
		require mount_wfs "$nginx_url/" "$mnt" block=256K
		: >"$nginx_log"
		drop_caches
		check "C7: flush point $point: every byte is right" same_files "$root" "$mnt"
		is "$(counter blocks_corrupt)" 0 "C7: flush point $point: none failed its check"
		fetched=$(bytes_sent)
		served=$((served + $(size_of "$root") - fetched))
		require umount "$mnt"
		require stop_wfsd
		require umount "$disk"
	fi
	require dmsetup remove point
	require losetup -d "$changes"
done < <(shuf -i "1-$total" -n "$points" --random-source=<(openssl enc -aes-128-ctr -pass "pass:$seed" \
	-nosalt -pbkdf2 -iter 1 -in /dev/zero 2>/dev/null) | sort -n)
at_least "$served" $((points * 1000000)) "bytes served from the caches after the cuts"
