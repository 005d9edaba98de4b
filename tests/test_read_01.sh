#!/bin/bash
# SPDX-License-Identifier: MIT
# group: read
# kernels: 6.1 6.12
# timeout: 300
#
# Random ranges by every way of reading, against the original: cold, from NVMe, from
# the page cache; with the smallest, the default and the largest block.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

ways="read pread preadv2 mmap splice sendfile direct uring"

for way in $ways; do
	make_data "$root/cold" "$way" 1300021
done
make_data "$root/mixed" a 9000007 b 4194304 c 70000
require start_nginx "$root"
require start_wfsd

for block in 64K 4M 64M; do
	require mount_wfs "$nginx_url/" "$mnt" "block=$block"
	for way in $ways; do
		reading "block $block: cold by $way" random "$mnt/cold/$way" "$root/cold/$way" \
			--ways "$way" --block "$block" --count 40 --seed 3
	done
	reading "block $block: all ways" random "$mnt/mixed" "$root/mixed" --block "$block"
	check "block $block: all of it gets stored" stored "$mnt"/mixed/*
	: >"$nginx_log"
	drop_caches
	reading "block $block: from NVMe" random "$mnt/mixed" "$root/mixed" --block "$block" --seed 7
	reading "block $block: from the page cache" random "$mnt/mixed" "$root/mixed" \
		--block "$block" --seed 8
	is "$(count_gets)" 0 "block $block: neither asked the origin"
	require umount "$mnt"
done
