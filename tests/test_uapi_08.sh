#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# kernels: 6.1 6.12
#
# What a helper tells while something is under way, and what readers may ask without end: an
# OPEN that is out of date, a session that ends before it is answered, a block that is read
# while it is to be evicted, advice about a whole disk, a listing that goes on and on.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

size=300000
memory=/sys/kernel/debug/wfs/memory
mkdir -p /var/cache/wfs/standin
tree=(-e "cache /var/cache/wfs/standin" -e verbose -e "file w $size" -e "file big 281474976710656"
	-e "dir d" -e "page 10")
for i in {10..39}; do
	tree+=(-e "file d/n$i 1")
done
begin_standin "${tree[@]}"
require mount_wfs file:///x /mnt block=128K,ttl=0,negative_ttl=0,name_timeout=5
right() {
	cmp <("$bin/standin" -c w v1 $size) /mnt/w
}
cached() {
	[ "$(getfattr --only-values -n user.wfs.cached /mnt/w)" = $size ]
}
opens() {
	lines "^request open w "
}
asked_again() {
	[ "$(opens)" -gt "$1" ]
}
drop_pages() {
	echo 1 >/proc/sys/vm/drop_caches
}

# ---- OPEN, and what is said meanwhile

check "the file reads right" right
check "  and is cached" soon 20 cached
tell "fault open hold" >/dev/null
is "$(tell "reopen w")" 0 "REOPEN is taken"
check "  an OPEN is under way" soon 20 more_lines "^fault open hold"
is "$(tell "reopen w")" 0 "REOPEN meanwhile is taken"
is "$(opens)" 2 "  and waits for the answer"
is "$(tell answer)" 1 "  that is given"
check "  OPEN is asked once more" soon 20 asked_again 2
drop_pages
check "the file reads right" right
is "$(opens)" 3 "  with three OPENs in all"

# A session ends with an OPEN unanswered of a file that was open: the next one is told
# RESUMED only after it has answered that.
# By another process: the next helper would inherit a descriptor of this one.
sh -c 'exec sleep infinity' </mnt/w &
open=$!
tell "fault open hold" >/dev/null
forget_log
require tell "reopen w"
check "another OPEN is under way" soon 20 more_lines "^fault open hold"
kill_standin
forget_log
begin_standin "${tree[@]}" -e "fault open hold"
check "the next helper is asked that" soon 20 more_lines "^fault open hold"
check "  and goes on with names" soon 20 stat /mnt/d
is "$(lines '^request resumed')" 0 "  without being told that all is resumed"
is "$(tell answer)" 1 "  before it answers"
check "  but then" soon 20 more_lines "^request resumed"
drop_pages
check "the file reads right" right
kill "$open"
wait "$open"

# ---- a block that was read since

require stat /mnt/w
drop_pages
require right
tell "fault getattr cold w" >/dev/null
require stat /mnt/w
is "$(fault_result getattr cold)" -11 "a block that was read is not cold"
forget_log
tell "fault getattr cold w" >/dev/null
require stat /mnt/w
is "$(fault_result getattr cold)" 0 "  but is when it is asked once more"
is "$(tell "evicted w 0")" 0 "  and is evicted"
drop_pages
check "the file reads right" right

# ---- advice

# held KIND: bytes
held() {
	sed -n "s/^$1 [0-9]* //p" "$memory"
}
tell "fault open hold path big" >/dev/null
check "advice about 256 TiB" timeout 60 python3 -c 'import os
fd = os.open("/mnt/big", os.O_RDONLY)
for _ in range(3): os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)'
check "  has the file opened" soon 20 more_lines "^fault open hold"
at_most "$(held folios)" 2000000 "  and waits in little memory: bytes"
# Nobody wants that now.
tell "fault fill status -5 times 100000 path big" >/dev/null
tell answer >/dev/null
asked_no_more() {
	[ "$(held folios)" = 0 ]
}
check "  until it is asked for" soon 60 asked_no_more
check "  as much as was noted" soon 60 more_lines "^request fill big" 3000

# ---- a listing, a page at a time

tell "fault readdir never skip 1" >/dev/null
names=$(timeout 60 python3 -c 'import errno, os
n = 0
try:
    for entry in os.scandir("/mnt/d"):
        n += 1
except OSError as error:
    print(n, errno.errorcode[error.errno])')
is "$names" "10 ETIMEDOUT" "names come before the page that never does"
is "$(find /mnt/d -name 'n*' | wc -l)" 30 "  and all of them when it does"
require umount /mnt
stop_standin
check "the module unloads" unload_module
