#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# kernels: 6.1 6.12
# timeout: 240
#
# A daemon without io_uring: where the kernel refuses rings (6.12), or told so (6.1). It
# reads cold and warm, survives being killed, is taken over by one with rings and back.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

disabled=/proc/sys/kernel/io_uring_disabled

# start_bare [ARGS...]: a daemon that can have no ring. What it has, it has from the start.
start_bare() {
	local status=0

	if [ -e "$disabled" ]; then
		echo 2 >"$disabled"
		start_wfsd "$@" || status=$?
		echo 0 >"$disabled"
	else
		WFS_TRANSPORT=ioctl start_wfsd "$@" || status=$?
	fi
	return "$status"
}

transport() {
	wfs stat --json | jq -r .kernel.transport
}

# rings PID: how many the process has.
rings() {
	find "/proc/$1/fd" -lname '*io_uring*' | wc -l
}

started() {
	[ "$(in_memory "$1")" -gt 0 ]
}

unset WFS_TRANSPORT
make_data "$root" a 9000001 b 70000 slow 25165824
make_data "$root/d" one 1 two 2
require start_nginx "$root" "location = /slow { limit_rate 4m; }"
require start_bare
is "$(transport)" ioctl "the daemon runs, and says which transport"
is "$(rings "$wfsd_pid")" 0 "it has no ring at all"
check "its log says so once" [ "$(grep -c 'served by epoll and threads' "$wfsd_log")" = 1 ]
if [ -e "$disabled" ]; then
	check "and why" grep -q 'kernel.io_uring_disabled' "$wfsd_log"
fi
require mount_wfs "$nginx_url/" "$mnt"
is "$(ls "$mnt/d")" "one
two" "names"
reading "cold" eager "$mnt/a" "$root/a"
reading "cold, mapped" st-lazy "$mnt/b" "$root/b"
check "it gets stored" stored "$mnt"/[ab]
: >"$nginx_log"
drop_pages
reading "from NVMe" eager "$mnt/a" "$root/a"
is "$(count_gets)" 0 "no data GET"

reading_on reader eager "$mnt/slow" "$root/slow"
check "data comes" soon 30 started "$mnt/slow"
kill_wfsd
check "killed in mid-read, the reader waits" soon 20 waits "$reader"
require start_bare
check "it completes with the next one, every byte right" wait_for "$reader" 60
: >"$nginx_log"
drop_caches
reading "warm after kill -9" eager "$mnt/a" "$root/a"
is "$(count_gets)" 0 "no data GET"
check "wfs fetch" wfs fetch "$nginx_url/d/"
check "wfs evict" wfs evict "$mnt/b"
is "$(cached "$mnt/b")" 0 "removes what was stored"
drop_pages
reading "it is fetched again" eager "$mnt/b" "$root/b"

first=$wfsd_pid
wfsd --foreground --takeover >>"$wfsd_log" 2>&1 &
wfsd_pid=$!
echo "$wfsd_pid" >/run/wfs-test.pid
check "a daemon that is taken over ends" wait_for "$first" 60
check "the next one answers" soon 30 wfs stat
is "$(transport)" io_uring "it has rings"
: >"$nginx_log"
drop_caches
reading "and the cache" eager "$mnt/a" "$root/a"
is "$(count_gets)" 0 "no data GET"
check "the daemon ends" stop_wfsd
require start_bare
drop_caches
reading "back without rings" st-lazy "$mnt/a" "$root/a"
require umount "$mnt"
check "the daemon ends" stop_wfsd
check "the module unloads" unload_module
