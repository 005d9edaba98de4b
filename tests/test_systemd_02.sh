#!/bin/bash
# SPDX-License-Identifier: MIT
# full: yes
#
# The unit under load: a restart loses no request; when the workers are stuck or the whole
# daemon is stopped, the watchdog starts it again, and who waited is served.
# systemd: yes
# timeout: 400
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

unit() {
	systemctl show -P "$1" "${2:-wfsd.service}"
}
# served_again: by another process than before, after so many restarts.
served_again() {
	[ "$(unit ActiveState)" = active ] && [ "$(unit MainPID)" != "$before" ] && wfs mounts
}
# load: readers of files that come slowly.
load() {
	readers=()
	for name; do
		reading_on reader "$([ $((${#readers[@]} % 2)) = 0 ] && echo eager || echo st-lazy)" \
			"$mnt/$name" "$root/$name"
		readers+=("$reader")
	done
	check "$what: a load is under way" soon 30 all_wait
}
all_wait() {
	local pid

	for pid in "${readers[@]}"; do
		waits "$pid" || return
	done
}
all_complete() {
	local pid

	for pid in "${readers[@]}"; do
		wait_for "$pid" 90 || {
			tail -n 5 "$tmp/reader.log"
			return 1
		}
	done
}

names=(restart{1..4} wedged{1..4} stopped{1..4})
for name in "${names[@]}"; do
	require make_data "$root" "$name" 3000000
done
require start_nginx "$root" "location ~ ^/[a-z]*[0-9]\$ { limit_rate 200k; }"
mkdir -p /run/systemd/system/wfsd.service.d
printf '[Service]\nWatchdogSec=8\n' >/run/systemd/system/wfsd.service.d/test.conf
require systemctl daemon-reload
require systemctl start wfsd.service
require mount_wfs "$nginx_url/" "$mnt" timeout=0

what=restart
load restart{1..4}
before=$(unit MainPID)
check "restart: it is restarted" systemctl restart wfsd.service
check "restart: another process serves" served_again
check "restart: no request is lost, every byte right" all_complete
is "$(unit NRestarts)" 0 "the watchdog has nothing to say while all is well"

what=wedged
load wedged{1..4}
before=$(unit MainPID)
mkfifo "$tmp/wedge"
python3 "$tests/wedge.py" "$before" <"$tmp/wedge" >"$tmp/wedge.out" 2>&1 &
exec {wedge}>"$tmp/wedge"
check "wedged: all threads but the main one are stuck" soon 20 grep -q wedged "$tmp/wedge.out"
check "wedged: the watchdog starts the daemon again" soon 60 served_again
exec {wedge}>&-
is "$(unit NRestarts)" 1 "wedged: once"
check "wedged: no request is lost, every byte right" all_complete

what=stopped
load stopped{1..4}
before=$(unit MainPID)
kill -STOP "$before"
check "stopped: the watchdog starts the daemon again" soon 90 served_again
check "stopped: no request is lost, every byte right" all_complete
check "nothing is stuck" nothing_stuck
require umount "$mnt"
check "it stops" systemctl stop wfsd.service
is "$(unit Result)" success "without a complaint"
rm -r /run/systemd/system/wfsd.service.d
systemctl daemon-reload
