#!/bin/bash
# SPDX-License-Identifier: MIT
# group: order
# kernels: 6.12
# timeout: 300
# full: yes
#
# The order of a first load is that of the second, on a fresh cache: what a loader needs comes
# once, what it does not need never. Without an order the next shard comes after the one before.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
. "$tests/origin.sh"

blocks=64
block=65536
shard=$((blocks * block))
delay=0.05

# counter NAME
counter() {
	wfs stat --json | jq -r ".counters.$1"
}

# fresh_cache: a daemon that knows nothing.
fresh_cache() {
	umount "$mnt" 2>/dev/null
	stop_wfsd
	rm -rf /var/cache/wfs/*
	start_wfsd
}

# mount_model [OPTIONS]: at $mnt, with the log of the origin begun anew.
mount_model() {
	mount_wfs "$source" "$mnt" "block=64K,readahead=128K${1:+,$1}" && forget_origin_log
}

# kept: the orders that the daemon has written.
kept() {
	counter order_profiles
}

at_least_kept() {
	[ "$(kept)" -ge "$1" ]
}

# settled: nothing is on its way.
settled() {
	wfs sync && [ "$(counter queued_blocks)" = 0 ] && [ "$(counter active_fetches)" = 0 ]
}

# blocks_twice: blocks of $place that the origin gave more than once.
blocks_twice() {
	ask_origin log | jq --arg place "$place/" --argjson block "$block" '
		[.[] | select(.method == "GET" and (.path | startswith($place)) and .range != null) |
			(.range | capture("bytes=(?<from>[0-9]+)-(?<to>[0-9]+)")) as $r | .path as $p |
			range(($r.from | tonumber) / $block | floor; (($r.to | tonumber) / $block | floor) + 1) |
			"\($p):\(.)"] | group_by(.) | map(select(length > 1)) | length'
}

# sent_all NAME...: bytes of them that the origin gave.
sent_all() {
	local name sum=0

	for name; do
		sum=$((sum + $(sent "$name")))
	done
	echo "$sum"
}

names=(model-00001-of-00003.x model-00002-of-00003.x model-00003-of-00003.x)
require make_files "$root/d" "$shard" "${names[@]}"
require start_origin
at_origin http
for name in "${names[@]}"; do
	require put "$name" "$root/d/$name"
done
total=$((3 * shard))

# ---- st-two-region and tp8: recorded, saved, loaded on a fresh cache

for pattern in st-two-region tp8; do
	require fresh_cache
	require mount_model
	require fault '*' delay "\"seconds\": $delay, \"method\": \"GET\""
	reading "$pattern: the first load" "$pattern" "$mnt" "$root/d"
	first=$(figure seconds)
	is "$(counter plans)" 0 "$pattern: no order is known of it"
	is "$(sent_all "${names[@]}")" "$total" "$pattern: each byte comes once"
	require umount "$mnt"
	check "$pattern: its order is kept" soon 20 at_least_kept 1
	require wfs profile save "$source" "$tmp/$pattern.json"
	streams=$(jq '.models[0].streams | length' "$tmp/$pattern.json")
	case $pattern in
	tp8) at_least "$streams" 2 "$pattern: a stream for each process that came first somewhere" ;;
	*) is "$streams" 1 "$pattern: one process, one stream" ;;
	esac

	require fresh_cache
	require wfs profile load "$tmp/$pattern.json"
	require mount_model
	reading "$pattern: the second load, on a fresh cache" "$pattern" "$mnt" "$root/d"
	second=$(figure seconds)
	check "$pattern: all is settled" soon 30 settled
	is "$(sent_all "${names[@]}")" "$total" "$pattern: each byte comes once, again"
	is "$(blocks_twice)" 0 "$pattern: no block comes twice"
	planned=$(counter plan_blocks)
	at_least "$planned" $((blocks / 2)) "$pattern: much of it was brought ahead"
	is "$(counter plan_fetched_blocks)" "$planned" "$pattern: all of that has come"
	require umount "$mnt"
	require wfs profile save "$source" "$tmp/again.json"
	is "$(counter plan_wasted_blocks)" 0 "$pattern: and nothing in vain"
	is "$(counter plans_dropped)" 0 "$pattern: the order was followed to the end"
	diag "$pattern with $delay s a request: $first s, with its order $second s; $planned of $((total / block)) blocks ahead"

	require fresh_cache
	require wfs profile load "$tmp/$pattern.json"
	require mount_model prefetch=off
	reading "$pattern: with prefetch=off" "$pattern" "$mnt" "$root/d"
	is "$(counter plan_blocks)" 0 "$pattern: the order is left alone"
	is "$(sent_all "${names[@]}")" "$total" "$pattern: each byte comes once as well"
	diag "$pattern with prefetch=off: $(figure seconds) s"
	require calm
done

# ---- what nobody needs

# pick SKIP: every second block of the first shard, by read().
pick() {
	local i

	for ((i = $1; i < blocks; i += 2)); do
		dd if="$mnt/${names[0]}" bs=4096 count=1 skip=$((i * block / 4096)) status=none >/dev/null ||
			return 1
	done
}

require fresh_cache
require mount_model huge=never
check "half of a shard's blocks are needed" pick 0
half=$(sent "${names[0]}")
require umount "$mnt"
check "that order is kept" soon 20 at_least_kept 1
require wfs evict "$source"
require mount_model huge=never
check "and needed again" pick 0
check "all is settled" soon 30 settled
is "$(sent "${names[0]}")" "$half" "what was not needed is not fetched"
is "$(sent_all "${names[1]}" "${names[2]}")" 0 "nor is another shard"
require umount "$mnt"
is "$(wfs evict --json "$source" | jq .busy)" 0 "nothing of it stays in use"

# ---- without an order: the next shard

asked_of() {
	[ "$(sent "$1")" -gt 0 ]
}

require fresh_cache
require mount_model
require cat "$mnt/${names[0]}" >/dev/null
check "a shard read in sequence begins the next" soon 20 asked_of "${names[1]}"
check "all is settled" soon 30 settled
at_most "$(sent "${names[1]}")" $((4 * block)) "by so much, until it is read"
is "$(sent "${names[2]}")" 0 "and not the one after that"
require cat "$mnt/${names[1]}" >/dev/null
check "which comes in its turn" soon 20 asked_of "${names[2]}"
check "all is settled" soon 30 settled
is "$(sent_all "${names[0]}" "${names[1]}")" $((2 * shard)) "each byte of what was read came once"
require fresh_cache
require mount_model prefetch=off
require cat "$mnt/${names[0]}" >/dev/null
check "all is settled" soon 30 settled
is "$(sent "${names[1]}")" 0 "with prefetch=off no shard is begun"
require umount "$mnt"

# ---- wfs prefetch, all the way

require wfs evict "$source"
require mount_model
check "prefetch --wait" wfs prefetch --wait "$mnt"
is "$(sent_all "${names[@]}")" "$total" "brings all, once"
require umount "$mnt"
require wfs evict "$source"
require mount_model
pid=$(wfs prefetch --background --json "$mnt" | jq .pid)
check "prefetch --background goes on by itself" soon 60 gone "$pid"
is "$(cached "$mnt/${names[2]}")" "$shard" "until all is there"
require umount "$mnt"

# ---- a mount that goes away

require configure "[fetch]
connections_per_host = 1"
require fresh_cache
for name in "${names[@]}"; do
	require fault "$name" mute '"method": "GET"'
done
require mount_model
require wfs prefetch "$mnt"
queued() {
	[ "$(counter queued_blocks)" -gt 0 ]
}
check "blocks wait for their turn" soon 20 queued
require umount "$mnt"
unqueued() {
	[ "$(counter queued_blocks)" = 0 ]
}
check "with their mount they are let go of" soon 20 unqueued ||
	diag "$(wfs stat | grep -E 'queued|active'; grep -E 'mount|request' "$wfsd_log" | tail -n 15)"
require calm
check "all is settled" soon 30 settled
at_most "$(sent_all "${names[@]}")" $((total / 2)) "and are not asked for afterwards"
