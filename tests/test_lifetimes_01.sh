#!/bin/bash
# SPDX-License-Identifier: MIT
# group: lifetimes
# kernels: 6.1 6.12
# timeout: 240
#
# Folios and blocks: folios over blocks in different states, a cached block that is
# wrong, with checks and with them switched off, zeros behind the end, direct reads.
#
# States, orders and lifetimes, and where each is tested:
#
#	block states			lifetimes_01, uapi_03
#	folio completion		lifetimes_01, fault_01, uapi_03
#	sessions			lifetimes_02, cache_01, cache_02, uapi_04
#	dispatch, parked commands	uapi_01, uapi_04
#	mount				lifetimes_02
#	names				lifetimes_03, names_*
#	unmount				cache_03
#	evicting a block		lifetimes_04
#	cache files			lifetimes_02
#	O_DIRECT			lifetimes_01, direct_01, read_*
#	the 64 KiB unit			lifetimes_01, read_02
#	faults				mmap_*
#	memory				lifetimes_04
#	versions			names_02, s3_02, lifetimes_03
#	the helper and its own mount	lifetimes_02
#	control				lifetimes_02, names_02
#	locks				the debug kernel
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" mixed 8388608 flipped 4194304 tail 70001 direct 3000001 run 3000000
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=64K,prefetch=off,readahead=128K

# Every fourth block is cached, some others only in memory, the rest is absent.
for ((at = 0; at < 8388608; at += 262144)); do
	cmp -n 1000 -i "$at" "$mnt/mixed" "$root/mixed" || not_ok "wrong bytes at $at"
done
check "some blocks get stored" wfs sync "$mnt"
some=$(cached "$mnt/mixed")
at_least "$some" 2097152 "bytes stored"
at_most "$some" 8300000 "not all"
drop_pages
for ((at = 131072; at < 8388608; at += 1048576)); do
	cmp -n 1000 -i "$at" "$mnt/mixed" "$root/mixed" || not_ok "wrong bytes at $at"
done
reading "huge folios over blocks in every state" scan "$mnt/mixed" "$root/mixed"
share "$(bytes_sent /mixed)" 8388608 "huge folios over blocks in every state"

# damage FILE: a byte of its cache file is flipped behind the daemon's back; the file's name.
damage() {
	python3 - "$1" <<-'PY'
	import os, sys
	want = open(sys.argv[1], "rb").read()
	for base, _, names in os.walk("/var/cache/wfs"):
	    for name in names:
	        path = os.path.join(base, name)
	        if os.stat(path).st_size not in range(len(want), len(want) + 4096):
	            continue
	        with open(path, "r+b") as file:
	            if file.read(len(want)) != want:
	                continue
	            file.seek(1000000)
	            file.write(bytes([want[1000000] ^ 1]))
	            os.fsync(file.fileno())
	        print(path)
	PY
}
reading "a file to be damaged" eager "$mnt/flipped" "$root/flipped"
check "it gets stored" stored "$mnt/flipped"
drop_pages
damaged=$(damage "$root/flipped")
check "its cache file is found and damaged" test -n "$damaged"
drop_caches
: >"$nginx_log"

# wrong [DD_OPTION]: which bytes, counted from 1, of the page with the flipped one are not the
# origin's, through a mount that does not check.
wrong() {
	dd if="$mnt.off/flipped" bs=4096 skip=244 count=1 status=none "$@" |
		cmp -l -n 4096 -i 0:999424 - "$root/flipped" | awk '{ print $1 }'
}
require mount_wfs "$nginx_url/" "$mnt.off" block=64K,prefetch=off,readahead=128K,verify=off
check "verify=off makes another filesystem of the same source" \
	test "$(stat -c %d "$mnt.off/flipped")" != "$(stat -c %d "$mnt/flipped")"
is "$(wrong)" 577 "verify=off: the flipped byte is served"
drop_pages
is "$(wrong iflag=direct)" 577 "verify=off: to a direct read, too"
is "$(bytes_sent /flipped) $(counter blocks_corrupt)" "0 0" "verify=off: nothing is fetched, nothing counted"

check "C4: 4 KiB around it read right" cmp -n 4096 -i 998000 "$mnt/flipped" "$root/flipped"
at_least "$(bytes_sent /flipped)" 65536 "C4: the block was fetched again"
at_most "$(bytes_sent /flipped)" 1048576 "only what was wrong"
reading "all of it is right" random "$mnt/flipped" "$root/flipped"
is "$(counter blocks_corrupt)" 1 "the counter says one block was corrupt"
check "the block gets stored afresh" stored "$mnt/flipped"
drop_pages
reading "verify=off: what the other mount has put right is right" eager "$mnt.off/flipped" \
	"$root/flipped"
require umount "$mnt.off"

# Small folios that follow each other in a large block are read at once.
require mount_wfs "$nginx_url/" "$mnt.large" block=4M,prefetch=off
reading "a large block to be damaged" eager "$mnt.large/run" "$root/run"
check "it gets stored" stored "$mnt.large/run"
drop_pages
check "its cache file is found and damaged" test -n "$(damage "$root/run")"
drop_caches
: >"$nginx_log"
check "C4: the run of units is read right" cmp "$mnt.large/run" "$root/run"
is "$(bytes_sent /run) $(counter blocks_corrupt)" "3000000 2" "C4: fetched again, once"
require umount "$mnt.large"

is "$(python3 - "$mnt/tail" <<-'PY'
	import ctypes, mmap, os, sys
	libc = ctypes.CDLL(None, use_errno=True)
	libc.mmap.restype = ctypes.c_void_p
	libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
	fd = os.open(sys.argv[1], os.O_RDONLY)
	size = os.fstat(fd).st_size
	at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
	end = (size + 4095) // 4096 * 4096
	print(ctypes.string_at(at + size, end - size).count(0), end - size)
	PY
)" "3727 3727" "behind the end a mapping holds zeros"

require umount "$mnt"
require mount_wfs "$nginx_url/" "$mnt" verify=off
reading "verify=off: O_DIRECT, cold" random "$mnt/direct" "$root/direct" --ways direct
check "it gets stored" stored "$mnt/direct"
drop_pages
reading "verify=off: O_DIRECT, from NVMe" random "$mnt/direct" "$root/direct" --ways direct
at_most "$(in_memory "$mnt/direct")" 3100000 "bytes of it in the page cache"
reading "verify=off: O_DIRECT beside the page cache" random "$mnt/direct" "$root/direct" --ways direct,pread,mmap
