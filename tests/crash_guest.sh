#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The part of test_crash_02.sh that runs in the VM that is to be killed. Checks what the
# cache holds from the VMs before, with room for all of it, says
#
#	checked WRONG CORRUPT SERVED	files with a wrong byte, blocks that failed their check,
#					bytes that did not come from the origin
#
# then evicts and fills for ever, with room for five sixths of the files, saying "step" after
# each part of a file. A file is evicted just before it is filled: the others stay.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
trap - EXIT

start_nginx /in/data || exit
configure "[cache]
capacity = 200M"
start_wfsd || exit
mount_wfs "$nginx_url/" "$mnt" block=256K || exit
wrong=0
for file in /in/data/*; do
	cmp -s "$file" "$mnt/${file##*/}" || wrong=$((wrong + 1))
done
echo "checked $wrong $(counter blocks_corrupt) $(($(size_of /in/data) - $(bytes_sent)))"
stop_wfsd && sed -i 's/200M/60M/' "$wfsd_conf" && start_wfsd || exit
while :; do
	for file in "$mnt"/*; do
		drop_pages
		# A block that is just being read is kept.
		wfs evict "$file" >/dev/null 2>&1
		size=$(stat -c %s "$file")
		for ((at = 0; at < size; at += 2097152)); do
			part 0 "$at" 2097152 <"$file" >/dev/null || exit
			echo step
		done
	done
done
