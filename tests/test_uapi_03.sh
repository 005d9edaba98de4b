#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# where: vm
# kernels: 6.1 6.12
# timeout: 300
#
# Wrong descriptors, block maps and delivers: each is refused and the file reads right.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

EINVAL=-22
ENOENT=-2
EAGAIN=-11
size=$((5 * 65536 + 1234))

# file_reads NAME: the whole file, through the page cache, has the right bytes.
file_reads() {
	"$bin/standin" -c "$1" v1 $size | timeout 60 cmp - "/mnt/$1"
}

# A fault for a file of its own: wrong REQUEST WANTED ACTION
n=0
wrong() {
	n=$((n + 1))
	! few || return 0
	tell "file f$n $size" >/dev/null
	tell "fault $1 $3 path f$n" >/dev/null
	check "$1, $3: the file reads right" file_reads "f$n"
	if [ "$2" = some ]; then
		at_least "$(fault_result "$1" "${3%% *}")" 4096 "  after bytes that were waited for"
	else
		is "$(fault_result "$1" "${3%% *}")" "$2" "  after $2"
	fi
	forget_log
}

mkdir -p /var/cache/wfs/standin
truncate -s 1M /var/cache/wfs/plain /dev/shm/plain
ln -sf /var/cache/wfs/plain /var/cache/wfs/link

for how in "" -i; do
	diag "by ${how:-ring}"
	forget_log
	rm -f /var/cache/wfs/standin/*
	begin_standin $how -e "cache /var/cache/wfs/standin"
	require mount_wfs file:///x /mnt block=128K
	wrong open $EINVAL "pipe"
	wrong open $EINVAL "self"
	wrong open $EINVAL "closed"
	wrong open $EINVAL "open /var/cache/wfs"
	wrong open $EINVAL "open /dev/shm/plain"
	wrong open $EINVAL "open /proc/version"
	wrong open $EINVAL "open /dev/zero"
	wrong open $EINVAL "buffered /var/cache/wfs/plain"
	wrong open $EINVAL "wronly /var/cache/wfs/plain"
	wrong open $EINVAL "opath /var/cache/wfs/plain"
	wrong open $EINVAL "grow 8"
	wrong open $EINVAL "positive"
	wrong open $ENOENT "wrongid"
	wrong map $EINVAL "blocks 0"
	wrong map $EINVAL "blocks 1"
	wrong map $EINVAL "blocks 4"
	wrong map $EINVAL "blocks 0xffffffff"
	wrong map $EINVAL "bits"
	wrong map $EINVAL "mpad"
	wrong map $EINVAL "lie 0"
	wrong map $EINVAL "lie 1"
	wrong map $EINVAL "lie 3"
	wrong map $EINVAL "grow 8"
	wrong map $EINVAL "cut 8"
	wrong map $EINVAL "cut 1000"
	wrong map $EINVAL "oversize"
	wrong map $EINVAL "outside"
	wrong map $EINVAL "fd"
	wrong map $EINVAL "positive"
	wrong fill $EINVAL "nothing"
	wrong fill $EINVAL "past"
	wrong fill $EINVAL "over"
	wrong fill $EINVAL "inside"
	wrong fill $EINVAL "ragged"
	wrong fill $EINVAL "long"
	wrong fill $EINVAL "nowhere"
	wrong fill $EINVAL "misplaced"
	wrong fill $EINVAL "zero"
	wrong fill $ENOENT "other"
	wrong fill $ENOENT "late"
	wrong fill $EINVAL "grow 8"
	wrong fill $EINVAL "fd"
	wrong fill $EINVAL "positive"
	# No wrongs at all, or such as the kernel puts up with: it says what was waited for, which is
	# what read-ahead had come to by then.
	wrong fill 0 "repeat"
	wrong fill some "half"
	wrong fill some "backwards"

	# The map says that a block is cached which is not: its bytes fail their check.
	tell "file liar $size" >/dev/null
	tell "fault map lie 2 path liar" >/dev/null
	check "a block said to be cached with other sums: read right" file_reads liar
	# Errors reach the reader as they are, where they can.
	tell "file denied $size" >/dev/null
	tell "fault fill status -13 path denied times 100" >/dev/null
	check_fails "a fill that fails with EACCES" "Permission denied" cat /mnt/denied
	tell "file stale $size" >/dev/null
	tell "fault fill status -116 path stale times 100" >/dev/null
	check_fails "a fill that fails with ESTALE" "Stale file handle" cat /mnt/stale
	tell "file unopened $size" >/dev/null
	tell "fault open status -5 path unopened times 100" >/dev/null
	check_fails "an object that cannot be opened" "Input/output error" cat /mnt/unopened

	# Commands about blocks.
	tell "file b $size" >/dev/null
	check "a file is read" file_reads b
	is "$(tell "evict b 99")" $EINVAL "EVICT of a block beyond the end"
	is "$(tell "stored b 99")" $EINVAL "STORED of a block beyond the end"
	is "$(tell "dropped b 99")" $EINVAL "DROPPED of a block beyond the end"
	is "$(tell "offer b 0 0 0")" $EINVAL "OFFER of nothing"
	is "$(tell "offer b 0 4096 65536")" $EINVAL "OFFER from inside a unit"
	is "$(tell "offer b 0 0 131080")" $EINVAL "OFFER over the end of a block"
	is "$(tell "offer b 0 0 2097152")" $EINVAL "OFFER of more than 1 MiB"
	is "$(tell "offer b 0 131072 65536")" $EINVAL "OFFER behind a block"
	echo 1 >/proc/sys/vm/drop_caches
	check "a file is read from its cache file" file_reads b
	is "$(tell "cold b 0")" $EAGAIN "EVICT, if cold, of a block that was read"
	is "$(tell "cold b 0")" 0 "  and not since"
	is "$(tell "evicted b 0")" 0 "  EVICTED"
	is "$(tell "stored b 0")" 0 "  STORED again"
	is "$(tell "reopen b")" 0 "REOPEN"
	is "$(tell "reopen b")" 0 "  once more"
	is "$(tell "evict b 0")" 0 "EVICT of a cached block"
	is "$(tell "evict b 0")" 0 "  again"
	is "$(tell "stored b 0")" -16 "STORED of a block that is being evicted"
	is "$(tell "evicted b 0")" 0 "EVICTED"
	is "$(tell "stored b 0")" 0 "  after which it may be stored"
	echo 1 >/proc/sys/vm/drop_caches
	check "  and the file reads right" file_reads b
	is "$(tell "invalidate no/such/name")" 0 "INVALIDATE of a name that nobody knows"
	require umount /mnt
	stop_standin
done
check "the module unloads" unload_module
