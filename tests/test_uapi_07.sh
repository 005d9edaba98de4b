#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# kernels: 6.1 6.12
#
# What the module holds in memory: shown, given back, and kept where nobody could tell it
# again: cached blocks are served with no helper, whatever memory pressure has taken.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

size=$((9 * 65536 + 77))
memory=/sys/kernel/debug/wfs/memory

# held KIND: how many there are.
held() {
	sed -n "s/^$1 \([0-9]*\) .*/\1/p" "$memory"
}
# held_bytes KIND
held_bytes() {
	sed -n "s/^$1 [0-9]* //p" "$memory"
}
none_held() {
	[ "$(held "$1")" = 0 ] && [ "$(held_bytes "$1")" = 0 ]
}

mkdir -p /var/cache/wfs/standin
tree=(-e "cache /var/cache/wfs/standin" -e "dir d")
for i in {1..20}; do
	tree+=(-e "file f$i $size" -e "file d/n$i 1")
done
begin_standin "${tree[@]}"
require mount_wfs file:///x /mnt block=128K,ttl=never
right() {
	cmp <("$bin/standin" -c "$1" v1 $size) "/mnt/$1"
}
cached() {
	[ "$(getfattr --only-values -n user.wfs.cached "/mnt/$1")" = $size ]
}
check "files are read" right f1
require right f2
require stat /mnt/f{3..20}
# What is open is not forgotten together with its name. By others: helpers would inherit it.
sh -c 'exec sleep infinity' </mnt/f1 &
first=$!
sh -c 'exec sleep infinity' </mnt/f2 &
second=$!
check "  and cached" soon 20 cached f1
require soon 20 cached f2
is "$(find /mnt/d -name 'n*' -printf . | wc -c)" 20 "a directory is listed"
at_least "$(held nodes)" 20 "a node for each file that is known"
is "$(held states)" 2 "block states of those that were read"
is "$(held sums)" 2 "and their sums"
is "$(held_bytes sums)" $((2 * 10 * 8)) "  of eight bytes for 64 KiB"
at_least "$(held listings)" 1 "the listing"
at_least "$(held_bytes listings)" 320 "  with its names"
check "no request is left" soon 10 none_held requests
check "no folio is in flight" soon 10 none_held folios

# Memory pressure takes the sums, and they are asked for again.
dropped() {
	echo 2 >/proc/sys/vm/drop_caches
	none_held sums
}
check "the sums can be had back" soon 20 dropped
echo 1 >/proc/sys/vm/drop_caches
check "  and are asked for again" right f1
require right f2

kill_standin
for _ in 1 2 3 4 5; do
	echo 2 >/proc/sys/vm/drop_caches
done
is "$(held sums)" 2 "with no helper they are kept"
echo 1 >/proc/sys/vm/drop_caches
background reader right f1
check "  and a cached file reads right" wait_for "$reader" 20

begin_standin "${tree[@]}"
check "with the next helper they can be had back" soon 20 dropped
kill $first $second
wait $first $second
require umount /mnt
stop_standin
for kind in nodes requests folios states sums listings; do
	check "after unmounting, nothing is held: $kind" soon 10 none_held "$kind"
done
check "the module unloads" unload_module
