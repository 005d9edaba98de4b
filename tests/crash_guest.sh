#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The part of test_crash_02.sh that runs in the VM that is to be killed. Checks what the
# cache holds from the VMs before, says
#
#	checked WRONG CORRUPT SERVED	files with a wrong byte, blocks that failed their check,
#					bytes that did not come from the origin
#
# then fills and evicts for ever, saying "step" after each part of a file.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
trap - EXIT

start_nginx /in/data || exit
configure "[cache]
capacity = 60M"
start_wfsd || exit
mount_wfs "$nginx_url/" "$mnt" block=256K || exit
wrong=0
for file in /in/data/*; do
	cmp -s "$file" "$mnt/${file##*/}" || wrong=$((wrong + 1))
done
echo "checked $wrong $(counter blocks_corrupt) $(($(size_of /in/data) - $(bytes_sent)))"
while :; do
	for file in "$mnt"/*; do
		size=$(stat -c %s "$file")
		for ((at = 0; at < size; at += 2097152)); do
			part 0 "$at" 2097152 <"$file" >/dev/null
			echo step
		done
		drop_pages
		wfs evict "$file" >/dev/null
	done
done
