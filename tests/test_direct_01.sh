#!/bin/bash
# SPDX-License-Identifier: MIT
# group: read
# kernels: 6.1 6.12
# timeout: 200
#
# verify=off: O_DIRECT reads the cache file without a copy where all blocks are cached, and by
# the page cache everywhere else. Small random reads bring single pages, streams run ahead.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

# There is no udev to make the nodes of devices.
export DM_DISABLE_UDEV=1
disk=/mnt/disk
sectors=$((320 * 2048))
memory=/dev/shm/wfs-test
mkdir -p "$memory"
cleanup_disk() {
	dmsetup resume cache 2>/dev/null
	umount "$mnt" 2>/dev/null
	stop_wfsd
	umount "$disk" 2>/dev/null
	dmsetup remove cache 2>/dev/null
	losetup -D
	rm -rf "$memory"
}
trap 'status=$?; cleanup_disk; (exit "$status"); tap_end' EXIT

# The last sector of neither is whole.
size=12600001
make_data "$root" whole $size parts 8388608 small 50331648
require start_nginx "$root"
modprobe -q loop
require truncate -s "$((sectors * 512))" "$memory/disk"
loop=$(losetup -f --show "$memory/disk")
require dmsetup create cache --table "0 $sectors linear $loop 0"
require mkfs.xfs -q /dev/mapper/cache
mkdir -p "$disk"
require mount /dev/mapper/cache "$disk"
configure "[cache]
dir = $disk/cache
capacity = 200M"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" block=1M,prefetch=off,verify=off

# module NAME...: of the module's counters, since take.
take() {
	wfs stat --json >"$tmp/before"
}
module() {
	wfs stat --json | jq -r --slurpfile before "$tmp/before" \
		'. as $now | [$ARGS.positional[] as $n | $now.module[$n] - $before[0].module[$n]] | join(" ")' \
		--args "$@"
}
# direct FILE DD_OPTION...: read so, and right.
direct() {
	cmp <(dd if="$mnt/$1" iflag=direct status=none "${@:2}") "$root/$1"
}

reading "a file is read" eager "$mnt/whole" "$root/whole"
check "and stored" stored "$mnt/whole"
drop_pages
take
check "direct" direct whole bs=4M
is "$(module served_nvme_bytes reads read_bytes)" "$size 5 $size" "all of it from NVMe, in its reads"
at_most "$(in_memory "$mnt/whole")" 4096 "bytes in the page cache: where the last sector is not whole"
drop_pages
take
reading "anywhere" random "$mnt/whole" "$root/whole" --ways direct
at_most "$(in_memory "$mnt/whole")" 4096 "bytes in the page cache"
reading "beside the page cache" random "$mnt/whole" "$root/whole" --ways direct,pread,mmap

drop_pages
check "by sectors" cmp -n 1536 <(dd if="$mnt/whole" iflag=direct,skip_bytes bs=1536 skip=1048064 \
	count=1 status=none) <(tail -c +1048065 "$root/whole")
is "$(in_memory "$mnt/whole")" 0 "over a border of blocks, past the page cache"
check "what the disk refuses, the page cache gives" direct whole bs=10007
at_least "$(in_memory "$mnt/whole")" $size "bytes in the page cache"
is "$(python3 - "$mnt/whole" <<-'PY'
	import mmap, os, sys
	fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
	size = os.fstat(fd).st_size
	room = mmap.mmap(-1, 8192)
	print(*[os.preadv(fd, [room], at) for at in (size - size % 4096 - 4096, size - size % 4096, size, size + 4096 - size % 4096)])
	PY
)" "$((4096 + size % 4096)) $((size % 4096)) 0 0" "at the end, and behind it"

# ---- not all of it cached
cmp -n 4096 "$mnt/parts" "$root/parts" || not_ok "wrong bytes"
one_block() {
	[ "$(cached "$mnt/parts")" -ge 1048576 ]
}
check "a block is stored" soon 30 one_block
drop_pages
check "a block that is not cached is fetched" direct parts bs=4M
at_least "$(in_memory "$mnt/parts")" 4194304 "bytes in the page cache"
reading "and right" eager "$mnt/parts" "$root/parts"

# ---- one page a touch
reading "a file for small reads" eager "$mnt/small" "$root/small"
check "is stored" stored "$mnt/small"
drop_pages
reading "random reads" rand-pread "$mnt/small" "$root/small" --count 50
at_most "$(in_memory "$mnt/small")" $((50 * 4096)) "bytes in the page cache: a page each"
drop_pages
reading "random touches" rand-mmap "$mnt/small" "$root/small" --count 50
at_most "$(in_memory "$mnt/small")" $((50 * 4096)) "bytes in the page cache: a page each"

# ---- a stream of what is cached
drop_pages
dd if="$mnt/small" of=/dev/null bs=1M count=24 status=none
at_least "$(in_memory "$mnt/small")" $((32 << 20)) "it is read further ahead than a block: bytes"
is "$(bytes_sent /small)" 50331648 "bytes fetched, once"

# ---- the disk hangs
drop_pages
require dmsetup suspend --noflush --nolockfs cache
dd if="$mnt/whole" of="$tmp/hung" iflag=direct bs=4M count=1 status=none &
reader=$!
waits_for_disk() {
	grep -q wfs_direct_read "/proc/$reader/stack"
}
check "a reader waits for the disk" soon 20 waits_for_disk
kill -KILL "$reader"
check "and can be killed" soon 20 gone "$reader"
require dmsetup resume cache
check "the disk goes on" direct whole bs=4M

# ---- the disk fails
require dmsetup reload cache --table "0 $sectors error"
require dmsetup resume cache
drop_pages
: >"$nginx_log"
check "the disk fails: read all the same" direct whole bs=4M
at_least "$(bytes_sent /whole)" $((size - 4194304)) "bytes fetched again"
