#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
# timeout: 240
#
# The daemon is killed in mid-read: the read waits and completes. What is known and
# cached is served with no daemon at all.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" warm 9000001 slow 25165824 mapped 16777216
# So that a read lasts.
require start_nginx "$root" "location = /slow { limit_rate 4m; } location = /mapped { limit_rate 4m; }"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"
reading "a file to be warm" eager "$mnt/warm" "$root/warm"
check "it gets stored" stored "$mnt/warm"

started() {
	[ "$(in_memory "$1")" -gt 0 ]
}
# in_mid_read NAME PATTERN: kill the daemon when the first bytes are there.
in_mid_read() {
	local name=$1 pattern=$2

	reading_on reader "$pattern" "$mnt/$name" "$root/$name"
	check "$pattern: data comes" soon 30 started "$mnt/$name"
	kill_wfsd
	check "$pattern: the reader waits" soon 20 waits "$reader"
}

in_mid_read slow eager
drop_pages
reading "P1: no daemon: from NVMe" eager "$mnt/warm" "$root/warm"
reading "P1: no daemon: from the page cache" st-lazy "$mnt/warm" "$root/warm"
check "no daemon: names" ls -l "$mnt/warm"
check "eager: the reader still waits" kill -0 "$reader"
require start_wfsd
check "P1: eager: it completes when the daemon is back, every byte right" wait_for "$reader" 60

in_mid_read mapped st-lazy
require start_wfsd
check "P1: st-lazy: it completes when the daemon is back, every byte right" wait_for "$reader" 60
check "nothing is stuck" nothing_stuck

check "the daemon ends" stop_wfsd
drop_pages
reading "daemon ended in peace: from NVMe" eager "$mnt/warm" "$root/warm"
require umount "$mnt"
check "unmounted with no daemon, the module unloads" unload_module
