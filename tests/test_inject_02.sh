#!/bin/bash
# SPDX-License-Identifier: MIT
# full: yes
# group: inject
# kernels: debug
#
# Orders of events that are rare: an answer that is taken while the session ends or the asker
# dies, an eviction that ends between a read's decision and its request, a mount that is
# listed after the next helper has begun.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"
. "$(dirname "$0")/inject.sh"

begin_inject
mkdir -p /var/cache/wfs/standin
tree=(-i -e verbose -e "cache /var/cache/wfs/standin")
for i in {1..6}; do
	tree+=(-e "file f$i 300000")
done

right() {
	cmp <("$bin/standin" -c "$1" v1 300000) "/mnt/$1"
}

# late POINT: somebody is about to be late there.
late() {
	[ "$(cat "$debugfs/wfs/$1/times")" = 0 ]
}

# take_over: the next helper, while the last one lives.
take_over() {
	begin_standin -t "${tree[@]}"
}

require load_module
check "helpers that take over from each other" "$bin/uapi_race" 3 60

begin_standin "${tree[@]}"
require mount_wfs file:///x /mnt block=128K
check "a file is read" right f1

# Each kind of answer is being taken when the session is taken over: what waits goes on with
# the next helper, once.
for request in lookup open map fill; do
	i=$((${i_next:-1} + 1))
	i_next=$i
	[ "$request" = lookup ] || stat "/mnt/f$i" >/dev/null
	# Up to the request in question.
	tell "fault $request never path f$i" >/dev/null
	background reader right "f$i"
	soon 30 more_lines "^fault $request never" 0
	inject commit_late 1
	forget_log
	# Answered by the next helper, whose answer is late until the one after it begins.
	take_over
	check "$request: an answer is being taken" soon 30 late commit_late
	take_over
	check "  when the session is taken over: who reads is served" wait_for "$reader" 60
	check "  and others are" right f1
done

# The same, and nobody comes next: requests wait for the next helper.
tell "fault map never path f6" >/dev/null
background reader right f6
soon 30 more_lines "^fault map never" 0
inject commit_late 1
take_over
check "an answer to open is being taken" soon 30 late commit_late
kill_standin
check "  when the helper dies: who reads waits" kill -0 "$reader"
begin_standin "${tree[@]}"
check "  and is served by the next" wait_for "$reader" 60

# Who asks dies while the answer is taken.
tell "file k 1000" >/dev/null
inject commit_late 1
background reader stat /mnt/k
check "an answer to a lookup is being taken" soon 30 late commit_late
kill -KILL "$reader"
wait_for "$reader" 20
is $? 137 "  and who asked is killed"
check "  then the name is found" soon 10 stat /mnt/k

# A block is evicted while somebody wants it: between the decision to wait for that and the
# request that waits.
check "a block is cached" soon 20 right f1
is "$(tell "evict f1 0")" 0 "  and is being evicted"
echo 1 >/proc/sys/vm/drop_caches
inject submit_late 1
background reader right f1
check "  when it is wanted" soon 30 late submit_late
is "$(tell "evicted f1 0")" 0 "  and is gone before that is asked for"
check "  it is fetched again" wait_for "$reader" 60

# The helper that evicts it never comes back to it.
require soon 20 right f1
is "$(tell "evict f1 1")" 0 "a block is being evicted"
echo 1 >/proc/sys/vm/drop_caches
background reader right f1
held() {
	grep -q ' 1 requests waiting' <(wfs mounts 2>/dev/null) || grep -q folio_wait "/proc/$reader/stack"
}
check "  and wanted" soon 20 held
kill_standin
begin_standin "${tree[@]}"
check "  the next helper is asked for it" wait_for "$reader" 60

# A mount is answered by one helper and listed when the next has begun.
inject mount_late 1
background mounter mount_wfs file:///late /srv block=128K
check "a mount is about to be listed" soon 30 late mount_late
forget_log
take_over
check "  when the helper is taken over: it is mounted" wait_for "$mounter" 60
check "  the next helper is told" soon 20 more_lines '^request mount file:///late .* flags 1 ' 0
check "  and serves it" stat /srv/f1

require umount /srv
require umount /mnt
stop_standin
check "the module unloads" unload_module
check "nothing has leaked" no_leak
