#!/bin/bash
# SPDX-License-Identifier: MIT
# group: read
# kernels: 6.1 6.12
# timeout: 240
#
# Sizes around the borders of pages, units and blocks, and empty files.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

sizes="0 1 4095 4096 4097 65535 65536 65537 131071 131072 131073 4194303 4194304 4194305"
for size in $sizes; do
	make_data "$root/sizes" "s$size" "$size"
done
require start_nginx "$root"
require start_wfsd

for block in 64K 4M 64M; do
	require mount_wfs "$nginx_url/sizes/" "$mnt" "block=$block"
	# Tails are zero behind the end of the file: the reader maps whole pages.
	reading "block $block: whole files by mmap" st-lazy "$mnt" "$root/sizes"
	check "block $block: the same by cmp" same_files "$root/sizes" "$mnt"
	reading "block $block: O_DIRECT" llama-dio "$mnt" "$root/sizes"
	check "block $block: they are stored" stored "$mnt"/s*
	drop_caches
	reading "block $block: from NVMe" eager "$mnt" "$root/sizes"
	is "$(od -An -tx1 -v "$mnt/s0" | wc -c)" 0 "block $block: an empty file reads as nothing"
	is "$(python3 - "$mnt/s4097" <<-'PY'
	import mmap, os, sys
	fd = os.open(sys.argv[1], os.O_RDONLY)
	# A whole page of which the file holds one byte.
	page = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
	print(len(page))
	PY
	)" 4097 "block $block: a mapping has the file's length"
	is "$(dd if="$mnt/s4097" bs=4096 skip=5 2>/dev/null | wc -c)" 0 "block $block: nothing beyond the end"
	require umount "$mnt"
done
