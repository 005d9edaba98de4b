#!/bin/bash
# SPDX-License-Identifier: MIT
# group: lifetimes
# kernels: 6.1 6.12 debug
# timeout: 240
#
# Mounting and sessions: a mount that waits can be killed and holds up nobody, one
# daemon at a time, no cache where it cannot be, a source within wfs itself.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root/tree" a 300000 b 300000 c 300000
mkdir -p "$mnt"
load_module
check_fails "no daemon: the mount is refused" "" mount -t wfs "file://$root/tree" "$mnt"
check_fails "no daemon: it says so" "wfsd" mount -t wfs "file://$root/tree" "$mnt"
require start_wfsd

# A server that accepts and never answers.
require start_server 8099 python3 -c '
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 8099))
server.listen()
kept = []
while True:
    kept.append(server.accept()[0])
    if kept[-1].recv(1):
        open(sys.argv[1], "w").close()' "$tmp/asked"
background mounting mount -t wfs http://127.0.0.1:8099/ "$mnt"
check "a mount waits for its origin" soon 20 [ -e "$tmp/asked" ]
check "sync does not wait for it" timeout $((10 * time_scale)) sync
require mount_wfs "file://$root/tree" "$mnt.other"
check "nor does another mount" cmp "$mnt.other/a" "$root/tree/a"
pkill -KILL -P "$mounting" 2>/dev/null
kill -KILL "$mounting"
check "it can be killed" soon 5 gone "$mounting"
wait "$mounting" 2>/dev/null

check_fails "a second daemon is refused" "" timeout 20 wfsd --foreground --control-socket /run/wfs/second.sock \
	--metrics-listen= --cache-dir /var/cache/wfs
check_fails "with another cache, too" "" timeout 20 wfsd --foreground --control-socket /run/wfs/second.sock \
	--metrics-listen= --cache-dir /var/tmp/second-cache
check "the first goes on" cmp "$mnt.other/b" "$root/tree/b"

mkdir -p /dev/shm/cache
check_fails "a cache on tmpfs is refused with a sentence" "cache" timeout 20 wfsd --foreground --no-kernel \
	--control-socket /run/wfs/third.sock --metrics-listen= --cache-dir /dev/shm/cache

# The daemon would wait for itself.
began=$SECONDS
if mount -t wfs "file://$mnt.other" "$mnt" 2>"$tmp/error"; then
	check_fails "a source within a wfs mount gives an error" "" md5sum "$mnt/c"
else
	ok "a source within a wfs mount gives an error"
fi
at_most $((SECONDS - began)) $((20 * time_scale)) "soon"
umount "$mnt" 2>/dev/null
check "the daemon lives" cmp "$mnt.other/a" "$root/tree/a"
check "wfs stat PATH" wfs stat "$mnt.other/a"
check "in another network namespace, too" unshare -n wfs stat "$mnt.other/a"
check "nothing is stuck" nothing_stuck

# Its origin is open there.
check "the daemon ends" stop_wfsd
check "and is let go of" soon 20 umount "$mnt.other"
