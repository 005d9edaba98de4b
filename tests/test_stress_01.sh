#!/bin/bash
# SPDX-License-Identifier: MIT
# full: yes
# group: stress
# kernels: debug
# timeout: 800
#
# Readers in every way while blocks are evicted, names invalidated, pages dropped, the
# daemon killed and stopped, and the origin goes away: every byte is right, no read fails.
#
# Long (tests/run -a): as many rounds as take half an hour on the debug kernel.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

rounds=$(long 8 200)
RANDOM=${WFS_STRESS_SEED:-$$}
diag "seed ${WFS_STRESS_SEED:-$$}, $rounds rounds"
files=(one two three four five)
make_data "$root" one 12000001 two 4194304 three 70001 four 1048576 five 6000003
require start_nginx "$root"
configure "[cache]
capacity = 16M"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" ttl=1,block=256K
require mount_wfs "$nginx_url/" "$mnt.small" ttl=1,block=64K,verify=on

# reads NAME WHERE PATTERN: one file after another until told to stop; a line for each.
reads() {
	local name=$1 where=$2 pattern=$3 file i=0

	while [ ! -e "$tmp/stop" ]; do
		i=$((i + 1))
		file=${files[(i * 7 + ${#name}) % ${#files[@]}]}
		if "$bin/reader" "$pattern" "$where/$file" "$root/$file" --seed "$i" >"$tmp/out.$name" 2>&1; then
			echo "$file" >>"$tmp/done.$name"
		else
			sed "s/^/$pattern $file: /" "$tmp/out.$name" >>"$tmp/wrong"
		fi
	done
}
pids=()
start_reader() {
	: >"$tmp/done.$1"
	reads "$@" &
	pids+=($!)
}
start_reader eager "$mnt" eager
start_reader lazy "$mnt" st-lazy
start_reader random "$mnt.small" random
start_reader streams "$mnt.small" runai
start_reader touches "$mnt" moe-rows

finished() {
	cat "$tmp"/done.* | wc -l
}
more_finished() {
	[ "$(finished)" -ge "$1" ] || [ -e "$tmp/wrong" ]
}

any() {
	echo "${files[RANDOM % ${#files[@]}]}"
}
for ((round = 1; round <= rounds; round++)); do
	before=$(finished)
	case $((RANDOM % 7)) in
	0)
		action="the daemon is killed"
		kill_wfsd
		start_wfsd || not_ok "round $round: it comes back"
		;;
	1)
		action="the daemon is stopped for a moment"
		kill -STOP "$wfsd_pid"
		drop_pages
		soon 5 more_finished $((before + 3)) || true
		kill -CONT "$wfsd_pid"
		;;
	2)
		action="blocks are evicted"
		wfs evict "$mnt/$(any)" >/dev/null 2>&1
		wfs evict "$mnt.small/$(any)" >/dev/null 2>&1
		;;
	3)
		action="names are invalidated"
		wfs invalidate "$mnt/$(any)" >/dev/null 2>&1
		wfs invalidate "$mnt.small" >/dev/null 2>&1
		;;
	4)
		action="the origin goes away"
		stop_nginx
		drop_pages
		soon 5 more_finished $((before + 3)) || true
		nginx -c "$nginx_dir/nginx.conf" || not_ok "round $round: the origin comes back"
		;;
	5)
		action="pages are dropped"
		drop_caches
		;;
	6)
		action="the daemon is restarted"
		stop_wfsd
		start_wfsd || not_ok "round $round: it comes back"
		;;
	esac
	soon 60 more_finished $((before + 5)) || {
		not_ok "round $round, $action: reads go on" "$(finished) finished, $before before"
		break
	}
	[ ! -e "$tmp/wrong" ] || break
done
is "$round" $((rounds + 1)) "all rounds were made"
touch "$tmp/stop"
for pid in "${pids[@]}"; do
	wait_for "$pid" 100 || not_ok "a reader ends"
done
is "$(cat "$tmp/wrong" 2>/dev/null)" "" "every byte right, no read failed"
at_least "$(finished)" $((rounds * 5)) "reads that finished"
check "nothing is stuck" nothing_stuck
require umount "$mnt.small"
require umount "$mnt"
check "the daemon ends" stop_wfsd
