#!/bin/bash
# SPDX-License-Identifier: MIT
# group: lifetimes
# kernels: 6.1 6.12
# timeout: 240
#
# Names and versions with nobody to ask: waits end within name_timeout and timeout, known
# names go on, a bind mount keeps its version.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" known 300000 cold 4194304 dir/x 10
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" name_timeout=3,timeout=5,ttl=1
require mount_wfs "$nginx_url/" "$mnt.strict" name_timeout=3,timeout=5,ttl=1,stale=off
reading "a file to be known" eager "$mnt/known" "$root/known"
check "and stored" stored "$mnt/known"
check "the other mount knows it" cmp "$mnt.strict/known" "$root/known"
check "a cold one is known by name" stat "$mnt/cold"
exec {cold}<"$mnt/cold"
kill_wfsd

began=$SECONDS
background first stat "$mnt/unknown"
background second stat "$mnt/unknown"
background third sh -c "exec 3>'$mnt/unknown'"
for process in "$first" "$second" "$third"; do
	wait_for "$process" 20
	check "a process that asked for an unknown name ended" gone "$process"
done
at_most $((SECONDS - began)) $((12 * time_scale)) "all within name_timeout"
check_fails "ETIMEDOUT" "timed out" stat "$mnt/unknown2"
check "a name past its ttl is served" stat "$mnt/known"
drop_pages
reading "its bytes, too" eager "$mnt/known" "$root/known"
began=$SECONDS
check_fails "stale=off: it is not" "" cat "$mnt.strict/known"
at_most $((SECONDS - began)) $((12 * time_scale)) "refused within name_timeout"
began=$SECONDS
check_fails "a cold block gives an error" ETIMEDOUT part "$cold" 0 10
at_most $((SECONDS - began)) $((15 * time_scale)) "within timeout"
check "nothing is stuck" nothing_stuck
require start_wfsd
check "with the daemon back it is read" cmp -n 4194304 "$mnt/cold" "$root/cold"
check "an unknown name is unknown again" sh -c "! stat '$mnt/unknown' 2>&1 | grep -v 'No such file'"
exec {cold}<&-

# A bind mount of one file keeps its version; a new open by its name does not.
touch "$tmp/file"
require mount --bind "$mnt/known" "$tmp/file"
cp "$root/known" "$tmp/before"
make_file "$root/new" 200000 new
settle "$root/new"
mv "$root/new" "$root/known"
changed() {
	[ "$(stat -c %s "$mnt/known")" = 200000 ]
}
check "a new version is seen by name" soon 10 changed
check "its bytes" cmp "$mnt/known" "$root/known"
check "the bind mount reads the old version" cmp "$tmp/file" "$tmp/before"
require umount "$tmp/file"
