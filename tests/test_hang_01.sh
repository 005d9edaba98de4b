#!/bin/bash
# SPDX-License-Identifier: MIT
# group: hang
# full: yes
# kernels: 6.1 6.12
# timeout: 400
#
# Nobody hangs: a daemon that is killed, stopped or stuck while a request is on its way. Who
# waits can be killed at once, ends with an error after its time, or completes; sync and
# others never wait. The kernel panics where a task is stuck for 10 seconds.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
. "$tests/origin.sh"

# Tasks in an uninterruptible sleep for longer are the end of this kernel, where it looks.
set_hung_tasks() {
	local setting

	for setting in "check_interval_secs $1" "timeout_secs $2" "panic $3"; do
		[ ! -e "/proc/sys/kernel/hung_task_${setting% *}" ] ||
			echo "${setting#* }" >"/proc/sys/kernel/hung_task_${setting% *}"
	done
}
restore() {
	local status=$?

	set_hung_tasks 0 120 0
	return $status
}
trap 'restore; tap_end' EXIT
set_hung_tasks 2 10 1

size=200000
# As long as it takes: here nothing ends for want of trying.
configure "[fetch]
retry_budget = 600
stall_timeout = 600"
use_origin
require make_files "$root" $size file
require start_origin
at_origin http
# Named by what is done to the daemon: each is new to it.
actions="kill stop wedge"
for action in $actions; do
	for name in read fault open1 open2 open3; do
		require put "$action-$name" "$root/file"
	done
	require put "$action-dir/x" "$root/file"
done
require start_wfsd
require mount_wfs "$source" "$mnt" ttl=0,negative_ttl=0,timeout=300,name_timeout=110

# What waits for the daemon in each state of a request. $1: what is done to the daemon.
# Who looks a name up while somebody else does cannot be killed, whatever the filesystem:
# so each has a name of its own.
ask_mount() {
	mkdir -p "$mnt.$1$2" && mount -t wfs "$source" "$mnt.$1$2" -o "timeout=300,name_timeout=110,block=$((64 << $3))K"
}
ask_lookup() {
	[ "$(stat -c %s "$mnt/$1-open$2")" = $size ]
}
ask_readdir() {
	[ "$(ls "$mnt/$1-dir")" = x ]
}
ask_read() {
	cmp "$mnt/$1-read" "$root/file"
}
ask_fault() {
	"$bin/reader" st-lazy "$mnt/$1-fault" "$root/file"
}

wedge() {
	mkfifo "$tmp/wedge"
	python3 "$tests/wedge.py" "$wfsd_pid" <"$tmp/wedge" >"$tmp/wedge.out" 2>&1 &
	wedge_pid=$!
	exec {wedge_fd}>"$tmp/wedge"
	soon 20 grep -q wedged "$tmp/wedge.out"
}
unwedge() {
	exec {wedge_fd}>&-
	wait "$wedge_pid"
	rm -f "$tmp/wedge"
}
# halt ACTION, resume ACTION: what befalls the daemon, and its end.
halt() {
	case $1 in
	kill) kill_wfsd ;;
	stop) kill -STOP "$wfsd_pid" ;;
	wedge) wedge ;;
	esac
}
resume() {
	case $1 in
	kill) start_wfsd ;;
	stop) kill -CONT "$wfsd_pid" ;;
	wedge) unwedge ;;
	esac
}
# all_wait PID...: each is in the kernel, waiting for an answer.
all_wait() {
	local pid child

	for pid; do
		waits "$pid" || {
			child=$(pgrep -P "$pid" | tail -n 1)
			[ -n "$child" ] && { waits "$child" || all_wait "$child"; }
		} || return
	done
}
kill_tree() {
	local pid

	for pid; do
		# shellcheck disable=SC2046
		kill_tree $(pgrep -P "$pid")
		kill -KILL "$pid" 2>/dev/null
	done
}
tree() {
	local pid

	for pid; do
		echo "$pid"
		# shellcheck disable=SC2046
		tree $(pgrep -P "$pid")
	done
}
all_gone() {
	local pid

	for pid; do
		gone "$pid" || return
	done
}

# ---- requests that the daemon has in hand, each waiting for the origin
for action in $actions; do
	require fault "$action-open*" mute
	require fault "$action-dir/" mute
	require fault "$action-read" mute '"method": "GET"'
	require fault "$action-fault" mute '"method": "GET"'
	waiting=()
	victims=()
	check "$action: names are known" stat "$mnt/$action-read" "$mnt/$action-fault"
	for state in lookup readdir read fault; do
		"ask_$state" "$action" 1 >"$tmp/$state.log" 2>&1 &
		waiting+=($!)
		"ask_$state" "$action" 2 >"$tmp/victim.log" 2>&1 &
		victims+=($!)
	done
	# The source itself last: names below it are asked for meanwhile.
	require fault_list mute
	ask_mount "$action" 1 0 >"$tmp/mount.log" 2>&1 &
	waiting+=($!)
	ask_mount "$action" 2 1 >"$tmp/victim.log" 2>&1 &
	victims+=($!)
	check "$action: mount, lookup, readdir, read and fault wait" soon 30 all_wait "${waiting[@]}" "${victims[@]}"
	check "$action: sync does not" timeout $((8 * time_scale)) sync
	mapfile -t processes < <(tree "${victims[@]}")
	kill_tree "${victims[@]}"
	check "$action: who waits can be killed at once" soon 3 all_gone "${processes[@]}"
	wait "${victims[@]}" 2>/dev/null

	require halt "$action"
	check "$action: then, sync does not wait" timeout $((8 * time_scale)) sync
	check "$action: the others wait on" all_wait "${waiting[@]}"
	# Asked only now: nobody takes these requests.
	victims=()
	for state in lookup readdir read fault; do
		"ask_$state" "$action" 3 >"$tmp/victim.log" 2>&1 &
		victims+=($!)
	done
	# On 6.1 not all of them are seen where they wait.
	soon 10 all_wait "${victims[@]}" || diag "$action: not seen waiting: some of who came later"
	mapfile -t processes < <(tree "${victims[@]}")
	kill_tree "${victims[@]}"
	check "$action: and can be killed at once" soon 3 all_gone "${processes[@]}"
	wait "${victims[@]}" 2>/dev/null
	require calm
	require resume "$action"
	i=0
	for state in lookup readdir read fault mount; do
		check "$action: then, $state completes" wait_for "${waiting[i]}" 60 ||
			diag "$state: $(tail -n 3 "$tmp/$state.log")"
		i=$((i + 1))
	done
	require umount "$mnt.${action}1"
