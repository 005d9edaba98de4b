#!/bin/bash
# SPDX-License-Identifier: MIT
# group: mmap
# kernels: 6.1 6.12
# timeout: 300
#
# Mappings: huge pages in order, little for a random touch, private writes stay private.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

size=268435456
make_data "$root" big "$size" small 5000000
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"

# scan WHEN WAY [OPTION]
scan() {
	reading "$1, $2: a mapping of 256 MiB in order" scan "$mnt/big" "$root/big" "${@:3}"
	is "$(figure pmd)" "$size" "$1, $2: all of it is mapped by huge pages"
	at_most "$(figure faults)" 200 "$1, $2: faults"
}

scan cold private
share "$(bytes_sent /big)" "$size" "cold scan"
check "it gets stored" stored "$mnt/big"
drop_caches
scan NVMe private
scan "page cache" private
drop_caches
scan NVMe shared --shared
scan "page cache" shared --shared

for seed in 1 2 3; do
	drop_caches
	reading "a random touch of a page" touch "$mnt/big" "$root/big" --seed "$seed"
	at_most "$(figure resident)" 65536 "bytes in the page cache after it"
done
drop_caches
reading "a random touch, shared" touch "$mnt/big" "$root/big" --seed 9 --shared
at_most "$(figure resident)" 65536 "bytes in the page cache after it"

reading "a private mapping that is written to" cow "$mnt/small" "$root/small"
reading "the file is as it was" eager "$mnt/small" "$root/small"
drop_caches
reading "and so on NVMe" eager "$mnt/small" "$root/small"
check_fails "a shared mapping for writing is refused" "Permission denied" \
	python3 -c 'import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)' "$mnt/small"
