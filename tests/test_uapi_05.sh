#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# where: vm
# kernels: 6.1 6.12
#
# Ioctls on files and directories, the netlink family, and blocks offered instead of stored.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

size=$((5 * 65536 + 1234))
mkdir -p /var/cache/wfs/standin
begin_standin -e "cache /var/cache/wfs/standin" -e "store off" -e "dir d" -e "file f $size" \
	-e "file d/g $size" -e "file h 4194304"
require mount_wfs file:///x /mnt block=128K
run_tap "files" "$bin/uapi_files" /mnt f

resident() {
	local bytes

	bytes=$(fincore --bytes --noheadings --output RES /mnt/h)
	[ "$bytes" -ge "$1" ]
}

# Blocks that will not be stored are offered to the page cache.
require umount /mnt
require mount_wfs file:///x /mnt block=1M
check "one byte is read" dd if=/mnt/h of=/dev/null bs=1 count=1 status=none
echo 1 >/proc/sys/vm/drop_caches
is "$(tell "offer h 2 0 1048576")" 1048576 "a block that nobody has read is offered and taken"
is "$(tell "offer h 2 0 1048576")" 0 "  offered again, there is nothing left to take"
check "  it is in the page cache" resident 1048576
tell verbose >/dev/null
hash=$("$bin/standin" -c h v1 4194304 | tail -c +2097153 | head -c 1048576 | sha256sum)
is "$(tail -c +2097153 /mnt/h | head -c 1048576 | sha256sum)" "$hash" "  and reads right"
is "$(grep -c '^request fill h block 2 ' "$standin_log")" 0 "  without asking for it"
require umount /mnt
stop_standin
check "the module unloads" unload_module
