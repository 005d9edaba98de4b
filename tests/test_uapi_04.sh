#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# where: vm
# kernels: 6.1 6.12
# timeout: 300
#
# Helpers that die or end at the worst moments: who waited is served by the next one.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

size=$((9 * 65536 + 77))
mkdir -p /var/cache/wfs/standin

reads_right() {
	[ "$(cat "$tmp/hash")" = "$(content_hash "$1" "${2:-v1}" $size)" ]
}

read_in_background() {
	background reader sh -c "sha256sum <'/mnt/$1' | cut -d' ' -f1 >$tmp/hash"
}

for how in "" -i; do
	diag "by ${how:-ring}"
	forget_log
	tree=(-e "cache /var/cache/wfs/standin")
	for i in 1 2 3 4 5 6 7 8 9; do
		tree+=(-e "file f$i $size")
	done
	begin_standin $how "${tree[@]}"
	require mount_wfs file:///x /mnt block=128K

	i=0
	for point in "lookup die" "open die" "open die-after" "map die" "map die-after" "fill die" \
		"fill die-half" "fill die-after"; do
		i=$((i + 1))
		forget_log
		tell "fault $point path f$i" >/dev/null
		read_in_background "f$i"
		check "$point: it dies" soon 30 gone "$standin_pid"
		check "  who reads waits on" kill -0 "$reader"
		kill_standin
		begin_standin $how "${tree[@]}"
		check "  and ends with the next helper" wait_for "$reader" 60
		check "  with the right bytes" reads_right "f$i"
	done

	# Nobody answers; the session is detached instead.
	forget_log
	tell "fault fill never path f9 times 100" >/dev/null
	read_in_background f9
	soon 30 more_lines "^fault fill never" 0
	stop_standin
	check "detached with a request unanswered: the reader waits" kill -0 "$reader"
	begin_standin $how "${tree[@]}"
	check "  and is served by the next" wait_for "$reader" 60
	check "  with the right bytes" reads_right f9

	# Taken over.
	forget_log
	tell "file g $size" >/dev/null
	tell "fault fill never path g times 100" >/dev/null
	read_in_background g
	soon 30 more_lines "^fault fill never" 0
	old=$standin_pid
	exec {standin_fd}>&-
	begin_standin $how -t "${tree[@]}" -e "file g $size"
	check "a helper that was taken over ends" soon 30 gone "$old"
	check "  who waited is served by the new one" wait_for "$reader" 60
	check "  with the right bytes" reads_right g

	# With no helper, what is in the page cache or cached is served.
	check "a file is read" sh -c "sha256sum </mnt/g | cut -d' ' -f1 >$tmp/hash"
	kill_standin
	check "with no helper: from the page cache" sh -c "sha256sum </mnt/g | cut -d' ' -f1 >$tmp/hash"
	check "  with the right bytes" reads_right g
	echo 1 >/proc/sys/vm/drop_caches
	check "  from the cache file" sh -c "sha256sum </mnt/g | cut -d' ' -f1 >$tmp/hash"
	check "  with the right bytes" reads_right g

	# Somebody who waits with nobody there can be killed.
	background reader cat /mnt/never
	pid=$reader
	soon 10 grep -q wfs "/proc/$pid/stack" 2>/dev/null || true
	kill -KILL "$pid"
	wait_for "$pid" 20
	is $? 137 "who waits for a helper can be killed"
	check "umount with no helper" umount /mnt
done
check "the module unloads" unload_module