done

# ---- nobody comes back: each wait ends after its time
require umount "$mnt"
for name in cold-stop cold-wedge other stuck last known; do
	require put "$name" "$root/file"
done
require mount_wfs "$source" "$mnt" ttl=0,negative_ttl=0,timeout=4,name_timeout=2,stale=off
# ended PID: with an error, in time.
ended() {
	local status=0

	wait_for "$1" 30 || status=$?
	[ "$status" != 0 ] && [ "$status" != 124 ]
}
for action in stop wedge; do
	exec {cold}<"$mnt/cold-$action"
	require halt "$action"
	began=$SECONDS
	part "$cold" 0 10 2>"$tmp/error.0" &
	ends=($!)
	for ask in "stat $mnt/other" "stat $mnt/other" "ls $mnt" "touch $mnt/created" "cat $mnt/known"; do
		$ask >"$tmp/ask.log" 2>"$tmp/error.${#ends[@]}" &
		ends+=($!)
	done
	check "$action: sync does not wait" timeout $((8 * time_scale)) sync
	for what in read lookup "the same lookup" readdir create open; do
		check "$action: $what: ends with an error" ended "${ends[0]}"
		ends=("${ends[@]:1}")
	done
	at_most $((SECONDS - began)) $((16 * time_scale)) "$action: all within timeout and name_timeout (s)"
	check "$action: ETIMEDOUT" grep -q ETIMEDOUT "$tmp/error.0"
	check "$action: also for names" grep -q "timed out" "$tmp/error.1"
	require resume "$action"
	check "$action: later, all is well" soon 30 same "$mnt/cold-$action" "$root/file"
	exec {cold}<&-
done

# ---- unmounting with requests outstanding
require fault stuck mute '"method": "GET"'
require umount "$mnt"
require mount_wfs "$source" "$mnt"
exec {held}<"$mnt/known"
cat "$mnt/stuck" >"$tmp/out" 2>"$tmp/error" &
reader=$!
check "P6: a reader waits" soon 20 waits "$reader"
check_fails "P6: umount says busy" busy umount "$mnt"
check_fails "P6: the module is in use" "" rmmod wfs
check "P6: the reader waits on" waits "$reader"
check_fails "P6: umount -f says busy, too" busy timeout $((8 * time_scale)) umount -f "$mnt"
check "P6: umount -f: but requests end" soon 10 gone "$reader"
wait "$reader"
check "P6: with an error" grep -q "Input/output error" "$tmp/error"
exec {held}<&-
check "P6: then it is unmounted" umount "$mnt"

# With a daemon that does nothing any more, stopped or killed.
for action in stop kill; do
	require mount_wfs "$source" "$mnt"
	exec {known}<"$mnt/known"
	require part "$known" 0 10
	"$bin/reader" eager "$mnt/stuck" "$root/file" >"$tmp/out" 2>&1 &
	reader=$!
	check "P6: $action: a reader waits" soon 20 waits "$reader"
	require halt "$action"
	timeout $((8 * time_scale)) umount -f "$mnt" 2>"$tmp/error"
	check "P6: $action: umount -f ends who waits" soon 10 gone "$reader"
	wait "$reader" 2>/dev/null
	check "P6: $action: what is known is read still" part "$known" 0 10
	check "P6: $action: umount -l" timeout $((8 * time_scale)) umount -l "$mnt"
	exec {known}<&-
	require resume "$action"
done
require calm

# ---- P2: an end in order, with an origin that does not answer
require mount_wfs "$source" "$mnt"
require fault last mute '"method": "GET"'
cat "$mnt/last" >"$tmp/out" 2>&1 &
reader=$!
check "P2: a reader waits for an origin that hangs" soon 20 at_least_gets last 1
began=$SECONDS
check "P2: asked to, the daemon ends" stop_wfsd
at_most $((SECONDS - began)) $((30 * time_scale)) "P2: within its bound (s)"
check "P2: the reader waits on" waits "$reader"
kill -KILL "$reader"
check "P5: killed, it is gone at once" soon 3 gone "$reader"
wait "$reader" 2>/dev/null
check "P2: nothing is in uninterruptible sleep" nothing_stuck
check "P6: unmounted with no daemon" timeout $((8 * time_scale)) umount "$mnt"
check "P6: the module unloads" unload_module
