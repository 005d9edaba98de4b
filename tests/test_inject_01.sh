#!/bin/bash
# SPDX-License-Identifier: MIT
# full: yes
# group: inject
# kernels: debug
# timeout: 500
#
# Everything that can fail for lack of memory is failed, one after the other, in each
# operation of readers and helper: no leak, no crash, and it works afterwards. Every step of
# every operation in make check-all, every seventh of a few otherwise.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"
. "$(dirname "$0")/inject.sh"

stride=7
[ -z "${WFS_TEST_LONG-}" ] || stride=1
nth() {
	run_tap "fail-nth" "$bin/failnth" -s $stride "/lib/modules/$(uname -r)/extra/wfs.ko" /mnt "$@"
}

begin_inject
mkdir -p /var/cache/wfs/standin

if [ "$stride" = 1 ]; then
	require only_below do_one_initcall
	nth load
	require only_below
fi
require load_module
nth session

script=$tmp/script
{
	echo "cache /var/cache/wfs/standin"
	echo "file w 300000"
	echo "dir d"
	for i in {1..50}; do
		echo "file d/entry$i 1"
	done
	for i in {0..400}; do
		printf 'file f%d 1000\nfile c%d 300000\nlink l%d w\n' "$i" "$i" "$i"
	done
} >"$script"
begin_standin -i -s "$script"
nth mount
[ "$stride" != 1 ] || nth umount
require mount_wfs file:///x /mnt block=128K,ttl=0,negative_ttl=0,readahead=256K
cached() {
	[ "$(getfattr --only-values -n user.wfs.cached /mnt/w)" = 300000 ]
}
require cat /mnt/w
check "a file is cached" soon 20 cached
nth lookup readdir read_warm fault_warm stats
if [ "$stride" = 1 ]; then
	nth absent stat readlink open mmap xattr mounts
	more="fault_cold fault_random prefetch info"
fi
for operation in read_cold ${more-}; do
	require umount /mnt
	require mount_wfs file:///x /mnt block=128K,ttl=0,negative_ttl=0,readahead=256K
	nth "$operation"
done

# The helper's side: each kind of answer, each command.
# answers REQUEST COMMAND...: COMMAND makes the module ask; until nothing is left to fail.
answers() {
	local request=$1 n before

	shift
	for ((n = 1; n < 200; n += stride)); do
		before=$(lines "^failnth $request ")
		tell "fault $request failnth $n" >/dev/null
		# It may fail, or be asked once more.
		"$@" >/dev/null 2>&1
		if ! soon 20 more_lines "^failnth $request " "$before"; then
			not_ok "$request is asked for"
			return
		fi
		[ "$(grep "^failnth $request " "$standin_log" | tail -n 1)" != "failnth $request 0" ] || break
	done
	diag "answer to $request: $(((n - 1) / stride)) steps"
	at_most "$n" 199 "an answer to $request in which everything fails in turn: steps"
	check "  and then nothing" "$@"
}
i=400
another() {
	i=$((i - 1))
}
look() { another && stat "/mnt/f$i"; }
link() { another && readlink "/mnt/l$i"; }
load() { another && cat "/mnt/c$i"; }
remount() { mount_wfs file:///y /srv block=64K && umount /srv; }
if [ "$stride" = 1 ]; then
	answers mount remount
	answers lookup look
	answers getattr stat /mnt/w
	answers readdir ls /mnt/d
	answers readlink link
fi
answers open load
answers map load

# commands COMMAND...: each line by which the stand-in is told one; likewise.
commands() {
	local n before

	for ((n = 1; n < 200; n += stride)); do
		before=$(lines '^failnth command ')
		tell "nth $n $1" >/dev/null
		soon 20 more_lines '^failnth command ' "$before" || break
		[ "$(grep '^failnth command ' "$standin_log" | tail -n 1)" != "failnth command 0" ] || break
	done
	diag "$1: $(((n - 1) / stride)) steps"
	at_most "$n" 199 "$1, in which everything fails in turn: steps"
}
require cat /mnt/w
for command in "dropped w 0" "evict w 1" "evicted w 1" "stored w 1" "offer w 1 0 131072" invalidate; do
	commands "$command"
done
check "the file reads" cmp <("$bin/standin" -c w v1 300000) /mnt/w

# ---- the module's own points ---------------------------------------------------------------

reads_right() {
	echo 1 >/proc/sys/vm/drop_caches
	cmp <("$bin/standin" -c w v1 300000) /mnt/w
}
require soon 20 cached
# Once is enough to be seen, and is made good: read again, or fetched again.
for point in read_again read_error read_short read_late; do
	inject "$point" 1
	check "$point: the file reads right" reads_right
	check "  although it failed" injected "$point"
	check "  and is cached again" soon 20 cached
done
# A map brings room for sums, which memory pressure takes before the block is stored.
require umount /mnt
rm -f /var/cache/wfs/standin/*
require mount_wfs file:///x /mnt block=128K
require tell "store off"
check "sums: the file reads right" reads_right
echo 2 >/proc/sys/vm/drop_caches
inject sums 1
for block in 0 1 2; do
	is "$(tell "stored w $block")" 0 "  block $block is stored"
done
check "  although there was no room for its sums" injected sums
require tell "store on"
check "  and is cached" soon 20 cached
check "  and reads right, from the cache" reads_right
"$bin/standin" -c w v1 300000 >"$tmp/w"
inject folio 1
echo 1 >/proc/sys/vm/drop_caches
check "folio: a random touch reads right" "$bin/reader" touch /mnt/w "$tmp/w"
check "  although there was none" injected folio
inject deliver 1
check "deliver: refused once, a file is delivered" load
check "  and was refused" injected deliver
inject request 1
another
check_fails "request: without memory for it nothing is asked" "" cat "/mnt/c$i"
check "  once" injected request
check "  and then does not" cat "/mnt/c$i"

# The thread that is about to be given a request dies: the next helper gets it.
stop_standin
begin_standin -s "$script"
inject fetch 1
another
background reader cmp "/mnt/c$i" <("$bin/standin" -c "c$i" v1 300000)
check "fetch: the thread that fetches dies" soon 30 gone "$standin_pid"
check "  which was to be" injected fetch
check "  who reads waits on" kill -0 "$reader"
kill_standin
begin_standin -s "$script"
check "  and reads right with the next helper" wait_for "$reader" 60

require umount /mnt
stop_standin
check "the module unloads" unload_module
check "nothing has leaked" no_leak
