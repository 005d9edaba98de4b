#!/bin/bash
# SPDX-License-Identifier: MIT
# group: store
# where: host
# kernels: none
# timeout: 400
#
# The daemon is killed at each step of storing and evicting a block. The next start serves
# no wrong byte from the cache, and nothing is left behind.
. "$(dirname "$0")/lib.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
nginx_port=18183
cache=$tmp/cache
root=$tmp/root

# start_native CAPACITY: false if it was killed before it answered.
start_native() {
	rm -f "$WFS_SOCKET"
	wfsd --no-kernel --foreground --cache-dir "$cache" --cache-capacity "$1" \
		--control-socket "$WFS_SOCKET" --metrics-listen '' >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	soon 30 eval 'answering || gone "$wfsd_pid"'
	answering
}

# start_faulty POINT[:N] CAPACITY
start_faulty() {
	export WFS_FAULT=$1
	start_native "$2"
	unset WFS_FAULT
}

cleanup() {
	stop_wfsd
	[ ! -e "$tmp/nginx/pid" ] || stop_nginx
}
trap 'cleanup; tap_end' EXIT

fetch() {
	wfs fetch --block 256K "$@" "$nginx_url/" >"$tmp/fetch.log" 2>&1
}

stat_of() {
	wfs stat --json | jq -r ".counters.$1"
}

# data_files: those of the cache, a line each.
data_files() {
	find "$cache/data" -type f
}

# not_the_origins: whole data files that differ from the origin's file of that size, and
# those that there is none of; what is in holes counts as well.
not_the_origins() {
	local file origin size

	while read -r file; do
		size=$(stat -c %s "$file")
		for origin in "$root"/*; do
			[ $((($(stat -c %s "$origin") + 4095) / 4096 * 4096)) = "$size" ] || continue
			cmp -s -n "$(stat -c %s "$origin")" "$file" "$origin" && continue 2
		done
		printf '%s\n' "${file##*/}"
	done < <(data_files)
}

# left_over: data files beyond those that the index knows, and KiB that they take beyond what
# it says, a block of the filesystem for each aside.
left_over() {
	local files=0 kib=0 n

	while read -r n; do
		files=$((files + 1))
		kib=$((kib + n / 2 - 4 - 4))
	done < <(find "$cache/data" -type f -printf '%b\n')
	kib=$((kib - $(stat_of cache_used_bytes) / 1024))
	printf '%d %d\n' $((files - $(stat_of cache_files))) $((kib > 0 ? kib : 0))
}

nothing_left() {
	[ "$(left_over)" = "0 0" ]
}

require make_file "$root/a" $((3 * 1024 * 1024 + 77)) a
require make_file "$root/b" $((2 * 1024 * 1024)) b
require make_file "$root/c" 300000 c
require make_file "$root/d" 5000 d
require find "$root" -exec touch -d '1 hour ago' {} +
require start_nginx "$root"
all=$((3 * 1024 * 1024 + 77 + 2 * 1024 * 1024 + 300000 + 5000))

# after DESCRIPTION [CORRUPT]: what the next start makes of it; so many blocks are bad.
after() {
	local what=$1 corrupt=${2:-0}

	wait "$wfsd_pid"
	if [ $? != 137 ]; then
		not_ok "$what: the daemon was not killed"
		stop_wfsd
		return
	fi
	require start_native 1G
	check "$what: all can be fetched" fetch --verify
	is "$(stat_of blocks_corrupt)" "$corrupt" "$what: nothing else in the cache was wrong"
	is "$(stat_of cache_used_bytes)" "$all" "$what: what is used is true"
	is "$(not_the_origins)" "" "$what: the cache files are the origin's, byte by byte"
	check "$what: nothing is left behind" soon 30 nothing_left || diag "$(left_over)"
	require stop_wfsd
}

# ---- storing, into an empty cache and at some later block

for point in created:1 created:3 written:1 written:5 sync:1 sync:2 synced:1 synced:2 \
	commit:1 commit:2 committed:1 committed:2 told:1 told:7; do
	rm -rf "$cache"
	start_faulty "$point" 1G && fetch
	after "storing, $point"
done

# ---- evicting: to make room, and by command

for point in granted:1 granted:3 unrecorded:1 unrecorded:5 punched:1 punched:4; do
	start_faulty "$point" 3M && fetch
	after "making room, $point"
done
for point in granted:2 unrecorded:1 punched:2 removed:1; do
	start_faulty "$point" 1G && wfs evict "$nginx_url/" >"$tmp/evict.log" 2>&1
	after "evicting all, $point"
done

# ---- a bad block is forgotten

for file in $(data_files); do
	[ "$(stat -c %s "$file")" -lt 3000000 ] ||
		printf X | dd of="$file" bs=1 seek=1234567 conv=notrunc 2>/dev/null
done
sync
start_faulty forgotten:1 1G && fetch --verify
after "forgetting a bad block"

# ---- collecting what an earlier start left

mkdir -p "$cache/data/07"
printf left >"$cache/data/07/0000000000000007"
printf left >"$cache/data/07/0000000000000107"
start_faulty collected:1 1G
after "collecting"
