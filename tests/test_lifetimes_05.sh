#!/bin/bash
# SPDX-License-Identifier: MIT
# group: lifetimes
# kernels: 6.1 6.12
# timeout: 240
#
# Taking over, as an upgrade does: the same cache directory, the same control socket, the same
# metrics address, under readers. Nobody loses anything; the first daemon ends in peace.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" warm 2000001 slow 12582912 mapped 4194304 later 2000001
make_data "$root/names" a 1 b 2 c 3
# So that reads last until there is a second daemon, whose connections are quick.
require start_nginx "$root" "location = /slow { limit_rate 70k; } location = /mapped { limit_rate 70k; }
	location = /rate { return 200 slow; }"
configure "[metrics]
listen = 127.0.0.1:9419"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" ttl=0,prefetch=off

started() {
	[ "$(in_memory "$1")" -gt 0 ]
}

# hurry: connections that are made from now on have no limit.
hurry() {
	sed -i 's/limit_rate 70k;//g; s/200 slow/200 quick/' "$nginx_dir/nginx.conf"
	nginx -c "$nginx_dir/nginx.conf" -s reload
	soon 30 quick
}

quick() {
	[ "$(curl -s "$nginx_url/rate")" = quick ]
}

# take_over [ARGS...]: another daemon with the same configuration; its process in $next.
take_over() {
	wfsd --foreground --config "$wfsd_conf" "$@" >>"$wfsd_log" 2>&1 &
	next=$!
	echo "$next" >/run/wfs-test.pid
}

# serves PID: is it that one that answers on the socket, and that has the kernel's session?
serves() {
	[ "$(timeout 10 wfs stat --json 2>/dev/null | jq -r .pid)" = "$1" ] &&
		[ "$(wfs mounts --json | jq -r .helper.pid)" = "$1" ]
}

# ended PID STATUS DESCRIPTION
ended() {
	local status=0

	wait_for "$1" 60 || status=$?
	is "$status" "$2" "$3"
}

look_up() {
	while [ -e "$tmp/looking" ]; do
		ls -l "$mnt/names/a" "$mnt/names" >/dev/null 2>>"$tmp/names.errors" || echo failed >>"$tmp/names.errors"
		echo >>"$tmp/looked"
	done
}

looked() {
	[ "$(wc -l <"$tmp/looked")" -gt "$1" ]
}

# ---- under readers

reading "a file to be warm" eager "$mnt/warm" "$root/warm"
check "it gets stored" stored "$mnt/warm"
: >"$tmp/looking"
: >"$tmp/names.errors"
look_up &
names=$!
reading_on eager eager "$mnt/slow" "$root/slow"
reading_on lazy st-lazy "$mnt/mapped" "$root/mapped"
check "data comes, read" soon 30 started "$mnt/slow"
check "a mapping waits for its data" soon 30 waits "$lazy"
require hurry
first=$wfsd_pid
take_over --takeover
check "the second daemon takes over, with cache and control socket" soon 60 serves "$next"
wfsd_pid=$next
ended "$first" 0 "the first one ends with status 0"
check "and says why" grep -q "was ended by the kernel: another wfsd has taken over" "$wfsd_log"
is "$(wfs mounts --json | jq '.mounts | length')" 1 "the mount is known"
check "metrics are served" curl -sf -o /dev/null http://127.0.0.1:9419/metrics
check "a reader loses nothing" wait_for "$eager" 90
check "nor does one that maps" wait_for "$lazy" 90
# In several rounds of the loop the second one was asked.
check "names are looked up" soon 60 looked $(($(wc -l <"$tmp/looked") + 2))
rm "$tmp/looking"
wait "$names"
is "$(cat "$tmp/names.errors")" "" "no name was lost"
at_least "$(counter served_origin_bytes)" 1 "bytes that the second one brought"
at_most "$(bytes_sent /slow)" 25165824 "bytes fetched of what was read meanwhile"
: >"$nginx_log"
drop_caches
reading "what was stored" eager "$mnt/warm" "$root/warm"
is "$(count_gets)" 0 "is still: no data GET"
check "what came meanwhile gets stored" stored "$mnt/slow" "$mnt/mapped"

# ---- from one that does not let go

kill -STOP "$wfsd_pid"
old=$wfsd_pid
take_over --takeover=2
ended "$next" 1 "one that is stopped keeps the cache: the next gives up"
check "and says who has it" grep -q "(process $old), which was taken over but has not ended within 2 s" "$wfsd_log"
drop_pages
reading "cached files are served meanwhile" eager "$mnt/warm" "$root/warm"
kill -CONT "$old"
ended "$old" 0 "going on, it finds that its session has ended"
wfsd_pid=
require start_wfsd
reading "one that starts then serves" st-lazy "$mnt/slow" "$root/slow"

old=$wfsd_pid
kill -STOP "$old"
take_over --takeover
check "the next waits for one that is stopped" soon 30 grep -q "in use by another wfsd (process $old): waiting" "$wfsd_log"
reading_on eager eager "$mnt/later" "$root/later"
check "so does a reader" soon 30 waits "$eager"
kill -CONT "$old"
check "and gets its turn" soon 60 serves "$next"
ended "$old" 0 "the stopped one has ended"
check "every byte is right" wait_for "$eager" 90

# ---- with another cache: only the addresses are the same

old=$next
take_over --takeover --cache-dir /var/tmp/second-cache
check "another cache: the socket is taken over" soon 60 serves "$next"
wfsd_pid=$next
ended "$old" 0 "the old one ends with status 0"
check "metrics are served" curl -sf -o /dev/null http://127.0.0.1:9419/metrics
drop_caches
reading "all is fetched anew" eager "$mnt/warm" "$root/warm"
check_fails "without --takeover, a daemon is refused" "another wfsd serves the kernel" timeout 60 wfsd --foreground \
	--config "$wfsd_conf"
check "and the one that serves goes on" serves "$wfsd_pid"
check "it ends" stop_wfsd
is "$([ -e "$wfsd_sock" ] && echo there)" "" "and takes its socket along"
rm -rf /var/tmp/second-cache
require umount "$mnt"
